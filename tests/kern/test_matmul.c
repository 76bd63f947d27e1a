/* MATMUL, MOE_MATMUL, QUANT_ACT and EMBED. Every tier that this CPU can run is compared bit for bit with the scalar functions
   (called directly, not through a table), on random and adversarial blocks; the scalar functions with double arithmetic over
   dequantised values. The seed is printed; SKUA_TEST_SEED sets it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "kern/tile.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/quant.h"

#define GUARD 64        /* floats before and after every output buffer */
#define PATTERN 0x7FA5A5A5u /* a NaN: reading an output that nobody wrote shows */

static uint64_t seed, rng;
static unsigned long checks;

/* Every weight type: what it is multiplied with, and where the scales (f16, or bf16) of a block are, -1: none. The values of a
   block are linear in these two. */
static const struct weight_type {
    uint32_t id;
    enum kern_act act;
    int scale_at[2];
    bool bf16;
} types[] = {
    {QTYPE_F32, KERN_ACT_F32, {-1, -1}, false},
    {QTYPE_F16, KERN_ACT_F32, {-1, -1}, false},
    {QTYPE_BF16, KERN_ACT_F32, {-1, -1}, false},
    {QTYPE_Q8_0, KERN_ACT_Q12_32, {0, -1}, false},
    {QTYPE_Q4_0, KERN_ACT_Q12_32, {0, -1}, false},
    {QTYPE_Q4_1, KERN_ACT_Q12_32, {0, 2}, false},
    {QTYPE_Q5_0, KERN_ACT_Q12_32, {0, -1}, false},
    {QTYPE_Q5_1, KERN_ACT_Q12_32, {0, 2}, false},
    {QTYPE_IQ4_NL, KERN_ACT_Q12_32, {0, -1}, false},
    {QTYPE_MXFP4, KERN_ACT_Q12_32, {-1, -1}, false},
    {QTYPE_NVFP4, KERN_ACT_Q12_32, {-1, -1}, false},
    {QTYPE_Q4_64A, KERN_ACT_Q12_32, {32, 34}, true},
    {QTYPE_Q2_64A, KERN_ACT_Q12_32, {16, 18}, true},
    {QTYPE_Q2_K, KERN_ACT_Q12_256, {80, 82}, false},
    {QTYPE_Q3_K, KERN_ACT_Q12_256, {108, -1}, false},
    {QTYPE_Q4_K, KERN_ACT_Q8_256, {0, 2}, false},
    {QTYPE_Q5_K, KERN_ACT_Q12_256, {0, 2}, false},
    {QTYPE_Q6_K, KERN_ACT_Q12_256, {208, -1}, false},
    {QTYPE_IQ4_XS, KERN_ACT_Q12_256, {0, -1}, false},
    {QTYPE_IQ2_XXS, KERN_ACT_Q12_256, {0, -1}, false},
    {QTYPE_IQ2_S, KERN_ACT_Q12_256, {0, -1}, false},
};
#define N_TYPES (sizeof types / sizeof types[0])

/* The kinds of quantised rows: values per scale, largest integer, values per sum. */
static const struct act_shape {
    int block, levels, group;
} act_shapes[KERN_ACT_COUNT] = {
    [KERN_ACT_Q12_32] = {32, 2047, 16},
    [KERN_ACT_Q12_256] = {256, 2047, 16},
    [KERN_ACT_Q8_256] = {256, 127, 32},
};

static int act_code(const struct kern_act_row *row, int i)
{
    return row->q8 ? row->q8[i] : row->q[i];
}

static void set_act_code(const struct kern_act_row *row, int i, int code)
{
    if (row->q8)
        ((int8_t *)row->q8)[i] = (int8_t)code;
    else
        ((int16_t *)row->q)[i] = (int16_t)code;
}

static int act_sum(const struct kern_act_row *row, int first, int n)
{
    int sum = 0;
    for (int i = first; i < first + n; i++)
        sum += act_code(row, i);
    return sum;
}

static int below(int n)
{
    return (int)(rng_next(&rng) % (uint64_t)n);
}

static float uniform(void) /* -1 .. 1 */
{
    return (float)((double)(rng_next(&rng) >> 11) * 0x1p-52 - 1.0);
}

static void *get(size_t size)
{
    void *p = mem_aligned(64, size ? size : 64);
    assert_non_null(p);
    return p;
}

/* ---- weights ---- */

enum style { RANDOM_BYTES, ALL_ONES, EXTREME_LOW, EXTREME_HIGH, ZERO, SUBNORMAL, HUGE_SCALE, N_STYLES };

static const struct weight_type *type_of(uint32_t id)
{
    size_t i = 0;
    while (types[i].id != id)
        i++;
    return &types[i];
}

static uint16_t random_scale(enum style style, bool bf16)
{
    switch (style) {
    case ZERO:
        return (uint16_t)(below(2) << 15);
    case SUBNORMAL:
        return (uint16_t)(below(2) << 15 | below(bf16 ? 0x80 : 0x400));
    case HUGE_SCALE:
        return (uint16_t)(below(2) << 15 | (bf16 ? 0x477F : 0x7BFF)); /* 65280, 65504 */
    default:
        return bf16 ? f32_to_bf16(uniform() * 0.01f) : f32_to_f16(uniform() * 0.01f);
    }
}

