/* Sampling parameters; see params.h. */
#include "sample/params.h"

#include <stdbool.h>

static const struct {
    const char *name, *key;
    double min, max;
    bool above_min; /* min itself is not allowed */
    const char *expected;
} fields[SAMPLER_FIELD_COUNT] = {
    [SAMPLER_TEMPERATURE] = {"temperature", "general.sampling.temp", 0, 2, false, "a number from 0 to 2"},
    [SAMPLER_TOP_K] = {"top_k", "general.sampling.top_k", -1, INT32_MAX, false, "an integer of at least 0, or -1 for off"},
    [SAMPLER_TOP_P] = {"top_p", "general.sampling.top_p", 0, 1, false, "a number from 0 to 1"},
    [SAMPLER_MIN_P] = {"min_p", "general.sampling.min_p", 0, 1, false, "a number from 0 to 1"},
    [SAMPLER_REPETITION_PENALTY] = {"repetition_penalty", "general.sampling.penalty_repeat", 0, 2, true,
                                    "a number above 0, at most 2"},
    [SAMPLER_PRESENCE_PENALTY] = {"presence_penalty", NULL, -2, 2, false, "a number from -2 to 2"},
    [SAMPLER_FREQUENCY_PENALTY] = {"frequency_penalty", NULL, -2, 2, false, "a number from -2 to 2"},
    [SAMPLER_PENALTY_LAST_N] = {"penalty_last_n", "general.sampling.penalty_last_n", -1, INT32_MAX, false,
                                "an integer of at least 0, or -1 for everything"},
    [SAMPLER_SEED] = {"seed", NULL, 0, 0x1p64, false, "an integer from 0 to 2^64 - 1"},
};

const char *sampler_field_name(enum sampler_field f) { return fields[f].name; }
const char *sampler_field_key(enum sampler_field f) { return fields[f].key; }

const char *sampler_field_expected(enum sampler_field f) { return fields[f].expected; }

double sampler_field_value(const skua_sampling *p, enum sampler_field f)
{
    switch (f) {
    case SAMPLER_TEMPERATURE: return p->temperature;
    case SAMPLER_TOP_K: return p->top_k;
    case SAMPLER_TOP_P: return p->top_p;
    case SAMPLER_MIN_P: return p->min_p;
    case SAMPLER_REPETITION_PENALTY: return p->repetition_penalty;
    case SAMPLER_PRESENCE_PENALTY: return p->presence_penalty;
    case SAMPLER_FREQUENCY_PENALTY: return p->frequency_penalty;
    case SAMPLER_PENALTY_LAST_N: return p->penalty_last_n;
    case SAMPLER_SEED: return (double)p->seed;
    case SAMPLER_FIELD_COUNT: break;
    }
    return 0;
}

void sampler_field_copy(skua_sampling *dst, const skua_sampling *src, enum sampler_field f)
{
    switch (f) {
    case SAMPLER_TEMPERATURE: dst->temperature = src->temperature; break;
    case SAMPLER_TOP_K: dst->top_k = src->top_k; break;
    case SAMPLER_TOP_P: dst->top_p = src->top_p; break;
    case SAMPLER_MIN_P: dst->min_p = src->min_p; break;
    case SAMPLER_REPETITION_PENALTY: dst->repetition_penalty = src->repetition_penalty; break;
    case SAMPLER_PRESENCE_PENALTY: dst->presence_penalty = src->presence_penalty; break;
    case SAMPLER_FREQUENCY_PENALTY: dst->frequency_penalty = src->frequency_penalty; break;
    case SAMPLER_PENALTY_LAST_N: dst->penalty_last_n = src->penalty_last_n; break;
    case SAMPLER_SEED: dst->seed = src->seed; break;
    case SAMPLER_FIELD_COUNT: break;
    }
}

int sampler_field_check(const skua_sampling *p, enum sampler_field f, skua_error *err)
{
    double v = sampler_field_value(p, f);
    bool ok = v >= fields[f].min && v <= fields[f].max && !(fields[f].above_min && v <= fields[f].min); /* NaN: false */
    return ok ? 0 : error_set(err, SKUA_EARG, "%s is %.9g, expected %s", fields[f].name, v, fields[f].expected);
}

static int check_bias(const skua_sampling *p, int n_vocab, skua_error *err)
{
    if (p->n_bias > SAMPLER_MAX_BIAS)
        return error_set(err, SKUA_EARG, "logit_bias has %zu entries, expected at most %d", p->n_bias, SAMPLER_MAX_BIAS);
    for (size_t i = 0; i < p->n_bias; i++) {
        const skua_logit_bias *b = &p->bias[i];
        if (b->id < 0 || b->id >= n_vocab)
            return error_set(err, SKUA_EARG, "logit_bias names token %d, expected an id from 0 to %d", b->id, n_vocab - 1);
        if (!(b->bias >= -SAMPLER_BIAS_LIMIT && b->bias <= SAMPLER_BIAS_LIMIT))
            return error_set(err, SKUA_EARG, "logit_bias of token %d is %.9g, expected a number from -100 to 100", b->id,
                             (double)b->bias);
        for (size_t j = 0; j < i; j++) /* at most 2048 entries: two million compares, once per request */
            if (p->bias[j].id == b->id)
                return error_set(err, SKUA_EARG, "logit_bias names token %d twice, expected each token once", b->id);
    }
    return 0;
}

int sampler_params_check(const skua_sampling *p, int n_vocab, skua_error *err)
{
    for (int f = 0; f < SAMPLER_FIELD_COUNT; f++) {
        int rc = sampler_field_check(p, (enum sampler_field)f, err);
        if (rc)
            return rc;
    }
    return check_bias(p, n_vocab, err);
}
