/* Names of a checkpoint's tensors; see hf_weight.h. */
#include <string.h>

#include "base/mem.h"
#include "convert/hf_weight.h"

/* Parts of names of what is no language model. */
static const char *const towers[] = {"visual.", "vision_tower.", "vision_model.", "vision_encoder.", "vision_embed", "merger.",
                                     "patch_embed", "projector.", "audio_tower.", "audio_encoder."};

static bool of_tower(const char *name)
{
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (strstr(name, towers[i]))
            return true;
    return false;
}

/* In place: without every "language_model." and the "model." in front. */
static void strip_prefixes(char *name)
{
    static const char inner[] = "language_model.", outer[] = "model.";
    size_t n_inner = sizeof inner - 1, n_outer = sizeof outer - 1;
    for (char *at; (at = strstr(name, inner)) != NULL;)
        memmove(at, at + n_inner, strlen(at + n_inner) + 1);
    while (!strncmp(name, outer, n_outer))
        memmove(name, name + n_outer, strlen(name + n_outer) + 1);
}

static int index_names(struct hf_source *s, skua_error *err)
{
    uint32_t n = safetensors_count(s->st), other;
    s->names = mem_calloc(n ? n : 1, sizeof *s->names);
    s->used = mem_calloc(n ? n : 1, sizeof *s->used);
    if (!s->names || !s->used || hashmap_init(&s->index, n))
        return error_nomem(err, "tensor names", n * sizeof *s->names);
    for (uint32_t i = 0; i < n; i++) {
        const struct st_tensor *t = safetensors_at(s->st, i);
        if (of_tower(t->name)) {
            s->n_left_out++;
            s->bytes_left_out += t->size_bytes;
            continue;
        }
        s->names[i] = mem_strdup(t->name);
        if (!s->names[i])
            return error_nomem(err, t->name, strlen(t->name));
        strip_prefixes(s->names[i]);
        int rc = hashmap_put(&s->index, s->names[i], strlen(s->names[i]), i);
        if (rc < 0)
            return error_nomem(err, t->name, strlen(t->name));
        if (rc > 0) {
            hashmap_get(&s->index, s->names[i], strlen(s->names[i]), &other);
            return error_set(err, SKUA_EFORMAT, "%s: tensors '%.150s' and '%.150s' are the same part of the model",
                             safetensors_path(s->st, t->file), safetensors_at(s->st, other)->name, t->name);
        }
    }
    return 0;
}

int hf_source_open(struct hf_source *s, const char *dir, const struct hf_config *config, st_warn_fn *warn, void *context, skua_error *err)
{
    *s = (struct hf_source){.config = config};
    int rc = safetensors_open(&s->st, dir, warn, context, err);
    if (!rc) rc = index_names(s, err);
    if (rc)
        hf_source_close(s);
    return rc;
}

void hf_source_close(struct hf_source *s)
{
    for (uint32_t i = 0; s->names && i < safetensors_count(s->st); i++)
        mem_free(s->names[i]);
    mem_free(s->names);
    mem_free(s->used);
    hashmap_free(&s->index);
    safetensors_close(s->st);
    *s = (struct hf_source){0};
}

const struct st_tensor *hf_source_find(struct hf_source *s, const char *name, bool use)
{
    uint32_t i;
    if (!hashmap_get(&s->index, name, strlen(name), &i))
        return NULL;
    s->used[i] |= use;
    return safetensors_at(s->st, i);
}
