/* The layer program; see forward.h.
 *
 * Workspace: one device buffer. Per row: the residual x, the normed input h, and a scratch region that attention, Gated DeltaNet
 * and feed-forward parts use in turns (each part is finished before the next begins). Behind that, quantised copies of the
 * current matmul input, one per kind; `struct op_input` remembers which kinds exist so that matrices that read the same input share
 * them. */
#include "model/forward.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/op_list.h"

#define OPS_PER_BLOCK 56
#define OPS_EXTRA 24

/* Few rows with long contexts: attention runs over pages of all rows in parallel, at most PART_SLOTS pages of rows at a time, whose
   results then lie in the workspace. */
#define SPLIT_ROWS 16
#define SPLIT_PAGES 4 /* from this many pages on */
#define SPLIT_ROUNDS 8
#define PART_SLOTS 512

/* offsets of regions, bytes */
struct scratch_gdn {
    size_t m, c, z, a, b, o;
};
struct scratch_attn {
    size_t u, k, v, q, o, parts, running;
};
struct scratch_ffn {
    size_t gate_up, logits, ids, weights, group, pairs, down, shared_gate_up, shared_down, shared_logit;
};

struct forward {
    const struct model_config *c;
    const struct weights *w;
    struct dev *dev;
    uint32_t kv_type;
    int32_t max_rows;
    size_t tape_stride; /* bytes kept of a held row */

    struct kern_buf *buf;
    size_t x, h, rope, taps, out_x, out_hidden, logits, samplable, blocks, best;
    struct scratch_gdn gdn;
    struct scratch_attn attn;
    struct scratch_ffn ffn;
    size_t mtp_in; /* scratch too: [norm of embedding ; norm of hidden], read before the block begins */

    struct op_list list;
    int32_t rows[FORWARD_MAX_OUT]; /* stable copies for GET_ROWS */
    int32_t tap_row;

    struct kern_buf *capture; /* rows kept of every pass: first the taps, then the hidden rows. NULL: none */
    size_t capture_hidden;
    int32_t *capture_taps, n_capture_taps;
    bool capture_hidden_rows;
    int32_t *all_rows; /* 0 .. max_rows - 1, for GET_ROWS; made with the first capture */
};

static struct kern_view at(const struct forward *f, size_t offset)
{
    return (struct kern_view){f->buf, offset};
}

/* ---- emitting ops ---- */

static void emit_norm(struct forward *f, int layer, const char *role, struct kern_view x, int32_t x_stride, struct kern_view weight,
                      struct kern_view y, int32_t y_stride, int32_t n_rows)
{
    op_emit(&f->list, KERN_RMS_NORM, layer, role)->p.rms_norm = (struct op_rms_norm){
        .x = x, .w = weight, .y = y, .x_stride = x_stride, .y_stride = y_stride, .n = f->c->n_embd, .n_rows = n_rows, .eps = f->c->rms_eps};
}

static void emit_swiglu(struct forward *f, int layer, struct kern_view gate_up, int32_t n, int32_t n_rows)
{
    /* gate and up lie side by side in rows of 2n; the product replaces the gate */
    op_emit(&f->list, KERN_SWIGLU, layer, "swiglu")->p.swiglu = (struct op_swiglu){
        .gate = gate_up, .up = kern_view_at(gate_up, (size_t)n * sizeof(float)), .h = gate_up, .n = n, .n_rows = n_rows,
        .gate_stride = 2 * n, .up_stride = 2 * n, .h_stride = 2 * n};
}

/* Attention, in one op or in rounds of pages. The choice does not change the result. */
static void emit_attend(struct forward *f, const struct kern_batch *b, int layer, const struct op_attn *attn)
{
    int32_t n_pages = 0;
    for (int32_t r = 0; r < b->n_rows && b->n_rows <= SPLIT_ROWS; r++)
        n_pages = b->pos[r] / KV_PAGE_ROWS + 1 > n_pages ? b->pos[r] / KV_PAGE_ROWS + 1 : n_pages;
    int32_t at_once = PART_SLOTS / b->n_rows;
    if (f->dev->n_threads == 1 || n_pages < SPLIT_PAGES || n_pages > SPLIT_ROUNDS * at_once) {
        op_emit(&f->list, KERN_ATTN, layer, "attention")->p.attn = *attn;
        return;
    }
    for (int32_t page = 0; page < n_pages; page += at_once) {
        struct op_attn_pages pages = {.attn = *attn, .parts = at(f, f->attn.parts), .page_begin = page,
                                      .n_pages = n_pages - page < at_once ? n_pages - page : at_once};
        op_emit(&f->list, KERN_ATTN_PAGES, layer, "attention")->p.attn_pages = pages;
        op_emit(&f->list, KERN_ATTN_MERGE, layer, "attention_merge")->p.attn_merge =
            (struct op_attn_merge){.pages = pages, .running = at(f, f->attn.running)};
    }
}

