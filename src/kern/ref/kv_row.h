/* Rows of the KV cache in plain C: float values to the cache type and back, in pieces of at most 32 values.
 *
 * F32, F16, BF16: element i at i * 4 or i * 2 bytes. Q8_0: blocks of 32 as quant/blocks.h has them; a head_dim that is no
 * multiple of 32 cannot be stored as Q8_0 (the model loader refuses it).
 *
 * Q8_0 follows quant/quant.h's quantizer for finite input, but accepts every input, since a forward pass has nobody to
 * complain to: a block with a NaN or infinity gets a NaN scale and zero codes, so that it reads back as NaN everywhere.
 */
#ifndef SKUA_KERN_REF_KV_ROW_H
#define SKUA_KERN_REF_KV_ROW_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/type.h"

#define KV_PIECE 32 /* values at a time: one Q8_0 block */

static inline void kv_store_q8_0(struct block_q8_0 *b, const float x[KV_PIECE])
{
    float amax = 0.0f;
    bool finite = true;
    for (int i = 0; i < KV_PIECE; i++) {
        const float a = fabsf(x[i]);
        finite = finite && a <= 3.402823466e38f;
        amax = a > amax ? a : amax;
    }
    const float d = amax / 127.0f;
    const float id = d != 0.0f ? 1.0f / d : 0.0f;
    b->d = finite ? f32_to_f16(d) : 0x7E00;
    for (int i = 0; i < KV_PIECE; i++) {
        /* id overflows for amax below 1e-36, where the stored d is 0 anyway: the limits only keep the conversion defined. */
        float v = x[i] * id;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        b->qs[i] = finite ? (int8_t)roundf(v) : 0;
    }
}

/* Store x[0 .. n-1] as values first .. first + n-1 of a row; first is a multiple of KV_PIECE, n <= KV_PIECE (Q8_0: equal). */
static inline void kv_store(uint32_t type, void *row, int32_t first, const float *x, int32_t n)
{
    char *at = row;
    switch (type) {
    case QTYPE_F32: memcpy(at + 4 * (size_t)first, x, 4 * (size_t)n); break;
    case QTYPE_F16:
    case QTYPE_BF16:
        for (int32_t i = 0; i < n; i++) {
            const uint16_t h = type == QTYPE_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
            memcpy(at + 2 * (size_t)(first + i), &h, 2);
        }
        break;
    case QTYPE_Q8_0: kv_store_q8_0((struct block_q8_0 *)row + first / 32, x); break;
    default: break;
    }
}

/* The other way: out[0 .. n-1] = values first .. first + n-1, widened. A piece may not cross a multiple of 32. */
static inline void kv_load(uint32_t type, const void *row, int32_t first, float *out, int32_t n)
{
    const char *at = row;
    switch (type) {
    case QTYPE_F32: memcpy(out, at + 4 * (size_t)first, 4 * (size_t)n); break;
    case QTYPE_F16:
    case QTYPE_BF16:
        for (int32_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, at + 2 * (size_t)(first + i), 2);
            out[i] = type == QTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        }
        break;
    case QTYPE_Q8_0: {
        const struct block_q8_0 *b = (const struct block_q8_0 *)row + first / 32;
        const float d = f16_to_f32(b->d);
        for (int32_t i = 0; i < n; i++)
            out[i] = (float)b->qs[first % 32 + i] * d;
        break;
    }
    default: break;
    }
}

#endif
