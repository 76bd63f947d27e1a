/* The forward pass of the DFlash family; see dflash_forward.h.
 *
 * Workspace: one device buffer with regions for rows of context and regions for the rows of a block; the two are never in use together,
 * but neither is large. */
#include "spec/dflash_forward.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/op_list.h"
#include "quant/type.h"
#include "spec/drafter.h"

#define OPS_PER_LAYER 40
#define OPS_EXTRA 16

struct dflash {
    const struct dflash_config *c;
    const struct dflash_weights *w;
    struct dev *dev;
    uint32_t kv_type;
    size_t kv_bytes, page_bytes; /* of K or V of one layer at a page's positions; of all */

    struct kern_buf *buf;
    struct kern_view rope, context, k, v;                           /* rows of context; the last two of a block as well */
    struct kern_view x, h, conv, sub, dyn, q, o, gate_up, hidden;   /* rows of a block */
    struct kern_view blocks, best, selector;
    struct kern_view factor;                                        /* of the embedding, when there is one */

    struct dspark *spark;
    struct op_list list;
    int32_t token[DFLASH_BLOCK_ROWS], pos[DFLASH_CONTEXT_ROWS], seq[DFLASH_CONTEXT_ROWS];
    int32_t k_best; /* of the last block */
};

const struct dflash_config *dflash_config_of(const struct dflash *f) { return f->c; }
const struct dflash_weights *dflash_weights_of(const struct dflash *f) { return f->w; }
struct dev *dflash_dev(const struct dflash *f) { return f->dev; }
struct dspark *dflash_spark(const struct dflash *f) { return f->spark; }
size_t dflash_bytes(const struct dflash *f) { return f->buf->size + (f->spark ? dspark_bytes(f->spark) : 0); }
size_t dflash_page_bytes(const struct dflash *f) { return f->page_bytes; }
struct kern_view dflash_hidden(const struct dflash *f) { return f->hidden; }

int32_t dflash_window(const struct dflash *f)
{
    int32_t widest = 0;
    for (int32_t i = 0; i < f->c->n_layer; i++) {
        if (!f->c->window[i])
            return 0;
        widest = f->c->window[i] > widest ? f->c->window[i] : widest;
    }
    return widest;
}

static int32_t q_width(const struct dflash_config *c) { return c->n_head * c->head_dim; }
static int32_t kv_width(const struct dflash_config *c) { return c->n_head_kv * c->head_dim; }
static int32_t dyn_width(const struct dflash_config *c) { return c->conv_kernel ? 2 * c->conv_kernel * (c->n_embd / c->conv_group) : 0; }
static int32_t head_blocks(const struct dflash *f) { return (f->w->head.n_out + KERN_ARGMAX_COLUMNS - 1) / KERN_ARGMAX_COLUMNS; }

/* ---- emitting ---- */

static void emit_norm(struct dflash *f, int layer, const char *role, struct kern_view x, struct kern_view weight, struct kern_view y,
                      int32_t n_rows)
{
    const int32_t n = f->c->n_embd;
    op_emit(&f->list, KERN_RMS_NORM, layer, role)->p.rms_norm = (struct op_rms_norm){
        .x = x, .w = weight, .y = y, .x_stride = n, .y_stride = n, .n = n, .n_rows = n_rows, .eps = f->c->rms_eps};
}

static void emit_rope(struct dflash *f)
{
    op_emit(&f->list, KERN_ROPE_TABLE, -1, "rope")->p.rope_table =
        (struct op_rope_table){.table = f->rope, .inv_freq = f->c->inv_freq, .scale = f->c->rope_scale, .n_rot = f->c->n_rot};
}

/* Keys and values of a layer from the input rows, stored at the batch's positions. */
static void emit_kv(struct dflash *f, int layer, const struct dflash_block_weights *l, struct op_input *in)
{
    const struct dflash_config *c = f->c;
    const size_t at = 2 * f->kv_bytes * (size_t)layer;
    op_emit_matmul(&f->list, layer, "attn_k", &l->attn_k, in, f->k, kv_width(c), false);
    op_emit_matmul(&f->list, layer, "attn_v", &l->attn_v, in, f->v, kv_width(c), false);
    op_emit(&f->list, KERN_ATTN_KV, layer, "attn_kv_store")->p.attn_kv = (struct op_attn_kv){
        .k = f->k, .v = f->v, .norm = l->k_norm, .rope = f->rope, .k_stride = kv_width(c), .v_stride = kv_width(c),
        .n_head_kv = c->n_head_kv, .head_dim = c->head_dim, .n_rot = c->n_rot, .eps = c->rms_eps, .kv_type = f->kv_type, .k_offset = at,
        .v_offset = at + f->kv_bytes};
}

