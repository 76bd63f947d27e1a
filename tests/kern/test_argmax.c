/* ARGMAX, TOPK and their merges: every tier against the scalar functions, and all against a search through the rows that MATMUL writes: ties of
 * equal weight rows, NaN and infinite logits, all kinds of masks. */
#include "kern/harness.h"

#include "quant/quant.h"

#define N_IN 256
#define MOST_OUT 2100

enum trick { PLAIN, TIES, ALL_EQUAL, BAD_VALUES, ALL_LOW, N_TRICKS };
enum mask { NO_MASK, HALF, FEW, NOTHING, N_MASKS };

static float rows[MOST_OUT][N_IN];

/* Weight rows in which every trick shows: rows that are copies of earlier ones give equal logits. */
static void make_rows(int32_t n_out, enum trick trick)
{
    for (int32_t o = 0; o < n_out; o++) {
        h_fill(rows[o], N_IN, H_NORMAL);
        if ((trick == TIES && o > 3 && h_below(2)) || (trick == ALL_EQUAL && o > 0))
            memcpy(rows[o], rows[trick == TIES ? h_below(4) : 0], sizeof rows[o]);
        if (trick == BAD_VALUES && h_below(60) == 0)
            rows[o][h_below(N_IN)] = h_below(3) == 0 ? NAN : h_below(2) ? INFINITY : -INFINITY;
        for (int32_t i = 0; i < N_IN && trick == ALL_LOW; i++)
            rows[o][i] = -INFINITY;
    }
}

static struct kern_view weights_of(uint32_t type, int32_t n_out)
{
    const size_t row_bytes = qtype_row_bytes(type, N_IN);
    struct h_buf *b = h_buf((size_t)n_out * row_bytes);
    for (int32_t o = 0; o < n_out; o++)
        if (type == QTYPE_F32)
            memcpy((char *)b->kern.host + (size_t)o * row_bytes, rows[o], row_bytes);
        else
            assert_int_equal(quantize_row(type, rows[o], (char *)b->kern.host + (size_t)o * row_bytes, N_IN, NULL, NULL), 0);
    return h_view(b);
}

static struct kern_view mask_of(enum mask mask, int32_t n_out)
{
    if (mask == NO_MASK)
        return (struct kern_view){0};
    const int32_t words = (n_out + 63) / 64;
    struct h_buf *b = h_buf((size_t)words * 8 + 8);
    uint64_t *at = (uint64_t *)(((uintptr_t)b->kern.host + 7) / 8 * 8);
    for (int32_t i = 0; i < words; i++) {
        at[i] = mask == NOTHING ? 0 : rng_next(&h_rng);
        if (mask == FEW)
            at[i] &= rng_next(&h_rng) & rng_next(&h_rng) & rng_next(&h_rng) & rng_next(&h_rng);
    }
    return (struct kern_view){&b->kern, (size_t)((char *)at - (char *)b->kern.host)};
}

/* The contract, word by word. */
static struct kern_best search(const float *y, const uint64_t *allow, int32_t n_out)
{
    struct kern_best best = {-INFINITY, -1};
    for (int32_t o = 0; o < n_out; o++) {
        if (allow && !(allow[o / 64] >> (o % 64) & 1))
            continue;
        if (isnan(y[o]) || y[o] == INFINITY)
            return (struct kern_best){y[o], o};
        if (y[o] > best.value)
            best = (struct kern_best){y[o], o};
    }
    return best;
}

/* The next of the best ones behind `last`, word by word. */
static struct kern_best next_best(const float *y, const uint64_t *allow, int32_t n_out, struct kern_best last)
{
    struct kern_best best = {-INFINITY, -1};
    for (int32_t o = 0; o < n_out; o++) {
        const bool free = !allow || (allow[o / 64] >> (o % 64) & 1);
        if (free && (y[o] < last.value || (y[o] == last.value && o > last.column)) && y[o] > best.value)
            best = (struct kern_best){y[o], o};
    }
    return best;
}

static void topk_case(const struct op_matmul *matmul, struct kern_view allow, int32_t k)
{
    const int32_t n_out = matmul->w.n_out, n_rows = matmul->n_rows, n_blocks = (n_out + KERN_ARGMAX_COLUMNS - 1) / KERN_ARGMAX_COLUMNS;
    const float *y = kern_ptr(matmul->y);
    struct kern_op op = {.code = KERN_TOPK}, merge = {.code = KERN_TOPK_MERGE};
    op.p.topk = (struct op_topk){*matmul, allow, h_out((size_t)(2 * n_blocks * n_rows * k)), k};
    op.p.topk.matmul.y = (struct kern_view){0};
    merge.p.topk_merge = (struct op_topk_merge){op.p.topk.blocks, h_out((size_t)(2 * n_rows * k)), n_blocks, n_rows, k};
    h_compare(&op, &h_no_batch, false);
    h_compare(&merge, &h_no_batch, false);
    for (int32_t r = 0; r < n_rows; r++) {
        struct kern_best last = {INFINITY, -1};
        for (int32_t i = 0; i < k; i++) {
            const struct kern_best got = ((const struct kern_best *)kern_ptr(merge.p.topk_merge.best))[r * k + i];
            last = next_best(y + r * n_out, allow.buf ? kern_ptr(allow) : NULL, n_out, last);
            CHECK(got.column == last.column && got.value == last.value, "%d columns, row %d, best %d of %d: column %d, wanted %d", n_out, r,
                  i, k, got.column, last.column);
        }
    }
}

