/* What one sequence owns on the device: pages of KV cache, added as it grows, and the recurrent state.
 *
 * A page may be held by several sequences, and kept by others than sequences (checkpoints). Shared pages are never written: seq_reserve,
 * which comes before every evaluation, gives the sequence a copy of its own of the page that it is about to write behind a shared part. */
#ifndef SKUA_MODEL_SEQ_H
#define SKUA_MODEL_SEQ_H

#include <stdint.h>

#include "dev/dev.h"

/* What those who keep pages hold, each page counted once. */
struct seq_keeper {
    size_t bytes; /* all of it */
    size_t idle;  /* what no sequence holds */
};

struct seq_page {
    struct kern_buf *buf;
    int32_t n_seqs;            /* sequences that hold it */
    int32_t n_kept;            /* times that it is kept */
    struct seq_keeper *keeper; /* of all who keep it; NULL: nobody does */
};

struct seq {
    struct dev *dev;
    size_t page_bytes;
    struct kern_buf *state;     /* zero at position 0 */
    struct kern_buf **pages;    /* [n_pages], the layout that kern_seq wants */
    struct seq_page **held;     /* [n_pages], what they belong to */
    int32_t n_pages, cap_pages;
    int32_t first_page;         /* those before it are gone (seq_release) */
    int32_t n_pos;              /* rows committed: the next row's position */
    struct kern_buf *tape;      /* what is kept of held rows; NULL until there were some */
    int32_t tape_rows;          /* that it has room for */
};

/* Pages that n positions take. */
static inline int32_t seq_pages(int32_t n_pos) { return n_pos / KV_PAGE_ROWS + (n_pos % KV_PAGE_ROWS != 0); }

/* An empty sequence. state_bytes and page_bytes: config_state_bytes, config_kv_page_bytes. */
int  seq_init(struct seq *s, struct dev *d, size_t state_bytes, size_t page_bytes, skua_error *err);
void seq_free(struct seq *s);                               /* zeroed allowed */
int  seq_reserve(struct seq *s, int32_t n_pos, skua_error *err); /* pages for positions 0 .. n_pos - 1, its own from position s->n_pos on;
                                                                    nothing is lost on failure */
void seq_release(struct seq *s, int32_t first_pos);         /* positions before first_pos are needed no more: their pages are given back, or
                                                               of an empty sequence never taken */
int  seq_reserve_tape(struct seq *s, int32_t n_rows, size_t row_bytes, skua_error *err); /* row_bytes: config_tape_row_bytes. Its contents
                                                                                             are lost, if not on failure */
void seq_reset(struct seq *s);                              /* back to empty: state cleared, pages given back; the tape stays */
size_t seq_bytes(const struct seq *s);                      /* device memory held; of a page that n sequences hold the n-th part */

/* Let a sequence without pages hold these (of the same device and size); nothing else of it changes. On failure it has none. */
int seq_adopt(struct seq *s, struct seq_page *const *pages, int32_t n_pages, skua_error *err);

/* Keep a page apart from all sequences, and let go of it; dropped pages that nobody else has are given back. */
void seq_page_keep(struct seq_page *p, struct seq_keeper *k);
void seq_page_drop(struct dev *d, struct seq_page *p);

#endif
