/* skua logits: what the model computes for a token sequence, as numbers. The tool to compare with other implementations. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/opts.h"
#include "convert/stream.h"
#include "engine/engine.h"
#include "sample/logprob.h"
#include "tok/tokenizer.h"

#define MAX_TOP 1000
#define MTP_TOP 5
#define LIST_SEPARATORS ", []\n\t"

struct options {
    struct engine_options engine;
    const char *ids, *prompt, *pos, *dump;
    int64_t top, greedy;
    bool layers, mtp, json, no_special;
};

struct work {
    struct options opt;
    skua_engine *engine;
    skua_session *session;
    struct token_vec ids;
    int32_t *positions, n_positions;
    float *logits, *layer_rows, *mtp_logits;
    json_t *greedy, *greedy_margin;
};

static const char help[] =
    "usage: skua logits -m MODEL (--ids 1,2,3 | --prompt TEXT) [OPTIONS]\n"
    "\n"
    "Evaluates the tokens and prints, for chosen positions, the logits that predict the next token.\n"
    "\n"
    ENGINE_HELP
    "      --ids LIST           token ids, separated by commas or spaces\n"
    "      --prompt TEXT        text, tokenized with special tokens recognised ('-': standard input)\n"
    "      --no-special         treat the names of control tokens in TEXT as ordinary text\n"
    "      --pos LIST           positions to print; negative ones count from the end (default: all)\n"
    "      --top N              best logits per position (default 10)\n"
    "      --layers             norm and first six values of the residual after every layer, last position\n"
    "      --greedy N           greedy continuation of at most N tokens, with the margin of each choice\n"
    "      --mtp                run the bundled MTP block over the tokens: best logits of its last row\n"
    "      --dump FILE          raw float32 rows over the whole vocabulary, one per printed position\n"
    "      --json               JSON (default: a table)\n"
    "\n"
    "example: skua logits --prompt \"The capital of France is\" --pos -1 --top 3 --precision reference\n";

enum { OPT_IDS = 256, OPT_PROMPT, OPT_NO_SPECIAL, OPT_POS, OPT_TOP, OPT_LAYERS, OPT_GREEDY, OPT_MTP, OPT_DUMP, OPT_JSON };

static const struct option long_options[] = {ENGINE_LONGS,
                                             {"ids", required_argument, NULL, OPT_IDS},
                                             {"prompt", required_argument, NULL, OPT_PROMPT},
                                             {"no-special", no_argument, NULL, OPT_NO_SPECIAL},
                                             {"pos", required_argument, NULL, OPT_POS},
                                             {"top", required_argument, NULL, OPT_TOP},
                                             {"layers", no_argument, NULL, OPT_LAYERS},
                                             {"greedy", required_argument, NULL, OPT_GREEDY},
                                             {"mtp", no_argument, NULL, OPT_MTP},
                                             {"dump", required_argument, NULL, OPT_DUMP},
                                             {"json", no_argument, NULL, OPT_JSON},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

/* ---- input ---- */

static int add_id(struct token_vec *v, int64_t id, skua_error *err)
{
    if (id < 0 || id > INT32_MAX)
        return error_set(err, SKUA_EARG, "--ids: token id %" PRId64 " is out of range", id);
    return token_vec_push(v, (uint32_t)id) ? error_nomem(err, "token ids", v->n * sizeof *v->ids) : 0;
}

/* The numbers of a list separated by commas or spaces, each given to add. */
static int parse_list(const char *flag, const char *text, struct token_vec *ids, int32_t **positions, int32_t *n_positions, skua_error *err)
{
    const char *p = text;
    while (*p) {
        char *end;
        if (strchr(LIST_SEPARATORS, *p)) {
            p++;
            continue;
        }
        errno = 0;
        long long v = strtoll(p, &end, 10);
        if (end == p || errno || v < INT32_MIN || v > INT32_MAX || (*end && !strchr(LIST_SEPARATORS, *end)))
            return error_set(err, SKUA_EARG, "%s: '%.20s' is no number; expected a list like 1,2,3", flag, p);
        if (ids) {
            int rc = add_id(ids, v, err);
            if (rc)
                return rc;
        } else {
            int32_t *q = mem_realloc_array(*positions, (size_t)*n_positions + 1, sizeof *q);
            if (!q)
                return error_nomem(err, "positions", sizeof *q);
            *positions = q;
            q[(*n_positions)++] = (int32_t)v;
        }
        p = end;
    }
    return 0;
}

