/* `skua bench`: what is asked for, what was measured. Times are in seconds, rates in tokens per second. */
#ifndef SKUA_CMD_BENCH_H
#define SKUA_CMD_BENCH_H

#include <stdatomic.h>

#include "cmd/bench_stat.h"
#include "cmd/cmd_draft.h"
#include "cmd/cmd_engine.h"
#include "cmd/term.h"
#include "dev/membw.h"
#include "engine/profile.h"

#define BENCH_MAX_LIST 32
#define BENCH_MAX_TOKENS 1048576
#define BENCH_MAX_ROWS SKUA_HOLD_MAX
#define BENCH_MAX_SEQS 64
#define BENCH_SEQ_STEPS 8 /* steps of one sample of --seqs */

struct bench_list {
    int32_t v[BENCH_MAX_LIST];
    int n;
};

struct bench_options {
    struct engine_options engine;
    struct draft_options draft;
    struct bench_list pp, tg, depth, batch, seqs; /* each value once; depth and batch rising */
    double accept[BENCH_MAX_LIST];
    int n_accept;
    int64_t batch_depth, repeat;
    int64_t buffer; /* bytes read to measure the bandwidth */
    uint64_t seed;
    const char *csv, *json, *plot; /* NULL: not asked for; "-": standard output */
    bool profile;
};

enum bench_kind { BENCH_PP, BENCH_TG, BENCH_BATCH, BENCH_SEQS };

struct bench_result {
    enum bench_kind kind;
    int32_t depth;          /* tokens in each session before */
    int32_t tokens;         /* pp: of the prompt; tg: steps in a row; batch, seqs: 1 */
    int32_t rows;           /* of a forward pass and sequence: 1 but for batch */
    int32_t seqs;
    struct bench_stat time; /* pp: of the whole prompt; otherwise of one step */
    double ratio;           /* batch: T(rows) / T(1); seqs: tokens/s of all over those of one sequence; 0: none */
    uint64_t bytes;         /* tg: that a step touches; 0: not counted */
    double beside;          /* tg: least time by the bandwidth just before and behind a step, over its time; the median */
};

/* Tokens that one measured unit of time yields: of the prompt, or of a step. */
double bench_rate(const struct bench_result *r);
const char *bench_kind_name(enum bench_kind kind); /* "pp", "tg", "batch", "seqs" */

/* Speculation with drafts that are each accepted with probability p for themselves as long as all before them were. */
struct bench_spec {
    double p;
    int64_t rounds, drafted, verified, tokens, plain_tokens;
    double seconds, plain_seconds;  /* for tokens with speculation, and plain_tokens without, in turns */
    double draft_seconds, verify_seconds, commit_seconds; /* of seconds */
    double ratio;                   /* of their rates: the median over the turns */
};

struct bench {
    const struct bench_options *opt;
    skua_engine *engine;
    struct membw bandwidth; /* the better of the measurements before and after */
    struct bench_result *results; /* [n_results] */
    int n_results, cap_results;
    struct bench_spec *specs;     /* [n_specs], by p */
    int n_specs;
    struct profile kernels;       /* one decode step and one prefill pass: which matrices are there */
    struct profile profile;       /* with --profile: all measured pp and tg */
    const atomic_int *stop;       /* not 0: stop measuring */
};

/* Bandwidth before, everything that is asked for, bandwidth after. What was measured before an error stays in b. SKUA_ECANCELED: *stop. */
int  bench_measure(struct bench *b, skua_error *err);
void bench_free(struct bench *b); /* not the engine */

/* Least time of a step that touches so many bytes. */
double bench_bound(const struct bench *b, uint64_t bytes);

/* The result of a kind at a depth with so many tokens, rows and sequences, or NULL. */
const struct bench_result *bench_find(const struct bench *b, enum bench_kind kind, int32_t depth, int32_t rows, int32_t seqs);

/* Reports, appended to out: a table for people, JSON, CSV (with a line of names), an SVG picture. 0 or SKUA_ENOMEM. */
int bench_text(const struct bench *b, struct strbuf *out, skua_error *err);
int bench_json(const struct bench *b, struct strbuf *out, skua_error *err);
int bench_csv(const struct bench *b, struct strbuf *out, skua_error *err);
int bench_svg(const struct bench *b, struct strbuf *out, skua_error *err);

#endif
