/* The vector quantizers against the reference in plain C, bit for bit: every type and every tier of this machine, without and
   with importance weights, on ordinary and on hostile rows, with numbers of blocks that leave lanes empty; and the published
   rows of spec/quant_vectors.json. Errors are compared by code and message, as the bytes are then unspecified. And the fitted form
   of the affine types against their definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/rng.h"
#include "quant/half.h"
#include "quant/quant.h"
#include "support/support.h"

#define MAX_ROW   (19 * 256)
#define MAX_BYTES (4 * MAX_ROW)
#define ROW       256 /* elements of a published row */

static const enum qtype types[] = {
    QTYPE_F32,  QTYPE_F16,  QTYPE_BF16, QTYPE_Q4_0,  QTYPE_Q4_1,   QTYPE_Q5_0,   QTYPE_Q5_1,  QTYPE_Q8_0,
    QTYPE_Q8_1, QTYPE_Q8_K, QTYPE_Q2_K, QTYPE_Q3_K,  QTYPE_Q4_K,   QTYPE_Q5_K,   QTYPE_Q6_K,  QTYPE_IQ2_XXS,
    QTYPE_IQ2_S, QTYPE_IQ4_NL, QTYPE_IQ4_XS, QTYPE_MXFP4, QTYPE_NVFP4, QTYPE_Q4_64A, QTYPE_Q2_64A,
};
#define N_TYPES (sizeof types / sizeof types[0])

static uint64_t rng;

static float uniform(void) { return (float)(rng_next(&rng) >> 40) * 0x1p-24f; }

static float gauss(void)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

/* A finite number of any size. */
static float any_bits(void)
{
    for (;;) {
        float x = f32_from_bits((uint32_t)(rng_next(&rng) >> 32));
        if (isfinite(x))
            return x;
    }
}

/* ---- rows ---- */

/* What each kind of row puts at place i; `level` is a number chosen anew for every sixteen elements. */
enum kind {
    GAUSSIAN, ZERO, CONSTANT, CONSTANT_PIECES, OUTLIER, SUBNORMAL, HUGE_VALUES, NEAR_OVERFLOW, NEGATIVE, POSITIVE, NARROW, INTEGERS,
    HALVES, SCALES, SPARSE, ALTERNATING, NEAR_EPS, ANY_BITS, SIGNED_ZERO, MIDPOINTS, ONE_ULP, FAR_OFFSET, POWERS, N_KINDS
};

static float element(enum kind kind, int i, float level)
{
    static const float middles[] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f, 7.0f, 19.0f, 31.5f, 45.5f, 61.0f,
                                    79.0f, 101.0f, 127.0f};
    switch (kind) {
    case GAUSSIAN: return 0.02f * gauss();
    case ZERO: return 0.0f;
    case CONSTANT: return -0.3f;
    case CONSTANT_PIECES: return level - 0.5f;
    case OUTLIER: return i % 97 == 50 ? -20.0f : 0.01f * gauss();
    case SUBNORMAL: return 1e-40f * gauss();
    case HUGE_VALUES: return 1e37f * gauss();
    case NEAR_OVERFLOW: return 1e5f * level * level * gauss();
    case NEGATIVE: return -0.01f - 0.1f * uniform();
    case POSITIVE: return 0.01f + 0.1f * uniform();
    case NARROW: return 1.0f + 1e-6f * uniform();
    case INTEGERS: return (float)(int)(10.0f * gauss());
    case HALVES: return 0.5f * (float)(int)(5.0f * gauss());
    case SCALES: return expf(29.0f * level - 19.0f) * gauss();
    case SPARSE: return uniform() < 0.03f ? gauss() : 0.0f;
    case ALTERNATING: return i & 1 ? 0.125f : -0.125f;
    case NEAR_EPS: return 3e-15f * level * gauss();
    case ANY_BITS: return any_bits();
    case SIGNED_ZERO: return uniform() < 0.5f ? -0.0f : uniform() < 0.9f ? 0.0f : -1e-12f;
    case MIDPOINTS: return 0x1p-9f * middles[(int)(uniform() * 16.0f) & 15] * (i % 32 == 31 ? 1.0f : 127.0f / 128.0f);
    case ONE_ULP: return uniform() < 0.5f ? 1.0f : nextafterf(1.0f, 2.0f);
    case FAR_OFFSET: return 100.0f * (level - 0.5f) + 0.001f * gauss();
    case POWERS: return ldexpf(uniform() < 0.5f ? -1.0f : 1.0f, (int)(40.0f * uniform()) - 30);
    case N_KINDS: break;
    }
    return 0.0f;
}

