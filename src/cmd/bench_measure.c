/* Measuring; see bench.h. One session goes from depth to depth; at each a snapshot is taken, and everything that is measured there starts
 * by going back to it. Behind each such jump comes one step that is not timed: it leaves the caches as any step leaves them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cmd/bench_run.h"
#include "cmd/opts.h"
#include "gguf/gguf.h"

/* ---- results ---- */

double bench_rate(const struct bench_result *r)
{
    double tokens = r->kind == BENCH_PP ? r->tokens : r->kind == BENCH_TG ? 1 : (double)r->rows * r->seqs;
    return tokens / r->time.median;
}

const char *bench_kind_name(enum bench_kind kind)
{
    static const char *const names[] = {"pp", "tg", "batch", "seqs"};
    return names[kind];
}

double bench_bound(const struct bench *b, uint64_t bytes)
{
    return (double)bytes / b->bandwidth.way[membw_best(&b->bandwidth)];
}

const struct bench_result *bench_find(const struct bench *b, enum bench_kind kind, int32_t depth, int32_t rows, int32_t seqs)
{
    for (int i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        if (r->kind == kind && r->depth == depth && r->rows == rows && r->seqs == seqs)
            return r;
    }
    return NULL;
}

static int add_result(struct bench *b, struct bench_result r, skua_error *err)
{
    if (b->n_results == b->cap_results) {
        int cap = b->cap_results ? 2 * b->cap_results : 32;
        struct bench_result *more = mem_realloc_array(b->results, (size_t)cap, sizeof *more);
        if (!more)
            return error_nomem(err, "results", (size_t)cap * sizeof *more);
        b->results = more;
        b->cap_results = cap;
    }
    b->results[b->n_results++] = r;
    return 0;
}

void bench_free(struct bench *b)
{
    profile_free(&b->kernels);
    profile_free(&b->profile);
    mem_free(b->results);
    mem_free(b->specs);
    b->results = NULL;
    b->specs = NULL;
    b->n_results = b->cap_results = b->n_specs = 0;
}

/* ---- evaluating ---- */

static bool on_progress(void *user, int32_t n_done, int32_t n_total)
{
    struct bench_run *r = user;
    (void)n_total;
    progress_set(&r->progress, r->done + (uint64_t)n_done);
    return !atomic_load(r->b->stop);
}

int bench_run_stopped(const struct bench_run *r, skua_error *err)
{
    return atomic_load(r->b->stop) ? error_set(err, SKUA_ECANCELED, "stopped") : 0;
}

void bench_run_advance(struct bench_run *r, int32_t steps)
{
    r->done += (uint64_t)steps * BENCH_STEP_UNITS;
    progress_set(&r->progress, r->done);
}

/* Feed n tokens of the positions that follow; *seconds (may be NULL) is the time. */
static int feed(struct bench_run *r, int32_t n, enum skua_logits want, double *seconds, skua_error *err)
{
    const bool step = want == SKUA_LOGITS_ALL || n == 1;
    skua_feed f = {.session = r->session, .ids = r->ids + skua_session_length(r->session), .n_ids = n, .want = want, .logits = r->logits};
    uint64_t start = clock_ns();
    int rc = skua_eval(r->b->engine, &f, 1, step ? NULL : on_progress, r, err);
    if (seconds)
        *seconds = (double)(clock_ns() - start) * 1e-9;
    r->done += step ? BENCH_STEP_UNITS : (uint64_t)n;
    progress_set(&r->progress, r->done);
    return rc ? rc : bench_run_stopped(r, err);
}

/* Back to the snapshot, and a step that is not timed. */
static int settle(struct bench_run *r, skua_error *err)
{
    int rc = skua_session_restore(r->session, r->snapshot, err);
    return rc ? rc : feed(r, 1, SKUA_LOGITS_LAST, NULL, err);
}

/* ---- what is measured ---- */

