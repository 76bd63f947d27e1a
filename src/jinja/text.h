/* Unicode text as Python's str sees it: whitespace, letter case, character classes. Code points, not bytes. */
#ifndef SKUA_JINJA_TEXT_H
#define SKUA_JINJA_TEXT_H

#include "jinja/value.h"

bool text_is_space(uint32_t cp);       /* str.isspace */
bool text_is_line_break(uint32_t cp);  /* what str.splitlines splits at */
bool text_is_identifier(uint32_t cp);
bool text_is_word(uint32_t cp);        /* \w */
bool text_is_printable(uint32_t cp);   /* str.isprintable: repr writes it as it is */
bool text_is_upper(uint32_t cp);
bool text_is_lower(uint32_t cp);
bool text_is_title(uint32_t cp);
bool text_is_alpha(uint32_t cp);
bool text_is_decimal(uint32_t cp);
bool text_is_digit(uint32_t cp);
bool text_is_numeric(uint32_t cp);     /* of characters that are no letters: CJK numerals are alpha and not numeric here */

enum text_case { CASE_LOWER, CASE_UPPER, CASE_TITLE };
/* Full case mapping of the code point at position at of s: 1 to 3 code points in out; the number of them. Lower case knows
   the final sigma, for which it looks at the neighbours. */
int text_map(enum text_case how, struct str s, size_t at, uint32_t cp, uint32_t out[3]);

/* Remove leading and trailing characters: whitespace, or those of *chars. */
struct str text_strip(struct str s, const struct str *chars, bool left, bool right);

size_t text_length(struct str s);                 /* code points */
size_t text_offset(struct str s, size_t index);   /* byte offset of code point number index (s.n when beyond the end) */
/* First (or last) occurrence of what in s at or after byte from; SIZE_MAX = none. */
size_t text_find(struct str s, struct str what, size_t from);
size_t text_rfind(struct str s, struct str what);

#endif
