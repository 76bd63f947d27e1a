/* The tokenizer of a model file: the keys and their checks on containers made in memory, and the shipped vocabulary against
   ids computed by an independent implementation (golden/dense-tokenizer.json). */
#include "gguf_bytes.h"

#include <jansson.h>

#include "base/rng.h"
#include "model/vocab.h"
#include "support/tok_vocab.h"

/* ---- keys ---- */

enum damage {
    NONE, NO_MODEL, MODEL_NUMBER, MODEL_LLAMA, NO_PRE, PRE_UNKNOWN, NO_TOKENS, TOKENS_NUMBERS, NO_TYPES, TYPES_U8, TYPES_SHORT,
    TYPES_U32, NO_MERGES, MERGES_NUMBERS, MERGE_UNKNOWN, SCORES_GOOD, SCORES_U8, SCORES_SHORT, EOS_STRING, EOS_HIGH, EOS_NONE,
    BOS_HIGH, ADD_BOS_NUMBER, ADD_BOS_WITHOUT, N_DAMAGES
};

static void put_vocab_arrays(struct strbuf *b, enum damage d, const struct tok_vocab *v, uint64_t *n_keys)
{
    if (d == TOKENS_NUMBERS) {
        put_array(b, "tokenizer.ggml.tokens", GGUF_U32, 1);
        put_u32(b, 0);
        ++*n_keys;
    } else if (d != NO_TOKENS) {
        put_array(b, "tokenizer.ggml.tokens", GGUF_STRING, v->n_tokens);
        for (size_t i = 0; i < v->n_tokens; i++)
            put_bytes(b, v->tokens[i].data, v->tokens[i].len);
        ++*n_keys;
    }
    if (d != NO_TYPES) {
        size_t n = v->n_tokens - (d == TYPES_SHORT);
        put_array(b, "tokenizer.ggml.token_type", d == TYPES_U8 ? GGUF_U8 : d == TYPES_U32 ? GGUF_U32 : GGUF_I32, n);
        for (size_t i = 0; i < n; i++) {
            put_u8(b, (uint8_t)v->tokens[i].type);
            if (d != TYPES_U8)
                put_zeros(b, 3);
        }
        ++*n_keys;
    }
    if (d == MERGES_NUMBERS) {
        put_array(b, "tokenizer.ggml.merges", GGUF_I64, 1);
        put_u64(b, 0);
        ++*n_keys;
    } else if (d != NO_MERGES) {
        put_array(b, "tokenizer.ggml.merges", GGUF_STRING, v->n_merges + (d == MERGE_UNKNOWN));
        for (size_t i = 0; i < v->n_merges; i++)
            put_bytes(b, v->merges[i].data, v->merges[i].len);
        if (d == MERGE_UNKNOWN)
            put_str(b, "q z");
        ++*n_keys;
    }
    if (d == SCORES_GOOD || d == SCORES_U8 || d == SCORES_SHORT) {
        size_t n = v->n_tokens - (d == SCORES_SHORT);
        put_array(b, "tokenizer.ggml.scores", d == SCORES_U8 ? GGUF_U8 : GGUF_F32, n);
        put_zeros(b, n * (d == SCORES_U8 ? 1 : 4));
        ++*n_keys;
    }
}

static void make_container(struct strbuf *out, enum damage d, const struct tok_vocab *v)
{
    struct strbuf keys = {0};
    uint64_t n = 0;
    if (d == MODEL_NUMBER) {
        put_key_u32(&keys, "tokenizer.ggml.model", 1);
        n++;
    } else if (d != NO_MODEL) {
        put_key(&keys, "tokenizer.ggml.model", GGUF_STRING);
        put_str(&keys, d == MODEL_LLAMA ? "llama" : "gpt2");
        n++;
    }
    if (d != NO_PRE) {
        put_key(&keys, "tokenizer.ggml.pre", GGUF_STRING);
        put_str(&keys, d == PRE_UNKNOWN ? "tekken" : "qwen35");
        n++;
    }
    put_vocab_arrays(&keys, d, v, &n);
    if (d == EOS_STRING) {
        put_key(&keys, "tokenizer.ggml.eos_token_id", GGUF_STRING);
        put_str(&keys, "7");
    } else if (d == EOS_NONE) {
        put_key(&keys, "tokenizer.ggml.eos_token_id", GGUF_I32);
        put_u32(&keys, UINT32_MAX); /* -1 */
    } else {
        put_key_u32(&keys, "tokenizer.ggml.eos_token_id", d == EOS_HIGH ? (uint32_t)v->n_tokens : 258);
    }
    n++;
    if (d != ADD_BOS_WITHOUT) {
        put_key_u32(&keys, "tokenizer.ggml.bos_token_id", d == BOS_HIGH ? UINT32_MAX : 257);
        n++;
    }
    put_key(&keys, "tokenizer.ggml.add_bos_token", d == ADD_BOS_NUMBER ? GGUF_U32 : GGUF_BOOL);
    put_u8(&keys, d == ADD_BOS_WITHOUT);
    if (d == ADD_BOS_NUMBER)
        put_zeros(&keys, 3);
    n++;
    put_header(out, 0, n);
    strbuf_append(out, keys.data, keys.len);
    assert_false(strbuf_failed(&keys) || strbuf_failed(out));
    strbuf_free(&keys);
}

