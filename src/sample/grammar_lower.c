/* From expressions to nodes: what may be empty, what can end, left recursion; then one node per byte of the text, with calls of rules and
 * loops. Equal nodes are one, so equal ends of rules are shared. */
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "sample/grammar_build_internal.h"

#define UNROLL_MAX 20 /* one byte, so often, is a chain of nodes instead of a loop */

/* ---- facts about expressions ---- */

/* What an expression is as far as the rules are known: can it be empty, is there a text that it matches? */
static bool fact(struct grammar_builder *b, grammar_expr id, bool nullable)
{
    const struct expr e = b->exprs[id];
    if (!builder_steps(b, 1))
        return false;
    switch (e.kind) {
    case EXPR_EMPTY: return true;
    case EXPR_SET: return !nullable && memcmp(&b->sets[e.a], &(struct grammar_set){{0}}, sizeof(struct grammar_set)) != 0;
    case EXPR_LITERAL: return !nullable;
    case EXPR_SEQ:
        for (uint32_t i = 0; i < e.b; i++)
            if (!fact(b, b->items[e.a + i], nullable))
                return false;
        return true;
    case EXPR_ALT:
        for (uint32_t i = 0; i < e.b; i++)
            if (fact(b, b->items[e.a + i], nullable))
                return true;
        return false;
    case EXPR_REPEAT: return e.min == 0 || fact(b, e.a, nullable);
    case EXPR_RULE: return nullable ? b->rules[e.a].nullable : b->rules[e.a].productive;
    default: return false;
    }
}

/* Both facts of one rule; true when one is new. */
static bool learn(struct grammar_builder *b, size_t i)
{
    struct grammar_rule *r = &b->rules[i];
    bool news = false;
    if (!r->productive && fact(b, r->body, false))
        news = r->productive = true;
    if (!r->nullable && fact(b, r->body, true))
        news = r->nullable = true;
    return news;
}

/* Least fixed point; there and back, as rules lean on later ones as often as on earlier ones. */
static void learn_all(struct grammar_builder *b)
{
    for (bool news = true; news && !b->err.code;) {
        news = false;
        for (size_t i = 0; i < b->n_rules && !b->err.code; i++)
            news |= learn(b, i);
        for (size_t i = b->n_rules; i-- > 0 && !b->err.code;)
            news |= learn(b, i);
    }
}

/* ---- left recursion ---- */

struct edges {
    uint32_t *to, *first; /* rule i: to[first[i] .. first[i + 1]) */
    size_t n, cap;
};

/* Append the rules with which a text of this expression may begin. */
static void left(struct grammar_builder *b, grammar_expr id, struct edges *g)
{
    const struct expr e = b->exprs[id];
    if (!builder_steps(b, 1))
        return;
    if (e.kind == EXPR_RULE && builder_room(b, &g->to, g->n, &g->cap, 1, sizeof *g->to))
        g->to[g->n++] = e.a;
    if (e.kind == EXPR_REPEAT && e.max)
        left(b, e.a, g);
    if (e.kind == EXPR_SEQ || e.kind == EXPR_ALT)
        for (uint32_t i = 0; i < e.b; i++) {
            left(b, b->items[e.a + i], g);
            if (e.kind == EXPR_SEQ && !fact(b, b->items[e.a + i], true))
                break;
        }
}

static void refuse_left_recursion(struct grammar_builder *b, uint32_t rule)
{
    const struct grammar_rule *r = &b->rules[rule];
    error_set(&b->err, SKUA_EARG, "the rule '%.*s' is left-recursive: it begins with itself, directly or through other rules",
              (int)(r->name_len < 200 ? r->name_len : 200), b->bytes + r->name);
}

/* Depth-first over the edges with a stack of its own: each entry is a rule and its next edge. */
static void find_cycle(struct grammar_builder *b, const struct edges *g, uint32_t *stack, uint32_t *at, uint8_t *seen)
{
    for (uint32_t root = 0; root < b->n_rules; root++) {
        size_t n = 0;
        if (seen[root])
            continue;
        stack[n] = root;
        at[n++] = g->first[root];
        seen[root] = 1;
        while (n) {
            const uint32_t rule = stack[n - 1];
            if (at[n - 1] == g->first[rule + 1]) {
                seen[rule] = 2;
                n--;
                continue;
            }
            const uint32_t to = g->to[at[n - 1]++];
            if (seen[to] == 1) {
                refuse_left_recursion(b, to);
                return;
            }
            if (!seen[to]) {
                seen[to] = 1;
                stack[n] = to;
                at[n++] = g->first[to];
            }
        }
    }
}

