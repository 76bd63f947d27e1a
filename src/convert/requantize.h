/* A GGUF file with its tensors in other types: planned first (which tensor becomes what, how large the file will be), then written.

   Memory: the input is mapped, and what has been read of it is given back; besides, a few bytes per tensor, one slice of rows in work,
   and the importance weights of one tensor. The output does not depend on the number of threads.

   NVFP4 is written with a factor per matrix, the tensor NAME.scale behind NAME.weight, except for token_embd, whose rows are read by
   programs that know no factor. A tensor that changes its type loses the companions NAME.scale (it is multiplied in) and
   NAME.input_scale. */
#ifndef SKUA_CONVERT_REQUANTIZE_H
#define SKUA_CONVERT_REQUANTIZE_H

#include "convert/imatrix.h"
#include "convert/recipe.h"
#include "convert/stream.h"
#include "quant/quant.h"

struct requantize_options {
    const struct recipe *recipe;
    const struct recipe_overrides *overrides; /* NULL: none */
    const struct imatrix *imatrix;            /* NULL: none */
    const char *imatrix_path;                 /* its name, for messages and the key quantize.imatrix.file */
    const struct quant_tier *tier;            /* quantizers to use; all write the same. NULL: the fastest */
    bool pure;
    bool allow_requantize; /* of tensors that are quantized already, to another quantized type */
    bool measure;          /* errors of every tensor */
};

struct requantize_item { /* a tensor of the output */
    char name[GGUF_MAX_NAME_BYTES + 1];
    uint64_t ne[GGUF_MAX_DIMS];
    uint32_t n_dims;
    uint32_t from, to, wanted;     /* types; wanted: before a fallback */
    enum recipe_reason reason;
    bool added;                    /* a factor that the input does not have; from = to */
    int override;                  /* see recipe.h */
    uint64_t elements, bytes_before, bytes;
    /* after requantize_write, where the type changed and errors were asked for */
    bool measured, weighted;       /* weighted: there are importance weights */
    double rmse;                   /* root of the mean squared error */
    double relative;               /* root of the sum of squared errors over that of squares of the values */
    double weighted_relative;      /* the same with every square times its importance weight */
};

struct requantize_report {
    const struct requantize_item *items;
    uint32_t n_items;
    uint64_t elements;             /* of all tensors but factors that were added */
    uint64_t bytes_before, bytes;  /* of tensor data, without padding */
    uint64_t file_bytes_before, file_bytes; /* file_bytes: exact, also before writing */
    uint32_t n_changed;            /* tensors of another type than before */
    uint32_t n_requantized;        /* of these, from one quantized type to another */
    uint32_t n_without_weights;    /* of the changed ones, those that the importance matrix, if there is one, does not have */
    const char *without_weights;   /* the first of them */
};

struct requantize;

/* Open a file (or set of shards) and decide everything. Refused, besides what opening refuses: SKUA_EARG for what the options say
   (requantizing without leave, a type that needs importance weights without any), SKUA_EFORMAT for an importance matrix of another model,
   SKUA_EUNSUPPORTED for a source type that cannot be read. *o is copied; what it points to must stay until requantize_free. */
int requantize_plan(struct requantize **out, const char *path, const struct requantize_options *o, skua_error *err);
const struct requantize_report *requantize_report(const struct requantize *r);

/* Write the planned file, once. The file is there when it is complete, or not at all. SKUA_ECANCELED when s->stop said so. s->total is set
   here. */
int requantize_write(struct requantize *r, const char *path, int n_threads, struct stream *s, skua_error *err);
void requantize_free(struct requantize *r); /* NULL allowed */

#endif
