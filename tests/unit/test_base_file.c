/* base: allocation and its faults; maps, whole files, and files that appear whole or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/support.h"

/* ---- memory ---- */

static void test_mem(void)
{
    size_t live = mem_live_blocks();
    void *a = mem_alloc(0), *b = mem_alloc(0), *c = mem_calloc(0, 5);
    CHECK(a && b && c && a != b, "blocks of no bytes are different");
    CHECK(mem_live_blocks() == live + 3, "live blocks");
    unsigned char *z = mem_calloc(1000, 3);
    for (int i = 0; i < 3000; i++)
        CHECK(z[i] == 0, "calloc byte %d", i);
    /* sizes that no machine has; volatile, or the compiler computes and complains */
    volatile size_t huge = SIZE_MAX;
    CHECK(!mem_calloc(huge / 2, 3) && !mem_realloc_array(z, huge / 2, 3) && !mem_aligned(64, huge) && !mem_strndup("x", huge), "overflow");
    memset(z, 7, 3000);
    z = mem_realloc(z, 100000);
    CHECK(z && z[0] == 7 && z[2999] == 7, "realloc keeps");
    z = mem_realloc_array(z, 10, 100);
    CHECK(z && z[999] == 7, "realloc to less");
    char *grown = mem_realloc(NULL, 10);
    CHECK(grown && mem_live_blocks() == live + 5, "realloc of nothing");
    for (size_t align = 1; align <= 4096; align *= 2)
        for (size_t size = 0; size < 200; size += 33) {
            size_t to = align < sizeof(void *) ? sizeof(void *) : align;
            char *p = mem_aligned(to, size);
            CHECK(p && (uintptr_t)p % to == 0, "aligned to %zu", to);
            memset(p, 1, size);
            mem_free(p);
        }
    char *s = mem_strndup("ab\0cd", 5), *d = mem_strdup("text");
    CHECK(memcmp(s, "ab\0cd", 6) == 0 && !strcmp(d, "text"), "strndup, strdup");
    mem_free(s);
    mem_free(d);
    mem_free(grown);
    mem_free(NULL);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(z);
    CHECK(mem_live_blocks() == live, "%zu live blocks", mem_live_blocks() - live);
}

static void *any_alloc(int i)
{
    switch (i % 6) {
    case 0: return mem_alloc(8);
    case 1: return mem_calloc(2, 8);
    case 2: return mem_realloc(NULL, 8);
    case 3: return mem_realloc_array(NULL, 2, 8);
    case 4: return mem_aligned(64, 8);
    default: return mem_strdup("s");
    }
}

static void test_faults(void)
{
    for (int once = 0; once < 2; once++)
        for (uint64_t n = 1; n <= 13; n++) {
            size_t live = mem_live_blocks();
            fault_set_alloc(n, once);
            for (int i = 0; i < 12; i++) {
                void *p = any_alloc(i);
                bool fails = once ? (uint64_t)i + 1 == n : (uint64_t)i + 1 >= n;
                CHECK(!p == fails, "allocation %d of fault %d", i + 1, (int)n);
                mem_free(p);
            }
            CHECK(fault_alloc_count() == 12 && mem_live_blocks() == live, "count %d", (int)fault_alloc_count());
            fault_set_io(n, once);
            for (uint64_t i = 1; i <= 12; i++) {
                errno = 0;
                bool fails = fault_io();
                CHECK(fails == (once ? i == n : i >= n) && (!fails || errno == EIO), "file operation %d of fault %d", (int)i, (int)n);
            }
            CHECK(fault_io_count() == 12, "count %d", (int)fault_io_count());
        }
    fault_set_alloc(1, false);
    char *keep = malloc(4); /* not ours: not counted */
    CHECK(fault_alloc_count() == 0, "malloc is not counted");
    free(keep);
    fault_set_alloc(0, false);
    fault_set_io(0, false);
    char *p = mem_alloc(4);
    memcpy(p, "abc", 4);
    fault_set_alloc(1, true);
    CHECK(mem_realloc(p, 1000) == NULL && !strcmp(p, "abc"), "a failed realloc keeps the block");
    fault_set_alloc(0, false);
    mem_free(p);
}

/* ---- reading ---- */

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
}

