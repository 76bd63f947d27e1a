/* skua perplexity: how well a model predicts a text, and how far it is from saved predictions of another. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/inspect_value.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"
#include "cmd/term.h"
#include "cmd/text_chunks.h"
#include "convert/stream.h"
#include "engine/engine.h"
#include "engine/score_base.h"
#include "sample/logprob.h"

#define COMMAND "perplexity"
#define LOGITS_BYTES (64u << 20) /* at a time */

static const char help[] =
    "usage: skua perplexity -m MODEL -f TEXT [OPTIONS]\n"
    "\n"
    "Perplexity of a text, cut into chunks that are evaluated each on its own. In every chunk the first half is context and the tokens\n"
    "behind it are scored, as llama.cpp does it. With --kl-base also the KL divergence from the saved predictions of another model\n"
    "(the unquantized one, say) for the same text.\n"
    "\n"
    "  -m, --model FILE         model (default: SKUA_MODEL, else the shipped model)\n"
    TEXT_HELP
    "      --score-from N       first position of a chunk whose prediction is scored (default: half of the chunk size)\n"
    "      --save-base FILE     save the predictions (2 bytes per token of the vocabulary and scored token)\n"
    "      --kl-base FILE       compare with saved predictions\n"
    "      --json               JSON\n"
    "  -t, --threads N          threads (default: all physical cores); they do not change the result\n"
    "      --kv-type T          KV cache type: F16 (default), F32, BF16, Q8_0\n"
    "      --precision P        auto (default), or reference: float32 activations, double accumulation\n"
    "  -h, --help\n"
    "\n"
    "example: skua perplexity -m model-bf16.gguf -f wiki.txt --save-base base.logp\n"
    "         skua perplexity -m model-q4.gguf -f wiki.txt --kl-base base.logp\n";

struct options {
    struct engine_options engine;
    struct text_options text;
    const char *save_base, *kl_base;
    int64_t score_from; /* -1: half of the chunk size */
    bool json;
};

struct work {
    struct options opt;
    skua_engine *engine;
    skua_session *session;
    struct text_chunks text;
    struct score_shape shape;
    struct score_base base;
    struct score_base_writer writer;
    bool writing;
    float *logits;         /* [slice][n_vocab] */
    int32_t slice;
    struct score_mean nll;
    struct score_pairs pairs;
    const atomic_int *stop;
    struct progress progress;
    uint64_t tokens_done;  /* before the feed that is being evaluated */
};

/* ---- the base ---- */

/* Another vocabulary, other chunks, another text: each named. A base of more chunks than are evaluated is fine. */
static int check_base(const struct work *w, skua_error *err)
{
    const struct score_shape *b = &w->base.shape, *s = &w->shape;
    if (b->n_vocab != s->n_vocab)
        return error_set(err, SKUA_EARG, "has a vocabulary of %d tokens, the model one of %d", b->n_vocab, s->n_vocab);
    if (b->chunk_size != s->chunk_size)
        return error_set(err, SKUA_EARG, "has chunks of %d tokens, --chunk-size is %d", b->chunk_size, s->chunk_size);
    if (b->score_from != s->score_from)
        return error_set(err, SKUA_EARG, "is scored from position %d, this run from %d", b->score_from, s->score_from);
    int32_t n = b->n_chunks < s->n_chunks ? b->n_chunks : s->n_chunks;
    for (int32_t i = 0; i < n * s->chunk_size; i++)
        if (score_base_id(&w->base, i) != w->text.ids[i])
            return error_set(err, SKUA_EARG, "is of another text: its token %d is %d, that of '%s' is %d", i, score_base_id(&w->base, i),
                             w->text.name, w->text.ids[i]);
    if (b->n_chunks < s->n_chunks)
        return error_set(err, SKUA_EARG, "has %d chunks, fewer than the %d to evaluate (--chunks %d takes these)", b->n_chunks, s->n_chunks,
                         b->n_chunks);
    return 0;
}

static int open_base(struct work *w, skua_error *err)
{
    int rc = score_base_open(&w->base, w->opt.kl_base, err);
    if (rc)
        return rc;
    rc = check_base(w, err);
    if (rc)
        error_prefix(err, "base %s", w->opt.kl_base);
    return rc;
}

/* Saved predictions must not replace what they are made of. */
static int check_output(const struct work *w, skua_error *err)
{
    const char *path = w->opt.save_base;
    const char *what = file_is_same(path, w->opt.text.file) ? "the text" : w->opt.kl_base && file_is_same(path, w->opt.kl_base)
                       ? "the base of --kl-base" : NULL;
    if (what)
        return error_set(err, SKUA_EARG, "%s: is %s; expected another name for the output", path, what);
    return stream_check_output(w->engine->gguf, path, err);
}

