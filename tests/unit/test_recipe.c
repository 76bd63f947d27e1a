/* Recipes against tables written out by hand, on the tensor names and shapes of the published models: dense ones of 24 to 64 layers,
   mixtures of experts of 40 and 48. Overrides, fallbacks, and what is never quantized. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "convert/recipe.h"
#include "quant/type.h"
#include "support/support.h"

/* ---- models ---- */

#define MAX_TENSORS 2048

struct model {
    char names[MAX_TENSORS][64];
    struct recipe_tensor t[MAX_TENSORS];
    struct recipe_choice c[MAX_TENSORS];
    struct recipe_model m;
};

static struct model *add(struct model *m, uint64_t ne0, uint64_t ne1, uint64_t ne2, uint32_t type, int layer, const char *name)
{
    uint32_t i = m->m.n_tensors++;
    if (layer < 0)
        snprintf(m->names[i], sizeof m->names[i], "%s", name);
    else
        snprintf(m->names[i], sizeof m->names[i], "blk.%d.%s", layer, name);
    m->t[i] = (struct recipe_tensor){.name = m->names[i], .ne = {ne0, ne1, ne2, 1}, .type = type};
    return m;
}

static void add_attention(struct model *m, uint64_t e, int i)
{
    add(m, e, 8192, 1, QTYPE_BF16, i, "attn_q.weight");
    add(m, e, 512, 1, QTYPE_BF16, i, "attn_k.weight");
    add(m, e, 512, 1, QTYPE_BF16, i, "attn_v.weight");
    add(m, 4096, e, 1, QTYPE_BF16, i, "attn_output.weight");
    add(m, 256, 1, 1, QTYPE_F32, i, "attn_q_norm.weight");
    add(m, 256, 1, 1, QTYPE_F32, i, "attn_k_norm.weight");
}

static void add_recurrence(struct model *m, uint64_t e, int i)
{
    add(m, e, 8192, 1, QTYPE_BF16, i, "attn_qkv.weight");
    add(m, e, 4096, 1, QTYPE_BF16, i, "attn_gate.weight");
    add(m, 4, 8192, 1, QTYPE_F32, i, "ssm_conv1d.weight");
    add(m, e, 32, 1, QTYPE_F32, i, "ssm_alpha.weight");
    add(m, e, 32, 1, QTYPE_F32, i, "ssm_beta.weight");
    add(m, 32, 1, 1, QTYPE_F32, i, "ssm_dt.bias");
    add(m, 32, 1, 1, QTYPE_F32, i, "ssm_a");
    add(m, 128, 1, 1, QTYPE_F32, i, "ssm_norm.weight");
    add(m, 4096, e, 1, QTYPE_BF16, i, "ssm_out.weight");
}

static void add_ffn(struct model *m, uint64_t e, bool moe, int i)
{
    add(m, e, 1, 1, QTYPE_F32, i, "attn_norm.weight");
    add(m, e, 1, 1, QTYPE_F32, i, "post_attention_norm.weight");
    if (!moe) {
        add(m, e, 9216, 1, QTYPE_BF16, i, "ffn_gate.weight");
        add(m, e, 9216, 1, QTYPE_BF16, i, "ffn_up.weight");
        add(m, 9216, e, 1, QTYPE_BF16, i, "ffn_down.weight");
        return;
    }
    add(m, e, 256, 1, QTYPE_F32, i, "ffn_gate_inp.weight");
    add(m, e, 1, 1, QTYPE_F32, i, "ffn_gate_inp_shexp.weight");
    add(m, e, 512, 256, QTYPE_BF16, i, "ffn_gate_exps.weight");
    add(m, e, 512, 256, QTYPE_BF16, i, "ffn_up_exps.weight");
    add(m, 512, e, 256, QTYPE_BF16, i, "ffn_down_exps.weight");
    add(m, e, 512, 1, QTYPE_BF16, i, "ffn_gate_shexp.weight");
    add(m, e, 512, 1, QTYPE_BF16, i, "ffn_up_shexp.weight");
    add(m, 512, e, 1, QTYPE_BF16, i, "ffn_down_shexp.weight");
}

static struct model *make(uint32_t trunk, bool moe, bool mtp, bool tied, uint64_t e)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    add(m, e, 248320, 1, QTYPE_BF16, -1, "token_embd.weight");
    add(m, e, 1, 1, QTYPE_F32, -1, "output_norm.weight");
    if (!tied)
        add(m, e, 248320, 1, QTYPE_BF16, -1, "output.weight");
    for (int i = 0; i < (int)trunk; i++) {
        (i % 4 == 3 ? add_attention : add_recurrence)(m, e, i);
        add_ffn(m, e, moe, i);
    }
    if (mtp) {
        add_attention(m, e, (int)trunk);
        add_ffn(m, e, moe, (int)trunk);
        add(m, 2 * e, e, 1, QTYPE_BF16, (int)trunk, "nextn.eh_proj.weight");
        add(m, e, 1, 1, QTYPE_F32, (int)trunk, "nextn.enorm.weight");
        add(m, e, 1, 1, QTYPE_F32, (int)trunk, "nextn.hnorm.weight");
        add(m, e, 1, 1, QTYPE_F32, (int)trunk, "nextn.shared_head_norm.weight");
    }
    m->m.tensors = m->t;
    m->m.n_blocks = trunk + mtp;
    m->m.n_mtp_blocks = mtp;
    return m;
}

