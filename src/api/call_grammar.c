/* The grammar of a tool call, so that what the model writes is read back by tool_parse.c as it was meant: the name of an offered tool and,
 * for strict tools, its declared parameters in the schema's order with values of their types; for custom ones with an expression, input
 * that it matches. */
#include <string.h>

#include "api/answer_internal.h"
#include "base/mem.h"
#include "sample/grammar_build.h"

/* Values of strings are free text up to their </parameter>, without what would end them before it (rule 5): an automaton over some words
   (Aho and Corasick 1975), each of its states a rule. */
struct word_node {
    int32_t child, sibling, fail, depth;
    unsigned char c;
    bool whole;              /* a word ends here, or with a suffix of it */
    bool ends;               /* ... which is the end of the value */
    grammar_expr rule;
};

struct words {
    struct word_node *nodes; /* 0: the root */
    int32_t n, cap;
    bool failed;
};

static int32_t child_of(const struct words *w, int32_t node, unsigned char c)
{
    int32_t k = w->nodes[node].child;
    while (k > 0 && w->nodes[k].c != c)
        k = w->nodes[k].sibling;
    return k;
}

static int32_t add_node(struct words *w, int32_t parent, unsigned char c)
{
    if (w->n == w->cap) {
        int32_t cap = w->cap ? 2 * w->cap : 64;
        struct word_node *more = mem_realloc_array(w->nodes, (size_t)cap, sizeof *more);
        if (!more) {
            w->failed = true;
            return 0;
        }
        w->nodes = more;
        w->cap = cap;
    }
    w->nodes[w->n] = (struct word_node){.c = c};
    if (w->n) {
        w->nodes[w->n].depth = w->nodes[parent].depth + 1;
        w->nodes[w->n].sibling = w->nodes[parent].child;
        w->nodes[parent].child = w->n;
    }
    return w->n++;
}

static void add_word(struct words *w, const char *word, bool ends)
{
    int32_t at = 0;
    for (; *word && !w->failed; word++) {
        int32_t next = child_of(w, at, (unsigned char)*word);
        at = next ? next : add_node(w, at, (unsigned char)*word);
    }
    if (!w->failed) {
        w->nodes[at].whole = true;
        w->nodes[at].ends |= ends;
    }
}

/* The state behind c: the longest beginning of a word that the text then ends with. */
static int32_t next_node(const struct words *w, int32_t node, unsigned char c)
{
    int32_t next;
    while (!(next = child_of(w, node, c)) && node)
        node = w->nodes[node].fail;
    return next;
}

/* Shorter ones first, so that what they fail to is known. */
static void set_fails(struct words *w)
{
    int32_t deepest = 0;
    for (int32_t i = 0; i < w->n; i++)
        deepest = w->nodes[i].depth > deepest ? w->nodes[i].depth : deepest;
    for (int32_t depth = 0; depth < deepest; depth++)
        for (int32_t i = 0; i < w->n; i++)
            for (int32_t k = w->nodes[i].depth == depth ? w->nodes[i].child : 0; k; k = w->nodes[k].sibling) {
                int32_t fail = i ? next_node(w, w->nodes[i].fail, w->nodes[k].c) : 0;
                w->nodes[k].fail = fail;
                w->nodes[k].whole |= w->nodes[fail].whole;
                w->nodes[k].ends |= w->nodes[fail].ends;
            }
}

