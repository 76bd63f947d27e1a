/* Statements, and the parser's common helpers; see parser.h. */
#include "jinja/parser.h"

#include <stdio.h>

static struct node *parse_statements(struct parser *p, const char *const *ends);

/* ---- helpers ---- */

bool parser_fail(struct parser *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return compile_fail(p->c, p->tok.line, p->tok.col, "%s", text);
}

bool parser_advance(struct parser *p)
{
    if (p->has_ahead) {
        p->tok = p->ahead;
        p->has_ahead = false;
        return true;
    }
    return lexer_next(&p->lx, &p->tok);
}

bool parser_peek(struct parser *p)
{
    if (!p->has_ahead)
        p->has_ahead = lexer_next(&p->lx, &p->ahead);
    return p->has_ahead;
}

bool parser_is_name(const struct parser *p, const char *name)
{
    return p->tok.type == T_NAME && str_is(p->tok.text, name);
}

void parser_describe(const struct token *t, char out[80])
{
    if (t->type == T_NAME)
        snprintf(out, 80, "%.*s", t->text.n > 60 ? 60 : (int)t->text.n, t->text.s);
    else
        snprintf(out, 80, "%s", token_type_text(t->type));
}

static bool unexpected(struct parser *p, const char *wanted)
{
    char got[80];
    if (p->tok.type == T_EOF)
        return parser_fail(p, "unexpected end of template, expected '%s'.", wanted);
    parser_describe(&p->tok, got);
    return parser_fail(p, "expected token '%s', got '%s'", wanted, got);
}

bool parser_expect(struct parser *p, enum token_type type)
{
    return p->tok.type == type ? parser_advance(p) : unexpected(p, token_type_text(type));
}

bool parser_expect_name(struct parser *p, const char *name)
{
    return parser_is_name(p, name) ? parser_advance(p) : unexpected(p, name);
}

bool parser_enter(struct parser *p)
{
    if (++p->nesting <= p->c->t->limits.max_nesting)
        return true;
    return parser_fail(p, "nested deeper than %u levels", p->c->t->limits.max_nesting);
}

struct node *parser_node(struct parser *p, enum node_kind kind, uint32_t line, uint32_t col)
{
    struct node *n = arena_zalloc(&p->c->t->arena, sizeof *n);
    if (!n)
        return compile_nomem(p->c, &p->c->t->arena), NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    n->col = col;
    n->height = 1;
    return n;
}

bool parser_height(struct parser *p, struct node *n, const struct node *child)
{
    if (!child || child->height < n->height)
        return true;
    n->height = (uint16_t)(child->height + 1);
    if (n->height <= p->c->t->limits.max_nesting)
        return true;
    return compile_fail(p->c, n->line, n->col, "an expression deeper than %u operations", p->c->t->limits.max_nesting);
}

bool node_list_add(struct parser *p, struct node_list *l, struct node *n)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 8;
        struct node **items = arena_grow(&p->c->scratch, l->items, l->n * sizeof n, cap * sizeof n);
        if (!items)
            return compile_nomem(p->c, &p->c->scratch);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = n;
    return true;
}

bool node_list_done(struct parser *p, const struct node_list *l, struct node ***items, uint32_t *n)
{
    *n = l->n;
    *items = arena_array(&p->c->t->arena, l->n, sizeof **items);
    if (!*items)
        return compile_nomem(p->c, &p->c->t->arena);
    if (l->n)
        memcpy(*items, l->items, l->n * sizeof **items);
    return true;
}

/* ---- statements ---- */

/* name.attr (a namespace), a name, or a tuple of names */
static struct node *parse_assign_target(struct parser *p, bool with_namespace, enum tuple_end end)
{
    if (with_namespace && p->tok.type == T_NAME) {
        if (!parser_peek(p))
            return NULL;
        if (p->ahead.type == T_DOT) {
            struct node *n = parser_node(p, N_NSREF, p->tok.line, p->tok.col);
            if (!n)
                return NULL;
            n->name = p->tok.text;
            if (!parser_advance(p) || !parser_advance(p))
                return NULL;
            n->name2 = p->tok.text;
            return parser_expect(p, T_NAME) ? n : NULL;
        }
    }
    struct node *target = parse_target_tuple(p, end);
    if (!target)
        return NULL;
    bool ok = target->kind == N_NAME || target->kind == N_TUPLE;
    for (uint32_t i = 0; target->kind == N_TUPLE && i < target->n; i++)
        ok = ok && (target->list[i]->kind == N_NAME || target->list[i]->kind == N_TUPLE);
    if (!ok) {
        static const char *const names[] = {[N_CONST] = "const", [N_NAME] = "name", [N_TUPLE] = "tuple", [N_LIST] = "list",
                                            [N_DICT] = "dict"};
        compile_fail(p->c, target->line, target->col, "can't assign to '%s'",
                     target->kind <= N_DICT ? names[target->kind] : "expression");
        return NULL;
    }
    return target;
}

