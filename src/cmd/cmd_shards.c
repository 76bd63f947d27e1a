/* skua shards: a model in several files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/inspect_value.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"
#include "cmd/term.h"
#include "convert/shards.h"

#define COMMAND "shards"

static const char help[] =
    "usage: skua shards list [--json] PREFIX-00001-of-0000N.gguf\n"
    "       skua shards split IN.gguf PREFIX --max-size SIZE | --max-tensors N\n"
    "       skua shards merge PREFIX-00001-of-0000N.gguf OUT.gguf\n"
    "\n"
    "A model in several files: split one, put the parts together again, or tell what each holds. Parts are named\n"
    "PREFIX-00001-of-0000N.gguf and so on; the first one, which every program opens, has the metadata.\n"
    "\n"
    "      --max-size SIZE    largest size of a part, in bytes or with k, m or g behind the number (times 1024, ...)\n"
    "      --max-tensors N    most tensors of a part\n"
    "      --json             the list as one JSON object\n"
    "  -h, --help\n"
    "\n"
    "example: skua shards split model.gguf parts/model --max-size 4g\n"
    "         skua shards merge parts/model-00001-of-00003.gguf again.gguf\n";

struct options {
    const char *action, *in, *out;
    int64_t max_size, max_tensors; /* 0: not given */
    bool json;
};

enum { OPT_SIZE = 256, OPT_TENSORS, OPT_JSON };

static const struct option long_options[] = {
    {"max-size", required_argument, NULL, OPT_SIZE}, {"max-tensors", required_argument, NULL, OPT_TENSORS},
    {"json", no_argument, NULL, OPT_JSON}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
};

static int check_options(const struct options *o, skua_error *err)
{
    bool limits = o->max_size || o->max_tensors;
    if (strcmp(o->action, "split") != 0 && limits)
        return error_set(err, SKUA_EARG, "--max-size and --max-tensors are for 'split'");
    if (strcmp(o->action, "split") == 0 && !limits)
        return error_set(err, SKUA_EARG, "split needs --max-size SIZE or --max-tensors N");
    if (strcmp(o->action, "split") == 0 && !*o->out)
        return error_set(err, SKUA_EARG, "PREFIX is empty, expected the beginning of the names of the parts");
    if (strcmp(o->action, "list") != 0 && o->json)
        return error_set(err, SKUA_EARG, "--json is for 'list'");
    return 0;
}

static int parse_operands(int argc, char **argv, struct options *o, skua_error *err)
{
    static const struct {
        const char *name;
        int operands;
    } actions[] = {{"list", 1}, {"split", 2}, {"merge", 2}};
    int n = argc - optind;
    if (n == 0)
        return error_set(err, SKUA_EARG, "nothing to do, expected list, split or merge (see skua shards --help)");
    o->action = argv[optind];
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(o->action, actions[i].name) != 0)
            continue;
        if (n - 1 != actions[i].operands)
            return error_set(err, SKUA_EARG, "%s with %d arguments, expected %d (see skua shards --help)", o->action, n - 1,
                             actions[i].operands);
        o->in = argv[optind + 1];
        o->out = n > 2 ? argv[optind + 2] : NULL;
        return check_options(o, err);
    }
    return error_set(err, SKUA_EARG, "'%s' is no action, expected list, split or merge", o->action);
}

/* 0: go on; 1: help was printed; negative: *err. */
static int parse(int argc, char **argv, struct options *o, skua_error *err)
{
    int c, rc = 0;
    opts_begin();
    while ((c = opts_next(COMMAND, argc, argv, "h", long_options, err)) != OPTS_END) {
        switch (c) {
        case OPT_SIZE: rc = opt_size("--max-size", optarg, 1, INT64_MAX, &o->max_size, err); break;
        case OPT_TENSORS: rc = opt_i64("--max-tensors", optarg, 1, GGUF_MAX_TENSORS, &o->max_tensors, err); break;
        case OPT_JSON: o->json = true; break;
        case 'h': fputs(help, stdout); return 1;
        default: return SKUA_EARG;
        }
        if (rc)
            return rc;
    }
    return parse_operands(argc, argv, o, err);
}

/* ---- list ---- */

/* Print what out holds, or tell why that is not all. */
static int print(struct strbuf *out, skua_error *err)
{
    int rc = strbuf_failed(out) ? error_nomem(err, "list", out->len) : 0;
    if (!rc)
        fwrite(strbuf_str(out), 1, out->len, stdout);
    strbuf_free(out);
    return rc;
}

static void append_line(struct strbuf *out, uint32_t no, uint32_t tensors, uint64_t bytes, const char *path)
{
    strbuf_printf(out, "%5" PRIu32 "  %7" PRIu32 "  %14" PRIu64 "  ", no + 1, tensors, bytes);
    value_append_escaped(out, path, strlen(path));
    strbuf_putc(out, '\n');
}

static const char title[] = "shard  tensors           bytes  file\n";

static uint32_t tensors_in(const struct gguf *g, uint32_t shard)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++)
        n += gguf_tensor_at(g, i)->shard == shard;
    return n;
}

