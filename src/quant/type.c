/* The registry of tensor element types; see type.h. A table indexed by id; withdrawn ids have no name. */
#include "quant/type.h"

#include <strings.h>

#define TYPE(NAME, ELEMENTS, BYTES) [QTYPE_##NAME] = {#NAME, ELEMENTS, BYTES}

static const struct qtype_info types[QTYPE_END] = {
    TYPE(F32, 1, 4),        TYPE(F16, 1, 2),        TYPE(Q4_0, 32, 18),    TYPE(Q4_1, 32, 20),
    TYPE(Q5_0, 32, 22),     TYPE(Q5_1, 32, 24),     TYPE(Q8_0, 32, 34),    TYPE(Q8_1, 32, 36),
    TYPE(Q2_K, 256, 84),    TYPE(Q3_K, 256, 110),   TYPE(Q4_K, 256, 144),  TYPE(Q5_K, 256, 176),
    TYPE(Q6_K, 256, 210),   TYPE(Q8_K, 256, 292),   TYPE(IQ2_XXS, 256, 66), TYPE(IQ2_XS, 256, 74),
    TYPE(IQ3_XXS, 256, 98), TYPE(IQ1_S, 256, 50),   TYPE(IQ4_NL, 32, 18),  TYPE(IQ3_S, 256, 110),
    TYPE(IQ2_S, 256, 82),   TYPE(IQ4_XS, 256, 136), TYPE(I8, 1, 1),        TYPE(I16, 1, 2),
    TYPE(I32, 1, 4),        TYPE(I64, 1, 8),        TYPE(F64, 1, 8),       TYPE(IQ1_M, 256, 56),
    TYPE(BF16, 1, 2),       TYPE(TQ1_0, 256, 54),   TYPE(TQ2_0, 256, 66),  TYPE(Q4_64A, 64, 36),
    TYPE(Q2_64A, 64, 20),   TYPE(MXFP4, 32, 17),    TYPE(NVFP4, 64, 36),   TYPE(Q1_0, 128, 18),
    TYPE(Q2_0, 64, 18),
};

const struct qtype_info *qtype_info(uint32_t id)
{
    return id < QTYPE_END && types[id].name ? &types[id] : NULL;
}

int qtype_from_name(const char *name)
{
    for (int id = 0; id < QTYPE_END; id++)
        if (types[id].name && strcasecmp(types[id].name, name) == 0)
            return id;
    return -1;
}

size_t qtype_row_bytes(uint32_t id, uint64_t ne0)
{
    const struct qtype_info *t = qtype_info(id);
    uint64_t bytes;
    if (!t || ne0 % t->block_elements)
        return 0;
    if (__builtin_mul_overflow(ne0 / t->block_elements, (uint64_t)t->block_bytes, &bytes) || bytes > SIZE_MAX)
        return 0;
    return (size_t)bytes;
}
