/* GGUF writer: version 3, one file, metadata first and tensor data streamed behind it.
 *
 *   struct gguf_writer *w;
 *   gguf_writer_new(&w, GGUF_DEFAULT_ALIGNMENT, err);
 *   gguf_writer_add_string(w, "general.architecture", "qwen35", 6, err);      keys, in the order of the file
 *   gguf_writer_add_tensor(w, "token_embd.weight", QTYPE_Q8_0, 2, ne, err);   all tensors, in the order of the file
 *   gguf_writer_begin(w, "out.gguf", err);                                    header, keys and infos are written
 *   gguf_writer_data(w, "token_embd.weight", bytes, n, err);                  data in the same order, in pieces of any size
 *   gguf_writer_finish(w, err);                                               checks completeness, syncs, renames
 *   gguf_writer_free(w);                                                      removes the unfinished file, if any
 *
 * What is written: `general.architecture` first wherever it was added, then `general.alignment` if it is not the default
 * (unless it is copied with other keys), then the keys in order; offsets exactly contiguous, zero padding between tensors
 * and after the last one, dimensions without trailing ones but at least one. The file appears under its name only after
 * gguf_writer_finish.
 *
 * Every function returns 0 or a negative error: SKUA_EARG for what the format does not allow (the message names the key or
 * tensor), SKUA_ELIMIT past the format's counts, SKUA_ESTATE for calls out of order, SKUA_ENOMEM, SKUA_EIO. A failed add
 * changes nothing. After a failed write only gguf_writer_free is useful.
 */
#ifndef SKUA_GGUF_GGUF_WRITE_H
#define SKUA_GGUF_GGUF_WRITE_H

#include "gguf/gguf.h"

struct gguf_writer;

/* alignment: of tensor data, a power of two. */
int gguf_writer_new(struct gguf_writer **w, uint32_t alignment, skua_error *err);
void gguf_writer_free(struct gguf_writer *w); /* NULL allowed */

/* ---- keys: lower-case ASCII letters, digits, '_', '.', '-'; each once; not general.alignment ---- */

/* Strings may hold any bytes. */
int gguf_writer_add_u32(struct gguf_writer *w, const char *key, uint32_t v, skua_error *err);
int gguf_writer_add_f32(struct gguf_writer *w, const char *key, float v, skua_error *err);
int gguf_writer_add_bool(struct gguf_writer *w, const char *key, bool v, skua_error *err);
int gguf_writer_add_string(struct gguf_writer *w, const char *key, const char *s, size_t len, skua_error *err);
/* Any other scalar: v points at a value of the C type (uint8_t ... int64_t, float, double; bool as uint8_t). */
int gguf_writer_add_scalar(struct gguf_writer *w, const char *key, enum gguf_type type, const void *v, skua_error *err);
/* items: count values of the C type as above, not strings. */
int gguf_writer_add_array(struct gguf_writer *w, const char *key, enum gguf_type type, const void *items, size_t count,
                          skua_error *err);
int gguf_writer_add_strings(struct gguf_writer *w, const char *key, const struct gguf_string *items, size_t count,
                            skua_error *err);

/* Copy the keys of an open file, byte for byte, in its order. Left out: keys that the writer already has, those for which
   skip(context, key) is true (skip may be NULL), general.alignment if it is not the writer's, and the three split keys. */
typedef bool gguf_skip_fn(void *context, struct gguf_string key);
int gguf_writer_copy_keys(struct gguf_writer *w, const struct gguf *from, gguf_skip_fn *skip, void *context, skua_error *err);

/* ---- tensors ---- */

/* n_dims 1..4, ne as in struct gguf_tensor. Names 1..63 bytes, each once. */
int gguf_writer_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims, const uint64_t *ne,
                           skua_error *err);
/* What finish will have written in all, in bytes. */
uint64_t gguf_writer_file_bytes(const struct gguf_writer *w);

/* ---- writing ---- */

/* Opens the file and writes all that comes before the tensor data; keys and tensors are closed then. */
int gguf_writer_begin(struct gguf_writer *w, const char *path, skua_error *err);
/* The next n bytes of the data of `name`, which must be the first tensor that is not complete yet. */
int gguf_writer_data(struct gguf_writer *w, const char *name, const void *data, size_t n, skua_error *err);
int gguf_writer_finish(struct gguf_writer *w, skua_error *err);

#endif
