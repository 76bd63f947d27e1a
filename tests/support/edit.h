/* Models as lists of tensors, for tests that write the same model in another way: load, change the list, write. Whatever goes wrong here
   ends the test program. */
#ifndef SKUA_TESTS_EDIT_H
#define SKUA_TESTS_EDIT_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/gguf.h"
#include "gguf/gguf_write.h"

#define EDIT_MAX_TENSORS 256

struct edit_tensor {
    char name[64];
    uint32_t type, n_dims;
    uint64_t ne[4];
    const void *data;
    size_t size; /* bytes */
    void *owned; /* data, when it was made here (malloc) */
};

struct edit_model {
    struct gguf *g;
    struct edit_tensor t[EDIT_MAX_TENSORS];
    int n;
    const char *drop_key;                                       /* a key that is not written, or NULL */
    int (*add_keys)(struct gguf_writer *w, skua_error *err);    /* keys instead of the file's own, or NULL */
};

void edit_load(struct edit_model *m, const char *path);
void edit_unload(struct edit_model *m);
struct edit_tensor *edit_find(struct edit_model *m, const char *name);
void edit_drop(struct edit_model *m, const char *prefix); /* all tensors whose names begin so */
struct edit_tensor *edit_copy_as(struct edit_model *m, const char *from, const char *name);
void edit_own(struct edit_tensor *t, void *data, size_t size); /* data, from malloc, becomes the tensor's */

/* Write to a file of the temporary folder (support_temp); its path. */
const char *edit_write(const struct edit_model *m, const char *name);
/* Tensors [begin, end) to path, as shard no of count; one whole file when count is 0. */
void edit_write_part(const struct edit_model *m, const char *path, int begin, int end, uint16_t no, uint16_t count);

#endif
