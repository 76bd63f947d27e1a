/* Faults in whole commands, run inside this program: exit status 0 with exactly the output of a run without faults, or 1 with one line
   on standard error that says what failed. Nothing is left in memory or on disk, and the next run is as good as the first. */
#include "fault/sweep.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cmd/cmd.h"

#define MAX_ARGS 24

struct command {
    int (*run)(int argc, char **argv);
    const char *args[MAX_ARGS]; /* args[0] is the command's name */
    const char *result;         /* a file that the command writes, NULL for none */
    bool streams;               /* the output appears piece by piece: after a failure a part of it may have been printed */
    char *out, *file;           /* of the first good run */
    size_t n_out, n_file;
};

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

static void check_good(struct command *c, const char *out, size_t n_out, const char *file, size_t n_file)
{
    if (!c->out) {
        c->out = calloc(n_out + 1, 1);
        memcpy(c->out, out, n_out);
        c->n_out = n_out;
        if (file) {
            c->file = calloc(n_file + 1, 1);
            memcpy(c->file, file, n_file);
            c->n_file = n_file;
        }
        CHECK(n_out > 0, "%s prints nothing", c->args[0]);
    }
    CHECK(n_out == c->n_out && memcmp(out, c->out, n_out) == 0, "%s: status 0 and another output: %.100s", c->args[0], out);
    CHECK(!c->result || (file && n_file == c->n_file && memcmp(file, c->file, n_file) == 0), "%s: status 0 and another file of %zu bytes",
          c->args[0], n_file);
}

static void check_failed(const struct command *c, int status, const char *out, size_t n_out, const char *told, const char *file,
                         size_t n_file)
{
    char begin[32];
    snprintf(begin, sizeof begin, "skua %s: ", c->args[0]);
    const char *newline = strchr(told, '\n');
    CHECK(status == 1, "%s: exit status %d", c->args[0], status);
    CHECK(newline && newline[1] == '\0' && strncmp(told, begin, strlen(begin)) == 0, "%s: status 1, standard error '%.200s'", c->args[0],
          told);
    if (c->streams)
        CHECK(n_out <= c->n_out && memcmp(out, c->out, n_out - (n_out && out[n_out - 1] == '\n')) == 0, "%s: printed '%.100s'", c->args[0],
              out);
    CHECK(!file || (n_file == c->n_file && memcmp(file, c->file, n_file) == 0), "%s: half a file of %zu bytes", c->args[0], n_file);
}

static int run_command(void *context, skua_error *err)
{
    struct command *c = context;
    char *argv[MAX_ARGS + 1] = {0};
    int argc = 0, rc = 0;
    for (; c->args[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)c->args[argc];
    redirect();
    int status = c->run(argc, argv);
    restore();
    sweep_disarm();
    size_t n_out, n_told, n_file = 0;
    char *out = slurp(names[0], &n_out), *told = slurp(names[1], &n_told), *file = c->result ? slurp(c->result, &n_file) : NULL;
    if (!out || !told)
        abort();
    if (status == 0) {
        check_good(c, out, n_out, file, n_file);
    } else {
        check_failed(c, status, out, n_out, told, file, n_file);
        told[strcspn(told, "\n")] = '\0';
        /* the sweep wants a code; a command has but a message */
        rc = error_set(err, strstr(told, "out of memory") ? SKUA_ENOMEM : SKUA_EIO, "%s", told);
    }
    if (c->result) {
        char temp[4200]; /* of the writer (base/file.h) */
        snprintf(temp, sizeof temp, "%s.tmp.%ld", c->result, (long)getpid());
        CHECK(access(temp, F_OK) != 0, "%s is left behind", temp);
        unlink(c->result);
    }
    free(out);
    free(told);
    free(file);
    return rc;
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    sweep_init();
    if (!model)
        return support_finish("test_commands");
    char path[4096], dump[256], prompt[256];
    snprintf(path, sizeof path, "%s", model);
    names[0] = support_temp("stdout");
    names[1] = support_temp("stderr");
    snprintf(dump, sizeof dump, "%s", support_temp("dump"));
    snprintf(prompt, sizeof prompt, "%s", support_temp("prompt"));
    FILE *f = fopen(prompt, "w");
    if (!f || fputs("What is the capital of France?", f) < 0 || fclose(f))
        abort();
    struct command commands[] = {
        {.run = cmd_run,
         .args = {"run", "-m", path, "-q", "--temp", "0", "-t", "2", "-n", "6", "--no-think", "--system", "Be brief.", "-f", prompt},
         .streams = true},
        {.run = cmd_run,
         .args = {"run", "-m", path, "-q", "--seed", "7", "-t", "1", "-n", "9", "--stop", "\n", "--logit-bias", "5=-100", "--raw", "Once"},
         .streams = true},
        {.run = cmd_logits,
         .args = {"logits", "-m", path, "--prompt", "The capital of", "--layers", "--mtp", "--greedy", "3", "--top=3", "--json", "--dump",
                  dump, "--pos=0,-1"},
         .result = dump},
        {.run = cmd_logits, .args = {"logits", "-m", path, "--ids", "1,2", "--precision", "reference", "--mtp", "--greedy", "2"}},
        {.run = cmd_inspect, .args = {"inspect", "--json", path}},
        {.run = cmd_inspect, .args = {"inspect", "-m", path, "--all", "--ctx", "16k"}},
        {.run = cmd_inspect, .args = {"inspect", "--container", path}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--json", "--pieces", "-f", prompt}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--pieces", "a \xC3\xBC b <|im_end|>"}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--decode", "--json", "1,2,3,8177 171"}},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char name[64];
        snprintf(name, sizeof name, "command %zu, skua %s", i, commands[i].args[0]);
        sweep(name, run_command, &commands[i], commands[i].run == cmd_inspect ? 30 : 60);
        free(commands[i].out);
        free(commands[i].file);
    }
    return support_finish("test_commands");
}
