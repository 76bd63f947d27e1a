/* The tokenizer as a whole, with a small vocabulary made in code: special parsing, malformed UTF-8, round trips, end
   tokens, refusals, failing allocations, several threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "support/tok_vocab.h"
#include "tok/detok.h"
#include "tok/tokenizer.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

/* Ids of the vocabulary below. */
enum { HE = 256, LL, HELL, HELLO, SPACE_X, NBSP_LEAD, REPLACEMENT_LEAD, REPLACEMENT, XX, XXXX,
       END_OF_TEXT, IM_START, IM_END, THINK, END_THINK, FILE_SEP, EXTRA_END, PADDING, MISNAMED, SIZE };

static void make_vocab(struct tok_vocab *v)
{
    tok_vocab_init(v);
    tok_vocab_merge(v, "h", "e");
    tok_vocab_merge(v, "l", "l");
    tok_vocab_merge(v, "he", "ll");
    tok_vocab_merge(v, "hell", "o");
    tok_vocab_merge(v, " ", "x");
    tok_vocab_merge(v, "\xC2", "\xA0");
    tok_vocab_merge(v, "\xEF", "\xBF");
    tok_vocab_merge(v, "\xEF\xBF", "\xBD");
    tok_vocab_merge(v, "x", "x");
    tok_vocab_merge(v, "xx", "xx");
    assert_int_equal(tok_vocab_add(v, "<|endoftext|>", 3), END_OF_TEXT);
    tok_vocab_add(v, "<|im_start|>", 3);
    tok_vocab_add(v, "<|im_end|>", 3);
    tok_vocab_add(v, "<think>", 4);
    tok_vocab_add(v, "</think>", 4);
    tok_vocab_add(v, "<|file_sep|>", 3);
    tok_vocab_add(v, "<|extra|>", 3);
    tok_vocab_add(v, "[PAD273]", 5);
    assert_int_equal(tok_vocab_add(v, "unused, but named like a word", 5), MISNAMED);
}

static struct tokenizer *make_tokenizer(void)
{
    struct tok_vocab v;
    struct tokenizer *t;
    skua_error err = {0};
    make_vocab(&v);
    struct tokenizer_source source = tok_vocab_source(&v, "qwen35");
    source.eos = EXTRA_END;
    assert_int_equal(tokenizer_new(&t, &source, &err), 0);
    tok_vocab_free(&v); /* the tokenizer keeps nothing of its source */
    return t;
}

static void expect_ids(const struct tokenizer *t, const char *text, size_t len, bool special, const uint32_t *ids, size_t n)
{
    struct token_vec out = {0};
    skua_error err = {0};
    assert_int_equal(tokenizer_encode(t, text, len, special, &out, &err), 0);
    checks++;
    if (out.n != n || (n && memcmp(out.ids, ids, n * sizeof *ids) != 0))
        fail_msg("%s: %zu ids, the first %u", text, out.n, out.n ? out.ids[0] : 0);
    token_vec_free(&out);
}
#define EXPECT(text, special, ...)                                                                   \
    do {                                                                                             \
        const uint32_t want_[] = {__VA_ARGS__};                                                      \
        expect_ids(t, text, sizeof(text) - 1, special, want_, sizeof want_ / sizeof want_[0]);       \
    } while (0)

