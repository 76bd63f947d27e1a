/* Binding of a model's tensors (model/bind.h). Tensor names and shapes: the GGUF conventions for qwen35 and qwen35moe
 * (docs/CREDITS.md). */
#ifndef SKUA_MODEL_WEIGHTS_H
#define SKUA_MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "dev/dev.h"
#include "gguf/gguf.h"
#include "model/bind.h"
#include "model/config.h"

/* Feed-forward part of a block. Dense: gate, up, down. MoE: router and experts (gate_up_exps, when its n_out is not 0, instead
   of gate_exps and up_exps), and the shared expert. */
struct ffn_weights {
    struct kern_weight gate, up, down;
    struct kern_weight router, gate_exps, up_exps, gate_up_exps, down_exps;
    struct kern_weight shared_gate, shared_up, shared_down, shared_gate_inp;
};

struct block_weights {
    bool recurrent;
    struct kern_view attn_norm, post_norm;
    struct kern_weight attn_q, attn_k, attn_v, attn_output; /* full attention */
    struct kern_view q_norm, k_norm;
    struct kern_weight qkv, gate, alpha, beta, ssm_out;     /* Gated DeltaNet */
    struct kern_view conv, dt_bias, ssm_a, ssm_norm;
    struct ffn_weights ffn;
    size_t s_offset, conv_offset; /* bytes in a sequence's state */
    size_t tape_conv_offset, tape_step_offset; /* bytes in what is kept of a held row */
    size_t k_offset, v_offset;    /* bytes in a KV page, filled by weights_layout_kv */
};

/* An MTP block. Its k_offset and v_offset are those of pages that hold nothing else. */
struct mtp_weights {
    bool present;
    struct block_weights block;
    struct kern_weight eh_proj;        /* [e ; h] -> n_embd; n_out 0: the sum of the two below */
    struct kern_weight e_proj, h_proj;
    struct kern_weight embed, head;    /* fall back to the trunk's */
    struct kern_view enorm, hnorm, head_norm;
    const int32_t *ids;                /* [head.n_out] the tokens of a head that has not all of them, -1: none; NULL: column i is token i */
    struct kern_view allow;            /* with ids: bitmap of the columns that may be chosen, as op_argmax's */
};

struct weights {
    struct kern_weight embed, head; /* head = embed when tied */
    bool tied;
    struct kern_view output_norm;
    struct block_weights *blocks;   /* [n_layer] */
    struct mtp_weights mtp;

    struct bound_file file;
    struct strbuf warnings;         /* one line each; empty when there is nothing to say */
};

/* 0, or an error that names the tensor, what it is and what was expected. On failure *w holds nothing. The views point into g,
   which must stay open. */
int  weights_bind(const struct gguf *g, const struct model_config *c, struct dev *d, struct weights *w, skua_error *err);
void weights_free(struct weights *w, struct dev *d);

/* Fill k_offset and v_offset of all attention blocks, and of the MTP block in its own pages, for cache rows of kv_type. */
void weights_layout_kv(struct weights *w, const struct model_config *c, uint32_t kv_type);
void weights_layout_mtp(struct mtp_weights *m, const struct model_config *c, uint32_t kv_type);

/* Bind the MTP block (block c->n_layer) of b's file, which may be another than the trunk's. Of trunk only what the block may leave out is
   looked at: embed, head, output_norm. Failures are b's. */
void weights_bind_mtp(struct binder *b, const struct model_config *c, const struct weights *trunk, struct mtp_weights *m);

#endif
