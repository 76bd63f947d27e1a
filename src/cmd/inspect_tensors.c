/* Tensors by part, role and type, and which of them this program can use. One sort brings equal (part, role, type) together; a
   second one restores the order of the file. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/inspect_report.h"

/* How a role is used: products take the types that the device multiplies, the others are read as floats. */
enum use { USE_NONE, USE_PRODUCT, USE_FLOAT };

static const struct {
    const char *role;
    enum use use;
} known_roles[] = {
    {"token_embd.weight", USE_PRODUCT},          {"output.weight", USE_PRODUCT},
    {"output_norm.weight", USE_FLOAT},           {"attn_norm.weight", USE_FLOAT},
    {"post_attention_norm.weight", USE_FLOAT},   {"attn_q.weight", USE_PRODUCT},
    {"attn_k.weight", USE_PRODUCT},              {"attn_v.weight", USE_PRODUCT},
    {"attn_output.weight", USE_PRODUCT},         {"attn_q_norm.weight", USE_FLOAT},
    {"attn_k_norm.weight", USE_FLOAT},           {"attn_qkv.weight", USE_PRODUCT},
    {"attn_gate.weight", USE_PRODUCT},           {"ssm_alpha.weight", USE_PRODUCT},
    {"ssm_beta.weight", USE_PRODUCT},            {"ssm_out.weight", USE_PRODUCT},
    {"ssm_conv1d.weight", USE_FLOAT},            {"ssm_dt.bias", USE_FLOAT},
    {"ssm_a", USE_FLOAT},                        {"ssm_norm.weight", USE_FLOAT},
    {"ffn_gate.weight", USE_PRODUCT},            {"ffn_up.weight", USE_PRODUCT},
    {"ffn_down.weight", USE_PRODUCT},            {"ffn_gate_inp.weight", USE_FLOAT},
    {"ffn_gate_exps.weight", USE_PRODUCT},       {"ffn_up_exps.weight", USE_PRODUCT},
    {"ffn_gate_up_exps.weight", USE_PRODUCT},    {"ffn_down_exps.weight", USE_PRODUCT},
    {"ffn_gate_inp_shexp.weight", USE_FLOAT},    {"ffn_gate_shexp.weight", USE_PRODUCT},
    {"ffn_up_shexp.weight", USE_PRODUCT},        {"ffn_down_shexp.weight", USE_PRODUCT},
    {"nextn.eh_proj.weight", USE_PRODUCT},       {"nextn.enorm.weight", USE_FLOAT},
    {"nextn.hnorm.weight", USE_FLOAT},           {"nextn.shared_head_norm.weight", USE_FLOAT},
    {"nextn.embed_tokens.weight", USE_PRODUCT},  {"nextn.shared_head_head.weight", USE_PRODUCT},
};

struct item {
    struct gguf_string role;
    enum inspect_part part;
    uint32_t type, index;
    uint64_t elements, bytes;
};

const char *inspect_part_name(enum inspect_part part)
{
    static const char *const names[INSPECT_PARTS] = {"model", "trunk", "mtp", "other"};
    return names[part];
}

/* The block number of "blk.N.ROLE" (at most six digits), with *role behind it; -1 for other names. */
static int32_t block_of(struct gguf_string name, struct gguf_string *role)
{
    size_t i = 4;
    int32_t block = 0;
    *role = name;
    if (name.len < 7 || memcmp(name.data, "blk.", 4) != 0)
        return -1;
    for (; i < name.len && i < 10 && name.data[i] >= '0' && name.data[i] <= '9'; i++)
        block = block * 10 + (name.data[i] - '0');
    if (i == 4 || i + 1 >= name.len || name.data[i] != '.')
        return -1;
    *role = (struct gguf_string){name.data + i + 1, name.len - i - 1};
    return block;
}

static struct item make_item(const struct inspect_report *r, uint32_t index)
{
    const struct gguf_tensor *t = gguf_tensor_at(r->g, index);
    struct item it = {.type = t->type, .index = index, .bytes = t->size_bytes, .elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]};
    int32_t block = block_of((struct gguf_string){t->name, t->name_len}, &it.role);
    if (block < 0)
        it.part = INSPECT_MODEL;
    else if (!r->n_layer || block < r->n_layer)
        it.part = INSPECT_TRUNK;
    else
        it.part = block < r->n_block ? INSPECT_MTP : INSPECT_OTHER;
    return it;
}

