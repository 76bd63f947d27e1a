/* Running a grammar: frames, configurations and what bytes make of them, all interned and remembered; see grammar_internal.h. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "sample/grammar_internal.h"

#define MAX_STACK 4096            /* frames in a chain; a thread that needs more is dropped */
#define MAX_FOUND 65536           /* threads of a configuration */
#define CALL_BUDGET 4000000u      /* steps of one call */
#define SOFT_BYTES (16u << 20)    /* remembered: at the next call what no state needs is forgotten */
#define HARD_BYTES (64u << 20)

/* ---- index ---- */

int grammar_index_init(struct grammar_index *x, size_t expected)
{
    size_t n = 16;
    while (n / 2 < expected)
        n *= 2;
    *x = (struct grammar_index){.slots = mem_alloc(n * sizeof *x->slots), .mask = n - 1};
    if (!x->slots)
        return SKUA_ENOMEM;
    memset(x->slots, 0xff, n * sizeof *x->slots);
    return 0;
}

void grammar_index_free(struct grammar_index *x)
{
    mem_free(x->slots);
    *x = (struct grammar_index){0};
}

static void put(struct grammar_index *x, uint32_t hash, uint32_t id)
{
    size_t at = hash & x->mask;
    while (x->slots[at].id != GRAMMAR_NONE)
        at = (at + 1) & x->mask;
    x->slots[at] = (struct grammar_index_slot){hash, id};
    x->used++;
}

int grammar_index_add(struct grammar_index *x, uint32_t hash, uint32_t id)
{
    if ((x->used + 1) * 2 > x->mask + 1) {
        struct grammar_index bigger;
        if (grammar_index_init(&bigger, x->mask + 1))
            return SKUA_ENOMEM;
        for (size_t i = 0; i <= x->mask; i++)
            if (x->slots[i].id != GRAMMAR_NONE)
                put(&bigger, x->slots[i].hash, x->slots[i].id);
        grammar_index_free(x);
        *x = bigger;
    }
    put(x, hash, id);
    return 0;
}

uint32_t grammar_index_next(const struct grammar_index *x, uint32_t hash, size_t *at)
{
    for (size_t i = *at & x->mask;; i = (i + 1) & x->mask) {
        const struct grammar_index_slot *s = &x->slots[i];
        if (s->id == GRAMMAR_NONE || s->hash == hash) {
            *at = i + 1;
            return s->id;
        }
    }
}

/* ---- memory ---- */

/* Room for more entries of *pp. */
static int room(void *pp, size_t n, size_t *cap, size_t more, size_t size)
{
    if (n + more <= *cap)
        return 0;
    const size_t want = *cap * 2 > n + more ? *cap * 2 : n + more + 16;
    void *p = mem_realloc_array(*(void **)pp, want, size);
    if (!p)
        return SKUA_ENOMEM;
    *(void **)pp = p;
    *cap = want;
    return 0;
}

static size_t run_bytes(const struct grammar *g, const struct grammar_run *r)
{
    return r->n_frames * (sizeof *r->frames + 16) + r->n_threads * sizeof *r->threads +
           r->n_configs * (sizeof *r->configs + 16 + (size_t)g->n_classes * 4);
}

void grammar_masks_drop(struct grammar_run *r)
{
    for (size_t i = 0; i < r->n_masks; i++) {
        mem_free(r->masks[i].bits);
        mem_free(r->masks[i].exits);
    }
    r->n_masks = r->mask_bytes = 0;
    if (r->mask_index.slots)
        memset(r->mask_index.slots, 0xff, (r->mask_index.mask + 1) * sizeof *r->mask_index.slots);
    r->mask_index.used = 0;
}

void grammar_run_free(struct grammar_run *r)
{
    grammar_masks_drop(r);
    mem_free(r->frames);
    mem_free(r->threads);
    mem_free(r->configs);
    mem_free(r->next);
    mem_free(r->masks);
    mem_free(r->work);
    mem_free(r->found);
    mem_free(r->visited);
    grammar_index_free(&r->frame_index);
    grammar_index_free(&r->config_index);
    grammar_index_free(&r->mask_index);
    *r = (struct grammar_run){0};
}

