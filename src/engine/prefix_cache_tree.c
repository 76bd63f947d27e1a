/* The radix tree of the prefix cache; see prefix_cache_tree.h. */
#include "engine/prefix_cache_tree.h"

#include <string.h>

#include "base/mem.h"

void prefix_tree_init(struct prefix_tree *t) { *t = (struct prefix_tree){.bytes = sizeof *t}; }

static size_t node_bytes(const struct prefix_node *n) { return sizeof *n + (size_t)n->n * sizeof *n->ids; }

static void free_node(struct prefix_tree *t, struct prefix_node *n)
{
    t->bytes -= node_bytes(n);
    mem_free(n->ids);
    mem_free(n);
}

void prefix_tree_free(struct prefix_tree *t)
{
    struct prefix_node *n = t->root.child;
    while (n && n != &t->root) { /* leaves first */
        if (n->child) {
            n = n->child;
            continue;
        }
        struct prefix_node *parent = n->parent;
        parent->child = n->next;
        free_node(t, n);
        n = parent->child ? parent->child : parent;
    }
}

static int32_t common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

struct prefix_node *prefix_tree_find(struct prefix_tree *t, const int32_t *ids, int32_t n, int32_t *n_matched)
{
    struct prefix_node *at = &t->root;
    int32_t done = 0;
    for (;;) {
        struct prefix_node *next = done < n ? at->child : NULL;
        while (next && next->ids[0] != ids[done]) /* children differ in their first token */
            next = next->next;
        if (!next)
            break;
        const int32_t left = n - done, same = common(next->ids, ids + done, next->n < left ? next->n : left);
        at = next;
        done += same;
        if (same < next->n)
            break;
    }
    *n_matched = done;
    return at;
}

static void unlink_node(struct prefix_node *n)
{
    struct prefix_node **at = &n->parent->child;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
}

static struct prefix_node *new_node(struct prefix_tree *t, struct prefix_node *parent, const int32_t *ids, int32_t n)
{
    struct prefix_node *node = mem_calloc(1, sizeof *node);
    int32_t *own = node ? mem_alloc((size_t)n * sizeof *own) : NULL;
    if (!own) {
        mem_free(node);
        return NULL;
    }
    memcpy(own, ids, (size_t)n * sizeof *own);
    *node = (struct prefix_node){.parent = parent, .next = parent->child, .begin = prefix_node_end(parent), .n = n, .ids = own,
                                 .used = parent->used};
    parent->child = node;
    t->bytes += node_bytes(node);
    return node;
}

/* Cut a node behind its first k tokens: a new node takes these and becomes its parent. */
static struct prefix_node *split(struct prefix_tree *t, struct prefix_node *n, int32_t k)
{
    struct prefix_node *front = new_node(t, n->parent, n->ids, k);
    if (!front)
        return NULL;
    front->used = n->used;
    unlink_node(n);
    t->bytes -= (size_t)k * sizeof *n->ids;
    n->parent = front;
    n->next = NULL;
    front->child = n;
    n->begin += k;
    n->n -= k;
    memmove(n->ids, n->ids + k, (size_t)n->n * sizeof *n->ids);
    int32_t *less = mem_realloc_array(n->ids, (size_t)n->n, sizeof *less);
    n->ids = less ? less : n->ids;
    return front;
}

struct prefix_node *prefix_tree_insert(struct prefix_tree *t, const int32_t *ids, int32_t n)
{
    int32_t matched;
    struct prefix_node *at = prefix_tree_find(t, ids, n, &matched);
    if (matched < prefix_node_end(at))
        at = split(t, at, matched - at->begin);
    if (!at || matched == n)
        return at;
    struct prefix_node *leaf = new_node(t, at, ids + matched, n - matched);
    if (!leaf)
        prefix_tree_prune(t, at);
    return leaf;
}

/* An empty node with one child. Without the memory for it the two stay as they are. */
static void merge(struct prefix_tree *t, struct prefix_node *n)
{
    struct prefix_node *child = n->child;
    int32_t *ids = mem_realloc_array(child->ids, (size_t)(n->n + child->n), sizeof *ids);
    if (!ids)
        return;
    memmove(ids + n->n, ids, (size_t)child->n * sizeof *ids);
    memcpy(ids, n->ids, (size_t)n->n * sizeof *ids);
    child->ids = ids;
    child->n += n->n;
    child->begin = n->begin;
    t->bytes += (size_t)n->n * sizeof *ids;
    unlink_node(n);
    child->parent = n->parent;
    child->next = n->parent->child;
    n->parent->child = child;
    free_node(t, n);
}

void prefix_tree_prune(struct prefix_tree *t, struct prefix_node *n)
{
    while (n->parent && !n->kept && !n->file && !n->evicted) {
        struct prefix_node *parent = n->parent;
        if (n->child && n->child->next)
            return;
        if (n->child) {
            merge(t, n);
            return;
        }
        unlink_node(n);
        free_node(t, n);
        n = parent;
    }
}

void prefix_node_touch(struct prefix_node *n, uint64_t now)
{
    for (; n; n = n->parent)
        n->used = now;
}

void prefix_node_tokens(const struct prefix_node *n, int32_t *out)
{
    for (; n->parent; n = n->parent)
        memcpy(out + n->begin, n->ids, (size_t)n->n * sizeof *out);
}

int32_t prefix_node_ahead(const struct prefix_node *n, int32_t n_matched, int32_t *out, int32_t max)
{
    int32_t got = 0, skip = n_matched - n->begin;
    for (;;) {
        for (int32_t i = skip; i < n->n && got < max; i++)
            out[got++] = n->ids[i];
        const struct prefix_node *best = n->child;
        for (const struct prefix_node *c = best; c; c = c->next)
            best = c->used > best->used ? c : best;
        if (!best || got == max)
            return got;
        n = best;
        skip = 0;
    }
}

struct prefix_node *prefix_tree_next(struct prefix_node *of, struct prefix_node *after)
{
    if (!after)
        return of;
    if (after->child)
        return after->child;
    for (; after != of; after = after->parent)
        if (after->next)
            return after->next;
    return NULL;
}
