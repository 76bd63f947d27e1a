/* Faults in the commands that make files out of files; see command.h. */
#include "fault/command.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "convert/imatrix.h"
#include "gguf/gguf_write.h"

#define MODEL_TENSORS 5

/* A small file with the names of a model: gigabytes would not make the commands take other ways. */
static void write_model(const char *path)
{
    static const struct {
        const char *name;
        uint64_t ne[3];
    } t[MODEL_TENSORS] = {{"token_embd.weight", {256, 8, 1}},
                          {"output_norm.weight", {256, 1, 1}},
                          {"blk.0.attn_qkv.weight", {256, 6, 1}},
                          {"blk.0.ffn_down_exps.weight", {512, 3, 2}},
                          {"blk.0.odd.weight", {352, 4, 1}}};
    float data[4096];
    struct gguf_writer *w;
    skua_error err;
    for (int i = 0; i < 4096; i++)
        data[i] = (float)(i * 37 % 101 - 50) / 64;
    if (gguf_writer_new(&w, 32, &err) || gguf_writer_add_string(w, "general.architecture", "qwen35moe", 9, &err)
        || gguf_writer_add_u32(w, "qwen35moe.block_count", 1, &err))
        abort();
    for (int i = 0; i < MODEL_TENSORS; i++)
        if (gguf_writer_add_tensor(w, t[i].name, QTYPE_F32, 3, t[i].ne, &err))
            abort();
    if (gguf_writer_begin(w, path, &err))
        abort();
    for (int i = 0; i < MODEL_TENSORS; i++)
        if (gguf_writer_data(w, t[i].name, data, t[i].ne[0] * t[i].ne[1] * t[i].ne[2] * sizeof *data, &err))
            abort();
    if (gguf_writer_finish(w, &err))
        abort();
    gguf_writer_free(w);
}

static void write_imatrix(const char *path)
{
    float sums[1024], counts[2] = {3, 4};
    skua_error err;
    for (int i = 0; i < 1024; i++)
        sums[i] = (float)(i % 13);
    const struct imatrix_sums entries[] = {{"blk.0.attn_qkv.weight", 256, 1, sums, counts},
                                           {"blk.0.ffn_down_exps.weight", 512, 2, sums, counts}};
    const struct imatrix_source source = {.chunks = 2, .chunk_size = 8, .dataset = "words"};
    if (imatrix_write(path, entries, 2, &source, &err))
        abort();
}

static const char *temp(const char *name)
{
    static char paths[16][600];
    static int n;
    snprintf(paths[n], sizeof paths[n], "%s", support_temp(name));
    return paths[n++];
}

int main(void)
{
    sweep_init();
    const char *model = temp("model.gguf"), *weights = temp("imatrix.gguf"), *out = temp("out.gguf"), *prefix = temp("part");
    const char *parts[] = {temp("part-00001-of-00003.gguf"), temp("part-00002-of-00003.gguf"), temp("part-00003-of-00003.gguf")};
    write_model(model);
    write_imatrix(weights);
    struct fault_command commands[] = {
        {.run = cmd_quantize,
         .args = {"quantize", "-t", "2", "--imatrix", weights, "--rmse", "--json", model, out, "Q4_K_M"},
         .results = {out}},
        {.run = cmd_quantize,
         .args = {"quantize", "--tensor", "attn=nvfp4", "--tensor", "x=copy", "-t", "1", "--rmse", model, out, "iq4_xs"},
         .results = {out}},
        {.run = cmd_quantize, .args = {"quantize", "--dry-run", "--imatrix", weights, model, out, "APEX-Nano"}},
        {.run = cmd_shards, .args = {"shards", "split", model, prefix, "--max-tensors", "2"}, .results = {parts[0], parts[1], parts[2]}},
    };
    size_t n = sizeof commands / sizeof *commands;
    for (size_t i = 0; i < n; i++)
        commands[i].max_points = 400;
    fault_commands_sweep(commands, n);
    char name[64], *argv[] = {name, (char *)(uintptr_t)"split", (char *)(uintptr_t)model, (char *)(uintptr_t)prefix,
                              (char *)(uintptr_t)"--max-tensors", (char *)(uintptr_t)"2", NULL};
    snprintf(name, sizeof name, "shards");
    CHECK(cmd_shards(6, argv) == 0, "split");
    struct fault_command of_parts[] = {
        {.run = cmd_shards, .args = {"shards", "list", parts[0]}},
        {.run = cmd_shards, .args = {"shards", "list", "--json", parts[0]}},
        {.run = cmd_shards, .args = {"shards", "merge", parts[0], out}, .results = {out}},
        {.run = cmd_quantize, .args = {"quantize", parts[0], out, "Q8_0"}, .results = {out}},
    };
    n = sizeof of_parts / sizeof *of_parts;
    for (size_t i = 0; i < n; i++)
        of_parts[i].max_points = 400;
    fault_commands_sweep(of_parts, n);
    return support_finish("test_convert_files");
}
