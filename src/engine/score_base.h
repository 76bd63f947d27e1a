/* Files of base log-probabilities: what one model predicts for every scored position of a text, to compare other models with
 * (docs/formats.md). Little-endian:
 *
 *   "SKUALOGP", u32 version (1), u32 n_vocab, u32 chunk_size, u32 score_from, u32 n_chunks, u32 0
 *   i32 ids[n_chunks][chunk_size]
 *   rows of score_row_bytes(n_vocab) (engine/score.h): chunk by chunk, for the logits at positions score_from .. chunk_size - 2, which
 *   predict the token after theirs
 */
#ifndef SKUA_ENGINE_SCORE_BASE_H
#define SKUA_ENGINE_SCORE_BASE_H

#include "base/file.h"
#include "engine/score.h"

struct score_shape {
    int32_t n_vocab, chunk_size, score_from, n_chunks;
};

/* Writing: rows one after the other in their order. The file appears under its name with score_base_finish. */
struct score_base_writer {
    struct file_writer file;
    uint8_t *row;
    int32_t n_vocab;
    int64_t rows_left;
};
int  score_base_create(struct score_base_writer *w, const char *path, const struct score_shape *shape, const int32_t *ids, skua_error *err);
int  score_base_write(struct score_base_writer *w, const float *logits, double norm, int32_t next, skua_error *err);
int  score_base_finish(struct score_base_writer *w, skua_error *err); /* SKUA_ESTATE when rows are missing */
void score_base_abort(struct score_base_writer *w); /* removes what is unfinished; zeroed and finished writers allowed */

/* Reading. The file is mapped; header, size and ids are checked when it is opened, rows when they are read. */
struct score_base {
    struct file_map map;
    struct score_shape shape;
};
int  score_base_open(struct score_base *b, const char *path, skua_error *err);
void score_base_close(struct score_base *b); /* zeroed allowed */
int32_t score_base_id(const struct score_base *b, int64_t i); /* i-th of all ids */
/* Row of position score_from + i of a chunk. */
int  score_base_row(const struct score_base *b, int32_t chunk, int32_t i, struct score_row *row, skua_error *err);

#endif