static uint8_t random_exponent(enum style style)
{
    return (uint8_t)(style == ZERO || style == SUBNORMAL ? below(3) : style == HUGE_SCALE ? 141 : 118 + below(5));
}

static void fill_bytes(uint8_t *p, size_t size, enum style style)
{
    for (size_t i = 0; i < size; i++)
        p[i] = style == ALL_ONES || style == EXTREME_HIGH ? 0xFF
               : style == ZERO || style == EXTREME_LOW    ? 0x00
                                                          : (uint8_t)below(256);
}

static void fill_quantised(uint32_t type, uint8_t *p, size_t size, enum style style)
{
    size_t block = qtype_info(type)->block_bytes;
    const struct weight_type *t = type_of(type);
    fill_bytes(p, size, style);
    for (size_t b = 0; b < size; b += block) {
        if (type == QTYPE_Q8_0 && style == EXTREME_LOW)
            memset(p + b, 0x80, block); /* -128 */
        if (type == QTYPE_Q8_0 && style == EXTREME_HIGH)
            memset(p + b, 0x7F, block);
        if (type == QTYPE_Q6_K && style >= EXTREME_LOW && style <= EXTREME_HIGH)
            memset(p + b + 192, below(2) ? 0x80 : 0x7F, 16);
        if (type == QTYPE_MXFP4)
            p[b] = random_exponent(style);
        for (int i = 0; i < 2; i++)
            if (t->scale_at[i] >= 0) {
                uint16_t d = random_scale(style, t->bf16);
                memcpy(p + b + t->scale_at[i], &d, sizeof d);
            }
    }
}

static void fill_float(uint32_t type, uint8_t *p, size_t size, enum style style)
{
    size_t width = type == QTYPE_F32 ? 4 : 2;
    for (size_t i = 0; i < size; i += width) {
        float x = style == ZERO ? (below(2) ? 0.0f : -0.0f) : uniform();
        if (style == SUBNORMAL)
            x *= type == QTYPE_F16 ? 0x1p-15f : 0x1p-127f;
        if (style == HUGE_SCALE)
            x *= 60000.0f;
        uint16_t h = type == QTYPE_F16 ? f32_to_f16(x) : f32_to_bf16(x);
        memcpy(p + i, width == 4 ? (const void *)&x : (const void *)&h, width);
    }
}

static void fill_weights(uint32_t type, uint8_t *p, size_t size, enum style style)
{
    if (qtype_info(type)->block_elements == 1)
        fill_float(type, p, size, style);
    else
        fill_quantised(type, p, size, style);
}

/* ---- one product ---- */

struct product {
    struct op_matmul op;
    struct kern_buf w, x, y, scale;
    float factor; /* of the matrix; `scale` is left out half of the time, when it is 1 */
    int kind;
    size_t w_bytes, y_floats;
    float *y_base;
};

/* Quantised rows with the largest codes, and scales from subnormal to large. */
static void extreme_rows(struct product *p)
{
    const struct act_shape *shape = &act_shapes[p->kind];
    const int n = p->op.w.n_in;
    for (int r = 0; r < p->op.n_rows; r++) {
        struct kern_act_row row = kern_act_row_at((enum kern_act)p->kind, p->x.host, n, r);
        int sign = below(3);
        for (int i = 0; i < n; i++)
            set_act_code(&row, i, sign == 0 || (sign == 2 && below(2)) ? shape->levels : -shape->levels);
        for (int j = 0; j < n / shape->group; j++)
            ((int16_t *)row.bsum)[j] = (int16_t)act_sum(&row, j * shape->group, shape->group);
        for (int b = 0; b < n / shape->block; b++)
            ((float *)row.d)[b] = below(4) == 0 ? 0x1p-140f : below(2) ? 1e10f : 0.01f;
    }
}

static void reset_output(struct product *p)
{
    for (size_t i = 0; i < p->y_floats; i++)
        ((uint32_t *)(void *)p->y_base)[i] = PATTERN;
    if (!p->op.accumulate)
        return;
    for (int r = 0; r < p->op.n_rows; r++)
        for (int o = 0; o < p->op.w.n_out; o++)
            p->y_base[GUARD + r * p->op.y_stride + o] = (float)(r * 31 + o * 7 % 13) * 0.37f;
}

