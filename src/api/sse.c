/* Server-sent events; see sse.h. */
#include "api/sse.h"

#include <string.h>

#include "skua.h"

int sse_append(struct strbuf *out, const char *bytes, size_t n)
{
    if (!strbuf_reserve(out, n)) {
        out->failed = false; /* nothing was appended */
        return SKUA_ENOMEM;
    }
    strbuf_append(out, bytes, n);
    return 0;
}

void sse_begin(struct strbuf *event, const char *name)
{
    strbuf_clear(event);
    strbuf_puts(event, "event: ");
    strbuf_puts(event, name);
    strbuf_puts(event, "\ndata: ");
}

int sse_end(struct strbuf *event, struct strbuf *out)
{
    strbuf_puts(event, "\n\n");
    return strbuf_failed(event) ? SKUA_ENOMEM : sse_append(out, event->data, event->len);
}

int sse_comment(struct strbuf *out)
{
    static const char comment[] = ": keep-alive\n\n";
    return sse_append(out, comment, strlen(comment));
}
