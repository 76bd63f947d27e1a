/* Masks: the vocabulary's tree walked together with the automaton.
 *
 * Two things keep that short. A repetition's counters beyond the length of a token cannot matter within it, so they are taken for endless:
 * a long counted string has one mask almost everywhere. And what goes on under a stack is looked at without the stack where most tokens
 * are allowed anyhow (inside strings): that mask is the same wherever the rule is called from; at the places of the tree where the rule
 * ends, and only there, the walk goes on with what is under it. And a configuration that plain text does not change takes whole subtrees
 * of plain text at once. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "sample/grammar_internal.h"

#define WIDE_SET 48 /* bytes; a node that allows so many is worth a mask without its stack */
#define MASK_BYTES (32u << 20) /* kept */

enum { MASK_WHOLE, MASK_SHORT, MASK_LOCAL }; /* final; without long tokens; of a rule without its stack */

struct mask_maker {
    struct grammar *g;
    const struct grammar_vocab *v;
    size_t words;
    uint32_t *states; /* by depth in the tree */
};

/* ---- stacks without what does not matter ---- */

static uint32_t clamp_count(uint32_t n, uint32_t limit) { return n >= limit ? GRAMMAR_INF : n; }

/* The stack above `bottom` (GRAMMAR_NONE: all of it) with clamped counters, put on `base`. */
static int rebuild(struct grammar *g, uint32_t frame, uint32_t bottom, uint32_t base, uint32_t limit, uint32_t *id)
{
    struct grammar_run *r = &g->run;
    size_t n = 0;
    uint32_t *chain = mem_alloc((r->frames[frame].depth + 1u) * sizeof *chain);
    int rc = chain ? 0 : SKUA_ENOMEM;
    if (!rc)
        for (; frame != bottom && frame >= FRAME_FIRST; frame = r->frames[frame].parent)
            chain[n++] = frame;
    *id = bottom == GRAMMAR_NONE ? frame : base;
    while (n && !rc) {
        struct grammar_frame f = r->frames[chain[--n]];
        f.lo = clamp_count(f.lo, limit);
        f.hi = clamp_count(f.hi, limit);
        f.parent = *id;
        rc = grammar_run_frame(g, &f, id);
    }
    mem_free(chain);
    return rc;
}

static int clamp_frame(struct grammar *g, uint32_t frame, uint32_t limit, uint32_t *id)
{
    *id = frame;
    return g->run.frames[frame].counter < limit ? 0 : rebuild(g, frame, GRAMMAR_NONE, 0, limit, id);
}

static struct grammar_thread *copy_threads(const struct grammar_run *r, uint32_t config)
{
    const struct grammar_config c = r->configs[config];
    struct grammar_thread *t = mem_alloc((c.n + 1) * sizeof *t);
    if (t)
        memcpy(t, r->threads + c.first, c.n * sizeof *t);
    return t;
}

static int clamp_config(struct grammar *g, uint32_t config, uint32_t limit, uint32_t *id)
{
    struct grammar_run *r = &g->run;
    const struct grammar_config c = r->configs[config];
    bool same = true;
    for (uint32_t i = 0; i < c.n && same; i++)
        same = r->frames[r->threads[c.first + i].frame].counter < limit;
    *id = config;
    if (same)
        return 0;
    struct grammar_thread *t = copy_threads(r, config);
    int rc = t ? 0 : SKUA_ENOMEM;
    for (uint32_t i = 0; i < c.n && !rc; i++)
        rc = clamp_frame(g, t[i].frame, limit, &t[i].frame);
    if (!rc)
        rc = grammar_run_config(g, t, c.n, id);
    mem_free(t);
    return rc;
}

/* ---- remembered masks ---- */

static struct grammar_mask *find_mask(struct grammar_run *r, uint32_t config, uint32_t kind)
{
    const uint32_t key[2] = {config, kind}, hash = (uint32_t)XXH3_64bits(key, sizeof key);
    size_t at = hash;
    for (uint32_t id; (id = grammar_index_next(&r->mask_index, hash, &at)) != GRAMMAR_NONE;)
        if (r->masks[id].config == config && r->masks[id].kind == kind)
            return &r->masks[id];
    return NULL;
}