/* Frames 0 and 1 and configurations 0 and 1 have fixed meanings. */
int grammar_run_init(struct grammar *g, struct grammar_run *r)
{
    *r = (struct grammar_run){.limit = SOFT_BYTES, .visited_mask = 63, .cap_frames = 16, .cap_configs = 16};
    if (grammar_index_init(&r->frame_index, 16) || grammar_index_init(&r->config_index, 16) || grammar_index_init(&r->mask_index, 8))
        goto fail;
    r->visited = mem_calloc(r->visited_mask + 1, sizeof *r->visited);
    r->frames = mem_calloc(r->cap_frames, sizeof *r->frames);
    r->configs = mem_calloc(r->cap_configs, sizeof *r->configs);
    r->next = mem_calloc(r->cap_configs * g->n_classes, sizeof *r->next);
    if (!r->visited || !r->frames || !r->configs || !r->next)
        goto fail;
    r->n_frames = FRAME_FIRST;
    r->n_configs = CONFIG_FIRST;
    for (uint32_t k = 0; k < g->n_classes; k++)
        r->next[g->n_classes + k] = CONFIG_DEAD;
    return 0;
fail:
    grammar_run_free(r);
    return SKUA_ENOMEM;
}

/* ---- frames ---- */

int grammar_run_frame(struct grammar *g, const struct grammar_frame *f, uint32_t *id)
{
    struct grammar_run *r = &g->run;
    const uint32_t key[4] = {f->node, f->lo, f->hi, f->parent}, hash = (uint32_t)XXH3_64bits(key, sizeof key);
    size_t at = hash;
    while ((*id = grammar_index_next(&r->frame_index, hash, &at)) != GRAMMAR_NONE) {
        const struct grammar_frame *o = &r->frames[*id];
        if (o->node == f->node && o->lo == f->lo && o->hi == f->hi && o->parent == f->parent)
            return 0;
    }
    const struct grammar_frame *p = &r->frames[f->parent];
    struct grammar_frame n = *f;
    n.depth = p->depth + 1;
    n.counter = p->counter;
    if (n.lo != GRAMMAR_INF && n.lo > n.counter)
        n.counter = n.lo;
    if (n.hi != GRAMMAR_INF && n.hi > n.counter)
        n.counter = n.hi;
    *id = (uint32_t)r->n_frames;
    if (room(&r->frames, r->n_frames, &r->cap_frames, 1, sizeof n) || grammar_index_add(&r->frame_index, hash, *id))
        return SKUA_ENOMEM;
    r->frames[r->n_frames++] = n;
    return 0;
}

/* ---- configurations ---- */

static int by_thread(const void *a, const void *b)
{
    const struct grammar_thread *x = a, *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return (x->frame > y->frame) - (x->frame < y->frame);
}

static int config_room(struct grammar *g, struct grammar_run *r)
{
    if (r->n_configs < r->cap_configs)
        return 0;
    const size_t cap = r->cap_configs * 2;
    struct grammar_config *c = mem_realloc_array(r->configs, cap, sizeof *c);
    if (!c)
        return SKUA_ENOMEM;
    r->configs = c;
    uint32_t *next = mem_realloc_array(r->next, cap * g->n_classes, sizeof *next);
    if (!next)
        return SKUA_ENOMEM;
    r->next = next;
    r->cap_configs = cap;
    return 0;
}

/* Is there a thread that went below what is known? Those without a byte come first. */
static bool leaves(const struct grammar_thread *t, size_t n)
{
    for (size_t i = 0; i < n && t[i].node == 0; i++)
        if (t[i].frame == FRAME_EXIT)
            return true;
    return false;
}

int grammar_run_config(struct grammar *g, struct grammar_thread *t, size_t n, uint32_t *id)
{
    struct grammar_run *r = &g->run;
    size_t k = 0;
    *id = CONFIG_DEAD;
    if (!n)
        return 0;
    qsort(t, n, sizeof *t, by_thread);
    for (size_t i = 0; i < n; i++)
        if (!k || by_thread(&t[i], &t[k - 1]))
            t[k++] = t[i];
    const uint32_t hash = (uint32_t)XXH3_64bits(t, k * sizeof *t);
    size_t at = hash;
    while ((*id = grammar_index_next(&r->config_index, hash, &at)) != GRAMMAR_NONE) {
        const struct grammar_config *c = &r->configs[*id];
        if (c->n == k && memcmp(r->threads + c->first, t, k * sizeof *t) == 0)
            return 0;
    }
    if (run_bytes(g, r) > HARD_BYTES)
        return SKUA_ELIMIT;
    *id = (uint32_t)r->n_configs;
    if (config_room(g, r) || room(&r->threads, r->n_threads, &r->cap_threads, k, sizeof *t) || grammar_index_add(&r->config_index, hash,
        *id))
        return SKUA_ENOMEM;
    memcpy(r->threads + r->n_threads, t, k * sizeof *t);
    r->configs[r->n_configs] = (struct grammar_config){.first = (uint32_t)r->n_threads, .n = (uint32_t)k, .leaves = leaves(t, k)};
    memset(r->next + r->n_configs * g->n_classes, 0, g->n_classes * sizeof *r->next);
    r->n_threads += k;
    r->n_configs++;
    return 0;
}

