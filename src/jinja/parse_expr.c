/* Expressions; see parser.h. One function per level of precedence, lowest first. */
#include "jinja/parser.h"

static struct node *parse_or(struct parser *p);
static struct node *parse_sum(struct parser *p);
static struct node *parse_unary(struct parser *p, bool with_filter);

static struct node *binary(struct parser *p, enum node_kind kind, int op, struct node *a, struct node *b,
                           const struct token *at)
{
    struct node *n = parser_node(p, kind, at->line, at->col);
    if (!n || !b)
        return NULL;
    n->op = (uint8_t)op;
    n->a = a;
    n->b = b;
    return parser_height(p, n, a) && parser_height(p, n, b) ? n : NULL;
}

struct node *parse_expression(struct parser *p, bool with_condition)
{
    if (!parser_enter(p))
        return NULL;
    struct token at = p->tok;
    struct node *e = parse_or(p);
    while (e && with_condition && parser_is_name(p, "if")) {
        struct node *n = parser_node(p, N_COND, at.line, at.col);
        if (!n || !parser_advance(p))
            return NULL;
        n->a = e;
        n->b = parse_or(p);
        if (!n->b)
            return NULL;
        if (parser_is_name(p, "else")) {
            if (!parser_advance(p) || !(n->c = parse_expression(p, true)))
                return NULL;
        }
        if (!parser_height(p, n, n->a) || !parser_height(p, n, n->b) || !parser_height(p, n, n->c))
            return NULL;
        e = n;
        at = p->tok;
    }
    p->nesting--;
    return e;
}

static struct node *parse_compare(struct parser *p)
{
    static const uint8_t ops[] = {[T_EQ] = CMP_EQ + 1, [T_NE] = CMP_NE + 1, [T_LT] = CMP_LT + 1, [T_LTEQ] = CMP_LE + 1,
                                  [T_GT] = CMP_GT + 1, [T_GTEQ] = CMP_GE + 1, [T_SEMICOLON] = 0};
    struct token at = p->tok;
    struct node *e = parse_sum(p);
    struct node_list operands = {0};
    uint8_t list[64];
    struct node *n = NULL;
    while (e) {
        int op;
        if (p->tok.type < sizeof ops && ops[p->tok.type])
            op = ops[p->tok.type] - 1;
        else if (parser_is_name(p, "in"))
            op = CMP_IN;
        else if (parser_is_name(p, "not")) {
            if (!parser_peek(p))
                return NULL;
            if (p->ahead.type != T_NAME || !str_is(p->ahead.text, "in"))
                break;
            if (!parser_advance(p))
                return NULL;
            op = CMP_NOTIN;
        } else
            break;
        if (operands.n == sizeof list)
            return parser_fail(p, "a chain of comparisons is limited to %zu operators", sizeof list), NULL;
        list[operands.n] = (uint8_t)op;
        if (!n && !(n = parser_node(p, N_COMPARE, at.line, at.col)))
            return NULL;
        struct node *right = parser_advance(p) ? parse_sum(p) : NULL;
        if (!right || !parser_height(p, n, right) || !node_list_add(p, &operands, right))
            return NULL;
    }
    if (!n)
        return e;
    n->a = e;
    if (!parser_height(p, n, e) || !node_list_done(p, &operands, &n->list, &n->n))
        return NULL;
    n->ops = arena_alloc(&p->c->t->arena, n->n);
    if (!n->ops)
        return compile_nomem(p->c, &p->c->t->arena), NULL;
    memcpy(n->ops, list, n->n);
    return n;
}

static struct node *parse_not(struct parser *p)
{
    if (!parser_is_name(p, "not"))
        return parse_compare(p);
    struct node *n = parser_node(p, N_NOT, p->tok.line, p->tok.col);
    if (!n || !parser_enter(p) || !parser_advance(p) || !(n->a = parse_not(p)) || !parser_height(p, n, n->a))
        return NULL;
    p->nesting--;
    return n;
}

