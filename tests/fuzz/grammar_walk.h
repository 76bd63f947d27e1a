/* What the fuzz targets of grammars do with a grammar: an answer under its masks, every choice of which the grammar must take. */
#ifndef SKUA_TESTS_FUZZ_GRAMMAR_WALK_H
#define SKUA_TESTS_FUZZ_GRAMMAR_WALK_H

#include <stdlib.h>

#include "base/rng.h"
#include "base/strbuf.h"
#include "sample/grammar.h"
#include "support/tok_vocab.h"

static struct tokenizer *walk_tokenizer;
static struct grammar_vocab *walk_vocab;

static inline void walk_setup(void)
{
    static const char *const pieces[] = {"ab", "the ", "{\"", "\":", "\": ", "\",", "\"}", "}}", "[]", "],", "true", "null", "12", "-1",
        "\\u00", "\n  ",
                                         "\xc3\xa9", "\xe2\x82", "\xf0\x9f\x98\x80", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct tok_vocab list;
    skua_error err;
    if (walk_vocab)
        return;
    tok_vocab_init(&list);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        char text[256];
        const size_t n = tok_to_alphabet(pieces[i], strlen(pieces[i]), text);
        tok_list_add(&list.tokens, &list.n_tokens, text, n, 1);
    }
    const uint32_t end = tok_vocab_add(&list, "<|im_end|>", 3);
    struct tokenizer_source source = tok_vocab_source(&list, "qwen35");
    source.eos = end;
    if (tokenizer_new(&walk_tokenizer, &source, &err) || grammar_vocab_new(walk_tokenizer, &walk_vocab, &err))
        abort();
    tok_vocab_free(&list);
}

/* Up to `steps` tokens, appended to out; true: the answer came to its end. */
static inline bool walk(struct grammar *g, uint64_t seed, int steps, struct strbuf *out)
{
    struct grammar_state *s;
    uint64_t mask[16];
    const uint32_t n = grammar_vocab_size(walk_vocab);
    bool ended = false;
    if (n > 16 * 64)
        abort();
    if (grammar_state_new(g, walk_vocab, &s, NULL))
        return false;
    for (int i = 0; i < steps && !ended && !grammar_state_mask(s, mask, NULL); i++) {
        uint32_t id = (uint32_t)(rng_next(&seed) % n);
        size_t len;
        while (!(mask[id / 64] >> (id & 63) & 1))
            id = (id + 1) % n;
        ended = tokenizer_is_eog(walk_tokenizer, id);
        const char *piece = tokenizer_piece(walk_tokenizer, id, false, &len);
        if (ended ? !grammar_state_can_end(s) : !grammar_state_accept(s, piece, len))
            abort();
        if (!ended)
            strbuf_append(out, piece, len);
    }
    grammar_state_free(s);
    return ended;
}

#endif
