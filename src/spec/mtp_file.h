/* Files that hold nothing but an MTP block, to draft for a model that has none, or has another one. Two layouts:
 *
 *   the model's own architecture   block N of a model of N layers, named as in the model; the embedding, the final norm and the head may
 *                                  be there, else they are the model's
 *   qwen3                          tensors mtp.0.X, the join of embedding and hidden row split in two (e_proj, h_proj), and optionally a
 *                                  head of some tokens only: draft_lm_head.weight, and draft_lm_head.ids, the token of each row (I32 or
 *                                  I64, -1: none), which may be missing where the number of rows tells
 *
 * A file is checked completely before anything of it is used. What is no head for this model is refused with the reason: a whole model
 * too, although it may hold a fitting block. */
#ifndef SKUA_SPEC_MTP_FILE_H
#define SKUA_SPEC_MTP_FILE_H

#include "base/strbuf.h"
#include "model/bind.h"
#include "model/weights.h"
#include "spec/dflash_file.h"

struct mtp_file {
    struct mtp_weights weights; /* for mtp_create */
    char summary[160];          /* for people: "mtp (head.gguf: head of 98336 tokens)" */
    struct strbuf warnings;     /* one line each; empty when there is nothing to say */
    size_t bytes;               /* memory of its own, besides the mapped file */

    struct dev *dev;
    struct gguf *gguf;
    struct bound_file file;
    int32_t *ids;               /* weights.ids */
    struct kern_buf *allow;     /* weights.allow */
};

/* Open path as a head for the model t on device d, with a cache of kv_type. t and its parts must outlive the open file. 0, or an error that
   names file, key or tensor, what was found and what was expected, with *out NULL and nothing left open: SKUA_EFORMAT for damaged or
   contradictory files, SKUA_EUNSUPPORTED for files that are sound but no head for this model, SKUA_EIO, SKUA_ENOMEM. */
int  mtp_file_open(struct mtp_file **out, const char *path, const struct dflash_target *t, uint32_t kv_type, struct dev *d,
                   skua_error *err);
void mtp_file_close(struct mtp_file *f); /* NULL allowed */

#endif