static int read_tokens(struct work *w, skua_error *err)
{
    const struct options *o = &w->opt;
    if (o->ids)
        return parse_list("--ids", o->ids, &w->ids, NULL, NULL, err);
    char *text = NULL;
    size_t n = strlen(o->prompt);
    if (strcmp(o->prompt, "-") == 0) {
        int rc = file_read_all("-", TOKENIZER_MAX_TEXT, &text, &n, err);
        if (rc)
            return rc;
    }
    int rc = tokenizer_encode(w->engine->tokenizer, text ? text : o->prompt, n, !o->no_special, &w->ids, err);
    mem_free(text);
    return rc;
}

static int read_positions(struct work *w, skua_error *err)
{
    int32_t n = (int32_t)w->ids.n;
    if (!w->opt.pos) {
        w->positions = mem_alloc((size_t)n * sizeof *w->positions);
        if (!w->positions)
            return error_nomem(err, "positions", (size_t)n * sizeof *w->positions);
        for (int32_t i = 0; i < n; i++)
            w->positions[i] = i;
        w->n_positions = n;
        return 0;
    }
    int rc = parse_list("--pos", w->opt.pos, NULL, &w->positions, &w->n_positions, err);
    for (int32_t i = 0; i < w->n_positions && !rc; i++) {
        int32_t p = w->positions[i] < 0 ? w->positions[i] + n : w->positions[i];
        if (p < 0 || p >= n)
            return error_set(err, SKUA_EARG, "--pos %d is outside the %d tokens (expected %d to %d)", w->positions[i], n, -n, n - 1);
        w->positions[i] = p;
    }
    return rc;
}

/* ---- work ---- */

static int no_memory_for_json(skua_error *err) { return error_nomem(err, "JSON output", 0); }

static int run_inspection(struct work *w, skua_error *err)
{
    const struct model_config *c = &w->engine->config;
    size_t n = w->ids.n, row = (size_t)c->n_vocab * sizeof(float);
    int rc = engine_prepare(w->session, (const int32_t *)w->ids.ids, (int32_t)n, err); /* before memory for so many rows is asked for */
    if (rc)
        return rc;
    w->logits = mem_alloc(n * row);
    w->layer_rows = mem_alloc((size_t)c->n_layer * c->n_embd * sizeof(float));
    w->mtp_logits = mem_alloc(row);
    if (!w->logits || !w->layer_rows || !w->mtp_logits)
        return error_nomem(err, "logits", n * row);
    struct engine_inspect what = {.layers = w->opt.layers, .mtp = w->opt.mtp, .logits = w->logits, .layer_rows = w->layer_rows,
                                  .mtp_logits = w->mtp_logits};
    return engine_inspect(w->session, (const int32_t *)w->ids.ids, (int32_t)n, &what, err);
}

/* row: the logits of the last position; replaced step by step. */
static int continue_greedily(struct work *w, float *row, skua_error *err)
{
    int n_vocab = w->engine->config.n_vocab;
    w->greedy = json_array();
    w->greedy_margin = json_array();
    for (int64_t i = 0; i < w->opt.greedy; i++) {
        struct token_logprob best[2];
        double norm;
        int rc = logprob_norm(row, n_vocab, &norm, err);
        if (rc)
            return rc;
        logprob_top(row, n_vocab, norm, best, 2);
        if (json_array_append_new(w->greedy, json_integer(best[0].id)) ||
            json_array_append_new(w->greedy_margin, json_real((double)row[best[0].id] - row[best[1].id])))
            return no_memory_for_json(err);
        if (tokenizer_is_eog(w->engine->tokenizer, (uint32_t)best[0].id) || i + 1 == w->opt.greedy)
            break;
        skua_feed feed = {.session = w->session, .ids = &best[0].id, .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = row};
        if ((rc = skua_eval(w->engine, &feed, 1, NULL, NULL, err)))
            return rc;
    }
    return 0;
}

static int run_greedy(struct work *w, skua_error *err)
{
    size_t n = (size_t)w->engine->config.n_vocab;
    float *row = mem_alloc(n * sizeof *row); /* a copy: the rows of the prompt are still to be printed */
    if (!row)
        return error_nomem(err, "logits", n * sizeof *row);
    memcpy(row, w->logits + (w->ids.n - 1) * n, n * sizeof *row);
    int rc = continue_greedily(w, row, err);
    mem_free(row);
    return rc;
}

/* ---- output ---- */

/* The functions that build JSON return NULL when memory is short. jansson's setters take a NULL value for the failure that it is. */

/* value appended to *array; on failure *array is given up and becomes NULL. */
static void append(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value)) {
        json_decref(*array);
        *array = NULL;
    }
}

static json_t *top_json(const float *row, int n_vocab, double norm, int n)
{
    struct token_logprob best[MAX_TOP];
    json_t *top = json_array();
    n = n < n_vocab ? n : n_vocab;
    logprob_top(row, n_vocab, norm, best, n);
    for (int i = 0; i < n; i++)
        append(&top, json_pack("[i, f]", best[i].id, (double)row[best[i].id]));
    return top;
}

