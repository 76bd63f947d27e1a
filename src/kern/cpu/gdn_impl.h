/* GDN_CONV, GDN_QK, GDN_STEP, GDN_OUT and GDN_COMMIT on v16. Included once by gdn_<isa>.c, which has defined v16 and
 * V16_OP(op) = kern_<op>_<isa>. Contracts: kern/kern.h; the same steps in plain C: kern/ref/scalar_gdn.c.
 *
 * Shapes that no published model has (a convolution kernel other than 4, channels or heads that are no multiple of 16) go
 * to the scalar functions.
 */
#include "kern/cpu/kern_tiers.h"
#include "kern/cpu/v16_math.h"
#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"

/* Sixteen channels of one sequence. x and out point at the first of them in the sequence's first row, state in its oldest
   row, w at its first tap; tape, when the rows are held, in the record of the first row. */
V16_INLINE void conv16(const struct op_gdn_conv *op, int32_t n_rows, const float *x, const float *w, float *state, float *out, char *tape)
{
    v16 tap[4];
    v16_load_transpose4(w, tap);
    v16 x3 = v16_load(state), x2 = v16_load(state + op->n_channel), x1 = v16_load(state + 2 * (int64_t)op->n_channel);
    for (int32_t t = 0; t < n_rows; t++) {
        const v16 x0 = v16_load(x + (int64_t)t * op->x_stride);
        v16 acc = v16_mul(tap[0], x3);
        acc = v16_fma(tap[1], x2, acc);
        acc = v16_fma(tap[2], x1, acc);
        acc = v16_fma(tap[3], x0, acc);
        v16_store(out + (int64_t)t * op->out_stride, v16_silu(acc));
        if (tape)
            v16_store((float *)(void *)(tape + (size_t)t * op->tape_stride), x0);
        x3 = x2;
        x2 = x1;
        x1 = x0;
    }
    if (tape)
        return;
    v16_store(state, x3);
    v16_store(state + op->n_channel, x2);
    v16_store(state + 2 * (int64_t)op->n_channel, x1);
}

void V16_OP(gdn_conv)(const struct op_gdn_conv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->kernel != 4 || op->n_channel % 16 != 0) {
        kern_gdn_conv_scalar(op, batch, begin, end);
        return;
    }
    const int64_t blocks = (op->n_channel + 63) / 64;
    const float *w = kern_ptr(op->w);
    for (int64_t u = begin; u < end; u++) {
        const struct kern_seq *seq = &batch->seqs[u / blocks];
        const int64_t first = u % blocks * 64;
        const int64_t last = first + 64 < op->n_channel ? first + 64 : op->n_channel;
        const float *x = (const float *)kern_ptr(op->x) + (int64_t)seq->row_begin * op->x_stride;
        float *out = (float *)kern_ptr(op->out) + (int64_t)seq->row_begin * op->out_stride;
        float *state = (float *)(void *)kern_state(seq, op->state_offset);
        char *tape = seq->tape ? (char *)seq->tape->host + op->tape_offset : NULL;
        for (int64_t c = first; c < last; c += 16)
            conv16(op, seq->n_rows, x + c, w + c * 4, state + c, out + c, tape ? tape + (size_t)c * sizeof(float) : NULL);
    }
}

void V16_OP(gdn_qk)(const struct op_gdn_qk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->d % 16 != 0) {
        kern_gdn_qk_scalar(op, batch, begin, end);
        return;
    }
    const int64_t heads = 2 * (int64_t)op->n_key_head;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / heads, h = u % heads;
        float *v = (float *)kern_ptr(op->qk) + r * op->stride + h * op->d;
        const v16 inv = v16_set1(1.0f / sqrtf(v16_squares(v, op->d) + op->eps));
        for (int32_t i = 0; i < op->d; i += 16) {
            v16 y = v16_mul(v16_load(v + i), inv);
            if (h < op->n_key_head)
                y = v16_mul(y, v16_set1(op->q_scale));
            v16_store(v + i, y);
        }
    }
}

/* The columns of S in work: 32 at most, in a block of its own while rows are walked, because in place their rows are d
   floats apart and would share few cache sets. Wider heads (no model has them, and their rows cannot be held) work in place. */
#define STEP_COLUMNS 32
#define STEP_KEYS KERN_HELD_KEYS

