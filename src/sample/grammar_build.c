/* The parts that grammars are made of; see grammar_build.h. */
#include "sample/grammar_build.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "sample/grammar_build_internal.h"

struct grammar_builder *grammar_builder_new(void)
{
    struct grammar_builder *b = mem_calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->cap_exprs = 64;
    b->exprs = mem_calloc(b->cap_exprs, sizeof *b->exprs);
    if (!b->exprs || grammar_index_init(&b->set_index, 256)) {
        grammar_builder_free(b);
        return NULL;
    }
    b->n_exprs = 1; /* 0 is the failed expression */
    for (int c = 0; c < 256; c++) { /* set c is the byte c */
        struct grammar_set s = {{0}};
        grammar_set_add(&s, (uint8_t)c);
        if (builder_set(b, &s) == GRAMMAR_NONE) {
            grammar_builder_free(b);
            return NULL;
        }
    }
    return b;
}

void grammar_builder_free(struct grammar_builder *b)
{
    if (!b)
        return;
    mem_free(b->exprs);
    mem_free(b->items);
    mem_free(b->sets);
    grammar_index_free(&b->set_index);
    mem_free(b->bytes);
    mem_free(b->rules);
    mem_free(b->ranges);
    mem_free(b);
}

int grammar_builder_error(const struct grammar_builder *b, skua_error *err)
{
    if (!b)
        return error_nomem(err, "grammar builder", sizeof *b);
    if (b->err.code && err)
        *err = b->err;
    return b->err.code;
}

void grammar_builder_fail(struct grammar_builder *b, const skua_error *err)
{
    if (b && !b->err.code)
        b->err = *err;
}

bool builder_room(struct grammar_builder *b, void *pp, size_t n, size_t *cap, size_t more, size_t size)
{
    if (n + more <= *cap)
        return true;
    size_t want = *cap * 2 > n + more ? *cap * 2 : n + more + 16;
    void *p = mem_realloc_array(*(void **)pp, want, size);
    if (!p) {
        error_nomem(&b->err, "grammar", want * size);
        return false;
    }
    *(void **)pp = p;
    *cap = want;
    return true;
}

int builder_limit(struct grammar_builder *b, const char *what, size_t limit)
{
    return error_set(&b->err, SKUA_ELIMIT, "the grammar needs more than %zu %s, the limit", limit, what);
}

bool builder_steps(struct grammar_builder *b, uint64_t n)
{
    if (b->err.code)
        return false;
    b->steps += n;
    if (b->steps > GRAMMAR_MAX_STEPS)
        builder_limit(b, "steps to compile", GRAMMAR_MAX_STEPS);
    return !b->err.code;
}

static bool failed(const struct grammar_builder *b) { return !b || b->err.code; }

uint32_t builder_set(struct grammar_builder *b, const struct grammar_set *s)
{
    const uint32_t hash = (uint32_t)XXH3_64bits(s, sizeof *s);
    size_t at = hash;
    for (uint32_t id; (id = grammar_index_next(&b->set_index, hash, &at)) != GRAMMAR_NONE;)
        if (memcmp(&b->sets[id], s, sizeof *s) == 0)
            return id;
    if (!builder_room(b, &b->sets, b->n_sets, &b->cap_sets, 1, sizeof *b->sets))
        return GRAMMAR_NONE;
    if (grammar_index_add(&b->set_index, hash, (uint32_t)b->n_sets)) {
        error_nomem(&b->err, "grammar", 0);
        return GRAMMAR_NONE;
    }
    b->sets[b->n_sets] = *s;
    return (uint32_t)b->n_sets++;
}

grammar_expr builder_expr(struct grammar_builder *b, struct expr e)
{
    if (failed(b))
        return 0;
    if (b->n_exprs >= GRAMMAR_MAX_EXPRS) {
        builder_limit(b, "parts", GRAMMAR_MAX_EXPRS);
        return 0;
    }
    if (e.depth > GRAMMAR_MAX_DEPTH) {
        builder_limit(b, "levels of nesting", GRAMMAR_MAX_DEPTH);
        return 0;
    }
    if (!builder_room(b, &b->exprs, b->n_exprs, &b->cap_exprs, 1, sizeof *b->exprs))
        return 0;
    b->exprs[b->n_exprs] = e;
    return (grammar_expr)b->n_exprs++;
}

grammar_expr grammar_empty(struct grammar_builder *b) { return builder_expr(b, (struct expr){.kind = EXPR_EMPTY}); }
grammar_expr grammar_nothing(struct grammar_builder *b) { return builder_expr(b, (struct expr){.kind = EXPR_NOTHING}); }