static int position_json(const struct work *w, int32_t pos, json_t **out, skua_error *err)
{
    int n = w->engine->config.n_vocab;
    const float *row = w->logits + (size_t)pos * n;
    double norm, sum = 0, squares = 0;
    int rc = logprob_norm(row, n, &norm, err);
    if (rc)
        return rc;
    for (int i = 0; i < n; i++)
        sum += row[i];
    double mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (row[i] - mean) * (row[i] - mean);
    append(out, json_pack("{s:i, s:f, s:f, s:f, s:o}", "pos", pos, "logsumexp", norm, "mean", mean, "std",
                          sqrt(squares / (n > 1 ? n - 1 : 1)), "top", top_json(row, n, norm, (int)w->opt.top)));
    return *out ? 0 : no_memory_for_json(err);
}

static json_t *layers_json(const struct work *w)
{
    const struct model_config *c = &w->engine->config;
    json_t *layers = json_array();
    for (int i = 0; i < c->n_layer; i++) {
        const float *x = w->layer_rows + (size_t)i * c->n_embd;
        double squares = 0;
        json_t *row = json_array();
        for (int k = 0; k < c->n_embd; k++)
            squares += (double)x[k] * x[k];
        append(&row, json_real(sqrt(squares)));
        for (int k = 0; k < 6 && k < c->n_embd; k++)
            append(&row, json_real(x[k]));
        append(&layers, row);
    }
    return layers;
}

static int build_json(const struct work *w, json_t **out, skua_error *err)
{
    json_t *root = json_object(), *ids = json_array(), *positions = json_array();
    int rc = 0, failed = 0, n_vocab = w->engine->config.n_vocab;
    *out = root;
    for (size_t i = 0; i < w->ids.n; i++)
        append(&ids, json_integer(w->ids.ids[i]));
    failed |= json_object_set_new(root, "ids", ids);
    for (int32_t i = 0; i < w->n_positions && !rc; i++)
        rc = position_json(w, w->positions[i], &positions, err);
    failed |= json_object_set_new(root, "positions", positions);
    if (w->opt.layers)
        failed |= json_object_set_new(root, "layers_last_pos", layers_json(w));
    if (w->opt.mtp && w->ids.n > 1 && !rc) {
        double norm = 0;
        rc = logprob_norm(w->mtp_logits, n_vocab, &norm, err);
        if (!rc)
            failed |= json_object_set_new(root, "mtp_last", json_pack("{s:o}", "top", top_json(w->mtp_logits, n_vocab, norm, MTP_TOP)));
    }
    if (w->greedy)
        failed |= json_object_set(root, "greedy", w->greedy) | json_object_set(root, "greedy_margin", w->greedy_margin);
    return !rc && failed ? no_memory_for_json(err) : rc;
}

static void print_piece(const struct work *w, json_int_t id)
{
    size_t n;
    const char *p = tokenizer_piece(w->engine->tokenizer, (uint32_t)id, true, &n);
    char safe[7];
    putchar('\'');
    for (size_t i = 0, used; i < n; i += used)
        fwrite(safe, 1, (size_t)utf8_escape(p + i, n - i, safe, &used), stdout);
    putchar('\'');
}

static void print_top(const struct work *w, const json_t *top)
{
    size_t i;
    json_t *pair;
    json_array_foreach(top, i, pair) {
        json_int_t id = json_integer_value(json_array_get(pair, 0));
        printf("    %8lld  %10.5f  ", (long long)id, json_real_value(json_array_get(pair, 1)));
        print_piece(w, id);
        putchar('\n');
    }
}

static void print_table(const struct work *w, const json_t *root)
{
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(root, "positions"), i, x) {
        json_int_t pos = json_integer_value(json_object_get(x, "pos"));
        printf("position %lld, after ", (long long)pos);
        print_piece(w, w->ids.ids[pos]);
        printf(": logsumexp %.5f, mean %.5f, std %.5f\n", json_real_value(json_object_get(x, "logsumexp")),
               json_real_value(json_object_get(x, "mean")), json_real_value(json_object_get(x, "std")));
        print_top(w, json_object_get(x, "top"));
    }
    json_array_foreach(json_object_get(root, "layers_last_pos"), i, x) {
        printf("layer %zu: norm %.5f, first", i, json_real_value(json_array_get(x, 0)));
        for (size_t k = 1; k < json_array_size(x); k++)
            printf(" %.5f", json_real_value(json_array_get(x, k)));
        putchar('\n');
    }
    if (json_object_get(root, "mtp_last")) {
        printf("MTP block, last row:\n");
        print_top(w, json_object_get(json_object_get(root, "mtp_last"), "top"));
    }
    json_array_foreach(w->greedy, i, x) {
        printf("greedy %zu: %lld, margin %.4f  ", i, (long long)json_integer_value(x),
               json_real_value(json_array_get(w->greedy_margin, i)));
        print_piece(w, json_integer_value(x));
        putchar('\n');
    }
}

