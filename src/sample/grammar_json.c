/* JSON's own parts; see grammar_json.h. Numbers are bounded so that any reader takes them, white space so that no model can go on with it
 * for ever. Where a rule is called from must not matter inside of it for masks to be shared, so a string's characters are part of the
 * string's rule and no rule of their own. */
#include "sample/grammar_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sample/grammar_build_internal.h"

#define INDENT_SPACES 64
#define INDENT_TABS 16
#define EXACT_KEY_CHARS 150 /* of a declared name: keys that share so much with it are not allowed besides it */

enum { SLOT_SPACE, SLOT_CHAR, SLOT_STRING, SLOT_REST, SLOT_NUMBER, SLOT_INT, SLOT_ANY, SLOT_OBJECT = SLOT_ANY + JSON_VALUE_DEPTH + 1,
       SLOT_COUNT = SLOT_OBJECT + JSON_VALUE_DEPTH + 1 };

static grammar_expr text(struct grammar_builder *b, const char *s) { return grammar_literal(b, s, strlen(s)); }

static grammar_expr seq3(struct grammar_builder *b, grammar_expr x, grammar_expr y, grammar_expr z)
{
    const grammar_expr parts[] = {x, y, z};
    return grammar_seq(b, parts, 3);
}

/* The expression of a slot if it was made before. */
static bool made(struct grammar_builder *b, int slot, grammar_expr *e)
{
    _Static_assert(SLOT_COUNT <= sizeof b->json / sizeof b->json[0], "a slot for each part");
    *e = !b || b->err.code ? 0 : b->json[slot];
    return !b || b->err.code || *e;
}

grammar_expr gjson_space(struct grammar_builder *b)
{
    grammar_expr e;
    if (made(b, SLOT_SPACE, &e))
        return e;
    const grammar_expr spaces = grammar_repeat(b, text(b, " "), 0, INDENT_SPACES);
    const grammar_expr tabs = grammar_repeat(b, text(b, "\t"), 1, INDENT_TABS);
    const grammar_expr parts[] = {grammar_empty(b), text(b, " "), grammar_seq2(b, text(b, "\n"), grammar_alt2(b, spaces, tabs))};
    return b->json[SLOT_SPACE] = grammar_rule_of(b, "white space", grammar_alt(b, parts, 3));
}

/* The escape that JSON writers use for c, or "" if it needs none. */
static void escape(uint32_t c, char out[8])
{
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt", digits[] = "0123456789abcdef";
    const char *known = c && c < 0x80 ? strchr(special, (int)c) : NULL;
    memset(out, 0, 8);
    if (known) {
        out[0] = '\\';
        out[1] = letters[known - special];
    } else if (c < 0x20) {
        memcpy(out, "\\u00", 4);
        out[4] = digits[c >> 4];
        out[5] = digits[c & 15];
    }
}

grammar_expr gjson_chars(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated)
{
    if (!b || b->err.code)
        return 0;
    n = builder_ranges(b, ranges, n, negated);
    if (n == GRAMMAR_NONE)
        return 0;
    grammar_expr parts[40];
    size_t k = 1, m = 0;
    struct grammar_range *raw = mem_alloc((n + 1) * 4 * sizeof *raw); /* cut at what must be escaped: in 0 to 1F, 22 and 5C */
    if (!raw) {
        error_nomem(&b->err, "grammar", n * 4 * sizeof *raw);
        return 0;
    }
    static const struct grammar_range plain[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x10FFFF}};
    for (size_t i = 0; i < n; i++) {
        for (int p = 0; p < 3; p++) {
            const uint32_t first = b->ranges[i].first > plain[p].first ? b->ranges[i].first : plain[p].first;
            const uint32_t last = b->ranges[i].last < plain[p].last ? b->ranges[i].last : plain[p].last;
            if (first <= last)
                raw[m++] = (struct grammar_range){first, last};
        }
        for (uint32_t c = b->ranges[i].first ? b->ranges[i].first : 1; c <= b->ranges[i].last && c <= '\\'; c++) {
            char e[8];
            escape(c, e);
            if (e[0])
                parts[k++] = text(b, e);
        }
    }
    parts[0] = grammar_chars(b, raw, m, false);
    mem_free(raw);
    return grammar_alt(b, parts, k);
}

/* \uXXXX: not zero, which many readers refuse, and surrogates in pairs, as one character. */
static grammar_expr unicode_escape(struct grammar_builder *b)
{
    static const char pattern[] = "\\\\u(?:[1-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|0[1-9a-fA-F][0-9a-fA-F]{2}|"
                                  "00[1-9a-fA-F][0-9a-fA-F]|000[1-9a-fA-F]|[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2})";
    return grammar_regex(b, pattern, sizeof pattern - 1);
}

grammar_expr gjson_char(struct grammar_builder *b)
{
    static const struct grammar_range refused[] = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    static const char simple[] = "\\\\[\"\\\\/bfnrt]";
    grammar_expr e;
    if (made(b, SLOT_CHAR, &e))
        return e;
    const grammar_expr parts[] = {grammar_chars(b, refused, 3, true), grammar_regex(b, simple, sizeof simple - 1), unicode_escape(b)};
    return b->json[SLOT_CHAR] = grammar_alt(b, parts, 3);
}

