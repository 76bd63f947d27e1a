/* Emitting op lists; see op_list.h. */
#include "model/op_list.h"

#define ALIGN 256

struct kern_op *op_emit(struct op_list *l, enum kern_op_code code, int layer, const char *role)
{
    struct kern_op *op = &l->ops[l->n++];
    *op = (struct kern_op){.code = code, .layer = (int16_t)layer, .role = role};
    return op;
}

struct kern_view op_input_for(struct op_list *l, int layer, struct op_input *in, uint32_t weight_type)
{
    const int kind = l->dev->ops->act_kind(l->dev, weight_type);
    if (kind == KERN_ACT_F32)
        return in->x;
    const struct kern_view q = l->act[kind];
    if (!in->have[kind]) {
        op_emit(l, KERN_QUANT_ACT, layer, "quantize")->p.quant_act = (struct op_quant_act){
            .x = in->x, .out = q, .x_stride = in->stride, .n = in->n, .n_rows = in->n_rows, .kind = (enum kern_act)kind};
        in->have[kind] = true;
    }
    return q;
}

void op_emit_matmul(struct op_list *l, int layer, const char *role, const struct kern_weight *w, struct op_input *in, struct kern_view y,
                    int32_t y_stride, bool accumulate)
{
    const struct kern_view x = op_input_for(l, layer, in, w->type);
    op_emit(l, KERN_MATMUL, layer, role)->p.matmul = (struct op_matmul){
        .w = *w, .x = x, .y = y, .x_stride = in->stride, .y_stride = y_stride, .n_rows = in->n_rows, .accumulate = accumulate};
}

size_t op_act_bytes(enum kern_act kind, int32_t n, int32_t n_rows)
{
    const int32_t block = kind == KERN_ACT_Q12_32 ? 32 : 256;
    return kind == KERN_ACT_F32 || n < 1 || n % block != 0 ? 0 : kern_act_bytes(kind, n) * (size_t)n_rows;
}

size_t op_take(size_t *end, size_t bytes)
{
    const size_t offset = *end;
    *end = (offset + bytes + ALIGN - 1) / ALIGN * ALIGN;
    return offset;
}
