/* The model's chat template as a server uses it: rendered natively where that is proven to give the same text, else by the template. */
#ifndef SKUA_API_TEMPLATE_H
#define SKUA_API_TEMPLATE_H

#include "api/style.h"

struct api_template {
    struct chat_style style;
    bool has_style;           /* the native renderer can write for this model */
    bool native;              /* and writes what the template writes */
    char note[600];           /* one line for the server's log: how chats are rendered, and why */
};

/* Study the engine's template: some hundred renderings. SKUA_ETEMPLATE: the file has none, or it does not compile; SKUA_ENOMEM. */
int  api_template_new(skua_engine *e, struct api_template **out, skua_error *err);
void api_template_free(struct api_template *t); /* NULL allowed */

#endif
