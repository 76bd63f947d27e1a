/* The commands. Each takes its own arguments (argv[0] is the command's name) and returns the exit status: 0 done, 1 failed while
   working (bad file, bad input), 2 wrong usage. Only commands print: results to standard output, everything else to standard
   error. */
#ifndef SKUA_CMD_CMD_H
#define SKUA_CMD_CMD_H

/* See docs/ARCHITECTURE.md and the --help of each. */
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_logits(int argc, char **argv);
int cmd_imatrix(int argc, char **argv);
int cmd_perplexity(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_shards(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_bench(int argc, char **argv);

#endif
