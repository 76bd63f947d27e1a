/* Tokens with the rows that the target kept of them, recorded once, to feed drafters with in any pieces. Header only. */
#ifndef SKUA_TESTS_RECORDED_H
#define SKUA_TESTS_RECORDED_H

#include "engine/engine.h"
#include "engine_model.h"
#include "spec/drafter.h"

struct recorded {
    skua_engine *e;
    int32_t *ids, n, n_prompt;
    struct kern_buf *hidden; /* [n][n_embd] */
};

/* Evaluate n tokens and append their hidden rows. Returns the best next token. */
static inline int32_t recorded_eval(struct recorded *r, skua_session *s, const int32_t *ids, int32_t n)
{
    const size_t row = (size_t)r->e->config.n_embd * sizeof(float);
    int32_t best = -1;
    for (int32_t done = 0, step; done < n; done += step) {
        skua_error err = {0};
        step = n - done < r->e->max_rows ? n - done : r->e->max_rows;
        skua_feed f = {.session = s, .ids = ids + done, .n_ids = step, .want = SKUA_LOGITS_ARGMAX};
        CHECK(skua_eval(r->e, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
        const struct forward_capture c = forward_captured(r->e->forward);
        for (int32_t i = 0; i < step; i++)
            memcpy((char *)r->hidden->host + (size_t)(r->n + i) * row,
                   (const float *)kern_ptr(c.hidden) + (size_t)i * (size_t)c.hidden_stride, row);
        memcpy(r->ids + r->n, ids + done, (size_t)step * sizeof *ids);
        r->n += step;
        best = f.best_id;
    }
    return best;
}

/* A prompt and up to n_more greedy tokens behind it, the ending token not among them. */
static inline struct recorded record(skua_engine *e, const int32_t *ids, int32_t n, int32_t n_more)
{
    struct recorded r = {.e = e, .n_prompt = n, .ids = malloc((size_t)(n + n_more) * sizeof *ids)};
    skua_session *s = session_open(e, n + n_more);
    skua_error err = {0};
    int rc = forward_set_capture(e->forward, NULL, 0, true, &err);
    if (!rc)
        rc = e->dev->ops->buf_alloc(e->dev, (size_t)(n + n_more) * (size_t)e->config.n_embd * sizeof(float), &r.hidden, &err);
    if (rc) {
        printf("recording: %s\n", err.message);
        exit(1);
    }
    int32_t next = recorded_eval(&r, s, ids, n);
    while (r.n < n + n_more && !skua_token_ends(e, next))
        next = recorded_eval(&r, s, (int32_t[]){next}, 1);
    skua_session_free(s);
    return r;
}

static inline struct recorded record_text(skua_engine *e, const char *text, int32_t n_more)
{
    int32_t *ids;
    size_t n;
    skua_error err = {0};
    if (skua_tokenize(e, text, strlen(text), true, &ids, &n, &err)) {
        printf("%s: %s\n", text, err.message);
        exit(1);
    }
    struct recorded r = record(e, ids, (int32_t)n, n_more);
    skua_free(ids);
    return r;
}

static inline void recorded_free(struct recorded *r)
{
    r->e->dev->ops->buf_free(r->e->dev, r->hidden);
    free(r->ids);
}

/* The record's rows from position d->n_pos up to end, chunk at a time. */
static inline void feed(struct drafter *d, const struct recorded *r, int32_t end, int32_t chunk)
{
    while (d->n_pos < end) {
        skua_error err = {0};
        const int32_t pos = d->n_pos, n = end - pos < chunk ? end - pos : chunk, n_embd = r->e->config.n_embd;
        const struct draft_rows rows = {.ids = r->ids + pos, .n = n, .pos = pos, .hidden_stride = n_embd,
                                        .hidden = {r->hidden, (size_t)pos * (size_t)n_embd * sizeof(float)}};
        if (!CHECK(d->ops->extend(d, &rows, &err) == 0 && d->n_pos == pos + n, "rows %d to %d: %s", pos, pos + n - 1, err.message))
            exit(1);
    }
}

static inline struct draft *propose(struct drafter *d, int32_t anchor, int32_t n_max)
{
    static struct draft drafts[2]; /* two at a time can be compared */
    static int turn;
    struct draft *out = &drafts[turn ^= 1];
    skua_error err = {0};
    const struct draft_request q = {.anchor = anchor, .n_max = n_max};
    const int32_t n_pos = d->n_pos;
    memset(out, 0x55, sizeof *out);
    CHECK(d->ops->propose(d, &q, out, &err) == 0 && d->n_pos == n_pos, "%s", err.message);
    return out;
}

static inline bool same_drafts(const struct draft *a, const struct draft *b)
{
    return a->n == b->n && !memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
}

#endif