static bool choose(struct model *m, const char *recipe, const struct recipe_overrides *o, bool pure)
{
    skua_error err = {0};
    const struct recipe *r = recipe_find(recipe);
    memset(m->c, 0xA5, sizeof m->c);
    return CHECK(r, "recipe %s", recipe) && CHECK(recipe_choose(r, o, pure, &m->m, m->c, &err) == 0, "%s: %s", recipe, err.message);
}

static const struct recipe_choice *choice(const struct model *m, const char *name)
{
    static const struct recipe_choice none = {.type = QTYPE_END};
    for (uint32_t i = 0; i < m->m.n_tensors; i++)
        if (strcmp(m->names[i], name) == 0)
            return &m->c[i];
    CHECK(false, "no tensor %s", name);
    return &none;
}

static const char *type_of(const struct model *m, const char *name)
{
    const struct qtype_info *info = qtype_info(choice(m, name)->type);
    return info ? info->name : "?";
}

static void expect(const struct model *m, const char *what, const char *name, const char *type)
{
    CHECK(strcmp(type_of(m, name), type) == 0, "%s: %s is %s, expected %s", what, name, type_of(m, name), type);
}

/* ---- sets of layers, as "0-4,7,10" ---- */

static bool in_set(const char *set, int i)
{
    for (const char *p = set; *p;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        if (i >= from && i <= to)
            return true;
        p = *end ? end + 1 : end;
    }
    return false;
}

static void test_more_sets(void)
{
    static const struct {
        uint32_t n;
        const char *set;
    } sets[] = {
        {24, "0-2,5,8,11,14,17,20-23"},
        {25, "0-2,5,8,11,14,17,20-23,24"},
        {32, "0-3,6,9,12,15,18,21,24,27,28-31"},
        {33, "0-3,6,9,12,15,18,21,24,27,28-31,32"},
        {40, "0-4,7,10,13,16,19,22,25,28,31,34,35-39"},
        {41, "0-4,7,10,13,16,19,22,25,28,31,34,35-39,40"},
        {48, "0-5,8,11,14,17,20,23,26,29,32,35,38,41,42-47"},
        {49, "0-5,8,11,14,17,20,23,26,29,32,35,38,41,42-47,48"},
        {61, "0-6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,53-60"},
        {64, "0-7,10,13,16,19,22,25,28,31,34,37,40,43,46,49,52,55,56-63"},
        {65, "0-7,10,13,16,19,22,25,28,31,34,37,40,43,46,49,52,55,56-63,64"},
    };
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++)
        for (uint32_t i = 0; i < sets[k].n; i++)
            CHECK(recipe_more_bits(i, sets[k].n) == in_set(sets[k].set, (int)i), "MORE(%u, %u)", i, sets[k].n);
    int n40 = 0, n64 = 0;
    for (uint32_t i = 0; i < 64; i++) {
        n40 += i < 40 && recipe_more_bits(i, 40);
        n64 += recipe_more_bits(i, 64);
    }
    CHECK(n40 == 20 && n64 == 32, "%d and %d layers", n40, n64);
}

/* ---- the table of mixtures ---- */

/* V-like and DOWN: first type in the set of layers, second elsewhere. */
struct row {
    const char *recipe;
    int file_type;
    const char *type, *v_set, *v, *v_else, *down_set, *down, *down_else, *o, *out, *embd;
};

