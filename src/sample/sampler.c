/* The sampler; see sampler.h for the definition that this file must meet exactly.

   Ranks are compared through 64-bit keys: the upper half falls as z rises, the lower half is the id, so that a smaller key is
   a better rank and no two keys are equal. Every filter but min-p keeps a run of best ranks, so its result is one key (bound). */
#include "sample/sampler.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/exp.h"

int sampler_workspace_init(struct sampler_workspace *ws, int n_vocab, skua_error *err)
{
    *ws = (struct sampler_workspace){0};
    if (n_vocab < 1)
        return error_set(err, SKUA_EARG, "sampler for a vocabulary of %d tokens, expected at least 1", n_vocab);
    size_t n = (size_t)n_vocab;
    ws->z = mem_alloc(n * sizeof *ws->z);
    ws->w = mem_alloc(n * sizeof *ws->w);
    ws->heap = mem_alloc(n * sizeof *ws->heap);
    ws->cand = mem_alloc(n * sizeof *ws->cand);
    if (!ws->z || !ws->w || !ws->heap || !ws->cand) {
        sampler_workspace_free(ws);
        return error_nomem(err, "sampler workspace", n * 24);
    }
    ws->n_vocab = n_vocab;
    return 0;
}

void sampler_workspace_free(struct sampler_workspace *ws)
{
    mem_free(ws->z);
    mem_free(ws->w);
    mem_free(ws->heap);
    mem_free(ws->cand);
    *ws = (struct sampler_workspace){0};
}

int sampler_init(struct sampler *s, const skua_sampling *p, const uint64_t *samplable, struct sampler_workspace *ws,
                 skua_error *err)
{
    *s = (struct sampler){0};
    int rc = sampler_params_check(p, ws->n_vocab, err);
    if (rc)
        return rc;
    skua_logit_bias *bias = NULL;
    if (p->n_bias) {
        bias = mem_alloc(p->n_bias * sizeof *bias);
        if (!bias)
            return error_nomem(err, "logit_bias", p->n_bias * sizeof *bias);
        memcpy(bias, p->bias, p->n_bias * sizeof *bias);
    }
    s->params = *p;
    s->params.bias = s->bias = bias;
    s->samplable = samplable;
    s->ws = ws;
    return 0;
}

void sampler_free(struct sampler *s)
{
    mem_free(s->bias);
    *s = (struct sampler){0};
}

/* ---- ranks ---- */

static uint64_t rank_key(float z, uint32_t id)
{
    uint32_t b;
    z += 0.0f; /* -0 and 0 are equal */
    memcpy(&b, &z, sizeof b);
    b ^= b >> 31 ? 0xffffffffu : 0x80000000u; /* rises with z */
    return (uint64_t)~b << 32 | id;
}

/* A binary heap with the largest value on top. */
static void heap_sink(uint64_t *a, size_t n, size_t i)
{
    uint64_t v = a[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && a[child + 1] > a[child])
            child++;
        if (a[child] <= v)
            break;
        a[i] = a[child];
    }
    a[i] = v;
}

static void heap_make(uint64_t *a, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        heap_sink(a, n, i);
}

static uint64_t heap_pop(uint64_t *a, size_t *n)
{
    uint64_t top = a[0];
    a[0] = a[--*n];
    heap_sink(a, *n, 0);
    return top;
}

/* ---- steps 1 and 2: candidates and their processed logits ---- */

static float to_float(double z) { return (float)fmin(fmax(z, -FLT_MAX), FLT_MAX); }

static bool is_candidate(float z) { return z > -INFINITY; }

static uint64_t allowed_word(const struct sampler *s, size_t word)
{
    uint64_t bits = s->samplable ? s->samplable[word] : UINT64_MAX;
    return s->mask ? bits & s->mask[word] : bits;
}

/* Copy the candidates' logits to ws->z. False: at least one of them is NaN or +inf. */
static bool gather(const struct sampler *s, const float *logits)
{
    struct sampler_workspace *ws = s->ws;
    size_t n = (size_t)ws->n_vocab;
    bool good = true;
    for (size_t base = 0; base < n; base += 64) {
        uint64_t bits = allowed_word(s, base / 64);
        size_t m = n - base < 64 ? n - base : 64;
        int ok = 1;
        memcpy(ws->z + base, logits + base, m * sizeof *logits);
        if (bits != UINT64_MAX)
            for (size_t i = 0; i < m; i++)
                if (!(bits >> i & 1))
                    ws->z[base + i] = -INFINITY;
        for (size_t i = 0; i < m; i++)
            ok &= ws->z[base + i] <= FLT_MAX;
        good = good && ok;
    }
    return good;
}

