/* The files of the prefix cache: the index, the budget, and the thread that writes. The engine's thread decides and keeps the index; a
 * checkpoint that is being written stays as it is until then (kept.writing), its pages because they are shared, so that the writer needs
 * no locks but that of the two queues. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/mem.h"
#include "engine/prefix_cache_files.h"

#define DISK_BYTES ((size_t)16 << 30)
#define TABLE_SLOTS 4096 /* chains of page files */

/* A checkpoint to write. */
struct write_job {
    struct write_job *next;
    struct kept *kept;
    struct prefix_file *file;
    int32_t *ids;          /* [file->n_tokens] */
    bool *is_new;          /* [file->n_pages] page files that this job writes */
    int rc;
};

/* A file of another model, KV cache type, precision or version. */
struct foreign {
    struct foreign *next; /* the oldest first */
    size_t bytes;
    int64_t time;
    char name[];
};

struct prefix_disk {
    struct prefix_place place;
    int lock_fd;
    void (*on_write)(void *user, const skua_error *failed);
    void *on_write_user;
    size_t budget, bytes, foreign_bytes; /* bytes: of files that are there or promised */
    struct prefix_file *files;
    struct disk_page *table[TABLE_SLOTS];
    struct foreign *foreign;
    double clock;
    int64_t n_files, n_foreign;
    int32_t n_jobs;        /* given to the writer and not collected yet */

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;  /* of what follows */
    pthread_cond_t work, finished;
    struct write_job *todo, **todo_end, *done;
    bool stop;
};

/* ---- the index ---- */

static struct disk_page **table_slot(struct prefix_disk *d, struct prefix_key key) { return &d->table[key.low % TABLE_SLOTS]; }

static struct disk_page *find_page(struct prefix_disk *d, struct prefix_key key)
{
    struct disk_page *p = *table_slot(d, key);
    while (p && !prefix_key_same(p->key, key))
        p = p->next;
    return p;
}

static struct disk_page *add_page(struct prefix_disk *d, const char *suffix, struct prefix_key key, size_t bytes)
{
    struct disk_page *p = mem_alloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (struct disk_page){.next = *table_slot(d, key), .suffix = suffix, .key = key, .bytes = bytes};
    *table_slot(d, key) = p;
    d->bytes += bytes;
    return p;
}

/* The page's file is not there any more. */
static void lose_page(struct prefix_disk *d, struct disk_page *p)
{
    char path[PATH_MAX];
    if (p->gone)
        return;
    struct disk_page **at = table_slot(d, p->key);
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->gone = true;
    d->bytes -= p->bytes;
    prefix_path(&d->place, p->key, p->suffix, path);
    prefix_unlink(path);
}

static void unref_page(struct prefix_disk *d, struct disk_page *p)
{
    if (--p->n_refs)
        return;
    lose_page(d, p);
    mem_free(p);
}

static int32_t n_model_pages(const struct prefix_file *f) { return f->n_tokens / KV_PAGE_ROWS; }

/* Which page of which drafter number i of a file's pages is; -1 and i itself: one of the model. */
static int32_t page_of(const struct prefix_file *f, int32_t i, int32_t *number)
{
    int32_t k = -1;
    for (int32_t n = n_model_pages(f); i >= n; n = (int32_t)f->drafts[++k].n_pages)
        i -= n;
    *number = i;
    return k;
}

/* What stands in the index for a page that a file builds on: found by *want, which has no next. */
static struct disk_page wanted_page(const struct prefix_disk *d, const struct prefix_file *f, int32_t i, const struct prefix_key *keys,
                                    const int32_t *ids)
{
    int32_t number;
    const int32_t k = page_of(f, i, &number);
    if (k < 0)
        return (struct disk_page){.suffix = PREFIX_PAGE, .key = keys[i],
                                  .bytes = prefix_page_file_bytes(&d->place, (i + 1) * KV_PAGE_ROWS)};
    return (struct disk_page){.suffix = PREFIX_DRAFT, .bytes = prefix_draft_file_bytes((size_t)f->drafts[k].page_bytes),
                              .key = prefix_draft_key(f->drafts[k].source, keys[number], ids[(number + 1) * KV_PAGE_ROWS])};
}