/* Behind the text of this state: each character that begins or continues a word, and any other. */
static grammar_expr node_body(struct grammar_builder *b, const struct words *w, int32_t node)
{
    struct grammar_range known[128];
    grammar_expr alternatives[130];
    bool seen[128] = {false};
    size_t n_known = 0, n = 0;
    for (int32_t at = node;; at = w->nodes[at].fail) {
        for (int32_t k = w->nodes[at].child; k; k = w->nodes[k].sibling) {
            char c = (char)w->nodes[k].c;
            if (seen[w->nodes[k].c])
                continue;
            seen[w->nodes[k].c] = true;
            known[n_known++] = (struct grammar_range){w->nodes[k].c, w->nodes[k].c};
            int32_t next = next_node(w, node, (unsigned char)c);
            if (w->nodes[next].ends)
                alternatives[n++] = grammar_literal(b, &c, 1);
            else if (!w->nodes[next].whole)
                alternatives[n++] = grammar_seq2(b, grammar_literal(b, &c, 1), w->nodes[next].rule);
        }
        if (!at)
            break;
    }
    alternatives[n++] = grammar_seq2(b, grammar_chars(b, known, n_known, true), w->nodes[0].rule);
    return grammar_alt(b, alternatives, n);
}

/* From behind the line break after <parameter=KEY> to behind </parameter>. strict: no line may look like the beginning of another
   parameter, which could be one of another type. */
static grammar_expr text_value(struct grammar_builder *b, bool strict)
{
    struct words w = {0};
    grammar_expr start = 0;
    add_node(&w, 0, 0);
    add_word(&w, "</parameter>", true);
    add_word(&w, "</tool_call>", false);
    if (strict)
        add_word(&w, "\n<parameter=", false);
    if (w.failed) {
        skua_error err;
        error_nomem(&err, "grammar of a tool", (size_t)w.cap * sizeof *w.nodes);
        grammar_builder_fail(b, &err);
    } else {
        set_fails(&w);
        for (int32_t i = 0; i < w.n; i++)
            w.nodes[i].rule = grammar_rule(b, "value", 5);
        for (int32_t i = 0; i < w.n; i++)
            grammar_rule_set(b, w.nodes[i].rule, w.nodes[i].whole ? grammar_nothing(b) : node_body(b, &w, i));
        start = w.nodes[next_node(&w, 0, '\n')].rule; /* a value's first line is a line's beginning */
    }
    mem_free(w.nodes);
    return start;
}

static grammar_expr literal(struct grammar_builder *b, const char *s) { return grammar_literal(b, s, strlen(s)); }

/* One of the strings that enum lists, or the one of const; 0: there are none, or not only such. */
static grammar_expr listed_value(struct grammar_builder *b, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    grammar_expr any = 0;
    for (size_t i = 0; i < (constant ? 1 : json_array_size(values)); i++) {
        const json_t *value = constant ? constant : json_array_get(values, i);
        const char *s = json_string_value(value);
        if (!s || strstr(s, "</"))
            return 0;
        grammar_expr one = grammar_literal(b, s, json_string_length(value));
        any = any ? grammar_alt2(b, any, one) : one;
    }
    return any ? grammar_seq2(b, any, literal(b, "\n</parameter>")) : 0;
}

/* <parameter=KEY> to </parameter> and a line break. */
static grammar_expr parameter(struct grammar_builder *b, const struct tool_def *def, const struct tool_key *key, grammar_expr text,
                              bool typed, struct strbuf *warnings)
{
    grammar_expr value = text;
    if (typed && (key->types & TOOL_STRING)) {
        grammar_expr listed = listed_value(b, key->schema), shaped = 0;
        if (!listed && key->types == TOOL_STRING)
            shaped = grammar_schema_text(b, def->parameters, key->schema, true, warnings);
        value = listed ? listed : shaped ? grammar_seq2(b, shaped, literal(b, "\n</parameter>")) : text;
    } else if (typed) {
        value = grammar_seq2(b, grammar_schema(b, def->parameters, key->schema, true, warnings), literal(b, "\n</parameter>"));
    }
    grammar_expr parts[] = {literal(b, "<parameter="), grammar_literal(b, key->name, key->n), literal(b, ">\n"), value, literal(b, "\n")};
    return grammar_seq(b, parts, 5);
}

static bool is_required(const struct tool_def *def, const char *name)
{
    const json_t *required = json_object_get(def->parameters, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *s = json_string_value(json_array_get(required, i));
        if (s && strcmp(s, name) == 0)
            return true;
    }
    return false;
}

