/* Regular expressions: characters, classes, groups, alternatives, repetitions. What they match is turned into the same expressions as
 * everything else; so there is no backtracking, and no look-around, back references or anchors inside. */
#include "sample/grammar_regex.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sample/grammar_build_internal.h"
#include "sample/grammar_json.h"

#define MAX_GROUPS 100 /* in one another */
#define MAX_COUNT 1000000u
#define MAX_CHAR 0x10FFFFu

struct regex {
    struct grammar_builder *b;
    const char *start, *at, *end;
    bool json;  /* characters as in a JSON string */
    bool found; /* a search instead of a match */
    int groups;
};

struct classes { struct grammar_range *r; size_t n, cap; };
struct exprs { grammar_expr *e; size_t n, cap; };

static const struct grammar_range digit_class[] = {{'0', '9'}};
static const struct grammar_range word_class[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct grammar_range space_class[] = {{9, 13}, {32, 32}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                                   {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct grammar_range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static grammar_expr alternatives(struct regex *p);

static grammar_expr refuse(struct regex *p, int code, const char *where, const char *what)
{
    if (!p->b->err.code)
        error_set(&p->b->err, code, "regular expression, at byte %zu: %s", (size_t)(where - p->start), what);
    return 0;
}

static grammar_expr malformed(struct regex *p, const char *where, const char *what) { return refuse(p, SKUA_EARG, where, what); }
static grammar_expr unsupported(struct regex *p, const char *where, const char *what) { return refuse(p, SKUA_EUNSUPPORTED, where, what); }

static grammar_expr chars(struct regex *p, const struct grammar_range *r, size_t n, bool negated)
{
    return p->json ? gjson_chars(p->b, r, n, negated) : grammar_chars(p->b, r, n, negated);
}

static void add_range(struct regex *p, struct classes *c, uint32_t first, uint32_t last)
{
    if (first <= last && builder_room(p->b, &c->r, c->n, &c->cap, 1, sizeof *c->r))
        c->r[c->n++] = (struct grammar_range){first, last};
}

/* \d \w \s and their opposites into c; false: another letter. */
static bool shorthand(struct regex *p, char e, struct classes *c)
{
    const char kind = (char)(e | 32);
    const struct grammar_range *r = kind == 'd' ? digit_class : kind == 'w' ? word_class : space_class;
    const size_t n = kind == 'd' ? 1 : kind == 'w' ? 4 : sizeof space_class / sizeof space_class[0];
    uint32_t from = 0;
    if (kind != 'd' && kind != 'w' && kind != 's')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (e & 32)
            add_range(p, c, r[i].first, r[i].last);
        else if (r[i].first > from)
            add_range(p, c, from, r[i].first - 1);
        from = r[i].last + 1;
    }
    if (!(e & 32))
        add_range(p, c, from, MAX_CHAR);
    return true;
}

static bool hex(struct regex *p, int most, uint32_t *c)
{
    int n = 0;
    for (*c = 0; n < most && p->at < p->end; n++, p->at++) {
        const char d = *p->at;
        const int v = d >= '0' && d <= '9' ? d - '0' : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10 : -1;
        if (v < 0)
            break;
        *c = *c << 4 | (uint32_t)v;
    }
    return n > 0;
}

/* Behind \x or \u: two, four, or any number of hex digits in braces; a pair of surrogates is one character. */
static bool hex_escape(struct regex *p, char e, uint32_t *c)
{
    const char *from = p->at - 2;
    const int n = e == 'x' ? 2 : 4;
    if (p->at < p->end && *p->at == '{') {
        p->at++;
        if (hex(p, 6, c) && p->at < p->end && *p->at++ == '}' && *c <= MAX_CHAR)
            return true;
    } else {
        const char *digits = p->at;
        if (hex(p, n, c) && p->at - digits == n) {
            uint32_t low;
            const char *behind = p->at;
            if (*c < 0xD800 || *c > 0xDBFF || p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u')
                return true;
            p->at += 2;
            if (hex(p, 4, &low) && low >= 0xDC00 && low <= 0xDFFF)
                *c = 0x10000 + ((*c - 0xD800) << 10) + (low - 0xDC00);
            else
                p->at = behind;
            return true;
        }
    }
    malformed(p, from, "an escape without its hex digits");
    return false;
}

/* The character of an escape, p->at behind the backslash. */
static bool escaped(struct regex *p, uint32_t *c)
{
    static const char letters[] = "nrtfv0", values[] = "\n\r\t\f\v";
    const char *from = p->at - 1;
    if (p->at == p->end) {
        malformed(p, from, "a backslash at the end");
        return false;
    }
    const char e = *p->at;
    const char *known = strchr(letters, e);
    if (e == 'x' || e == 'u') {
        p->at++;
        return hex_escape(p, e, c);
    }
    if (e && known && !(e == '0' && p->end - p->at > 1 && p->at[1] >= '0' && p->at[1] <= '9')) {
        p->at++;
        *c = (uint8_t)values[known - letters];
        return true;
    }
    if ((e >= '0' && e <= '9') || e == 'k') {
        unsupported(p, from, "back references are not supported");
        return false;
    }
    if ((e | 32) == 'b' || e == 'A' || (e | 32) == 'z' || (e | 32) == 'p' || e == 'G' || e == 'K' || e == 'R' || e == 'X' || e == 'c') {
        unsupported(p, from, "of escapes only \\d \\w \\s \\D \\W \\S \\n \\r \\t \\f \\v \\0 \\xHH \\uHHHH \\u{H} are supported");
        return false;
    }
    const int n = utf8_decode(p->at, (size_t)(p->end - p->at), c);
    p->at += n;
    if (!n)
        malformed(p, from, "malformed UTF-8");
    return n > 0;
}

static bool character(struct regex *p, uint32_t *c)
{
    if (*p->at == '\\') {
        p->at++;
        return escaped(p, c);
    }
    const int n = utf8_decode(p->at, (size_t)(p->end - p->at), c);
    if (!n)
        malformed(p, p->at, "malformed UTF-8");
    p->at += n;
    return n > 0;
}

/* One member of a class, or a range of it. */
static void class_item(struct regex *p, struct classes *c)
{
    const char *from = p->at;
    uint32_t first, last;
    if (*p->at == '\\' && p->end - p->at > 1) {
        if (shorthand(p, p->at[1], c)) {
            p->at += 2;
            return;
        }
        if (p->at[1] == 'b') { /* in a class: backspace */
            p->at += 2;
            add_range(p, c, '\b', '\b');
            return;
        }
    }
    if (*p->at == '[' && p->end - p->at > 1 && p->at[1] == ':') {
        unsupported(p, from, "named classes like [:alpha:] are not supported");
        return;
    }
    if (!character(p, &first))
        return;
    last = first;
    if (p->end - p->at > 1 && *p->at == '-' && p->at[1] != ']') {
        p->at++;
        if (*p->at == '\\' && p->end - p->at > 1 && memchr("dwsDWS", p->at[1], 6)) {
            malformed(p, from, "a range that ends with a class");
            return;
        }
        if (!character(p, &last))
            return;
        if (last < first)
            malformed(p, from, "a range whose end is before its beginning");
    }
    add_range(p, c, first, last);
}

static grammar_expr class(struct regex *p)
{
    const char *open = p->at++;
    struct classes c = {0};
    const bool negated = p->at < p->end && *p->at == '^';
    p->at += negated;
    while (p->at < p->end && *p->at != ']' && !p->b->err.code)
        class_item(p, &c);
    grammar_expr e = 0;
    if (p->at == p->end)
        malformed(p, open, "a character class without ']'");
    else if (!p->b->err.code)
        e = chars(p, c.r, c.n, negated);
    p->at += p->at < p->end;
    mem_free(c.r);
    return e;
}

static grammar_expr group(struct regex *p)
{
    const char *open = p->at++;
    if (p->groups == MAX_GROUPS)
        return refuse(p, SKUA_ELIMIT, open, "groups nested more than 100 deep");
    if (p->at < p->end && *p->at == '?') {
        const char *kind = ++p->at;
        if (p->at < p->end && *p->at == 'P')
            p->at++;
        if (p->end - p->at > 1 && *p->at == '<' && p->at[1] != '=' && p->at[1] != '!') { /* a name */
            while (p->at < p->end && *p->at != '>')
                p->at++;
        } else if (p->at != kind || p->at == p->end || *p->at != ':') {
            return unsupported(p, open, "of groups only (...), (?:...) and (?<name>...) are supported: no look-around, no flags");
        }
        p->at += p->at < p->end;
    }
    p->groups++;
    const grammar_expr e = alternatives(p);
    p->groups--;
    if (p->b->err.code)
        return 0;
    if (p->at == p->end)
        return malformed(p, open, "a group without ')'");
    p->at++;
    return e;
}

static bool number(struct regex *p, uint32_t *n)
{
    const char *from = p->at;
    for (*n = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++) {
        *n = *n * 10 + (uint32_t)(*p->at - '0');
        if (*n > MAX_COUNT) {
            refuse(p, SKUA_ELIMIT, from, "a count above 1000000");
            return false;
        }
    }
    return p->at > from;
}

/* {m}, {m,} or {m,n}; false, and nothing read: these braces are characters. */
static bool braces(struct regex *p, uint32_t *min, uint32_t *max)
{
    const char *from = p->at++;
    bool ok = number(p, min);
    *max = *min;
    if (ok && p->at < p->end && *p->at == ',') {
        p->at++;
        if (!number(p, max))
            *max = GRAMMAR_UNLIMITED;
    }
    ok = ok && p->at < p->end && *p->at == '}';
    if (!ok)
        p->at = from;
    else
        p->at++;
    return ok;
}

static grammar_expr postfix(struct regex *p, grammar_expr e)
{
    if (p->at == p->end || p->b->err.code)
        return e;
    const char *from = p->at, c = *p->at;
    uint32_t min = c == '+', max = c == '?' ? 1 : GRAMMAR_UNLIMITED;
    if (c == '{') {
        if (!braces(p, &min, &max))
            return e;
    } else if (c == '*' || c == '+' || c == '?') {
        p->at++;
    } else {
        return e;
    }
    if (max < min)
        return malformed(p, from, "a repetition whose maximum is below its minimum");
    e = grammar_repeat(p->b, e, min, max);
    if (p->at < p->end && *p->at == '?') /* lazy: the same texts */
        p->at++;
    else if (p->at < p->end && *p->at == '+')
        return unsupported(p, p->at, "possessive repetitions are not supported");
    if (p->at < p->end && (*p->at == '*' || *p->at == '+' || *p->at == '?'))
        return malformed(p, p->at, "a repetition of a repetition");
    return e;
}

static grammar_expr atom(struct regex *p)
{
    const char *from = p->at, c = *p->at;
    struct classes set = {0};
    grammar_expr e = 0;
    struct grammar_range r;
    if (c == '(')
        return group(p);
    if (c == '[')
        return class(p);
    if (c == '*' || c == '+' || c == '?')
        return malformed(p, from, "nothing to repeat");
    if (c == '^' || c == '$')
        return unsupported(p, from, "^ is supported at the beginning of an alternative of the whole expression, $ at its end");
    if (c == '.') {
        p->at++;
        return chars(p, line_ends, sizeof line_ends / sizeof line_ends[0], true);
    }
    if (c == '\\' && p->end - p->at > 1 && shorthand(p, p->at[1], &set)) {
        p->at += 2;
        e = chars(p, set.r, set.n, false);
    } else if (character(p, &r.first)) {
        r.last = r.first;
        e = chars(p, &r, 1, false);
    }
    mem_free(set.r);
    return e;
}

static void add(struct regex *p, struct exprs *x, grammar_expr e)
{
    if (e && builder_room(p->b, &x->e, x->n, &x->cap, 1, sizeof *x->e))
        x->e[x->n++] = e;
}

/* Anything: before and behind what is searched for. */
static grammar_expr anything(struct regex *p)
{
    static const struct grammar_range tag = {'<', '<'};
    return grammar_repeat(p->b, chars(p, &tag, p->json ? 0 : 1, true), 0, GRAMMAR_UNLIMITED);
}

static grammar_expr sequence(struct regex *p)
{
    struct exprs x = {0};
    const bool outer = p->groups == 0;
    bool open_end = p->found && outer;
    if (outer && p->at < p->end && *p->at == '^')
        p->at++;
    else if (open_end)
        add(p, &x, anything(p));
    while (p->at < p->end && *p->at != '|' && *p->at != ')' && !p->b->err.code) {
        if (*p->at == '$' && outer && (p->end - p->at == 1 || p->at[1] == '|')) {
            p->at++;
            open_end = false;
            break;
        }
        const grammar_expr e = atom(p);
        add(p, &x, postfix(p, e));
    }
    if (open_end)
        add(p, &x, anything(p));
    const grammar_expr e = p->b->err.code ? 0 : grammar_seq(p->b, x.e, x.n);
    mem_free(x.e);
    return e;
}

static grammar_expr alternatives(struct regex *p)
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

static grammar_expr compile(struct grammar_builder *b, const char *pattern, size_t n, bool json, bool found)
{
    skua_error err;
    if (grammar_builder_error(b, &err))
        return 0;
    struct regex p = {.b = b, .start = pattern, .at = pattern, .end = pattern + n, .json = json, .found = found};
    const grammar_expr e = alternatives(&p);
    if (!b->err.code && p.at < p.end)
        return malformed(&p, p.at, "a ')' without its group");
    return b->err.code ? 0 : e;
}

grammar_expr grammar_regex(struct grammar_builder *b, const char *pattern, size_t n) { return compile(b, pattern, n, false, false); }
grammar_expr grammar_regex_json(struct grammar_builder *b, const char *pattern, size_t n) { return compile(b, pattern, n, true, true); }
grammar_expr grammar_regex_found(struct grammar_builder *b, const char *pattern, size_t n) { return compile(b, pattern, n, false, true); }

int grammar_from_regex(const char *pattern, size_t n, struct grammar **out, skua_error *err)
{
    struct grammar_builder *b = grammar_builder_new();
    const grammar_expr root = grammar_regex(b, pattern, n);
    const int rc = grammar_builder_finish(b, root, out, err);
    grammar_builder_free(b);
    return rc;
}
