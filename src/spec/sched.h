/* The scheduler: which source drafts in the next round of a session, and how much. Nothing of it changes an answer, only its speed.
 *
 * It wants tokens per second. An arm is a source and a number of drafts K; its rate is the expected number of tokens, 1 + the sum of the
 * probabilities that draft d and all before it are accepted, over the expected time of draft and pass. Serial decoding is the arm K = 0.
 * The incumbent is the best arm of the sources that can always draft; it changes for a gain of 5 %, or when six decisions in a row say so.
 * A source that can draft only now and then (lookup) is used in rounds where it gains more than the time it takes is worth.
 *
 * Nothing is given up for good: an arm that may be better than it looks (few or old observations) is probed as soon as 1 % of the time
 * that has passed pays for it, the cheapest first. While the incumbent is serial, a block drafter is tried without a wider pass: its
 * drafts are compared with what serial decoding gives (hindsight). Proposals of sources that were not used are judged likewise for free
 * (shadows).
 *
 * No clock, no randomness, no allocation: a round is sched_choose, what it asks for, then sched_observe. */
#ifndef SKUA_SPEC_SCHED_H
#define SKUA_SPEC_SCHED_H

#include "spec/sched_accept.h"
#include "spec/sched_cost.h"

#define SCHED_BUCKETS_MATCH 5 /* lengths of matches: below 6, 6-7, 8-11, 12-15, 16 and more */
#define SCHED_NONE (-1)

int32_t sched_match_bucket(int32_t match); /* 0..4; model drafters, without a match, have bucket 0 only */

enum sched_kind {
    SCHED_CHAIN,    /* a draft costs the same for each token (MTP) */
    SCHED_BLOCK,    /* drafts of a round come together (DFlash) */
    SCHED_LOOKUP,   /* drafts only when there is a match */
    SCHED_COMBINED  /* a block drafter's proposal with parts of a match: likewise */
};

enum sched_mode {
    SCHED_ADAPT,
    SCHED_FIXED, /* always K drafts of the first source that offers any */
    SCHED_SCRIPT /* K from a list, again and again */
};

/* Means learned from earlier sessions, for the same target and sources; zeroed: nothing known. */
struct sched_memory {
    bool known[SCHED_MAX_SOURCES][SCHED_BUCKETS_MATCH];
    float mean[SCHED_MAX_SOURCES][SCHED_BUCKETS_MATCH][DRAFT_MAX];
};

struct sched_config {
    struct sched_costs *costs;         /* shared; must outlive the scheduler. Sources have the same numbers there */
    const struct sched_memory *memory; /* read at init only; NULL: none */
    int32_t n_sources;
    enum sched_kind kinds[SCHED_MAX_SOURCES];
    double min_gain;                   /* drafting must be predicted this much faster than serial decoding; 0.03 = 3 %. Negative:
                                          something is drafted whenever it can be, however bad */
    enum sched_mode mode;
    const int32_t *script;             /* SCHED_FIXED: one entry; SCHED_SCRIPT: n_script of them; 0 and more. Must outlive the scheduler */
    int32_t n_script;
};

/* What a source can do in this round. */
struct sched_offer {
    int32_t n;     /* most drafts; 0: nothing now */
    int32_t match; /* length of the match that they come from; 0 for model drafters */
};

struct sched_ask {
    int32_t ctx;       /* positions evaluated */
    int32_t remaining; /* tokens that may still be published, at least 1 */
    int32_t k_limit;   /* any other limit on K: rows of a pass, memory of the tape, grammar */
    struct sched_offer offers[SCHED_MAX_SOURCES];
};

struct sched_choice {
    int32_t source, k;      /* SCHED_NONE and 0: serial */
    bool probe;
    bool full_block;        /* ask the drafter for its full block and verify the first k */
    int32_t hindsight;      /* SCHED_NONE, or: let this source draft, hand its proposal to sched_shadow, and decode serially */
    int32_t n_hindsight;    /* so many drafts */
};

