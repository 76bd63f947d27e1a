/* Inside of the GGUF module: the open container, the compact name index, and little-endian loads. */
#ifndef SKUA_GGUF_GGUF_INTERNAL_H
#define SKUA_GGUF_GGUF_INTERNAL_H

#include <string.h>

#include "base/file.h"
#include "gguf/gguf.h"

/* Hosts are little-endian and file fields are not aligned. */
static inline uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- gguf_index.c: names -> record numbers ----
   Open addressing over record numbers alone (4 bytes a slot, load at most 2/3): base/hashmap.h spends 24 bytes a slot, more
   than the smallest tensor info takes in a file, and parsing must not allocate more than the file's size. The name of a
   record comes from a callback. */
typedef struct gguf_string gguf_name_fn(const void *context, uint32_t record);

struct gguf_index {
    uint32_t *slots; /* record + 1; 0 = free */
    size_t mask;
    size_t used;
    uint64_t seed;
};

int gguf_index_init(struct gguf_index *x, size_t expected); /* no growth up to this many records; SKUA_ENOMEM */
void gguf_index_free(struct gguf_index *x);                 /* zeroed allowed */
/* Add a record, whose name the callback must know already. 0 = added, 1 = another record has the name, SKUA_ENOMEM. */
int gguf_index_put(struct gguf_index *x, uint32_t record, gguf_name_fn *name, const void *context);
bool gguf_index_get(const struct gguf_index *x, struct gguf_string key, gguf_name_fn *name, const void *context,
                    uint32_t *record);

/* ---- the open container ---- */

/* A key or a tensor info by its address in the file, which is that of its name's length field. Everything else is decoded
   from there when it is asked for. */
typedef const uint8_t *gguf_entry;

struct gguf_shard {
    struct file_map map; /* zeroed when the memory is the caller's */
    char *path;
    const uint8_t *base;
    size_t size;
    uint64_t data_start; /* at most size once the layout is checked */
    uint32_t alignment, version;
};

struct gguf {
    struct gguf_shard *shards;
    gguf_entry *keys;
    struct gguf_tensor *tensors;
    uint32_t n_shards, n_keys, n_tensors;
    struct gguf_index key_index, tensor_index;
};

gguf_name_fn gguf_entry_name;  /* context: the array of gguf_entry */
gguf_name_fn gguf_tensor_name; /* context: the array of struct gguf_tensor */

/* Size of an array element or scalar in the file; 8 (the smallest) for strings; 0 for arrays and unknown types. */
size_t gguf_type_size(uint32_t type);

/* Decode the value of a key (validated before). Returns the address after it. */
const uint8_t *gguf_decode_key(gguf_entry key, struct gguf_value *v);

/* ---- errors ---- */

/* "LABEL: E_CLASS at byte AT: SUBJECT: detail". subject may be empty. Stores the class and returns the SKUA code. */
struct gguf_report {
    const char *label;
    enum gguf_class *class; /* not NULL */
    skua_error *err;
    char subject[96];
};
int gguf_fail(struct gguf_report *r, enum gguf_class class, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* subject = "WHAT 'name'", the name as gguf_quote gives it. */
void gguf_report_subject(struct gguf_report *r, const char *what, const char *name, size_t len);

/* A name for a message: at most 63 bytes, then "..."; bytes outside printable ASCII become '?'. */
struct gguf_quoted {
    char text[GGUF_MAX_NAME_BYTES + 4];
};
struct gguf_quoted gguf_quote(const char *name, size_t len);

/* A path for a message: of a very long one only the end, so that the rest of the message has room. */
const char *gguf_path_tail(const char *path);

/* ---- gguf_parse.c ---- */

/* Parse one container of size bytes at base into the zeroed *g, which gets one shard without path and map. On failure *g is
   released and zeroed again. */
int gguf_parse(struct gguf *g, const uint8_t *base, size_t size, uint16_t shard_no, const char *label,
               enum gguf_class *class, skua_error *err);
void gguf_release(struct gguf *g); /* frees and unmaps what *g holds and zeroes it */

/* ---- gguf_layout.c ---- */

/* Decode a tensor info, of which the caller has checked that it is complete, that the type is known and that the size does
   not overflow. Sets neither data, file_offset nor shard; *offset is the one in the file, relative to the data section. */
void gguf_decode_tensor(gguf_entry info, struct gguf_tensor *t, uint64_t *offset);

/* Checks on the data section: ranges, overlaps, and the sizes of the two ambiguous types. */
int gguf_check_layout(struct gguf_report *r, const struct gguf_shard *s, const gguf_entry *infos, uint32_t n);

#endif
