/* A Hugging Face checkpoint -> a GGUF file. Tensors are converted row by row: memory is that of the JSON files and a few rows. */
#ifndef SKUA_CONVERT_HF_CONVERT_H
#define SKUA_CONVERT_HF_CONVERT_H

#include "convert/hf_plan.h"
#include "convert/stream.h"

struct hf_convert_options {
    const char *checkpoint; /* folder */
    const char *output;
    const char *tokenizer;  /* folder with the tokenizer; NULL: the checkpoint. A drafter needs one: that of its target */
    const char *name;       /* general.name; NULL: from the folder's name */
    uint32_t type;          /* QTYPE_F32, F16, BF16 or Q8_0, of what is not always F32 */
    enum hf_mtp mtp;
    bool unpack;            /* packed weights become `type` too */

    st_warn_fn *note;       /* one line for what the user should know; NULL allowed */
    void *context;          /* for note */
    struct stream *stream;  /* progress, in bytes written, and stopping; total is set here */
};

struct hf_convert_result {
    const char *arch;
    uint32_t n_tensors, n_packed; /* of the file; of these taken over as they were packed */
    int32_t n_mtp;
    uint64_t bytes;
};

/* The file appears under its name only when it is complete. Errors name file and tensor: SKUA_EIO, SKUA_EFORMAT, SKUA_EUNSUPPORTED,
   SKUA_EARG (options that do not suit the checkpoint), SKUA_ECANCELED, SKUA_ENOMEM. */
int hf_convert(const struct hf_convert_options *o, struct hf_convert_result *result, skua_error *err);

#endif
