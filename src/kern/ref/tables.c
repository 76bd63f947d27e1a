/* The two tables of plain C implementations. */
#include "kern/ref/kern_ref.h"

const struct kern_table kern_scalar = {
    .name = "scalar",
    .read_memory = kern_read_memory_scalar,
#define X(CODE, op) .op = kern_##op##_scalar,
    KERN_OPS(X)
#undef X
};

const struct kern_table kern_reference = {
    .name = "reference",
    .read_memory = kern_read_memory_scalar,
    .embed = kern_embed_scalar,
    .get_rows = kern_get_rows_scalar,
    .rms_norm = kern_rms_norm_refd,
    .quant_act = kern_quant_act_refd,
    .matmul = kern_matmul_refd,
    .argmax = kern_argmax_refd,
    .argmax_merge = kern_argmax_merge_scalar,
    .topk = kern_topk_refd,
    .topk_merge = kern_topk_merge_scalar,
    .block_conv = kern_block_conv_refd,
    .moe_matmul = kern_moe_matmul_refd,
    .router = kern_router_refd,
    .moe_group = kern_moe_group_scalar,
    .moe_combine = kern_moe_combine_refd,
    .swiglu = kern_swiglu_refd,
    .rope_table = kern_rope_table_scalar,
    .attn_q = kern_attn_q_refd,
    .attn_kv = kern_attn_kv_refd,
    .attn = kern_attn_refd,
    .attn_pages = kern_attn_pages_refd,
    .attn_merge = kern_attn_merge_refd,
    .gdn_conv = kern_gdn_conv_refd,
    .gdn_qk = kern_gdn_qk_refd,
    .gdn_gates = kern_gdn_gates_scalar,
    .gdn_step = kern_gdn_step_refd,
    .gdn_out = kern_gdn_out_refd,
    .gdn_commit = kern_gdn_commit_refd,
    .gdn_conv_commit = kern_gdn_conv_commit_scalar,
};
