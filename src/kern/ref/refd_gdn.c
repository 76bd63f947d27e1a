/* Reference versions of the Gated DeltaNet ops: GDN_CONV, GDN_QK, GDN_STEP, GDN_OUT. Contracts: kern/kern.h; arithmetic:
 * kern/ref/refd.h. The states stay float32. */
#include "kern/ref/kern_ref.h"
#include "kern/ref/refd.h"
#include "kern/ref/scalar.h"

/* Raw value of a channel in row `from` of the batch's rows; rows below 0 are in the state, whose end is row -1. */
static float conv_input(const struct op_gdn_conv *op, const float *x, const float *state, int32_t from)
{
    return from >= 0 ? x[(int64_t)from * op->x_stride] : state[(int64_t)(op->kernel - 1 + from) * op->n_channel];
}

void kern_gdn_conv_refd(const struct op_gdn_conv *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t blocks = (op->n_channel + 63) / 64;
    for (int64_t u = begin; u < end; u++) {
        const struct kern_seq *seq = &batch->seqs[u / blocks];
        const int64_t first = u % blocks * 64;
        const int64_t last = first + 64 < op->n_channel ? first + 64 : op->n_channel;
        for (int64_t c = first; c < last; c++) {
            const float *x = (const float *)kern_ptr(op->x) + (int64_t)seq->row_begin * op->x_stride + c;
            const float *w = (const float *)kern_ptr(op->w) + c * op->kernel;
            float *out = (float *)kern_ptr(op->out) + (int64_t)seq->row_begin * op->out_stride + c;
            float *state = (float *)(void *)kern_state(seq, op->state_offset) + c;
            for (int32_t t = 0; t < seq->n_rows; t++) {
                double acc = 0.0;
                for (int32_t j = 0; j < op->kernel; j++)
                    acc += (double)w[j] * (double)conv_input(op, x, state, t - (op->kernel - 1) + j);
                out[(int64_t)t * op->out_stride] = (float)refd_silu(acc);
            }
            for (int32_t t = 0; seq->tape && t < seq->n_rows; t++)
                kern_tape(seq, op->tape_offset, op->tape_stride, t)[c] = x[(int64_t)t * op->x_stride];
            for (int32_t j = 0; j < op->kernel - 1 && !seq->tape; j++)
                state[(int64_t)j * op->n_channel] = conv_input(op, x, state, seq->n_rows - (op->kernel - 1) + j);
        }
    }
}

void kern_gdn_qk_refd(const struct op_gdn_qk *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const int64_t heads = 2 * (int64_t)op->n_key_head;
    for (int64_t u = begin; u < end; u++) {
        float *v = (float *)kern_ptr(op->qk) + u / heads * op->stride + u % heads * op->d;
        double inv = 1.0 / sqrt(refd_dot(v, v, op->d) + (double)op->eps);
        if (u % heads < op->n_key_head)
            inv *= (double)op->q_scale;
        for (int32_t i = 0; i < op->d; i++)
            v[i] = (float)((double)v[i] * inv);
    }
}

/* One column of one head through the rows of a sequence. S points at the column in key row 0, its values are `stride` floats apart. */
static void step_column(const struct op_gdn_step *op, const struct kern_seq *seq, int32_t head, int32_t c, float *S, int64_t stride)
{
    const int32_t d = op->d, key_head = head % op->n_key_head;
    for (int64_t r = seq->row_begin; r < (int64_t)seq->row_begin + seq->n_rows; r++) {
        const float *row = (const float *)kern_ptr(op->qkv) + r * op->qkv_stride;
        const float *q = row + (int64_t)key_head * d;
        const float *k = row + (int64_t)(op->n_key_head + key_head) * d;
        const double v = (double)row[(int64_t)(2 * op->n_key_head + head) * d + c];
        const double decay = (double)((const float *)kern_ptr(op->decay))[r * op->n_v + head];
        const double beta = (double)((const float *)kern_ptr(op->beta))[r * op->n_v + head];
        double e = 0.0, o = 0.0;
        for (int32_t i = 0; i < d; i++)
            e += (double)S[i * stride] * decay * (double)k[i];
        const float u = (float)((v - e) * beta);
        for (int32_t i = 0; i < d; i++) {
            const double s = (double)S[i * stride] * decay + (double)k[i] * (double)u;
            S[i * stride] = (float)s;
            o += s * (double)q[i];
        }
        if (seq->tape)
            kern_tape_u(op, seq, r - seq->row_begin, head)[c] = u;
        ((float *)kern_ptr(op->out))[r * op->out_stride + (int64_t)head * d + c] = (float)o;
    }
}

void kern_gdn_step_refd(const struct op_gdn_step *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    const int64_t blocks = (op->d + 31) / 32;
    for (int64_t unit = begin; unit < end; unit++) {
        const struct kern_seq *seq = &batch->seqs[unit / (blocks * op->n_v)];
        const int32_t head = (int32_t)(unit / blocks % op->n_v);
        const int32_t first = (int32_t)(unit % blocks) * 32;
        const int32_t last = first + 32 < op->d ? first + 32 : op->d;
        float *S = (float *)(void *)kern_state(seq, op->state_offset) + (int64_t)head * op->d * op->d;
        kern_tape_keys(op, seq, head, first);
        for (int32_t c = first; c < last; c++) {
            float copy[KERN_HELD_KEYS];
            for (int64_t i = 0; seq->tape && i < op->d; i++)
                copy[i] = S[i * op->d + c];
            if (seq->tape)
                step_column(op, seq, head, c, copy, 1);
            else
                step_column(op, seq, head, c, S + c, op->d);
        }
    }
}

void kern_gdn_commit_refd(const struct op_gdn_commit *op, const struct kern_batch *batch, int64_t begin, int64_t end)
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
            const double decay = (double)record[(int64_t)(op->n_key_head + op->n_v) * d + head];
            for (int64_t i = first; i < last; i++)
                for (int64_t c = 0; c < d; c++)
                    S[i * d + c] = (float)((double)S[i * d + c] * decay + (double)k[i] * (double)u[c]);
        }
    }
}

void kern_gdn_out_refd(const struct op_gdn_out *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    const float *w = kern_ptr(op->w);
    for (int64_t u = begin; u < end; u++) {
        const int64_t r = u / op->n_v, at = u % op->n_v * op->d;
        const float *o = (const float *)kern_ptr(op->o) + r * op->o_stride + at;
        const float *z = (const float *)kern_ptr(op->z) + r * op->z_stride + at;
        float *y = (float *)kern_ptr(op->y) + r * op->y_stride + at;
        const double inv = refd_rms_inv(o, op->d, op->eps);
        for (int32_t i = 0; i < op->d; i++)
            y[i] = (float)((double)o[i] * inv * (double)w[i] * refd_silu((double)z[i]));
    }
}