/* A new mask of zeros. Its bits stay where they are until grammar_masks_drop. */
static int add_mask(const struct mask_maker *m, uint32_t config, uint32_t kind, uint32_t *id)
{
    struct grammar_run *r = &m->g->run;
    const uint32_t key[2] = {config, kind}, hash = (uint32_t)XXH3_64bits(key, sizeof key);
    if (r->n_masks == r->cap_masks) {
        const size_t cap = r->cap_masks * 2 + 16;
        struct grammar_mask *p = mem_realloc_array(r->masks, cap, sizeof *p);
        if (!p)
            return SKUA_ENOMEM;
        r->masks = p;
        r->cap_masks = cap;
    }
    uint64_t *bits = mem_calloc(m->words, sizeof *bits);
    if (!bits || grammar_index_add(&r->mask_index, hash, (uint32_t)r->n_masks)) {
        mem_free(bits);
        return SKUA_ENOMEM;
    }
    *id = (uint32_t)r->n_masks;
    r->masks[r->n_masks++] = (struct grammar_mask){.config = config, .kind = kind, .bits = bits};
    r->mask_bytes += m->words * sizeof *bits + sizeof(struct grammar_mask);
    return 0;
}

/* ---- the walk ---- */

struct exits { uint32_t *at; size_t n, cap; };

static int add_exit(struct exits *x, uint32_t node)
{
    if (x->n == x->cap) {
        const size_t cap = x->cap * 2 + 64;
        uint32_t *p = mem_realloc_array(x->at, cap, sizeof *p);
        if (!p)
            return SKUA_ENOMEM;
        x->at = p;
        x->cap = cap;
    }
    x->at[x->n++] = node;
    return 0;
}

static int next_config(struct grammar *g, uint32_t config, uint8_t byte, uint32_t *to)
{
    const uint32_t k = g->class_of[byte];
    *to = g->run.next[(size_t)config * g->n_classes + k];
    return *to == CONFIG_UNKNOWN ? grammar_run_step(g, config, k, to) : 0;
}

/* Does every character whose rest begins in `utf8` lead from config back to home? *stays is cleared if not. */
static int rest_stays(struct grammar *g, uint32_t config, uint8_t utf8, uint32_t home, bool *stays)
{
    uint32_t last = CONFIG_UNKNOWN, to;
    uint8_t last_state = GRAMMAR_UTF8_BAD;
    for (unsigned c = utf8 ? 0x80 : 0; c < 0x100 && *stays; c++) {
        const uint8_t state = grammar_utf8_step(utf8, (uint8_t)c);
        if (state == GRAMMAR_UTF8_BAD || (c < 0x80 && !grammar_is_plain((uint8_t)c)))
            continue;
        int rc = next_config(g, config, (uint8_t)c, &to);
        if (rc)
            return rc;
        if (to == last && state == last_state)
            continue;
        last = to;
        last_state = state;
        *stays = state ? to != CONFIG_DEAD : to == home;
        if (state && *stays && (rc = rest_stays(g, to, state, home, stays)))
            return rc;
    }
    return 0;
}

static int stays_plain(struct grammar *g, uint32_t config, bool *stays)
{
    *stays = g->run.configs[config].plain == PLAIN_STAYS;
    if (g->run.configs[config].plain != PLAIN_UNKNOWN)
        return 0;
    *stays = true;
    const int rc = rest_stays(g, config, 0, config, stays);
    if (!rc)
        g->run.configs[config].plain = *stays ? PLAIN_STAYS : PLAIN_CHANGES;
    return rc;
}

static void set_bits(const struct grammar_trie *x, uint32_t from, uint32_t to, uint64_t *bits)
{
    for (uint32_t r = from; r < to; r++)
        bits[x->ids[r] >> 6] |= (uint64_t)1 << (x->ids[r] & 63);
}

/* Nodes from .. to of the tree, children of one node, from configuration start: set the bits of the tokens that are allowed. exits (may
   be NULL): the nodes at which the unknown stack is reached and something follows. */
