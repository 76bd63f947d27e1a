/* For the tests of the public interface: the shipped model, and copies of it with other metadata. Header only. */
#ifndef SKUA_TESTS_ENGINE_MODEL_H
#define SKUA_TESTS_ENGINE_MODEL_H

#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "gguf/gguf_write.h"
#include "skua.h"
#include "support/recode.h"
#include "support/support.h"

/* A copy of the model at src under `name` in the temporary folder, with the keys that add() puts in instead of src's own. NULL, with a
   failed check, when that does not work. */
typedef int model_keys(struct gguf_writer *w, skua_error *err);
static inline const char *model_copy(const char *src, const char *name, model_keys *add)
{
    const char *path = recode_temp(name);
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    skua_error err = {0};
    char tensor[80];
    int rc = gguf_open(&g, src, &err);
    if (!rc)
        rc = gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, &err);
    if (!rc)
        rc = add(w, &err);
    if (!rc)
        rc = gguf_writer_copy_keys(w, g, NULL, NULL, &err);
    for (int pass = 0; pass < 2 && !rc; pass++) {
        if (pass == 1)
            rc = gguf_writer_begin(w, path, &err);
        for (uint32_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            snprintf(tensor, sizeof tensor, "%.*s", t->name_len, t->name);
            rc = pass ? gguf_writer_data(w, tensor, t->data, t->size_bytes, &err)
                      : gguf_writer_add_tensor(w, tensor, t->type, t->n_dims ? t->n_dims : 1, t->ne, &err);
        }
    }
    if (!rc)
        rc = gguf_writer_finish(w, &err);
    gguf_writer_free(w);
    gguf_close(g);
    return CHECK(rc == 0, "a copy of %s: %s", src, err.message) ? path : NULL;
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
