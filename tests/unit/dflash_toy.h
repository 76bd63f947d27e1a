/* A drafter with random weights that lives in memory, and its forward pass in double, written straight from the definition: for the tests
 * of DFlash drafters. Header only. */
#ifndef SKUA_TESTS_DFLASH_TOY_H
#define SKUA_TESTS_DFLASH_TOY_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quant/type.h"
#include "spec/dflash.h"
#include "support/support.h"

enum { TOY_L = 2, TOY_E = 64, TOY_H = 4, TOY_KV = 2, TOY_HD = 16, TOY_D = 3, TOY_FF = 96, TOY_V = 97, TOY_B = 8, TOY_GROUP = 16, TOY_R = 8,
       TOY_TOP = 4, TOY_Q = TOY_H * TOY_HD, TOY_W = TOY_D * TOY_E, TOY_DYN = 4 * (TOY_E / TOY_GROUP), TOY_MOST = 4096 };

struct toy_layer {
    float attn_norm[TOY_E], ffn_norm[TOY_E], q_norm[TOY_HD], k_norm[TOY_HD];
    float q[TOY_Q * TOY_E], k[TOY_KV * TOY_HD * TOY_E], v[TOY_KV * TOY_HD * TOY_E], o[TOY_E * TOY_Q];
    float gate[TOY_FF * TOY_E], up[TOY_FF * TOY_E], down[TOY_E * TOY_FF];
    float attn_base[4 * TOY_E], ffn_base[4 * TOY_E], attn_proj[TOY_DYN * TOY_E], ffn_proj[TOY_DYN * TOY_E];
};

struct toy {
    float fc[TOY_E * TOY_W], context_norm[TOY_E], output_norm[TOY_E], embed[TOY_V * TOY_E], head[TOY_V * TOY_E];
    float sel[TOY_R * TOY_E], pred[TOY_V * TOY_R], succ[TOY_V * TOY_R];
    struct toy_layer layer[TOY_L];
    uint64_t allow[2];
    float taps[TOY_MOST][TOY_W]; /* what a target might have kept */

    struct dflash_config c;
    struct dflash_weights w;
    struct dflash_block_weights blocks[TOY_L];
    struct kern_buf whole; /* this struct as a buffer */
};

static inline float toy_normal(uint64_t *rng)
{
    double sum = 0.0;
    for (int i = 0; i < 6; i++)
        sum += (double)(rng_next(rng) >> 11) * 0x1p-53 - 0.5;
    return (float)(sum * 1.4142135623730951);
}

static inline void toy_fill(float *x, size_t n, float scale, float offset, uint64_t *rng)
{
    for (size_t i = 0; i < n; i++)
        x[i] = offset + scale * toy_normal(rng);
}

static inline struct kern_view toy_view(struct toy *t, const void *p)
{
    return (struct kern_view){&t->whole, (size_t)((const char *)p - (const char *)t)};
}

static inline struct kern_weight toy_weight(struct toy *t, const float *p, int32_t n_in, int32_t n_out)
{
    return (struct kern_weight){.data = toy_view(t, p), .type = QTYPE_F32, .n_in = n_in, .n_out = n_out, .n_expert = 1};
}

