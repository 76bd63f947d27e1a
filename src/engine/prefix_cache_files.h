/* The files of the prefix cache, one at a time: their names, writing, reading. Functions here know no index and no budget. A checkpoint is
 * a file KEY.state and, for each full page of its KV cache, KEY.kv, which checkpoints with the same tokens up to there share. KEY is a hash
 * of these tokens and of what the state is bound to; it only finds files: each holds its tokens, and they are compared. */
#ifndef SKUA_ENGINE_PREFIX_CACHE_FILES_H
#define SKUA_ENGINE_PREFIX_CACHE_FILES_H

#include <limits.h>

#include "engine/prefix_cache_internal.h"

#define PREFIX_STATE ".state"
#define PREFIX_PAGE ".kv"

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
bool prefix_key_same(struct prefix_key a, struct prefix_key b);
void prefix_path(const struct prefix_place *p, struct prefix_key key, const char *suffix, char path[PATH_MAX]);
bool prefix_parse_name(const char *name, struct prefix_key *key, const char **suffix); /* false: not KEY and a suffix */

/* What files have: a page that ends behind n_tokens, a checkpoint. */
size_t prefix_page_file_bytes(const struct prefix_place *p, int32_t n_tokens);
size_t prefix_state_file_bytes(const struct prefix_place *p, int32_t n_tokens, size_t draft_size);

/* Write a full page, number i, and a checkpoint; ids: from position 0. room: page_bytes. */
int prefix_write_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, struct kern_buf *page, void *room,
                      skua_error *err);
int prefix_write_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, const struct checkpoint *ck, void *room,
                       skua_error *err);

/* Fill an empty session's page i, or all of the rest. Errors as in state_file.h; SKUA_EIO: the file cannot be opened. */
int prefix_read_page(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t i, skua_session *s, skua_error *err);
int prefix_read_state(const struct prefix_place *p, struct prefix_key key, const int32_t *ids, int32_t n, skua_session *s, skua_error *err);

/* What a file says of itself at its beginning: its tokens' number, and for a checkpoint (tokens not NULL) its tokens (the caller's,
   mem_free). */
int prefix_read_head(const struct prefix_place *p, const char *path, const char *magic, int32_t *n_tokens, int32_t **tokens, size_t *size,
                     skua_error *err);

/* Remove a file, if that can be done. */
void prefix_unlink(const char *path);
int  prefix_make_folder(const char *dir, skua_error *err); /* with its parents */

#endif
