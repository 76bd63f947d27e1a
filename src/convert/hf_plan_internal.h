/* Building a plan. Functions do nothing after the first failure, which is kept in rc. */
#ifndef SKUA_CONVERT_HF_PLAN_INTERNAL_H
#define SKUA_CONVERT_HF_PLAN_INTERNAL_H

#include "convert/hf_plan.h"

struct planner {
    struct hf_plan *plan;
    const struct hf_config *c;
    struct hf_source *s;
    uint32_t type;
    bool unpack;
    char block[40], layer[40]; /* put in front of names: of the file's ("blk.3."), of the checkpoint's ("layers.3.") */
    int rc;
    skua_error *err;
};

/* Bind a weight [matrices][rows][cols] by the rest of its name in the checkpoint; its number in the plan. */
uint32_t plan_bind(struct planner *p, const char *hf, uint64_t matrices, uint64_t rows, uint64_t cols);
bool plan_has(const struct planner *p, const char *hf);

/* Add an output, with its factors if it has some. o says weight, and where they are not the default: n_weights (1), rows, unit, row_first,
   col_unit, value, and ne[1], the number of rows (that of the weight). The rest follows from the weight. */
void plan_put(struct planner *p, const char *name, struct hf_output o);

/* Bind and put: a matrix, and a vector of n numbers. */
void plan_matrix(struct planner *p, const char *name, const char *hf, uint64_t rows, uint64_t cols);
void plan_vector(struct planner *p, const char *name, const char *hf, uint64_t n, enum hf_value value);

/* All tensors of a language model, of a drafter. */
void plan_target(struct planner *p, enum hf_mtp mtp);
void plan_drafter(struct planner *p);

#endif
