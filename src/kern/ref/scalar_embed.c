/* EMBED in plain C, for every tier: one dequantised row of the table per batch row. Contract: kern.h. */
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "quant/quant.h"

void kern_embed_scalar(const struct op_embed *op, const struct kern_batch *batch, int64_t begin, int64_t end)
{
    size_t row_bytes = qtype_row_bytes(op->table.type, (uint64_t)op->table.n_in);
    const char *table = kern_ptr(op->table.data);
    float *out = kern_ptr(op->out);
    float scale = kern_scale(&op->table, 0);
    for (int64_t r = begin; r < end; r++) {
        float *row = out + r * op->stride;
        dequant_row(op->table.type, table + (size_t)batch->token[r] * row_bytes, row, op->table.n_in);
        for (int32_t i = 0; i < op->table.n_in && op->table.scale.buf; i++)
            row[i] *= scale;
    }
}
