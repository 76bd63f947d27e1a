/* src/quant on its own: scalar conversions over their whole range, the worked examples of the format description, the
   error of a round trip, extreme and forbidden inputs, arbitrary bytes, and pinned checksums of every type (the vectors
   that pin them independently are in test_quant_vectors.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/iq2_grid.h"
#include "quant/iq2_search.h"
#include "quant/quant.h"

#define ROW 512
#define MAX_BYTES (4 * ROW)
#define SEED 20240601u

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))
#define CHECK_AT(x, ...) \
    do { \
        if (!(x)) \
            print_error(__VA_ARGS__); \
        CHECK(x); \
    } while (0)

/* Every type, the largest relative RMS error allowed after a round trip of Gaussian rows, and pinned checksums: of the
   bytes of quantized rows without and with importance weights, and of the values of arbitrary bytes. */
static const struct type_case {
    enum qtype type;
    double error;
    uint32_t plain, weighted, values;
} types[] = {
    {QTYPE_F32, 0, 0x6c950636u, 0x6c950636u, 0x3afc67b0u},
    {QTYPE_F16, 0.0004, 0xc1169e33u, 0xc1169e33u, 0xad490c10u},
    {QTYPE_BF16, 0.003, 0x7a3256e0u, 0x7a3256e0u, 0xc1e235b6u},
    {QTYPE_Q4_0, 0.1, 0x23fcfba7u, 0x79cfc7a6u, 0xb5cb4ab7u},
    {QTYPE_Q4_1, 0.08, 0x46672799u, 0x77fbd847u, 0xeff61faeu},
    {QTYPE_Q5_0, 0.05, 0xbb9c4d78u, 0x59f0d184u, 0x8d17ce2cu},
    {QTYPE_Q5_1, 0.04, 0x94189d80u, 0x8ce6f806u, 0x9f6f3a25u},
    {QTYPE_Q8_0, 0.006, 0xd7d749edu, 0xd7d749edu, 0x65a6679eu},
    {QTYPE_Q8_1, 0.006, 0xe2166833u, 0xe2166833u, 0xa74419f0u},
    {QTYPE_Q8_K, 0.007, 0x34a16199u, 0x34a16199u, 0xe40e1470u},
    {QTYPE_Q2_K, 0.35, 0x3e3ba69au, 0xa45a5991u, 0x9fe3d7dcu},
    {QTYPE_Q3_K, 0.18, 0x84c298d6u, 0x24c26d40u, 0xe529d9cau},
    {QTYPE_Q4_K, 0.08, 0xe5fe0078u, 0x5ba6aa0du, 0xa03d59c1u},
    {QTYPE_Q5_K, 0.04, 0x0942d0b1u, 0xe488ba88u, 0x00e11610u},
    {QTYPE_Q6_K, 0.02, 0x49ba32ccu, 0x21f8a11cu, 0x960e726fu},
    {QTYPE_IQ2_XXS, 0.5, 0x811c9dc5u, 0x0ad49dc8u, 0x58165ce3u},
    {QTYPE_IQ2_S, 0.4, 0x9572d32cu, 0x626311dcu, 0x41bdd1cau},
    {QTYPE_IQ4_NL, 0.09, 0x9479f5edu, 0xd5526bfau, 0x086a0d5du},
    {QTYPE_IQ4_XS, 0.09, 0x6b5e0dc7u, 0xa7410669u, 0x47e86c28u},
    {QTYPE_MXFP4, 0.15, 0xd4eab057u, 0xd4eab057u, 0x75f85306u},
    {QTYPE_NVFP4, 0.13, 0x364349abu, 0x364349abu, 0xa321e17du},
    {QTYPE_Q4_64A, 0.1, 0xc04be753u, 0xc04be753u, 0x33f363a8u},
    {QTYPE_Q2_64A, 0.5, 0x15a71a32u, 0x15a71a32u, 0xcd3d9a37u},
};
#define N_TYPES (sizeof types / sizeof types[0])

static bool weight_type(uint32_t type) { return type != QTYPE_Q8_1 && type != QTYPE_Q8_K; }

/* Sum of 12 uniform numbers: near enough to Gaussian, and exact on every machine. */
static float gauss(uint64_t *state)
{
    int64_t sum = 0;
    for (int i = 0; i < 12; i++)
        sum += (int64_t)(rng_next(state) >> 44) - (1 << 19);
    return (float)sum * 0x1p-20f;
}