static int measure_prefill(struct bench_run *r, int32_t n, skua_error *err)
{
    struct bench *b = r->b;
    const int repeat = (int)b->opt->repeat;
    for (int i = 0; i < repeat; i++) {
        int rc = skua_session_restore(r->session, r->snapshot, err);
        if (b->opt->profile)
            profile_attach(&b->profile, b->engine);
        if (!rc)
            rc = feed(r, n, SKUA_LOGITS_LAST, &r->samples[i], err);
        profile_detach(&b->profile);
        if (rc)
            return rc;
    }
    return add_result(b, (struct bench_result){.kind = BENCH_PP, .depth = r->depth, .tokens = n, .rows = 1, .seqs = 1,
                                               .time = bench_stat_of(r->samples, repeat)}, err);
}

#define BESIDE_STEPS 4
#define BESIDE_BYTES ((size_t)512 << 20)

/* Readings of the bandwidth before, among and behind n steps, but for the last of them: as many steps are not timed. */
static int32_t beside_groups(int32_t n)
{
    return (n + BESIDE_STEPS - 1) / BESIDE_STEPS;
}

static double read_beside(const struct bench_run *r)
{
    return membw_read(r->reader, membw_best(&r->b->bandwidth));
}

/* Every step is a sample. The memory of a machine that others use as well can be half as fast a second later, so its bandwidth is read
   again every few steps: rates[i] is what was read before the steps i * BESIDE_STEPS and those that follow, with one more at the end. */
static int decode_steps(struct bench_run *r, int32_t n, double *samples, double *rates, skua_error *err)
{
    struct bench *b = r->b;
    int rc = 0;
    for (int32_t k = 0; k < n && !rc; k++) {
        if (k % BESIDE_STEPS == 0) {
            *rates++ = read_beside(r);
            profile_detach(&b->profile);
            rc = feed(r, 1, SKUA_LOGITS_LAST, NULL, err); /* what the reading has pushed out of the caches */
        }
        if (b->opt->profile)
            profile_attach(&b->profile, b->engine);
        if (!rc)
            rc = feed(r, 1, SKUA_LOGITS_LAST, &samples[k], err);
    }
    profile_detach(&b->profile);
    *rates = read_beside(r);
    return rc;
}

static int measure_decode(struct bench_run *r, int32_t n, skua_error *err)
{
    struct bench *b = r->b;
    struct profile step = {0};
    int n_samples = 0, rc = 0;
    const int groups = beside_groups(n);
    double *const rates = mem_alloc((size_t)b->opt->repeat * ((size_t)groups + 1) * sizeof *rates);
    if (!rates)
        return error_nomem(err, "bandwidths", (size_t)groups * sizeof *rates);
    for (int i = 0; i < b->opt->repeat && !rc; i++) {
        if (!i)
            profile_attach(&step, b->engine);
        rc = settle(r, err);
        profile_detach(&step);
        if (!rc)
            rc = decode_steps(r, n, r->samples + n_samples, rates + i * (groups + 1), err);
        n_samples += n;
    }
    const struct kern_cost cost = profile_cost(&step, PROFILE_DECODE);
    const double bytes = (double)profile_bytes(&cost);
    if (!rc)
        rc = profile_check(&step, err);
    profile_free(&step);
    for (int k = 0; k < n_samples && !rc; k++) {
        const double *around = rates + k / n * (groups + 1) + k % n / BESIDE_STEPS;
        r->ratios[k] = 2 * bytes / (around[0] + around[1]) / r->samples[k];
    }
    mem_free(rates);
    if (rc)
        return rc;
    const double beside = bench_stat_of(r->ratios, n_samples).median;
    return add_result(b, (struct bench_result){.kind = BENCH_TG, .depth = r->depth, .tokens = n, .rows = 1, .seqs = 1, .beside = beside,
                                               .time = bench_stat_of(r->samples, n_samples), .bytes = profile_bytes(&cost)}, err);
}

