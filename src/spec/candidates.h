/* Choosing a draft among the candidates of a position. */
#ifndef SKUA_SPEC_CANDIDATES_H
#define SKUA_SPEC_CANDIDATES_H

#include <stdint.h>

#include "spec/drafter.h"

/* Candidates of a position. */
struct choice {
    int32_t n, ids[DRAFT_MAX_TOP];
    double score[DRAFT_MAX_TOP];
};

/* Probabilities of n candidates (1 or more) with these scores: softmax(score / temperature), temperature above 0. */
void candidates_softmax(const double *score, int32_t n, double temperature, float *p);

/* The one with the largest score; of equal ones that with the lowest id. */
int32_t candidates_best(const int32_t *ids, const double *score, int32_t n);

/* The one at which the running sum of p exceeds u times its end, 0 <= u < 1. */
int32_t candidates_draw(const float *p, int32_t n, double u);

/* DFlash2's selector: score[c] = unary[c] + sum over r of pred[r] * hidden[r] * succ[c][r], r counting to rank; succ is [n][rank]. */
void candidates_select(const float *pred, const float *hidden, const float *succ, const double *unary, int32_t n, int32_t rank,
                       double *score);

#endif
