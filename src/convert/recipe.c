/* The recipes as tables, and their evaluation; see recipe.h. Rules: spec/quants.md sections 10 and 11. */
#include "convert/recipe.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "quant/quant.h"

/* ---- the recipes ---- */

enum when { NEVER, ALWAYS, MORE, FIRST_2, FIRST_4, EIGHTH, SIXTEENTH, EIGHTH_WITH_IMATRIX, EIGHTH_WITHOUT_IMATRIX };

#define SAME QTYPE_END /* the recipe's default type */

struct exception {
    uint8_t when, type;
    uint8_t otherwise; /* type where `when` does not hold; 0 (which is F32): the default */
};

/* Types of the APEX tiers, by how far a layer is from both ends of the trunk. */
struct gradient {
    uint8_t experts_edge, experts_near, experts_mid;
    uint8_t shared_edge, shared_mid;
    uint8_t attention_edge, attention_mid; /* and the recurrent layers' matrices */
};

enum kind { MIXTURE, UNIFORM, COPY, FP4_EXPERTS };

struct recipe {
    const char *name;
    int16_t file_type;
    uint8_t type;
    uint8_t kind;
    struct exception v, down;
    uint8_t attn_output, output, embd; /* embd: when there is an output matrix too, else it is the output matrix */
    bool counts_down;                  /* `down` goes by the number of the tensor among its kind, not by its layer */
    bool scarce;                       /* its default type needs an imatrix in this mixture */
    const char *base;                  /* of a gradient: the recipe for all else */
    struct gradient gradient;
};

#define QT(name) QTYPE_##name
#define NONE {NEVER, 0, 0}
#define IN(when_, type_) {when_, QT(type_), 0}
#define IN_ELSE(when_, type_, else_) {when_, QT(type_), QT(else_)}
#define PLAIN(name_, file, type_) {.name = name_, .file_type = file, .type = QT(type_), .kind = UNIFORM}
#define MIX(name_, file, type_, v_, down_, o_, output_, embd_) \
    .name = name_, .file_type = file, .type = QT(type_), .kind = MIXTURE, .v = v_, .down = down_, .attn_output = o_, \
    .output = QT(output_), .embd = embd_
#define APEX(name_, base_, ...) {.name = name_, .base = base_, .gradient = {__VA_ARGS__}}

