/* Option helpers that all commands share: numbers with range checks, getopt_long with clear messages, finding the model.
   Messages do not name the command; opts_fail prints "skua COMMAND: MESSAGE". */
#ifndef SKUA_CMD_OPTS_H
#define SKUA_CMD_OPTS_H

#include <getopt.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { OPTS_OK = 0, OPTS_FAILED = 1, OPTS_USAGE = 2 }; /* exit statuses of every command */

/* Parse the whole of value; flag ("--temp") is for the message only. 0, or SKUA_EARG naming flag, value and what was expected;
   *out changes only on success. */
int opt_i64(const char *flag, const char *value, int64_t min, int64_t max, int64_t *out, skua_error *err);
int opt_u64(const char *flag, const char *value, uint64_t *out, skua_error *err);
int opt_f64(const char *flag, const char *value, double min, double max, double *out, skua_error *err);
/* An integer with an optional suffix k, m or g (either case; times 1024, 1024^2, 1024^3): "4096", "16k". */
int opt_size(const char *flag, const char *value, int64_t min, int64_t max, int64_t *out, skua_error *err);

/* getopt_long that explains its errors. opts_begin before the first call; then opts_next returns the option's val, OPTS_END when
   no option is left (optind is at the first operand), or OPTS_BAD with *err filled. shorts as for getopt, without the leading
   colon; longs ends with a zeroed entry, and every val is positive. */
enum { OPTS_END = -1, OPTS_BAD = -2 };
void opts_begin(void);
int  opts_next(const char *command, int argc, char **argv, const char *shorts, const struct option *longs, skua_error *err);

/* Print one line, "skua COMMAND: MESSAGE", to standard error and return status. */
int opts_fail(const char *command, int status, const skua_error *err);

/* Print one line, "skua COMMAND: warning: ...", to standard error; control characters are escaped. */
void opts_warn(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The model file: given (the value of -m) if not NULL, else the environment's SKUA_MODEL, else the shipped tiny-q8_0.gguf,
   searched in ./models, beside the program, in ../models from there, and in ../share/skua. *path is the caller's (mem_free).
   SKUA_EARG lists the places when none has it; SKUA_ENOMEM. Whether a given file exists is for the loader to say. */
int opts_model(const char *given, char **path, skua_error *err);
/* The same with the environment's value (may be NULL) and the program's folder (NULL = unknown) as arguments. */
int opts_model_from(const char *given, const char *env, const char *program_dir, char **path, skua_error *err);

#endif
