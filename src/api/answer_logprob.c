/* Which tokens' log-probabilities go out with which event. A token waits until it is known whether it is visible text, and until its first
 * visible byte goes out; with logprobs_all every token goes out with the next event, whatever it is. */
#include <string.h>

#include "api/answer_internal.h"
#include "base/mem.h"

int held_push(struct answer *a, const struct batch_token *t, uint64_t begin, uint64_t end)
{
    const struct batch_logprob *l = t->logprob;
    if (!l || t->ends)
        return 0;
    if (a->n_held == a->cap_held) {
        size_t cap = a->cap_held ? 2 * a->cap_held : 16;
        struct held_token *more = mem_realloc_array(a->held, cap, sizeof *more);
        if (!more)
            return error_nomem(a->err, "log-probabilities", cap * sizeof *more);
        a->held = more;
        a->cap_held = cap;
    }
    struct token_logprob *top = NULL;
    if (l->n_top) {
        top = mem_alloc((size_t)l->n_top * sizeof *top);
        if (!top)
            return error_nomem(a->err, "log-probabilities", (size_t)l->n_top * sizeof *top);
        memcpy(top, l->top, (size_t)l->n_top * sizeof *top);
    }
    a->held[a->n_held++] = (struct held_token){.l = {t->id, t->bytes, t->n, l->logprob, top, l->n_top}, .begin = begin, .end = end};
    return 0;
}

void held_mark(struct answer *a, uint64_t source, size_t n, uint64_t visible_at)
{
    for (size_t i = 0; i < a->n_held && a->held[i].begin < source + n; i++) {
        struct held_token *h = &a->held[i];
        if (h->visible || h->end <= source || h->begin == h->end)
            continue;
        h->visible = true;
        h->visible_at = visible_at + (h->begin > source ? h->begin - source : 0);
    }
}

static void forget(struct answer *a, size_t n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n; i++)
        mem_free((void *)(uintptr_t)a->held[i].l.top);
    a->n_held -= n;
    memmove(a->held, a->held + n, a->n_held * sizeof *a->held);
}

/* Invisible tokens before a visible one are decided: the parser gives text in its order. */
static size_t drop_invisible(struct answer *a, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (a->held[i].visible)
            a->held[kept++] = a->held[i];
        else
            mem_free((void *)(uintptr_t)a->held[i].l.top);
    }
    a->n_held -= n - kept;
    memmove(a->held + kept, a->held + n, (a->n_held - kept) * sizeof *a->held);
    return kept;
}

int held_take(struct answer *a, bool any, uint64_t before, size_t *n)
{
    size_t n_out = any ? a->n_held : 0;
    for (size_t i = 0; i < a->n_held && !any; i++)
        if (a->held[i].visible && a->held[i].visible_at < before)
            n_out = i + 1;
    if (n_out && !any)
        n_out = drop_invisible(a, n_out);
    if (n_out > a->cap_sent) {
        struct api_token_logprob *more = mem_realloc_array(a->sent, n_out, sizeof *more);
        if (!more)
            return error_nomem(a->err, "log-probabilities", n_out * sizeof *more);
        a->sent = more;
        a->cap_sent = n_out;
    }
    for (size_t i = 0; i < n_out; i++)
        a->sent[i] = a->held[i].l;
    *n = n_out;
    return 0;
}

void held_sent(struct answer *a, size_t n) { forget(a, n); }

void held_forget_last(struct answer *a, int32_t id)
{
    if (a->n_held && a->held[a->n_held - 1].l.id == id && !a->held[a->n_held - 1].visible)
        mem_free((void *)(uintptr_t)a->held[--a->n_held].l.top);
}

void held_drop_decided(struct answer *a)
{
    uint64_t decided = tool_parse_decided(&a->parser);
    size_t n = 0;
    if (a->plan->r->logprobs_all)
        return;
    while (n < a->n_held && !a->held[n].visible && a->held[n].end <= decided)
        n++;
    forget(a, n);
}

void held_free(struct answer *a)
{
    forget(a, a->n_held);
    mem_free(a->held);
    mem_free(a->sent);
    a->held = NULL;
    a->sent = NULL;
}
