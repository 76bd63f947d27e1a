/* GGUF container reader, versions 2 and 3, little-endian, one file or a set of shards.
 *
 * A file is mapped read-only and validated completely before anything of it is handed out: keys, value types, tensor
 * infos, alignment, ranges and overlaps, in a fixed order of checks, each with an error class. Nothing is copied: names,
 * strings, arrays and tensor data are views into the map and live until gguf_close. Views of numbers are not aligned (use
 * the getters or memcpy); tensor data starts at a multiple of the file's alignment (at least 8) from the start of a map.
 *
 * Memory: parsing allocates less than file size + 1 MiB for every file that is refused, and less than 3 * file size + 1 MiB
 * for one that is accepted (reached only by files of a million tensors of a few bytes each; about 100 bytes per tensor).
 *
 * A file that another program shortens while it is mapped raises SIGBUS on access; sizes are those at open. On hosts with
 * 32-bit addresses a file that does not fit the address space is refused when it is mapped, so that every offset fits size_t.
 *
 * Errors: SKUA_EFORMAT for malformed files (SKUA_EUNSUPPORTED for a version, byte order or tensor type that the format
 * knows but this reader does not take), with a message like
 *   m.gguf: E_STRING at byte 45: key 'a.b': string of 4294967297 bytes, 30 remain
 * SKUA_EIO and SKUA_ENOMEM otherwise. After a failure nothing stays allocated or mapped.
 */
#ifndef SKUA_GGUF_GGUF_H
#define SKUA_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "quant/type.h"

/* ---- limits ---- */

#define GGUF_MAX_KEYS 65536u
#define GGUF_MAX_TENSORS 1048576u /* also for all shards together */
#define GGUF_MAX_KEY_BYTES 65535u
#define GGUF_MAX_NAME_BYTES 63u   /* tensor names */
#define GGUF_MAX_COUNT (1u << 30) /* bytes of a string value, elements of an array */
#define GGUF_MAX_DIMS 4u
#define GGUF_MAX_SHARDS 1024u
#define GGUF_DEFAULT_ALIGNMENT 32u
#define GGUF_MIN_ALIGNMENT 8u
#define GGUF_MAX_ALIGNMENT 1048576u

/* ---- error classes ---- */

#define GGUF_CLASSES(X) \
    X(E_MAGIC) X(E_TRUNCATED) X(E_ENDIAN) X(E_VERSION) X(E_COUNT) X(E_STRING) X(E_KEY) X(E_DUP_KEY) X(E_VTYPE) X(E_BOOL) \
    X(E_ARRAY) X(E_ALIGN) X(E_TNAME) X(E_DUP_TENSOR) X(E_NDIMS) X(E_DIM) X(E_OVERFLOW) X(E_TTYPE) X(E_BLOCK) X(E_OFFSET) \
    X(E_RANGE) X(E_OVERLAP) X(E_SPLIT) X(E_SCHEMA)

enum gguf_class {
    GGUF_OK, /* valid, or a failure outside the file's content (memory, operating system) */
#define GGUF_CLASS_ENUM(name) GGUF_##name,
    GGUF_CLASSES(GGUF_CLASS_ENUM)
#undef GGUF_CLASS_ENUM
    GGUF_CLASS_END
};

/* "ok", "E_MAGIC", ...; never NULL. E_SCHEMA is for callers that check what the keys mean; this module never reports it. */
const char *gguf_class_name(int class);

/* ---- opening ---- */

struct gguf; /* an open file or set of shards; read-only, so several threads may use it */

/* Map and validate path. When it is the first shard of a set, its siblings (in the same folder, named from its own name)
   are opened too and their tensors joined; another shard is refused with the name of the first. 0, or an error with
   *out = NULL. */
int gguf_open(struct gguf **out, const char *path, skua_error *err);
void gguf_close(struct gguf *g); /* NULL allowed */

/* Open, close, and tell the class: for commands that only want the verdict. The return value is that of gguf_open. */
int gguf_check(const char *path, enum gguf_class *class, skua_error *err);

/* The core: validate size bytes at data as one container, which must stay valid and unchanged until gguf_close. Split keys
   are ordinary keys here. label stands for the file name in messages. class may be NULL. */
int gguf_parse_memory(struct gguf **out, const uint8_t *data, size_t size, const char *label, enum gguf_class *class,
                      skua_error *err);

uint32_t gguf_shard_count(const struct gguf *g);                     /* 1 for a single file */
const char *gguf_shard_path(const struct gguf *g, uint32_t i);       /* the label for parsed memory */
const uint8_t *gguf_shard_data(const struct gguf *g, uint32_t i, size_t *size_bytes); /* all of that file */

size_t gguf_data_start(const struct gguf *g, uint32_t i);            /* file offset of its data section */
uint32_t gguf_alignment(const struct gguf *g, uint32_t i);
uint32_t gguf_version(const struct gguf *g);                         /* 2 or 3, of the first shard */

/* ---- tensors ---- */

struct gguf_tensor {
    const char *name;      /* name_len bytes, not terminated; print with %.*s */
    const uint8_t *data;
    uint64_t ne[GGUF_MAX_DIMS]; /* ne[0] is the row length; dimensions past n_dims are 1 */
    size_t size_bytes;
    size_t file_offset;    /* of data, in the file of its shard */
    uint32_t type;         /* enum qtype; always one that qtype_info knows */
    uint16_t shard;
    uint8_t n_dims;        /* as stored, 0..4 */
    uint8_t name_len;      /* 1..63 */
};