/* A step of w rows as speculation needs it: held, the best token of every row, and the commit of all. */
static int held_step(struct bench_run *r, int32_t rows, double *seconds, skua_error *err)
{
    int32_t best[SKUA_HOLD_MAX];
    float logit[SKUA_HOLD_MAX];
    skua_feed f = {.session = r->session, .ids = r->ids + skua_session_length(r->session), .n_ids = rows, .want = SKUA_LOGITS_ARGMAX_ALL,
                   .hold = true, .best_ids = best, .best_logits = logit};
    uint64_t start = clock_ns();
    int rc = skua_eval(r->b->engine, &f, 1, NULL, NULL, err);
    if (!rc)
        rc = skua_commit(r->session, rows, err);
    *seconds = (double)(clock_ns() - start) * 1e-9;
    bench_run_advance(r, 1);
    return rc ? rc : bench_run_stopped(r, err);
}

static int timed_step(struct bench_run *r, int32_t rows, double *seconds, skua_error *err)
{
    int rc = settle(r, err);
    if (rc)
        return rc;
    return rows == 1 ? feed(r, 1, SKUA_LOGITS_LAST, seconds, err) : held_step(r, rows, seconds, err);
}

/* The result of the single rows or sequences of all pairs; single: [n][repeat], which stays as it is. */
static int add_single(struct bench_run *r, struct bench_result res, const double *single, int n, skua_error *err)
{
    const int samples = n * (int)r->b->opt->repeat;
    memcpy(r->sorted, single, (size_t)samples * sizeof *single);
    res.time = bench_stat_of(r->sorted, samples);
    return add_result(r->b, res, err);
}

/* Each sample of T(w) comes right behind one of T(1), and their ratios are what counts: a machine that slows down slows both. */
static int measure_batch(struct bench_run *r, skua_error *err)
{
    const struct bench_options *o = r->b->opt;
    const int repeat = (int)o->repeat, widths = o->batch.n;
    double *single = r->samples, *wide = r->samples + (size_t)repeat * (size_t)widths; /* [widths][repeat] each */
    int rc = 0;
    for (int i = 0; i < repeat && !rc; i++)
        for (int k = 0; k < widths && !rc; k++) {
            rc = timed_step(r, 1, &single[k * repeat + i], err);
            if (!rc)
                rc = timed_step(r, o->batch.v[k], &wide[k * repeat + i], err);
        }
    if (rc)
        return rc;
    struct bench_result res = {.kind = BENCH_BATCH, .depth = r->depth, .tokens = 1, .rows = 1, .seqs = 1, .ratio = 1};
    rc = add_single(r, res, single, widths, err);
    for (int k = 0; k < widths && !rc; k++) {
        if (o->batch.v[k] == 1)
            continue;
        for (int i = 0; i < repeat; i++)
            r->ratios[i] = wide[k * repeat + i] / single[k * repeat + i];
        res.rows = o->batch.v[k];
        res.ratio = bench_stat_of(r->ratios, repeat).median;
        res.time = bench_stat_of(wide + k * repeat, repeat);
        rc = add_result(r->b, res, err);
    }
    return rc;
}

/* One sample: steps of the first n sequences, time of one step. Their tokens differ, as those of strangers do. */
static int sequences_sample(struct bench_run *r, int n, double *seconds, skua_error *err)
{
    skua_feed feeds[BENCH_MAX_SEQS];
    const size_t n_vocab = (size_t)skua_engine_get_info(r->b->engine).n_vocab;
    uint64_t start = 0;
    int rc = 0;
    for (int i = 0; i < n && !rc; i++)
        rc = skua_session_restore(i ? r->others[i - 1] : r->session, r->snapshot, err);
    for (int32_t k = 0; k <= BENCH_SEQ_STEPS && !rc; k++) { /* the first one is not timed */
        for (int i = 0; i < n; i++)
            feeds[i] = (skua_feed){.session = i ? r->others[i - 1] : r->session, .ids = r->ids + (r->depth + k + 61 * i) % r->n_ids,
                                   .n_ids = 1, .want = SKUA_LOGITS_LAST, .logits = r->logits + (size_t)i * n_vocab};
        if (k == 1)
            start = clock_ns();
        rc = skua_eval(r->b->engine, feeds, n, NULL, NULL, err);
        if (!rc)
            rc = bench_run_stopped(r, err);
    }
    *seconds = (double)(clock_ns() - start) * 1e-9 / BENCH_SEQ_STEPS;
    r->done += (BENCH_SEQ_STEPS + 1) * BENCH_STEP_UNITS;
    progress_set(&r->progress, r->done);
    return rc;
}

