/* Byte alphabet, token table, merging: random merge tables against merging by the definition, damaged vocabularies. */
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
#include "tok/bpe.h"
#include "tok/token_table.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static void test_byte_alphabet(void **state)
{
    (void)state;
    static const struct {
        uint8_t byte;
        uint32_t cp;
    } known[] = {{0x00, 0x100}, {0x0A, 0x10A}, {0x20, 0x120}, {0x21, 0x21}, {0x7E, 0x7E}, {0x7F, 0x121}, {0x80, 0x122},
                 {0xA0, 0x142}, {0xA1, 0xA1}, {0xAC, 0xAC}, {0xAD, 0x143}, {0xAE, 0xAE}, {0xFF, 0xFF}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        CHECK(byte_alphabet_char(known[i].byte) == known[i].cp);
    char all[256], text[512], back[512];
    for (int b = 0; b < 256; b++)
        all[b] = (char)b;
    size_t n = tok_to_alphabet(all, 256, text), len;
    CHECK(byte_alphabet_decode(text, n, back, &len) && len == 256 && memcmp(back, all, 256) == 0);
    for (uint32_t cp = 0; cp < 0x3000; cp++) { /* nothing but those 256 characters is accepted */
        char s[4];
        size_t k = (size_t)utf8_encode(cp, s);
        bool member = false;
        for (int b = 0; b < 256; b++)
            member |= byte_alphabet_char((uint8_t)b) == cp;
        CHECK(byte_alphabet_decode(s, k, back, &len) == member);
    }
    CHECK(!byte_alphabet_decode("\xC4", 1, back, &len) && !byte_alphabet_decode("\xC4x", 2, back, &len));
    CHECK(!byte_alphabet_decode("\xC1\x81", 2, back, &len)); /* overlong A */
}

static void test_quote(void **state)
{
    (void)state;
    char out[24];
    checks += 3;
    assert_string_equal(token_quote(out, sizeof out, "a\nb\xFF", 4), "\"a\\x0Ab\\xFF\"");
    assert_string_equal(token_quote(out, sizeof out, "", 0), "\"\"");
    assert_string_equal(token_quote(out, sizeof out, "0123456789012345678901234", 25), "\"012345678901234...\"");
}

/* ---- merging ---- */

/* A tokenizer's merging part, loaded from a vocabulary. */
struct machine {
    struct token_table tokens;
    struct bpe bpe;
};

static int machine_load(struct machine *m, struct tok_vocab *v, skua_error *err)
{
    memset(m, 0, sizeof *m);
    int rc = token_table_init(&m->tokens, v->n_tokens, err);
    for (size_t i = 0; i < v->n_tokens && !rc; i++)
        rc = token_table_add(&m->tokens, v->tokens[i].data, v->tokens[i].len, v->tokens[i].type, err);
    if (!rc)
        rc = bpe_init(&m->bpe, &m->tokens, v->n_merges, err);
    for (size_t i = 0; i < v->n_merges && !rc; i++)
        rc = bpe_add_merge(&m->bpe, &m->tokens, v->merges[i].data, v->merges[i].len, err);
    return rc;
}

static void machine_free(struct machine *m)
{
    bpe_free(&m->bpe);
    token_table_free(&m->tokens);
}

/* A merge as text, for the definition below. */
struct rule {
    char left[64], right[64];
    size_t n_left, n_right;
};

/* Merging by the definition: find the lowest rule that fits anywhere, apply it at its leftmost place, start again.
   ends[] gets the end of each symbol. */
static size_t merge_by_definition(const struct rule *rules, size_t n_rules, const char *s, size_t n, size_t *ends)
{
    size_t count = n;
    for (size_t i = 0; i < n; i++)
        ends[i] = i + 1;
    for (;;) {
        bool merged = false;
        for (size_t r = 0; r < n_rules && !merged; r++) {
            for (size_t i = 0; i + 1 < count && !merged; i++) {
                size_t from = i ? ends[i - 1] : 0, middle = ends[i], to = ends[i + 1];
                if (middle - from != rules[r].n_left || to - middle != rules[r].n_right ||
                    memcmp(s + from, rules[r].left, middle - from) != 0 || memcmp(s + middle, rules[r].right, to - middle) != 0)
                    continue;
                memmove(ends + i, ends + i + 1, (count - i - 1) * sizeof *ends);
                count--;
                merged = true;
            }
        }
        if (!merged)
            return count;
    }
}

/* Rules over few letters in an order unrelated to their length, so that late rules make early ones possible. */
static size_t random_rules(struct rule *rules, size_t max, uint64_t *rng)
{
    char known[128][64];
    size_t n_known = 0, n = 0;
    for (char c = 'a'; c <= 'd'; c++) {
        known[n_known][0] = c;
        known[n_known++][1] = '\0';
    }
    for (size_t i = 0; i < max; i++) {
        const char *left = known[rng_next(rng) % n_known], *right = known[rng_next(rng) % n_known];
        size_t n_left = strlen(left), n_right = strlen(right);
        if (n_left + n_right > 12)
            continue;
        struct rule *r = &rules[n++];
        memcpy(r->left, left, n_left + 1);
        memcpy(r->right, right, n_right + 1);
        r->n_left = n_left;
        r->n_right = n_right;
        memcpy(known[n_known], left, n_left);
        memcpy(known[n_known++] + n_left, right, n_right + 1);
    }
    for (size_t i = n; i > 1; i--) {
        size_t j = rng_next(rng) % i;
        struct rule t = rules[i - 1];
        rules[i - 1] = rules[j];
        rules[j] = t;
    }
    return n;
}

static void check_encoding(const struct machine *m, const struct rule *rules, size_t n_rules, const char *s, size_t n,
                           struct bpe_scratch *scratch)
{
    size_t ends[256];
    struct token_vec out = {0};
    size_t count = merge_by_definition(rules, n_rules, s, n, ends);
    assert_int_equal(bpe_encode(&m->bpe, s, n, scratch, &out), 0);
    assert_int_equal(out.n, count);
    for (size_t i = 0, from = 0; i < count; from = ends[i++]) {
        size_t len;
        const char *text = token_table_text(&m->tokens, out.ids[i], &len);
        CHECK(len == ends[i] - from && memcmp(text, s + from, len) == 0);
    }
    token_vec_free(&out);
}

static void test_merging(void **state)
{
    (void)state;
    uint64_t rng = 77;
    struct bpe_scratch scratch = {0};
    unsigned long merged_short = 0, merged_long = 0;
    for (int round = 0; round < 60; round++) {
        struct rule rules[100];
        struct tok_vocab v;
        struct machine m;
        tok_vocab_init(&v);
        size_t n_rules = random_rules(rules, 4 + rng_next(&rng) % 90, &rng);
        for (size_t i = 0; i < n_rules; i++)
            tok_vocab_merge_bytes(&v, rules[i].left, rules[i].n_left, rules[i].right, rules[i].n_right);
        skua_error err = {0};
        assert_int_equal(machine_load(&m, &v, &err), 0);
        for (int string = 0; string < 40; string++) {
            char s[200];
            size_t n = 1 + rng_next(&rng) % (string % 2 ? 48 : sizeof s);
            unsigned letters = 1 + (unsigned)(rng_next(&rng) % 5); /* e is in no rule */
            for (size_t i = 0; i < n; i++)
                s[i] = (char)('a' + rng_next(&rng) % letters);
            check_encoding(&m, rules, n_rules, s, n, &scratch);
            *(n <= 48 ? &merged_short : &merged_long) += 1;
        }
        machine_free(&m);
        tok_vocab_free(&v);
    }
    bpe_scratch_free(&scratch);
    CHECK(merged_short > 1000 && merged_long > 700);
}

static void test_repeated_pair_keeps_lower_rank(void **state)
{
    (void)state;
    struct tok_vocab v;
    struct machine m;
    tok_vocab_init(&v);
    tok_vocab_merge(&v, "a", "b");
    tok_vocab_merge(&v, "b", "c");
    tok_vocab_merge(&v, "a", "b");
    skua_error err = {0};
    assert_int_equal(machine_load(&m, &v, &err), 0);
    struct token_vec out = {0};
    struct bpe_scratch scratch = {0};
    assert_int_equal(bpe_encode(&m.bpe, "abc", 3, &scratch, &out), 0);
    CHECK(out.n == 2 && out.ids[0] == 256 && out.ids[1] == 'c');
    token_vec_free(&out);
    machine_free(&m);
    tok_vocab_free(&v);
}

/* Merges that name text outside the vocabulary never apply, and move the rank of no other merge. */
static void test_unusable_merges(void **state)
{
    (void)state;
    static const char *const unusable[] = {"ac b", "b ac", "ab c", "a ", "c a"};
    struct tok_vocab v;
    struct machine m;
    skua_error err = {0};
    tok_vocab_init(&v);
    for (size_t i = 0; i < sizeof unusable / sizeof unusable[0]; i++)
        tok_list_add(&v.merges, &v.n_merges, unusable[i], strlen(unusable[i]), 0);
    tok_vocab_merge(&v, "b", "c"); /* lower rank than a b, in spite of the unusable ones before and between */
    tok_list_add(&v.merges, &v.n_merges, "zz z", 4, 0);
    tok_vocab_merge(&v, "a", "b");
    assert_int_equal(machine_load(&m, &v, &err), 0);
    CHECK(m.bpe.n_unusable == 6 && m.bpe.n_merges == 8);
    struct token_vec out = {0};
    struct bpe_scratch scratch = {0};
    assert_int_equal(bpe_encode(&m.bpe, "abcab", 5, &scratch, &out), 0);
    CHECK(out.n == 3 && out.ids[0] == 'a' && out.ids[1] == 256 && out.ids[2] == 257);
    token_vec_free(&out);
    machine_free(&m);
    tok_vocab_free(&v);
}

/* The merged text occurs twice in the vocabulary, and the second one is where a vocabulary in merge order would have it. */
static void test_repeated_token(void **state)
{
    (void)state;
    struct tok_vocab v;
    struct machine m;
    tok_vocab_init(&v);
    tok_vocab_add(&v, "ab", 1);
    tok_vocab_merge(&v, "b", "c");
    tok_vocab_add(&v, "ab", 1);
    tok_vocab_merge(&v, "a", "b");
    assert_int_equal(v.n_tokens, 259);
    skua_error err = {0};
    assert_int_equal(machine_load(&m, &v, &err), 0);
    struct token_vec out = {0};
    struct bpe_scratch scratch = {0};
    assert_int_equal(bpe_encode(&m.bpe, "abbc", 4, &scratch, &out), 0);
    CHECK(out.n == 2 && out.ids[0] == 256 && out.ids[1] == 257);
    token_vec_free(&out);
    machine_free(&m);
    tok_vocab_free(&v);
}

/* A megabyte of one letter in one piece: the powers of two of it are tokens. */
static void test_long_piece(void **state)
{
    (void)state;
    struct tok_vocab v;
    struct machine m;
    tok_vocab_init(&v);
    char run[64];
    memset(run, 'x', sizeof run);
    for (size_t n = 1; n <= 16; n *= 2)
        tok_vocab_merge_bytes(&v, run, n, run, n);
    skua_error err = {0};
    assert_int_equal(machine_load(&m, &v, &err), 0);
    size_t n = (1 << 20) + 7;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'x', n);
    struct token_vec out = {0};
    struct bpe_scratch scratch = {0};
    assert_int_equal(bpe_encode(&m.bpe, text, n, &scratch, &out), 0);
    CHECK(out.n == (1 << 20) / 32 + 3); /* ... and 7 = 4 + 2 + 1 */
    for (size_t i = 0; i < (1 << 20) / 32; i++)
        CHECK(out.ids[i] == 260);
    CHECK(out.ids[out.n - 3] == 257 && out.ids[out.n - 2] == 256 && out.ids[out.n - 1] == 'x');
    bpe_scratch_free(&scratch);
    token_vec_free(&out);
    free(text);
    machine_free(&m);
    tok_vocab_free(&v);
}

