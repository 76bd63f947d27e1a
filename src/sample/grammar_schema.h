/* A JSON schema's compiler: what its parts share. */
#ifndef SKUA_SAMPLE_GRAMMAR_SCHEMA_H
#define SKUA_SAMPLE_GRAMMAR_SCHEMA_H

#include "sample/grammar_build_internal.h"

/* A place in the document, for messages: a chain of keys up to the root. */
struct schema_place {
    uint32_t parent;  /* GRAMMAR_NONE: the root */
    const char *key;  /* NULL: an index */
    size_t index;
};

struct schema_item { /* a schema and the rule of its values */
    const json_t *schema;
    uint32_t place;
    grammar_expr rule;
};

struct schema_compiler {
    struct grammar_builder *b;
    const json_t *document;
    bool strict;
    bool raw; /* strings are written as they are, without quotes and escapes */
    struct strbuf *warnings;
    struct schema_place *places;
    size_t n_places, cap_places;
    struct schema_item *items;
    size_t n_items, cap_items;
    struct grammar_index index; /* items by the address of their schema */
    json_t **merged;            /* made here */
    size_t n_merged, cap_merged, merged_entries;
};

/* The rule for the values of a schema; made later if it is new. */
grammar_expr schema_rule(struct schema_compiler *c, const json_t *schema, uint32_t place);
uint32_t schema_place(struct schema_compiler *c, uint32_t parent, const char *key, size_t index); /* GRAMMAR_NONE: failed or the root */
void schema_path(const struct schema_compiler *c, uint32_t place, const char *key, struct strbuf *out);
/* An error about a key of a schema; a keyword that is not supported: an error, or a warning and true. */
void schema_fail(struct schema_compiler *c, uint32_t place, const char *key, int code, const char *what);
bool schema_unsupported(struct schema_compiler *c, uint32_t place, const char *key, const char *what);
/* Say which keywords of a schema are not supported; false: an error. */
bool schema_check_keywords(struct schema_compiler *c, const json_t *schema, uint32_t place);

/* The schema without allOf and $ref, merged into it: itself if it has none, else a new one, which c keeps. A reference that stands alone:
   *alone is the schema it points to, at its own place. NULL: an error, unless *alone. */
const json_t *schema_flatten(struct schema_compiler *c, const json_t *schema, uint32_t place, const json_t **alone, uint32_t *alone_place);
/* Both at once. */
const json_t *schema_merge(struct schema_compiler *c, const json_t *x, const json_t *y, uint32_t place);
json_t *schema_keep(struct schema_compiler *c, json_t *j); /* c frees it; NULL: failed */
bool schema_is_annotation(const char *key);

/* Expressions for values of one type. */
grammar_expr schema_string(struct schema_compiler *c, const json_t *schema, uint32_t place);
grammar_expr schema_integer(struct schema_compiler *c, const json_t *schema, uint32_t place);
grammar_expr schema_number(struct schema_compiler *c, const json_t *schema, uint32_t place);
grammar_expr schema_array(struct schema_compiler *c, const json_t *schema, uint32_t place);
grammar_expr schema_object(struct schema_compiler *c, const json_t *schema, uint32_t place);

enum { TYPE_NULL = 1, TYPE_BOOLEAN = 2, TYPE_INTEGER = 4, TYPE_NUMBER = 8, TYPE_STRING = 16, TYPE_ARRAY = 32, TYPE_OBJECT = 64,
    TYPE_ALL = 127 };
/* Types that a schema names, or that its keywords are about; 0: it says nothing (fail: an error). */
unsigned schema_types(struct schema_compiler *c, const json_t *schema, uint32_t place);
unsigned schema_type_of(const json_t *value);

#endif
