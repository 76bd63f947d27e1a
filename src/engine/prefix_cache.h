/* What earlier sessions evaluated, for later ones that begin the same: checkpoints of recurrent state at places where conversations part,
 * with the KV pages before them, which sessions share (a page is copied when a session writes behind a shared part of it). A hit gives the
 * bits that evaluating would. In memory up to a budget, and in files (checksummed, replaced atomically, bound to model, KV type and
 * precision) up to another; files are found again after a restart.
 *
 * Used by the engine's thread, except prefix_cache_stats. */
#ifndef SKUA_ENGINE_PREFIX_CACHE_H
#define SKUA_ENGINE_PREFIX_CACHE_H

#include "skua.h"

struct prefix_cache;

struct prefix_cache_params {
    size_t ram_bytes;         /* most memory of checkpoints and of pages that no session holds; 0: nothing is kept in memory */
    const char *disk_dir;     /* NULL: no files. Made if missing */
    size_t disk_bytes;        /* most bytes of files; 0: 16 GiB */
    int32_t every;            /* a checkpoint at each so many tokens of a long evaluation; 0: 2048 */
};

/* An empty cache that knows the files in its folder. SKUA_EIO: the folder cannot be used. */
int  prefix_cache_create(skua_engine *e, const struct prefix_cache_params *p, struct prefix_cache **out, skua_error *err);
void prefix_cache_free(struct prefix_cache *c); /* NULL allowed; before the engine. What is worth it is written to files first */

enum prefix_tier { PREFIX_RAM, PREFIX_DISK };

/* What was found for a prompt. */
struct prefix_hit {
    int32_t n_tokens;           /* the session holds so many of the prompt's tokens now */
    enum prefix_tier tier;
    const char *miss_reason;    /* as batch_start's, except "disabled" */
    int32_t diverged_at;        /* the longest common beginning with anything known, when shorter than the prompt; else -1 */
    int32_t diverged_from[16];  /* the known sequence's tokens from there */
    int32_t n_diverged_from;
};

/* Bring an empty session to the longest kept beginning of ids[0, n) of at most n - 1 tokens. A damaged file counts as none and is removed.
   Errors are the session's (SKUA_ENOMEM): it is empty then, and the caller may go on without. */
int prefix_cache_take(struct prefix_cache *c, skua_session *s, const int32_t *ids, int32_t n, struct prefix_hit *hit, skua_error *err);

/* Tokens of the longest kept beginning of ids[0, n) that memory holds, at most n - 1; a look, nothing is used or moved. */
int32_t prefix_cache_resident(const struct prefix_cache *c, const int32_t *ids, int32_t n);

/* Keep a checkpoint of the session as it is (settled). worth: how likely it is to be asked for again. Replaces nothing that is longer; what
   does not fit the budget is not kept, silently. SKUA_ENOMEM is no reason to stop either. */
enum prefix_worth { PREFIX_PASSING, PREFIX_REGULAR, PREFIX_BORDER /* a mark, the end of a prompt or an answer */ };
int prefix_cache_keep(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth, skua_error *err);

/* The next place behind n_done, at most n_total, at which the evaluation of a prompt should pause for prefix_cache_keep: a mark, a multiple
   of `every`, or n_total. */
int32_t prefix_cache_next(const struct prefix_cache *c, int32_t n_done, int32_t n_total, const int32_t *marks, int32_t n_marks);

void prefix_cache_flush(struct prefix_cache *c); /* write what only memory holds to files */
void prefix_cache_clear(struct prefix_cache *c, bool ram, bool disk);

struct prefix_cache_stats {
    int64_t n_ram, n_disk, ram_bytes, disk_bytes, saves, loads, evictions_ram, evictions_disk, load_errors, kv_tokens_shared;
};
void prefix_cache_get_stats(struct prefix_cache *c, struct prefix_cache_stats *out); /* from any thread */

#endif