/* ---- closure: from nodes to those that take a byte ---- */

static int visited_grow(struct grammar_run *r)
{
    const size_t n = (r->visited_mask + 1) * 2;
    struct grammar_visited *v = mem_calloc(n, sizeof *v);
    if (!v)
        return SKUA_ENOMEM;
    for (size_t i = 0; i <= r->visited_mask; i++)
        if (r->visited[i].stamp == r->stamp) {
            size_t at = XXH3_64bits(&r->visited[i].key, 8) & (n - 1);
            while (v[at].stamp)
                at = (at + 1) & (n - 1);
            v[at] = r->visited[i];
        }
    mem_free(r->visited);
    r->visited = v;
    r->visited_mask = n - 1;
    return 0;
}

/* Put a thread on the list of work, once. */
static int go(struct grammar_run *r, uint32_t node, uint32_t frame)
{
    const uint64_t key = (uint64_t)node << 32 | frame;
    if (r->frames[frame].depth > MAX_STACK)
        return 0;
    if ((r->n_visited + 1) * 2 > r->visited_mask && visited_grow(r))
        return SKUA_ENOMEM;
    size_t at = XXH3_64bits(&key, 8) & r->visited_mask;
    for (; r->visited[at].stamp == r->stamp; at = (at + 1) & r->visited_mask)
        if (r->visited[at].key == key)
            return 0;
    if (!r->budget)
        return SKUA_ELIMIT;
    r->budget--;
    r->visited[at] = (struct grammar_visited){key, r->stamp};
    r->n_visited++;
    if (room(&r->work, r->n_work, &r->cap_work, 1, sizeof *r->work))
        return SKUA_ENOMEM;
    r->work[r->n_work++] = (struct grammar_thread){node, frame};
    return 0;
}

static int found(struct grammar_run *r, uint32_t node, uint32_t frame)
{
    if (r->n_found >= MAX_FOUND)
        return SKUA_ELIMIT;
    if (room(&r->found, r->n_found, &r->cap_found, 1, sizeof *r->found))
        return SKUA_ENOMEM;
    r->found[r->n_found++] = (struct grammar_thread){node, frame};
    return 0;
}

/* A loop of which lo iterations must and hi may still come. */
static int enter(struct grammar *g, uint32_t loop, uint32_t lo, uint32_t hi, uint32_t frame)
{
    const struct grammar_node n = g->nodes[loop];
    uint32_t inner;
    int rc = lo == 0 ? go(&g->run, n.b, frame) : 0;
    if (rc || hi == 0)
        return rc;
    rc = grammar_run_frame(g, &(struct grammar_frame){.node = loop, .lo = grammar_dec(lo), .hi = grammar_dec(hi), .parent = frame}, &inner);
    return rc ? rc : go(&g->run, n.a, inner);
}

static int pop(struct grammar *g, uint32_t frame)
{
    struct grammar_run *r = &g->run;
    const struct grammar_frame f = r->frames[frame];
    if (frame < FRAME_FIRST)
        return found(r, 0, frame);
    if (g->nodes[f.node].kind == NODE_LOOP)
        return enter(g, f.node, f.lo, f.hi, f.parent);
    return go(r, f.node, f.parent);
}

static int close_one(struct grammar *g, struct grammar_thread t)
{
    struct grammar_run *r = &g->run;
    const struct grammar_node n = g->nodes[t.node];
    uint32_t frame = t.frame;
    int rc;
    switch (n.kind) {
    case NODE_RETURN: return pop(g, t.frame);
    case NODE_SET: return found(r, t.node, t.frame);
    case NODE_ALT:
        rc = go(r, n.a, t.frame);
        return rc ? rc : go(r, n.b, t.frame);
    case NODE_CALL: /* a call that is the last thing in a rule needs no frame */
        rc = n.b ? grammar_run_frame(g, &(struct grammar_frame){.node = n.b, .parent = t.frame}, &frame) : 0;
        return rc ? rc : go(r, g->rules[n.a], frame);
    default: return enter(g, n.a, n.lo, n.hi, t.frame);
    }
}

