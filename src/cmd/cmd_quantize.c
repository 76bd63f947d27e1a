/* skua quantize: a model file in other types. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cmd/cmd.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"
#include "cmd/quantize_report.h"
#include "cmd/term.h"

#define COMMAND "quantize"

static const char help[] =
    "usage: skua quantize [OPTIONS] IN.gguf OUT.gguf RECIPE\n"
    "\n"
    "Write a model file in the types of a recipe, and a table of what became of every tensor.\n"
    "\n"
    "  -i, --imatrix FILE       importance weights of the model's inputs, GGUF or the older format\n"
    "      --tensor REGEX=TYPE  the type of the tensors in whose names the extended regular expression is found; COPY: the one they have.\n"
    "                           May be given several times; the first that is found decides\n"
    "      --pure               the recipe's default type for all that may be quantized, no exceptions\n"
    "      --allow-requantize   also tensors that are quantized already (the errors add up)\n"
    "      --rmse               measure errors: root mean square, relative, and relative with importance weights\n"
    "      --dry-run            the table and the size of the file, without writing it\n"
    "      --json               the table as one JSON object\n"
    "  -t, --threads N          threads (default: the physical cores); the file is the same for any number\n"
    "  -h, --help\n"
    "\n"
    "recipes (docs/formats.md): ";

static const char example[] = "\nexample: skua quantize model-bf16.gguf model-q4.gguf Q4_K_M --imatrix model.imatrix.gguf\n";

/* The names of all recipes, in lines. */
static void append_recipes(struct strbuf *out, const char *separator, const char *line_break)
{
    for (size_t i = 0; recipe_at(i); i++)
        strbuf_printf(out, "%s%s", recipe_name(recipe_at(i)), !recipe_at(i + 1) ? "" : i % 12 == 11 ? line_break : separator);
}

static void print_help(void)
{
    struct strbuf names = {0};
    append_recipes(&names, " ", "\n                           ");
    printf("%s%s\n%s", help, strbuf_str(&names), example);
    strbuf_free(&names);
}

struct options {
    const char *in, *out, *imatrix;
    const struct recipe *recipe;
    struct recipe_overrides overrides;
    int64_t threads;
    bool pure, allow_requantize, rmse, dry_run, json;
};

enum { OPT_TENSOR = 256, OPT_PURE, OPT_ALLOW, OPT_RMSE, OPT_DRY, OPT_JSON };

static const struct option long_options[] = {
    {"imatrix", required_argument, NULL, 'i'}, {"tensor", required_argument, NULL, OPT_TENSOR}, {"pure", no_argument, NULL, OPT_PURE},
    {"allow-requantize", no_argument, NULL, OPT_ALLOW}, {"rmse", no_argument, NULL, OPT_RMSE}, {"dry-run", no_argument, NULL, OPT_DRY},
    {"json", no_argument, NULL, OPT_JSON}, {"threads", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
};

static int parse_operands(int argc, char **argv, struct options *o, skua_error *err)
{
    struct strbuf names = {0};
    int n = argc - optind, rc = 0;
    if (n != 3)
        return error_set(err, SKUA_EARG, "%d arguments, expected three: IN.gguf OUT.gguf RECIPE", n);
    o->in = argv[optind];
    o->out = argv[optind + 1];
    o->recipe = recipe_find(argv[optind + 2]);
    if (!o->recipe) {
        append_recipes(&names, ", ", ", ");
        rc = error_set(err, SKUA_EARG, "unknown recipe '%s', expected one of %s", argv[optind + 2], strbuf_str(&names));
        if (strbuf_failed(&names))
            rc = error_nomem(err, "names of recipes", names.len);
    }
    strbuf_free(&names);
    return rc;
}

/* 0: go on; 1: help was printed; negative: *err. */
static int parse(int argc, char **argv, struct options *o, skua_error *err)
{
    int c, rc = 0;
    opts_begin();
    while ((c = opts_next(COMMAND, argc, argv, "i:t:h", long_options, err)) != OPTS_END) {
        switch (c) {
        case 'i': o->imatrix = optarg; break;
        case OPT_TENSOR:
            rc = recipe_overrides_add(&o->overrides, optarg, err);
            if (rc)
                error_prefix(err, "--tensor");
            break;
        case OPT_PURE: o->pure = true; break;
        case OPT_ALLOW: o->allow_requantize = true; break;
        case OPT_RMSE: o->rmse = true; break;
        case OPT_DRY: o->dry_run = true; break;
        case OPT_JSON: o->json = true; break;
        case 't': rc = opt_i64("--threads", optarg, 1, POOL_MAX_THREADS, &o->threads, err); break;
        case 'h': print_help(); return 1;
        default: return SKUA_EARG;
        }
        if (rc)
            return rc;
    }
    return parse_operands(argc, argv, o, err);
}

/* ---- what happens ---- */

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    (void)total;
    progress_set(context, done);
}

