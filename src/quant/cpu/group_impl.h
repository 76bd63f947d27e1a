/* Between rows and lanes: a group is up to sixteen consecutive sub-blocks (or blocks), sub-block k in lane k. */
#ifndef SKUA_QUANT_CPU_GROUP_IMPL_H
#define SKUA_QUANT_CPU_GROUP_IMPL_H

#include <string.h>

/* Element i of sub-block k of `count`, each `size` long, to lane k of to[i]; lanes from count on get 0. */
static NOINLINE void lanes_gather(const float *x, int size, int count, vf *to)
{
    float lanes[64][LANES];
    for (int k = 0; k < LANES; k++)
        for (int i = 0; i < size; i++)
            lanes[i][k] = k < count ? x[k * size + i] : 0.0f;
    for (int i = 0; i < size; i++)
        to[i] = vf_load(lanes[i]);
}

/* The reverse for bytes: to[k * size + i] = codes[i][k]. */
static NOINLINE void lanes_scatter(const uint8_t (*codes)[LANES], int size, int count, uint8_t *to)
{
    for (int k = 0; k < count; k++)
        for (int i = 0; i < size; i++)
            to[k * size + i] = codes[i][k];
}

/* Codes (0..255) as bytes, element by element. */
static INLINE void lanes_bytes(int n, const vf *codes, uint8_t (*bytes)[LANES])
{
    for (int i = 0; i < n; i++)
        vi_store_u8(bytes[i], vf_trunc(codes[i]));
}

#endif