static void apply_bias(const struct sampler *s)
{
    struct sampler_workspace *ws = s->ws;
    size_t n_bias = s->params.n_bias, n_forced = 0;
    for (size_t i = 0; i < n_bias; i++) {
        float *z = &ws->z[s->bias[i].id], bias = s->bias[i].bias;
        if (!is_candidate(*z))
            continue;
        if (bias == -SAMPLER_BIAS_LIMIT)
            *z = -INFINITY;
        else
            *z = to_float((double)*z + bias);
        n_forced += bias == SAMPLER_BIAS_LIMIT;
    }
    if (!n_forced)
        return;
    for (size_t i = 0; i < n_bias; i++) /* ids are distinct, so n_bias <= n_vocab: w has room */
        ws->w[i] = s->bias[i].bias == SAMPLER_BIAS_LIMIT ? (double)ws->z[s->bias[i].id] : -(double)INFINITY;
    for (int i = 0; i < ws->n_vocab; i++)
        ws->z[i] = -INFINITY;
    for (size_t i = 0; i < n_bias; i++)
        ws->z[s->bias[i].id] = (float)ws->w[i];
}

static void apply_penalties(const struct sampler *s, const struct sampler_history *h)
{
    const skua_sampling *p = &s->params;
    bool count = p->presence_penalty != 0 || p->frequency_penalty != 0;
    size_t window = p->penalty_last_n < 0 || (size_t)p->penalty_last_n > h->len ? h->len : (size_t)p->penalty_last_n;
    size_t repeat_from = p->repetition_penalty != 1 ? h->len - window : h->len;
    size_t from = count && h->n_prompt < repeat_from ? h->n_prompt : repeat_from;
    for (size_t i = from; i < h->len; i++) {
        const struct sampler_history_entry *e = &h->entries[i];
        float *z = &s->ws->z[e->id];
        if ((size_t)h->last[e->id] != i || !is_candidate(*z))
            continue; /* each token once, at its newest entry */
        double v = *z;
        if (i >= repeat_from)
            v = v > 0 ? v / p->repetition_penalty : v * p->repetition_penalty;
        if (count && e->generated > 0)
            v = v - p->frequency_penalty * e->generated - p->presence_penalty;
        *z = to_float(v);
    }
}

/* The largest z, with independent lanes because the order does not matter for a maximum. */
static float max_logit(const float *z, size_t n)
{
    float lane[16];
    size_t i = 0;
    for (int j = 0; j < 16; j++)
        lane[j] = -INFINITY;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            lane[j] = z[i + (size_t)j] > lane[j] ? z[i + (size_t)j] : lane[j];
    for (; i < n; i++)
        lane[0] = z[i] > lane[0] ? z[i] : lane[0];
    for (int j = 1; j < 16; j++)
        lane[0] = lane[j] > lane[0] ? lane[j] : lane[0];
    return lane[0];
}

/* ---- steps 3 to 7 ---- */

/* All candidates in cand, by rising id; their number. */
static size_t list_all(struct sampler_workspace *ws)
{
    size_t m = 0;
    for (uint32_t i = 0; i < (uint32_t)ws->n_vocab; i++) {
        ws->cand[m] = i; /* m <= i */
        m += is_candidate(ws->z[i]);
    }
    return m;
}

/* The k best candidates in cand, by rising id; their number (fewer when there are fewer). */
static size_t list_top_k(struct sampler_workspace *ws, size_t k)
{
    size_t n = (size_t)ws->n_vocab, m = 0, i = 0;
    for (; i < n && m < k; i++)
        if (is_candidate(ws->z[i]))
            ws->heap[m++] = rank_key(ws->z[i], (uint32_t)i);
    heap_make(ws->heap, m); /* the worst kept rank on top */
    if (m == k) {
        float worst = ws->z[(uint32_t)ws->heap[0]];
        for (; i < n; i++) {
            if (!(ws->z[i] > worst)) /* an equal one has a higher id, so it ranks lower */
                continue;
            ws->heap[0] = rank_key(ws->z[i], (uint32_t)i);
            heap_sink(ws->heap, k, 0);
            worst = ws->z[(uint32_t)ws->heap[0]];
        }
    }
    for (i = 0; i < m; i++)
        ws->heap[i] = (uint32_t)ws->heap[i];
    heap_make(ws->heap, m);
    for (size_t left = m; left > 0;) {
        uint64_t id = heap_pop(ws->heap, &left);
        ws->cand[left] = (uint32_t)id;
    }
    return m;
}

/* What the weights look like from far away: the sum of those in [2^-k, 2^-(k-1)), for each k. */
#define MASS_BINS 1024

/* Fill w and, when mass is not NULL, mass; the sum of w by rising id. */
static double weigh(struct sampler_workspace *ws, size_t m, float z_max, double temperature, double *mass)
{
    double sum = 0;
    for (size_t i = 0; i < m; i++)
        ws->w[i] = sample_exp(((double)ws->z[ws->cand[i]] - z_max) / temperature);
    for (size_t i = 0; i < m; i++)
        sum += ws->w[i];
    for (size_t i = 0; mass && i < m; i++) {
        uint64_t bits;
        memcpy(&bits, &ws->w[i], sizeof bits);
        mass[1023 - (bits >> 52)] += ws->w[i]; /* w is 0 or 2^-1022 < w <= 1 */
    }
    return sum;
}

