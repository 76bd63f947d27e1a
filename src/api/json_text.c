/* JSON text; see json_text.h. */
#include "api/json_text.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "sample/logprob.h"

static void escaped(struct strbuf *b, uint32_t cp)
{
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = letters; *p; p += 2)
        if ((unsigned char)*p == cp) {
            strbuf_append(b, (char[]){'\\', p[1]}, 2);
            return;
        }
    strbuf_printf(b, "\\u%04x", (unsigned)cp);
}

void api_json_chars(struct strbuf *b, const char *s, size_t n)
{
    size_t done = 0, i = 0;
    while (i < n) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len && cp >= 0x20 && cp != '"' && cp != '\\' && cp != 0x2028 && cp != 0x2029) {
            i += (size_t)len;
            continue;
        }
        strbuf_append(b, s + done, i - done);
        if (len)
            escaped(b, cp);
        else
            strbuf_puts(b, "\xEF\xBF\xBD");
        i += len ? (size_t)len : 1;
        done = i;
    }
    strbuf_append(b, s + done, n - done);
}

void api_json_string(struct strbuf *b, const char *s, size_t n)
{
    strbuf_putc(b, '"');
    api_json_chars(b, s, n);
    strbuf_putc(b, '"');
}

void api_json_text(struct strbuf *b, const char *s)
{
    if (s)
        api_json_string(b, s, strlen(s));
    else
        strbuf_puts(b, "null");
}

void api_json_double(struct strbuf *b, double v)
{
    char text[40];
    if (isnan(v)) {
        strbuf_puts(b, "null");
        return;
    }
    v = v > DBL_MAX ? DBL_MAX : v < -DBL_MAX ? -DBL_MAX : v;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    strbuf_puts(b, text);
    if (!strpbrk(text, ".e"))
        strbuf_puts(b, ".0");
}

void api_json_value(struct strbuf *b, const json_t *v)
{
    const char *key;
    json_t *x;
    size_t i, n;
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_STRING: api_json_string(b, json_string_value(v), json_string_length(v)); return;
    case JSON_INTEGER: strbuf_printf(b, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); return;
    case JSON_REAL: api_json_double(b, json_real_value(v)); return;
    case JSON_TRUE: strbuf_puts(b, "true"); return;
    case JSON_FALSE: strbuf_puts(b, "false"); return;
    case JSON_NULL: strbuf_puts(b, "null"); return;
    case JSON_ARRAY:
        strbuf_putc(b, '[');
        json_array_foreach(v, i, x) {
            strbuf_puts(b, i ? "," : "");
            api_json_value(b, x);
        }
        strbuf_putc(b, ']');
        return;
    case JSON_OBJECT:
        n = 0;
        strbuf_putc(b, '{');
        json_object_foreach((json_t *)(uintptr_t)v, key, x) {
            strbuf_puts(b, n++ ? "," : "");
            api_json_text(b, key);
            strbuf_putc(b, ':');
            api_json_value(b, x);
        }
        strbuf_putc(b, '}');
        return;
    }
}

const char *api_token_bytes(const struct api_env *env, int32_t id, size_t *n)
{
    return skua_token_bytes(env->engine, id, true, n);
}

static void one_logprob(struct strbuf *b, const char *bytes, size_t n, double logprob)
{
    strbuf_puts(b, "{\"token\":");
    api_json_string(b, bytes, n);
    strbuf_puts(b, ",\"logprob\":");
    api_json_double(b, logprob >= LOGPROB_FLOOR ? logprob : LOGPROB_FLOOR);
    strbuf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
    strbuf_putc(b, ']');
}

void api_json_logprobs(struct strbuf *b, const struct api_env *env, const struct api_token_logprob *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(b, i ? "," : "");
        one_logprob(b, l[i].bytes, l[i].n, l[i].logprob);
        strbuf_puts(b, ",\"top_logprobs\":[");
        for (int32_t k = 0; k < l[i].n_top; k++) {
            size_t len;
            const char *bytes = api_token_bytes(env, l[i].top[k].id, &len);
            strbuf_puts(b, k ? "," : "");
            one_logprob(b, bytes, len, l[i].top[k].logprob);
            strbuf_putc(b, '}');
        }
        strbuf_puts(b, "]}");
    }
}
