/* Strings and metadata values of a file, made fit for a terminal and for JSON. Nothing from a file reaches a terminal
 * unescaped: control characters (C0, DEL, C1), direction overrides and malformed UTF-8 become \n, \t, \xNN or \uNNNN. */
#ifndef SKUA_CMD_INSPECT_VALUE_H
#define SKUA_CMD_INSPECT_VALUE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "gguf/gguf.h"

void value_append_escaped(struct strbuf *out, const char *s, size_t n);  /* without quotes */
/* In double quotes; what exceeds max_bytes (0: no limit) is replaced by "... (N bytes)". */
void value_append_quoted(struct strbuf *out, const char *s, size_t n, size_t max_bytes);
void value_append_bytes(struct strbuf *out, uint64_t bytes);             /* "16.2 MiB", "512 B" */
/* A metadata value. Arrays are type and count, with the elements only if they are a few numbers, and long strings are cut, unless
   all is set. */
void value_append_text(struct strbuf *out, const struct gguf_value *v, bool all);

/* JSON string; malformed UTF-8 becomes U+FFFD. NULL when out of memory. */
json_t *value_json_string(const char *s, size_t n);
/* {"type", "value"} with "element_type" and "count" for arrays and "bytes" for strings. Integers beyond 2^63 - 1 and numbers that
   are not finite are strings. Without all, long arrays and those of strings have no value and long strings are cut (then "cut": true). */
json_t *value_json(const struct gguf_value *v, bool all);
/* Append a report to out, indented, with a line break behind it. Takes o. failed: a part of it is missing (no memory). 0 or SKUA_ENOMEM. */
int value_json_dump(json_t *o, bool failed, struct strbuf *out, skua_error *err);

#endif
