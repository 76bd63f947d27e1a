/* A model's chat template at start-up; see template.h. */
#include "api/template.h"

#include <stdio.h>

#include "base/mem.h"
#include "engine/chat_prompt.h"

#define CHECKS 200

static int render(void *user, const json_t *messages, const json_t *tools, const json_t *args, bool generation, struct strbuf *out,
                  skua_error *err)
{
    return chat_prompt_render(user, messages, tools, args, generation, out, err);
}

int api_template_new(skua_engine *e, struct api_template **out, skua_error *err)
{
    bool uses;
    skua_error why = {0};
    *out = NULL;
    int rc = chat_template_uses(e, "messages", &uses, err); /* compiles it */
    struct api_template *t = rc ? NULL : mem_calloc(1, sizeof *t);
    if (rc || !t)
        return rc ? rc : error_nomem(err, "chat template", sizeof *t);
    rc = chat_style_find(render, e, &t->style, &why);
    t->has_style = rc == 0;
    if (!rc)
        rc = chat_style_check(&t->style, render, e, 1, CHECKS, &why);
    t->native = rc == 0;
    if (rc && rc != SKUA_ETEMPLATE) {
        api_template_free(t);
        return error_set(err, rc, "%s", why.message);
    }
    if (t->native)
        snprintf(t->note, sizeof t->note, "chats are rendered natively (checked against the model's chat template)");
    else
        snprintf(t->note, sizeof t->note, "chats are rendered by the model's chat template%s: %s",
                 t->has_style ? ", natively only what it refuses" : "", why.message);
    *out = t;
    return 0;
}

void api_template_free(struct api_template *t)
{
    if (!t)
        return;
    chat_style_free(&t->style);
    mem_free(t);
}