/* Any characters and the closing quote. */
static grammar_expr string_rest(struct grammar_builder *b)
{
    grammar_expr e;
    if (made(b, SLOT_REST, &e))
        return e;
    e = grammar_seq2(b, grammar_repeat(b, gjson_char(b), 0, GRAMMAR_UNLIMITED), text(b, "\""));
    return b->json[SLOT_REST] = grammar_rule_of(b, "string", e);
}

grammar_expr gjson_string(struct grammar_builder *b)
{
    grammar_expr e;
    if (made(b, SLOT_STRING, &e))
        return e;
    return b->json[SLOT_STRING] = grammar_rule_of(b, "string", grammar_seq2(b, text(b, "\""), string_rest(b)));
}

grammar_expr gjson_counted_string(struct grammar_builder *b, uint32_t min, uint32_t max)
{
    if (min == 0 && max == GRAMMAR_UNLIMITED)
        return gjson_string(b);
    return grammar_rule_of(b, "string", seq3(b, text(b, "\""), grammar_repeat(b, gjson_char(b), min, max), text(b, "\"")));
}

grammar_expr gjson_number(struct grammar_builder *b)
{
    static const char pattern[] = "-?(?:0|[1-9][0-9]{0,15})(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?";
    grammar_expr e;
    if (made(b, SLOT_NUMBER, &e))
        return e;
    return b->json[SLOT_NUMBER] = grammar_rule_of(b, "number", grammar_regex(b, pattern, sizeof pattern - 1));
}

grammar_expr gjson_int(struct grammar_builder *b)
{
    static const char pattern[] = "0|-?[1-9][0-9]{0,17}";
    grammar_expr e;
    if (made(b, SLOT_INT, &e))
        return e;
    return b->json[SLOT_INT] = grammar_rule_of(b, "integer", grammar_regex(b, pattern, sizeof pattern - 1));
}

/* ---- integers in a range ---- */

static grammar_expr digits(struct grammar_builder *b, uint64_t first, uint64_t last, uint32_t more)
{
    return grammar_seq2(b, builder_byte_range(b, (uint8_t)('0' + first), (uint8_t)('0' + last)),
                        grammar_repeat(b, builder_byte_range(b, '0', '9'), more, more));
}

/* Numbers of exactly n digits, p = 10^(n - 1), from lo to hi. */
static grammar_expr same_length(struct grammar_builder *b, uint64_t lo, uint64_t hi, uint64_t p, uint32_t n)
{
    uint64_t first = lo / p, last = hi / p;
    grammar_expr parts[3];
    size_t k = 0;
    if (n == 1)
        return digits(b, first, last, 0);
    if (first == last)
        return grammar_seq2(b, digits(b, first, first, 0), same_length(b, lo % p, hi % p, p / 10, n - 1));
    if (lo % p) {
        parts[k++] = grammar_seq2(b, digits(b, first, first, 0), same_length(b, lo % p, p - 1, p / 10, n - 1));
        first++;
    }
    if (hi % p != p - 1) {
        parts[k++] = grammar_seq2(b, digits(b, last, last, 0), same_length(b, 0, hi % p, p / 10, n - 1));
        last--;
    }
    if (first <= last)
        parts[k++] = digits(b, first, last, n - 1);
    return grammar_alt(b, parts, k);
}

static grammar_expr natural(struct grammar_builder *b, uint64_t lo, uint64_t hi)
{
    grammar_expr parts[20];
    size_t k = 0;
    uint64_t p = 1;
    for (uint32_t n = 1; n < 20; n++, p *= 10) {
        const uint64_t least = n == 1 ? 0 : p, most = p * 9 + (p - 1);
        if (lo <= most && hi >= least)
            parts[k++] = same_length(b, lo > least ? lo : least, hi < most ? hi : most, p, n);
    }
    return grammar_alt(b, parts, k);
}

grammar_expr gjson_int_range(struct grammar_builder *b, int64_t min, int64_t max)
{
    const uint64_t most = 999999999999999999; /* where nothing bounds it: 18 digits */
    grammar_expr parts[2];
    size_t k = 0;
    if (min > max)
        return grammar_nothing(b);
    if (min == INT64_MIN && max == INT64_MAX)
        return gjson_int(b);
    if (max >= 0) {
        const uint64_t lo = min > 0 ? (uint64_t)min : 0;
        parts[k++] = natural(b, lo, max == INT64_MAX && lo <= most ? most : (uint64_t)max);
    }
    if (min < 0) { /* magnitudes */
        const uint64_t lo = max < 0 ? 0 - (uint64_t)max : 1;
        const uint64_t hi = min == INT64_MIN && lo <= most ? most : 0 - (uint64_t)min;
        parts[k++] = grammar_seq2(b, text(b, "-"), natural(b, lo, hi));
    }
    return grammar_rule_of(b, "integer", grammar_alt(b, parts, k));
}

