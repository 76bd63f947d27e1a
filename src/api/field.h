/* Reading fields of a request's JSON. A reader leaves *out as it is when the field is absent or null, and says what is wrong otherwise: an
 * error of status 400 whose param is the JSON path, and whose message names the path, what is accepted and the value that came. */
#ifndef SKUA_API_FIELD_H
#define SKUA_API_FIELD_H

#include "api/api.h"

/* Where a value stands: links from the value to the body, made on the stack. NULL is the body itself. */
struct api_path {
    const struct api_path *up;
    const char *key; /* NULL: an item of an array */
    size_t index;
};
#define API_KEY(up_, key_) (&(struct api_path){(up_), (key_), 0})
#define API_ITEM(up_, i_) (&(struct api_path){(up_), NULL, (i_)})

/* "messages[3].content" into out; a long one is cut at its beginning. */
void api_path_text(const struct api_path *at, char out[160]);

/* Errors; all return -1. at: the value's own place. expected: "a number from 0 to 2". */
int api_fail_type(struct api_error *e, const struct api_path *at, const json_t *value, const char *expected);
int api_fail_value(struct api_error *e, const struct api_path *at, const json_t *value, const char *expected);
int api_fail_missing(struct api_error *e, const struct api_path *at, const char *expected);
int api_fail(struct api_error *e, const char *code, const struct api_path *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5))); /* the message is "PATH: ..." */
int api_fail_nomem(struct api_error *e);

/* The field, or NULL when it is absent or null. */
json_t *api_field(const json_t *object, const char *key);

/* Fields of an object that stands at `at`. */
int api_get_bool(const json_t *o, const struct api_path *at, const char *key, bool *out, struct api_error *e);
int api_get_int(const json_t *o, const struct api_path *at, const char *key, int64_t min, int64_t max, int64_t *out, struct api_error *e);
int api_get_int32(const json_t *o, const struct api_path *at, const char *key, int32_t min, int32_t max, int32_t *out,
                  struct api_error *e);
int api_get_number(const json_t *o, const struct api_path *at, const char *key, double min, double max, double *out, struct api_error *e);
int api_get_string(const json_t *o, const struct api_path *at, const char *key, const char **out, struct api_error *e); /* no zero bytes */
int api_get_object(const json_t *o, const struct api_path *at, const char *key, json_t **out, struct api_error *e);
int api_get_array(const json_t *o, const struct api_path *at, const char *key, json_t **out, struct api_error *e);
/* One of n names; *out gets its number. */
int api_get_choice(const json_t *o, const struct api_path *at, const char *key, const char *const *names, int n, int *out,
                   struct api_error *e);

bool api_is(const json_t *value, const char *text); /* a string of exactly this text */
/* "object", "list", ... with an article, for messages. */
const char *api_type_name(const json_t *v);

#endif
