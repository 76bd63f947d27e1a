/* Options and figures of speculative decoding; see cmd_draft.h. */
#include "cmd/cmd_draft.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cmd/opts.h"

#define MAX_SCHEDULE 65536

static int parse_schedule(struct draft_options *o, const char *arg, skua_error *err)
{
    int32_t n = 1;
    for (const char *p = arg; *p; p++)
        n += *p == ',';
    if (n > MAX_SCHEDULE)
        return error_set(err, SKUA_ELIMIT, "--draft-schedule has %d numbers; at most %d", n, MAX_SCHEDULE);
    mem_free(o->schedule);
    o->schedule = mem_alloc((size_t)n * sizeof *o->schedule);
    if (!o->schedule)
        return error_nomem(err, "schedule of drafts", (size_t)n * sizeof *o->schedule);
    o->params.schedule = o->schedule;
    o->params.n_schedule = n;
    for (int32_t i = 0; i < n; i++) {
        char number[16];
        int64_t value;
        const size_t len = strcspn(arg, ",");
        snprintf(number, sizeof number, "%.*s", (int)(len < sizeof number ? len : sizeof number - 1), arg);
        int rc = opt_i64("--draft-schedule (numbers separated by commas)", number, 0, SKUA_DRAFT_MAX, &value, err);
        if (rc)
            return rc;
        o->schedule[i] = (int32_t)value;
        arg += len + (arg[len] == ',');
    }
    return 0;
}

static int parse_choice(const char *flag, const char *arg, const char *const names[2], int *out, skua_error *err)
{
    for (int i = 0; i < 2; i++)
        if (!strcmp(arg, names[i])) {
            *out = i;
            return 0;
        }
    return error_set(err, SKUA_EARG, "%s '%s' is unknown; expected %s or %s", flag, arg, names[0], names[1]);
}

int draft_option(struct draft_options *o, int c, const char *arg, skua_error *err)
{
    static const char *const taps[] = {"input", "output"}, *const causal[] = {"no", "yes"}, *const sampling[] = {"compare", "rejection"};
    skua_draft_params *p = &o->params;
    int64_t n = 0;
    int rc = 0, i = 0;
    o->given = o->given || (c > DRAFT_OPT && c <= DRAFT_OPT_IDS);
    switch (c) {
    case DRAFT_OPT: p->source = arg; break;
    case DRAFT_OPT_MAX:
        rc = opt_i64("--draft-max", arg, 1, SKUA_DRAFT_MAX, &n, err);
        p->max = (int32_t)n;
        break;
    case DRAFT_OPT_MIN_GAIN: rc = opt_f64("--draft-min-gain", arg, 0, 10, &p->min_gain, err); break;
    case DRAFT_OPT_FIXED:
        rc = opt_i64("--draft-fixed", arg, 0, 1000000, &n, err);
        p->fixed = (int32_t)n;
        break;
    case DRAFT_OPT_SCHEDULE: rc = parse_schedule(o, arg, err); break;
    case DRAFT_OPT_FORCE: p->force = true; break;
    case DRAFT_OPT_TAPS:
        rc = parse_choice("--draft-taps", arg, taps, &i, err);
        p->taps = i ? SKUA_TAPS_OUTPUT : SKUA_TAPS_INPUT;
        break;
    case DRAFT_OPT_CAUSAL:
        rc = parse_choice("--draft-causal", arg, causal, &i, err);
        p->causal = i;
        break;
    case DRAFT_OPT_SAMPLING:
        rc = parse_choice("--draft-sampling", arg, sampling, &i, err);
        o->rejection = i != 0;
        break;
    case DRAFT_OPT_IDS: p->head_ids = arg; break;
    default: return 0;
    }
    return rc ? rc : 1;
}

int draft_check(const struct draft_options *o, skua_error *err)
{
    if (o->given && (!o->params.source || !strcmp(o->params.source, "none")))
        return error_set(err, SKUA_EARG, "options of drafting without --draft; expected --draft FILE, mtp, lookup or auto");
    if (o->params.fixed >= 0 && o->params.schedule)
        return error_set(err, SKUA_EARG, "both --draft-fixed and --draft-schedule; expected one of them");
    if (o->params.force && (o->params.fixed >= 0 || o->params.schedule))
        return error_set(err, SKUA_EARG, "--draft-force does not go with --draft-fixed and --draft-schedule: they adapt nothing");
    return 0;
}

void draft_options_free(struct draft_options *o)
{
    mem_free(o->schedule);
    o->schedule = NULL;
}

int draft_attach(const struct draft_options *o, const char *command, skua_engine *e, bool quiet, skua_error *err)
{
    const char *notes;
    int rc = skua_engine_draft(e, &o->params, &notes, err);
    for (size_t n; !rc && !quiet && (n = strcspn(notes, "\n")) > 0; notes += n + (notes[n] == '\n'))
        fprintf(stderr, "skua %s: %.*s\n", command, (int)n, notes);
    return rc;
}

/* ---- figures ---- */

static void source_text(const skua_draft_stats *s, int32_t i, struct strbuf *out)
{
    strbuf_printf(out, "  %s: %lld rounds%s", s->sources[i].name, (long long)s->sources[i].rounds, s->sources[i].lost ? ", lost" : "");
    for (int d = 0; d < SKUA_DRAFT_MAX && s->sources[i].tested[d]; d++)
        strbuf_printf(out, "%s %.0f", d ? "" : ", accepted by depth, %:",
                      100.0 * (double)s->sources[i].accepted[d] / (double)s->sources[i].tested[d]);
    strbuf_putc(out, '\n');
}

void draft_stats_text(const skua_draft_stats *s, struct strbuf *out)
{
    if (!s->n_sources) {
        strbuf_puts(out, "drafting: off\n");
        return;
    }
    int64_t drafting = 0, verified = 0;
    for (int d = 1; d <= SKUA_DRAFT_MAX; d++) {
        drafting += s->depth[d];
        verified += d * s->depth[d];
    }
    strbuf_printf(out, "drafting: %lld rounds, %lld of them with drafts (%lld verified); %lld tokens, %.2f per round\n",
                  (long long)s->rounds,
                  (long long)drafting, (long long)verified, (long long)s->tokens, s->rounds ? (double)s->tokens / (double)s->rounds : 0.0);
    strbuf_puts(out, "  rounds by drafts verified:");
    for (int d = 0; d <= SKUA_DRAFT_MAX; d++)
        if (s->depth[d])
            strbuf_printf(out, " %d:%lld", d, (long long)s->depth[d]);
    strbuf_putc(out, '\n');
    for (int32_t i = 0; i < s->n_sources; i++)
        source_text(s, i, out);
    strbuf_printf(out, "  seconds: draft %.3f, verify %.3f, commit %.3f, other %.3f\n",
                  s->draft_seconds, s->verify_seconds, s->commit_seconds,
                  s->other_seconds);
}

void draft_trace_json(const skua_draft_round *r, struct strbuf *out)
{
    strbuf_printf(out, "{\"drafter\": \"%s\", \"drafts\": [", r->drafter);
    for (int32_t i = 0; i < r->n_drafts; i++)
        strbuf_printf(out, "%s%d", i ? ", " : "", r->drafts[i]);
    strbuf_printf(out, "], \"verified\": %d, \"A\": %d}\n", r->n_verified, r->n_accepted);
}