/* ---- evaluation ---- */

static bool show_progress(void *user, int32_t n_done, int32_t n_total)
{
    struct work *w = user;
    (void)n_total;
    progress_set(&w->progress, w->tokens_done + (uint64_t)n_done);
    return !atomic_load(w->stop);
}

/* Row i of a chunk's scored ones. */
static int score_row(struct work *w, int32_t chunk, int32_t i, const float *logits, skua_error *err)
{
    const int32_t *ids = w->text.ids + (size_t)chunk * (size_t)w->shape.chunk_size;
    int32_t n_vocab = w->shape.n_vocab, next = ids[w->shape.score_from + i + 1];
    struct score_row row;
    double norm;
    int rc = logprob_norm(logits, n_vocab, &norm, err);
    if (rc)
        return rc;
    score_add(&w->nll, -logprob_of(logits[next], norm));
    if (w->writing)
        rc = score_base_write(&w->writer, logits, norm, next, err);
    if (rc || !w->opt.kl_base)
        return rc;
    rc = score_base_row(&w->base, chunk, i, &row, err);
    if (rc) {
        error_prefix(err, "base %s", w->opt.kl_base);
        return rc;
    }
    struct score_pair pair = score_compare(&row, logits, n_vocab, norm, next);
    return score_pairs_add(&w->pairs, &pair, err);
}

static int feed(struct work *w, const int32_t *ids, int32_t n, enum skua_logits want, skua_error *err)
{
    skua_feed f = {.session = w->session, .ids = ids, .n_ids = n, .want = want, .logits = w->logits};
    int rc = skua_eval(w->engine, &f, 1, show_progress, w, err);
    w->tokens_done += (uint64_t)n;
    if (!rc && !show_progress(w, 0, 0))
        rc = error_set(err, SKUA_ECANCELED, "stopped");
    return rc;
}

/* The context of a chunk in one go, the scored part in slices. Nothing is predicted from the last token. */
static int score_chunk(struct work *w, int32_t chunk, skua_error *err)
{
    const int32_t *ids = w->text.ids + (size_t)chunk * (size_t)w->shape.chunk_size;
    int32_t at = w->shape.score_from, end = w->shape.chunk_size - 1;
    skua_session_reset(w->session);
    int rc = at ? feed(w, ids, at, SKUA_LOGITS_NONE, err) : 0;
    while (!rc && at < end) {
        int32_t n = end - at < w->slice ? end - at : w->slice;
        rc = feed(w, ids + at, n, SKUA_LOGITS_ALL, err);
        for (int32_t i = 0; i < n && !rc; i++)
            rc = score_row(w, chunk, at - w->shape.score_from + i, w->logits + (size_t)i * (size_t)w->shape.n_vocab, err);
        at += n;
    }
    return rc;
}

static int score_text(struct work *w, skua_error *err)
{
    size_t row = (size_t)w->shape.n_vocab * sizeof *w->logits;
    int32_t scored = w->shape.chunk_size - 1 - w->shape.score_from;
    w->slice = row < LOGITS_BYTES ? (int32_t)(LOGITS_BYTES / row) : 1;
    w->slice = w->slice < scored ? w->slice : scored;
    w->logits = mem_alloc((size_t)w->slice * row);
    if (!w->logits)
        return error_nomem(err, "logits", (size_t)w->slice * row);
    int rc = 0;
    for (int32_t i = 0; i < w->shape.n_chunks && !rc; i++) {
        rc = score_chunk(w, i, err);
        if (rc == SKUA_ECANCELED)
            error_set(err, rc, "interrupted in chunk %d of %d", i + 1, w->shape.n_chunks);
    }
    return rc;
}

static int evaluate(struct work *w, skua_error *err)
{
    int rc = 0;
    w->stop = interrupt_catch();
    progress_begin(&w->progress, "scoring", (uint64_t)w->shape.n_chunks * (uint64_t)(w->shape.chunk_size - 1));
    if (w->opt.save_base) {
        rc = score_base_create(&w->writer, w->opt.save_base, &w->shape, w->text.ids, err);
        w->writing = !rc;
    }
    if (!rc)
        rc = score_text(w, err);
    if (!rc && w->writing) {
        w->writing = false;
        rc = score_base_finish(&w->writer, err);
    }
    if (w->writing)
        score_base_abort(&w->writer);
    progress_end(&w->progress);
    interrupt_restore();
    return rc;
}

/* ---- output ---- */

