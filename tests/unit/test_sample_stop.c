/* Stop strings against a plain search over the whole text, with the stream cut in every way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sample/stop.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

struct expect {
    size_t len; /* of the output */
    int found;
};

/* The stop string whose end comes first, of several the longest. */
static struct expect plain_search(const char *text, size_t n, const char *const *strings, const size_t *lens, size_t count)
{
    for (size_t end = 1; end <= n; end++) {
        struct expect e = {0, -1};
        for (size_t k = 0; k < count; k++)
            if (lens[k] <= end && memcmp(text + end - lens[k], strings[k], lens[k]) == 0 &&
                (e.found < 0 || lens[k] > lens[e.found]))
                e = (struct expect){end - lens[k], (int)k};
        if (e.found >= 0)
            return e;
    }
    return (struct expect){n, -1};
}

/* The longest end of the n bytes that begins a stop string. */
static size_t plain_held(const char *text, size_t n, const char *const *strings, const size_t *lens, size_t count)
{
    for (size_t h = n; h > 0; h--)
        for (size_t k = 0; k < count; k++)
            if (h < lens[k] && memcmp(text + n - h, strings[k], h) == 0)
                return h;
    return 0;
}

/* Feed text in pieces (piece(i) = bytes from position i) and compare everything. */
static void check_cut(struct stop_matcher *m, const char *text, size_t n, const char *const *strings, const size_t *lens,
                      size_t count, size_t cut_a, size_t cut_b)
{
    struct expect e = plain_search(text, n, strings, lens, count);
    struct strbuf out = {0};
    size_t at = 0;
    stop_reset(m);
    while (at < n) {
        size_t next = at < cut_a ? cut_a : at < cut_b ? cut_b : n;
        int rc = stop_push(m, text + at, next - at, &out, NULL);
        size_t stop_end = e.found >= 0 ? e.len + lens[e.found] : SIZE_MAX;
        CHECK(rc == (next >= stop_end));
        if (!rc) {
            size_t held = plain_held(text, next, strings, lens, count);
            CHECK(stop_held(m) == held && out.len == next - held);
        }
        at = next;
    }
    CHECK(stop_finish(m, &out, NULL) == 0);
    CHECK(stop_held(m) == 0 && m->found == e.found);
    CHECK(out.len == e.len && memcmp(strbuf_str(&out), text, e.len) == 0);
    strbuf_free(&out);
}

static void check_text(const char *text, size_t n, const char *const *strings, const size_t *lens, size_t count)
{
    struct stop_matcher m;
    assert_int_equal(stop_init(&m, strings, lens, count, NULL), 0);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b++)
            check_cut(&m, text, n, strings, lens, count, a, b);
    stop_free(&m);
}

static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stops[3];
    } cases[] = {
        {"hello STOP world", {"STOP"}},
        {"hello STO world", {"STOP"}},
        {"hello STO", {"STOP"}},
        {"ababac", {"abac"}},
        {"aaaaab", {"aaab"}},
        {"aabaaabaaac", {"aabaaac"}}, /* falls back to a border of a border */
        {"xabcd", {"abc", "xabcd"}},   /* abc ends first */
        {"xabcd", {"cd", "abcd", "d"}}, /* all end together: the longest */
        {"abcabcabd", {"abcabd", "zz"}},
        {"line\n\nUser: x", {"\nUser:", "\n\n\n"}},
        {"", {"x"}},
        {"x", {"x"}},
        {"anything", {NULL}},
        {"gr\xc3\xbc\xc3\x9f dich", {"\xc3\x9f"}},
        {"xx\xc3", {"\xc3\x9f"}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t lens[3], count = 0;
        while (count < 3 && cases[c].stops[count]) {
            lens[count] = strlen(cases[c].stops[count]);
            count++;
        }
        check_text(cases[c].text, strlen(cases[c].text), cases[c].stops, lens, count);
    }
    static const char *const zero = "a\0b";
    const size_t three = 3;
    check_text("xa\0by", 5, &zero, &three, 1);
}

