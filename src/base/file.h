/* Files: a read-only memory map, whole-file reading, and writing that never leaves a half-written file.
   Every system call here is a fault-injection point (base/mem.h, fault_io). Error messages name the path. */
#ifndef SKUA_BASE_FILE_H
#define SKUA_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;         /* bytes at open. A file that another program shortens while it is mapped raises SIGBUS on access */
};

/* Map a regular file read-only (a folder, FIFO or device is refused). 0 or SKUA_EIO; on failure *m is zeroed. */
int  file_map_open(struct file_map *m, const char *path, skua_error *err);
void file_map_close(struct file_map *m); /* zeroed maps allowed */

/* These bytes of the map are not needed soon: they leave the process's memory (whole pages of them), and are read again from the file, or
   the system's cache of it, when somebody does look. */
void file_map_forget(const struct file_map *m, size_t offset, size_t n);

/* Read all of path ("-" is standard input) into new memory, zero-terminated; *data is the caller's (mem_free).
   At most max_bytes, else SKUA_ELIMIT. */
int file_read_all(const char *path, size_t max_bytes, char **data, size_t *size, skua_error *err);

/* All n bytes, however many calls it takes; false: errno says why, and some may be written. */
bool file_write_all(int fd, const void *p, size_t n);

/* Do both paths lead to one file that is there? */
bool file_is_same(const char *a, const char *b);

/* Writing: bytes go to PATH.tmp.<pid>; file_writer_commit flushes, syncs and renames onto PATH; file_writer_abort (also
   after any failed call) removes the temporary file. A failure names the path and the reason (disk full included). A symbolic
   link stays and the file that it leads to is replaced. Folders, devices, pipes and sockets never are: SKUA_EIO. */
struct file_writer {
    int fd;              /* -1 when closed */
    char *path, *temp_path;
    uint8_t *buffer;
    size_t used;
    uint64_t written;    /* bytes accepted so far */
};
int  file_writer_open(struct file_writer *w, const char *path, skua_error *err);
int  file_writer_write(struct file_writer *w, const void *p, size_t n, skua_error *err);
int  file_writer_commit(struct file_writer *w, skua_error *err); /* closes in every case */
void file_writer_abort(struct file_writer *w);                   /* nothing to do after a commit */

#endif
