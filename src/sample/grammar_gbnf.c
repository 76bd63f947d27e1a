/* GBNF: rules `name ::= alternatives` of strings, character classes,
    rule names and groups with * + ? {m,n}; # begins a comment. A rule ends
 * where the next one begins, so line breaks are white space. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sample/grammar_build_internal.h"

#define MAX_GROUPS 100 /* in one another */

struct gbnf_rule {
    const char *name;
    size_t n;
    const char *used; /* where first, for "nowhere defined" */
    grammar_expr rule;
};

struct gbnf {
    struct grammar_builder *b;
    const char *start, *at, *end;
    struct gbnf_rule *rules;
    size_t n_rules, cap_rules;
    struct grammar_index names;
    int groups;
};

struct exprs { grammar_expr *e; size_t n, cap; };

static grammar_expr alternatives(struct gbnf *p);

static grammar_expr refuse(struct gbnf *p, const char *where, const char *what)
{
    int line = 1, column = 1;
    for (const char *c = p->start; c < where; c++) {
        column = *c == '\n' ? 1 : column + ((*c & 0xC0) != 0x80);
        line += *c == '\n';
    }
    if (!p->b->err.code)
        error_set(&p->b->err, SKUA_EARG, "GBNF: line %d, column %d: %s", line, column, what);
    return 0;
}

static void space(struct gbnf *p)
{
    while (p->at < p->end) {
        if (*p->at == '#')
            while (p->at < p->end && *p->at != '\n')
                p->at++;
        else if (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
            p->at++;
        else
            break;
    }
}

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; }

static size_t name_here(const struct gbnf *p)
{
    size_t n = 0;
    while (p->at + n < p->end && is_name(p->at[n]))
        n++;
    return n;
}

/* Does a rule's definition begin here? */
static bool at_definition(const struct gbnf *p)
{
    struct gbnf q = *p;
    q.at += name_here(p);
    if (q.at == p->at)
        return false;
    space(&q);
    return p->end - q.at >= 3 && memcmp(q.at, "::=", 3) == 0;
}

static uint32_t hash_name(const char *s, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

static struct gbnf_rule *rule_named(struct gbnf *p, const char *name, size_t n)
{
    struct grammar_builder *b = p->b;
    const uint32_t hash = hash_name(name, n);
    size_t at = hash;
    for (uint32_t id; (id = grammar_index_next(&p->names, hash, &at)) != GRAMMAR_NONE;)
        if (p->rules[id].n == n && memcmp(p->rules[id].name, name, n) == 0)
            return &p->rules[id];
    const grammar_expr rule = grammar_rule(b, name, n);
    if (!rule || !builder_room(b, &p->rules, p->n_rules, &p->cap_rules, 1, sizeof *p->rules))
        return NULL;
    if (grammar_index_add(&p->names, hash, (uint32_t)p->n_rules)) {
        error_nomem(&b->err, "GBNF", 0);
        return NULL;
    }
    p->rules[p->n_rules] = (struct gbnf_rule){name, n, name, rule};
    return &p->rules[p->n_rules++];
}

static bool hex(struct gbnf *p, int digits, uint32_t *c)
{
    const char *from = p->at - 1;
    *c = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char d = p->at < p->end ? *p->at : ' ';
        const int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        if (v < 0) {
            refuse(p, from,
                digits == 2 ? "\\x without two hex digits" : digits == 4 ? "\\u without four hex digits" : "\\U without eight hex digits");
            return false;
        }
        *c = *c << 4 | (uint32_t)v;
    }
    if (*c > 0x10FFFF || (*c >= 0xD800 && *c < 0xE000)) {
        refuse(p, from, "an escape for what is no character");
        return false;
    }
    return true;
}