/* How many a file builds on; f->n_pages counts those that f->pages has by now. */
static int32_t all_pages(const struct prefix_file *f)
{
    int32_t n = n_model_pages(f);
    for (int32_t k = 0; k < f->n_drafts; k++)
        n += (int32_t)f->drafts[k].n_pages;
    return n;
}

static void free_file(struct prefix_disk *d, struct prefix_file *f)
{
    for (int32_t i = 0; i < f->n_pages; i++)
        unref_page(d, f->pages[i]);
    mem_free(f->pages);
    mem_free(f);
}

static void link_file(struct prefix_disk *d, struct prefix_file *f)
{
    f->next = d->files;
    if (f->next)
        f->next->previous = f;
    d->files = f;
    d->bytes += f->bytes;
    f->node->file = f;
    d->n_files++;
}

void prefix_disk_remove(struct prefix_cache *c, struct prefix_file *f)
{
    struct prefix_disk *d = c->disk;
    char path[PATH_MAX];
    prefix_path(&d->place, f->key, PREFIX_STATE, path);
    prefix_unlink(path);
    *(f->previous ? &f->previous->next : &d->files) = f->next;
    if (f->next)
        f->next->previous = f->previous;
    d->bytes -= f->bytes;
    d->n_files--;
    f->node->file = NULL;
    prefix_tree_prune(&c->tree, f->node);
    free_file(d, f);
}

static bool builds_on_lost(const struct prefix_file *f)
{
    for (int32_t i = 0; i < f->n_pages; i++)
        if (f->pages[i]->gone)
            return true;
    return false;
}

static void remove_incomplete(struct prefix_cache *c)
{
    for (struct prefix_file *f = c->disk->files, *next; f; f = next) {
        next = f->next;
        if (f->ready && builds_on_lost(f))
            prefix_disk_remove(c, f);
    }
}

/* ---- the budget ---- */

static void remove_foreign(struct prefix_disk *d)
{
    struct foreign *f = d->foreign;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", d->place.dir, f->name);
    prefix_unlink(path);
    d->foreign = f->next;
    d->foreign_bytes -= f->bytes;
    d->n_foreign--;
    mem_free(f);
}

static double file_priority(const struct prefix_disk *d, const struct prefix_file *f)
{
    const struct prefix_node *n = f->node->parent;
    size_t bytes = f->bytes;
    while (n && !n->file)
        n = n->parent;
    for (int32_t i = 0; i < f->n_pages; i++)
        bytes += f->pages[i]->n_refs == 1 ? f->pages[i]->bytes : 0;
    return prefix_priority(&f->value, f->n_tokens - (n ? n->file->n_tokens : 0), (double)bytes, (double)d->place.state_bytes);
}

/* Make room for so many more bytes. False: that is not possible. */
static bool make_room(struct prefix_cache *c, size_t bytes)
{
    struct prefix_disk *d = c->disk;
    while (d->bytes + d->foreign_bytes + bytes > d->budget) {
        struct prefix_file *victim = NULL;
        double least = 0;
        if (d->foreign) {
            remove_foreign(d);
            c->stats.evictions_disk++;
            continue;
        }
        for (struct prefix_file *f = d->files; f; f = f->next) {
            const double p = f->ready ? file_priority(d, f) : 0;
            if (f->ready && (!victim || p < least)) {
                victim = f;
                least = p;
            }
        }
        if (!victim)
            return false;
        d->clock = least > d->clock ? least : d->clock;
        struct prefix_node *node = victim->node;
        node->file = NULL;
        prefix_cache_ghost(c, node); /* so that it is not pruned with its file */
        node->file = victim;
        prefix_disk_remove(c, victim);
        c->stats.evictions_disk++;
    }
    return true;
}

/* ---- the writer ---- */

