/* JSON files of a checkpoint, and typed reading of their fields with messages that name file, field, value and what was expected. */
#ifndef SKUA_CONVERT_HF_JSON_H
#define SKUA_CONVERT_HF_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"

/* Read dir/name, an object. *out is the caller's (json_decref); NULL, with result 0, when the file is not there and not required. */
int hf_json_load(json_t **out, const char *dir, const char *name, bool required, skua_error *err);

/* A reader keeps the first failure in rc and does nothing after it. */
struct hf_reader {
    const char *path;       /* of the file, for messages */
    const json_t *objects[3]; /* where fields are looked up: the first that has one wins; NULL entries are skipped */
    int rc;
    skua_error *err;
};

/* The field, or NULL where it is absent or null. */
const json_t *hf_get(const struct hf_reader *r, const char *key);

/* Optional fields leave *out as it is when they are absent. */
void hf_read_int(struct hf_reader *r, const char *key, bool required, int64_t min, int64_t max, int32_t *out);
void hf_read_number(struct hf_reader *r, const char *key, bool required, double min, double max, double *out);
/* As hf_read_number for a float. */
void hf_read_float(struct hf_reader *r, const char *key, bool required, double min, double max, float *out);
void hf_read_bool(struct hf_reader *r, const char *key, bool *out);
/* NULL when absent. Valid as long as the JSON value. */
const char *hf_read_string(struct hf_reader *r, const char *key);
/* An array of integers; *n stays when absent, else is at most max_count. */
void hf_read_ints(struct hf_reader *r, const char *key, int64_t min, int64_t max, int32_t *items, int32_t max_count, int32_t *n);
/* A field that must have this value where it is given. */
void hf_require_bool(struct hf_reader *r, const char *key, bool expected);
/* The same for strings. */
void hf_require_string(struct hf_reader *r, const char *key, const char *expected);

/* SKUA_EFORMAT "PATH: 'KEY' is VALUE, expected ...". Returns the code. */
int hf_bad_field(struct hf_reader *r, const char *key, const json_t *value, const char *expected);

#endif
