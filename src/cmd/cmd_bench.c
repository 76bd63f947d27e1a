/* skua bench: how fast a model runs on this machine, and how near that is to what its memory allows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "cmd/bench.h"
#include "cmd/cmd.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"

#define COMMAND "bench"

static const char help[] =
    "usage: skua bench [OPTIONS]\n"
    "\n"
    "Measures prefill, decode, steps of several rows and several sequences, and the machine's memory bandwidth in the same run.\n"
    "Lists are numbers with commas. Without any of --pp, --tg, --batch, --seqs and --spec-sim: --pp 512 --tg 32 --depth 0,512\n"
    "--batch 1,2,4,8,16 --seqs 1,4. Everything is repeated; medians are reported.\n"
    "\n"
    "  -m, --model FILE         model (default: SKUA_MODEL, else the shipped model)\n"
    "  -t, --threads N          threads (default: all physical cores)\n"
    "      --pp LIST            prefill: prompts of so many tokens\n"
    "      --tg LIST            decode: so many steps of one token\n"
    "      --depth LIST         tokens in the session before each of these (default 0)\n"
    "      --batch LIST         steps of so many rows of one sequence, held, with the best token of each row, and committed: T(w) / T(1)\n"
    "      --seqs LIST          so many sequences decoded together\n"
    "      --batch-depth N      tokens in the session before --batch and --seqs (default 512)\n"
    "      --spec-sim LIST      throughput with the drafter of --draft when drafts are accepted with these rates (0 to 1)\n"
    DRAFT_HELP
    "  -r, --repeat N           repetitions (default 5)\n"
    "  -s, --seed S             seed of the token ids (default 0)\n"
    "      --profile            time per op and role of the measured prefill and decode\n"
    "      --csv FILE           one line per measurement ('-': standard output, instead of the table)\n"
    "      --json FILE          everything ('-': standard output, instead of the table)\n"
    "      --plot FILE.svg      rates by depth, T(w) / T(1) by rows\n"
    "      --kv-type T          KV cache type: F16 (default), F32, BF16, Q8_0\n"
    "      --precision P        auto (default), or reference\n"
    "      --repack R           weights in memory in a faster layout: auto (default: if half of the available memory holds them), on, off\n"
    "      --buffer N           bytes that are read to measure the memory's bandwidth (default 2g)\n"
    "  -h, --help\n"
    "\n"
    "example: skua bench -m model.gguf --tg 32 --depth 0,4k,16k --json speed.json\n";

/* ---- options ---- */

/* The items of a list, one after the other: a copy in item. false: the list is at its end. */
static bool next_item(const char **list, char *item, size_t size)
{
    size_t n = strcspn(*list, ",");
    if (!**list && !n)
        return false;
    snprintf(item, size, "%.*s", (int)(n < size ? n : size - 1), *list);
    *list += n;
    return true;
}

static int list_full(const char *flag, skua_error *err)
{
    return error_set(err, SKUA_ELIMIT, "%s has more than %d numbers", flag, BENCH_MAX_LIST);
}

static int read_list(const char *flag, const char *arg, int64_t min, int64_t max, struct bench_list *l, skua_error *err)
{
    char item[32];
    int rc = 0;
    l->n = 0;
    do {
        int64_t v = 0;
        if (!next_item(&arg, item, sizeof item))
            *item = '\0'; /* an empty list, or a comma at the end: no number */
        rc = opt_size(flag, item, min, max, &v, err);
        bool known = false;
        for (int i = 0; i < l->n && !known; i++)
            known = l->v[i] == (int32_t)v;
        if (!rc && !known && l->n == BENCH_MAX_LIST)
            rc = list_full(flag, err);
        if (!rc && !known)
            l->v[l->n++] = (int32_t)v;
    } while (!rc && *arg++);
    return rc;
}

