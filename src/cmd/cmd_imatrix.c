/* skua imatrix: an importance matrix of a model, measured on a text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/file.h"
#include "cmd/cmd.h"
#include "cmd/cmd_engine.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"
#include "cmd/term.h"
#include "cmd/text_chunks.h"
#include "convert/stream.h"
#include "engine/collect.h"

#define COMMAND "imatrix"

static const char help[] =
    "usage: skua imatrix -m MODEL -f TEXT [OPTIONS] OUT.gguf\n"
    "\n"
    "Evaluate a text in chunks, each on its own, and write for every weight matrix the sums of squares of its input columns, for routed\n"
    "experts one by one. 'skua quantize --imatrix OUT.gguf' weighs rounding errors with it. The format is the public one.\n"
    "\n"
    "  -m, --model FILE         model (default: SKUA_MODEL, else the shipped model)\n"
    TEXT_HELP
    "      --output-weight      the output head too (slower: all logits are computed)\n"
    "      --save-every N       write OUT.gguf after every N chunks (default 10; 0: at the end only)\n"
    "      --resume             go on from the chunks that OUT.gguf holds; the same bytes come out as without a break\n"
    "  -t, --threads N          threads (default: all physical cores); they do not change the result\n"
    "      --kv-type T          KV cache type: F16 (default), F32, BF16, Q8_0\n"
    "      --precision P        auto (default), or reference: float32 activations, double accumulation\n"
    "  -h, --help\n"
    "\n"
    "Ctrl-C stops after writing the chunks done so far. An MTP block does not run on plain text: its matrices get no statistics, and\n"
    "are quantized without.\n"
    "\n"
    "example: skua imatrix -m models/tiny-q8_0.gguf -f README.md --chunks 4 tiny.imatrix.gguf\n";

struct options {
    struct engine_options engine;
    struct text_options text;
    const char *out;
    int64_t save_every;
    bool output, resume;
};

struct work {
    struct options opt;
    skua_engine *engine;
    skua_session *session;
    struct text_chunks text;
    struct collect *collect;
    int32_t done, saved;     /* chunks: evaluated, in the file */
    const atomic_int *stop;
    struct progress progress;
};

/* ---- the file ---- */

/* What a write at the end would fail for should not cost hours first. */
static int check_output(const struct work *w, skua_error *err)
{
    struct file_writer f;
    const char *path = w->opt.out;
    if (file_is_same(path, w->opt.text.file))
        return error_set(err, SKUA_EARG, "%s: is the text; expected another name for the output", path);
    int rc = stream_check_output(w->engine->gguf, path, err);
    if (!rc)
        rc = file_writer_open(&f, path, err);
    if (!rc)
        file_writer_abort(&f);
    return rc;
}

static uint64_t hash_of(const struct text_chunks *t, int32_t n_chunks)
{
    return XXH3_64bits(t->ids, (size_t)n_chunks * (size_t)t->chunk_size * sizeof *t->ids);
}

static int save(struct work *w, skua_error *err)
{
    struct imatrix_source source = {.chunks = (uint32_t)w->done, .chunk_size = (uint32_t)w->text.chunk_size, .dataset = w->text.name,
                                    .tokens_hash = hash_of(&w->text, w->done)};
    int rc = collect_save(w->collect, w->opt.out, &source, err);
    if (!rc)
        w->saved = w->done;
    return rc;
}

static int check_source(const struct work *w, const struct imatrix *m, skua_error *err)
{
    const struct text_chunks *t = &w->text;
    uint32_t chunks = imatrix_chunks(m);
    uint64_t hash = imatrix_tokens_hash(m);
    if (imatrix_chunk_size(m) != (uint32_t)t->chunk_size)
        return error_set(err, SKUA_EARG, "its chunks have %u tokens, --chunk-size is %d", imatrix_chunk_size(m), t->chunk_size);
    if (strcmp(imatrix_dataset(m), t->name) != 0)
        return error_set(err, SKUA_EARG, "its text is '%s', not '%s'", imatrix_dataset(m), t->name);
    if (chunks > (uint32_t)t->n_chunks)
        return error_set(err, SKUA_EARG, "it holds %u chunks, more than the %d to evaluate", chunks, t->n_chunks);
    if (hash && hash != hash_of(t, (int32_t)chunks))
        return error_set(err, SKUA_EARG, "its %u chunks had other tokens than '%s' gives now", chunks, t->name);
    return 0;
}

static int resume(struct work *w, skua_error *err)
{
    struct imatrix *m;
    int rc = imatrix_open(&m, w->opt.out, err);
    if (rc)
        return rc;
    rc = collect_resume(w->collect, m, err); /* another model before another text: the greater mistake */
    if (!rc)
        rc = check_source(w, m, err);
    if (rc)
        error_prefix(err, "%s: cannot be continued", w->opt.out);
    else
        w->done = w->saved = (int32_t)imatrix_chunks(m);
    imatrix_free(m);
    return rc;
}

/* ---- evaluation ---- */

static bool show_progress(void *user, int32_t n_done, int32_t n_total)
{
    struct work *w = user;
    (void)n_total;
    progress_set(&w->progress, (uint64_t)w->done * (uint64_t)w->text.chunk_size + (uint64_t)n_done);
    return !atomic_load(w->stop);
}

