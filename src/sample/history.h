/* What the penalties look at: the tokens of one sequence, prompt first, then generated ones. Push and pop at the end only, so
   that speculation can advance along a draft and roll back at the first rejected token.

   Each entry remembers the previous occurrence of its token and how often the token has been generated up to here; last[id]
   is the newest entry of a token. So push and pop cost O(1), and the distinct tokens of any window at the end are those
   entries in it that are the newest of their token. Invariant: the first n_prompt entries are prompt. */
#ifndef SKUA_SAMPLE_HISTORY_H
#define SKUA_SAMPLE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sampler_history_entry {
    int32_t id;
    int32_t prev;      /* index of the previous entry of the same token, -1 = none */
    int32_t generated; /* occurrences among the generated tokens, this entry included */
};

struct sampler_history {
    struct sampler_history_entry *entries;
    size_t len, cap;
    size_t n_prompt;
    int32_t *last; /* [n_vocab]: index of the newest entry of a token, -1 = none */
    int n_vocab;
};

int  sampler_history_init(struct sampler_history *h, int n_vocab, skua_error *err); /* 4 bytes per token of the vocabulary */
void sampler_history_free(struct sampler_history *h);                               /* zeroed histories allowed */

/* Make room for extra more entries, so that as many pushes cannot fail for want of memory. 0 or SKUA_ENOMEM, SKUA_ELIMIT. */
int sampler_history_reserve(struct sampler_history *h, size_t extra, skua_error *err);

/* Append one token. SKUA_EARG: the id is outside the vocabulary; SKUA_ESTATE: a prompt token after a generated one;
   SKUA_ENOMEM. On failure nothing changes. */
int sampler_history_push_prompt(struct sampler_history *h, int32_t id, skua_error *err);
int sampler_history_push(struct sampler_history *h, int32_t id, skua_error *err); /* generated or forced tokens */

/* Drop the newest entries until len remain (a larger len changes nothing): exactly the state before they were pushed. */
void sampler_history_truncate(struct sampler_history *h, size_t len);

/* How often id was generated; 0 for ids outside the vocabulary. */
int sampler_history_count(const struct sampler_history *h, int32_t id);

#endif