/* The weights start at an odd address if the type allows one, as in a mapped file. */
static void make_product(struct product *p, uint32_t type, int n_in, int n_out, int n_rows, enum style style)
{
    memset(p, 0, sizeof *p);
    p->kind = kern_act_kind(&kern_scalar, type);
    assert_true(p->kind >= 0);
    size_t shift = type == QTYPE_F32 ? 4 : 2;
    p->w_bytes = qtype_row_bytes(type, (uint64_t)n_in) * (size_t)n_out;
    p->w.size = p->w_bytes + shift;
    p->w.host = get(p->w.size);
    fill_weights(type, (uint8_t *)p->w.host + shift, p->w_bytes, style);

    int x_stride = n_in + below(5);
    float *x = get((size_t)n_rows * (size_t)x_stride * sizeof(float));
    for (int i = 0; i < n_rows * x_stride; i++)
        x[i] = uniform() * 3.0f;
    if (below(3) == 0) /* a zero row */
        memset(x + (size_t)below(n_rows) * (size_t)x_stride, 0, (size_t)n_in * sizeof(float));
    struct kern_buf x_buf = {x, 0};
    if (p->kind == KERN_ACT_F32) {
        p->x = x_buf;
    } else {
        p->x.host = get(kern_act_bytes((enum kern_act)p->kind, n_in) * (size_t)n_rows);
        struct op_quant_act quant = {{&x_buf, 0}, {&p->x, 0}, x_stride, n_in, n_rows, (enum kern_act)p->kind};
        kern_quant_act_scalar(&quant, NULL, 0, n_rows);
        mem_free(x);
    }

    int y_stride = n_out + below(4);
    p->y_floats = (size_t)n_rows * (size_t)y_stride + 2 * GUARD;
    p->y_base = get(p->y_floats * sizeof(float));
    p->y.host = p->y_base;
    p->op = (struct op_matmul){.w = {.data = {&p->w, shift}, .type = type, .n_in = n_in, .n_out = n_out, .n_expert = 1},
                               .x = {&p->x, 0},
                               .y = {&p->y, GUARD * sizeof(float)},
                               .x_stride = x_stride,
                               .y_stride = y_stride,
                               .n_rows = n_rows,
                               .accumulate = below(3) == 0};
    p->factor = below(2) ? 1.0f : uniform() * 3.0f;
    p->scale.host = &p->factor;
    if (p->factor != 1.0f)
        p->op.w.scale = (struct kern_view){&p->scale, 0};
    if (p->kind != KERN_ACT_F32 && (style == ALL_ONES || style == EXTREME_LOW || style == EXTREME_HIGH))
        extreme_rows(p);
}

static void free_product(struct product *p)
{
    mem_free(p->w.host);
    mem_free(p->x.host);
    mem_free(p->y_base);
}

/* The scalar result: whole output buffer with guards; the caller frees it. */
static float *scalar_result(struct product *p)
{
    reset_output(p);
    kern_matmul_scalar(&p->op, NULL, 0, p->op.w.n_out);
    float *copy = get(p->y_floats * sizeof(float));
    memcpy(copy, p->y_base, p->y_floats * sizeof(float));
    return copy;
}

static void expect_same(const struct product *p, const float *want, const char *tier, const char *what)
{
    checks++;
    if (memcmp(p->y_base, want, p->y_floats * sizeof(float)) == 0)
        return;
    for (size_t i = 0; i < p->y_floats; i++)
        if (memcmp(p->y_base + i, want + i, sizeof(float)) != 0)
            fail_msg("%s, %s: %s n_in %d n_out %d rows %d: float %ld of the output (row stride %d) is %a, must be %a", tier, what,
                     qtype_info(p->op.w.type)->name, p->op.w.n_in, p->op.w.n_out, p->op.n_rows, (long)i - GUARD,
                     p->op.y_stride, (double)p->y_base[i], (double)want[i]);
}

/* ---- scalar against double ---- */

/* A weight row as the sum of a part that d scales and a part that dmin scales, so that the size of the terms is known. */
static void split_row(uint32_t type, const uint8_t *row, int n, float *scaled, float *minima)
{
    size_t bytes = qtype_row_bytes(type, (uint64_t)n), block = qtype_info(type)->block_bytes;
    const int *at = type_of(type)->scale_at;
    uint8_t *copy = get(bytes);
    memcpy(copy, row, bytes);
    memset(minima, 0, (size_t)n * sizeof(float));
    if (at[1] >= 0) {
        for (size_t b = 0; b < bytes; b += block)
            memset(copy + b + at[0], 0, 2);
        assert_int_equal(dequant_row(type, copy, minima, n), 0);
        memcpy(copy, row, bytes);
        for (size_t b = 0; b < bytes; b += block)
            memset(copy + b + at[1], 0, 2);
    }
    assert_int_equal(dequant_row(type, copy, scaled, n), 0);
    mem_free(copy);
}

static double input_value(const struct product *p, int r, int k)
{
    if (p->kind == KERN_ACT_F32)
        return ((const float *)p->x.host)[r * p->op.x_stride + k];
    struct kern_act_row row = kern_act_row_at((enum kern_act)p->kind, p->x.host, p->op.w.n_in, r);
    return (double)act_code(&row, k) * (double)row.d[k / act_shapes[p->kind].block];
}

/* Per accumulation step at most three roundings of a partial sum of the terms (two fma, one conversion), two of a scale product,
   two in the dequantised weights; sums of the sixteen lanes; one in the product with the factor. Scale products that are subnormal
   are off by 2^-150 times the integer sum, below 2^23 per value. */