/* DFlash2: taps of the convolution of rows of h for both sides of a sublayer, and h through the first side. Returns the sublayer's input.
   Otherwise that is h itself. */
static struct kern_view emit_before(struct dflash *f, int layer, struct op_input *in, struct kern_view base, const struct kern_weight *proj)
{
    const struct dflash_config *c = f->c;
    if (!c->conv_kernel)
        return in->x;
    op_emit_matmul(&f->list, layer, "conv_proj", proj, in, f->dyn, dyn_width(c), false);
    op_emit(&f->list, KERN_BLOCK_CONV, layer, "conv_before")->p.block_conv = (struct op_block_conv){
        .x = in->x, .base = base, .dyn = f->dyn, .y = f->conv, .x_stride = c->n_embd, .dyn_stride = dyn_width(c), .y_stride = c->n_embd,
        .n = c->n_embd, .group = c->conv_group, .kernel = c->conv_kernel};
    return f->conv;
}

/* The end of a sublayer: x += w in, with the second side of the convolution between them when there is one. */
static void emit_after(struct dflash *f, int layer, const char *role, const struct kern_weight *w, struct op_input *in,
                       struct kern_view base)
{
    const struct dflash_config *c = f->c;
    op_emit_matmul(&f->list, layer, role, w, in, c->conv_kernel ? f->sub : f->x, c->n_embd, !c->conv_kernel);
    if (!c->conv_kernel)
        return;
    const size_t side = (size_t)c->conv_kernel * sizeof(float);
    op_emit(&f->list, KERN_BLOCK_CONV, layer, "conv_after")->p.block_conv = (struct op_block_conv){
        .x = f->sub, .base = kern_view_at(base, side * (size_t)c->n_embd),
        .dyn = kern_view_at(f->dyn, side * (size_t)(c->n_embd / c->conv_group)), .y = f->x, .x_stride = c->n_embd,
        .dyn_stride = dyn_width(c), .y_stride = c->n_embd, .n = c->n_embd, .group = c->conv_group, .kernel = c->conv_kernel,
        .accumulate = true};
}

static void emit_attention(struct dflash *f, int layer, const struct dflash_block_weights *l, int32_t n_rows)
{
    const struct dflash_config *c = f->c;
    const size_t at = 2 * f->kv_bytes * (size_t)layer;
    const int32_t q = q_width(c);
    struct op_input normed = {.x = f->h, .stride = c->n_embd, .n = c->n_embd, .n_rows = n_rows}, in = normed;
    emit_norm(f, layer, "attn_norm", f->x, l->attn_norm, f->h, n_rows);
    in.x = emit_before(f, layer, &normed, l->attn_conv_base, &l->attn_conv_proj);
    op_emit_matmul(&f->list, layer, "attn_q", &l->attn_q, &in, f->o, q, false);
    emit_kv(f, layer, l, &in);
    op_emit(&f->list, KERN_ATTN_Q, layer, "attn_q_norm_rope")->p.attn_q = (struct op_attn_q){
        .u = f->o, .norm = l->q_norm, .rope = f->rope, .q = f->q, .u_stride = q, .q_stride = q, .n_head = c->n_head,
        .head_dim = c->head_dim, .n_rot = c->n_rot, .eps = c->rms_eps, .ungated = true};
    op_emit(&f->list, KERN_ATTN, layer, "attention")->p.attn = (struct op_attn){
        .q = f->q, .out = f->o, .q_stride = q, .out_stride = q, .n_head = c->n_head, .n_head_kv = c->n_head_kv, .head_dim = c->head_dim,
        .scale = (float)(1.0 / sqrt((double)c->head_dim)), .kv_type = f->kv_type, .k_offset = at, .v_offset = at + f->kv_bytes,
        .window = c->window[layer], .bidirectional = !c->causal[layer]};
    in = (struct op_input){.x = f->o, .stride = q, .n = q, .n_rows = n_rows};
    emit_after(f, layer, "attn_output", &l->attn_output, &in, l->attn_conv_base);
}

