/* skua inspect: what a model file holds, what it needs, and whether it runs; with --container only whether the file is a valid
   GGUF container, with --verify whether its data is sound. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/inspect_report.h"
#include "cmd/inspect_value.h"
#include "cmd/inspect_verify.h"
#include "cmd/opts.h"

#define COMMAND "inspect"

static const char help[] =
    "usage: skua inspect [OPTIONS] [MODEL]\n"
    "       skua inspect --container FILE...\n"
    "       skua inspect --verify [--json] FILE...\n"
    "\n"
    "Describes a model file: layers, tensor types, tokenizer, metadata, the memory that running it needs, and whether it runs.\n"
    "Exit status 0 if it runs, else 1.\n"
    "\n"
    "  -m, --model MODEL   the same as MODEL (default: $SKUA_MODEL, else the shipped model)\n"
    "  -c, --ctx N         memory for N tokens; k and m are 1024 and 1024^2 (default: the file's context length)\n"
    "      --kv-type T     type of the KV cache: F16 (default), F32, BF16, Q8_0\n"
    "      --all           every array element and whole strings of the metadata\n"
    "      --json          one JSON object\n"
    "      --container     only check that each FILE is a valid GGUF container: prints 'ok' or the class of the first error\n"
    "                      ('error' when the file cannot be read), after the file's name if there are several; exit status 0\n"
    "                      only if all are ok\n"
    "      --verify        read all tensor data: every block must have usable scales and finite values. Prints the verdict and\n"
    "                      checksums (XXH3), which are the same for the same tensors in any number of shards\n"
    "  -h, --help\n"
    "\n"
    "example: skua inspect models/tiny-q8_0.gguf --ctx 16k --kv-type Q8_0\n"
    "         skua inspect --container *.gguf\n";

enum { OPT_KV = 256, OPT_ALL, OPT_JSON, OPT_CONTAINER, OPT_VERIFY };

static const struct option long_options[] = {
    {"model", required_argument, NULL, 'm'},   {"ctx", required_argument, NULL, 'c'},
    {"kv-type", required_argument, NULL, OPT_KV}, {"all", no_argument, NULL, OPT_ALL},
    {"json", no_argument, NULL, OPT_JSON},     {"container", no_argument, NULL, OPT_CONTAINER},
    {"verify", no_argument, NULL, OPT_VERIFY}, {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

/* One line on standard error: "skua inspect: FILE: [CLASS: ]MESSAGE", with the file named once. */
static void print_error(const char *path, const char *class, const char *message)
{
    struct strbuf line = {0};
    message = error_without_path(message, path);
    if (!strstr(message, path)) {
        value_append_escaped(&line, path, strlen(path));
        strbuf_puts(&line, ": ");
    }
    if (class)
        strbuf_printf(&line, "%s: ", class);
    value_append_escaped(&line, message, strlen(message));
    fprintf(stderr, "skua " COMMAND ": %s\n", strbuf_failed(&line) ? "out of memory" : strbuf_str(&line));
    strbuf_free(&line);
}

static int check_containers(int n, char **paths)
{
    int status = OPTS_OK;
    for (int i = 0; i < n; i++) {
        enum gguf_class class = GGUF_OK;
        skua_error err = {0};
        int rc = gguf_check(paths[i], &class, &err);
        struct strbuf line = {0};
        if (n > 1) {
            value_append_escaped(&line, paths[i], strlen(paths[i]));
            strbuf_puts(&line, ": ");
        }
        strbuf_puts(&line, rc && class == GGUF_OK ? "error" : gguf_class_name((int)class));
        if (!rc && strbuf_failed(&line))
            rc = error_nomem(&err, paths[i], line.len);
        puts(strbuf_str(&line));
        strbuf_free(&line);
        if (rc) {
            fflush(stdout); /* the verdict before the reason where both go to a terminal */
            print_error(paths[i], NULL, err.message);
            status = OPTS_FAILED;
        }
    }
    return status;
}

static int verify_files(int n, char **paths, bool json)
{
    int status = OPTS_OK;
    for (int i = 0; i < n; i++) {
        skua_error err = {0};
        uint32_t bad;
        if (inspect_verify(paths[i], json, &bad, &err))
            status = OPTS_FAILED;
        else if (bad) {
            error_set(&err, SKUA_EFORMAT, "%s: the data of %u tensors is damaged", paths[i], bad);
            status = OPTS_FAILED;
        } else
            continue;
        fflush(stdout); /* the verdict before the reason where both go to a terminal */
        print_error(paths[i], NULL, err.message);
    }
    return status;
}

