/* For the tests of the prefix cache's files: its folder. Header only. */
#ifndef SKUA_TESTS_PREFIX_FOLDER_H
#define SKUA_TESTS_PREFIX_FOLDER_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

static char dir[4096];

typedef void file_fn(const char *path, void *user);

static inline int each_file(const char *suffix, file_fn *fn, void *user)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t len = strlen(e->d_name), tail = strlen(suffix);
        char path[8192];
        if (e->d_name[0] == '.' || len < tail || strcmp(e->d_name + len - tail, suffix))
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        n++;
        if (fn)
            fn(path, user);
    }
    if (d)
        closedir(d);
    return n;
}

static inline void add_size(const char *path, void *user)
{
    struct stat st;
    if (!stat(path, &st))
        *(size_t *)user += (size_t)st.st_size;
}

static inline size_t folder_bytes(void)
{
    size_t all = 0, lock = 0;
    each_file("", add_size, &all);
    each_file("lock", add_size, &lock);
    return all - lock;
}

static inline void remove_file(const char *path, void *user)
{
    (void)user;
    unlink(path);
}

static inline void new_folder(const char *name)
{
    snprintf(dir, sizeof dir, "%s", support_temp(name));
}

static inline void drop_folder(void)
{
    each_file("", remove_file, NULL);
    rmdir(dir);
}

#endif
