/* Pre-tokenizers; see pretok.h. A hand-made matcher in place of a backtracking one: each alternative of the expression is
   decided from the class of the current and the next character, and only runs of one class are scanned. The one run that
   is scanned twice is white space, whose end decides between three alternatives. */
#include "tok/pretok.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"
#include "tok/unicode_class.h"

static const struct pretok known[] = {
    {"qwen35", CLASS_LETTER | CLASS_MARK},
    {"qwen2", CLASS_LETTER},
    {"deepseek-r1-qwen", CLASS_LETTER}, /* the same expression as qwen2 under the name of a distilled model */
};

const struct pretok *pretok_by_name(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].name) == len && memcmp(known[i].name, name, len) == 0)
            return &known[i];
    return NULL;
}

const char *pretok_names(void) { return "qwen35, qwen2, deepseek-r1-qwen"; }

struct text {
    const struct unicode_classes *classes;
    const char *s;
    size_t n;
};

/* Class of the character at i < n; *next is where the following one begins. */
static inline unsigned class_at(const struct text *t, size_t i, size_t *next)
{
    uint8_t c = (uint8_t)t->s[i];
    if (c < 0x80) {
        *next = i + 1;
        return unicode_class(t->classes, c);
    }
    uint32_t cp;
    int len = utf8_decode(t->s + i, t->n - i, &cp);
    *next = i + (len ? (size_t)len : 1);
    return unicode_class(t->classes, cp);
}

/* End of the run of characters from i on that have (want) or lack (!want) a bit of mask. */
static size_t run_end(const struct text *t, size_t i, unsigned mask, bool want)
{
    size_t next;
    while (i < t->n && ((class_at(t, i, &next) & mask) != 0) == want)
        i = next;
    return i;
}

/* Length of the contraction that begins with the apostrophe at i, or 0. */
static size_t contraction(const struct text *t, size_t i)
{
    const char *s = t->s + i + 1;
    size_t left = t->n - i - 1;
    if (left < 1)
        return 0;
    char a = s[0] | 0x20;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (left < 2)
        return 0;
    if (s[0] == '\xC5' && s[1] == '\xBF') /* U+017F folds to s */
        return 3;
    char b = s[1] | 0x20;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* White space from i on: \s*[\r\n]+, then \s+(?!\S), then \s+. */
static size_t space_piece(const struct text *t, size_t i)
{
    size_t after_newline = 0, last = i, next;
    size_t end = i;
    while (end < t->n) {
        unsigned c = class_at(t, end, &next);
        if (!(c & CLASS_SPACE))
            break;
        if (c & CLASS_NEWLINE)
            after_newline = next;
        last = end;
        end = next;
    }
    if (after_newline)
        return after_newline;
    return end < t->n && last > i ? last : end;
}

size_t pretok_next(const struct pretok *p, const struct unicode_classes *classes, const char *s, size_t n, size_t i)
{
    const struct text t = {classes, s, n};
    const unsigned words = p->letter_mask;
    size_t next, after;

    if (s[i] == '\'') {
        size_t len = contraction(&t, i);
        if (len)
            return i + len;
    }
    unsigned c = class_at(&t, i, &next);
    if (c & words)
        return run_end(&t, next, words, true);
    bool more = next < n;
    unsigned d = more ? class_at(&t, next, &after) : 0;
    if (!(c & (CLASS_NEWLINE | CLASS_LETTER | CLASS_NUMBER)) && (d & words))
        return run_end(&t, after, words, true);
    if (c & CLASS_NUMBER)
        return next;
    const unsigned not_punctuation = CLASS_SPACE | CLASS_NUMBER | words;
    if (!(c & not_punctuation) || (s[i] == ' ' && more && !(d & not_punctuation))) {
        size_t end = run_end(&t, next, not_punctuation, false);
        while (end < n && (s[end] == '\r' || s[end] == '\n'))
            end++;
        return end;
    }
    return space_piece(&t, i);
}
