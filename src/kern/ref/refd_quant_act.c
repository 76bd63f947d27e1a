/* QUANT_ACT of the reference table: its matrix products take float rows, so the only kind is F32 and the op is a copy. */
#include <string.h>

#include "kern/kern.h"
#include "kern/ref/kern_ref.h"

void kern_quant_act_refd(const struct op_quant_act *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    (void)batch;
    for (int64_t r = begin; r < end; r++) {
        const float *x = (const float *)kern_ptr(op->x) + r * op->x_stride;
        memcpy((char *)kern_ptr(op->out) + (size_t)r * kern_act_bytes(KERN_ACT_F32, op->n), x, (size_t)op->n * sizeof(float));
    }
}
