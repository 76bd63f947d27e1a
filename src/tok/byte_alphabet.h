/* The byte-level alphabet of GPT-2 vocabularies: each byte is written as one printable character. Bytes 0x21-0x7E,
   0xA1-0xAC and 0xAE-0xFF stand for the code point of the same value, the other 68, in increasing order, for U+0100 on. */
#ifndef SKUA_TOK_BYTE_ALPHABET_H
#define SKUA_TOK_BYTE_ALPHABET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Translate n bytes of alphabet text into the bytes they stand for; *out_len <= n of them are written to out (room for n
   bytes). false: the text holds a character outside the alphabet (out is then undefined). */
bool byte_alphabet_decode(const char *text, size_t n, char *out, size_t *out_len);

/* The code point that stands for a byte. */
uint32_t byte_alphabet_char(uint8_t byte);

#endif
