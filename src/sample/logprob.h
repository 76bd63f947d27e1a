/* Log-probabilities for reports: the natural log of the softmax over the unmodified logits of one row, all n_vocab of them,
   before bias, masks, penalties, temperature and filters. Computed in double. */
#ifndef SKUA_SAMPLE_LOGPROB_H
#define SKUA_SAMPLE_LOGPROB_H

#include <stdint.h>

#include "base/error.h"

#define LOGPROB_FLOOR (-9999.0) /* smaller values, -inf included, are reported as this */

struct token_logprob {
    int32_t id;
    double logprob;
};

/* logsumexp of the row: z_max + log(sum of exp(z - z_max), added by rising id). SKUA_ESTATE when a logit is NaN or +inf or
   all are -inf. */
int logprob_norm(const float *logits, int n_vocab, double *logsumexp, skua_error *err);

/* The value of one token. */
double logprob_of(float logit, double logsumexp);

/* The n best tokens, by falling logit, equal ones by rising id, into out[n]. 0 <= n <= n_vocab is the caller's duty; meant for
   small n (insertion into a sorted list). logsumexp from logprob_norm. */
void logprob_top(const float *logits, int n_vocab, double logsumexp, struct token_logprob *out, int n);

#endif
