/* Options of speculative decoding, for every command that generates, and what it came to. */
#ifndef SKUA_CMD_CMD_DRAFT_H
#define SKUA_CMD_CMD_DRAFT_H

#include <getopt.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "skua.h"

struct draft_options {
    skua_draft_params params;
    int32_t *schedule; /* behind params.schedule */
    bool rejection;    /* skua_generate_params.rejection */
    bool given;        /* an option other than --draft was given */
};
#define DRAFT_OPTIONS_INIT {.params = SKUA_DRAFT_DEFAULTS}

enum {
    DRAFT_OPT = 1100, DRAFT_OPT_MAX, DRAFT_OPT_MIN_GAIN, DRAFT_OPT_FIXED, DRAFT_OPT_SCHEDULE, DRAFT_OPT_FORCE, DRAFT_OPT_TAPS,
        DRAFT_OPT_CAUSAL,
    DRAFT_OPT_SAMPLING, DRAFT_OPT_IDS
};
#define DRAFT_LONGS \
    {"draft", required_argument, NULL, DRAFT_OPT}, {"draft-max", required_argument, NULL, DRAFT_OPT_MAX}, \
    {"draft-min-gain", required_argument, NULL, DRAFT_OPT_MIN_GAIN}, {"draft-fixed", required_argument, NULL, DRAFT_OPT_FIXED}, \
    {"draft-schedule", required_argument, NULL, DRAFT_OPT_SCHEDULE}, {"draft-force", no_argument, NULL, DRAFT_OPT_FORCE}, \
    {"draft-taps", required_argument, NULL, DRAFT_OPT_TAPS}, {"draft-causal", required_argument, NULL, DRAFT_OPT_CAUSAL}, \
    {"draft-sampling", required_argument, NULL, DRAFT_OPT_SAMPLING}, {"draft-ids", required_argument, NULL, DRAFT_OPT_IDS}
#define DRAFT_HELP \
    "      --draft WHAT         speculation, which changes no answer: a drafter FILE (DFlash, DFlash2, DSpark, MTP head), 'mtp'\n" \
    "                           (the model's own block), 'lookup' (what the text repeats), 'auto' (both), 'none' (default);\n" \
    "                           lookup and the model's own block compete with a file\n" \
    "      --draft-max N        at most N drafts in a round\n" \
    "      --draft-min-gain G   draft when that is expected to be this much faster (default 0.03)\n" \
    "      --draft-fixed K      K drafts in every round, without adaptation\n" \
    "      --draft-schedule L   numbers of drafts of the rounds, separated by commas, again and again\n" \
    "      --draft-force        draft whenever there is something to propose, also where that does not pay\n" \
    "      --draft-sampling S   with a temperature: 'compare' (default): the seed's own answer; 'rejection': another\n" \
    "      --draft-taps A, --draft-causal yes|no, --draft-ids FILE   of DFlash files: layers are numbered by 'input' or 'output';\n" \
    "                           rows of a block see only those before them, or all; the only tokens that are drafted\n"

/* Take option c (a val of DRAFT_LONGS) with its argument. 1: taken, 0: not one of these, negative: an error. */
int draft_option(struct draft_options *o, int c, const char *arg, skua_error *err);
int draft_check(const struct draft_options *o, skua_error *err); /* options that do not go together */
void draft_options_free(struct draft_options *o);

/* Attach to the engine, before its first session; what is armed is said on standard error unless quiet. */
int draft_attach(const struct draft_options *o, const char *command, skua_engine *e, bool quiet, skua_error *err);

/* Rounds, depths, acceptance and times, as lines of text. */
void draft_stats_text(const skua_draft_stats *s, struct strbuf *out);

/* A line of JSON with what a round drafted and how much of it was accepted. */
void draft_trace_json(const skua_draft_round *r, struct strbuf *out);

#endif