static void fill(enum kind kind, float *x, int n)
{
    float level = 0.0f;
    for (int i = 0; i < n; i++) {
        if (i % 16 == 0)
            level = uniform();
        x[i] = element(kind, i, level);
    }
}

enum importance { NONE, SQUARES, ONES, ALL_ZERO, SPARSE_ZEROS, ZERO_PIECES, TINY, LARGE, WIDE, N_IMPORTANCES };

static void fill_importance(enum importance kind, float *imp, int n)
{
    bool piece = false;
    for (int i = 0; i < n; i++) {
        float g = gauss();
        if (i % 32 == 0)
            piece = uniform() < 0.3f;
        switch (kind) {
        case NONE: case SQUARES: imp[i] = g * g; break;
        case ONES: imp[i] = 1.0f; break;
        case ALL_ZERO: imp[i] = 0.0f; break;
        case SPARSE_ZEROS: imp[i] = uniform() < 0.5f ? 0.0f : g * g; break;
        case ZERO_PIECES: imp[i] = piece ? 0.0f : g * g; break;
        case TINY: imp[i] = 1e-38f * uniform(); break;
        case LARGE: imp[i] = 1e30f * uniform(); break;
        case WIDE: imp[i] = expf(20.0f * g); break;
        case N_IMPORTANCES: break;
        }
    }
}

/* ---- comparison ---- */

static float x[MAX_ROW], imp[MAX_ROW];
static uint8_t expected[MAX_BYTES + 1], got[MAX_BYTES + 1];

/* All tiers but the reference itself. The byte behind the row must stay. */
static void compare(uint32_t type, int n, bool weighted, const char *what, int a, int b)
{
    const float *weights = weighted ? imp : NULL;
    const size_t bytes = qtype_row_bytes(type, (uint64_t)n);
    skua_error err = {0};
    memset(expected, 0x55, sizeof expected);
    const int rc = quantize_row(type, x, expected, n, weights, &err);
    for (const struct quant_tier *const *t = quant_tiers(); *t; t++) {
        if (strcmp(quant_tier_name(*t), "scalar") == 0)
            continue;
        skua_error other = {0};
        memset(got, 0x55, sizeof got);
        const int rc2 = quantize_row_by(*t, type, x, got, n, weights, &other);
        CHECK(rc == rc2 && strcmp(err.message, other.message) == 0, "%s %s %s %d %d, %d elements: %d %s, expected %d %s",
              quant_tier_name(*t), qtype_info(type)->name, what, a, b, n, rc2, other.message, rc, err.message);
        size_t at = 0;
        while (rc == 0 && at < bytes && got[at] == expected[at])
            at++;
        CHECK(rc != 0 || at == bytes, "%s %s %s %d %d, %d elements: byte %zu of %zu is %02x, expected %02x", quant_tier_name(*t),
              qtype_info(type)->name, what, a, b, n, at, bytes, got[at], expected[at]);
        CHECK(got[bytes] == 0x55, "%s %s: wrote past the row", quant_tier_name(*t), qtype_info(type)->name);
    }
}

/* Blocks of a row: one, and numbers that are no multiple of sixteen lanes. IQ2 searches are slow in the reference. */
static int row_blocks(uint32_t type, int size)
{
    static const int small[] = {1, 18, 37}, super[] = {1, 3, 19}, slow[] = {1, 2, 5};
    if (type == QTYPE_IQ2_XXS || type == QTYPE_IQ2_S)
        return slow[size];
    return qtype_info(type)->block_elements == 256 ? super[size] : small[size];
}

static void test_rows(void **state)
{
    (void)state;
    rng = 20261202;
    for (size_t t = 0; t < N_TYPES; t++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int importance = types[t] == QTYPE_IQ2_XXS; importance < N_IMPORTANCES; importance++) {
                const int size = (kind + importance) % 3;
                const int n = row_blocks(types[t], size) * (int)qtype_info(types[t])->block_elements;
                fill((enum kind)kind, x, n);
                fill_importance((enum importance)importance, imp, n);
                compare(types[t], n, importance != NONE, "kind, importance", kind, importance);
            }
}

