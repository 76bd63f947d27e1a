/* What the tests of grammars share: a vocabulary of single bytes and of pieces as models have them, and whether a grammar takes a text. */
#ifndef SKUA_TESTS_UNIT_GRAMMAR_SUPPORT_H
#define SKUA_TESTS_UNIT_GRAMMAR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/grammar.h"
#include "sample/grammar_build.h"
#include "support/support.h"
#include "support/tok_vocab.h"

#define TEST_MASK_WORDS 256 /* of the largest vocabulary here */

struct test_vocab {
    struct tok_vocab list;
    struct tokenizer *tok;
    struct grammar_vocab *v;
    uint32_t end, user; /* a control token that ends answers; a user-defined one, printed as <tool_call> */
};

static inline void test_vocab_make(struct test_vocab *t)
{
    static const char *const pieces[] = {
        "a", "ab", "abc", "abcd", "the", " the", "{\"", "{\n", "\":", "\": ", "\": \"", "\",", "\", \"", "\"}", "\"\n", "}\n", "},", "}}",
            "[]",
        "[\"", "[[", "]]", "],", "{}", ": ", ", ", "\n ", "\n  ", "\n    ", "  ", "    ", "        ", "true", "false", "null", "tr", "ue",
            "10",
        "12", "123", "00", "-1", "1.", "e5", "\\\"", "\\n", "\\u", "\\u00", "\\ud83d", "\xc3\xa9", "\xc3", "\xe2\x82\xac", "\xe2\x82",
            "\xf0\x9f",
        "\xf0\x9f\x98\x80", "\x98\x80", "caf\xc3\xa9", "name", "\"name\"", "\"name\":", "age", "</", "</parameter>", "parameter", "<tool",
            "=\n",
        "x\"", "y\":1", "a\":", "\"a\"", "\"a\":", "\"b\":", ",\"b\":", "1}", "1]", "2026", "-0", "T0", ":0", "0Z", "é\"}", "ünïcödé",
        "the quick brown fox jumps over the lazy dog", "                                ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"};
    skua_error err;
    tok_vocab_init(&t->list);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char text[256];
        const size_t n = tok_to_alphabet(pieces[i], strlen(pieces[i]), text);
        if (n > tok_to_alphabet("x", 1, (char[4]){0})) /* not the single bytes again */
            tok_list_add(&t->list.tokens, &t->list.n_tokens, text, n, 1);
    }
    t->end = tok_vocab_add(&t->list, "<|im_end|>", 3);
    t->user = tok_vocab_add(&t->list, "<tool_call>", 4);
    tok_vocab_add(&t->list, "[PAD9]", 5);
    struct tokenizer_source source = tok_vocab_source(&t->list, "qwen35");
    source.eos = t->end;
    if (tokenizer_new(&t->tok, &source, &err) || grammar_vocab_new(t->tok, &t->v, &err))
        fail_msg("%s", err.message);
}

static inline void test_vocab_free(struct test_vocab *t)
{
    grammar_vocab_free(t->v);
    tokenizer_free(t->tok);
    tok_vocab_free(&t->list);
}

/* 1: the text is whole; 0: a beginning of one; -1: neither. Bytes one by one and at once must agree. */
static inline int test_takes(struct grammar *g, const struct grammar_vocab *v, const char *text, size_t n)
{
    struct grammar_state *s, *t;
    skua_error err = {0};
    if (grammar_state_new(g, v, &s, &err) || grammar_state_copy(s, &t, &err)) {
        CHECK(0, "%s", err.message);
        return -2;
    }
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++)
        ok = grammar_state_accept(s, text + i, 1);
    const bool whole = grammar_state_accept(t, text, n);
    CHECK(ok == whole, "byte by byte %d, at once %d: %.*s", ok, whole, (int)(n < 200 ? n : 200), text);
    const int result = !ok ? -1 : grammar_state_can_end(s);
    CHECK(!ok || grammar_state_can_end(t) == (result == 1), "the same end");
    grammar_state_free(s);
    grammar_state_free(t);
    return result;
}

/* The mask of a state against every token by itself, tried on a copy. Returns the allowed ids in list (n_vocab entries). */
static inline size_t test_mask(const struct test_vocab *t, struct grammar_state *s, uint32_t *list, const char *what)
{
    const uint32_t n = grammar_vocab_size(t->v);
    uint64_t mask[TEST_MASK_WORDS] = {0};
    size_t allowed = 0;
    skua_error err = {0};
    if ((n + 63) / 64 > TEST_MASK_WORDS || grammar_state_mask(s, mask, &err)) {
        CHECK(0, "%s: no mask: %s", what, err.message);
        return 0;
    }
    for (uint32_t id = 0; id < n; id++) {
        const bool got = mask[id / 64] >> (id & 63) & 1;
        bool want = false;
        size_t len;
        const char *piece = tokenizer_piece(t->tok, id, false, &len);
        if (tokenizer_is_eog(t->tok, id)) {
            want = grammar_state_can_end(s);
        } else if (len && tokenizer_is_samplable(t->tok, id)) {
            struct grammar_state *copy;
            if (grammar_state_copy(s, &copy, &err))
                fail_msg("%s", err.message);
            want = grammar_state_accept(copy, piece, len);
            grammar_state_free(copy);
        }
        CHECK(got == want, "%s: token %u (%.*s): mask %d, by itself %d", what, id, (int)len, piece, got, want);
        if (got)
            list[allowed++] = id;
    }
    return allowed;
}

#endif
