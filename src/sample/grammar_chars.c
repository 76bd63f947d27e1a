/* Expressions for characters: code points as the bytes of their UTF-8 form, one of many literals, text up to a literal. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sample/grammar_build_internal.h"

#define MAX_CODE_POINT 0x10FFFFu
#define MAX_CLASS 20000u /* ranges of one class */

static int by_first(const void *a, const void *b)
{
    const struct grammar_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Append first .. last to the n ranges of b->ranges without surrogates; the new n, or GRAMMAR_NONE. */
static size_t put_range(struct grammar_builder *b, size_t n, uint32_t first, uint32_t last)
{
    if (n == GRAMMAR_NONE || !builder_room(b, &b->ranges, n, &b->cap_ranges, 2, sizeof *b->ranges))
        return GRAMMAR_NONE;
    last = last > MAX_CODE_POINT ? MAX_CODE_POINT : last;
    if (first <= last && first < 0xD800)
        b->ranges[n++] = (struct grammar_range){first, last < 0xD800 ? last : 0xD7FF};
    if (first <= last && last > 0xDFFF)
        b->ranges[n++] = (struct grammar_range){first > 0xDFFF ? first : 0xE000, last};
    return n;
}

size_t builder_ranges(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated)
{
    size_t out = 0, k = 0;
    if (n > MAX_CLASS) {
        builder_limit(b, "ranges in one class", MAX_CLASS);
        return GRAMMAR_NONE;
    }
    struct grammar_range *sorted = mem_alloc((n + 1) * sizeof *sorted);
    if (!sorted) {
        error_nomem(&b->err, "grammar", n * sizeof *sorted);
        return GRAMMAR_NONE;
    }
    if (n)
        memcpy(sorted, ranges, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_first);
    for (size_t i = 0; i < n; i++) { /* merge what overlaps or touches */
        if (sorted[i].first > sorted[i].last)
            continue;
        if (k && sorted[i].first <= sorted[k - 1].last + 1)
            sorted[k - 1].last = sorted[i].last > sorted[k - 1].last ? sorted[i].last : sorted[k - 1].last;
        else
            sorted[k++] = sorted[i];
    }
    uint32_t from = 0;
    for (size_t i = 0; i < k; i++) {
        if (!negated)
            out = put_range(b, out, sorted[i].first, sorted[i].last);
        else if (sorted[i].first > from)
            out = put_range(b, out, from, sorted[i].first - 1);
        from = sorted[i].last + 1;
    }
    if (negated && from <= MAX_CODE_POINT)
        out = put_range(b, out, from, MAX_CODE_POINT);
    mem_free(sorted);
    return out;
}

/* Expressions in a growing list. */
struct list {
    grammar_expr *e;
    size_t n, cap;
};

static void list_add(struct grammar_builder *b, struct list *l, grammar_expr e)
{
    if (e && builder_room(b, &l->e, l->n, &l->cap, 1, sizeof *l->e))
        l->e[l->n++] = e;
}

grammar_expr builder_byte_range(struct grammar_builder *b, uint8_t first, uint8_t last)
{
    struct grammar_set s = {{0}};
    for (unsigned c = first; c <= last; c++)
        grammar_set_add(&s, (uint8_t)c);
    const uint32_t id = builder_set(b, &s);
    return id == GRAMMAR_NONE ? 0 : builder_expr(b, (struct expr){.kind = EXPR_SET, .a = id});
}

/* The sequences of byte ranges for code points first .. last, all of the same length in UTF-8: where the leading bytes differ and the rest
   is not full, the range is cut. */
static void put_sequences(struct grammar_builder *b, struct list *l, uint32_t first, uint32_t last)
{
    char x[4], y[4];
    const int n = utf8_encode(first, x);
    utf8_encode(last, y);
    for (int i = n - 1; i > 0; i--) { /* bits of the last i bytes */
        const uint32_t m = ((uint32_t)1 << (6 * i)) - 1;
        if ((first & ~m) == (last & ~m))
            continue;
        if (first & m) {
            put_sequences(b, l, first, first | m);
            put_sequences(b, l, (first | m) + 1, last);
            return;
        }
        if ((last & m) != m) {
            put_sequences(b, l, first, (last & ~m) - 1);
            put_sequences(b, l, last & ~m, last);
            return;
        }
    }
    grammar_expr parts[4];
    for (int i = 0; i < n; i++)
        parts[i] = builder_byte_range(b, (uint8_t)x[i], (uint8_t)y[i]);
    list_add(b, l, grammar_seq(b, parts, (size_t)n));
}

grammar_expr grammar_chars(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated)
{
    static const uint32_t ends[] = {0x7F, 0x7FF, 0xFFFF, MAX_CODE_POINT}; /* of each length */
    if (!b || b->err.code)
        return 0;
    n = builder_ranges(b, ranges, n, negated);
    if (n == GRAMMAR_NONE)
        return 0;
    struct list l = {0};
    struct grammar_set ascii = {{0}};
    bool any = false;
    for (size_t i = 0; i < n; i++)
        for (uint32_t c = b->ranges[i].first; c <= b->ranges[i].last && c < 0x80; c++, any = true)
            grammar_set_add(&ascii, (uint8_t)c);
    if (any) {
        const uint32_t id = builder_set(b, &ascii);
        list_add(b, &l, id == GRAMMAR_NONE ? 0 : builder_expr(b, (struct expr){.kind = EXPR_SET, .a = id}));
    }
    for (size_t i = 0; i < n && !b->err.code; i++) {
        uint32_t first = b->ranges[i].first < 0x80 ? 0x80 : b->ranges[i].first;
        for (int k = 1; k < 4 && first <= b->ranges[i].last; k++)
            if (first <= ends[k]) {
                const uint32_t last = b->ranges[i].last < ends[k] ? b->ranges[i].last : ends[k];
                put_sequences(b, &l, first, last);
                first = last + 1;
            }
    }
    const grammar_expr e = b->err.code ? 0 : grammar_alt(b, l.e, l.n);
    mem_free(l.e);
    return e;
}

/* ---- one of many literals: a tree of their common beginnings ---- */

struct literal { const char *s; size_t n; };

static int by_bytes(const void *a, const void *b)
{
    const struct literal *x = a, *y = b;
    const int d = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

static size_t common(const struct literal *x, const struct literal *y, size_t from)
{
    while (from < x->n && from < y->n && x->s[from] == y->s[from])
        from++;
    return from;
}

/* The literals t[0 .. n), sorted, without the first `from` bytes that they share. */
static grammar_expr tree(struct grammar_builder *b, const struct literal *t, size_t n, size_t from, int depth)
{
    struct list l = {0};
    for (size_t i = 0, k; i < n && builder_steps(b, 1); i = k) {
        k = i + 1;
        if (t[i].n == from) {
            while (k < n && t[k].n == from) /* twice the same */
                k++;
            list_add(b, &l, grammar_empty(b));
            continue;
        }
        while (k < n && t[k].s[from] == t[i].s[from] && depth < GRAMMAR_MAX_DEPTH / 2 - 10)
            k++;
        const size_t to = k == i + 1 ? t[i].n : common(&t[i], &t[k - 1], from);
        const grammar_expr head = grammar_literal(b, t[i].s + from, to - from);
        list_add(b, &l, k == i + 1 ? head : grammar_seq2(b, head, tree(b, t + i, k - i, to, depth + 1)));
    }
    const grammar_expr e = b->err.code ? 0 : grammar_alt(b, l.e, l.n);
    mem_free(l.e);
    return e;
}

grammar_expr grammar_one_of(struct grammar_builder *b, const char *const *literals, const size_t *lens, size_t n)
{
    if (!b || b->err.code)
        return 0;
    struct literal *t = mem_alloc((n + 1) * sizeof *t);
    if (!t) {
        error_nomem(&b->err, "literals", n * sizeof *t);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        t[i] = (struct literal){literals[i], lens[i]};
    qsort(t, n, sizeof *t, by_bytes);
    const grammar_expr e = tree(b, t, n, 0, 0);
    mem_free(t);
    return e;
}

/* ---- text and a literal ---- */

#define MAX_TERMINATOR 256 /* code points */

/* The automaton that finds the literal: rule i is the text from where its first i characters are matched. whole: up to and with its end;
   else without its ever being complete. */
static grammar_expr search(struct grammar_builder *b, const uint32_t *c, size_t n, bool whole)
{
    grammar_expr rules[MAX_TERMINATOR], parts[MAX_TERMINATOR + 2];
    struct grammar_range known[MAX_TERMINATOR];
    size_t fail[MAX_TERMINATOR + 1] = {0};
    for (size_t i = 0; i < n; i++)
        rules[i] = grammar_rule(b, "text", 4);
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && c[i] != c[k])
            k = fail[k];
        k += c[i] == c[k];
        fail[i + 1] = k;
    }
    for (size_t i = 0; i < n && builder_steps(b, n); i++) {
        size_t k = 0, m = 0;
        if (!whole)
            parts[m++] = grammar_empty(b);
        for (size_t s = i;; s = fail[s]) { /* the characters that go on from here or from a shorter match */
            size_t seen = 0;
            while (seen < k && known[seen].first != c[s])
                seen++;
            if (seen == k) {
                const bool end = s + 1 == n;
                known[k++] = (struct grammar_range){c[s], c[s]};
                if (!end || whole)
                    parts[m++] = grammar_seq2(b, grammar_chars(b, &known[k - 1], 1, false), end ? grammar_empty(b) : rules[s + 1]);
            }
            if (s == 0)
                break;
        }
        parts[m++] = grammar_seq2(b, grammar_chars(b, known, k, true), rules[0]);
        grammar_rule_set(b, rules[i], grammar_alt(b, parts, m));
    }
    return b->err.code ? 0 : rules[0];
}

static grammar_expr text_and(struct grammar_builder *b, const char *literal, size_t n, bool whole)
{
    uint32_t c[MAX_TERMINATOR];
    size_t k = 0;
    if (!b || b->err.code)
        return 0;
    for (size_t at = 0; at < n; k++) {
        const int used = k < MAX_TERMINATOR ? utf8_decode(literal + at, n - at, &c[k]) : 0;
        if (!used) {
            error_set(&b->err, SKUA_EARG, "text up to a literal of %zu bytes, expected valid UTF-8 of at most %d characters", n,
                MAX_TERMINATOR);
            return 0;
        }
        at += (size_t)used;
    }
    if (!k) {
        error_set(&b->err, SKUA_EARG, "text up to an empty literal");
        return 0;
    }
    return search(b, c, k, whole);
}

grammar_expr grammar_text_without(struct grammar_builder *b, const char *literal, size_t n) { return text_and(b, literal, n, false); }
grammar_expr grammar_text_until(struct grammar_builder *b, const char *literal, size_t n) { return text_and(b, literal, n, true); }
