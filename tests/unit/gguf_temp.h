/* A temporary folder for the GGUF tests that need files, and a look at what a failed open leaves behind. */
#ifndef SKUA_TESTS_GGUF_TEMP_H
#define SKUA_TESTS_GGUF_TEMP_H

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_bytes.h"

static char temp_dir[256];

static inline void temp_make(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(temp_dir, sizeof temp_dir, "%s/skua-gguf-XXXXXX", base ? base : P_tmpdir);
    assert_non_null(mkdtemp(temp_dir));
}

static inline const char *temp_path(const char *name)
{
    static char path[4][512]; /* a few may be in use at once */
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", temp_dir, name);
    return p;
}

/* Number of entries; they are removed as well if asked for. */
static inline int temp_entries(bool remove_them)
{
    DIR *d = opendir(temp_dir);
    struct dirent *e;
    int n = 0;
    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.') {
            n++;
            if (remove_them)
                remove(temp_path(e->d_name));
        }
    closedir(d);
    return n;
}

static inline void temp_remove(void)
{
    temp_entries(true);
    rmdir(temp_dir);
}

/* The folder for a group of cmocka tests. */
static inline int temp_setup(void **state)
{
    (void)state;
    temp_make();
    return 0;
}

static inline int temp_teardown(void **state)
{
    (void)state;
    temp_remove();
    return 0;
}

static inline void temp_write(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(temp_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* The lowest free descriptor: the same before and after means that none leaked. */
static inline int lowest_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* Maps of files in the temporary folder; 0 where the system cannot tell. */
static inline int temp_maps(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[1024];
    int n = 0;
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, temp_dir) != NULL;
    if (f)
        fclose(f);
    return n;
}

#endif
