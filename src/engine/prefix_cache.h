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
    size_t ram_bytes;         /* most memory of checkpoints and of pages that no session holds, each page counted once; 0: nothing is kept
                                 in memory but the one checkpoint that is being written. What comes to be the cache's alone because a
                                 session lets go of it counts at once, but makes room only at the next call */
    const char *disk_dir;     /* NULL: no files. Made if missing, with its parents; one engine at a time may use it */
    size_t disk_bytes;        /* most bytes of files; 0: 16 GiB */
    int32_t every;            /* a checkpoint at each so many tokens of a long evaluation; 0: 2048 */
    /* NULL, or told of each checkpoint that was written to files (failed NULL) or could not be; by the thread that writes, one at a time */
    void (*on_write)(void *user, const skua_error *failed);
    void *on_write_user;
};

/* An empty cache that knows the files in its folder. SKUA_EIO: the folder cannot be used. */
int  prefix_cache_create(skua_engine *e, const struct prefix_cache_params *p, struct prefix_cache **out, skua_error *err);
void prefix_cache_free(struct prefix_cache *c); /* NULL allowed; before the engine. It is flushed first. Sessions may live on */

enum prefix_tier { PREFIX_RAM, PREFIX_DISK };

/* What was found for a prompt. */
struct prefix_hit {
    int32_t n_tokens;           /* the session holds so many of the prompt's tokens now */
    enum prefix_tier tier;
    /* Why the rest is to be evaluated, that is, most of it. "": there is none but the last token. Tokens that are known, but have no
       checkpoint behind them: "evicted" if one had to make room, else "no_checkpoint". Tokens that nobody has seen: "diverged" if another
       sequence is known from there, "different_model" if nothing is known, but there are files of another model, KV type or precision,
       else "cold". */
    const char *miss_reason;
    int32_t diverged_at;        /* the longest beginning known, when something else is known behind it; -1: nothing is, or no beginning */
    int32_t diverged_from[16];  /* the known sequence's tokens from there (the one used last) */
    int32_t n_diverged_from;
};

/* Bring an empty session to the longest kept beginning of ids[0, n) of at most n - 1 tokens. A damaged file counts as none and is removed.
   SKUA_ESTATE: the session is not empty. SKUA_ENOMEM: it is empty, and the caller may go on without. *hit is filled in every case. */
int prefix_cache_take(struct prefix_cache *c, skua_session *s, const int32_t *ids, int32_t n, struct prefix_hit *hit, skua_error *err);

/* Tokens of the longest kept beginning of ids[0, n) that memory holds, at most n - 1; a look, nothing is used or moved. */
int32_t prefix_cache_resident(struct prefix_cache *c, const int32_t *ids, int32_t n);

/* The checkpoints of beginnings of ids[0, n), the longest first, at most max; returns how many. It takes as long as comparing the tokens;
   the answer can change only when prefix_cache_changes does, whose value is never 0. */
struct prefix_checkpoint {
    int32_t n_tokens;
    int64_t bytes;              /* in memory, without pages; else of its file */
    bool ram, disk;
};
int32_t  prefix_cache_list(struct prefix_cache *c, const int32_t *ids, int32_t n, struct prefix_checkpoint *out, int32_t max);
uint64_t prefix_cache_changes(const struct prefix_cache *c);

/* Keep a checkpoint of the session as it is (settled: SKUA_ESTATE); nothing is done when there is one, or one of a token less. It costs a
   copy of the recurrent state and of what drafters keep apart from full pages, and the session a copy of its last page when it goes on.
   worth: how likely it is to be asked for again; PREFIX_PASSING goes to a file only when the cache is flushed or freed, the others at once,
   by a thread of the cache's. Replaces nothing that is longer; what does not fit the budget is not kept, silently. SKUA_ENOMEM is no reason
   to stop either. */
enum prefix_worth { PREFIX_PASSING, PREFIX_REGULAR, PREFIX_BORDER /* a mark, the end of a prompt or an answer */, PREFIX_N_WORTHS };
int prefix_cache_keep(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth, skua_error *err);

/* The next place behind n_done, at most n_total, at which the evaluation of a prompt should pause for prefix_cache_keep: a mark, a multiple
   of `every`, or the prompt's end: n_total - 1, where the same prompt finds it again, unless a mark lies in the last PREFIX_NEAR tokens;
   n_total when there is none of these. */
#define PREFIX_NEAR 64
int32_t prefix_cache_next(const struct prefix_cache *c, int32_t n_done, int32_t n_total, const int32_t *marks, int32_t n_marks);

void prefix_cache_trim(struct prefix_cache *c);  /* make room for what sessions have let go of; take and keep do it too */
void prefix_cache_flush(struct prefix_cache *c); /* write what only memory holds to files, as far as these have room; wait for it */
void prefix_cache_clear(struct prefix_cache *c, bool ram, bool disk); /* files of other models stay */

struct prefix_cache_stats {
    int64_t n_ram, n_disk;                 /* checkpoints; each in both counts in both */
    int64_t ram_bytes, disk_bytes;         /* what the budgets bound */
    int64_t index_bytes;                   /* tokens of all known sequences; on top of ram_bytes */
    int64_t kv_tokens_shared;              /* positions in pages that are kept and that sessions hold */
    int64_t saves[PREFIX_N_WORTHS], loads; /* checkpoints kept so far, checkpoints read from files */
    int64_t evictions_ram, evictions_disk;
    int64_t load_errors, write_errors;     /* damaged files, files that could not be written */
    int64_t n_foreign;                     /* files of other models, KV types, precisions or versions; they make room first */
};
void prefix_cache_get_stats(struct prefix_cache *c, struct prefix_cache_stats *out); /* from any thread */

#endif