/* The key of the last rank that top-p keeps. Only ranks down to a cut in z are put into the heap: the cut is where the mass,
   counted in bins, reaches what is wanted. Should the exact sum by rank still be below it there, a second round takes all. */
static uint64_t top_p_bound(struct sampler_workspace *ws, size_t m, float z_max, double sum, const double *mass,
                            const skua_sampling *p)
{
    double target = p->top_p * sum, binned = mass[0];
    int bin = 0;
    while (binned < target && bin < MASS_BINS - 1)
        binned += mass[++bin];
    double cut = z_max - (bin + 1e-9) * 0.69314718055994531 * p->temperature;
    for (int round = 0; round < 2; round++, cut = -INFINITY) {
        size_t n = 0;
        for (size_t i = 0; i < m; i++)
            if (ws->z[ws->cand[i]] >= cut)
                ws->heap[n++] = ~rank_key(ws->z[ws->cand[i]], (uint32_t)i); /* ~: the best on top; i also rises with the id */
        heap_make(ws->heap, n);
        double reached = 0;
        while (n) {
            uint64_t key = ~heap_pop(ws->heap, &n);
            reached += ws->w[(uint32_t)key];
            if (reached >= target)
                return key;
        }
    }
    return UINT64_MAX;
}

/* Step 6, and the sum. Dropped candidates get weight 0, which changes no sum. */
static double drop(struct sampler_workspace *ws, size_t m, uint64_t bound, double min_p)
{
    double sum = 0;
    for (size_t i = 0; i < m; i++) {
        if (ws->w[i] < min_p || (bound != UINT64_MAX && rank_key(ws->z[ws->cand[i]], (uint32_t)i) > bound))
            ws->w[i] = 0;
        sum += ws->w[i];
    }
    return sum;
}

int32_t sampler_draw(const struct sampler_distribution *d, double u)
{
    double target = u * d->sum, run = 0;
    size_t m = d->n;
    for (size_t i = 0; i < m; i++) {
        run += d->weights[i];
        if (run > target)
            return (int32_t)d->ids[i];
    }
    while (m > 1 && !(d->weights[m - 1] > 0))
        m--;
    return (int32_t)d->ids[m - 1];
}

/* The first candidate whose logit is no number that can be sampled from. */
static int bad_logit(const struct sampler *s, uint64_t position, skua_error *err)
{
    int id = 0;
    while (s->ws->z[id] <= FLT_MAX)
        id++;
    return error_set(err, SKUA_ESTATE, "position %llu: the logit of token %d is %s, expected a finite number",
                     (unsigned long long)position, id, s->ws->z[id] > 0 ? "+inf" : "NaN");
}

int sampler_distribution(const struct sampler *s, const struct sampler_history *history, const float *logits, int n_vocab,
                         uint64_t position, struct sampler_distribution *out, skua_error *err)
{
    struct sampler_workspace *ws = s->ws;
    const skua_sampling *p = &s->params;
    *out = (struct sampler_distribution){.ids = ws->cand, .weights = ws->w};
    if (n_vocab != ws->n_vocab || (history && history->n_vocab != n_vocab))
        return error_set(err, SKUA_EARG, "position %llu: %d logits, expected %d as in the sampler and the history",
                         (unsigned long long)position, n_vocab, ws->n_vocab);
    if (!gather(s, logits))
        return bad_logit(s, position, err);
    apply_bias(s);
    if (history)
        apply_penalties(s, history);
    float z_max = max_logit(ws->z, (size_t)n_vocab);
    if (!is_candidate(z_max))
        return error_set(err, SKUA_ESTATE, "position %llu: no token is left to sample, all %d are masked, banned or -inf",
                         (unsigned long long)position, n_vocab);
    if (p->temperature == 0) {
        uint32_t id = 0;
        while (ws->z[id] != z_max)
            ++id;
        ws->cand[0] = id;
        ws->w[0] = out->sum = 1;
        out->n = 1;
        return 0;
    }
    size_t m = p->top_k > 0 && p->top_k < n_vocab ? list_top_k(ws, (size_t)p->top_k) : list_all(ws);
    double mass[MASS_BINS] = {0};
    double sum = weigh(ws, m, z_max, p->temperature, p->top_p < 1 ? mass : NULL);
    uint64_t bound = p->top_p < 1 ? top_p_bound(ws, m, z_max, sum, mass, p) : UINT64_MAX;
    out->sum = drop(ws, m, bound, p->min_p);
    out->n = m;
    return 0;
}

int sampler_sample(const struct sampler *s, const struct sampler_history *history, const float *logits, int n_vocab,
                   uint64_t position, int32_t *id, skua_error *err)
{
    struct sampler_distribution d;
    *id = -1;
    int rc = sampler_distribution(s, history, logits, n_vocab, position, &d, err);
    if (rc)
        return rc;
    *id = d.n == 1 ? (int32_t)d.ids[0] : sampler_draw(&d, rng_uniform(s->params.seed, position, 0));
    return 0;
}
