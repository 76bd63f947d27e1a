/* The rows of one tensor from one type to another, spread over threads, in slices that are written as they become ready. */
#ifndef SKUA_CONVERT_REQUANTIZE_ROWS_H
#define SKUA_CONVERT_REQUANTIZE_ROWS_H

#include "base/pool.h"
#include "convert/stream.h"
#include "quant/quant.h"

struct rows_job {
    const struct gguf_tensor *source; /* in a mapped file */
    uint32_t type;         /* of the result */
    const struct quant_tier *tier; /* quantizers to use */
    /* each per matrix (of a stack of experts; one for a plain matrix), or NULL */
    const float *factors;  /* the source's values are multiplied by these */
    const float *divisors; /* and divided by these before they are quantized */
    const float *weights;  /* [matrices][row length] importance weights, none 0 */
    bool measure;
};

/* Sums over all elements: squared errors, squared values, and both times the importance weight. */
struct rows_sums {
    double error, value, weighted_error, weighted_value;
};

/* 1 for a plain matrix, the experts of a stack. */
uint64_t rows_matrices(const struct gguf_tensor *t);

/* amax[m] = the largest magnitude of matrix m, after the factors. SKUA_EFORMAT names the first element that is not finite. */
int rows_largest(struct pool *p, const struct rows_job *job, float *amax, const struct stream *s, const char *path, skua_error *err);

/* Quantize all rows and write them as the data of `name`. The bytes and *sums (filled when job->measure is set) do not depend on the
   number of threads. SKUA_EFORMAT or SKUA_EARG with tensor and row for values that are not finite or too large for the type. */
int rows_quantize(struct pool *p, const struct rows_job *job, struct gguf_writer *w, const char *name, struct rows_sums *sums,
                  struct stream *s, const char *path, skua_error *err);

#endif
