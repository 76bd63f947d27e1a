/* The byte-level alphabet; see byte_alphabet.h. */
#include "tok/byte_alphabet.h"

/* A byte that has no printable character of its own is written as U+0100 plus its rank among those. */
static inline bool is_own_char(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

uint32_t byte_alphabet_char(uint8_t byte)
{
    if (is_own_char(byte))
        return byte;
    uint32_t rank = 0;
    for (unsigned b = 0; b < byte; b++)
        rank += !is_own_char(b);
    return 0x100 + rank;
}

/* The byte behind a code point, or -1. The 68 shifted ones are 0x00-0x20, 0x7F-0xA0 and 0xAD. */
static inline int byte_of_char(uint32_t cp)
{
    if (cp < 0x100)
        return is_own_char(cp) ? (int)cp : -1;
    if (cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp <= 0x142)
        return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

bool byte_alphabet_decode(const char *text, size_t n, char *out, size_t *out_len)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = s[i];
        if (cp >= 0x80) { /* every character of the alphabet has one or two bytes */
            if (cp < 0xC2 || cp > 0xC5 || i + 1 == n || (s[i + 1] & 0xC0) != 0x80)
                return false;
            cp = (cp & 0x1F) << 6 | (s[++i] & 0x3F);
        }
        int byte = byte_of_char(cp);
        if (byte < 0)
            return false;
        out[k++] = (char)byte;
    }
    *out_len = k;
    return true;
}