static void check_row(struct model *m, const struct row *r, int n, bool moe, bool tied)
{
    char what[64], name[64];
    snprintf(what, sizeof what, "%s, %d layers%s%s", r->recipe, n, moe ? ", experts" : "", tied ? ", tied" : "");
    if (!choose(m, r->recipe, NULL, false))
        return;
    CHECK(recipe_file_type(recipe_find(r->recipe)) == r->file_type, "%s: file type %d", what, recipe_file_type(recipe_find(r->recipe)));
    expect(m, what, "token_embd.weight", tied ? r->out : r->embd);
    if (!tied)
        expect(m, what, "output.weight", r->out);
    expect(m, what, "output_norm.weight", "F32");
    for (int i = 0; i < n; i++) {
        const char *v = in_set(r->v_set, i) ? r->v : r->v_else, *down = in_set(r->down_set, i) ? r->down : r->down_else;
        static const char *const recurrent[] = {"attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"};
        static const char *const dense[] = {"ffn_gate", "ffn_up"};
        static const char *const experts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_gate_shexp", "ffn_up_shexp"};
        static const char *const downs[] = {"ffn_down", "ffn_down_exps", "ffn_down_shexp"};
        bool full = i % 4 == 3;
        snprintf(name, sizeof name, "blk.%d.%s.weight", i, full ? "attn_v" : "attn_qkv");
        expect(m, what, name, v);
        for (int k = moe; k < (moe ? 3 : 1); k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, downs[k]);
            expect(m, what, name, down);
        }
        for (int k = 0; k < (moe ? 4 : 2); k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, (moe ? experts : dense)[k]);
            expect(m, what, name, r->type);
        }
        for (int k = 0; k < 4 && !full; k++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", i, recurrent[k]);
            expect(m, what, name, r->type);
        }
        if (full) {
            snprintf(name, sizeof name, "blk.%d.attn_output.weight", i);
            expect(m, what, name, r->o);
            snprintf(name, sizeof name, "blk.%d.attn_q.weight", i);
            expect(m, what, name, r->type);
            snprintf(name, sizeof name, "blk.%d.attn_k.weight", i);
            expect(m, what, name, r->type);
        }
    }
}

#define MORE40 "0-4,7,10,13,16,19,22,25,28,31,34,35-39"
#define MORE32 "0-3,6,9,12,15,18,21,24,27,28-31"

static void test_mixtures(void)
{
    /* 40 layers: an eighth is 5, a sixteenth 2 */
    static const struct row moe40[] = {
        {"Q8_0", 7, "Q8_0", "", "", "Q8_0", "", "", "Q8_0", "Q8_0", "Q8_0", "Q8_0"},
        {"Q6_K", 18, "Q6_K", "", "", "Q6_K", "", "", "Q6_K", "Q6_K", "Q6_K", "Q6_K"},
        {"Q5_K_M", 17, "Q5_K", MORE40, "Q6_K", "Q5_K", MORE40, "Q6_K", "Q5_K", "Q5_K", "Q6_K", "Q5_K"},
        {"Q5_K_S", 16, "Q5_K", "", "", "Q5_K", "", "", "Q5_K", "Q5_K", "Q6_K", "Q5_K"},
        {"Q4_K_M", 15, "Q4_K", MORE40, "Q6_K", "Q4_K", MORE40, "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"},
        {"q4_k_s", 14, "Q4_K", "0-3", "Q5_K", "Q4_K", "0-4", "Q5_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"},
        {"Q3_K_L", 13, "Q3_K", "0-39", "Q5_K", "", "0-39", "Q5_K", "", "Q5_K", "Q6_K", "Q3_K"},
        {"Q3_K_M", 12, "Q3_K", "0-1", "Q5_K", "Q4_K", "0-1", "Q5_K", "Q4_K", "Q4_K", "Q6_K", "Q3_K"},
        {"Q3_K_S", 11, "Q3_K", "", "", "Q3_K", "", "", "Q3_K", "Q3_K", "Q6_K", "Q3_K"},
        {"Q2_K", 10, "Q2_K", "0-39", "Q4_K", "", "0-39", "Q3_K", "", "Q3_K", "Q6_K", "Q2_K"},
        {"Q2_K_S", 21, "Q2_K", "0-39", "Q4_K", "", "0-4", "Q4_K", "Q2_K", "Q2_K", "Q6_K", "Q2_K"},
        {"Q4_0", 2, "Q4_0", "", "", "Q4_0", "", "", "Q4_0", "Q4_0", "Q6_K", "Q4_0"},
        {"IQ4_NL", 25, "IQ4_NL", "0-39", "Q5_K", "", "0-4", "Q5_K", "IQ4_NL", "IQ4_NL", "Q6_K", "IQ4_NL"},
        {"iq4_xs", 30, "IQ4_XS", "0-39", "Q5_K", "", "0-4", "Q5_K", "IQ4_XS", "IQ4_XS", "Q6_K", "IQ4_XS"},
        {"NVFP4", 39, "NVFP4", "", "", "NVFP4", "", "", "NVFP4", "NVFP4", "Q6_K", "NVFP4"},
        {"Q4_64A", -1, "Q4_64A", "", "", "Q4_64A", "", "", "Q4_64A", "Q4_64A", "Q6_K", "Q4_64A"},
        {"Q2_64A", -1, "Q2_64A", "0-39", "Q4_64A", "", "0-39", "Q4_64A", "", "Q4_64A", "Q6_K", "Q2_64A"},
        {"F16", 1, "F16", "", "", "F16", "", "", "F16", "F16", "F16", "F16"},
        {"BF16", 32, "BF16", "", "", "BF16", "", "", "BF16", "BF16", "BF16", "BF16"},
        {"F32", 0, "F32", "", "", "F32", "", "", "F32", "F32", "F32", "F32"},
    };
    /* 32 layers: an eighth is 4, a sixteenth 2 */
    static const struct row dense32[] = {
        {"Q5_K_M", 17, "Q5_K", MORE32, "Q6_K", "Q5_K", MORE32, "Q6_K", "Q5_K", "Q5_K", "Q6_K", "Q5_K"},
        {"Q4_K_M", 15, "Q4_K", MORE32, "Q6_K", "Q4_K", MORE32, "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"},
        {"Q4_K_S", 14, "Q4_K", "0-3", "Q5_K", "Q4_K", "0-3", "Q5_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K"},
        {"Q3_K_M", 12, "Q3_K", "0-1", "Q5_K", "Q4_K", "0-1", "Q5_K", "Q4_K", "Q4_K", "Q6_K", "Q3_K"},
        {"Q2_K_S", 21, "Q2_K", "0-31", "Q4_K", "", "0-3", "Q4_K", "Q2_K", "Q2_K", "Q6_K", "Q2_K"},
        {"IQ4_XS", 30, "IQ4_XS", "0-31", "Q5_K", "", "0-3", "Q5_K", "IQ4_XS", "IQ4_XS", "Q6_K", "IQ4_XS"},
        {"IQ2_XXS", 19, "IQ2_XXS", "0-31", "Q4_K", "", "0-3", "Q2_K", "IQ2_XXS", "IQ2_XXS", "Q5_K", "Q2_K"},
        {"IQ2_S", 28, "IQ2_S", "0-31", "Q4_K", "", "0-3", "Q3_K", "IQ2_S", "Q3_K", "Q5_K", "Q3_K"},
        {"IQ2_M", 29, "IQ2_S", "0-31", "Q4_K", "", "0-3", "Q3_K", "IQ2_S", "Q3_K", "Q5_K", "Q3_K"},
    };
    for (int tied = 0; tied < 2; tied++) {
        struct model *m = make(40, true, false, tied, 2048), *d = make(32, false, false, tied, 2560);
        for (size_t i = 0; i < sizeof moe40 / sizeof *moe40; i++)
            check_row(m, &moe40[i], 40, true, tied);
        for (size_t i = 0; i < sizeof dense32 / sizeof *dense32; i++)
            check_row(d, &dense32[i], 32, false, tied);
        free(m);
        free(d);
    }
}

