/* A main for fuzz targets without a fuzzing engine: feeds every file named on the command line, and every file of every
   folder named there (not its subfolders), to LLVMFuzzerTestOneInput. Each input lies in an allocation of exactly its
   size, so that a sanitizer sees reads past the end. Prints how many inputs ran; exits 1 on none or on an unreadable one. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"

#define MAX_INPUT_BYTES (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long inputs;

static int replay_file(const char *path)
{
    skua_error err;
    char *data;
    size_t size;
    if (file_read_all(path, MAX_INPUT_BYTES, &data, &size, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    uint8_t *exact = malloc(size ? size : 1);
    if (exact) {
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        inputs++;
    }
    mem_free(data);
    free(exact);
    return exact ? 0 : 1;
}

static int replay_folder(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort), failed = 0;
    if (n < 0) {
        perror(path);
        return 1;
    }
    for (int i = 0; i < n; i++) {
        char file[4096];
        struct stat st;
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.' && stat(file, &st) == 0 && S_ISREG(st.st_mode))
            failed |= replay_file(file);
        free(names[i]);
    }
    free(names);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct stat st;
        bool is_folder = stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode);
        failed |= is_folder ? replay_folder(argv[i]) : replay_file(argv[i]);
    }
    printf("%s: %lu inputs\n", argv[0], inputs);
    return failed || inputs == 0;
}