static void test_random(void **state)
{
    (void)state;
    uint64_t rng = 1;
    int stopped = 0;
    for (int trial = 0; trial < 4000; trial++) {
        char text[24], pool[STOP_MAX_STRINGS][8];
        const char *strings[STOP_MAX_STRINGS];
        size_t lens[STOP_MAX_STRINGS], n = rng_next(&rng) % 24, count = rng_next(&rng) % 5;
        unsigned letters = 2 + (unsigned)(rng_next(&rng) % 2);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + rng_next(&rng) % letters);
        for (size_t k = 0; k < count; k++) {
            lens[k] = 1 + rng_next(&rng) % 8;
            for (size_t i = 0; i < lens[k]; i++)
                pool[k][i] = (char)('a' + rng_next(&rng) % letters);
            strings[k] = pool[k];
        }
        for (size_t at = 0; count && trial & 1 && at < n;) { /* text made of beginnings of the stop strings */
            size_t k = rng_next(&rng) % count, part = 1 + rng_next(&rng) % lens[k];
            for (size_t i = 0; i < part && at < n; i++)
                text[at++] = pool[k][i];
        }
        stopped += plain_search(text, n, strings, lens, count).found >= 0;
        check_text(text, n, strings, lens, count);
    }
    CHECK(stopped > 500 && stopped < 3900);
}

static void test_limits(void **state)
{
    (void)state;
    static char big[STOP_MAX_BYTES + 1];
    const char *strings[STOP_MAX_STRINGS + 1];
    size_t lens[STOP_MAX_STRINGS + 1];
    struct stop_matcher m;
    skua_error err;
    memset(big, 'a', sizeof big);
    for (int k = 0; k <= STOP_MAX_STRINGS; k++) {
        strings[k] = big;
        lens[k] = STOP_MAX_BYTES;
    }
    CHECK(stop_init(&m, strings, lens, STOP_MAX_STRINGS + 1, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "17 stop strings, expected at most 16") == 0);
    CHECK(stop_init(&m, strings, lens, STOP_MAX_STRINGS, &err) == 0);
    struct strbuf out = {0};
    CHECK(stop_push(&m, big, STOP_MAX_BYTES - 1, &out, &err) == 0 && stop_held(&m) == STOP_MAX_BYTES - 1 && out.len == 0);
    CHECK(stop_push(&m, "b", 1, &out, &err) == 0 && stop_held(&m) == 0 && out.len == STOP_MAX_BYTES);
    CHECK(stop_push(&m, big, STOP_MAX_BYTES, &out, &err) == 1 && out.len == STOP_MAX_BYTES);
    CHECK(stop_push(&m, "more", 4, &out, &err) == 1 && out.len == STOP_MAX_BYTES);
    stop_free(&m);
    strbuf_free(&out);
    lens[1] = 0;
    CHECK(stop_init(&m, strings, lens, 2, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "stop string 1 is 0 bytes long, expected 1 to 1024") == 0);
    lens[1] = STOP_MAX_BYTES + 1;
    CHECK(stop_init(&m, strings, lens, 2, &err) == SKUA_EARG);
    stop_free(&m);
}

static void test_allocation_failures(void **state)
{
    (void)state;
    const char *s = "stop";
    const size_t len = 4;
    struct stop_matcher m;
    struct strbuf out = {0};
    fault_set_alloc(1, true);
    CHECK(stop_init(&m, &s, &len, 1, NULL) == SKUA_ENOMEM);
    stop_free(&m);
    CHECK(stop_init(&m, &s, &len, 1, NULL) == 0);
    fault_set_alloc(1, true);
    CHECK(stop_push(&m, "xxst", 4, &out, NULL) == SKUA_ENOMEM && stop_held(&m) == 0);
    strbuf_clear(&out);
    CHECK(stop_push(&m, "xxst", 4, &out, NULL) == 0 && out.len == 2);
    strbuf_free(&out);
    fault_set_alloc(1, true);
    CHECK(stop_finish(&m, &out, NULL) == SKUA_ENOMEM && stop_held(&m) == 2);
    fault_set_alloc(0, false);
    strbuf_clear(&out);
    CHECK(stop_finish(&m, &out, NULL) == 0 && strcmp(strbuf_str(&out), "st") == 0);
    strbuf_free(&out);
    stop_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_allocation_failures),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