static void emit_ffn(struct dflash *f, int layer, const struct dflash_block_weights *l, int32_t n_rows)
{
    const struct dflash_config *c = f->c;
    const int32_t n = c->n_ff;
    const struct kern_view up = kern_view_at(f->gate_up, (size_t)n * sizeof(float));
    struct op_input normed = {.x = f->h, .stride = c->n_embd, .n = c->n_embd, .n_rows = n_rows}, in = normed;
    emit_norm(f, layer, "ffn_norm", f->x, l->ffn_norm, f->h, n_rows);
    in.x = emit_before(f, layer, &normed, l->ffn_conv_base, &l->ffn_conv_proj);
    op_emit_matmul(&f->list, layer, "ffn_gate", &l->ffn_gate, &in, f->gate_up, 2 * n, false);
    op_emit_matmul(&f->list, layer, "ffn_up", &l->ffn_up, &in, up, 2 * n, false);
    op_emit(&f->list, KERN_SWIGLU, layer, "swiglu")->p.swiglu = (struct op_swiglu){
        .gate = f->gate_up, .up = up, .h = f->gate_up, .n = n, .n_rows = n_rows, .gate_stride = 2 * n, .up_stride = 2 * n,
        .h_stride = 2 * n};
    in = (struct op_input){.x = f->gate_up, .stride = 2 * n, .n = n, .n_rows = n_rows};
    emit_after(f, layer, "ffn_down", &l->ffn_down, &in, l->ffn_conv_base);
}

static void emit_head(struct dflash *f, const struct dflash_block *b)
{
    const struct dflash_config *c = f->c;
    const size_t first = c->anchor_first ? 0 : (size_t)c->n_embd * sizeof(float);
    struct op_input in = {.x = f->hidden, .stride = c->n_embd, .n = c->n_embd, .n_rows = b->n_out};
    emit_norm(f, -1, "output_norm", kern_view_at(f->x, first), f->w->output_norm, f->hidden, b->n_out);
    if (f->w->selector_hidden.n_out)
        op_emit_matmul(&f->list, -1, "selector", &f->w->selector_hidden, &in, f->selector, c->selector_rank, false);
    if (!b->k)
        return;
    const struct kern_view x = op_input_for(&f->list, -1, &in, f->w->head.type);
    op_emit(&f->list, KERN_TOPK, -1, "output")->p.topk = (struct op_topk){
        .matmul = {.w = f->w->head, .x = x, .x_stride = c->n_embd, .n_rows = b->n_out}, .allow = f->w->allow, .blocks = f->blocks, .k = b->k};
    op_emit(&f->list, KERN_TOPK_MERGE, -1, "output_best")->p.topk_merge = (struct op_topk_merge){
        .blocks = f->blocks, .best = f->best, .n_blocks = head_blocks(f), .n_rows = b->n_out, .k = b->k};
}

/* ---- running ---- */

/* n rows behind what the sequence holds. */
static int run(struct dflash *f, struct seq *s, int32_t n, skua_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        f->pos[i] = s->n_pos + i;
        f->seq[i] = 0;
    }
    const struct kern_seq one = {.n_rows = n, .pos_begin = s->n_pos, .state = s->state, .kv_pages = s->pages, .n_kv_pages = s->n_pages};
    const struct kern_batch batch = {.n_rows = n, .n_seqs = 1, .token = f->token, .pos = f->pos, .seq = f->seq, .seqs = &one};
    return f->dev->ops->run(f->dev, f->list.ops, f->list.n, &batch, err);
}