static void expect_near_double(struct product *p)
{
    int n = p->op.w.n_in, n_out = p->op.w.n_out;
    size_t row_bytes = qtype_row_bytes(p->op.w.type, (uint64_t)n);
    int step = p->kind == KERN_ACT_F32 || p->op.w.type == QTYPE_NVFP4 ? 16 : p->kind == KERN_ACT_Q12_32 ? 32 : 256;
    double bound = (3.0 * (n / step + 1) + 9) * 0x1p-24;
    float *scaled = get((size_t)n * sizeof(float)), *minima = get((size_t)n * sizeof(float));
    bool accumulate = p->op.accumulate;
    p->op.accumulate = false;
    reset_output(p);
    kern_matmul_scalar(&p->op, NULL, 0, n_out);
    for (int o = 0; o < n_out; o++) {
        split_row(p->op.w.type, (const uint8_t *)kern_ptr(p->op.w.data) + (size_t)o * row_bytes, n, scaled, minima);
        for (int r = 0; r < p->op.n_rows; r++) {
            double want = 0.0, size = 0.0;
            for (int k = 0; k < n; k++) {
                double x = input_value(p, r, k);
                want += ((double)scaled[k] + (double)minima[k]) * x;
                size += (fabs((double)scaled[k]) + fabs((double)minima[k])) * fabs(x);
            }
            want *= (double)p->factor;
            size *= fabs((double)p->factor);
            double got = p->y_base[GUARD + r * p->op.y_stride + o];
            checks++;
            if (!(fabs(got - want) <= bound * size + n * 0x1p-126))
                fail_msg("scalar %s n_in %d: row %d column %d is %.9g, double arithmetic gives %.9g, terms %.3g",
                         qtype_info(p->op.w.type)->name, n, r, o, got, want, size);
        }
    }
    p->op.accumulate = accumulate;
    mem_free(scaled);
    mem_free(minima);
}

/* ---- tests ---- */

static int random_n_in(uint32_t type, int limit)
{
    int block = (int)qtype_info(type)->block_elements;
    return block == 1 ? 1 + below(limit) : block * (1 + below(limit / block > 1 ? limit / block : 1));
}

/* A matrix in the table's tiled layout, which must hold the file's bytes as kern/tile.h says. The caller frees its memory. */
static struct kern_buf tiles_of(const struct kern_table *t, const struct kern_weight *w)
{
    const size_t row = qtype_row_bytes(w->type, (uint64_t)w->n_in), block = qtype_info(w->type)->block_bytes, T = (size_t)t->tile_rows;
    const size_t n_rows = (size_t)w->n_out * (size_t)w->n_expert;
    struct kern_buf tiles = {get(row * n_rows), row * n_rows};
    const uint8_t *in = kern_ptr(w->data), *out = tiles.host;
    const int64_t n_tiles = (int64_t)(n_rows / T), half = n_tiles / 2;
    kern_tile_rows(t, w, tiles.host, half, n_tiles);
    kern_tile_rows(t, w, tiles.host, 0, half);
    for (int k = 0; k < 200; k++) {
        const size_t r = (size_t)below((int)n_rows), b = (size_t)below((int)row), first = b / block * block, word = (b - first) / 4 * 4;
        const size_t width = block - word < 4 ? block - word : 4; /* of the words, and of what is left behind them */
        const size_t at = r / T * T * row + T * (first + word) + r % T * width + (b - first - word);
        assert_int_equal(out[at], in[r * row + b]);
        checks++;
    }
    return tiles;
}

/* The product with the file's layout, and with tiles where the table has them for this matrix. */
static void in_each_layout(void (*run)(const struct kern_table *t, struct product *p, const float *want), const struct kern_table *t,
                           struct product *p, const float *want)
{
    run(t, p, want);
    if (!kern_tile_fits(t, p->op.w.type, p->op.w.n_out))
        return;
    const struct kern_view file = p->op.w.data;
    struct kern_buf tiles = tiles_of(t, &p->op.w), nothing = {NULL, 0};
    p->op.w.tiles = (struct kern_view){&tiles, 0};
    p->op.w.data = (struct kern_view){&nothing, 0};
    run(t, p, want);
    p->op.w.tiles = (struct kern_view){0};
    p->op.w.data = file;
    mem_free(tiles.host);
}

/* Tiers other than the scalar one; the test is void on a CPU where there is none, except for what compares with double. */
static void for_each_tier(void (*run)(const struct kern_table *t, struct product *p, const float *want), struct product *p)
{
    float *want = scalar_result(p);
    for (const char *const *name = kern_tiers(); *name; name++) {
        const struct kern_table *t = kern_select(*name);
        assert_non_null(t);
        assert_string_equal(t->name, *name);
        if (t != &kern_scalar)
            in_each_layout(run, t, p, want);
    }
    mem_free(want);
}

static void whole(const struct kern_table *t, struct product *p, const float *want)
{
    reset_output(p);
    t->matmul(&p->op, NULL, 0, p->op.w.n_out);
    expect_same(p, want, t->name, "whole");
}

static void pieces(const struct kern_table *t, struct product *p, const float *want)
{
    reset_output(p);
    for (int o = 0; o < p->op.w.n_out;) {
        int end = o + 1 + below(40);
        end = end < p->op.w.n_out ? end : p->op.w.n_out;
        t->matmul(&p->op, NULL, o, end);
        o = end;
    }
    t->matmul(&p->op, NULL, 1, 1); /* nothing */
    expect_same(p, want, t->name, "pieces");
}

static void test_row_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int rows = 1; rows <= 22; rows++) {
            int n_rows = rows == 21 ? 64 : rows == 22 ? 130 : rows;
            struct product p;
            make_product(&p, types[i].id, n_rows > 20 ? 256 : 512, 35, n_rows, RANDOM_BYTES);
            for_each_tier(whole, &p);
            free_product(&p);
        }
}

