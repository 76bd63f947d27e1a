/* Scalar versions of the attention ops: ATTN_Q, ATTN_KV, ATTN, ATTN_PAGES, ATTN_MERGE. Contracts: kern/kern.h. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/kv_row.h"
#include "kern/ref/scalar.h"

SCALAR_CLONES void kern_attn_q_scalar(const struct op_attn_q *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int32_t hd = op->head_dim;
    const float *norm = kern_ptr(op->norm);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head, h = u % op->n_head;
        const float *x = (const float *)kern_ptr(op->u) + r * op->u_stride + h * (op->ungated ? hd : 2 * hd);
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        float *q = (float *)kern_ptr(op->q) + r * op->q_stride + h * hd;
        const float inv = scalar_rms_inv(x, hd, op->eps);
        for (int32_t d = 0; d < hd; d++)
            q[d] = scalar_norm_rope(x, norm, inv, table, op->n_rot, d);
    }
}

SCALAR_CLONES void kern_attn_kv_scalar(const struct op_attn_kv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t hd = op->head_dim;
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)hd);
    const float *norm = kern_ptr(op->norm);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head_kv;
        const int32_t h = (int32_t)(u % op->n_head_kv);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        const float *k = (const float *)kern_ptr(op->k) + r * op->k_stride + (int64_t)h * hd;
        const float *v = (const float *)kern_ptr(op->v) + r * op->v_stride + (int64_t)h * hd;
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        char *k_row = kern_kv_row(seq, op->k_offset, h, batch->pos[r], row_bytes);
        char *v_row = kern_kv_row(seq, op->v_offset, h, batch->pos[r], row_bytes);
        const float inv = scalar_rms_inv(k, hd, op->eps);
        for (int32_t first = 0; first < hd; first += KV_PIECE) {
            const int32_t n = hd - first < KV_PIECE ? hd - first : KV_PIECE;
            float piece[KV_PIECE];
            for (int32_t i = 0; i < n; i++)
                piece[i] = scalar_norm_rope(k, norm, inv, table, op->n_rot, first + i);
            kv_store(op->kv_type, k_row, first, piece, n);
            kv_store(op->kv_type, v_row, first, v + first, n);
        }
    }
}

/* Attention of one query head within one page, places from .. to - 1: their p[t], with p[t] = 0 before them, the sum l and the maximum
   score m. */
static inline __attribute__((always_inline)) void page_weights(const struct op_attn *op, const float *q, const char *k, size_t row_bytes,
                                                               struct kern_places at, float *p, float *m, float *l)
{
    for (int32_t t = 0; t < at.from; t++)
        p[t] = 0.0f;
    for (int32_t t = at.from; t < at.to; t++) {
        float acc[16] = {0}, piece[16];
        for (int32_t d = 0; d < op->head_dim; d += 16) {
            kv_load(op->kv_type, k + (size_t)t * row_bytes, d, piece, 16);
            for (int32_t i = 0; i < 16; i++)
                acc[i] = fmaf(q[d + i], piece[i], acc[i]);
        }
        p[t] = scalar_reduce16(acc) * op->scale;
    }
    *m = p[at.from];
    for (int32_t t = at.from + 1; t < at.to; t++)
        *m = p[t] > *m ? p[t] : *m;
    for (int32_t t = at.from; t < at.to; t++)
        p[t] = kern_expf(p[t] - *m);
    *l = scalar_sum16(p, at.to);
}

/* Values d .. d + 15 of a page: o = sum of p_t * v_t. */
static inline __attribute__((always_inline)) void page_values(const struct op_attn *op, const char *v, size_t row_bytes, struct kern_places at,
                                                              const float *p, int32_t d, float o[16])
{
    float piece[16];
    for (int32_t i = 0; i < 16; i++)
        o[i] = 0.0f;
    for (int32_t t = at.from; t < at.to; t++) {
        kv_load(op->kv_type, v + (size_t)t * row_bytes, d, piece, 16);
        for (int32_t i = 0; i < 16; i++)
            o[i] = fmaf(p[t], piece[i], o[i]);
    }
}

/* Take a page with m and l into M and L; a and b are the factors for O and o. */
static inline void merge_page(float *M, float *L, float m, float l, float *a, float *b)
{
    const float both = m > *M ? m : *M;
    *a = kern_expf(*M - both);
    *b = kern_expf(m - both);
    *M = both;
    *L = fmaf(*L, *a, l * *b);
}

/* Row r, head h. */
static inline void finish_head(const struct op_attn *op, int64_t r, int64_t h, float L, float *out)
{
    const int64_t hd = op->head_dim;
    const float *gate = op->u.buf ? (const float *)kern_ptr(op->u) + r * op->u_stride + h * 2 * hd + hd : NULL;
    for (int64_t d = 0; d < hd; d++)
        out[d] = gate ? (out[d] / L) * kern_sigmoidf(gate[d]) : out[d] / L;
}