/* Every number of blocks up to two groups and one. */
static void test_sizes(void **state)
{
    (void)state;
    rng = 7;
    for (size_t t = 0; t < N_TYPES; t++) {
        const int block = (int)qtype_info(types[t])->block_elements;
        const int most = types[t] == QTYPE_IQ2_XXS || types[t] == QTYPE_IQ2_S ? 4 : block == 256 ? 18 : 33;
        for (int blocks = 0; blocks <= most; blocks++) {
            fill(GAUSSIAN, x, blocks * block);
            fill_importance(SQUARES, imp, blocks * block);
            if (types[t] != QTYPE_IQ2_XXS)
                compare(types[t], blocks * block, false, "size", blocks, 0);
            compare(types[t], blocks * block, true, "size", blocks, 1);
        }
    }
}

/* Values and weights that are refused. */
static void test_refused(void **state)
{
    (void)state;
    for (size_t t = 0; t < N_TYPES; t++)
        for (int bad = 0; bad < 5; bad++) {
            fill(GAUSSIAN, x, 512);
            fill_importance(SQUARES, imp, 512);
            float *at = bad < 3 ? &x[300] : &imp[511];
            *at = bad == 0 ? NAN : bad == 1 ? INFINITY : bad == 2 ? -INFINITY : bad == 3 ? -1.0f : NAN;
            compare(types[t], 512, true, "refused", bad, 0);
            compare(types[t], 500, true, "refused", bad, 1);
        }
    skua_error err = {0};
    for (const struct quant_tier *const *t = quant_tiers(); *t; t++)
        for (uint32_t id = 4; id < 1u << 30; id = id < 50 ? id + 1 : id * 3)
            CHECK(dequant_supported(id) || quantize_row_by(*t, id, x, got, 0, NULL, &err) == quantize_row(id, x, got, 0, NULL, NULL),
                  "%s: type %u: %s", quant_tier_name(*t), (unsigned)id, err.message);
    for (const struct quant_tier *const *t = quant_tiers(); *t; t++)
        CHECK(quantize_row_by(*t, QTYPE_IQ2_XXS, x, got, 256, NULL, &err) == SKUA_EARG &&
                  strcmp(err.message, "IQ2_XXS needs importance weights (imatrix), none given") == 0,
              "%s: %s", quant_tier_name(*t), err.message);
}

static void test_select(void **state)
{
    (void)state;
    const struct quant_tier *const *tiers = quant_tiers();
    int n = 0;
    for (; tiers[n]; n++)
        CHECK(quant_select(quant_tier_name(tiers[n])) == tiers[n], "%s", quant_tier_name(tiers[n]));
    CHECK(n > 0 && strcmp(quant_tier_name(tiers[n - 1]), "scalar") == 0, "the last of %d tiers is the reference", n);
    CHECK(quant_select(NULL) == tiers[0], "the first tier is the best");
    CHECK(quant_select("sse") == NULL && quant_select("") == NULL, "unknown tiers");
    const struct quant_tier *vnni = quant_select("avx512vnni");
    CHECK(!vnni || vnni == quant_select("avx512"), "the kernels' avx512vnni stands for avx512");
}

/* ---- the fitted form of the affine types ---- */

/* sum w * (value - x)^2 of one block. */
static double block_error(uint32_t type, const uint8_t *block, const float *values, const float *weights)
{
    float y[64];
    double error = 0.0;
    dequant_row(type, block, y, 64);
    for (int i = 0; i < 64; i++) {
        double d = (double)y[i] - (double)values[i];
        error += (weights ? (double)weights[i] : 1.0) * d * d;
    }
    return error;
}

static void compare_fitted(uint32_t type, int kind, int importance, double total[2])
{
    const int n = 640;
    const float *weights = importance == NONE ? NULL : imp;
    const size_t bytes = qtype_info(type)->block_bytes;
    skua_error err = {0};
    fill((enum kind)kind, x, n);
    fill_importance((enum importance)importance, imp, n);
    memset(got, 0x55, sizeof got);
    int rc = quantize_row(type, x, expected, n, NULL, &err), rc2 = quantize_row_fitted(type, x, got, n, weights, &err);
    CHECK(rc == rc2, "%s kind %d, importance %d: %d, expected %d: %s", qtype_info(type)->name, kind, importance, rc2, rc, err.message);
    CHECK(got[(size_t)n / 64 * bytes] == 0x55, "%s: wrote past the row", qtype_info(type)->name);
    for (int b = 0; rc == 0 && b < n / 64; b++) {
        const float *w = weights ? weights + 64 * b : NULL;
        double plain = block_error(type, expected + (size_t)b * bytes, x + 64 * b, w);
        double fitted = block_error(type, got + (size_t)b * bytes, x + 64 * b, w);
        CHECK(fitted <= plain, "%s kind %d, importance %d, block %d: error %g, by the definition %g", qtype_info(type)->name, kind,
              importance, b, fitted, plain);
        if (kind == GAUSSIAN) {
            total[0] += plain;
            total[1] += fitted;
        }
    }
}