static void emit_attention(struct forward *f, const struct kern_batch *b, int layer, const struct block_weights *l, struct kern_view x,
                           struct op_input *h)
{
    const struct model_config *c = f->c;
    int32_t hd = c->head_dim, q_width = hd * c->n_head, kv_width = hd * c->n_head_kv;
    struct kern_view u = at(f, f->attn.u), k = at(f, f->attn.k), v = at(f, f->attn.v), q = at(f, f->attn.q), o = at(f, f->attn.o);
    op_emit_matmul(&f->list, layer, "attn_q", &l->attn_q, h, u, 2 * q_width, false);
    op_emit_matmul(&f->list, layer, "attn_k", &l->attn_k, h, k, kv_width, false);
    op_emit_matmul(&f->list, layer, "attn_v", &l->attn_v, h, v, kv_width, false);
    op_emit(&f->list, KERN_ATTN_Q, layer, "attn_q_norm_rope")->p.attn_q = (struct op_attn_q){
        .u = u, .norm = l->q_norm, .rope = at(f, f->rope), .q = q, .u_stride = 2 * q_width, .q_stride = q_width, .n_head = c->n_head,
        .head_dim = hd, .n_rot = c->n_rot, .eps = c->rms_eps};
    op_emit(&f->list, KERN_ATTN_KV, layer, "attn_kv_store")->p.attn_kv = (struct op_attn_kv){
        .k = k, .v = v, .norm = l->k_norm, .rope = at(f, f->rope), .k_stride = kv_width, .v_stride = kv_width, .n_head_kv = c->n_head_kv,
        .head_dim = hd, .n_rot = c->n_rot, .eps = c->rms_eps, .kv_type = f->kv_type, .k_offset = l->k_offset, .v_offset = l->v_offset};
    struct op_attn attn = {
        .q = q, .u = u, .out = o, .q_stride = q_width, .u_stride = 2 * q_width, .out_stride = q_width, .n_head = c->n_head,
        .n_head_kv = c->n_head_kv, .head_dim = hd, .scale = (float)(1.0 / sqrt((double)hd)), .kv_type = f->kv_type,
        .k_offset = l->k_offset, .v_offset = l->v_offset};
    emit_attend(f, b, layer, &attn);
    struct op_input in = {.x = o, .stride = q_width, .n = q_width, .n_rows = b->n_rows};
    op_emit_matmul(&f->list, layer, "attn_output", &l->attn_output, &in, x, c->n_embd, true);
}

static void emit_recurrent(struct forward *f, const struct kern_batch *b, int layer, const struct block_weights *l, struct kern_view x,
                           struct op_input *h)
{
    const struct model_config *c = f->c;
    int32_t d = c->d_state, channels = c->n_conv_channel, inner = c->d_inner;
    struct kern_view m = at(f, f->gdn.m), conv = at(f, f->gdn.c), z = at(f, f->gdn.z), o = at(f, f->gdn.o);
    struct kern_view alpha = at(f, f->gdn.a), beta = at(f, f->gdn.b);
    op_emit_matmul(&f->list, layer, "attn_qkv", &l->qkv, h, m, channels, false);
    op_emit_matmul(&f->list, layer, "attn_gate", &l->gate, h, z, inner, false);
    op_emit_matmul(&f->list, layer, "ssm_alpha", &l->alpha, h, alpha, c->n_v_head, false);
    op_emit_matmul(&f->list, layer, "ssm_beta", &l->beta, h, beta, c->n_v_head, false);
    op_emit(&f->list, KERN_GDN_CONV, layer, "ssm_conv")->p.gdn_conv = (struct op_gdn_conv){
        .x = m, .w = l->conv, .out = conv, .x_stride = channels, .out_stride = channels, .n_channel = channels, .kernel = c->conv_kernel,
        .state_offset = l->conv_offset, .tape_offset = l->tape_conv_offset, .tape_stride = f->tape_stride};
    op_emit(&f->list, KERN_GDN_QK, layer, "ssm_qk_norm")->p.gdn_qk = (struct op_gdn_qk){
        .qk = conv, .stride = channels, .n_key_head = c->n_k_head, .d = d, .eps = 1e-6f, .q_scale = (float)(1.0 / sqrt((double)d))};
    op_emit(&f->list, KERN_GDN_GATES, layer, "ssm_gates")->p.gdn_gates = (struct op_gdn_gates){
        .a = alpha, .b = beta, .dt_bias = l->dt_bias, .ssm_a = l->ssm_a, .decay = alpha, .beta = beta, .n_v = c->n_v_head};
    op_emit(&f->list, KERN_GDN_STEP, layer, "ssm_step")->p.gdn_step = (struct op_gdn_step){
        .qkv = conv, .decay = alpha, .beta = beta, .out = o, .qkv_stride = channels, .out_stride = inner, .n_key_head = c->n_k_head,
        .n_v = c->n_v_head, .d = d, .state_offset = l->s_offset, .tape_offset = l->tape_step_offset, .tape_stride = f->tape_stride};
    op_emit(&f->list, KERN_GDN_OUT, layer, "ssm_norm_gate")->p.gdn_out = (struct op_gdn_out){
        .o = o, .z = z, .w = l->ssm_norm, .y = o, .o_stride = inner, .z_stride = inner, .y_stride = inner, .n_v = c->n_v_head, .d = d,
        .eps = c->rms_eps};
    struct op_input in = {.x = o, .stride = inner, .n = inner, .n_rows = b->n_rows};
    op_emit_matmul(&f->list, layer, "ssm_out", &l->ssm_out, &in, x, c->n_embd, true);
}

