/* For the tests of the prefix cache: sessions that are compared bit for bit with ones that evaluated everything. Header only. */
#ifndef SKUA_TESTS_PREFIX_BITS_H
#define SKUA_TESTS_PREFIX_BITS_H

#include "engine_model.h"

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/prefix_cache.h"

static inline uint32_t draw(uint64_t *state, uint32_t below) { return (uint32_t)((rng_next(state) >> 32) * below >> 32); }

static inline void eval_to(skua_session *s, const int32_t *ids, int32_t n, float *logits)
{
    skua_error err = {0};
    const int32_t at = skua_session_length(s);
    skua_feed f = {.session = s, .ids = ids + at, .n_ids = n - at, .want = logits ? SKUA_LOGITS_LAST : SKUA_LOGITS_NONE, .logits = logits};
    if (n > at)
        CHECK(!skua_eval(s->engine, &f, 1, NULL, NULL, &err), "%s", err.message);
}

/* Rows of KV cache before n, tokens and recurrent state. */
static inline bool same_sessions(const skua_session *a, const skua_session *b)
{
    const struct model_config *c = &a->engine->config;
    const size_t planes = 2 * (size_t)c->n_head_kv * (size_t)c->n_attn, row = a->seq.page_bytes / (planes * KV_PAGE_ROWS);
    const int32_t n = a->seq.n_pos;
    bool same = n == b->seq.n_pos && !memcmp(a->tokens, b->tokens, (size_t)n * sizeof *a->tokens)
                && !memcmp(a->seq.state->host, b->seq.state->host, a->seq.state->size);
    for (int32_t i = 0; same && i < seq_pages(n); i++) {
        const int32_t rows = n - i * KV_PAGE_ROWS < KV_PAGE_ROWS ? n - i * KV_PAGE_ROWS : KV_PAGE_ROWS;
        for (size_t p = 0; p < planes; p++) {
            const size_t at = p * row * KV_PAGE_ROWS;
            same &= !memcmp((char *)a->seq.pages[i]->host + at, (char *)b->seq.pages[i]->host + at, (size_t)rows * row);
        }
    }
    return same;
}

struct collected {
    int32_t ids[64], n;
};

static inline bool collect_id(void *user, const skua_event *event)
{
    struct collected *c = user;
    if (event->id >= 0 && c->n < 64)
        c->ids[c->n++] = event->id;
    return true;
}

/* A session that came to hold a part of ids[0, n) goes on to the end as one that evaluated all of it: state, logits, answer. Both are left
   behind the answer. cold: an empty session. */
static inline void check_goes_on(skua_session *s, skua_session *cold, const int32_t *ids, int32_t n, const char *what)
{
    const size_t row = (size_t)s->engine->config.n_vocab;
    float *want = malloc(row * sizeof *want), *got = malloc(row * sizeof *got);
    const int32_t at = skua_session_length(s);
    struct collected a = {.n = 0}, b = {.n = 0};
    skua_generate_params p = {.max_tokens = 12};
    skua_result r;
    skua_error err = {0};
    eval_to(cold, ids, n - 1, want);
    eval_to(s, ids, n - 1, got);
    CHECK(same_sessions(s, cold), "%s: %d tokens from %d: other state", what, n, at);
    CHECK(at >= n - 1 || !memcmp(want, got, row * sizeof *want), "%s: %d tokens from %d: other logits", what, n, at);
    skua_sampling_defaults(s->engine, false, &p.sampling, &err);
    p.sampling.temperature = 0;
    CHECK(!skua_generate(cold, ids + n - 1, 1, &p, collect_id, NULL, &a, &r, &err), "%s: %s", what, err.message);
    CHECK(!skua_generate(s, ids + n - 1, 1, &p, collect_id, NULL, &b, &r, &err), "%s: %s", what, err.message);
    CHECK(a.n == b.n && !memcmp(a.ids, b.ids, (size_t)a.n * sizeof *a.ids), "%s: %d tokens from %d: another answer", what, n, at);
    CHECK(same_sessions(s, cold), "%s: %d tokens from %d: other state behind the answer", what, n, at);
    free(want);
    free(got);
}

static inline struct prefix_cache *cache_open(skua_engine *e, size_t ram, const char *dir, size_t disk)
{
    struct prefix_cache *c = NULL;
    skua_error err = {0};
    const struct prefix_cache_params p = {.ram_bytes = ram, .disk_dir = dir, .disk_bytes = disk, .every = 128};
    if (prefix_cache_create(e, &p, &c, &err)) {
        printf("cache: %s\n", err.message);
        exit(1);
    }
    return c;
}

static inline struct prefix_cache_stats cache_stats(struct prefix_cache *c)
{
    struct prefix_cache_stats s;
    prefix_cache_get_stats(c, &s);
    return s;
}

static inline struct prefix_hit cache_take(struct prefix_cache *c, skua_session *s, const int32_t *ids, int32_t n)
{
    struct prefix_hit hit;
    skua_error err = {0};
    skua_session_reset(s);
    CHECK(!prefix_cache_take(c, s, ids, n, &hit, &err) && hit.n_tokens == skua_session_length(s) && hit.n_tokens < n, "%s", err.message);
    CHECK(!hit.n_tokens || !memcmp(skua_session_tokens(s), ids, (size_t)hit.n_tokens * sizeof *ids), "other tokens");
    return hit;
}

static inline void cache_keep(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth)
{
    skua_error err = {0};
    CHECK(!prefix_cache_keep(c, s, worth, &err), "%s", err.message);
}

#endif
