/* How an op divides into work units, and the switch from an op record to a table's function. */
#include "kern/kern.h"

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t kern_units(const struct kern_op *op, const struct kern_batch *batch)
{
    const int64_t rows = batch->n_rows, seqs = batch->n_seqs;
    switch (op->code) {
    case KERN_EMBED: return rows;
    case KERN_GET_ROWS: return op->p.get_rows.n_get;
    case KERN_RMS_NORM: return op->p.rms_norm.n_rows;
    case KERN_QUANT_ACT: return op->p.quant_act.n_rows;
    case KERN_MATMUL: return op->p.matmul.w.n_out;
    case KERN_ARGMAX: return ceil_div(op->p.argmax.matmul.w.n_out, KERN_ARGMAX_COLUMNS);
    case KERN_ARGMAX_MERGE: return op->p.argmax_merge.n_rows;
    case KERN_TOPK: return ceil_div(op->p.topk.matmul.w.n_out, KERN_ARGMAX_COLUMNS);
    case KERN_TOPK_MERGE: return op->p.topk_merge.n_rows;
    case KERN_BLOCK_CONV: return rows * ceil_div(op->p.block_conv.n, 256);
    case KERN_MOE_MATMUL: return op->p.moe_matmul.w.n_expert * ceil_div(op->p.moe_matmul.w.n_out, 32);
    case KERN_ROUTER: return op->p.router.n_rows;
    case KERN_MOE_GROUP: return 1;
    case KERN_MOE_COMBINE: return op->p.moe_combine.n_rows;
    case KERN_SWIGLU: return op->p.swiglu.n_rows * ceil_div(op->p.swiglu.n, 256);
    case KERN_ROPE_TABLE: return rows;
    case KERN_ATTN_Q: return rows * op->p.attn_q.n_head;
    case KERN_ATTN_KV: return rows * op->p.attn_kv.n_head_kv;
    case KERN_ATTN: return rows * op->p.attn.n_head_kv;
    case KERN_ATTN_PAGES: return rows * op->p.attn_pages.n_pages * op->p.attn_pages.attn.n_head_kv;
    case KERN_ATTN_MERGE: return rows * op->p.attn_merge.pages.attn.n_head;
    case KERN_GDN_CONV: return seqs * ceil_div(op->p.gdn_conv.n_channel, 64);
    case KERN_GDN_QK: return rows * 2 * op->p.gdn_qk.n_key_head;
    case KERN_GDN_GATES: return rows;
    case KERN_GDN_STEP: return seqs * op->p.gdn_step.n_v * ceil_div(op->p.gdn_step.d, 32);
    case KERN_GDN_OUT: return rows * op->p.gdn_out.n_v;
    case KERN_GDN_COMMIT: return seqs * op->p.gdn_commit.n_v * ceil_div(op->p.gdn_commit.d, 32);
    case KERN_GDN_CONV_COMMIT: return seqs * ceil_div(op->p.gdn_conv_commit.n_channel, 64);
    case KERN_OP_COUNT: break;
    }
    return 0;
}

/* Aims at a few microseconds of work for a thread, so that handing it over costs less than doing it: about 4096 elements of
   the cheap elementwise ops. */
int64_t kern_grain(const struct kern_op *op, const struct kern_batch *batch)
{
    int64_t unit_elements = 4096; /* of work per unit; ops that are not named are heavy enough at one unit */
    switch (op->code) {
    case KERN_MATMUL: return 32;
    case KERN_ATTN:
    case KERN_ATTN_PAGES: return batch->n_rows < 16 ? batch->n_rows : 16; /* rows that share a page */
    case KERN_GET_ROWS: unit_elements = op->p.get_rows.n; break;
    case KERN_RMS_NORM: unit_elements = op->p.rms_norm.n; break;
    case KERN_SWIGLU: unit_elements = 2 * 256; break; /* an exponential and a division each */
    case KERN_ATTN_Q: unit_elements = 2 * op->p.attn_q.head_dim; break;
    case KERN_ATTN_KV: unit_elements = 4 * op->p.attn_kv.head_dim; break;
    case KERN_BLOCK_CONV: unit_elements = 2 * 256; break;
    case KERN_GDN_CONV: unit_elements = 8 * 64; break;
    case KERN_GDN_CONV_COMMIT: unit_elements = 4 * 64; break;
    case KERN_GDN_QK: unit_elements = 2 * op->p.gdn_qk.d; break;
    case KERN_GDN_OUT: unit_elements = 4 * op->p.gdn_out.d; break;
    default: break;
    }
    int64_t grain = unit_elements > 0 ? 4096 / unit_elements : 1;
    return grain > 1 ? grain : 1;
}

void kern_run(const struct kern_table *t, const struct kern_op *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    switch (op->code) {
#define X(CODE, op_name) \
    case KERN_##CODE: t->op_name(&op->p.op_name, batch, begin, end); break;
        KERN_OPS(X)
#undef X
    case KERN_OP_COUNT: break;
    }
}

const char *kern_op_name(enum kern_op_code code)
{
    static const char *const names[] = {
#define X(CODE, name) #CODE,
        KERN_OPS(X)
#undef X
    };
    return (unsigned)code < KERN_OP_COUNT ? names[code] : "?";
}
