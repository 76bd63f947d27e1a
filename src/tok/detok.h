/* Detokenizing a stream: token boundaries do not respect character boundaries, so an unfinished UTF-8 sequence is held
   back until the bytes that complete it arrive. The text does not depend on where the stream is cut. */
#ifndef SKUA_TOK_DETOK_H
#define SKUA_TOK_DETOK_H

#include <stddef.h>
#include <stdint.h>

struct strbuf;

struct detok { /* {0} is the beginning of a stream */
    uint8_t n_pending;
    char pending[3];
};

/* Append to out the text that n more bytes complete. Malformed input gives one U+FFFD for each maximal beginning of a
   sequence, and for each byte that begins none (the practice of the Unicode Standard, chapter 3, U+FFFD substitution of
   maximal subparts). A failed append is left in out (strbuf_failed). */
void detok_push(struct detok *d, const char *bytes, size_t n, struct strbuf *out);

/* End of the stream: an unfinished sequence becomes one U+FFFD. d is ready for another stream. */
void detok_finish(struct detok *d, struct strbuf *out);

#endif
