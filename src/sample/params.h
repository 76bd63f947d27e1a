/* Sampling parameters: one struct, its ranges, and the names used in messages and reports. Ranges are those of the HTTP
   API, so that the command line, the library and the server refuse the same values. */
#ifndef SKUA_SAMPLE_PARAMS_H
#define SKUA_SAMPLE_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define SAMPLER_MAX_BIAS 2048 /* entries of logit_bias */
#define SAMPLER_BIAS_LIMIT 100.0 /* -100 bans a token, +100 forces it */

struct logit_bias {
    int32_t id;
    float bias; /* -100..100, added to the logit; exactly -100 bans, exactly 100 forces (sampler.h) */
};

struct sampler_params {
    double temperature;        /* 0..2; 0 = greedy */
    int32_t top_k;             /* keep the k best; 0 or -1 = off */
    double top_p;              /* 0..1: keep the fewest best tokens whose probabilities reach it; 1 = off, 0 keeps one */
    double min_p;              /* 0..1: drop tokens less likely than min_p times the best one; 0 = off */
    double repetition_penalty; /* above 0, up to 2; over prompt and generated tokens in the window; 1 = off */
    double presence_penalty;   /* -2..2, once per distinct generated token */
    double frequency_penalty;  /* -2..2, times the number of occurrences among the generated tokens */
    int32_t penalty_last_n;    /* window of repetition_penalty, in tokens from the end; 0 = off, -1 = everything */
    uint64_t seed;
    const struct logit_bias *bias; /* the caller's; may be NULL when n_bias is 0 */
    size_t n_bias;
};

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
/* The value as a number (the seed loses precision above 2^53). */
double sampler_field_value(const struct sampler_params *p, enum sampler_field f);
void   sampler_field_copy(struct sampler_params *dst, const struct sampler_params *src, enum sampler_field f);

/* 0, or SKUA_EARG naming the field, its value and its range. The second checks all fields and the bias list against a
   vocabulary of n_vocab tokens (ids in range, no id twice). */
int sampler_field_check(const struct sampler_params *p, enum sampler_field f, skua_error *err);
int sampler_params_check(const struct sampler_params *p, int n_vocab, skua_error *err);

#endif
