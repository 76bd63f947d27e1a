/* Sampling parameters: one struct, its ranges, and the names used in messages and reports. Ranges are those of the HTTP
   API, so that the command line, the library and the server refuse the same values. */
#ifndef SKUA_SAMPLE_PARAMS_H
#define SKUA_SAMPLE_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h" /* skua_sampling is part of skua.h */

#define SAMPLER_MAX_BIAS 2048 /* entries of logit_bias */
#define SAMPLER_BIAS_LIMIT 100.0 /* -100 bans a token, +100 forces it */

enum sampler_field {
    SAMPLER_TEMPERATURE,
    SAMPLER_TOP_K,
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_REPETITION_PENALTY,
    SAMPLER_PRESENCE_PENALTY,
    SAMPLER_FREQUENCY_PENALTY,
    SAMPLER_PENALTY_LAST_N,
    SAMPLER_SEED,
    SAMPLER_FIELD_COUNT
};

const char *sampler_field_name(enum sampler_field f); /* "temperature", ... */
/* The GGUF metadata key that holds the model author's value, or NULL when there is none for this field. */
const char *sampler_field_key(enum sampler_field f);
const char *sampler_field_expected(enum sampler_field f); /* "a number from 0 to 2": for messages */
/* The value as a number (the seed loses precision above 2^53). */
double sampler_field_value(const skua_sampling *p, enum sampler_field f);
void   sampler_field_copy(skua_sampling *dst, const skua_sampling *src, enum sampler_field f);

/* 0, or SKUA_EARG naming the field, its value and its range. The second checks all fields and the bias list against a
   vocabulary of n_vocab tokens (ids in range, no id twice). */
int sampler_field_check(const skua_sampling *p, enum sampler_field f, skua_error *err);
int sampler_params_check(const skua_sampling *p, int n_vocab, skua_error *err);

#endif