static int measure_sequences(struct bench_run *r, skua_error *err)
{
    const struct bench_options *o = r->b->opt;
    const int repeat = (int)o->repeat, counts = o->seqs.n;
    double *single = r->samples, *many = r->samples + (size_t)repeat * (size_t)counts; /* [counts][repeat] each */
    int rc = skua_session_restore(r->session, r->snapshot, err);
    for (int i = 0; i < r->n_others && !rc; i++)
        rc = engine_session_copy(r->session, r->others[i], err);
    for (int i = 0; i < repeat && !rc; i++)
        for (int k = 0; k < counts && !rc; k++) {
            rc = sequences_sample(r, 1, &single[k * repeat + i], err);
            if (!rc)
                rc = sequences_sample(r, o->seqs.v[k], &many[k * repeat + i], err);
        }
    if (rc)
        return rc;
    struct bench_result res = {.kind = BENCH_SEQS, .depth = r->depth, .tokens = 1, .rows = 1, .seqs = 1, .ratio = 1};
    rc = add_single(r, res, single, counts, err);
    for (int k = 0; k < counts && !rc; k++) {
        if (o->seqs.v[k] == 1)
            continue;
        res.seqs = o->seqs.v[k];
        for (int i = 0; i < repeat; i++)
            r->ratios[i] = res.seqs * single[k * repeat + i] / many[k * repeat + i];
        res.ratio = bench_stat_of(r->ratios, repeat).median;
        res.time = bench_stat_of(many + k * repeat, repeat);
        rc = add_result(r->b, res, err);
    }
    return rc;
}

/* ---- depths ---- */

static bool listed(const struct bench_list *l, int32_t v)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i] == v)
            return true;
    return false;
}

/* The next depth above `after` where something is measured, or -1. */
static int32_t next_depth(const struct bench_options *o, int32_t after)
{
    int32_t next = -1;
    for (int i = 0; i < o->depth.n && (o->pp.n || o->tg.n); i++)
        if (o->depth.v[i] > after && (next < 0 || o->depth.v[i] < next))
            next = o->depth.v[i];
    if ((o->batch.n || o->seqs.n || o->n_accept) && o->batch_depth > after && (next < 0 || o->batch_depth < next))
        next = (int32_t)o->batch_depth;
    return next;
}

static int go_to(struct bench_run *r, int32_t depth, skua_error *err)
{
    int rc = r->snapshot ? skua_session_restore(r->session, r->snapshot, err) : 0;
    if (!rc && depth > skua_session_length(r->session))
        rc = feed(r, depth - skua_session_length(r->session), SKUA_LOGITS_NONE, NULL, err);
    skua_snapshot_free(r->snapshot);
    r->snapshot = NULL;
    r->depth = depth;
    return rc ? rc : skua_snapshot_take(r->session, &r->snapshot, err);
}

static int measure_at(struct bench_run *r, int32_t depth, skua_error *err)
{
    const struct bench_options *o = r->b->opt;
    const bool here = listed(&o->depth, depth);
    int rc = go_to(r, depth, err);
    for (int i = 0; i < o->pp.n && here && !rc; i++)
        rc = measure_prefill(r, o->pp.v[i], err);
    for (int i = 0; i < o->tg.n && here && !rc; i++)
        rc = measure_decode(r, o->tg.v[i], err);
    if (!rc && o->batch.n && depth == o->batch_depth)
        rc = measure_batch(r, err);
    if (!rc && o->seqs.n && depth == o->batch_depth)
        rc = measure_sequences(r, err);
    if (!rc && o->n_accept && depth == o->batch_depth)
        rc = bench_speculate(r, err);
    return rc;
}

/* ---- before and after ---- */

static int32_t largest(const struct bench_list *l)
{
    int32_t max = 0;
    for (int i = 0; i < l->n; i++)
        max = l->v[i] > max ? l->v[i] : max;
    return max;
}