/* The next character of a string or class, escapes resolved. */
static bool character(struct gbnf *p, uint32_t *c)
{
    static const char letters[] = "nrtabfv0\\\"'[]-^/", values[] = "\n\r\t\a\b\f\v\0\\\"'[]-^/";
    const char *from = p->at;
    if (*p->at != '\\') {
        const int n = utf8_decode(p->at, (size_t)(p->end - p->at), c);
        p->at += n;
        if (!n)
            refuse(p, from, "malformed UTF-8");
        return n > 0;
    }
    if (++p->at == p->end) {
        refuse(p, from, "the text ends in an escape");
        return false;
    }
    const char e = *p->at++;
    if (e == 'x' || e == 'u' || e == 'U')
        return hex(p, e == 'x' ? 2 : e == 'u' ? 4 : 8, c);
    const char *known = memchr(letters, e, sizeof letters - 1);
    if (!known) {
        refuse(p, from, "unknown escape: expected one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
        return false;
    }
    *c = (uint8_t)values[known - letters];
    return true;
}

static grammar_expr string(struct gbnf *p)
{
    const char *open = p->at++;
    struct strbuf s = {0};
    while (p->at < p->end && *p->at != '"' && *p->at != '\n') {
        uint32_t c;
        char bytes[4];
        if (!character(p, &c))
            break;
        strbuf_append(&s, bytes, (size_t)utf8_encode(c, bytes));
    }
    grammar_expr e = 0;
    if (p->at == p->end || *p->at != '"')
        refuse(p, open, "a string without its closing quote");
    else if (strbuf_failed(&s))
        error_nomem(&p->b->err, "GBNF", s.len);
    else
        e = grammar_literal(p->b, strbuf_str(&s), s.len);
    p->at += p->at < p->end;
    strbuf_free(&s);
    return e;
}

static grammar_expr class(struct gbnf *p)
{
    const char *open = p->at++;
    struct grammar_builder *b = p->b;
    struct grammar_range *ranges = NULL;
    size_t n = 0, cap = 0;
    const bool negated = p->at < p->end && *p->at == '^';
    p->at += negated;
    while (p->at < p->end && *p->at != ']' && !b->err.code) {
        struct grammar_range r;
        const char *from = p->at;
        if (!character(p, &r.first))
            break;
        r.last = r.first;
        if (p->end - p->at >= 2 && *p->at == '-' && p->at[1] != ']') {
            p->at++;
            if (!character(p, &r.last))
                break;
            if (r.last < r.first)
                refuse(p, from, "a range whose end is before its beginning");
        }
        if (builder_room(b, &ranges, n, &cap, 1, sizeof *ranges))
            ranges[n++] = r;
    }
    grammar_expr e = 0;
    if (p->at == p->end)
        refuse(p, open, "a character class without ']'");
    else if (!b->err.code)
        e = grammar_chars(b, ranges, n, negated);
    p->at += p->at < p->end;
    mem_free(ranges);
    return e;
}

static bool number(struct gbnf *p, uint32_t *n)
{
    const char *from = p->at;
    for (*n = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        *n = *n * 10 + (uint32_t)(*p->at - '0');
        if (*n > 100000000) {
            refuse(p, from, "a count above 100000000");
            return false;
        }
    }
    return p->at > from;
}

/* The operators behind an item. */
static grammar_expr postfix(struct gbnf *p, grammar_expr e)
{
    for (space(p); p->at < p->end && !p->b->err.code; space(p)) {
        const char *from = p->at, c = *p->at;
        uint32_t min = c == '+', max = c == '?' ? 1 : GRAMMAR_UNLIMITED;
        if (c != '*' && c != '+' && c != '?' && c != '{')
            break;
        p->at++;
        if (c == '{') {
            space(p);
            const bool has_min = number(p, &min);
            space(p);
            max = min;
            if (p->at < p->end && *p->at == ',') {
                p->at++;
                space(p);
                if (!number(p, &max))
                    max = GRAMMAR_UNLIMITED;
                space(p);
            } else if (!has_min) {
                return refuse(p, from, "expected {m}, {m,}, {,n} or {m,n}");
            }
            if (p->at == p->end || *p->at != '}')
                return refuse(p, from, "expected {m}, {m,}, {,n} or {m,n}");
            p->at++;
            if (max < min)
                return refuse(p, from, "a repetition whose maximum is below its minimum");
        }
        e = grammar_repeat(p->b, e, min, max);
    }
    return e;
}

static grammar_expr group(struct gbnf *p)
{
    const char *open = p->at++;
    if (p->groups == MAX_GROUPS)
        return refuse(p, open, "groups nested more than 100 deep");
    p->groups++;
    const grammar_expr e = alternatives(p);
    p->groups--;
    if (p->at == p->end || *p->at != ')')
        return refuse(p, open, "a group without ')'");
    p->at++;
    return e;
}

/* One item, or 0 when none begins here or something is wrong. */
static grammar_expr item(struct gbnf *p)
{
    const char c = *p->at;
    if (c == '"')
        return string(p);
    if (c == '[')
        return class(p);
    if (c == '(')
        return group(p);
    if (c == '.') {
        p->at++;
        return grammar_chars(p->b, NULL, 0, true);
    }
    const size_t n = name_here(p);
    if (!n)
        return 0;
    const struct gbnf_rule *r = rule_named(p, p->at, n);
    p->at += n;
    return r ? r->rule : 0;
}

static void add(struct gbnf *p, struct exprs *x, grammar_expr e)
{
    if (e && builder_room(p->b, &x->e, x->n, &x->cap, 1, sizeof *x->e))
        x->e[x->n++] = e;
}

static grammar_expr sequence(struct gbnf *p)
{
    struct exprs x = {0};
    for (space(p); p->at < p->end && *p->at != '|' && *p->at != ')' && !at_definition(p) && !p->b->err.code; space(p)) {
        const grammar_expr e = item(p);
        if (!e) {
            refuse(p, p->at, "expected a string, a character class, a rule's name or a group");
            break;
        }
        add(p, &x, postfix(p, e));
    }
    const grammar_expr e = p->b->err.code ? 0 : grammar_seq(p->b, x.e, x.n);
    mem_free(x.e);
    return e;
}

static grammar_expr alternatives(struct gbnf *p)
{
    struct exprs x = {0};
    add(p, &x, sequence(p));
    while (p->at < p->end && *p->at == '|' && !p->b->err.code) {
        p->at++;
        add(p, &x, sequence(p));
    }
    const grammar_expr e = p->b->err.code ? 0 : grammar_alt(p->b, x.e, x.n);
    mem_free(x.e);
    return e;
}

static void definition(struct gbnf *p)
{
    const char *from = p->at;
    if (!at_definition(p)) {
        refuse(p, p->at, "expected a rule: a name of letters, digits, - and _, then ::=");
        return;
    }
    const size_t n = name_here(p);
    const struct gbnf_rule *r = rule_named(p, p->at, n);
    p->at += n;
    space(p);
    p->at += 3;
    const grammar_expr body = r ? alternatives(p) : 0;
    if (p->b->err.code)
        return;
    if (p->at < p->end && *p->at == ')') {
        refuse(p, p->at, "a ')' without its group");
        return;
    }
    r = rule_named(p, from, n);
    if (grammar_rule_is_set(p->b, r->rule))
        refuse(p, from, "this rule is defined a second time");
    grammar_rule_set(p->b, r->rule, body);
}

grammar_expr grammar_gbnf(struct grammar_builder *b, const char *text, size_t n)
{
    skua_error err;
    if (grammar_builder_error(b, &err))
        return 0;
    struct gbnf p = {.b = b, .start = text, .at = text, .end = text + n};
    grammar_expr root = 0;
    if (grammar_index_init(&p.names, 16)) {
        error_nomem(&b->err, "GBNF", 0);
        return 0;
    }
    for (space(&p); p.at < p.end && !b->err.code; space(&p))
        definition(&p);
    for (size_t i = 0; i < p.n_rules && !b->err.code; i++)
        if (!grammar_rule_is_set(b, p.rules[i].rule))
            refuse(&p, p.rules[i].used, "a rule of this name is nowhere defined");
    for (size_t i = 0; i < p.n_rules; i++)
        if (p.rules[i].n == 4 && memcmp(p.rules[i].name, "root", 4) == 0)
            root = p.rules[i].rule;
    if (!root && !b->err.code)
        error_set(&b->err, SKUA_EARG, "GBNF: there is no rule 'root', where a text begins");
    mem_free(p.rules);
    grammar_index_free(&p.names);
    return b->err.code ? 0 : root;
}

int grammar_from_gbnf(const char *text, size_t n, struct grammar **out, skua_error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    const grammar_expr root = grammar_gbnf(b, text, n);
    const int rc = grammar_builder_finish(b, root, out, err);
    grammar_builder_free(b);
    return rc;
}
