/* A text in chunks of equally many tokens, as the commands that measure on texts take it: tokenized as a whole, then cut; what is left
   over at the end is not used. */
#ifndef SKUA_CMD_TEXT_CHUNKS_H
#define SKUA_CMD_TEXT_CHUNKS_H

#include <getopt.h>
#include <stdbool.h>

#include "skua.h"

/* -f, --chunk-size, --chunks and --special of every such command. */
struct text_options {
    const char *file;     /* "-": standard input */
    int64_t chunk_size;   /* tokens */
    int64_t max_chunks;   /* 0: all */
    bool special;         /* names of control tokens in the text are these tokens */
};

struct text_chunks {
    const char *name;     /* of the text: its file name without folders */
    int32_t *ids;         /* [n_tokens] */
    size_t n_tokens;      /* of the whole text */
    int32_t chunk_size, n_chunks; /* chunk i begins at ids + i * chunk_size */
};

#define TEXT_MAX_CHUNK 1048576
#define TEXT_DEFAULTS {.chunk_size = 512}
#define TEXT_SHORTS "f:"
enum { TEXT_OPT_CHUNK_SIZE = 1100, TEXT_OPT_CHUNKS, TEXT_OPT_SPECIAL };
#define TEXT_LONGS \
    {"file", required_argument, NULL, 'f'}, {"chunk-size", required_argument, NULL, TEXT_OPT_CHUNK_SIZE}, \
    {"chunks", required_argument, NULL, TEXT_OPT_CHUNKS}, {"special", no_argument, NULL, TEXT_OPT_SPECIAL}
#define TEXT_HELP \
    "  -f, --file TEXT          the text ('-': standard input)\n" \
    "      --chunk-size N       tokens per chunk (default 512)\n" \
    "      --chunks N           use the first N chunks only\n" \
    "      --special            the names of control tokens in the text are these tokens (default: plain text)\n"

/* Take option c (a val of TEXT_LONGS) with its argument. 1: taken, 0: not one of these, negative: an error. */
int text_option(struct text_options *o, int c, const char *arg, skua_error *err);

/* SKUA_EARG when the text does not fill one chunk; SKUA_EIO, SKUA_ELIMIT, SKUA_ENOMEM. Warns when there are fewer chunks than asked for. */
int text_chunks_read(struct text_chunks *t, const skua_engine *e, const struct text_options *o, const char *command, skua_error *err);
void text_chunks_free(struct text_chunks *t); /* zeroed allowed */

/* A session that holds one chunk; warns when that is more than the model's trained context. */
int text_chunks_session(const struct text_chunks *t, skua_engine *e, const char *command, skua_session **s, skua_error *err);

#endif