static struct node *parse_name_target(struct parser *p)
{
    struct node *n = parser_node(p, N_NAME, p->tok.line, p->tok.col);
    if (!n)
        return NULL;
    n->name = p->tok.text;
    if (!parser_expect(p, T_NAME))
        return NULL;
    static const char *const reserved[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++)
        if (str_is(n->name, reserved[i]))
            return compile_fail(p->c, n->line, n->col, "can't assign to 'name'"), NULL;
    return n;
}

static bool is_end(const struct parser *p, const char *const *ends)
{
    for (; p->tok.type == T_NAME && *ends; ends++)
        if (str_is(p->tok.text, *ends))
            return true;
    return false;
}

static const char *const END_FOR_ELSE[] = {"endfor", "else", NULL}, *const END_FOR[] = {"endfor", NULL};
static const char *const END_IF_ELSE[] = {"elif", "else", "endif", NULL}, *const END_IF[] = {"endif", NULL};
static const char *const END_SET[] = {"endset", NULL}, *const END_WITH[] = {"endwith", NULL};
static const char *const END_MACRO[] = {"endmacro", NULL}, *const END_CALL[] = {"endcall", NULL};
static const char *const END_FILTER[] = {"endfilter", NULL}, *const END_GENERATION[] = {"endgeneration", NULL};

static struct node *parse_for(struct parser *p)
{
    struct node *n = parser_node(p, N_FOR, p->tok.line, p->tok.col);
    if (!n || !(n->list = arena_zalloc(&p->c->t->arena, 3 * sizeof *n->list)))
        return n ? (compile_nomem(p->c, &p->c->t->arena), NULL) : NULL;
    n->n = 3;
    if (!parser_advance(p) || !(n->a = parse_assign_target(p, false, END_IN)) || !parser_expect_name(p, "in") ||
        !(n->b = parse_tuple(p, false, END_RECURSIVE, false)))
        return NULL;
    if (parser_is_name(p, "if") && (!parser_advance(p) || !(n->c = parse_expression(p, true))))
        return NULL;
    if (parser_is_name(p, "recursive"))
        return parser_fail(p, "recursive loops are not supported"), NULL;
    if (!(n->list[0] = parse_statements(p, END_FOR_ELSE)))
        return NULL;
    bool otherwise = parser_is_name(p, "else");
    if (!parser_advance(p))
        return NULL;
    if (otherwise && (!(n->list[1] = parse_statements(p, END_FOR)) || !parser_advance(p)))
        return NULL;
    return n;
}

static struct node *parse_if(struct parser *p)
{
    struct node *n = parser_node(p, N_IF, p->tok.line, p->tok.col);
    struct node_list parts = {0};
    for (bool more = true; more;) {
        if (!n || !parser_advance(p))
            return NULL;
        struct node *test = parse_tuple(p, false, END_PLAIN, false);
        struct node *body = test ? parse_statements(p, END_IF_ELSE) : NULL;
        if (!body || !node_list_add(p, &parts, test) || !node_list_add(p, &parts, body))
            return NULL;
        more = parser_is_name(p, "elif");
    }
    bool otherwise = parser_is_name(p, "else");
    if (!parser_advance(p) || (otherwise && (!(n->c = parse_statements(p, END_IF)) || !parser_advance(p))))
        return NULL;
    return node_list_done(p, &parts, &n->list, &n->n) ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    struct node *n = parser_node(p, N_SET, p->tok.line, p->tok.col);
    if (!n || !parser_advance(p) || !(n->a = parse_assign_target(p, true, END_PLAIN)))
        return NULL;
    if (p->tok.type == T_ASSIGN)
        return parser_advance(p) && (n->b = parse_tuple(p, true, END_PLAIN, false)) ? n : NULL;
    n->kind = N_SETBLOCK;
    if (p->tok.type == T_PIPE && !(n->b = parse_filters(p, NULL, false)))
        return NULL;
    return (n->c = parse_statements(p, END_SET)) && parser_advance(p) ? n : NULL;
}