/* Never worse in any block, and a good deal better on ordinary rows: RMS error at least 8 % (Q4_64A), 30 % (Q2_64A) less. */
static void test_fitted(void **state)
{
    (void)state;
    rng = 64;
    for (int two = 0; two < 2; two++) {
        double total[2] = {0.0, 0.0};
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int importance = 0; importance < N_IMPORTANCES; importance++)
                compare_fitted(two ? QTYPE_Q2_64A : QTYPE_Q4_64A, kind, importance, total);
        CHECK(sqrt(total[1] / total[0]) < (two ? 0.7 : 0.92), "%s: RMS error x %g", two ? "Q2_64A" : "Q4_64A",
              sqrt(total[1] / total[0]));
    }
    skua_error err = {0};
    CHECK(quantize_row_fitted(QTYPE_Q4_K, x, got, 256, NULL, &err) == SKUA_EUNSUPPORTED &&
              strcmp(err.message, "tensor type Q4_K (12) has no fitted form; Q4_64A and Q2_64A have") == 0, "%s", err.message);
    CHECK(quantize_row_fitted(99, x, got, 256, NULL, &err) == SKUA_EUNSUPPORTED, "%s", err.message);
    CHECK(quantize_row_fitted(QTYPE_Q2_64A, x, got, 65, NULL, &err) == SKUA_EARG, "%s", err.message);
    x[7] = NAN;
    CHECK(quantize_row_fitted(QTYPE_Q2_64A, x, got, 64, NULL, &err) == SKUA_EARG, "%s", err.message);
}

/* ---- published rows ---- */

static size_t unhex(const json_t *text, void *out, size_t room)
{
    const char *s = json_string_value(text);
    size_t n = s ? strlen(s) / 2 : 0;
    for (size_t i = 0; i < n && i < room; i++) {
        const char pair[3] = {s[2 * i], s[2 * i + 1], 0};
        ((uint8_t *)out)[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static void test_vectors(void **state)
{
    (void)state;
    const char *path = support_shared("spec/quant_vectors.json");
    if (!path)
        skip();
    json_t *vectors = json_load_file(path, 0, NULL), *type, *entry;
    const json_t *inputs = json_object_get(vectors, "inputs");
    const char *name;
    size_t i, rows = 0;
    json_object_foreach(json_object_get(vectors, "types"), name, type)
        json_array_foreach(json_object_get(type, "quantize"), i, entry) {
            const uint32_t id = (uint32_t)json_integer_value(json_object_get(type, "id"));
            const json_t *weights = json_object_get(entry, "imatrix");
            const bool weighted = json_is_string(weights);
            const size_t bytes = unhex(json_object_get(entry, "hex"), expected, sizeof expected);
            unhex(json_object_get(inputs, json_string_value(json_object_get(entry, "x"))), x, ROW * sizeof *x);
            if (weighted)
                unhex(json_object_get(inputs, json_string_value(weights)), imp, ROW * sizeof *imp);
            for (const struct quant_tier *const *t = quant_tiers(); *t; t++) {
                skua_error err = {0};
                int rc = quantize_row_by(*t, id, x, got, ROW, weighted ? imp : NULL, &err);
                CHECK(rc == 0 && bytes == qtype_row_bytes(id, ROW) && memcmp(got, expected, bytes) == 0, "%s %s row %zu: %s",
                      quant_tier_name(*t), name, i, err.message);
            }
            rows++;
        }
    CHECK(rows == 255, "%zu rows", rows);
    json_decref(vectors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),   cmocka_unit_test(test_sizes),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_select), cmocka_unit_test(test_fitted), cmocka_unit_test(test_vectors),
    };
    int rc = cmocka_run_group_tests_name("quant_fast", tests, NULL, NULL);
    return support_finish("quant_fast") || rc;
}