int dflash_context(struct dflash *f, struct seq *s, struct kern_view taps, int32_t taps_stride, int32_t n, skua_error *err)
{
    const struct dflash_config *c = f->c;
    for (int32_t done = 0, rows; done < n; done += rows) {
        rows = n - done < DFLASH_CONTEXT_ROWS ? n - done : DFLASH_CONTEXT_ROWS;
        struct op_input in = {.x = kern_view_at(taps, (size_t)done * (size_t)taps_stride * sizeof(float)), .stride = taps_stride,
                              .n = c->n_taps * c->n_embd, .n_rows = rows};
        int rc = seq_reserve(s, s->n_pos + rows, err);
        if (rc)
            return rc;
        f->list.n = 0;
        emit_rope(f);
        op_emit_matmul(&f->list, -1, "fc", &f->w->fc, &in, f->context, c->n_embd, false);
        emit_norm(f, -1, "context_norm", f->context, f->w->context_norm, f->context, rows);
        in = (struct op_input){.x = f->context, .stride = c->n_embd, .n = c->n_embd, .n_rows = rows};
        for (int32_t i = 0; i < c->n_layer; i++)
            emit_kv(f, i, &f->w->blocks[i], &in);
        rc = run(f, s, rows, err);
        if (rc)
            return rc;
        s->n_pos += rows;
    }
    return 0;
}

int dflash_block(struct dflash *f, struct seq *s, const struct dflash_block *b, skua_error *err)
{
    const struct dflash_config *c = f->c;
    const int32_t most = c->anchor_first ? b->n_rows : b->n_rows - 1;
    if (b->n_rows < 1 || b->n_rows > DFLASH_BLOCK_ROWS || b->n_out < 1 || b->n_out > most || b->k < 0 || b->k > DRAFT_MAX_TOP)
        return error_set(err, SKUA_EARG, "a block of %d rows with %d results and %d candidates each", b->n_rows, b->n_out, b->k);
    int rc = seq_reserve(s, s->n_pos + b->n_rows, err);
    if (rc)
        return rc;
    for (int32_t i = 0; i < b->n_rows; i++)
        f->token[i] = i ? c->mask_id : b->anchor;
    struct kern_weight table = f->w->embed;
    if (f->factor.buf)
        table.scale = f->factor;
    f->k_best = b->k;
    f->list.n = 0;
    op_emit(&f->list, KERN_EMBED, -1, "token_embd")->p.embed = (struct op_embed){.table = table, .out = f->x, .stride = c->n_embd};
    emit_rope(f);
    for (int32_t i = 0; i < c->n_layer; i++) {
        emit_attention(f, i, &f->w->blocks[i], b->n_rows);
        emit_ffn(f, i, &f->w->blocks[i], b->n_rows);
    }
    emit_head(f, b);
    return run(f, s, b->n_rows, err);
}

int32_t dflash_candidates(struct dflash *f, int32_t i, int32_t *ids, double *logits)
{
    struct kern_best best[DRAFT_MAX_TOP];
    const size_t row = (size_t)f->k_best * sizeof *best;
    const double scale = (double)f->c->logit_scale, cap = (double)f->c->softcap;
    int32_t n = 0;
    f->dev->ops->read(f->dev, kern_view_at(f->best, (size_t)i * row), best, row);
    for (; n < f->k_best && best[n].column >= 0; n++) {
        ids[n] = f->w->head_ids ? f->w->head_ids[best[n].column] : best[n].column;
        logits[n] = (double)best[n].value * scale;
        if (cap > 0.0)
            logits[n] = cap * tanh(logits[n] / cap);
    }
    return n;
}

void dflash_read_selector(struct dflash *f, int32_t i, float *dst)
{
    const size_t row = (size_t)f->c->selector_rank * sizeof *dst;
    f->dev->ops->read(f->dev, kern_view_at(f->selector, (size_t)i * row), dst, row);
}

/* ---- workspace ---- */

struct region {
    struct kern_view *view;
    size_t bytes;
};

