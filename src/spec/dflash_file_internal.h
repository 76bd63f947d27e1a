/* The parts of loading a drafter file; see dflash_file.h. */
#ifndef SKUA_SPEC_DFLASH_FILE_INTERNAL_H
#define SKUA_SPEC_DFLASH_FILE_INTERNAL_H

#include "spec/dflash_file.h"

/* The file's keys, in one form, checked by themselves and against the target. The rules of the tensors' shapes follow from it. */
int dflash_read_config(const struct gguf *g, const struct dflash_target *t, const struct dflash_options *o, struct dflash_config *c,
                       skua_error *err);

/* Are the drafter's tokens those of the target? A warning when the file does not say. */
int dflash_check_tokens(const struct gguf *g, const struct dflash_target *t, struct strbuf *warnings, skua_error *err);

/* A tensor that goes by several names: the first that the file has, or the first of all. names ends with NULL. */
const char *dflash_role(const struct binder *b, int block, const char *const *names);
extern const char *const dflash_fc_names[];

/* Choose and bind the embedding and the head (the target's or the file's own, all rows or some), DSpark's second matrix, and the bitmap of
   rows that may be drafted. */
int dflash_bind_head(struct binder *b, const struct dflash_target *t, const struct dflash_options *o, struct dflash_file *f);

#endif
