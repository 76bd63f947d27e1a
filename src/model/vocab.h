/* The tokenizer of a model file. */
#ifndef SKUA_MODEL_VOCAB_H
#define SKUA_MODEL_VOCAB_H

#include "gguf/gguf.h"
#include "tok/tokenizer.h"

/* Build the tokenizer from the tokenizer.ggml.* keys, after checking their types, lengths and ranges. The tokenizer keeps
   nothing of g. SKUA_EFORMAT or SKUA_EUNSUPPORTED with file, key, value and what was expected, SKUA_ENOMEM; *out is NULL on
   failure, else the caller's (tokenizer_free). */
int vocab_load(const struct gguf *g, struct tokenizer **out, skua_error *err);

#endif