/* Matrices of about unit gain, and everything else different enough from 1 and 0 to show. */
static inline void toy_layer_init(struct toy *t, struct toy_layer *l, struct dflash_block_weights *b, uint64_t *rng)
{
    toy_fill(l->attn_norm, TOY_E, 0.2f, 1.0f, rng);
    toy_fill(l->ffn_norm, TOY_E, 0.2f, 1.0f, rng);
    toy_fill(l->q_norm, TOY_HD, 0.2f, 1.2f, rng);
    toy_fill(l->k_norm, TOY_HD, 0.2f, 1.2f, rng);
    toy_fill(l->q, TOY_Q * TOY_E, 0.12f, 0.0f, rng);
    toy_fill(l->k, TOY_KV * TOY_HD * TOY_E, 0.12f, 0.0f, rng);
    toy_fill(l->v, TOY_KV * TOY_HD * TOY_E, 0.12f, 0.0f, rng);
    toy_fill(l->o, TOY_E * TOY_Q, 0.12f, 0.0f, rng);
    toy_fill(l->gate, TOY_FF * TOY_E, 0.12f, 0.0f, rng);
    toy_fill(l->up, TOY_FF * TOY_E, 0.12f, 0.0f, rng);
    toy_fill(l->down, TOY_E * TOY_FF, 0.1f, 0.0f, rng);
    toy_fill(l->attn_base, 4 * TOY_E, 0.4f, 0.3f, rng);
    toy_fill(l->ffn_base, 4 * TOY_E, 0.4f, 0.3f, rng);
    toy_fill(l->attn_proj, TOY_DYN * TOY_E, 0.05f, 0.0f, rng);
    toy_fill(l->ffn_proj, TOY_DYN * TOY_E, 0.05f, 0.0f, rng);
    *b = (struct dflash_block_weights){
        .attn_norm = toy_view(t, l->attn_norm), .ffn_norm = toy_view(t, l->ffn_norm), .q_norm = toy_view(t, l->q_norm),
        .k_norm = toy_view(t, l->k_norm), .attn_q = toy_weight(t, l->q, TOY_E, TOY_Q),
        .attn_k = toy_weight(t, l->k, TOY_E, TOY_KV * TOY_HD), .attn_v = toy_weight(t, l->v, TOY_E, TOY_KV * TOY_HD),
        .attn_output = toy_weight(t, l->o, TOY_Q, TOY_E), .ffn_gate = toy_weight(t, l->gate, TOY_E, TOY_FF),
        .ffn_up = toy_weight(t, l->up, TOY_E, TOY_FF), .ffn_down = toy_weight(t, l->down, TOY_FF, TOY_E),
        .attn_conv_base = toy_view(t, l->attn_base), .ffn_conv_base = toy_view(t, l->ffn_base),
        .attn_conv_proj = toy_weight(t, l->attn_proj, TOY_E, TOY_DYN), .ffn_conv_proj = toy_weight(t, l->ffn_proj, TOY_E, TOY_DYN)};
}

static inline struct toy *toy_create(enum dflash_variant variant, int32_t window, bool causal, uint64_t seed)
{
    struct toy *t = calloc(1, sizeof *t);
    uint64_t rng = seed;
    if (!t)
        abort();
    t->whole = (struct kern_buf){t, sizeof *t};
    toy_fill(t->fc, TOY_E * TOY_W, 0.07f, 0.0f, &rng);
    toy_fill(t->context_norm, TOY_E, 0.2f, 1.0f, &rng);
    toy_fill(t->output_norm, TOY_E, 0.2f, 1.0f, &rng);
    toy_fill(t->embed, TOY_V * TOY_E, 1.0f, 0.0f, &rng);
    toy_fill(t->head, TOY_V * TOY_E, 0.2f, 0.0f, &rng);
    toy_fill(t->sel, TOY_R * TOY_E, 0.2f, 0.0f, &rng);
    toy_fill(t->pred, TOY_V * TOY_R, 0.8f, 0.0f, &rng);
    toy_fill(t->succ, TOY_V * TOY_R, 0.8f, 0.0f, &rng);
    toy_fill(t->taps[0], (size_t)TOY_MOST * TOY_W, 1.0f, 0.0f, &rng);
    t->c = (struct dflash_config){.variant = variant, .n_layer = TOY_L, .n_embd = TOY_E, .n_head = TOY_H, .n_head_kv = TOY_KV,
                                  .head_dim = TOY_HD, .n_ff = TOY_FF, .rms_eps = 1e-6f, .n_rot = TOY_HD, .rope_base = 1e4,
                                  .rope_scale = 1.0, .block_size = TOY_B, .mask_id = TOY_V - 1, .n_taps = TOY_D, .taps = {1, 2, 4},
                                  .emb_scale = 1.0f, .logit_scale = 1.0f};
    for (int i = 0; i < TOY_HD / 2; i++)
        t->c.inv_freq[i] = pow(t->c.rope_base, -2.0 * i / TOY_HD);
    t->allow[0] = t->allow[1] = UINT64_MAX;
    t->w = (struct dflash_weights){.fc = toy_weight(t, t->fc, TOY_W, TOY_E), .context_norm = toy_view(t, t->context_norm),
                                   .output_norm = toy_view(t, t->output_norm), .blocks = t->blocks,
                                   .embed = toy_weight(t, t->embed, TOY_E, TOY_V), .head = toy_weight(t, t->head, TOY_E, TOY_V),
                                   .allow = toy_view(t, t->allow)};
    for (int i = 0; i < TOY_L; i++) {
        t->c.window[i] = window;
        t->c.causal[i] = causal;
        toy_layer_init(t, &t->layer[i], &t->blocks[i], &rng);
    }
    if (variant == DFLASH_2) {
        t->c.conv_kernel = 2;
        t->c.conv_group = TOY_GROUP;
        t->c.selector_rank = TOY_R;
        t->c.selector_top_k = TOY_TOP;
        t->w.selector_hidden = toy_weight(t, t->sel, TOY_E, TOY_R);
        t->w.selector_pred = toy_weight(t, t->pred, TOY_R, TOY_V);
        t->w.selector_succ = toy_weight(t, t->succ, TOY_R, TOY_V);
    }
    return t;
}