static bool told(const skua_error *e, int code, const char *path, const char *what)
{
    return e->code == code && strncmp(e->message, path, strlen(path)) == 0 && strstr(e->message, what);
}

static char pattern[300000];

static void test_map(void)
{
    const char *path = support_temp("map"), *fifo = support_temp("fifo"), *missing = support_temp("missing/file");
    char folder[200];
    struct file_map m;
    skua_error e = {0};
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    CHECK(file_map_open(&m, missing, &e) == SKUA_EIO && told(&e, SKUA_EIO, missing, "cannot open: No such file") && !m.data && !m.size,
          "%s", e.message);
    CHECK(file_map_open(&m, folder, &e) == SKUA_EIO && told(&e, SKUA_EIO, folder, "not a regular file"), "%s", e.message);
    CHECK(mkfifo(fifo, 0600) == 0 && file_map_open(&m, fifo, &e) == SKUA_EIO && told(&e, SKUA_EIO, fifo, "not a regular file"), "%s",
          e.message);
    CHECK(file_map_open(&m, "/dev/null", &e) == SKUA_EIO, "a device: %s", e.message);
    file_map_close(&m);
    put(path, "", 0);
    CHECK(file_map_open(&m, path, &e) == 0 && !m.data && m.size == 0, "an empty file: %s", e.message);
    file_map_close(&m);
    put(path, pattern, sizeof pattern);
    CHECK(file_map_open(&m, path, &e) == 0 && m.size == sizeof pattern && memcmp(m.data, pattern, m.size) == 0, "%s", e.message);
    file_map_close(&m);
    CHECK(!m.data && !m.size, "close");
    file_map_close(&m);
    for (uint64_t n = 1; n <= 4; n++) {
        fault_set_io(n, true);
        int rc = file_map_open(&m, path, &e);
        fault_set_io(0, false);
        CHECK(n <= 3 ? rc == SKUA_EIO && told(&e, SKUA_EIO, path, "Input/output error") && !m.data : rc == 0, "fault %d: %d %s", (int)n, rc,
              e.message);
        file_map_close(&m);
    }
}

static void test_read(void)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 262145, sizeof pattern};
    const char *path = support_temp("read"), *missing = support_temp("nothing");
    char folder[200];
    skua_error e = {0};
    char *data;
    size_t n;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put(path, pattern, sizes[i]);
        CHECK(file_read_all(path, sizes[i], &data, &n, &e) == 0 && n == sizes[i] && memcmp(data, pattern, n) == 0 && data[n] == '\0',
              "%zu bytes with exactly that limit: %s", sizes[i], e.message);
        mem_free(data);
        if (!sizes[i])
            continue;
        CHECK(file_read_all(path, sizes[i] - 1, &data, &n, &e) == SKUA_ELIMIT && !data && !n &&
              told(&e, SKUA_ELIMIT, path, "longer than the limit of"),
              "%zu bytes, one too many: %s", sizes[i], e.message);
    }
    CHECK(file_read_all(missing, 100, &data, &n, &e) == SKUA_EIO && told(&e, SKUA_EIO, missing, "cannot open: No such file") && !data, "%s",
          e.message);
    CHECK(file_read_all(folder, 100, &data, &n, &e) == SKUA_EIO && told(&e, SKUA_EIO, folder, "cannot read: Is a directory") && !data, "%s",
          e.message);
    size_t live = mem_live_blocks();
    bool done = false;
    for (uint64_t k = 1; !done; k++)
        for (int io = 0; io < 2; io++) {
            (io ? fault_set_io : fault_set_alloc)(k, true);
            int rc = file_read_all(path, sizeof pattern, &data, &n, &e);
            done = (io ? fault_io_count() : fault_alloc_count()) < k;
            fault_set_io(0, false);
            fault_set_alloc(0, false);
            CHECK(done ? !rc : rc == (io ? SKUA_EIO : SKUA_ENOMEM) && !data && !n, "fault %d: %d %s", (int)k, rc, e.message);
            mem_free(data);
            CHECK(mem_live_blocks() == live, "fault %d leaves blocks", (int)k);
        }
}

