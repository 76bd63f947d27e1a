/* skua convert: a Hugging Face checkpoint becomes a GGUF file. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cmd/cmd.h"
#include "cmd/interrupt.h"
#include "cmd/opts.h"
#include "cmd/term.h"
#include "convert/hf_convert.h"
#include "quant/type.h"

static const char help[] =
    "usage: skua convert [OPTIONS] CHECKPOINT_DIR OUT.gguf\n"
    "\n"
    "Make a GGUF file of a Hugging Face checkpoint (safetensors, config.json, tokenizer.json): Qwen3.5 language models, dense or\n"
    "mixture of experts, also inside multimodal checkpoints, and the drafters DFlash, DFlash2 and DSpark.\n"
    "\n"
    "      --type TYPE      bf16 (default), f16, f32 or q8_0, for matrices; small and sensitive tensors stay f32\n"
    "      --no-mtp         leave the MTP block out\n"
    "      --mtp-only       only the MTP block, embedding and head: a file that drafts for the model\n"
    "      --tokenizer DIR  take the tokenizer from DIR; for a drafter, the folder of its target\n"
    "      --name NAME      the model's name (default: the folder's)\n"
    "      --dequantize     weights that are packed in the checkpoint become TYPE; without it NVFP4 and MLX's 2- and 4-bit weights\n"
    "                       in groups of 64 stay as they are, bit for bit, and FP8 and others become TYPE\n"
    "  -h, --help\n"
    "\n"
    "Memory stays small whatever the model's size. OUT.gguf appears when it is complete.\n"
    "\n"
    "example: skua convert Qwen3.5-4B qwen3.5-4b-bf16.gguf\n"
    "         skua convert Qwen3.5-4B-DFlash drafter.gguf --tokenizer Qwen3.5-4B --type q8_0\n";

static int usage_error(const char *message)
{
    skua_error err;
    error_set(&err, SKUA_EARG, "%s (see skua convert --help)", message);
    return opts_fail("convert", OPTS_USAGE, &err);
}

static bool parse_type(const char *name, uint32_t *type)
{
    static const struct { const char *name; uint32_t type; } types[] = {
        {"bf16", QTYPE_BF16}, {"f16", QTYPE_F16}, {"f32", QTYPE_F32}, {"q8_0", QTYPE_Q8_0}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcasecmp(name, types[i].name)) {
            *type = types[i].type;
            return true;
        }
    return false;
}

/* Returns true when there is something to do; else *status is the exit status. */
static bool parse_options(int argc, char **argv, struct hf_convert_options *o, int *status)
{
    enum { TYPE = 256, NO_MTP, MTP_ONLY, TOKENIZER, NAME, DEQUANTIZE };
    static const struct option longs[] = {
        {"type", required_argument, NULL, TYPE},           {"no-mtp", no_argument, NULL, NO_MTP},
        {"mtp-only", no_argument, NULL, MTP_ONLY},         {"tokenizer", required_argument, NULL, TOKENIZER},
        {"name", required_argument, NULL, NAME},           {"dequantize", no_argument, NULL, DEQUANTIZE},
        {"help", no_argument, NULL, 'h'},                  {NULL, 0, NULL, 0},
    };
    skua_error err = {0};
    bool no_mtp = false, mtp_only = false;
    opts_begin();
    for (int c; (c = opts_next("convert", argc, argv, "h", longs, &err)) != OPTS_END;) {
        switch (c) {
        case TYPE:
            if (!parse_type(optarg, &o->type)) {
                error_set(&err, SKUA_EARG, "--type is '%s', expected bf16, f16, f32 or q8_0", optarg);
                *status = opts_fail("convert", OPTS_USAGE, &err);
                return false;
            }
            break;
        case NO_MTP: no_mtp = true; break;
        case MTP_ONLY: mtp_only = true; break;
        case TOKENIZER: o->tokenizer = optarg; break;
        case NAME: o->name = optarg; break;
        case DEQUANTIZE: o->unpack = true; break;
        case 'h':
            fputs(help, stdout);
            *status = OPTS_OK;
            return false;
        default:
            *status = opts_fail("convert", OPTS_USAGE, &err);
            return false;
        }
    }
    if (argc - optind != 2) {
        *status = usage_error("expected a checkpoint's folder and the name of the file to write");
        return false;
    }
    if (no_mtp && mtp_only) {
        *status = usage_error("--no-mtp and --mtp-only exclude each other");
        return false;
    }
    o->mtp = no_mtp ? HF_MTP_NONE : mtp_only ? HF_MTP_ONLY : HF_MTP_KEEP;
    o->checkpoint = argv[optind];
    o->output = argv[optind + 1];
    return true;
}

static void show_note(void *context, const char *message)
{
    (void)context;
    opts_warn("convert", "%s", message);
}

static void show_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *p = context;
    if (!p->label)
        progress_begin(p, "converting", total);
    progress_set(p, done);
}

int cmd_convert(int argc, char **argv)
{
    struct progress progress = {0};
    struct stream stream = {.progress = show_progress, .context = &progress};
    struct hf_convert_options o = {.type = QTYPE_BF16, .note = show_note, .stream = &stream};
    struct hf_convert_result result;
    skua_error err = {0};
    int status;
    if (!parse_options(argc, argv, &o, &status))
        return status;
    stream.stop = interrupt_catch();
    int rc = hf_convert(&o, &result, &err);
    interrupt_restore();
    if (progress.label)
        progress_end(&progress);
    if (rc)
        return opts_fail("convert", OPTS_FAILED, &err);
    printf("%s: %s, %u tensors%s, %.1f MiB", o.output, result.arch, result.n_tensors,
           o.mtp == HF_MTP_ONLY ? " (the MTP block)" : result.n_mtp ? " (with the MTP block)" : "", (double)result.bytes / 1048576);
    if (result.n_packed)
        printf(", %u of them packed as they were", result.n_packed);
    printf("\n");
    return OPTS_OK;
}
