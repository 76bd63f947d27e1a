/* All ops but the matrix products (test_matmul.c): every tier that this CPU can run against the scalar functions, bit for
 * bit; the scalar functions against the reference ones, within bounds that each test states; the exponential against double.
 */
#include "kern/harness.h"

#include "kern/math.h"
#include "quant/quant.h"

static const int sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256, 257, 600};
#define N_SIZES ((int)(sizeof sizes / sizeof sizes[0]))

static double worst[KERN_OP_COUNT]; /* largest |scalar - reference| seen */

static void against_reference(const struct kern_op *op, const struct kern_batch *batch, struct kern_view out, double abs_bound,
                              double rel_bound)
{
    const double w = h_compare_reference(op, batch, out, abs_bound, rel_bound);
    worst[op->code] = w > worst[op->code] ? w : worst[op->code];
}

/* ---- rows ---- */

static void test_get_rows(void **unused)
{
    (void)unused;
    const int32_t rows[] = {4, 0, 0, 2};
    for (int i = 0; i < N_SIZES; i++) {
        const int32_t n = sizes[i], stride = n + h_below(5);
        struct kern_op op = {.code = KERN_GET_ROWS};
        op.p.get_rows = (struct op_get_rows){h_floats(5 * (size_t)stride, H_SPECIAL), h_out(4 * (size_t)stride), stride, stride, n, 4,
                                             rows};
        h_compare(&op, &h_no_batch, false);
        for (int r = 0; r < 4; r++) {
            const float *in = (const float *)kern_ptr(op.p.get_rows.in) + rows[r] * stride;
            const float *out = (const float *)kern_ptr(op.p.get_rows.out) + r * stride;
            CHECK(memcmp(in, out, (size_t)n * 4) == 0, "GET_ROWS: row %d of %d floats", r, n);
        }
        h_free_all();
    }
}

static void test_rms_norm(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_SIZES; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = sizes[i], rows = 1 + h_below(4), xs = n + h_below(4), ys = n + h_below(4);
            const bool in_place = h_below(2);
            struct kern_op op = {.code = KERN_RMS_NORM};
            struct op_rms_norm *p = &op.p.rms_norm;
            *p = (struct op_rms_norm){.x = h_floats((size_t)(rows * xs), (enum h_style)style), .w = h_floats((size_t)n, H_NORMAL),
                                      .x_stride = xs, .n = n, .n_rows = rows, .eps = 1e-6f};
            p->y = in_place ? p->x : h_out((size_t)(rows * ys));
            p->y_stride = in_place ? xs : ys;
            h_compare(&op, &h_no_batch, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL || style == H_WIDE)
                against_reference(&op, &h_no_batch, p->y, 1e-37, 2e-6);
            h_free_all();
        }
}

static void test_swiglu(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_SIZES; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = sizes[i], rows = 1 + h_below(3), gs = n + h_below(4), us = n + h_below(4), hs = n + h_below(4);
            const int alias = h_below(3);
            struct kern_op op = {.code = KERN_SWIGLU};
            struct op_swiglu *p = &op.p.swiglu;
            *p = (struct op_swiglu){.gate = h_floats((size_t)(rows * gs), (enum h_style)style),
                                    .up = h_floats((size_t)(rows * us), (enum h_style)style),
                                    .n = n, .n_rows = rows, .gate_stride = gs, .up_stride = us};
            p->h = alias == 0 ? p->gate : alias == 1 ? p->up : h_out((size_t)(rows * hs));
            p->h_stride = alias == 0 ? gs : alias == 1 ? us : hs;
            h_compare(&op, &h_no_batch, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h_no_batch, p->h, 1e-37, 5e-7);
            h_free_all();
        }
}

static void test_rope_table(void **unused)
{
    (void)unused;
    static const double inv_freq[32] = {1.0, 0.6, 0.36, 0.21, 0.12, 0.07, 0.04, 0.02, 1e-3, 1e-7};
    static struct h_batch h;
    h_batch_start(&h);
    h_batch_add(&h, 3, 0);
    h_batch_add(&h, 2, 999998);
    struct kern_op op = {.code = KERN_ROPE_TABLE};
    op.p.rope_table = (struct op_rope_table){h_out(5 * 20), inv_freq, 1.25, 20};
    h_compare(&op, &h.b, false);
    const float *table = kern_ptr(op.p.rope_table.table);
    for (int r = 0; r < 5; r++)
        for (int i = 0; i < 10; i++) {
            const double angle = (double)h.pos[r] * inv_freq[i];
            CHECK(fabs((double)table[r * 20 + i] - 1.25 * (double)cosl((long double)angle)) < 1e-7, "cosine %d %d", r, i);
            CHECK(fabs((double)table[r * 20 + 10 + i] - 1.25 * (double)sinl((long double)angle)) < 1e-7, "sine %d %d", r, i);
        }
    h_free_all();
}

/* ---- experts ---- */

static void make_router(struct kern_op *op, int32_t rows, int32_t n_expert, int32_t n_used, enum h_style style)
{
    *op = (struct kern_op){.code = KERN_ROUTER};
    op->p.router = (struct op_router){h_floats((size_t)(rows * n_expert), style), h_out((size_t)(rows * n_used)),
                                      h_out((size_t)(rows * n_used)), rows, n_expert, n_used};
}

