/* The parts of the prefix cache (prefix_cache.h): in memory prefix_cache.c, in files prefix_cache_disk.c, which prefix_cache_files.c writes
 * and reads. */
#ifndef SKUA_ENGINE_PREFIX_CACHE_INTERNAL_H
#define SKUA_ENGINE_PREFIX_CACHE_INTERNAL_H

#include <pthread.h>

#include "engine/checkpoint.h"
#include "engine/prefix_cache.h"
#include "engine/prefix_cache_tree.h"
#include "engine/state_file.h"

#define PREFIX_GHOSTS 64 /* evicted beginnings that are remembered */

/* How much something is worth keeping: when it was used last, in terms of what had to go since, and what it takes to compute it again for
   the room that it takes. What is worth least goes first, and what is kept or used starts from there (greedy-dual-size). */
struct prefix_value {
    double clock;
    enum prefix_worth worth;
};
double prefix_priority(const struct prefix_value *v, int32_t n_tokens, double bytes, double unit);

/* A checkpoint in memory. */
struct kept {
    struct checkpoint ck;
    struct prefix_node *node;
    struct kept *next, *previous;
    struct prefix_value value;
    bool writing; /* the writer reads it */
};

/* The name of a beginning's file. */
struct prefix_key {
    uint64_t low, high;
};

/* A file with a full page, of the model or of a drafter; several checkpoints' files build on it. */
struct disk_page {
    struct disk_page *next; /* in its chain of the table */
    struct prefix_key key;
    const char *suffix;     /* of its name */
    size_t bytes;
    int32_t n_refs;
    bool gone;              /* found damaged or not written: no longer in the table */
};

/* A checkpoint's file, with the page files that it builds on. */
struct prefix_file {
    struct prefix_node *node;
    struct prefix_file *next, *previous;
    struct prefix_key key;
    struct disk_page **pages; /* [n_pages] full ones: n_tokens / KV_PAGE_ROWS of the model, then those of drafts[0], drafts[1] ... */
    int32_t n_tokens, n_pages;
    struct draft_pages drafts[SKUA_DRAFT_SOURCES];
    int32_t n_drafts;
    size_t bytes;
    struct prefix_value value;
    bool ready;               /* written; may be read */
};

struct prefix_disk;

struct prefix_cache {
    skua_engine *engine;
    size_t ram_bytes;
    int32_t every;
    struct prefix_tree tree;
    struct kept *kept;
    size_t kept_bytes;         /* of checkpoints, without pages */
    struct checkpoint_keepers keepers; /* of their pages */
    double clock;              /* of memory */
    uint64_t now, changes;     /* counts uses; counts calls that may have changed what is kept */
    struct prefix_node *ghosts[PREFIX_GHOSTS]; /* nodes with evicted set, the oldest first */
    int32_t n_ghosts;
    struct prefix_disk *disk;  /* NULL: no files */
    struct prefix_cache_stats stats;     /* the counts of the engine's thread */
    pthread_mutex_t lock;      /* of published */
    struct prefix_cache_stats published;
};

/* A node lost its checkpoint to make room: it is remembered for a while. */
void prefix_cache_ghost(struct prefix_cache *c, struct prefix_node *node);

/* ---- files; on the engine's thread ---- */

int  prefix_disk_open(struct prefix_cache *c, const struct prefix_cache_params *p, skua_error *err); /* finds what is there */
void prefix_disk_close(struct prefix_cache *c); /* waits until all is written */

/* Have a checkpoint written: it gets a file, which is ready later, and stays until then (kept.writing). evict: others may have to go for
   it. False: it has no room, or no memory. */
bool prefix_disk_write(struct prefix_cache *c, struct kept *k, bool evict);
void prefix_disk_collect(struct prefix_cache *c);                /* what the writer has done since */
void prefix_disk_wait(struct prefix_cache *c, const struct kept *k); /* until it is written; NULL: all are */

/* Fill an empty session. SKUA_EFORMAT: a file was damaged, it is removed with all that builds on it; SKUA_ENOMEM. The session is empty
   then. */
int  prefix_disk_load(struct prefix_cache *c, struct prefix_file *f, const int32_t *ids, skua_session *s, skua_error *err);
void prefix_disk_remove(struct prefix_cache *c, struct prefix_file *f); /* a ready one, with the pages that nobody else builds on */
void prefix_disk_clear(struct prefix_cache *c);
void prefix_disk_stats(const struct prefix_cache *c, struct prefix_cache_stats *out);

#endif
