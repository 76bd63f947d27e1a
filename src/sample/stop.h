/* Stop strings over a streamed byte sequence. Text flows in and out; the part that may still become a stop string is held
   back, nothing else. The stop string whose end comes first wins, of several with the same end the longest; the output ends
   right before it. The result does not depend on how the stream is cut.

   One prefix automaton (Knuth, Morris, Pratt 1977) per string: matched[k] bytes at the end of the stream equal the beginning
   of string k. What is held is therefore a beginning of the string with the largest matched[k], and needs no buffer. */
#ifndef SKUA_SAMPLE_STOP_H
#define SKUA_SAMPLE_STOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define STOP_MAX_STRINGS 16
#define STOP_MAX_BYTES 1024 /* of one string */

struct stop_string {
    const char *bytes;
    const uint16_t *fail; /* [len]: fail[i] = longest proper border of the first i + 1 bytes */
    uint16_t len, matched;
};

struct stop_matcher {
    struct stop_string strings[STOP_MAX_STRINGS];
    int n;
    int found;    /* index of the string that stopped the stream, -1 = none yet */
    void *memory; /* bytes and fail tables */
};

/* The strings are copied. SKUA_EARG: too many, empty or too long (the message says which); SKUA_ENOMEM. n may be 0. */
int  stop_init(struct stop_matcher *m, const char *const *strings, const size_t *lengths, size_t n, skua_error *err);
void stop_free(struct stop_matcher *m);  /* zeroed matchers allowed */
void stop_reset(struct stop_matcher *m); /* ready for a new stream */

/* Feed n bytes; what is free to go is appended to out. 1 = a stop string is complete (m->found): the rest of these bytes and
   all later ones are dropped. 0 = none yet. SKUA_ENOMEM: nothing was consumed or appended. */
int stop_push(struct stop_matcher *m, const char *bytes, size_t n, struct strbuf *out, skua_error *err);

/* The stream has ended: append what is held (nothing after a stop), so that nothing is held any more. 0 or SKUA_ENOMEM. */
int stop_finish(struct stop_matcher *m, struct strbuf *out, skua_error *err);

size_t stop_held(const struct stop_matcher *m); /* bytes held back now */

#endif