/* ids are the experts in decreasing order of logit, equal ones in order of id. */
static void check_selection(const struct op_router *p)
{
    for (int32_t r = 0; r < p->n_rows; r++) {
        const float *logits = (const float *)kern_ptr(p->logits) + r * p->n_expert;
        const int32_t *ids = (const int32_t *)kern_ptr(p->ids) + r * p->n_used;
        bool taken[512] = {false};
        for (int32_t slot = 0; slot < p->n_used; slot++) {
            int32_t best = -1;
            for (int32_t e = 0; e < p->n_expert; e++)
                if (!taken[e] && (best < 0 || logits[e] > logits[best]))
                    best = e;
            taken[best] = true;
            CHECK(ids[slot] == best, "ROUTER: slot %d is %d, wanted %d", slot, ids[slot], best);
        }
    }
}

static void test_router(void **unused)
{
    (void)unused;
    static const int experts[] = {1, 2, 8, 16, 17, 60, 128, 256, 512};
    for (int i = 0; i < 9; i++)
        for (int style = 0; style <= H_N_STYLES; style++) {
            const int32_t n = experts[i], used = 1 + h_below(n < 10 ? n : 10), rows = 1 + h_below(3);
            struct kern_op op;
            make_router(&op, rows, n, used, style == H_N_STYLES ? H_NORMAL : (enum h_style)style);
            float *logits = kern_ptr(op.p.router.logits);
            if (style == H_N_STYLES) /* many ties */
                for (int k = 0; k < rows * n; k++)
                    logits[k] = (float)h_below(3) - 1.0f;
            h_compare(&op, &h_no_batch, style == H_SPECIAL);
            if (style == H_NORMAL || style == H_ZERO || style == H_N_STYLES) {
                check_selection(&op.p.router);
                against_reference(&op, &h_no_batch, op.p.router.weights, 1e-12, 3e-6);
                const size_t bytes = (size_t)(rows * used) * sizeof(int32_t);
                struct h_buf *ids = (struct h_buf *)(void *)op.p.router.ids.buf;
                CHECK(memcmp(ids->kern.host, ids->want + ((char *)ids->kern.host - ids->base), bytes) == 0, "reference's ids");
            }
            for (int32_t k = 0; k < rows * used; k++) { /* valid and distinct, whatever came in */
                const int32_t *ids = kern_ptr(op.p.router.ids);
                CHECK(ids[k] >= 0 && ids[k] < n, "ROUTER: id %d of %d", ids[k], n);
                for (int32_t m = k / used * used; m < k; m++)
                    CHECK(ids[m] != ids[k], "ROUTER: id %d twice", ids[k]);
            }
            h_free_all();
        }
}

static void test_moe_group(void **unused)
{
    (void)unused;
    for (int i = 0; i < 20; i++) {
        const int32_t rows = 1 + h_below(20), n_expert = 1 + h_below(16), used = 1 + h_below(n_expert < 8 ? n_expert : 8);
        struct kern_op op = {.code = KERN_MOE_GROUP};
        op.p.moe_group = (struct op_moe_group){h_out((size_t)(rows * used)), h_out((size_t)(n_expert + 1 + rows * used)), rows,
                                               n_expert, used};
        int32_t *ids = kern_ptr(op.p.moe_group.ids);
        const int32_t *group = kern_ptr(op.p.moe_group.group), *pair = group + n_expert + 1;
        for (int32_t p = 0; p < rows * used; p++)
            ids[p] = h_below(n_expert);
        h_compare(&op, &h_no_batch, false);
        int32_t at = 0;
        for (int32_t e = 0; e < n_expert; e++) {
            CHECK(group[e] == at, "MOE_GROUP: expert %d begins at %d, wanted %d", e, group[e], at);
            for (int32_t p = 0; p < rows * used; p++)
                if (ids[p] == e) {
                    CHECK(pair[at] == p, "MOE_GROUP: pair %d", p);
                    at++;
                }
        }
        CHECK(group[n_expert] == at && at == rows * used, "MOE_GROUP: end");
        h_free_all();
    }
}

static void test_moe_combine(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_SIZES; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = sizes[i], rows = 1 + h_below(3), used = 1 + h_below(8);
            const int32_t xs = n + h_below(4), ys = n + h_below(4), ss = n + h_below(4);
            struct kern_op op = {.code = KERN_MOE_COMBINE};
            struct op_moe_combine *p = &op.p.moe_combine;
            *p = (struct op_moe_combine){.x = h_floats((size_t)(rows * xs), (enum h_style)style),
                                         .y = h_floats((size_t)(rows * used * ys), (enum h_style)style),
                                         .weights = h_floats((size_t)(rows * used), H_NORMAL),
                                         .n = n, .n_rows = rows, .n_used = used, .x_stride = xs, .y_stride = ys, .shared_stride = ss};
            if (h_below(2)) {
                p->shared = h_floats((size_t)(rows * ss), (enum h_style)style);
                p->shared_gate = h_floats((size_t)rows, (enum h_style)style);
            }
            h_compare(&op, &h_no_batch, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h_no_batch, p->x, 4e-5, 1e-6);
            h_free_all();
        }
}

/* ---- attention ---- */

static const int head_dims[] = {16, 32, 48, 64, 96, 256};
#define N_HEAD_DIMS 6

static struct kern_view rope_table(int32_t rows, int32_t n_rot)
{
    struct kern_view v = h_out((size_t)(rows * n_rot));
    float *table = kern_ptr(v);
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = 0; i < n_rot / 2; i++) {
            const float angle = h_uniform(-4.0f, 4.0f);
            table[r * n_rot + i] = cosf(angle);
            table[r * n_rot + n_rot / 2 + i] = sinf(angle);
        }
    return v;
}

