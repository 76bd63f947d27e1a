/* Default sampling parameters, and where each came from. An explicit value of the user wins, then the value in the model file
   (general.sampling.*, the author's choice), then the family's published value, then the neutral value of this program.

   Family values, from the Qwen3.5, 3.6 and 3.8 model cards and their generation configs:
     thinking:      temperature 1.0, top_p 0.95, top_k 20, min_p 0, repetition 1
     non-thinking:  temperature 0.7, top_p 0.80, top_k 20, min_p 0, repetition 1
   The cards disagree on the presence penalty (1.5 for most Qwen3.5 uses and Qwen3.6-35B-A3B, 0 for Qwen3.6-27B, Qwen3.8-27B and
   all code work) and a file does not say which one it is. It is 0 here, as in the HTTP API's defaults: a penalty on every
   token already used spoils code, tables and tool calls, and whoever wants it can say so. */
#ifndef SKUA_SAMPLE_DEFAULTS_H
#define SKUA_SAMPLE_DEFAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "sample/params.h"

enum sampler_source { SAMPLER_SOURCE_BUILTIN, SAMPLER_SOURCE_FAMILY, SAMPLER_SOURCE_FILE, SAMPLER_SOURCE_USER };

const char *sampler_source_name(enum sampler_source s); /* "builtin", "family", "file", "user" */

/* Some fields of a parameter set: those whose bit (1u << enum sampler_field) is set in given. */
struct sampler_partial {
    uint32_t given;
    skua_sampling value;
};

struct sampler_settings {
    skua_sampling params;
    enum sampler_source source[SAMPLER_FIELD_COUNT];
};

/* Combine the sources; file and user may be NULL. The bias list is the user's (borrowed). SKUA_EARG when a resulting value is out
   of range: the message says the field, the value, the range and the source. A bad value that a better source overrides is
   no error. */
int sampler_resolve(struct sampler_settings *out, bool thinking, const struct sampler_partial *file,
                    const struct sampler_partial *user, int n_vocab, skua_error *err);

#endif
