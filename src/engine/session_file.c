/* Session files. A header, then sections: the tokens, the recurrent state, the used KV pages one by one, and what drafters keep. Numbers
 * are little-endian; the header and each section carry a checksum (XXH3), and everything is checked before a session is made of it. The
 * model is told by a hash of its keys, its tensor table, its sizes and the first bytes of each tensor. */
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/mem.h"
#include "engine/draft.h"
#include "engine/engine.h"
#include "quant/type.h"

#define MAGIC "SKUASESS"
#define VERSION 1u
#define SAMPLE_BYTES 64

struct header {
    char magic[8];
    uint32_t version, kv_type, reference; /* reference: the precision */
    int32_t n_tokens, n_ctx;
    uint32_t n_sections;
    uint64_t model, file_bytes;
    uint64_t checksum; /* of all before it */
};

struct section {
    char name[16]; /* padded with zeros */
    uint64_t size, checksum, head_checksum; /* the last one of all before it */
};
_Static_assert(sizeof(struct header) == 56 && sizeof(struct section) == 40, "no padding");
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

static uint32_t is_reference(const skua_engine *e) { return strcmp(e->dev->kernels, kern_reference.name) == 0; }

/* ---- writing ---- */

static int write_section(struct file_writer *w, const char *name, const void *data, size_t size, skua_error *err)
{
    struct section head = {.size = size, .checksum = XXH3_64bits(data, size)};
    memcpy(head.name, name, strnlen(name, sizeof head.name));
    head.head_checksum = XXH3_64bits(&head, offsetof(struct section, head_checksum));
    int rc = file_writer_write(w, &head, sizeof head, err);
    return rc ? rc : file_writer_write(w, data, size, err);
}

static int write_buffer(struct file_writer *w, const skua_session *s, const char *name, struct kern_buf *buf, void *room, skua_error *err)
{
    struct dev *d = s->engine->dev;
    d->ops->read(d, (struct kern_view){buf, 0}, room, buf->size);
    return write_section(w, name, room, buf->size, err);
}

static int write_all(struct file_writer *w, const skua_session *s, const struct engine_blob *blobs, int32_t n_blobs, void *room,
                     skua_error *err)
{
    const int32_t n = s->seq.n_pos, n_pages = seq_pages(n);
    const uint32_t n_sections = 2 + (uint32_t)n_pages + (uint32_t)n_blobs;
    uint64_t bytes = sizeof(struct header) + n_sections * sizeof(struct section) + (uint64_t)n * sizeof *s->tokens + s->seq.state->size
                     + (uint64_t)n_pages * s->seq.page_bytes;
    for (int32_t i = 0; i < n_blobs; i++)
        bytes += blobs[i].size;
    struct header h = {.magic = MAGIC, .version = VERSION, .kv_type = s->engine->kv_type, .reference = is_reference(s->engine),
                       .n_tokens = n, .n_ctx = s->n_ctx, .n_sections = n_sections, .model = model_hash(s->engine), .file_bytes = bytes};
    h.checksum = XXH3_64bits(&h, offsetof(struct header, checksum));
    int rc = file_writer_write(w, &h, sizeof h, err);
    if (!rc)
        rc = write_section(w, "tokens", n ? s->tokens : (const int32_t[]){0}, (size_t)n * sizeof *s->tokens, err);
    if (!rc)
        rc = write_buffer(w, s, "state", s->seq.state, room, err);
    for (int32_t i = 0; i < n_pages && !rc; i++)
        rc = write_buffer(w, s, "kv", s->seq.pages[i], room, err);
    for (int32_t i = 0; i < n_blobs && !rc; i++)
        rc = write_section(w, blobs[i].name, blobs[i].data, blobs[i].size, err);
    return rc;
}

int engine_session_save(const skua_session *s, const char *path, const struct engine_blob *blobs, int32_t n_blobs, skua_error *err)
{
    const size_t page = s->seq.page_bytes, state = s->seq.state->size, size = page > state ? page : state;
    struct file_writer w;
    int rc = engine_session_settled(s, "saving", err);
    if (rc)
        return rc;
    void *room = mem_alloc(size);
    if (!room)
        return error_nomem(err, "session to save", size);
    rc = file_writer_open(&w, path, err);
    if (!rc) {
        rc = write_all(&w, s, blobs, n_blobs, room, err);
        if (rc)
            file_writer_abort(&w);
        else
            rc = file_writer_commit(&w, err);
    }
    mem_free(room);
    return rc;
}

