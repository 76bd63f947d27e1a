/* Streaming detokenizer; see detok.h. */
#include "tok/detok.h"

#include <string.h>

#include "base/strbuf.h"
#include "base/utf8.h"

/* Append n bytes in which every sequence is complete or certainly malformed. */
static void append_sanitized(struct strbuf *out, const char *s, size_t n)
{
    size_t good = 0; /* start of the valid bytes not yet appended */
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len) {
            i += (size_t)len;
            continue;
        }
        strbuf_append(out, s + good, i - good);
        strbuf_append(out, "\xEF\xBF\xBD", 3);
        size_t bad = 1;
        while (bad < 3 && bad < n - i && utf8_complete_prefix(s + i, bad + 1) == 0)
            bad++;
        i += bad;
        good = i;
    }
    strbuf_append(out, s + good, n - good);
}

void detok_push(struct detok *d, const char *bytes, size_t n, struct strbuf *out)
{
    /* Finish the pending sequence byte by byte: it needs at most three more, then the rest needs no copy. */
    while (d->n_pending && n) {
        char joined[4];
        memcpy(joined, d->pending, d->n_pending);
        joined[d->n_pending] = *bytes++;
        size_t have = (size_t)d->n_pending + 1;
        n--;
        size_t complete = utf8_complete_prefix(joined, have);
        append_sanitized(out, joined, complete);
        d->n_pending = (uint8_t)(have - complete);
        memcpy(d->pending, joined + complete, d->n_pending);
    }
    if (!n)
        return;
    size_t complete = utf8_complete_prefix(bytes, n);
    append_sanitized(out, bytes, complete);
    if (n > complete) {
        d->n_pending = (uint8_t)(n - complete);
        memcpy(d->pending, bytes + complete, d->n_pending);
    }
}

void detok_finish(struct detok *d, struct strbuf *out)
{
    append_sanitized(out, d->pending, d->n_pending);
    d->n_pending = 0;
}
