/* Default sampling parameters; see defaults.h. */
#include "sample/defaults.h"

#include <stddef.h>

/* repetition_penalty's window counts only when the user or the file raises the penalty; 64 is the field's usual window. */
static const skua_sampling builtin = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .penalty_last_n = 64};

#define FIELD(f) (1u << SAMPLER_##f)
#define FAMILY_FIELDS (FIELD(TEMPERATURE) | FIELD(TOP_K) | FIELD(TOP_P) | FIELD(MIN_P) | FIELD(REPETITION_PENALTY))

static const struct sampler_partial family[2] = {
    {FAMILY_FIELDS, {.temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0, .repetition_penalty = 1}},  /* non-thinking */
    {FAMILY_FIELDS, {.temperature = 1.0, .top_k = 20, .top_p = 0.95, .min_p = 0, .repetition_penalty = 1}}, /* thinking */
};

const char *sampler_source_name(enum sampler_source s)
{
    static const char *const names[] = {"builtin", "family", "file", "user"};
    return names[s];
}

int sampler_resolve(struct sampler_settings *out, bool thinking, const struct sampler_partial *file,
                    const struct sampler_partial *user, int n_vocab, skua_error *err)
{
    const struct sampler_partial *sources[] = {NULL, &family[thinking], file, user}; /* indexed by enum sampler_source */
    *out = (struct sampler_settings){.params = builtin};
    for (int f = 0; f < SAMPLER_FIELD_COUNT; f++) {
        enum sampler_field field = (enum sampler_field)f;
        for (int s = SAMPLER_SOURCE_FAMILY; s <= SAMPLER_SOURCE_USER; s++)
            if (sources[s] && (sources[s]->given >> f & 1)) {
                sampler_field_copy(&out->params, &sources[s]->value, field);
                out->source[f] = (enum sampler_source)s;
            }
        int rc = sampler_field_check(&out->params, field, err);
        if (rc) {
            if (out->source[f] == SAMPLER_SOURCE_FILE && sampler_field_key(field))
                error_prefix(err, "the model file's %s", sampler_field_key(field));
            return rc;
        }
    }
    if (user) {
        out->params.bias = user->value.bias;
        out->params.n_bias = user->value.n_bias;
    }
    return sampler_params_check(&out->params, n_vocab, err);
}
