/* Containers of saved states; see state_file.h. */
#include "engine/state_file.h"

#include <string.h>

#include <xxhash.h>

#include "quant/type.h"

#define SAMPLE_BYTES 64

_Static_assert(sizeof(struct state_header) == 56 && sizeof(struct state_section) == 40, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

static uint64_t model_hash(const skua_engine *e)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < gguf_shard_count(e->gguf); i++) {
        size_t size;
        const uint8_t *data = gguf_shard_data(e->gguf, i, &size), *sized = (const uint8_t *)&size;
        hash = XXH3_64bits_withSeed(sized, sizeof size, hash);
        hash = XXH3_64bits_withSeed(data, gguf_data_start(e->gguf, i), hash);
    }
    for (uint32_t i = 0; i < gguf_tensor_count(e->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(e->gguf, i);
        hash = XXH3_64bits_withSeed(t->data, t->size_bytes < SAMPLE_BYTES ? t->size_bytes : SAMPLE_BYTES, hash);
    }
    return hash;
}

struct state_identity state_identity(const skua_engine *e)
{
    return (struct state_identity){.model = model_hash(e), .kv_type = e->kv_type, .path = e->path,
                                   .reference = strcmp(e->dev->kernels, kern_reference.name) == 0};
}

/* ---- writing ---- */

int state_write_header(struct file_writer *w, const struct state_identity *id, const char *magic, int32_t n_tokens, int32_t n_ctx,
                       uint32_t n_sections, uint64_t file_bytes, skua_error *err)
{
    struct state_header h = {.version = STATE_VERSION, .kv_type = id->kv_type, .reference = id->reference, .n_tokens = n_tokens,
                             .n_ctx = n_ctx, .n_sections = n_sections, .model = id->model, .file_bytes = file_bytes};
    memcpy(h.magic, magic, sizeof h.magic);
    h.checksum = XXH3_64bits(&h, offsetof(struct state_header, checksum));
    return file_writer_write(w, &h, sizeof h, err);
}

int state_write_section(struct file_writer *w, const char *name, const void *data, size_t size, skua_error *err)
{
    struct state_section head = {.size = size, .checksum = XXH3_64bits(data, size)};
    memcpy(head.name, name, strnlen(name, sizeof head.name));
    head.head_checksum = XXH3_64bits(&head, offsetof(struct state_section, head_checksum));
    int rc = file_writer_write(w, &head, sizeof head, err);
    return rc ? rc : file_writer_write(w, data, size, err);
}

/* ---- reading ---- */

int state_damaged(const struct state_reader *r, const char *what)
{
    return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: %s", r->path, what);
}

static int refuse_other(const struct state_reader *r, const struct state_identity *id, const struct state_header *h)
{
    if (h->model != id->model)
        return error_set(r->err, SKUA_EARG, "%s: the session was saved with another model file than %s", r->path, id->path);
    if (h->reference != id->reference)
        return error_set(r->err, SKUA_EARG, "%s: the session was saved in %s precision, this engine runs in %s precision", r->path,
                         h->reference ? "reference" : "production", h->reference ? "production" : "reference");
    if (h->kv_type == id->kv_type)
        return 0;
    const struct qtype_info *t = qtype_info(h->kv_type);
    return error_set(r->err, SKUA_EARG, "%s: the session was saved with KV cache type %s, this engine uses %s", r->path,
                     t ? t->name : "unknown", qtype_info(id->kv_type)->name);
}

int state_read_header(struct state_reader *r, const struct state_identity *id, const char *magic, struct state_header *h)
{
    if (r->size < sizeof h->magic || memcmp(r->data, magic, sizeof h->magic) != 0)
        return error_set(r->err, SKUA_EFORMAT, "%s: not a session file", r->path);
    if (r->size < sizeof *h)
        return state_damaged(r, "it ends in its header");
    memcpy(h, r->data, sizeof *h);
    r->at = sizeof *h;
    if (h->version != STATE_VERSION)
        return error_set(r->err, SKUA_EUNSUPPORTED, "%s: session file of version %u; this program reads version %u", r->path, h->version,
                         STATE_VERSION);
    if (XXH3_64bits(h, offsetof(struct state_header, checksum)) != h->checksum)
        return state_damaged(r, "the checksum of its header does not match");
    if (h->file_bytes != r->size)
        return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: it has %zu bytes, expected are %llu", r->path, r->size,
                         (unsigned long long)h->file_bytes);
    int rc = refuse_other(r, id, h);
    if (!rc && (h->n_tokens < 0 || h->n_ctx < 1 || h->n_ctx < h->n_tokens || h->n_sections < 2
                || h->n_sections > r->size / sizeof(struct state_section)))
        rc = state_damaged(r, "its header contradicts itself");
    return rc;
}

/* The next section; its data stays in the map. */
int state_read_section(struct state_reader *r, struct state_section *head, const uint8_t **data)
{
    if (r->size - r->at < sizeof *head)
        return state_damaged(r, "a section is missing");
    memcpy(head, r->data + r->at, sizeof *head);
    r->at += sizeof *head;
    if (XXH3_64bits(head, offsetof(struct state_section, head_checksum)) != head->head_checksum || head->name[sizeof head->name - 1])
        return state_damaged(r, "the checksum of a section's head does not match");
    if (head->size > r->size - r->at)
        return state_damaged(r, "a section goes beyond the end of the file");
    *data = r->data + r->at;
    r->at += (size_t)head->size;
    if (XXH3_64bits(*data, (size_t)head->size) == head->checksum)
        return 0;
    return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: the checksum of its section '%s' does not match", r->path,
                     head->name);
}

int state_read_expected(struct state_reader *r, const char *name, size_t size, const uint8_t **data)
{
    struct state_section head;
    int rc = state_read_section(r, &head, data);
    if (!rc && (strcmp(head.name, name) != 0 || head.size != size))
        rc = error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: section '%s' of %llu bytes; expected '%s' of %zu", r->path,
                       head.name, (unsigned long long)head.size, name, size);
    return rc;
}

int state_read_tokens(struct state_reader *r, int32_t n, int32_t n_vocab, const uint8_t **data)
{
    int rc = state_read_expected(r, "tokens", (size_t)n * sizeof(int32_t), data);
    for (int32_t i = 0; !rc && i < n; i++) {
        int32_t id;
        memcpy(&id, *data + (size_t)i * sizeof id, sizeof id);
        if (id < 0 || id >= n_vocab)
            rc = state_damaged(r, "a token is outside the vocabulary");
    }
    return rc;
}