static int write_page(const struct prefix_place *p, const struct write_job *j, int32_t i, void *room, skua_error *err)
{
    const struct prefix_file *f = j->file;
    const struct checkpoint *ck = &j->kept->ck;
    int32_t number;
    if (page_of(f, i, &number) < 0)
        return prefix_write_page(p, f->pages[i]->key, j->ids, i, ck->pages[i]->buf, room, err);
    struct seq_page *page = ck->pages[ck->n_pages + i - n_model_pages(f)];
    return prefix_write_draft(p, f->pages[i]->key, j->ids, number, page->buf, room, err);
}

static int write_files(const struct prefix_place *p, const struct write_job *j, skua_error *err)
{
    const struct prefix_file *f = j->file;
    size_t largest = p->page_bytes;
    for (int32_t k = 0; k < f->n_drafts; k++)
        largest = f->drafts[k].page_bytes > largest ? (size_t)f->drafts[k].page_bytes : largest;
    void *room = mem_alloc(largest);
    int rc = room ? 0 : error_nomem(err, "writing to the cache", largest);
    for (int32_t i = 0; i < f->n_pages && !rc; i++)
        if (j->is_new[i])
            rc = write_page(p, j, i, room, err);
    if (!rc)
        rc = prefix_write_state(p, f->key, j->ids, &j->kept->ck, room, err);
    mem_free(room);
    return rc;
}