/* Tensors by number and by name (NULL when there is none). What they return belongs to g. */
uint32_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint32_t i); /* in file order; NULL past the end */
void gguf_forget(const struct gguf *g, const struct gguf_tensor *t); /* its data is not needed soon (file_map_forget) */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);
/* The same, but absence is an error (SKUA_EFORMAT) that names file and tensor. */
int gguf_require_tensor(const struct gguf *g, const char *name, const struct gguf_tensor **t, skua_error *err);

/* ---- keys (of the first shard) ---- */

enum gguf_type { /* ids in the file */
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64,
    GGUF_I64, GGUF_F64,
    GGUF_TYPE_END
};
const char *gguf_type_name(uint32_t type); /* "u8", ..., "unknown" */

struct gguf_string {
    const char *data; /* len bytes, not terminated, any content, not necessarily UTF-8 */
    size_t len;
};

struct gguf_array {
    const uint8_t *data;   /* encoded elements, unaligned */
    size_t size_bytes;     /* of all elements */
    uint64_t count;        /* at most 2^30 */
    enum gguf_type type;   /* of the elements; never GGUF_ARRAY */
};

/* A key and its value, decoded. The member named after the type is set: u for u8..u64, i for i8..i64, f for f32 and f64. */
struct gguf_value {
    struct gguf_string key;
    enum gguf_type type;
    union {
        uint64_t u;
        int64_t i;
        double f;
        bool b;
        struct gguf_string s;
        struct gguf_array a;
    };
};

/* Keys by number and by name; *v points into g. False, and *v is left alone, when there is none. */
uint32_t gguf_key_count(const struct gguf *g);
bool gguf_key_at(const struct gguf *g, uint32_t i, struct gguf_value *v); /* in file order; false past the end */
bool gguf_find_key(const struct gguf *g, const char *key, struct gguf_value *v);

/* Typed access. gguf_get_*: 1 = found, 0 = no such key (*v is left alone, so preset the default), negative = the key is
   there but does not fit: an error that names key, what was found and what was expected. gguf_require_*: 0 or negative,
   where absence is an error too.
   Writers disagree about integer types, so integer fields accept u8..u64 and i8..i64 of any width as long as the value is in
   range. Float fields accept f32 and f64 and refuse NaN, infinity and (for f32) values beyond its range. */
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *v, skua_error *err);
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *v, skua_error *err);
int gguf_get_i32(const struct gguf *g, const char *key, int32_t *v, skua_error *err);
int gguf_get_i64(const struct gguf *g, const char *key, int64_t *v, skua_error *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *v, skua_error *err);
int gguf_get_f64(const struct gguf *g, const char *key, double *v, skua_error *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *v, skua_error *err);
int gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *v, skua_error *err);
int gguf_require_u32(const struct gguf *g, const char *key, uint32_t *v, skua_error *err);
int gguf_require_u64(const struct gguf *g, const char *key, uint64_t *v, skua_error *err);
int gguf_require_i32(const struct gguf *g, const char *key, int32_t *v, skua_error *err);
int gguf_require_i64(const struct gguf *g, const char *key, int64_t *v, skua_error *err);
int gguf_require_f32(const struct gguf *g, const char *key, float *v, skua_error *err);
int gguf_require_f64(const struct gguf *g, const char *key, double *v, skua_error *err);
int gguf_require_bool(const struct gguf *g, const char *key, bool *v, skua_error *err);
int gguf_require_string(const struct gguf *g, const char *key, struct gguf_string *v, skua_error *err);

/* ---- arrays ---- */

enum gguf_elements { /* what the caller can use as elements */
    GGUF_ANY_ELEMENTS,
    GGUF_INTEGERS, /* u8..u64, i8..i64 */
    GGUF_FLOATS,   /* f32, f64 */
    GGUF_BOOLS,
    GGUF_STRINGS
};
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_elements want, struct gguf_array *v, skua_error *err);
int gguf_require_array(const struct gguf *g, const char *key, enum gguf_elements want, struct gguf_array *v,
                       skua_error *err);

/* Element i; false when i is past the end, the element type differs, or (i64) the value is above 2^63 - 1. */
bool gguf_array_i64(const struct gguf_array *a, uint64_t i, int64_t *v);
bool gguf_array_f64(const struct gguf_array *a, uint64_t i, double *v); /* as stored: NaN and infinity too */
bool gguf_array_bool(const struct gguf_array *a, uint64_t i, bool *v);

/* Strings in order: set *offset = 0 before the first call; false after the last one or for another element type. */
bool gguf_array_next_string(const struct gguf_array *a, size_t *offset, struct gguf_string *s);

/* Strings by number need an index, which the caller owns: 8 bytes per string. The strings stay views into the map. */
struct gguf_strings {
    const uint8_t *data;
    size_t *offsets; /* of each length field in data */
    size_t count;
};
int gguf_strings_init(struct gguf_strings *s, const struct gguf_array *a, skua_error *err); /* SKUA_EARG, SKUA_ENOMEM */
void gguf_strings_free(struct gguf_strings *s);                                             /* zeroed allowed */
struct gguf_string gguf_strings_at(const struct gguf_strings *s, size_t i); /* i < count; past it an empty string */

#endif