static int write_dump(const struct work *w, skua_error *err)
{
    struct file_writer f;
    size_t row = (size_t)w->engine->config.n_vocab;
    int rc = file_writer_open(&f, w->opt.dump, err);
    for (int32_t i = 0; i < w->n_positions && !rc; i++)
        rc = file_writer_write(&f, w->logits + (size_t)w->positions[i] * row, row * sizeof(float), err);
    if (!rc)
        rc = file_writer_commit(&f, err);
    return rc;
}

static int output(struct work *w, skua_error *err)
{
    json_t *root = NULL;
    int rc = build_json(w, &root, err);
    if (!rc && w->opt.dump)
        rc = write_dump(w, err);
    if (!rc && w->opt.json) {
        if (json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9)) && !ferror(stdout))
            rc = no_memory_for_json(err);
        putchar('\n');
    } else if (!rc) {
        print_table(w, root);
    }
    if (!rc && (fflush(stdout) || ferror(stdout)))
        rc = error_set(err, SKUA_EIO, "cannot write to standard output: %s", strerror(errno));
    json_decref(root);
    return rc;
}

static int work(struct work *w, skua_error *err)
{
    int rc = engine_open(&w->opt.engine, "logits", &w->engine, err);
    if (!rc && w->opt.dump)
        rc = stream_check_output(w->engine->gguf, w->opt.dump, err);
    if (!rc)
        rc = read_tokens(w, err);
    if (!rc && !w->ids.n)
        rc = error_set(err, SKUA_EARG, "no tokens: the prompt is empty");
    if (!rc && w->ids.n > INT32_MAX / 2)
        rc = error_set(err, SKUA_ELIMIT, "%zu tokens are more than a session can hold", w->ids.n);
    if (!rc)
        rc = read_positions(w, err);
    if (!rc)
        rc = engine_session(&w->opt.engine, "logits", w->engine, &w->session, err);
    if (!rc)
        rc = run_inspection(w, err);
    if (!rc && w->opt.greedy)
        rc = run_greedy(w, err);
    if (!rc)
        rc = output(w, err);
    return rc;
}

/* 0, 1 (help was printed), or an error. */
static int parse(int argc, char **argv, struct options *o, skua_error *err)
{
    int c, rc = 0;
    opts_begin();
    while (!rc && (c = opts_next("logits", argc, argv, ENGINE_SHORTS "h", long_options, err)) != OPTS_END) {
        switch (c) {
        case OPT_IDS: o->ids = optarg; break;
        case OPT_PROMPT: o->prompt = optarg; break;
        case OPT_NO_SPECIAL: o->no_special = true; break;
        case OPT_POS: o->pos = optarg; break;
        case OPT_TOP: rc = opt_i64("--top", optarg, 0, MAX_TOP, &o->top, err); break;
        case OPT_LAYERS: o->layers = true; break;
        case OPT_GREEDY: rc = opt_i64("--greedy", optarg, 0, INT32_MAX, &o->greedy, err); break;
        case OPT_MTP: o->mtp = true; break;
        case OPT_DUMP: o->dump = optarg; break;
        case OPT_JSON: o->json = true; break;
        case 'h': fputs(help, stdout); return 1;
        default:
            rc = c == OPTS_BAD ? SKUA_EARG : engine_option(&o->engine, c, optarg, err);
            rc = rc > 0 ? 0 : rc;
        }
    }
    if (!rc && optind < argc)
        rc = error_set(err, SKUA_EARG, "unexpected argument '%s'", argv[optind]);
    if (!rc && !o->ids == !o->prompt)
        rc = error_set(err, SKUA_EARG, "one of --ids and --prompt is needed");
    return rc;
}

int cmd_logits(int argc, char **argv)
{
    struct work w = {.opt = {.top = 10}};
    skua_error err = {0};
    int rc = parse(argc, argv, &w.opt, &err);
    if (rc > 0)
        return 0;
    if (rc)
        return opts_fail("logits", OPTS_USAGE, &err);
    rc = work(&w, &err);
    json_decref(w.greedy);
    json_decref(w.greedy_margin);
    mem_free(w.logits);
    mem_free(w.layer_rows);
    mem_free(w.mtp_logits);
    mem_free(w.positions);
    token_vec_free(&w.ids);
    skua_session_free(w.session);
    skua_engine_close(w.engine);
    return rc ? opts_fail("logits", OPTS_FAILED, &err) : 0;
}
