/* For the tests of the public interface: the shipped model, and copies of it with other metadata. Header only. */
#ifndef SKUA_TESTS_ENGINE_MODEL_H
#define SKUA_TESTS_ENGINE_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "skua.h"
#include "support/edit.h"
#include "support/support.h"

/* A copy of the model at src under `name` in the temporary folder, with the keys that add() puts in instead of src's own. */
typedef int model_keys(struct gguf_writer *w, skua_error *err);
static inline const char *model_copy(const char *src, const char *name, model_keys *add)
{
    struct edit_model m;
    edit_load(&m, src);
    m.add_keys = add;
    const char *path = edit_write(&m, name);
    edit_unload(&m);
    return path;
}

static inline skua_engine *model_open(const char *path, const skua_engine_params *params)
{
    skua_engine *e = NULL;
    skua_error err = {0};
    int rc = skua_engine_open(path, params, &e, &err);
    if (rc || !e) { /* nothing can be tested without */
        printf("%s: %s\n", path, err.message);
        exit(1);
    }
    return e;
}

static inline skua_session *session_open(skua_engine *e, int32_t n_ctx)
{
    skua_session *s = NULL;
    skua_error err = {0};
    int rc = skua_session_create(e, n_ctx, &s, &err);
    if (rc || !s) {
        printf("session of %d: %s\n", n_ctx, err.message);
        exit(1);
    }
    return s;
}

/* Does the message hold all of the words (ending with NULL), in one line? */
static inline bool says(const skua_error *err, int code, const char *const *words)
{
    bool all = err->code == code && err->message[0] && !strchr(err->message, '\n');
    for (; *words; words++)
        all = all && strstr(err->message, *words);
    if (!all)
        printf("error %d: %s\n", err->code, err->message);
    return all;
}
#define SAYS(err, code, ...) says(err, code, (const char *const[]){__VA_ARGS__, NULL})

#endif
