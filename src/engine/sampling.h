/* The sampling values that a model file brings along. */
#ifndef SKUA_ENGINE_SAMPLING_H
#define SKUA_ENGINE_SAMPLING_H

#include "sample/defaults.h"
#include "skua.h"

/* Fill *file with the general.sampling.* values of the model file (absent ones are not marked as given). SKUA_EFORMAT for a value of
   a wrong type, with its key. */
int engine_file_sampling(const skua_engine *e, struct sampler_partial *file, skua_error *err);

/* Parameters for an answer: user (NULL: nothing given), then the file's, then the family's. Errors as sampler_resolve(). */
int engine_resolve_sampling(const skua_engine *e, bool thinking, const struct sampler_partial *user, struct sampler_settings *out,
                            skua_error *err);

#endif