static struct node *parse_and(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_not(p);
    while (e && parser_is_name(p, "and")) {
        e = parser_advance(p) ? binary(p, N_AND, 0, e, parse_not(p), &at) : NULL;
        at = p->tok;
    }
    return e;
}

static struct node *parse_or(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_and(p);
    while (e && parser_is_name(p, "or")) {
        e = parser_advance(p) ? binary(p, N_OR, 0, e, parse_and(p), &at) : NULL;
        at = p->tok;
    }
    return e;
}

static struct node *parse_power(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_unary(p, true);
    while (e && p->tok.type == T_POW) {
        e = parser_advance(p) ? binary(p, N_BIN, OP_POW, e, parse_unary(p, true), &at) : NULL;
        at = p->tok;
    }
    return e;
}

static struct node *parse_product(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_power(p);
    for (; e; at = p->tok) {
        int op = p->tok.type == T_MUL ? OP_MUL : p->tok.type == T_DIV ? OP_DIV : p->tok.type == T_FLOORDIV ? OP_FLOORDIV
                 : p->tok.type == T_MOD ? OP_MOD : -1;
        if (op < 0)
            break;
        e = parser_advance(p) ? binary(p, N_BIN, op, e, parse_power(p), &at) : NULL;
    }
    return e;
}

static struct node *parse_concat(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_product(p);
    if (!e || p->tok.type != T_TILDE)
        return e;
    struct node_list parts = {0};
    struct node *n = parser_node(p, N_CONCAT, at.line, at.col);
    if (!n || !parser_height(p, n, e) || !node_list_add(p, &parts, e))
        return NULL;
    while (p->tok.type == T_TILDE) {
        struct node *part = parser_advance(p) ? parse_product(p) : NULL;
        if (!part || !parser_height(p, n, part) || !node_list_add(p, &parts, part))
            return NULL;
    }
    return node_list_done(p, &parts, &n->list, &n->n) ? n : NULL;
}

static struct node *parse_sum(struct parser *p)
{
    struct token at = p->tok;
    struct node *e = parse_concat(p);
    while (e && (p->tok.type == T_ADD || p->tok.type == T_SUB)) {
        int op = p->tok.type == T_ADD ? OP_ADD : OP_SUB;
        e = parser_advance(p) ? binary(p, N_BIN, op, e, parse_concat(p), &at) : NULL;
        at = p->tok;
    }
    return e;
}

static bool invalid_call(struct parser *p, const struct token *at)
{
    return compile_fail(p->c, at->line, at->col, "invalid syntax for function call expression");
}

static bool call_argument(struct parser *p, struct call_args *a, struct node_list *pos, struct keyword **kw, uint32_t *cap,
                          const struct token *at)
{
    if (p->tok.type == T_MUL || p->tok.type == T_POW) {
        bool kwargs = p->tok.type == T_POW;
        if (a->dyn_kw || (!kwargs && a->dyn_pos))
            return invalid_call(p, at);
        struct node *e = parser_advance(p) ? parse_expression(p, true) : NULL;
        *(kwargs ? &a->dyn_kw : &a->dyn_pos) = e;
        return e;
    }
    if (p->tok.type == T_NAME && !parser_peek(p))
        return false;
    if (p->tok.type == T_NAME && p->ahead.type == T_ASSIGN) {
        if (a->dyn_kw)
            return invalid_call(p, at);
        if (a->nkw == *cap) {
            *cap = *cap ? *cap * 2 : 4;
            *kw = arena_grow(&p->c->scratch, *kw, a->nkw * sizeof **kw, *cap * sizeof **kw);
            if (!*kw)
                return compile_nomem(p->c, &p->c->scratch);
        }
        struct keyword k = {.name = p->tok.text};
        if (a->nkw == MAX_NAMED)
            return parser_fail(p, "more than %d keyword arguments", MAX_NAMED);
        for (uint32_t i = 0; i < a->nkw; i++)
            if (str_eq((*kw)[i].name, k.name))
                return parser_fail(p, "keyword argument repeated: %.*s", (int)k.name.n, k.name.s);
        if (!parser_advance(p) || !parser_advance(p) || !(k.value = parse_expression(p, true)))
            return false;
        (*kw)[a->nkw++] = k;
        return true;
    }
    if (a->dyn_pos || a->dyn_kw || a->nkw)
        return invalid_call(p, at);
    struct node *e = parse_expression(p, true);
    return e && node_list_add(p, pos, e);
}

