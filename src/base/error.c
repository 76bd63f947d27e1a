/* Error helper; see error.h. The message buffer is part of the caller's skua_error, so setting an error never allocates. */
#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Copy s, escaped and as much of it as fits; cut: s may end in the middle of a character. Returns the length. */
static size_t copy_escaped(char *out, size_t size, const char *s, bool cut)
{
    size_t n = strlen(s), k = 0, used;
    char piece[7];
    if (cut)
        n = utf8_complete_prefix(s, n);
    for (size_t i = 0; i < n; i += used) {
        size_t len = (size_t)utf8_escape(s + i, n - i, piece, &used);
        if (k + len >= size)
            break;
        memcpy(out + k, piece, len);
        k += len;
    }
    out[k] = '\0';
    return k;
}

int error_set(skua_error *err, int code, const char *fmt, ...)
{
    if (err) {
        char text[sizeof err->message]; /* arguments may point into err->message */
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        err->code = code;
        copy_escaped(err->message, sizeof err->message, n < 0 ? fmt : text, n >= (int)sizeof text);
    }
    return code;
}

void error_prefix(skua_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char prefix[sizeof err->message], text[2 * sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t used = copy_escaped(text, sizeof prefix, prefix, n >= (int)sizeof prefix);
    snprintf(text + used, sizeof text - used, ": %s", err->message);
    copy_escaped(err->message, sizeof err->message, text, false); /* a message that is too long is cut */
}

static const char *skip_path(const char *message, const char *path)
{
    char escaped[sizeof ((skua_error *)0)->message];
    size_t n = copy_escaped(escaped, sizeof escaped, path, false);
    return n && strncmp(message, escaped, n) == 0 && message[n] == ':' && message[n + 1] == ' ' ? message + n + 2 : message;
}

const char *error_without_path(const char *message, const char *path)
{
    size_t n = strlen(path);
    const char *tail = n > ERROR_PATH_BYTES ? path + n - ERROR_PATH_BYTES : path;
    for (;;) {
        const char *rest = skip_path(skip_path(message, path), tail);
        if (rest == message)
            return rest;
        message = rest;
    }
}

int error_nomem(skua_error *err, const char *what, size_t size_bytes)
{
    return error_set(err, SKUA_ENOMEM, "out of memory: %s (%zu bytes)", what, size_bytes);
}

const char *skua_error_name(int code)
{
    switch (code) {
    case SKUA_OK: return "ok";
    case SKUA_ENOMEM: return "out of memory";
    case SKUA_EIO: return "input/output error";
    case SKUA_EFORMAT: return "malformed file";
    case SKUA_EUNSUPPORTED: return "not supported";
    case SKUA_EARG: return "bad argument";
    case SKUA_ELIMIT: return "limit reached";
    case SKUA_ETEMPLATE: return "chat template error";
    case SKUA_ECANCELED: return "canceled";
    case SKUA_ESTATE: return "wrong state";
    default: return "unknown error";
    }
}
