/* What an op asks of the machine: kern_op_cost of kern.h. */
#include "kern/kern.h"
#include "quant/type.h"

static uint64_t u64(int64_t a) { return a > 0 ? (uint64_t)a : 0; }

static uint64_t floats(int64_t n) { return u64(n) * sizeof(float); }

static uint64_t row_bytes(const struct kern_weight *w) { return qtype_row_bytes(w->type, (uint64_t)w->n_in); }

/* Bytes of n_matrices of the weight's matrices. */
static uint64_t weight_bytes(const struct kern_weight *w, int64_t n_matrices) { return row_bytes(w) * u64(w->n_out) * u64(n_matrices); }

static uint64_t products(const struct kern_weight *w, int64_t n_rows) { return u64(n_rows) * u64(w->n_in) * u64(w->n_out); }

/* Both of K and V at n positions. */
static uint64_t kv_bytes(uint32_t type, int64_t head_dim, int64_t n_heads, int64_t n_positions)
{
    return 2 * (uint64_t)qtype_row_bytes(type, (uint64_t)head_dim) * u64(n_heads) * u64(n_positions);
}

static struct kern_cost matmul_cost(const struct op_matmul *op)
{
    return (struct kern_cost){.weight_bytes = weight_bytes(&op->w, 1), .macs = products(&op->w, op->n_rows)};
}

static struct kern_cost moe_cost(const struct op_moe_matmul *op)
{
    const int64_t pairs = (int64_t)op->n_rows * op->n_used, experts = pairs < op->w.n_expert ? pairs : op->w.n_expert;
    return (struct kern_cost){.weight_bytes = weight_bytes(&op->w, experts), .macs = products(&op->w, pairs)};
}

