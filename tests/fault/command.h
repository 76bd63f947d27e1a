/* Whole commands under the fault sweep: exit status 0 with exactly the output of a run without faults, or 1 with one line on standard error
   that says what failed. Nothing is left in memory or on disk, and the next run is as good as the first. */
#ifndef SKUA_TESTS_FAULT_COMMAND_H
#define SKUA_TESTS_FAULT_COMMAND_H

#include "fault/sweep.h"

#define FAULT_MAX_ARGS 32
#define FAULT_MAX_RESULTS 4

struct fault_text {
    char *bytes; /* with a terminator behind n bytes; NULL: no such file */
    size_t n;
};

struct fault_command {
    int (*run)(int argc, char **argv);
    const char *args[FAULT_MAX_ARGS];       /* args[0] is the command's name */
    const char *results[FAULT_MAX_RESULTS]; /* files that the command writes; complete or not there after a failure */
    bool streams;                           /* the output appears piece by piece: after a failure a part of it may have been printed */
    bool varies;                            /* times are printed: no two outputs and files are the same, but each is whole lines */
    int max_points;                         /* see sweep */
    struct fault_text out, files[FAULT_MAX_RESULTS]; /* of the first good run */
};

/* Sweep each of them. */
void fault_commands_sweep(struct fault_command *commands, size_t n);

#endif
