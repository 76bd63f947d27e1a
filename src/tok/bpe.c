/* Byte-pair merging; see bpe.h.

   Two algorithms with the same result. Short pieces (nearly all) keep the ranks of their pairs in an array, scan it for the
   minimum and close the gap after each merge. Long pieces are a doubly linked list of symbols with a binary heap of
   (rank, position); heap entries are not removed when a pair changes but recognised as stale when they come up, because
   the symbol at that position no longer has that rank. Positions are those of a symbol's first byte and do not change, so
   the heap order is the order of the definition. */
#include "tok/bpe.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "tok/byte_alphabet.h"
#include "tok/token_table.h"

#define NO_RANK UINT32_MAX
#define SHORT_PIECE 48 /* bytes; up to here scanning beats the heap */

int bpe_init(struct bpe *b, const struct token_table *tokens, size_t count, skua_error *err)
{
    *b = (struct bpe){0};
    if (count > BPE_MAX_MERGES)
        return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.merges has %zu entries, expected at most %u", count, BPE_MAX_MERGES);
    for (unsigned byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        int32_t id = token_table_find(tokens, &c, 1);
        if (id < 0)
            return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.tokens has no normal token for byte 0x%02X (the character U+%04X)",
                             byte, (unsigned)byte_alphabet_char((uint8_t)byte));
        b->byte_id[byte] = (uint32_t)id;
    }
    unsigned log2_slots = 4;
    while (((size_t)1 << log2_slots) / 2 < count)
        log2_slots++;
    size_t slots_size = sizeof *b->slots << log2_slots;
    b->cap = (uint32_t)count;
    b->slot_shift = 64 - log2_slots;
    b->slots = mem_alloc(slots_size);
    b->merged = mem_alloc(count * sizeof *b->merged);
    b->scratch = mem_alloc(2 * TOKEN_MAX_BYTES);
    if (!b->slots || !b->merged || !b->scratch)
        return error_nomem(err, "merge table", slots_size + count * sizeof *b->merged);
    memset(b->slots, 0xFF, slots_size);
    return 0;
}

void bpe_free(struct bpe *b)
{
    mem_free(b->slots);
    mem_free(b->merged);
    mem_free(b->scratch);
    *b = (struct bpe){0};
}

/* The slot of a pair, or the free one where it would go. */
static inline struct bpe_slot *find_slot(const struct bpe *b, uint32_t left, uint32_t right)
{
    /* multiplicative hashing with 2^64 / golden ratio; the top bits are the well mixed ones */
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15u;
    size_t mask = ((size_t)1 << (64 - b->slot_shift)) - 1;
    for (size_t i = (size_t)(hash >> b->slot_shift);; i = (i + 1) & mask) {
        struct bpe_slot *slot = &b->slots[i];
        if ((slot->left == left && slot->right == right) || slot->left == UINT32_MAX)
            return slot;
    }
}

static inline uint32_t rank_of(const struct bpe *b, uint32_t left, uint32_t right)
{
    return find_slot(b, left, right)->rank; /* a free slot has all bits set, which is NO_RANK */
}

static int bad_merge(const struct bpe *b, const char *text, size_t len, const char *what, skua_error *err)
{
    char quoted[160];
    return error_set(err, SKUA_EFORMAT, "tokenizer.ggml.merges[%u] %s: %s", b->n_merges,
                     token_quote(quoted, sizeof quoted, text, len), what);
}

int bpe_add_merge(struct bpe *b, const struct token_table *tokens, const char *text, size_t len, skua_error *err)
{
    const char *space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
    if (!space)
        return bad_merge(b, text, len, "expected two tokens with a space between", err);
    const char *right_text = space + 1;
    size_t left_text_len = (size_t)(space - text), right_text_len = len - left_text_len - 1;
    size_t left_len, right_len;
    if (left_text_len > TOKEN_MAX_BYTES || right_text_len > TOKEN_MAX_BYTES ||
        !byte_alphabet_decode(text, left_text_len, b->scratch, &left_len) ||
        !byte_alphabet_decode(right_text, right_text_len, b->scratch + left_len, &right_len))
        return bad_merge(b, text, len, "a half is not in the byte alphabet", err);
    /* Vocabularies are in merge order, nearly: the token after the last result is the likely one. */
    const char *right_bytes = b->scratch + left_len;
    uint32_t guess = b->n_merges ? b->merged[b->n_merges - 1] + 1 : 256;
    bool guessed = token_table_is(tokens, guess, b->scratch, left_len + right_len);
    uint64_t left_hash = token_table_prefetch(tokens, b->scratch, left_len);
    uint64_t right_hash = token_table_prefetch(tokens, right_bytes, right_len);
    int32_t left = token_table_find_hashed(tokens, b->scratch, left_len, left_hash);
    int32_t right = token_table_find_hashed(tokens, right_bytes, right_len, right_hash);
    int32_t merged = guessed ? (int32_t)guess : token_table_find(tokens, b->scratch, left_len + right_len);
    if (left < 0 || right < 0 || merged < 0) { /* keeps its place in the list, so that ranks are those of the file */
        b->merged[b->n_merges] = guess - 1;
        b->n_merges++;
        b->n_unusable++;
        return 0;
    }
    struct bpe_slot *slot = find_slot(b, (uint32_t)left, (uint32_t)right);
    if (slot->left == UINT32_MAX)
        *slot = (struct bpe_slot){.left = (uint32_t)left, .right = (uint32_t)right, .rank = b->n_merges};
    b->merged[b->n_merges++] = (uint32_t)merged;
    return 0;
}

