/* Quantised activation rows: their size and layout, and which kind each weight type is multiplied with. The layout itself
   is described in kern.h; every part of a row starts at a multiple of 64 bytes from the row, and rows are multiples of 64
   bytes, so a buffer that is aligned to 64 keeps every part aligned. */
#include "kern/kern.h"
#include "quant/quant.h"

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t act_block(enum kern_act kind)
{
    return kind == KERN_ACT_Q12_32 ? 32 : 256;
}

/* Of the integers of a row of n values. */
static size_t code_bytes(enum kern_act kind, size_t n)
{
    return align64(kind == KERN_ACT_Q8_256 ? n : n * sizeof(int16_t));
}

size_t kern_act_bytes(enum kern_act kind, int64_t n)
{
    size_t count = (size_t)n;
    if (kind == KERN_ACT_F32)
        return count * sizeof(float);
    return code_bytes(kind, count) + align64(count / act_block(kind) * sizeof(float)) +
           align64(count / (kind == KERN_ACT_Q8_256 ? 32 : 16) * sizeof(int16_t));
}

struct kern_act_row kern_act_row_at(enum kern_act kind, const void *base, int64_t n, int64_t row)
{
    size_t count = (size_t)n;
    const char *p = (const char *)base + (size_t)row * kern_act_bytes(kind, n);
    const char *d = p + code_bytes(kind, count);
    const char *bsum = d + align64(count / act_block(kind) * sizeof(float));
    const bool bytes = kind == KERN_ACT_Q8_256;
    return (struct kern_act_row){.q = bytes ? NULL : (const int16_t *)p, .q8 = bytes ? (const int8_t *)p : NULL, .d = (const float *)d,
                                 .bsum = (const int16_t *)bsum};
}

int kern_act_kind(const struct kern_table *t, uint32_t weight_type)
{
    if (t == &kern_reference)
        return dequant_supported(weight_type) ? KERN_ACT_F32 : -1;
    switch (weight_type) {
    case QTYPE_F32:
    case QTYPE_F16:
    case QTYPE_BF16:
        return KERN_ACT_F32;
    case QTYPE_Q8_0:
    case QTYPE_Q4_0:
    case QTYPE_Q4_1:
    case QTYPE_Q5_0:
    case QTYPE_Q5_1:
    case QTYPE_IQ4_NL:
    case QTYPE_MXFP4:
    case QTYPE_NVFP4:
    case QTYPE_Q4_64A:
    case QTYPE_Q2_64A:
        return KERN_ACT_Q12_32;
    case QTYPE_Q2_K:
    case QTYPE_Q3_K:
    case QTYPE_Q5_K:
    case QTYPE_Q6_K:
    case QTYPE_IQ4_XS:
    case QTYPE_IQ2_XXS:
    case QTYPE_IQ2_S:
        return KERN_ACT_Q12_256;
    case QTYPE_Q4_K:
        return KERN_ACT_Q8_256;
    default:
        return -1;
    }
}
