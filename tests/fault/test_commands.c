/* Faults in the commands that run or look at a model; see command.h. */
#include "fault/command.h"

#include <stdlib.h>

#include "cmd/cmd.h"

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    sweep_init();
    if (!model)
        return support_finish("test_commands");
    char path[4096], dump[256], prompt[256];
    snprintf(path, sizeof path, "%s", model);
    snprintf(dump, sizeof dump, "%s", support_temp("dump"));
    snprintf(prompt, sizeof prompt, "%s", support_temp("prompt"));
    FILE *f = fopen(prompt, "w");
    if (!f || fputs("What is the capital of France?", f) < 0 || fclose(f))
        abort();
    struct fault_command commands[] = {
        {.run = cmd_run,
         .args = {"run", "-m", path, "-q", "--temp", "0", "-t", "2", "-n", "6", "--no-think", "--system", "Be brief.", "-f", prompt},
         .streams = true},
        {.run = cmd_run,
         .args = {"run", "-m", path, "-q", "--seed", "7", "-t", "1", "-n", "9", "--stop", "\n", "--logit-bias", "5=-100", "--raw", "Once"},
         .streams = true},
        {.run = cmd_logits,
         .args = {"logits", "-m", path, "--prompt", "The capital of", "--layers", "--mtp", "--greedy", "3", "--top=3", "--json", "--dump",
                  dump, "--pos=0,-1"},
         .results = {dump}},
        {.run = cmd_logits, .args = {"logits", "-m", path, "--ids", "1,2", "--precision", "reference", "--mtp", "--greedy", "2"}},
        {.run = cmd_inspect, .args = {"inspect", "--json", path}},
        {.run = cmd_inspect, .args = {"inspect", "-m", path, "--all", "--ctx", "16k"}},
        {.run = cmd_inspect, .args = {"inspect", "--container", path}},
        {.run = cmd_inspect, .args = {"inspect", "--verify", "--json", path}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--json", "--pieces", "-f", prompt}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--pieces", "a \xC3\xBC b <|im_end|>"}},
        {.run = cmd_tokenize, .args = {"tokenize", "-m", path, "--decode", "--json", "1,2,3,8177 171"}},
    };
    size_t n = sizeof commands / sizeof *commands;
    for (size_t i = 0; i < n; i++)
        commands[i].max_points = commands[i].run == cmd_inspect ? 30 : 60;
    fault_commands_sweep(commands, n);
    return support_finish("test_commands");
}