static const struct {
    int code;
    const char *message; /* after "m.gguf: ", its beginning where the GGUF reader words it; NULL: accepted */
} expected[N_DAMAGES] = {
    [NO_MODEL] = {SKUA_EFORMAT, "key 'tokenizer.ggml.model' is missing"},
    [MODEL_NUMBER] = {SKUA_EFORMAT, "key 'tokenizer.ggml.model' is of type u32"},
    [MODEL_LLAMA] = {SKUA_EUNSUPPORTED, "tokenizer.ggml.model is \"llama\", supported: gpt2"},
    [NO_PRE] = {SKUA_EUNSUPPORTED, "tokenizer.ggml.pre is \"\", supported: qwen35, qwen2, deepseek-r1-qwen"},
    [PRE_UNKNOWN] = {SKUA_EUNSUPPORTED, "tokenizer.ggml.pre is \"tekken\", supported: qwen35, qwen2, deepseek-r1-qwen"},
    [NO_TOKENS] = {SKUA_EFORMAT, "key 'tokenizer.ggml.tokens' is missing"},
    [TOKENS_NUMBERS] = {SKUA_EFORMAT, "key 'tokenizer.ggml.tokens' is of type array of u32"},
    [NO_TYPES] = {SKUA_EFORMAT, "key 'tokenizer.ggml.token_type' is missing"},
    [TYPES_U8] = {SKUA_EFORMAT, "key 'tokenizer.ggml.token_type' is of type array of u8, expected array of i32"},
    [TYPES_SHORT] = {SKUA_EFORMAT,
                     "key 'tokenizer.ggml.token_type' has 258 elements, expected 259 (one for each of 'tokenizer.ggml.tokens')"},
    [NO_MERGES] = {SKUA_EFORMAT, "key 'tokenizer.ggml.merges' is missing"},
    [MERGES_NUMBERS] = {SKUA_EFORMAT, "key 'tokenizer.ggml.merges' is of type array of i64"},
    [MERGE_UNKNOWN] = {0, NULL},
    [SCORES_U8] = {SKUA_EFORMAT, "key 'tokenizer.ggml.scores' is of type array of u8, expected array of f32"},
    [SCORES_SHORT] = {SKUA_EFORMAT,
                      "key 'tokenizer.ggml.scores' has 258 elements, expected 259 (one for each of 'tokenizer.ggml.tokens')"},
    [EOS_STRING] = {SKUA_EFORMAT, "key 'tokenizer.ggml.eos_token_id' is of type string"},
    [EOS_HIGH] = {SKUA_EFORMAT, "tokenizer.ggml.eos_token_id is 259, expected an id below the vocabulary size 259"},
    [BOS_HIGH] = {SKUA_EFORMAT, "tokenizer.ggml.bos_token_id is 4294967295, expected an id below the vocabulary size 259"},
    [ADD_BOS_NUMBER] = {SKUA_EFORMAT, "key 'tokenizer.ggml.add_bos_token' is of type u32"},
    [ADD_BOS_WITHOUT] = {SKUA_EFORMAT,
                         "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id"},
};

static void test_keys(void **state)
{
    (void)state;
    struct tok_vocab v;
    tok_vocab_init(&v);
    tok_vocab_merge(&v, "a", "b");
    tok_vocab_add(&v, "<|endoftext|>", 3);
    tok_vocab_add(&v, "<|im_end|>", 3);
    for (enum damage d = NONE; d < N_DAMAGES; d++) {
        struct strbuf b = {0};
        struct gguf *g;
        uint8_t *copy;
        skua_error err = {0};
        struct tokenizer *t = (struct tokenizer *)&b;
        make_container(&b, d, &v);
        CHECK_INT(parse_copy(&g, &copy, b.data, b.len, NULL, &err), 0);
        CHECK_INT(vocab_load(g, &t, &err), expected[d].code);
        gguf_close(g);
        free(copy); /* nothing of the file is needed any more */
        if (expected[d].code) {
            char want[300];
            snprintf(want, sizeof want, "m.gguf: %s", expected[d].message);
            CHECK(t == NULL);
            err.message[strlen(want)] = '\0';
            CHECK_STR(err.message, want);
        } else {
            struct token_vec ids = {0};
            CHECK_INT(tokenizer_encode(t, "ab<|im_end|>", 12, true, &ids, &err), 0);
            CHECK(ids.n == 2 && ids.ids[0] == 256 && ids.ids[1] == 258);
            CHECK_INT(tokenizer_eos(t), d == EOS_NONE ? -1 : 258);
            CHECK_INT(tokenizer_bos(t), 257);
            token_vec_free(&ids);
        }
        tokenizer_free(t);
        strbuf_free(&b);
    }
    tok_vocab_free(&v);
}