static struct node *parse_with(struct parser *p)
{
    struct node *n = parser_node(p, N_WITH, p->tok.line, p->tok.col);
    struct node_list pairs = {0};
    if (!n || !parser_advance(p))
        return NULL;
    while (p->tok.type != T_BLOCK_END) {
        if (pairs.n && !parser_expect(p, T_COMMA))
            return NULL;
        struct node *target = parse_assign_target(p, false, END_PLAIN), *value = NULL;
        if (!target || !parser_expect(p, T_ASSIGN) || !(value = parse_expression(p, true)) ||
            !node_list_add(p, &pairs, target) || !node_list_add(p, &pairs, value))
            return NULL;
    }
    if (!node_list_done(p, &pairs, &n->list, &n->n))
        return NULL;
    return (n->c = parse_statements(p, END_WITH)) && parser_advance(p) ? n : NULL;
}

static bool parse_signature(struct parser *p, struct node *n)
{
    struct node_list params = {0}, defaults = {0};
    if (!parser_expect(p, T_LPAREN))
        return false;
    while (p->tok.type != T_RPAREN) {
        if (params.n && !parser_expect(p, T_COMMA))
            return false;
        struct node *param = parse_name_target(p), *value;
        if (!param)
            return false;
        if (params.n == MAX_NAMED)
            return parser_fail(p, "more than %d parameters", MAX_NAMED);
        for (uint32_t i = 0; i < params.n; i++)
            if (str_eq(params.items[i]->name, param->name))
                return compile_fail(p->c, param->line, param->col, "duplicate argument '%.*s' in function definition",
                                    (int)param->name.n, param->name.s);
        if (p->tok.type == T_ASSIGN) {
            if (!parser_advance(p) || !(value = parse_expression(p, true)) || !node_list_add(p, &defaults, value))
                return false;
        } else if (defaults.n) {
            return parser_fail(p, "non-default argument follows default argument");
        }
        if (!node_list_add(p, &params, param))
            return false;
    }
    return parser_advance(p) && node_list_done(p, &params, &n->list, &n->n) &&
           node_list_done(p, &defaults, &n->list2, &n->n2);
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = parser_node(p, N_MACRO, p->tok.line, p->tok.col), *name;
    if (!n || !parser_advance(p) || !(name = parse_name_target(p)) || !parse_signature(p, n))
        return NULL;
    n->name = name->name;
    return (n->c = parse_statements(p, END_MACRO)) && parser_advance(p) ? n : NULL;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = parser_node(p, N_CALLBLOCK, p->tok.line, p->tok.col);
    if (!n || !parser_advance(p) || (p->tok.type == T_LPAREN && !parse_signature(p, n)) ||
        !(n->a = parse_expression(p, true)))
        return NULL;
    if (n->a->kind != N_CALL)
        return compile_fail(p->c, n->line, n->col, "expected call"), NULL;
    return (n->c = parse_statements(p, END_CALL)) && parser_advance(p) ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p)
{
    struct node *n = parser_node(p, N_FILTERBLOCK, p->tok.line, p->tok.col);
    if (!n || !parser_advance(p) || !(n->b = parse_filters(p, NULL, true)))
        return NULL;
    return (n->c = parse_statements(p, END_FILTER)) && parser_advance(p) ? n : NULL;
}

static struct node *parse_generation(struct parser *p)
{
    struct node *n = parser_node(p, N_SCOPE, p->tok.line, p->tok.col);
    return n && parser_advance(p) && (n->c = parse_statements(p, END_GENERATION)) && parser_advance(p) ? n : NULL;
}

static struct node *parse_print(struct parser *p)
{
    struct node *body = parser_node(p, N_BODY, p->tok.line, p->tok.col);
    struct node_list items = {0};
    if (!body || !parser_advance(p))
        return NULL;
    while (p->tok.type != T_BLOCK_END) {
        if (items.n && !parser_expect(p, T_COMMA))
            return NULL;
        struct node *n = parser_node(p, N_PRINT, p->tok.line, p->tok.col);
        if (!n || !(n->a = parse_expression(p, true)) || !node_list_add(p, &items, n))
            return NULL;
    }
    return node_list_done(p, &items, &body->list, &body->n) ? body : NULL;
}

/* "'elif' or 'else' or 'endif'" */
static void describe_ends(const char *const *ends, char *out, size_t size)
{
    size_t n = 0;
    for (; *ends && n < size; ends++)
        n += (size_t)snprintf(out + n, size - n, "%s'%s'", n ? " or " : "", *ends);
}

