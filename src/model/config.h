/* The shape of a qwen35 / qwen35moe model, read from GGUF keys and checked as a whole. Formulas and key names: the GGUF keys of
 * the two architectures (docs/CREDITS.md). All sizes are in elements. */
#ifndef SKUA_MODEL_CONFIG_H
#define SKUA_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "gguf/gguf.h"

#define CONFIG_MAX_LAYERS 1024

struct model_config {
    char arch[16];            /* "qwen35" or "qwen35moe" */
    bool moe;
    int32_t n_block;          /* blocks in the file, MTP included */
    int32_t n_layer;          /* trunk layers */
    int32_t n_mtp;            /* MTP blocks announced: 0 or 1 */
    int32_t n_embd;
    int32_t n_vocab;          /* rows of the token embedding */
    int32_t n_ctx_train;
    float rms_eps;

    int32_t n_head, n_head_kv, head_dim; /* full attention */
    int32_t n_rot;                       /* rotated values per head */
    double rope_base;
    double rope_scale;                   /* 1, or YaRN's factor on cos and sin */
    double inv_freq[256];                /* [n_rot / 2], YaRN applied */

    int32_t conv_kernel;                 /* Gated DeltaNet */
    int32_t d_state;                     /* key and value head size */
    int32_t n_k_head, n_v_head;
    int32_t d_inner;                     /* n_v_head * d_state */
    int32_t n_conv_channel;              /* 2 * n_k_head * d_state + d_inner */

    int32_t n_ff;                        /* dense */
    int32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared;

    bool recurrent[CONFIG_MAX_LAYERS];   /* per block; MTP blocks are never recurrent */
    int32_t n_attn;                      /* full-attention layers of the trunk */
    int32_t n_recurrent;                 /* recurrent layers of the trunk */
};

/* Fill *c from the keys of g (n_vocab from the shape of token_embd.weight). 0; SKUA_EUNSUPPORTED for another architecture or a
   shape that this program cannot run, naming it and what is supported; SKUA_EFORMAT for missing or contradictory keys. */
int config_load(const struct gguf *g, struct model_config *c, skua_error *err);

struct key_reader;

/* The rope.* keys: n_rot, rope_base, rope_scale and inv_freq of *c, from head_dim and n_ctx_train, which are set; rope_base, if it is set,
   stands in for a missing rope.freq_base. */
void config_read_rope(struct key_reader *r, struct model_config *c);

/* Bytes of recurrent state (S and convolution windows, float32) of one sequence. */
size_t config_state_bytes(const struct model_config *c);

/* Bytes of what is kept of one held row (kern/kern.h): a record per recurrent layer, each a multiple of 64 bytes. */
size_t config_tape_row_bytes(const struct model_config *c);

/* Bytes of one page of KV cache (KV_PAGE_ROWS positions, K and V) with cache rows of kv_type: of the trunk's attention layers, and of an
   MTP block, which has pages of its own. */
size_t config_kv_page_bytes(const struct model_config *c, uint32_t kv_type);
size_t config_mtp_page_bytes(const struct model_config *c, uint32_t kv_type);

#endif