/* ---- damaged vocabularies ---- */

static void expect_refusal(struct tok_vocab *v, int code, const char *message)
{
    struct machine m;
    skua_error err = {0};
    int rc = machine_load(&m, v, &err);
    checks += 2;
    assert_int_equal(rc, code);
    assert_string_equal(err.message, message);
    machine_free(&m);
    tok_vocab_free(v);
}

static void test_damaged(void **state)
{
    (void)state;
    struct tok_vocab v;
    tok_vocab_init(&v);
    free(v.tokens[0x0A].data);
    v.tokens[0x0A] = (struct tok_string){strdup("zz"), 2, 1};
    expect_refusal(&v, SKUA_EFORMAT, "tokenizer.ggml.tokens has no normal token for byte 0x0A (the character U+010A)");

    tok_vocab_init(&v);
    v.tokens['q'].type = 3; /* a control token of the right text does not count */
    expect_refusal(&v, SKUA_EFORMAT, "tokenizer.ggml.tokens has no normal token for byte 0x71 (the character U+0071)");

    static const struct {
        const char *merge, *message;
    } merges[] = {
        {"a", "tokenizer.ggml.merges[1] \"a\": expected two tokens with a space between"},
        {"", "tokenizer.ggml.merges[1] \"\": expected two tokens with a space between"},
        {" a", "tokenizer.ggml.merges[1] \" a\": expected two tokens with a space between"},
        {"  a", "tokenizer.ggml.merges[1] \"  a\": a half is not in the byte alphabet"},
        {"a b c", "tokenizer.ggml.merges[1] \"a b c\": a half is not in the byte alphabet"},
        {"a\n b", "tokenizer.ggml.merges[1] \"a\\x0A b\": a half is not in the byte alphabet"},
    };
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        tok_vocab_init(&v);
        tok_vocab_merge(&v, "a", "b");
        tok_list_add(&v.merges, &v.n_merges, merges[i].merge, strlen(merges[i].merge), 0);
        expect_refusal(&v, SKUA_EFORMAT, merges[i].message);
    }

    static const struct {
        int32_t type;
        int code;
        const char *message;
    } types[] = {
        {0, SKUA_EFORMAT, "tokenizer.ggml.token_type[256] is 0, expected 1 to 5"},
        {-1, SKUA_EFORMAT, "tokenizer.ggml.token_type[256] is -1, expected 1 to 5"},
        {7, SKUA_EFORMAT, "tokenizer.ggml.token_type[256] is 7, expected 1 to 5"},
        {6, SKUA_EUNSUPPORTED, "tokenizer.ggml.token_type[256] is 6 (byte), which a byte-level (gpt2) vocabulary cannot have"},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tok_vocab_init(&v);
        tok_vocab_add(&v, "<0x-1>", types[i].type);
        expect_refusal(&v, types[i].code, types[i].message);
    }

    char *long_text = calloc(1, TOKEN_MAX_BYTES + 2);
    assert_non_null(long_text);
    memset(long_text, 'y', TOKEN_MAX_BYTES + 1);
    tok_vocab_init(&v);
    tok_vocab_add(&v, long_text, 1);
    expect_refusal(&v, SKUA_EFORMAT, "tokenizer.ggml.tokens[256] has 65536 bytes, expected at most 65535");
    long_text[TOKEN_MAX_BYTES] = '\0';
    tok_vocab_init(&v);
    tok_vocab_add(&v, long_text, 1); /* the longest allowed */
    struct machine m;
    skua_error err = {0};
    CHECK(machine_load(&m, &v, &err) == 0);
    machine_free(&m);
    tok_vocab_free(&v);
    free(long_text);

    CHECK(token_table_init(&m.tokens, 0, &err) == SKUA_EFORMAT);
    token_table_free(&m.tokens);
    CHECK(token_table_init(&m.tokens, (size_t)TOKEN_MAX_COUNT + 1, &err) == SKUA_EFORMAT);
    token_table_free(&m.tokens);
}