/* 35B-A3B with and without its MTP block: the example of the specification. */
static void test_example(void)
{
    struct model *m = make(40, true, true, false, 2048);
    char name[64];
    choose(m, "Q4_K_M", NULL, false);
    int down = 0, v = 0;
    for (int i = 0; i <= 40; i++) {
        const char *want = i == 40 || in_set(MORE40, i) ? "Q6_K" : "Q4_K";
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
        expect(m, "35B-A3B", name, want);
        down += strcmp(type_of(m, name), "Q6_K") == 0;
        snprintf(name, sizeof name, "blk.%d.ffn_down_shexp.weight", i);
        expect(m, "35B-A3B", name, want);
        snprintf(name, sizeof name, i == 40 || i % 4 == 3 ? "blk.%d.attn_v.weight" : "blk.%d.attn_qkv.weight", i);
        expect(m, "35B-A3B", name, want);
        v += strcmp(type_of(m, name), "Q6_K") == 0;
    }
    CHECK(down == 21 && v == 21, "%d and %d layers with more bits", down, v);
    expect(m, "35B-A3B", "blk.40.nextn.eh_proj.weight", "Q4_K");
    expect(m, "35B-A3B", "blk.40.nextn.enorm.weight", "F32");
    CHECK(choice(m, "blk.40.nextn.enorm.weight")->reason == RECIPE_KEPT, "a norm");
    CHECK(choice(m, "blk.0.ffn_down_exps.weight")->reason == RECIPE_RULE, "rule");
    CHECK(choice(m, "blk.5.ffn_down_exps.weight")->reason == RECIPE_DEFAULT, "default");
    free(m);
    /* 27B has 64 layers; with the MTP block 65 */
    m = make(64, false, true, false, 5120);
    choose(m, "Q5_K_M", NULL, false);
    for (int i = 0; i <= 64; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_down.weight", i);
        expect(m, "27B", name, in_set("0-7,10,13,16,19,22,25,28,31,34,37,40,43,46,49,52,55,56-64", i) ? "Q6_K" : "Q5_K");
    }
    free(m);
}

