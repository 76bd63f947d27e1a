/* UTF-8 decoding. */
#ifndef SKUA_BASE_UTF8_H
#define SKUA_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* Decode the code point at s (n > 0 bytes available). *cp gets it and the return value is its length in bytes (1..4).
   Malformed input (overlong forms, surrogates, above U+10FFFF, cut sequences): 0, *cp = UTF8_REPLACEMENT. */
int utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Encode cp (a valid scalar value) into out (4 bytes); the length, or 0 for a value that UTF-8 cannot hold. */
int utf8_encode(uint32_t cp, char out[4]);

/* How many of the n bytes at s form complete sequences or are certainly malformed: the rest (0..3 bytes) is the beginning
   of a sequence that may still be completed. */
size_t utf8_complete_prefix(const char *s, size_t n);

/* One step of making text safe to show on a terminal and in one line: writes the next character of s (n > 0), or, if it is a control
   character (C0, DEL, C1), a line separator, a direction override or malformed, its escape (\n, \t, \r, \xNN, \uNNNN). Returns the
   bytes written to out, at most 6, not terminated; *used: bytes of s. A backslash stays, so escaping twice changes nothing. */
int utf8_escape(const char *s, size_t n, char out[7], size_t *used);

/* Code points in s (malformed bytes count one each). */
size_t utf8_length(const char *s, size_t n);

#endif
