/* What a plan is made of; see hf_plan.h. Which tensors an architecture has: hf_plan_target.c, hf_plan_drafter.c. */
#include "convert/hf_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "convert/hf_plan_internal.h"

/* ---- rows ---- */

uint64_t hf_source_head(const struct hf_config *c, uint64_t v)
{
    uint64_t n_k = (uint64_t)c->n_k_head, r = (uint64_t)c->n_v_head / n_k;
    return v % n_k * r + v / n_k;
}

/* Fused rows come in one group per key head: q and k of d_state rows, v and z of r * d_state. */
static uint64_t fused_row(const struct hf_config *c, bool z, uint64_t row)
{
    uint64_t d = (uint64_t)c->d_state, n_k = (uint64_t)c->n_k_head, r = (uint64_t)c->n_v_head / n_k, group = d * (2 + 2 * r);
    if (!z && row < 2 * n_k * d) {
        uint64_t part = row / (n_k * d), head = row / d % n_k;
        return head * group + part * d + row % d;
    }
    uint64_t v = z ? row : row - 2 * n_k * d, head = hf_source_head(c, v / d);
    return head / r * group + (2 + (z ? r : 0) + head % r) * d + v % d;
}

uint64_t hf_source_row(const struct hf_config *c, const struct hf_output *o, uint64_t row)
{
    uint64_t d = (uint64_t)c->d_state, n_k = (uint64_t)c->n_k_head, qk = 2 * n_k * d, r = n_k ? (uint64_t)c->n_v_head / n_k : 0;
    switch (o->rows) {
    case HF_ROWS_V: return hf_source_head(c, row / o->unit) * o->unit + row % o->unit;
    case HF_ROWS_QKV: return row < qk ? row : qk + hf_source_head(c, (row - qk) / d) * d + (row - qk) % d;
    case HF_ROWS_QKVZ_QKV: return fused_row(c, false, row);
    case HF_ROWS_QKVZ_Z: return fused_row(c, true, row);
    case HF_ROWS_BA_B: return hf_source_head(c, row) / r * 2 * r + hf_source_head(c, row) % r;
    case HF_ROWS_BA_A: return hf_source_head(c, row) / r * 2 * r + r + hf_source_head(c, row) % r;
    default: return o->row_first + row;
    }
}

/* ---- lists ---- */

/* Room for one more record; the buffers double. */
static bool reserve(void **records, size_t *cap, size_t used, size_t size)
{
    if (used < *cap)
        return true;
    size_t bigger = *cap ? *cap * 2 : 64;
    void *grown = mem_realloc_array(*records, bigger, size);
    if (!grown)
        return false;
    *records = grown;
    *cap = bigger;
    return true;
}

static void full_name(const struct planner *p, const char *hf, char *text, size_t size) { snprintf(text, size, "%s%s", p->layer, hf); }

bool plan_has(const struct planner *p, const char *hf)
{
    char name[256];
    full_name(p, hf, name, sizeof name);
    return hf_source_find(p->s, name, false) != NULL;
}

uint32_t plan_bind(struct planner *p, const char *hf, uint64_t matrices, uint64_t rows, uint64_t cols)
{
    struct hf_plan *plan = p->plan;
    char name[256];
    full_name(p, hf, name, sizeof name);
    if (p->rc)
        return 0;
    if (!reserve((void **)&plan->weights, &plan->cap_weights, plan->n_weights, sizeof *plan->weights))
        p->rc = error_nomem(p->err, name, plan->n_weights * sizeof *plan->weights);
    else
        p->rc = hf_weight_bind(&plan->weights[plan->n_weights], p->s, name, matrices, rows, cols, p->err);
    return p->rc ? 0 : plan->n_weights++;
}

/* ---- types ---- */

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail);
}

