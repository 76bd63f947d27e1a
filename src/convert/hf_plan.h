/* Which tensors a GGUF file gets from a checkpoint, in order, and how each is made. */
#ifndef SKUA_CONVERT_HF_PLAN_H
#define SKUA_CONVERT_HF_PLAN_H

#include "convert/hf_weight.h"
#include "gguf/gguf.h"

/* Which row of the source a row of the output comes from. Value heads are grouped by key head in a checkpoint (head k*r + j belongs to
   key head k, r = value heads per key head) and tiled in a file (head j*nK + k). */
enum hf_rows {
    HF_ROWS_PLAIN,     /* row_first + row */
    HF_ROWS_V,         /* units of unit rows are value heads */
    HF_ROWS_QKV,       /* the same behind the rows of all queries and keys */
    HF_ROWS_QKVZ_QKV,  /* fused q, k, v, z per key head: the rows of q, k, v */
    HF_ROWS_QKVZ_Z,    /* ... of z */
    HF_ROWS_BA_B,      /* fused b, a per key head: the rows of b */
    HF_ROWS_BA_A,      /* ... of a */
};

enum hf_value { HF_AS_IS, HF_PLUS_ONE, HF_MINUS_EXP };
enum hf_part { HF_DATA, HF_FACTOR, HF_INPUT_SCALE }; /* of an NVFP4 weight: blocks, or what goes beside them */

struct hf_output {
    char name[GGUF_MAX_NAME_BYTES + 1];
    uint32_t type, n_dims;
    uint64_t ne[3];                /* row length, rows, matrices */
    uint32_t weight, n_weights;    /* in the plan: one, or one for each matrix */
    enum hf_rows rows;
    uint64_t unit;                 /* rows of one value head, HF_ROWS_V */
    uint64_t row_first;            /* HF_ROWS_PLAIN */
    uint64_t col_unit;             /* columns are value heads of this many elements; 0: they are not */
    enum hf_value value;
    enum hf_part part;
    bool packed;                   /* blocks are taken over as they are */
};

enum hf_mtp { HF_MTP_KEEP, HF_MTP_NONE, HF_MTP_ONLY };

struct hf_plan {
    const struct hf_config *config; /* the caller's */
    struct hf_output *outputs;
    struct hf_weight *weights;
    uint32_t n_outputs, n_weights;
    size_t cap_outputs, cap_weights;
    int32_t n_mtp;                  /* MTP blocks in the file */
    uint32_t n_fallback;            /* tensors whose rows do not fit the wanted type: F16 */
};

/* type: F32, F16, BF16 or Q8_0, for what is not always F32; unpack: do not keep packed weights. Everything of the checkpoint that is
   needed is bound and checked. Errors as of hf_weight_bind; SKUA_EARG for an MTP sidecar of a checkpoint without MTP. */
int hf_plan_make(struct hf_plan *p, struct hf_source *s, uint32_t type, enum hf_mtp mtp, bool unpack, skua_error *err);
void hf_plan_free(struct hf_plan *p); /* zeroed allowed */

/* The row of the source for row `row` of an output. */
uint64_t hf_source_row(const struct hf_config *c, const struct hf_output *o, uint64_t row);
/* The value head in the checkpoint's order that is head v in the file's. */
uint64_t hf_source_head(const struct hf_config *c, uint64_t v);

#endif