static struct call_args *parse_call_args(struct parser *p)
{
    struct token at = p->tok;
    struct call_args *a = arena_zalloc(&p->c->t->arena, sizeof *a);
    if (!a)
        return compile_nomem(p->c, &p->c->t->arena), NULL;
    struct node_list pos = {0};
    struct keyword *kw = NULL;
    uint32_t cap = 0;
    bool comma = false;
    if (!parser_expect(p, T_LPAREN))
        return NULL;
    while (p->tok.type != T_RPAREN) {
        if (comma && !parser_expect(p, T_COMMA))
            return NULL;
        if (comma && p->tok.type == T_RPAREN)
            break;
        if (!call_argument(p, a, &pos, &kw, &cap, &at))
            return NULL;
        comma = true;
    }
    if (!parser_advance(p) || !node_list_done(p, &pos, &a->pos, &a->npos))
        return NULL;
    if (a->nkw) {
        a->kw = arena_array(&p->c->t->arena, a->nkw, sizeof *kw);
        if (!a->kw)
            return compile_nomem(p->c, &p->c->t->arena), NULL;
        memcpy(a->kw, kw, a->nkw * sizeof *kw);
    }
    return a;
}

static bool args_height(struct parser *p, struct node *n)
{
    const struct call_args *a = n->args;
    for (uint32_t i = 0; a && i < a->npos; i++)
        if (!parser_height(p, n, a->pos[i]))
            return false;
    for (uint32_t i = 0; a && i < a->nkw; i++)
        if (!parser_height(p, n, a->kw[i].value))
            return false;
    return !a || (parser_height(p, n, a->dyn_pos) && parser_height(p, n, a->dyn_kw));
}

static struct node *parse_call(struct parser *p, struct node *callee)
{
    struct node *n = parser_node(p, N_CALL, p->tok.line, p->tok.col);
    if (!n)
        return NULL;
    n->a = callee;
    n->args = parse_call_args(p);
    return n->args && parser_height(p, n, callee) && args_height(p, n) ? n : NULL;
}

static struct node *constant(struct parser *p, struct val v, uint32_t line, uint32_t col)
{
    struct node *n = parser_node(p, N_CONST, line, col);
    if (n)
        n->value = v;
    return n;
}

/* The inside of [ ]: an index or a slice. *slice is set for the latter, with its three parts in a list. */
static struct node *parse_subscript_part(struct parser *p)
{
    struct token at = p->tok;
    struct node *part[3] = {NULL, NULL, NULL};
    if (p->tok.type != T_COLON) {
        part[0] = parse_expression(p, true);
        if (!part[0] || p->tok.type != T_COLON)
            return part[0];
    }
    if (!parser_advance(p))
        return NULL;
    if (p->tok.type != T_COLON && p->tok.type != T_RBRACKET && p->tok.type != T_COMMA &&
        !(part[1] = parse_expression(p, true)))
        return NULL;
    if (p->tok.type == T_COLON) {
        if (!parser_advance(p))
            return NULL;
        if (p->tok.type != T_RBRACKET && p->tok.type != T_COMMA && !(part[2] = parse_expression(p, true)))
            return NULL;
    }
    struct node *n = parser_node(p, N_SLICE, at.line, at.col);
    if (!n || !(n->list = arena_array(&p->c->t->arena, 3, sizeof *n->list)))
        return n ? (compile_nomem(p->c, &p->c->t->arena), NULL) : NULL;
    n->n = 3;
    for (int i = 0; i < 3; i++) {
        n->list[i] = part[i];
        if (!parser_height(p, n, part[i]))
            return NULL;
    }
    return n;
}