static const struct recipe recipes[] = {
    PLAIN("Q8_0", 7, Q8_0),
    PLAIN("Q6_K", 18, Q6_K),
    {MIX("Q5_K_M", 17, Q5_K, IN(MORE, Q6_K), IN(MORE, Q6_K), SAME, Q6_K, SAME)},
    {MIX("Q5_K_S", 16, Q5_K, NONE, NONE, SAME, Q6_K, SAME)},
    {MIX("Q4_K_M", 15, Q4_K, IN(MORE, Q6_K), IN(MORE, Q6_K), SAME, Q6_K, SAME)},
    {MIX("Q4_K_S", 14, Q4_K, IN(FIRST_4, Q5_K), IN(EIGHTH, Q5_K), SAME, Q6_K, SAME)},
    {MIX("Q3_K_L", 13, Q3_K, IN(ALWAYS, Q5_K), IN(ALWAYS, Q5_K), QT(Q5_K), Q6_K, SAME)},
    {MIX("Q3_K_M", 12, Q3_K, IN_ELSE(FIRST_2, Q5_K, Q4_K), IN_ELSE(SIXTEENTH, Q5_K, Q4_K), QT(Q4_K), Q6_K, SAME)},
    {MIX("Q3_K_S", 11, Q3_K, NONE, NONE, SAME, Q6_K, SAME)},
    {MIX("Q2_K", 10, Q2_K, IN(ALWAYS, Q4_K), IN(ALWAYS, Q3_K), QT(Q3_K), Q6_K, SAME)},
    {MIX("Q2_K_S", 21, Q2_K, IN(ALWAYS, Q4_K), IN(EIGHTH, Q4_K), SAME, Q6_K, SAME), .scarce = true},
    {MIX("Q4_0", 2, Q4_0, NONE, IN(EIGHTH_WITH_IMATRIX, Q4_1), SAME, Q6_K, SAME)},
    {MIX("IQ4_XS", 30, IQ4_XS, IN(ALWAYS, Q5_K), IN(EIGHTH_WITHOUT_IMATRIX, Q5_K), SAME, Q6_K, SAME)},
    {MIX("IQ4_NL", 25, IQ4_NL, IN(ALWAYS, Q5_K), IN(EIGHTH_WITHOUT_IMATRIX, Q5_K), SAME, Q6_K, SAME)},
    {MIX("IQ2_XXS", 19, IQ2_XXS, IN(ALWAYS, Q4_K), IN(EIGHTH, Q2_K), SAME, Q5_K, QT(Q2_K)), .counts_down = true},
    /* Where the table has IQ3_S, these two use Q3_K, of the same size; IQ2_XS, the default of IQ2_S, is IQ2_S here. */
    {MIX("IQ2_S", 28, IQ2_S, IN(ALWAYS, Q4_K), IN(EIGHTH, Q3_K), QT(Q3_K), Q5_K, QT(Q3_K)), .counts_down = true},
    {MIX("IQ2_M", 29, IQ2_S, IN(ALWAYS, Q4_K), IN(EIGHTH, Q3_K), QT(Q3_K), Q5_K, QT(Q3_K)), .counts_down = true},
    {.name = "MXFP4", .file_type = 38, .type = QT(MXFP4), .kind = FP4_EXPERTS},
    {MIX("NVFP4", 39, NVFP4, NONE, NONE, SAME, Q6_K, SAME)},
    {MIX("Q4_64A", -1, Q4_64A, NONE, NONE, SAME, Q6_K, SAME)},
    {MIX("Q2_64A", -1, Q2_64A, IN(ALWAYS, Q4_64A), IN(ALWAYS, Q4_64A), QT(Q4_64A), Q6_K, SAME)},
    APEX("APEX-Quality", "Q6_K", QT(Q6_K), QT(Q5_K), QT(IQ4_XS), QT(Q8_0), QT(Q8_0), QT(Q6_K), QT(Q6_K)),
    APEX("APEX-Balanced", "Q6_K", QT(Q6_K), QT(Q5_K), QT(Q5_K), QT(Q8_0), QT(Q8_0), QT(Q6_K), QT(Q6_K)),
    APEX("APEX-Compact", "Q4_K_M", QT(Q4_K), QT(Q3_K), QT(Q3_K), QT(Q6_K), QT(Q6_K), QT(Q4_K), QT(Q4_K)),
    APEX("APEX-Mini", "Q3_K_M", QT(Q3_K), QT(Q3_K), QT(IQ2_S), QT(Q5_K), QT(Q4_K), QT(Q4_K), QT(Q3_K)),
    APEX("APEX-Nano", "Q6_K", QT(Q3_K), QT(IQ2_S), QT(IQ2_XXS), QT(Q5_K), QT(Q4_K), QT(Q4_K), QT(Q3_K)),
    PLAIN("F32", 0, F32),
    PLAIN("F16", 1, F16),
    PLAIN("BF16", 32, BF16),
    {.name = "COPY", .file_type = -1, .kind = COPY},
};
#define N_RECIPES (sizeof recipes / sizeof *recipes)

const struct recipe *recipe_at(size_t i) { return i < N_RECIPES ? &recipes[i] : NULL; }

const struct recipe *recipe_find(const char *name)
{
    for (size_t i = 0; i < N_RECIPES; i++)
        if (strcasecmp(name, recipes[i].name) == 0)
            return &recipes[i];
    return strcasecmp(name, "MXFP4_MOE") == 0 ? recipe_find("MXFP4") : NULL;
}

const char *recipe_name(const struct recipe *r) { return r->name; }

int recipe_file_type(const struct recipe *r) { return r->base ? recipe_find(r->base)->file_type : r->file_type; }

bool recipe_copies(const struct recipe *r) { return r->kind == COPY; }

const char *recipe_reason_name(enum recipe_reason r)
{
    static const char *const names[RECIPE_REASONS] = {"kept", "default", "rule", "override", "fallback"};
    return names[r];
}

/* ---- overrides ---- */

#define KEEP_TYPE UINT32_MAX

struct recipe_override {
    regex_t regex;
    uint32_t type;
    char *text;
};