static void test_attn_q(void **unused)
{
    (void)unused;
    static const int rots[] = {0, 8, 16, 32, 64};
    static struct h_batch h;
    for (int i = 0; i < N_HEAD_DIMS; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t hd = head_dims[i], heads = 1 + h_below(6), rows = 1 + h_below(3);
            const bool ungated = h_below(2);
            const int32_t us = heads * (ungated ? 1 : 2) * hd + h_below(4), qs = heads * hd + h_below(4);
            int32_t n_rot;
            do
                n_rot = rots[h_below(5)];
            while (n_rot > hd);
            h_batch_start(&h);
            h_batch_add(&h, rows, 5);
            struct kern_op op = {.code = KERN_ATTN_Q};
            op.p.attn_q = (struct op_attn_q){h_floats((size_t)(rows * us), (enum h_style)style), h_floats((size_t)hd, H_NORMAL),
                                             rope_table(rows, n_rot), h_out((size_t)(rows * qs)), us, qs, heads, hd, n_rot, 1e-6f, ungated};
            h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h.b, op.p.attn_q.q, 3e-6, 2e-6);
            h_free_all();
        }
}

static bool kv_fits(uint32_t type, int32_t head_dim)
{
    return type != QTYPE_Q8_0 || head_dim % 32 == 0;
}

static void attn_kv_case(uint32_t type, int32_t hd, enum h_style style)
{
    static struct h_batch h;
    const int32_t heads = 1 + h_below(3), rows[2] = {1 + h_below(3), 1 + h_below(3)};
    const int32_t n_rot = hd >= 64 && h_below(4) ? 64 : h_below(2) ? 32 : 16, used_rot = n_rot > hd ? 16 : n_rot;
    const int32_t n_rows = rows[0] + rows[1], ks = heads * hd + h_below(4), vs = heads * hd + h_below(4);
    const struct h_kv kv = h_kv_layout(type, heads, hd);
    h_batch_start(&h);
    h_kv_pages(&h, h_batch_add(&h, rows[0], 255), &kv, 255 + rows[0], 0, H_ZERO); /* over a page border */
    h_kv_pages(&h, h_batch_add(&h, rows[1], 0), &kv, rows[1], 0, H_ZERO);
    struct kern_op op = {.code = KERN_ATTN_KV};
    op.p.attn_kv = (struct op_attn_kv){h_floats((size_t)(n_rows * ks), style), h_floats((size_t)(n_rows * vs), style),
                                       h_floats((size_t)hd, H_NORMAL), rope_table(n_rows, used_rot), ks, vs, heads, hd, used_rot,
                                       1e-6f, type, kv.k_offset, kv.v_offset};
    for (int32_t i = 0; i < n_rows * vs && style == H_NORMAL; i += 8) { /* blocks of different sizes */
        const float factor = ldexpf(1.0f, h_below(34) - 24);
        for (int32_t j = i; j < i + 8 && j < n_rows * vs; j++)
            ((float *)kern_ptr(op.p.attn_kv.v))[j] *= factor;
    }
    h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
    /* V rows are what the quantizer of the format makes of them. */
    for (int32_t r = 0; r < n_rows && style == H_NORMAL; r++)
        for (int32_t head = 0; head < heads; head++) {
            char want[4 * 256];
            const float *v = (const float *)kern_ptr(op.p.attn_kv.v) + r * vs + head * hd;
            assert_int_equal(quantize_row(type, v, want, hd, NULL, NULL), 0);
            const char *page = h.pages[h.seq[r]][h.pos[r] / 256]->host;
            const char *got = page + kv.v_offset + ((size_t)head * 256 + (size_t)(h.pos[r] % 256)) * kv.row_bytes;
            CHECK(memcmp(got, want, kv.row_bytes) == 0, "ATTN_KV: type %u, row %d, head %d of V", type, r, head);
        }
    if (style == H_NORMAL && type == QTYPE_F32)
        for (int s = 0; s < 2; s++)
            against_reference(&op, &h.b, (struct kern_view){h.pages[s][0], 0}, 3e-6, 2e-6);
    h_free_all();
}

static void test_attn_kv(void **unused)
{
    (void)unused;
    for (int t = 0; t < H_N_KV_TYPES; t++)
        for (int i = 0; i < N_HEAD_DIMS; i++)
            for (int style = 0; style < H_N_STYLES; style++)
                if (kv_fits(h_kv_types[t], head_dims[i]))
                    attn_kv_case(h_kv_types[t], head_dims[i], (enum h_style)style);
}

/* Codes of Q8_0 at and beside the ties: with a largest value of 127 the scale is 1, and k + 0.5 lies between two codes. */
static void test_q8_0_ties(void **unused)
{
    (void)unused;
    static struct h_batch h;
    enum { HD = 256 };
    const struct h_kv kv = h_kv_layout(QTYPE_Q8_0, 1, HD);
    h_batch_start(&h);
    h_kv_pages(&h, h_batch_add(&h, 1, 3), &kv, 4, 0, H_ZERO);
    struct kern_op op = {.code = KERN_ATTN_KV};
    op.p.attn_kv = (struct op_attn_kv){h_floats(HD, H_NORMAL), h_floats(HD, H_NORMAL), h_floats(HD, H_NORMAL), rope_table(1, 32),
                                       HD, HD, 1, HD, 32, 1e-6f, QTYPE_Q8_0, kv.k_offset, kv.v_offset};
    for (int round = 0; round < 12; round++) {
        float *v = kern_ptr(op.p.attn_kv.v);
        for (int i = 0; i < HD; i++) {
            const float sign = h_below(2) ? 1.0f : -1.0f, tie = (float)h_below(127) + 0.5f;
            const float x = round % 3 == 0 ? tie : nextafterf(tie, round % 3 == 1 ? 0.0f : 1000.0f);
            v[i] = i % 32 == 7 ? 127.0f : sign * (x > 127.0f ? 126.5f : x);
        }
        h_compare(&op, &h.b, false);
        char want[HD / 32 * 34];
        assert_int_equal(quantize_row(QTYPE_Q8_0, v, want, HD, NULL, NULL), 0);
        CHECK(memcmp((char *)h.pages[0][0]->host + kv.v_offset + 3 * kv.row_bytes, want, sizeof want) == 0, "Q8_0 ties");
    }
    h_free_all();
}