static void test_encode(void **state)
{
    (void)state;
    struct tokenizer *t = make_tokenizer();
    expect_ids(t, "", 0, true, NULL, 0);
    EXPECT("hello x", true, HELLO, SPACE_X);
    EXPECT("hello<|im_end|>x", true, HELLO, IM_END, 'x');
    EXPECT("<|im_start|><|im_end|>", true, IM_START, IM_END);
    EXPECT("<|im_start<think>", true, '<', '|', 'i', 'm', '_', 's', 't', 'a', 'r', 't', THINK);
    EXPECT("<think>hello</think>", true, THINK, HELLO, END_THINK);
    EXPECT("<think>hello</think>", false, THINK, HELLO, END_THINK); /* user-defined: always */
    EXPECT("<|im_end|>", false, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    EXPECT("[PAD273]", true, '[', 'P', 'A', 'D', '2', '7', '3', ']'); /* unused: never */
    EXPECT("he\0llo", true, HE, 0, LL, 'o');
    /* The end of a segment is an end of text for the look-ahead: the run of spaces before a special token is one piece. */
    EXPECT("  <think>  x", true, ' ', ' ', THINK, ' ', SPACE_X);
    tokenizer_free(t);
}

static void test_malformed(void **state)
{
    (void)state;
    struct tokenizer *t = make_tokenizer();
    EXPECT("\xFF", true, REPLACEMENT);
    EXPECT("\xE2\x82", true, REPLACEMENT, REPLACEMENT); /* each byte by itself */
    EXPECT("\xED\xA0\x80", true, REPLACEMENT, REPLACEMENT, REPLACEMENT);
    EXPECT("hello\xC3<think>", true, HELLO, REPLACEMENT, THINK);
    EXPECT("\xC2\xA0\xC2", true, NBSP_LEAD, REPLACEMENT); /* C2 is valid in the first place only */
    EXPECT("\xEF\xBF\xBD", true, REPLACEMENT);
    EXPECT("\xFF" "hello", true, REPLACEMENT, HELLO);
    /* any bytes give the ids of the text with each undecodable byte replaced */
    uint64_t rng = 3;
    for (int round = 0; round < 5000; round++) {
        char raw[24];
        size_t n = rng_next(&rng) % sizeof raw;
        struct strbuf clean = {0};
        for (size_t i = 0; i < n; i++)
            raw[i] = "xX \n1'!\xC2\xA0\xC3\xE2\x82\xAC\xF0\x9F\xED\xFF\x80"[rng_next(&rng) % 18];
        for (size_t i = 0; i < n;) {
            uint32_t cp;
            int len = utf8_decode(raw + i, n - i, &cp);
            strbuf_append(&clean, len ? raw + i : "\xEF\xBF\xBD", len ? (size_t)len : 3);
            i += len ? (size_t)len : 1;
        }
        struct token_vec a = {0}, b = {0};
        assert_int_equal(tokenizer_encode(t, raw, n, true, &a, NULL), 0);
        assert_int_equal(tokenizer_encode(t, strbuf_str(&clean), clean.len, true, &b, NULL), 0);
        CHECK(a.n == b.n && (!a.n || memcmp(a.ids, b.ids, a.n * sizeof *a.ids) == 0));
        token_vec_free(&a);
        token_vec_free(&b);
        strbuf_free(&clean);
    }
    tokenizer_free(t);
}

/* Valid UTF-8 with special tokens, long runs and all planes. */
static void random_text(uint64_t *rng, struct strbuf *out)
{
    static const char *const parts[] = {"hello", "<think>", "<|im_end|>", "xxxxxxx", "  ", "\n", "'s", "<|", "1", "\u00E9", " x"};
    for (unsigned k = (unsigned)(rng_next(rng) % 12); k > 0; k--) {
        uint64_t r = rng_next(rng);
        char s[4];
        if (r % 3) {
            strbuf_puts(out, parts[(r >> 8) % (sizeof parts / sizeof parts[0])]);
        } else if (r % 5 == 0) {
            for (unsigned n = (unsigned)(r >> 20) % 200; n > 0; n--)
                strbuf_putc(out, 'x');
        } else {
            uint32_t bits = (unsigned)(r >> 8) % 21 + 1;
            strbuf_append(out, s, (size_t)utf8_encode((uint32_t)(r >> 40) & ((1u << bits) - 1), s));
        }
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct tokenizer *t = make_tokenizer();
    uint64_t rng = 11;
    unsigned long tokens = 0;
    for (int round = 0; round < 20000; round++) {
        struct strbuf text = {0}, bytes = {0}, streamed = {0};
        struct detok d = {0};
        random_text(&rng, &text);
        struct token_vec ids = {0};
        assert_int_equal(tokenizer_encode(t, strbuf_str(&text), text.len, round % 2, &ids, NULL), 0);
        assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, true, &bytes, NULL), 0);
        CHECK(bytes.len == text.len && memcmp(strbuf_str(&bytes), strbuf_str(&text), text.len) == 0);
        for (size_t i = 0; i < ids.n; i++) {
            size_t len;
            const char *piece = tokenizer_piece(t, ids.ids[i], true, &len);
            detok_push(&d, piece, len, &streamed);
        }
        detok_finish(&d, &streamed);
        CHECK(streamed.len == text.len && memcmp(strbuf_str(&streamed), strbuf_str(&text), text.len) == 0);
        tokens += ids.n;
        token_vec_free(&ids);
        strbuf_free(&text);
        strbuf_free(&bytes);
        strbuf_free(&streamed);
    }
    CHECK(tokens > 100000);
    tokenizer_free(t);
}

