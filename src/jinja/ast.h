/* The tree of a compiled template. One node type for all kinds; which fields a kind uses is in the table below. The tree
 * lives in the arena of the template and does not change after compiling.
 */
#ifndef SKUA_JINJA_AST_H
#define SKUA_JINJA_AST_H

#include "jinja/arena.h"
#include "jinja/jinja.h"
#include "jinja/value.h"

enum node_kind {
    /* expressions */
    N_CONST,    /* value */
    N_NAME,     /* name; depth and slot after resolving */
    N_TUPLE, N_LIST, /* list */
    N_DICT,     /* list: key, value, key, value ... */
    N_COND,     /* a if b else c (c may be NULL) */
    N_AND, N_OR, N_BIN, /* a, b; op */
    N_NOT, N_NEG, N_POS,/* a */
    N_CONCAT,   /* list */
    N_COMPARE,  /* a, then list with ops[] */
    N_ATTR,     /* a . name */
    N_ITEM,     /* a [ b ] */
    N_SLICE,    /* a [ list[0] : list[1] : list[2] ], entries may be NULL */
    N_CALL,     /* a ( args ) */
    N_FILTER,   /* a | name args; a = NULL: the captured text of a block; which */
    N_TEST,     /* a is name args; which */
    N_NSREF,    /* an assignment target: name . name2; depth, slot */
    /* statements */
    N_TEXT,     /* name = the text */
    N_PRINT,    /* a */
    N_BODY,     /* list: a sequence of statements */
    N_IF,       /* list: test, body, test, body ...; c = else body or NULL */
    N_FOR,      /* a target, b iterable, c test or NULL, list[0] body, list[1] else body or NULL, list[2] target for the test;
                   frame: body, frame_else, frame_test; extended; slot = that of `loop` */
    N_BREAK, N_CONTINUE,
    N_SET,      /* a target, b expression */
    N_SETBLOCK, /* a target, b filter or NULL, c body; frame */
    N_WITH,     /* list: target, value, target, value ...; c body; frame */
    N_SCOPE,    /* c body; frame (generation blocks) */
    N_FILTERBLOCK, /* b filter, c body; frame */
    N_MACRO,    /* name; list = parameters, list2 = defaults of the last n2 of them; c body; frame; depth, slot of its name;
                   uses_*; slot_caller ... */
    N_CALLBLOCK /* a = the call; else as N_MACRO without a name */
};

enum bin_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW };
enum cmp_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOTIN };

struct keyword { struct str name; struct node *value; };
struct call_args {
    struct node **pos;
    struct keyword *kw;
    uint32_t npos, nkw;
    struct node *dyn_pos, *dyn_kw; /* *expr, **expr */
};

/* What entering a scope does to one of its variables (jinja2's idtracking). */
struct load {
    enum { LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEFINED, LOAD_PARAMETER } action;
    uint32_t slot;                      /* in the function that the scope belongs to */
    struct str name;                    /* LOAD_RESOLVE: looked up in the context, then the globals */
    uint32_t alias_depth, alias_slot;   /* LOAD_ALIAS */
};
struct frame {
    struct load *loads;
    uint32_t n;
    uint32_t nslots; /* scopes that are functions (macros, loop tests): variables of the function */
};

struct node {
    uint8_t kind, op;
    bool extended, uses_caller, uses_kwargs, uses_varargs, explicit_caller;
    uint16_t height;
    uint16_t which;  /* filter or test number; WHICH_UNKNOWN */
    uint32_t line, col;
    uint32_t depth, slot, slot_caller, slot_kwargs, slot_varargs;
    uint32_t n, n2;
    struct node *a, *b, *c;
    struct node **list, **list2;
    uint8_t *ops;
    struct str name, name2;
    struct val value;
    struct call_args *args;
    struct frame *frame, *frame_else, *frame_test;
};
#define WHICH_UNKNOWN 0xffff

struct jinja_template {
    struct arena arena;
    struct jinja_limits limits;
    struct node *root;
    struct frame *frame;
    struct str *reads; /* names that are looked up in the context */
    size_t nreads, reads_cap;
};

/* State of compiling, shared by lexer, parser and resolver. */
struct compile {
    struct jinja_template *t;
    struct arena scratch;
    skua_error *err;
    int code; /* first failure, 0 = none so far */
    struct str src;
    uint64_t steps; /* work of the resolver */
};

/* Record a failure (the first one wins) with its position; always false. */
bool compile_fail(struct compile *c, uint32_t line, uint32_t col, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool compile_nomem(struct compile *c, const struct arena *a); /* after a failed arena request */

/* parser.c */
struct node *parse_template(struct compile *c);
/* resolve.c: variables to slots, filters and tests to numbers */
bool resolve_template(struct compile *c);

#endif
