/* The prefix cache's files, one at a time; see prefix_cache_files.h. */
#include "engine/prefix_cache_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/mem.h"

/* ---- names ---- */

struct key_input {
    struct prefix_key before; /* of the full pages so far */
    int32_t n;                /* tokens up to here */
    int32_t ids[KV_PAGE_ROWS];
};

static struct prefix_key next_key(uint64_t seed, struct prefix_key before, const int32_t *ids, int32_t begin, int32_t n)
{
    struct key_input in = {.before = before, .n = n};
    memcpy(in.ids, ids + begin, (size_t)(n - begin) * sizeof *ids);
    const XXH128_hash_t h = XXH3_128bits_withSeed(&in, offsetof(struct key_input, ids) + (size_t)(n - begin) * sizeof *ids, seed);
    return (struct prefix_key){.low = h.low64, .high = h.high64};
}

struct prefix_key prefix_keys(const struct prefix_place *p, const int32_t *ids, int32_t n, struct prefix_key *pages)
{
    struct prefix_key key = {0, 0};
    for (int32_t i = 0; i < n / KV_PAGE_ROWS; i++)
        pages[i] = key = next_key(p->seed, key, ids, i * KV_PAGE_ROWS, (i + 1) * KV_PAGE_ROWS);
    return next_key(p->seed, key, ids, n / KV_PAGE_ROWS * KV_PAGE_ROWS, n);
}

struct prefix_key prefix_draft_key(uint64_t source, struct prefix_key page, int32_t next) { return next_key(source, page, &next, 0, 1); }

bool prefix_key_same(struct prefix_key a, struct prefix_key b) { return a.low == b.low && a.high == b.high; }

void prefix_path(const struct prefix_place *p, struct prefix_key key, const char *suffix, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%016llx%016llx%s", p->dir, (unsigned long long)key.high, (unsigned long long)key.low, suffix);
}

static bool parse_hex(const char *p, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        const char c = p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

bool prefix_parse_name(const char *name, struct prefix_key *key, const char **suffix)
{
    if (strlen(name) < 33 || !parse_hex(name, &key->high) || !parse_hex(name + 16, &key->low))
        return false;
    *suffix = name + 32;
    return **suffix == '.';
}

/* ---- writing ---- */

static size_t tokens_bytes(int32_t n) { return (size_t)n * sizeof(int32_t); }

size_t prefix_page_file_bytes(const struct prefix_place *p, int32_t n_tokens)
{
    return state_file_bytes(2, tokens_bytes(n_tokens) + p->page_bytes);
}

size_t prefix_draft_file_bytes(size_t page_bytes) { return state_file_bytes(2, tokens_bytes(PREFIX_DRAFT_TOKENS) + page_bytes); }

/* With what drafters keep comes the list of pages that it builds on. */
static uint32_t state_sections(int32_t n_tokens, bool drafters) { return 2u + (n_tokens % KV_PAGE_ROWS != 0) + (drafters ? 2 : 0); }

static size_t drafts_bytes(int32_t n) { return (size_t)n * sizeof(struct draft_pages); }

size_t prefix_state_file_bytes(const struct prefix_place *p, int32_t n_tokens, size_t draft_size, int32_t n_drafts)
{
    const size_t page = n_tokens % KV_PAGE_ROWS ? p->page_bytes : 0;
    return state_file_bytes(state_sections(n_tokens, draft_size),
                            tokens_bytes(n_tokens) + drafts_bytes(n_drafts) + p->state_bytes + page + draft_size);
}

/* What a file has at its beginning. */
struct file_head {
    const char *suffix, *magic;
    const int32_t *ids;
    int32_t n;
    uint32_t n_sections;
    size_t bytes;
};

static int begin_file(struct file_writer *w, const struct prefix_place *p, struct prefix_key key, const struct file_head *h,
                      skua_error *err)
{
    char path[PATH_MAX];
    prefix_path(p, key, h->suffix, path);
    int rc = file_writer_open(w, path, err);
    if (rc)
        return rc;
    rc = state_write_header(w, &p->id, h->magic, h->n, h->n, h->n_sections, h->bytes, err);
    if (!rc)
        rc = state_write_section(w, "tokens", h->ids, tokens_bytes(h->n), err);
    if (rc)
        file_writer_abort(w);
    return rc;
}

static int end_file(struct file_writer *w, int rc, skua_error *err)
{
    if (!rc)
        return file_writer_commit(w, err);
    file_writer_abort(w);
    return rc;
}

static int write_kv(struct file_writer *w, const struct prefix_place *p, struct kern_buf *page, void *room, skua_error *err)
{
    p->dev->ops->read(p->dev, (struct kern_view){page, 0}, room, page->size);
    return state_write_section(w, "kv", room, page->size, err);
}

static int write_full(const struct prefix_place *p, struct prefix_key key, const struct file_head *h, struct kern_buf *page, void *room,
                      skua_error *err)
{
    struct file_writer w;
    const int rc = begin_file(&w, p, key, h, err);
    return rc ? rc : end_file(&w, write_kv(&w, p, page, room, err), err);
}

int prefix_write_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct kern_buf *page, void *room,
                      skua_error *err)
{
    const int32_t n = (i + 1) * KV_PAGE_ROWS;
    const struct file_head h = {PREFIX_PAGE, STATE_PAGE, ids, n, 2, prefix_page_file_bytes(p, n)};
    return write_full(p, key, &h, page, room, err);
}