static void emit_dense_ffn(struct forward *f, int layer, const struct ffn_weights *w, struct kern_view x, struct op_input *h)
{
    int32_t n = f->c->n_ff;
    struct kern_view gate_up = at(f, f->ffn.gate_up);
    op_emit_matmul(&f->list, layer, "ffn_gate", &w->gate, h, gate_up, 2 * n, false);
    op_emit_matmul(&f->list, layer, "ffn_up", &w->up, h, kern_view_at(gate_up, (size_t)n * sizeof(float)), 2 * n, false);
    emit_swiglu(f, layer, gate_up, n, h->n_rows);
    struct op_input in = {.x = gate_up, .stride = 2 * n, .n = n, .n_rows = h->n_rows};
    op_emit_matmul(&f->list, layer, "ffn_down", &w->down, &in, x, f->c->n_embd, true);
}

static void emit_moe_matmul(struct forward *f, int layer, const char *role, const struct kern_weight *w, struct op_input *in,
                            struct kern_view y, int32_t y_stride, bool x_per_pair)
{
    int32_t used = f->c->n_expert_used;
    struct kern_view x = op_input_for(&f->list, layer, in, w->type);
    op_emit(&f->list, KERN_MOE_MATMUL, layer, role)->p.moe_matmul = (struct op_moe_matmul){
        .w = *w, .x = x, .y = y, .group = at(f, f->ffn.group), .x_stride = in->stride, .y_stride = y_stride,
        .n_rows = x_per_pair ? in->n_rows / used : in->n_rows, .n_used = used, .x_per_pair = x_per_pair};
}

static void emit_moe_ffn(struct forward *f, int layer, const struct ffn_weights *w, struct kern_view x, struct op_input *h)
{
    const struct model_config *c = f->c;
    int32_t rows = h->n_rows, used = c->n_expert_used, n = c->n_ff_expert, ns = c->n_ff_shared;
    struct kern_view logits = at(f, f->ffn.logits), ids = at(f, f->ffn.ids), weights = at(f, f->ffn.weights);
    struct kern_view pairs = at(f, f->ffn.pairs), down = at(f, f->ffn.down);
    struct kern_view shared = at(f, f->ffn.shared_gate_up), shared_down = at(f, f->ffn.shared_down),
                     shared_logit = at(f, f->ffn.shared_logit);

    op_emit_matmul(&f->list, layer, "ffn_router", &w->router, h, logits, c->n_expert, false);
    op_emit(&f->list, KERN_ROUTER, layer, "ffn_topk")->p.router = (struct op_router){
        .logits = logits, .ids = ids, .weights = weights, .n_rows = rows, .n_expert = c->n_expert, .n_used = used};
    op_emit(&f->list, KERN_MOE_GROUP, layer, "ffn_group")->p.moe_group = (struct op_moe_group){
        .ids = ids, .group = at(f, f->ffn.group), .n_rows = rows, .n_expert = c->n_expert, .n_used = used};
    if (w->gate_up_exps.n_out)
        emit_moe_matmul(f, layer, "ffn_gate_up_exps", &w->gate_up_exps, h, pairs, 2 * n, false);
    else {
        emit_moe_matmul(f, layer, "ffn_gate_exps", &w->gate_exps, h, pairs, 2 * n, false);
        emit_moe_matmul(f, layer, "ffn_up_exps", &w->up_exps, h, kern_view_at(pairs, (size_t)n * sizeof(float)), 2 * n, false);
    }
    op_emit_matmul(&f->list, layer, "ffn_gate_shexp", &w->shared_gate, h, shared, 2 * ns, false);
    op_emit_matmul(&f->list, layer, "ffn_up_shexp", &w->shared_up, h, kern_view_at(shared, (size_t)ns * sizeof(float)), 2 * ns, false);
    op_emit_matmul(&f->list, layer, "ffn_gate_inp_shexp", &w->shared_gate_inp, h, shared_logit, 1, false);
    /* from here on the quantised copies of h are overwritten */
    emit_swiglu(f, layer, pairs, n, rows * used);
    struct op_input pair_in = {.x = pairs, .stride = 2 * n, .n = n, .n_rows = rows * used};
    emit_moe_matmul(f, layer, "ffn_down_exps", &w->down_exps, &pair_in, down, c->n_embd, true);
    emit_swiglu(f, layer, shared, ns, rows);
    struct op_input shared_in = {.x = shared, .stride = 2 * ns, .n = ns, .n_rows = rows};
    op_emit_matmul(&f->list, layer, "ffn_down_shexp", &w->shared_down, &shared_in, shared_down, c->n_embd, false);
    op_emit(&f->list, KERN_MOE_COMBINE, layer, "ffn_combine")->p.moe_combine = (struct op_moe_combine){
        .x = x, .y = down, .weights = weights, .shared = shared_down, .shared_gate = shared_logit, .n = c->n_embd, .n_rows = rows,
        .n_used = used, .x_stride = c->n_embd, .y_stride = c->n_embd, .shared_stride = c->n_embd};
}