/* Numbers of weight rows that tiles can hold. */
static void test_tiles(void **state)
{
    static const uint32_t tiled[] = {QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K};
    (void)state;
    for (size_t i = 0; i < sizeof tiled / sizeof *tiled; i++)
        for (int round = 0; round < 90; round++) {
            struct product p;
            make_product(&p, tiled[i], 256 * (1 + below(3)), 32 * (1 + below(3)), round < 24 ? 1 + round : 1 + below(9),
                         round < 24 ? RANDOM_BYTES : (enum style)(round % N_STYLES));
            for_each_tier(whole, &p);
            for_each_tier(pieces, &p);
            free_product(&p);
        }
    for (const char *const *name = kern_tiers(); *name; name++) {
        const struct kern_table *t = kern_select(*name);
        assert_false(kern_tile_fits(t, QTYPE_Q8_0, 32)); /* a type without the layout */
        assert_false(kern_tile_fits(t, QTYPE_Q4_K, 0));
        assert_false(kern_tile_fits(t, QTYPE_Q4_K, 33));
        assert_int_equal(kern_tile_fits(t, QTYPE_Q4_K, 32), t->tile_rows > 0);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int round = 0; round < 60; round++) {
            struct product p;
            make_product(&p, types[i].id, random_n_in(types[i].id, 1100), 1 + below(100), 1 + below(9), (enum style)below(N_STYLES));
            for_each_tier(whole, &p);
            for_each_tier(pieces, &p);
            free_product(&p);
        }
}

static void test_adversarial(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int style = 0; style < N_STYLES; style++)
            for (int rows = 1; rows <= 5; rows++) {
                struct product p;
                make_product(&p, types[i].id, 768, 33, rows, (enum style)style);
                for_each_tier(whole, &p);
                free_product(&p);
            }
}

/* A row of a large batch equals the same row alone. */
static void one_by_one(const struct kern_table *t, struct product *p, const float *want)
{
    struct op_matmul whole_op = p->op;
    reset_output(p);
    for (int k = 0; k < 12; k++) {
        int r = k < 2 ? k * (whole_op.n_rows - 1) : below(whole_op.n_rows);
        p->op = whole_op;
        p->op.n_rows = 1;
        p->op.accumulate = false;
        size_t x_row = p->kind == KERN_ACT_F32 ? (size_t)p->op.x_stride * sizeof(float)
                                               : kern_act_bytes((enum kern_act)p->kind, p->op.w.n_in);
        p->op.x = kern_view_at(p->op.x, x_row * (size_t)r);
        p->op.y = kern_view_at(p->op.y, (size_t)r * (size_t)p->op.y_stride * sizeof(float));
        t->matmul(&p->op, NULL, 0, p->op.w.n_out);
        size_t at = GUARD + (size_t)r * (size_t)p->op.y_stride;
        checks++;
        assert_memory_equal(p->y_base + at, want + at, (size_t)p->op.w.n_out * sizeof(float));
    }
    p->op = whole_op;
}

static void test_batch_invariance(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct product p;
        make_product(&p, types[i].id, 512, 40, 130, RANDOM_BYTES);
        p.op.accumulate = false;
        for_each_tier(one_by_one, &p);
        free_product(&p);
    }
}

static void test_scalar_against_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int style = 0; style < N_STYLES; style++)
            for (int round = 0; round < 4; round++) {
                struct product p;
                make_product(&p, types[i].id, random_n_in(types[i].id, 1500), 1 + below(8), 1 + below(4), (enum style)style);
                expect_near_double(&p);
                free_product(&p);
            }
}

/* The reference table: float rows against every type, sums in double. */
static void test_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        assert_int_equal(kern_act_kind(&kern_reference, types[i].id), KERN_ACT_F32);
        struct product p;
        int n = 768, n_out = 9, n_rows = 37;
        make_product(&p, types[i].id, n, n_out, n_rows, RANDOM_BYTES);
        float *x = get((size_t)(n * n_rows) * sizeof(float)), *w = get((size_t)n * sizeof(float));
        for (int k = 0; k < n * n_rows; k++)
            x[k] = uniform();
        struct kern_buf x_buf = {x, 0};
        struct op_matmul op = p.op;
        op.x = (struct kern_view){&x_buf, 0};
        op.x_stride = n;
        reset_output(&p);
        kern_reference.matmul(&op, NULL, 0, 4);
        kern_reference.matmul(&op, NULL, 4, n_out);
        float *got = get(p.y_floats * sizeof(float));
        memcpy(got, p.y_base, p.y_floats * sizeof(float));
        reset_output(&p);
        for (int o = 0; o < n_out; o++) {
            const char *row = (const char *)kern_ptr(op.w.data) + (size_t)o * qtype_row_bytes(types[i].id, (uint64_t)n);
            assert_int_equal(dequant_row(types[i].id, row, w, n), 0);
            for (int r = 0; r < n_rows; r++) {
                double sum = 0.0;
                for (int k = 0; k < n; k++)
                    sum += (double)w[k] * (double)x[r * n + k];
                float *y = p.y_base + GUARD + r * op.y_stride + o, v = (float)(sum * (double)p.factor);
                *y = op.accumulate ? *y + v : v;
            }
        }
        expect_same(&p, got, "reference", "matmul");
        mem_free(got);
        mem_free(x);
        mem_free(w);
        free_product(&p);
    }
}