int recipe_overrides_add(struct recipe_overrides *o, const char *text, skua_error *err)
{
    const char *eq = strrchr(text, '=');
    if (!eq || eq == text || !eq[1])
        return error_set(err, SKUA_EARG, "'%s': expected REGEX=TYPE", text);
    int type = qtype_from_name(eq + 1);
    bool keep = strcasecmp(eq + 1, "copy") == 0;
    if (!keep && (type < 0 || !dequant_supported((uint32_t)type)))
        return error_set(err, SKUA_EARG, "'%s': '%s' is no type that tensors can be quantized to, nor COPY", text, eq + 1);
    struct recipe_override *items = mem_realloc_array(o->items, o->n + 1, sizeof *items);
    if (!items)
        return error_nomem(err, "override", (o->n + 1) * sizeof *items);
    o->items = items;
    struct recipe_override *item = &items[o->n];
    item->type = keep ? KEEP_TYPE : (uint32_t)type;
    item->text = mem_strdup(text);
    if (!item->text)
        return error_nomem(err, "override", strlen(text) + 1);
    item->text[eq - text] = '\0'; /* the expression alone, for regcomp */
    int rc = regcomp(&item->regex, item->text, REG_EXTENDED | REG_NOSUB);
    if (rc) {
        char why[128];
        regerror(rc, &item->regex, why, sizeof why);
        mem_free(item->text);
        return error_set(err, rc == REG_ESPACE ? SKUA_ENOMEM : SKUA_EARG, "'%s': not a regular expression: %s", text, why);
    }
    item->text[eq - text] = '=';
    o->n++;
    return 0;
}

const char *recipe_overrides_text(const struct recipe_overrides *o, size_t i) { return o->items[i].text; }

void recipe_overrides_free(struct recipe_overrides *o)
{
    for (size_t i = 0; i < o->n; i++) {
        regfree(&o->items[i].regex);
        mem_free(o->items[i].text);
    }
    mem_free(o->items);
    *o = (struct recipe_overrides){0};
}

static int first_match(const struct recipe_overrides *o, const char *name)
{
    for (size_t i = 0; o && i < o->n; i++)
        if (regexec(&o->items[i].regex, name, 0, NULL, 0) == 0)
            return (int)i;
    return -1;
}

/* ---- what a tensor is ---- */

enum category { OUT, EMBD, V, K, Q, O, UP, GATE, DOWN, OTHER };

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

static bool ends_in_weight(const char *name)
{
    size_t n = strlen(name);
    return n >= 6 && memcmp(name + n - 6, "weight", 6) == 0;
}

/* Never quantized: too small to matter or too sensitive, or read by code that takes floats only. */
static bool must_be_kept(const struct recipe_tensor *t)
{
    static const char *const parts[] = {"_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d", "position_embd", "token_types"};
    const char *name = t->name;
    if (!ends_in_weight(name) || (t->ne[1] == 1 && t->ne[2] == 1 && t->ne[3] == 1))
        return true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has(name, parts[i]))
            return true;
    return strncmp(name, "v.", 2) == 0 || strncmp(name, "mm.", 3) == 0; /* a vision tower, its projector */
}

static enum category category_of(const char *name)
{
    if (strcmp(name, "output.weight") == 0) return OUT;
    if (strcmp(name, "token_embd.weight") == 0) return EMBD;
    if (has(name, "attn_qkv.weight") || has(name, "attn_v.weight")) return V;
    if (has(name, "attn_k.weight")) return K;
    if (has(name, "attn_q.weight")) return Q;
    if (has(name, "attn_output.weight")) return O;
    if (has(name, "ffn_up")) return UP;
    if (has(name, "ffn_gate")) return GATE;
    if (has(name, "ffn_down")) return DOWN;
    return OTHER;
}

/* N of "blk.N.", with *role (may be NULL) what follows; -1 for other names. */
static int64_t layer_of(const char *name, const char **role)
{
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9')
        return -1;
    long long n = strtoll(name + 4, &end, 10);
    if (*end != '.')
        return -1;
    if (role)
        *role = end + 1;
    return n;
}

/* ---- the rules ---- */

bool recipe_more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= (uint64_t)n * 7 / 8 || (i - n / 8) % 3 == 2;
}

struct chooser {
    const struct recipe *recipe; /* of a gradient: its base */
    const struct gradient *gradient;
    const struct recipe_model *m;
    bool tied;                   /* no output.weight */
    bool experts;                /* a mixture of experts: there are matrices in stacks */
    uint32_t n_v;                /* V-like tensors */
    uint32_t i_v, i_down;        /* those met so far */
};

