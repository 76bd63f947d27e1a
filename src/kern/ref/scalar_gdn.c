/* Scalar versions of the Gated DeltaNet ops: GDN_CONV, GDN_QK, GDN_GATES, GDN_STEP, GDN_OUT. Contracts: kern/kern.h. */
#include <string.h>

#include "kern/ref/kern_ref.h"
#include "kern/ref/scalar.h"

/* One channel of one sequence. x and out point at the channel in the sequence's first row; state at it in the oldest row. */
static void conv_channel(const struct op_gdn_conv *op, const struct kern_seq *seq, const float *x, const float *w, float *state, float *out)
{
    const int32_t kernel = op->kernel, n_rows = seq->n_rows;
    for (int32_t t = 0; t < n_rows; t++) {
        float acc = 0.0f;
        for (int32_t j = 0; j < kernel; j++) {
            const int32_t from = t - (kernel - 1) + j; /* row of this batch; below 0: in the state, whose end is row -1 */
            const float value = from >= 0 ? x[(int64_t)from * op->x_stride] : state[(int64_t)(kernel - 1 + from) * op->n_channel];
            acc = j == 0 ? w[0] * value : fmaf(w[j], value, acc);
        }
        out[(int64_t)t * op->out_stride] = kern_siluf(acc);
    }
    for (int32_t j = 0; j < kernel - 1 && !seq->tape; j++) {
        const int32_t from = n_rows - (kernel - 1) + j;
        state[(int64_t)j * op->n_channel] =
            from >= 0 ? x[(int64_t)from * op->x_stride] : state[(int64_t)(kernel - 1 + from) * op->n_channel];
    }
}

SCALAR_CLONES void kern_gdn_conv_scalar(const struct op_gdn_conv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t blocks = (op->n_channel + 63) / 64;
    const float *w = kern_ptr(op->w);
    for (int64_t u = begin; u < end; u++) {
        const struct kern_seq *seq = &batch->seqs[u / blocks];
        const int64_t first = u % blocks * 64;
        const int64_t last = first + 64 < op->n_channel ? first + 64 : op->n_channel;
        const float *x = (const float *)kern_ptr(op->x) + (int64_t)seq->row_begin * op->x_stride;
        float *out = (float *)kern_ptr(op->out) + (int64_t)seq->row_begin * op->out_stride;
        float *state = (float *)(void *)kern_state(seq, op->state_offset);
        for (int64_t c = first; c < last; c++)
            conv_channel(op, seq, x + c, w + c * op->kernel, state + c, out + c);
        for (int32_t t = 0; seq->tape && t < seq->n_rows; t++)
            memcpy(kern_tape(seq, op->tape_offset, op->tape_stride, t) + first, x + (int64_t)t * op->x_stride + first,
                   (size_t)(last - first) * sizeof *x);
    }
}

void kern_gdn_conv_commit_scalar(const struct op_gdn_conv_commit *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t blocks = (op->n_channel + 63) / 64;
    for (int64_t u = begin; u < end; u++) {
        const struct kern_seq *seq = &batch->seqs[u / blocks];
        const int64_t first = u % blocks * 64;
        const int64_t last = first + 64 < op->n_channel ? first + 64 : op->n_channel;
        float *state = (float *)(void *)kern_state(seq, op->state_offset) + first;
        for (int32_t j = 0; j < op->kernel - 1; j++) { /* rows move towards the oldest one */
            const int32_t from = seq->n_rows - (op->kernel - 1) + j;
            const float *row = from >= 0 ? kern_tape(seq, op->tape_offset, op->tape_stride, from) + first
                                         : state + (int64_t)(op->kernel - 1 + from) * op->n_channel;
            memmove(state + (int64_t)j * op->n_channel, row, (size_t)(last - first) * sizeof *state);
        }
    }
}

SCALAR_CLONES void kern_gdn_qk_scalar(const struct op_gdn_qk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int64_t heads = 2 * (int64_t)op->n_key_head;
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / heads, h = u % heads;
        float *v = (float *)kern_ptr(op->qk) + r * op->stride + h * op->d;
        const float inv = 1.0f / sqrtf(scalar_dot16(v, v, op->d) + op->eps);
        for (int32_t i = 0; i < op->d; i++) {
            v[i] = v[i] * inv;
            if (h < op->n_key_head)
                v[i] = v[i] * op->q_scale;
        }
    }
}

void kern_gdn_gates_scalar(const struct op_gdn_gates *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *dt_bias = kern_ptr(op->dt_bias), *ssm_a = kern_ptr(op->ssm_a);
    for (int64_t r = begin; r < end; r++) {
        const float *a = (const float *)kern_ptr(op->a) + r * op->n_v;
        const float *b = (const float *)kern_ptr(op->b) + r * op->n_v;
        float *decay = (float *)kern_ptr(op->decay) + r * op->n_v;
        float *beta = (float *)kern_ptr(op->beta) + r * op->n_v;
        for (int32_t j = 0; j < op->n_v; j++) {
            const double x = (double)a[j] + (double)dt_bias[j];
            const double softplus = x > 20.0 ? x : log1p(exp(x));
            decay[j] = (float)exp(softplus * (double)ssm_a[j]);
            beta[j] = (float)(1.0 / (1.0 + exp(-(double)b[j])));
        }
    }
}

#define STEP_COLUMNS 32 /* of one unit */

