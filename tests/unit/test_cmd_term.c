/* Safe printing: nothing that a terminal obeys gets through, however the bytes are cut; and the progress line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "cmd/term.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static void check_filter(const char *in, size_t n, const char *want, size_t n_want)
{
    for (size_t cut = 0; cut <= n; cut++) {
        struct term_filter f = {.n_pending = 0};
        struct strbuf out = {0};
        term_filter_push(&f, in, cut, &out);
        term_filter_push(&f, in + cut, n - cut, &out);
        term_filter_finish(&f, &out);
        CHECK(out.len == n_want && memcmp(strbuf_str(&out), want, n_want) == 0);
        strbuf_free(&out);
    }
}

static void test_filter(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain\ttext\n", "plain\ttext\n"},
        {"\033[31mred\033]0;title\007", "^[[31mred^[]0;title^G"},
        {"a\rb\bc\x7f", "a^Mb^Hc^?"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa6", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\xa6"},
        {"\xc2\x9b" "31m", "\\x9b31m"},           /* CSI as a C1 character */
        {"\x9b" "31m", "\xef\xbf\xbd" "31m"},     /* and as a raw byte */
        {"\xc2\x80\xc2\x9f\xc2\xa0", "\\x80\\x9f\xc2\xa0"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"}, /* cut at the end */
        {"\xe2\x82z", "\xef\xbf\xbd\xef\xbf\xbdz"},
        {"\xf0\x9f\x90\033", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd^["},
        {"\xc1\x9b", "\xef\xbf\xbd\xef\xbf\xbd"}, /* overlong */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_filter(cases[i].in, strlen(cases[i].in), cases[i].out, strlen(cases[i].out));
    check_filter("\0", 1, "^@", 2);
}

static void test_random(void **state)
{
    (void)state;
    static const char pool[] = "a\033[\xc2\x9b\xe2\x82\xac\xf0\x9f\x90\xa6\r\x80\xff\n";
    uint64_t rng = 3;
    for (int trial = 0; trial < 3000; trial++) {
        char text[20];
        size_t n = rng_next(&rng) % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = pool[rng_next(&rng) % sizeof pool];
        struct term_filter f = {.n_pending = 0};
        struct strbuf whole = {0};
        term_filter_push(&f, text, n, &whole);
        term_filter_finish(&f, &whole);
        for (size_t i = 0; i < whole.len;) {
            uint32_t cp;
            int len = utf8_decode(whole.data + i, whole.len - i, &cp);
            CHECK(len > 0 && cp != 0x7F && (cp >= 0x20 || cp == '\n' || cp == '\t') && !(cp >= 0x80 && cp < 0xA0));
            i += (size_t)len;
        }
        check_filter(text, n, strbuf_str(&whole), whole.len);
        strbuf_free(&whole);
    }
}

static void test_printer(void **state)
{
    (void)state;
    for (int filtered = 0; filtered < 2; filtered++) {
        char *data = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&data, &size);
        struct term_printer p;
        assert_non_null(f);
        term_printer_init(&p, f, filtered);
        CHECK(term_print(&p, "x\033\xe2\x82", 4) && term_print(&p, "\xac\xe2", 2) && term_print_end(&p));
        fclose(f);
        CHECK(strcmp(data, filtered ? "x^[\xe2\x82\xac\xef\xbf\xbd" : "x\033\xe2\x82\xac\xe2") == 0);
        free(data);
    }
    struct term_printer p;
    FILE *unwritable = fopen("/dev/null", "r"); /* not /dev/full, which not every machine has */
    assert_non_null(unwritable);
    term_printer_init(&p, unwritable, false);
    CHECK(!term_print(&p, "x", 1));
    term_print_end(&p);
    fclose(unwritable);
    FILE *null = fopen("/dev/null", "w");
    assert_non_null(null);
    term_printer_init(&p, null, true);
    fault_set_alloc(1, true);
    CHECK(!term_print(&p, "x", 1));
    fault_set_alloc(0, false);
    CHECK(term_print_end(&p));
    fclose(null);
}

static void test_progress(void **state)
{
    (void)state;
    struct progress p = {.label = "loading", .total = 200, .width = 36};
    char line[256];
    progress_format(&p, 0, line, sizeof line);
    CHECK(strcmp(line, "loading [....................]   0%") == 0);
    progress_format(&p, 100, line, sizeof line);
    CHECK(strcmp(line, "loading [##########..........]  50%") == 0);
    progress_format(&p, 999, line, sizeof line);
    CHECK(strcmp(line, "loading [####################] 100%") == 0);
    for (p.width = 1; p.width < 300; p.width++) {
        progress_format(&p, 77, line, sizeof line);
        CHECK(strlen(line) < (size_t)(p.width > 10 ? p.width : 10) && strstr(line, "38%"));
    }
    p.total = 0;
    progress_format(&p, 0, line, sizeof line);
    CHECK(strstr(line, "100%"));
    CHECK(!strcmp(term_dim_on(false), "") && !strcmp(term_dim_off(false), "") && *term_dim_on(true) == '\033');
    struct term t;
    setenv("TERM", "dumb", 1);
    term_probe(&t);
    CHECK(t.dumb && !t.out_colour && !t.err_colour && t.width > 0);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    term_probe(&t);
    CHECK(!t.dumb && !t.out_colour && !t.err_colour);
    unsetenv("NO_COLOR");
    term_probe(&t);
    CHECK(t.out_colour == t.out_tty && t.err_colour == t.err_tty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_printer),
        cmocka_unit_test(test_progress),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
