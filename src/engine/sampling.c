/* Sampling values of a model file; see sampling.h. */
#include "engine/sampling.h"

#include "engine/engine.h"

/* A number under key, whatever its type: 1 found, 0 absent, or an error. */
static int number(const struct gguf *g, const char *key, double *v, skua_error *err)
{
    struct gguf_value value;
    int64_t i = 0;
    if (!gguf_find_key(g, key, &value) || value.type == GGUF_F32 || value.type == GGUF_F64)
        return gguf_get_f64(g, key, v, err);
    int rc = gguf_get_i64(g, key, &i, err);
    *v = (double)i;
    return rc;
}

/* Beyond int32 nothing is meaningful; the range check of the parameter refuses the clamped value as well. */
static int32_t to_int(double v)
{
    return v >= INT32_MAX ? INT32_MAX : v > INT32_MIN ? (int32_t)v : INT32_MIN;
}

int engine_file_sampling(const skua_engine *e, struct sampler_partial *file, skua_error *err)
{
    *file = (struct sampler_partial){0};
    for (int f = 0; f < SAMPLER_FIELD_COUNT; f++) {
        const char *key = sampler_field_key((enum sampler_field)f);
        double v = 0;
        int rc = key ? number(e->gguf, key, &v, err) : 0;
        if (rc < 0)
            return rc;
        if (!rc)
            continue;
        switch (f) {
        case SAMPLER_TEMPERATURE: file->value.temperature = v; break;
        case SAMPLER_TOP_K: file->value.top_k = to_int(v); break;
        case SAMPLER_TOP_P: file->value.top_p = v; break;
        case SAMPLER_MIN_P: file->value.min_p = v; break;
        case SAMPLER_REPETITION_PENALTY: file->value.repetition_penalty = v; break;
        case SAMPLER_PENALTY_LAST_N: file->value.penalty_last_n = to_int(v); break;
        default: continue;
        }
        file->given |= 1u << f;
    }
    return 0;
}

int engine_resolve_sampling(const skua_engine *e, bool thinking, const struct sampler_partial *user, struct sampler_settings *out,
                            skua_error *err)
{
    struct sampler_partial file;
    int rc = engine_file_sampling(e, &file, err);
    return rc ? rc : sampler_resolve(out, thinking, &file, user, e->config.n_vocab, err);
}

int skua_sampling_defaults(const skua_engine *e, bool thinking, skua_sampling *out, skua_error *err)
{
    struct sampler_settings s;
    *out = (skua_sampling){0};
    int rc = engine_resolve_sampling(e, thinking, NULL, &s, err);
    if (!rc)
        *out = s.params;
    return rc;
}