static int64_t within(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Of positions first to last - 1. Rows of a sequence see more and more behind, and less and less before. */
static struct kern_cost attention_cost(const struct op_attn *op, const struct kern_batch *batch, int64_t first, int64_t last)
{
    struct kern_cost cost = {0};
    for (int32_t i = 0; i < batch->n_seqs; i++) {
        const struct kern_seq *s = &batch->seqs[i];
        if (!s->n_rows)
            continue;
        int64_t pairs = 0; /* (row, position it sees) */
        for (int32_t pos = s->pos_begin; pos < s->pos_begin + s->n_rows; pos++) {
            const struct kern_span seen = kern_attn_span(op, s, pos);
            pairs += within((int64_t)seen.last + 1, first, last) - within(seen.first, first, last);
        }
        const int64_t from = kern_attn_span(op, s, s->pos_begin).first, end = (int64_t)s->pos_begin + s->n_rows;
        cost.kv_bytes += kv_bytes(op->kv_type, op->head_dim, op->n_head_kv, within(end, first, last) - within(from, first, last));
        cost.macs += 2 * u64(pairs) * u64(op->n_head) * u64(op->head_dim);
    }
    return cost;
}

static struct kern_cost pages_cost(const struct op_attn_pages *op, const struct kern_batch *batch)
{
    const int64_t first = (int64_t)op->page_begin * KV_PAGE_ROWS;
    return attention_cost(&op->attn, batch, first, first + (int64_t)op->n_pages * KV_PAGE_ROWS);
}

/* How often GDN_CONV and GDN_STEP touch a state: held rows read it only. */
static uint64_t state_passes(const struct kern_batch *batch)
{
    uint64_t n = 0;
    for (int32_t i = 0; i < batch->n_seqs; i++)
        n += batch->seqs[i].tape ? 1 : 2;
    return n;
}

static struct kern_cost conv_cost(const struct op_gdn_conv *op, const struct kern_batch *batch)
{
    return (struct kern_cost){.weight_bytes = floats((int64_t)op->n_channel * op->kernel),
                              .state_bytes = state_passes(batch) * floats((int64_t)(op->kernel - 1) * op->n_channel),
                              .macs = u64(batch->n_rows) * u64(op->n_channel) * u64(op->kernel)};
}

static struct kern_cost block_conv_cost(const struct op_block_conv *op, const struct kern_batch *batch)
{
    return (struct kern_cost){.weight_bytes = floats((int64_t)op->n * op->kernel),
                              .macs = u64(batch->n_rows) * u64(op->n) * u64(op->kernel)};
}

static struct kern_cost step_cost(const struct op_gdn_step *op, const struct kern_batch *batch)
{
    const int64_t state = (int64_t)op->n_v * op->d * op->d;
    return (struct kern_cost){.state_bytes = state_passes(batch) * floats(state), .macs = 3 * u64(batch->n_rows) * u64(state)};
}

/* The rows of a commit are those of its sequences. */
static struct kern_cost commit_cost(const struct op_gdn_commit *op, const struct kern_batch *batch)
{
    const int64_t state = (int64_t)op->n_v * op->d * op->d;
    struct kern_cost cost = {.state_bytes = 2 * u64(batch->n_seqs) * floats(state)};
    for (int32_t i = 0; i < batch->n_seqs; i++)
        cost.macs += u64(batch->seqs[i].n_rows) * u64(state);
    return cost;
}

struct kern_cost kern_op_cost(const struct kern_op *op, const struct kern_batch *batch)
{
    const int64_t rows = batch->n_rows;
    switch (op->code) {
    case KERN_EMBED: return (struct kern_cost){.weight_bytes = row_bytes(&op->p.embed.table) * u64(rows)};
    case KERN_RMS_NORM: return (struct kern_cost){.weight_bytes = floats(op->p.rms_norm.n)};
    case KERN_MATMUL: return matmul_cost(&op->p.matmul);
    case KERN_ARGMAX: return matmul_cost(&op->p.argmax.matmul);
    case KERN_TOPK: return matmul_cost(&op->p.topk.matmul);
    case KERN_BLOCK_CONV: return block_conv_cost(&op->p.block_conv, batch);
    case KERN_MOE_MATMUL: return moe_cost(&op->p.moe_matmul);
    case KERN_ATTN_Q: return (struct kern_cost){.weight_bytes = floats(op->p.attn_q.head_dim)};
    case KERN_ATTN_KV:
        return (struct kern_cost){.weight_bytes = floats(op->p.attn_kv.head_dim),
                                  .kv_bytes = kv_bytes(op->p.attn_kv.kv_type, op->p.attn_kv.head_dim, op->p.attn_kv.n_head_kv, rows)};
    case KERN_ATTN: return attention_cost(&op->p.attn, batch, 0, INT64_MAX);
    case KERN_ATTN_PAGES: return pages_cost(&op->p.attn_pages, batch);
    case KERN_GDN_CONV: return conv_cost(&op->p.gdn_conv, batch);
    case KERN_GDN_GATES: return (struct kern_cost){.weight_bytes = 2 * floats(op->p.gdn_gates.n_v)};
    case KERN_GDN_STEP: return step_cost(&op->p.gdn_step, batch);
    case KERN_GDN_COMMIT: return commit_cost(&op->p.gdn_commit, batch);
    case KERN_GDN_CONV_COMMIT:
        return (struct kern_cost){.state_bytes = 2 * u64(batch->n_seqs)
                                                 * floats((int64_t)(op->p.gdn_conv_commit.kernel - 1) * op->p.gdn_conv_commit.n_channel)};
    case KERN_GDN_OUT: return (struct kern_cost){.weight_bytes = floats(op->p.gdn_out.d)};
    case KERN_GET_ROWS:
    case KERN_QUANT_ACT:
    case KERN_ROUTER:
    case KERN_MOE_GROUP:
    case KERN_MOE_COMBINE:
    case KERN_SWIGLU:
    case KERN_ROPE_TABLE:
    case KERN_ARGMAX_MERGE:
    case KERN_TOPK_MERGE:
    case KERN_ATTN_MERGE: /* what it adds to ATTN_PAGES is about one per page */
    case KERN_GDN_QK:
    case KERN_OP_COUNT: break;
    }
    return (struct kern_cost){0};
}