static int read_rates(const char *flag, const char *arg, struct bench_options *o, skua_error *err)
{
    char item[32];
    int rc = 0;
    o->n_accept = 0;
    do {
        if (!next_item(&arg, item, sizeof item))
            *item = '\0';
        if (o->n_accept == BENCH_MAX_LIST)
            return list_full(flag, err);
        rc = opt_f64(flag, item, 0, 1, &o->accept[o->n_accept++], err);
    } while (!rc && *arg++);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool to_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

static const struct bench_list default_widths = {.v = {1, 2, 4, 8, 16}, .n = 5};

static int check_options(int argc, char **argv, struct bench_options *o, skua_error *err)
{
    if (optind < argc)
        return error_set(err, SKUA_EARG, "unexpected argument '%s'", argv[optind]);
    if (to_stdout(o->csv) + to_stdout(o->json) + to_stdout(o->plot) > 1)
        return error_set(err, SKUA_EARG, "more than one of --csv, --json and --plot to standard output; expected one");
    if (!o->pp.n && !o->tg.n && !o->batch.n && !o->seqs.n && !o->n_accept) {
        o->pp = (struct bench_list){.v = {512}, .n = 1};
        o->tg = (struct bench_list){.v = {32}, .n = 1};
        if (!o->depth.n)
            o->depth = (struct bench_list){.v = {0, 512}, .n = 2};
        o->batch = default_widths;
        o->seqs = (struct bench_list){.v = {1, 4}, .n = 2};
    }
    if (!o->depth.n)
        o->depth.n = 1; /* 0 */
    if (o->n_accept && (!o->draft.params.source || strcmp(o->draft.params.source, "none") == 0))
        return error_set(err, SKUA_EARG, "--spec-sim simulates acceptance, not drafts; expected --draft with what drafts");
    int rc = draft_check(&o->draft, err);
    if (rc)
        return rc;
    if (o->plot && !o->pp.n && !o->tg.n && !o->batch.n)
        return error_set(err, SKUA_EARG, "--plot shows --pp, --tg and --batch; expected one of them");
    qsort(o->depth.v, (size_t)o->depth.n, sizeof *o->depth.v, by_value);
    qsort(o->batch.v, (size_t)o->batch.n, sizeof *o->batch.v, by_value);
    return 0;
}

/* 0, 1 (help was printed), or an error. */
static int parse(int argc, char **argv, struct bench_options *o, skua_error *err)
{
    enum { PP = 256, TG, DEPTH, BATCH, SEQS, BATCH_DEPTH, SPEC_SIM, PROFILE, CSV, JSON, PLOT, BUFFER };
    static const struct option longs[] = {
        DRAFT_LONGS,
        {"model", required_argument, NULL, 'm'}, {"threads", required_argument, NULL, 't'}, {"pp", required_argument, NULL, PP},
        {"tg", required_argument, NULL, TG}, {"depth", required_argument, NULL, DEPTH}, {"batch", required_argument, NULL, BATCH},
        {"seqs", required_argument, NULL, SEQS}, {"batch-depth", required_argument, NULL, BATCH_DEPTH},
        {"spec-sim", required_argument, NULL, SPEC_SIM}, {"repeat", required_argument, NULL, 'r'}, {"seed", required_argument, NULL, 's'},
        {"profile", no_argument, NULL, PROFILE}, {"csv", required_argument, NULL, CSV}, {"json", required_argument, NULL, JSON},
        {"plot", required_argument, NULL, PLOT}, {"buffer", required_argument, NULL, BUFFER},
        {"kv-type", required_argument, NULL, ENGINE_OPT_KV_TYPE},
        {"precision", required_argument, NULL, ENGINE_OPT_PRECISION}, {"repack", required_argument, NULL, ENGINE_OPT_REPACK},
        {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    int c, rc = 0;
    opts_begin();
    while (!rc && (c = opts_next(COMMAND, argc, argv, "m:t:r:s:h", longs, err)) != OPTS_END) {
        switch (c) {
        case PP: rc = read_list("--pp", optarg, 1, BENCH_MAX_TOKENS, &o->pp, err); break;
        case TG: rc = read_list("--tg", optarg, 1, BENCH_MAX_TOKENS, &o->tg, err); break;
        case DEPTH: rc = read_list("--depth", optarg, 0, BENCH_MAX_TOKENS, &o->depth, err); break;
        case BATCH: rc = read_list("--batch", optarg, 1, BENCH_MAX_ROWS, &o->batch, err); break;
        case SEQS: rc = read_list("--seqs", optarg, 1, BENCH_MAX_SEQS, &o->seqs, err); break;
        case BATCH_DEPTH: rc = opt_size("--batch-depth", optarg, 0, BENCH_MAX_TOKENS, &o->batch_depth, err); break;
        case SPEC_SIM: rc = read_rates("--spec-sim", optarg, o, err); break;
        case 'r': rc = opt_i64("--repeat", optarg, 1, 1000, &o->repeat, err); break;
        case 's': rc = opt_u64("--seed", optarg, &o->seed, err); break;
        case BUFFER: rc = opt_size("--buffer", optarg, 1, (int64_t)1 << 40, &o->buffer, err); break;
        case PROFILE: o->profile = true; break;
        case CSV: o->csv = optarg; break;
        case JSON: o->json = optarg; break;
        case PLOT: o->plot = optarg; break;
        case 'h': fputs(help, stdout); return 1;
        default:
            rc = c == OPTS_BAD ? SKUA_EARG : engine_option(&o->engine, c, optarg, err);
            rc = rc ? rc : draft_option(&o->draft, c, optarg, err);
            rc = rc > 0 ? 0 : rc;
        }
    }
    return rc ? rc : check_options(argc, argv, o, err);
}

/* ---- output ---- */

typedef int report_fn(const struct bench *b, struct strbuf *out, skua_error *err);

static int write_report(const struct bench *b, report_fn *report, const char *path, skua_error *err)
{
    struct strbuf out = {0};
    struct file_writer w;
    int rc = report(b, &out, err);
    if (!rc && to_stdout(path)) {
        if (fputs(strbuf_str(&out), stdout) < 0 || fflush(stdout))
            rc = error_set(err, SKUA_EIO, "cannot write to standard output: %s", strerror(errno));
    } else if (!rc) {
        rc = file_writer_open(&w, path, err);
        if (!rc)
            rc = file_writer_write(&w, out.data, out.len, err);
        if (!rc)
            rc = file_writer_commit(&w, err);
    }
    strbuf_free(&out);
    return rc;
}

/* Files first, so that a table on the terminal is the last thing that happens. */
static int report(const struct bench *b, skua_error *err)
{
    const struct {
        report_fn *fn;
        const char *path;
    } reports[] = {{bench_svg, b->opt->plot}, {bench_csv, b->opt->csv}, {bench_json, b->opt->json}};
    bool table = true;
    int rc = 0;
    for (size_t i = 0; i < sizeof reports / sizeof *reports && !rc; i++)
        if (reports[i].path) {
            rc = write_report(b, reports[i].fn, reports[i].path, err);
            table = table && !to_stdout(reports[i].path);
        }
    return !rc && table ? write_report(b, bench_text, "-", err) : rc;
}

static int work(struct bench *b, skua_error *err)
{
    int rc = engine_open(&b->opt->engine, COMMAND, &b->engine, err);
    if (!rc)
        rc = draft_attach(&b->opt->draft, COMMAND, b->engine, false, err);
    if (rc)
        return rc;
    b->stop = interrupt_catch();
    rc = bench_measure(b, err);
    interrupt_restore();
    if (rc == SKUA_ECANCELED && b->n_results) /* what is known so far; the files would look as if they were whole */
        write_report(b, bench_text, "-", NULL);
    return rc ? rc : report(b, err);
}

int cmd_bench(int argc, char **argv)
{
    struct bench_options o = {.draft = DRAFT_OPTIONS_INIT, .batch_depth = 512, .repeat = 5, .buffer = MEMBW_BYTES};
    struct bench b = {.opt = &o};
    skua_error err = {0};
    int rc = parse(argc, argv, &o, &err);
    if (!rc)
        rc = work(&b, &err);
    else if (rc > 0)
        rc = 0;
    else {
        draft_options_free(&o.draft);
        return opts_fail(COMMAND, OPTS_USAGE, &err);
    }
    draft_options_free(&o.draft);
    bench_free(&b);
    skua_engine_close(b.engine);
    return rc ? opts_fail(COMMAND, OPTS_FAILED, &err) : OPTS_OK;
}
