/* What masks cost: answers are drawn at random under masks from a model's vocabulary, and each mask and each step is timed.
     make bench && build/bench/grammar MODEL.gguf [answers]
   For a row: compile time, masks, their median, mean and the worst one, and the mean of grammar_state_accept, in microseconds of the
   processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "gguf/gguf.h"
#include "model/vocab.h"
#include "sample/grammar.h"

#define MAX_STEPS 600
#define MAX_MASKS 100000

static const struct { const char *name, *schema, *gbnf; } rows[] = {
    {"any object", NULL, NULL},
    {"5 fields", "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,"
        "\"maximum\":150},"
                 "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
                 "\"kind\":{\"enum\":[\"alpha\",\"beta\",\"gamma\"]}},\"required\":[\"name\",\"age\",\"email\",\"tags\",\"kind\"]}", NULL},
    {"maxLength 80", "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":10,\"maxLength\":80},"
        "\"b\":{\"type\":\"string\",\"maxLength\":80}},"
                     "\"required\":[\"a\",\"b\"]}", NULL},
    {"maxLength 10000", "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1000,\"maxLength\":10000}}", NULL},
    {"recursive", "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"string\"},"
        "\"l\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/n\"}]}},"
                  "\"required\":[\"v\",\"l\"]}},\"$ref\":\"#/$defs/n\"}", NULL},
    {"GBNF prose", NULL, "root ::= line+\nline ::= [A-Z] [^\\n]* \"\\n\""},
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct grammar *compile(size_t row)
{
    struct grammar *g = NULL;
    skua_error err = {0};
    if (rows[row].gbnf) {
        grammar_from_gbnf(rows[row].gbnf, strlen(rows[row].gbnf), &g, &err);
    } else {
        json_t *schema = rows[row].schema ? json_loads(rows[row].schema, 0, NULL) : NULL;
        grammar_from_schema(schema, true, NULL, &g, &err);
        json_decref(schema);
    }
    if (!g)
        fprintf(stderr, "grammar: %s\n", err.message);
    return g;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A token of the mask, not of the rarest bytes: the first allowed one behind a random id, often one that is plain ASCII. */
static uint32_t draw(const struct tokenizer *t, const uint64_t *mask, uint32_t n, uint64_t *rng)
{
    uint32_t last = 0;
    for (int tries = 0; tries < 8; tries++) {
        uint32_t id = (uint32_t)(rng_next(rng) % n);
        size_t len;
        for (uint32_t k = 0; k < n && !(mask[id >> 6] >> (id & 63) & 1); k++)
            id = (id + 1) % n;
        last = id;
        const char *s = tokenizer_piece(t, id, false, &len);
        if (len && (uint8_t)s[0] < 0x80)
            break;
    }
    return last;
}

static size_t answer(struct grammar *g, const struct tokenizer *t, const struct grammar_vocab *v, uint64_t *mask, uint64_t *rng,
    double *seconds,
                     size_t room, double *accept)
{
    struct grammar_state *s;
    skua_error err;
    size_t n = 0;
    if (grammar_state_new(g, v, &s, &err))
        return 0;
    while (n < MAX_STEPS && n < room && !grammar_state_must_end(s)) {
        const double start = cpu_seconds();
        if (grammar_state_mask(s, mask, &err)) {
            fprintf(stderr, "grammar: %s\n", err.message);
            break;
        }
        seconds[n++] = cpu_seconds() - start;
        const uint32_t id = draw(t, mask, grammar_vocab_size(v), rng);
        size_t len;
        const char *piece = tokenizer_piece(t, id, false, &len);
        if (tokenizer_is_eog(t, id))
            break;
        const double from = cpu_seconds();
        grammar_state_accept(s, piece, len);
        *accept += cpu_seconds() - from;
    }
    grammar_state_free(s);
    return n;
}

int main(int argc, char **argv)
{
    static double seconds[MAX_MASKS];
    const int answers = argc > 2 ? atoi(argv[2]) : 5;
    struct gguf *file;
    struct tokenizer *t;
    struct grammar_vocab *v;
    skua_error err;
    if (argc < 2 || gguf_open(&file, argv[1], &err) || vocab_load(file, &t, &err)) {
        fprintf(stderr, "grammar: %s\n", argc < 2 ? "expected a model file" : err.message);
        return 1;
    }
    double start = cpu_seconds();
    if (grammar_vocab_new(t, &v, &err)) {
        fprintf(stderr, "grammar: %s\n", err.message);
        return 1;
    }
    printf("%u tokens, sorted in %.0f ms\n%-16s %9s %8s %9s %9s %9s %9s\n", grammar_vocab_size(v), (cpu_seconds() - start) * 1e3, "",
        "compile",
           "masks", "median", "mean", "worst", "accept");
    uint64_t *mask = mem_calloc((grammar_vocab_size(v) + 63) / 64, 8);
    for (size_t row = 0; row < sizeof rows / sizeof rows[0] && mask; row++) {
        start = cpu_seconds();
        struct grammar *g = compile(row);
        const double compiled = cpu_seconds() - start;
        double sum = 0, accept = 0;
        size_t n = 0;
        uint64_t rng = 1;
        for (int i = 0; i < answers && g; i++)
            n += answer(g, t, v, mask, &rng, seconds + n, MAX_MASKS - n, &accept);
        qsort(seconds, n, sizeof *seconds, ascending);
        for (size_t i = 0; i < n; i++)
            sum += seconds[i];
        if (n)
            printf("%-16s %9.0f %8zu %9.1f %9.1f %9.0f %9.1f\n", rows[row].name, compiled * 1e6, n, seconds[n / 2] * 1e6,
                sum / (double)n * 1e6,
                   seconds[n - 1] * 1e6, accept / (double)n * 1e6);
        grammar_release(g);
    }
    mem_free(mask);
    grammar_vocab_free(v);
    tokenizer_free(t);
    gguf_close(file);
    return 0;
}
