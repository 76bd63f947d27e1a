/* tokenizer.json, tokenizer_config.json and generation_config.json of a checkpoint -> tokenizer.* and general.sampling.* keys. */
#ifndef SKUA_CONVERT_HF_TOKENIZER_H
#define SKUA_CONVERT_HF_TOKENIZER_H

#include "convert/hf_config.h"
#include "gguf/safetensors.h" /* st_warn_fn */

struct hf_tokenizer;

/* Read the files in dir; the vocabulary has config->n_vocab entries. SKUA_EIO when there is no tokenizer.json, SKUA_EFORMAT,
   SKUA_EUNSUPPORTED (not a byte-level BPE), SKUA_ENOMEM. warn is called for a pre-tokenizer that is not known. */
int hf_tokenizer_load(struct hf_tokenizer **out, const char *dir, const struct hf_config *config, st_warn_fn *warn, void *context,
                      skua_error *err);
void hf_tokenizer_free(struct hf_tokenizer *t); /* NULL allowed */

/* Add tokenizer.ggml.* and, for a target, tokenizer.chat_template. For a drafter the mask token: config's, else the tokenizer's;
   SKUA_EFORMAT when neither has one. */
int hf_tokenizer_write(const struct hf_tokenizer *t, struct gguf_writer *w, skua_error *err);

/* Add general.sampling.* for the values of generation_config.json that sampling knows. Values out of range: a warning, not written. */
int hf_sampling_write(const char *dir, st_warn_fn *warn, void *context, struct gguf_writer *w, skua_error *err);

#endif
