/* A radix tree of token sequences. A node stands for the beginning that ends with its last token; it knows whether that beginning is kept
 * in memory, in a file, or was kept and is not any more. Sequences that begin the same share their nodes. */
#ifndef SKUA_ENGINE_PREFIX_CACHE_TREE_H
#define SKUA_ENGINE_PREFIX_CACHE_TREE_H

#include "base/error.h"

struct kept;
struct prefix_file;

struct prefix_node {
    struct prefix_node *parent, *child, *next; /* first child; next of the same parent */
    int32_t begin, n;          /* position of its first token, tokens */
    int32_t *ids;              /* [n] */
    uint64_t used;             /* when something at or below it was used last; rising */
    struct kept *kept;         /* NULL: not in memory */
    struct prefix_file *file;  /* NULL: not in a file */
    bool evicted;              /* was there, and made room for others */
};

struct prefix_tree {
    struct prefix_node root;   /* no tokens */
    size_t bytes;              /* of all nodes */
};

/* No sequences; and no nodes any more. */
void prefix_tree_init(struct prefix_tree *t);
void prefix_tree_free(struct prefix_tree *t);

/* The deepest node that the sequence reaches, and in *n_matched how many of its tokens lie on the way there (the node's own perhaps in
   part). */
struct prefix_node *prefix_tree_find(struct prefix_tree *t, const int32_t *ids, int32_t n, int32_t *n_matched);

/* The node of this beginning, made if missing. NULL: no memory. */
struct prefix_node *prefix_tree_insert(struct prefix_tree *t, const int32_t *ids, int32_t n);

/* Remove what nobody needs: the node if it is empty and has no children, and so on upwards; a node with one child becomes part of it. */
void prefix_tree_prune(struct prefix_tree *t, struct prefix_node *node);

static inline int32_t prefix_node_end(const struct prefix_node *n) { return n->begin + n->n; }
void prefix_node_touch(struct prefix_node *n, uint64_t now);      /* and those above it */
void prefix_node_tokens(const struct prefix_node *n, int32_t *out); /* [prefix_node_end] */

/* Up to max of the tokens that are known behind the beginning of n_matched tokens that a search found: those used last. Returns how
   many. */
int32_t prefix_node_ahead(const struct prefix_node *n, int32_t n_matched, int32_t *out, int32_t max);

/* The nodes below `of` (itself first), one after the other; NULL behind the last. */
struct prefix_node *prefix_tree_next(struct prefix_node *of, struct prefix_node *after);

#endif