static void emit_block(struct forward *f, const struct kern_batch *b, int layer, const struct block_weights *l, struct kern_view x)
{
    const struct model_config *c = f->c;
    struct kern_view h = at(f, f->h);
    struct op_input in = {.x = h, .stride = c->n_embd, .n = c->n_embd, .n_rows = b->n_rows};
    emit_norm(f, layer, "attn_norm", x, c->n_embd, l->attn_norm, h, c->n_embd, b->n_rows);
    if (l->recurrent)
        emit_recurrent(f, b, layer, l, x, &in);
    else
        emit_attention(f, b, layer, l, x, &in);
    emit_norm(f, layer, "post_attention_norm", x, c->n_embd, l->post_norm, h, c->n_embd, b->n_rows);
    in = (struct op_input){.x = h, .stride = c->n_embd, .n = c->n_embd, .n_rows = b->n_rows};
    if (c->moe)
        emit_moe_ffn(f, layer, &l->ffn, x, &in);
    else
        emit_dense_ffn(f, layer, &l->ffn, x, &in);
}

static void emit_rope_table(struct forward *f)
{
    op_emit(&f->list, KERN_ROPE_TABLE, -1, "rope")->p.rope_table =
        (struct op_rope_table){.table = at(f, f->rope), .inv_freq = f->c->inv_freq, .scale = f->c->rope_scale, .n_rot = f->c->n_rot};
}

_Static_assert(FORWARD_MAX_OUT <= KERN_ARGMAX_ROWS, "rows of one ARGMAX");

static int32_t argmax_blocks(int32_t n_out) { return (n_out + KERN_ARGMAX_COLUMNS - 1) / KERN_ARGMAX_COLUMNS; }

/* The best token of each row in place of its logits. */
static void emit_argmax(struct forward *f, const struct kern_weight *head, struct op_input *in)
{
    struct kern_view x = op_input_for(&f->list, -1, in, head->type), blocks = at(f, f->blocks);
    op_emit(&f->list, KERN_ARGMAX, -1, "output")->p.argmax = (struct op_argmax){
        .matmul = {.w = *head, .x = x, .x_stride = in->stride, .n_rows = in->n_rows}, .allow = at(f, f->samplable), .blocks = blocks};
    op_emit(&f->list, KERN_ARGMAX_MERGE, -1, "output_best")->p.argmax_merge =
        (struct op_argmax_merge){.blocks = blocks, .best = at(f, f->best), .n_blocks = argmax_blocks(head->n_out), .n_rows = in->n_rows};
}

/* The same for the k best of each row. */
static void emit_topk(struct forward *f, const struct kern_weight *head, struct kern_view allow, int32_t k, struct op_input *in)
{
    struct kern_view x = op_input_for(&f->list, -1, in, head->type), blocks = at(f, f->blocks);
    op_emit(&f->list, KERN_TOPK, -1, "output")->p.topk = (struct op_topk){
        .matmul = {.w = *head, .x = x, .x_stride = in->stride, .n_rows = in->n_rows}, .allow = allow, .blocks = blocks, .k = k};
    op_emit(&f->list, KERN_TOPK_MERGE, -1, "output_best")->p.topk_merge = (struct op_topk_merge){
        .blocks = blocks, .best = at(f, f->best), .n_blocks = argmax_blocks(head->n_out), .n_rows = in->n_rows, .k = k};
}

