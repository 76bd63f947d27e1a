/* Remembered calls; see replay.h. A hash table of chains, and a list by age. Calls are constant once they are in, and counted by
 * references, so that a file can be written without holding up anybody.
 *
 * The file: a header, the calls from the oldest on, and a checksum of all before it: XXH3 of one piece (header, head of a call, bytes of a
 * call) after the other, each seeded with the one before. Numbers are little-endian.
 *
 * The journal: calls as in the file, each with a checksum of its own behind it. */
#include "api/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define MAGIC "SKUACALL"
#define VERSION 1u

struct header {
    char magic[8];
    uint32_t version, reserved;
    uint64_t n_calls, file_bytes;
};

/* In the file, before the bytes of id, name and text. */
struct call_head {
    uint32_t n_id, n_name;
    uint64_t n_text;
    uint64_t arguments[2]; /* hash */
};
_Static_assert(sizeof(struct header) == 32 && sizeof(struct call_head) == 32, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");

struct call {
    struct call *chain, *older, *newer;
    uint32_t refs, hash;
    struct call_head head;
    char bytes[]; /* id, name, text */
};

struct replay {
    pthread_mutex_t lock;
    size_t max_calls, n_calls, n_bytes, mask;
    uint64_t hits;
    struct call *oldest, *newest;
    int journal;             /* -1: none */
    size_t journal_bytes;    /* of whole calls in it; more may follow after a failure */
    bool journal_failed;     /* nothing is written until the next save */
    struct call *chains[]; /* [mask + 1] */
};

static size_t body_bytes(const struct call_head *h) { return (size_t)h->n_id + h->n_name + (size_t)h->n_text; }

int replay_new(size_t max_calls, struct replay **out, skua_error *err)
{
    size_t n = 16;
    max_calls = max_calls ? max_calls : REPLAY_CALLS;
    while (n < max_calls && n < SIZE_MAX / 64)
        n *= 2;
    struct replay *r = *out = mem_calloc(1, sizeof *r + n * sizeof(struct call *));
    if (!r)
        return error_nomem(err, "table of tool calls", n * sizeof(struct call *));
    pthread_mutex_init(&r->lock, NULL);
    r->journal = -1;
    r->max_calls = max_calls;
    r->mask = n - 1;
    return 0;
}

static void drop(struct call *c)
{
    if (--c->refs == 0)
        mem_free(c);
}

static void unlink_call(struct replay *r, struct call *c)
{
    struct call **at = &r->chains[c->hash & r->mask];
    while (*at != c)
        at = &(*at)->chain;
    *at = c->chain;
    *(c->older ? &c->older->newer : &r->oldest) = c->newer;
    *(c->newer ? &c->newer->older : &r->newest) = c->older;
    r->n_calls--;
    r->n_bytes -= sizeof *c + body_bytes(&c->head);
    drop(c);
}

void replay_free(struct replay *r)
{
    if (!r)
        return;
    while (r->oldest)
        unlink_call(r, r->oldest);
    if (r->journal >= 0)
        close(r->journal);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

static uint32_t hash_id(const char *id, size_t n) { return (uint32_t)XXH3_64bits(id, n); }

static struct call *find(const struct replay *r, const char *id, size_t n, uint32_t hash)
{
    for (struct call *c = r->chains[hash & r->mask]; c; c = c->chain)
        if (c->hash == hash && c->head.n_id == n && memcmp(c->bytes, id, n) == 0)
            return c;
    return NULL;
}

/* c, of which the caller holds the one reference, becomes the newest. */
static void insert(struct replay *r, struct call *c)
{
    size_t bytes = sizeof *c + body_bytes(&c->head);
    struct call *same = find(r, c->bytes, c->head.n_id, c->hash);
    if (same)
        unlink_call(r, same);
    while (r->oldest && (r->n_calls >= r->max_calls || r->n_bytes + bytes > REPLAY_BYTES))
        unlink_call(r, r->oldest);
    c->chain = r->chains[c->hash & r->mask];
    r->chains[c->hash & r->mask] = c;
    c->older = r->newest;
    c->newer = NULL;
    *(r->newest ? &r->newest->newer : &r->oldest) = c;
    r->newest = c;
    r->n_calls++;
    r->n_bytes += bytes;
}

/* A call with room for what head says; NULL: out of memory. */
static struct call *new_call(const struct call_head *head)
{
    struct call *c = mem_alloc(sizeof *c + body_bytes(head));
    if (c) {
        *c = (struct call){.refs = 1};
        c->head = *head;
    }
    return c;
}

/* Equal values have equal hashes: the order of keys does not count. */
static int hash_value(const json_t *v, uint64_t hash[2])
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    if (!text)
        return SKUA_ENOMEM;
    XXH128_hash_t h = XXH3_128bits(text, strlen(text));
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    hash[0] = h.low64;
    hash[1] = h.high64;
    return 0;
}

static uint64_t call_sum(const struct call_head *head, const char *body)
{
    return XXH3_64bits_withSeed(body, body_bytes(head), XXH3_64bits_withSeed(head, sizeof *head, VERSION));
}

/* With the lock: calls stand in the order in which they came. */
static void journal_append(struct replay *r, const struct call *c)
{
    if (r->journal < 0 || r->journal_failed)
        return;
    const size_t body = body_bytes(&c->head);
    const uint64_t sum = call_sum(&c->head, c->bytes);
    r->journal_failed = r->journal_bytes + body > REPLAY_BYTES || !file_write_all(r->journal, &c->head, sizeof c->head) ||
                        !file_write_all(r->journal, c->bytes, body) || !file_write_all(r->journal, &sum, sizeof sum);
    if (!r->journal_failed)
        r->journal_bytes += sizeof c->head + body + sizeof sum;
}

int replay_put(struct replay *r, const char *id, const char *name, const char *arguments, const char *text, size_t n, skua_error *err)
{
    struct call_head head = {.n_id = (uint32_t)strlen(id), .n_name = (uint32_t)strlen(name), .n_text = n};
    json_error_t at;
    bool no_memory;
    if (n > REPLAY_BYTES - sizeof(struct call) - head.n_id - head.n_name)
        return 0;
    json_t *value = json_read(arguments, strlen(arguments), JSON_DECODE_ANY | JSON_ALLOW_NUL, &at, &no_memory);
    if (!value)
        return no_memory ? error_nomem(err, "arguments of a tool call", strlen(arguments))
                         : error_set(err, SKUA_EARG, "arguments of a tool call: not valid JSON: %s", at.text);
    int rc = hash_value(value, head.arguments);
    json_decref(value);
    struct call *c = rc ? NULL : new_call(&head);
    if (!c)
        return error_nomem(err, "tool call to remember", n);
    memcpy(c->bytes, id, head.n_id);
    memcpy(c->bytes + head.n_id, name, head.n_name);
    memcpy(c->bytes + head.n_id + head.n_name, text, n);
    c->hash = hash_id(id, head.n_id);
    pthread_mutex_lock(&r->lock);
    journal_append(r, c);
    insert(r, c);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

bool replay_find(struct replay *r, const char *id, const char *name, const json_t *arguments, struct strbuf *text)
{
    size_t n_id = strlen(id), n_name = strlen(name);
    uint64_t hash[2];
    bool found = false;
    pthread_mutex_lock(&r->lock);
    struct call *c = find(r, id, n_id, hash_id(id, n_id));
    if (c)
        c->refs++;
    pthread_mutex_unlock(&r->lock);
    if (!c)
        return false;
    if (c->head.n_name == n_name && memcmp(c->bytes + n_id, name, n_name) == 0 && arguments && hash_value(arguments, hash) == 0)
        found = memcmp(hash, c->head.arguments, sizeof hash) == 0;
    if (found)
        strbuf_append(text, c->bytes + n_id + n_name, (size_t)c->head.n_text);
    pthread_mutex_lock(&r->lock);
    r->hits += found;
    drop(c);
    pthread_mutex_unlock(&r->lock);
    return found;
}

void replay_get_stats(struct replay *r, size_t *n_calls, uint64_t *hits)
{
    pthread_mutex_lock(&r->lock);
    *n_calls = r->n_calls;
    *hits = r->hits;
    pthread_mutex_unlock(&r->lock);
}

/* ---- files ---- */

struct sum {
    struct file_writer w;
    uint64_t sum;
};

static int put(struct sum *s, const void *p, size_t n, skua_error *err)
{
    s->sum = XXH3_64bits_withSeed(p, n, s->sum);
    return file_writer_write(&s->w, p, n, err);
}

static int write_calls(struct sum *s, struct call *const *calls, size_t n, skua_error *err)
{
    struct header h = {.magic = MAGIC, .version = VERSION, .n_calls = n, .file_bytes = sizeof h + sizeof(uint64_t)};
    for (size_t i = 0; i < n; i++)
        h.file_bytes += sizeof calls[i]->head + body_bytes(&calls[i]->head);
    int rc = put(s, &h, sizeof h, err);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = put(s, &calls[i]->head, sizeof calls[i]->head, err);
        if (!rc)
            rc = put(s, calls[i]->bytes, body_bytes(&calls[i]->head), err);
    }
    return rc ? rc : file_writer_write(&s->w, &s->sum, sizeof s->sum, err);
}

/* References of all calls, oldest first; journaled: the length of the journal, if there is one, when it held no others. */
static int hold_all(struct replay *r, struct call ***calls, size_t *n, size_t *journaled, skua_error *err)
{
    int rc = 0;
    pthread_mutex_lock(&r->lock);
    *n = 0;
    *journaled = r->journal_bytes;
    *calls = mem_alloc(r->n_calls * sizeof **calls);
    if (!*calls)
        rc = error_nomem(err, "tool calls to save", r->n_calls * sizeof **calls);
    for (struct call *c = rc ? NULL : r->oldest; c; c = c->newer) {
        c->refs++;
        (*calls)[(*n)++] = c;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

int replay_save(struct replay *r, const char *path, skua_error *err)
{
    struct sum s = {.sum = 0};
    struct call **calls;
    size_t n, journaled;
    int rc = hold_all(r, &calls, &n, &journaled, err);
    if (rc)
        return rc;
    rc = file_writer_open(&s.w, path, err);
    if (!rc) {
        rc = write_calls(&s, calls, n, err);
        if (!rc)
            rc = file_writer_commit(&s.w, err);
        if (rc)
            file_writer_abort(&s.w);
    }
    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < n; i++)
        drop(calls[i]);
    /* With calls that came meanwhile all whole ones stay: what both files hold does no harm. */
    const size_t left = r->journal_bytes == journaled ? 0 : r->journal_bytes;
    if (!rc && r->journal >= 0 && !ftruncate(r->journal, (off_t)left)) {
        r->journal_bytes = left;
        r->journal_failed = false;
    }
    pthread_mutex_unlock(&r->lock);
    mem_free(calls);
    return rc;
}

static int damaged(const char *path, const char *what, skua_error *err)
{
    return error_set(err, SKUA_EFORMAT, "%s: %s", path, what);
}

/* The calls of a file as a list from the oldest on (newer). data: between header and checksum; sum: the header's. */
static int read_calls(const char *path, const char *data, size_t size, uint64_t n, uint64_t sum, struct call **first, skua_error *err)
{
    struct call **last = first;
    size_t at = 0;
    for (uint64_t i = 0; i < n; i++) {
        struct call_head head;
        if (size - at < sizeof head)
            return damaged(path, "a call goes beyond the end of the file", err);
        memcpy(&head, data + at, sizeof head);
        at += sizeof head;
        if (head.n_text > size || body_bytes(&head) > size - at)
            return damaged(path, "a call goes beyond the end of the file", err);
        struct call *c = *last = new_call(&head);
        if (!c)
            return error_nomem(err, "remembered tool call", body_bytes(&head));
        memcpy(c->bytes, data + at, body_bytes(&head));
        c->hash = hash_id(c->bytes, head.n_id);
        sum = XXH3_64bits_withSeed(&head, sizeof head, sum);
        sum = XXH3_64bits_withSeed(c->bytes, body_bytes(&head), sum);
        at += body_bytes(&head);
        last = &c->newer;
    }
    if (at != size)
        return damaged(path, "there is something behind the last call", err);
    return memcmp(data + size, &sum, sizeof sum) == 0 ? 0 : damaged(path, "the checksum is wrong: the file is damaged", err);
}

static int check_header(const char *path, const char *data, size_t size, struct header *h, skua_error *err)
{
    if (size < sizeof *h + sizeof(uint64_t) || memcmp(data, MAGIC, 8) != 0)
        return damaged(path, "not a file of remembered tool calls", err);
    memcpy(h, data, sizeof *h);
    if (h->version != VERSION)
        return error_set(err, SKUA_EFORMAT, "%s: version %u of the format, expected %u", path, (unsigned)h->version, VERSION);
    if (h->file_bytes != size)
        return error_set(err, SKUA_EFORMAT, "%s: %zu bytes long, expected %llu: cut or damaged", path, size,
                         (unsigned long long)h->file_bytes);
    return 0;
}

/* Add a list of calls, or drop them. */
static void take(struct replay *r, struct call *first, bool good)
{
    pthread_mutex_lock(&r->lock);
    for (struct call *c = first, *next; c; c = next) {
        next = c->newer;
        if (good)
            insert(r, c);
        else
            drop(c);
    }
    pthread_mutex_unlock(&r->lock);
}

int replay_load(struct replay *r, const char *path, skua_error *err)
{
    struct call *first = NULL;
    struct header h = {0};
    char *data;
    size_t size;
    int rc = file_read_all(path, 2 * REPLAY_BYTES, &data, &size, err);
    if (rc)
        return rc;
    rc = check_header(path, data, size, &h, err);
    if (!rc)
        rc = read_calls(path, data + sizeof h, size - sizeof h - sizeof(uint64_t), h.n_calls,
                        XXH3_64bits_withSeed(&h, sizeof h, 0), &first, err);
    mem_free(data);
    take(r, first, !rc);
    return rc;
}

/* The calls of a journal up to the first that is not whole, as a list from the oldest on (newer), and how many bytes they take. */
static int read_journal(const char *data, size_t size, struct call **first, size_t *n_bytes, skua_error *err)
{
    struct call **last = first;
    uint64_t sum;
    *n_bytes = 0;
    for (size_t left = size; left >= sizeof(struct call_head) + sizeof sum; left = size - *n_bytes) {
        struct call_head head;
        const char *body = data + *n_bytes + sizeof head;
        memcpy(&head, data + *n_bytes, sizeof head);
        if (head.n_text > left || body_bytes(&head) > left - sizeof head - sizeof sum)
            return 0;
        memcpy(&sum, body + body_bytes(&head), sizeof sum);
        if (sum != call_sum(&head, body))
            return 0;
        struct call *c = *last = new_call(&head);
        if (!c)
            return error_nomem(err, "remembered tool call", body_bytes(&head));
        memcpy(c->bytes, body, body_bytes(&head));
        c->hash = hash_id(c->bytes, head.n_id);
        last = &c->newer;
        *n_bytes += sizeof head + body_bytes(&head) + sizeof sum;
    }
    return 0;
}

static int journal_error(const char *path, const char *what, skua_error *err)
{
    return error_set(err, SKUA_EIO, "%s: cannot %s: %s", path, what, strerror(errno));
}

int replay_journal(struct replay *r, const char *path, skua_error *err)
{
    struct call *first = NULL;
    char *data = NULL;
    size_t size = 0, n_bytes = 0;
    const int fd = fault_io() ? -1 : open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        return journal_error(path, "open", err);
    int rc = file_read_all(path, 2 * REPLAY_BYTES, &data, &size, err);
    if (!rc)
        rc = read_journal(data, size, &first, &n_bytes, err);
    mem_free(data);
    if (!rc && n_bytes < size && ftruncate(fd, (off_t)n_bytes))
        rc = journal_error(path, "cut", err);
    take(r, first, !rc);
    if (rc) {
        close(fd);
        return rc;
    }
    pthread_mutex_lock(&r->lock);
    if (r->journal >= 0)
        close(r->journal);
    r->journal = fd;
    r->journal_bytes = n_bytes;
    r->journal_failed = false;
    pthread_mutex_unlock(&r->lock);
    return 0;
}
