/* Unicode text; see text.h. Categories and simple case mappings come from utf8proc, the rest from text_tables.h. */
#include "jinja/text.h"

#include <utf8proc.h>

#include "base/utf8.h"
#include "jinja/text_tables.h"

static bool in_ranges(const uint32_t (*ranges)[2], size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > ranges[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= ranges[lo][0];
}
#define IN(table, cp) in_ranges(table, sizeof table / sizeof table[0], cp)

static int category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool text_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool text_is_line_break(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool text_is_alpha(uint32_t cp)
{
    if (cp < 0x80)
        return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    int k = category(cp);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool text_is_decimal(uint32_t cp)
{
    return cp < 0x80 ? cp >= '0' && cp <= '9' : category(cp) == UTF8PROC_CATEGORY_ND;
}

bool text_is_digit(uint32_t cp) { return text_is_decimal(cp) || IN(other_digits, cp); }

bool text_is_numeric(uint32_t cp)
{
    int k = category(cp);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool text_is_word(uint32_t cp) { return cp == '_' || text_is_alpha(cp) || text_is_numeric(cp); }

bool text_is_identifier(uint32_t cp)
{
    if (cp < 0x80)
        return cp == '_' || text_is_alpha(cp) || text_is_decimal(cp);
    int k = category(cp);
    return text_is_alpha(cp) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_MN ||
           k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_PC;
}

bool text_is_printable(uint32_t cp)
{
    if (cp < 0x7F)
        return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

bool text_is_upper(uint32_t cp)
{
    return cp < 0x80 ? cp >= 'A' && cp <= 'Z' : category(cp) == UTF8PROC_CATEGORY_LU || IN(other_uppercase, cp);
}

bool text_is_lower(uint32_t cp)
{
    return cp < 0x80 ? cp >= 'a' && cp <= 'z' : category(cp) == UTF8PROC_CATEGORY_LL || IN(other_lowercase, cp);
}

bool text_is_title(uint32_t cp) { return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT; }

static bool is_cased(uint32_t cp) { return text_is_upper(cp) || text_is_lower(cp) || text_is_title(cp); }

static bool is_case_ignorable(uint32_t cp)
{
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return IN(other_case_ignorable, cp);
    }
}

/* Byte offset of the code point before `at` (at > 0). */
static size_t previous(struct str s, size_t at, uint32_t *cp)
{
    size_t p = at - 1;
    while (p && ((uint8_t)s.s[p] & 0xC0) == 0x80)
        p--;
    utf8_decode(s.s + p, s.n - p, cp);
    return p;
}

/* Final_Sigma of the Unicode Standard, section 3.13: a cased letter before, none after, case-ignorable ones skipped. */
static bool final_sigma(struct str s, size_t at)
{
    uint32_t cp;
    bool before = false;
    for (size_t p = at; p;) {
        p = previous(s, p, &cp);
        if (!is_case_ignorable(cp)) {
            before = is_cased(cp);
            break;
        }
    }
    if (!before)
        return false;
    for (size_t p = at + 2; p < s.n;) { /* sigma is two bytes */
        int k = utf8_decode(s.s + p, s.n - p, &cp);
        if (!is_case_ignorable(cp))
            return !is_cased(cp);
        p += k ? (size_t)k : 1;
    }
    return true;
}

int text_map(enum text_case how, struct str s, size_t at, uint32_t cp, uint32_t out[3])
{
    out[1] = out[2] = 0;
    if (cp < 0x80) {
        bool upper = cp >= 'A' && cp <= 'Z', lower = cp >= 'a' && cp <= 'z';
        out[0] = how == CASE_LOWER ? upper ? cp + 32 : cp : lower ? cp - 32 : cp;
        return 1;
    }
    if (how == CASE_LOWER) {
        if (cp == 0x130) { /* capital I with dot above */
            out[0] = 'i';
            out[1] = 0x307;
            return 2;
        }
        out[0] = cp == 0x3A3 && final_sigma(s, at) ? 0x3C2 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        return 1;
    }
    size_t lo = 0, hi = sizeof special_case / sizeof special_case[0];
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (special_case[mid].cp < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < sizeof special_case / sizeof special_case[0] && special_case[lo].cp == cp) {
        const uint32_t *m = how == CASE_UPPER ? special_case[lo].upper : special_case[lo].title;
        memcpy(out, m, 3 * sizeof *out);
        return m[2] ? 3 : m[1] ? 2 : 1;
    }
    out[0] = (uint32_t)(how == CASE_UPPER ? utf8proc_toupper((utf8proc_int32_t)cp) : utf8proc_totitle((utf8proc_int32_t)cp));
    return 1;
}

static bool strippable(uint32_t cp, const char *at, size_t n, const struct str *chars)
{
    return chars ? text_find(*chars, (struct str){at, n}, 0) != SIZE_MAX : text_is_space(cp);
}

struct str text_strip(struct str s, const struct str *chars, bool left, bool right)
{
    uint32_t cp;
    while (left && s.n) {
        int k = utf8_decode(s.s, s.n, &cp);
        if (!strippable(cp, s.s, (size_t)k, chars))
            break;
        s.s += k;
        s.n -= (size_t)k;
    }
    while (right && s.n) {
        size_t p = previous(s, s.n, &cp);
        if (!strippable(cp, s.s + p, s.n - p, chars))
            break;
        s.n = p;
    }
    return s;
}

size_t text_length(struct str s)
{
    size_t n = 0; /* the text is valid UTF-8: every byte that does not continue a sequence starts one */
    for (size_t i = 0; i < s.n; i++)
        n += ((uint8_t)s.s[i] & 0xC0) != 0x80;
    return n;
}

size_t text_offset(struct str s, size_t index)
{
    for (size_t i = 0; i < s.n; i++)
        if (((uint8_t)s.s[i] & 0xC0) != 0x80 && !index--)
            return i;
    return s.n;
}

size_t text_find(struct str s, struct str what, size_t from)
{
    if (from > s.n || what.n > s.n - from)
        return SIZE_MAX;
    if (!what.n)
        return from;
    const char *p = memmem(s.s + from, s.n - from, what.s, what.n);
    return p ? (size_t)(p - s.s) : SIZE_MAX;
}

size_t text_rfind(struct str s, struct str what)
{
    if (what.n > s.n)
        return SIZE_MAX;
    for (size_t i = s.n - what.n + 1; i-- > 0;)
        if (!memcmp(s.s + i, what.s, what.n))
            return i;
    return SIZE_MAX;
}