/* A writer that dribbles, and a timer whose signal interrupts the reads. */
static void *dribble(void *path)
{
    FILE *f = fopen(path, "wb");
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (size_t at = 0, k = 1; f && at < sizeof pattern; at += k, k = (k * 7 + 3) % 9001 + 1) {
        if (k > sizeof pattern - at)
            k = sizeof pattern - at;
        fwrite(pattern + at, 1, k, f);
        fflush(f);
        if (k % 8 == 0)
            usleep(3000);
    }
    if (f)
        fclose(f);
    return NULL;
}

static volatile sig_atomic_t alarms;
static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void test_slow_pipe(void)
{
    char *fifo = (char *)(uintptr_t)support_temp("pipe"), *data;
    struct sigaction act = {.sa_handler = on_alarm}, before; /* no SA_RESTART */
    struct itimerval every = {{0, 4000}, {0, 4000}}, off = {{0, 0}, {0, 0}}; /* slow enough for an emulator under load */
    pthread_t writer;
    size_t n;
    skua_error e = {0};
    for (int through_stdin = 0; through_stdin < 2; through_stdin++) {
        int keep = dup(STDIN_FILENO);
        unlink(fifo);
        if (mkfifo(fifo, 0600) || pthread_create(&writer, NULL, dribble, fifo))
            abort();
        if (through_stdin) {
            int fd = open(fifo, O_RDONLY);
            dup2(fd, STDIN_FILENO);
            close(fd);
        }
        sigaction(SIGALRM, &act, &before);
        setitimer(ITIMER_REAL, &every, NULL);
        int rc = file_read_all(through_stdin ? "-" : fifo, sizeof pattern, &data, &n, &e);
        setitimer(ITIMER_REAL, &off, NULL);
        sigaction(SIGALRM, &before, NULL);
        pthread_join(writer, NULL);
        CHECK(rc == 0 && n == sizeof pattern && memcmp(data, pattern, n) == 0, "short reads and %d signals: %d, %zu bytes, %s", (int)alarms,
              rc, n, e.message);
        mem_free(data);
        dup2(keep, STDIN_FILENO);
        close(keep);
    }
    CHECK(alarms > 0, "no signal came");
}

/* ---- writing ---- */

static bool holds(const char *path, const void *want, size_t n)
{
    char *data;
    size_t got;
    if (file_read_all(path, 1 << 24, &data, &got, NULL))
        return false;
    bool same = got == n && memcmp(data, want, n) == 0;
    mem_free(data);
    return same;
}

static bool temporary(const char *path)
{
    char temp[300];
    snprintf(temp, sizeof temp, "%s.tmp.%ld", path, (long)getpid());
    return access(temp, F_OK) == 0;
}

static int write_pieces(const char *path, size_t n, skua_error *e)
{
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc)
        return rc;
    for (size_t at = 0, k = 1; at < n && !rc; at += k, k = k * 3 + 1) {
        k = k < n - at ? k : n - at;
        for (size_t from = at, left = k, part; left && !rc; from += part, left -= part) { /* the pattern, over and over */
            part = sizeof pattern - from % sizeof pattern < left ? sizeof pattern - from % sizeof pattern : left;
            rc = file_writer_write(&w, pattern + from % sizeof pattern, part, e);
        }
    }
    if (!rc)
        CHECK(w.written == n, "written %llu", (unsigned long long)w.written);
    else
        CHECK(file_writer_write(&w, "x", 1, NULL) == SKUA_ESTATE && file_writer_commit(&w, NULL) == SKUA_ESTATE, "use after a failure");
    if (!rc)
        rc = file_writer_commit(&w, e);
    file_writer_abort(&w); /* nothing to do after a commit or a failure */
    return rc;
}

