/* Special tokens in text against a naive search, and the streaming detokenizer against a byte-by-byte automaton. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "support/tok_vocab.h"
#include "tok/detok.h"
#include "tok/special.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

/* ---- special tokens ---- */

static void load_table(struct token_table *t, const struct tok_vocab *v)
{
    skua_error err = {0};
    assert_int_equal(token_table_init(t, v->n_tokens, &err), 0);
    for (size_t i = 0; i < v->n_tokens; i++)
        assert_int_equal(token_table_add(t, v->tokens[i].data, v->tokens[i].len, v->tokens[i].type, &err), 0);
}

/* Leftmost, then longest, then lowest id. */
static bool find_by_definition(const struct tok_vocab *v, bool with_control, const char *s, size_t n, size_t from, size_t *at,
                               uint32_t *id)
{
    for (size_t i = from; i < n; i++) {
        size_t best = 0;
        for (size_t k = 0; k < v->n_tokens; k++) {
            const struct tok_string *t = &v->tokens[k];
            if ((t->type == 4 || (with_control && t->type == 3)) && t->len > best && t->len <= n - i &&
                memcmp(s + i, t->data, t->len) == 0) {
                best = t->len;
                *id = (uint32_t)k;
            }
        }
        if (best) {
            *at = i;
            return true;
        }
    }
    return false;
}

static void test_special_search(void **state)
{
    (void)state;
    uint64_t rng = 5;
    unsigned long found = 0, found_by_flag = 0;
    for (int round = 0; round < 400; round++) {
        struct tok_vocab v;
        tok_vocab_init(&v);
        for (unsigned k = (unsigned)(rng_next(&rng) % 12); k > 0; k--) {
            char text[8] = {0};
            for (unsigned n = (unsigned)(rng_next(&rng) % 6), i = 0; i < n; i++)
                text[i] = "<|>\xC3\x01"[rng_next(&rng) % 5];
            tok_vocab_add(&v, text, 1 + (int32_t)(rng_next(&rng) % 4) + (rng_next(&rng) % 2 ? 1 : 0));
        }
        struct token_table t;
        struct special_set sets[2];
        skua_error err = {0};
        load_table(&t, &v);
        for (int control = 0; control < 2; control++)
            assert_int_equal(special_set_init(&sets[control], &t, control, &err), 0);
        for (int string = 0; string < 50; string++) {
            char s[40];
            size_t n = rng_next(&rng) % sizeof s, from = n ? rng_next(&rng) % n : 0;
            for (size_t i = 0; i < n; i++)
                s[i] = "<|>\xC3\x01"[rng_next(&rng) % 5];
            for (int control = 0; control < 2; control++) {
                size_t at = 0, want_at = 0;
                uint32_t id = 0, want_id = 0;
                bool want = find_by_definition(&v, control, s, n, from, &want_at, &want_id);
                CHECK(special_set_find(&sets[control], s, n, from, &at, &id) == want);
                CHECK(!want || (at == want_at && id == want_id));
                found += want;
                found_by_flag += want && !control;
            }
        }
        for (int control = 0; control < 2; control++)
            special_set_free(&sets[control]);
        token_table_free(&t);
        tok_vocab_free(&v);
    }
    printf("  found %lu, %lu of them without control tokens\n", found, found_by_flag);
    CHECK(found > 5000 && found_by_flag > 1000);
}

static void test_special_limits(void **state)
{
    (void)state;
    struct tok_vocab v;
    struct token_table t;
    struct special_set s;
    skua_error err = {0};
    char text[SPECIAL_MAX_BYTES + 2];
    memset(text, '<', sizeof text);
    text[SPECIAL_MAX_BYTES] = '\0';
    tok_vocab_init(&v);
    tok_vocab_add(&v, "<|a|>", 3);
    tok_vocab_add(&v, text, 3);
    load_table(&t, &v);
    CHECK(special_set_init(&s, &t, true, &err) == 0);
    CHECK(special_set_lookup(&s, "<|a|>", 5) == 256 && special_set_lookup(&s, text, SPECIAL_MAX_BYTES) == 257);
    CHECK(special_set_lookup(&s, "<|a|", 4) == -1 && special_set_lookup(&s, "<|a|>x", 6) == -1);
    CHECK(special_set_lookup(&s, "", 0) == -1 && special_set_lookup(&s, "a", 1) == -1);
    special_set_free(&s);
    token_table_free(&t);

    text[SPECIAL_MAX_BYTES] = '<';
    text[SPECIAL_MAX_BYTES + 1] = '\0';
    tok_vocab_add(&v, text, 3);
    load_table(&t, &v);
    CHECK(special_set_init(&s, &t, false, &err) == 0); /* it is not in this set */
    special_set_free(&s);
    CHECK(special_set_init(&s, &t, true, &err) == SKUA_EFORMAT);
    checks++;
    assert_string_equal(err.message, "tokenizer.ggml.tokens[258], a special token, has 1025 bytes, expected at most 1024");
    special_set_free(&s);
    token_table_free(&t);
    tok_vocab_free(&v);
}