static void test_properties(void **state)
{
    (void)state;
    struct tokenizer *t = make_tokenizer();
    size_t len;
    CHECK(tokenizer_size(t) == SIZE);
    for (uint32_t id = 0; id < SIZE + 3; id++) {
        bool end = id == END_OF_TEXT || id == IM_END || id == FILE_SEP || id == EXTRA_END;
        CHECK(tokenizer_is_eog(t, id) == end);
        CHECK(tokenizer_is_samplable(t, id) == (id < PADDING));
    }
    CHECK(!tokenizer_is_eog(t, UINT32_MAX) && !tokenizer_is_samplable(t, UINT32_MAX));
    const char *piece = tokenizer_piece(t, HELLO, false, &len);
    CHECK(len == 5 && memcmp(piece, "hello", 5) == 0);
    tokenizer_piece(t, IM_END, false, &len);
    CHECK(len == 0);
    piece = tokenizer_piece(t, IM_END, true, &len);
    CHECK(len == 10 && memcmp(piece, "<|im_end|>", 10) == 0);
    piece = tokenizer_piece(t, THINK, false, &len);
    CHECK(len == 7 && memcmp(piece, "<think>", 7) == 0);
    tokenizer_piece(t, MISNAMED, true, &len);
    CHECK(len == 0);
    tokenizer_piece(t, SIZE, true, &len);
    CHECK(len == 0);
    CHECK(tokenizer_kind(t, THINK) == TOKEN_USER_DEFINED && tokenizer_kind(t, SIZE) == TOKEN_UNUSED);
    CHECK(tokenizer_find(t, "<|im_end|>", 10) == IM_END && tokenizer_find(t, "hello", 5) == HELLO);
    CHECK(tokenizer_find(t, " x", 2) == SPACE_X && tokenizer_find(t, "hel", 3) == -1 && tokenizer_find(t, "", 0) == -1);
    CHECK(tokenizer_find(t, "[PAD273]", 8) == -1);
    CHECK(tokenizer_eos(t) == EXTRA_END && tokenizer_bos(t) == -1 && tokenizer_eot(t) == -1 && tokenizer_pad(t) == -1);
    struct strbuf out = {0};
    skua_error err = {0};
    CHECK(tokenizer_decode(t, (const uint32_t[]){'a', SIZE}, 2, true, &out, &err) == SKUA_EARG);
    checks++;
    assert_string_equal(err.message, "token 1 is id 275, expected below the vocabulary size 275");
    CHECK(tokenizer_encode(t, "", TOKENIZER_MAX_TEXT + 1, true, &(struct token_vec){0}, &err) == SKUA_ELIMIT);
    strbuf_free(&out);
    tokenizer_free(t);
}