/* ---- in double ---- */

static inline void toy_mul(const float *w, const double *x, int n_in, int n_out, double *y)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = 0.0;
        for (int i = 0; i < n_in; i++)
            y[o] += (double)w[o * n_in + i] * x[i];
    }
}

static inline void toy_rms(const float *w, const double *x, int n, double *y)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(sum / n + 1e-6) * (double)w[i];
}

/* Norm and rotation of one head, in place. */
static inline void toy_rope(const struct toy *t, const float *norm, int32_t pos, double *x)
{
    double y[TOY_HD];
    toy_rms(norm, x, TOY_HD, y);
    for (int i = 0; i < TOY_HD / 2; i++) {
        const double angle = pos * t->c.inv_freq[i], a = y[i], b = y[i + TOY_HD / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + TOY_HD / 2] = a * sin(angle) + b * cos(angle);
    }
}

struct toy_kv {
    double k[TOY_KV][TOY_HD], v[TOY_KV][TOY_HD];
};

static inline void toy_key_value(const struct toy *t, const struct toy_layer *l, const double *x, int32_t pos, struct toy_kv *kv)
{
    toy_mul(l->k, x, TOY_E, TOY_KV * TOY_HD, kv->k[0]);
    toy_mul(l->v, x, TOY_E, TOY_KV * TOY_HD, kv->v[0]);
    for (int h = 0; h < TOY_KV; h++)
        toy_rope(t, l->k_norm, pos, kv->k[h]);
}

/* Is key position pk visible from pq of a block that begins at n? */
static inline bool toy_sees(const struct toy *t, int layer, int32_t n, int32_t pq, int32_t pk)
{
    if (pk >= n)
        return !t->c.causal[layer] || pk <= pq;
    return !t->c.window[layer] || pq - pk < t->c.window[layer];
}

static inline void toy_attend(const struct toy *t, int layer, const double *x, const struct toy_kv *kv, int32_t n, int32_t n_rows,
                              int32_t row, double *out)
{
    const struct toy_layer *l = &t->layer[layer];
    double q[TOY_Q], o[TOY_Q];
    toy_mul(l->q, x, TOY_E, TOY_Q, q);
    for (int h = 0; h < TOY_H; h++) {
        const int g = h / (TOY_H / TOY_KV);
        double sum = 0.0, acc[TOY_HD] = {0};
        toy_rope(t, l->q_norm, n + row, q + h * TOY_HD);
        for (int32_t p = 0; p < n + n_rows; p++) {
            double s = 0.0;
            if (!toy_sees(t, layer, n, n + row, p))
                continue;
            for (int i = 0; i < TOY_HD; i++)
                s += q[h * TOY_HD + i] * kv[p].k[g][i];
            s = exp(s / sqrt(TOY_HD));
            sum += s;
            for (int i = 0; i < TOY_HD; i++)
                acc[i] += s * kv[p].v[g][i];
        }
        for (int i = 0; i < TOY_HD; i++)
            o[h * TOY_HD + i] = acc[i] / sum;
    }
    toy_mul(l->o, o, TOY_Q, TOY_E, out);
}