/* n columns of one head through the rows of a sequence, each column on its own. S points at the first of them in key row 0, its key rows
   are `stride` floats apart; c is their number in the head. */
static inline __attribute__((always_inline)) void step_columns(const struct op_gdn_step *op, const struct kern_seq *seq, int32_t head,
                                                               int32_t c, int32_t n, float *S, int64_t stride)
{
    const int32_t d = op->d, key_head = head % op->n_key_head;
    for (int64_t r = seq->row_begin; r < (int64_t)seq->row_begin + seq->n_rows; r++) {
        const float *row = (const float *)kern_ptr(op->qkv) + r * op->qkv_stride;
        const float *q = row + (int64_t)key_head * d;
        const float *k = row + (int64_t)(op->n_key_head + key_head) * d;
        const float *v = row + (int64_t)(2 * op->n_key_head + head) * d + c;
        const float decay = ((const float *)kern_ptr(op->decay))[r * op->n_v + head];
        const float beta = ((const float *)kern_ptr(op->beta))[r * op->n_v + head];
        float *out = (float *)kern_ptr(op->out) + r * op->out_stride + (int64_t)head * d + c;
        float e[STEP_COLUMNS] = {0}, u[STEP_COLUMNS], o[STEP_COLUMNS] = {0};
        for (int32_t i = 0; i < d; i++)
            for (int32_t x = 0; x < n; x++) {
                S[i * stride + x] = S[i * stride + x] * decay;
                e[x] = fmaf(S[i * stride + x], k[i], e[x]);
            }
        for (int32_t x = 0; x < n; x++)
            u[x] = (v[x] - e[x]) * beta;
        if (seq->tape)
            memcpy(kern_tape_u(op, seq, r - seq->row_begin, head) + c, u, (size_t)n * sizeof *u);
        for (int32_t i = 0; i < d; i++)
            for (int32_t x = 0; x < n; x++) {
                S[i * stride + x] = fmaf(k[i], u[x], S[i * stride + x]);
                o[x] = fmaf(S[i * stride + x], q[i], o[x]);
            }
        for (int32_t x = 0; x < n; x++)
            out[x] = o[x];
    }
}

SCALAR_CLONES void kern_gdn_step_scalar(const struct op_gdn_step *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t blocks = (op->d + STEP_COLUMNS - 1) / STEP_COLUMNS;
    for (int64_t unit = begin; unit < end; unit++) {
        const struct kern_seq *seq = &batch->seqs[unit / (blocks * op->n_v)];
        const int32_t head = (int32_t)(unit / blocks % op->n_v);
        const int32_t first = (int32_t)(unit % blocks) * STEP_COLUMNS;
        const int32_t n = op->d - first < STEP_COLUMNS ? op->d - first : STEP_COLUMNS;
        float *S = (float *)(void *)kern_state(seq, op->state_offset) + (int64_t)head * op->d * op->d + first;
        float copy[KERN_HELD_KEYS * STEP_COLUMNS];
        int64_t stride = op->d;
        if (seq->tape) {
            for (int32_t i = 0; i < op->d; i++)
                memcpy(copy + (int64_t)i * STEP_COLUMNS, S + i * stride, (size_t)n * sizeof *S);
            S = copy;
            stride = STEP_COLUMNS;
            kern_tape_keys(op, seq, head, first);
        }
        if (n == STEP_COLUMNS)
            step_columns(op, seq, head, first, STEP_COLUMNS, S, stride);
        else
            step_columns(op, seq, head, first, n, S, stride);
    }
}

SCALAR_CLONES void kern_gdn_commit_scalar(const struct op_gdn_commit *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int32_t d = op->d;
    const int64_t blocks = (d + 31) / 32;
    for (int64_t unit = begin; unit < end; unit++) {
        const struct kern_seq *seq = &batch->seqs[unit / (blocks * op->n_v)];
        const int32_t head = (int32_t)(unit / blocks % op->n_v), key_head = head % op->n_key_head;
        const int32_t first = (int32_t)(unit % blocks) * 32, last = first + 32 < d ? first + 32 : d;
        float *S = (float *)(void *)kern_state(seq, op->state_offset) + (int64_t)head * d * d;
        for (int32_t t = 0; t < seq->n_rows; t++) {
            const float *record = kern_tape(seq, op->tape_offset, op->tape_stride, t);
            const float *k = record + (int64_t)key_head * d, *u = record + (int64_t)(op->n_key_head + head) * d;
            const float decay = record[(int64_t)(op->n_key_head + op->n_v) * d + head];
            for (int64_t i = first; i < last; i++)
                for (int64_t c = 0; c < d; c++)
                    S[i * d + c] = fmaf(k[i], u[c], S[i * d + c] * decay);
        }
    }
}

SCALAR_CLONES void kern_gdn_out_scalar(const struct op_gdn_out *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *w = kern_ptr(op->w);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_v, at = u % op->n_v * op->d;
        const float *o = (const float *)kern_ptr(op->o) + r * op->o_stride + at;
        const float *z = (const float *)kern_ptr(op->z) + r * op->z_stride + at;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride + at;
        const float inv = scalar_rms_inv(o, op->d, op->eps);
        for (int32_t i = 0; i < op->d; i++)
            y[i] = ((o[i] * inv) * w[i]) * kern_siluf(z[i]);
    }
}
