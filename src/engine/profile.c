/* Profiles; see profile.h. */
#include "engine/profile.h"

#include <string.h>

#include "base/mem.h"

const char *profile_phase_name(enum profile_phase phase)
{
    return phase == PROFILE_PREFILL ? "prefill" : "decode";
}

static void cost_add(struct kern_cost *sum, const struct kern_cost *c)
{
    sum->weight_bytes += c->weight_bytes;
    sum->state_bytes += c->state_bytes;
    sum->kv_bytes += c->kv_bytes;
    sum->macs += c->macs;
}

static const struct kern_weight *weight_of(const struct kern_op *op)
{
    switch (op->code) {
    case KERN_MATMUL: return &op->p.matmul.w;
    case KERN_ARGMAX: return &op->p.argmax.matmul.w;
    case KERN_MOE_MATMUL: return &op->p.moe_matmul.w;
    default: return NULL;
    }
}

/* The entry of an op, made on first use; NULL: no memory. */
static struct profile_entry *entry_of(struct profile *p, const struct kern_op *op)
{
    const struct kern_weight *w = weight_of(op);
    const int32_t type = w ? (int32_t)w->type : -1;
    for (int i = 0; i < p->n; i++) {
        struct profile_entry *e = &p->entries[i];
        if (e->phase == p->phase && e->code == op->code && e->type == type && strcmp(e->role, op->role) == 0)
            return e;
    }
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 64;
        struct profile_entry *more = mem_realloc_array(p->entries, (size_t)cap, sizeof *more);
        if (!more)
            return NULL;
        p->entries = more;
        p->cap = cap;
    }
    struct dev *d = p->engine->dev;
    p->entries[p->n] = (struct profile_entry){.phase = p->phase, .code = op->code, .role = op->role, .type = type,
                                              .act = w ? d->ops->act_kind(d, w->type) : -1, .tiled = w && w->tiles.buf};
    return &p->entries[p->n++];
}

static void count(void *user, const struct kern_op *ops, int n_ops, const struct kern_batch *batch, const uint64_t *ns)
{
    struct profile *p = user;
    if (batch->n_seqs) {
        p->phase = batch->n_rows > batch->n_seqs ? PROFILE_PREFILL : PROFILE_DECODE;
        p->passes[p->phase]++;
        p->rows[p->phase] += (uint64_t)batch->n_rows;
    }
    for (int i = 0; i < n_ops; i++) {
        struct profile_entry *e = entry_of(p, &ops[i]);
        struct kern_cost cost = kern_op_cost(&ops[i], batch);
        if (!e) {
            p->failed = true;
            return;
        }
        e->calls++;
        e->ns += ns[i];
        cost_add(&e->cost, &cost);
    }
}

void profile_attach(struct profile *p, skua_engine *e)
{
    p->engine = e;
    e->dev->timer = count;
    e->dev->timer_user = p;
}

void profile_detach(struct profile *p)
{
    if (!p->engine)
        return;
    p->engine->dev->timer = NULL;
    p->engine->dev->timer_user = NULL;
    p->engine = NULL;
}

void profile_free(struct profile *p)
{
    profile_detach(p);
    mem_free(p->entries);
    *p = (struct profile){0};
}

int profile_check(const struct profile *p, skua_error *err)
{
    return p->failed ? error_nomem(err, "profile", (size_t)p->cap * sizeof *p->entries) : 0;
}

uint64_t profile_ns(const struct profile *p, enum profile_phase phase)
{
    uint64_t ns = 0;
    for (int i = 0; i < p->n; i++)
        ns += p->entries[i].phase == phase ? p->entries[i].ns : 0;
    return ns;
}

struct kern_cost profile_cost(const struct profile *p, enum profile_phase phase)
{
    struct kern_cost sum = {0};
    for (int i = 0; i < p->n; i++)
        if (p->entries[i].phase == phase)
            cost_add(&sum, &p->entries[i].cost);
    return sum;
}
