/* Option helpers; see opts.h. */
#include "cmd/opts.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "base/mem.h"
#include "base/strbuf.h"

#define SHIPPED_MODEL "tiny-q8_0.gguf"

/* ---- numbers ---- */

static bool starts_number(const char *s) { return *s && strchr("+-.0123456789", *s) != NULL; } /* strtol skips spaces */

static int bad_integer(const char *flag, const char *value, int64_t min, int64_t max, const char *suffix, skua_error *err)
{
    if (max == INT64_MAX && min == INT64_MIN)
        return error_set(err, SKUA_EARG, "%s is '%s', expected an integer%s", flag, value, suffix);
    if (max == INT64_MAX)
        return error_set(err, SKUA_EARG, "%s is '%s', expected an integer of at least %" PRId64 "%s", flag, value, min, suffix);
    return error_set(err, SKUA_EARG, "%s is '%s', expected an integer from %" PRId64 " to %" PRId64 "%s", flag, value, min, max,
                     suffix);
}

int opt_i64(const char *flag, const char *value, int64_t min, int64_t max, int64_t *out, skua_error *err)
{
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (!starts_number(value) || *end || errno || v < min || v > max)
        return bad_integer(flag, value, min, max, "", err);
    *out = v;
    return 0;
}

int opt_u64(const char *flag, const char *value, uint64_t *out, skua_error *err)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (!starts_number(value) || *value == '-' || *end || errno) /* strtoull would negate */
        return error_set(err, SKUA_EARG, "%s is '%s', expected an integer from 0 to %" PRIu64, flag, value, UINT64_MAX);
    *out = v;
    return 0;
}

int opt_f64(const char *flag, const char *value, double min, double max, double *out, skua_error *err)
{
    char *end;
    double v = strtod(value, &end);
    if (!starts_number(value) || *end || !(v >= min && v <= max))
        return error_set(err, SKUA_EARG, "%s is '%s', expected a number from %.9g to %.9g", flag, value, min, max);
    *out = v;
    return 0;
}

int opt_size(const char *flag, const char *value, int64_t min, int64_t max, int64_t *out, skua_error *err)
{
    static const char suffixes[] = "kmgKMG";
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    bool bad = !starts_number(value) || end == value || errno;
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    int64_t scaled = v;
    if (suffix) {
        bad = bad || __builtin_mul_overflow(scaled, (int64_t)1 << (10 * ((suffix - suffixes) % 3 + 1)), &scaled);
        end++;
    }
    if (bad || *end || scaled < min || scaled > max)
        return bad_integer(flag, value, min, max, ", k, m or g allowed behind it", err);
    *out = scaled;
    return 0;
}

/* ---- getopt ---- */

void opts_begin(void)
{
    opterr = 0;
#ifdef __APPLE__
    optreset = 1;
    optind = 1;
#else
    optind = 0; /* glibc and musl: start anew, dropping the position inside a cluster of short options */
#endif
}

static int count_prefixed(const struct option *longs, const char *name, size_t len)
{
    int n = 0;
    for (; longs->name; longs++)
        n += strncmp(longs->name, name, len) == 0;
    return n;
}

int opts_next(const char *command, int argc, char **argv, const char *shorts, const struct option *longs, skua_error *err)
{
    char spec[128];
    snprintf(spec, sizeof spec, ":%s", shorts); /* ':' tells a missing value from an unknown option */
    int c = getopt_long(argc, argv, spec, longs, NULL);
    if (c == -1)
        return OPTS_END;
    if (c != '?' && c != ':')
        return c;
    const char *arg = argv[optind - 1];
    bool is_long = strncmp(arg, "--", 2) == 0;
    int len = (int)strcspn(arg, "=");
    char letter[3] = {'-', (char)optopt, '\0'};
    if (c == ':')
        error_set(err, SKUA_EARG, "option %s needs a value (see skua %s --help)", is_long ? arg : letter, command);
    else if (is_long && optopt)
        error_set(err, SKUA_EARG, "option %.*s takes no value (see skua %s --help)", len, arg, command);
    else if (is_long || !optopt)
        error_set(err, SKUA_EARG, "%s option %.*s (see skua %s --help)",
                  is_long && count_prefixed(longs, arg + 2, (size_t)len - 2) > 1 ? "ambiguous" : "unknown", len, arg, command);
    else
        error_set(err, SKUA_EARG, "unknown option %s (see skua %s --help)", letter, command);
    return OPTS_BAD;
}

int opts_fail(const char *command, int status, const skua_error *err)
{
    fprintf(stderr, "skua %s: %s\n", command, err->message);
    return status;
}

void opts_warn(const char *command, const char *fmt, ...)
{
    char text[sizeof ((skua_error *)0)->message];
    skua_error line;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    error_set(&line, SKUA_OK, "%s", text); /* escapes */
    fprintf(stderr, "skua %s: warning: %s\n", command, line.message);
}

/* ---- the model ---- */

int opts_model_from(const char *given, const char *env, const char *program_dir, char **path, skua_error *err)
{
    static const char *const beside[] = {"", "/../models", "/../share/skua"};
    const char *chosen = given ? given : env && *env ? env : NULL;
    struct strbuf place = {0}, tried = {0};
    *path = NULL;
    if (chosen) {
        *path = mem_strdup(chosen);
        return *path ? 0 : error_nomem(err, "model path", strlen(chosen));
    }
    strbuf_puts(&place, "models");
    for (size_t i = 0;; i++) {
        strbuf_printf(&tried, "%s%s", i ? ", " : "", strbuf_str(&place));
        strbuf_puts(&place, "/" SHIPPED_MODEL);
        if (strbuf_failed(&place) || strbuf_failed(&tried))
            break;
        if (access(place.data, R_OK) == 0) {
            *path = strbuf_take(&place, NULL);
            break;
        }
        if (!program_dir || i == sizeof beside / sizeof *beside)
            break;
        strbuf_clear(&place);
        strbuf_printf(&place, "%s%s", program_dir, beside[i]);
    }
    int rc = 0;
    if (strbuf_failed(&place) || strbuf_failed(&tried))
        rc = error_nomem(err, "model path", place.len);
    else if (!*path)
        rc = error_set(err, SKUA_EARG, "no model: give -m MODEL or set SKUA_MODEL (" SHIPPED_MODEL " is not in %s)",
                       strbuf_str(&tried));
    strbuf_free(&place);
    strbuf_free(&tried);
    return rc;
}

/* The folder of the running program in dir, or false. */
static bool program_folder(char *dir, size_t size)
{
#ifdef __APPLE__
    uint32_t room = (uint32_t)size;
    if (_NSGetExecutablePath(dir, &room) != 0)
        return false;
#else
    ssize_t n = readlink("/proc/self/exe", dir, size - 1);
    if (n <= 0 || (size_t)n >= size - 1)
        return false;
    dir[n] = '\0';
#endif
    char *slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return false;
    *slash = '\0';
    return true;
}

int opts_model(const char *given, char **path, skua_error *err)
{
    char dir[4096];
    return opts_model_from(given, getenv("SKUA_MODEL"), program_folder(dir, sizeof dir) ? dir : NULL, path, err);
}
