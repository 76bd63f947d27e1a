/* Bytes of a body to JSON; spec/api.md 1. One pass over the bytes checks UTF-8 and depth, and makes a copy that the JSON reader takes:
 * lone surrogates become U+FFFD, and integers beyond 64 bits real numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/field.h"
#include "base/json.h"
#include "base/utf8.h"

#define MAX_DEPTH 128

static int invalid(struct api_error *e, const char *what, size_t at)
{
    return api_error_set(e, 400, "invalid_json", NULL, "body: %s at byte %zu", what, at);
}

/* The value of \uXXXX at s, or -1. */
static int escape_value(const char *s, size_t n)
{
    int v = 0;
    if (n < 6 || s[0] != '\\' || s[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char *digits = "0123456789abcdef", *p = s[i] ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i]) : NULL;
        if (!p)
            return -1;
        v = v << 4 | (int)(p - digits);
    }
    return v;
}

/* The string at s[0] = '"': its length with both quotes (or up to the end of the text), with half surrogate pairs replaced. */
static size_t copy_string(const char *s, size_t n, struct strbuf *out)
{
    size_t i = 1, done = 0;
    while (i < n && s[i] != '"') {
        int v = s[i] == '\\' ? escape_value(s + i, n - i) : -1;
        size_t len = v >= 0 ? 6 : s[i] == '\\' && i + 1 < n ? 2 : 1;
        if (v >= 0xD800 && v < 0xE000) {
            int low = v < 0xDC00 ? escape_value(s + i + 6, n - i - 6) : -1;
            if (low >= 0xDC00 && low < 0xE000) {
                len = 12;
            } else {
                strbuf_append(out, s + done, i - done);
                strbuf_puts(out, "\\ufffd");
                done = i + 6;
            }
        }
        i += len;
    }
    i += i < n;
    strbuf_append(out, s + done, i - done);
    return i;
}

/* The number at s: an integer that 64 bits do not hold gets a fraction. */
static size_t copy_number(const char *s, size_t n, struct strbuf *out)
{
    char digits[24];
    size_t len = strspn(s, "+-.0123456789eE"); /* s is zero-terminated */
    len = len < n ? len : n;
    strbuf_append(out, s, len);
    bool big = len >= sizeof digits && strspn(s, "-0123456789") >= len;
    if (len < sizeof digits) {
        memcpy(digits, s, len);
        digits[len] = '\0';
        errno = 0;
        strtoll(digits, NULL, 10);
        big = errno == ERANGE && !strpbrk(digits, "+.eE");
    }
    if (big)
        strbuf_puts(out, ".0");
    return len;
}

static int check_utf8(const char *s, size_t n, struct api_error *e)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = (signed char)s[i] >= 0 ? 1 : utf8_decode(s + i, n - i, &cp);
        if (!len)
            return invalid(e, "invalid UTF-8", i);
        i += (size_t)len;
    }
    return 0;
}

static int copy_text(const char *s, size_t n, struct strbuf *out, struct api_error *e)
{
    int depth = 0;
    for (size_t i = 0; i < n;) {
        if (s[i] == '"') {
            i += copy_string(s + i, n - i, out);
        } else if (s[i] == '-' || (s[i] >= '0' && s[i] <= '9')) {
            i += copy_number(s + i, n - i, out);
        } else {
            depth += (s[i] == '[' || s[i] == '{') - (s[i] == ']' || s[i] == '}');
            if (depth > MAX_DEPTH)
                return api_error_set(e, 400, "invalid_json", NULL, "body: JSON nested deeper than %d levels at byte %zu", MAX_DEPTH, i);
            strbuf_putc(out, s[i++]);
        }
    }
    return 0;
}

int api_body_parse(const char *bytes, size_t n, json_t **out, struct api_error *error)
{
    struct strbuf text = {0}, raw = {0};
    json_error_t at;
    bool no_memory = false;
    *out = NULL;
    if (n >= 3 && !memcmp(bytes, "\xEF\xBB\xBF", 3)) {
        bytes += 3;
        n -= 3;
    }
    if (n == 0)
        return api_error_set(error, 400, "invalid_json", NULL, "body: empty; expected a JSON object");
    if (check_utf8(bytes, n, error))
        return -1;
    strbuf_append(&raw, bytes, n); /* with a terminator */
    strbuf_reserve(&text, n);
    int rc = strbuf_failed(&raw) ? api_fail_nomem(error) : copy_text(raw.data, n, &text, error);
    if (!rc && strbuf_failed(&text))
        rc = api_fail_nomem(error);
    if (!rc) {
        *out = json_read(strbuf_str(&text), text.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, &at, &no_memory);
        if (no_memory)
            rc = api_fail_nomem(error);
        else if (!*out)
            rc = api_error_set(error, 400, "invalid_json", NULL, "body: not valid JSON: %s (line %d, column %d)", at.text, at.line,
                               at.column);
        else if (!json_is_object(*out))
            rc = api_fail_type(error, NULL, *out, "a JSON object");
    }
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    strbuf_free(&raw);
    strbuf_free(&text);
    return rc;
}
