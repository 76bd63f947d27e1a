/* ARGMAX and TOPK for any table: blocks of columns through the table's MATMUL into a buffer of their own. */
#ifndef SKUA_KERN_ARGMAX_H
#define SKUA_KERN_ARGMAX_H

#include "kern/kern.h"

/* Units [begin, end) of ARGMAX and of TOPK with the products of `matmul`. */
void kern_argmax_with(kern_matmul_fn *matmul, const struct op_argmax *op, const struct kern_batch *batch, int64_t begin, int64_t end);
void kern_topk_with(kern_matmul_fn *matmul, const struct op_topk *op, const struct kern_batch *batch, int64_t begin, int64_t end);

#endif