/* ATTN_PAGES and ATTN_MERGE, in rounds of `at_once` pages: every tier's bits are those of the scalar functions, op by op, and the end
   is what ATTN left in `out`; of the reference functions, exactly what the reference ATTN computes. */
static void attn_in_steps(const struct op_attn *attn, const struct kern_batch *b, bool nan_allowed)
{
    const size_t bytes = (size_t)b->n_rows * (size_t)attn->out_stride * sizeof(float);
    const int32_t at_once = 1 + h_below(4);
    const size_t n_parts = (size_t)(at_once * b->n_rows * attn->n_head);
    struct h_buf *parts = h_buf(n_parts * kern_part_floats(attn->head_dim) * sizeof(float));
    struct h_buf *running = h_buf((size_t)(2 * b->n_rows * attn->n_head) * sizeof(float));
    struct h_buf *out = (struct h_buf *)(void *)attn->out.buf;
    float *want = malloc(bytes), *want_reference = malloc(bytes);
    assert_true(want && want_reference);
    memcpy(want, out->kern.host, bytes);
    const struct kern_op whole = {.code = KERN_ATTN, .p.attn = *attn};
    kern_run(&kern_reference, &whole, b, 0, kern_units(&whole, b));
    memcpy(want_reference, out->kern.host, bytes);
    int32_t n_pages = 0;
    for (int32_t r = 0; r < b->n_rows; r++)
        n_pages = b->pos[r] / KV_PAGE_ROWS + 1 > n_pages ? b->pos[r] / KV_PAGE_ROWS + 1 : n_pages;
    for (int reference = 1; reference >= 0; reference--) {
        for (size_t at = 0; at < bytes; at += 4)
            memcpy((char *)out->kern.host + at, &(uint32_t){H_PATTERN}, 4);
        for (int32_t page = 0; page < n_pages; page += at_once) {
            const struct op_attn_pages pages = {*attn, h_view(parts), page, at_once};
            const struct kern_op first = {.code = KERN_ATTN_PAGES, .p.attn_pages = pages};
            const struct kern_op second = {.code = KERN_ATTN_MERGE, .p.attn_merge = {pages, h_view(running)}};
            if (reference) {
                h_run_pieces(&kern_reference, &first, b);
                h_run_pieces(&kern_reference, &second, b);
            } else {
                h_compare(&first, b, nan_allowed);
                h_compare(&second, b, nan_allowed);
            }
        }
        bool same = true;
        for (size_t at = 0; at < bytes; at += 4) {
            uint32_t a, w;
            memcpy(&a, (char *)out->kern.host + at, 4);
            memcpy(&w, (char *)(reference ? want_reference : want) + at, 4);
            same = same && (a == w || (nan_allowed && h_same_nan(a, w)));
        }
        CHECK(same, "ATTN in rounds of %d pages%s", at_once, reference ? ", reference" : "");
    }
    memcpy(out->kern.host, want, bytes);
    h_save();
    h_keep_as_wanted();
    free(want);
    free(want_reference);
}

struct attn_variant {
    int32_t window;
    bool bidirectional, ungated;
};
static const struct attn_variant trunk; /* as a model's layers are */

/* What no row of a sequence sees: rows before the first position in sight become NaN, pages before it are gone. */
static void hide(struct h_batch *h, const struct kern_seq *seq, const struct op_attn *op, const struct h_kv *kv)
{
    const int s = (int)(seq - h->seqs);
    const int32_t first = kern_attn_span(op, seq, seq->pos_begin).first;
    for (int32_t pos = 0; pos < first; pos++)
        for (int32_t head = 0; head < 2 * kv->n_head_kv; head++) {
            const size_t base = head < kv->n_head_kv ? kv->k_offset : kv->v_offset;
            const size_t row = (size_t)(head % kv->n_head_kv) * KV_PAGE_ROWS + (size_t)(pos % KV_PAGE_ROWS);
            memset((char *)h->pages[s][pos / KV_PAGE_ROWS]->host + base + row * kv->row_bytes, 0xFF, kv->row_bytes);
        }
    for (int32_t page = 0; page < first / KV_PAGE_ROWS; page++)
        h->pages[s][page] = NULL;
}

/* The last rows of sequences of different lengths in one batch, one or more of each. Every page behind the last position is missing,
   every row behind it NaN. */