static struct node *parse_brackets(struct parser *p, struct node *value)
{
    struct token at = p->tok;
    struct node_list parts = {0};
    if (!parser_advance(p))
        return NULL;
    while (p->tok.type != T_RBRACKET) {
        if (parts.n && !parser_expect(p, T_COMMA))
            return NULL;
        struct node *part = parse_subscript_part(p);
        if (!part || !node_list_add(p, &parts, part))
            return NULL;
    }
    if (!parser_advance(p))
        return NULL;
    struct node *n;
    if (parts.n == 1 && parts.items[0]->kind == N_SLICE && !parts.items[0]->a) { /* with a: a slice of something, as index */
        n = parts.items[0];
        n->a = value;
        n->line = at.line;
        n->col = at.col;
        return parser_height(p, n, value) ? n : NULL;
    }
    n = parser_node(p, N_ITEM, at.line, at.col);
    if (!n)
        return NULL;
    n->a = value;
    if (parts.n == 1) {
        n->b = parts.items[0];
    } else {
        n->b = parser_node(p, N_TUPLE, at.line, at.col);
        if (!n->b || !node_list_done(p, &parts, &n->b->list, &n->b->n))
            return NULL;
        for (uint32_t i = 0; i < parts.n; i++) {
            if (parts.items[i]->kind == N_SLICE && !parts.items[i]->a)
                return compile_fail(p->c, at.line, at.col, "slices of several dimensions are not supported"), NULL;
            if (!parser_height(p, n->b, parts.items[i]))
                return NULL;
        }
    }
    return parser_height(p, n, value) && parser_height(p, n, n->b) ? n : NULL;
}

static struct node *parse_subscript(struct parser *p, struct node *value)
{
    struct token at = p->tok;
    if (at.type == T_LBRACKET)
        return parse_brackets(p, value);
    if (!parser_advance(p))
        return NULL;
    struct token attr = p->tok;
    if (!parser_advance(p))
        return NULL;
    if (attr.type != T_NAME && attr.type != T_INTEGER)
        return compile_fail(p->c, attr.line, attr.col, "expected name or number"), NULL;
    struct node *n = parser_node(p, attr.type == T_NAME ? N_ATTR : N_ITEM, at.line, at.col);
    if (!n)
        return NULL;
    n->a = value;
    n->name = attr.text;
    if (attr.type == T_INTEGER && !(n->b = constant(p, val_int(attr.i), attr.line, attr.col)))
        return NULL;
    return parser_height(p, n, value) ? n : NULL;
}

