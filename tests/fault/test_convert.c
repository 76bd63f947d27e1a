/* Faults while a checkpoint is converted; see command.h. A sharded target of which the MTP block is taken, and a drafter: with a tokenizer
   so small that the sweep meets everything else too, and once with that of the target. */
#include "fault/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

/* Tokens and merges of every spelling; the other ids become unused tokens. */
static const char tokenizer[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<|im_end|>\", \"special\": true}, {\"id\": 4, \"content\": \"a\\u2581b\"}],"
    " \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[\\\\p{L}\\\\p{M}]+|\\\\p{N}|\"}},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\", [\"a\", \"b\"]]}}";
static const char settings[] =
    "{\"eos_token\": \"<|im_end|>\", \"mask_token\": {\"content\": \"a\"}, \"chat_template\": [{\"name\": \"default\","
    " \"template\": \"x\"}], \"added_tokens_decoder\": {\"9\": {\"content\": \"<c>\"}}}";

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(support_temp(name), "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        abort();
}

int main(void)
{
    char dense[4096], drafter[4096], made[640], small[640];
    const char *target = support_shared("hf/tiny-dense"), *draft = support_shared("hf/tiny-dflash2");
    sweep_init();
    if (!target || !draft)
        return support_finish("test_convert");
    write_text("tokenizer.json", tokenizer);
    write_text("tokenizer_config.json", settings);
    snprintf(small, sizeof small, "%s", support_temp("tokenizer.json"));
    *strrchr(small, '/') = '\0';
    snprintf(dense, sizeof dense, "%s", target);
    snprintf(drafter, sizeof drafter, "%s", draft);
    snprintf(made, sizeof made, "%s", support_temp("made.gguf"));
    struct fault_command commands[] = {
        {.run = cmd_convert,
         .args = {"convert", dense, made, "--tokenizer", small, "--mtp-only", "--type", "q8_0"},
         .results = {made},
         .max_points = 300},
        {.run = cmd_convert, .args = {"convert", drafter, made, "--tokenizer", small}, .results = {made}, .max_points = 2000},
        {.run = cmd_convert, .args = {"convert", drafter, made, "--tokenizer", dense}, .results = {made}, .max_points = 40},
    };
    fault_commands_sweep(commands, sizeof commands / sizeof *commands);
    CHECK(access(made, F_OK) != 0, "%s is left behind", made);
    return support_finish("test_convert");
}