static void random_row(uint64_t *state, float scale, float *x, float *imp)
{
    for (int i = 0; i < ROW; i++) {
        float g = gauss(state);
        x[i] = gauss(state) * scale;
        if (imp)
            imp[i] = g * g;
    }
}

static uint32_t fnv(uint32_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 16777619u;
    return h;
}
#define FNV_START 2166136261u

/* ---- scalar conversions ---- */

static void test_f16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        float x = f16_to_f32((uint16_t)h);
        CHECK((signbit(x) != 0) == (h >> 15 != 0));
        if (e == 31 && m) {
            CHECK(isnan(x) && (f32_to_bits(x) & 0x400000u) && f32_to_f16(x) == (0x7E00u | (h & 0x8000u)));
            continue;
        }
        double expected = e == 31 ? INFINITY : e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
        CHECK(fabs((double)x) == expected);
        CHECK(f32_to_f16(x) == h);
    }
    /* Every halfway point: exactly half goes to the even neighbour, one step aside to the nearer one. */
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double low = (double)f16_to_f32((uint16_t)h);
        double high = h == 0x7BFF ? 65536.0 : (double)f16_to_f32((uint16_t)(h + 1));
        float mid = (float)((low + high) / 2);
        CHECK(f32_to_f16(mid) == (h & 1 ? h + 1 : h));
        CHECK(f32_to_f16(nextafterf(mid, 0.0f)) == h);
        CHECK(f32_to_f16(nextafterf(mid, FLT_MAX)) == h + 1);
        CHECK(f32_to_f16(-mid) == ((h & 1 ? h + 1 : h) | 0x8000u));
    }
    CHECK(f32_to_f16(FLT_MAX) == 0x7C00 && f32_to_f16(INFINITY) == 0x7C00 && f32_to_f16(-INFINITY) == 0xFC00);
    CHECK(f32_to_f16(f32_from_bits(0x7F800001u)) == 0x7E00 && f32_to_f16(f32_from_bits(0xFFFFFFFFu)) == 0xFE00);
}

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t bits = h << 16;
        bool nan = (h & 0x7FFFu) > 0x7F80u;
        CHECK(f32_to_bits(bf16_to_f32((uint16_t)h)) == bits);
        CHECK(f32_to_bf16(f32_from_bits(bits)) == (nan ? h | 0x40u : h));
        CHECK(f32_to_bf16_trunc(f32_from_bits(bits | 0xFFFF)) == h);
        if (nan || (h & 0x7FFFu) == 0x7F80u)
            continue;
        CHECK(f32_to_bf16(f32_from_bits(bits | 0x7FFF)) == h);
        CHECK(f32_to_bf16(f32_from_bits(bits | 0x8000)) == (h & 1 ? h + 1 : h));
        CHECK(f32_to_bf16(f32_from_bits(bits | 0x8001)) == h + 1);
    }
}

static void test_small_scales(void **state)
{
    (void)state;
    for (int e = 0; e < 255; e++)
        CHECK((double)e8m0_half_to_f32((uint8_t)e) == ldexp(1, e - 128));
    for (int b = 0; b < 256; b++) {
        int e = b >> 3 & 15, m = b & 7;
        double raw = e == 0 ? ldexp(m, -9) : ldexp(8 + m, e - 10);
        CHECK((double)ue4m3_half_to_f32((uint8_t)b) == (b == 0x7F ? 0 : raw / 2));
        if (b <= 0x77 || b == 0x7E)
            CHECK(f32_to_ue4m3((float)raw) == b);
    }
    int last = 0;
    for (uint32_t bits = 0x30000000u; bits < 0x44000000u; bits += 997) { /* 2^-31 .. 512: never falls, never above 0x7E */
        int b = f32_to_ue4m3(f32_from_bits(bits));
        CHECK(b >= last && (b <= 0x77 || b == 0x7E));
        last = b;
    }
    CHECK(f32_to_ue4m3(NAN) == 0 && f32_to_ue4m3(-1.0f) == 0 && f32_to_ue4m3(INFINITY) == 0x7E);
    for (uint32_t s = 0; s < 128; s++)
        CHECK(iq2_xxs_signs(s) % 128 == s && __builtin_popcount(iq2_xxs_signs(s)) % 2 == 0);
}

/* ---- worked examples ---- */

