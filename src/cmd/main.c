/* skua: picks the command. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
};

static const struct command commands[] = {
    {"run", cmd_run, "one answer, or a chat on the terminal"},
    {"inspect", cmd_inspect, "what a model file holds, what it needs, what will run"},
    {"tokenize", cmd_tokenize, "text to token ids and back"},
    {"logits", cmd_logits, "the numbers: logits, layer outputs, greedy continuation"},
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

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error, not a silent death */
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        usage(stdout);
        return 0;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        printf("skua %s\n", SKUA_VERSION);
        return 0;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "skua: unknown command '%s' (see skua --help)\n", argv[1]);
    return 2;
}