static const struct {
    double p;
    const char *name, *key;
} percentiles[] = {{1, "maximum", "max"},   {0.999, "99.9%", "p99.9"}, {0.99, "99%", "p99"},
                   {0.95, "95%", "p95"}, {0.9, "90%", "p90"},       {0.5, "median", "median"}};
#define N_PERCENTILES (sizeof percentiles / sizeof *percentiles)

/* RMS of delta p and its error: that of the mean square, carried through the root. */
static double rms(const struct score_pairs *s, double *error)
{
    double r = sqrt(s->delta_p2.mean);
    *error = r > 0 ? score_error(&s->delta_p2) / (2 * r) : 0;
    return r;
}

static void line(struct strbuf *out, const char *name, double v, double error, int digits, const char *unit)
{
    strbuf_printf(out, "%-26s %14.*f%s", name, digits, v, unit);
    if (isfinite(error))
        strbuf_printf(out, " +/- %.*f%s", digits, error, unit);
    strbuf_putc(out, '\n');
}

static void pairs_text(const struct score_pairs *s, struct strbuf *out)
{
    double error, base = exp(s->base_nll.mean);
    line(out, "base perplexity", base, base * score_error(&s->base_nll), 4, "");
    line(out, "ln(PPL / base PPL)", s->ratio.mean, score_error(&s->ratio), 6, "");
    line(out, "KL divergence, mean", s->kl.mean, score_error(&s->kl), 6, "");
    for (size_t i = 0; i < N_PERCENTILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "  %s", percentiles[i].name);
        line(out, name, score_percentile(s->kls, s->kl.n, percentiles[i].p), NAN, 6, "");
    }
    line(out, "same best token", 100 * s->same_best.mean, 100 * score_error(&s->same_best), 3, " %");
    line(out, "delta p, mean", 100 * s->delta_p.mean, 100 * score_error(&s->delta_p), 3, " %");
    double r = rms(s, &error);
    line(out, "delta p, RMS", 100 * r, 100 * error, 3, " %");
}

static void print_text(const struct work *w, struct strbuf *out)
{
    double ppl = exp(w->nll.mean);
    strbuf_printf(out, "%d chunks of %d tokens, %lld tokens scored\n", w->shape.n_chunks, w->shape.chunk_size, (long long)w->nll.n);
    line(out, "perplexity", ppl, ppl * score_error(&w->nll), 4, "");
    if (w->opt.kl_base)
        pairs_text(&w->pairs, out);
}

/* The value and, under KEY_error, its error; null where there are too few values for one (JSON has no NaN). Not 0: no memory. */
static int set(json_t *o, const char *key, double v, double error)
{
    char error_key[64];
    snprintf(error_key, sizeof error_key, "%s_error", key);
    return json_object_set_new(o, key, json_real(v)) |
           json_object_set_new(o, error_key, isfinite(error) ? json_real(error) : json_null());
}

static int set_pairs(json_t *root, const struct score_pairs *s)
{
    double error, base = exp(s->base_nll.mean), r = rms(s, &error);
    json_t *kl = json_object(), *o = json_object();
    int rc = set(kl, "mean", s->kl.mean, score_error(&s->kl));
    for (size_t i = 0; i < N_PERCENTILES; i++)
        rc |= json_object_set_new(kl, percentiles[i].key, json_real(score_percentile(s->kls, s->kl.n, percentiles[i].p)));
    rc |= set(o, "perplexity", base, base * score_error(&s->base_nll));
    rc |= set(o, "ln_perplexity_ratio", s->ratio.mean, score_error(&s->ratio));
    rc |= json_object_set_new(o, "kl_divergence", kl);
    rc |= set(o, "same_best", s->same_best.mean, score_error(&s->same_best));
    rc |= set(o, "delta_p_mean", s->delta_p.mean, score_error(&s->delta_p));
    rc |= set(o, "delta_p_rms", r, error);
    return rc | json_object_set_new(root, "base", o);
}

static int print_json(const struct work *w, struct strbuf *out, skua_error *err)
{
    double ppl = exp(w->nll.mean);
    json_t *root = json_object();
    int rc = json_object_set_new(root, "chunks", json_integer(w->shape.n_chunks));
    rc |= json_object_set_new(root, "chunk_size", json_integer(w->shape.chunk_size));
    rc |= json_object_set_new(root, "score_from", json_integer(w->shape.score_from));
    rc |= json_object_set_new(root, "tokens_scored", json_integer(w->nll.n));
    rc |= set(root, "mean_nll", w->nll.mean, score_error(&w->nll));
    rc |= set(root, "perplexity", ppl, ppl * score_error(&w->nll));
    if (w->opt.kl_base)
        rc |= set_pairs(root, &w->pairs);
    return value_json_dump(root, rc != 0, out, err);
}