static struct node *parse_postfix(struct parser *p, struct node *e)
{
    while (e) {
        if (p->tok.type == T_DOT || p->tok.type == T_LBRACKET)
            e = parse_subscript(p, e);
        else if (p->tok.type == T_LPAREN)
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

static bool dotted_name(struct parser *p, struct str *name)
{
    *name = p->tok.text;
    if (!parser_expect(p, T_NAME))
        return false;
    if (p->tok.type == T_DOT)
        return parser_fail(p, "names with dots are not supported for filters and tests");
    return true;
}

static struct node *parse_test(struct parser *p, struct node *value)
{
    struct token at = p->tok;
    struct node *n = parser_node(p, N_TEST, at.line, at.col);
    if (!n || !parser_advance(p))
        return NULL;
    bool negated = parser_is_name(p, "not");
    if ((negated && !parser_advance(p)) || !dotted_name(p, &n->name))
        return NULL;
    n->a = value;
    enum token_type t = p->tok.type;
    if (t == T_LPAREN) {
        if (!(n->args = parse_call_args(p)))
            return NULL;
    } else if ((t == T_NAME || t == T_STRING || t == T_INTEGER || t == T_FLOAT || t == T_LBRACKET || t == T_LBRACE) &&
               !parser_is_name(p, "else") && !parser_is_name(p, "or") && !parser_is_name(p, "and")) {
        if (parser_is_name(p, "is"))
            return parser_fail(p, "You cannot chain multiple tests with is"), NULL;
        struct node *arg = parse_postfix(p, parse_primary(p));
        struct node_list one = {0};
        if (!arg || !(n->args = arena_zalloc(&p->c->t->arena, sizeof *n->args)) || !node_list_add(p, &one, arg) ||
            !node_list_done(p, &one, &n->args->pos, &n->args->npos))
            return arg && !n->args ? (compile_nomem(p->c, &p->c->t->arena), NULL) : NULL;
    }
    if (!parser_height(p, n, value) || !args_height(p, n))
        return NULL;
    if (!negated)
        return n;
    struct node *not = parser_node(p, N_NOT, at.line, at.col);
    if (!not)
        return NULL;
    not->a = n;
    return parser_height(p, not, n) ? not : NULL;
}

struct node *parse_filters(struct parser *p, struct node *value, bool start_inline)
{
    while (p->tok.type == T_PIPE || start_inline) {
        if (!start_inline && !parser_advance(p))
            return NULL;
        struct node *n = parser_node(p, N_FILTER, p->tok.line, p->tok.col);
        if (!n || !dotted_name(p, &n->name))
            return NULL;
        n->a = value;
        if (p->tok.type == T_LPAREN && !(n->args = parse_call_args(p)))
            return NULL;
        if (!parser_height(p, n, value) || !args_height(p, n))
            return NULL;
        value = n;
        start_inline = false;
    }
    return value;
}

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *e;
    if (p->tok.type == T_SUB || p->tok.type == T_ADD) {
        e = parser_node(p, p->tok.type == T_SUB ? N_NEG : N_POS, p->tok.line, p->tok.col);
        if (!e || !parser_enter(p) || !parser_advance(p) || !(e->a = parse_unary(p, false)) || !parser_height(p, e, e->a))
            return NULL;
        p->nesting--;
    } else {
        e = parse_primary(p);
    }
    e = parse_postfix(p, e);
    while (e && with_filter) {
        if (p->tok.type == T_PIPE)
            e = parse_filters(p, e, false);
        else if (parser_is_name(p, "is"))
            e = parse_test(p, e);
        else if (p->tok.type == T_LPAREN)
            e = parse_call(p, e);
        else
            break;
    }
    return e;
}

static struct node *parse_strings(struct parser *p)
{
    struct token at = p->tok;
    struct str s = at.text;
    if (!parser_advance(p))
        return NULL;
    while (p->tok.type == T_STRING) { /* adjacent literals are one */
        char *joined = arena_alloc(&p->c->t->arena, s.n + p->tok.text.n);
        if (!joined)
            return compile_nomem(p->c, &p->c->t->arena), NULL;
        memcpy(joined, s.s, s.n);
        memcpy(joined + s.n, p->tok.text.s, p->tok.text.n);
        s = (struct str){joined, s.n + p->tok.text.n};
        if (!parser_advance(p))
            return NULL;
    }
    return constant(p, val_str(s), at.line, at.col);
}

static struct node *parse_list_or_dict(struct parser *p)
{
    struct token at = p->tok;
    bool dict = at.type == T_LBRACE;
    enum token_type end = dict ? T_RBRACE : T_RBRACKET;
    struct node *n = parser_node(p, dict ? N_DICT : N_LIST, at.line, at.col);
    struct node_list items = {0};
    if (!n || !parser_advance(p))
        return NULL;
    while (p->tok.type != end) {
        if (items.n && !parser_expect(p, T_COMMA))
            return NULL;
        if (p->tok.type == end)
            break;
        struct node *e = parse_expression(p, true);
        if (!e || !parser_height(p, n, e) || !node_list_add(p, &items, e))
            return NULL;
        if (dict && (!parser_expect(p, T_COLON) || !(e = parse_expression(p, true)) || !parser_height(p, n, e) ||
                     !node_list_add(p, &items, e)))
            return NULL;
    }
    return parser_advance(p) && node_list_done(p, &items, &n->list, &n->n) ? n : NULL;
}

static struct node *parse_name(struct parser *p)
{
    static const struct { const char *name; enum value_type type; bool b; } words[] = {
        {"true", V_BOOL, true}, {"True", V_BOOL, true}, {"false", V_BOOL, false}, {"False", V_BOOL, false},
        {"none", V_NONE, false}, {"None", V_NONE, false},
    };
    struct token at = p->tok;
    struct node *n = parser_node(p, N_NAME, at.line, at.col);
    if (!n || !parser_advance(p))
        return NULL;
    n->name = at.text;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (str_is(at.text, words[i].name)) {
            n->kind = N_CONST;
            n->value = words[i].type == V_BOOL ? val_bool(words[i].b) : VAL_NONE;
        }
    return n;
}

struct node *parse_primary(struct parser *p)
{
    struct token at = p->tok;
    struct node *e;
    switch (at.type) {
    case T_NAME:
        return parse_name(p);
    case T_STRING:
        return parse_strings(p);
    case T_INTEGER:
    case T_FLOAT:
        return parser_advance(p) ? constant(p, at.type == T_INTEGER ? val_int(at.i) : val_float(at.f), at.line, at.col) : NULL;
    case T_LPAREN:
        if (!parser_advance(p) || !(e = parse_tuple(p, true, END_PLAIN, true)) || !parser_expect(p, T_RPAREN))
            return NULL;
        return e;
    case T_LBRACKET:
    case T_LBRACE:
        if (!parser_enter(p) || !(e = parse_list_or_dict(p)))
            return NULL;
        p->nesting--;
        return e;
    default: {
        char what[80];
        parser_describe(&at, what);
        parser_fail(p, "unexpected '%s'", what);
        return NULL;
    }
    }
}

static bool tuple_ends(const struct parser *p, enum tuple_end end)
{
    return p->tok.type == T_VARIABLE_END || p->tok.type == T_BLOCK_END || p->tok.type == T_RPAREN ||
           (end == END_IN && parser_is_name(p, "in")) || (end == END_RECURSIVE && parser_is_name(p, "recursive"));
}

static struct node *tuple(struct parser *p, bool simple, bool with_condition, enum tuple_end end, bool in_parentheses)
{
    struct token at = p->tok;
    struct node_list items = {0};
    bool is_tuple = false;
    if (!parser_enter(p))
        return NULL;
    for (;;) {
        if (items.n && !parser_expect(p, T_COMMA))
            return NULL;
        if (tuple_ends(p, end))
            break;
        struct node *e = simple ? parse_primary(p) : parse_expression(p, with_condition);
        if (!e || !node_list_add(p, &items, e))
            return NULL;
        if (p->tok.type != T_COMMA)
            break;
        is_tuple = true;
    }
    p->nesting--;
    if (!is_tuple && items.n)
        return items.items[0];
    if (!is_tuple && !in_parentheses) {
        char what[80];
        parser_describe(&p->tok, what);
        return parser_fail(p, "Expected an expression, got '%s'", what), NULL;
    }
    struct node *n = parser_node(p, N_TUPLE, at.line, at.col);
    if (!n || !node_list_done(p, &items, &n->list, &n->n))
        return NULL;
    for (uint32_t i = 0; i < n->n; i++)
        if (!parser_height(p, n, n->list[i]))
            return NULL;
    return n;
}

struct node *parse_tuple(struct parser *p, bool with_condition, enum tuple_end end, bool in_parentheses)
{
    return tuple(p, false, with_condition, end, in_parentheses);
}

struct node *parse_target_tuple(struct parser *p, enum tuple_end end) { return tuple(p, true, true, end, false); }
