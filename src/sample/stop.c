/* Stop strings; see stop.h. */
#include "sample/stop.h"

#include <string.h>

#include "base/mem.h"

static void build_fail(const char *s, uint16_t *fail, size_t len)
{
    size_t k = 0;
    fail[0] = 0;
    for (size_t i = 1; i < len; i++) {
        while (k && s[i] != s[k])
            k = fail[k - 1];
        k += s[i] == s[k];
        fail[i] = (uint16_t)k;
    }
}

int stop_init(struct stop_matcher *m, const char *const *strings, const size_t *lengths, size_t n, skua_error *err)
{
    size_t total = 0;
    *m = (struct stop_matcher){.found = -1};
    if (n > STOP_MAX_STRINGS)
        return error_set(err, SKUA_EARG, "%zu stop strings, expected at most %d", n, STOP_MAX_STRINGS);
    for (size_t k = 0; k < n; k++) {
        if (lengths[k] < 1 || lengths[k] > STOP_MAX_BYTES)
            return error_set(err, SKUA_EARG, "stop string %zu is %zu bytes long, expected 1 to %d", k, lengths[k],
                             STOP_MAX_BYTES);
        total += lengths[k];
    }
    if (!n)
        return 0;
    uint16_t *fail = m->memory = mem_alloc(total * (sizeof *fail + 1));
    if (!fail)
        return error_nomem(err, "stop strings", total * (sizeof *fail + 1));
    char *bytes = (char *)(fail + total);
    for (size_t k = 0; k < n; k++) {
        size_t len = lengths[k];
        memcpy(bytes, strings[k], len);
        build_fail(bytes, fail, len);
        m->strings[k] = (struct stop_string){bytes, fail, (uint16_t)len, 0};
        bytes += len;
        fail += len;
    }
    m->n = (int)n;
    return 0;
}

void stop_free(struct stop_matcher *m)
{
    mem_free(m->memory);
    *m = (struct stop_matcher){.found = -1};
}

void stop_reset(struct stop_matcher *m)
{
    for (int k = 0; k < m->n; k++)
        m->strings[k].matched = 0;
    m->found = -1;
}

/* The string of which the longest beginning is matched; NULL when nothing is. */
static const struct stop_string *longest(const struct stop_matcher *m)
{
    const struct stop_string *best = NULL;
    for (int k = 0; k < m->n; k++)
        if (m->strings[k].matched > (best ? best->matched : 0))
            best = &m->strings[k];
    return best;
}

size_t stop_held(const struct stop_matcher *m)
{
    const struct stop_string *s = m->found >= 0 ? NULL : longest(m);
    return s ? s->matched : 0;
}

/* Advance every automaton by one byte; the index of the longest string that is now complete, or -1. */
static int step(struct stop_matcher *m, char c)
{
    int found = -1;
    for (int k = 0; k < m->n; k++) {
        struct stop_string *s = &m->strings[k];
        size_t at = s->matched;
        while (at && s->bytes[at] != c)
            at = s->fail[at - 1];
        at += s->bytes[at] == c;
        s->matched = (uint16_t)at; /* == len only on the way out: the stream stops here */
        if (at == s->len && (found < 0 || s->len > m->strings[found].len))
            found = k;
    }
    return found;
}

int stop_push(struct stop_matcher *m, const char *bytes, size_t n, struct strbuf *out, skua_error *err)
{
    if (m->found >= 0)
        return 1;
    const struct stop_string *before = longest(m);
    size_t held = before ? before->matched : 0, used = 0;
    if (!strbuf_reserve(out, held + n))
        return error_nomem(err, "text before a stop string", held + n);
    while (used < n && m->found < 0)
        m->found = step(m, bytes[used++]);
    size_t keep = m->found >= 0 ? m->strings[m->found].len : stop_held(m);
    size_t go = held + used - keep; /* bytes of the held text and then of this call's */
    size_t from_held = go < held ? go : held;
    if (from_held)
        strbuf_append(out, before->bytes, from_held);
    strbuf_append(out, bytes, go - from_held);
    return m->found >= 0;
}

int stop_finish(struct stop_matcher *m, struct strbuf *out, skua_error *err)
{
    size_t held = stop_held(m);
    if (held) {
        if (!strbuf_reserve(out, held))
            return error_nomem(err, "text before a stop string", held);
        strbuf_append(out, longest(m)->bytes, held);
        stop_reset(m);
    }
    return 0;
}