/* The plain counter of the IQ2 mixtures: two DOWN tensors a layer, five of them get more bits. */
static void test_counted_down(void)
{
    struct model *m = make(40, true, false, false, 2048);
    static const char *const recipes[][3] = {{"IQ2_XXS", "Q2_K", "IQ2_XXS"}, {"IQ2_M", "Q3_K", "IQ2_S"}};
    for (int k = 0; k < 2; k++) {
        choose(m, recipes[k][0], NULL, false);
        for (int i = 0; i < 40; i++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
            expect(m, recipes[k][0], name, i < 3 ? recipes[k][1] : recipes[k][2]);
            CHECK(choice(m, name)->needs_imatrix == (i >= 3), "%s needs weights", name);
            snprintf(name, sizeof name, "blk.%d.ffn_down_shexp.weight", i);
            expect(m, recipes[k][0], name, i < 2 ? recipes[k][1] : recipes[k][2]);
        }
        CHECK(!choice(m, "token_embd.weight")->needs_imatrix && !choice(m, "output.weight")->needs_imatrix, "embedding and output");
    }
    choose(m, "Q2_K_S", NULL, false);
    CHECK(choice(m, "blk.9.ffn_up_exps.weight")->needs_imatrix && !choice(m, "blk.0.ffn_down_exps.weight")->needs_imatrix
              && !choice(m, "token_embd.weight")->needs_imatrix, "Q2_K in Q2_K_S");
    choose(m, "Q2_K", NULL, false);
    CHECK(!choice(m, "blk.9.ffn_up_exps.weight")->needs_imatrix, "Q2_K in Q2_K");
    free(m);
}

static void test_imatrix_rules(void)
{
    struct model *m = make(40, true, false, false, 2048);
    m->m.has_imatrix = true;
    choose(m, "Q4_0", NULL, false);
    for (int i = 3; i < 7; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", i);
        expect(m, "Q4_0 with weights", name, i < 5 ? "Q4_1" : "Q4_0");
    }
    choose(m, "IQ4_XS", NULL, false);
    expect(m, "IQ4_XS with weights", "blk.0.ffn_down_exps.weight", "IQ4_XS");
    expect(m, "IQ4_XS with weights", "blk.0.attn_qkv.weight", "Q5_K");
    free(m);
}

