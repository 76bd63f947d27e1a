/* Weights of checkpoints, and where their rows go: packed rows have the values that the decoders of their GGUF type give, bit for bit; the
   order of value heads is the one of its definition; every row is used once. */
#include "convert/hf_plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "quant/quant.h"

#define ROWS 3
#define COLS 192

static void fill(uint64_t *rng, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)rng_next(rng);
}

/* Two matrices of ROWS x COLS from random bytes; each row packed and decoded is the row read. */
static void check_packed(enum hf_encoding encoding, unsigned bits, int type)
{
    static uint8_t codes[2 * ROWS * COLS], scales[2 * ROWS * COLS], biases[2 * ROWS * COLS], block[COLS];
    uint64_t rng = bits;
    fill(&rng, codes, sizeof codes);
    fill(&rng, scales, sizeof scales);
    fill(&rng, biases, sizeof biases);
    for (size_t i = 0; i < sizeof scales; i++) {
        if (encoding == HF_NVFP4 && (scales[i] & 0x7F) == 0x7F)
            scales[i] = 0x7E; /* NaN */
        if (encoding == HF_AFFINE && i % 2)
            scales[i] = biases[i] = (uint8_t)(scales[i] & 0xBF); /* bf16 of moderate size */
    }
    const struct st_tensor data = {.dtype = ST_U32, .data = codes}, s = {.dtype = ST_BF16, .data = scales};
    const struct st_tensor b = {.dtype = ST_BF16, .data = biases};
    const struct hf_weight w = {.encoding = encoding, .data = &data, .scales = &s, .biases = &b, .matrices = 2, .rows = ROWS, .cols = COLS,
                                .bits = bits, .group = 64, .packed = type};
    for (uint64_t m = 0; m < 2; m++)
        for (uint64_t r = 0; r < ROWS; r++) {
            float read[COLS], decoded[COLS];
            hf_weight_row(&w, m, r, read);
            hf_weight_pack(&w, m, r, block);
            assert_int_equal(dequant_row((uint32_t)type, block, decoded, COLS), 0);
            for (int i = 0; i < COLS; i++)
                if (memcmp(&read[i], &decoded[i], sizeof read[i]) && (read[i] != 0 || decoded[i] != 0))
                    fail_msg("type %d, matrix %d, row %d, element %d: %g read, %g packed", type, (int)m, (int)r, i, (double)read[i],
                             (double)decoded[i]);
        }
}

static void test_packed(void **state)
{
    (void)state;
    check_packed(HF_NVFP4, 4, QTYPE_NVFP4);
    check_packed(HF_AFFINE, 4, QTYPE_Q4_64A);
    check_packed(HF_AFFINE, 2, QTYPE_Q2_64A);
}

/* All 256 codes of E4M3 against its definition. */
static void test_e4m3(void **state)
{
    (void)state;
    uint8_t codes[256];
    float one = 1.0f, out[256];
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    const struct st_tensor data = {.dtype = ST_F8_E4M3, .data = codes};
    const struct st_tensor scale = {.dtype = ST_F32, .data = (const uint8_t *)&one};
    const struct hf_weight w = {.encoding = HF_FP8, .data = &data, .scales = &scale, .matrices = 1, .rows = 1, .cols = 256, .block_rows = 1,
                                .block_cols = 256, .packed = -1};
    hf_weight_row(&w, 0, 0, out);
    for (int i = 0; i < 256; i++) {
        int e = i >> 3 & 15, m = i & 7;
        double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
        if (e == 15 && m == 7)
            assert_true(isnan(out[i]));
        else
            assert_true((double)out[i] == (i & 0x80 ? -v : v) && !signbit(out[i]) == !(i & 0x80));
    }
}

/* new[(j*nK + k)*h + d] = old[(k*r + j)*h + d] */
static void test_heads(void **state)
{
    (void)state;
    static const int32_t shapes[][2] = {{1, 1}, {2, 2}, {2, 4}, {2, 6}, {3, 3}, {4, 8}, {16, 32}, {16, 48}, {1, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct hf_config c = {.n_k_head = shapes[i][0], .n_v_head = shapes[i][1], .d_state = 3};
        uint64_t n_k = (uint64_t)c.n_k_head, r = (uint64_t)c.n_v_head / n_k, h = 3, qk = 2 * n_k * h;
        const struct hf_output z = {.rows = HF_ROWS_V, .unit = h}, a = {.rows = HF_ROWS_V, .unit = 1}, qkv = {.rows = HF_ROWS_QKV};
        for (uint64_t k = 0; k < n_k; k++)
            for (uint64_t j = 0; j < r; j++) {
                assert_int_equal(hf_source_head(&c, j * n_k + k), k * r + j);
                assert_int_equal(hf_source_row(&c, &a, j * n_k + k), k * r + j);
                for (uint64_t d = 0; d < h; d++) {
                    assert_int_equal(hf_source_row(&c, &z, (j * n_k + k) * h + d), (k * r + j) * h + d);
                    assert_int_equal(hf_source_row(&c, &qkv, qk + (j * n_k + k) * h + d), qk + (k * r + j) * h + d);
                }
            }
        for (uint64_t row = 0; row < qk; row++)
            assert_int_equal(hf_source_row(&c, &qkv, row), row);
    }
}

/* Two outputs of one fused source: together they take every row once, q and k of each key head where they belong. */
static void test_fused(void **state)
{
    (void)state;
    static const int32_t shapes[][2] = {{1, 1}, {2, 2}, {2, 4}, {2, 6}, {16, 48}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct hf_config c = {.n_k_head = shapes[i][0], .n_v_head = shapes[i][1], .d_state = 4};
        uint64_t n_k = (uint64_t)c.n_k_head, n_v = (uint64_t)c.n_v_head, r = n_v / n_k, d = 4, group = d * (2 + 2 * r);
        const struct hf_output qkv = {.rows = HF_ROWS_QKVZ_QKV}, z = {.rows = HF_ROWS_QKVZ_Z};
        const struct hf_output b = {.rows = HF_ROWS_BA_B}, a = {.rows = HF_ROWS_BA_A};
        bool *seen = calloc(n_k * group, sizeof *seen);
        assert_non_null(seen);
        for (uint64_t row = 0; row < (2 * n_k + n_v) * d; row++)
            seen[hf_source_row(&c, &qkv, row)] = true;
        for (uint64_t row = 0; row < n_v * d; row++) {
            uint64_t v = hf_source_row(&c, &qkv, 2 * n_k * d + row);
            assert_false(seen[v + r * d]);
            assert_int_equal(hf_source_row(&c, &z, row), v + r * d); /* z lies behind v in the same group */
            seen[v + r * d] = true;
        }
        for (uint64_t row = 0; row < n_k * group; row++)
            assert_true(seen[row]);
        for (uint64_t k = 0; k < n_k; k++) {
            assert_int_equal(hf_source_row(&c, &qkv, k * d + 1), k * group + 1);
            assert_int_equal(hf_source_row(&c, &qkv, (n_k + k) * d + 2), k * group + d + 2);
            assert_int_equal(hf_source_row(&c, &qkv, 2 * n_k * d + k * d), k * group + 2 * d); /* file's head k: the first of its group */
        }
        for (uint64_t v = 0; v < n_v; v++) {
            assert_int_equal(hf_source_row(&c, &b, v), v % n_k * 2 * r + v / n_k);
            assert_int_equal(hf_source_row(&c, &a, v), v % n_k * 2 * r + r + v / n_k);
        }
        free(seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packed), cmocka_unit_test(test_e4m3), cmocka_unit_test(test_heads),
                                       cmocka_unit_test(test_fused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
