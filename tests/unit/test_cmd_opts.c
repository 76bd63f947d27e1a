/* Option helpers: numbers, getopt messages, the search for the model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "cmd/opts.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static skua_error err;

static bool said(const char *message)
{
    if (strcmp(err.message, message) == 0)
        return true;
    printf("said:     %s\nexpected: %s\n", err.message, message);
    return false;
}

static void test_integers(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " 1", "1 ", "abc", "1.5", "0x10", "99999999999999999999", "-", "+", "1k", "101", "-6"};
    int64_t v = 77;
    CHECK(opt_i64("-n", "100", -5, 100, &v, &err) == 0 && v == 100);
    CHECK(opt_i64("-n", "-5", -5, 100, &v, &err) == 0 && v == -5);
    CHECK(opt_i64("-n", "+7", -5, 100, &v, &err) == 0 && v == 7);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(opt_i64("-n", bad[i], -5, 100, &v, &err) == SKUA_EARG && v == 7);
    CHECK(said("-n is '-6', expected an integer from -5 to 100"));
    CHECK(opt_i64("-n", "0", 1, INT64_MAX, &v, &err) == SKUA_EARG && said("-n is '0', expected an integer of at least 1"));
    CHECK(opt_i64("-n", "x", INT64_MIN, INT64_MAX, &v, &err) == SKUA_EARG && said("-n is 'x', expected an integer"));
    CHECK(opt_i64("-n", "-9223372036854775808", INT64_MIN, INT64_MAX, &v, &err) == 0 && v == INT64_MIN);
    CHECK(opt_i64("-n", "9223372036854775808", INT64_MIN, INT64_MAX, &v, &err) == SKUA_EARG);
    uint64_t u = 5;
    CHECK(opt_u64("--seed", "18446744073709551615", &u, &err) == 0 && u == UINT64_MAX);
    CHECK(opt_u64("--seed", "0", &u, &err) == 0 && u == 0);
    CHECK(opt_u64("--seed", "18446744073709551616", &u, &err) == SKUA_EARG && opt_u64("--seed", "", &u, &err) == SKUA_EARG);
    CHECK(opt_u64("--seed", "-1", &u, &err) == SKUA_EARG && u == 0);
    CHECK(said("--seed is '-1', expected an integer from 0 to 18446744073709551615"));
}

static void test_floats(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "nan", "inf", "-inf", "1e999", "0.7x", " 0.7", "2.0001", "-0.1", "one", "."};
    double v = 9;
    CHECK(opt_f64("--temp", "0.7", 0, 2, &v, &err) == 0 && v == 0.7);
    CHECK(opt_f64("--temp", "2", 0, 2, &v, &err) == 0 && v == 2);
    CHECK(opt_f64("--temp", ".5e-1", 0, 2, &v, &err) == 0 && v == 0.05);
    CHECK(opt_f64("--temp", "-0", 0, 2, &v, &err) == 0 && v == 0);
    v = 9;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(opt_f64("--temp", bad[i], 0, 2, &v, &err) == SKUA_EARG && v == 9);
    CHECK(said("--temp is '.', expected a number from 0 to 2"));
}

static void test_sizes(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "k", "-1k", "1kk", "1 k", "16kb", "1t", "9223372036854775807k", "0", "1.5k", "+k"};
    int64_t v = 9;
    CHECK(opt_size("-c", "4096", 1, INT64_MAX, &v, &err) == 0 && v == 4096);
    CHECK(opt_size("-c", "16k", 1, INT64_MAX, &v, &err) == 0 && v == 16384);
    CHECK(opt_size("-c", "3M", 1, INT64_MAX, &v, &err) == 0 && v == 3 << 20);
    CHECK(opt_size("-c", "2g", 1, INT64_MAX, &v, &err) == 0 && v == (int64_t)2 << 30);
    v = 9;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(opt_size("-c", bad[i], 1, INT64_MAX, &v, &err) == SKUA_EARG && v == 9);
    CHECK(opt_size("-c", "17k", 1, 16384, &v, &err) == SKUA_EARG);
    CHECK(said("-c is '17k', expected an integer from 1 to 16384, k, m or g allowed behind it"));
}

/* ---- getopt ---- */

static const struct option longs[] = {
    {"model", required_argument, NULL, 'm'}, {"temp", required_argument, NULL, 256}, {"top-k", required_argument, NULL, 257},
    {"json", no_argument, NULL, 258},        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0},
};

/* Run over the words of a line; the last result. */
static int parse(const char *line, int *n_options, int *operand)
{
    static char copy[256];
    static char *argv[16];
    int argc = 0, c;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    opts_begin();
    err.message[0] = '\0';
    for (*n_options = 0; (c = opts_next("run", argc, argv, "m:hv", longs, &err)) >= 0; ++*n_options)
        ;
    *operand = optind;
    return c;
}

