/* Binding the tensors of a file to the places where a forward pass uses them. Matrices stay in the mapped file; only small
 * vectors that the file keeps as F16 or BF16 are widened into a buffer of our own. Every tensor's shape is checked, and every type
 * against what the device can multiply. A device that tiles (dev.tiling) gets the matrices that fit in its own layout. The first
 * failure is kept and later calls do nothing, so that a caller checks once; it names the tensor, what it is and what was expected. */
#ifndef SKUA_MODEL_BIND_H
#define SKUA_MODEL_BIND_H

#include <stdint.h>

#include "dev/dev.h"
#include "gguf/gguf.h"

/* A file on a device. */
struct bound_file {
    struct kern_buf **shards; /* one wrapped buffer per file */
    uint32_t n_shards;
    struct kern_buf *vectors; /* widened small vectors */
    size_t vectors_used;      /* bytes */
    struct kern_buf **tiles;  /* matrices in the device's own layout */
    uint32_t n_tiles;
};

struct binder {
    const struct gguf *g;
    struct dev *dev;
    struct bound_file *file;
    skua_error *err;
    int rc;          /* first failure, or 0 */
    bool tiling;     /* from dev.tiling at bind_open; the caller's to switch off for matrices that may never be multiplied */
    uint32_t n_used; /* tensors bound */
};

/* Fill *b->file: wrap the file's maps (it must stay open) and make room for vector_bytes (at least 1) of widened vectors. rc. What it holds
   is the caller's also after a failure. */
int  bind_open(struct binder *b, size_t vector_bytes);
void bound_file_free(struct bound_file *f, struct dev *d); /* zeroed allowed */
size_t bound_file_tiled_bytes(const struct bound_file *f);

/* Tensors are named blk.BLOCK.ROLE, or ROLE when block is negative. NULL when there is none. */
const struct gguf_tensor *bind_find(const struct binder *b, int block, const char *role);

/* The tensor, or NULL with an error when it is missing or does not have the shape [ne0, ne1, ne2]. */
const struct gguf_tensor *bind_require(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, int64_t ne2);

/* Where its data lies on the device. */
struct kern_view bind_view(const struct binder *b, const struct gguf_tensor *t);

/* A weight matrix of n_out rows of n_in values, times n_expert: one that rows are looked up in, and one that is multiplied. */
void bind_lookup(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, int64_t n_expert, struct kern_weight *w);
void bind_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, int64_t n_expert, struct kern_weight *w);

/* Tile *w, bound from tensor t, if the device tiles and it fits. The file's pages of it leave memory. bind_matrix has done so already. */
void bind_tiles(struct binder *b, const struct gguf_tensor *t, struct kern_weight *w);

/* A matrix that is never quantised: the router, whose choice of experts a rounding would change, and the shared expert's gate. */
void bind_float_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, struct kern_weight *w);

/* A small float32 table (norm weights, biases, convolution taps): used in place when it is F32, widened when F16 or BF16. */
void bind_table(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, int64_t ne2, struct kern_view *v);
void bind_vector(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, struct kern_view *v);

#endif
