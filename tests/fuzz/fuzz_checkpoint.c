/* Fuzz target: config.json, tokenizer.json, tokenizer_config.json and model.safetensors of a checkpoint, in this order, with a zero byte
   between. (The first three hold none, so the rest is the fourth.) A refusal must be one line and leave neither memory nor a file behind;
   what is converted must be a container that the reader accepts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "convert/hf_convert.h"
#include "quant/type.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(c)      \
    do {             \
        if (!(c))    \
            abort(); \
    } while (0)

#define N_FILES 4
static const char *const names[N_FILES] = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"};
static char folder[512], tokenizer_folder[600], output[600];

/* A drafter's tokenizer lies in a folder of its own. */
static const char *place(int i)
{
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", i == 1 || i == 2 ? tokenizer_folder : folder, names[i]);
    return path;
}

static void remove_all(void)
{
    for (int i = 0; i < N_FILES; i++)
        unlink(place(i));
    unlink(output);
    rmdir(tokenizer_folder);
    rmdir(folder);
}

static void begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/skua-fuzz-XXXXXX", base ? base : P_tmpdir);
    MUST(mkdtemp(folder));
    snprintf(tokenizer_folder, sizeof tokenizer_folder, "%s/tokenizer-XXXXXX", folder);
    MUST(mkdtemp(tokenizer_folder));
    snprintf(output, sizeof output, "%s/out.gguf", folder);
    atexit(remove_all);
    json_use_mem();
}

static void write_files(const uint8_t *data, size_t size)
{
    for (int i = 0; i < N_FILES; i++) {
        const uint8_t *end = i < N_FILES - 1 && size ? memchr(data, 0, size) : NULL;
        size_t n = end ? (size_t)(end - data) : size;
        FILE *f = fopen(place(i), "wb");
        MUST(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
        data += n + (end != NULL);
        size -= n + (end != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!folder[0])
        begin();
    write_files(data, size);
    size_t live = mem_live_blocks();
    struct stream stream = {0};
    struct hf_convert_options o = {.checkpoint = folder, .output = output, .tokenizer = tokenizer_folder, .type = QTYPE_Q8_0,
                                   .stream = &stream};
    struct hf_convert_result result;
    skua_error err = {0};
    int rc = hf_convert(&o, &result, &err);
    if (rc) {
        MUST(err.code == rc && err.message[0] && !strpbrk(err.message, "\r\n") && access(output, F_OK) != 0);
    } else {
        struct gguf *g;
        MUST(gguf_open(&g, output, &err) == 0 && gguf_tensor_count(g) == result.n_tensors && stream.done == stream.total);
        gguf_close(g);
        unlink(output);
    }
    MUST(mem_live_blocks() == live);
    return 0;
}