static struct node *unknown_tag(struct parser *p, bool at_end)
{
    char looking[100] = "", inner[140] = "", text[320];
    bool expected = false;
    for (uint32_t i = 0; i < p->nends; i++)
        expected = expected || (!at_end && is_end(p, p->ends[i]));
    if (p->nends)
        describe_ends(p->ends[p->nends - 1], looking, sizeof looking);
    if (p->ntags)
        snprintf(inner, sizeof inner, " The innermost block that needs to be closed is '%.*s'.",
                 p->tags[p->ntags - 1].n > 60 ? 60 : (int)p->tags[p->ntags - 1].n, p->tags[p->ntags - 1].s);
    char name[80];
    parser_describe(&p->tok, name);
    int n = at_end ? snprintf(text, sizeof text, "Unexpected end of template.")
                   : snprintf(text, sizeof text, "Encountered unknown tag '%s'.", name);
    if (p->nends && n > 0 && (size_t)n < sizeof text)
        snprintf(text + n, sizeof text - (size_t)n,
                 expected ? " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for %s."
                          : " Jinja was looking for the following tags: %s.", looking);
    parser_fail(p, "%s%s", text, inner);
    return NULL;
}

static struct node *parse_simple(struct parser *p, enum node_kind kind)
{
    struct node *n = parser_node(p, kind, p->tok.line, p->tok.col);
    return n && parser_advance(p) ? n : NULL;
}

static struct node *parse_break(struct parser *p) { return parse_simple(p, N_BREAK); }
static struct node *parse_continue(struct parser *p) { return parse_simple(p, N_CONTINUE); }

static struct node *parse_unsupported(struct parser *p)
{
    parser_fail(p, "the tag '%.*s' is not supported in chat templates", (int)p->tok.text.n, p->tok.text.s);
    return NULL;
}

static struct node *parse_statement(struct parser *p)
{
    static const struct { const char *tag; struct node *(*parse)(struct parser *p); } tags[] = {
        {"for", parse_for}, {"if", parse_if}, {"set", parse_set}, {"macro", parse_macro}, {"with", parse_with},
        {"call", parse_call_block}, {"filter", parse_filter_block}, {"print", parse_print}, {"break", parse_break},
        {"continue", parse_continue}, {"generation", parse_generation}, {"extends", parse_unsupported},
        {"block", parse_unsupported}, {"include", parse_unsupported}, {"import", parse_unsupported},
        {"from", parse_unsupported}, {"autoescape", parse_unsupported},
    };
    if (p->tok.type != T_NAME)
        return parser_fail(p, "tag name expected"), NULL;
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!str_is(p->tok.text, tags[i].tag))
            continue;
        if (!parser_enter(p))
            return NULL;
        if (p->ntags == sizeof p->tags / sizeof p->tags[0])
            return parser_fail(p, "tags nested deeper than 256 levels"), NULL;
        p->tags[p->ntags++] = p->tok.text;
        struct node *n = tags[i].parse(p);
        p->ntags--;
        p->nesting--;
        return n;
    }
    return unknown_tag(p, false);
}

/* Statements up to one of the end tags (NULL: up to the end of the template); the end tag's name is then current. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *body = parser_node(p, N_BODY, p->tok.line, p->tok.col), *n;
    struct node_list list = {0};
    while (body && p->tok.type != T_EOF) {
        struct token at = p->tok;
        if (!parser_advance(p))
            return NULL;
        if (at.type == T_DATA) {
            if (!at.text.n)
                continue;
            if (!(n = parser_node(p, N_TEXT, at.line, at.col)))
                return NULL;
            n->name = at.text;
        } else if (at.type == T_VARIABLE_BEGIN) {
            n = parser_node(p, N_PRINT, p->tok.line, p->tok.col);
            if (!n || !(n->a = parse_tuple(p, true, END_PLAIN, false)) || !parser_expect(p, T_VARIABLE_END))
                return NULL;
        } else {
            if (ends && is_end(p, ends))
                break;
            if (!(n = parse_statement(p)) || !parser_expect(p, T_BLOCK_END))
                return NULL;
        }
        if (!node_list_add(p, &list, n))
            return NULL;
    }
    return body && node_list_done(p, &list, &body->list, &body->n) ? body : NULL;
}

static struct node *parse_statements(struct parser *p, const char *const *ends)
{
    if (p->tok.type == T_COLON && !parser_advance(p))
        return NULL;
    if (!parser_expect(p, T_BLOCK_END))
        return NULL;
    if (p->nends == sizeof p->ends / sizeof p->ends[0])
        return parser_fail(p, "tags nested deeper than 256 levels"), NULL;
    p->ends[p->nends++] = ends;
    struct node *body = parse_body(p, ends);
    if (body && p->tok.type == T_EOF)
        return unknown_tag(p, true);
    p->nends--;
    return body;
}

struct node *parse_template(struct compile *c)
{
    struct parser *p = arena_zalloc(&c->scratch, sizeof *p); /* too large for the stack of a small thread */
    if (!p)
        return compile_nomem(c, &c->scratch), NULL;
    p->c = c;
    if (!lexer_init(&p->lx, c, c->src) || !parser_advance(p))
        return NULL;
    return parse_body(p, NULL);
}