/* Tensors that are small, or whose errors add up, stay F32. */
static bool stays_f32(const struct hf_output *o)
{
    static const char *const tails[] = {"_norm.weight", "ssm_conv1d.weight", "ssm_alpha.weight", "ssm_beta.weight", "ffn_gate_inp.weight",
                                        "ffn_gate_inp_shexp.weight"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (ends_with(o->name, tails[i]))
            return true;
    return o->n_dims == 1 || !ends_with(o->name, ".weight");
}

/* Packed weights can be taken over when all matrices are packed alike, and columns move in whole blocks. An embedding has no factor beside
   it: its rows are looked up, nothing is multiplied. */
static bool keeps_packing(const struct planner *p, const struct hf_output *o)
{
    const struct hf_weight *w = &p->plan->weights[o->weight];
    bool moves = o->col_unit && p->c->n_v_head != p->c->n_k_head;
    if (w->factor && !strcmp(o->name, "token_embd.weight"))
        return false;
    for (uint32_t i = 0; i < o->n_weights; i++)
        if (w[i].packed != w->packed)
            return false;
    return w->packed >= 0 && !p->unpack && o->value == HF_AS_IS && (!moves || o->col_unit % 64 == 0);
}

static void set_type(struct planner *p, struct hf_output *o)
{
    bool codebook = ends_with(o->name, "selector_predecessor.weight") || ends_with(o->name, "selector_successor.weight");
    if (stays_f32(o)) {
        o->type = QTYPE_F32;
    } else if (keeps_packing(p, o)) {
        o->type = (uint32_t)p->plan->weights[o->weight].packed;
        o->packed = true;
    } else if (p->type == QTYPE_Q8_0 && codebook) {
        o->type = QTYPE_BF16; /* rows are looked up, not multiplied: nothing is gained */
    } else {
        o->type = p->type;
        if (o->ne[0] % qtype_info(o->type)->block_elements) {
            o->type = QTYPE_F16;
            p->plan->n_fallback++;
        }
    }
}

/* ---- outputs ---- */

static void add_output(struct planner *p, const struct hf_output *o)
{
    struct hf_plan *plan = p->plan;
    if (!reserve((void **)&plan->outputs, &plan->cap_outputs, plan->n_outputs, sizeof *plan->outputs))
        p->rc = error_nomem(p->err, o->name, plan->n_outputs * sizeof *plan->outputs);
    else
        plan->outputs[plan->n_outputs++] = *o;
}

/* NAME.scale or NAME.input_scale: one number for each matrix. */
static void add_factor(struct planner *p, const struct hf_output *of, enum hf_part part)
{
    struct hf_output o = {.type = QTYPE_F32, .n_dims = 1, .ne = {of->ne[2], 1, 1}, .weight = of->weight, .n_weights = of->n_weights,
                          .part = part};
    bool any = false;
    for (uint32_t i = 0; i < of->n_weights; i++) {
        const struct hf_weight *w = &p->plan->weights[of->weight + i];
        any |= (part == HF_FACTOR ? w->factor : w->input_scale) != NULL;
    }
    snprintf(o.name, sizeof o.name, "%.*s%s", (int)(strlen(of->name) - strlen("weight")), of->name,
             part == HF_FACTOR ? "scale" : "input_scale");
    if (any && !p->rc)
        add_output(p, &o);
}

void plan_put(struct planner *p, const char *name, struct hf_output o)
{
    if (p->rc)
        return;
    const struct hf_weight *w = &p->plan->weights[o.weight];
    snprintf(o.name, sizeof o.name, "%s%s", p->block, name);
    if (!o.n_weights)
        o.n_weights = 1;
    o.ne[0] = w->cols;
    o.ne[1] = o.ne[1] ? o.ne[1] : w->rows;
    o.ne[2] = o.n_weights > 1 ? o.n_weights : w->matrices;
    o.n_dims = o.ne[2] > 1 ? 3 : o.ne[1] > 1 ? 2 : 1;
    set_type(p, &o);
    add_output(p, &o);
    if (o.packed && o.type == QTYPE_NVFP4) {
        add_factor(p, &o, HF_FACTOR);
        add_factor(p, &o, HF_INPUT_SCALE);
    }
}

void plan_matrix(struct planner *p, const char *name, const char *hf, uint64_t rows, uint64_t cols)
{
    plan_put(p, name, (struct hf_output){.weight = plan_bind(p, hf, 1, rows, cols)});
}

void plan_vector(struct planner *p, const char *name, const char *hf, uint64_t n, enum hf_value value)
{
    plan_put(p, name, (struct hf_output){.weight = plan_bind(p, hf, 1, 1, n), .value = value});
}

int hf_plan_make(struct hf_plan *plan, struct hf_source *s, uint32_t type, enum hf_mtp mtp, bool unpack, skua_error *err)
{
    *plan = (struct hf_plan){.config = s->config};
    struct planner p = {.plan = plan, .c = s->config, .s = s, .type = type, .unpack = unpack, .err = err};
    p.c->kind == HF_TARGET ? plan_target(&p, mtp) : plan_drafter(&p);
    if (p.rc)
        hf_plan_free(plan);
    return p.rc;
}

void hf_plan_free(struct hf_plan *p)
{
    mem_free(p->outputs);
    mem_free(p->weights);
    *p = (struct hf_plan){0};
}