/* One query head over all its pages. out holds the running O; values are taken 16 at a time, so no head is too wide. */
static inline __attribute__((always_inline)) void attend(const struct op_attn *op, const struct kern_seq *seq, int32_t kv_head,
                                                         struct kern_span seen, const float *q, float *out, float *L)
{
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)op->head_dim);
    const int32_t first_page = seen.first / KV_PAGE_ROWS * KV_PAGE_ROWS;
    float M = 0.0f;
    for (int32_t start = first_page; start <= seen.last; start += KV_PAGE_ROWS) {
        const struct kern_places at = kern_places(seen, start);
        const char *v = kern_kv_row(seq, op->v_offset, kv_head, start, row_bytes);
        float p[KV_PAGE_ROWS], m, l, a = 0.0f, b = 0.0f;
        page_weights(op, q, kern_kv_row(seq, op->k_offset, kv_head, start, row_bytes), row_bytes, at, p, &m, &l);
        if (start == first_page) {
            M = m;
            *L = l;
        } else {
            merge_page(&M, L, m, l, &a, &b);
        }
        for (int32_t d = 0; d < op->head_dim; d += 16) {
            float o[16];
            page_values(op, v, row_bytes, at, p, d, o);
            for (int32_t i = 0; i < 16; i++)
                out[d + i] = start == first_page ? o[i] : fmaf(out[d + i], a, o[i] * b);
        }
    }
}

SCALAR_CLONES void kern_attn_scalar(const struct op_attn *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t hd = op->head_dim;
    const int32_t per_kv = op->n_head / op->n_head_kv;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u % batch->n_rows;
        const int32_t kv_head = (int32_t)(u / batch->n_rows);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        for (int64_t h = kv_head * per_kv; h < (kv_head + 1) * per_kv; h++) {
            const float *q = (const float *)kern_ptr(op->q) + r * op->q_stride + h * hd;
            float *out = (float *)kern_ptr(op->out) + r * op->out_stride + h * hd, L = 0.0f;
            attend(op, seq, kv_head, kern_row_span(op, batch, r), q, out, &L);
            finish_head(op, r, h, L, out);
        }
    }
}

/* ---- the same in two steps ---- */

SCALAR_CLONES void kern_attn_pages_scalar(const struct op_attn_pages *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const struct op_attn *attn = &op->attn;
    const int64_t hd = attn->head_dim;
    const int32_t per_kv = attn->n_head / attn->n_head_kv;
    const size_t row_bytes = qtype_row_bytes(attn->kv_type, (uint64_t)hd);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u % batch->n_rows, page = u / batch->n_rows % op->n_pages;
        const int32_t kv_head = (int32_t)(u / batch->n_rows / op->n_pages);
        const int32_t start = (op->page_begin + (int32_t)page) * KV_PAGE_ROWS;
        const struct kern_places at = kern_places(kern_row_span(attn, batch, r), start);
        if (at.from >= at.to)
            continue;
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        const char *k = kern_kv_row(seq, attn->k_offset, kv_head, start, row_bytes);
        const char *v = kern_kv_row(seq, attn->v_offset, kv_head, start, row_bytes);
        for (int64_t h = kv_head * per_kv; h < (kv_head + 1) * per_kv; h++) {
            const float *q = (const float *)kern_ptr(attn->q) + r * attn->q_stride + h * hd;
            float *part = kern_part(op, batch, page, r, h), p[KV_PAGE_ROWS];
            page_weights(attn, q, k, row_bytes, at, p, &part[hd], &part[hd + 1]);
            if (isnan(part[hd + 1])) /* which of several scores is the largest is then open */
                part[hd] = part[hd + 1];
            for (int32_t d = 0; d < hd; d += 16)
                page_values(attn, v, row_bytes, at, p, d, part + d);
        }
    }
}

SCALAR_CLONES void kern_attn_merge_scalar(const struct op_attn_merge *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const struct op_attn *attn = &op->pages.attn;
    const int64_t hd = attn->head_dim;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / attn->n_head, h = u % attn->n_head;
        const struct kern_span seen = kern_row_span(attn, batch, r);
        const int32_t first = seen.first / KV_PAGE_ROWS - op->pages.page_begin, last = seen.last / KV_PAGE_ROWS - op->pages.page_begin;
        float *out = (float *)kern_ptr(attn->out) + r * attn->out_stride + h * hd;
        float *running = (float *)kern_ptr(op->running) + 2 * u;
        for (int32_t page = first > 0 ? first : 0; page < op->pages.n_pages && page <= last; page++) {
            const float *part = kern_part(&op->pages, batch, page, r, h);
            if (page == first) {
                memcpy(out, part, (size_t)hd * sizeof *out);
                memcpy(running, part + hd, 2 * sizeof *running);
                continue;
            }
            float a, b;
            merge_page(&running[0], &running[1], part[hd], part[hd + 1], &a, &b);
            for (int32_t d = 0; d < hd; d++)
                out[d] = fmaf(out[d], a, part[d] * b);
        }
        if (last >= 0 && last < op->pages.n_pages)
            finish_head(attn, r, h, running[1], out);
    }
}