/* Rows of x through a final norm: the head's input. */
static struct op_input emit_out_rows(struct forward *f, struct kern_view norm, const int32_t *out_rows, int32_t n_out)
{
    const struct model_config *c = f->c;
    struct kern_view picked = at(f, f->out_x), hidden = at(f, f->out_hidden);
    memcpy(f->rows, out_rows, (size_t)n_out * sizeof *out_rows);
    op_emit(&f->list, KERN_GET_ROWS, -1, "output_rows")->p.get_rows = (struct op_get_rows){
        .in = at(f, f->x), .out = picked, .in_stride = c->n_embd, .out_stride = c->n_embd, .n = c->n_embd, .n_get = n_out, .rows = f->rows};
    emit_norm(f, -1, "output_norm", picked, c->n_embd, norm, hidden, c->n_embd, n_out);
    return (struct op_input){.x = hidden, .stride = c->n_embd, .n = c->n_embd, .n_rows = n_out};
}

static void emit_head(struct forward *f, const int32_t *out_rows, int32_t n_out, enum forward_out kind)
{
    struct op_input in = emit_out_rows(f, f->w->output_norm, out_rows, n_out);
    if (kind == FORWARD_BEST)
        emit_argmax(f, &f->w->head, &in);
    else
        op_emit_matmul(&f->list, -1, "output", &f->w->head, &in, at(f, f->logits), f->c->n_vocab, false);
}

static void emit_tap(struct forward *f, int32_t layer)
{
    int32_t n = f->c->n_embd;
    op_emit(&f->list, KERN_GET_ROWS, layer, "tap")->p.get_rows = (struct op_get_rows){
        .in = at(f, f->x), .out = at(f, f->taps + (size_t)layer * n * sizeof(float)), .in_stride = n, .out_stride = n, .n = n, .n_get = 1,
        .rows = &f->tap_row};
}

/* Of all rows, what forward_set_capture asked for. */
static void emit_capture(struct forward *f, int32_t layer, int32_t n_rows)
{
    const int32_t n = f->c->n_embd;
    for (int32_t i = 0; i < f->n_capture_taps; i++) {
        if (f->capture_taps[i] != layer)
            continue;
        op_emit(&f->list, KERN_GET_ROWS, layer, "capture")->p.get_rows = (struct op_get_rows){
            .in = at(f, f->x), .out = {f->capture, (size_t)i * (size_t)n * sizeof(float)}, .in_stride = n,
            .out_stride = f->n_capture_taps * n, .n = n, .n_get = n_rows, .rows = f->all_rows};
    }
}

static void emit_capture_hidden(struct forward *f, int32_t n_rows)
{
    const int32_t n = f->c->n_embd;
    if (f->capture_hidden_rows)
        emit_norm(f, -1, "capture_norm", at(f, f->x), n, f->w->output_norm, (struct kern_view){f->capture, f->capture_hidden}, n, n_rows);
}

static void emit_embed(struct forward *f, const struct kern_weight *table, struct kern_view out)
{
    op_emit(&f->list, KERN_EMBED, -1, "token_embd")->p.embed = (struct op_embed){.table = *table, .out = out, .stride = f->c->n_embd};
}

/* ---- running ---- */

static int run(struct forward *f, const struct kern_batch *b, skua_error *err)
{
    return f->dev->ops->run(f->dev, f->list.ops, f->list.n, b, err);
}

static int check_batch(const struct forward *f, const struct kern_batch *b, int32_t n_out, skua_error *err)
{
    if (b->n_rows < 1 || b->n_rows > f->max_rows || n_out < 0 || n_out > FORWARD_MAX_OUT)
        return error_set(err, SKUA_EARG, "forward pass of %d rows and %d outputs; limits are %d and %d", b->n_rows, n_out, f->max_rows,
                         FORWARD_MAX_OUT);
    return 0;
}

int forward_trunk(struct forward *f, const struct kern_batch *b, const int32_t *out_rows, int32_t n_out, enum forward_out kind,
                  int32_t tap_row, skua_error *err)
{
    int rc = check_batch(f, b, n_out, err);
    if (rc)
        return rc;
    struct kern_view x = at(f, f->x);
    f->list.n = 0;
    f->tap_row = tap_row;
    emit_embed(f, &f->w->embed, x);
    emit_rope_table(f);
    for (int32_t i = 0; i < f->c->n_layer; i++) {
        emit_block(f, b, i, &f->w->blocks[i], x);
        if (tap_row >= 0)
            emit_tap(f, i);
        emit_capture(f, i, b->n_rows);
    }
    emit_capture_hidden(f, b->n_rows);
    if (n_out)
        emit_head(f, out_rows, n_out, kind);
    return run(f, b, err);
}

int forward_head(struct forward *f, const int32_t *out_rows, int32_t n_out, enum forward_out kind, skua_error *err)
{
    struct kern_batch b = {.n_rows = 1}; /* no op of the head looks at the batch */
    int rc = check_batch(f, &b, n_out, err);
    if (rc)
        return rc;
    f->list.n = 0;
    emit_head(f, out_rows, n_out, kind);
    return run(f, &b, err);
}