/* One block with byte k = 37k + 11 and its scales replaced. */
static void ramp(uint32_t type, size_t at, uint16_t first, size_t at2, uint16_t second, float *out)
{
    uint8_t block[300];
    const struct qtype_info *info = qtype_info(type);
    for (size_t k = 0; k < info->block_bytes; k++)
        block[k] = (uint8_t)(37 * k + 11);
    memcpy(block + at, &first, 2);
    if (at2)
        memcpy(block + at2, &second, 2);
    assert_int_equal(dequant_row(type, block, out, info->block_elements), 0);
}

static void test_examples(void **state)
{
    (void)state;
    float y[256];
    const uint16_t one = 0x3C00, quarter = 0x3400;
    ramp(QTYPE_Q8_0, 0, one, 0, 0, y);
    CHECK(y[0] == 85 && y[1] == 122 && y[2] == -97);
    ramp(QTYPE_Q4_0, 0, one, 0, 0, y);
    CHECK(y[0] == -3 && y[1] == 2 && y[16] == -3 && y[17] == -1);
    ramp(QTYPE_IQ4_NL, 0, one, 0, 0, y);
    CHECK(y[0] == -35);
    ramp(QTYPE_Q4_K, 0, one, 2, quarter, y);
    CHECK(y[0] == 328.25f);
    ramp(QTYPE_Q5_K, 0, one, 2, quarter, y);
    CHECK(y[0] == 824.25f);
    ramp(QTYPE_Q6_K, 208, one, 0, 0, y);
    CHECK(y[0] == -1431);
    ramp(QTYPE_IQ4_XS, 0, one, 0, 0, y);
    CHECK(y[0] == 65);
    ramp(QTYPE_IQ2_XXS, 0, one, 0, 0, y);
    static const float iq2[8] = {-59.125f, 59.125f, 34.375f, -34.375f, 34.375f, -11, -34.375f, 11};
    CHECK(memcmp(y, iq2, sizeof iq2) == 0);

    static const uint8_t mxfp4[17] = {0x7f, 0x7f, 0x72};
    assert_int_equal(dequant_row(QTYPE_MXFP4, mxfp4, y, 32), 0);
    CHECK(y[0] == -6 && y[1] == 1 && y[2] == 0 && y[16] == 6 && y[17] == 6);
    static const uint8_t nvfp4[36] = {0x01, 0x07, 0x08, 0x38, 0x05, 0x1c};
    assert_int_equal(dequant_row(QTYPE_NVFP4, nvfp4, y, 64), 0);
    CHECK(y[0] == 0.005859375f && y[8] == 0 && y[1] == -4 / 1024.0f && y[9] == 1 / 1024.0f);
    static const uint8_t affine[36] = {0xb5, [32] = 0x23, 0x3c, 0x4c, 0xbd};
    assert_int_equal(dequant_row(QTYPE_Q4_64A, affine, y, 64), 0);
    CHECK(y[0] == -6.103515625e-05f && y[1] == 11 * 0.00994873046875f - 0.0498046875f && y[2] == -0.0498046875f);
    static const uint8_t affine2[20] = {0xb5, [16] = 0x80, 0x3f, 0x00, 0x40}; /* scale 1, bias 2 */
    assert_int_equal(dequant_row(QTYPE_Q2_64A, affine2, y, 64), 0);
    CHECK(y[0] == 3 && y[1] == 3 && y[2] == 5 && y[3] == 4 && y[4] == 2);

    uint8_t sc[8], mn[8];
    static const uint8_t c[12] = {0x9f, 0xc4, 0xe9, 0x0e, 0x33, 0x58, 0x7d, 0xa2, 0xc7, 0xec, 0x11, 0x36};
    k4_unpack_pairs(c, sc, mn);
    CHECK(sc[0] == 31 && mn[0] == 51 && sc[4] == 39 && mn[4] == 12);
}

/* The extreme element of Q4_0 has code 0, of Q8_0 +-127, of MXFP4 the top code even when it saturates; an odd number of
   minus signs in IQ2_XXS is made even at the first of equal elements. */
