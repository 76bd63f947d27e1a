/* Whole commands under the fault sweep; see command.h. */
#include "fault/command.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* ---- standard output and error into files ---- */

static int saved[2];
static const char *names[2];

static void redirect(void)
{
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < 2; i++) {
        saved[i] = dup(i + 1);
        if (!freopen(names[i], "w", i ? stderr : stdout) || saved[i] < 0)
            abort();
    }
}

/* What was written, read back with malloc: the program's own allocations may be failing on purpose. */
static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    *n = 0;
    if (!f || fstat(fileno(f), &st))
        return NULL;
    char *text = calloc((size_t)st.st_size + 1, 1);
    *n = text ? fread(text, 1, (size_t)st.st_size, f) : 0;
    fclose(f);
    return text;
}

static void restore(void)
{
    for (int i = 0; i < 2; i++) {
        FILE *f = i ? stderr : stdout;
        fflush(f);
        if (dup2(saved[i], i + 1) < 0)
            abort();
        close(saved[i]);
        clearerr(f);
    }
}

/* ---- one run ---- */

static void keep(struct fault_text *to, const struct fault_text *from)
{
    if (!from->bytes)
        return;
    *to = (struct fault_text){calloc(from->n + 1, 1), from->n};
    memcpy(to->bytes, from->bytes, from->n);
}

static bool same(const struct fault_text *a, const struct fault_text *b)
{
    return a->bytes && b->bytes && a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static bool whole_lines(const struct fault_text *t) { return t->bytes && t->n && t->bytes[t->n - 1] == '\n'; }

static void check_varying(const struct fault_command *c, int status, const struct fault_text *out, const struct fault_text *files)
{
    CHECK(status || whole_lines(out), "%s: status 0 and no output", c->args[0]);
    for (int i = 0; i < FAULT_MAX_RESULTS && c->results[i]; i++)
        CHECK((status && !files[i].bytes) || whole_lines(&files[i]), "%s: status %d and a file of %zu bytes", c->args[0], status,
              files[i].n);
}

static void check_good(struct fault_command *c, const struct fault_text *out, const struct fault_text *files)
{
    if (!c->out.bytes) {
        keep(&c->out, out);
        for (int i = 0; i < FAULT_MAX_RESULTS; i++)
            keep(&c->files[i], &files[i]);
        CHECK(out->n > 0, "%s prints nothing", c->args[0]);
    }
    CHECK(same(out, &c->out), "%s: status 0 and another output: %.100s", c->args[0], out->bytes);
    for (int i = 0; i < FAULT_MAX_RESULTS && c->results[i]; i++)
        CHECK(same(&files[i], &c->files[i]), "%s: status 0 and another file of %zu bytes", c->args[0], files[i].n);
}

/* Standard error behind the lines that say, before the work begins, what drafts. */
static char *error_line(const struct fault_command *c, const struct fault_text *told)
{
    char drafting[48], *line = told->bytes, *newline;
    snprintf(drafting, sizeof drafting, "skua %s: drafting: ", c->args[0]);
    while (strncmp(line, drafting, strlen(drafting)) == 0 && (newline = strchr(line, '\n')))
        line = newline + 1;
    return line;
}

static void check_failed(const struct fault_command *c, int status, const struct fault_text *out, const struct fault_text *told,
                         const struct fault_text *files)
{
    char begin[32];
    snprintf(begin, sizeof begin, "skua %s: ", c->args[0]);
    const char *line = error_line(c, told), *newline = strchr(line, '\n');
    CHECK(status == 1, "%s: exit status %d", c->args[0], status);
    CHECK(newline && newline[1] == '\0' && strncmp(line, begin, strlen(begin)) == 0, "%s: status 1, standard error '%.200s'", c->args[0],
          told->bytes);
    if (c->streams)
        CHECK(out->n <= c->out.n && memcmp(out->bytes, c->out.bytes, out->n - (out->n && out->bytes[out->n - 1] == '\n')) == 0,
              "%s: printed '%.100s'", c->args[0], out->bytes);
    for (int i = 0; i < FAULT_MAX_RESULTS; i++)
        CHECK(c->varies || !files[i].bytes || same(&files[i], &c->files[i]), "%s: half a file of %zu bytes", c->args[0], files[i].n);
}

static int run_command(void *context, skua_error *err)
{
    struct fault_command *c = context;
    struct fault_text files[FAULT_MAX_RESULTS] = {0}, out, told;
    char *argv[FAULT_MAX_ARGS + 1] = {0};
    int argc = 0, rc = 0;
    for (; c->args[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)c->args[argc];
    redirect();
    int status = c->run(argc, argv);
    restore();
    sweep_disarm();
    out.bytes = slurp(names[0], &out.n);
    told.bytes = slurp(names[1], &told.n);
    for (int i = 0; i < FAULT_MAX_RESULTS && c->results[i]; i++)
        files[i].bytes = slurp(c->results[i], &files[i].n);
    if (!out.bytes || !told.bytes)
        abort();
    if (c->varies)
        check_varying(c, status, &out, files);
    else if (status == 0)
        check_good(c, &out, files);
    if (status) {
        check_failed(c, status, &out, &told, files);
        char *line = error_line(c, &told);
        line[strcspn(line, "\n")] = '\0';
        /* the sweep wants a code; a command has but a message */
        rc = error_set(err, strstr(line, "out of memory") ? SKUA_ENOMEM : SKUA_EIO, "%s", line);
    }
    for (int i = 0; i < FAULT_MAX_RESULTS && c->results[i]; i++) {
        char temp[4200]; /* of the writer (base/file.h) */
        snprintf(temp, sizeof temp, "%s.tmp.%ld", c->results[i], (long)getpid());
        CHECK(access(temp, F_OK) != 0, "%s is left behind", temp);
        unlink(c->results[i]);
        free(files[i].bytes);
    }
    free(out.bytes);
    free(told.bytes);
    return rc;
}

void fault_commands_sweep(struct fault_command *commands, size_t n)
{
    names[0] = support_temp("stdout");
    names[1] = support_temp("stderr");
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "command %zu, skua %s", i, commands[i].args[0]);
        sweep(name, run_command, &commands[i], commands[i].max_points);
        free(commands[i].out.bytes);
        for (int k = 0; k < FAULT_MAX_RESULTS; k++)
            free(commands[i].files[k].bytes);
    }
}