static int write_file(struct requantize *r, const struct options *o, skua_error *err)
{
    struct progress p;
    struct stream s = {.progress = show_progress, .context = &p, .stop = interrupt_catch()};
    int threads = o->threads ? (int)o->threads : cpu_physical_cores();
    progress_begin(&p, "quantizing", requantize_report(r)->bytes_before);
    int rc = requantize_write(r, o->out, threads, &s, err);
    progress_end(&p);
    interrupt_restore();
    return rc;
}

/* Things that were done otherwise than one might think. */
static void warn(const struct options *o, const struct requantize_report *r)
{
    uint32_t n_fallback = 0;
    const struct requantize_item *first = NULL;
    for (uint32_t i = 0; i < r->n_items; i++)
        if (r->items[i].reason == RECIPE_FALLBACK && n_fallback++ == 0)
            first = &r->items[i];
    if (first)
        opts_warn(COMMAND, "the rows of %" PRIu32 " tensors do not fit the blocks of their types; '%s' is %s instead of %s", n_fallback,
                  first->name, qtype_info(first->to)->name, qtype_info(first->wanted)->name);
    if (r->n_requantized)
        opts_warn(COMMAND, "%" PRIu32 " tensors were quantized already: the errors of both types add up", r->n_requantized);
    if (r->n_without_weights)
        opts_warn(COMMAND, "%s: has nothing about %" PRIu32 " of the tensors, the first is '%s'; they are quantized without weights",
                  o->imatrix, r->n_without_weights, r->without_weights);
    for (size_t k = 0; k < o->overrides.n; k++) {
        bool used = false;
        for (uint32_t i = 0; i < r->n_items; i++)
            used |= r->items[i].override == (int)k && r->items[i].reason != RECIPE_KEPT;
        if (!used)
            opts_warn(COMMAND, "--tensor %s: decides about no tensor that may be quantized", recipe_overrides_text(&o->overrides, k));
    }
}

/* The quantizers that the environment asks for. */
static int select_tier(const struct quant_tier **tier, skua_error *err)
{
    const char *name = getenv("SKUA_CPU");
    *tier = quant_select(name && *name ? name : NULL);
    return *tier ? 0 : error_set(err, SKUA_EARG, "SKUA_CPU is '%s', a CPU tier that is unknown or not available on this CPU", name);
}

static int quantize(const struct options *o, skua_error *err)
{
    struct imatrix *imatrix = NULL;
    struct requantize *r = NULL;
    struct strbuf out = {0};
    struct requantize_options ro = {.recipe = o->recipe, .overrides = &o->overrides, .imatrix_path = o->imatrix, .pure = o->pure,
                                    .allow_requantize = o->allow_requantize, .measure = o->rmse && !o->dry_run};
    int rc = select_tier(&ro.tier, err);
    if (!rc && o->imatrix && file_is_same(o->out, o->imatrix))
        rc = error_set(err, SKUA_EARG, "%s: is the importance matrix; expected another name for the output", o->out);
    if (!rc && o->imatrix)
        rc = imatrix_open(&imatrix, o->imatrix, err);
    ro.imatrix = imatrix;
    if (!rc)
        rc = requantize_plan(&r, o->in, &ro, err);
    if (!rc && !o->dry_run)
        rc = write_file(r, o, err);
    if (!rc) {
        struct quantize_report q = {.r = requantize_report(r), .recipe = o->recipe, .input = o->in, .output = o->out, .imatrix = o->imatrix,
                                    .dry_run = o->dry_run, .errors = ro.measure};
        if (o->json)
            rc = quantize_report_json(&q, &out, err);
        else
            quantize_report_text(&q, &out);
        if (!rc && strbuf_failed(&out))
            rc = error_nomem(err, "table", out.len);
        if (rc && !o->dry_run)
            error_prefix(err, "%s is written, but cannot be reported", o->out);
    }
    if (!rc) {
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        warn(o, requantize_report(r));
    }
    strbuf_free(&out);
    requantize_free(r);
    imatrix_free(imatrix);
    return rc;
}

int cmd_quantize(int argc, char **argv)
{
    struct options o = {.threads = 0};
    skua_error err = {0};
    int rc = parse(argc, argv, &o, &err), status = OPTS_OK;
    if (rc < 0)
        status = opts_fail(COMMAND, rc == SKUA_ENOMEM ? OPTS_FAILED : OPTS_USAGE, &err);
    else if (rc == 0 && quantize(&o, &err))
        status = opts_fail(COMMAND, OPTS_FAILED, &err);
    recipe_overrides_free(&o.overrides);
    return status;
}
