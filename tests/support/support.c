/* Test support; see support.h. */
#include "support/support.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

long support_checks, support_failures, support_skipped;

bool support_check(bool ok, const char *file, int line, const char *fmt, ...)
{
    support_checks++;
    if (ok)
        return true;
    if (support_failures++ < 20) {
        va_list ap;
        va_start(ap, fmt);
        printf("%s:%d: ", file, line);
        vprintf(fmt, ap);
        putchar('\n');
        va_end(ap);
    }
    return false;
}

const char *support_shared(const char *name)
{
    static char path[4][4096];
    static int turn;
    const char *root = getenv("SKUA_SHARED");
    char *p = path[turn++ & 3];
    snprintf(p, sizeof path[0], "%s/%s", root ? root : "../shared", name);
    if (access(p, R_OK) == 0)
        return p;
    printf("skipped: %s is not there\n", p);
    support_skipped++;
    return NULL;
}

const char *support_model(const char *name)
{
    static char path[4][4096];
    static int turn;
    char *p = path[turn++ & 3];
    const char *root = getenv("SKUA_SHARED");
    const char *places[] = {"models", "tests/data", NULL};
    for (int i = 0; i < 3; i++) {
        if (places[i])
            snprintf(p, sizeof path[0], "%s/%s", places[i], name);
        else
            snprintf(p, sizeof path[0], "%s/models/%s", root ? root : "../shared", name);
        if (access(p, R_OK) == 0)
            return p;
    }
    printf("skipped: model %s is not there\n", name);
    support_skipped++;
    return NULL;
}

#define MAX_FILES 256
static char folder[512], files[MAX_FILES][640];
static int n_files;

static void remove_all(void)
{
    for (int i = 0; i < n_files; i++)
        unlink(files[i]);
    rmdir(folder);
}

const char *support_temp(const char *name)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/skua-test-XXXXXX", base ? base : P_tmpdir);
        if (!mkdtemp(folder))
            abort();
        atexit(remove_all);
    }
    char path[640];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < n_files; i++)
        if (!strcmp(files[i], path))
            return files[i];
    if (n_files == MAX_FILES)
        abort();
    strcpy(files[n_files], path);
    return files[n_files++];
}

void support_share(void (*item)(int), int n)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), totals[3];
    int n_jobs = cores < 1 ? 1 : cores > n ? n : (int)cores, ended = 0, fds[2];
    if (!CHECK(!pipe(fds), "cannot make a pipe"))
        return;
    fflush(stdout);
    for (int job = 0; job < n_jobs; job++) {
        pid_t pid = fork();
        if (!CHECK(pid >= 0, "cannot start a process") || pid > 0)
            continue;
        support_checks = support_failures = support_skipped = 0;
        for (int i = job; i < n; i += n_jobs)
            item(i);
        memcpy(totals, (long[]){support_checks, support_failures, support_skipped}, sizeof totals);
        exit(write(fds[1], totals, sizeof totals) != sizeof totals);
    }
    close(fds[1]);
    while (read(fds[0], totals, sizeof totals) == sizeof totals) {
        support_checks += totals[0];
        support_failures += totals[1];
        support_skipped += totals[2];
        ended++;
    }
    close(fds[0]);
    while (wait(NULL) > 0)
        ;
    CHECK(ended == n_jobs, "%d of %d processes did not finish", n_jobs - ended, n_jobs);
}

int support_finish(const char *name)
{
    printf("%s: %ld checks, %ld failed, %ld skipped\n", name, support_checks, support_failures, support_skipped);
    return support_failures || (!support_checks && !support_skipped);
}