/* Columns first .. of nv v16 of one head through the rows of a sequence. The block B always holds S times the decay of the
   row that comes next, so that one walk over it finishes a row (u, o) and does the first half (e) of the following one. The last walk
   writes S back, unless the rows are held. */
V16_INLINE void step_block(const struct op_gdn_step *op, const struct kern_seq *seq, int32_t head, int32_t first, const int nv)
{
    _Alignas(64) float local[STEP_KEYS * STEP_COLUMNS];
    const int32_t d = op->d, key_head = head % op->n_key_head;
    float *S = (float *)(void *)kern_state(seq, op->state_offset) + (int64_t)head * d * d + first;
    float *B = d <= STEP_KEYS ? local : S;
    const int64_t b_stride = d <= STEP_KEYS ? STEP_COLUMNS : d;
    const int64_t row0 = seq->row_begin, row_end = row0 + seq->n_rows;
    const float *qkv = (const float *)kern_ptr(op->qkv) + row0 * op->qkv_stride;
    const float *decay = (const float *)kern_ptr(op->decay) + head, *beta = (const float *)kern_ptr(op->beta) + head;
    const int64_t q_at = (int64_t)key_head * d, k_at = (int64_t)(op->n_key_head + key_head) * d;
    const int64_t v_at = (int64_t)(2 * op->n_key_head + head) * d + first;
    float *last = seq->tape ? B : S;
    const int64_t last_stride = seq->tape ? b_stride : d;
    if (row0 == row_end)
        return;

    v16 e[2], u[2], o[2], next_e[2];
    V16_UNROLL
    for (int c = 0; c < nv; c++)
        e[c] = v16_set1(0.0f);
    for (int32_t i = 0; i < d; i++) {
        const v16 k = v16_set1(qkv[k_at + i]), g = v16_set1(decay[row0 * op->n_v]);
        V16_UNROLL
        for (int c = 0; c < nv; c++) {
            const v16 s = v16_mul(v16_load(S + (int64_t)i * d + 16 * c), g);
            e[c] = v16_fma(s, k, e[c]);
            v16_store(B + i * b_stride + 16 * c, s);
        }
    }
    for (int64_t r = row0; r < row_end; r++, qkv += op->qkv_stride) {
        const v16 rate = v16_set1(beta[r * op->n_v]);
        V16_UNROLL
        for (int c = 0; c < nv; c++) {
            u[c] = v16_mul(v16_sub(v16_load(qkv + v_at + 16 * c), e[c]), rate);
            o[c] = next_e[c] = v16_set1(0.0f);
            if (seq->tape)
                v16_store(kern_tape_u(op, seq, r - row0, head) + first + 16 * c, u[c]);
        }
        if (r + 1 < row_end) {
            const float *next = qkv + op->qkv_stride;
            const v16 g = v16_set1(decay[(r + 1) * op->n_v]);
            for (int32_t i = 0; i < d; i++) {
                const v16 k = v16_set1(qkv[k_at + i]), q = v16_set1(qkv[q_at + i]), next_k = v16_set1(next[k_at + i]);
                V16_UNROLL
                for (int c = 0; c < nv; c++) {
                    const v16 s = v16_fma(k, u[c], v16_load(B + i * b_stride + 16 * c));
                    o[c] = v16_fma(s, q, o[c]);
                    const v16 decayed = v16_mul(s, g);
                    next_e[c] = v16_fma(decayed, next_k, next_e[c]);
                    v16_store(B + i * b_stride + 16 * c, decayed);
                }
            }
        } else {
            for (int32_t i = 0; i < d; i++) {
                const v16 k = v16_set1(qkv[k_at + i]), q = v16_set1(qkv[q_at + i]);
                V16_UNROLL
                for (int c = 0; c < nv; c++) {
                    const v16 s = v16_fma(k, u[c], v16_load(B + i * b_stride + 16 * c));
                    o[c] = v16_fma(s, q, o[c]);
                    v16_store(last + i * last_stride + 16 * c, s);
                }
            }
        }
        V16_UNROLL
        for (int c = 0; c < nv; c++) {
            v16_store((float *)kern_ptr(op->out) + r * op->out_stride + (int64_t)head * d + first + 16 * c, o[c]);
            e[c] = next_e[c];
        }
    }
}