int prefix_write_draft(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct kern_buf *page,
                       void *room, skua_error *err)
{
    const struct file_head h = {PREFIX_DRAFT, STATE_DRAFT, ids + (ptrdiff_t)i * KV_PAGE_ROWS, PREFIX_DRAFT_TOKENS, 2,
                                prefix_draft_file_bytes(page->size)};
    return write_full(p, key, &h, page, room, err);
}

int prefix_write_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, const struct checkpoint *ck, void *room,
                       skua_error *err)
{
    const int32_t n = ck->n_tokens;
    const struct file_head h = {PREFIX_STATE, STATE_CHECKPOINT, ids, n, state_sections(n, ck->draft_size),
                                prefix_state_file_bytes(p, n, ck->draft_size, ck->n_drafts)};
    struct file_writer w;
    int rc = begin_file(&w, p, key, &h, err);
    if (rc)
        return rc;
    if (ck->draft_size)
        rc = state_write_section(&w, "pages", ck->drafts, drafts_bytes(ck->n_drafts), err);
    if (!rc)
        rc = state_write_section(&w, "state", ck->state, ck->state_size, err);
    if (!rc && n % KV_PAGE_ROWS)
        rc = write_kv(&w, p, ck->pages[ck->n_pages - 1]->buf, room, err);
    if (!rc && ck->draft_size)
        rc = state_write_section(&w, "drafters", ck->draft, ck->draft_size, err);
    return end_file(&w, rc, err);
}

/* ---- reading ---- */

/* A map of the file, read up to behind its tokens, which must be these. */
static int open_file(struct file_map *map, struct state_reader *r, const struct prefix_place *p, char path[PATH_MAX], const char *magic,
                     const int32_t *ids, int32_t n, struct state_header *h, skua_error *err)
{
    const uint8_t *tokens;
    int rc = file_map_open(map, path, err);
    if (rc)
        return rc;
    *r = (struct state_reader){.path = path, .data = map->data, .size = map->size, .err = err};
    rc = state_read_header(r, &p->id, magic, h);
    if (!rc && h->n_tokens != n)
        rc = state_damaged(r, "it has another number of tokens");
    if (!rc)
        rc = state_read_tokens(r, n, p->n_vocab, &tokens);
    if (!rc && memcmp(tokens, ids, tokens_bytes(n)) != 0)
        rc = state_damaged(r, "it has other tokens");
    if (rc)
        file_map_close(map);
    return rc;
}

static int read_kv(struct state_reader *r, const struct prefix_place *p, struct kern_buf *page)
{
    const uint8_t *data;
    int rc = state_read_expected(r, "kv", page->size, &data);
    if (!rc)
        p->dev->ops->write(p->dev, (struct kern_view){page, 0}, data, page->size);
    return rc;
}

static int at_end(const struct state_reader *r) { return r->at == r->size ? 0 : state_damaged(r, "there is more behind its last section"); }

static int read_full(const struct prefix_place *p, struct prefix_key key, const struct file_head *f, struct kern_buf *page,
                     skua_error *err)
{
    char path[PATH_MAX];
    struct file_map map;
    struct state_reader r;
    struct state_header h;
    prefix_path(p, key, f->suffix, path);
    int rc = open_file(&map, &r, p, path, f->magic, f->ids, f->n, &h, err);
    if (rc)
        return rc;
    rc = read_kv(&r, p, page);
    if (!rc)
        rc = at_end(&r);
    file_map_close(&map);
    return rc;
}

int prefix_read_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, skua_session *s, skua_error *err)
{
    const struct file_head h = {.suffix = PREFIX_PAGE, .magic = STATE_PAGE, .ids = ids, .n = (i + 1) * KV_PAGE_ROWS};
    return read_full(p, key, &h, s->seq.pages[i], err);
}

int prefix_read_draft(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct seq *kv, skua_error *err)
{
    const struct file_head h = {.suffix = PREFIX_DRAFT, .magic = STATE_DRAFT, .ids = ids + (ptrdiff_t)i * KV_PAGE_ROWS,
                                .n = PREFIX_DRAFT_TOKENS};
    return read_full(p, key, &h, kv->pages[i], err);
}