static int walk(const struct mask_maker *m, const struct grammar_trie *x, uint32_t from, uint32_t to, uint32_t start, uint64_t *bits,
                struct exits *exits)
{
    struct grammar *g = m->g;
    int rc = 0;
    if (from >= to)
        return 0;
    m->states[x->nodes[from].depth - 1] = start;
    for (uint32_t i = from; i < to && !rc;) {
        const struct grammar_trie_node n = x->nodes[i];
        uint32_t c;
        bool all = false;
        rc = next_config(g, m->states[n.depth - 1], n.byte, &c);
        if (rc || c == CONFIG_DEAD) {
            i = n.end;
            continue;
        }
        const bool leaves = exits && g->run.configs[c].leaves;
        if (n.plain && !leaves)
            rc = stays_plain(g, c, &all);
        m->states[n.depth] = c;
        set_bits(x, n.rank, x->nodes[all ? n.end : i + 1].rank, bits);
        if (leaves && i + 1 < n.end && !rc)
            rc = add_exit(exits, i);
        i = all ? n.end : i + 1;
    }
    return rc;
}

/* ---- masks of rules without their stacks ---- */

/* The frames of loops on top of a stack, on an unknown bottom; *below: the call's frame under them, or FRAME_BOTTOM. */
static int localise(struct grammar *g, uint32_t frame, uint32_t *local, uint32_t *below)
{
    const struct grammar_run *r = &g->run;
    *below = frame;
    while (*below >= FRAME_FIRST && g->nodes[r->frames[*below].node].kind == NODE_LOOP)
        *below = r->frames[*below].parent;
    return rebuild(g, frame, *below, *below >= FRAME_FIRST ? FRAME_EXIT : FRAME_BOTTOM, GRAMMAR_INF, local);
}

static int local_mask(const struct mask_maker *m, uint32_t config, uint32_t *id)
{
    struct grammar_run *r = &m->g->run;
    const struct grammar_mask *have = find_mask(r, config, MASK_LOCAL);
    struct exits exits = {0};
    if (have) {
        *id = (uint32_t)(have - r->masks);
        return 0;
    }
    uint64_t *bits = mem_calloc(m->words, sizeof *bits);
    int rc = bits ? walk(m, &m->v->trie[0], 0, m->v->trie[0].n, config, bits, &exits) : SKUA_ENOMEM;
    if (!rc)
        rc = add_mask(m, config, MASK_LOCAL, id);
    if (!rc) {
        memcpy(r->masks[*id].bits, bits, m->words * sizeof *bits);
        r->masks[*id].exits = exits.at;
        r->masks[*id].n_exits = (uint32_t)exits.n;
        r->mask_bytes += exits.n * sizeof *exits.at;
    } else {
        mem_free(exits.at);
    }
    mem_free(bits);
    return rc;
}

/* Add what the threads t[0 .. n), all of one frame, allow. */
static int add_group(const struct mask_maker *m, struct grammar_thread *t, size_t n, uint64_t *bits)
{
    struct grammar *g = m->g;
    const struct grammar_trie *x = &m->v->trie[0];
    uint32_t local, below, config, id, under;
    int rc = localise(g, t[0].frame, &local, &below);
    for (size_t i = 0; i < n; i++)
        t[i].frame = local;
    if (!rc)
        rc = grammar_run_config(g, t, n, &config);
    if (!rc)
        rc = local_mask(m, config, &id);
    if (rc)
        return rc;
    for (size_t w = 0; w < m->words; w++)
        bits[w] |= g->run.masks[id].bits[w];
    if (below < FRAME_FIRST || !g->run.masks[id].n_exits)
        return 0;
    const struct grammar_frame f = g->run.frames[below];
    rc = grammar_run_closure(g, f.node, f.parent, &under);
    for (uint32_t i = 0; i < g->run.masks[id].n_exits && !rc && under != CONFIG_DEAD; i++) {
        const uint32_t at = g->run.masks[id].exits[i];
        rc = walk(m, x, at + 1, x->nodes[at].end, under, bits, NULL);
    }
    return rc;
}

