/* Recipes: which type every tensor of a model is quantized to. Pure: names, shapes and a few facts in, types and reasons out.

   A recipe has a default type and exceptions by the role of a tensor and its layer (docs/formats.md, "Quantizing"). For every tensor
   the first of these decides:
     - what must not be quantized keeps its type: vectors, norms, routers, convolution taps, whatever does not end in "weight";
     - the first override whose expression is found in the name;
     - the recipe's exceptions, then its default;
   and a row length that does not fit the blocks of the type leads to a fallback type. */
#ifndef SKUA_CONVERT_RECIPE_H
#define SKUA_CONVERT_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct recipe; /* constant */

/* By name in any letter case, or NULL. Recipes by number, in the order of help texts; NULL past the last. */
const struct recipe *recipe_find(const char *name);
const struct recipe *recipe_at(size_t i);
const char *recipe_name(const struct recipe *r);
/* The value of general.file_type, or -1 where the format has no number for such a file. */
int recipe_file_type(const struct recipe *r);
/* COPY: nothing changes but what overrides say. */
bool recipe_copies(const struct recipe *r);

/* ---- overrides ---- */

struct recipe_override;
struct recipe_overrides { /* zeroed: none */
    struct recipe_override *items;
    size_t n;
};
/* Add "REGEX=TYPE": a POSIX extended regular expression, and behind the last '=' the name of a type, or COPY (the tensor keeps the
   type it has). SKUA_EARG says what is wrong with it. */
int recipe_overrides_add(struct recipe_overrides *o, const char *text, skua_error *err);
const char *recipe_overrides_text(const struct recipe_overrides *o, size_t i); /* the text it was added with */
void recipe_overrides_free(struct recipe_overrides *o);

/* ---- choosing ---- */

struct recipe_tensor {
    const char *name;  /* terminated */
    uint64_t ne[4];    /* ne[0] is the row length; unused dimensions are 1 */
    uint32_t type;     /* now */
};

struct recipe_model {
    const struct recipe_tensor *tensors;
    uint32_t n_tensors;
    uint32_t n_blocks; /* MTP blocks included */
    uint32_t n_mtp_blocks;
    bool has_imatrix;
};

enum recipe_reason {
    RECIPE_KEPT,     /* never quantized, or COPY */
    RECIPE_DEFAULT,  /* the recipe's default type */
    RECIPE_RULE,     /* an exception of the recipe */
    RECIPE_OVERRIDE,
    RECIPE_FALLBACK, /* the wanted type does not fit the row length */
    RECIPE_REASONS
};
const char *recipe_reason_name(enum recipe_reason r); /* "kept", "default", ... */

struct recipe_choice {
    uint32_t type;
    uint32_t wanted;      /* before the fallback; = type without one */
    enum recipe_reason reason;
    bool needs_imatrix;   /* the type gives nothing usable without importance weights of the tensor */
    int override;         /* number of the first one found in the name, -1 for none; also set where a tensor must keep its type */
};

/* Fill choices[0 .. n_tensors - 1], in the order of m->tensors. o may be NULL. pure: the default type for all that may be quantized,
   no exceptions. SKUA_EARG when a row length fits neither a type nor a fallback; SKUA_ENOMEM. */
int recipe_choose(const struct recipe *r, const struct recipe_overrides *o, bool pure, const struct recipe_model *m,
                  struct recipe_choice *choices, skua_error *err);

/* MORE(i, n) of the mixtures "M": the first and last eighth of n layers, and every third between. */
bool recipe_more_bits(uint32_t i, uint32_t n);

#endif