/* ---- the shipped vocabulary ---- */

static const char *shared_path(const char *name)
{
    static char path[4096];
    const char *root = getenv("SKUA_SHARED");
    snprintf(path, sizeof path, "%s/%s", root ? root : "../shared", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    fclose(f);
    return path;
}

static struct tokenizer *load_shipped(void)
{
    struct gguf *g;
    struct tokenizer *t = NULL;
    skua_error err = {0};
    const char *path = shared_path("models/tiny-q8_0.gguf");
    if (!path)
        return NULL;
    if (gguf_open(&g, path, &err) || vocab_load(g, &t, &err))
        fail_msg("%s", err.message);
    gguf_close(g);
    return t;
}

static void test_golden(void **state)
{
    (void)state;
    struct tokenizer *t = load_shipped();
    const char *path = shared_path("golden/dense-tokenizer.json");
    if (!t || !path) {
        printf("  1 skipped: no shared data\n");
        tokenizer_free(t);
        skip();
    }
    json_t *cases = json_load_file(path, 0, NULL), *c;
    size_t i;
    assert_true(json_array_size(cases) >= 20);
    json_array_foreach(cases, i, c) {
        const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
        struct token_vec ids = {0};
        struct strbuf back = {0};
        CHECK_INT(tokenizer_encode(t, json_string_value(text), json_string_length(text), true, &ids, NULL), 0);
        CHECK_INT(ids.n, json_array_size(want));
        for (size_t k = 0; k < ids.n; k++)
            CHECK_INT(ids.ids[k], json_integer_value(json_array_get(want, k)));
        CHECK_INT(tokenizer_decode(t, ids.ids, ids.n, true, &back, NULL), 0);
        CHECK(back.len == json_string_length(text) && memcmp(back.data, json_string_value(text), back.len) == 0);
        token_vec_free(&ids);
        strbuf_free(&back);
    }
    json_decref(cases);
    /* the end tokens of this vocabulary, and padding rows that are never sampled */
    CHECK_INT(tokenizer_size(t), 8192);
    unsigned n_end = 0, n_unsamplable = 0;
    for (uint32_t id = 0; id < 8192; id++) {
        n_end += tokenizer_is_eog(t, id);
        n_unsamplable += !tokenizer_is_samplable(t, id);
    }
    CHECK(tokenizer_is_eog(t, 8175) && tokenizer_is_eog(t, 8177) && tokenizer_eos(t) == 8177);
    printf("  %u end tokens, %u padding rows\n", n_end, n_unsamplable);
    tokenizer_free(t);
}

static bool is_valid(const char *s, size_t n)
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

static void test_shipped_round_trip(void **state)
{
    (void)state;
    struct tokenizer *t = load_shipped();
    if (!t) {
        printf("  1 skipped: no shared data\n");
        skip();
    }
    uint64_t rng = 21;
    for (int round = 0; round < 10000; round++) {
        struct strbuf text = {0}, back = {0};
        struct token_vec ids = {0};
        for (unsigned k = (unsigned)(rng_next(&rng) % 60); k > 0; k--) {
            uint64_t r = rng_next(&rng);
            size_t len;
            char s[4];
            const char *piece = tokenizer_piece(t, (uint32_t)(r >> 32) % 8192, true, &len);
            if (r % 2 && is_valid(piece, len))
                strbuf_append(&text, piece, len);
            else
                strbuf_append(&text, s, (size_t)utf8_encode((uint32_t)(r >> 43) & ((2u << r % 20) - 1), s));
        }
        CHECK_INT(tokenizer_encode(t, strbuf_str(&text), text.len, round % 2, &ids, NULL), 0);
        CHECK_INT(tokenizer_decode(t, ids.ids, ids.n, true, &back, NULL), 0);
        CHECK(back.len == text.len && memcmp(strbuf_str(&back), strbuf_str(&text), text.len) == 0);
        token_vec_free(&ids);
        strbuf_free(&text);
        strbuf_free(&back);
    }
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys), cmocka_unit_test(test_golden),
                                       cmocka_unit_test(test_shipped_round_trip)};
    return finish_checks("test_tok_model", cmocka_run_group_tests(tests, NULL, NULL));
}