static int compare_role(const struct item *a, const struct item *b)
{
    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    size_t n = a->role.len < b->role.len ? a->role.len : b->role.len;
    int c = memcmp(a->role.data, b->role.data, n);
    return c ? c : (a->role.len > b->role.len) - (a->role.len < b->role.len);
}

static int compare_items(const void *pa, const void *pb)
{
    const struct item *a = pa, *b = pb;
    int c = compare_role(a, b);
    if (c)
        return c;
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

static int compare_roles(const void *pa, const void *pb)
{
    const struct inspect_role *a = pa, *b = pb;
    if (a->part != b->part)
        return a->part < b->part ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static enum use use_of(const struct item *it)
{
    for (size_t i = 0; i < sizeof known_roles / sizeof *known_roles && it->part != INSPECT_OTHER; i++)
        if (strlen(known_roles[i].role) == it->role.len && memcmp(known_roles[i].role, it->role.data, it->role.len) == 0)
            return known_roles[i].use;
    return USE_NONE;
}

static enum inspect_status judge_type(const struct item *it, const struct dev *judge)
{
    enum use use = use_of(it);
    if (!judge)
        return INSPECT_UNJUDGED;
    if (use == USE_NONE)
        return INSPECT_UNUSED;
    bool is_float = it->type == QTYPE_F32 || it->type == QTYPE_F16 || it->type == QTYPE_BF16;
    bool fits = use == USE_FLOAT ? is_float : judge->ops->act_kind(judge, it->type) >= 0;
    return fits ? INSPECT_OK : INSPECT_UNSUPPORTED;
}

static void add(struct inspect_sum *s, const struct item *it)
{
    s->n_tensors++;
    s->elements += it->elements; /* no overflow: tensors lie side by side in a file, and no type has less than a bit per element */
    s->bytes += it->bytes;
}

/* items are sorted. */
static void group(struct inspect_tensors *t, const struct item *items, size_t n, const struct dev *judge)
{
    for (size_t i = 0; i < n; i++) {
        bool new_role = i == 0 || compare_role(&items[i - 1], &items[i]) != 0;
        if (new_role)
            t->roles[t->n_roles++] = (struct inspect_role){.part = items[i].part, .name = items[i].role, .first = items[i].index,
                                                           .run_begin = t->n_runs, .status = judge_type(&items[i], judge),
                                                           .floats = use_of(&items[i]) == USE_FLOAT};
        struct inspect_role *role = &t->roles[t->n_roles - 1];
        if (new_role || items[i - 1].type != items[i].type) {
            enum inspect_status status = judge_type(&items[i], judge);
            t->runs[t->n_runs++] = (struct inspect_run){.type = items[i].type, .first = items[i].index, .status = status};
            role->n_runs++;
            if (status == INSPECT_UNSUPPORTED)
                role->status = status;
        }
        if (items[i].index < role->first)
            role->first = items[i].index;
        add(&t->runs[t->n_runs - 1].sum, &items[i]);
        add(&role->sum, &items[i]);
        add(&t->part[items[i].part], &items[i]);
        add(&t->all, &items[i]);
    }
}

int inspect_sum_tensors(struct inspect_report *r, const struct dev *judge, skua_error *err)
{
    struct inspect_tensors *t = &r->tensors;
    size_t n = gguf_tensor_count(r->g);
    struct item *items = mem_calloc(n + 1, sizeof *items);
    t->runs = mem_calloc(n + 1, sizeof *t->runs);
    t->roles = mem_calloc(n + 1, sizeof *t->roles);
    int rc = 0;
    if (!items || !t->runs || !t->roles) {
        rc = error_nomem(err, "tensor table", n * sizeof *items);
        goto done;
    }
    for (size_t i = 0; i < n; i++)
        items[i] = make_item(r, (uint32_t)i);
    qsort(items, n, sizeof *items, compare_items);
    group(t, items, n, judge);
    qsort(t->roles, t->n_roles, sizeof *t->roles, compare_roles);
done:
    mem_free(items);
    return rc;
}

double inspect_bits(const struct inspect_sum *s) { return s->elements ? 8.0 * (double)s->bytes / (double)s->elements : 0.0; }
