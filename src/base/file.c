/* Files; see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define WRITE_BUFFER_BYTES (1u << 20)

static int io_error(skua_error *err, const char *path, const char *what)
{
    return error_set(err, SKUA_EIO, "%s: cannot %s: %s", *path ? path : "''", what, strerror(errno));
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    if (fault_io())
        return -1;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int file_map_open(struct file_map *m, const char *path, skua_error *err)
{
    *m = (struct file_map){0};
    /* O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused below */
    int fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0)
        return io_error(err, path, "open");
    int rc = 0;
    struct stat st;
    if (fault_io() || fstat(fd, &st) != 0)
        rc = io_error(err, path, "read its size");
    else if (!S_ISREG(st.st_mode))
        rc = error_set(err, SKUA_EIO, "%s: is not a regular file", path);
    else if ((uint64_t)st.st_size > SIZE_MAX)
        rc = error_set(err, SKUA_EIO, "%s: is too large for this machine's address space", path);
    else if (st.st_size > 0) {
        void *p = fault_io() ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = io_error(err, path, "map into memory");
        else {
            m->data = p;
            m->size = (size_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

void file_map_close(struct file_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    *m = (struct file_map){0};
}

void file_map_forget(const struct file_map *m, size_t offset, size_t n)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)m->data + offset;
    const uintptr_t begin = (first + page - 1) / page * page, end = (first + n) / page * page;
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* at worst they stay */
}

int file_read_all(const char *path, size_t max_bytes, char **data, size_t *size, skua_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    int fd = is_stdin ? STDIN_FILENO : open_retry(path, O_RDONLY, 0);
    int rc = 0;
    size_t len = 0, cap = 1 << 16;
    char *buf = NULL;
    *data = NULL;
    *size = 0;
    if (fd < 0)
        return io_error(err, name, "open");
    buf = mem_alloc(cap + 1);
    if (!buf) {
        rc = error_nomem(err, name, cap);
        goto done;
    }
    for (;;) {
        if (len == cap) {
            char *p = mem_realloc(buf, cap * 2 + 1);
            if (!p) {
                rc = error_nomem(err, name, cap * 2);
                goto done;
            }
            buf = p;
            cap *= 2;
        }
        ssize_t n = fault_io() ? -1 : read(fd, buf + len, cap - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = io_error(err, name, "read");
            goto done;
        }
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > max_bytes) {
            rc = error_set(err, SKUA_ELIMIT, "%s: is longer than the limit of %zu bytes", name, max_bytes);
            goto done;
        }
    }
    buf[len] = '\0';
    *data = buf;
    *size = len;
    buf = NULL;
done:
    mem_free(buf);
    if (!is_stdin)
        close(fd);
    return rc;
}

bool file_is_same(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* Where the file is to be that path names: path itself, or what a symbolic link leads to, in target. A rename would put a file in the
   place of whatever is there, of /dev/null too, so that only a regular file may be. */
static int find_target(const char **path, char target[PATH_MAX], skua_error *err)
{
    struct stat st;
    if (!**path)
        return error_set(err, SKUA_EIO, "the name of the output is empty; expected a file name");
    if (fault_io())
        return io_error(err, *path, "look it up");
    if (lstat(*path, &st) != 0)
        return 0; /* there is nothing, or creating the file will tell */
    bool is_link = S_ISLNK(st.st_mode);
    if (is_link && stat(*path, &st) != 0)
        return io_error(err, *path, "follow the symbolic link");
    if (S_ISDIR(st.st_mode))
        return error_set(err, SKUA_EIO, "%s: is a folder; expected a name for the output", *path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, SKUA_EIO, "%s: is not a regular file; expected a name for the output", *path);
    if (is_link && !realpath(*path, target))
        return io_error(err, *path, "follow the symbolic link");
    *path = is_link ? target : *path;
    return 0;
}

int file_writer_open(struct file_writer *w, const char *path, skua_error *err)
{
    char target[PATH_MAX];
    *w = (struct file_writer){.fd = -1};
    int rc = find_target(&path, target, err);
    if (rc)
        return rc;
    size_t n = strlen(path) + 32;
    w->path = mem_strdup(path);
    w->temp_path = mem_alloc(n);
    w->buffer = mem_alloc(WRITE_BUFFER_BYTES);
    if (!w->path || !w->temp_path || !w->buffer) {
        mem_free(w->temp_path);
        w->temp_path = NULL; /* nothing was created, so nothing must be removed */
        file_writer_abort(w);
        return error_nomem(err, "file writer", WRITE_BUFFER_BYTES);
    }
    snprintf(w->temp_path, n, "%s.tmp.%ld", path, (long)getpid());
    w->fd = open_retry(w->temp_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (w->fd < 0) {
        rc = io_error(err, w->temp_path, "create");
        file_writer_abort(w);
        return rc;
    }
    return 0;
}

bool file_write_all(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n) {
        const ssize_t k = fault_io() ? -1 : write(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static int flush(struct file_writer *w, skua_error *err)
{
    if (!file_write_all(w->fd, w->buffer, w->used))
        return io_error(err, w->path, "write");
    w->used = 0;
    return 0;
}

int file_writer_write(struct file_writer *w, const void *p, size_t n, skua_error *err)
{
    const uint8_t *src = p;
    if (w->fd < 0)
        return error_set(err, SKUA_ESTATE, "%s: write after an earlier failure", w->path ? w->path : "file");
    while (n) {
        size_t room = WRITE_BUFFER_BYTES - w->used;
        size_t k = n < room ? n : room;
        memcpy(w->buffer + w->used, src, k);
        w->used += k;
        w->written += k;
        src += k;
        n -= k;
        if (w->used == WRITE_BUFFER_BYTES) {
            int rc = flush(w, err);
            if (rc) {
                file_writer_abort(w);
                return rc;
            }
        }
    }
    return 0;
}

int file_writer_commit(struct file_writer *w, skua_error *err)
{
    if (w->fd < 0)
        return error_set(err, SKUA_ESTATE, "file writer: commit after an earlier failure");
    int rc = flush(w, err);
    if (!rc && (fault_io() || fsync(w->fd) != 0))
        rc = io_error(err, w->path, "flush to disk");
    if (!rc && (fault_io() || rename(w->temp_path, w->path) != 0))
        rc = io_error(err, w->path, "rename the finished file to");
    if (!rc) {
        mem_free(w->temp_path); /* renamed: nothing to remove */
        w->temp_path = NULL;
    }
    file_writer_abort(w);
    return rc;
}

void file_writer_abort(struct file_writer *w)
{
    if (w->fd >= 0) {
        close(w->fd);
        if (w->temp_path)
            unlink(w->temp_path);
    }
    mem_free(w->path);
    mem_free(w->temp_path);
    mem_free(w->buffer);
    *w = (struct file_writer){.fd = -1};
}