static void test_write(void)
{
    const char *path = support_temp("written"), *nowhere = support_temp("no-folder/file");
    enum { BIG = 3 * 1048576 + 5 };
    static char big[BIG];
    struct file_writer w;
    skua_error e = {0};
    for (size_t i = 0; i < BIG; i++)
        big[i] = pattern[i % sizeof pattern];
    CHECK(write_pieces(path, BIG, &e) == 0 && holds(path, big, BIG) && !temporary(path), "%s", e.message);
    CHECK(write_pieces(path, 0, &e) == 0 && holds(path, "", 0), "an empty file: %s", e.message);

    /* the old file stays until the new one is complete */
    put(path, "old", 3);
    CHECK(file_writer_open(&w, path, &e) == 0 && file_writer_write(&w, big, BIG, &e) == 0 && holds(path, "old", 3) && temporary(path), "%s",
          e.message);
    file_writer_abort(&w);
    CHECK(holds(path, "old", 3) && !temporary(path), "abort");
    CHECK(file_writer_open(&w, nowhere, &e) == SKUA_EIO && told(&e, SKUA_EIO, nowhere, "cannot create: No such file"), "%s", e.message);
    CHECK(file_writer_write(&w, "x", 1, &e) == SKUA_ESTATE, "%s", e.message);

    for (int io = 0; io < 2; io++)
        for (uint64_t n = 1, done = 0; !done; n++) {
            size_t live = mem_live_blocks();
            (io ? fault_set_io : fault_set_alloc)(n, n % 2);
            int rc = write_pieces(path, BIG, &e);
            done = (io ? fault_io_count() : fault_alloc_count()) < n;
            fault_set_io(0, false);
            fault_set_alloc(0, false);
            CHECK(mem_live_blocks() == live && !temporary(path), "fault %d leaves something", (int)n);
            if (done) {
                CHECK(rc == 0 && holds(path, big, BIG), "after the faults: %s", e.message);
                put(path, "old", 3);
            } else {
                CHECK(rc == (io ? SKUA_EIO : SKUA_ENOMEM) && holds(path, "old", 3), "fault %d: %d %s", (int)n, rc, e.message);
            }
        }

    /* no room: the system's reason is told */
    struct rlimit old, small;
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1500000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = write_pieces(path, BIG, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(rc == SKUA_EIO && told(&e, SKUA_EIO, path, "cannot write: File too large") && holds(path, "old", 3) && !temporary(path), "%d %s",
          rc, e.message);
}

/* Whatever is no regular file stays what it is; a link stays and its file is replaced. */
static void test_write_targets(void)
{
    const char *path = support_temp("target"), *link = support_temp("link"), *loop = support_temp("loop"), *fifo = support_temp("out-fifo");
    const char *folder = support_temp("folder"), *fifo_link = support_temp("link-to-fifo"), *gone = support_temp("gone");
    struct stat st;
    skua_error e = {0};
    put(path, "old", 3);
    if (symlink(path, link) || symlink(loop, loop) || mkfifo(fifo, 0600) || mkdir(folder, 0700) || symlink(fifo, fifo_link) ||
        symlink(support_temp("nothing-here"), gone))
        abort();
    static const char not_regular[] = "is not a regular file; expected a name for the output";
    const struct {
        const char *path, *why;
    } refused[] = {{fifo, not_regular}, {fifo_link, not_regular}, {folder, "is a folder; expected a name for the output"},
                   {loop, "cannot follow the symbolic link: Too many levels"}, {gone, "cannot follow the symbolic link: No such file"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK(write_pieces(refused[i].path, 10, &e) == SKUA_EIO && told(&e, SKUA_EIO, refused[i].path, refused[i].why), "%s", e.message);
    CHECK(write_pieces("", 10, &e) == SKUA_EIO && strstr(e.message, "the name of the output is empty"), "%s", e.message);
    CHECK(lstat(fifo, &st) == 0 && S_ISFIFO(st.st_mode) && lstat(loop, &st) == 0 && S_ISLNK(st.st_mode), "they are what they were");
    CHECK(write_pieces(link, 1000, &e) == 0 && holds(path, pattern, 1000) && lstat(link, &st) == 0 && S_ISLNK(st.st_mode), "%s", e.message);
    CHECK(file_is_same(path, link) && file_is_same(link, path) && !file_is_same(path, fifo) && !file_is_same(path, gone) &&
          !file_is_same(gone, gone), "same files");
    fault_set_io(1, true);
    int rc = write_pieces(link, 10, &e);
    fault_set_io(0, false);
    CHECK(rc == SKUA_EIO && told(&e, SKUA_EIO, link, "cannot look it up: Input/output error"), "%s", e.message);
}

int main(void)
{
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)(i * 2654435761u >> 13);
    test_mem();
    test_faults();
    test_map();
    test_read();
    test_slow_pipe();
    test_write();
    test_write_targets();
    return support_finish("test_base_file");
}