/* ---- experts ---- */

struct moe {
    struct op_moe_matmul op;
    struct kern_buf w, x, y, group, float_x, scale;
    float factor[7]; /* of the experts */
    float *y_base;
    size_t y_floats;
    int kind, n_x;
};

static void group_pairs(struct moe *m, int n_rows, int n_expert, int n_used)
{
    int n_pairs = n_rows * n_used;
    int32_t *group = get((size_t)(n_expert + 1 + n_pairs) * sizeof(int32_t)), *ids = get((size_t)n_pairs * sizeof(int32_t));
    for (int p = 0; p < n_pairs; p++) { /* distinct experts per row; some experts stay empty */
        int32_t e;
        bool again;
        do {
            e = below(n_expert);
            again = false;
            for (int q = p / n_used * n_used; q < p; q++)
                again |= ids[q] == e;
        } while (again);
        ids[p] = e;
    }
    int32_t at = 0;
    for (int e = 0; e < n_expert; e++) {
        group[e] = at;
        for (int p = 0; p < n_pairs; p++)
            if (ids[p] == e)
                group[n_expert + 1 + at++] = p;
    }
    group[n_expert] = at;
    mem_free(ids);
    m->group.host = group;
}

static void make_moe(struct moe *m, uint32_t type, int n_in, int n_out, int n_rows, int n_expert, int n_used, bool per_pair)
{
    memset(m, 0, sizeof *m);
    m->kind = kern_act_kind(&kern_scalar, type);
    size_t w_bytes = qtype_row_bytes(type, (uint64_t)n_in) * (size_t)(n_out * n_expert);
    m->w.host = get(w_bytes);
    fill_weights(type, m->w.host, w_bytes, RANDOM_BYTES);
    m->n_x = per_pair ? n_rows * n_used : n_rows;
    float *x = get((size_t)(m->n_x * n_in) * sizeof(float));
    for (int i = 0; i < m->n_x * n_in; i++)
        x[i] = uniform();
    m->float_x.host = x;
    if (m->kind != KERN_ACT_F32) {
        m->x.host = get(kern_act_bytes((enum kern_act)m->kind, n_in) * (size_t)m->n_x);
        struct op_quant_act quant = {{&m->float_x, 0}, {&m->x, 0}, n_in, n_in, m->n_x, (enum kern_act)m->kind};
        kern_quant_act_scalar(&quant, NULL, 0, m->n_x);
    }
    group_pairs(m, n_rows, n_expert, n_used);
    int y_stride = n_out + 3;
    m->y_floats = (size_t)(n_rows * n_used * y_stride) + 2 * GUARD;
    m->y_base = get(m->y_floats * sizeof(float));
    m->y.host = m->y_base;
    m->op = (struct op_moe_matmul){.w = {.data = {&m->w, 0}, .type = type, .n_in = n_in, .n_out = n_out, .n_expert = n_expert},
                                   .x = {m->kind == KERN_ACT_F32 ? &m->float_x : &m->x, 0},
                                   .y = {&m->y, GUARD * sizeof(float)},
                                   .group = {&m->group, 0},
                                   .x_stride = n_in,
                                   .y_stride = y_stride,
                                   .n_rows = n_rows,
                                   .n_used = n_used,
                                   .x_per_pair = per_pair};
    for (int e = 0; e < n_expert; e++)
        m->factor[e] = uniform() * 2.0f;
    m->scale.host = m->factor;
    if (below(2))
        m->op.w.scale = (struct kern_view){&m->scale, 0};
}

static void free_moe(struct moe *m)
{
    mem_free(m->w.host);
    mem_free(m->x.host);
    mem_free(m->float_x.host);
    mem_free(m->y_base);
    mem_free(m->group.host);
}

static void reset_moe(struct moe *m)
{
    for (size_t i = 0; i < m->y_floats; i++)
        ((uint32_t *)(void *)m->y_base)[i] = PATTERN;
}

/* What MOE_MATMUL must give, by one MATMUL per pair. */
static float *moe_by_matmul(struct moe *m, kern_matmul_fn *matmul, int kind)
{
    const struct op_moe_matmul *op = &m->op;
    const int32_t *first = m->group.host, *pair = first + op->w.n_expert + 1;
    reset_moe(m);
    for (int e = 0; e < op->w.n_expert; e++)
        for (int i = first[e]; i < first[e + 1]; i++) {
            int p = pair[i], r = op->x_per_pair ? p : p / op->n_used;
            struct op_matmul one = {.w = op->w, .x = op->x, .y = op->y, .n_rows = 1};
            size_t x_row = kern_act_bytes((enum kern_act)kind, op->w.n_in);
            one.w.data =
                kern_view_at(op->w.data, qtype_row_bytes(op->w.type, (uint64_t)op->w.n_in) * (size_t)(op->w.n_out * e));
            if (op->w.scale.buf)
                one.w.scale = kern_view_at(op->w.scale, (size_t)e * sizeof(float));
            one.x = kern_view_at(kind == KERN_ACT_F32 ? (struct kern_view){&m->float_x, 0} : op->x, x_row * (size_t)r);
            one.y = kern_view_at(op->y, (size_t)(p * op->y_stride) * sizeof(float));
            matmul(&one, NULL, 0, op->w.n_out);
        }
    float *copy = get(m->y_floats * sizeof(float));
    memcpy(copy, m->y_base, m->y_floats * sizeof(float));
    return copy;
}