static void test_table(void **state)
{
    (void)state;
    struct token_table t;
    skua_error err = {0};
    assert_int_equal(token_table_init(&t, 8, &err), 0);
    static const struct {
        const char *text;
        int32_t type;
        enum token_kind kind;
        const char *bytes;
    } tokens[] = {
        {"\u0120hi", 1, TOKEN_NORMAL, " hi"},         {"a b", 1, TOKEN_LITERAL, "a b"},
        {"<|x|>", 3, TOKEN_CONTROL, "<|x|>"},         {"\u0120u", 4, TOKEN_USER_DEFINED, "\u0120u"},
        {"[PAD4]", 1, TOKEN_UNUSED, "[PAD4]"},        {"[PAD4]", 1, TOKEN_NORMAL, "[PAD4]"}, /* another id's name */
        {"", 1, TOKEN_UNUSED, ""},                    {"\u0120hi", 1, TOKEN_NORMAL, " hi"},
    };
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(token_table_add(&t, tokens[i].text, strlen(tokens[i].text), tokens[i].type, &err), 0);
        size_t len;
        const char *bytes = token_table_text(&t, (uint32_t)i, &len);
        CHECK(t.kind[i] == tokens[i].kind && len == strlen(tokens[i].bytes) && memcmp(bytes, tokens[i].bytes, len) == 0);
    }
    CHECK(token_table_find(&t, " hi", 3) == 0); /* the lowest of two */
    CHECK(token_table_find_hashed(&t, " hi", 3, token_table_prefetch(&t, " hi", 3)) == 0);
    CHECK(!token_table_is(&t, 7, " hi", 3)); /* find would say 0 */
    CHECK(token_table_find(&t, "[PAD4]", 6) == 5);
    CHECK(token_table_find(&t, "<|x|>", 5) == -1 && token_table_find(&t, "a b", 3) == -1 && token_table_find(&t, "", 0) == -1);
    token_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_alphabet), cmocka_unit_test(test_quote),
        cmocka_unit_test(test_table),         cmocka_unit_test(test_merging),
        cmocka_unit_test(test_repeated_pair_keeps_lower_rank), cmocka_unit_test(test_long_piece),
        cmocka_unit_test(test_unusable_merges),
        cmocka_unit_test(test_repeated_token),
        cmocka_unit_test(test_damaged),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("test_tok_bpe: %lu checks\n", checks);
    return failed || !checks;
}
