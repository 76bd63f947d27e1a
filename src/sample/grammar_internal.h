/* What the parts of a grammar share: its compiled form, and what runs it.
 *
 * Compiled, a grammar is a graph of nodes over bytes with calls, as a pushdown automaton has them. A thread is a node and a stack; a stack
 * is a chain of frames, each interned, so equal stacks are one number. A configuration is the set of threads that a text leads to. It is
 * interned too, and what a byte makes of it is remembered: where the automaton is regular it turns, as it is used,
     into a deterministic one.
 * A counted repetition is one frame with two counters and not a copy of its item per count. */
#ifndef SKUA_SAMPLE_GRAMMAR_INTERNAL_H
#define SKUA_SAMPLE_GRAMMAR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "sample/grammar.h"

#define GRAMMAR_NONE UINT32_MAX
#define GRAMMAR_INF UINT32_MAX /* a counter without an end */

/* Numbers by the hash of what they stand for. */
struct grammar_index_slot { uint32_t hash, id; };
struct grammar_index {
    struct grammar_index_slot *slots; /* id GRAMMAR_NONE: free */
    size_t mask, used;
};
int  grammar_index_init(struct grammar_index *x, size_t expected); /* 0 or SKUA_ENOMEM */
void grammar_index_free(struct grammar_index *x); /* zeroed allowed */
int  grammar_index_add(struct grammar_index *x, uint32_t hash, uint32_t id); /* 0 or SKUA_ENOMEM */
/* The ids with this hash, one after another: *at = hash before the first call; GRAMMAR_NONE at the end. */
uint32_t grammar_index_next(const struct grammar_index *x, uint32_t hash, size_t *at);

struct grammar_set { uint64_t w[4]; }; /* of bytes */

static inline bool grammar_set_has(const struct grammar_set *s, uint8_t c) { return s->w[c >> 6] >> (c & 63) & 1; }
static inline void grammar_set_add(struct grammar_set *s, uint8_t c) { s->w[c >> 6] |= (uint64_t)1 << (c & 63); }

enum grammar_node_kind {
    NODE_RETURN, /* pop a frame and go on there; node 0 is the only one */
    NODE_SET,    /* a byte of set a, then b */
    NODE_ALT,    /* a or b */
    NODE_CALL,   /* the body of rule a, then b */
    NODE_ENTER,  /* the loop a, lo to hi times */
    NODE_LOOP    /* of a frame only: a is the body (it ends with RETURN), b what follows the loop */
};

struct grammar_node { uint32_t kind, a, b, lo, hi; };

enum { FRAME_BOTTOM, FRAME_EXIT, FRAME_FIRST }; /* nothing below: the text's end; unknown what is below (masks) */

struct grammar_frame {
    uint32_t node;   /* a LOOP, or where a call returns to */
    uint32_t lo, hi; /* of a loop: iterations that must and may still follow the running one */
    uint32_t parent;
    uint32_t depth;
    uint32_t counter; /* largest finite counter in the chain */
};

struct grammar_thread { uint32_t node, frame; }; /* node: SET, or RETURN on FRAME_BOTTOM (the text may end) or FRAME_EXIT */

enum { CONFIG_UNKNOWN, CONFIG_DEAD, CONFIG_FIRST };
struct grammar_config {
    uint32_t first, n; /* threads, sorted */
    bool leaves;       /* one of them is RETURN on FRAME_EXIT */
    enum { PLAIN_UNKNOWN, PLAIN_STAYS, PLAIN_CHANGES } plain; /* what plain text does to it */
};

struct grammar_mask {
    uint32_t config;
    uint32_t kind;
    uint64_t *bits;
    uint32_t *exits; /* trie nodes behind which an unknown stack goes on */
    uint32_t n_exits;
};

struct grammar_visited { uint64_t key; uint32_t stamp; };

