/* A grammar builder's inside, for the functions that make expressions and the compiler that turns them into nodes. */
#ifndef SKUA_SAMPLE_GRAMMAR_BUILD_INTERNAL_H
#define SKUA_SAMPLE_GRAMMAR_BUILD_INTERNAL_H

#include "sample/grammar_build.h"
#include "sample/grammar_internal.h"

#define GRAMMAR_MAX_DEPTH 400      /* expressions in one another, without rules */
#define GRAMMAR_MAX_EXPRS 600000
#define GRAMMAR_MAX_NODES 1000000
#define GRAMMAR_MAX_BYTES (4u << 20) /* of literals and names */
#define GRAMMAR_MAX_STEPS 20000000u  /* of the compiler */
#define GRAMMAR_MAX_EMPTY_COUNT 256  /* repetitions of what may be empty */

enum expr_kind { EXPR_FAILED, EXPR_NOTHING, EXPR_EMPTY, EXPR_SET, EXPR_LITERAL, EXPR_SEQ, EXPR_ALT, EXPR_REPEAT, EXPR_RULE };

struct expr {
    uint16_t kind, depth;
    uint32_t a, b;     /* SET: a set; LITERAL: bytes[a .. a + b); SEQ, ALT: items[a .. a + b); REPEAT: the item a; RULE: a */
    uint32_t min, max; /* REPEAT */
};

struct grammar_rule {
    uint32_t name, name_len; /* in bytes */
    grammar_expr body;       /* 0: not set */
    bool productive, nullable;
};

struct grammar_builder {
    skua_error err; /* code 0: none */
    struct expr *exprs;
    size_t n_exprs, cap_exprs;
    grammar_expr *items;
    size_t n_items, cap_items;
    struct grammar_set *sets;
    size_t n_sets, cap_sets;
    struct grammar_index set_index;
    char *bytes;
    size_t n_bytes, cap_bytes;
    struct grammar_rule *rules;
    size_t n_rules, cap_rules;
    struct grammar_range *ranges; /* scratch of grammar_chars */
    size_t cap_ranges;
    grammar_expr text, json[64]; /* made on first use: any text; see grammar_json.h */
    uint64_t steps;
};

/* Room for n more entries of *p; false: the builder has failed. */
bool builder_room(struct grammar_builder *b, void *pp, size_t n, size_t *cap, size_t more, size_t size);
int  builder_limit(struct grammar_builder *b, const char *what, size_t limit);
uint32_t builder_set(struct grammar_builder *b, const struct grammar_set *s); /* a set's number; GRAMMAR_NONE: failed */
grammar_expr builder_expr(struct grammar_builder *b, struct expr e);
bool builder_steps(struct grammar_builder *b, uint64_t n); /* count; false: too many */

/* The expression for a byte of a set. */
grammar_expr builder_byte_range(struct grammar_builder *b, uint8_t first, uint8_t last);
/* Sort, merge, leave out surrogates and what is beyond Unicode, in place; complement if negated. GRAMMAR_NONE: failed. The result lies in
   b->ranges until the next call. */
size_t builder_ranges(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated);

#endif