void V16_OP(gdn_step)(const struct op_gdn_step *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->d % 16 != 0) {
        kern_gdn_step_scalar(op, batch, begin, end);
        return;
    }
    const int64_t blocks = (op->d + 31) / 32;
    for (int64_t unit = begin; unit < end; unit++) {
        const struct kern_seq *seq = &batch->seqs[unit / (blocks * op->n_v)];
        const int32_t head = (int32_t)(unit / blocks % op->n_v);
        const int32_t first = (int32_t)(unit % blocks) * 32;
        kern_tape_keys(op, seq, head, first);
        if (first + 32 <= op->d)
            step_block(op, seq, head, first, 2);
        else
            step_block(op, seq, head, first, 1);
    }
}

/* Two key rows of S (the second d floats behind the first), nv v16 of columns, through the held rows. k, u and decay point at their first
   values in the first record, `stride` floats before those of the next. */
V16_INLINE void commit_pair(float *S, int32_t d, const int nv, int32_t n_rows, const float *k, const float *u, const float *decay,
                            size_t stride)
{
    v16 s0[V16_TILE_COLUMNS], s1[V16_TILE_COLUMNS];
    V16_UNROLL
    for (int c = 0; c < nv; c++) {
        s0[c] = v16_load(S + 16 * c);
        s1[c] = v16_load(S + d + 16 * c);
    }
    for (int32_t t = 0; t < n_rows; t++, k += stride, u += stride, decay += stride) {
        const v16 g = v16_set1(*decay), k0 = v16_set1(k[0]), k1 = v16_set1(k[1]);
        V16_UNROLL
        for (int c = 0; c < nv; c++) {
            const v16 x = v16_load(u + 16 * c);
            s0[c] = v16_fma(k0, x, v16_mul(s0[c], g));
            s1[c] = v16_fma(k1, x, v16_mul(s1[c], g));
        }
    }
    V16_UNROLL
    for (int c = 0; c < nv; c++) {
        v16_store(S + 16 * c, s0[c]);
        v16_store(S + d + 16 * c, s1[c]);
    }
}

void V16_OP(gdn_commit)(const struct op_gdn_commit *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t d = op->d;
    if (d % 16 != 0) {
        kern_gdn_commit_scalar(op, batch, begin, end);
        return;
    }
    const int64_t blocks = (d + 31) / 32;
    const size_t stride = op->tape_stride / sizeof(float);
    for (int64_t unit = begin; unit < end; unit++) {
        const struct kern_seq *seq = &batch->seqs[unit / (blocks * op->n_v)];
        const int32_t head = (int32_t)(unit / blocks % op->n_v), key_head = head % op->n_key_head;
        const int32_t first = (int32_t)(unit % blocks) * 32, last = first + 32 < d ? first + 32 : d;
        float *S = (float *)(void *)kern_state(seq, op->state_offset) + (int64_t)head * d * d;
        const float *record = kern_tape(seq, op->tape_offset, op->tape_stride, 0);
        const float *k = record + (int64_t)key_head * d, *u = record + (int64_t)(op->n_key_head + head) * d;
        const float *decay = record + (int64_t)(op->n_key_head + op->n_v) * d + head;
        for (int64_t i = first; i < last; i += 2) {
            int32_t c = 0;
            for (; c + 16 * V16_TILE_COLUMNS <= d; c += 16 * V16_TILE_COLUMNS)
                commit_pair(S + i * d + c, d, V16_TILE_COLUMNS, seq->n_rows, k + i, u + c, decay, stride);
            for (; c < d; c += 16)
                commit_pair(S + i * d + c, d, 1, seq->n_rows, k + i, u + c, decay, stride);
        }
    }
}

void V16_OP(gdn_out)(const struct op_gdn_out *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    if (op->d % 16 != 0) {
        kern_gdn_out_scalar(op, batch, begin, end);
        return;
    }
    (void)batch;
    const float *w = kern_ptr(op->w);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_v, at = u % op->n_v * op->d;
        const float *o = (const float *)kern_ptr(op->o) + r * op->o_stride + at;
        const float *z = (const float *)kern_ptr(op->z) + r * op->z_stride + at;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride + at;
        const v16 inv = v16_set1(v16_rms_inv(o, op->d, op->eps));
        for (int32_t i = 0; i < op->d; i += 16) {
            const v16 normed = v16_mul(v16_mul(v16_load(o + i), inv), v16_load(w + i));
            v16_store(y + i, v16_mul(normed, v16_silu(v16_load(z + i))));
        }
    }
}
