/* Fuzz target: any bytes as an importance matrix. A refusal must be one line and leave nothing behind; of an accepted file every entry
   must keep the promises of imatrix.h and be found by its name. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/imatrix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile double sink; /* keeps the reads */

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

static void touch(const struct imatrix *m, const struct imatrix_entry *e)
{
    skua_error err;
    const float *w;
    MUST(imatrix_find(m, e->name, strlen(e->name)) == e && e->columns > 0 && e->matrices > 0);
    MUST(imatrix_weights(m, e->name, strlen(e->name), e->columns, e->matrices, &w, &err) == 0 && w == e->weights);
    MUST(imatrix_weights(m, e->name, strlen(e->name), e->columns + 1, e->matrices, &w, &err) == SKUA_EFORMAT && !w);
    for (int64_t i = 0; i < e->matrices; i++)
        MUST(e->counts[i] >= 0 && e->counts[i] <= DBL_MAX);
    for (int64_t i = 0; i < e->columns * e->matrices; i++) {
        MUST(e->weights[i] >= 0 && e->weights[i] <= FLT_MAX);
        if (e->sums)
            sink += e->sums[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct imatrix *m;
    skua_error err = {0};
    size_t live = mem_live_blocks();
    int rc = imatrix_parse_memory(&m, data, size, "fuzz", &err);
    if (rc) {
        MUST(!m && err.code == rc && strncmp(err.message, "fuzz: ", 6) == 0 && !strchr(err.message, '\n') && mem_live_blocks() == live);
        return 0;
    }
    MUST(imatrix_count(m) > 0);
    for (uint32_t i = 0; i < imatrix_count(m); i++)
        touch(m, imatrix_at(m, i));
    sink += imatrix_chunks(m) + imatrix_chunk_size(m) + (double)strlen(imatrix_dataset(m));
    imatrix_free(m);
    MUST(mem_live_blocks() == live);
    return 0;
}
