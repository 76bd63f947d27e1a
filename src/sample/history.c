/* Token history for the penalties; see history.h. */
#include "sample/history.h"

#include <string.h>

#include "base/mem.h"

int sampler_history_init(struct sampler_history *h, int n_vocab, skua_error *err)
{
    *h = (struct sampler_history){0};
    if (n_vocab < 1)
        return error_set(err, SKUA_EARG, "token history for a vocabulary of %d tokens, expected at least 1", n_vocab);
    size_t bytes = (size_t)n_vocab * sizeof *h->last;
    h->last = mem_alloc(bytes);
    if (!h->last)
        return error_nomem(err, "token history", bytes);
    memset(h->last, 0xff, bytes); /* -1 everywhere */
    h->n_vocab = n_vocab;
    return 0;
}

void sampler_history_free(struct sampler_history *h)
{
    mem_free(h->entries);
    mem_free(h->last);
    *h = (struct sampler_history){0};
}

int sampler_history_reserve(struct sampler_history *h, size_t extra, skua_error *err)
{
    if (extra > INT32_MAX - h->len)
        return error_set(err, SKUA_ELIMIT, "token history of %zu tokens cannot take %zu more, the limit is %d", h->len, extra,
                         INT32_MAX);
    size_t need = h->len + extra;
    if (need <= h->cap)
        return 0;
    size_t cap = h->cap + h->cap / 2 + 256;
    if (cap < need)
        cap = need;
    struct sampler_history_entry *p = mem_realloc_array(h->entries, cap, sizeof *p);
    if (!p)
        return error_nomem(err, "token history", cap * sizeof *p);
    h->entries = p;
    h->cap = cap;
    return 0;
}

static int push(struct sampler_history *h, int32_t id, int32_t generated, skua_error *err)
{
    if (id < 0 || id >= h->n_vocab)
        return error_set(err, SKUA_EARG, "token id %d in the history, expected 0 to %d", id, h->n_vocab - 1);
    int rc = sampler_history_reserve(h, 1, err);
    if (rc)
        return rc;
    int32_t prev = h->last[id];
    h->entries[h->len] = (struct sampler_history_entry){id, prev, generated + (prev >= 0 ? h->entries[prev].generated : 0)};
    h->last[id] = (int32_t)h->len++;
    return 0;
}

int sampler_history_push_prompt(struct sampler_history *h, int32_t id, skua_error *err)
{
    if (h->len != h->n_prompt)
        return error_set(err, SKUA_ESTATE, "prompt token %d after %zu generated tokens in the history", id,
                         h->len - h->n_prompt);
    int rc = push(h, id, 0, err);
    if (!rc)
        h->n_prompt = h->len;
    return rc;
}

int sampler_history_push(struct sampler_history *h, int32_t id, skua_error *err) { return push(h, id, 1, err); }

void sampler_history_truncate(struct sampler_history *h, size_t len)
{
    while (h->len > len) {
        const struct sampler_history_entry *e = &h->entries[--h->len];
        h->last[e->id] = e->prev;
    }
    if (h->n_prompt > h->len)
        h->n_prompt = h->len;
}

int sampler_history_count(const struct sampler_history *h, int32_t id)
{
    if (id < 0 || id >= h->n_vocab || h->last[id] < 0)
        return 0;
    return h->entries[h->last[id]].generated;
}