static int32_t sum(const struct bench_list *l)
{
    int32_t s = 0;
    for (int i = 0; i < l->n; i++)
        s += l->v[i];
    return s;
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }

static uint64_t total_units(const struct bench_options *o)
{
    uint64_t repeat = (uint64_t)o->repeat, units = 0;
    for (int32_t d = -1; (d = next_depth(o, d)) >= 0;)
        units = (uint64_t)d;
    units += (uint64_t)o->depth.n * repeat * ((uint64_t)sum(&o->pp) + BENCH_STEP_UNITS * (uint64_t)(sum(&o->tg) + o->tg.n));
    for (int i = 0; i < o->tg.n; i++)
        units += (uint64_t)o->depth.n * repeat * BENCH_STEP_UNITS * (uint64_t)beside_groups(o->tg.v[i]);
    units += repeat * BENCH_STEP_UNITS * 4 * (uint64_t)o->batch.n;
    units += bench_speculate_units(o) * BENCH_STEP_UNITS;
    return units + repeat * BENCH_STEP_UNITS * 2 * (BENCH_SEQ_STEPS + 1) * (uint64_t)o->seqs.n;
}

/* Ordinary tokens, a function of seed and position. */
static int make_ids(struct bench_run *r, skua_error *err)
{
    const int32_t n_vocab = skua_engine_get_info(r->b->engine).n_vocab;
    r->ids = mem_alloc((size_t)r->n_ids * sizeof *r->ids);
    if (!r->ids)
        return error_nomem(err, "token ids", (size_t)r->n_ids * sizeof *r->ids);
    for (int32_t i = 0; i < r->n_ids; i++)
        for (uint64_t draw = 0; draw < 64; draw++) {
            size_t n;
            r->ids[i] = (int32_t)(rng_uniform(r->b->opt->seed, (uint64_t)i, draw) * n_vocab);
            skua_token_bytes(r->b->engine, r->ids[i], false, &n);
            if (n) /* control tokens have none */
                break;
        }
    return 0;
}

static int prepare(struct bench_run *r, skua_error *err)
{
    const struct bench_options *o = r->b->opt;
    const skua_engine_info info = skua_engine_get_info(r->b->engine);
    const int32_t steps = largest(&o->tg) + beside_groups(largest(&o->tg));
    const int32_t feeds = max32(largest(&o->pp), 1 + max32(steps, max32(largest(&o->batch), o->seqs.n ? BENCH_SEQ_STEPS : 0)));
    const int32_t deepest = max32(o->pp.n || o->tg.n ? largest(&o->depth) : 0,
        o->batch.n || o->seqs.n || o->n_accept ? (int32_t)o->batch_depth : 0);
    const size_t rows = (size_t)max32(1, max32(largest(&o->batch), largest(&o->seqs))), repeat = (size_t)o->repeat;
    const size_t samples = repeat * (size_t)max32(largest(&o->tg), 2 * max32(1, max32(o->batch.n, o->seqs.n)));
    r->n_ids = deepest + max32(feeds, bench_speculate_tokens(o));
    if (r->n_ids > info.n_ctx_train)
        opts_warn("bench", "up to %d tokens are held, more than the %d this model was trained for", r->n_ids, info.n_ctx_train);
    r->logits = mem_alloc(rows * (size_t)info.n_vocab * sizeof *r->logits);
    r->samples = mem_alloc(samples * sizeof *r->samples);
    r->ratios = mem_alloc(samples * sizeof *r->ratios);
    r->sorted = mem_alloc(samples * sizeof *r->sorted);
    r->others = mem_calloc((size_t)max32(1, largest(&o->seqs)), sizeof *r->others);
    if (o->n_accept)
        r->b->specs = mem_alloc((size_t)o->n_accept * sizeof *r->b->specs);
    if (o->n_accept && !r->b->specs)
        return error_nomem(err, "simulation", (size_t)o->n_accept * sizeof *r->b->specs);
    if (!r->logits || !r->samples || !r->ratios || !r->sorted || !r->others)
        return error_nomem(err, "measurements", rows * (size_t)info.n_vocab * sizeof *r->logits);
    int rc = make_ids(r, err);
    if (!rc && o->tg.n) {
        const size_t bytes = r->b->bandwidth.bytes < BESIDE_BYTES ? r->b->bandwidth.bytes : BESIDE_BYTES;
        rc = membw_open(kern_select(NULL), info.n_threads, bytes, &r->reader, err);
    }
    if (!rc)
        rc = skua_session_create(r->b->engine, r->n_ids, &r->session, err);
    for (int i = 1; i < largest(&o->seqs) && !rc; i++) {
        rc = skua_session_create(r->b->engine, r->n_ids, &r->others[i - 1], err);
        r->n_others += !rc;
    }
    return rc;
}