static void test_beginning_and_end(void **state)
{
    (void)state;
    struct tok_vocab v;
    struct tokenizer *t;
    skua_error err = {0};
    make_vocab(&v);
    struct tokenizer_source source = tok_vocab_source(&v, "qwen2");
    source.bos = END_OF_TEXT;
    source.eos = IM_END;
    source.eot = THINK;
    source.pad = PADDING;
    source.add_bos = source.add_eos = true;
    assert_int_equal(tokenizer_new(&t, &source, &err), 0);
    EXPECT("x", true, END_OF_TEXT, 'x', IM_END);
    struct token_vec out = {0};
    assert_int_equal(tokenizer_encode_part(t, "x", 1, true, &out, &err), 0);
    CHECK(out.n == 1 && out.ids[0] == 'x');
    assert_int_equal(tokenizer_encode(t, "x", 1, true, &out, &err), 0);
    CHECK(out.n == 3 && out.ids[1] == 'x' && out.ids[2] == IM_END); /* not empty: no beginning */
    token_vec_free(&out);
    CHECK(tokenizer_is_eog(t, THINK) && tokenizer_is_eog(t, IM_END) && tokenizer_eot(t) == THINK && tokenizer_pad(t) == PADDING);
    CHECK(tokenizer_adds_bos(t) && strcmp(tokenizer_pre(t), "qwen2") == 0);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

static void test_refusals(void **state)
{
    (void)state;
    struct tok_vocab v;
    make_vocab(&v);
    struct tokenizer_source good = tok_vocab_source(&v, "qwen35"), s;
    struct tokenizer *t;
    skua_error err;
#define REFUSED(change, expected_code, expected_message)            \
    do {                                                            \
        s = good;                                                   \
        change;                                                     \
        err = (skua_error){0};                                      \
        t = (struct tokenizer *)&s;                                 \
        CHECK(tokenizer_new(&t, &s, &err) == (expected_code));      \
        CHECK(t == NULL && err.code == (expected_code));            \
        checks++;                                                   \
        assert_string_equal(err.message, expected_message);         \
    } while (0)
    REFUSED((s.model = "llama", s.model_len = 5), SKUA_EUNSUPPORTED, "tokenizer.ggml.model is \"llama\", supported: gpt2");
    REFUSED((s.model = NULL, s.model_len = 0), SKUA_EUNSUPPORTED, "tokenizer.ggml.model is \"\", supported: gpt2");
    REFUSED((s.pre = "gpt-2", s.pre_len = 5), SKUA_EUNSUPPORTED,
            "tokenizer.ggml.pre is \"gpt-2\", supported: qwen35, qwen2, deepseek-r1-qwen");
    REFUSED((s.pre = NULL, s.pre_len = 0), SKUA_EUNSUPPORTED,
            "tokenizer.ggml.pre is \"\", supported: qwen35, qwen2, deepseek-r1-qwen");
    REFUSED(s.eos = SIZE, SKUA_EFORMAT,
            "tokenizer.ggml.eos_token_id is 275, expected an id below the vocabulary size 275");
    REFUSED(s.bos = INT64_MAX, SKUA_EFORMAT,
            "tokenizer.ggml.bos_token_id is 9223372036854775807, expected an id below the vocabulary size 275");
    REFUSED(s.eot = -2, SKUA_EFORMAT, "tokenizer.ggml.eot_token_id is -2, expected an id below the vocabulary size 275");
    REFUSED(s.pad = 1 << 20, SKUA_EFORMAT,
            "tokenizer.ggml.padding_token_id is 1048576, expected an id below the vocabulary size 275");
    REFUSED(s.add_bos = true, SKUA_EFORMAT,
            "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
    REFUSED(s.add_eos = true, SKUA_EFORMAT,
            "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
    REFUSED(s.n_tokens = 0, SKUA_EFORMAT, "tokenizer.ggml.tokens has 0 entries, expected 1 to 16777216");
    REFUSED(s.n_merges = SIZE_MAX, SKUA_EFORMAT,
            "tokenizer.ggml.merges has 18446744073709551615 entries, expected at most 16777216");
#undef REFUSED
    tok_vocab_free(&v);
}

/* A million empty tokens and as many duplicates: harmless, but without the single bytes no vocabulary. */
static const char *empty_or_byte(void *ctx, size_t i, size_t *len)
{
    static const char zeros[4] = "";
    const struct tok_vocab *bytes = ctx;
    *len = bytes && i < 256 ? bytes->tokens[i].len : bytes && i % 2 ? bytes->tokens['a'].len : 0;
    return bytes && i < 256 ? bytes->tokens[i].data : bytes && i % 2 ? bytes->tokens['a'].data : zeros;
}

static int32_t always_normal(void *ctx, size_t i)
{
    (void)ctx;
    (void)i;
    return 1;
}

static void test_many_empty_tokens(void **state)
{
    (void)state;
    struct tok_vocab v;
    tok_vocab_init(&v);
    struct tokenizer_source s = tok_vocab_source(&v, "qwen35");
    struct tokenizer *t;
    skua_error err = {0};
    s.n_tokens = 1 << 20;
    s.token = empty_or_byte;
    s.type = always_normal;
    s.ctx = NULL;
    CHECK(tokenizer_new(&t, &s, &err) == SKUA_EFORMAT && t == NULL);
    s.ctx = &v;
    CHECK(tokenizer_new(&t, &s, &err) == 0);
    EXPECT("ba", true, 'b', 'a');
    CHECK(!tokenizer_is_samplable(t, 256) && tokenizer_is_samplable(t, 257));
    tokenizer_free(t);
    tok_vocab_free(&v);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    struct tok_vocab v;
    make_vocab(&v);
    struct tokenizer_source s = tok_vocab_source(&v, "qwen35");
    struct tokenizer *t = NULL;
    skua_error err = {0};
    int rc = SKUA_ENOMEM;
    uint64_t n = 1;
    for (; rc; n++) {
        assert_true(n < 100);
        fault_set_alloc(n, true);
        rc = tokenizer_new(&t, &s, &err);
        fault_set_alloc(0, false);
        CHECK(rc == 0 || (rc == SKUA_ENOMEM && t == NULL && strncmp(err.message, "out of memory: ", 15) == 0));
    }
    CHECK(n > 10);
    /* a long piece, malformed bytes, special tokens; the vector starts with one id, which must survive failures */
    char text[400];
    memset(text, 'x', sizeof text);
    memcpy(text + 300, "<think>\xFF\xFE hello", 15);
    rc = SKUA_ENOMEM;
    for (n = 1; rc; n++) {
        struct token_vec out = {0};
        assert_true(n < 100);
        assert_int_equal(token_vec_push(&out, 7), 0);
        fault_set_alloc(n, true);
        rc = tokenizer_encode(t, text, sizeof text, true, &out, &err);
        fault_set_alloc(0, false);
        CHECK(rc == 0 ? out.n > 20 : rc == SKUA_ENOMEM && out.n == 1 && out.ids[0] == 7);
        token_vec_free(&out);
    }
    CHECK(n > 3);
    struct token_vec ids = {0};
    struct strbuf bytes = {0};
    assert_int_equal(tokenizer_encode(t, "hello", 5, true, &ids, &err), 0);
    fault_set_alloc(1, true);
    CHECK(tokenizer_decode(t, ids.ids, ids.n, true, &bytes, &err) == SKUA_ENOMEM);
    fault_set_alloc(0, false);
    token_vec_free(&ids);
    strbuf_free(&bytes);
    tokenizer_free(t);
    tok_vocab_free(&v);
}

static void *encode_thread(void *arg)
{
    const struct tokenizer *t = arg;
    unsigned long sum = 0;
    for (int i = 0; i < 2000; i++) {
        struct token_vec out = {0};
        if (tokenizer_encode(t, "hello<think> hello \xFF xxxx", 24, true, &out, NULL) == 0)
            for (size_t k = 0; k < out.n; k++)
                sum = sum * 31 + out.ids[k];
        token_vec_free(&out);
    }
    return (void *)(uintptr_t)sum;
}

static void test_threads(void **state)
{
    (void)state;
    struct tokenizer *t = make_tokenizer();
    pthread_t threads[4];
    void *sums[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_thread, t), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], &sums[i]);
    void *alone = encode_thread(t);
    for (int i = 0; i < 4; i++)
        CHECK(sums[i] == alone && alone != NULL);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode),          cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_round_trip),      cmocka_unit_test(test_properties),
        cmocka_unit_test(test_beginning_and_end), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_empty_tokens), cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_threads),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("test_tokenizer: %lu checks\n", checks);
    return failed || !checks;
}
