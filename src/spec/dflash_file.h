/* Drafter files of the DFlash family: what a file says, in one form for every layout that is in use, and its tensors bound for a device.
 *
 * Three variants share one backbone: a few layers without output gates whose keys and values come from rows of the target (fused from the
 * layers that the drafter taps) and from the rows of the block being drafted. DFlash2 adds a convolution around every sublayer and a
 * selector of candidates; DSpark adds a Markov head and, optionally, an estimate of acceptance.
 *
 * A file is checked completely against the target before anything of it is used: a drafter that does not fit is refused with the reason. */
#ifndef SKUA_SPEC_DFLASH_FILE_H
#define SKUA_SPEC_DFLASH_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "dev/dev.h"
#include "gguf/gguf.h"
#include "model/bind.h"
#include "model/config.h"
#include "model/weights.h"

#define DFLASH_MAX_LAYERS 64
#define DFLASH_MAX_TAPS 64
#define DFLASH_MAX_ROT 256  /* pairs of rotated values */

enum dflash_variant { DFLASH_CLASSIC, DFLASH_2, DFLASH_SPARK };

/* All sizes in elements. */
struct dflash_config {
    enum dflash_variant variant;
    int32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff;
    float rms_eps;
    int32_t n_rot;                    /* rotated values per head, at most head_dim */
    double rope_base, rope_scale;     /* rope_scale: factor of cos and sin, 1 without YaRN */
    double inv_freq[DFLASH_MAX_ROT];  /* [n_rot / 2] */

    int32_t block_size;               /* rows of the trained block, anchor included; at least 2 */
    bool anchor_first;                /* row i predicts position n + 1 + i, row 0 included (DSpark); else row i predicts position n + i and
                                         row 0 nothing */
    int32_t mask_id;                  /* a row of the embedding */
    int32_t n_taps;
    int32_t taps[DFLASH_MAX_TAPS];    /* layers of the target whose output is read, 0-based, strictly increasing */
    int32_t window[DFLASH_MAX_LAYERS]; /* [n_layer]: a row at position p sees context positions above p - window; 0: all */
    bool causal[DFLASH_MAX_LAYERS];    /* [n_layer]: a row of the block sees the rows before it only; else all of the block */

    float emb_scale;                  /* factor of the block's embedding rows; 1 when the file has none */
    float logit_scale;                /* factor of the logits; 1 when the file has none */
    float softcap;                    /* then softcap * tanh(logit / softcap); 0: none */

    int32_t conv_kernel, conv_group;  /* DFlash2: taps, and channels per group, a divisor of n_embd; else 0 */
    int32_t selector_rank, selector_top_k; /* DFlash2; else 0 */
    int32_t markov_rank;              /* DSpark; else 0 */
    bool confidence;                  /* DSpark: with a confidence head */
};

/* Most drafts that one block gives. */
int32_t dflash_max_drafts(const struct dflash_config *c);

struct dflash_block_weights {
    struct kern_view attn_norm, ffn_norm;   /* [n_embd] */
    struct kern_view q_norm, k_norm;        /* [head_dim] */
    struct kern_weight attn_q;              /* n_embd -> n_head * head_dim, head h at h * head_dim: no gate */
    struct kern_weight attn_k, attn_v;      /* n_embd -> n_head_kv * head_dim; for rows of the block and of the context */
    struct kern_weight attn_output;         /* n_head * head_dim -> n_embd */
    struct kern_weight ffn_gate, ffn_up, ffn_down;
    /* DFlash2: taps [2][conv_kernel][n_embd], floats (0 before, 1 behind the sublayer), and what is added to them per row and group:
       n_embd -> [2][conv_kernel][n_embd / conv_group] */
    struct kern_view attn_conv_base, ffn_conv_base;
    struct kern_weight attn_conv_proj, ffn_conv_proj;
};

struct dflash_weights {
    struct kern_weight fc;              /* n_taps * n_embd -> n_embd */
    struct kern_view context_norm;      /* [n_embd], behind fc */
    struct kern_view output_norm;       /* [n_embd] */
    struct dflash_block_weights *blocks; /* [n_layer] */
    struct kern_weight selector_hidden; /* DFlash2: n_embd -> selector_rank */
    struct kern_weight selector_pred, selector_succ; /* codebooks, a row of selector_rank values per token of the target */
    struct kern_weight markov_w1;       /* DSpark: a row of markov_rank values per token of the target */
    struct kern_weight markov_w2;       /* markov_rank -> head.n_out */
    struct kern_weight conf_proj;       /* DSpark with confidence: n_embd + markov_rank -> 1; n_out 0: none */
    float conf_bias;

    /* The target's, or the file's own. Row i of the head gives the logit of token head_ids[i]; head_ids NULL: of token i. allow: bitmap of
       the head's rows that may be drafted (as op_argmax's): tokens that the target may choose, and not the mask. */
    struct kern_weight embed, head;
    bool own_embed, own_head;
    int32_t *head_ids;                  /* [head.n_out], increasing unless the file maps them otherwise */
    struct kern_view allow;
};

/* The model that the file shall draft for. Everything must outlive the open drafter. */
struct dflash_target {
    const struct gguf *gguf;
    const struct model_config *config;
    const struct weights *weights;
    const uint64_t *samplable;          /* bitmap of the tokens that may be chosen, (n_vocab + 63) / 64 words */
};

enum dflash_numbering { /* how a file numbers the layers it taps */
    DFLASH_NUMBERING_AUTO,   /* as its layout has it */
    DFLASH_NUMBERING_INPUT,  /* number l + 1 is the output of layer l, the input of the layer behind it */
    DFLASH_NUMBERING_OUTPUT  /* number l is the output of layer l */
};

struct dflash_options {
    enum dflash_numbering numbering;
    int causal;                /* 1, 0: for all layers, whatever the file says; -1: as the file says */
    const char *head_ids_path; /* text: ids of the tokens that may be drafted, separated by white space, '#' begins a comment. The head has
                                  only these rows then. NULL: all */
};
#define DFLASH_DEFAULTS (struct dflash_options){DFLASH_NUMBERING_AUTO, -1, NULL}

struct dflash_file {
    struct dflash_config config;
    struct dflash_weights weights;
    char summary[320];          /* for people: "dflash2 (tiny-dflash2-bf16.gguf): convolution, selector of 8, block of 8, ..." */
    struct strbuf warnings;     /* one line each; empty when there is nothing to say */
    size_t bytes;               /* memory of its own, besides the mapped file */

    struct dev *dev;
    struct gguf *gguf;
    struct bound_file file;
    struct kern_buf *own;       /* the allow bitmap and gathered rows of the head */
};

/* Is g a drafter of this family, by its architecture? Then also the variant that its keys and tensors announce. variant may be NULL. */
bool dflash_file_is(const struct gguf *g, enum dflash_variant *variant);

/* Open path as a drafter for t on device d. 0, or an error that names file, key or tensor, what was found and what was expected, with
   *out NULL and nothing left open: SKUA_EFORMAT for damaged or contradictory files, SKUA_EUNSUPPORTED for files that are sound but cannot
   draft for this target or need what this program does not do, SKUA_EIO, SKUA_ENOMEM. */
int  dflash_file_open(struct dflash_file **out, const char *path, const struct dflash_target *t, const struct dflash_options *o,
                      struct dev *d, skua_error *err);
void dflash_file_close(struct dflash_file *f); /* NULL allowed */

#endif
