/* A prefix cache for tests of the batcher: whole sessions, each at the length at which it was kept. It counts what it is asked for. The
 * symbols are weak, so that a program that has the real one uses that. Header only. */
#ifndef SKUA_TESTS_FAKE_PREFIX_CACHE_H
#define SKUA_TESTS_FAKE_PREFIX_CACHE_H

#include "engine/engine.h"
#include "engine/prefix_cache.h"

#define FAKE_MAX 256

struct prefix_cache {
    skua_engine *engine;
    skua_session *kept[FAKE_MAX];
    enum prefix_worth worth[FAKE_MAX];
    int32_t n, n_ctx, every, n_taken;
};

static int32_t fake_find(const struct prefix_cache *c, const int32_t *ids, int32_t n)
{
    int32_t best = -1, most = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t m = skua_session_length(c->kept[i]);
        if (m > most && m < n && !memcmp(skua_session_tokens(c->kept[i]), ids, (size_t)m * sizeof *ids)) {
            best = i;
            most = m;
        }
    }
    return best;
}

__attribute__((weak)) int prefix_cache_take(struct prefix_cache *c, skua_session *s, const int32_t *ids, int32_t n, struct prefix_hit *hit,
                                            skua_error *err)
{
    const int32_t i = fake_find(c, ids, n);
    *hit = (struct prefix_hit){.miss_reason = i < 0 ? "cold" : "diverged", .diverged_at = -1};
    if (i < 0)
        return 0;
    int rc = engine_session_copy(c->kept[i], s, err);
    if (rc)
        return rc;
    c->n_taken++;
    hit->n_tokens = skua_session_length(s);
    return 0;
}

__attribute__((weak)) int32_t prefix_cache_resident(struct prefix_cache *c, const int32_t *ids, int32_t n)
{
    const int32_t i = fake_find(c, ids, n);
    return i < 0 ? 0 : skua_session_length(c->kept[i]);
}

__attribute__((weak)) int32_t prefix_cache_list(struct prefix_cache *c, const int32_t *ids, int32_t n, struct prefix_checkpoint *out,
                                                int32_t max)
{
    const int32_t i = fake_find(c, ids, n + 1);
    if (i < 0 || max < 1)
        return 0;
    *out = (struct prefix_checkpoint){.n_tokens = skua_session_length(c->kept[i]), .ram = true};
    return 1;
}

__attribute__((weak)) uint64_t prefix_cache_changes(const struct prefix_cache *c) { return (uint64_t)c->n + 1; }

__attribute__((weak)) int prefix_cache_keep(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth, skua_error *err)
{
    if (c->n == FAKE_MAX)
        return 0;
    int rc = skua_session_create(c->engine, c->n_ctx, &c->kept[c->n], err);
    if (!rc)
        rc = engine_session_copy(s, c->kept[c->n], err);
    if (rc) {
        skua_session_free(c->kept[c->n]);
        return rc;
    }
    c->worth[c->n++] = worth;
    return 0;
}

__attribute__((weak)) int32_t prefix_cache_next(const struct prefix_cache *c, int32_t n_done, int32_t n_total, const int32_t *marks,
                                                int32_t n_marks)
{
    int32_t next = (n_done / c->every + 1) * c->every;
    for (int32_t i = 0; i < n_marks; i++)
        if (marks[i] > n_done && marks[i] < next)
            next = marks[i];
    return next < n_total ? next : n_total;
}

static void fake_clear(struct prefix_cache *c)
{
    while (c->n > 0)
        skua_session_free(c->kept[--c->n]);
}

#endif