static void check_left_recursion(struct grammar_builder *b)
{
    struct edges g = {0};
    const size_t n = b->n_rules;
    uint32_t *stack = mem_alloc((n + 1) * 4), *at = mem_alloc((n + 1) * 4);
    uint8_t *seen = mem_calloc(n + 1, 1);
    g.first = mem_alloc((n + 1) * 4);
    if (!stack || !at || !seen || !g.first)
        error_nomem(&b->err, "grammar", n * 13);
    for (size_t i = 0; i < n && !b->err.code; i++) {
        g.first[i] = (uint32_t)g.n;
        left(b, b->rules[i].body, &g);
        g.first[i + 1] = (uint32_t)g.n;
    }
    if (!b->err.code)
        find_cycle(b, &g, stack, at, seen);
    mem_free(stack);
    mem_free(at);
    mem_free(seen);
    mem_free(g.first);
    mem_free(g.to);
}

/* ---- nodes ---- */

enum { MEMO_STAR = 100, MEMO_LOOP }; /* not kinds of nodes: an expression repeated before a node */

struct memo { uint32_t kind, expr, next, node; };

struct lower {
    struct grammar_builder *b;
    struct grammar *g;
    size_t cap_nodes;
    struct grammar_index node_index, memo_index;
    struct memo *memo;
    size_t n_memo, cap_memo;
    uint32_t *todo; /* rules to come */
    size_t n_todo, cap_todo;
};

static uint32_t lower(struct lower *l, grammar_expr id, uint32_t next);

static uint32_t new_node(struct lower *l, struct grammar_node n)
{
    struct grammar_builder *b = l->b;
    if (b->err.code)
        return 0;
    if (l->g->n_nodes >= GRAMMAR_MAX_NODES) {
        builder_limit(b, "nodes", GRAMMAR_MAX_NODES);
        return 0;
    }
    if (!builder_room(b, &l->g->nodes, l->g->n_nodes, &l->cap_nodes, 1, sizeof n))
        return 0;
    l->g->nodes[l->g->n_nodes] = n;
    return (uint32_t)l->g->n_nodes++;
}

/* The node with these contents. */
static uint32_t node(struct lower *l, struct grammar_node n)
{
    const uint32_t hash = (uint32_t)XXH3_64bits(&n, sizeof n);
    size_t at = hash;
    if (!builder_steps(l->b, 1))
        return 0;
    for (uint32_t id; (id = grammar_index_next(&l->node_index, hash, &at)) != GRAMMAR_NONE;)
        if (memcmp(&l->g->nodes[id], &n, sizeof n) == 0)
            return id;
    const uint32_t id = new_node(l, n);
    if (!l->b->err.code && grammar_index_add(&l->node_index, hash, id))
        error_nomem(&l->b->err, "grammar", 0);
    return id;
}

static uint32_t memo_find(const struct lower *l, uint32_t kind, uint32_t expr, uint32_t next, uint32_t *hash)
{
    const uint32_t key[3] = {kind, expr, next};
    *hash = (uint32_t)XXH3_64bits(key, sizeof key);
    size_t at = *hash;
    for (uint32_t id; (id = grammar_index_next(&l->memo_index, *hash, &at)) != GRAMMAR_NONE;) {
        const struct memo *m = &l->memo[id];
        if (m->kind == kind && m->expr == expr && m->next == next)
            return m->node;
    }
    return GRAMMAR_NONE;
}

static void memo_add(struct lower *l, uint32_t hash, struct memo m)
{
    if (l->b->err.code || !builder_room(l->b, &l->memo, l->n_memo, &l->cap_memo, 1, sizeof m))
        return;
    if (grammar_index_add(&l->memo_index, hash, (uint32_t)l->n_memo))
        error_nomem(&l->b->err, "grammar", 0);
    else
        l->memo[l->n_memo++] = m;
}

/* x any number of times: a node for "again or on". */
static uint32_t star(struct lower *l, grammar_expr x, uint32_t next)
{
    uint32_t hash, n = memo_find(l, MEMO_STAR, x, next, &hash);
    if (n != GRAMMAR_NONE)
        return n;
    n = new_node(l, (struct grammar_node){.kind = NODE_ALT, .b = next});
    memo_add(l, hash, (struct memo){MEMO_STAR, x, next, n});
    const uint32_t body = lower(l, x, n);
    if (!l->b->err.code)
        l->g->nodes[n].a = body;
    return n;
}

