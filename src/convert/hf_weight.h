/* The tensors of a checkpoint under one spelling of their names, and weights in any of the ways in which checkpoints store them: as
 * numbers, or packed with scales beside them.
 *
 * Names here are without the prefixes "model." and "language_model." that checkpoints put in front: "layers.0.mlp.up_proj.weight",
 * "embed_tokens.weight", "mtp.fc.weight".
 */
#ifndef SKUA_CONVERT_HF_WEIGHT_H
#define SKUA_CONVERT_HF_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hashmap.h"
#include "convert/hf_config.h"
#include "gguf/safetensors.h"

struct hf_source {
    struct safetensors *st;
    const struct hf_config *config; /* the caller's */
    char **names;           /* [tensor of st]; NULL for those of a vision or audio tower */
    bool *used;             /* [tensor of st] */
    struct hashmap index;   /* name -> tensor */
    uint32_t n_left_out;    /* tensors of vision and audio towers */
    uint64_t bytes_left_out;
};

/* Open the checkpoint in dir. Errors as of safetensors_open; SKUA_EFORMAT when two tensors get the same name. */
int hf_source_open(struct hf_source *s, const char *dir, const struct hf_config *config, st_warn_fn *warn, void *context, skua_error *err);
void hf_source_close(struct hf_source *s); /* zeroed allowed */
/* The tensor, or NULL; with use it counts as needed. */
const struct st_tensor *hf_source_find(struct hf_source *s, const char *name, bool use);

enum hf_encoding {
    HF_PLAIN,  /* F32, F16, BF16, F64 */
    HF_FP8,    /* E4M3 bytes, a scale for each block or one for all */
    HF_NVFP4,  /* 4-bit floats, an E4M3 scale per 16, a factor per matrix */
    HF_AFFINE, /* 2-, 4- or 8-bit codes, a scale and a bias per group */
};

/* A stack of matrices, [matrices][rows][cols]; a vector is one row. */
struct hf_weight {
    enum hf_encoding encoding;
    const struct st_tensor *data, *scales, *biases, *factor, *input_scale; /* NULL: there is none */
    uint64_t matrices, rows, cols;
    uint32_t bits, group;            /* HF_AFFINE */
    uint64_t block_rows, block_cols; /* HF_FP8; the whole matrix for one scale */
    int packed;                      /* the GGUF type that holds the same codes and scales, or -1 */
};

/* Find a weight and check dtype and shape of all its parts (sizes of 1 do not count). SKUA_EFORMAT when it is missing or differs from
   what is expected; SKUA_EUNSUPPORTED for a packing that is not known. */
int hf_weight_bind(struct hf_weight *w, struct hf_source *s, const char *name, uint64_t matrices, uint64_t rows, uint64_t cols,
                   skua_error *err);

/* out[0 .. cols-1] = the row's values; of HF_NVFP4 with the factor. */
void hf_weight_row(const struct hf_weight *w, uint64_t matrix, uint64_t row, float *out);
/* The row as blocks of type w->packed, without the factor. */
void hf_weight_pack(const struct hf_weight *w, uint64_t matrix, uint64_t row, uint8_t *out);
/* Element i of a small tensor of numbers (F32, F16, BF16, F64), as a float. */
float hf_scalar(const struct st_tensor *t, uint64_t i);

#endif