static uint32_t exception_type(const struct chooser *c, struct exception e, uint32_t i, uint32_t n)
{
    uint32_t blocks = c->m->n_blocks;
    bool holds = false;
    switch ((enum when)e.when) {
    case NEVER: return c->recipe->type;
    case ALWAYS: holds = true; break;
    case MORE: holds = recipe_more_bits(i, n); break;
    case FIRST_2: holds = i < 2; break;
    case FIRST_4: holds = i < 4; break;
    case EIGHTH: holds = i < blocks / 8; break;
    case SIXTEENTH: holds = i < blocks / 16; break;
    case EIGHTH_WITH_IMATRIX: holds = i < blocks / 8 && c->m->has_imatrix; break;
    case EIGHTH_WITHOUT_IMATRIX: holds = i < blocks / 8 && !c->m->has_imatrix; break;
    }
    return holds ? e.type : e.otherwise ? e.otherwise : c->recipe->type;
}

/* MXFP4: experts in FP4, everything else in Q8_0; a model without experts has its plain matrices in FP4, but not the ones that a
   token passes through once (embedding, output), the values of attention, and the gates of the recurrence. */
static uint32_t fp4_experts_type(const struct chooser *c, const struct recipe_tensor *t, enum category cat)
{
    bool fp4 = c->experts ? t->ne[2] > 1
                          : cat != OUT && cat != EMBD && cat != V && !has(t->name, "ssm_alpha.") && !has(t->name, "ssm_beta.");
    return fp4 ? QTYPE_MXFP4 : QTYPE_Q8_0;
}

static uint32_t own_or_default(const struct recipe *r, uint8_t type) { return type == SAME ? r->type : type; }

/* Counts; so it is called once for every tensor, in order. */
static uint32_t mixture_type(struct chooser *c, const struct recipe_tensor *t, enum category cat)
{
    const struct recipe *r = c->recipe;
    int64_t layer = layer_of(t->name, NULL);
    uint32_t v = c->i_v, down = c->i_down;
    c->i_v += cat == V;
    c->i_down += cat == DOWN;
    if (!r->counts_down && layer >= 0)
        down = layer < UINT32_MAX ? (uint32_t)layer : UINT32_MAX;
    if (r->kind == FP4_EXPERTS)
        return fp4_experts_type(c, t, cat);
    if (r->kind != MIXTURE)
        return r->type;
    switch (cat) {
    case EMBD:
        if (!c->tied)
            return own_or_default(r, r->embd);
        return own_or_default(r, r->output);
    case OUT: return own_or_default(r, r->output);
    case V: return exception_type(c, r->v, v, c->n_v);
    case DOWN: return exception_type(c, r->down, down, c->m->n_blocks);
    case O: return own_or_default(r, r->attn_output);
    default: return r->type;
    }
}

/* Does the gradient name this tensor, and with which type? MTP blocks are not part of it. */
static bool gradient_type(const struct chooser *c, const char *name, uint32_t *type)
{
    static const char *const experts[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_up_exps"};
    static const char *const shared[] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    static const char *const attention[] = {"attn_q.", "attn_k.", "attn_v.", "attn_output.", "attn_gate.", "attn_qkv.",
                                            "ssm_alpha.", "ssm_beta.", "ssm_out."};
    const struct gradient *g = c->gradient;
    const char *role = NULL;
    int64_t i = layer_of(name, &role), n = (int64_t)c->m->n_blocks - c->m->n_mtp_blocks;
    if (i < 0 || i >= n)
        return false;
    bool edge = i <= 4 || i >= n - 5, near = i <= 9 || i >= n - 10, end = i <= 2 || i >= n - 3;
    for (size_t k = 0; k < sizeof experts / sizeof *experts; k++)
        if (strncmp(role, experts[k], strlen(experts[k])) == 0) {
            *type = edge ? g->experts_edge : near ? g->experts_near : g->experts_mid;
            return true;
        }
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++)
        if (strncmp(role, shared[k], strlen(shared[k])) == 0) {
            *type = edge ? g->shared_edge : g->shared_mid;
            return true;
        }
    for (size_t k = 0; k < sizeof attention / sizeof *attention; k++)
        if (strncmp(role, attention[k], strlen(attention[k])) == 0) {
            *type = end ? g->attention_edge : g->attention_mid;
            return true;
        }
    return false;
}

static bool fits(uint32_t type, uint64_t row) { return row % qtype_info(type)->block_elements == 0; }

