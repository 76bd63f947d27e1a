/* What one sequence owns on the device: pages of KV cache, added as it grows, and the recurrent state. */
#ifndef SKUA_MODEL_SEQ_H
#define SKUA_MODEL_SEQ_H

#include <stdint.h>

#include "dev/dev.h"

struct seq {
    struct dev *dev;
    size_t page_bytes;
    struct kern_buf *state;     /* zero at position 0 */
    struct kern_buf **pages;    /* [n_pages], the layout that kern_seq wants */
    int32_t n_pages, cap_pages;
    int32_t first_page;         /* those before it are gone (seq_release) */
    int32_t n_pos;              /* rows committed: the next row's position */
    struct kern_buf *tape;      /* what is kept of held rows; NULL until there were some */
    int32_t tape_rows;          /* that it has room for */
};

/* An empty sequence. state_bytes and page_bytes: config_state_bytes, config_kv_page_bytes. */
int  seq_init(struct seq *s, struct dev *d, size_t state_bytes, size_t page_bytes, skua_error *err);
void seq_free(struct seq *s);                               /* zeroed allowed */
int  seq_reserve(struct seq *s, int32_t n_pos, skua_error *err); /* pages for positions 0 .. n_pos - 1; nothing is lost on failure */
void seq_release(struct seq *s, int32_t first_pos);         /* positions before first_pos are needed no more: their pages are given back, or
                                                               of an empty sequence never taken */
int  seq_reserve_tape(struct seq *s, int32_t n_rows, size_t row_bytes, skua_error *err); /* row_bytes: config_tape_row_bytes. Its contents
                                                                                            are lost, if not on failure */
void seq_reset(struct seq *s);                              /* back to empty: state cleared, pages given back; the tape stays */
size_t seq_bytes(const struct seq *s);                      /* device memory held */

#endif
