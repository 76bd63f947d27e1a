/* Reader of safetensors checkpoints: one file, or the shards that an index names. Everything is checked before a tensor is handed out
 * (spec: the format's own rules), so that a tensor's bytes can be read without further thought.
 *
 *   struct safetensors *s;
 *   safetensors_open(&s, "folder", warn, context, err);
 *   const struct st_tensor *t = safetensors_find(s, "model.norm.weight");
 *   safetensors_close(s);
 *
 * Files are mapped read-only; nothing is copied but the names. Errors name file and tensor: SKUA_EIO (cannot be opened or is missing),
 * SKUA_EFORMAT (breaks a rule of the format), SKUA_ENOMEM.
 */
#ifndef SKUA_GGUF_SAFETENSORS_H
#define SKUA_GGUF_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define ST_MAX_DIMS 8
#define ST_MAX_HEADER_BYTES 100000000u

enum st_dtype {
    ST_BOOL, ST_U8, ST_I8, ST_F8_E4M3, ST_F8_E5M2, ST_F8_E8M0, ST_I16, ST_U16, ST_F16, ST_BF16, ST_I32, ST_U32, ST_F32, ST_I64, ST_U64,
    ST_F64, ST_C64, ST_F4, ST_F6_E2M3, ST_F6_E3M2, ST_DTYPES
};
const char *st_dtype_name(enum st_dtype d); /* "BF16" */
unsigned st_dtype_bits(enum st_dtype d);

struct st_tensor {
    char *name;                  /* terminated, no control characters; of the container */
    enum st_dtype dtype;
    uint32_t n_dims;             /* 0 .. ST_MAX_DIMS */
    uint64_t shape[ST_MAX_DIMS]; /* outermost dimension first, row-major; sizes may be 0 */
    uint64_t elements, size_bytes;
    const uint8_t *data;         /* little-endian, at any address */
    uint32_t file;
};

struct safetensors;

/* Called with one line for what is odd but does no harm. */
typedef void st_warn_fn(void *context, const char *message);

/* dir/model.safetensors, or the files of dir/model.safetensors.index.json. warn may be NULL. */
int safetensors_open(struct safetensors **out, const char *dir, st_warn_fn *warn, void *context, skua_error *err);
/* One file that is in memory already, which stays the caller's; name is for messages. */
int safetensors_parse_memory(struct safetensors **out, const void *data, size_t size, const char *name, skua_error *err);
void safetensors_close(struct safetensors *s); /* NULL allowed */

/* Tensors, in the order of the files. i < safetensors_count. */
uint32_t safetensors_count(const struct safetensors *s);
const struct st_tensor *safetensors_at(const struct safetensors *s, uint32_t i);
const struct st_tensor *safetensors_find(const struct safetensors *s, const char *name); /* NULL: there is none */
uint32_t safetensors_files(const struct safetensors *s);
const char *safetensors_path(const struct safetensors *s, uint32_t file); /* of a tensor's file; file < safetensors_files */

/* "[3, 4]", in text. */
void st_shape_text(const struct st_tensor *t, char *text, size_t size);

#endif
