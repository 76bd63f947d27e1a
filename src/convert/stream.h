/* What file conversions share: telling progress, stopping, and copying tensor data from a mapped file into a writer. */
#ifndef SKUA_CONVERT_STREAM_H
#define SKUA_CONVERT_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "gguf/gguf_write.h"

struct stream {
    void (*progress)(void *context, uint64_t done, uint64_t total); /* bytes of input; NULL: nobody wants to know */
    void *context;
    const atomic_int *stop; /* not 0: stop; a signal handler may set it. NULL: never */
    uint64_t done, total;   /* total: the caller's */
};

/* Has somebody set the flag? */
bool stream_stopped(const struct stream *s);
/* SKUA_ECANCELED with a message that path was not written. */
int stream_canceled(const char *path, skua_error *err);
/* So many more bytes of input are done. */
void stream_advance(struct stream *s, uint64_t bytes);

/* n bytes at p, of a mapped file, have been read and will hardly be needed again: they need not stay in memory. */
void stream_release(const void *p, size_t n);

/* Add a tensor as it is in another file. */
int stream_declare(struct gguf_writer *w, const struct gguf_tensor *t, skua_error *err);
/* Write all of its data. path: of the output, for messages. */
int stream_copy(struct gguf_writer *w, const struct gguf_tensor *t, struct stream *s, const char *path, skua_error *err);

/* A tensor's name, terminated. */
struct stream_name {
    char text[GGUF_MAX_NAME_BYTES + 1];
};
struct stream_name stream_name(const struct gguf_tensor *t);

/* SKUA_EARG when path is one of the files that g is open on. */
int stream_check_output(const struct gguf *g, const char *path, skua_error *err);

#endif