static int print(struct work *w, skua_error *err)
{
    struct strbuf out = {0};
    int rc = 0;
    score_pairs_sort(&w->pairs);
    if (w->opt.json)
        rc = print_json(w, &out, err);
    else
        print_text(w, &out);
    if (!rc && strbuf_failed(&out))
        rc = error_nomem(err, "output", out.len);
    if (!rc && (fputs(strbuf_str(&out), stdout) < 0 || fflush(stdout)))
        rc = error_set(err, SKUA_EIO, "cannot write to standard output: %s", strerror(errno));
    strbuf_free(&out);
    return rc;
}

/* ---- the command ---- */

static int work(struct work *w, skua_error *err)
{
    int rc = engine_open(&w->opt.engine, COMMAND, &w->engine, err);
    if (!rc && w->opt.save_base)
        rc = check_output(w, err);
    if (!rc)
        rc = text_chunks_read(&w->text, w->engine, &w->opt.text, COMMAND, err);
    if (rc)
        return rc;
    w->shape = (struct score_shape){.n_vocab = skua_engine_get_info(w->engine).n_vocab, .chunk_size = w->text.chunk_size,
                                    .score_from = (int32_t)w->opt.score_from, .n_chunks = w->text.n_chunks};
    if (w->opt.kl_base)
        rc = open_base(w, err);
    if (!rc)
        rc = text_chunks_session(&w->text, w->engine, COMMAND, &w->session, err);
    if (!rc)
        rc = evaluate(w, err);
    return rc ? rc : print(w, err);
}

static int check_options(int argc, char **argv, struct options *o, skua_error *err)
{
    int64_t size = o->text.chunk_size;
    if (optind < argc)
        return error_set(err, SKUA_EARG, "unexpected argument '%s'", argv[optind]);
    if (!o->text.file)
        return error_set(err, SKUA_EARG, "-f is missing; expected -f TEXT");
    if (o->score_from < 0)
        o->score_from = size / 2;
    if (o->score_from > size - 2)
        return error_set(err, SKUA_EARG, "scoring from position %lld leaves nothing of chunks of %lld tokens; expected at most %lld",
                         (long long)o->score_from, (long long)size, (long long)size - 2);
    return 0;
}

/* 0, 1 (help was printed), or an error. */
static int parse(int argc, char **argv, struct options *o, skua_error *err)
{
    enum { SCORE_FROM = 256, SAVE_BASE, KL_BASE, JSON };
    static const struct option longs[] = {
        TEXT_LONGS, {"model", required_argument, NULL, 'm'}, {"threads", required_argument, NULL, 't'},
        {"score-from", required_argument, NULL, SCORE_FROM},
        {"save-base", required_argument, NULL, SAVE_BASE}, {"kl-base", required_argument, NULL, KL_BASE}, {"json", no_argument, NULL, JSON},
        {"kv-type", required_argument, NULL, ENGINE_OPT_KV_TYPE}, {"precision", required_argument, NULL, ENGINE_OPT_PRECISION},
        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int c, rc = 0;
    opts_begin();
    while (!rc && (c = opts_next(COMMAND, argc, argv, TEXT_SHORTS "m:t:h", longs, err)) != OPTS_END) {
        switch (c) {
        case SCORE_FROM: rc = opt_i64("--score-from", optarg, 0, TEXT_MAX_CHUNK, &o->score_from, err); break;
        case SAVE_BASE: o->save_base = optarg; break;
        case KL_BASE: o->kl_base = optarg; break;
        case JSON: o->json = true; break;
        case 'h': fputs(help, stdout); return 1;
        default:
            rc = c == OPTS_BAD ? SKUA_EARG : text_option(&o->text, c, optarg, err);
            if (!rc)
                rc = engine_option(&o->engine, c, optarg, err);
            rc = rc > 0 ? 0 : rc;
        }
    }
    return rc ? rc : check_options(argc, argv, o, err);
}

int cmd_perplexity(int argc, char **argv)
{
    struct work w = {.opt = {.text = TEXT_DEFAULTS, .score_from = -1}};
    skua_error err = {0};
    int rc = parse(argc, argv, &w.opt, &err);
    if (rc > 0)
        return OPTS_OK;
    if (rc)
        return opts_fail(COMMAND, OPTS_USAGE, &err);
    rc = work(&w, &err);
    mem_free(w.logits);
    score_pairs_free(&w.pairs);
    score_base_close(&w.base);
    text_chunks_free(&w.text);
    skua_session_free(w.session);
    skua_engine_close(w.engine);
    return rc ? opts_fail(COMMAND, OPTS_FAILED, &err) : OPTS_OK;
}