/* Bytes of the largest input of a kind. */
static size_t act_bytes(const struct dflash_config *c, enum kern_act kind)
{
    const struct { int32_t n, rows; } inputs[] = {{c->n_taps * c->n_embd, DFLASH_CONTEXT_ROWS}, {c->n_embd, DFLASH_CONTEXT_ROWS},
                                                  {q_width(c), DFLASH_BLOCK_ROWS}, {c->n_ff, DFLASH_BLOCK_ROWS}};
    size_t most = 0;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        const size_t bytes = op_act_bytes(kind, inputs[i].n, inputs[i].rows);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static int allocate(struct dflash *f, skua_error *err)
{
    const struct dflash_config *c = f->c;
    const size_t row = DFLASH_BLOCK_ROWS * sizeof(float), context = DFLASH_CONTEXT_ROWS * sizeof(float), e = (size_t)c->n_embd;
    const size_t best = DFLASH_BLOCK_ROWS * DRAFT_MAX_TOP * sizeof(struct kern_best);
    const struct region regions[] = {
        {&f->rope, context * (size_t)c->n_rot}, {&f->context, context * e}, {&f->k, context * (size_t)kv_width(c)},
        {&f->v, context * (size_t)kv_width(c)}, {&f->x, row * e}, {&f->h, row * e}, {&f->conv, c->conv_kernel ? row * e : 0},
        {&f->sub, c->conv_kernel ? row * e : 0}, {&f->dyn, row * (size_t)dyn_width(c)}, {&f->q, row * (size_t)q_width(c)},
        {&f->o, row * (size_t)q_width(c)}, {&f->gate_up, row * 2 * (size_t)c->n_ff}, {&f->hidden, row * e},
        {&f->blocks, best * (size_t)head_blocks(f)}, {&f->best, best}, {&f->selector, row * (size_t)c->selector_rank},
        {&f->list.act[KERN_ACT_Q12_32], act_bytes(c, KERN_ACT_Q12_32)}, {&f->list.act[KERN_ACT_Q12_256], act_bytes(c, KERN_ACT_Q12_256)},
        {&f->list.act[KERN_ACT_Q8_256], act_bytes(c, KERN_ACT_Q8_256)}, {&f->factor, c->emb_scale != 1.0f ? sizeof(float) : 0},
    };
    const size_t n = sizeof regions / sizeof *regions;
    size_t end = 0;
    for (size_t i = 0; i < n; i++)
        regions[i].view->offset = op_take(&end, regions[i].bytes);
    int rc = f->dev->ops->buf_alloc(f->dev, end, &f->buf, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < n; i++)
        regions[i].view->buf = regions[i].bytes ? f->buf : NULL;
    if (f->factor.buf) {
        float own = 1.0f;
        if (f->w->embed.scale.buf)
            f->dev->ops->read(f->dev, f->w->embed.scale, &own, sizeof own);
        own *= c->emb_scale;
        f->dev->ops->write(f->dev, f->factor, &own, sizeof own);
    }
    f->list.cap = c->n_layer * OPS_PER_LAYER + OPS_EXTRA;
    f->list.ops = mem_alloc((size_t)f->list.cap * sizeof *f->list.ops);
    return f->list.ops ? 0 : error_nomem(err, "op list", (size_t)f->list.cap * sizeof *f->list.ops);
}

int dflash_create(const struct dflash_config *c, const struct dflash_weights *w, struct dev *d, uint32_t kv_type, struct dflash **out,
                  skua_error *err)
{
    *out = NULL;
    const size_t row = qtype_row_bytes(kv_type, (uint64_t)c->head_dim);
    if (!row)
        return error_set(err, SKUA_EUNSUPPORTED, "cache type %s for heads of %d values, expected a multiple of its block",
                         qtype_info(kv_type) ? qtype_info(kv_type)->name : "?", c->head_dim);
    struct dflash *f = mem_calloc(1, sizeof *f);
    if (!f)
        return error_nomem(err, "drafter", sizeof *f);
    f->c = c;
    f->w = w;
    f->dev = d;
    f->list.dev = d;
    f->kv_type = kv_type;
    f->kv_bytes = (row * (size_t)c->n_head_kv * KV_PAGE_ROWS + 63) & ~(size_t)63;
    f->page_bytes = 2 * f->kv_bytes * (size_t)c->n_layer;
    int rc = allocate(f, err);
    if (!rc && c->variant == DFLASH_SPARK)
        rc = dspark_create(c, w, d, DFLASH_BLOCK_ROWS, &f->spark, err);
    if (rc) {
        dflash_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

void dflash_free(struct dflash *f)
{
    if (!f)
        return;
    f->dev->ops->buf_free(f->dev, f->buf);
    dspark_free(f->spark);
    mem_free(f->list.ops);
    mem_free(f);
}