static void attn_case(uint32_t type, int32_t hd, int32_t heads_kv, int32_t per_kv, enum h_style style, enum h_style q_style,
                      const int32_t *lengths, int n_lengths, struct attn_variant variant)
{
    static struct h_batch h;
    const int32_t heads = heads_kv * per_kv, us = heads * 2 * hd + h_below(4), qs = heads * hd + h_below(4);
    const struct h_kv kv = h_kv_layout(type, heads_kv, hd);
    h_batch_start(&h);
    for (int i = 0; i < n_lengths; i++) {
        const int32_t most = lengths[i] < 20 ? lengths[i] : 20, n = h_below(2) ? 1 : 1 + h_below(most);
        h_kv_pages(&h, h_batch_add(&h, n, lengths[i] - n), &kv, lengths[i], lengths[i], style);
    }
    const int32_t rows = h.b.n_rows;
    struct kern_op op = {.code = KERN_ATTN};
    op.p.attn = (struct op_attn){h_floats((size_t)(rows * qs), q_style), h_floats((size_t)(rows * us), q_style),
                                 h_out((size_t)(rows * qs)), qs, us, qs, heads, heads_kv, hd, 1.0f / sqrtf((float)hd), type,
                                 kv.k_offset, kv.v_offset, variant.window, variant.bidirectional};
    if (variant.ungated)
        op.p.attn.u = (struct kern_view){0};
    for (int i = 0; i < n_lengths; i++)
        hide(&h, &h.seqs[i], &op.p.attn, &kv);
    const bool tame = style == H_NORMAL && q_style == H_NORMAL;
    h_compare(&op, &h.b, !tame && style != H_ZERO);
    attn_in_steps(&op.p.attn, &h.b, !tame && style != H_ZERO);
    if (tame)
        against_reference(&op, &h.b, op.p.attn.out, 2e-5, 2e-5);
    h_free_all();
}

static void test_attn(void **unused)
{
    (void)unused;
    static const int32_t borders[] = {255, 256, 257, 512, 700}, few[] = {1, 2, 3, 15, 16, 17, 40};
    static const int32_t per_kv[] = {1, 2, 3, 4, 6, 8};
    const bool quick = getenv("SKUA_TEST_QUICK"); /* for the emulator */
    for (int t = 0; t < H_N_KV_TYPES; t++) {
        attn_case(h_kv_types[t], 64, 2, 4, H_NORMAL, H_NORMAL, borders, 5, trunk);
        attn_case(h_kv_types[t], 32, 1, 7, H_NORMAL, H_NORMAL, borders, 5, trunk);
        attn_case(h_kv_types[t], 32, 1, 1, H_SPECIAL, H_NORMAL, borders, 3, trunk);
        attn_case(h_kv_types[t], 32, 1, 2, H_NORMAL, H_SPECIAL, borders, 3, trunk);
        attn_case(h_kv_types[t], 256, 1, 4, H_NORMAL, H_NORMAL, borders + 1, 2, trunk);
        attn_case(h_kv_types[t], 32, 1, 70, H_NORMAL, H_NORMAL, borders + 1, 2, trunk); /* more heads than are taken together */
        attn_case(h_kv_types[t], 288, 2, 2, H_NORMAL, H_NORMAL, borders + 1, 2, trunk); /* wider than any model's */
        for (int i = 0; i < N_HEAD_DIMS; i++)
            for (int style = 0; style < H_N_STYLES; style++)
                if (kv_fits(h_kv_types[t], head_dims[i]) && (!quick || (i + style + t) % 4 == 0))
                    attn_case(h_kv_types[t], head_dims[i], 1 + h_below(2), per_kv[h_below(6)], (enum h_style)style,
                              style == H_SPECIAL ? H_NORMAL : (enum h_style)style, few, 7, trunk);
    }
}

/* Windows, rows that see what is behind them in the batch, no gates: what the layers of drafters do. */
static void test_attn_variants(void **unused)
{
    (void)unused;
    static const int32_t borders[] = {255, 256, 257, 512, 530, 700}, windows[] = {0, 1, 2, 8, 15, 16, 17, 33, 255, 256, 257, 600, 5000};
    const bool quick = getenv("SKUA_TEST_QUICK"); /* for the emulator */
    for (int t = 0; t < H_N_KV_TYPES; t++)
        for (int w = quick ? t % 6 : 0; w < 13; w += quick ? 6 : 1) {
            const struct attn_variant v = {windows[w], h_below(2), h_below(2)};
            attn_case(h_kv_types[t], 32, 1 + h_below(2), 1 + h_below(5), H_NORMAL, H_NORMAL, borders, 6, v);
            attn_case(h_kv_types[t], 64, 1, 4, w % 3 ? H_NORMAL : H_SPECIAL, H_NORMAL, borders, 6, v);
        }
    attn_case(QTYPE_F16, 32, 1, 70, H_NORMAL, H_NORMAL, borders, 5, (struct attn_variant){40, true, true});
    attn_case(QTYPE_F16, 288, 2, 2, H_NORMAL, H_NORMAL, borders, 5, (struct attn_variant){40, true, true});
}

/* The mask rules, position by position. */
static void test_attn_span(void **unused)
{
    (void)unused;
    static const struct {
        int32_t window;
        bool bidirectional;
        int32_t begin, rows, pos, first, last;
    } cases[] = {
        {0, false, 100, 8, 100, 0, 100},  {0, false, 100, 8, 107, 0, 107},  {0, true, 100, 8, 100, 0, 107},  {0, true, 100, 8, 107, 0, 107},
        {8, false, 100, 8, 100, 93, 100}, {8, false, 100, 8, 107, 100, 107},
        {8, true, 100, 8, 100, 93, 107}, {8, true, 100, 8, 107, 100, 107},
        {3, true, 100, 8, 107, 100, 107}, {3, false, 100, 8, 106, 100, 106}, {3, false, 100, 8, 101, 99, 101},
        {200, true, 100, 8, 103, 0, 107}, {101, false, 100, 1, 100, 0, 100}, {100, false, 100, 1, 100, 1, 100}, {5, true, 0, 4, 2, 0, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct op_attn op = {.window = cases[i].window, .bidirectional = cases[i].bidirectional};
        const struct kern_seq seq = {.pos_begin = cases[i].begin, .n_rows = cases[i].rows};
        const struct kern_span got = kern_attn_span(&op, &seq, cases[i].pos);
        CHECK(got.first == cases[i].first && got.last == cases[i].last, "case %zu: %d to %d, wanted %d to %d", i, got.first, got.last,
              cases[i].first, cases[i].last);
    }
}

/* ---- BLOCK_CONV ---- */

static void test_block_conv(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static const struct { int32_t n, group, kernel; } shapes[] = {{1, 1, 1}, {4, 2, 2}, {48, 16, 2}, {256, 16, 2}, {300, 20, 3},
                                                                  {272, 17, 4}, {640, 320, 2}};
    for (int i = 0; i < 7; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = shapes[i].n, k = shapes[i].kernel, groups = n / shapes[i].group;
            const int32_t xs = n + h_below(4), ys = n + h_below(4), ds = 2 * k * groups + h_below(3);
            h_batch_start(&h);
            h_batch_add(&h, 1 + h_below(8), 40);
            h_batch_add(&h, 1, 0);
            h_batch_add(&h, 1 + h_below(3), 7);
            const size_t rows = (size_t)h.b.n_rows;
            struct kern_op op = {.code = KERN_BLOCK_CONV};
            op.p.block_conv = (struct op_block_conv){h_floats(rows * (size_t)xs, (enum h_style)style), h_floats((size_t)(k * n), H_NORMAL),
                                                     h_floats(rows * (size_t)ds, H_NORMAL), h_floats(rows * (size_t)ys, H_NORMAL), xs, ds,
                                                     ys, n, shapes[i].group, k, h_below(2)};
            h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h.b, op.p.block_conv.y, 4e-6, 2e-6);
            h_free_all();
        }
}

