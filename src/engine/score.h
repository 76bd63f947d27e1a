/* How well a model predicts a text, and how far its predictions are from another model's: pure functions over rows of logits, and the
 * statistics over many rows. Everything is computed in double. */
#ifndef SKUA_ENGINE_SCORE_H
#define SKUA_ENGINE_SCORE_H

#include <stdint.h>

#include "base/error.h"

/* ---- means ---- */

/* A running mean; {0} is empty. */
struct score_mean {
    int64_t n;
    double mean, squares; /* squares: sum of squared deviations from the mean */
};
void score_add(struct score_mean *m, double x);
/* Standard error of the mean, sqrt(squares / (n - 1) / n); NaN for fewer than two values. */
double score_error(const struct score_mean *m);

/* Value at fraction p (0..1) of n >= 1 values in rising order, between two values in proportion. */
double score_percentile(const double *sorted, int64_t n, double p);

/* ---- a row as it is saved ---- */

/* The log-probabilities of one row, against its best token and in 16 bits: log p[i] = -step * q[i] - ln(sum of exp(-step * q)).
   The range of a row, and so the largest difference that is told apart, is at most SCORE_MAX_RANGE; log p is off by at most half a step,
   2.5e-4. In a file: step, target, best, then q, then zero bytes up to a multiple of 4. */
struct score_row {
    float step;
    float target;      /* log p of the token that follows in the text, <= 0, not rounded to steps */
    int32_t best;      /* most likely token; of equal ones the first */
    const uint8_t *q;  /* [n_vocab] 16-bit numbers, not aligned */
};
#define SCORE_MAX_RANGE 32.0
size_t score_row_bytes(int32_t n_vocab);

/* Encode logits; next is the token that follows. norm: logprob_norm of the row. */
void score_encode(const float *logits, int32_t n_vocab, double norm, int32_t next, uint8_t *out);
/* Decode; SKUA_EFORMAT for numbers that no encoder writes. q points into `in`. */
int score_decode(const uint8_t *in, int32_t n_vocab, struct score_row *row, skua_error *err);

/* ---- two models ---- */

/* Comparison of a model's row with the base model's. */
struct score_pair {
    double kl;          /* sum of p * (log p - log q), p the base model, in nats; >= 0 */
    double nll, base_nll; /* of the next token */
    double delta_p;     /* q - p of the next token */
    int same_best;      /* do both prefer the same token? */
};
struct score_pair score_compare(const struct score_row *base, const float *logits, int32_t n_vocab, double norm, int32_t next);

/* Statistics over pairs; {0} is empty. */
struct score_pairs {
    struct score_mean base_nll, ratio, kl, delta_p, delta_p2, same_best; /* ratio: nll - base_nll, so ln(PPL / base PPL) */
    double *kls; /* [kl.n] */
    int64_t cap;
};
int  score_pairs_add(struct score_pairs *s, const struct score_pair *p, skua_error *err); /* SKUA_ENOMEM */
void score_pairs_sort(struct score_pairs *s); /* kls in rising order, for score_percentile */
void score_pairs_free(struct score_pairs *s);

#endif
