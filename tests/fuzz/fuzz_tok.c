/* Fuzz target: the tokenizer. The first byte chooses pre-tokenizer and special parsing, and whether the rest is only text or
   begins with vocabulary lines, up to an empty one: a digit and a token text (the digit is its type), or any other
   character and a merge. Whatever vocabulary is accepted must give back every text, with each byte that is no UTF-8
   replaced by U+FFFD, whole and in a stream cut anywhere. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "support/tok_vocab.h"
#include "tok/detok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)   \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static void add_usual(struct tok_vocab *v)
{
    static const char *const merges[][2] = {
        {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "x"}, {"x", "x"}, {"xx", "xx"}, {"\xC2", "\xA0"}, {"\xEF", "\xBF"},
        {"\xEF\xBF", "\xBD"}, {"\n", "\n"}, {" ", " "}, {"  ", "  "}, {"'", "s"}, {"i", "n"}, {"in", "g"}, {"e", "\xCC"},
    };
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++)
        tok_vocab_merge(v, merges[i][0], merges[i][1]);
    tok_vocab_add(v, "<|im_start|>", 3);
    tok_vocab_add(v, "<|im_end|>", 3);
    tok_vocab_add(v, "<think>", 4);
    tok_vocab_add(v, "<th", 4);
    tok_vocab_add(v, "[PAD277]", 5);
}

/* Returns the number of bytes of data that the lines took. */
static size_t add_lines(struct tok_vocab *v, const char *data, size_t size)
{
    size_t at = 0;
    for (int line = 0; line < 64 && at < size; line++) {
        const char *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) - at : size - at;
        const char *text = data + at;
        at += len + (end != NULL);
        if (len == 0)
            break;
        if (text[0] >= '0' && text[0] <= '9')
            tok_list_add(&v->tokens, &v->n_tokens, text + 1, len - 1, text[0] - '0');
        else
            tok_list_add(&v->merges, &v->n_merges, text + 1, len - 1, 0);
    }
    return at;
}

/* User-defined and control texts may hold bytes that are no UTF-8; what comes back from those is not the plain rule. */
static bool specials_are_utf8(const struct tok_vocab *v)
{
    for (size_t i = 256; i < v->n_tokens; i++)
        for (size_t k = 0; k < v->tokens[i].len; k++)
            if ((uint8_t)v->tokens[i].data[k] >= 0x80 && v->tokens[i].type > 1)
                return false;
    return true;
}

static void check_text(const struct tokenizer *t, const char *text, size_t n, bool special, bool exact)
{
    struct token_vec ids = {0};
    struct strbuf want = {0}, bytes = {0}, streamed = {0};
    skua_error err = {0};
    REQUIRE(tokenizer_encode(t, text, n, special, &ids, &err) == 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(text + i, n - i, &cp);
        strbuf_append(&want, len ? text + i : "\xEF\xBF\xBD", len ? (size_t)len : 3);
        i += len ? (size_t)len : 1;
    }
    REQUIRE(tokenizer_decode(t, ids.ids, ids.n, true, &bytes, &err) == 0);
    if (exact)
        REQUIRE(bytes.len == want.len && memcmp(strbuf_str(&bytes), strbuf_str(&want), want.len) == 0);
    struct detok d = {0};
    for (size_t i = 0; i < ids.n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(t, ids.ids[i], true, &len);
        detok_push(&d, piece, len, &streamed);
        REQUIRE(tokenizer_is_samplable(t, ids.ids[i]));
    }
    detok_finish(&d, &streamed);
    if (exact)
        REQUIRE(streamed.len == want.len && memcmp(strbuf_str(&streamed), strbuf_str(&want), want.len) == 0);
    token_vec_free(&ids);
    strbuf_free(&want);
    strbuf_free(&bytes);
    strbuf_free(&streamed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > 1 << 16)
        return 0;
    unsigned flags = data[0];
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    struct tok_vocab v;
    tok_vocab_init(&v);
    if (flags & 4) {
        size_t used = add_lines(&v, text, n);
        text += used;
        n -= used;
    } else {
        add_usual(&v);
    }
    struct tokenizer_source source = tok_vocab_source(&v, flags & 1 ? "qwen2" : "qwen35");
    struct tokenizer *t;
    skua_error err = {0};
    int rc = tokenizer_new(&t, &source, &err);
    REQUIRE(rc == 0 ? t != NULL : t == NULL && err.message[0] && !strchr(err.message, '\n'));
    if (rc == 0)
        check_text(t, text, n, flags & 2, specials_are_utf8(&v));
    tokenizer_free(t);
    tok_vocab_free(&v);
    return 0;
}