/* The type for a row length that does not fit; `type` itself when it fits. */
static int fallback(uint32_t *type, const struct recipe_tensor *t, skua_error *err)
{
    if (fits(*type, t->ne[0]))
        return 0;
    if (t->ne[0] % 32) {
        *type = QTYPE_F16;
        return 0;
    }
    switch (*type) {
    case QTYPE_IQ2_XXS:
    case QTYPE_IQ2_S:
    case QTYPE_IQ4_XS: *type = QTYPE_IQ4_NL; return 0;
    case QTYPE_Q2_K:
    case QTYPE_Q3_K: *type = QTYPE_Q4_0; return 0;
    case QTYPE_Q4_K: *type = QTYPE_Q5_0; return 0;
    case QTYPE_Q5_K: *type = QTYPE_Q5_1; return 0;
    case QTYPE_Q6_K: *type = QTYPE_Q8_0; return 0;
    default:
        return error_set(err, SKUA_EARG,
                         "tensor '%s': rows of %llu elements do not fit %s (blocks of %u), and no other type is defined for that case; "
                         "choose one with --tensor", t->name, (unsigned long long)t->ne[0], qtype_info(*type)->name,
                         (unsigned)qtype_info(*type)->block_elements);
    }
}

static int choose(struct chooser *c, const struct recipe_overrides *o, bool pure, const struct recipe_tensor *t,
                  struct recipe_choice *out, skua_error *err)
{
    enum category cat = category_of(t->name);
    uint32_t type = mixture_type(c, t, cat), listed;
    bool is_output = cat == OUT || (cat == EMBD && c->tied);
    *out = (struct recipe_choice){.type = t->type, .wanted = t->type, .reason = RECIPE_KEPT, .override = first_match(o, t->name)};
    if (must_be_kept(t))
        return 0;
    if (out->override >= 0) {
        type = o->items[out->override].type;
        out->reason = RECIPE_OVERRIDE;
        if (type == KEEP_TYPE)
            return 0;
    } else if (recipe_copies(c->recipe)) {
        return 0;
    } else {
        if (pure)
            type = c->recipe->type;
        else if (c->gradient && gradient_type(c, t->name, &listed))
            type = listed;
        out->reason = type == c->recipe->type ? RECIPE_DEFAULT : RECIPE_RULE;
    }
    out->wanted = type;
    if (is_output && !pure && out->override < 0 && !fits(c->recipe->type, t->ne[0]))
        type = QTYPE_Q8_0;
    int rc = fallback(&type, t, err);
    if (rc)
        return rc;
    out->type = type;
    if (type != out->wanted)
        out->reason = RECIPE_FALLBACK;
    out->needs_imatrix = cat != OUT && cat != EMBD
                         && (type == QTYPE_IQ2_XXS || type == QTYPE_IQ2_S || (type == QTYPE_Q2_K && c->recipe->scarce));
    return 0;
}

/* ---- all tensors ---- */

struct visit {
    int64_t layer;
    const char *name;
    uint32_t index;
};

static int compare_visits(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    if (x->layer != y->layer)
        return x->layer < y->layer ? -1 : 1;
    return strcmp(x->name, y->name);
}

int recipe_choose(const struct recipe *r, const struct recipe_overrides *o, bool pure, const struct recipe_model *m,
                  struct recipe_choice *choices, skua_error *err)
{
    struct chooser c = {.recipe = r->base ? recipe_find(r->base) : r, .gradient = r->base ? &r->gradient : NULL, .m = m, .tied = true};
    struct visit *visits = mem_alloc(m->n_tensors * sizeof *visits);
    if (!visits)
        return error_nomem(err, "order of tensors", m->n_tensors * sizeof *visits);
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct recipe_tensor *t = &m->tensors[i];
        visits[i] = (struct visit){layer_of(t->name, NULL), t->name, i};
        c.tied &= strcmp(t->name, "output.weight") != 0;
        c.experts |= t->ne[2] > 1;
        c.n_v += category_of(t->name) == V;
    }
    qsort(visits, m->n_tensors, sizeof *visits, compare_visits);
    int rc = 0;
    for (uint32_t i = 0; i < m->n_tensors && !rc; i++)
        rc = choose(&c, o, pure, &m->tensors[visits[i].index], &choices[visits[i].index], err);
    mem_free(visits);
    return rc;
}
