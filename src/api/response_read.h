/* What can be asked about a kept answer: /v1/responses/ID and what is below it (spec/api.md 9.5). 0, or -1 with the error set. */
#ifndef SKUA_API_RESPONSE_READ_H
#define SKUA_API_RESPONSE_READ_H

#include "api/api.h"

#define RESPONSE_PAGE 20      /* items of a page, by default */
#define RESPONSE_PAGE_MAX 100

/* The response object, as its client got it. */
int response_read(const struct response_access *a, const char *id, struct strbuf *out, struct api_error *e);
/* It is forgotten, but for conversations that went on from it. */
int response_delete(const struct response_access *a, const char *id, struct strbuf *out, struct api_error *e);

/* A page of what an answer's prompt was made of: the conversation before it and its own input. after: the id of the item before the first
   one of the page, NULL or "": from the beginning. */
struct response_page {
    const char *after;
    int32_t limit;
    bool ascending;           /* else the newest come first */
};
int response_input_items(const struct response_access *a, const char *id, const struct response_page *page, struct strbuf *out,
                         struct api_error *e);

#endif