static void closure_begin(struct grammar_run *r)
{
    r->n_work = r->n_found = r->n_visited = 0;
    if (++r->stamp == 0) { /* once in 2^32 closures */
        memset(r->visited, 0, (r->visited_mask + 1) * sizeof *r->visited);
        r->stamp = 1;
    }
}

static int closure_end(struct grammar *g, uint32_t *id)
{
    struct grammar_run *r = &g->run;
    while (r->n_work) {
        const int rc = close_one(g, r->work[--r->n_work]);
        if (rc)
            return rc;
    }
    return grammar_run_config(g, r->found, r->n_found, id);
}

int grammar_run_closure(struct grammar *g, uint32_t node, uint32_t frame, uint32_t *id)
{
    closure_begin(&g->run);
    const int rc = go(&g->run, node, frame);
    return rc ? rc : closure_end(g, id);
}

int grammar_run_step(struct grammar *g, uint32_t config, uint32_t byte_class, uint32_t *to)
{
    struct grammar_run *r = &g->run;
    const struct grammar_config c = r->configs[config];
    const uint8_t byte = g->class_byte[byte_class];
    int rc = 0;
    closure_begin(r);
    if (r->budget < c.n)
        return SKUA_ELIMIT;
    r->budget -= c.n;
    for (uint32_t i = 0; i < c.n && !rc; i++) {
        const struct grammar_thread t = r->threads[c.first + i];
        const struct grammar_node *n = &g->nodes[t.node];
        if (n->kind == NODE_SET && grammar_set_has(&g->sets[n->a], byte))
            rc = go(r, n->b, t.frame);
    }
    if (!rc)
        rc = closure_end(g, to);
    if (!rc)
        r->next[(size_t)config * g->n_classes + byte_class] = *to;
    return rc;
}

/* ---- forgetting ---- */

/* The frame of the old run in the new one, and all below it; chain: room for a whole stack. */
static int move_frame(struct grammar *g, const struct grammar_run *old, uint32_t frame, uint32_t *chain, uint32_t *id)
{
    size_t n = 0;
    for (; frame >= FRAME_FIRST; frame = old->frames[frame].parent)
        chain[n++] = frame;
    *id = frame;
    while (n) {
        struct grammar_frame f = old->frames[chain[--n]];
        f.parent = *id;
        const int rc = grammar_run_frame(g, &f, id);
        if (rc)
            return rc;
    }
    return 0;
}

static int move_config(struct grammar *g, const struct grammar_run *old, uint32_t config, uint32_t *id)
{
    const struct grammar_config c = old->configs[config];
    struct grammar_thread *t = mem_alloc((c.n + 1) * sizeof *t);
    uint32_t *chain = mem_alloc((MAX_STACK + 2) * sizeof *chain);
    int rc = t && chain ? 0 : SKUA_ENOMEM;
    for (uint32_t i = 0; i < c.n && !rc; i++) {
        t[i].node = old->threads[c.first + i].node;
        rc = move_frame(g, old, old->threads[c.first + i].frame, chain, &t[i].frame);
    }
    if (!rc)
        rc = grammar_run_config(g, t, c.n, id);
    mem_free(t);
    mem_free(chain);
    return rc;
}

/* Keep what the states need and forget the rest; without memory for that, forget nothing. */
static void forget(struct grammar *g)
{
    struct grammar_run old = g->run;
    size_t n = 0;
    int rc = 0;
    for (struct grammar_state *s = g->states; s; s = s->next)
        n++;
    uint32_t *moved = mem_alloc((n + 1) * sizeof *moved);
    if (!moved)
        return;
    if (grammar_run_init(g, &g->run)) {
        g->run = old;
        mem_free(moved);
        return;
    }
    n = 0;
    for (struct grammar_state *s = g->states; s && !rc; s = s->next, n++) {
        moved[n] = s->config;
        if (s->config >= CONFIG_FIRST)
            rc = move_config(g, &old, s->config, &moved[n]);
    }
    if (rc) {
        grammar_run_free(&g->run);
        g->run = old;
    } else {
        n = 0;
        for (struct grammar_state *s = g->states; s; s = s->next)
            s->config = moved[n++];
        grammar_run_free(&old);
        const size_t needed = run_bytes(g, &g->run);
        g->run.limit = needed * 2 > SOFT_BYTES ? needed * 2 : SOFT_BYTES;
    }
    mem_free(moved);
}

