/* Emitting op lists: what the passes of models and of drafters have in common. */
#ifndef SKUA_MODEL_OP_LIST_H
#define SKUA_MODEL_OP_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "dev/dev.h"

/* A list under construction. The ops are the caller's, room for as many as it emits. */
struct op_list {
    struct dev *dev;
    struct kern_op *ops;
    int n, cap;
    struct kern_view act[KERN_ACT_COUNT]; /* where quantised copies of matmul inputs go, by kind; [KERN_ACT_F32] unused */
};

/* A matmul input: n_rows float rows of n values, and which quantised copies of them lie in the list's act views. Matrices that read the
   same input share them; emitting for another input overwrites them. */
struct op_input {
    struct kern_view x;
    int32_t stride, n, n_rows;
    bool have[KERN_ACT_COUNT];
};

/* A zeroed op at the end. */
struct kern_op *op_emit(struct op_list *l, enum kern_op_code code, int layer, const char *role);

/* The input in the form that a weight type wants; emits its quantising at the first use. */
struct kern_view op_input_for(struct op_list *l, int layer, struct op_input *in, uint32_t weight_type);

/* y = w x, or y += w x. */
void op_emit_matmul(struct op_list *l, int layer, const char *role, const struct kern_weight *w, struct op_input *in, struct kern_view y,
                    int32_t y_stride, bool accumulate);

/* Bytes of the quantised copy, of a kind, of n_rows rows of n values; 0 when n is no multiple of the kind's block: no matrix of the
   kind has such inputs. */
size_t op_act_bytes(enum kern_act kind, int32_t n, int32_t n_rows);

/* Where `bytes` bytes go in a buffer of which *end are taken: a multiple of 256. Moves *end. */
size_t op_take(size_t *end, size_t bytes);

#endif