static void test_known_codes(void **state)
{
    (void)state;
    float x[32] = {[3] = 8.0f, [4] = -7.0f, [19] = 1.0f};
    struct block_q4_0 q4;
    struct block_q8_0 q8;
    struct block_mxfp4 fp4;
    assert_int_equal(quantize_row(QTYPE_Q4_0, x, &q4, 32, NULL, NULL), 0);
    CHECK(f16_to_f32(q4.d) == -1 && (q4.qs[3] & 15) == 0 && (q4.qs[4] & 15) == 15 && q4.qs[3] >> 4 == 7);
    x[3] = 127.0f;
    x[4] = -63.5f;
    assert_int_equal(quantize_row(QTYPE_Q8_0, x, &q8, 32, NULL, NULL), 0);
    CHECK(f16_to_f32(q8.d) == 1 && q8.qs[3] == 127 && q8.qs[4] == -64 && q8.qs[19] == 1 && q8.qs[0] == 0);
    x[3] = 7.9f; /* scale exponent 0: values up to 6 */
    x[4] = -2.5f; /* halfway between 2 and 3: the lower code */
    assert_int_equal(quantize_row(QTYPE_MXFP4, x, &fp4, 32, NULL, NULL), 0);
    CHECK(fp4.e == 127 && (fp4.qs[3] & 15) == 7 && (fp4.qs[4] & 15) == 12 && fp4.qs[3] >> 4 == 2);
    float y[256], imp[256];
    struct block_iq2_xxs iq2;
    for (int i = 0; i < 256; i++) {
        y[i] = i % 8 < 3 ? -1.0f : 1.0f;
        imp[i] = 1.0f;
    }
    assert_int_equal(quantize_row(QTYPE_IQ2_XXS, y, &iq2, 256, imp, NULL), 0);
    CHECK((iq2.group[0].b & 127) == 6 && (iq2.group[7].b >> 21 & 127) == 6);
}

/* ---- whole types ---- */

static void test_pinned(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = types[t].type, plain = FNV_START, weighted = FNV_START, values = FNV_START;
        size_t bytes = qtype_row_bytes(type, ROW);
        uint64_t rng = SEED;
        for (int r = 0; r < 8; r++) {
            static const float scales[4] = {0.02f, 1.0f, 30.0f, 1e-4f};
            float x[ROW], imp[ROW];
            uint8_t row[MAX_BYTES];
            random_row(&rng, scales[r % 4], x, imp);
            if (type != QTYPE_IQ2_XXS) {
                assert_int_equal(quantize_row(type, x, row, ROW, NULL, NULL), 0);
                plain = fnv(plain, row, bytes);
            }
            assert_int_equal(quantize_row(type, x, row, ROW, imp, NULL), 0);
            weighted = fnv(weighted, row, bytes);
            for (size_t i = 0; i < bytes; i++)
                row[i] = (uint8_t)(rng_next(&rng) >> 56);
            assert_int_equal(dequant_row(type, row, x, ROW), 0);
            for (int i = 0; i < ROW; i++) /* NaN bits are the machine's choice */
                x[i] = isnan(x[i]) ? 0.0f : x[i];
            values = fnv(values, x, sizeof x);
        }
        bool same = plain == types[t].plain && weighted == types[t].weighted && values == types[t].values;
        if (!same)
            print_error("{QTYPE_%s, %g, 0x%08xu, 0x%08xu, 0x%08xu},\n", qtype_info(type)->name, types[t].error, plain,
                        weighted, values);
        wrong += !same;
        checks++;
    }
    assert_int_equal(wrong, 0);
}

/* Relative RMS error of Gaussian rows. */
static void test_round_trip(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = types[t].type;
        double error[2] = {0}, power = 0;
        uint64_t rng = SEED + 1;
        for (int r = 0; r < 8; r++) {
            float x[ROW], imp[ROW], y[ROW];
            uint8_t row[MAX_BYTES];
            random_row(&rng, 1.0f, x, imp);
            for (int weighted = type == QTYPE_IQ2_XXS; weighted < 2; weighted++) {
                assert_int_equal(quantize_row(type, x, row, ROW, weighted ? imp : NULL, NULL), 0);
                assert_int_equal(dequant_row(type, row, y, ROW), 0);
                for (int i = 0; i < ROW; i++)
                    error[weighted] += pow((double)x[i] - (double)y[i], 2);
            }
            for (int i = 0; i < ROW; i++)
                power += pow((double)x[i], 2);
        }
        /* Importance moves error to columns that matter less, so the unweighted error may grow. */
        CHECK_AT(sqrt(error[0] / power) <= types[t].error && sqrt(error[1] / power) <= 1.25 * types[t].error,
                 "%s: relative errors %g, %g\n", qtype_info(type)->name, sqrt(error[0] / power), sqrt(error[1] / power));
    }
}

