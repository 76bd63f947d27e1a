/* The dot product of one weight row and one input row in plain C, one function per weight type: it defines the bits of MATMUL and
   MOE_MATMUL. Order of operations: kern.h; block formulas: quant/blocks.h. */
#ifndef SKUA_KERN_REF_SCALAR_DOT_H
#define SKUA_KERN_REF_SCALAR_DOT_H

#include "kern/kern.h"

/* One input row: the floats, or its quantised copy, as kern_act_kind() says. */
struct dot_input {
    const float *x;
    struct kern_act_row q;
};

/* w: n values in file format, at any address. */
typedef float scalar_dot_fn(const void *w, struct dot_input in, int32_t n);

scalar_dot_fn scalar_dot_f32, scalar_dot_f16, scalar_dot_bf16;
scalar_dot_fn scalar_dot_q8_0, scalar_dot_q4_0, scalar_dot_q4_1, scalar_dot_q5_0, scalar_dot_q5_1, scalar_dot_iq4_nl;
scalar_dot_fn scalar_dot_mxfp4, scalar_dot_nvfp4, scalar_dot_q4_64a, scalar_dot_q2_64a;
scalar_dot_fn scalar_dot_q2_k, scalar_dot_q3_k, scalar_dot_q4_k, scalar_dot_q5_k, scalar_dot_q6_k;
scalar_dot_fn scalar_dot_iq4_xs, scalar_dot_iq2_xxs, scalar_dot_iq2_s;

#endif