static void begin_call(struct grammar *g)
{
    pthread_mutex_lock(&g->lock);
    if (run_bytes(g, &g->run) > g->run.limit)
        forget(g);
    g->run.budget = CALL_BUDGET;
}

/* ---- the grammar and its states ---- */

struct grammar *grammar_retain(struct grammar *g)
{
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void grammar_release(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    grammar_run_free(&g->run);
    pthread_mutex_destroy(&g->lock);
    mem_free(g->nodes);
    mem_free(g->sets);
    mem_free(g->rules);
    mem_free(g);
}

static void link_state(struct grammar_state *s)
{
    s->next = s->g->states;
    s->link = &s->g->states;
    if (s->next)
        s->next->link = &s->next;
    s->g->states = s;
}

static int fail(int rc, skua_error *err)
{
    if (rc == SKUA_ENOMEM)
        return error_nomem(err, "grammar", 0);
    return error_set(err, SKUA_ELIMIT, "the grammar is too ambiguous here: more steps or memory than allowed");
}

int grammar_state_new(struct grammar *g, const struct grammar_vocab *v, struct grammar_state **out, skua_error *err)
{
    *out = NULL;
    struct grammar_state *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "grammar state", sizeof *s);
    s->v = v;
    begin_call(g);
    int rc = grammar_run_closure(g, g->start, FRAME_BOTTOM, &s->config);
    if (!rc && s->config == CONFIG_DEAD) /* all of it lies deeper than a stack may be */
        rc = SKUA_ELIMIT;
    if (!rc) {
        s->g = g;
        link_state(s);
    }
    pthread_mutex_unlock(&g->lock);
    if (rc) {
        mem_free(s);
        return fail(rc, err);
    }
    grammar_retain(g);
    *out = s;
    return 0;
}

int grammar_state_copy(const struct grammar_state *from, struct grammar_state **out, skua_error *err)
{
    struct grammar_state *s = *out = mem_alloc(sizeof *s);
    if (!s)
        return error_nomem(err, "grammar state", sizeof *s);
    pthread_mutex_lock(&from->g->lock);
    *s = *from;
    link_state(s);
    pthread_mutex_unlock(&from->g->lock);
    grammar_retain(s->g);
    return 0;
}

void grammar_state_free(struct grammar_state *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->g->lock);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    pthread_mutex_unlock(&s->g->lock);
    grammar_release(s->g);
    mem_free(s);
}

bool grammar_state_accept(struct grammar_state *s, const char *bytes, size_t n)
{
    struct grammar *g = s->g;
    int rc = 0;
    begin_call(g);
    uint32_t c = s->config;
    for (size_t i = 0; i < n && c != CONFIG_DEAD && !rc; i++) {
        const uint32_t k = g->class_of[(uint8_t)bytes[i]], to = g->run.next[(size_t)c * g->n_classes + k];
        if (to == CONFIG_UNKNOWN)
            rc = grammar_run_step(g, c, k, &c);
        else
            c = to;
    }
    const bool ok = !rc && c != CONFIG_DEAD;
    if (ok)
        s->config = c;
    s->failed = rc;
    pthread_mutex_unlock(&g->lock);
    return ok;
}

bool grammar_state_can_end(const struct grammar_state *s)
{
    pthread_mutex_lock(&s->g->lock);
    const bool ok = grammar_config_can_end(&s->g->run, s->config);
    pthread_mutex_unlock(&s->g->lock);
    return ok;
}

bool grammar_state_must_end(const struct grammar_state *s)
{
    pthread_mutex_lock(&s->g->lock);
    const bool ok = grammar_config_can_end(&s->g->run, s->config) && s->g->run.configs[s->config].n == 1;
    pthread_mutex_unlock(&s->g->lock);
    return ok;
}

int grammar_state_mask(struct grammar_state *s, uint64_t *mask, skua_error *err)
{
    begin_call(s->g);
    const int rc = s->failed ? s->failed : grammar_mask_make(s->g, s->v, s->config, mask);
    pthread_mutex_unlock(&s->g->lock);
    s->failed = 0;
    return rc ? fail(rc, err) : 0;
}