static void expect_moe(struct moe *m, kern_moe_matmul_fn *fn, const struct op_moe_matmul *op, const float *want)
{
    int64_t units = (int64_t)op->w.n_expert * ((op->w.n_out + 31) / 32);
    for (int split = 0; split < 2; split++) {
        reset_moe(m);
        for (int64_t u = 0; u < units;) {
            int64_t end = split ? u + 1 + below(5) : units;
            end = end < units ? end : units;
            fn(op, NULL, u, end);
            u = end;
        }
        checks++;
        assert_memory_equal(m->y_base, want, m->y_floats * sizeof(float));
    }
}

static void test_moe(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (int round = 0; round < 4; round++) {
            struct moe m;
            make_moe(&m, types[i].id, 512, round == 2 ? 64 : 20 + 25 * round, round == 3 ? 150 : 1 + 6 * round, round == 3 ? 2 : 7,
                     round == 3 ? 1 : 3, round & 1);
            float *want = moe_by_matmul(&m, kern_matmul_scalar, m.kind);
            expect_moe(&m, kern_moe_matmul_scalar, &m.op, want);
            for (const char *const *name = kern_tiers(); *name; name++)
                expect_moe(&m, kern_select(*name)->moe_matmul, &m.op, want);
            for (const char *const *name = kern_tiers(); *name; name++)
                if (kern_tile_fits(kern_select(*name), m.op.w.type, m.op.w.n_out)) {
                    struct kern_buf tiles = tiles_of(kern_select(*name), &m.op.w);
                    struct op_moe_matmul tiled = m.op;
                    tiled.w.tiles = (struct kern_view){&tiles, 0};
                    expect_moe(&m, kern_select(*name)->moe_matmul, &tiled, want);
                    mem_free(tiles.host);
                }
            mem_free(want);
            want = moe_by_matmul(&m, kern_matmul_refd, KERN_ACT_F32);
            struct op_moe_matmul op = m.op;
            op.x = (struct kern_view){&m.float_x, 0};
            expect_moe(&m, kern_moe_matmul_refd, &op, want);
            mem_free(want);
            free_moe(&m);
        }
}

/* ---- activations ---- */

/* Row lengths, alignment and what the definition says about each code, against a second computation in double. */
static void test_quant_act_definition(void **state)
{
    (void)state;
    assert_int_equal(kern_act_bytes(KERN_ACT_F32, 48), 192);
    assert_int_equal(kern_act_bytes(KERN_ACT_Q12_32, 96), 192 + 64 + 64);
    assert_int_equal(kern_act_bytes(KERN_ACT_Q12_256, 9216), 18432 + 192 + 1152);
    assert_int_equal(kern_act_bytes(KERN_ACT_Q8_256, 9216), 9216 + 192 + 576);
    for (int round = 0; round < 60; round++) {
        enum kern_act kind = (enum kern_act)(KERN_ACT_Q12_32 + round % 3);
        const struct act_shape *shape = &act_shapes[kind];
        int block = shape->block, n = 256 * (1 + below(4)), rows = 3;
        float *x = get((size_t)(n * rows) * sizeof(float));
        for (int i = 0; i < n * rows; i++)
            x[i] = round % 4 == 0 ? (float)(below(2 * shape->levels + 1) - shape->levels) : uniform() * ldexpf(1.0f, round - 20);
        struct kern_buf in = {x, 0}, out = {get(kern_act_bytes(kind, n) * (size_t)rows), 0};
        struct op_quant_act op = {{&in, 0}, {&out, 0}, n, n, rows, kind};
        kern_quant_act_scalar(&op, NULL, 1, rows);
        kern_quant_act_scalar(&op, NULL, 0, 1);
        for (int r = 0; r < rows; r++) {
            struct kern_act_row row = kern_act_row_at(kind, out.host, n, r);
            assert_int_equal((uintptr_t)(row.q8 ? (const void *)row.q8 : row.q) % 64 + (uintptr_t)row.d % 64 + (uintptr_t)row.bsum % 64, 0);
            for (int b = 0; b < n / block; b++) {
                float amax = 0.0f;
                for (int i = 0; i < block; i++)
                    amax = fmaxf(amax, fabsf(x[r * n + b * block + i]));
                assert_true(row.d[b] == amax / (float)shape->levels);
                for (int i = 0; i < block; i++) {
                    double v = (double)x[r * n + b * block + i] * shape->levels / (double)amax;
                    assert_true(fabs(v - act_code(&row, b * block + i)) <= 0.5 + 1e-3);
                }
                checks++;
            }
            for (int j = 0; j < n / shape->group; j++)
                assert_int_equal(act_sum(&row, j * shape->group, shape->group), row.bsum[j]);
        }
        mem_free(x);
        mem_free(out.host);
    }
}

