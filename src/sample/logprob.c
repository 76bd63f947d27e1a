/* Log-probabilities; see logprob.h. */
#include "sample/logprob.h"

#include <float.h>
#include <math.h>

#include "sample/exp.h"

int logprob_norm(const float *logits, int n_vocab, double *logsumexp, skua_error *err)
{
    float z_max = -INFINITY;
    *logsumexp = 0;
    for (int i = 0; i < n_vocab; i++) {
        if (!(logits[i] <= FLT_MAX))
            return error_set(err, SKUA_ESTATE, "the logit of token %d is %s, expected a finite number", i,
                             logits[i] > 0 ? "+inf" : "NaN");
        if (logits[i] > z_max)
            z_max = logits[i];
    }
    if (!(z_max >= -FLT_MAX))
        return error_set(err, SKUA_ESTATE, "all %d logits are -inf, expected a finite one", n_vocab);
    double sum = 0;
    for (int i = 0; i < n_vocab; i++)
        sum += sample_exp((double)logits[i] - z_max);
    *logsumexp = z_max + log(sum);
    return 0;
}

double logprob_of(float logit, double logsumexp)
{
    double v = logit - logsumexp;
    return v < LOGPROB_FLOOR ? LOGPROB_FLOOR : v;
}

void logprob_top(const float *logits, int n_vocab, double logsumexp, struct token_logprob *out, int n)
{
    int have = 0;
    for (int i = 0; i < n_vocab && n > 0; i++) {
        if (have == n && !(logits[i] > logits[out[n - 1].id]))
            continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && logits[i] > logits[out[at - 1].id]; at--)
            out[at] = out[at - 1];
        out[at].id = i;
    }
    for (int i = 0; i < have; i++)
        out[i].logprob = logprob_of(logits[out[i].id], logsumexp);
}