static int list_text(const struct gguf *g, skua_error *err)
{
    struct strbuf out = {0};
    uint64_t sum = 0;
    strbuf_puts(&out, title);
    for (uint32_t i = 0; i < gguf_shard_count(g); i++) {
        size_t bytes;
        gguf_shard_data(g, i, &bytes);
        append_line(&out, i, tensors_in(g, i), bytes, gguf_shard_path(g, i));
        sum += bytes;
    }
    strbuf_printf(&out, "%5s  %7" PRIu32 "  %14" PRIu64 "\n", "all", gguf_tensor_count(g), sum);
    return print(&out, err);
}

static int list_json(const struct gguf *g, skua_error *err)
{
    struct strbuf out = {0};
    json_t *o = json_object(), *shards = json_array();
    bool failed = false;
    for (uint32_t i = 0; i < gguf_shard_count(g); i++) {
        const char *path = gguf_shard_path(g, i);
        size_t bytes;
        json_t *s = json_object();
        gguf_shard_data(g, i, &bytes);
        failed |= json_object_set_new(s, "file", value_json_string(path, strlen(path))) != 0;
        failed |= json_object_set_new(s, "bytes", json_integer((json_int_t)bytes)) != 0;
        failed |= json_object_set_new(s, "tensors", json_integer(tensors_in(g, i))) != 0;
        failed |= json_array_append_new(shards, s) != 0;
    }
    failed |= json_object_set_new(o, "shards", shards) != 0;
    failed |= json_object_set_new(o, "tensors", json_integer(gguf_tensor_count(g))) != 0;
    int rc = value_json_dump(o, failed, &out, err);
    if (rc) {
        strbuf_free(&out);
        return rc;
    }
    return print(&out, err);
}

/* ---- split and merge ---- */

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    p->total = total;
    progress_set(p, done);
}

static int split(const struct gguf *g, const struct options *o, struct stream *s, skua_error *err)
{
    struct shard_limits limits = {.max_bytes = (uint64_t)o->max_size, .max_tensors = (uint32_t)o->max_tensors};
    struct shard_plan plan;
    struct strbuf out = {0};
    uint64_t sum = 0;
    int rc = shards_plan(g, limits, &plan, err);
    strbuf_puts(&out, title);
    for (uint32_t i = 0; i < plan.n && !rc; i++) {
        char *path = shards_path(o->out, i, plan.n);
        if (!path)
            rc = error_nomem(err, "name of a shard", strlen(o->out));
        else
            append_line(&out, i, plan.parts[i].end - plan.parts[i].begin, plan.parts[i].bytes, path);
        sum += plan.parts[i].bytes;
        mem_free(path);
    }
    strbuf_printf(&out, "%5s  %7" PRIu32 "  %14" PRIu64 "\n", "all", gguf_tensor_count(g), sum);
    if (!rc && strbuf_failed(&out))
        rc = error_nomem(err, "list", out.len);
    if (!rc)
        rc = shards_split(g, &plan, o->out, s, err);
    if (!rc)
        fwrite(out.data, 1, out.len, stdout);
    for (uint32_t i = 0; i < plan.n && !rc && o->max_size; i++)
        if (plan.parts[i].bytes > (uint64_t)o->max_size) {
            fflush(stdout);
            opts_warn(COMMAND, "shard %" PRIu32 " is larger than --max-size, as %s alone is", i + 1,
                      plan.parts[i].begin == plan.parts[i].end ? "the metadata" : "its tensor");
        }
    strbuf_free(&out);
    shards_plan_free(&plan);
    return rc;
}

static int merge(const struct gguf *g, const struct options *o, struct stream *s, skua_error *err)
{
    struct strbuf out = {0};
    if (gguf_shard_count(g) == 1)
        return error_set(err, SKUA_EARG, "%s: is a whole file, expected the first of several shards", o->in);
    value_append_escaped(&out, o->out, strlen(o->out));
    strbuf_printf(&out, ": %" PRIu32 " tensors of %" PRIu32 " shards\n", gguf_tensor_count(g), gguf_shard_count(g));
    int rc = strbuf_failed(&out) ? error_nomem(err, "line", out.len) : shards_merge(g, o->out, s, err);
    if (!rc)
        return print(&out, err);
    strbuf_free(&out);
    return rc;
}

static int act(const struct options *o, skua_error *err)
{
    struct gguf *g = NULL;
    struct progress p;
    struct stream s = {.progress = show_progress, .context = &p};
    int rc = gguf_open(&g, o->in, err);
    if (rc)
        return rc;
    if (strcmp(o->action, "list") == 0) {
        rc = o->json ? list_json(g, err) : list_text(g, err);
    } else {
        s.stop = interrupt_catch();
        progress_begin(&p, *o->action == 's' ? "splitting" : "merging", 1);
        rc = *o->action == 's' ? split(g, o, &s, err) : merge(g, o, &s, err);
        progress_end(&p);
        interrupt_restore();
    }
    gguf_close(g);
    return rc;
}

int cmd_shards(int argc, char **argv)
{
    struct options o = {.action = NULL};
    skua_error err = {0};
    int rc = parse(argc, argv, &o, &err);
    if (rc < 0)
        return opts_fail(COMMAND, OPTS_USAGE, &err);
    if (rc > 0)
        return OPTS_OK;
    return act(&o, &err) ? opts_fail(COMMAND, OPTS_FAILED, &err) : OPTS_OK;
}
