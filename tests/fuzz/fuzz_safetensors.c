/* Fuzz target: any bytes as a safetensors file. A refusal must be one line and leave nothing behind; of an accepted file every tensor must
   keep the promises of safetensors.h: inside of the data, in one piece of the size that dtype and shape say, found by its name, and all
   of them together as large as the data. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "gguf/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the reads */

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

static uint64_t touch(const struct safetensors *s, const struct st_tensor *t, const uint8_t *data, size_t size)
{
    uint64_t elements = 1;
    char text[128];
    MUST(safetensors_find(s, t->name) == t && t->name[0] && t->file == 0);
    MUST(t->n_dims <= ST_MAX_DIMS && st_dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->n_dims; d++)
        elements *= t->shape[d];
    MUST(elements == t->elements && t->size_bytes * 8 == elements * st_dtype_bits(t->dtype));
    MUST(t->data >= data && t->data <= data + size && t->size_bytes <= (size_t)(data + size - t->data));
    st_shape_text(t, text, sizeof text);
    MUST(text[0] == '[' && text[strlen(text) - 1] == ']');
    if (t->size_bytes)
        sink += (uint64_t)t->data[0] + t->data[t->size_bytes - 1];
    return t->size_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    struct safetensors *s;
    skua_error err = {0};
    if (!begun)
        json_use_mem();
    begun = true;
    size_t live = mem_live_blocks();
    int rc = safetensors_parse_memory(&s, data, size, "fuzz", &err);
    if (rc) {
        MUST(!s && err.code == rc && strncmp(err.message, "fuzz: ", 6) == 0 && !strpbrk(err.message, "\r\n"));
    } else {
        uint64_t header, sum = 0;
        memcpy(&header, data, 8);
        for (uint32_t i = 0; i < safetensors_count(s); i++)
            sum += touch(s, safetensors_at(s, i), data, size);
        MUST(sum == size - 8 - header);
        safetensors_close(s);
    }
    MUST(mem_live_blocks() == live);
    return 0;
}
