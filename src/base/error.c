/* Error helper; see error.h. The message buffer is part of the caller's skua_error, so setting an error never allocates. */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

int error_set(skua_error *err, int code, const char *fmt, ...)
{
    if (err) {
        char text[sizeof err->message]; /* arguments may point into err->message */
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
        err->code = code;
        memcpy(err->message, text, sizeof text);
    }
    return code;
}

void error_prefix(skua_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t used = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    if (snprintf(text + used, sizeof text - used, ": %s", err->message) >= 0) /* a message that is too long is cut */
        memcpy(err->message, text, sizeof text);
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
