/* The text of a parameter's value as JSON; spec/api.md 5.6, rule 6. */
#include <string.h>
#include <strings.h>

#include "api/json_text.h"
#include "api/tool_parse.h"
#include "base/json.h"

static bool is_word(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(text, word, n) == 0;
}

/* Is it JSON that readers of the arguments will take where it stands, inside an object, and of one of these types? A value that JSON's
   libraries refuse (a number that is too large, too deep a nesting) is left a string. */
static bool is_json(unsigned types, const char *text, size_t n, bool *no_memory)
{
    struct strbuf inside = {0};
    json_error_t at;
    strbuf_putc(&inside, '[');
    strbuf_append(&inside, text, n);
    strbuf_putc(&inside, ']');
    *no_memory = strbuf_failed(&inside);
    json_t *list = *no_memory ? NULL : json_read(strbuf_str(&inside), inside.len, JSON_ALLOW_NUL, &at, no_memory);
    const json_t *v = json_array_size(list) == 1 ? json_array_get(list, 0) : NULL;
    bool fits = json_is_number(v) ? (types & TOOL_NUMBER) != 0 : (json_is_object(v) || json_is_array(v)) && (types & TOOL_STRUCTURE);
    json_decref(list);
    strbuf_free(&inside);
    return fits;
}

void tool_value_json(unsigned types, const char *text, size_t n, struct strbuf *out)
{
    const char *trimmed = text;
    size_t len = n;
    bool no_memory = false;
    if (types & TOOL_STRING) {
        if ((types & TOOL_NULL) && n == 4 && memcmp(text, "null", 4) == 0)
            strbuf_append(out, text, n);
        else
            api_json_string(out, text, n);
        return;
    }
    while (len && strchr(" \t\r\n", *trimmed) && *trimmed)
        trimmed++, len--;
    while (len && strchr(" \t\r\n", trimmed[len - 1]) && trimmed[len - 1])
        len--;
    if ((types & TOOL_BOOLEAN) && (is_word(trimmed, len, "true") || is_word(trimmed, len, "false")))
        strbuf_puts(out, len == 4 ? "true" : "false");
    else if ((types & TOOL_NULL) && (is_word(trimmed, len, "null") || is_word(trimmed, len, "None")))
        strbuf_puts(out, "null");
    else if (len && is_json(types, trimmed, len, &no_memory))
        strbuf_append(out, trimmed, len);
    else if (no_memory)
        out->failed = true;
    else
        api_json_string(out, text, n);
}