static void test_getopt(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } bad[] = {
        {"run --foo", "unknown option --foo (see skua run --help)"},
        {"run --foo=3 x", "unknown option --foo (see skua run --help)"},
        {"run x --foo y", "unknown option --foo (see skua run --help)"},
        {"run -x", "unknown option -x (see skua run --help)"},
        {"run -hxv", "unknown option -x (see skua run --help)"},
        {"run -m", "option -m needs a value (see skua run --help)"},
        {"run -vm", "option -m needs a value (see skua run --help)"},
        {"run --temp", "option --temp needs a value (see skua run --help)"},
        {"run --model", "option --model needs a value (see skua run --help)"},
        {"run --json=1", "option --json takes no value (see skua run --help)"},
        {"run --help=1", "option --help takes no value (see skua run --help)"},
        {"run --t 1", "ambiguous option --t (see skua run --help)"},
    };
    int n, operand;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(parse(bad[i].line, &n, &operand) == OPTS_BAD && err.code == SKUA_EARG);
        CHECK(said(bad[i].message));
    }
    CHECK(parse("run -m a --temp=1 --json prompt", &n, &operand) == OPTS_END && n == 3 && operand == 5);
    CHECK(parse("run prompt -m a", &n, &operand) == OPTS_END && n == 1 && operand == 3);
    CHECK(parse("run -- --foo", &n, &operand) == OPTS_END && n == 0 && operand == 2);
    CHECK(parse("run", &n, &operand) == OPTS_END && n == 0 && operand == 1);
}

/* ---- the model ---- */

static void touch(const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

static bool finds(const char *given, const char *env, const char *dir, const char *want)
{
    char *path;
    int rc = opts_model_from(given, env, dir, &path, &err);
    bool ok = want ? rc == 0 && strcmp(path, want) == 0 : rc == SKUA_EARG && !path;
    if (!ok)
        printf("found %s, expected %s\n", path ? path : err.message, want ? want : "an error");
    mem_free(path);
    return ok;
}

static void test_model(void **state)
{
    (void)state;
    char root[] = "skua-test-XXXXXX", home[4096];
    assert_non_null(getcwd(home, sizeof home));
    assert_int_equal(chdir(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp"), 0);
    assert_non_null(mkdtemp(root));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(mkdir("bin", 0700) | mkdir("share", 0700) | mkdir("share/skua", 0700), 0);
    CHECK(finds("given.gguf", "env.gguf", "bin", "given.gguf"));
    CHECK(finds(NULL, "env.gguf", "bin", "env.gguf"));
    CHECK(finds(NULL, "", "bin", NULL));
    CHECK(said("no model: give -m MODEL or set SKUA_MODEL (tiny-q8_0.gguf is not in models, bin, bin/../models, "
               "bin/../share/skua)"));
    CHECK(finds(NULL, NULL, NULL, NULL));
    CHECK(said("no model: give -m MODEL or set SKUA_MODEL (tiny-q8_0.gguf is not in models)"));
    touch("share/skua/tiny-q8_0.gguf");
    CHECK(finds(NULL, NULL, "bin", "bin/../share/skua/tiny-q8_0.gguf"));
    assert_int_equal(mkdir("sub", 0700) | mkdir("sub/bin", 0700) | mkdir("sub/models", 0700), 0);
    touch("sub/models/tiny-q8_0.gguf");
    CHECK(finds(NULL, NULL, "sub/bin", "sub/bin/../models/tiny-q8_0.gguf"));
    touch("sub/bin/tiny-q8_0.gguf");
    CHECK(finds(NULL, NULL, "sub/bin", "sub/bin/tiny-q8_0.gguf"));
    assert_int_equal(mkdir("models", 0700), 0);
    touch("models/tiny-q8_0.gguf");
    CHECK(finds(NULL, NULL, "sub/bin", "models/tiny-q8_0.gguf"));
    int failed = 0;
    for (uint64_t n = 1;; n++) { /* memory short at every allocation: an error, nothing leaked, then the answer */
        char *path;
        fault_set_alloc(n, true);
        int rc = opts_model_from(NULL, NULL, "bin", &path, &err);
        fault_set_alloc(0, false);
        mem_free(path);
        if (!rc)
            break;
        CHECK(rc == SKUA_ENOMEM && !path);
        failed++;
    }
    CHECK(failed >= 2);
    setenv("SKUA_MODEL", "from-env.gguf", 1);
    char *path;
    CHECK(opts_model(NULL, &path, &err) == 0 && strcmp(path, "from-env.gguf") == 0);
    mem_free(path);
    unsetenv("SKUA_MODEL");
    CHECK(opts_model(NULL, &path, &err) == 0 && strcmp(path, "models/tiny-q8_0.gguf") == 0);
    mem_free(path);
    static const char *const made[] = {"models/tiny-q8_0.gguf", "models", "sub/bin/tiny-q8_0.gguf", "sub/models/tiny-q8_0.gguf",
                                       "sub/models", "sub/bin", "sub", "share/skua/tiny-q8_0.gguf", "share/skua", "share", "bin"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        assert_int_equal(remove(made[i]), 0);
    assert_int_equal(chdir(".."), 0);
    assert_int_equal(rmdir(root), 0);
    assert_int_equal(chdir(home), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers), cmocka_unit_test(test_floats), cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_getopt),   cmocka_unit_test(test_model),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