static void test_mxfp4(void)
{
    struct model *m = make(40, true, true, false, 2048), *d = make(24, false, true, true, 1024);
    choose(m, "mxfp4_moe", NULL, false);
    for (uint32_t i = 0; i < m->m.n_tensors; i++) {
        const char *want = m->c[i].reason == RECIPE_KEPT ? "F32" : m->t[i].ne[2] > 1 ? "MXFP4" : "Q8_0";
        expect(m, "MXFP4", m->names[i], want);
    }
    CHECK(recipe_file_type(recipe_find("MXFP4")) == 38, "file type");
    choose(d, "MXFP4", NULL, false);
    static const char *const want[][2] = {{"token_embd.weight", "Q8_0"}, {"blk.0.attn_qkv.weight", "Q8_0"}, {"blk.3.attn_v.weight", "Q8_0"},
        {"blk.0.ssm_alpha.weight", "Q8_0"}, {"blk.0.ssm_beta.weight", "Q8_0"}, {"blk.0.ssm_out.weight", "MXFP4"},
        {"blk.0.attn_gate.weight", "MXFP4"}, {"blk.3.attn_q.weight", "MXFP4"}, {"blk.3.attn_k.weight", "MXFP4"},
        {"blk.3.attn_output.weight", "MXFP4"}, {"blk.9.ffn_down.weight", "MXFP4"}, {"blk.9.ffn_gate.weight", "MXFP4"},
        {"blk.9.ffn_up.weight", "MXFP4"}, {"blk.24.nextn.eh_proj.weight", "MXFP4"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        expect(d, "MXFP4, dense", want[i][0], want[i][1]);
    free(m);
    free(d);
}

/* ---- APEX ---- */

static void test_apex(void)
{
    static const struct {
        const char *name;
        int file_type;
        const char *edge, *near, *mid, *shared_edge, *shared_mid, *attn_edge, *attn_mid;
        const char *out, *embd, *mtp_v, *mtp_down, *mtp_o, *mtp_up; /* of the base */
    } tiers[] = {
        {"APEX-Quality", 18, "Q6_K", "Q5_K", "IQ4_XS", "Q8_0", "Q8_0", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K"},
        {"APEX-Balanced", 18, "Q6_K", "Q5_K", "Q5_K", "Q8_0", "Q8_0", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K"},
        {"apex-compact", 15, "Q4_K", "Q3_K", "Q3_K", "Q6_K", "Q6_K", "Q4_K", "Q4_K", "Q6_K", "Q4_K", "Q6_K", "Q6_K", "Q4_K", "Q4_K"},
        {"Apex-Mini", 12, "Q3_K", "Q3_K", "IQ2_S", "Q5_K", "Q4_K", "Q4_K", "Q3_K", "Q6_K", "Q3_K", "Q4_K", "Q4_K", "Q4_K", "Q3_K"},
        {"APEX-Nano", 18, "Q3_K", "IQ2_S", "IQ2_XXS", "Q5_K", "Q4_K", "Q4_K", "Q3_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K", "Q6_K"},
    };
    static const char *const experts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    static const char *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    static const char *const full[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    static const char *const recurrent[] = {"attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"};
    struct model *m = make(40, true, true, false, 2048);
    char name[64];
    for (size_t k = 0; k < sizeof tiers / sizeof *tiers; k++) {
        if (!choose(m, tiers[k].name, NULL, false))
            continue;
        CHECK(recipe_file_type(recipe_find(tiers[k].name)) == tiers[k].file_type, "%s", tiers[k].name);
        for (int i = 0; i < 40; i++) {
            const char *e = in_set("0-4,35-39", i) ? tiers[k].edge : in_set("5-9,30-34", i) ? tiers[k].near : tiers[k].mid;
            const char *s = in_set("0-4,35-39", i) ? tiers[k].shared_edge : tiers[k].shared_mid;
            const char *a = in_set("0-2,37-39", i) ? tiers[k].attn_edge : tiers[k].attn_mid;
            for (int j = 0; j < 3; j++) {
                snprintf(name, sizeof name, "blk.%d.%s.weight", i, experts[j]);
                expect(m, tiers[k].name, name, e);
                snprintf(name, sizeof name, "blk.%d.%s.weight", i, shared[j]);
                expect(m, tiers[k].name, name, s);
            }
            for (int j = 0; j < (i % 4 == 3 ? 4 : 5); j++) {
                snprintf(name, sizeof name, "blk.%d.%s.weight", i, (i % 4 == 3 ? full : recurrent)[j]);
                expect(m, tiers[k].name, name, a);
            }
        }
        expect(m, tiers[k].name, "output.weight", tiers[k].out);
        expect(m, tiers[k].name, "token_embd.weight", tiers[k].embd);
        expect(m, tiers[k].name, "blk.40.attn_v.weight", tiers[k].mtp_v);
        expect(m, tiers[k].name, "blk.40.ffn_down_exps.weight", tiers[k].mtp_down);
        expect(m, tiers[k].name, "blk.40.attn_output.weight", tiers[k].mtp_o);
        expect(m, tiers[k].name, "blk.40.ffn_up_exps.weight", tiers[k].mtp_up);
        expect(m, tiers[k].name, "blk.40.nextn.eh_proj.weight", tiers[k].mtp_up);
        expect(m, tiers[k].name, "blk.3.attn_q_norm.weight", "F32");
        expect(m, tiers[k].name, "blk.3.ffn_gate_inp.weight", "F32");
    }
    free(m);
    m = make(48, true, false, false, 3072); /* 122B-A10B: the classes move with the end */
    choose(m, "APEX-Quality", NULL, false);
    for (int i = 0; i < 48; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", i);
        expect(m, "122B", name, in_set("0-4,43-47", i) ? "Q6_K" : in_set("5-9,38-42", i) ? "Q5_K" : "IQ4_XS");
    }
    free(m);
}

/* ---- what is kept, fallbacks, overrides ---- */

static void test_kept(void)
{
    struct model *m = make(4, true, true, false, 2048);
    static const char *const kept[] = {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.post_attention_norm.weight", "blk.0.ssm_a",
        "blk.0.ssm_dt.bias", "blk.0.ssm_conv1d.weight", "blk.0.ssm_norm.weight", "blk.0.ffn_gate_inp.weight",
        "blk.0.ffn_gate_inp_shexp.weight", "blk.4.nextn.enorm.weight", "blk.4.nextn.hnorm.weight", "blk.4.nextn.shared_head_norm.weight",
        "blk.3.attn_q_norm.weight", "blk.0.ffn_up_exps.scale", "blk.0.ffn_up_exps.input_scale", "v.patch_embd.weight", "odd_matrix"};
    static const char *const quantized[] = {"blk.0.ssm_alpha.weight", "blk.0.ssm_beta.weight", "blk.0.ssm_out.weight",
        "blk.0.attn_gate.weight", "blk.4.nextn.eh_proj.weight", "fc.weight", "selector_hidden.weight"};
    add(m, 256, 1, 1, QTYPE_F32, 0, "ffn_up_exps.scale");
    add(m, 256, 4, 1, QTYPE_F32, 0, "ffn_up_exps.input_scale");
    add(m, 256, 4, 1, QTYPE_F32, -1, "v.patch_embd.weight");
    add(m, 256, 4, 1, QTYPE_F32, -1, "odd_matrix");
    add(m, 256, 4, 1, QTYPE_F32, -1, "fc.weight");
    add(m, 256, 4, 1, QTYPE_F32, -1, "selector_hidden.weight");
    for (size_t r = 0; recipe_at(r); r++) {
        if (!choose(m, recipe_name(recipe_at(r)), NULL, r % 2))
            continue;
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
            expect(m, recipe_name(recipe_at(r)), kept[i], "F32");
            CHECK(choice(m, kept[i])->reason == RECIPE_KEPT, "%s: %s", recipe_name(recipe_at(r)), kept[i]);
        }
        for (size_t i = 0; i < sizeof quantized / sizeof *quantized; i++)
            CHECK((choice(m, quantized[i])->reason == RECIPE_KEPT) == recipe_copies(recipe_at(r)), "%s: %s", recipe_name(recipe_at(r)),
                  quantized[i]);
    }
    choose(m, "COPY", NULL, false);
    for (uint32_t i = 0; i < m->m.n_tensors; i++)
        CHECK(m->c[i].type == m->t[i].type, "COPY keeps %s", m->names[i]);
    CHECK(recipe_file_type(recipe_find("COPY")) == -1, "COPY has no file type");
    choose(m, "Q4_K_M", NULL, true);
    expect(m, "pure", "output.weight", "Q4_K");
    expect(m, "pure", "blk.0.ffn_down_exps.weight", "Q4_K");
    free(m);
}

static struct model *one(uint64_t ne0, const char *name)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    add(m, ne0, 8, 1, QTYPE_F32, -1, name);
    m->m.tensors = m->t;
    m->m.n_blocks = 8;
    return m;
}

static void test_fallbacks(void)
{
    static const struct {
        const char *recipe;
        const char *by32; /* rows of 320 or 352; NULL: refused */
    } rows[] = {{"Q6_K", "Q8_0"}, {"Q5_K_S", "Q5_1"}, {"Q4_K_S", "Q5_0"}, {"Q3_K_S", "Q4_0"}, {"Q2_K", "Q4_0"}, {"IQ4_XS", "IQ4_NL"},
                {"IQ2_XXS", "IQ4_NL"}, {"IQ2_M", "IQ4_NL"}, {"Q8_0", "Q8_0"}, {"Q4_0", "Q4_0"}, {"IQ4_NL", "IQ4_NL"}, {"MXFP4", "MXFP4"},
                {"NVFP4", NULL}, {"Q4_64A", NULL}, {"Q2_64A", NULL}, {"F16", "F16"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model *m = one(352, "blk.7.ffn_up.weight"), *odd = one(100, "blk.7.ffn_up.weight");
        skua_error err = {0};
        const struct recipe *r = recipe_find(rows[i].recipe);
        if (rows[i].by32) {
            choose(m, rows[i].recipe, NULL, false);
            expect(m, rows[i].recipe, "blk.7.ffn_up.weight", rows[i].by32);
            bool fell = m->c[0].type != m->c[0].wanted;
            CHECK((m->c[0].reason == RECIPE_FALLBACK) == fell, "%s: reason", rows[i].recipe);
            CHECK(!m->c[0].needs_imatrix, "%s: what came of it needs no weights", rows[i].recipe);
        } else {
            CHECK(recipe_choose(r, NULL, false, &m->m, m->c, &err) == SKUA_EARG && strstr(err.message, "'blk.7.ffn_up.weight'")
                      && strstr(err.message, "352") && strstr(err.message, rows[i].recipe), "%s: %s", rows[i].recipe, err.message);
        }
        choose(odd, rows[i].recipe, NULL, false);
        expect(odd, rows[i].recipe, "blk.7.ffn_up.weight", "F16");
        free(m);
        free(odd);
    }
    struct model *m = one(352, "output.weight"); /* the output has a rule of its own */
    choose(m, "Q4_K_M", NULL, false);
    expect(m, "output", "output.weight", "Q8_0");
    CHECK(m->c[0].reason == RECIPE_FALLBACK && m->c[0].wanted == QTYPE_Q6_K, "output: reason");
    choose(m, "NVFP4", NULL, false);
    expect(m, "output", "output.weight", "Q8_0");
    choose(m, "Q4_0", NULL, false); /* the default fits, the exception does not */
    expect(m, "output", "output.weight", "Q8_0");
    free(m);
    m = one(352, "token_embd.weight");
    choose(m, "Q4_K_M", NULL, false);
    expect(m, "tied", "token_embd.weight", "Q8_0");
    free(m);
}

static void test_overrides(void)
{
    struct recipe_overrides o = {0};
    skua_error err = {0};
    static const char *const good[] = {"ssm_(alpha|beta)=copy", "ffn_down_exps\\.weight$=q6_K", "blk\\.[0-3]\\.ffn_=Q8_0", "ffn_=IQ4_XS",
                                       "^output\\.weight$=F16", "token_embd=Q5_1", "_norm=Q8_0", "x=y=Q4_0"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(recipe_overrides_add(&o, good[i], &err) == 0, "%s: %s", good[i], err.message);
        CHECK(strcmp(recipe_overrides_text(&o, i), good[i]) == 0, "text %zu", i);
    }
    static const char *const bad[][2] = {
        {"ffn", "'ffn': expected REGEX=TYPE"}, {"=Q8_0", "expected REGEX=TYPE"}, {"ffn=", "expected REGEX=TYPE"},
        {"ffn=Q9", "'Q9' is no type"}, {"ffn=IQ3_S", "'IQ3_S' is no type"}, {"ffn=Q8_K", "'Q8_K' is no type"},
        {"f(=Q8_0", "'f(=Q8_0': not a regular expression: "}, {"f[=Q8_0", "not a regular expression"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(recipe_overrides_add(&o, bad[i][0], &err) == SKUA_EARG && strstr(err.message, bad[i][1]), "%s: %s", bad[i][0], err.message);
    CHECK(o.n == sizeof good / sizeof *good, "%zu overrides", o.n);
    struct model *m = make(8, true, false, false, 2048);
    choose(m, "Q4_K_M", &o, false);
    static const char *const want[][2] = {{"blk.0.ssm_alpha.weight", "F32"}, {"blk.7.ffn_down_exps.weight", "Q6_K"},
        {"blk.0.ffn_down_exps.weight", "Q6_K"}, {"blk.3.ffn_up_exps.weight", "Q8_0"}, {"blk.4.ffn_up_exps.weight", "IQ4_XS"},
        {"output.weight", "F16"}, {"token_embd.weight", "Q5_1"}, {"blk.0.attn_norm.weight", "F32"}, {"blk.4.ffn_gate_inp.weight", "F32"},
        {"blk.4.attn_qkv.weight", "Q4_K"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        expect(m, "override", want[i][0], want[i][1]);
    const struct recipe_choice *up = choice(m, "blk.4.ffn_up_exps.weight");
    CHECK(up->reason == RECIPE_OVERRIDE && up->override == 3, "reason");
    CHECK(choice(m, "blk.0.attn_norm.weight")->reason == RECIPE_KEPT && choice(m, "blk.0.attn_norm.weight")->override == 6, "a norm");
    choose(m, "COPY", &o, true);
    expect(m, "COPY and override", "blk.4.ffn_up_exps.weight", "IQ4_XS");
    expect(m, "COPY and override", "blk.4.attn_qkv.weight", "BF16");
    free(m);
    m = one(352, "blk.0.ffn_up.weight"); /* an override is subject to the shape */
    choose(m, "Q8_0", &o, false);
    expect(m, "override", "blk.0.ffn_up.weight", "Q8_0");
    recipe_overrides_free(&o);
    CHECK(recipe_overrides_add(&o, "ffn=Q6_K", &err) == 0, "%s", err.message);
    choose(m, "Q4_0", &o, false);
    CHECK(m->c[0].reason == RECIPE_FALLBACK && m->c[0].wanted == QTYPE_Q6_K && m->c[0].type == QTYPE_Q8_0, "override and shape");
    free(m);
    recipe_overrides_free(&o);
}

/* The order of tensors in the file does not matter, and memory may run out. */
static void test_order_and_memory(void)
{
    struct model *m = make(40, true, true, false, 2048);
    skua_error err = {0};
    for (size_t r = 0; recipe_at(r); r++) {
        struct model *other = calloc(1, sizeof *other);
        if (!other)
            abort();
        *other = *m;
        uint32_t n = m->m.n_tensors;
        for (uint32_t i = 0; i < n; i++)
            other->t[i] = m->t[(i * 7 + 3) % n]; /* 7 does not divide n */
        other->m.tensors = other->t;
        CHECK(n % 7 != 0, "a permutation");
        choose(m, recipe_name(recipe_at(r)), NULL, false);
        choose(other, recipe_name(recipe_at(r)), NULL, false);
        for (uint32_t i = 0; i < n; i++)
            CHECK(memcmp(&other->c[i], &m->c[(i * 7 + 3) % n], sizeof m->c[0]) == 0, "%s: %s", recipe_name(recipe_at(r)), other->t[i].name);
        free(other);
    }
    fault_set_alloc(1, true);
    int rc = recipe_choose(recipe_find("Q8_0"), NULL, false, &m->m, m->c, &err);
    fault_set_alloc(0, false);
    CHECK(rc == SKUA_ENOMEM, "no memory: %d", rc);
    for (uint64_t k = 1; k <= 2; k++) {
        struct recipe_overrides o = {0};
        fault_set_alloc(k, true);
        rc = recipe_overrides_add(&o, "x=Q8_0", &err);
        fault_set_alloc(0, false);
        CHECK(rc == SKUA_ENOMEM && o.n == 0, "no memory: %d", rc);
        recipe_overrides_free(&o);
    }
    CHECK(!recipe_find("") && !recipe_find("Q4_K") && !recipe_find("APEX-Micro"), "unknown recipes");
    free(m);
}

int main(void)
{
    test_more_sets();
    test_mixtures();
    test_example();
    test_counted_down();
    test_imatrix_rules();
    test_mxfp4();
    test_apex();
    test_kept();
    test_fallbacks();
    test_overrides();
    test_order_and_memory();
    return support_finish("test_recipe");
}
