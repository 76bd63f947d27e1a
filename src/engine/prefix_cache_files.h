/* The files of the prefix cache, one at a time: their names, writing, reading. Functions here know no index and no budget. A checkpoint is
 * a file KEY.state and, for each full page of its KV cache, KEY.kv, which checkpoints with the same tokens up to there share; and so
 * KEY.draft for the full pages of drafters' own caches. KEY is a hash of these tokens and of what the state is bound to; it only finds
 * files: each holds its tokens, and they are compared (of a drafter's page, which no answer depends on, only its own). */
#ifndef SKUA_ENGINE_PREFIX_CACHE_FILES_H
#define SKUA_ENGINE_PREFIX_CACHE_FILES_H

#include <limits.h>

#include "engine/prefix_cache_internal.h"

#define PREFIX_STATE ".state"
#define PREFIX_PAGE ".kv"
#define PREFIX_DRAFT ".draft"
#define PREFIX_DRAFT_TOKENS (KV_PAGE_ROWS + 1) /* that a drafter's page has, with the one behind */

/* Where the files are and what they are bound to. */
struct prefix_place {
    char *dir;
    struct state_identity id;
    uint64_t seed;             /* of keys */
    size_t page_bytes, state_bytes;
    int32_t n_vocab;
    struct dev *dev;
};

/* Keys of the full pages of ids[0, n), [n / KV_PAGE_ROWS], and of all n tokens. */
struct prefix_key prefix_keys(const struct prefix_place *p, const int32_t *ids, int32_t n, struct prefix_key *pages);
/* Of the page of a drafter's cache that stands beside the page of that key; next: the token behind it. */
struct prefix_key prefix_draft_key(uint64_t source, struct prefix_key page, int32_t next);
bool prefix_key_same(struct prefix_key a, struct prefix_key b);
void prefix_path(const struct prefix_place *p, struct prefix_key key, const char *suffix, char path[PATH_MAX]);
bool prefix_parse_name(const char *name, struct prefix_key *key, const char **suffix); /* false: not KEY and a suffix */

/* What files have: a page that ends behind n_tokens, a drafter's page, a checkpoint that builds on pages of n_drafts drafters. */
size_t prefix_page_file_bytes(const struct prefix_place *p, int32_t n_tokens);
size_t prefix_draft_file_bytes(size_t page_bytes);
size_t prefix_state_file_bytes(const struct prefix_place *p, int32_t n_tokens, size_t draft_size, int32_t n_drafts);

/* Write a full page, number i, of the model or a drafter, and a checkpoint; ids: from position 0. room: the page's bytes. */
int prefix_write_draft(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct kern_buf *page,
                       void *room, skua_error *err);
int prefix_write_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct kern_buf *page, void *room,
                      skua_error *err);
int prefix_write_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, const struct checkpoint *ck, void *room,
                       skua_error *err);

/* Fill an empty session's page i, page i of a drafter's cache, or all of the rest. Errors as in state_file.h; SKUA_EIO: the file
   cannot be opened. */
int prefix_read_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, skua_session *s, skua_error *err);
int prefix_read_draft(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct seq *kv, skua_error *err);
int prefix_read_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t n, skua_session *s, skua_error *err);

/* What a file says of itself at its beginning. */
struct prefix_head {
    size_t size;
    int32_t n_tokens;
    int32_t *tokens;           /* of a checkpoint: the caller's, mem_free */
    struct draft_pages drafts[SKUA_DRAFT_SOURCES]; /* [n_drafts], of a checkpoint */
    int32_t n_drafts;
};
int prefix_read_head(const struct prefix_place *p, const char *path, const char *magic, struct prefix_head *out, skua_error *err);

/* Remove a file, if that can be done. */
void prefix_unlink(const char *path);
int  prefix_make_folder(const char *dir, skua_error *err); /* with its parents */

#endif
