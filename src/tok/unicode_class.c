/* Character classes; see unicode_class.h. A two-level table: a page number per block of 256 code points, and the distinct
   pages. The storage has room for every block to be distinct, so building never fails; pages that stay unused are never
   touched and cost no memory. */
#include "tok/unicode_class.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

static struct unicode_classes table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* Unicode White_Space: fixed since Unicode 6.3, and not the same set as the categories Z*. */
static bool is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0D) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static uint8_t class_of(uint32_t cp)
{
    if (is_space(cp))
        return cp == '\r' || cp == '\n' ? CLASS_SPACE | CLASS_NEWLINE : CLASS_SPACE;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return CLASS_LETTER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return CLASS_MARK;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return CLASS_NUMBER;
    default:
        return 0;
    }
}

static void build(void)
{
    unsigned used = 0;
    for (uint32_t block = 0; block < UNICODE_LIMIT >> 8; block++) {
        uint8_t *page = table.page[used];
        for (uint32_t i = 0; i < 256; i++)
            page[i] = class_of(block << 8 | i);
        unsigned same = used; /* neighbours are the likeliest twins: search backwards */
        while (same > 0 && memcmp(table.page[same - 1], page, 256) != 0)
            same--;
        table.page_of[block] = (uint16_t)(same > 0 ? same - 1 : used++);
    }
}

const struct unicode_classes *unicode_classes_get(void)
{
    pthread_once(&table_once, build);
    return &table;
}
