/* Copying tensor data from file to file; see stream.h. */
#include "convert/stream.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

#define PIECE_BYTES ((size_t)8 << 20)

bool stream_stopped(const struct stream *s) { return s->stop && atomic_load_explicit(s->stop, memory_order_relaxed); }

int stream_canceled(const char *path, skua_error *err)
{
    return error_set(err, SKUA_ECANCELED, "interrupted; %s is not written", path);
}

void stream_advance(struct stream *s, uint64_t bytes)
{
    s->done += bytes;
    if (s->progress)
        s->progress(s->context, s->done, s->total);
}

void stream_release(const void *p, size_t n)
{
    /* whole pages only: those at the ends belong to the neighbours too. A refusal by the system changes nothing but memory. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + n) / page * page;
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

struct stream_name stream_name(const struct gguf_tensor *t)
{
    struct stream_name name = {{0}};
    memcpy(name.text, t->name, t->name_len);
    return name;
}

int stream_declare(struct gguf_writer *w, const struct gguf_tensor *t, skua_error *err)
{
    return gguf_writer_add_tensor(w, stream_name(t).text, t->type, t->n_dims ? t->n_dims : 1, t->ne, err);
}

int stream_copy(struct gguf_writer *w, const struct gguf_tensor *t, struct stream *s, const char *path, skua_error *err)
{
    struct stream_name name = stream_name(t);
    for (size_t at = 0; at < t->size_bytes;) {
        size_t n = t->size_bytes - at < PIECE_BYTES ? t->size_bytes - at : PIECE_BYTES;
        if (stream_stopped(s))
            return stream_canceled(path, err);
        int rc = gguf_writer_data(w, name.text, t->data + at, n, err);
        if (rc)
            return rc;
        stream_release(t->data + at, n);
        stream_advance(s, n);
        at += n;
    }
    return 0;
}

int stream_check_output(const struct gguf *g, const char *path, skua_error *err)
{
    for (uint32_t i = 0; i < gguf_shard_count(g); i++)
        if (file_is_same(path, gguf_shard_path(g, i)))
            return error_set(err, SKUA_EARG, "%s: is the input; expected another name for the output", path);
    return 0;
}