static int by_frame(const void *a, const void *b)
{
    const struct grammar_thread *x = a, *y = b;
    if (x->frame != y->frame)
        return x->frame < y->frame ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static bool wide(const struct grammar *g, uint32_t node)
{
    const struct grammar_node *n = &g->nodes[node];
    int bytes = 0;
    for (int i = 0; i < 4 && n->kind == NODE_SET; i++)
        bytes += __builtin_popcountll(g->sets[n->a].w[i]);
    return bytes >= WIDE_SET;
}

/* Threads of one frame among which a node allows many bytes go without their stack; the others together with it. */
static int short_bits(const struct mask_maker *m, uint32_t config, uint64_t *bits)
{
    struct grammar *g = m->g;
    const size_t n = g->run.configs[config].n;
    struct grammar_thread *t = copy_threads(&g->run, config);
    int rc = t ? 0 : SKUA_ENOMEM;
    size_t rest = 0;
    if (!rc)
        qsort(t, n, sizeof *t, by_frame);
    for (size_t i = 0, k; i < n && !rc; i = k) {
        bool any = false;
        for (k = i; k < n && t[k].frame == t[i].frame; k++)
            any |= wide(g, t[k].node);
        if (any)
            rc = add_group(m, t + i, k - i, bits);
        else
            for (size_t j = i; j < k; j++)
                t[rest++] = t[j];
    }
    uint32_t together;
    if (!rc && rest) {
        rc = grammar_run_config(g, t, rest, &together);
        if (!rc)
            rc = walk(m, &m->v->trie[0], 0, m->v->trie[0].n, together, bits, NULL);
    }
    mem_free(t);
    return rc;
}

/* Bits of the short tokens, remembered; bits is all zero. */
static int short_mask(const struct mask_maker *m, uint32_t config, uint64_t *bits)
{
    uint32_t c, id;
    int rc = clamp_config(m->g, config, GRAMMAR_SHORT + 1, &c);
    if (rc)
        return rc;
    const struct grammar_mask *have = find_mask(&m->g->run, c, MASK_SHORT);
    if (have) {
        memcpy(bits, have->bits, m->words * sizeof *bits);
        return 0;
    }
    rc = short_bits(m, c, bits);
    if (!rc)
        rc = add_mask(m, c, MASK_SHORT, &id);
    if (!rc)
        memcpy(m->g->run.masks[id].bits, bits, m->words * sizeof *bits);
    return rc;
}

static int whole_mask(const struct mask_maker *m, uint32_t config, uint64_t *mask)
{
    struct grammar_run *r = &m->g->run;
    uint32_t c, id;
    int rc = clamp_config(m->g, config, m->v->trie[1].depth > GRAMMAR_SHORT ? m->v->trie[1].depth + 1 : GRAMMAR_SHORT + 1, &c);
    if (rc)
        return rc;
    const struct grammar_mask *have = find_mask(r, c, MASK_WHOLE);
    if (have) {
        memcpy(mask, have->bits, m->words * sizeof *mask);
        return 0;
    }
    memset(mask, 0, m->words * sizeof *mask);
    rc = short_mask(m, c, mask);
    if (!rc)
        rc = walk(m, &m->v->trie[1], 0, m->v->trie[1].n, c, mask, NULL);
    for (uint32_t i = 0; i < m->v->n_ends && !rc && grammar_config_can_end(r, c); i++)
        mask[m->v->ends[i] >> 6] |= (uint64_t)1 << (m->v->ends[i] & 63);
    if (!rc)
        rc = add_mask(m, c, MASK_WHOLE, &id);
    if (!rc)
        memcpy(r->masks[id].bits, mask, m->words * sizeof *mask);
    return rc;
}

int grammar_mask_make(struct grammar *g, const struct grammar_vocab *v, uint32_t config, uint64_t *mask)
{
    const size_t depth = v->trie[1].depth > v->trie[0].depth ? v->trie[1].depth : v->trie[0].depth;
    struct mask_maker m = {g, v, ((size_t)v->n_tokens + 63) / 64, mem_alloc((depth + 1) * sizeof *m.states)};
    if (!m.states)
        return SKUA_ENOMEM;
    if (g->run.vocab != v->serial || g->run.mask_bytes > MASK_BYTES)
        grammar_masks_drop(&g->run);
    g->run.vocab = v->serial;
    int rc = whole_mask(&m, config, mask);
    bool any = false;
    for (size_t w = 0; w < m.words && !any; w++)
        any = mask[w] != 0;
    mem_free(m.states);
    return rc || any ? rc : SKUA_ELIMIT;
}