/* What is made while a grammar is used, under its lock. */
struct grammar_run {
    struct grammar_frame *frames;
    size_t n_frames, cap_frames;
    struct grammar_index frame_index;
    struct grammar_thread *threads;
    size_t n_threads, cap_threads;
    struct grammar_config *configs;
    uint32_t *next; /* [config][byte class]: a configuration, CONFIG_UNKNOWN, CONFIG_DEAD */
    size_t n_configs, cap_configs;
    struct grammar_index config_index;
    /* masks, for one vocabulary */
    uint64_t vocab; /* its serial number */
    struct grammar_mask *masks;
    size_t n_masks, cap_masks;
    struct grammar_index mask_index;
    size_t mask_bytes;
    /* one closure */
    struct grammar_thread *work, *found;
    size_t n_work, cap_work, n_found, cap_found;
    struct grammar_visited *visited;
    size_t visited_mask, n_visited;
    uint32_t stamp;
    size_t limit;    /* bytes, at which to forget */
    uint64_t budget; /* steps that the call may still make */
};

struct grammar_state {
    struct grammar *g;
    const struct grammar_vocab *v;
    uint32_t config;
    int failed; /* 0, or why grammar_state_accept could not tell */
    struct grammar_state *next, **link; /* all states of g */
};

struct grammar {
    atomic_int refs;
    struct grammar_node *nodes;
    size_t n_nodes;
    struct grammar_set *sets;
    size_t n_sets;
    uint32_t *rules; /* their bodies; GRAMMAR_NONE: not used */
    uint32_t start;  /* the root rule's body */
    uint8_t class_of[256], class_byte[256];
    uint32_t n_classes;
    pthread_mutex_t lock;
    struct grammar_run run;
    struct grammar_state *states;
};

/* A token's bytes as paths in a tree; nodes in depth-first order. */
struct grammar_trie_node {
    uint32_t end;  /* behind the subtree */
    uint32_t rank; /* of the first token here or below; the tokens of this node are those up to the next node's rank */
    uint16_t depth;/* of the root's children: 1 */
    uint8_t byte;
    bool plain;    /* below it there is only plain text, if it ends a character: see grammar_mask.c */
};
struct grammar_trie {
    struct grammar_trie_node *nodes; /* [n + 1]: the last one holds the number of tokens */
    uint32_t n;
    uint32_t *ids; /* by rank */
    uint32_t depth;
};
struct grammar_vocab {
    uint64_t serial; /* of the process, from 1 */
    uint32_t n_tokens;
    struct grammar_trie trie[2]; /* tokens of up to GRAMMAR_SHORT bytes, and the others */
    uint32_t *ends, n_ends;      /* tokens that end an answer */
};
#define GRAMMAR_SHORT 24

/* UTF-8, byte by byte: 0 between characters,
    GRAMMAR_UTF8_BAD for what cannot be. Only printable ASCII but quotes and backslashes is plain. */
#define GRAMMAR_UTF8_BAD 8
static inline bool grammar_is_plain(uint8_t c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; }
uint8_t grammar_utf8_step(uint8_t state, uint8_t c);

/* Steps, each 0 or a negative code; the caller holds the lock. */
int  grammar_run_init(struct grammar *g, struct grammar_run *r);
void grammar_run_free(struct grammar_run *r);
int  grammar_run_frame(struct grammar *g, const struct grammar_frame *f, uint32_t *id); /* node, lo, hi, parent */
int  grammar_run_step(struct grammar *g, uint32_t config, uint32_t byte_class, uint32_t *to);
/* The configuration of these threads (sorted here); of what follows a node without a byte. */
int  grammar_run_config(struct grammar *g, struct grammar_thread *t, size_t n, uint32_t *id);
int  grammar_run_closure(struct grammar *g, uint32_t node, uint32_t frame, uint32_t *id);
void grammar_masks_drop(struct grammar_run *r);
/* grammar_state_mask of a configuration. */
int  grammar_mask_make(struct grammar *g, const struct grammar_vocab *v, uint32_t config, uint64_t *mask);

static inline uint32_t grammar_dec(uint32_t n) { return n == 0 || n == GRAMMAR_INF ? n : n - 1; }
static inline bool grammar_config_can_end(const struct grammar_run *r, uint32_t c)
{
    const struct grammar_config *k = &r->configs[c];
    return k->n && r->threads[k->first].node == 0 && r->threads[k->first].frame == FRAME_BOTTOM;
}

#endif