/* A round that ran. */
struct sched_round {
    struct sched_choice choice;
    int32_t match;           /* of the offer that was taken */
    int32_t ctx;             /* positions evaluated before it */
    int32_t n_drafted, n_verified; /* drafts asked for; and put into the pass */
    int32_t n_tested, n_accepted;  /* drafts whose fate is known; and the first of them that the target chose as well. A draft that was not
                                      verified is tested by the token chosen behind the last verified one */
    const float *confidence; /* [n_tested] or NULL */
    const int32_t *ids;      /* [n_ids] tokens published, at least 1 */
    int32_t n_ids;
    double t_draft, t_verify, t_commit, t_other; /* seconds; of a pass shared with other sessions: its share */
    bool shared;             /* such a pass: the caller tells the cost table of it (sched_costs_add_verify) */
};

struct sched_stats {
    int64_t rounds, tokens, probes, hindsights, changes; /* changes of the incumbent */
    int64_t depth[DRAFT_MAX + 1];                        /* rounds by drafts verified */
    int64_t used[SCHED_MAX_SOURCES];                     /* rounds by source */
    int64_t tested[SCHED_MAX_SOURCES][DRAFT_MAX], accepted[SCHED_MAX_SOURCES][DRAFT_MAX]; /* by depth, in rounds that used the source */
    double t_draft, t_verify, t_commit, t_other;
};

struct sched_shadow {
    bool active;
    int32_t bucket, n, at, ids[DRAFT_MAX];
    float confidence[DRAFT_MAX];
};

/* The fields are the scheduler's own, but stats may be read. */
struct sched {
    struct sched_config config;
    bool removed[SCHED_MAX_SOURCES], told[SCHED_MAX_SOURCES];
    struct sched_accept accept[SCHED_MAX_SOURCES][SCHED_BUCKETS_MATCH];
    struct sched_shadow shadow[SCHED_MAX_SOURCES];
    bool decided;                        /* there is an incumbent */
    int32_t source, k;                   /* the incumbent */
    int32_t other_source, other_k;       /* what the last decisions, so many, would have had instead */
    int32_t other_times;
    double rate;                         /* of the incumbent, tokens per second, at the last choice */
    bool granted;                        /* the credit of the beginning */
    double credit, credit_cap;           /* seconds */
    double sum_tokens, sum_seconds;      /* of recent rounds, fading */
    int32_t at;                          /* in the script */
    int64_t drafted_at[SCHED_MAX_SOURCES]; /* tokens published when a source drafted last; 0: never */
    struct sched_stats stats;
};

/* A session that knows nothing yet (or what memory knows). The configuration is copied. */
void sched_init(struct sched *s, const struct sched_config *config);

/* What to do in the coming round. An ask for another round without sched_observe in between is allowed. */
struct sched_choice sched_choose(struct sched *s, const struct sched_ask *ask);

/* After drafting: how many of the n drafts to verify, from the drafter's confidences; n when it gave none, for probes, and without
   adaptation. t_draft: seconds that the draft took. */
int32_t sched_truncate(const struct sched *s, const struct sched_choice *choice, const struct draft *draft, int32_t n, int32_t ctx,
                       double t_draft);

/* A proposal that is not verified, for the tokens behind the anchor: judged by the tokens of coming sched_observe. To be called before this
   round's. One that is being judged goes on, and the new one is dropped. */
void sched_shadow(struct sched *s, int32_t source, const struct draft *draft);
void sched_forget_shadows(struct sched *s); /* the session was taken back */

/* What came of it: costs, evidence, credit, statistics. */
void sched_observe(struct sched *s, const struct sched_round *r);

/* The source is gone: an error, or its context was lost. */
void sched_remove(struct sched *s, int32_t source);

/* True once per source: when 64 of its first drafts were tested and fewer than 20 % are accepted. */
bool sched_poor(struct sched *s, int32_t source);

/* What was learned, for sessions to come. */
void sched_remember(const struct sched *s, struct sched_memory *memory);

/* Several sessions in one pass: which drafts of which sessions are worth a row. The probabilities of all drafts in falling order are
   admitted as far as tokens per second of the whole pass are highest. n requests; k: in each choice reduced where it does not pay. passes:
   what shared passes cost by their rows; drafts: the table of the members' drafts. */
struct sched_member {
    const struct sched *s;
    struct sched_choice *choice;
    int32_t match, ctx;
};
int sched_admit(const struct sched_costs *passes, const struct sched_costs *drafts, const struct sched_member *members, int32_t n,
                skua_error *err); /* SKUA_ENOMEM */

#endif