/* The class of a file that gguf_open refused. */
static const char *failure_class(const char *path, int code)
{
    enum gguf_class class = GGUF_OK;
    gguf_check(path, &class, NULL);
    return class == GGUF_OK ? skua_error_name(code) : gguf_class_name((int)class);
}

static int inspect(const struct inspect_options *o)
{
    struct inspect_report r;
    struct strbuf out = {0};
    skua_error err = {0};
    int status = OPTS_FAILED, rc = inspect_gather(&r, o, &err);
    if (rc) {
        print_error(o->path, NULL, err.message);
        if (o->json &&
            !inspect_json_failure(o->path, failure_class(o->path, err.code), error_without_path(err.message, o->path), &out, &err))
            fwrite(out.data, 1, out.len, stdout);
    } else if ((o->json ? inspect_json : inspect_text)(&r, &out, &err)) {
        print_error(o->path, NULL, err.message);
    } else {
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        if (r.engine && o->n_ctx > r.config->n_ctx_train)
            opts_warn(COMMAND, "a context of %" PRId64 " tokens exceeds the model's %d", o->n_ctx, r.config->n_ctx_train);
        if (r.n_problems)
            print_error(o->path, r.problems[0].class, r.problems[0].message);
        else
            status = OPTS_OK;
    }
    strbuf_free(&out);
    inspect_free(&r);
    return status;
}

/* Results that never reached the reader are a failure too. */
static int finish_output(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "skua " COMMAND ": cannot write to standard output\n");
    return OPTS_FAILED;
}

struct arguments {
    struct inspect_options inspect;
    const char *model;
    bool container, verify; /* of files that are named as arguments */
};

static int bad_kv_type(const char *name, skua_error *err)
{
    int type = qtype_from_name(name);
    if (type == QTYPE_F16 || type == QTYPE_F32 || type == QTYPE_BF16 || type == QTYPE_Q8_0)
        return 0;
    return error_set(err, SKUA_EARG, "--kv-type is '%s', expected F16, F32, BF16 or Q8_0", name);
}

/* 0: go on; 1: help was printed; negative: *err. */
static int parse(int argc, char **argv, struct arguments *a, skua_error *err)
{
    int c, rc = 0;
    opts_begin();
    while ((c = opts_next(COMMAND, argc, argv, "m:c:h", long_options, err)) != OPTS_END) {
        switch (c) {
        case 'm': a->model = optarg; break;
        case 'c': rc = opt_size("--ctx", optarg, 1, INT32_MAX, &a->inspect.n_ctx, err); break;
        case OPT_KV: rc = bad_kv_type(optarg, err); a->inspect.kv_type = optarg; break;
        case OPT_ALL: a->inspect.all = true; break;
        case OPT_JSON: a->inspect.json = true; break;
        case OPT_CONTAINER: a->container = true; break;
        case OPT_VERIFY: a->verify = true; break;
        case 'h': fputs(help, stdout); return 1;
        default: return SKUA_EARG;
        }
        if (rc)
            return rc;
    }
    int n = argc - optind;
    bool files = a->container || a->verify;
    if (a->container && a->verify)
        return error_set(err, SKUA_EARG, "--container and --verify exclude each other");
    if (files && (a->inspect.n_ctx || a->inspect.kv_type || a->inspect.all || (a->container && a->inspect.json)))
        return error_set(err, SKUA_EARG, "--ctx, --kv-type, --all%s do not go with --%s", a->container ? " and --json" : "",
                         a->verify ? "verify" : "container");
    if (files && (a->model || n == 0))
        return error_set(err, SKUA_EARG, "--%s needs one or more files as arguments", a->verify ? "verify" : "container");
    if (!files && n + (a->model ? 1 : 0) > 1)
        return error_set(err, SKUA_EARG, "more than one model, '%s' is the second; expected one", argv[argc - 1]);
    if (!files && n == 1)
        a->model = argv[optind];
    return 0;
}

int cmd_inspect(int argc, char **argv)
{
    struct arguments a = {0};
    skua_error err = {0};
    int rc = parse(argc, argv, &a, &err);
    if (rc < 0)
        return opts_fail(COMMAND, OPTS_USAGE, &err);
    if (rc > 0)
        return finish_output(OPTS_OK);
    if (a.container)
        return finish_output(check_containers(argc - optind, argv + optind));
    if (a.verify)
        return finish_output(verify_files(argc - optind, argv + optind, a.inspect.json));
    char *path = NULL;
    if (opts_model(a.model, &path, &err))
        return opts_fail(COMMAND, OPTS_FAILED, &err);
    a.inspect.path = path;
    int status = finish_output(inspect(&a.inspect));
    mem_free(path);
    return status;
}