static void cleanup(struct bench_run *r)
{
    skua_snapshot_free(r->snapshot);
    for (int i = 0; i < r->n_others; i++)
        skua_session_free(r->others[i]);
    skua_session_free(r->session);
    membw_close(r->reader);
    mem_free(r->others);
    mem_free(r->ids);
    mem_free(r->logits);
    mem_free(r->samples);
    mem_free(r->ratios);
    mem_free(r->sorted);
}

/* Touch every page of the file, so that no measurement pays for that. Of a repacked one little is used, and the first pass touches that. */
static int warm_file(const struct bench_run *r, skua_error *err)
{
    const struct gguf *g = r->b->engine->gguf;
    if (skua_engine_get_info(r->b->engine).repacked_bytes)
        return 0;
    for (uint32_t i = 0; i < gguf_shard_count(g); i++) {
        size_t size;
        const volatile uint8_t *p = gguf_shard_data(g, i, &size);
        for (size_t at = 0; at < size; at += 4096)
            (void)p[at];
        if (bench_run_stopped(r, err))
            return SKUA_ECANCELED;
    }
    return 0;
}

/* One pass of each kind, to see which ops there are. */
static int look_at_kernels(struct bench_run *r, skua_error *err)
{
    profile_attach(&r->b->kernels, r->b->engine);
    int rc = feed(r, 1, SKUA_LOGITS_LAST, NULL, err);
    profile_detach(&r->b->kernels);
    skua_session_reset(r->session);
    r->done = 0;
    return rc ? rc : profile_check(&r->b->kernels, err);
}

static int measure_bandwidth(struct bench *b, skua_error *err)
{
    const uint64_t available = cpu_memory_available(), wanted = (uint64_t)b->opt->buffer;
    const uint64_t bytes = available && available / 2 < wanted ? available / 2 : wanted;
    struct membw m;
    int rc = membw_measure(kern_select(NULL), skua_engine_get_info(b->engine).n_threads, (size_t)bytes, &m, err);
    if (rc)
        return rc;
    if (!b->bandwidth.bytes) {
        b->bandwidth = m;
        if (bytes < wanted)
            opts_warn("bench", "memory is short: its bandwidth is measured on %zu MiB instead of %zu", m.bytes >> 20,
                      (size_t)(wanted >> 20));
    }
    for (int i = 0; i < KERN_READ_WAYS; i++)
        b->bandwidth.way[i] = m.way[i] > b->bandwidth.way[i] ? m.way[i] : b->bandwidth.way[i];
    return 0;
}

int bench_measure(struct bench *b, skua_error *err)
{
    struct bench_run r = {.b = b};
    int rc = measure_bandwidth(b, err);
    progress_begin(&r.progress, "measuring", total_units(b->opt));
    if (!rc)
        rc = prepare(&r, err);
    if (!rc)
        rc = warm_file(&r, err);
    if (!rc)
        rc = look_at_kernels(&r, err);
    for (int32_t d = -1; !rc && (d = next_depth(b->opt, d)) >= 0;)
        rc = measure_at(&r, d, err);
    progress_end(&r.progress);
    cleanup(&r);
    if (!rc)
        rc = measure_bandwidth(b, err);
    if (rc == SKUA_ECANCELED)
        error_set(err, rc, "interrupted");
    return rc ? rc : profile_check(&b->profile, err);
}