static uint32_t loop(struct lower *l, grammar_expr x, uint32_t next)
{
    uint32_t hash, n = memo_find(l, MEMO_LOOP, x, next, &hash);
    if (n != GRAMMAR_NONE)
        return n;
    n = new_node(l, (struct grammar_node){.kind = NODE_LOOP, .b = next});
    memo_add(l, hash, (struct memo){MEMO_LOOP, x, next, n});
    const uint32_t body = lower(l, x, 0);
    if (!l->b->err.code)
        l->g->nodes[n].a = body;
    return n;
}

static uint32_t lower_repeat(struct lower *l, const struct expr *e, uint32_t next)
{
    struct grammar_builder *b = l->b;
    uint32_t min = e->min, n;
    if (e->max == 0 || !fact(b, e->a, false))
        return next;
    if (fact(b, e->a, true)) {
        min = 0;
        if (e->max != GRAMMAR_UNLIMITED && e->max > GRAMMAR_MAX_EMPTY_COUNT)
            error_set(&b->err, SKUA_ELIMIT, "what may be empty is repeated up to %u times, the limit is %d", e->max,
                GRAMMAR_MAX_EMPTY_COUNT);
    }
    if (e->max == GRAMMAR_UNLIMITED && min == 0)
        return star(l, e->a, next);
    if (e->max == GRAMMAR_UNLIMITED && min == 1) { /* the item, then "again or on"; its one copy is entered first */
        n = star(l, e->a, next);
        return b->err.code ? 0 : l->g->nodes[n].a;
    }
    if (e->max == 1) {
        n = lower(l, e->a, next);
        return min ? n : node(l, (struct grammar_node){.kind = NODE_ALT, .a = n, .b = next});
    }
    if (b->exprs[e->a].kind == EXPR_SET && e->max <= UNROLL_MAX) {
        n = next;
        for (uint32_t i = e->max; i-- > 0;) {
            n = node(l, (struct grammar_node){.kind = NODE_SET, .a = b->exprs[e->a].a, .b = n});
            if (i >= min)
                n = node(l, (struct grammar_node){.kind = NODE_ALT, .a = n, .b = next});
        }
        return n;
    }
    n = loop(l, e->a, next);
    return node(l, (struct grammar_node){.kind = NODE_ENTER, .a = n, .lo = min, .hi = e->max});
}

static uint32_t lower_alt(struct lower *l, const struct expr *e, uint32_t next)
{
    uint32_t n = GRAMMAR_NONE;
    for (uint32_t i = e->b; i-- > 0 && !l->b->err.code;) {
        const grammar_expr x = l->b->items[e->a + i];
        if (!fact(l->b, x, false))
            continue;
        const uint32_t one = lower(l, x, next);
        n = n == GRAMMAR_NONE || n == one ? one : node(l, (struct grammar_node){.kind = NODE_ALT, .a = one, .b = n});
    }
    return n;
}

static uint32_t lower_rule(struct lower *l, uint32_t rule, uint32_t next)
{
    if (l->g->rules[rule] == GRAMMAR_NONE && builder_room(l->b, &l->todo, l->n_todo, &l->cap_todo, 1, sizeof *l->todo)) {
        l->g->rules[rule] = 0; /* its turn comes */
        l->todo[l->n_todo++] = rule;
    }
    return node(l, (struct grammar_node){.kind = NODE_CALL, .a = rule, .b = next});
}

/* The entry of a productive expression before node next. */
static uint32_t lower(struct lower *l, grammar_expr id, uint32_t next)
{
    const struct expr e = l->b->exprs[id];
    if (!builder_steps(l->b, 1))
        return 0;
    switch (e.kind) {
    case EXPR_SET: return node(l, (struct grammar_node){.kind = NODE_SET, .a = e.a, .b = next});
    case EXPR_LITERAL:
        for (uint32_t i = e.b; i-- > 0 && !l->b->err.code;)
            next = node(l, (struct grammar_node){.kind = NODE_SET, .a = (uint8_t)l->b->bytes[e.a + i], .b = next});
        return next;
    case EXPR_SEQ:
        for (uint32_t i = e.b; i-- > 0 && !l->b->err.code;)
            next = lower(l, l->b->items[e.a + i], next);
        return next;
    case EXPR_ALT: return lower_alt(l, &e, next);
    case EXPR_REPEAT: return lower_repeat(l, &e, next);
    case EXPR_RULE: return lower_rule(l, e.a, next);
    default: return next; /* empty */
    }
}

