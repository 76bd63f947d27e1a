/* The public side of src/quant: one table of types, argument checks, and the check of finished rows; see quant.h. */
#include "quant/quant.h"

#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/cpu/quant_tiers.h"
#include "quant/half.h"

enum scale_kind { SCALE_F16, SCALE_BF16, SCALE_F32, SCALE_E8M0, SCALE_UE4M3 };

struct codec {
    dequant_fn *dequant;
    quantize_fn *quantize;
    bool weight;         /* a type of weights, not only of activations */
    bool needs_imatrix;
    enum scale_kind kind;
    uint8_t scales;      /* how many scale fields a block has, one behind the other */
    uint8_t scale_at;    /* byte offset of the first */
};

#define CODEC(fn, kind_, scales_, at) \
    {.dequant = dequant_##fn, .quantize = quantize_##fn, .weight = true, .kind = kind_, .scales = scales_, .scale_at = at}
#define ACTIVATION(fn, kind_, scales_, at) \
    {.dequant = dequant_##fn, .quantize = quantize_##fn, .kind = kind_, .scales = scales_, .scale_at = at}

static const struct codec codecs[QTYPE_END] = {
    [QTYPE_F32] = CODEC(f32, SCALE_F32, 1, 0),
    [QTYPE_F16] = CODEC(f16, SCALE_F16, 1, 0),
    [QTYPE_BF16] = CODEC(bf16, SCALE_BF16, 1, 0),
    [QTYPE_Q4_0] = CODEC(q4_0, SCALE_F16, 1, 0),
    [QTYPE_Q4_1] = CODEC(q4_1, SCALE_F16, 2, 0),
    [QTYPE_Q5_0] = CODEC(q5_0, SCALE_F16, 1, 0),
    [QTYPE_Q5_1] = CODEC(q5_1, SCALE_F16, 2, 0),
    [QTYPE_Q8_0] = CODEC(q8_0, SCALE_F16, 1, 0),
    [QTYPE_Q8_1] = ACTIVATION(q8_1, SCALE_F16, 2, 0),
    [QTYPE_Q8_K] = ACTIVATION(q8_k, SCALE_F32, 1, 0),
    [QTYPE_Q2_K] = CODEC(q2_k, SCALE_F16, 2, offsetof(struct block_q2_k, d)),
    [QTYPE_Q3_K] = CODEC(q3_k, SCALE_F16, 1, offsetof(struct block_q3_k, d)),
    [QTYPE_Q4_K] = CODEC(q4_k, SCALE_F16, 2, 0),
    [QTYPE_Q5_K] = CODEC(q5_k, SCALE_F16, 2, 0),
    [QTYPE_Q6_K] = CODEC(q6_k, SCALE_F16, 1, offsetof(struct block_q6_k, d)),
    [QTYPE_IQ2_XXS] = {dequant_iq2_xxs, quantize_iq2_xxs, true, true, SCALE_F16, 1, 0},
    [QTYPE_IQ2_S] = CODEC(iq2_s, SCALE_F16, 1, 0),
    [QTYPE_IQ4_NL] = CODEC(iq4_nl, SCALE_F16, 1, 0),
    [QTYPE_IQ4_XS] = CODEC(iq4_xs, SCALE_F16, 1, 0),
    [QTYPE_MXFP4] = CODEC(mxfp4, SCALE_E8M0, 1, 0),
    [QTYPE_NVFP4] = CODEC(nvfp4, SCALE_UE4M3, 4, 0),
    [QTYPE_Q4_64A] = CODEC(q4_64a, SCALE_BF16, 2, offsetof(struct block_q4_64a, scale)),
    [QTYPE_Q2_64A] = CODEC(q2_64a, SCALE_BF16, 2, offsetof(struct block_q2_64a, scale)),
};

/* 0 with *codec set and *blocks = n / block size, or an error. */
static int codec_for(uint32_t type, int64_t n, const struct codec **codec, int64_t *blocks, skua_error *err)
{
    const struct qtype_info *info = qtype_info(type);
    if (!info)
        return error_set(err, SKUA_EUNSUPPORTED, "tensor type %u is unknown", (unsigned)type);
    if (!codecs[type].dequant)
        return error_set(err, SKUA_EUNSUPPORTED, "tensor type %s (%u) cannot be converted", info->name, (unsigned)type);
    if (n < 0 || n % info->block_elements)
        return error_set(err, SKUA_EARG, "row of %lld elements as %s: expected a multiple of %u", (long long)n, info->name,
                         (unsigned)info->block_elements);
    *codec = &codecs[type];
    *blocks = n / info->block_elements;
    return 0;
}

bool dequant_supported(uint32_t type)
{
    return type < QTYPE_END && codecs[type].weight;
}

int dequant_row(uint32_t type, const void *row, float *out, int64_t n)
{
    const struct codec *codec = NULL;
    int64_t blocks = 0;
    int rc = codec_for(type, n, &codec, &blocks, NULL);
    if (rc == 0)
        codec->dequant(row, out, blocks);
    return rc;
}

static bool acceptable(float x, bool negative_is_bad)
{
    return isfinite(x) && !(negative_is_bad && x < 0.0f);
}

/* Index of the first element that is not finite (or, if asked, negative); n when there is none. */
static int64_t first_bad(const float *x, int64_t n, bool negative_is_bad)
{
    enum { STEP = 64 }; /* elements looked at without a branch */
    int64_t i = 0;
    for (uint32_t bad = 0; i + STEP <= n; i += STEP) {
        for (int k = 0; k < STEP; k++)
            bad |= (f32_to_bits(x[i + k]) & 0x7F800000u) == 0x7F800000u;
        for (int k = 0; negative_is_bad && k < STEP; k++)
            bad |= x[i + k] < 0.0f;
        if (bad)
            break;
    }
    while (i < n && acceptable(x[i], negative_is_bad))
        i++;
    return i;
}

static bool scale_finite(enum scale_kind kind, const uint8_t *p)
{
    uint16_t half;
    float single;
    switch (kind) {
    case SCALE_F16:
        memcpy(&half, p, sizeof half);
        return (half & 0x7C00u) != 0x7C00u;
    case SCALE_BF16:
        memcpy(&half, p, sizeof half);
        return (half & 0x7F80u) != 0x7F80u;
    case SCALE_F32:
        memcpy(&single, p, sizeof single);
        return isfinite(single);
    case SCALE_E8M0:
        return *p != 255;
    case SCALE_UE4M3:
        return (*p & 0x7F) != 0x7F; /* NaN in E4M3; decoders take it for 0 or 240 */
    }
    return true;
}

/* Index of the first block with a scale that is not finite; `blocks` when there is none. */
static int64_t first_bad_block(const struct codec *codec, const uint8_t *row, int64_t blocks, size_t block_bytes)
{
    size_t field = codec->kind == SCALE_F32 ? 4 : codec->kind == SCALE_E8M0 || codec->kind == SCALE_UE4M3 ? 1 : 2;
    for (int64_t b = 0; b < blocks; b++)
        for (size_t k = 0; k < codec->scales; k++)
            if (!scale_finite(codec->kind, row + (size_t)b * block_bytes + codec->scale_at + k * field))
                return b;
    return blocks;
}

/* Check the arguments, encode by fn, or the type's own function for NULL, and check the result. */
static int encode(quantize_fn *fn, uint32_t type, const float *x, void *out, int64_t n, const float *imatrix, skua_error *err)
{
    const struct codec *codec = NULL;
    int64_t blocks = 0;
    int rc = codec_for(type, n, &codec, &blocks, err);
    if (rc)
        return rc;
    const struct qtype_info *info = qtype_info(type);
    if (codec->needs_imatrix && !imatrix)
        return error_set(err, SKUA_EARG, "%s needs importance weights (imatrix), none given", info->name);
    int64_t bad = first_bad(x, n, false);
    if (bad < n)
        return error_set(err, SKUA_EARG, "element %lld is %g, expected a finite value", (long long)bad, (double)x[bad]);
    bad = imatrix ? first_bad(imatrix, n, true) : n;
    if (bad < n)
        return error_set(err, SKUA_EARG, "importance weight %lld is %g, expected a finite value, 0 or more", (long long)bad,
                         (double)imatrix[bad]);
    (fn ? fn : codec->quantize)(x, out, blocks, imatrix);
    bad = first_bad_block(codec, out, blocks, info->block_bytes);
    if (bad < blocks)
        return error_set(err, SKUA_EARG, "elements %lld to %lld are too large for %s", (long long)bad * info->block_elements,
                         (long long)(bad + 1) * info->block_elements - 1, info->name);
    return 0;
}

int quantize_row(uint32_t type, const float *x, void *out, int64_t n, const float *imatrix, skua_error *err)
{
    return encode(NULL, type, x, out, n, imatrix, err);
}

int quantize_row_by(const struct quant_tier *tier, uint32_t type, const float *x, void *out, int64_t n, const float *imatrix,
                    skua_error *err)
{
    return encode(type < QTYPE_END ? tier->quantize[type] : NULL, type, x, out, n, imatrix, err);
}

int quantize_row_fitted(uint32_t type, const float *x, void *out, int64_t n, const float *imatrix, skua_error *err)
{
    const struct qtype_info *info = qtype_info(type);
    if (type != QTYPE_Q4_64A && type != QTYPE_Q2_64A)
        return error_set(err, SKUA_EUNSUPPORTED, "tensor type %s (%u) has no fitted form; Q4_64A and Q2_64A have",
                         info ? info->name : "unknown", (unsigned)type);
    return encode(type == QTYPE_Q4_64A ? quantize_q4_64a_fitted : quantize_q2_64a_fitted, type, x, out, n, imatrix, err);
}

int quant_row_check(uint32_t type, const void *row, int64_t n, skua_error *err)
{
    const struct codec *codec = NULL;
    int64_t blocks = 0;
    int rc = codec_for(type, n, &codec, &blocks, err);
    if (rc)
        return rc;
    const struct qtype_info *info = qtype_info(type);
    int64_t bad = first_bad_block(codec, row, blocks, info->block_bytes);
    if (bad < blocks)
        return error_set(err, SKUA_EFORMAT, "elements %lld to %lld of a %s row: a scale is not finite",
                         (long long)bad * info->block_elements, (long long)(bad + 1) * info->block_elements - 1, info->name);
    return 0;
}