static int encode_short(const struct bpe *b, const uint8_t *bytes, size_t n, struct token_vec *out)
{
    uint32_t id[SHORT_PIECE], rank[SHORT_PIECE]; /* rank[i]: of the pair (i, i + 1) */
    for (size_t i = 0; i < n; i++)
        id[i] = b->byte_id[bytes[i]];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        id[best] = b->merged[rank[best]];
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
        if (best + 1 < n)
            rank[best] = rank_of(b, id[best], id[best + 1]);
        if (best > 0)
            rank[best - 1] = rank_of(b, id[best - 1], id[best]);
    }
    if (token_vec_reserve(out, n))
        return SKUA_ENOMEM;
    memcpy(out->ids + out->n, id, n * sizeof *id);
    out->n += n;
    return 0;
}

/* A symbol of a long piece, at the index of its first byte. */
struct symbol {
    uint32_t id;
    uint32_t prev, next; /* indices; NO_SYMBOL at the ends */
    uint32_t rank;       /* of the pair with the next symbol; NO_RANK also once merged into its left neighbour */
};
#define NO_SYMBOL UINT32_MAX

struct heap {
    uint64_t *keys; /* rank << 32 | position, the smallest first */
    size_t n;
};

static void heap_push(struct heap *h, uint64_t key)
{
    size_t i = h->n++;
    while (i > 0 && h->keys[(i - 1) / 2] > key) {
        h->keys[i] = h->keys[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->keys[i] = key;
}

static uint64_t heap_pop(struct heap *h)
{
    uint64_t top = h->keys[0], last = h->keys[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && h->keys[child + 1] < h->keys[child])
            child++;
        if (h->keys[child] >= last)
            break;
        h->keys[i] = h->keys[child];
        i = child;
    }
    h->keys[i] = last;
    return top;
}

/* Set the rank of symbol i's pair with its right neighbour and queue it. */
static void rank_pair(const struct bpe *b, struct symbol *symbols, uint32_t i, struct heap *heap)
{
    uint32_t next = symbols[i].next;
    uint32_t rank = next == NO_SYMBOL ? NO_RANK : rank_of(b, symbols[i].id, symbols[next].id);
    symbols[i].rank = rank;
    if (rank != NO_RANK)
        heap_push(heap, (uint64_t)rank << 32 | i);
}

static void merge_all(const struct bpe *b, struct symbol *symbols, struct heap *heap)
{
    while (heap->n > 0) {
        uint64_t key = heap_pop(heap);
        uint32_t i = (uint32_t)key, rank = (uint32_t)(key >> 32);
        struct symbol *s = &symbols[i];
        if (s->rank != rank)
            continue; /* stale */
        struct symbol *gone = &symbols[s->next];
        s->id = b->merged[rank];
        s->next = gone->next;
        gone->rank = NO_RANK;
        if (s->next != NO_SYMBOL)
            symbols[s->next].prev = i;
        rank_pair(b, symbols, i, heap);
        if (s->prev != NO_SYMBOL)
            rank_pair(b, symbols, s->prev, heap);
    }
}

static int encode_long(const struct bpe *b, const uint8_t *bytes, size_t n, struct bpe_scratch *scratch, struct token_vec *out)
{
    /* A merge takes one entry off the heap and adds at most two, and there are fewer than n merges: 2 n entries suffice. */
    size_t size;
    if (__builtin_mul_overflow(n, sizeof(struct symbol) + 2 * sizeof(uint64_t), &size))
        return SKUA_ENOMEM;
    if (size > scratch->size) {
        bpe_scratch_free(scratch); /* nothing in it is worth copying */
        scratch->memory = mem_alloc(size);
        if (!scratch->memory)
            return SKUA_ENOMEM;
        scratch->size = size;
    }
    struct heap heap = {.keys = scratch->memory};
    struct symbol *symbols = (struct symbol *)(heap.keys + 2 * n);
    for (size_t i = 0; i < n; i++)
        symbols[i] = (struct symbol){.id = b->byte_id[bytes[i]],
                                     .prev = i ? (uint32_t)(i - 1) : NO_SYMBOL,
                                     .next = i + 1 < n ? (uint32_t)(i + 1) : NO_SYMBOL};
    for (size_t i = 0; i < n; i++)
        rank_pair(b, symbols, (uint32_t)i, &heap);
    merge_all(b, symbols, &heap);
    for (uint32_t i = 0; i != NO_SYMBOL; i = symbols[i].next)
        if (token_vec_push(out, symbols[i].id))
            return SKUA_ENOMEM;
    return 0;
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    mem_free(s->memory);
    *s = (struct bpe_scratch){0};
}

int bpe_encode(const struct bpe *b, const char *bytes, size_t n, struct bpe_scratch *scratch, struct token_vec *out)
{
    if (n == 1)
        return token_vec_push(out, b->byte_id[(uint8_t)bytes[0]]);
    if (n <= SHORT_PIECE)
        return encode_short(b, (const uint8_t *)bytes, n, out);
    return encode_long(b, (const uint8_t *)bytes, n, scratch, out);
}
