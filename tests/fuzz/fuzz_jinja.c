/* Fuzzing the chat-template interpreter: the input is a template, rendered with a small fixed conversation under tight limits. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", \"content\": \"Hi \\u00e9\\ud83d\\ude00 "
    "<b>\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5}}}]}],"
    " \"tools\": [{\"function\": {\"name\": \"f\"}}], \"n\": 7, \"f\": 2.5, \"s\": \"Hello World\", \"xs\": [3, 1, 2], \"d\": {\"a\": 1, "
    "\"b\": [1, 2]},"
    " \"yes\": true, \"nil\": null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *context;
    static const struct jinja_limits limits = {
        .max_source_bytes = 20000, .max_compile_bytes = 8u << 20, .max_steps = 20000, .max_memory_bytes = 4u << 20,
        .max_output_bytes = 1u << 20, .max_range = 1000, .max_depth = 300, .max_nesting = 100, .max_data_depth = 60,
    };
    struct jinja_template *t;
    struct strbuf out = {0};
    skua_error err = {0};
    if (!context && !(context = json_loads(context_text, 0, NULL)))
        abort();
    if (jinja_compile((const char *)data, size, &limits, &t, &err))
        return 0;
    jinja_render(t, context, &(struct jinja_render_options){.time = 1}, &out, &err);
    if (err.code && out.len)
        abort(); /* a failed rendering must put nothing out */
    strbuf_free(&out);
    jinja_free(t);
    return 0;
}