static int evaluate(struct work *w, skua_error *err)
{
    int rc = 0;
    while (w->done < w->text.n_chunks && show_progress(w, 0, 0)) {
        const int32_t *ids = w->text.ids + (size_t)w->done * (size_t)w->text.chunk_size;
        rc = collect_chunk(w->collect, w->session, ids, w->text.chunk_size, show_progress, w, err);
        if (rc)
            return rc == SKUA_ECANCELED ? 0 : rc;
        w->done++;
        if (w->opt.save_every && w->done % w->opt.save_every == 0 && (rc = save(w, err)))
            return rc;
    }
    return 0;
}

static int interrupted(const struct work *w, skua_error *err)
{
    if (!w->done)
        return error_set(err, SKUA_ECANCELED, "interrupted before the first of %d chunks was done; %s is not written", w->text.n_chunks,
                         w->opt.out);
    return error_set(err, SKUA_ECANCELED, "interrupted after %d of %d chunks; %s holds these, and --resume goes on", w->done,
                     w->text.n_chunks, w->opt.out);
}

static void report(const struct work *w)
{
    uint64_t n, unseen;
    collect_seen(w->collect, &n, &unseen);
    if (unseen)
        opts_warn(COMMAND, "%" PRIu64 " of %" PRIu64 " matrices (experts counted one by one) were given no rows by this text", unseen, n);
    printf("%s: %u tensors, %d chunks of %d tokens\n", w->opt.out, collect_tensors(w->collect), w->done, w->text.chunk_size);
}

static int run(struct work *w, skua_error *err)
{
    progress_begin(&w->progress, "collecting", (uint64_t)w->text.n_chunks * (uint64_t)w->text.chunk_size);
    w->stop = interrupt_catch();
    int rc = evaluate(w, err);
    if (!rc && w->done > w->saved)
        rc = save(w, err);
    interrupt_restore();
    progress_end(&w->progress);
    if (!rc && w->done < w->text.n_chunks)
        return interrupted(w, err);
    if (!rc)
        report(w);
    return rc;
}

static int work(struct work *w, skua_error *err)
{
    int rc = engine_open(&w->opt.engine, COMMAND, &w->engine, err);
    if (!rc)
        rc = check_output(w, err);
    if (!rc)
        rc = text_chunks_read(&w->text, w->engine, &w->opt.text, COMMAND, err);
    if (!rc)
        rc = collect_create(w->engine, w->opt.output, &w->collect, err);
    if (!rc && w->opt.resume)
        rc = resume(w, err);
    if (!rc)
        rc = text_chunks_session(&w->text, w->engine, COMMAND, &w->session, err);
    return rc ? rc : run(w, err);
}

/* ---- the command ---- */

/* 0, 1 (help was printed), or an error. */
static int parse(int argc, char **argv, struct options *o, skua_error *err)
{
    enum { OUTPUT = 256, SAVE_EVERY, RESUME };
    static const struct option longs[] = {
        TEXT_LONGS, {"model", required_argument, NULL, 'm'}, {"threads", required_argument, NULL, 't'},
        {"output-weight", no_argument, NULL, OUTPUT},
        {"save-every", required_argument, NULL, SAVE_EVERY}, {"resume", no_argument, NULL, RESUME},
        {"kv-type", required_argument, NULL, ENGINE_OPT_KV_TYPE}, {"precision", required_argument, NULL, ENGINE_OPT_PRECISION},
        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int c, rc = 0;
    opts_begin();
    while (!rc && (c = opts_next(COMMAND, argc, argv, TEXT_SHORTS "m:t:h", longs, err)) != OPTS_END) {
        switch (c) {
        case OUTPUT: o->output = true; break;
        case SAVE_EVERY: rc = opt_i64("--save-every", optarg, 0, INT32_MAX, &o->save_every, err); break;
        case RESUME: o->resume = true; break;
        case 'h': fputs(help, stdout); return 1;
        default:
            rc = c == OPTS_BAD ? SKUA_EARG : text_option(&o->text, c, optarg, err);
            if (!rc)
                rc = engine_option(&o->engine, c, optarg, err);
            rc = rc > 0 ? 0 : rc;
        }
    }
    if (rc)
        return rc;
    if (optind + 1 < argc)
        return error_set(err, SKUA_EARG, "unexpected argument '%s'", argv[optind + 1]);
    if (!o->text.file || optind == argc)
        return error_set(err, SKUA_EARG, "%s is missing; expected -f TEXT and the name of the output", o->text.file ? "OUT.gguf" : "-f");
    o->out = argv[optind];
    return 0;
}

int cmd_imatrix(int argc, char **argv)
{
    struct work w = {.opt = {.text = TEXT_DEFAULTS, .save_every = 10}};
    skua_error err = {0};
    int rc = parse(argc, argv, &w.opt, &err);
    if (rc > 0)
        return OPTS_OK;
    if (rc)
        return opts_fail(COMMAND, OPTS_USAGE, &err);
    rc = work(&w, &err);
    collect_free(w.collect);
    text_chunks_free(&w.text);
    skua_session_free(w.session);
    skua_engine_close(w.engine);
    return rc ? opts_fail(COMMAND, OPTS_FAILED, &err) : OPTS_OK;
}