static void argmax_case(uint32_t type, int32_t n_out, int32_t n_rows, enum trick trick, enum mask mask)
{
    make_rows(n_out, trick);
    const int32_t n_blocks = (n_out + KERN_ARGMAX_COLUMNS - 1) / KERN_ARGMAX_COLUMNS;
    const struct kern_weight w = {.data = weights_of(type, n_out), .type = type, .n_in = N_IN, .n_out = n_out, .n_expert = 1};
    struct kern_view x = h_floats((size_t)(n_rows * N_IN), H_NORMAL), y = h_out((size_t)(n_rows * n_out));
    if (trick == ALL_LOW)
        for (int32_t i = 0; i < n_rows * N_IN; i++)
            ((float *)kern_ptr(x))[i] = 1.0f;
    const int kind = kern_act_kind(&kern_scalar, type);
    if (kind != KERN_ACT_F32) {
        struct h_buf *q = h_buf(kern_act_bytes((enum kern_act)kind, N_IN) * (size_t)n_rows + 64);
        struct kern_view v = {&q->kern, (size_t)(-(uintptr_t)q->kern.host & 63)};
        const struct op_quant_act quant = {x, v, N_IN, N_IN, n_rows, (enum kern_act)kind};
        kern_quant_act_scalar(&quant, NULL, 0, n_rows);
        x = v;
    }
    const struct op_matmul matmul = {.w = w, .x = x, .y = y, .x_stride = N_IN, .y_stride = n_out, .n_rows = n_rows};
    kern_matmul_scalar(&matmul, NULL, 0, n_out);
    struct kern_op op = {.code = KERN_ARGMAX}, merge = {.code = KERN_ARGMAX_MERGE};
    op.p.argmax = (struct op_argmax){.matmul = matmul, .allow = mask_of(mask, n_out), .blocks = h_out((size_t)(2 * n_blocks * n_rows))};
    op.p.argmax.matmul.y = (struct kern_view){0};
    merge.p.argmax_merge = (struct op_argmax_merge){op.p.argmax.blocks, h_out((size_t)(2 * n_rows)), n_blocks, n_rows};
    h_compare(&op, &h_no_batch, trick == BAD_VALUES);
    h_compare(&merge, &h_no_batch, trick == BAD_VALUES);
    const uint64_t *allow = op.p.argmax.allow.buf ? kern_ptr(op.p.argmax.allow) : NULL;
    for (int32_t r = 0; r < n_rows; r++) {
        const struct kern_best got = ((const struct kern_best *)kern_ptr(merge.p.argmax_merge.best))[r];
        const struct kern_best want = search((const float *)kern_ptr(y) + r * n_out, allow, n_out);
        CHECK(got.column == want.column && (got.value == want.value || (isnan(got.value) && isnan(want.value))),
              "type %u, %d columns, trick %d, mask %d: column %d, wanted %d", type, n_out, trick, mask, got.column, want.column);
    }
    static const int32_t ks[] = {1, 2, 8, 16, 33, KERN_TOPK_MAX};
    topk_case(&matmul, op.p.argmax.allow, ks[h_below(6)]);
    h_free_all();
}

static void test_argmax(void **unused)
{
    (void)unused;
    static const int32_t n_out[] = {1, 31, 33, 1023, 1024, 1025, MOST_OUT}, n_rows[] = {1, 2, 5, KERN_ARGMAX_ROWS};
    for (int i = 0; i < 7; i++)
        for (int trick = 0; trick < N_TRICKS; trick++)
            for (int mask = 0; mask < N_MASKS; mask++)
                argmax_case(QTYPE_F32, n_out[i], n_rows[h_below(n_out[i] < 1024 ? 4 : 2)], (enum trick)trick, (enum mask)mask);
    static const uint32_t quantised[] = {QTYPE_Q8_0, QTYPE_Q6_K, QTYPE_Q4_K};
    for (int t = 0; t < 3; t++)
        for (int trick = 0; trick <= ALL_EQUAL; trick++)
            for (int mask = 0; mask < N_MASKS; mask++)
                argmax_case(quantised[t], n_out[2 + h_below(5)], n_rows[h_below(2)], (enum trick)trick, (enum mask)mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_argmax)};
    h_start();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_argmax") || failed;
}