/* One side of the convolution: y[r] from x[r] and x[r - 1], with taps that depend on what dynamic was computed from. */
static inline void toy_conv(const float *base, double (*dyn)[TOY_DYN], int side, double (*x)[TOY_E], int32_t n_rows, double (*y)[TOY_E])
{
    for (int32_t r = 0; r < n_rows; r++)
        for (int c = 0; c < TOY_E; c++) {
            y[r][c] = 0.0;
            for (int o = 0; o < 2 && o <= r; o++)
                y[r][c] += ((double)base[(2 * side + o) * TOY_E + c] + dyn[r][(2 * side + o) * (TOY_E / TOY_GROUP) + c / TOY_GROUP]) *
                           x[r - o][c];
        }
}

/* The rows before the output norm of a block behind n positions of context. */
static inline void toy_block(const struct toy *t, int32_t n, int32_t anchor, int32_t n_rows, double (*u)[TOY_E])
{
    struct toy_kv *kv = malloc((size_t)(n + n_rows) * sizeof *kv);
    double a[TOY_B][TOY_E], in[TOY_B][TOY_E], s[TOY_B][TOY_E], z[TOY_B][TOY_E], dyn[TOY_B][TOY_DYN];
    const bool conv = t->c.conv_kernel > 0;
    if (!kv)
        abort();
    for (int32_t r = 0; r < n_rows; r++)
        for (int i = 0; i < TOY_E; i++)
            u[r][i] = (double)t->embed[(r ? t->c.mask_id : anchor) * TOY_E + i] * (double)t->c.emb_scale;
    for (int layer = 0; layer < TOY_L; layer++) {
        const struct toy_layer *l = &t->layer[layer];
        for (int32_t p = 0; p < n; p++) {
            double x[TOY_W], c[TOY_E];
            for (int i = 0; i < TOY_W; i++)
                x[i] = (double)t->taps[p][i];
            toy_mul(t->fc, x, TOY_W, TOY_E, c);
            toy_rms(t->context_norm, c, TOY_E, c);
            toy_key_value(t, l, c, p, &kv[p]);
        }
        for (int half = 0; half < 2; half++) {
            const float *base = half ? l->ffn_base : l->attn_base;
            for (int32_t r = 0; r < n_rows; r++) {
                toy_rms(half ? l->ffn_norm : l->attn_norm, u[r], TOY_E, a[r]);
                toy_mul(half ? l->ffn_proj : l->attn_proj, a[r], TOY_E, TOY_DYN, dyn[r]);
            }
            memcpy(in, a, sizeof in);
            if (conv)
                toy_conv(base, dyn, 0, a, n_rows, in);
            for (int32_t r = 0; r < n_rows && !half; r++)
                toy_key_value(t, l, in[r], n + r, &kv[n + r]);
            for (int32_t r = 0; r < n_rows; r++) {
                double gate[TOY_FF], up[TOY_FF];
                if (!half) {
                    toy_attend(t, layer, in[r], kv, n, n_rows, r, s[r]);
                    continue;
                }
                toy_mul(l->gate, in[r], TOY_E, TOY_FF, gate);
                toy_mul(l->up, in[r], TOY_E, TOY_FF, up);
                for (int i = 0; i < TOY_FF; i++)
                    gate[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
                toy_mul(l->down, gate, TOY_FF, TOY_E, s[r]);
            }
            memcpy(z, s, sizeof z);
            if (conv)
                toy_conv(base, dyn, 1, s, n_rows, z);
            for (int32_t r = 0; r < n_rows; r++)
                for (int i = 0; i < TOY_E; i++)
                    u[r][i] += z[r][i];
        }
    }
    free(kv);
}

/* Logits and the selector's values of row r of a block. */
static inline void toy_head(const struct toy *t, const double *u, double *logits, double *sel)
{
    double y[TOY_E];
    toy_rms(t->output_norm, u, TOY_E, y);
    toy_mul(t->head, y, TOY_E, TOY_V, logits);
    toy_mul(t->sel, y, TOY_E, TOY_R, sel);
    for (int i = 0; i < TOY_V; i++) {
        logits[i] *= (double)t->c.logit_scale;
        if (t->c.softcap > 0.0f)
            logits[i] = (double)t->c.softcap * tanh(logits[i] / (double)t->c.softcap);
    }
}

#endif
