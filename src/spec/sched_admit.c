/* Rows of a pass that several sessions share; see sched.h. */
#include <stdlib.h>

#include "base/mem.h"
#include "spec/sched.h"

struct slot {
    int32_t member, depth;
    double survive;
};

static int by_survival(const void *x, const void *y)
{
    const struct slot *a = x, *b = y;
    if (a->survive != b->survive)
        return a->survive < b->survive ? 1 : -1;
    return a->depth != b->depth ? a->depth - b->depth : a->member - b->member;
}

static int32_t list_slots(const struct sched_member *members, int32_t n, struct slot *slots)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct sched_choice *c = members[i].choice;
        double survive = 1;
        for (int32_t d = 1; d <= c->k; d++) {
            survive *= sched_accept_mean(&members[i].s->accept[c->source][sched_match_bucket(members[i].match)], d);
            slots[count++] = (struct slot){i, d, survive};
        }
    }
    qsort(slots, (size_t)count, sizeof *slots, by_survival);
    return count;
}

int sched_admit(const struct sched_costs *passes, const struct sched_costs *drafts, const struct sched_member *members, int32_t n,
                skua_error *err)
{
    int64_t ctx = 0;
    int32_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        total += members[i].choice->k;
        ctx += members[i].ctx;
    }
    if (!total)
        return 0;
    struct slot *slots = mem_alloc((size_t)total * sizeof *slots);
    if (!slots)
        return error_nomem(err, "drafts of a shared pass", (size_t)total * sizeof *slots);
    list_slots(members, n, slots);
    int32_t mean_ctx = (int32_t)(ctx / n), keep = 0;
    double tokens = n, draft = 0, best = n / sched_costs_verify(passes, n, mean_ctx);
    for (int32_t i = 0; i < total; i++) {
        const struct sched_choice *c = members[slots[i].member].choice;
        int32_t d = slots[i].depth; /* a session's slots come in order of depth */
        draft += sched_costs_draft(drafts, c->source, d) - (d > 1 ? sched_costs_draft(drafts, c->source, d - 1) : 0);
        tokens += slots[i].survive;
        double rate = tokens / (draft + sched_costs_verify(passes, n + i + 1, mean_ctx));
        if (rate > best) {
            best = rate;
            keep = i + 1;
        }
    }
    for (int32_t i = 0; i < n; i++)
        members[i].choice->k = 0;
    for (int32_t i = 0; i < keep; i++)
        members[slots[i].member].choice->k++;
    for (int32_t i = 0; i < n; i++)
        if (!members[i].choice->k)
            members[i].choice->source = SCHED_NONE;
    mem_free(slots);
    return 0;
}
