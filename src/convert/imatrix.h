/* Importance matrix files: for each weight tensor the mean squared input of every column, measured on a text. Quantizers weigh
   the errors of a column with it.

   Two public formats are read, told apart by their first bytes: GGUF with general.type "imatrix", and the older binary format
   (docs/formats.md). Only GGUF is written. */
#ifndef SKUA_CONVERT_IMATRIX_H
#define SKUA_CONVERT_IMATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- reading ---- */

struct imatrix; /* an open file; read-only, so several threads may use it */

struct imatrix_entry {
    const char *name;     /* of the weight tensor: "blk.3.ffn_down.weight"; terminated */
    int64_t columns;      /* row length of the tensor; the older format does not tell: columns times experts */
    int64_t matrices;     /* experts; 1 for plain matrices, and always in the older format */
    const float *weights; /* [matrices][columns], finite and >= 0; 1 for an expert that saw no rows */
    const double *counts; /* [matrices]: input rows seen; the older format does not tell: its calls */
    const float *sums;    /* [matrices][columns] sums of squares as stored; NULL for the older format */
};

/* Read and check all of a file. SKUA_EIO, SKUA_EFORMAT (names file, entry and what was expected), SKUA_ENOMEM. */
int imatrix_open(struct imatrix **out, const char *path, skua_error *err);
/* The same for size bytes at data, aligned to 8 and unchanged until imatrix_free. label stands for the file name in messages. */
int imatrix_parse_memory(struct imatrix **out, const uint8_t *data, size_t size, const char *label, skua_error *err);
void imatrix_free(struct imatrix *m); /* NULL allowed */

/* The entry of a tensor by its name (len bytes), or NULL. */
const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name, size_t len);
uint32_t imatrix_count(const struct imatrix *m);
const struct imatrix_entry *imatrix_at(const struct imatrix *m, uint32_t i); /* in file order; NULL past the end */

/* The weights [matrices][columns] of a tensor of that shape; NULL when the file has none for that name. SKUA_EFORMAT when it has an
   entry of another shape: the file was made with another model. */
int imatrix_weights(const struct imatrix *m, const char *name, size_t len, int64_t columns, int64_t matrices, const float **weights,
                    skua_error *err);

/* Provenance: chunks that were evaluated (0: not told), tokens per chunk (0: not told), the first data set's name ("": not told), the
   hash of the tokens evaluated (0: not told). */
uint32_t imatrix_chunks(const struct imatrix *m);
uint32_t imatrix_chunk_size(const struct imatrix *m);
const char *imatrix_dataset(const struct imatrix *m);
uint64_t imatrix_tokens_hash(const struct imatrix *m);

/* ---- writing ---- */

struct imatrix_sums {
    const char *name;    /* of the weight tensor; at most IMATRIX_MAX_NAME_BYTES */
    int64_t columns, matrices;
    const float *sums;   /* [matrices][columns] sums of squares */
    const float *counts; /* [matrices] rows */
};
#define IMATRIX_MAX_NAME_BYTES 55 /* a suffix makes it a tensor name */

struct imatrix_source {
    uint32_t chunks, chunk_size;
    const char *dataset;
    uint64_t tokens_hash; /* of the ids of all tokens evaluated; 0: left out */
};

/* Write a file, which appears under its name when it is complete. SKUA_EARG for what the format does not allow, SKUA_EIO, SKUA_ENOMEM. */
int imatrix_write(const char *path, const struct imatrix_sums *entries, uint32_t n_entries, const struct imatrix_source *source,
                  skua_error *err);

#endif