/* ---- any value ---- */

/* open, members with commas between them or none, close. */
static grammar_expr members(struct grammar_builder *b, const char *open, grammar_expr member, const char *close)
{
    const grammar_expr more = grammar_repeat(b, seq3(b, text(b, ","), gjson_space(b), member), 0, GRAMMAR_UNLIMITED);
    const grammar_expr some = seq3(b, member, more, gjson_space(b));
    const grammar_expr parts[] = {text(b, open), gjson_space(b), grammar_optional(b, some), text(b, close)};
    return grammar_seq(b, parts, 4);
}

grammar_expr gjson_any_object(struct grammar_builder *b, int depth)
{
    grammar_expr e;
    if (made(b, SLOT_OBJECT + depth, &e))
        return e;
    const grammar_expr parts[] = {gjson_string(b), text(b, ":"), gjson_space(b), gjson_any(b, depth - 1)};
    e = members(b, "{", grammar_seq(b, parts, 4), "}");
    return b->json[SLOT_OBJECT + depth] = grammar_rule_of(b, "object", e);
}

grammar_expr gjson_any(struct grammar_builder *b, int depth)
{
    grammar_expr e;
    if (made(b, SLOT_ANY + depth, &e))
        return e;
    grammar_expr parts[7] = {gjson_string(b), gjson_number(b), text(b, "true"), text(b, "false"), text(b, "null")};
    size_t n = 5;
    if (depth) {
        parts[n++] = gjson_any_object(b, depth);
        parts[n++] = members(b, "[", gjson_any(b, depth - 1), "]");
    }
    return b->json[SLOT_ANY + depth] = grammar_rule_of(b, "value", grammar_alt(b, parts, n));
}

/* ---- keys ---- */

struct key { const char *s; size_t n; };

static int by_bytes(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    const int d = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* The rest of a key, with its quote, after `from` bytes that the sorted keys t[0 .. n) share; none of them. */
static grammar_expr other_than(struct grammar_builder *b, const struct key *t, size_t n, size_t from, int depth)
{
    grammar_expr *parts = mem_alloc((n + 2) * sizeof *parts);
    struct grammar_range *next = mem_alloc((n + 1) * sizeof *next);
    size_t k = 0, m = 0, i = 0;
    if (!parts || !next)
        error_nomem(&b->err, "keys", n * sizeof *next);
    while (i < n && t[i].n == from)
        i++;
    if (i == 0 && !b->err.code)
        parts[k++] = text(b, "\"");
    while (i < n && builder_steps(b, 1)) {
        uint32_t c;
        const int used = utf8_decode(t[i].s + from, t[i].n - from, &c);
        const size_t to = from + (size_t)(used ? used : 1);
        size_t end = i + 1;
        while (end < n && t[end].n >= to && memcmp(t[end].s + from, t[i].s + from, to - from) == 0)
            end++;
        next[m++] = (struct grammar_range){c, c};
        if (depth < EXACT_KEY_CHARS)
            parts[k++] = grammar_seq2(b, gjson_chars(b, &next[m - 1], 1, false), other_than(b, t + i, end - i, to, depth + 1));
        i = end;
    }
    if (!b->err.code)
        parts[k++] = grammar_seq2(b, gjson_chars(b, next, m, true), string_rest(b));
    const grammar_expr e = b->err.code ? 0 : grammar_alt(b, parts, k);
    mem_free(parts);
    mem_free(next);
    return e;
}

grammar_expr gjson_key_except(struct grammar_builder *b, const char *const *keys, const size_t *lens, size_t n)
{
    if (!n || !b || b->err.code)
        return gjson_string(b);
    struct key *t = mem_alloc(n * sizeof *t);
    if (!t) {
        error_nomem(&b->err, "keys", n * sizeof *t);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        t[i] = (struct key){keys[i], lens[i]};
    qsort(t, n, sizeof *t, by_bytes);
    const grammar_expr e = grammar_rule_of(b, "key", grammar_seq2(b, text(b, "\""), other_than(b, t, n, 0, 0)));
    mem_free(t);
    return e;
}

/* ---- constants ---- */

static int append(const char *s, size_t n, void *out)
{
    strbuf_append(out, s, n);
    return strbuf_failed(out) ? -1 : 0;
}

bool gjson_constant_text(struct strbuf *out, const json_t *value)
{
    for (int precision = json_is_real(value) ? 15 : 17; precision <= 17; precision++) {
        const size_t from = out->len;
        if (json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(precision)))
            return false;
        if (precision == 17 || strtod(strbuf_str(out) + from, NULL) == json_real_value(value))
            break;
        out->len = from;
    }
    return true;
}

grammar_expr gjson_constant(struct grammar_builder *b, const json_t *value)
{
    struct strbuf s = {0};
    grammar_expr e = 0;
    if (b && !b->err.code) {
        if (gjson_constant_text(&s, value))
            e = grammar_literal(b, s.data, s.len);
        else
            error_nomem(&b->err, "constant of a schema", 0);
    }
    strbuf_free(&s);
    return e;
}
