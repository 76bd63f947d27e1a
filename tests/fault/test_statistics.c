/* Faults while importance matrices are read, collected and continued, and while predictions are scored, saved and compared. */
#include "fault/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "convert/imatrix.h"

static const char text[] = "Once upon a time there was a clever fox named David. David lived near a clever beach. One day David found "
                           "a green drum by the garden. The capital of France is Paris. What is the capital of the sea?";

static void write_file(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(support_temp(name), "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        abort();
}

/* Read the file; the first good reading is what all others must give. */
struct reading {
    const char *path;
    uint32_t n;
    float sum;
};

static int read_matrix(void *context, skua_error *err)
{
    struct reading *r = context;
    struct imatrix *m;
    int rc = imatrix_open(&m, r->path, err);
    if (rc) {
        CHECK(!m, "an open file and error %d", rc);
        return rc;
    }
    float sum = 0;
    for (uint32_t i = 0; i < imatrix_count(m); i++)
        sum += imatrix_at(m, i)->weights[imatrix_at(m, i)->columns - 1];
    if (!r->n) {
        r->n = imatrix_count(m);
        r->sum = sum;
    }
    CHECK(imatrix_count(m) == r->n && sum == r->sum, "another matrix: %u entries", imatrix_count(m));
    imatrix_free(m);
    return 0;
}

static int quiet(int (*run)(int, char **), const char *const *args)
{
    char *argv[FAULT_MAX_ARGS + 1] = {0};
    int argc = 0;
    for (; args[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)args[argc];
    return run(argc, argv);
}

int main(void)
{
    static const uint8_t legacy[] = {2, 0, 0, 0, 1, 0, 0, 0, 'x', 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F, 1, 0, 0, 0, 'y', 2, 0, 0, 0,
                                     1, 0, 0, 0, 0, 0, 0x80, 0x3F, 3, 0, 0, 0, 5, 0, 0, 0, 'a', '.', 't', 'x', 't'};
    const char *found = support_model("tiny-q8_0.gguf");
    sweep_init();
    if (!found)
        return support_finish("test_statistics");
    char model[4096], input[640], made[640], held[640], base[640], saved[640], old[640];
    snprintf(model, sizeof model, "%s", found);
    snprintf(input, sizeof input, "%s", support_temp("text.txt"));
    snprintf(made, sizeof made, "%s", support_temp("made.gguf"));
    snprintf(held, sizeof held, "%s", support_temp("held.gguf"));
    snprintf(base, sizeof base, "%s", support_temp("base.logp"));
    snprintf(saved, sizeof saved, "%s", support_temp("saved.logp"));
    snprintf(old, sizeof old, "%s", support_temp("old.dat"));
    write_file("text.txt", text, sizeof text - 1);
    write_file("old.dat", legacy, sizeof legacy);
    const char *const make_held[] = {"imatrix", "-m", model, "-f", input, "--chunk-size", "16", "--chunks", "2", "-t", "1", held, NULL};
    const char *const make_base[] = {"perplexity", "-m", model, "-f", input, "--chunk-size", "16", "-t", "1", "--save-base", base, NULL};
    CHECK(quiet(cmd_imatrix, make_held) == 0 && quiet(cmd_perplexity, make_base) == 0, "nothing to work with");

    struct reading gguf = {.path = held}, dat = {.path = old};
    sweep("an importance matrix", read_matrix, &gguf, 1000);
    sweep("one of the older format", read_matrix, &dat, 1000);
    struct fault_command commands[] = {
        {.run = cmd_imatrix,
         .args = {"imatrix", "-m", model, "-f", input, "--chunk-size", "8", "--chunks", "1", "--output-weight", "-t", "2", made},
         .results = {made},
         .max_points = 120},
        {.run = cmd_imatrix, /* which is complete: everything but evaluation and writing */
         .args = {"imatrix", "-m", model, "-f", input, "--chunk-size", "16", "--chunks", "2", "-t", "1", "--resume", held},
         .max_points = 120},
        {.run = cmd_perplexity,
         .args = {"perplexity", "-m", model, "-f", input, "--chunk-size", "16", "-t", "2", "--kl-base", base, "--save-base", saved},
         .results = {saved},
         .max_points = 120},
        {.run = cmd_perplexity,
         .args = {"perplexity", "-m", model, "-f", input, "--chunk-size", "16", "-t", "1", "--kl-base", base, "--json"},
         .max_points = 120},
    };
    fault_commands_sweep(commands, sizeof commands / sizeof *commands);
    unlink(base);
    unlink(held);
    return support_finish("test_statistics");
}
