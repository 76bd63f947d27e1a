/* Choosing among candidates; see candidates.h. */
#include "spec/candidates.h"

#include <math.h>

void candidates_softmax(const double *score, int32_t n, double temperature, float *p)
{
    double most = score[0], sum = 0.0;
    for (int32_t i = 1; i < n; i++)
        most = fmax(most, score[i]);
    for (int32_t i = 0; i < n; i++)
        sum += exp((score[i] - most) / temperature);
    for (int32_t i = 0; i < n; i++)
        p[i] = (float)(exp((score[i] - most) / temperature) / sum);
}

int32_t candidates_best(const int32_t *ids, const double *score, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (score[i] > score[best] || (score[i] == score[best] && ids[i] < ids[best]))
            best = i;
    return best;
}

int32_t candidates_draw(const float *p, int32_t n, double u)
{
    double total = 0.0, sum = 0.0;
    int32_t last = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)p[i];
    for (int32_t i = 0; i < n; i++) {
        sum += (double)p[i];
        if (sum > u * total)
            return i;
        last = p[i] > 0.0f ? i : last;
    }
    return last;
}

void candidates_select(const float *pred, const float *hidden, const float *succ, const double *unary, int32_t n, int32_t rank,
                       double *score)
{
    for (int32_t c = 0; c < n; c++) {
        double edge = 0.0;
        for (int32_t r = 0; r < rank; r++)
            edge += (double)pred[r] * (double)hidden[r] * (double)succ[(int64_t)c * rank + r];
        score[c] = unary[c] + edge;
    }
}