int forward_commit(struct forward *f, const struct kern_batch *b, skua_error *err)
{
    const struct model_config *c = f->c;
    f->list.n = 0;
    for (int32_t i = 0; i < c->n_layer; i++) {
        const struct block_weights *l = &f->w->blocks[i];
        if (l->recurrent)
            op_emit(&f->list, KERN_GDN_COMMIT, i, "commit")->p.gdn_commit = (struct op_gdn_commit){
                .n_key_head = c->n_k_head, .n_v = c->n_v_head, .d = c->d_state, .state_offset = l->s_offset,
                .tape_offset = l->tape_step_offset, .tape_stride = f->tape_stride};
    }
    for (int32_t i = 0; i < c->n_layer; i++) { /* small ops, run together */
        const struct block_weights *l = &f->w->blocks[i];
        if (l->recurrent)
            op_emit(&f->list, KERN_GDN_CONV_COMMIT, i, "commit_conv")->p.gdn_conv_commit = (struct op_gdn_conv_commit){
                .n_channel = c->n_conv_channel, .kernel = c->conv_kernel, .state_offset = l->conv_offset,
                .tape_offset = l->tape_conv_offset, .tape_stride = f->tape_stride};
    }
    return f->list.n ? run(f, b, err) : 0;
}

/* x = W [e ; h], in one product or as the sum of two. */
static void emit_mtp_join(struct forward *f, const struct mtp_weights *m, int layer, struct kern_view joined, struct kern_view x,
                          int32_t n_rows)
{
    int32_t n = f->c->n_embd;
    struct op_input in = {.x = joined, .stride = 2 * n, .n = 2 * n, .n_rows = n_rows};
    if (m->eh_proj.n_out) {
        op_emit_matmul(&f->list, layer, "nextn_eh_proj", &m->eh_proj, &in, x, n, false);
        return;
    }
    struct op_input e = {.x = joined, .stride = 2 * n, .n = n, .n_rows = n_rows};
    struct op_input h = {.x = kern_view_at(joined, (size_t)n * sizeof(float)), .stride = 2 * n, .n = n, .n_rows = n_rows};
    op_emit_matmul(&f->list, layer, "nextn_e_proj", &m->e_proj, &e, x, n, false);
    op_emit_matmul(&f->list, layer, "nextn_h_proj", &m->h_proj, &h, x, n, true);
}

int forward_mtp(struct forward *f, const struct mtp_weights *m, const struct kern_batch *b, struct kern_view hidden, int32_t hidden_stride,
                const int32_t *out_rows, int32_t n_out, int32_t n_top, skua_error *err)
{
    const struct model_config *c = f->c;
    int rc = check_batch(f, b, n_out > n_out * n_top ? n_out : n_out * n_top, err);
    if (rc)
        return rc;
    struct kern_view x = at(f, f->x), joined = at(f, f->mtp_in);
    f->list.n = 0;
    emit_rope_table(f);
    emit_embed(f, &m->embed, x);
    emit_norm(f, c->n_layer, "nextn_enorm", x, c->n_embd, m->enorm, joined, 2 * c->n_embd, b->n_rows);
    emit_norm(f, c->n_layer, "nextn_hnorm", hidden, hidden_stride, m->hnorm, kern_view_at(joined, (size_t)c->n_embd * sizeof(float)),
              2 * c->n_embd, b->n_rows);
    emit_mtp_join(f, m, c->n_layer, joined, x, b->n_rows);
    emit_block(f, b, c->n_layer, &m->block, x);
    if (n_out) {
        struct op_input in = emit_out_rows(f, m->head_norm, out_rows, n_out);
        if (n_top)
            emit_topk(f, &m->head, m->allow.buf ? m->allow : at(f, f->samplable), n_top, &in);
        else
            op_emit_matmul(&f->list, -1, "output", &m->head, &in, at(f, f->logits), c->n_vocab, false);
    }
    return run(f, b, err);
}

void forward_read_logits(struct forward *f, int32_t i, float *dst)
{
    size_t row = (size_t)f->c->n_vocab * sizeof(float);
    f->dev->ops->read(f->dev, at(f, f->logits + (size_t)i * row), dst, row);
}

struct kern_best forward_read_best(struct forward *f, int32_t i)
{
    struct kern_best best;
    f->dev->ops->read(f->dev, at(f, f->best + (size_t)i * sizeof best), &best, sizeof best);
    return best;
}

void forward_read_top(struct forward *f, int32_t i, int32_t n_top, struct kern_best *dst)
{
    size_t row = (size_t)n_top * sizeof *dst;
    f->dev->ops->read(f->dev, at(f, f->best + (size_t)i * row), dst, row);
}

void forward_read_out_hidden(struct forward *f, int32_t i, float *dst)
{
    size_t row = (size_t)f->c->n_embd * sizeof(float);
    f->dev->ops->read(f->dev, at(f, f->out_hidden + (size_t)i * row), dst, row);
}

