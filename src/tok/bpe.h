/* Byte-pair merging: a piece of bytes becomes token ids by merging, again and again, the adjacent pair of lowest rank (the
   leftmost of equals) until no adjacent pair has a rank. */
#ifndef SKUA_TOK_BPE_H
#define SKUA_TOK_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "tok/token_vec.h"

struct token_table;

#define BPE_MAX_MERGES (1u << 24)

struct bpe_slot {
    uint32_t left, right; /* ids; left UINT32_MAX: free */
    uint32_t rank;        /* position in the merge list */
};

struct bpe {
    struct bpe_slot *slots; /* by (left, right); open addressing, at most half full */
    unsigned slot_shift;    /* 64 - log2 of the number of slots */
    uint32_t *merged;       /* by rank: the id of the result */
    uint32_t n_merges, cap;
    uint32_t n_unusable;    /* of them, those that name text outside the vocabulary */
    uint32_t byte_id[256];  /* the token of each single byte */
    char *scratch;          /* the two halves of the merge being added */
};

/* Look up the single bytes in the vocabulary and make room for count merges. A vocabulary without a token for every byte
   is refused, naming the byte. 0, SKUA_EFORMAT or SKUA_ENOMEM; free in either case. */
int  bpe_init(struct bpe *b, const struct token_table *tokens, size_t count, skua_error *err);
void bpe_free(struct bpe *b); /* zeroed allowed */

/* Append the merge of the next rank, given as in tokenizer.ggml.merges: "left right" in the byte alphabet, cut at the
   first space that is not its first byte; else SKUA_EFORMAT names the entry. A merge whose halves or result are no normal
   tokens could only lead to text without an id: it is counted as unusable and never applied. A pair that occurred before
   keeps its lower rank. */
int bpe_add_merge(struct bpe *b, const struct token_table *tokens, const char *text, size_t len, skua_error *err);

/* Working memory of bpe_encode for long pieces; {0} is empty. One per thread. */
struct bpe_scratch {
    void *memory;
    size_t size;
};
void bpe_scratch_free(struct bpe_scratch *s);

/* Append the ids of a piece of n bytes (n < 2^32) to out. O(n log n) time; about 32 n bytes of scratch for pieces above 48
   bytes. 0 or SKUA_ENOMEM (out then may have grown, the caller cuts it back). */
int bpe_encode(const struct bpe *b, const char *bytes, size_t n, struct bpe_scratch *scratch, struct token_vec *out);

#endif
