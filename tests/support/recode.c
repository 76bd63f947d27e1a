/* Re-encoded test models; see recode.h. */
#include "support/recode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "quant/quant.h"
#include "support/edit.h"

const int recode_types[N_RECODE_TYPES] = {
    QTYPE_F32, QTYPE_F16, QTYPE_BF16, QTYPE_Q8_0, QTYPE_Q4_0, QTYPE_Q4_K, QTYPE_Q5_K, QTYPE_Q6_K, QTYPE_Q4_1, QTYPE_Q5_0, QTYPE_Q5_1,
    QTYPE_IQ4_NL, QTYPE_MXFP4, QTYPE_NVFP4, QTYPE_Q4_64A, QTYPE_Q2_64A, QTYPE_Q2_K, QTYPE_Q3_K, QTYPE_IQ4_XS, QTYPE_IQ2_XXS, QTYPE_IQ2_S,
};

static bool is_matrix(const struct edit_tensor *t)
{
    return t->ne[1] > 1 && !strstr(t->name, "ssm_conv1d") && !strstr(t->name, "ffn_gate_inp") && !strstr(t->name, "norm");
}

static int recode_tensor(struct edit_tensor *t, uint32_t type, skua_error *err)
{
    int64_t n = (int64_t)t->ne[0], rows = (int64_t)(t->ne[1] * t->ne[2] * t->ne[3]);
    size_t from = qtype_row_bytes(t->type, t->ne[0]), to = qtype_row_bytes(type, t->ne[0]);
    float *x = malloc((size_t)n * sizeof *x), *equal = malloc((size_t)n * sizeof *equal); /* weights of columns, for IQ2_XXS */
    char *out = malloc((size_t)rows * to);
    int rc = x && equal && out && to ? 0 : error_set(err, SKUA_EARG, "%s: rows of %lld do not fit", t->name, (long long)n);
    for (int64_t i = 0; i < n && !rc; i++)
        equal[i] = 1.0f;
    for (int64_t r = 0; r < rows && !rc; r++) {
        rc = dequant_row(t->type, (const uint8_t *)t->data + (size_t)r * from, x, n);
        if (!rc)
            rc = quantize_row(type, x, out + (size_t)r * to, n, type == QTYPE_IQ2_XXS ? equal : NULL, err);
    }
    free(x);
    free(equal);
    t->type = type;
    edit_own(t, out, (size_t)rows * to);
    return rc;
}

int recode_model(const char *src, const char *name, int type, uint64_t seed)
{
    struct edit_model m;
    skua_error err = {0};
    int rc = 0;
    edit_load(&m, src);
    for (int i = 0; i < m.n && !rc; i++) {
        uint32_t to = type == RECODE_MIXED ? (uint32_t)recode_types[rng_bits(seed, (uint64_t)i, 0) % N_RECODE_TYPES] : (uint32_t)type;
        if (is_matrix(&m.t[i]) && to != m.t[i].type)
            rc = recode_tensor(&m.t[i], to, &err);
    }
    if (rc)
        printf("recode %s: %s\n", src, err.message);
    else
        edit_write(&m, name);
    edit_unload(&m);
    return rc;
}
