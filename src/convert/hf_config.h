/* config.json of a checkpoint: which architecture, and its hyperparameters, checked. All sizes are in elements. */
#ifndef SKUA_CONVERT_HF_CONFIG_H
#define SKUA_CONVERT_HF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "gguf/gguf_write.h"

#define HF_MAX_LAYERS 1000
#define HF_MAX_TAPS 16

enum hf_kind { HF_TARGET, HF_DFLASH, HF_DFLASH2, HF_DSPARK }; /* a language model, or a drafter */

enum hf_quant { HF_QUANT_NONE, HF_QUANT_FP8, HF_QUANT_MODELOPT, HF_QUANT_MLX };

struct hf_config {
    enum hf_kind kind;
    const char *arch;         /* of the GGUF file: "qwen35", "qwen35moe", "dflash" */
    bool moe;
    int32_t n_layer;          /* trunk layers */
    int32_t n_mtp;            /* MTP blocks announced, 0 or 1; -1: not said */
    int32_t n_vocab, n_ctx, n_embd, n_ff;
    bool tied;                /* the token embedding is the output head */
    float rms_eps;

    int32_t n_head, n_head_kv, head_dim, n_rot;
    float rope_theta;
    int32_t sections[4];
    const char *rope_scaling; /* "linear", "yarn", or NULL */
    float rope_factor;
    int32_t rope_original_ctx; /* 0: not given */

    int32_t conv_kernel, d_state, n_k_head, n_v_head; /* Gated DeltaNet; d_state: key and value head size */
    int32_t interval;                                 /* every interval-th layer is full attention */
    bool irregular;                                   /* recurrent[] does not follow the interval */
    bool recurrent[HF_MAX_LAYERS];
    int32_t n_expert, n_expert_used, n_ff_expert, n_ff_shared;

    /* drafters */
    int32_t block_size, mask_id;                      /* mask_id -1: not given */
    int32_t taps[HF_MAX_TAPS], n_taps;                /* target layers whose output is read, from 0 */
    int32_t n_target_layers;                          /* 0: not given */
    int32_t window;                                   /* of sliding layers; 0: there are none */
    bool sliding[HF_MAX_LAYERS];
    int causal;                                       /* 0, 1, or -1: not given */
    float emb_scale, logit_scale, softcap;            /* 0: not given */
    int32_t kernel_size, group_size, selector_rank, selector_top_k; /* DFlash2 */
    int32_t markov_rank;                              /* DSpark */
    int sample_from_anchor;                           /* 0, 1, or -1: not given */

    int32_t eos_id, bos_id, pad_id; /* -1: not given */

    enum hf_quant quant;
    int32_t fp8_rows, fp8_cols; /* block of one FP8 scale; 0: one scale per tensor */
};

/* Read dir/config.json. SKUA_EIO, SKUA_EFORMAT (missing fields, values out of range), SKUA_EUNSUPPORTED (another architecture or
   quantization: names what is supported), SKUA_ENOMEM. */
int hf_config_load(struct hf_config *c, const char *dir, skua_error *err);

/* Add the architecture's keys to a file; n_mtp: MTP blocks that the file will have. */
int hf_config_write(const struct hf_config *c, int32_t n_mtp, struct gguf_writer *w, skua_error *err);

#endif
