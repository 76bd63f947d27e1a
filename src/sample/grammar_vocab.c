/* A vocabulary as trees of its tokens' bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sample/grammar_internal.h"

struct token { const char *s; size_t n; uint32_t id; };

static int by_bytes(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    const int d = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    if (d || x->n != y->n)
        return d ? d : (x->n > y->n) - (x->n < y->n);
    return (x->id > y->id) - (x->id < y->id);
}

static size_t common(const struct token *x, const struct token *y)
{
    size_t n = 0;
    while (n < x->n && n < y->n && x->s[n] == y->s[n])
        n++;
    return n;
}

/* Nodes that the k sorted tokens need. */
static size_t count_nodes(const struct token *t, size_t k)
{
    size_t n = 0;
    for (size_t i = 0; i < k; i++)
        n += t[i].n - (i ? common(&t[i - 1], &t[i]) : 0);
    return n;
}

/* States: 1 to 3 so many more bytes; 4 to 7: behind E0, ED, F0, F4, whose second byte is restricted. */
uint8_t grammar_utf8_step(uint8_t state, uint8_t c)
{
    static const struct { uint8_t lo, hi, to; } second[] = {{0xA0, 0xBF, 1}, {0x80, 0x9F, 1}, {0x90, 0xBF, 2}, {0x80, 0x8F, 2}};
    if (state >= 4)
        return state < GRAMMAR_UTF8_BAD && c >= second[state - 4].lo && c <= second[state - 4].hi ? second[state - 4].to : GRAMMAR_UTF8_BAD;
    if (state)
        return c >= 0x80 && c <= 0xBF ? (uint8_t)(state - 1) : GRAMMAR_UTF8_BAD;
    if (c < 0x80)
        return 0;
    if (c < 0xC2 || c > 0xF4)
        return GRAMMAR_UTF8_BAD;
    return c == 0xE0 ? 4 : c == 0xED ? 5 : c == 0xF0 ? 6 : c == 0xF4 ? 7 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
}

#define PLAIN_LEAST 8 /* nodes in a subtree for which it pays */

/* Is everything below node i plain, read from a character's end? states: room by depth. */
static bool plain_below(const struct grammar_trie *x, uint32_t i, uint8_t *states)
{
    const uint16_t base = x->nodes[i].depth;
    states[0] = 0;
    for (uint32_t k = i + 1; k < x->nodes[i].end; k++) {
        const struct grammar_trie_node *n = &x->nodes[k];
        const uint8_t to = grammar_utf8_step(states[n->depth - base - 1], n->byte);
        if (to == GRAMMAR_UTF8_BAD || (n->byte < 0x80 && !grammar_is_plain(n->byte)))
            return false;
        states[n->depth - base] = to;
    }
    return true;
}

static int mark_plain(struct grammar_trie *x)
{
    uint8_t *states = mem_alloc(x->depth + 1);
    if (!states)
        return SKUA_ENOMEM;
    for (uint32_t i = 0; i < x->n; i++)
        if (x->nodes[i].end - i >= PLAIN_LEAST)
            x->nodes[i].plain = plain_below(x, i, states);
    mem_free(states);
    return 0;
}

static int make_trie(struct grammar_trie *x, const struct token *t, size_t k)
{
    const size_t n = count_nodes(t, k);
    size_t depth = 0;
    for (size_t i = 0; i < k; i++)
        depth = t[i].n > depth ? t[i].n : depth;
    x->nodes = mem_alloc((n + 1) * sizeof *x->nodes);
    x->ids = mem_alloc((k + 1) * sizeof *x->ids);
    uint32_t *open = mem_alloc((depth + 1) * sizeof *open); /* the path to the last token, by depth */
    if (!x->nodes || !x->ids || !open || n >= GRAMMAR_NONE) {
        mem_free(open);
        return SKUA_ENOMEM;
    }
    size_t level = 0;
    for (size_t i = 0; i < k; i++) {
        const size_t same = i ? common(&t[i - 1], &t[i]) : 0;
        for (; level > same; level--)
            x->nodes[open[level]].end = x->n;
        for (; level < t[i].n; level++) {
            open[level + 1] = x->n;
            x->nodes[x->n++] = (struct grammar_trie_node){.rank = (uint32_t)i, .depth = (uint16_t)(level + 1),
                .byte = (uint8_t)t[i].s[level]};
        }
        x->ids[i] = t[i].id;
    }
    for (; level > 0; level--)
        x->nodes[open[level]].end = x->n;
    x->nodes[x->n] = (struct grammar_trie_node){.rank = (uint32_t)k, .end = x->n + 1};
    x->depth = (uint32_t)depth;
    mem_free(open);
    return mark_plain(x);
}

int grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out, skua_error *err)
{
    const uint32_t n = tokenizer_size(t);
    struct grammar_vocab *v = *out = mem_calloc(1, sizeof *v);
    struct token *list = mem_alloc((n + 1) * sizeof *list);
    uint32_t *ends = mem_alloc((n + 1) * sizeof *ends);
    size_t n_short = 0, n_long = n;
    if (v)
        v->ends = ends;
    for (uint32_t id = 0; id < n && v && list && ends; id++) {
        struct token e = {.id = id};
        if (tokenizer_is_eog(t, id)) {
            ends[v->n_ends++] = id;
            continue;
        }
        e.s = tokenizer_piece(t, id, false, &e.n);
        if (!e.n || !tokenizer_is_samplable(t, id))
            continue;
        if (e.n <= GRAMMAR_SHORT)
            list[n_short++] = e;
        else
            list[--n_long] = e;
    }
    int rc = v && list && ends ? 0 : SKUA_ENOMEM;
    if (!rc) {
        static atomic_uint_least64_t serial;
        v->serial = atomic_fetch_add(&serial, 1) + 1;
        v->n_tokens = n;
        qsort(list, n_short, sizeof *list, by_bytes);
        qsort(list + n_long, n - n_long, sizeof *list, by_bytes);
        rc = make_trie(&v->trie[0], list, n_short);
    }
    if (!rc)
        rc = make_trie(&v->trie[1], list + n_long, n - n_long);
    mem_free(list);
    if (!v)
        mem_free(ends);
    if (rc) {
        grammar_vocab_free(v);
        *out = NULL;
        return error_nomem(err, "vocabulary of a grammar", n * sizeof *list);
    }
    return 0;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v)
        return;
    for (int i = 0; i < 2; i++) {
        mem_free(v->trie[i].nodes);
        mem_free(v->trie[i].ids);
    }
    mem_free(v->ends);
    mem_free(v);
}

uint32_t grammar_vocab_size(const struct grammar_vocab *v) { return v->n_tokens; }
