/* UTF-8; see utf8.h. The accepted byte ranges are those of the Unicode Standard, table 3-7. */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

int utf8_decode(const char *str, size_t n, uint32_t *cp)
{
    const uint8_t *s = (const uint8_t *)str;
    *cp = UTF8_REPLACEMENT;
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    int len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < (size_t)len)
        return 0;
    uint8_t lo = 0x80, hi = 0xBF; /* the second byte's range depends on the first */
    if (s[0] == 0xE0) lo = 0xA0;
    if (s[0] == 0xED) hi = 0x9F;
    if (s[0] == 0xF0) lo = 0x90;
    if (s[0] == 0xF4) hi = 0x8F;
    if (s[1] < lo || s[1] > hi)
        return 0;
    uint32_t c = s[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    *cp = c;
    return len;
}

int utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp < 0xE000)
            return 0;
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp >= 0x110000)
        return 0;
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t utf8_complete_prefix(const char *s, size_t n)
{
    /* look back at most three bytes for a lead byte whose sequence is not finished */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t c = (uint8_t)s[n - back];
        if (c < 0x80)
            return n;
        if (c < 0xC0)
            continue; /* continuation byte */
        size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        if (c < 0xC2 || c > 0xF4 || len <= back)
            return n;
        /* pad with the highest and the lowest continuation byte: valid either way means it may still be completed */
        char lo[4], hi[4];
        for (size_t i = 0; i < 4; i++) {
            lo[i] = i < back ? s[n - back + i] : (char)0x80;
            hi[i] = i < back ? s[n - back + i] : (char)0xBF;
        }
        uint32_t cp;
        return utf8_decode(lo, 4, &cp) || utf8_decode(hi, 4, &cp) ? n - back : n;
    }
    return n;
}

static int is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || cp == 0x61C || cp == 0x200E || cp == 0x200F || (cp >= 0x2028 && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

int utf8_escape(const char *s, size_t n, char out[7], size_t *used)
{
    uint32_t cp;
    int len = utf8_decode(s, n, &cp);
    *used = len ? (size_t)len : 1;
    if (!len)
        return snprintf(out, 7, "\\x%02X", (uint8_t)*s);
    if (cp == '\n' || cp == '\t' || cp == '\r')
        return snprintf(out, 7, "\\%c", cp == '\n' ? 'n' : cp == '\t' ? 't' : 'r');
    if (is_unsafe(cp))
        return snprintf(out, 7, cp < 0x80 ? "\\x%02X" : "\\u%04X", (unsigned)(cp & 0xFFFF));
    memcpy(out, s, (size_t)len);
    return len;
}

size_t utf8_length(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        uint32_t cp;
        int k = utf8_decode(s + i, n - i, &cp);
        i += k ? (size_t)k : 1;
    }
    return count;
}
