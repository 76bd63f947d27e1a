/* The forward pass: a batch of rows through the trunk, the output head, or the MTP block, as one op list for the device.
 *
 * The rows of a sequence may be held (kern_seq.tape): they go through the trunk like others, but the recurrent state stays, until
 * forward_commit brings it forward by the rows that are to be kept, bit for bit as if only these had been evaluated. Their KV rows are
 * written; what lies behind the committed positions is overwritten by later rows.
 *
 * A forward object owns the workspace (activations for up to max_rows rows) and the op list; nothing is allocated in a step.
 * Row results are pure functions of the rows before them in their sequence (kern/kern.h). */
#ifndef SKUA_MODEL_FORWARD_H
#define SKUA_MODEL_FORWARD_H

#include "dev/dev.h"
#include "model/config.h"
#include "model/weights.h"

struct forward; /* opaque */

/* Rows of logits that one call can produce. */
#define FORWARD_MAX_OUT 32

/* What the head makes of a row: its logits, or only the best of the samplable ones. */
enum forward_out { FORWARD_LOGITS, FORWARD_BEST };

/* Workspace for passes of up to max_rows rows on device d; c, w and d must outlive it. samplable: bitmap of the tokens among which
   FORWARD_BEST chooses, (n_vocab + 63) / 64 words, copied. */
int  forward_create(const struct model_config *c, const struct weights *w, struct dev *d, uint32_t kv_type, int32_t max_rows,
                    const uint64_t *samplable, struct forward **out, skua_error *err);
void forward_free(struct forward *f); /* NULL allowed */
size_t forward_bytes(const struct forward *f); /* workspace size */

/* Run the trunk over the batch (n_rows <= max_rows; pages of every sequence reserved): KV and recurrent state advance by the
   batch's rows; the final residual stays in the workspace until the next call. n_out rows (indices out_rows, n_out <=
   FORWARD_MAX_OUT) also go through output_norm and the head, which makes of them what kind says. tap_row >= 0: that row's
   residual after every layer is kept for forward_read_tap. */
int forward_trunk(struct forward *f, const struct kern_batch *batch, const int32_t *out_rows, int32_t n_out, enum forward_out kind,
                  int32_t tap_row, skua_error *err);

/* What every pass of the trunk keeps of all its rows from now on: the residual behind each of the layers taps[] (0-based, the last one
   allowed), side by side in this order, and, if hidden, the row after output_norm. Replaces what was asked for before; n_taps 0 and no
   hidden: nothing. Memory for max_rows rows, counted by forward_bytes. SKUA_EARG for a layer that is not there, SKUA_ENOMEM: what was asked
   for before stays. */
int forward_set_capture(struct forward *f, const int32_t *taps, int32_t n_taps, bool hidden, skua_error *err);

/* The rows that the last forward_trunk kept, in the order of its batch; valid until the next one. Strides in floats. */
struct forward_capture {
    struct kern_view taps, hidden; /* no buffer: not asked for */
    int32_t taps_stride, hidden_stride;
};
struct forward_capture forward_captured(const struct forward *f);

/* More rows of the last forward_trunk through the head: results replace those of the last call. */
int forward_head(struct forward *f, const int32_t *out_rows, int32_t n_out, enum forward_out kind, skua_error *err);

/* The recurrent state of each sequence of the batch behind the first n_rows of its held rows. Only seqs of the batch is looked at. */
int forward_commit(struct forward *f, const struct kern_batch *batch, skua_error *err);

/* Run an MTP block, the model's own or that of a sidecar file, over rows (token x_{p+1}, hidden h_p): hidden is device memory, row r at
   r * hidden_stride floats, h after output_norm, or forward_out_hidden of the step before. The batch's sequences are the block's own:
   positions are those of the pairs (p), pages hold its KV alone (config_mtp_page_bytes). n_out rows go through the block's final norm
   and head, which may have fewer columns than the vocabulary (mtp_weights.ids). n_top 0: all logits, head.n_out of them; else the n_top
   best columns of those that may be chosen, n_out * n_top <= FORWARD_MAX_OUT. */
int forward_mtp(struct forward *f, const struct mtp_weights *m, const struct kern_batch *batch, struct kern_view hidden,
                int32_t hidden_stride, const int32_t *out_rows, int32_t n_out, int32_t n_top, skua_error *err);

/* Copies of results of the last call; dst is host memory. */
void forward_read_logits(struct forward *f, int32_t i, float *dst);      /* n_vocab floats of the i-th out row */
struct kern_best forward_read_best(struct forward *f, int32_t i);        /* of the i-th out row */
void forward_read_top(struct forward *f, int32_t i, int32_t n_top, struct kern_best *dst); /* of the i-th out row, as op_topk has them */
void forward_read_out_hidden(struct forward *f, int32_t i, float *dst);  /* n_embd: the i-th out row after output_norm */
struct kern_view forward_out_hidden(const struct forward *f);            /* all of them where they lie, [n_out][n_embd] */
void forward_read_tap(struct forward *f, int32_t layer, float *dst);     /* n_embd */

#endif