/* The worked example of the drafter's definition. */
static void test_block_conv_example(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, base[] = {1, 1, 1, 1, 0, 0, 0, 0}, dyn[] = {0, 0, 0, 0, 0.1f, 0.2f, 1, -1}, y[8];
    static const float want[] = {1, 2, 3, 4, 6.5f, 8.6f, 5.4f, 5.6f};
    struct kern_buf bx = {x, sizeof x}, bb = {base, sizeof base}, bd = {dyn, sizeof dyn}, by = {y, sizeof y};
    h_batch_start(&h);
    h_batch_add(&h, 2, 11);
    const struct op_block_conv op = {{&bx, 0}, {&bb, 0}, {&bd, 0}, {&by, 0}, 4, 4, 4, 4, 2, 2, false};
    kern_block_conv_scalar(&op, &h.b, 0, 2);
    for (int i = 0; i < 8; i++)
        CHECK(fabsf(y[i] - want[i]) < 1e-5f, "value %d: %g, wanted %g", i, (double)y[i], (double)want[i]);
}

/* ---- Gated DeltaNet ---- */

static void test_gdn_conv(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static const int channels[] = {1, 15, 16, 48, 64, 80, 100, 192};
    for (int i = 0; i < 8; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = channels[i], kernel = h_below(4) ? 4 : 1 + h_below(6), xs = n + h_below(4), os = n + h_below(4);
            h_batch_start(&h);
            for (int s = 0; s < 3; s++) {
                struct kern_seq *seq = h_batch_add(&h, s == 0 ? h_below(2) : 1 + h_below(6), 0);
                seq->state = h_floats((size_t)(3 + (kernel - 1) * n), (enum h_style)style).buf;
            }
            const int32_t rows = h.b.n_rows;
            struct kern_op op = {.code = KERN_GDN_CONV};
            op.p.gdn_conv = (struct op_gdn_conv){h_floats((size_t)(rows * xs), (enum h_style)style),
                                                 h_floats((size_t)(n * kernel), H_NORMAL), h_out((size_t)(rows * os)), xs, os, n,
                                                 kernel, 12, 0, 0};
            h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL) {
                against_reference(&op, &h.b, op.p.gdn_conv.out, 2e-5, 1e-6);
                for (int s = 0; s < 3; s++)
                    against_reference(&op, &h.b, (struct kern_view){h.seqs[s].state, 0}, 0.0, 0.0);
            }
            h_free_all();
        }
}

static void test_gdn_qk(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static const int dims[] = {8, 16, 24, 32, 128};
    for (int i = 0; i < 5; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t d = dims[i], heads = 1 + h_below(4), rows = 1 + h_below(4), stride = 2 * heads * d + h_below(20);
            h_batch_start(&h);
            h_batch_add(&h, rows, 0);
            struct kern_op op = {.code = KERN_GDN_QK};
            op.p.gdn_qk = (struct op_gdn_qk){h_floats((size_t)(rows * stride), (enum h_style)style), stride, heads, d, 1e-6f,
                                             0.0883883461f};
            h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h.b, op.p.gdn_qk.qk, 1e-37, 1e-6);
            h_free_all();
        }
}