struct kern_view forward_out_hidden(const struct forward *f) { return at(f, f->out_hidden); }

void forward_read_tap(struct forward *f, int32_t layer, float *dst)
{
    size_t row = (size_t)f->c->n_embd * sizeof(float);
    f->dev->ops->read(f->dev, at(f, f->taps + (size_t)layer * row), dst, row);
}

/* ---- workspace ---- */

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static size_t layout_scratch(struct forward *f, size_t begin)
{
    const struct model_config *c = f->c;
    size_t row = (size_t)f->max_rows * sizeof(float), pair_row = row * (size_t)(c->moe ? c->n_expert_used : 0);
    size_t q = (size_t)c->head_dim * c->n_head, kv = (size_t)c->head_dim * c->n_head_kv, end_all = begin, end = begin;
    f->gdn.m = op_take(&end, row * c->n_conv_channel);
    f->gdn.c = op_take(&end, row * c->n_conv_channel);
    f->gdn.z = op_take(&end, row * c->d_inner);
    f->gdn.o = op_take(&end, row * c->d_inner);
    f->gdn.a = op_take(&end, row * c->n_v_head);
    f->gdn.b = op_take(&end, row * c->n_v_head);
    end_all = max_size(end_all, end);
    end = begin;
    f->attn.u = op_take(&end, row * 2 * q);
    f->attn.k = op_take(&end, row * kv);
    f->attn.v = op_take(&end, row * kv);
    f->attn.q = op_take(&end, row * q);
    f->attn.o = op_take(&end, row * q);
    f->attn.parts = op_take(&end, PART_SLOTS * (size_t)c->n_head * kern_part_floats(c->head_dim) * sizeof(float));
    f->attn.running = op_take(&end, SPLIT_ROWS * (size_t)c->n_head * 2 * sizeof(float));
    end_all = max_size(end_all, end);
    end = begin;
    if (!c->moe) {
        f->ffn.gate_up = op_take(&end, row * 2 * c->n_ff);
    } else {
        f->ffn.logits = op_take(&end, row * c->n_expert);
        f->ffn.ids = op_take(&end, pair_row);
        f->ffn.weights = op_take(&end, pair_row);
        f->ffn.group = op_take(&end, ((size_t)c->n_expert + 1) * sizeof(int32_t) + pair_row);
        f->ffn.pairs = op_take(&end, pair_row * 2 * c->n_ff_expert);
        f->ffn.down = op_take(&end, pair_row * c->n_embd);
        f->ffn.shared_gate_up = op_take(&end, row * 2 * c->n_ff_shared);
        f->ffn.shared_down = op_take(&end, row * c->n_embd);
        f->ffn.shared_logit = op_take(&end, row);
    }
    end_all = max_size(end_all, end);
    end = begin;
    f->mtp_in = op_take(&end, row * 2 * c->n_embd);
    return max_size(end_all, end);
}

/* Bytes of the largest quantised input of a kind. */
static size_t act_bytes(const struct forward *f, enum kern_act kind)
{
    const struct model_config *c = f->c;
    const int32_t rows = f->max_rows, pairs = rows * (c->moe ? c->n_expert_used : 1);
    const struct { int32_t n, rows; } inputs[] = {
        {c->n_embd, rows > FORWARD_MAX_OUT ? rows : FORWARD_MAX_OUT}, {2 * c->n_embd, rows}, {c->head_dim * c->n_head, rows},
        {c->d_inner, rows}, {c->n_ff, rows}, {c->n_ff_expert, pairs}, {c->n_ff_shared, rows},
    };
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        bytes = max_size(bytes, op_act_bytes(kind, inputs[i].n, inputs[i].rows));
    return bytes;
}

