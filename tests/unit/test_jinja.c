/* The chat-template interpreter against jinja2: replays the corpus of tests/golden/jinja (expectations written by
 * tools/jinja_oracle.py), or the files named on the command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "jinja/chat.h"
#include "jinja/jinja.h"

static unsigned long checks, failures;
static const char *const *files;
static int nfiles;

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Failures whose text is the template author's or jinja2's own: the message must be the same, not only the line. */
static bool exact_message(const char *kind)
{
    return !strcmp(kind, "TemplateError") || !strcmp(kind, "UndefinedError") || !strcmp(kind, "SecurityError") ||
           !strcmp(kind, "TemplateSyntaxError") || !strcmp(kind, "TemplateAssertionError") || !strcmp(kind, "TemplateRuntimeError");
}

static void complain(const char *file, const json_t *c, const char *got)
{
    failures++;
    char *wanted = json_dumps(json_object_get(c, json_object_get(c, "error") ? "error" : "expected"), JSON_ENCODE_ANY);
    char *context = json_dumps(json_object_get(c, "context"), 0);
    if (failures <= 20)
        print_error("%s: %s\n  template: %.500s\n  context:  %.300s\n  wanted:   %.2000s\n  got:      %.2000s\n", file, text_of(c, "name"),
                    text_of(c, "template"), context, wanted, got);
    free(wanted);
    free(context);
}

static void check_error(const char *file, const json_t *c, const skua_error *err)
{
    const json_t *error = json_object_get(c, "error"), *line = json_object_get(error, "line");
    unsigned got = 0;
    int n = 0;
    if (err->code != SKUA_ETEMPLATE || sscanf(err->message, "chat template: line %u, column %*u: %n", &got, &n) != 1 || !n) {
        complain(file, c, err->message);
        return;
    }
    char wanted[600];
    snprintf(wanted, sizeof wanted, "%.420s", text_of(error, "message"));
    for (char *p = wanted; *p; p++)
        *p = (unsigned char)*p < 0x20 ? ' ' : *p;
    bool same_line = !json_is_integer(line) || json_integer_value(line) == (json_int_t)got;
    if (!same_line || (exact_message(text_of(error, "kind")) && strcmp(err->message + n, wanted)))
        complain(file, c, err->message);
}

static void check_case(const char *file, const json_t *c)
{
    const char *template = text_of(c, "template");
    size_t length = json_string_length(json_object_get(c, "template"));
    struct jinja_render_options opts = {.time = 1700000000};
    struct jinja_template *t;
    struct strbuf out = {0};
    skua_error err = {0};
    if (json_object_get(c, "time"))
        opts.time = json_integer_value(json_object_get(c, "time"));
    int code = jinja_compile(template, length, NULL, &t, &err);
    if (!code)
        code = jinja_render(t, json_object_get(c, "context"), &opts, &out, &err);
    checks++;
    if (json_object_get(c, "error"))
        code ? check_error(file, c, &err) : complain(file, c, strbuf_str(&out));
    else if (code || out.len != json_string_length(json_object_get(c, "expected")) ||
             memcmp(strbuf_str(&out), text_of(c, "expected"), out.len))
        complain(file, c, code ? err.message : strbuf_str(&out));
    strbuf_free(&out);
    jinja_free(t);
}

/* {"use": name} stands for a value that several cases share. */
static json_t *value_of(json_t *values, json_t *v)
{
    json_t *name = json_object_size(v) == 1 ? json_object_get(v, "use") : NULL;
    return name ? json_object_get(values, json_string_value(name)) : v;
}

static void check_file(const char *path)
{
    json_error_t e;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &e), *c, *values = json_object_get(file, "values");
    size_t i;
    if (!file)
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    json_array_foreach(json_object_get(file, "cases"), i, c) {
        json_t *context = json_object_get(c, "context"), *v;
        const char *key;
        void *next;
        json_object_set(c, "template", value_of(values, json_object_get(c, "template")));
        json_object_foreach_safe(context, next, key, v)
            json_object_set(context, key, value_of(values, v));
        check_case(path, c);
    }
    json_decref(file);
}

static void test_corpus(void **state)
{
    (void)state;
    unsigned long before = checks;
    failures = 0;
    for (int i = 0; i < nfiles; i++)
        check_file(files[i]);
    DIR *d = nfiles ? NULL : opendir("tests/golden/jinja");
    if (!nfiles && !d)
        fail_msg("tests/golden/jinja cannot be opened (run from the project's root)");
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char path[512];
        size_t n = strlen(entry->d_name);
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json"))
            continue;
        snprintf(path, sizeof path, "tests/golden/jinja/%s", entry->d_name);
        check_file(path);
    }
    if (d)
        closedir(d);
    print_message("%lu cases, %lu differ\n", checks - before, failures);
    assert_true(checks > before);
    assert_int_equal(failures, 0);
}

int main(int argc, char **argv)
{
    files = (const char *const *)argv + 1;
    nfiles = argc - 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpus)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("test_jinja: %lu checks\n", checks);
    return failed || !checks;
}
