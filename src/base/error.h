/* Error helper: fills the public skua_error (include/skua.h). No file below src/cmd prints or exits. */
#ifndef SKUA_BASE_ERROR_H
#define SKUA_BASE_ERROR_H

#include <stdarg.h>

#include "skua.h"

/* Store code and a formatted message in *err (which may be NULL) and return code, so that callers can write
   `return error_set(err, SKUA_EFORMAT, "...")`. A message is one line, names the thing that is wrong, its value and
   what was expected. An already set error is overwritten. Control characters and malformed UTF-8, which names from files bring
   along, are escaped (utf8_escape). */
int error_set(skua_error *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put `prefix: ` in front of the message that err already holds (file names, command names). */
void error_prefix(skua_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The message without the path (or, for a long one, its last ERROR_PATH_BYTES bytes) that it begins with, once or several times. */
#define ERROR_PATH_BYTES 160
const char *error_without_path(const char *message, const char *path);

/* The usual out-of-memory error: "out of memory: WHAT (N bytes)". */
int error_nomem(skua_error *err, const char *what, size_t size_bytes);

#endif