int skua_session_save(const skua_session *s, const char *path, skua_error *err)
{
    struct engine_blob drafters = {.name = "drafters", .size = session_draft_save_size(s, true)};
    void *data = drafters.size ? mem_alloc(drafters.size) : NULL;
    if (drafters.size && !data)
        return error_nomem(err, "state of the drafters", drafters.size);
    if (data)
        session_draft_save(s, true, data);
    drafters.data = data;
    int rc = engine_session_save(s, path, &drafters, data != NULL, err);
    mem_free(data);
    return rc;
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    skua_error *err;
};

static int damaged(const struct reader *r, const char *what)
{
    return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: %s", r->path, what);
}

static int read_header(struct reader *r, const skua_engine *e, struct header *h)
{
    if (r->size < sizeof h->magic || memcmp(r->data, MAGIC, sizeof h->magic) != 0)
        return error_set(r->err, SKUA_EFORMAT, "%s: not a session file", r->path);
    if (r->size < sizeof *h)
        return damaged(r, "it ends in its header");
    memcpy(h, r->data, sizeof *h);
    r->at = sizeof *h;
    if (h->version != VERSION)
        return error_set(r->err, SKUA_EUNSUPPORTED, "%s: session file of version %u; this program reads version %u", r->path, h->version,
                         VERSION);
    if (XXH3_64bits(h, offsetof(struct header, checksum)) != h->checksum)
        return damaged(r, "the checksum of its header does not match");
    if (h->file_bytes != r->size)
        return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: it has %zu bytes, expected are %llu", r->path, r->size,
                         (unsigned long long)h->file_bytes);
    if (h->model != model_hash(e))
        return error_set(r->err, SKUA_EARG, "%s: the session was saved with another model file than %s", r->path, e->path);
    if (h->reference != is_reference(e))
        return error_set(r->err, SKUA_EARG, "%s: the session was saved in %s precision, this engine runs in %s precision", r->path,
                         h->reference ? "reference" : "production", h->reference ? "production" : "reference");
    if (h->kv_type != e->kv_type) {
        const struct qtype_info *t = qtype_info(h->kv_type);
        return error_set(r->err, SKUA_EARG, "%s: the session was saved with KV cache type %s, this engine uses %s", r->path,
                         t ? t->name : "unknown", qtype_info(e->kv_type)->name);
    }
    if (h->n_tokens < 0 || h->n_ctx < 1 || h->n_ctx < h->n_tokens || h->n_sections < 2 + (uint32_t)seq_pages(h->n_tokens)
        || h->n_sections > r->size / sizeof(struct section))
        return damaged(r, "its header contradicts itself");
    return 0;
}

/* The next section; its data stays in the map. */
static int read_section(struct reader *r, struct section *head, const uint8_t **data)
{
    if (r->size - r->at < sizeof *head)
        return damaged(r, "a section is missing");
    memcpy(head, r->data + r->at, sizeof *head);
    r->at += sizeof *head;
    if (XXH3_64bits(head, offsetof(struct section, head_checksum)) != head->head_checksum || head->name[sizeof head->name - 1])
        return damaged(r, "the checksum of a section's head does not match");
    if (head->size > r->size - r->at)
        return damaged(r, "a section goes beyond the end of the file");
    *data = r->data + r->at;
    r->at += (size_t)head->size;
    if (XXH3_64bits(*data, (size_t)head->size) == head->checksum)
        return 0;
    return error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: the checksum of its section '%s' does not match", r->path,
                     head->name);
}

static int read_expected(struct reader *r, const char *name, size_t size, const uint8_t **data)
{
    struct section head;
    int rc = read_section(r, &head, data);
    if (!rc && (strcmp(head.name, name) != 0 || head.size != size))
        rc = error_set(r->err, SKUA_EFORMAT, "%s: the session file is damaged: section '%s' of %llu bytes; expected '%s' of %zu", r->path,
                       head.name, (unsigned long long)head.size, name, size);
    return rc;
}

