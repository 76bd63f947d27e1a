/* Session files: containers (state_file.h) of the tokens, the recurrent state, the used KV pages one by one, and what drafters keep.
 * Everything is checked before a session is made of it. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft.h"
#include "engine/state_file.h"

/* ---- writing ---- */

static int write_buffer(struct file_writer *w, const skua_session *s, const char *name, struct kern_buf *buf, void *room, skua_error *err)
{
    struct dev *d = s->engine->dev;
    d->ops->read(d, (struct kern_view){buf, 0}, room, buf->size);
    return state_write_section(w, name, room, buf->size, err);
}

static int write_all(struct file_writer *w, const skua_session *s, const struct engine_blob *blobs, int32_t n_blobs, void *room,
                     skua_error *err)
{
    const int32_t n = s->seq.n_pos, n_pages = seq_pages(n);
    const uint32_t n_sections = 2 + (uint32_t)n_pages + (uint32_t)n_blobs;
    uint64_t bytes = state_file_bytes(n_sections, (uint64_t)n * sizeof *s->tokens + s->seq.state->size
                                                  + (uint64_t)n_pages * s->seq.page_bytes);
    for (int32_t i = 0; i < n_blobs; i++)
        bytes += blobs[i].size;
    const struct state_identity id = state_identity(s->engine);
    int rc = state_write_header(w, &id, STATE_SESSION, n, s->n_ctx, n_sections, bytes, err);
    if (!rc)
        rc = state_write_section(w, "tokens", n ? s->tokens : (const int32_t[]){0}, (size_t)n * sizeof *s->tokens, err);
    if (!rc)
        rc = write_buffer(w, s, "state", s->seq.state, room, err);
    for (int32_t i = 0; i < n_pages && !rc; i++)
        rc = write_buffer(w, s, "kv", s->seq.pages[i], room, err);
    for (int32_t i = 0; i < n_blobs && !rc; i++)
        rc = state_write_section(w, blobs[i].name, blobs[i].data, blobs[i].size, err);
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
    struct engine_blob drafters = {.name = "drafters", .size = session_draft_save_size(s, DRAFT_SAVE_WHOLE)};
    void *data = drafters.size ? mem_alloc(drafters.size) : NULL;
    if (drafters.size && !data)
        return error_nomem(err, "state of the drafters", drafters.size);
    if (data)
        session_draft_save(s, DRAFT_SAVE_WHOLE, data);
    drafters.data = data;
    int rc = engine_session_save(s, path, &drafters, data != NULL, err);
    mem_free(data);
    return rc;
}

/* ---- reading ---- */

/* Tokens, state and pages into a session that has room for them. */
static int fill(struct state_reader *r, const struct state_header *h, skua_session *s)
{
    struct dev *d = s->engine->dev;
    const size_t n = (size_t)h->n_tokens;
    const uint8_t *data;
    int rc = state_read_tokens(r, h->n_tokens, s->engine->config.n_vocab, &data);
    if (rc)
        return rc;
    if (n) /* else there may be no array of tokens */
        memcpy(s->tokens, data, n * sizeof *s->tokens);
    rc = state_read_expected(r, "state", s->seq.state->size, &data);
    if (!rc)
        d->ops->write(d, (struct kern_view){s->seq.state, 0}, data, s->seq.state->size);
    for (int32_t i = 0; i < seq_pages(h->n_tokens) && !rc; i++) {
        rc = state_read_expected(r, "kv", s->seq.page_bytes, &data);
        if (!rc)
            d->ops->write(d, (struct kern_view){s->seq.pages[i], 0}, data, s->seq.page_bytes);
    }
    return rc;
}

/* The sections of drafters: checked, and given to fn when check is false. */
static int read_blobs(struct state_reader *r, uint32_t n, skua_session *s, engine_blob_fn *fn, void *user, bool check)
{
    for (uint32_t i = 0; i < n; i++) {
        struct state_section head;
        const uint8_t *data;
        int rc = state_read_section(r, &head, &data);
        if (rc)
            return rc;
        if (!check && fn)
            fn(user, s, &(struct engine_blob){.name = head.name, .data = data, .size = (size_t)head.size});
    }
    return check && r->at != r->size ? state_damaged(r, "there is more behind its last section") : 0;
}

static int load(struct state_reader *r, skua_engine *e, int32_t n_ctx, skua_session **out, engine_blob_fn *fn, void *user)
{
    struct state_header h;
    const struct state_identity id = state_identity(e);
    int rc = state_read_header(r, &id, STATE_SESSION, &h);
    if (!rc && h.n_sections < 2 + (uint32_t)seq_pages(h.n_tokens))
        rc = state_damaged(r, "its header contradicts itself");
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
    struct state_reader r = {.path = path, .data = map.data, .size = map.size, .err = err};
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
