/* The container of saved states: a header, then named sections, each with a checksum (XXH3). Session files and the prefix cache's files are
 * such. Numbers are little-endian. The header says which model, KV cache type and precision the states are of; the model is told by a hash
 * of its keys, its tensor table, its sizes and the first bytes of each tensor. */
#ifndef SKUA_ENGINE_STATE_FILE_H
#define SKUA_ENGINE_STATE_FILE_H

#include "base/file.h"
#include "engine/engine.h"

#define STATE_SESSION "SKUASESS"    /* a session: tokens, state, a kv section per page, what drafters keep */
#define STATE_CHECKPOINT "SKUACKPT" /* prefix cache: tokens, perhaps drafters' pages it builds on, state, the last KV page if it is not
                                       full, what drafters keep */
#define STATE_PAGE "SKUAPAGE"       /* prefix cache: the tokens up to its end, a full KV page */
#define STATE_DRAFT "SKUADRFT"      /* prefix cache: the tokens of a page and the one behind it, a full KV page of a drafter's own */
#define STATE_VERSION 1u

struct state_header {
    char magic[8];
    uint32_t version, kv_type, reference; /* reference: the precision */
    int32_t n_tokens, n_ctx;
    uint32_t n_sections;
    uint64_t model, file_bytes;
    uint64_t checksum; /* of all before it */
};

struct state_section {
    char name[16]; /* padded with zeros */
    uint64_t size, checksum, head_checksum; /* the last one of all before it */
};

/* What a state is bound to. */
struct state_identity {
    uint64_t model;
    uint32_t kv_type, reference;
    const char *path; /* of the model, for messages */
};
struct state_identity state_identity(const skua_engine *e); /* reads all keys of the file: milliseconds for a large vocabulary */

/* Bytes of a file of n_sections whose data are so many bytes. */
static inline uint64_t state_file_bytes(uint32_t n_sections, uint64_t data)
{
    return sizeof(struct state_header) + n_sections * sizeof(struct state_section) + data;
}

/* The parts of a file, in order; n_tokens, n_ctx: what it holds, and for how long a context (at least as many). */
int state_write_header(struct file_writer *w, const struct state_identity *id, const char *magic, int32_t n_tokens, int32_t n_ctx,
                       uint32_t n_sections, uint64_t file_bytes, skua_error *err);
int state_write_section(struct file_writer *w, const char *name, const void *data, size_t size, skua_error *err);

/* A file in memory. Errors name path; SKUA_EFORMAT: not such a file, or damaged; SKUA_EUNSUPPORTED: version; SKUA_EARG: of something
   else. */
struct state_reader {
    const char *path;
    const uint8_t *data;
    size_t size, at;
    skua_error *err;
};
int state_damaged(const struct state_reader *r, const char *what);
int state_read_header(struct state_reader *r, const struct state_identity *id, const char *magic, struct state_header *h);
int state_read_section(struct state_reader *r, struct state_section *head, const uint8_t **data); /* the data stays in the file's memory */
int state_read_expected(struct state_reader *r, const char *name, size_t size, const uint8_t **data);
int state_read_tokens(struct state_reader *r, int32_t n, int32_t n_vocab, const uint8_t **data);

#endif