/* Tokens, state and pages into a session that has room for them. */
static int fill(struct reader *r, const struct header *h, skua_session *s)
{
    struct dev *d = s->engine->dev;
    const size_t n = (size_t)h->n_tokens;
    const uint8_t *data;
    int rc = read_expected(r, "tokens", n * sizeof *s->tokens, &data);
    if (rc)
        return rc;
    if (n) /* else there may be no array of tokens */
        memcpy(s->tokens, data, n * sizeof *s->tokens);
    for (size_t i = 0; i < n; i++)
        if (s->tokens[i] < 0 || s->tokens[i] >= s->engine->config.n_vocab)
            return damaged(r, "a token is outside the vocabulary");
    rc = read_expected(r, "state", s->seq.state->size, &data);
    if (!rc)
        d->ops->write(d, (struct kern_view){s->seq.state, 0}, data, s->seq.state->size);
    for (int32_t i = 0; i < seq_pages(h->n_tokens) && !rc; i++) {
        rc = read_expected(r, "kv", s->seq.page_bytes, &data);
        if (!rc)
            d->ops->write(d, (struct kern_view){s->seq.pages[i], 0}, data, s->seq.page_bytes);
    }
    return rc;
}

/* The sections of drafters: checked, and given to fn when check is false. */
static int read_blobs(struct reader *r, uint32_t n, skua_session *s, engine_blob_fn *fn, void *user, bool check)
{
    for (uint32_t i = 0; i < n; i++) {
        struct section head;
        const uint8_t *data;
        int rc = read_section(r, &head, &data);
        if (rc)
            return rc;
        if (!check && fn)
            fn(user, s, &(struct engine_blob){.name = head.name, .data = data, .size = (size_t)head.size});
    }
    return check && r->at != r->size ? damaged(r, "there is more behind its last section") : 0;
}

static int load(struct reader *r, skua_engine *e, int32_t n_ctx, skua_session **out, engine_blob_fn *fn, void *user)
{
    struct header h;
    int rc = read_header(r, e, &h);
    if (rc)
        return rc;
    rc = skua_session_create(e, n_ctx ? n_ctx : h.n_ctx, out, r->err);
    if (rc)
        return rc;
    skua_session *s = *out;
    if (h.n_tokens > s->n_ctx)
        return error_set(r->err, SKUA_ELIMIT, "%s: the session holds %d tokens, more than the context of %d", r->path, h.n_tokens,
                         s->n_ctx);
    rc = engine_session_reserve(s, h.n_tokens, r->err);
    if (!rc)
        rc = fill(r, &h, s);
    const uint32_t n_blobs = h.n_sections - 2 - (uint32_t)seq_pages(h.n_tokens);
    const size_t blobs_at = r->at;
    if (!rc)
        rc = read_blobs(r, n_blobs, s, NULL, NULL, true);
    if (rc)
        return rc;
    s->seq.n_pos = h.n_tokens;
    r->at = blobs_at;
    return read_blobs(r, n_blobs, s, fn, user, false);
}

int engine_session_load(skua_engine *e, const char *path, int32_t n_ctx, skua_session **out, engine_blob_fn *fn, void *user,
                        skua_error *err)
{
    struct file_map map;
    *out = NULL;
    int rc = file_map_open(&map, path, err);
    if (rc)
        return rc;
    struct reader r = {.path = path, .data = map.data, .size = map.size, .err = err};
    rc = load(&r, e, n_ctx, out, fn, user);
    if (rc) {
        skua_session_free(*out);
        *out = NULL;
    }
    file_map_close(&map);
    return rc;
}

static void load_drafters(void *user, skua_session *s, const struct engine_blob *blob)
{
    if (strcmp(blob->name, "drafters") != 0)
        return;
    *(bool *)user = true;
    session_draft_load(s, blob->data, blob->size);
}

int skua_session_load(skua_engine *e, const char *path, int32_t n_ctx, skua_session **out, skua_error *err)
{
    bool told = false;
    int rc = engine_session_load(e, path, n_ctx, out, load_drafters, &told, err);
    if (!rc && !told)
        session_draft_load(*out, NULL, 0);
    return rc;
}