static void *writer(void *user)
{
    struct prefix_disk *d = user;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct write_job *j = d->todo;
        if (j) {
            d->todo = j->next;
            if (!d->todo)
                d->todo_end = &d->todo;
            pthread_mutex_unlock(&d->lock);
            skua_error why = {0};
            j->rc = write_files(&d->place, j, &why);
            if (d->on_write)
                d->on_write(d->on_write_user, j->rc ? &why : NULL);
            pthread_mutex_lock(&d->lock);
            j->next = d->done;
            d->done = j;
            pthread_cond_signal(&d->finished);
        } else if (d->stop)
            break;
        else
            pthread_cond_wait(&d->work, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void free_job(struct write_job *j)
{
    if (!j)
        return;
    mem_free(j->ids);
    mem_free(j->is_new);
    mem_free(j);
}

static void finish_job(struct prefix_cache *c, struct write_job *j)
{
    struct prefix_disk *d = c->disk;
    struct prefix_file *f = j->file;
    d->n_jobs--;
    j->kept->writing = false;
    f->ready = !j->rc && !builds_on_lost(f);
    if (!f->ready) {
        for (int32_t i = 0; i < f->n_pages; i++)
            if (j->is_new[i])
                lose_page(d, f->pages[i]);
        c->stats.write_errors++;
        prefix_disk_remove(c, f);
        remove_incomplete(c); /* others that lean on its pages */
    }
    free_job(j);
}

void prefix_disk_collect(struct prefix_cache *c)
{
    struct prefix_disk *d = c->disk;
    pthread_mutex_lock(&d->lock);
    struct write_job *list = d->done;
    d->done = NULL;
    pthread_mutex_unlock(&d->lock);
    for (struct write_job *next; list; list = next) {
        next = list->next;
        finish_job(c, list);
    }
}

void prefix_disk_wait(struct prefix_cache *c, const struct kept *k)
{
    struct prefix_disk *d = c->disk;
    while (k ? k->writing : d->n_jobs > 0) {
        pthread_mutex_lock(&d->lock);
        while (!d->done)
            pthread_cond_wait(&d->finished, &d->lock);
        pthread_mutex_unlock(&d->lock);
        prefix_disk_collect(c);
    }
}

/* The file of a checkpoint, with its pages referenced, not in the index yet, and the job that writes it; *whole: its bytes and theirs.
   NULL: no memory. */
static struct write_job *new_job(struct prefix_disk *d, struct kept *k, size_t *whole)
{
    const struct checkpoint *ck = &k->ck;
    const int32_t n = ck->n_tokens, n_pages = n / KV_PAGE_ROWS + ck->n_all - ck->n_pages;
    struct write_job *j = mem_calloc(1, sizeof *j);
    struct prefix_file *f = mem_calloc(1, sizeof *f);
    struct prefix_key *keys = mem_calloc((size_t)(n / KV_PAGE_ROWS), sizeof *keys);
    bool ok = j && f && keys;
    if (ok) {
        *f = (struct prefix_file){.node = k->node, .n_tokens = n, .n_drafts = ck->n_drafts,
                                  .bytes = prefix_state_file_bytes(&d->place, n, ck->draft_size, ck->n_drafts),
                                  .value = {.clock = d->clock, .worth = k->value.worth}};
        memcpy(f->drafts, ck->drafts, sizeof f->drafts);
        f->pages = mem_calloc((size_t)n_pages, sizeof *f->pages);
        *j = (struct write_job){.kept = k, .file = f, .ids = mem_alloc((size_t)n * sizeof *j->ids),
                                .is_new = mem_calloc((size_t)n_pages, sizeof *j->is_new)};
        ok = f->pages && j->ids && j->is_new;
    }
    *whole = 0;
    if (ok) {
        prefix_node_tokens(k->node, j->ids);
        f->key = prefix_keys(&d->place, j->ids, n, keys);
        *whole = f->bytes;
    }
    for (; ok && f->n_pages < n_pages; f->n_pages++) {
        const int32_t i = f->n_pages;
        const struct disk_page want = wanted_page(d, f, i, keys, j->ids);
        struct disk_page *p = find_page(d, want.key);
        j->is_new[i] = !p;
        if (!p)
            p = add_page(d, want.suffix, want.key, want.bytes);
        if (!(ok = p != NULL))
            break;
        p->n_refs++;
        f->pages[i] = p;
        *whole += p->bytes;
    }
    mem_free(keys);
    if (!ok) {
        if (f)
            free_file(d, f);
        free_job(j);
        return NULL;
    }
    return j;
}

bool prefix_disk_write(struct prefix_cache *c, struct kept *k, bool evict)
{
    struct prefix_disk *d = c->disk;
    size_t whole;
    struct write_job *j = new_job(d, k, &whole);
    if (!j)
        return false;
    const size_t after = d->bytes + d->foreign_bytes + j->file->bytes; /* its new pages count already */
    if (whole > d->budget || (after > d->budget && (!evict || !make_room(c, j->file->bytes)))) {
        free_file(d, j->file);
        free_job(j);
        return false;
    }
    link_file(d, j->file);
    k->writing = true;
    d->n_jobs++;
    pthread_mutex_lock(&d->lock);
    *d->todo_end = j;
    d->todo_end = &j->next;
    pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
    return true;
}

/* ---- reading ---- */

/* The page that prefix_disk_load could not read, and what builds on it. */
static void remove_damaged_page(struct prefix_cache *c, struct disk_page *p)
{
    lose_page(c->disk, p);
    remove_incomplete(c);
}

/* Drafters whose pages have no room, or that are not there any more, do without. */
static int load_drafts(struct prefix_disk *d, const struct prefix_file *f, const int32_t *ids, skua_session *s, struct disk_page **bad,
                       skua_error *err)
{
    int rc = 0;
    int32_t at = n_model_pages(f);
    for (int32_t k = 0; k < f->n_drafts && !rc; at += (int32_t)f->drafts[k++].n_pages) {
        const int32_t n = (int32_t)f->drafts[k].n_pages;
        struct seq *kv = session_draft_refill(s, f->drafts[k].source);
        if (!kv || seq_reserve(kv, n * KV_PAGE_ROWS, NULL))
            continue;
        for (int32_t i = 0; i < n && !rc; i++) {
            rc = prefix_read_draft(&d->place, f->pages[at + i]->key, ids, i, kv, err);
            *bad = rc ? f->pages[at + i] : NULL;
        }
        kv->n_pos = rc ? 0 : n * KV_PAGE_ROWS;
    }
    return rc;
}

int prefix_disk_load(struct prefix_cache *c, struct prefix_file *f, const int32_t *ids, skua_session *s, skua_error *err)
{
    struct prefix_disk *d = c->disk;
    char path[PATH_MAX];
    struct disk_page *bad = NULL;
    int rc = engine_session_reserve(s, f->n_tokens, err);
    const bool room = !rc;
    for (int32_t i = 0; i < n_model_pages(f) && !rc; i++) {
        rc = prefix_read_page(&d->place, f->pages[i]->key, ids, i, s, err);
        bad = rc ? f->pages[i] : NULL;
    }
    if (!rc)
        rc = load_drafts(d, f, ids, s, &bad, err);
    if (!rc)
        rc = prefix_read_state(&d->place, f->key, ids, f->n_tokens, s, err);
    if (!rc) {
        c->stats.loads++;
        f->value.clock = d->clock;
        prefix_path(&d->place, f->key, PREFIX_STATE, path);
        utimensat(AT_FDCWD, path, NULL, 0); /* so that it is the last one to go, after a restart too */
        return 0;
    }
    skua_session_reset(s);
    if (!room || rc == SKUA_ENOMEM)
        return rc;
    c->stats.load_errors++;
    if (bad)
        remove_damaged_page(c, bad);
    else
        prefix_disk_remove(c, f);
    return SKUA_EFORMAT;
}

/* ---- what is there at the beginning ---- */

struct scan {
    struct prefix_cache *c;
    skua_error *err;
    bool states; /* the second time: checkpoints, when all pages are known */
};

/* Kinds of files: pages, then checkpoints, which build on them. */
static const struct file_kind {
    const char *suffix, *magic;
} kinds[] = {{PREFIX_PAGE, STATE_PAGE}, {PREFIX_DRAFT, STATE_DRAFT}, {PREFIX_STATE, STATE_CHECKPOINT}};
enum { KIND_PAGE, KIND_DRAFT, KIND_STATE, N_KINDS };

static int add_foreign(struct prefix_disk *d, const char *name, size_t bytes, int64_t time, skua_error *err)
{
    struct foreign *f = mem_alloc(sizeof *f + strlen(name) + 1), **at = &d->foreign;
    if (!f)
        return error_nomem(err, "name of a file", strlen(name));
    while (*at && (*at)->time < time)
        at = &(*at)->next;
    *f = (struct foreign){.next = *at, .bytes = bytes, .time = time};
    memcpy(f->name, name, strlen(name) + 1);
    *at = f;
    d->foreign_bytes += bytes;
    d->n_foreign++;
    return 0;
}

/* A checkpoint's file goes into the index, if all that it builds on is there. */
static int add_state(struct prefix_cache *c, struct prefix_key key, const struct prefix_head *h, int64_t time, skua_error *err)
{
    struct prefix_disk *d = c->disk;
    const int32_t n = h->n_tokens;
    struct prefix_file found = {.key = key, .n_tokens = n, .n_drafts = h->n_drafts, .bytes = h->size, .ready = true,
                                .value = {.clock = (double)time, .worth = PREFIX_REGULAR}};
    memcpy(found.drafts, h->drafts, sizeof found.drafts);
    const int32_t n_pages = all_pages(&found);
    struct prefix_key *keys = mem_calloc((size_t)(n / KV_PAGE_ROWS), sizeof *keys);
    struct prefix_file *f = mem_calloc(1, sizeof *f);
    found.pages = mem_calloc((size_t)n_pages, sizeof *found.pages);
    int rc = keys && f && found.pages ? 0 : SKUA_ENOMEM;
    if (!rc && !prefix_key_same(prefix_keys(&d->place, h->tokens, n, keys), key))
        rc = SKUA_EFORMAT;
    for (; found.n_pages < n_pages && !rc; found.n_pages++) {
        const struct disk_page want = wanted_page(d, &found, found.n_pages, keys, h->tokens);
        struct disk_page *p = find_page(d, want.key);
        rc = p && p->bytes == want.bytes ? 0 : SKUA_EFORMAT;
        found.pages[found.n_pages] = p;
    }
    found.node = rc ? NULL : prefix_tree_insert(&c->tree, h->tokens, n);
    mem_free(keys);
    if (!found.node) {
        mem_free(f);
        mem_free(found.pages);
        return rc == SKUA_EFORMAT ? error_set(err, rc, "a page is missing") : error_nomem(err, "index of files", sizeof *f);
    }
    *f = found;
    for (int32_t i = 0; i < n_pages; i++)
        f->pages[i]->n_refs++;
    link_file(d, f);
    return 0;
}

static int scan_known(struct scan *s, const char *name, const char *path, int kind, struct prefix_key key, int64_t time)
{
    struct prefix_cache *c = s->c;
    struct prefix_disk *d = c->disk;
    struct prefix_head h;
    int rc = prefix_read_head(&d->place, path, kinds[kind].magic, &h, s->err);
    if (!rc && kind == KIND_STATE)
        rc = add_state(c, key, &h, time, s->err);
    else if (!rc && kind == KIND_PAGE && (h.size != prefix_page_file_bytes(&d->place, h.n_tokens) || h.n_tokens % KV_PAGE_ROWS))
        rc = SKUA_EFORMAT;
    else if (!rc)
        rc = add_page(d, kinds[kind].suffix, key, h.size) ? 0 : error_nomem(s->err, "index of files", h.size);
    mem_free(h.tokens);
    if (!rc || rc == SKUA_ENOMEM)
        return rc;
    if (rc == SKUA_EARG || rc == SKUA_EUNSUPPORTED)
        return add_foreign(d, name, h.size, time, s->err);
    c->stats.load_errors++;
    if (rc == SKUA_EFORMAT)
        prefix_unlink(path);
    return 0;
}

static int scan_name(struct scan *s, const char *name)
{
    static const char temp[] = ".tmp.";
    struct prefix_key key;
    const char *suffix;
    char path[PATH_MAX];
    struct stat st;
    if (!prefix_parse_name(name, &key, &suffix))
        return 0;
    int kind = 0;
    while (kind < N_KINDS && strcmp(suffix, kinds[kind].suffix) != 0)
        kind++;
    snprintf(path, sizeof path, "%s/%s", s->c->disk->place.dir, name);
    if (kind == N_KINDS && strstr(suffix, temp) && !s->states)
        prefix_unlink(path); /* of a program that was ended while it wrote */
    if (kind == N_KINDS || s->states != (kind == KIND_STATE))
        return 0;
    return fault_io() || stat(path, &st) != 0 ? 0 : scan_known(s, name, path, kind, key, (int64_t)st.st_mtime);
}

static int scan_folder(struct prefix_cache *c, bool states, skua_error *err)
{
    struct scan s = {.c = c, .states = states, .err = err};
    DIR *dir = fault_io() ? NULL : opendir(c->disk->place.dir);
    int rc = 0;
    if (!dir)
        return error_set(err, SKUA_EIO, "%s: cannot read the cache's folder: %s", c->disk->place.dir, strerror(errno));
    for (struct dirent *e; !rc && (e = readdir(dir));)
        rc = scan_name(&s, e->d_name);
    closedir(dir);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const struct prefix_file *x = *(struct prefix_file *const *)a, *y = *(struct prefix_file *const *)b;
    return (x->value.clock > y->value.clock) - (x->value.clock < y->value.clock);
}

/* Files start in the order in which they were used. */
static int rank_files(struct prefix_disk *d, skua_error *err)
{
    size_t n = 0;
    struct prefix_file **all = mem_calloc((size_t)d->n_files, sizeof *all);
    if (!all)
        return error_nomem(err, "index of files", (size_t)d->n_files * sizeof *all);
    for (struct prefix_file *f = d->files; f; f = f->next)
        all[n++] = f;
    if (n)
        qsort(all, n, sizeof *all, by_time);
    for (size_t i = 0; i < n; i++)
        all[i]->value.clock = (double)i;
    d->clock = (double)n;
    mem_free(all);
    return 0;
}

static void remove_orphans(struct prefix_disk *d)
{
    for (size_t i = 0; i < TABLE_SLOTS; i++)
        for (struct disk_page *p = d->table[i], *next; p; p = next) {
            next = p->next;
            if (!p->n_refs) {
                lose_page(d, p);
                mem_free(p);
            }
        }
}

static int find_files(struct prefix_cache *c, skua_error *err)
{
    int rc = scan_folder(c, false, err);
    if (!rc)
        rc = scan_folder(c, true, err);
    if (!rc)
        rc = rank_files(c->disk, err);
    if (rc)
        return rc;
    remove_orphans(c->disk);
    make_room(c, 0);
    return 0;
}

/* ---- all of it ---- */

static int lock_folder(struct prefix_disk *d, skua_error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/lock", d->place.dir);
    d->lock_fd = fault_io() ? -1 : open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (d->lock_fd < 0)
        return error_set(err, SKUA_EIO, "%s: cannot open: %s", path, strerror(errno));
    if (fault_io() || flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(err, SKUA_EIO, "%s: the cache's folder is in use by another engine; expected one of this engine's own",
                         d->place.dir);
    return 0;
}

static int start_writer(struct prefix_disk *d, skua_error *err)
{
    const int rc = fault_io() ? EAGAIN : pthread_create(&d->thread, NULL, writer, d);
    d->has_thread = !rc;
    return rc ? error_set(err, SKUA_EIO, "cannot start the cache's writer: %s", strerror(rc)) : 0;
}

static struct prefix_disk *new_disk(const struct prefix_cache *c, const struct prefix_cache_params *p)
{
    const skua_engine *e = c->engine;
    struct prefix_disk *d = mem_calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->place = (struct prefix_place){.dir = mem_strdup(p->disk_dir), .id = state_identity(e), .n_vocab = e->config.n_vocab, .dev = e->dev,
                                     .page_bytes = config_kv_page_bytes(&e->config, e->kv_type),
                                     .state_bytes = config_state_bytes(&e->config)};
    const uint64_t bound[] = {d->place.id.model, d->place.id.kv_type, d->place.id.reference};
    d->place.seed = XXH3_64bits(bound, sizeof bound);
    d->budget = p->disk_bytes ? p->disk_bytes : DISK_BYTES;
    d->on_write = p->on_write;
    d->on_write_user = p->on_write_user;
    d->lock_fd = -1;
    d->todo_end = &d->todo;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->finished, NULL);
    return d;
}

int prefix_disk_open(struct prefix_cache *c, const struct prefix_cache_params *p, skua_error *err)
{
    struct prefix_disk *d = c->disk = new_disk(c, p);
    int rc = d && d->place.dir ? 0 : error_nomem(err, "prefix cache", sizeof *d);
    if (!rc)
        rc = prefix_make_folder(d->place.dir, err);
    if (!rc)
        rc = lock_folder(d, err);
    if (!rc)
        rc = find_files(c, err);
    if (!rc)
        rc = start_writer(d, err);
    if (rc && d)
        prefix_disk_close(c);
    return rc;
}

void prefix_disk_close(struct prefix_cache *c)
{
    struct prefix_disk *d = c->disk;
    if (d->has_thread) {
        prefix_disk_wait(c, NULL);
        pthread_mutex_lock(&d->lock);
        d->stop = true;
        pthread_cond_signal(&d->work);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    for (struct prefix_file *f = d->files, *next; f; f = next) {
        next = f->next;
        mem_free(f->pages);
        mem_free(f);
    }
    for (size_t i = 0; i < TABLE_SLOTS; i++)
        for (struct disk_page *p = d->table[i], *next; p; p = next) {
            next = p->next;
            mem_free(p);
        }
    for (struct foreign *f = d->foreign, *next; f; f = next) {
        next = f->next;
        mem_free(f);
    }
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    pthread_cond_destroy(&d->work);
    pthread_cond_destroy(&d->finished);
    pthread_mutex_destroy(&d->lock);
    mem_free(d->place.dir);
    mem_free(d);
    c->disk = NULL;
}

void prefix_disk_clear(struct prefix_cache *c)
{
    prefix_disk_wait(c, NULL);
    while (c->disk->files)
        prefix_disk_remove(c, c->disk->files);
}

void prefix_disk_stats(const struct prefix_cache *c, struct prefix_cache_stats *out)
{
    const struct prefix_disk *d = c->disk;
    out->n_disk = d->n_files;
    out->disk_bytes = (int64_t)(d->bytes + d->foreign_bytes);
    out->n_foreign = d->n_foreign;
}