static bool row_finite(const float *x)
{
    for (int i = 0; i < ROW; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

static void test_extremes(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = types[t].type;
        float x[ROW] = {0}, y[ROW], ones[ROW];
        uint8_t row[MAX_BYTES];
        for (int i = 0; i < ROW; i++)
            ones[i] = 1.0f;
        for (int weighted = type == QTYPE_IQ2_XXS; weighted < 2; weighted++) {
            const float *imp = weighted ? ones : NULL;
            const char *name = qtype_info(type)->name;
            memset(x, 0, sizeof x);
            assert_int_equal(quantize_row(type, x, row, ROW, imp, NULL), 0);
            assert_int_equal(dequant_row(type, row, y, ROW), 0);
            for (int i = 0; i < ROW; i++)
                CHECK_AT(y[i] == 0, "%s: zero became %g\n", name, (double)y[i]);

            for (int i = 0; i < ROW; i++) /* subnormals of every size and sign */
                x[i] = f32_from_bits((uint32_t)(1u << i % 23) | (uint32_t)(i & 1) << 31);
            assert_int_equal(quantize_row(type, x, row, ROW, imp, NULL), 0);
            assert_int_equal(dequant_row(type, row, y, ROW), 0);
            for (int i = 0; i < ROW; i++)
                CHECK_AT(fabsf(y[i] - x[i]) <= 0x1p-126f, "%s: %g became %g\n", name, (double)x[i], (double)y[i]);

            for (int i = 0; i < ROW; i++)
                x[i] = i & 1 ? -65504.0f : 65504.0f;
            assert_int_equal(quantize_row(type, x, row, ROW, imp, NULL), 0);
            assert_int_equal(dequant_row(type, row, y, ROW), 0);
            for (int i = 0; i < ROW; i++)
                CHECK_AT(type == QTYPE_NVFP4 ? fabsf(y[i]) == 2688 && (y[i] < 0) == (i & 1)
                                             : fabsf(y[i] - x[i]) <= (type == QTYPE_IQ2_XXS ? 0.75f : 0.3f) * 65504,
                         "%s: %g became %g\n", name, (double)x[i], (double)y[i]);
        }
    }
}

/* Values too large for a format are refused, never stored as infinity; the rest keeps huge values. */
static void test_overflow(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = types[t].type;
        const struct qtype_info *info = qtype_info(type);
        bool wide = type == QTYPE_F32 || type == QTYPE_BF16 || type == QTYPE_MXFP4 || type == QTYPE_NVFP4 ||
                    type == QTYPE_Q4_64A || type == QTYPE_Q2_64A || type == QTYPE_Q8_K;
        for (int huge = 0; huge < 4; huge++)
            for (int weighted = type == QTYPE_IQ2_XXS; weighted < 2; weighted++) {
                static const float values[4] = {1e37f, 1e20f, 1e11f, FLT_MAX};
                float x[ROW], imp[ROW], y[ROW];
                uint8_t row[MAX_BYTES];
                skua_error err = {0};
                for (int i = 0; i < ROW; i++) {
                    x[i] = i < 300 ? 0.5f : i & 1 ? values[huge] : -values[huge];
                    imp[i] = 1.0f;
                }
                if (wide && huge == 3)
                    continue; /* the largest number of all may or may not fit */
                int rc = quantize_row(type, x, row, ROW, weighted ? imp : NULL, &err);
                CHECK_AT(rc == (wide ? 0 : SKUA_EARG), "%s %g: %d %s\n", info->name, (double)values[huge], rc, err.message);
                if (wide) {
                    assert_int_equal(dequant_row(type, row, y, ROW), 0);
                    CHECK(row_finite(y) && fabsf(y[0] - 0.5f) <= 0.2f);
                } else if (!weighted) { /* some importance weights depend on the whole row */
                    char range[64];
                    uint32_t first = 300 / info->block_elements * info->block_elements;
                    snprintf(range, sizeof range, "elements %u to %u are", first, first + info->block_elements - 1);
                    CHECK_AT(strstr(err.message, range) && strstr(err.message, info->name), "%s: %s\n", info->name,
                             err.message);
                }
            }
    }
}

