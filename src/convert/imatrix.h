/* Importance matrix files: for each weight tensor the mean squared input of every column, measured on a text. Quantizers weigh
   the errors of a column with it.

   Two public formats are read, told apart by their first bytes: GGUF with general.type "imatrix", and the older binary format
   (spec/gguf.md section 11). Only GGUF is written. */
#ifndef SKUA_CONVERT_IMATRIX_H
#define SKUA_CONVERT_IMATRIX_H

#include <stdint.h>

#include "base/error.h"

struct imatrix; /* an open file, in memory; read-only, so several threads may use it */

struct imatrix_entry {
    const char *name;     /* of the weight tensor: "blk.3.ffn_down.weight"; terminated */
    int64_t columns;      /* row length of the tensor */
    int64_t matrices;     /* experts; 1 for plain matrices */
    const float *weights; /* [matrices][columns], finite and >= 0; 1 for an expert that saw no rows */
    const double *counts; /* [matrices]: input rows seen; the older format does not tell: its calls */
};

/* Read and check all of a file. SKUA_EIO, SKUA_EFORMAT (names file, entry and what was expected), SKUA_ENOMEM. */
int imatrix_open(struct imatrix **out, const char *path, skua_error *err);
void imatrix_free(struct imatrix *m); /* NULL allowed */

/* The entry of a tensor by its name (len bytes), or NULL. */
const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name, size_t len);
uint32_t imatrix_count(const struct imatrix *m);
const struct imatrix_entry *imatrix_at(const struct imatrix *m, uint32_t i); /* in file order; NULL past the end */

/* Provenance: chunks that were evaluated (0: not told), tokens per chunk (0: not told), the first data set's name ("": not told). */
uint32_t imatrix_chunks(const struct imatrix *m);
uint32_t imatrix_chunk_size(const struct imatrix *m);
const char *imatrix_dataset(const struct imatrix *m);

#endif