static void test_gdn_gates(void **unused)
{
    (void)unused;
    static struct h_batch h;
    for (int style = 0; style < H_N_STYLES; style++) {
        const int32_t n_v = 1 + h_below(40), rows = 1 + h_below(4);
        const bool in_place = h_below(2);
        h_batch_start(&h);
        h_batch_add(&h, rows, 0);
        struct kern_op op = {.code = KERN_GDN_GATES};
        struct op_gdn_gates *p = &op.p.gdn_gates;
        const size_t n = (size_t)(rows * n_v);
        p->a = h_floats(n, (enum h_style)style);
        p->b = h_floats(n, (enum h_style)style);
        p->dt_bias = h_floats((size_t)n_v, H_NORMAL);
        p->ssm_a = h_floats((size_t)n_v, H_NORMAL);
        for (int j = 0; j < n_v; j++)
            ((float *)kern_ptr(p->ssm_a))[j] = -fabsf(((float *)kern_ptr(p->ssm_a))[j]);
        p->decay = in_place ? p->a : h_out(n);
        p->beta = in_place ? p->b : h_out(n);
        p->n_v = n_v;
        const struct h_buf *a = (const struct h_buf *)(const void *)p->a.buf, *b = (const struct h_buf *)(const void *)p->b.buf;
        h_compare(&op, &h.b, style == H_SPECIAL);
        for (size_t i = 0; i < n && style == H_NORMAL; i++) {
            float ai, bi;
            memcpy(&ai, a->before + ((char *)a->kern.host - a->base) + 4 * i, 4);
            memcpy(&bi, b->before + ((char *)b->kern.host - b->base) + 4 * i, 4);
            const long double x = (long double)ai + (long double)((float *)kern_ptr(p->dt_bias))[i % (size_t)n_v];
            const long double ssm_a = (long double)((float *)kern_ptr(p->ssm_a))[i % (size_t)n_v];
            const double decay = (double)expl(log1pl(expl(x)) * ssm_a), beta = (double)(1.0L / (1.0L + expl(-(long double)bi)));
            CHECK(fabs((double)((float *)kern_ptr(p->decay))[i] - decay) <= 6.1e-8 * decay + 1e-44, "GDN_GATES: decay %zu", i);
            CHECK(fabs((double)((float *)kern_ptr(p->beta))[i] - beta) <= 6.1e-8 * beta, "GDN_GATES: beta %zu", i);
        }
        h_free_all();
    }
}

static void gdn_step_case(int32_t d, enum h_style style)
{
    static struct h_batch h;
    const int32_t n_key = 1 + h_below(2), n_v = n_key * (1 + h_below(3)), width = (2 * n_key + n_v) * d;
    const int32_t stride = width + h_below(20), out_stride = n_v * d + h_below(20);
    h_batch_start(&h);
    for (int s = 0; s < 3; s++) {
        struct kern_seq *seq = h_batch_add(&h, s == 0 ? h_below(2) : 1 + h_below(5), 0);
        seq->state = h_floats((size_t)(5 + n_v * d * d), style).buf;
    }
    const int32_t rows = h.b.n_rows;
    struct kern_op op = {.code = KERN_GDN_STEP};
    op.p.gdn_step = (struct op_gdn_step){h_floats((size_t)(rows * stride), style), h_floats((size_t)(rows * n_v), H_NORMAL),
                                         h_floats((size_t)(rows * n_v), H_NORMAL), h_out((size_t)(rows * out_stride)), stride,
                                         out_stride, n_key, n_v, d, 20, 0, 0};
    for (int32_t r = 0; r < rows; r++) { /* gates in 0 .. 1, and unit q and k as GDN_QK makes them */
        for (int32_t j = 0; j < n_v; j++) {
            ((float *)kern_ptr(op.p.gdn_step.decay))[r * n_v + j] = h_uniform(0.5f, 1.0f);
            ((float *)kern_ptr(op.p.gdn_step.beta))[r * n_v + j] = h_uniform(0.0f, 1.0f);
        }
    }
    if (style == H_NORMAL) {
        struct op_gdn_qk qk = {op.p.gdn_step.qkv, stride, n_key, d, 1e-6f, 1.0f / sqrtf((float)d)};
        kern_gdn_qk_scalar(&qk, &h.b, 0, rows * 2 * n_key);
    }
    h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE || style == H_WIDE);
    if (style == H_NORMAL) {
        against_reference(&op, &h.b, op.p.gdn_step.out, 2e-5, 2e-6);
        for (int s = 0; s < 3; s++)
            against_reference(&op, &h.b, (struct kern_view){h.seqs[s].state, 0}, 2e-5, 2e-6);
    }
    h_free_all();
}

static void test_gdn_step(void **unused)
{
    (void)unused;
    static const int dims[] = {8, 16, 32, 48, 64, 128};
    for (int i = 0; i < 6; i++)
        for (int style = 0; style < H_N_STYLES; style++)
            gdn_step_case(dims[i], (enum h_style)style);
    gdn_step_case(272, H_NORMAL); /* wider than the work block */
}

static void test_gdn_out(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static const int dims[] = {8, 16, 32, 128};
    for (int i = 0; i < 4; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t d = dims[i], n_v = 1 + h_below(5), rows = 1 + h_below(4);
            const int32_t os = n_v * d + h_below(20), zs = n_v * d + h_below(20), ys = n_v * d + h_below(20);
            const bool in_place = h_below(2);
            h_batch_start(&h);
            h_batch_add(&h, rows, 0);
            struct kern_op op = {.code = KERN_GDN_OUT};
            struct op_gdn_out *p = &op.p.gdn_out;
            *p = (struct op_gdn_out){.o = h_floats((size_t)(rows * os), (enum h_style)style),
                                     .z = h_floats((size_t)(rows * zs), (enum h_style)style), .w = h_floats((size_t)d, H_NORMAL),
                                     .o_stride = os, .z_stride = zs, .n_v = n_v, .d = d, .eps = 1e-6f};
            p->y = in_place ? p->o : h_out((size_t)(rows * ys));
            p->y_stride = in_place ? os : ys;
            h_compare(&op, &h.b, style == H_SPECIAL || style == H_LARGE);
            if (style == H_NORMAL)
                against_reference(&op, &h.b, p->y, 1e-37, 3e-6);
            h_free_all();
        }
}

/* ---- the exponential ---- */