/* Which pages of drafters a checkpoint builds on. */
static int read_drafts(struct state_reader *r, int32_t n_tokens, struct draft_pages out[SKUA_DRAFT_SOURCES], int32_t *n)
{
    struct state_section head;
    const uint8_t *data;
    int rc = state_read_section(r, &head, &data);
    if (!rc && (strcmp(head.name, "pages") != 0 || head.size > drafts_bytes(SKUA_DRAFT_SOURCES) || head.size % sizeof *out))
        rc = state_damaged(r, "its drafters' pages contradict themselves");
    *n = rc ? 0 : (int32_t)(head.size / sizeof *out);
    if (*n)
        memcpy(out, data, (size_t)head.size);
    for (int32_t i = 0; i < *n && !rc; i++)
        if (out[i].n_pages < 1 || out[i].n_pages > (n_tokens - 1) / KV_PAGE_ROWS)
            rc = state_damaged(r, "it has another number of drafters' pages");
    return rc;
}

int prefix_read_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t n, skua_session *s, skua_error *err)
{
    char path[PATH_MAX];
    struct file_map map;
    struct state_reader r;
    struct state_header h;
    struct state_section drafters = {.size = 0};
    struct draft_pages pages[SKUA_DRAFT_SOURCES];
    const uint8_t *data, *draft = NULL;
    int32_t n_drafts;
    prefix_path(p, key, PREFIX_STATE, path);
    int rc = open_file(&map, &r, p, path, STATE_CHECKPOINT, ids, n, &h, err);
    if (rc)
        return rc;
    const bool has_drafters = h.n_sections > state_sections(n, false);
    if (has_drafters)
        rc = read_drafts(&r, n, pages, &n_drafts);
    if (!rc)
        rc = state_read_expected(&r, "state", p->state_bytes, &data);
    if (!rc)
        p->dev->ops->write(p->dev, (struct kern_view){s->seq.state, 0}, data, p->state_bytes);
    if (!rc && n % KV_PAGE_ROWS)
        rc = read_kv(&r, p, s->seq.pages[n / KV_PAGE_ROWS]);
    if (!rc && has_drafters)
        rc = state_read_section(&r, &drafters, &draft);
    if (!rc)
        rc = at_end(&r);
    if (!rc) {
        memcpy(s->tokens, ids, tokens_bytes(n));
        s->seq.n_pos = n;
        session_draft_load(s, draft, draft ? (size_t)drafters.size : 0);
    }
    file_map_close(&map);
    return rc;
}

static int read_checkpoint_head(struct state_reader *r, const struct prefix_place *p, const struct state_header *h,
                                struct prefix_head *out)
{
    const uint8_t *data;
    int rc = state_read_tokens(r, h->n_tokens, p->n_vocab, &data);
    if (!rc && h->n_sections > state_sections(h->n_tokens, false))
        rc = read_drafts(r, h->n_tokens, out->drafts, &out->n_drafts);
    if (!rc && !(out->tokens = mem_alloc(tokens_bytes(h->n_tokens))))
        rc = error_nomem(r->err, "tokens of a file", tokens_bytes(h->n_tokens));
    if (!rc)
        memcpy(out->tokens, data, tokens_bytes(h->n_tokens));
    return rc;
}

int prefix_read_head(const struct prefix_place *p, const char *path, const char *magic, struct prefix_head *out, skua_error *err)
{
    struct file_map map;
    struct state_header h;
    *out = (struct prefix_head){0};
    int rc = file_map_open(&map, path, err);
    if (rc)
        return rc;
    struct state_reader r = {.path = path, .data = map.data, .size = map.size, .err = err};
    out->size = map.size;
    rc = state_read_header(&r, &p->id, magic, &h);
    out->n_tokens = rc ? 0 : h.n_tokens;
    if (!rc && h.n_tokens < 1)
        rc = state_damaged(&r, "it has no tokens");
    if (!rc && strcmp(magic, STATE_CHECKPOINT) == 0)
        rc = read_checkpoint_head(&r, p, &h, out);
    file_map_close(&map);
    return rc;
}

/* ---- the folder ---- */

void prefix_unlink(const char *path)
{
    if (!fault_io())
        unlink(path);
}

int prefix_make_folder(const char *dir, skua_error *err)
{
    char path[PATH_MAX];
    if (!*dir || strlen(dir) >= PATH_MAX - 64)
        return error_set(err, SKUA_EIO, "the name of the cache's folder has %zu characters; expected 1 to %d", strlen(dir), PATH_MAX - 65);
    snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1;; p++) {
        const char c = *p;
        if (c && c != '/')
            continue;
        *p = '\0';
        if (fault_io() || (mkdir(path, 0700) != 0 && errno != EEXIST))
            return error_set(err, SKUA_EIO, "%s: cannot make the cache's folder: %s", path, strerror(errno));
        if (!c)
            return 0;
        *p = c;
    }
}