/* ---- detokenizing ---- */

/* U+FFFD for maximal subparts, as an automaton over the ranges of table 3-7 of the Unicode Standard: an independent way to
   the same text. */
static void sanitize_by_automaton(const uint8_t *s, size_t n, struct strbuf *out)
{
    size_t i = 0;
    while (i < n) {
        uint8_t c = s[i], lo = 0x80, hi = 0xBF;
        size_t len = c < 0x80 ? 1 : c >= 0xC2 && c <= 0xDF ? 2 : c >= 0xE0 && c <= 0xEF ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
        if (c == 0xE0) lo = 0xA0;
        if (c == 0xED) hi = 0x9F;
        if (c == 0xF0) lo = 0x90;
        if (c == 0xF4) hi = 0x8F;
        size_t k = 1;
        while (k < len && i + k < n && s[i + k] >= lo && s[i + k] <= hi) {
            lo = 0x80;
            hi = 0xBF;
            k++;
        }
        if (len && k == len)
            strbuf_append(out, s + i, len);
        else
            strbuf_puts(out, "\uFFFD");
        i += k;
    }
}

static void check_stream(const char *s, size_t n, uint64_t *rng)
{
    struct strbuf want = {0};
    sanitize_by_automaton((const uint8_t *)s, n, &want);
    for (size_t cut = 0; cut <= n + 2; cut++) { /* two pieces; then single bytes; then random pieces, empty ones too */
        struct detok d = {0};
        struct strbuf out = {0};
        if (cut <= n) {
            detok_push(&d, s, cut, &out);
            detok_push(&d, s + cut, n - cut, &out);
        } else {
            for (size_t i = 0; i < n;) {
                size_t k = cut == n + 1 ? 1 : rng_next(rng) % 4;
                k = k < n - i ? k : n - i;
                detok_push(&d, s + i, k, &out);
                i += k;
                CHECK(out.len <= want.len && memcmp(out.data ? out.data : "", strbuf_str(&want), out.len) == 0);
            }
        }
        detok_finish(&d, &out);
        CHECK(d.n_pending == 0 && out.len == want.len && memcmp(strbuf_str(&out), strbuf_str(&want), out.len) == 0);
        strbuf_free(&out);
    }
    strbuf_free(&want);
}

static void test_detok(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *text;
    } vectors[] = {
        {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
        {"\xE2\x82" "A", "\uFFFDA"},                /* one cut sequence, one replacement */
        {"\xF0\x80\x80\x41", "\uFFFD\uFFFD\uFFFDA"}, /* F0 80 begins nothing */
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},      /* a surrogate */
        {"\xF0\x9F\x98", "\uFFFD"},
        {"\xC0\xAF", "\uFFFD\uFFFD"},
        {"\x80\xFF", "\uFFFD\uFFFD"},
        {"\xE2\xE2\x82\xAC", "\uFFFD\xE2\x82\xAC"},
    };
    uint64_t rng = 9;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct detok d = {0};
        struct strbuf out = {0};
        detok_push(&d, vectors[i].bytes, strlen(vectors[i].bytes), &out);
        detok_finish(&d, &out);
        checks++;
        assert_string_equal(strbuf_str(&out), vectors[i].text);
        strbuf_free(&out);
        check_stream(vectors[i].bytes, strlen(vectors[i].bytes), &rng);
    }
    static const uint8_t bytes[] = {0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xE1, 0xED, 0xF0, 0xF1, 0xF4, 0xF5};
    for (int round = 0; round < 20000; round++) {
        char s[10];
        size_t n = rng_next(&rng) % (sizeof s + 1);
        for (size_t i = 0; i < n; i++)
            s[i] = (char)bytes[rng_next(&rng) % sizeof bytes];
        check_stream(s, n, &rng);
    }
    /* what is held back is held back no longer than needed */
    struct detok d = {0};
    struct strbuf out = {0};
    detok_push(&d, "\xF0\x9F\x98", 3, &out);
    CHECK(out.len == 0 && d.n_pending == 3);
    detok_push(&d, "\x80", 1, &out);
    CHECK(out.len == 4 && d.n_pending == 0);
    strbuf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_special_search), cmocka_unit_test(test_special_limits),
                                       cmocka_unit_test(test_detok)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("test_tok_text: %lu checks\n", checks);
    return failed || !checks;
}