/* Keep n bytes; where, or GRAMMAR_NONE. */
static uint32_t keep(struct grammar_builder *b, const char *bytes, size_t n)
{
    if (failed(b))
        return GRAMMAR_NONE;
    if (n > GRAMMAR_MAX_BYTES - b->n_bytes) {
        builder_limit(b, "bytes of literals", GRAMMAR_MAX_BYTES);
        return GRAMMAR_NONE;
    }
    if (!builder_room(b, &b->bytes, b->n_bytes, &b->cap_bytes, n, 1))
        return GRAMMAR_NONE;
    if (n)
        memcpy(b->bytes + b->n_bytes, bytes, n);
    b->n_bytes += n;
    return (uint32_t)(b->n_bytes - n);
}

grammar_expr grammar_literal(struct grammar_builder *b, const char *bytes, size_t n)
{
    if (!n)
        return grammar_empty(b);
    const uint32_t at = keep(b, bytes, n);
    return at == GRAMMAR_NONE ? 0 : builder_expr(b, (struct expr){.kind = EXPR_LITERAL, .a = at, .b = (uint32_t)n});
}

/* SEQ or ALT of these. */
static grammar_expr list(struct grammar_builder *b, enum expr_kind kind, const grammar_expr *parts, size_t n)
{
    uint16_t depth = 0;
    if (failed(b))
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (!parts[i])
            return 0;
        depth = b->exprs[parts[i]].depth > depth ? b->exprs[parts[i]].depth : depth;
    }
    if (n == 1)
        return parts[0];
    if (b->n_items + n > GRAMMAR_MAX_EXPRS * 2u) {
        builder_limit(b, "parts", GRAMMAR_MAX_EXPRS);
        return 0;
    }
    if (!builder_room(b, &b->items, b->n_items, &b->cap_items, n, sizeof *b->items))
        return 0;
    memcpy(b->items + b->n_items, parts, n * sizeof *parts);
    b->n_items += n;
    return builder_expr(b, (struct expr){.kind = (uint16_t)kind, .depth = (uint16_t)(depth + 1), .a = (uint32_t)(b->n_items - n),
                                         .b = (uint32_t)n});
}

grammar_expr grammar_seq(struct grammar_builder *b, const grammar_expr *parts, size_t n)
{
    return n ? list(b, EXPR_SEQ, parts, n) : grammar_empty(b);
}

grammar_expr grammar_seq2(struct grammar_builder *b, grammar_expr x, grammar_expr y)
{
    const grammar_expr parts[] = {x, y};
    return list(b, EXPR_SEQ, parts, 2);
}

grammar_expr grammar_alt(struct grammar_builder *b, const grammar_expr *parts, size_t n)
{
    return n ? list(b, EXPR_ALT, parts, n) : grammar_nothing(b);
}

grammar_expr grammar_alt2(struct grammar_builder *b, grammar_expr x, grammar_expr y)
{
    const grammar_expr parts[] = {x, y};
    return list(b, EXPR_ALT, parts, 2);
}

grammar_expr grammar_repeat(struct grammar_builder *b, grammar_expr x, uint32_t min, uint32_t max)
{
    if (!x || failed(b))
        return 0;
    if (min > max)
        return grammar_nothing(b);
    return builder_expr(b, (struct expr){.kind = EXPR_REPEAT, .depth = (uint16_t)(b->exprs[x].depth + 1), .a = x, .min = min, .max = max});
}

grammar_expr grammar_optional(struct grammar_builder *b, grammar_expr x) { return grammar_repeat(b, x, 0, 1); }

grammar_expr grammar_rule(struct grammar_builder *b, const char *name, size_t n)
{
    const uint32_t at = keep(b, name, n);
    if (at == GRAMMAR_NONE || !builder_room(b, &b->rules, b->n_rules, &b->cap_rules, 1, sizeof *b->rules))
        return 0;
    b->rules[b->n_rules] = (struct grammar_rule){.name = at, .name_len = (uint32_t)n};
    const grammar_expr e = builder_expr(b, (struct expr){.kind = EXPR_RULE, .a = (uint32_t)b->n_rules});
    b->n_rules += e != 0;
    return e;
}

void grammar_rule_set(struct grammar_builder *b, grammar_expr rule, grammar_expr body)
{
    if (rule && body && !failed(b))
        b->rules[b->exprs[rule].a].body = body;
}

bool grammar_rule_is_set(const struct grammar_builder *b, grammar_expr rule)
{
    return rule && !failed(b) && b->rules[b->exprs[rule].a].body;
}

grammar_expr grammar_rule_of(struct grammar_builder *b, const char *name, grammar_expr body)
{
    const grammar_expr rule = grammar_rule(b, name, strlen(name));
    grammar_rule_set(b, rule, body);
    return body ? rule : 0;
}

grammar_expr grammar_text(struct grammar_builder *b)
{
    if (failed(b))
        return 0;
    if (!b->text)
        b->text = grammar_rule_of(b, "text", grammar_repeat(b, grammar_chars(b, NULL, 0, true), 0, GRAMMAR_UNLIMITED));
    return b->text;
}