/* Bytes that no set tells apart are one class. */
static void byte_classes(struct grammar *g)
{
    memset(g->class_of, 0, sizeof g->class_of);
    g->n_classes = 1;
    for (size_t s = 0; s < g->n_sets && g->n_classes < 256; s++) {
        uint8_t split[256]; /* class -> its part inside the set; 0: not met */
        uint32_t inside[256] = {0}, outside[256] = {0};
        for (int c = 0; c < 256; c++)
            (grammar_set_has(&g->sets[s], (uint8_t)c) ? inside : outside)[g->class_of[c]]++;
        memset(split, 0, sizeof split);
        for (int c = 0; c < 256; c++) {
            const uint8_t k = g->class_of[c];
            if (!grammar_set_has(&g->sets[s], (uint8_t)c) || !outside[k])
                continue;
            if (!split[k])
                split[k] = (uint8_t)g->n_classes++;
            g->class_of[c] = split[k];
        }
    }
    for (int c = 256; c-- > 0;)
        g->class_byte[g->class_of[c]] = (uint8_t)c;
}

/* Only the sets that nodes use, in a table of the grammar's own. */
static void take_sets(struct lower *l)
{
    struct grammar_builder *b = l->b;
    uint32_t *to = mem_alloc((b->n_sets + 1) * sizeof *to);
    struct grammar_set *sets = mem_alloc((b->n_sets + 1) * sizeof *sets);
    if (!to || !sets) {
        error_nomem(&b->err, "grammar", b->n_sets * sizeof *sets);
        mem_free(to);
        mem_free(sets);
        return;
    }
    memset(to, 0xff, (b->n_sets + 1) * sizeof *to);
    l->g->sets = sets;
    for (size_t i = 0; i < l->g->n_nodes; i++) {
        struct grammar_node *n = &l->g->nodes[i];
        if (n->kind != NODE_SET)
            continue;
        if (to[n->a] == GRAMMAR_NONE) {
            to[n->a] = (uint32_t)l->g->n_sets;
            sets[l->g->n_sets++] = b->sets[n->a];
        }
        n->a = to[n->a];
    }
    mem_free(to);
}

static void lower_all(struct lower *l, grammar_expr root)
{
    struct grammar_builder *b = l->b;
    struct grammar *g = l->g;
    g->rules = mem_alloc((b->n_rules + 1) * sizeof *g->rules);
    if (!g->rules || grammar_index_init(&l->node_index, 64) || grammar_index_init(&l->memo_index, 8)) {
        error_nomem(&b->err, "grammar", b->n_rules * sizeof *g->rules);
        return;
    }
    memset(g->rules, 0xff, (b->n_rules + 1) * sizeof *g->rules);
    new_node(l, (struct grammar_node){.kind = NODE_RETURN});
    g->start = lower(l, root, 0);
    while (l->n_todo && !b->err.code) {
        const uint32_t rule = l->todo[--l->n_todo];
        const uint32_t body = lower(l, b->rules[rule].body, 0);
        g->rules[rule] = body;
    }
    if (!b->err.code)
        take_sets(l);
    if (!b->err.code)
        byte_classes(g);
}

static int check(struct grammar_builder *b, grammar_expr root)
{
    for (size_t i = 0; i < b->n_rules; i++) {
        const struct grammar_rule *r = &b->rules[i];
        if (!r->body)
            return error_set(&b->err, SKUA_EARG, "the rule '%.*s' is used and nowhere defined",
                (int)(r->name_len < 200 ? r->name_len : 200),
                             b->bytes + r->name);
    }
    learn_all(b);
    if (!b->err.code)
        check_left_recursion(b);
    if (!b->err.code && !fact(b, root, false) && !b->err.code)
        error_set(&b->err, SKUA_EARG, "the grammar describes no text that ever ends");
    return b->err.code;
}

int grammar_builder_finish(struct grammar_builder *b, grammar_expr root, struct grammar **out, skua_error *err)
{
    *out = NULL;
    if (grammar_builder_error(b, err))
        return b ? b->err.code : SKUA_ENOMEM;
    struct lower l = {.b = b};
    if (!check(b, root) && !(l.g = mem_calloc(1, sizeof *l.g)))
        error_nomem(&b->err, "grammar", sizeof *l.g);
    if (!b->err.code) {
        atomic_init(&l.g->refs, 1);
        pthread_mutex_init(&l.g->lock, NULL);
        lower_all(&l, root);
    }
    if (!b->err.code && grammar_run_init(l.g, &l.g->run))
        error_nomem(&b->err, "grammar", 0);
    mem_free(l.memo);
    mem_free(l.todo);
    grammar_index_free(&l.node_index);
    grammar_index_free(&l.memo_index);
    if (b->err.code) {
        grammar_release(l.g);
        return grammar_builder_error(b, err);
    }
    *out = l.g;
    return 0;
}
