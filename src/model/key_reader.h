/* Reading the keys of an architecture from a GGUF file. The first failure is kept and later reads do nothing, so that a caller checks
 * once. Every failure names the key, what was found and what was expected. */
#ifndef SKUA_MODEL_KEY_READER_H
#define SKUA_MODEL_KEY_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "gguf/gguf.h"

struct key_reader {
    const struct gguf *g;
    const char *arch; /* keys are named ARCH.SUFFIX */
    skua_error *err;
    int rc;           /* first failure, or 0 */
};

/* "ARCH.SUFFIX", cut off where it does not fit. */
void key_name(char out[96], const char *arch, const char *suffix);

/* The key is found, but not what was expected. */
void key_fail(struct key_reader *r, const char *suffix, const char *expected, long long found);

/* An integer in [lo, hi]; when absent: required is an error, else *v keeps its preset value. */
void key_i32(struct key_reader *r, const char *suffix, bool required, int32_t lo, int32_t hi, int32_t *v);

/* A string of the file for a message: at most 40 bytes, printable ASCII. */
struct key_text {
    char text[41];
};
struct key_text key_show(struct gguf_string s);

#endif
