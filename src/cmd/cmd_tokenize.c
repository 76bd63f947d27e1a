/* skua tokenize: text to token ids and back. Ids are printed as one line of numbers with commas, which `skua logits --ids`
   and `skua tokenize --decode` take. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "cmd/cmd.h"
#include "cmd/opts.h"
#include "cmd/term.h"
#include "model/vocab.h"
#include "tok/detok.h"

static const char help[] =
    "usage: skua tokenize [-m MODEL] [OPTIONS] [TEXT | -f FILE]\n"
    "       skua tokenize [-m MODEL] --decode [OPTIONS] [IDS | -f FILE]\n"
    "\n"
    "Print the token ids of a text, or with --decode the text of token ids. Input is the argument, a file, or standard input.\n"
    "\n"
    "  -m, --model MODEL  model file (default: $SKUA_MODEL, else the shipped model)\n"
    "  -f, --file FILE    read the input from FILE ('-': standard input), every byte of it\n"
    "  -d, --decode       IDS is a list of numbers with commas, spaces or in [...]; prints their bytes exactly\n"
    "      --pieces       one line per token: id, tab, what it prints as a JSON string (or as an array of byte values\n"
    "                     where that is not UTF-8)\n"
    "      --json         one JSON object: {\"ids\": [...]}, with --pieces also \"pieces\"; with --decode {\"text\": ...},\n"
    "                     where bytes that are not UTF-8 become U+FFFD\n"
    "      --no-special   control tokens in a text are plain text; with --decode they print nothing\n"
    "  -h, --help\n"
    "\n"
    "example: skua tokenize -m models/tiny-q8_0.gguf \"Hello, world!\"\n"
    "         skua tokenize \"Hello, world!\" | skua tokenize --decode\n";

struct options {
    const char *model, *file, *input;
    bool decode, pieces, json, no_special;
};

/* what is a format with one %s. */
static int usage_error(const char *what, const char *value)
{
    skua_error err;
    error_set(&err, SKUA_EARG, what, value);
    return opts_fail("tokenize", OPTS_USAGE, &err);
}

/* Returns true when there is something to do; else *status is the exit status. */
static bool parse_options(int argc, char **argv, struct options *o, int *status)
{
    enum { PIECES = 256, JSON, NO_SPECIAL };
    static const struct option longs[] = {
        {"model", required_argument, NULL, 'm'}, {"file", required_argument, NULL, 'f'}, {"decode", no_argument, NULL, 'd'},
        {"pieces", no_argument, NULL, PIECES},   {"json", no_argument, NULL, JSON},
        {"no-special", no_argument, NULL, NO_SPECIAL}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0},
    };
    skua_error err = {0};
    opts_begin();
    for (int c; (c = opts_next("tokenize", argc, argv, "m:f:dh", longs, &err)) != OPTS_END;) {
        switch (c) {
        case 'm': o->model = optarg; break;
        case 'f': o->file = optarg; break;
        case 'd': o->decode = true; break;
        case PIECES: o->pieces = true; break;
        case JSON: o->json = true; break;
        case NO_SPECIAL: o->no_special = true; break;
        case 'h':
            fputs(help, stdout);
            *status = OPTS_OK;
            return false;
        default:
            *status = opts_fail("tokenize", OPTS_USAGE, &err);
            return false;
        }
    }
    if (optind < argc)
        o->input = argv[optind++];
    if (optind < argc)
        *status = usage_error("unexpected argument '%s', expected one (quote a text with spaces)", argv[optind]);
    else if (o->input && o->file)
        *status = usage_error("both an argument and --file %s give the input, expected one of them", o->file);
    else if (o->decode && o->pieces)
        *status = usage_error("%s does not go with --decode", "--pieces");
    else
        return true;
    return false;
}

static bool is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (!len)
            return false;
        i += (size_t)len;
    }
    return true;
}

/* s must be UTF-8. What utf8_escape calls unsafe is escaped in the JSON way. */
static void append_json_string(struct strbuf *out, const char *s, size_t n)
{
    char safe[7];
    strbuf_putc(out, '"');
    for (size_t i = 0, used; i < n; i += used) {
        int len = utf8_escape(s + i, n - i, safe, &used);
        if (s[i] == '"' || s[i] == '\\')
            strbuf_putc(out, '\\');
        if (len == 4 && *safe == '\\') /* \xNN */
            strbuf_printf(out, "\\u00%.2s", safe + 2);
        else
            strbuf_append(out, safe, (size_t)len);
    }
    strbuf_putc(out, '"');
}

/* A token's bytes as a JSON string, or as an array of numbers where they are part of a character. */
static void append_piece(struct strbuf *out, const struct tokenizer *t, uint32_t id)
{
    size_t len;
    const char *s = tokenizer_piece(t, id, true, &len);
    if (is_utf8(s, len)) {
        append_json_string(out, s, len);
        return;
    }
    for (size_t i = 0; i < len; i++)
        strbuf_printf(out, "%c%u", i ? ',' : '[', (unsigned char)s[i]);
    strbuf_putc(out, ']');
}

/* Millions of ids are printed where a printf each would take longer than the tokenizing. */
static void append_id(struct strbuf *out, uint32_t id)
{
    char digits[10];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + id % 10);
    while (id /= 10);
    strbuf_append(out, digits + at, sizeof digits - at);
}

