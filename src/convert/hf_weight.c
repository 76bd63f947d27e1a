/* Weights as checkpoints store them; see hf_weight.h. Data may lie at any address: elements are read with memcpy. */
#include "convert/hf_weight.h"

#include <stdio.h>
#include <string.h>

#include "quant/half.h"
#include "quant/type.h"

/* ---- numbers ---- */

static void read_plain(enum st_dtype dtype, const uint8_t *p, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;
        double wide;
        switch (dtype) {
        case ST_F16:
            memcpy(&half, p + 2 * i, 2);
            out[i] = f16_to_f32(half);
            break;
        case ST_BF16:
            memcpy(&half, p + 2 * i, 2);
            out[i] = bf16_to_f32(half);
            break;
        case ST_F64:
            memcpy(&wide, p + 8 * i, 8);
            out[i] = (float)wide;
            break;
        default:
            memcpy(&out[i], p + 4 * i, 4);
            break;
        }
    }
}

static bool is_plain(enum st_dtype d) { return d == ST_F32 || d == ST_F16 || d == ST_BF16 || d == ST_F64; }

float hf_scalar(const struct st_tensor *t, uint64_t i)
{
    float v;
    read_plain(t->dtype, t->data + i * (st_dtype_bits(t->dtype) / 8), 1, &v);
    return v;
}

/* E4M3: exponent bias 7, no infinities, 0x7F and 0xFF are NaN. */
static float e4m3(uint8_t b)
{
    uint32_t code = b & 0x7Fu;
    float v = code < 8 ? (float)code * 0x1p-9f : f32_from_bits((code << 20) + (120u << 23));
    if (code == 0x7F)
        v = f32_from_bits(0x7FC00000u);
    return b & 0x80 ? -v : v;
}

static const float fp4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* ---- binding ---- */

static int fail(const struct hf_source *s, const struct st_tensor *t, skua_error *err, int code, const char *what)
{
    return error_set(err, code, "%s: tensor '%.200s' %s", safetensors_path(s->st, t->file), t->name, what);
}

/* Is the shape this one, without sizes of 1? */
static bool shape_is(const struct st_tensor *t, const uint64_t *dims, uint32_t n)
{
    uint32_t d = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (dims[i] == 1)
            continue;
        while (d < t->n_dims && t->shape[d] == 1)
            d++;
        if (d == t->n_dims || t->shape[d++] != dims[i])
            return false;
    }
    while (d < t->n_dims && t->shape[d] == 1)
        d++;
    return d == t->n_dims;
}

static int check_shape(const struct hf_source *s, const struct st_tensor *t, uint64_t matrices, uint64_t rows, uint64_t cols,
                       skua_error *err)
{
    uint64_t dims[3] = {matrices, rows, cols};
    char has[128], want[80], stack[24] = "";
    if (shape_is(t, dims, 3))
        return 0;
    st_shape_text(t, has, sizeof has);
    if (matrices != 1)
        snprintf(stack, sizeof stack, "%llu, ", (unsigned long long)matrices);
    if (rows == 1 && matrices == 1)
        snprintf(want, sizeof want, "[%llu]", (unsigned long long)cols);
    else
        snprintf(want, sizeof want, "[%s%llu, %llu]", stack, (unsigned long long)rows, (unsigned long long)cols);
    return error_set(err, SKUA_EFORMAT, "%s: tensor '%.200s' has shape %s, expected %s", safetensors_path(s->st, t->file), t->name, has,
                     want);
}

