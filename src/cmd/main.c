/* skua: picks the command. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "cmd/cmd.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
};

static const struct command commands[] = {
    {"run", cmd_run, "one answer, or a chat on the terminal"},
    {"serve", cmd_serve, "an HTTP server for the OpenAI and Anthropic APIs"},
    {"bench", cmd_bench, "how fast: prefill, decode, batches, and the bound of the memory"},
    {"inspect", cmd_inspect, "what a model file holds, what it needs, what will run"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"imatrix", cmd_imatrix, "activation statistics on a text, for quantize"},
    {"perplexity", cmd_perplexity, "how well a text is predicted; distance from another model"},
    {"logits", cmd_logits, "the numbers: logits, layer outputs, greedy continuation"},
    {"quantize", cmd_quantize, "a model file in other types, by a recipe"},
    {"shards", cmd_shards, "split a model file, merge and list its parts"},
    {"convert", cmd_convert, "a Hugging Face checkpoint becomes a GGUF file"},
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static void usage(FILE *f)
{
    fprintf(f, "skua %s: inference for the Qwen3.5 family of language models\n\nusage: skua COMMAND [OPTIONS]\n\n", SKUA_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(f, "\n'skua COMMAND --help' tells the options, with an example.\n"
               "First answer:  skua run \"What is the capital of France?\"\n");
}

/* A standard stream that the caller has closed must not become some file that is opened later. Reading it gives the end of input,
   writing to it fails. */
static void claim_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

/* Results that never reached the reader are a failure. */
static int finish_output(int status)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || status)
        return status;
    fprintf(stderr, "skua: cannot write to standard output: %s\n", strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    claim_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, not a silent death */
    json_use_mem();
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return finish_output(0);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("skua %s\n", SKUA_VERSION);
        return finish_output(0);
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return finish_output(commands[i].run(argc - 1, argv + 1));
    skua_error err;
    error_set(&err, SKUA_EARG, "unknown command '%s' (see skua --help)", argv[1]);
    fprintf(stderr, "skua: %s\n", err.message);
    return 2;
}
