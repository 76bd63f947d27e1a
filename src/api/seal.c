/* Seals; see seal.h. Four letters of version and kind, then base64 of a keyed hash (XXH3, 128 bits, big-endian) and, when it is
 * carried, the text. */
#include "api/seal.h"

#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#define KIND_LETTERS 4
#define HASH_BYTES 16
#define HASH_SEED 0x736b75612d736561ull /* any, but always this one: clients keep seals for longer than a server runs */

static const char kind_hash[] = "sk1h", kind_text[] = "sk1t";
static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void base64_write(struct strbuf *out, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 3) {
        uint32_t left = (uint32_t)(n - i > 3 ? 3 : n - i), bits = 0;
        for (uint32_t k = 0; k < 3; k++)
            bits = bits << 8 | (k < left ? p[i + k] : 0);
        for (uint32_t k = 0; k < 4; k++)
            strbuf_putc(out, k <= left ? alphabet[bits >> (18 - 6 * k) & 63] : '=');
    }
}

/* The other way; false for anything that base64_write does not write. */
static bool base64_read(struct strbuf *out, const char *s, size_t n)
{
    if (n % 4)
        return false;
    for (size_t i = 0; i < n; i += 4) {
        size_t left = i + 4 < n || s[i + 3] != '=' ? 3 : s[i + 2] != '=' ? 2 : 1;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            const char *letter = k <= left ? memchr(alphabet, s[i + k], 64) : alphabet;
            if (!letter)
                return false;
            bits = bits << 6 | (uint32_t)(letter - alphabet);
        }
        if (bits & ((1u << (24 - 8 * left)) - 1))
            return false;
        const char bytes[3] = {(char)(bits >> 16), (char)(bits >> 8), (char)bits};
        strbuf_append(out, bytes, left);
    }
    return !strbuf_failed(out);
}

static XXH128_canonical_t hash_of(const char *text, size_t n)
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_withSeed(n ? text : "", n, HASH_SEED));
    return c;
}

void seal_write(struct strbuf *out, const char *text, size_t n, bool carry)
{
    XXH128_canonical_t hash = hash_of(text, n);
    struct strbuf bytes = {0};
    strbuf_append(&bytes, hash.digest, HASH_BYTES);
    if (carry)
        strbuf_append(&bytes, text, n);
    strbuf_puts(out, carry ? kind_text : kind_hash);
    if (strbuf_failed(&bytes))
        out->failed = true;
    else
        base64_write(out, (const unsigned char *)bytes.data, bytes.len);
    strbuf_free(&bytes);
}

bool seal_read(const char *seal, size_t n, struct strbuf *text)
{
    struct strbuf bytes = {0};
    bool ok = n > KIND_LETTERS && memcmp(seal, kind_text, KIND_LETTERS) == 0
        && base64_read(&bytes, seal + KIND_LETTERS, n - KIND_LETTERS) && bytes.len >= HASH_BYTES;
    if (ok) {
        XXH128_canonical_t hash = hash_of(bytes.data + HASH_BYTES, bytes.len - HASH_BYTES);
        ok = memcmp(hash.digest, bytes.data, HASH_BYTES) == 0;
    }
    if (ok)
        strbuf_append(text, bytes.data + HASH_BYTES, bytes.len - HASH_BYTES);
    else if (strbuf_failed(&bytes))
        text->failed = true;
    strbuf_free(&bytes);
    return ok && !strbuf_failed(text);
}
