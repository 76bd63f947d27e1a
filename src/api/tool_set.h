/* The tools that an answer may call, in the form that the parser of its calls and the grammars need: names, the parameters that their
 * schemas declare, and of which types those may be. Everything is borrowed from the request, which outlives the set. */
#ifndef SKUA_API_TOOL_SET_H
#define SKUA_API_TOOL_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "api/request.h"
#include "base/error.h"

enum tool_type { /* bits */
    TOOL_STRING = 1,
    TOOL_NUMBER = 2,     /* integers too */
    TOOL_BOOLEAN = 4,
    TOOL_NULL = 8,
    TOOL_STRUCTURE = 16  /* object or array */
};

struct tool_key {
    const char *name;
    size_t n;
    unsigned types;         /* never 0: what is not declared is a string */
    const json_t *schema;
};

struct tool_def {
    const char *name;
    size_t n;
    bool custom, strict;
    const char *regex;        /* that the input of a custom tool matches; NULL: any text */
    const json_t *parameters; /* NULL: none */
    struct tool_key *keys;    /* [n_keys], in the schema's order */
    size_t n_keys;
};

struct tool_set {
    struct tool_def *defs;
    size_t n;
};

/* The request's tools: none with tool_choice none, else the allowed ones. SKUA_ENOMEM. */
int  tool_set_init(struct tool_set *s, const struct api_request *r, skua_error *err);
void tool_set_free(struct tool_set *s); /* zeroed sets allowed */

/* The declared parameter of this name; NULL. */
const struct tool_key *tool_find_key(const struct tool_def *def, const char *name, size_t n);

/* Types that a schema allows (root: where its references lead from). */
unsigned tool_schema_types(const json_t *schema, const json_t *root);

#endif