static float adversarial_value(int kind)
{
    static const float special[] = {0.0f,    -0.0f,     1.0f,      -1.0f,   0x1p-149f, -0x1p-126f, 6.0e-36f,
                                    6.1e-36f, 3.4e38f, -3.4e38f, 63.5f, 0.5f,      1.5f,       -2.5f};
    if (kind == 0)
        return uniform();
    if (kind == 1)
        return special[below(14)];
    if (kind == 2)
        return (float)(below(8190) - 4095) * 0.5f; /* ties when the maximum is 2047 */
    if (kind == 3)
        return ldexpf(uniform(), below(270) - 149);
    if (kind == 4)
        return below(50) == 0 ? (below(2) ? INFINITY : -INFINITY) : uniform();
    if (kind == 5)
        return below(50) == 0 ? NAN : uniform();
    return 0.0f;
}

static void test_quant_act_tiers(void **state)
{
    (void)state;
    for (int round = 0; round < 210; round++) {
        enum kern_act kind = (enum kern_act)(KERN_ACT_Q12_32 + round % 3);
        int n = kind == KERN_ACT_Q12_32 ? 32 * (1 + below(40)) : 256 * (1 + below(5)), rows = 1 + below(4), stride = n + below(3);
        float *x = get((size_t)(stride * rows) * sizeof(float));
        for (int i = 0; i < stride * rows; i++)
            x[i] = adversarial_value(round / 3 % 7);
        if (round / 3 % 7 == 2)
            for (int i = 0; i < stride * rows; i += 32)
                x[i] = (float)-act_shapes[kind].levels;
        size_t bytes = kern_act_bytes(kind, n) * (size_t)rows;
        uint8_t *want = get(bytes + 64), *got = get(bytes + 64);
        memset(want, 0xA5, bytes + 64);
        struct kern_buf in = {x, 0}, out = {want, 0};
        struct op_quant_act op = {{&in, 0}, {&out, 0}, stride, n, rows, kind};
        kern_quant_act_scalar(&op, NULL, 0, rows);
        out.host = got;
        for (const char *const *name = kern_tiers(); *name; name++) {
            memset(got, 0xA5, bytes + 64);
            kern_select(*name)->quant_act(&op, NULL, 0, rows);
            checks++;
            assert_memory_equal(got, want, bytes + 64);
        }
        mem_free(x);
        mem_free(want);
        mem_free(got);
    }
}

static void test_act_kinds(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        assert_int_equal(kern_act_kind(&kern_scalar, types[i].id), types[i].act);
    assert_int_equal(kern_act_kind(&kern_scalar, QTYPE_Q8_K), -1);
    assert_int_equal(kern_act_kind(&kern_scalar, 4), -1);
    assert_int_equal(kern_act_kind(&kern_scalar, UINT32_MAX), -1);
    assert_int_equal(kern_act_kind(&kern_reference, QTYPE_Q8_K), -1);
    assert_int_equal(kern_act_kind(&kern_reference, QTYPE_Q2_K), KERN_ACT_F32);
    checks += N_TYPES + 5;
}

static void test_embed(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        int n = 512, n_vocab = 11, n_rows = 6, stride = n + 5;
        size_t row_bytes = qtype_row_bytes(types[i].id, (uint64_t)n);
        struct kern_buf table = {get(row_bytes * (size_t)n_vocab), 0}, out = {get((size_t)(n_rows * stride) * sizeof(float)), 0};
        fill_weights(types[i].id, table.host, row_bytes * (size_t)n_vocab, RANDOM_BYTES);
        int32_t token[] = {10, 0, 3, 3, 7, 1};
        struct kern_batch batch = {.n_rows = n_rows, .token = token};
        float factor = 0.375f, want[512];
        struct kern_buf scale = {&factor, sizeof factor};
        struct op_embed op = {{.data = {&table, 0}, .type = types[i].id, .n_in = n, .n_out = n_vocab, .n_expert = 1}, {&out, 0}, stride};
        if (i % 2)
            op.table.scale = (struct kern_view){&scale, 0};
        for (const char *const *name = kern_tiers(); *name; name++) {
            memset(out.host, 0xA5, (size_t)(n_rows * stride) * sizeof(float));
            kern_select(*name)->embed(&op, &batch, 0, 2);
            kern_select(*name)->embed(&op, &batch, 2, n_rows);
            for (int r = 0; r < n_rows; r++) {
                assert_int_equal(dequant_row(types[i].id, (char *)table.host + row_bytes * (size_t)token[r], want, n), 0);
                for (int k = 0; k < n && i % 2; k++)
                    want[k] *= factor;
                checks++;
                assert_memory_equal((float *)out.host + r * stride, want, sizeof want);
                assert_int_equal(((uint8_t *)out.host)[(r * stride + n) * 4], 0xA5);
            }
        }
        mem_free(table.host);
        mem_free(out.host);
    }
}

int main(void)
{
    const char *from = getenv("SKUA_TEST_SEED");
    seed = from ? strtoull(from, NULL, 0) : 20250611;
    rng = seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act_kinds),        cmocka_unit_test(test_quant_act_definition),
        cmocka_unit_test(test_quant_act_tiers),  cmocka_unit_test(test_scalar_against_double),
        cmocka_unit_test(test_reference),        cmocka_unit_test(test_row_counts), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_adversarial),      cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_batch_invariance), cmocka_unit_test(test_moe),
        cmocka_unit_test(test_embed),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("test_matmul: seed %llu, tiers", (unsigned long long)seed);
    for (const char *const *name = kern_tiers(); *name; name++)
        printf(" %s", *name);
    printf(", %lu checks\n", checks);
    return failed != 0 || checks == 0;
}
