/* Edited models; see edit.h. */
#include "support/edit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

void edit_load(struct edit_model *m, const char *path)
{
    skua_error err = {0};
    memset(m, 0, sizeof *m);
    if (gguf_open(&m->g, path, &err) || gguf_tensor_count(m->g) > EDIT_MAX_TENSORS - 8) {
        printf("%s: %s\n", path, err.message);
        exit(1);
    }
    for (uint32_t i = 0; i < gguf_tensor_count(m->g); i++) {
        const struct gguf_tensor *from = gguf_tensor_at(m->g, i);
        struct edit_tensor *to = &m->t[m->n++];
        snprintf(to->name, sizeof to->name, "%.*s", from->name_len, from->name);
        to->type = from->type;
        to->n_dims = from->n_dims ? from->n_dims : 1;
        memcpy(to->ne, from->ne, sizeof to->ne);
        to->data = from->data;
        to->size = from->size_bytes;
    }
}

void edit_unload(struct edit_model *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->t[i].owned);
    gguf_close(m->g);
}

struct edit_tensor *edit_find(struct edit_model *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->t[i].name, name))
            return &m->t[i];
    printf("no tensor %s\n", name);
    exit(1);
}

void edit_drop(struct edit_model *m, const char *prefix)
{
    int n = 0;
    for (int i = 0; i < m->n; i++)
        if (strncmp(m->t[i].name, prefix, strlen(prefix)))
            m->t[n++] = m->t[i];
        else
            free(m->t[i].owned);
    m->n = n;
}

struct edit_tensor *edit_copy_as(struct edit_model *m, const char *from, const char *name)
{
    struct edit_tensor *t = &m->t[m->n++];
    *t = *edit_find(m, from);
    t->owned = NULL;
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

void edit_own(struct edit_tensor *t, void *data, size_t size)
{
    free(t->owned);
    t->data = t->owned = data;
    t->size = size;
}

static bool skip_key(void *context, struct gguf_string key)
{
    const char *name = context;
    return name && key.len == strlen(name) && !memcmp(key.data, name, key.len);
}

void edit_write_part(const struct edit_model *m, const char *path, int begin, int end, uint16_t no, uint16_t count)
{
    struct gguf_writer *w = NULL;
    skua_error err = {0};
    int32_t total = m->n;
    int rc = gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, &err);
    if (!rc && count)
        rc = gguf_writer_add_scalar(w, "split.no", GGUF_U16, &no, &err);
    if (!rc && count)
        rc = gguf_writer_add_scalar(w, "split.count", GGUF_U16, &count, &err);
    if (!rc && count)
        rc = gguf_writer_add_scalar(w, "split.tensors.count", GGUF_I32, &total, &err);
    if (!rc && m->add_keys)
        rc = m->add_keys(w, &err);
    if (!rc && no == 0)
        rc = gguf_writer_copy_keys(w, m->g, skip_key, (void *)(uintptr_t)m->drop_key, &err);
    for (int i = begin; i < end && !rc; i++)
        rc = gguf_writer_add_tensor(w, m->t[i].name, m->t[i].type, m->t[i].n_dims, m->t[i].ne, &err);
    if (!rc)
        rc = gguf_writer_begin(w, path, &err);
    for (int i = begin; i < end && !rc; i++)
        rc = gguf_writer_data(w, m->t[i].name, m->t[i].data, m->t[i].size, &err);
    if (!rc)
        rc = gguf_writer_finish(w, &err);
    gguf_writer_free(w);
    if (rc) {
        printf("%s: %s\n", path, err.message);
        exit(1);
    }
}

const char *edit_write(const struct edit_model *m, const char *name)
{
    const char *path = support_temp(name);
    edit_write_part(m, path, 0, m->n, 0, 0);
    return path;
}
