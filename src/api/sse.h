/* Server-sent events with a name. An event is put together in a buffer of its own and goes to the output whole or not at all, so that
 * what was sent always ends with a complete event, also when memory runs out. */
#ifndef SKUA_API_SSE_H
#define SKUA_API_SSE_H

#include "base/strbuf.h"

/* Begin an event: its name and the "data: " before its one line of JSON, which the caller appends. event is cleared. */
void sse_begin(struct strbuf *event, const char *name);

/* End it and append it to out. 0, or SKUA_ENOMEM with out as it was and usable. */
int sse_end(struct strbuf *event, struct strbuf *out);

/* A comment that clients ignore. SKUA_ENOMEM as above. */
int sse_comment(struct strbuf *out);

/* Append n bytes whole or not at all. SKUA_ENOMEM as above. */
int sse_append(struct strbuf *out, const char *bytes, size_t n);

#endif
