/* The suffix automaton; see lookup.h.

   A state stands for strings that end at the same positions: the longest has len tokens, and link leads to the state of its longest
   suffix that also ends elsewhere. So the link of the state of all tokens is the longest suffix that occurred before. Most states have one
   edge: it is the head of the state's list and found without hashing; the others are in a hash table of edges by (state, token). The list
   is what cloning a state copies. Edges are never removed, and a clone's edges are edges of the result: all copies together are linear. */
#include "spec/lookup.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define NONE (-1)
#define CHAIN 64 /* links followed to tell states of a newer occurrence */

struct state {
    int32_t len, link;
    int32_t end;  /* position of the last token of a recent occurrence */
    int32_t edge; /* head of the list of edges, NONE = no edge */
};

struct edge {
    int32_t from, token, to, next;
};

struct lookup {
    struct drafter base; /* n_pos: tokens in stream */
    int32_t min_match, min_short;
    int32_t *stream;
    struct state *states;
    struct edge *edges;
    int32_t *slots; /* hash table of edges that are not the head of their list, NONE = free; at most half full */
    int32_t cap_stream, n_states, cap_states, n_edges, cap_edges;
    int32_t n_slots, used_slots; /* n_slots: a power of two, or 0 */
    int32_t last;                /* state of the whole stream */
    int32_t n_built;             /* tokens of the stream that are in the automaton */
};

/* ---- memory ---- */

/* Room for n elements of the given size in *p. */
static int reserve(void **p, int32_t *cap, int64_t n, size_t size, skua_error *err)
{
    if (n <= *cap)
        return 0;
    int64_t want = *cap ? *cap : 64;
    while (want < n)
        want *= 2;
    if (want > INT32_MAX)
        return error_set(err, SKUA_ELIMIT, "lookup drafter: %lld entries, at most %d fit", (long long)n, INT32_MAX);
    void *q = mem_realloc_array(*p, (size_t)want, size);
    if (!q)
        return error_nomem(err, "lookup drafter", (size_t)want * size);
    *p = q;
    *cap = (int32_t)want;
    return 0;
}

static int new_state(struct lookup *l, struct state value, int32_t *index, skua_error *err)
{
    void *p = l->states;
    int rc = reserve(&p, &l->cap_states, (int64_t)l->n_states + 1, sizeof *l->states, err);
    l->states = p;
    if (rc)
        return rc;
    *index = l->n_states;
    l->states[l->n_states++] = value;
    return 0;
}

/* ---- edges ---- */

static uint32_t edge_hash(int32_t from, int32_t token)
{
    uint64_t x = (uint64_t)(uint32_t)from << 32 | (uint32_t)token;
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32);
}

static void slot_put(int32_t *slots, int32_t n_slots, const struct edge *e, int32_t index)
{
    uint32_t mask = (uint32_t)n_slots - 1, i = edge_hash(e->from, e->token) & mask;
    while (slots[i] != NONE)
        i = (i + 1) & mask;
    slots[i] = index;
}

static int grow_slots(struct lookup *l, skua_error *err)
{
    int32_t n = l->n_slots ? l->n_slots * 2 : 64;
    int32_t *slots = l->n_slots > INT32_MAX / 4 ? NULL : mem_realloc_array(NULL, (size_t)n, sizeof *slots);
    if (!slots)
        return error_nomem(err, "lookup drafter", (size_t)n * sizeof *slots);
    memset(slots, 0xff, (size_t)n * sizeof *slots);
    for (int32_t i = 0; i < l->n_slots; i++)
        if (l->slots[i] != NONE)
            slot_put(slots, n, &l->edges[l->slots[i]], l->slots[i]);
    mem_free(l->slots);
    l->slots = slots;
    l->n_slots = n;
    return 0;
}

/* The edge of a state by its token, NONE = there is none. */
static int32_t find_edge(const struct lookup *l, int32_t from, int32_t token)
{
    int32_t head = l->states[from].edge;
    if (head == NONE || l->edges[head].token == token)
        return head;
    if (l->edges[head].next == NONE)
        return NONE;
    uint32_t mask = (uint32_t)l->n_slots - 1;
    for (uint32_t i = edge_hash(from, token) & mask; l->slots[i] != NONE; i = (i + 1) & mask) {
        const struct edge *e = &l->edges[l->slots[i]];
        if (e->from == from && e->token == token)
            return l->slots[i];
    }
    return NONE;
}