static int allocate(struct forward *f, const uint64_t *samplable, skua_error *err)
{
    const struct model_config *c = f->c;
    const size_t bitmap = ((size_t)c->n_vocab + 63) / 64 * sizeof *samplable;
    size_t row = (size_t)f->max_rows * sizeof(float), end = 0;
    f->x = op_take(&end, row * c->n_embd);
    f->h = op_take(&end, row * c->n_embd);
    f->rope = op_take(&end, row * c->n_rot);
    f->taps = op_take(&end, (size_t)c->n_layer * c->n_embd * sizeof(float));
    f->out_x = op_take(&end, FORWARD_MAX_OUT * (size_t)c->n_embd * sizeof(float));
    f->out_hidden = op_take(&end, FORWARD_MAX_OUT * (size_t)c->n_embd * sizeof(float));
    f->logits = op_take(&end, FORWARD_MAX_OUT * (size_t)c->n_vocab * sizeof(float));
    f->samplable = op_take(&end, bitmap);
    f->blocks = op_take(&end, FORWARD_MAX_OUT * (size_t)argmax_blocks(c->n_vocab) * sizeof(struct kern_best));
    f->best = op_take(&end, FORWARD_MAX_OUT * sizeof(struct kern_best));
    size_t act[KERN_ACT_COUNT];
    for (int kind = 0; kind < KERN_ACT_COUNT; kind++)
        act[kind] = op_take(&end, act_bytes(f, (enum kern_act)kind));
    end = layout_scratch(f, end);
    int rc = f->dev->ops->buf_alloc(f->dev, end, &f->buf, err);
    if (rc)
        return rc;
    f->dev->ops->write(f->dev, at(f, f->samplable), samplable, bitmap);
    for (int kind = 0; kind < KERN_ACT_COUNT; kind++)
        f->list.act[kind] = at(f, act[kind]);
    f->list.cap = c->n_block * OPS_PER_BLOCK + OPS_EXTRA;
    f->list.ops = mem_alloc((size_t)f->list.cap * sizeof *f->list.ops);
    return f->list.ops ? 0 : error_nomem(err, "op list", (size_t)f->list.cap * sizeof *f->list.ops);
}

int forward_create(const struct model_config *c, const struct weights *w, struct dev *d, uint32_t kv_type, int32_t max_rows,
                   const uint64_t *samplable, struct forward **out, skua_error *err)
{
    *out = NULL;
    struct forward *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(err, "forward pass", sizeof *f);
    f->c = c;
    f->w = w;
    f->dev = f->list.dev = d;
    f->kv_type = kv_type;
    f->max_rows = max_rows;
    f->tape_stride = config_tape_row_bytes(c);
    int rc = allocate(f, samplable, err);
    if (rc) {
        forward_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    f->dev->ops->buf_free(f->dev, f->buf);
    f->dev->ops->buf_free(f->dev, f->capture);
    mem_free(f->capture_taps);
    mem_free(f->all_rows);
    mem_free(f->list.ops);
    mem_free(f);
}

size_t forward_bytes(const struct forward *f) { return f->buf->size + (f->capture ? f->capture->size : 0); }

/* ---- capture ---- */

static int make_all_rows(struct forward *f, skua_error *err)
{
    if (f->all_rows)
        return 0;
    f->all_rows = mem_alloc((size_t)f->max_rows * sizeof *f->all_rows);
    if (!f->all_rows)
        return error_nomem(err, "row numbers", (size_t)f->max_rows * sizeof *f->all_rows);
    for (int32_t i = 0; i < f->max_rows; i++)
        f->all_rows[i] = i;
    return 0;
}

int forward_set_capture(struct forward *f, const int32_t *taps, int32_t n_taps, bool hidden, skua_error *err)
{
    const size_t row = (size_t)f->max_rows * (size_t)f->c->n_embd * sizeof(float);
    struct kern_buf *buf = NULL;
    int32_t *copy = NULL;
    size_t end = 0;
    for (int32_t i = 0; i < n_taps; i++) {
        if (taps[i] < 0 || taps[i] >= f->c->n_layer)
            return error_set(err, SKUA_EARG, "layer %d to capture; the model has layers 0 to %d", taps[i], f->c->n_layer - 1);
        for (int32_t k = 0; k < i; k++)
            if (taps[k] == taps[i])
                return error_set(err, SKUA_EARG, "layer %d to capture twice", taps[i]);
    }
    op_take(&end, row * (size_t)n_taps);
    const size_t hidden_at = end;
    op_take(&end, hidden ? row : 0);
    int rc = end ? make_all_rows(f, err) : 0;
    if (!rc && end)
        rc = f->dev->ops->buf_alloc(f->dev, end, &buf, err);
    if (!rc && n_taps && !(copy = mem_alloc((size_t)n_taps * sizeof *copy)))
        rc = error_nomem(err, "layers to capture", (size_t)n_taps * sizeof *copy);
    if (rc) {
        f->dev->ops->buf_free(f->dev, buf);
        return rc;
    }
    if (n_taps)
        memcpy(copy, taps, (size_t)n_taps * sizeof *copy);
    f->dev->ops->buf_free(f->dev, f->capture);
    mem_free(f->capture_taps);
    f->capture = buf;
    f->capture_taps = copy;
    f->n_capture_taps = n_taps;
    f->capture_hidden = hidden_at;
    f->capture_hidden_rows = hidden;
    return 0;
}

struct forward_capture forward_captured(const struct forward *f)
{
    struct forward_capture c = {0};
    if (f->n_capture_taps) {
        c.taps = (struct kern_view){f->capture, 0};
        c.taps_stride = f->n_capture_taps * f->c->n_embd;
    }
    if (f->capture_hidden_rows) {
        c.hidden = (struct kern_view){f->capture, f->capture_hidden};
        c.hidden_stride = f->c->n_embd;
    }
    return c;
}
