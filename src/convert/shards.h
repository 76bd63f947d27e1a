/* One model in several files, and back. Shard k of n is PREFIX-0000k-of-0000n.gguf; the first has all keys, each has a part of the tensors,
   in the order of the whole. Merging the shards of a file that this program wrote gives that file again, byte for byte. */
#ifndef SKUA_CONVERT_SHARDS_H
#define SKUA_CONVERT_SHARDS_H

#include "convert/stream.h"

struct shard_limits { /* of one shard; 0: no limit */
    uint64_t max_bytes; /* of its file. A tensor that is larger by itself gets a shard of its own, as do the keys */
    uint32_t max_tensors;
};

struct shard_plan {
    uint32_t n;
    struct shard_part {
        uint32_t begin, end; /* tensors */
        uint64_t bytes;      /* of the file */
    } *parts;
};

/* Which tensors go where. SKUA_ELIMIT for more than GGUF_MAX_SHARDS parts; SKUA_ENOMEM. The caller frees the plan. */
int shards_plan(const struct gguf *g, struct shard_limits limits, struct shard_plan *plan, skua_error *err);
void shards_plan_free(struct shard_plan *plan); /* zeroed allowed */

/* The name of shard `no` (from 0), the caller's (mem_free); NULL: out of memory. */
char *shards_path(const char *prefix, uint32_t no, uint32_t count);

/* Write all shards of a plan. Files that are there already are not touched: SKUA_EARG. After a failure none of them is there. */
int shards_split(const struct gguf *g, const struct shard_plan *plan, const char *prefix, struct stream *s, skua_error *err);

/* Write all of g as one file. */
int shards_merge(const struct gguf *g, const char *path, struct stream *s, skua_error *err);

#endif
