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

struct mtp_weights {
    bool present;
    struct block_weights block;
    struct kern_weight eh_proj, embed, head; /* embed and head fall back to the trunk's */
    struct kern_view enorm, hnorm, head_norm;
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

/* Fill k_offset and v_offset of all attention blocks (and the MTP block, which comes last) for cache rows of kv_type. */
void weights_layout_kv(struct weights *w, const struct model_config *c, uint32_t kv_type);

#endif