/* Huge importance overflows the sums of the fits: an error, not a row of zeros. */
static void test_overflow_importance(void **state)
{
    (void)state;
    static const enum qtype fitted[] = {QTYPE_Q4_0,  QTYPE_Q5_0,    QTYPE_Q2_K,  QTYPE_Q3_K,   QTYPE_Q4_K,
                                        QTYPE_Q5_K,  QTYPE_IQ2_XXS, QTYPE_IQ4_NL, QTYPE_IQ4_XS, QTYPE_Q6_K};
    for (size_t t = 0; t < sizeof fitted / sizeof fitted[0]; t++) {
        float x[ROW], imp[ROW];
        uint8_t row[MAX_BYTES];
        uint64_t rng = SEED;
        random_row(&rng, 1000.0f, x, NULL);
        for (int i = 0; i < ROW; i++)
            imp[i] = FLT_MAX;
        CHECK_AT(quantize_row(fitted[t], x, row, ROW, imp, NULL) == SKUA_EARG, "%s\n", qtype_info(fitted[t])->name);
    }
}

static void expect_error(int rc, int expected, const skua_error *err, const char *part)
{
    CHECK_AT(rc == expected && err->code == expected && strstr(err->message, part) && !strchr(err->message, '\n'),
             "%d, expected %d with %s: %s\n", rc, expected, part, err->message);
}

static void test_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[ROW] = {0}, imp[ROW] = {0}, y[ROW];
    uint8_t row[MAX_BYTES] = {0};
    skua_error err = {0};
    for (size_t t = 0; t < N_TYPES; t++) {
        uint32_t type = types[t].type, block = qtype_info(type)->block_elements;
        for (size_t k = 0; k < 3; k++) {
            x[37] = bad[k];
            expect_error(quantize_row(type, x, row, ROW, imp, &err), SKUA_EARG, &err, "element 37 is");
            x[37] = 0;
            imp[ROW - 1] = bad[k];
            expect_error(quantize_row(type, x, row, ROW, imp, &err), SKUA_EARG, &err, "weight 511 is");
            imp[ROW - 1] = 0;
        }
        imp[0] = -0.5f;
        expect_error(quantize_row(type, x, row, ROW, imp, &err), SKUA_EARG, &err, "weight 0 is -0.5");
        imp[0] = 0;
        expect_error(quantize_row(type, x, row, -(int64_t)block, imp, &err), SKUA_EARG, &err, "row of -");
        CHECK(quantize_row(type, x, row, 0, imp, NULL) == 0 && dequant_row(type, row, y, 0) == 0);
        CHECK(dequant_row(type, row, y, -(int64_t)block) == SKUA_EARG);
        CHECK(dequant_supported(type) == weight_type(type));
        if (block > 1) {
            expect_error(quantize_row(type, x, row, ROW - 1, imp, &err), SKUA_EARG, &err, "row of 511 elements as");
            CHECK(dequant_row(type, row, y, 1) == SKUA_EARG);
        }
    }
    expect_error(quantize_row(QTYPE_IQ2_XXS, x, row, ROW, NULL, &err), SKUA_EARG, &err, "IQ2_XXS needs importance");
    static const uint32_t unknown[] = {4, 5, 31, 33, 38, 43, 133, UINT32_MAX};
    static const uint32_t unsupported[] = {QTYPE_IQ2_XS, QTYPE_IQ3_XXS, QTYPE_IQ3_S, QTYPE_IQ1_S, QTYPE_IQ1_M, QTYPE_I8,
                                           QTYPE_I32,    QTYPE_F64,     QTYPE_TQ1_0, QTYPE_TQ2_0, QTYPE_Q1_0,  QTYPE_Q2_0};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        expect_error(quantize_row(unknown[i], x, row, ROW, NULL, &err), SKUA_EUNSUPPORTED, &err, "is unknown");
        CHECK(dequant_row(unknown[i], row, y, ROW) == SKUA_EUNSUPPORTED && !dequant_supported(unknown[i]));
    }
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        const char *name = qtype_info(unsupported[i])->name;
        expect_error(quantize_row(unsupported[i], x, row, ROW, NULL, &err), SKUA_EUNSUPPORTED, &err, name);
        CHECK(dequant_row(unsupported[i], row, y, ROW) == SKUA_EUNSUPPORTED && !dequant_supported(unsupported[i]));
    }
}

