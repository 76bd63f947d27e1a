/* Recursive descent over the tokens, shared by parser.c (statements) and parse_expr.c (expressions). Functions return NULL
   (or false) after compile_fail. Grammar and messages follow jinja2's parser.py. */
#ifndef SKUA_JINJA_PARSER_H
#define SKUA_JINJA_PARSER_H

#include "jinja/lexer.h"

struct parser {
    struct compile *c;
    struct lexer lx;
    struct token tok, ahead; /* current, and the one after it when has_ahead */
    bool has_ahead;
    uint32_t nesting; /* open recursive calls */
    const char *const *ends[256]; /* end tags of the open blocks, innermost last; each list ends with NULL */
    struct str tags[256];         /* and the tags that opened them */
    uint32_t nends, ntags;
};

bool parser_fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* at the current token */
bool parser_advance(struct parser *p);
bool parser_peek(struct parser *p); /* fills p->ahead */
bool parser_is_name(const struct parser *p, const char *name);
bool parser_expect(struct parser *p, enum token_type type);
bool parser_expect_name(struct parser *p, const char *name);
bool parser_enter(struct parser *p); /* counts one level of nesting; pair with p->nesting-- */
void parser_describe(const struct token *t, char out[80]);

/* A new node, zeroed but for its kind and position; NULL, with the error filled in, when memory is out. */
struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line, uint32_t col);
/* Set the height from the children given and check the limit. */
bool parser_height(struct parser *p, struct node *n, const struct node *child);

#define MAX_NAMED 256 /* keyword arguments of a call, parameters of a macro */

/* A growing list of nodes in the scratch arena, copied to the template's when complete. */
struct node_list { struct node **items; uint32_t n, cap; };
bool node_list_add(struct parser *p, struct node_list *l, struct node *n);
bool node_list_done(struct parser *p, const struct node_list *l, struct node ***items, uint32_t *n);

/* Where a tuple without brackets ends besides `}}`, `%}` and `)`: END_NAME_* at that name. */
enum tuple_end { END_PLAIN, END_IN, END_RECURSIVE };
struct node *parse_expression(struct parser *p, bool with_condition);
struct node *parse_tuple(struct parser *p, bool with_condition, enum tuple_end end, bool in_parentheses);
struct node *parse_target_tuple(struct parser *p, enum tuple_end end); /* names and tuples of names only */
struct node *parse_primary(struct parser *p);
struct node *parse_filters(struct parser *p, struct node *value, bool start_inline);

#endif
