/* The page at /, and what it needs under /ui/. */
#include "cmd/serve.h"

void serve_page(struct serve_call *c)
{
    struct api_error e;
    api_error_set(&e, 404, "not_found", NULL, "this build has no page");
    serve_fail(c, &e);
}
