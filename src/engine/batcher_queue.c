/* Who waits, and who is next; see batcher_internal.h.
 *
 * Jobs of higher priority come first. Among equal ones owners take turns: a job's turn is one behind its owner's last one, or the turn that
 * the queue is at, whichever is later, so that an owner who comes seldom is neither made to wait for the jobs of one who comes often nor
 * gets ahead of what waits already. A job whose beginning is in memory may pass up to BYPASS others whose is not, and nobody is passed more
 * often than that. */
#include <string.h>

#include "base/mem.h"
#include "engine/batcher_internal.h"

#define BYPASS 4

int batch_queue_reserve(struct batcher *b, skua_error *err)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < b->n_owners; i++) /* those whose turn is over are as good as new */
        if (b->owners[i].turn >= b->virtual_turn)
            b->owners[kept++] = b->owners[i];
    b->n_owners = kept;
    if (b->n_owners < b->cap_owners)
        return 0;
    const int32_t cap = b->cap_owners ? 2 * b->cap_owners : 16;
    struct batch_owner *p = mem_realloc_array(b->owners, (size_t)cap, sizeof *p);
    if (!p)
        return error_nomem(err, "owners of jobs", (size_t)cap * sizeof *p);
    b->owners = p;
    b->cap_owners = cap;
    return 0;
}

static uint64_t next_turn(struct batcher *b, uint64_t owner)
{
    int32_t i = 0;
    while (i < b->n_owners && b->owners[i].id != owner)
        i++;
    if (i == b->n_owners)
        b->owners[b->n_owners++] = (struct batch_owner){owner, b->virtual_turn};
    else if (b->owners[i].turn + 1 > b->virtual_turn)
        b->owners[i].turn++;
    else
        b->owners[i].turn = b->virtual_turn;
    return b->owners[i].turn;
}

static bool comes_before(const struct batch_job *x, const struct batch_job *y)
{
    if (x->p.priority != y->p.priority)
        return x->p.priority > y->p.priority;
    return x->turn != y->turn ? x->turn < y->turn : x->id < y->id;
}

void batch_queue_put(struct batcher *b, struct batch_job *job)
{
    struct batch_job **at = &b->queue;
    job->turn = next_turn(b, job->p.owner);
    while (*at && comes_before(*at, job))
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    b->n_waiting++;
}

static struct batch_job *unlink_job(struct batcher *b, struct batch_job **at)
{
    struct batch_job *job = *at;
    *at = job->next;
    job->next = NULL;
    b->n_waiting--;
    return job;
}

int32_t batch_live_match(const struct batcher *b, const struct batch_job *job, struct batch_seat **seat)
{
    int32_t best = 0;
    for (int32_t i = 0; i < b->p.n_parallel; i++) {
        struct batch_seat *s = &b->seats[i];
        const int32_t n = skua_session_length(s->session);
        if (s->job || n <= best || n >= job->p.n_prompt ||
            memcmp(skua_session_tokens(s->session), job->p.prompt, (size_t)n * sizeof *job->p.prompt))
            continue;
        best = n;
        if (seat)
            *seat = s;
    }
    return best;
}

static bool resident(const struct batcher *b, const struct batch_job *job)
{
    if (job->p.no_cache || job->p.score_prompt)
        return false;
    int32_t n = batch_live_match(b, job, NULL);
    if (b->p.cache && n < job->p.n_prompt / 2)
        n = prefix_cache_resident(b->p.cache, job->p.prompt, job->p.n_prompt);
    return n > 0 && n >= job->p.n_prompt / 2;
}

struct batch_job *batch_queue_take(struct batcher *b)
{
    struct batch_job **at = &b->queue;
    if (!*at)
        return NULL;
    const int32_t priority = (*at)->p.priority;
    int32_t n = 0;
    while (*at && n <= BYPASS && (*at)->p.priority == priority && (*at)->next && (*at)->passed < BYPASS && !resident(b, *at)) {
        at = &(*at)->next;
        n++;
    }
    if (!*at || n > BYPASS || (*at)->p.priority != priority || !resident(b, *at))
        at = &b->queue;
    for (struct batch_job *j = b->queue; j != *at; j = j->next)
        j->passed++;
    struct batch_job *job = unlink_job(b, at);
    b->virtual_turn = job->turn > b->virtual_turn ? job->turn : b->virtual_turn;
    return job;
}

struct batch_job *batch_queue_expired(struct batcher *b, double now, skua_error *why)
{
    const double limit = b->p.queue_timeout_s;
    for (struct batch_job **at = &b->queue; *at; at = &(*at)->next) {
        const bool late = limit > 0 && now - (*at)->submitted >= limit;
        if ((*at)->canceled)
            error_set(why, SKUA_ECANCELED, "canceled before it began");
        else if (late)
            error_set(why, SKUA_ELIMIT, "no session became free within %g seconds", limit);
        else
            continue;
        return unlink_job(b, at);
    }
    return NULL;
}

double batch_queue_deadline(const struct batcher *b, double now)
{
    double least = -1;
    for (const struct batch_job *j = b->queue; j && b->p.queue_timeout_s > 0; j = j->next) {
        const double left = j->submitted + b->p.queue_timeout_s - now;
        least = least < 0 || left < least ? (left > 0 ? left : 0) : least;
    }
    return least;
}
