/* Reference versions of the attention ops: ATTN_Q, ATTN_KV, ATTN. Contracts: kern/kern.h; arithmetic: kern/ref/refd.h.
 * The softmax is the ordinary one over all positions, in two passes: the maximum, then the sums. Every cache type is
 * understood; a reference run uses F32. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/kv_row.h"
#include "kern/ref/refd.h"
#include "kern/ref/scalar.h"

/* As scalar_norm_rope. */
static double norm_rope(const float *x, const float *norm, double inv, const float *table, int32_t n_rot, int32_t d)
{
    const int32_t half = n_rot / 2;
    const double y = (double)x[d] * inv * (double)norm[d];
    if (d >= 2 * half)
        return y;
    const int32_t i = d % half, other = d < half ? d + half : d - half;
    const double z = (double)x[other] * inv * (double)norm[other];
    return d < half ? y * (double)table[i] - z * (double)table[half + i] : y * (double)table[i] + z * (double)table[half + i];
}

void kern_attn_q_refd(const struct op_attn_q *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int32_t hd = op->head_dim;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head, h = u % op->n_head;
        const float *x = (const float *)kern_ptr(op->u) + r * op->u_stride + h * (op->ungated ? hd : 2 * hd);
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        float *q = (float *)kern_ptr(op->q) + r * op->q_stride + h * hd;
        const double inv = refd_rms_inv(x, hd, op->eps);
        for (int32_t d = 0; d < hd; d++)
            q[d] = (float)norm_rope(x, kern_ptr(op->norm), inv, table, op->n_rot, d);
    }
}

void kern_attn_kv_refd(const struct op_attn_kv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t hd = op->head_dim;
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)hd);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_head_kv;
        const int32_t h = (int32_t)(u % op->n_head_kv);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        const float *k = (const float *)kern_ptr(op->k) + r * op->k_stride + (int64_t)h * hd;
        const float *v = (const float *)kern_ptr(op->v) + r * op->v_stride + (int64_t)h * hd;
        const float *table = (const float *)kern_ptr(op->rope) + r * op->n_rot;
        char *k_row = kern_kv_row(seq, op->k_offset, h, batch->pos[r], row_bytes);
        char *v_row = kern_kv_row(seq, op->v_offset, h, batch->pos[r], row_bytes);
        const double inv = refd_rms_inv(k, hd, op->eps);
        for (int32_t first = 0; first < hd; first += KV_PIECE) {
            const int32_t n = hd - first < KV_PIECE ? hd - first : KV_PIECE;
            float piece[KV_PIECE];
            for (int32_t i = 0; i < n; i++)
                piece[i] = (float)norm_rope(k, kern_ptr(op->norm), inv, table, op->n_rot, first + i);
            kv_store(op->kv_type, k_row, first, piece, n);
            kv_store(op->kv_type, v_row, first, v + first, n);
        }
    }
}

static double score(const struct op_attn *op, const float *q, const char *k_row)
{
    double sum = 0.0;
    for (int32_t d = 0; d < op->head_dim; d += 16) {
        float piece[16];
        kv_load(op->kv_type, k_row, d, piece, 16);
        sum += refd_dot(q + d, piece, 16);
    }
    return sum * (double)op->scale;
}

#define REFD_VALUES 512 /* value columns at a time; wider heads compute their scores again */

/* out[first .. first + n - 1] of one query head, m being the maximum score; gate: NULL for none. */
static void attend_values(const struct op_attn *op, const struct kern_seq *seq, int32_t kv_head, struct kern_span seen, const float *q,
                          const float *gate, double m, int32_t first, int32_t n, float *out)
{
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)op->head_dim);
    double o[REFD_VALUES] = {0}, l = 0.0;
    for (int32_t t = seen.first; t <= seen.last; t++) {
        const double p = exp(score(op, q, kern_kv_row(seq, op->k_offset, kv_head, t, row_bytes)) - m);
        const char *v_row = kern_kv_row(seq, op->v_offset, kv_head, t, row_bytes);
        l += p;
        for (int32_t d = 0; d < n; d += 16) {
            float piece[16];
            kv_load(op->kv_type, v_row, first + d, piece, 16);
            for (int32_t i = 0; i < 16; i++)
                o[d + i] += p * (double)piece[i];
        }
    }
    for (int32_t d = 0; d < n; d++)
        out[first + d] = (float)(gate ? o[d] / l * refd_sigmoid((double)gate[first + d]) : o[d] / l);
}

void kern_attn_refd(const struct op_attn *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t hd = op->head_dim, per_kv = op->n_head / op->n_head_kv;
    const size_t row_bytes = qtype_row_bytes(op->kv_type, (uint64_t)hd);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u % batch->n_rows;
        const int32_t kv_head = (int32_t)(u / batch->n_rows);
        const struct kern_span seen = kern_row_span(op, batch, r);
        const struct kern_seq *seq = &batch->seqs[batch->seq[r]];
        for (int64_t h = (int64_t)kv_head * per_kv; h < (int64_t)(kv_head + 1) * per_kv; h++) {
            const float *q = (const float *)kern_ptr(op->q) + r * op->q_stride + h * hd;
            const float *gate = op->u.buf ? (const float *)kern_ptr(op->u) + r * op->u_stride + h * 2 * hd + hd : NULL;
            float *out = (float *)kern_ptr(op->out) + r * op->out_stride + h * hd;
            double m = -INFINITY;
            for (int32_t t = seen.first; t <= seen.last; t++)
                m = fmax(m, score(op, q, kern_kv_row(seq, op->k_offset, kv_head, t, row_bytes)));
            for (int32_t first = 0; first < hd; first += REFD_VALUES)
                attend_values(op, seq, kv_head, seen, q, gate, m, first, hd - first < REFD_VALUES ? hd - first : REFD_VALUES, out);
        }
    }
}

void kern_attn_pages_refd(const struct op_attn_pages *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)op, (void)batch, (void)begin, (void)end;
}

/* The first head of each KV head computes all of them. */
void kern_attn_merge_refd(const struct op_attn_merge *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const struct op_attn *attn = &op->pages.attn;
    const int32_t per_kv = attn->n_head / attn->n_head_kv;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / attn->n_head, h = u % attn->n_head;
        const int32_t last = kern_row_span(attn, batch, r).last / KV_PAGE_ROWS - op->pages.page_begin;
        if (h % per_kv == 0 && last >= 0 && last < op->pages.n_pages)
            kern_attn_refd(attn, batch, h / per_kv * batch->n_rows + r, h / per_kv * batch->n_rows + r + 1);
    }
}