/* Each scale field of a block alone is found, in the second block of a row. */
static void test_row_check(void **state)
{
    (void)state;
    static const struct {
        enum qtype type;
        size_t at;
        uint8_t bytes[4], size;
    } cases[] = {
        {QTYPE_Q4_0, 0, {0x00, 0x7C}, 2},     {QTYPE_Q4_1, 2, {0x00, 0xFC}, 2},      {QTYPE_Q5_0, 0, {0x01, 0x7C}, 2},
        {QTYPE_Q5_1, 2, {0x00, 0x7E}, 2},     {QTYPE_Q8_0, 0, {0x00, 0x7C}, 2},      {QTYPE_Q8_1, 2, {0x00, 0x7C}, 2},
        {QTYPE_Q2_K, 80, {0x00, 0x7C}, 2},    {QTYPE_Q2_K, 82, {0x00, 0x7C}, 2},     {QTYPE_Q3_K, 108, {0x00, 0x7C}, 2},
        {QTYPE_Q4_K, 2, {0x00, 0x7C}, 2},     {QTYPE_Q5_K, 2, {0x00, 0x7C}, 2},      {QTYPE_Q6_K, 208, {0x00, 0x7C}, 2},
        {QTYPE_Q8_K, 0, {0, 0, 0x80, 0x7F}, 4}, {QTYPE_IQ2_XXS, 0, {0x00, 0x7C}, 2}, {QTYPE_IQ2_S, 0, {0x00, 0x7C}, 2},
        {QTYPE_IQ4_NL, 0, {0x00, 0x7C}, 2},   {QTYPE_IQ4_XS, 0, {0x00, 0x7C}, 2},    {QTYPE_MXFP4, 0, {0xFF}, 1},
        {QTYPE_Q4_64A, 32, {0x80, 0x7F}, 2},  {QTYPE_Q4_64A, 34, {0x80, 0xFF}, 2},   {QTYPE_Q2_64A, 16, {0x80, 0x7F}, 2},
        {QTYPE_Q2_64A, 18, {0xC0, 0x7F}, 2},  {QTYPE_F16, 0, {0x00, 0x7C}, 2},       {QTYPE_BF16, 0, {0x80, 0x7F}, 2},
        {QTYPE_F32, 0, {0, 0, 0xC0, 0x7F}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct qtype_info *info = qtype_info(cases[i].type);
        uint8_t row[2 * 300] = {0};
        char range[64];
        skua_error err = {0};
        CHECK(quant_row_check(cases[i].type, row, 2 * info->block_elements, &err) == 0);
        memcpy(row + info->block_bytes + cases[i].at, cases[i].bytes, cases[i].size);
        snprintf(range, sizeof range, "elements %u to %u of a %s row", info->block_elements, 2 * info->block_elements - 1,
                 info->name);
        expect_error(quant_row_check(cases[i].type, row, 2 * info->block_elements, &err), SKUA_EFORMAT, &err, range);
    }
    uint8_t nvfp4[36];
    memset(nvfp4, 0xFE, sizeof nvfp4);
    CHECK(quant_row_check(QTYPE_NVFP4, nvfp4, 64, NULL) == 0);
    for (int i = 0; i < 8; i++) {
        memset(nvfp4, 0x7E, sizeof nvfp4);
        nvfp4[i / 2] = i % 2 ? 0x7F : 0xFF;
        CHECK(quant_row_check(QTYPE_NVFP4, nvfp4, 64, NULL) == SKUA_EFORMAT);
    }
    CHECK(quant_row_check(QTYPE_Q1_0, nvfp4, 128, NULL) == SKUA_EUNSUPPORTED && quant_row_check(QTYPE_Q4_0, nvfp4, 1, NULL) == SKUA_EARG);
}

/* Arbitrary finite floats of all magnitudes, arbitrary weights: a valid row or an error, the same at any address, and rows
   are independent of what lies behind them. */
static void test_arbitrary(void **state)
{
    (void)state;
    uint64_t rng = SEED + 2;
    for (int r = 0; r < 60; r++) {
        float x[ROW], imp[ROW];
        for (int i = 0; i < ROW; i++) {
            uint32_t bits = (uint32_t)(rng_next(&rng) >> 32);
            int spread = r % 5 * 60; /* exponents within a band: rows that mostly fit, and rows of everything */
            uint32_t exponent = spread == 0 ? bits >> 23 & 255 : 127 - (uint32_t)spread / 2 + (bits >> 23 & 255) % (uint32_t)spread;
            x[i] = f32_from_bits((bits & 0x807FFFFFu) | (exponent > 254 ? 254 : exponent) << 23);
            imp[i] = i % 7 == 0 ? 0.0f : fabsf(x[(i * 5) % (i + 1)]);
            if (r % 4 == 3 && bits % 3)
                x[i] = bits & 1 ? 0.0f : -0.0f;
        }
        for (size_t t = 0; t < N_TYPES; t++) {
            uint32_t type = types[t].type;
            size_t bytes = qtype_row_bytes(type, ROW);
            for (int weighted = type == QTYPE_IQ2_XXS; weighted < 2; weighted++) {
                uint8_t row[MAX_BYTES + 2], again[MAX_BYTES + 2];
                float y[ROW], z[ROW];
                memset(row, 0xA5, sizeof row);
                memset(again, 0x5A, sizeof again);
                int rc = quantize_row(type, x, row, ROW, weighted ? imp : NULL, NULL);
                CHECK(rc == 0 || rc == SKUA_EARG);
                CHECK(quantize_row(type, x, again + 1, ROW, weighted ? imp : NULL, NULL) == rc);
                CHECK(row[bytes] == 0xA5 && again[0] == 0x5A && again[bytes + 1] == 0x5A);
                if (rc)
                    continue;
                CHECK(memcmp(row, again + 1, bytes) == 0);
                CHECK(quant_row_check(type, row, ROW, NULL) == 0);
                assert_int_equal(dequant_row(type, row, y, ROW), 0);
                assert_int_equal(dequant_row(type, again + 1, z, ROW), 0);
                CHECK(memcmp(y, z, sizeof y) == 0);
            }
        }
    }
}

/* ---- codebook search ---- */

/* By definition: sort all entries by (distance, index), keep the first `shells` distances, take the least weighted error. */
static int nearest_by_definition(const uint16_t *codes, int n, int shells, const int *digit, const float *x,
                                 const float *root_w, float scale, bool *exact)
{
    int best = -1, found = 0;
    float best_error = 0;
    for (int distance = 0; distance <= 32 && found < shells; distance++) {
        bool any = false;
        for (int e = 0; e < n; e++) {
            int sum = 0;
            float error = 0;
            for (int i = 0; i < 8; i++) {
                int d = (codes[e] >> 2 * i & 3) - digit[i];
                float off = scale * (float)(2 * (codes[e] >> 2 * i & 3) + 1) - x[i];
                sum += d * d;
                error += root_w[i] * off * off;
            }
            if (sum != distance)
                continue;
            any = true;
            if (best < 0 || error < best_error) {
                best = e;
                best_error = error;
            }
        }
        *exact = distance == 0 && any;
        if (*exact)
            return best;
        found += any;
    }
    return best;
}

static void test_search(void **state)
{
    (void)state;
    uint64_t rng = SEED + 3;
    int off_grid = 0;
    for (int r = 0; r < 2000; r++) {
        bool small = r & 1, exact, expected_exact;
        float x[8], root_w[8], scale = 0.25f + (float)(rng_next(&rng) >> 62);
        int digit[8];
        for (int i = 0; i < 8; i++) {
            digit[i] = (int)(rng_next(&rng) % 3);
            x[i] = scale * ((float)(2 * digit[i] + 1) + 0.9f * ((float)rng_uniform(SEED, (uint64_t)r, (uint64_t)i) - 0.5f));
            root_w[i] = 0.1f + (float)(rng_next(&rng) >> 60);
        }
        int got = iq2_nearest(small ? iq2_book_xxs() : iq2_book_s(), x, root_w, 1 / scale, scale, &exact);
        int expected = nearest_by_definition(small ? iq2_xxs_codes : iq2_s_codes, small ? 256 : 1024, small ? 2 : 1, digit, x,
                                             root_w, scale, &expected_exact);
        CHECK(got == expected && exact == expected_exact);
        off_grid += !exact;
    }
    CHECK(off_grid > 500 && off_grid < 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16),         cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_small_scales), cmocka_unit_test(test_examples),
        cmocka_unit_test(test_known_codes), cmocka_unit_test(test_pinned),
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_overflow),    cmocka_unit_test(test_overflow_importance),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_row_check),
        cmocka_unit_test(test_arbitrary),   cmocka_unit_test(test_search),
    };
    int rc = cmocka_run_group_tests_name("quant", tests, NULL, NULL);
    printf("quant: %lu checks\n", checks);
    return rc != 0 || checks == 0;
}
