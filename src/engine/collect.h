/* Activation statistics: for every weight matrix of the trunk's blocks, and on request the output head, the sums of squares of each
 * input column over the rows that the matrix was multiplied with. Routed experts are counted one by one: the rows routed to each.
 *
 * The rows are the float ones, exactly, also where the product takes a quantised copy of them. For down projections they are the
 * activated rows; a routed expert's are taken before the router's weight, which applies to its output.
 *
 * Text is taken in chunks, each on a session of its own. Within a chunk sums are double, column by column in the order of the rows; at
 * its end each is added to the total and rounded to float once. So totals depend on the chunks and their order alone: not on the number
 * of threads, and not on being written to a file and read back between two chunks. Row counts are exact up to 2^24.
 *
 * The MTP block does not run when text is evaluated, so its matrices get no statistics.
 *
 * Memory: 12 bytes per column and expert of each matrix. */
#ifndef SKUA_ENGINE_COLLECT_H
#define SKUA_ENGINE_COLLECT_H

#include "convert/imatrix.h"
#include "engine/engine.h"

struct collect;

/* Watch an engine, which must outlive the collector and have no other observer. output: the output head too (under the name of the
   tensor that it is, token_embd.weight when tied). SKUA_ENOMEM. */
int  collect_create(skua_engine *e, bool output, struct collect **out, skua_error *err);
void collect_free(struct collect *c); /* NULL allowed; the engine is no longer watched */

/* Evaluate one chunk and add its statistics. The session is reset first. After a failure the totals are as they were before; errors are
   those of skua_eval, and SKUA_ESTATE when an input is not finite. */
int collect_chunk(struct collect *c, skua_session *s, const int32_t *ids, int32_t n_ids, skua_progress *progress, void *user,
                  skua_error *err);

/* Take the totals of a file, which must hold exactly the matrices that are collected here: SKUA_EFORMAT names the first that does not
   fit, and the totals are as they were. */
int collect_resume(struct collect *c, const struct imatrix *m, skua_error *err);

/* Matrices collected, counting each routed expert, and how many of these have seen no row so far. */
void collect_seen(const struct collect *c, uint64_t *n_matrices, uint64_t *n_unseen);
uint32_t collect_tensors(const struct collect *c);

/* Write the totals. */
int collect_save(const struct collect *c, const char *path, const struct imatrix_source *source, skua_error *err);

#endif