/* kern_expf against the C library in double, on 2^22 floats of the range where the result is finite and not zero. */
static void test_exp_accuracy(void **unused)
{
    (void)unused;
    double worst_normal = 0.0, worst_subnormal = 0.0;
    for (int i = 0; i < 1 << 22; i++) {
        const uint32_t bits = (uint32_t)i * 1024u + (uint32_t)h_below(1024);
        float x;
        memcpy(&x, &bits, sizeof x);
        if (!(x >= KERN_EXP_LO && x <= KERN_EXP_HI))
            continue;
        const double want = exp((double)x), error = fabs((double)kern_expf(x) - want);
        if (want >= 0x1p-126)
            worst_normal = error / want > worst_normal ? error / want : worst_normal;
        else
            worst_subnormal = error * 0x1p149 > worst_subnormal ? error * 0x1p149 : worst_subnormal;
    }
    printf("kern_expf: relative error %.3g, %.3g units in the last place where subnormal\n", worst_normal, worst_subnormal);
    CHECK(worst_normal < 1e-7 && worst_normal > 1e-9, "kern_expf: relative error %g", worst_normal);
    CHECK(worst_subnormal < 1.0, "kern_expf: %g units in the last place where subnormal", worst_subnormal);
    CHECK(kern_expf(0.0f) == 1.0f && kern_expf(-0.0f) == 1.0f, "kern_expf(0)");
    CHECK(kern_expf(nextafterf(KERN_EXP_HI, 0.0f)) < INFINITY && kern_expf(nextafterf(KERN_EXP_HI, 100.0f)) == INFINITY, "upper end");
    CHECK(kern_expf(nextafterf(KERN_EXP_LO, 0.0f)) > 0.0f && kern_expf(nextafterf(KERN_EXP_LO, -200.0f)) == 0.0f, "lower end");
    CHECK(kern_expf(INFINITY) == INFINITY && kern_expf(-INFINITY) == 0.0f && isnan(kern_expf(NAN)), "special values");
}

/* The vector exponential through the two ops that show all its bits: SWIGLU with up = 1 for the results above 1 (as
   x / (1 + e^-x)), ROUTER with a maximum of 0 for those below. 2^21 floats of either kind, spread over all bit patterns. */
static void test_exp_tiers(void **unused)
{
    (void)unused;
    enum { N = 1 << 15, STEP = 1 << 17 };
    for (int round = 0; round < 64; round++) {
        struct kern_op op = {.code = KERN_SWIGLU};
        op.p.swiglu = (struct op_swiglu){h_out(N), h_out(N), h_out(N), N, 1, N, N, N};
        uint32_t *gate = kern_ptr(op.p.swiglu.gate);
        float *up = kern_ptr(op.p.swiglu.up);
        for (int i = 0; i < N; i++) {
            gate[i] = (uint32_t)i * STEP + (uint32_t)h_below(STEP);
            up[i] = 1.0f;
        }
        h_compare(&op, &h_no_batch, true);
        h_free_all();

        make_router(&op, N / 16, 16, 16, H_ZERO);
        float *logits = kern_ptr(op.p.router.logits);
        for (int i = 0; i < N; i++)
            logits[i] = i % 16 == 0 ? 0.0f : i % 3 == 0 ? h_uniform(-1.0f, 0.0f) : h_uniform(-105.0f, 0.0f);
        h_compare(&op, &h_no_batch, false);
        h_free_all();
    }
}

/* ---- tables ---- */

static void test_tables(void **unused)
{
    (void)unused;
    CHECK(kern_select("no such tier") == NULL, "an unknown tier");
    CHECK(kern_select("reference") == NULL, "the reference table is no tier");
    CHECK(kern_select(NULL) == kern_select(kern_tiers()[0]), "the best tier is the first");
    CHECK(kern_select("scalar") == &kern_scalar, "scalar");
    int n = 0;
    for (const char *const *tier = kern_tiers(); *tier; tier++, n++) {
        const struct kern_table *t = kern_select(*tier);
        CHECK(t != NULL && strcmp(t->name, *tier) == 0, "tier %s", *tier);
        printf("tier %s\n", *tier);
    }
    CHECK(n >= 1 && strcmp(kern_tiers()[n - 1], "scalar") == 0, "scalar is the last");
    CHECK(strcmp(kern_op_name(KERN_MATMUL), "MATMUL") == 0 && strcmp(kern_op_name(KERN_GDN_OUT), "GDN_OUT") == 0, "names");
    const struct kern_batch one_row = {.n_rows = 1, .n_seqs = 1};
    for (int code = 0; code < KERN_OP_COUNT; code++) {
        const struct kern_op op = {.code = (enum kern_op_code)code};
        CHECK(kern_grain(&op, &one_row) >= 1, "%s: grain", kern_op_name(op.code));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_get_rows),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_swiglu),
        cmocka_unit_test(test_rope_table),
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_moe_group),
        cmocka_unit_test(test_moe_combine),
        cmocka_unit_test(test_attn_q),
        cmocka_unit_test(test_attn_kv),
        cmocka_unit_test(test_q8_0_ties),
        cmocka_unit_test(test_attn),
        cmocka_unit_test(test_attn_variants),
        cmocka_unit_test(test_attn_span),
        cmocka_unit_test(test_block_conv),
        cmocka_unit_test(test_block_conv_example),
        cmocka_unit_test(test_gdn_conv),
        cmocka_unit_test(test_gdn_qk),
        cmocka_unit_test(test_gdn_gates),
        cmocka_unit_test(test_gdn_step),
        cmocka_unit_test(test_gdn_out),
        cmocka_unit_test(test_exp_accuracy),
        cmocka_unit_test(test_exp_tiers),
    };
    h_start();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int code = 0; code < KERN_OP_COUNT; code++)
        if (worst[code] > 0.0)
            printf("%s: largest |scalar - reference| %.3g\n", kern_op_name((enum kern_op_code)code), worst[code]);
    return support_finish("test_ops") || failed;
}