static int encode(const struct tokenizer *t, const struct options *o, const char *text, size_t len, struct strbuf *out,
                  skua_error *err)
{
    struct token_vec ids = {0};
    int rc = tokenizer_encode(t, text, len, !o->no_special, &ids, err);
    if (!rc) {
        if (o->json)
            strbuf_puts(out, "{\"ids\": [");
        for (size_t i = 0; i < ids.n && (o->json || !o->pieces); i++) {
            if (i)
                strbuf_putc(out, ',');
            append_id(out, ids.ids[i]);
        }
        if (o->json && o->pieces)
            strbuf_puts(out, "], \"pieces\": [");
        for (size_t i = 0; i < ids.n && o->pieces; i++) {
            if (!o->json)
                append_id(out, ids.ids[i]);
            if (!o->json || i)
                strbuf_putc(out, o->json ? ',' : '\t');
            append_piece(out, t, ids.ids[i]);
            if (!o->json)
                strbuf_putc(out, '\n');
        }
        strbuf_puts(out, o->json ? "]}\n" : o->pieces ? "" : "\n");
    }
    token_vec_free(&ids);
    return rc;
}

/* Numbers separated by commas, white space or brackets. */
static int parse_ids(const char *s, size_t n, struct token_vec *ids, skua_error *err)
{
    for (size_t i = 0; i < n;) {
        if (memchr(", \t\r\n[]", s[i], 8) && s[i]) {
            i++;
            continue;
        }
        uint64_t v = 0;
        size_t start = i;
        for (; i < n && s[i] >= '0' && s[i] <= '9' && v <= UINT32_MAX; i++)
            v = v * 10 + (unsigned)(s[i] - '0');
        if (i == start || v > UINT32_MAX) {
            char quoted[40];
            size_t left = n - start;
            return error_set(err, SKUA_EARG, "%s at byte %zu of the ids is no token id, expected numbers with commas or spaces",
                             token_quote(quoted, sizeof quoted, s + start, left < 12 ? left : 12), start);
        }
        if (token_vec_push(ids, (uint32_t)v))
            return error_nomem(err, "token ids", ids->n * sizeof *ids->ids);
    }
    return 0;
}

static int decode(const struct tokenizer *t, const struct options *o, const char *text, size_t len, struct strbuf *out,
                  skua_error *err)
{
    struct token_vec ids = {0};
    struct strbuf bytes = {0}, clean = {0};
    int rc = parse_ids(text, len, &ids, err);
    if (!rc)
        rc = tokenizer_decode(t, ids.ids, ids.n, !o->no_special, o->json ? &bytes : out, err);
    if (!rc && o->json) {
        struct detok d = {0};
        detok_push(&d, strbuf_str(&bytes), bytes.len, &clean);
        detok_finish(&d, &clean);
        strbuf_puts(out, "{\"text\": ");
        append_json_string(out, strbuf_str(&clean), clean.len);
        strbuf_puts(out, "}\n");
        if (strbuf_failed(&clean))
            rc = error_nomem(err, "text", bytes.len);
    }
    token_vec_free(&ids);
    strbuf_free(&bytes);
    strbuf_free(&clean);
    return rc;
}

static int load_tokenizer(const char *model, struct tokenizer **t, skua_error *err)
{
    char *path = NULL;
    struct gguf *g = NULL;
    int rc = opts_model(model, &path, err);
    if (!rc) rc = gguf_open(&g, path, err);
    if (!rc) rc = vocab_load(g, t, err);
    gguf_close(g);
    mem_free(path);
    return rc;
}

/* A terminal gets decoded bytes without control characters, everything else gets them as they are. */
static bool print(const struct strbuf *out)
{
    struct term_printer p;
    term_printer_init(&p, stdout, isatty(STDOUT_FILENO));
    bool ok = term_print(&p, strbuf_str(out), out->len);
    return term_print_end(&p) && ok;
}

int cmd_tokenize(int argc, char **argv)
{
    struct options o = {.file = NULL};
    int status;
    if (!parse_options(argc, argv, &o, &status))
        return status;
    skua_error err = {0};
    struct tokenizer *t = NULL;
    struct strbuf out = {0};
    char *read = NULL;
    const char *text = o.input;
    size_t len = text ? strlen(text) : 0;
    int rc = load_tokenizer(o.model, &t, &err);
    if (!rc && !text) {
        rc = file_read_all(o.file ? o.file : "-", TOKENIZER_MAX_TEXT, &read, &len, &err);
        text = read;
    }
    if (!rc)
        rc = o.decode ? decode(t, &o, text, len, &out, &err) : encode(t, &o, text, len, &out, &err);
    if (!rc && strbuf_failed(&out))
        rc = error_nomem(&err, "output", out.len);
    if (!rc && !print(&out))
        rc = error_set(&err, SKUA_EIO, "cannot write to standard output: %s", strerror(errno));
    status = rc ? opts_fail("tokenize", OPTS_FAILED, &err) : OPTS_OK;
    strbuf_free(&out);
    mem_free(read);
    tokenizer_free(t);
    return status;
}