static int add_edge(struct lookup *l, int32_t from, int32_t token, int32_t to, skua_error *err)
{
    void *p = l->edges;
    int rc = reserve(&p, &l->cap_edges, (int64_t)l->n_edges + 1, sizeof *l->edges, err);
    l->edges = p;
    if (rc)
        return rc;
    struct state *s = &l->states[from];
    if (s->edge != NONE && (l->used_slots + 1) * 2 > l->n_slots) {
        rc = grow_slots(l, err);
        if (rc)
            return rc;
    }
    struct edge *e = &l->edges[l->n_edges];
    *e = (struct edge){from, token, to, NONE};
    if (s->edge == NONE) {
        s->edge = l->n_edges;
    } else {
        e->next = l->edges[s->edge].next;
        l->edges[s->edge].next = l->n_edges;
        slot_put(l->slots, l->n_slots, e, l->n_edges);
        l->used_slots++;
    }
    l->n_edges++;
    return 0;
}

/* ---- the automaton ---- */

static void forget(struct lookup *l)
{
    l->n_states = l->n_edges = l->used_slots = l->n_built = 0;
    if (l->n_slots)
        memset(l->slots, 0xff, (size_t)l->n_slots * sizeof *l->slots);
}

/* The part of state q that the path through p reaches becomes a state of its own, *clone. */
static int split(struct lookup *l, int32_t p, int32_t q, int32_t token, int32_t *clone, skua_error *err)
{
    struct state half = {.len = l->states[p].len + 1, .link = l->states[q].link, .end = l->states[q].end, .edge = NONE};
    int rc = new_state(l, half, clone, err);
    for (int32_t e = l->states[q].edge; !rc && e != NONE; e = l->edges[e].next)
        rc = add_edge(l, *clone, l->edges[e].token, l->edges[e].to, err);
    if (rc)
        return rc;
    l->states[q].link = *clone;
    for (int32_t e; p != NONE && (e = find_edge(l, p, token)) != NONE && l->edges[e].to == q; p = l->states[p].link)
        l->edges[e].to = *clone;
    return 0;
}

/* The next token of the stream into the automaton. After an error the automaton is no good. */
static int step(struct lookup *l, int32_t token, skua_error *err)
{
    int32_t now, p = l->last, e = NONE, link = 0;
    int rc = new_state(l, (struct state){.len = l->states[p].len + 1, .end = l->n_built, .edge = NONE}, &now, err);
    for (; !rc && p != NONE && (e = find_edge(l, p, token)) == NONE; p = l->states[p].link)
        rc = add_edge(l, p, token, now, err);
    if (rc)
        return rc;
    if (p != NONE) {
        link = l->edges[e].to;
        if (l->states[link].len != l->states[p].len + 1) {
            rc = split(l, p, link, token, &link, err);
            if (rc)
                return rc;
        }
    }
    l->states[now].link = link;
    l->last = now;
    for (int i = 0; link > 0 && i < CHAIN; i++, link = l->states[link].link)
        l->states[link].end = l->n_built;
    l->n_built++;
    return 0;
}

static int build(struct lookup *l, skua_error *err)
{
    int rc = 0;
    if (l->n_built == l->base.n_pos)
        return 0;
    if (!l->n_built) {
        rc = new_state(l, (struct state){.link = NONE, .end = NONE, .edge = NONE}, &l->last, err);
        if (rc)
            return rc;
    }
    while (!rc && l->n_built < l->base.n_pos)
        rc = step(l, l->stream[l->n_built], err);
    if (rc)
        forget(l);
    return rc;
}

/* ---- the drafter ---- */

static int lookup_extend(struct drafter *d, const struct draft_rows *rows, skua_error *err)
{
    struct lookup *l = (struct lookup *)d;
    if (rows->pos != d->n_pos)
        return error_set(err, SKUA_ESTATE, "lookup drafter: rows at position %d, expected %d", rows->pos, d->n_pos);
    void *p = l->stream;
    int rc = reserve(&p, &l->cap_stream, (int64_t)d->n_pos + rows->n, sizeof *l->stream, err);
    l->stream = p;
    if (rc)
        return rc;
    memcpy(l->stream + d->n_pos, rows->ids, (size_t)rows->n * sizeof *rows->ids);
    d->n_pos += rows->n;
    return build(l, err);
}