/* name with `tail` in place of its last n_cut bytes. */
static const struct st_tensor *companion(struct hf_source *s, const char *name, size_t n_cut, const char *tail)
{
    char text[512];
    snprintf(text, sizeof text, "%.*s%s", (int)(strlen(name) - n_cut), name, tail);
    return hf_source_find(s, text, true);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

/* A number for each matrix, or one for all. */
static int check_factor(const struct hf_source *s, const struct st_tensor *t, uint64_t matrices, skua_error *err)
{
    if (!t)
        return 0;
    if (!is_plain(t->dtype))
        return fail(s, t, err, SKUA_EFORMAT, "is not of dtype F32, F16 or BF16");
    return t->elements == 1 ? 0 : check_shape(s, t, 1, 1, matrices, err);
}

static int bind_fp8(struct hf_weight *w, struct hf_source *s, const char *name, skua_error *err)
{
    w->encoding = HF_FP8;
    w->scales = companion(s, name, 0, "_scale_inv");
    if (!w->scales)
        w->scales = companion(s, name, 0, "_scale");
    if (ends_with(name, ".weight"))
        w->input_scale = companion(s, name, 6, "input_scale");
    if (!w->scales)
        return fail(s, w->data, err, SKUA_EFORMAT, "is of dtype F8_E4M3, but there is no tensor of that name with _scale_inv or _scale "
                    "behind it");
    if (!is_plain(w->scales->dtype))
        return fail(s, w->scales, err, SKUA_EFORMAT, "is not of dtype F32, F16 or BF16");
    int rc = check_shape(s, w->data, w->matrices, w->rows, w->cols, err);
    if (rc)
        return rc;
    w->block_rows = w->rows;
    w->block_cols = w->cols;
    if (w->scales->elements == 1 && w->matrices == 1)
        return 0;
    w->block_rows = s->config->fp8_rows ? (uint64_t)s->config->fp8_rows : 128;
    w->block_cols = s->config->fp8_cols ? (uint64_t)s->config->fp8_cols : 128;
    return check_shape(s, w->scales, w->matrices, (w->rows - 1) / w->block_rows + 1, (w->cols - 1) / w->block_cols + 1, err);
}

/* Two elements a byte, or eight a word: the same order in memory. */
static int bind_nvfp4(struct hf_weight *w, struct hf_source *s, skua_error *err)
{
    uint64_t per_item = w->data->dtype == ST_U8 ? 2 : 8;
    w->encoding = HF_NVFP4;
    if (w->cols % 16)
        return fail(s, w->data, err, SKUA_EFORMAT, "is NVFP4, but its rows are no multiple of 16 long");
    if (!w->scales || (w->scales->dtype != ST_F8_E4M3 && w->scales->dtype != ST_U8))
        return fail(s, w->data, err, SKUA_EFORMAT, "is NVFP4, but there is no tensor of its scales in E4M3");
    int rc = check_shape(s, w->data, w->matrices, w->rows, w->cols / per_item, err);
    if (!rc) rc = check_shape(s, w->scales, w->matrices, w->rows, w->cols / 16, err);
    if (!rc) rc = check_factor(s, w->factor, w->matrices, err);
    if (!rc) rc = check_factor(s, w->input_scale, w->matrices, err);
    if (w->cols % 64 == 0)
        w->packed = QTYPE_NVFP4;
    return rc;
}

static int bind_affine(struct hf_weight *w, struct hf_source *s, skua_error *err)
{
    const struct st_tensor *d = w->data;
    uint64_t words = d->n_dims ? d->shape[d->n_dims - 1] : 0;
    uint64_t groups = w->scales && w->scales->n_dims ? w->scales->shape[w->scales->n_dims - 1] : 0;
    w->encoding = HF_AFFINE;
    if (!groups || w->cols % groups)
        return fail(s, d, err, SKUA_EFORMAT, "is packed, but there is no tensor of its scales that fits");
    w->group = (uint32_t)(w->cols / groups);
    w->bits = (uint32_t)(words * 32 / w->cols);
    if ((w->bits != 2 && w->bits != 4 && w->bits != 8) || words * 32 % w->cols)
        return error_set(err, SKUA_EUNSUPPORTED, "%s: tensor '%.200s' has rows of %llu elements in %llu words; supported: 2, 4 and 8 bits",
                         safetensors_path(s->st, d->file), d->name, (unsigned long long)w->cols, (unsigned long long)words);
    if (!is_plain(w->scales->dtype) || w->biases->dtype != w->scales->dtype)
        return fail(s, w->scales, err, SKUA_EFORMAT, "or the biases beside it are not of dtype F32, F16 or BF16, the same for both");
    int rc = check_shape(s, d, w->matrices, w->rows, words, err);
    if (!rc) rc = check_shape(s, w->scales, w->matrices, w->rows, groups, err);
    if (!rc) rc = check_shape(s, w->biases, w->matrices, w->rows, groups, err);
    if (w->group == 64 && w->bits != 8 && w->scales->dtype == ST_BF16)
        w->packed = w->bits == 4 ? QTYPE_Q4_64A : QTYPE_Q2_64A;
    return rc;
}

static int bind_packed(struct hf_weight *w, struct hf_source *s, const char *name, skua_error *err)
{
    const struct st_tensor *d = w->data;
    bool modelopt = s->config->quant == HF_QUANT_MODELOPT && d->dtype == ST_U8;
    bool mlx = s->config->quant == HF_QUANT_MLX && d->dtype == ST_U32;
    if (!ends_with(name, ".weight") || (!modelopt && !mlx))
        return error_set(err, SKUA_EFORMAT, "%s: tensor '%.200s' is of dtype %s, expected F32, F16 or BF16",
                         safetensors_path(s->st, d->file), d->name, st_dtype_name(d->dtype));
    if (modelopt) {
        w->scales = companion(s, name, 0, "_scale");
        w->factor = companion(s, name, 0, "_scale_2");
        w->input_scale = companion(s, name, 6, "input_scale");
        return bind_nvfp4(w, s, err);
    }
    w->scales = companion(s, name, 6, "scales");
    w->biases = companion(s, name, 6, "biases");
    w->factor = companion(s, name, 6, "global_scale");
    return w->biases ? bind_affine(w, s, err) : bind_nvfp4(w, s, err);
}

int hf_weight_bind(struct hf_weight *w, struct hf_source *s, const char *name, uint64_t matrices, uint64_t rows, uint64_t cols,
                   skua_error *err)
{
    *w = (struct hf_weight){.data = hf_source_find(s, name, true), .matrices = matrices, .rows = rows, .cols = cols, .packed = -1};
    if (!w->data)
        return error_set(err, SKUA_EFORMAT, "%s%s: tensor '%.200s' is missing", safetensors_path(s->st, 0),
                         safetensors_files(s->st) > 1 ? " and the files beside it" : "", name);
    if (is_plain(w->data->dtype))
        return check_shape(s, w->data, matrices, rows, cols, err);
    if (w->data->dtype == ST_F8_E4M3)
        return bind_fp8(w, s, name, err);
    return bind_packed(w, s, name, err);
}

/* ---- rows ---- */

static float factor_of(const struct st_tensor *t, uint64_t matrix) { return t ? hf_scalar(t, t->elements == 1 ? 0 : matrix) : 1.0f; }

static void row_fp8(const struct hf_weight *w, uint64_t matrix, uint64_t row, float *out)
{
    const uint8_t *p = w->data->data + (matrix * w->rows + row) * w->cols;
    uint64_t block_rows = (w->rows - 1) / w->block_rows + 1, block_cols = (w->cols - 1) / w->block_cols + 1;
    uint64_t first = (matrix * block_rows + row / w->block_rows) * block_cols;
    for (uint64_t b = 0; b < block_cols; b++) {
        float scale = hf_scalar(w->scales, first + b);
        uint64_t end = (b + 1) * w->block_cols < w->cols ? (b + 1) * w->block_cols : w->cols;
        for (uint64_t i = b * w->block_cols; i < end; i++)
            out[i] = e4m3(p[i]) * scale;
    }
}

static void row_nvfp4(const struct hf_weight *w, uint64_t matrix, uint64_t row, float *out)
{
    uint64_t at = matrix * w->rows + row;
    const uint8_t *p = w->data->data + at * (w->cols / 2), *scales = w->scales->data + at * (w->cols / 16);
    float factor = factor_of(w->factor, matrix);
    for (uint64_t i = 0; i < w->cols; i++)
        out[i] = fp4[p[i / 2] >> 4 * (i & 1) & 15] * e4m3(scales[i / 16] & 0x7Fu) * factor;
}

static void row_affine(const struct hf_weight *w, uint64_t matrix, uint64_t row, float *out)
{
    uint64_t at = matrix * w->rows + row, groups = w->cols / w->group;
    const uint8_t *p = w->data->data + at * (w->cols * w->bits / 8);
    unsigned per_byte = 8 / w->bits, mask = (1u << w->bits) - 1;
    for (uint64_t g = 0; g < groups; g++) {
        float scale = hf_scalar(w->scales, at * groups + g), bias = hf_scalar(w->biases, at * groups + g);
        for (uint64_t i = g * w->group; i < (g + 1) * w->group; i++) {
            unsigned code = (unsigned)p[i / per_byte] >> (i % per_byte) * w->bits & mask;
            float product = (float)code * scale;
            out[i] = product + bias;
        }
    }
}

void hf_weight_row(const struct hf_weight *w, uint64_t matrix, uint64_t row, float *out)
{
    switch (w->encoding) {
    case HF_PLAIN:
        read_plain(w->data->dtype, w->data->data + (matrix * w->rows + row) * w->cols * (st_dtype_bits(w->data->dtype) / 8), w->cols, out);
        break;
    case HF_FP8: row_fp8(w, matrix, row, out); break;
    case HF_NVFP4: row_nvfp4(w, matrix, row, out); break;
    case HF_AFFINE: row_affine(w, matrix, row, out); break;
    }
}

/* Blocks of 64: four scales, then for each group of 16 eight bytes with element j low and element j + 8 high. */
static void pack_nvfp4(const struct hf_weight *w, uint64_t at, uint8_t *out)
{
    const uint8_t *p = w->data->data + at * (w->cols / 2), *scales = w->scales->data + at * (w->cols / 16);
    for (uint64_t g = 0; g < w->cols / 16; g++, p += 8) {
        uint8_t *block = out + g / 4 * 36, *codes = block + 4 + g % 4 * 8;
        block[g % 4] = scales[g] & 0x7Fu;
        for (unsigned j = 0; j < 8; j++) {
            unsigned low = p[j / 2] >> 4 * (j & 1) & 15u, high = p[4 + j / 2] >> 4 * (j & 1) & 15u;
            codes[j] = (uint8_t)(low | high << 4);
        }
    }
}

/* Blocks of 64: the codes as they are, scale, bias. */
static void pack_affine(const struct hf_weight *w, uint64_t at, uint8_t *out)
{
    uint64_t groups = w->cols / 64;
    size_t bytes = 8u * w->bits;
    const uint8_t *p = w->data->data + at * groups * bytes;
    for (uint64_t g = 0; g < groups; g++, p += bytes, out += bytes + 4) {
        memcpy(out, p, bytes);
        memcpy(out + bytes, w->scales->data + 2 * (at * groups + g), 2);
        memcpy(out + bytes + 2, w->biases->data + 2 * (at * groups + g), 2);
    }
}

void hf_weight_pack(const struct hf_weight *w, uint64_t matrix, uint64_t row, uint8_t *out)
{
    uint64_t at = matrix * w->rows + row;
    w->encoding == HF_NVFP4 ? pack_nvfp4(w, at, out) : pack_affine(w, at, out);
}
