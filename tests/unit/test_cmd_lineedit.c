/* Line editing: the plain reader on a file as standard input, and the editor in a child process on a pseudo-terminal. */
#ifdef __APPLE__
#include <util.h>
#else
#include <pty.h>
#endif
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/lineedit.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static char folder[4096];

/* ---- plain ---- */

static void feed_stdin(const char *bytes, size_t n)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/input", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    assert_non_null(freopen(path, "rb", stdin));
    unlink(path);
}

static void check_lines(const char *bytes, size_t n, const char *const *want)
{
    struct lineedit *le;
    struct strbuf line = {0};
    feed_stdin(bytes, n);
    CHECK(lineedit_open(&le, NULL) == 0);
    for (; *want; want++)
        CHECK(lineedit_read(le, "> ", &line, NULL) == 1 && strcmp(strbuf_str(&line), *want) == 0);
    CHECK(lineedit_read(le, "> ", &line, NULL) == 0);
    CHECK(lineedit_read(le, "> ", &line, NULL) == 0);
    lineedit_close(le);
    strbuf_free(&line);
}

static void test_plain(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        const char *out[5];
    } cases[] = {
        {"", {NULL}},
        {"\n", {"", NULL}},
        {"a\nb", {"a", "b", NULL}},
        {"a\n\n b \n", {"a", "", " b ", NULL}},
        {"one\\\ntwo\\\n\nx", {"one\ntwo\n", "x", NULL}},
        {"two\\\\\nx\\\\\\\ny\n", {"two\\\\", "x\\\\\ny", NULL}},
        {"cut\\", {"cut", NULL}},
        {"cut\\\n", {"cut", NULL}},
        {"\\\n", {"", NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_lines(cases[i].in, strlen(cases[i].in), cases[i].out);
    skua_error err;
    struct lineedit *le;
    struct strbuf line = {0};
    size_t n = LINEEDIT_MAX_BYTES + 10;
    char *big = malloc(n);
    memset(big, 'x', n);
    feed_stdin(big, n);
    free(big);
    CHECK(lineedit_open(&le, &err) == 0 && lineedit_read(le, "", &line, &err) == SKUA_ELIMIT);
    CHECK(strcmp(err.message, "the input line is longer than the limit of 1048576 bytes") == 0);
    lineedit_close(le);
    strbuf_free(&line);
    feed_stdin("text\n", 5);
    fault_set_alloc(1, true);
    CHECK(lineedit_open(&le, &err) == SKUA_ENOMEM && !le);
    fault_set_alloc(0, false);
    CHECK(lineedit_open(&le, &err) == 0);
    fault_set_alloc(1, true);
    CHECK(lineedit_read(le, "", &line, &err) == SKUA_ENOMEM);
    fault_set_alloc(0, false);
    lineedit_close(le);
    strbuf_free(&line);
}

/* ---- on a terminal ---- */

static void child_main(void)
{
    struct lineedit *le;
    struct strbuf line = {0};
    setenv("TERM", "dumb", 1);
    setenv("HOME", folder, 1);
    setenv("XDG_STATE_HOME", folder, 1);
    freopen("/dev/tty", "r", stdin);
    if (lineedit_open(&le, NULL) != 0)
        _exit(9);
    int rc;
    while ((rc = lineedit_read(le, "ask: ", &line, NULL)) == 1) {
        printf("GOT[%s]\n", strbuf_str(&line));
        fflush(stdout);
    }
    lineedit_close(le);
    strbuf_free(&line);
    printf("END %d\n", rc);
    fflush(stdout);
    _exit(0);
}

/* Read from the terminal until text appears (after the last found one); false after 20 s. */
static bool expect(int fd, struct strbuf *seen, const char *text)
{
    for (uint64_t end = clock_ns() + 20000000000u; clock_ns() < end;) {
        const char *at = seen->len ? strstr(seen->data, text) : NULL;
        if (at) {
            size_t used = (size_t)(at - seen->data) + strlen(text);
            memmove(seen->data, seen->data + used, seen->len - used + 1);
            seen->len -= used;
            return true;
        }
        char buf[512];
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = poll(&p, 1, 100) > 0 ? read(fd, buf, sizeof buf) : 0;
        if (n < 0)
            break; /* the other side is closed */
        strbuf_append(seen, buf, (size_t)n);
    }
    printf("waited for '%s', got '%s'\n", text, strbuf_str(seen));
    return false;
}

static void dialogue(const char *const (*steps)[2], size_t n)
{
    int fd, status = -1;
    struct strbuf seen = {0};
    fflush(stdout);
    pid_t pid = forkpty(&fd, NULL, NULL, NULL);
    assert_true(pid >= 0);
    if (pid == 0)
        child_main();
    for (size_t i = 0; i < n; i++) { /* wait, then type */
        CHECK(expect(fd, &seen, steps[i][0]));
        CHECK(write(fd, steps[i][1], strlen(steps[i][1])) == (ssize_t)strlen(steps[i][1]));
    }
    CHECK(expect(fd, &seen, "END 0"));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(fd);
    strbuf_free(&seen);
}

static void test_terminal(void **state)
{
    (void)state;
    static const char *const first[][2] = {
        {"ask: ", "hello\r"},
        {"GOT[hello]", ""},
        {"ask: ", "dropped\x03"},
        {"^C", ""},
        {"ask: ", "gr\xc3\xbc\xc3\x9f\x7f\xc3\x9f\r"}, /* one backspace takes one character of two bytes */
        {"GOT[gr\xc3\xbc\xc3\x9f]", ""},
        {"ask: ", "one\\\r"},
        {"... ", "two\r"},
        {"GOT[one\r\ntwo]", ""},
        {"ask: ", "half\\\r"},
        {"... ", "other half\x03"},
        {"^C", ""},
        {"ask: ", "last\r"},
        {"GOT[last]", ""},
        {"ask: ", "\x04"},
    };
    static const char *const second[][2] = {
        {"ask: ", "\x10\x10\x10\r"}, /* three lines back, from the file */
        {"GOT[gr\xc3\xbc\xc3\x9f]", ""},
        {"ask: ", "\x04"},
    };
    struct stat st;
    char path[4300];
    dialogue(first, sizeof first / sizeof *first);
    snprintf(path, sizeof path, "%s/skua/history", folder);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size > 20);
    dialogue(second, sizeof second / sizeof *second);
    unlink(path);
    snprintf(path, sizeof path, "%s/skua", folder);
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_terminal),
    };
    snprintf(folder, sizeof folder, "%s/skua-lineedit-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