/* How many drafts a match of m tokens is good for. */
static int32_t worth(const struct lookup *l, int32_t m, bool all)
{
    if (m < l->min_short)
        return 0;
    if (all || m - l->min_match >= DRAFT_MAX)
        return DRAFT_MAX;
    return m < l->min_match ? m / 2 : 4 + 2 * (m - l->min_match);
}

static int lookup_propose(struct drafter *d, const struct draft_request *q, struct draft *out, skua_error *err)
{
    struct lookup *l = (struct lookup *)d;
    out->n = out->match = 0;
    int rc = build(l, err);
    if (rc || !d->n_pos)
        return rc;
    int32_t p = l->last, e = NONE;
    while (p != NONE && (e = find_edge(l, p, q->anchor)) == NONE)
        p = l->states[p].link;
    if (p == NONE)
        return 0;
    int32_t m = l->states[p].len + 1, from = l->states[l->edges[e].to].end + 1;
    out->match = m;
    out->n = worth(l, m, q->full_block);
    out->n = out->n < q->n_max ? out->n : q->n_max;
    for (int32_t i = 0; i < out->n; i++, from++) {
        out->ids[i] = from < d->n_pos ? l->stream[from] : from == d->n_pos ? q->anchor : out->ids[from - d->n_pos - 1];
        out->confidence[i] = -1;
        out->n_top[i] = 0;
    }
    return 0;
}

static bool lookup_truncate(struct drafter *d, int32_t n)
{
    struct lookup *l = (struct lookup *)d;
    if (n >= d->n_pos)
        return true;
    d->n_pos = n;
    if (l->n_built > n)
        forget(l);
    return true;
}

static size_t lookup_save_size(const struct drafter *d)
{
    (void)d;
    return 0;
}

static void lookup_save(const struct drafter *d, void *dst)
{
    (void)d;
    (void)dst;
}

static int lookup_load(struct drafter *d, int32_t n, const void *src, size_t size, skua_error *err)
{
    (void)src;
    if (size || n > d->n_pos)
        return error_set(err, SKUA_ESTATE, "lookup drafter: %d tokens and %zu bytes of state, expected at most %d and no bytes", n, size,
                         d->n_pos);
    lookup_truncate(d, n);
    return 0;
}

static void lookup_reset(struct drafter *d)
{
    lookup_truncate(d, 0);
    d->lost = false;
}

static size_t lookup_bytes(const struct drafter *d)
{
    const struct lookup *l = (const struct lookup *)d;
    return sizeof *l + (size_t)l->cap_stream * sizeof *l->stream + (size_t)l->cap_states * sizeof *l->states +
           (size_t)l->cap_edges * sizeof *l->edges + (size_t)l->n_slots * sizeof *l->slots;
}

static void lookup_free(struct drafter *d)
{
    struct lookup *l = (struct lookup *)d;
    mem_free(l->stream);
    mem_free(l->states);
    mem_free(l->edges);
    mem_free(l->slots);
    mem_free(l);
}

static const struct drafter_ops lookup_ops = {
    .kind = "lookup",
    .extend = lookup_extend,
    .propose = lookup_propose,
    .truncate = lookup_truncate,
    .save_size = lookup_save_size,
    .save = lookup_save,
    .load = lookup_load,
    .reset = lookup_reset,
    .bytes = lookup_bytes,
    .free = lookup_free,
};

int lookup_create(int32_t min_match, int32_t min_short, int32_t n_max, struct drafter **out, skua_error *err)
{
    *out = NULL;
    if (min_short < 1 || min_match < min_short || n_max < 1 || n_max > DRAFT_MAX)
        return error_set(err, SKUA_EARG, "lookup drafter with matches from %d (short: %d) and %d drafts, expected 1 <= short <= match and "
                         "1 to %d drafts", min_match, min_short, n_max, DRAFT_MAX);
    struct lookup *l = mem_calloc(1, sizeof *l);
    if (!l)
        return error_nomem(err, "lookup drafter", sizeof *l);
    l->base = (struct drafter){.ops = &lookup_ops, .n_max = n_max};
    snprintf(l->base.name, sizeof l->base.name, "lookup (matches from %d tokens)", min_match);
    l->min_match = min_match;
    l->min_short = min_short;
    *out = &l->base;
    return 0;
}
