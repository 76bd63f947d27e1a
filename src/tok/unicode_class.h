/* Character classes of the pre-tokenizers: \p{L}, \p{M}, \p{N} (Unicode general categories, from utf8proc) and Unicode
   White_Space. A code point has at most one of the first four bits; CLASS_NEWLINE comes with CLASS_SPACE. */
#ifndef SKUA_TOK_UNICODE_CLASS_H
#define SKUA_TOK_UNICODE_CLASS_H

#include <stdint.h>

enum {
    CLASS_LETTER = 1,
    CLASS_MARK = 2,
    CLASS_NUMBER = 4,
    CLASS_SPACE = 8,
    CLASS_NEWLINE = 16 /* CR and LF only */
};

#define UNICODE_LIMIT 0x110000u

struct unicode_classes {
    uint16_t page_of[UNICODE_LIMIT >> 8]; /* index into page[] for each block of 256 code points */
    uint8_t page[UNICODE_LIMIT >> 8][256]; /* only the first few hundred are in use: equal pages are stored once */
};

/* The table, built on first use (thread-safe, a few milliseconds, cannot fail). Lives as long as the program. */
const struct unicode_classes *unicode_classes_get(void);

/* cp must be below UNICODE_LIMIT. */
static inline unsigned unicode_class(const struct unicode_classes *t, uint32_t cp)
{
    return t->page[t->page_of[cp >> 8]][cp & 0xFF];
}

#endif