static grammar_expr strict_parameters(struct grammar_builder *b, const struct tool_def *def, grammar_expr text, struct strbuf *warnings)
{
    grammar_expr all = grammar_empty(b);
    for (size_t i = 0; i < def->n_keys; i++) {
        grammar_expr one = parameter(b, def, &def->keys[i], text, true, warnings);
        all = grammar_seq2(b, all, is_required(def, def->keys[i].name) ? one : grammar_optional(b, one));
    }
    return all;
}

/* Any declared parameters with any text; of tools that declare none, any simple names. */
static grammar_expr free_parameters(struct grammar_builder *b, const struct tool_def *def, grammar_expr text)
{
    static const struct grammar_range letters[] = {{'a', 'z'}, {'A', 'Z'}, {'0', '9'}, {'_', '_'}};
    grammar_expr any = grammar_nothing(b);
    for (size_t i = 0; i < def->n_keys; i++)
        any = grammar_alt2(b, any, parameter(b, def, &def->keys[i], text, false, NULL));
    if (!def->n_keys) {
        grammar_expr name = grammar_repeat(b, grammar_chars(b, letters, 4, false), 1, 64);
        grammar_expr parts[] = {literal(b, "<parameter="), name, literal(b, ">\n"), text, literal(b, "\n")};
        any = grammar_seq(b, parts, 5);
    }
    return grammar_repeat(b, grammar_rule_of(b, "parameter", any), 0, def->n_keys ? (uint32_t)def->n_keys : 64);
}

static grammar_expr custom_parameters(struct grammar_builder *b, const struct tool_def *def, grammar_expr text)
{
    grammar_expr value = text;
    if (def->regex)
        value = grammar_seq2(b, grammar_regex(b, def->regex, strlen(def->regex)), literal(b, "\n</parameter>"));
    grammar_expr parts[] = {literal(b, "<parameter=input>\n"), value, literal(b, "\n")};
    return grammar_seq(b, parts, 3);
}

/* An error says whose expression it is, if it is one's. */
static void name_regex(const struct tool_set *tools, skua_error *err)
{
    for (size_t i = 0; i < tools->n; i++) {
        const struct tool_def *def = &tools->defs[i];
        struct grammar *alone = NULL;
        skua_error why;
        if (def->regex && grammar_from_regex(def->regex, strlen(def->regex), &alone, &why) == err->code) {
            error_set(err, why.code, "tool \"%.80s\": %s", def->name, why.message);
            return;
        }
        grammar_release(alone);
    }
}

int call_grammar_compile(const void *call_grammar, struct strbuf *warnings, struct grammar **out, skua_error *err)
{
    const struct call_grammar *c = call_grammar;
    struct grammar_builder *b = grammar_builder_new();
    grammar_expr calls = grammar_nothing(b), text = text_value(b, false), strict_text = text_value(b, true);
    for (size_t i = 0; i < c->tools->n; i++) {
        const struct tool_def *def = &c->tools->defs[i];
        grammar_expr body = literal(b, "\n"); /* bound with the name: in one token with ">" it is what models are trained to write */
        if (def->strict || def->regex || c->whole) {
            grammar_expr parameters = def->custom   ? custom_parameters(b, def, text)
                                      : def->strict ? strict_parameters(b, def, strict_text, warnings)
                                                    : free_parameters(b, def, text);
            grammar_expr parts[] = {literal(b, "\n"), parameters, literal(b, "</function>\n</tool_call>")};
            body = grammar_seq(b, parts, 3);
        }
        grammar_expr parts[] = {grammar_literal(b, def->name, def->n), literal(b, ">"), body};
        calls = grammar_alt2(b, calls, grammar_seq(b, parts, 3));
    }
    int rc = grammar_builder_finish(b, grammar_seq2(b, literal(b, "\n<function="), calls), out, err);
    grammar_builder_free(b);
    if (rc == SKUA_EARG || rc == SKUA_EUNSUPPORTED || rc == SKUA_ELIMIT)
        name_regex(c->tools, err);
    return rc;
}
