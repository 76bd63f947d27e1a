/* Chat templates: an interpreter for the subset of Jinja2 3.1 that chat templates in GGUF files use, set up as Hugging
 * Face transformers sets it up: ImmutableSandboxedEnvironment(trim_blocks, lstrip_blocks, loopcontrols), autoescape off,
 * the filter tojson = json.dumps(ensure_ascii=False), the globals raise_exception and strftime_now, {% generation %}
 * blocks rendered as if the tags were not there.
 *
 * Not supported, and refused with a message that names it: extends, block, include, import, from, autoescape, recursive
 * loops, the filters random, urlize, xmlattr, filesizeformat, pprint and wordwrap, the global lipsum, integers beyond 64 bits.
 */
#ifndef SKUA_JINJA_JINJA_H
#define SKUA_JINJA_JINJA_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Every loop, recursion and buffer of compiling and rendering is bounded by one of these. A field of 0 means its default. */
struct jinja_limits {
    size_t max_source_bytes;  /* template text; 1 MiB */
    size_t max_compile_bytes; /* memory of the compiled form and of compiling; 64 MiB */
    uint32_t max_nesting;     /* nested tags, and depth of an expression tree; 200 */
    uint32_t max_depth;       /* nested evaluations while rendering, macro calls included; 1200 */
    uint32_t max_data_depth;  /* nested lists and objects, of the context and of values built while rendering; 250 */
    uint64_t max_steps;       /* evaluated nodes and loop iterations; 10 million */
    size_t max_memory_bytes;  /* values of one rendering; 256 MiB */
    size_t max_output_bytes;  /* 64 MiB */
    uint32_t max_range;       /* items of one range(); 100000, as jinja2's sandbox */
};

struct jinja_render_options {
    int64_t time; /* strftime_now: seconds since 1970 read as UTC; 0 = the current local time */
};

struct jinja_template;

/* Compile len bytes of UTF-8 at src (copied). 0 and *out (jinja_free), else *out = NULL and SKUA_ETEMPLATE, SKUA_ENOMEM.
   Messages of template errors: "chat template: line L, column C: ...". limits may be NULL; it also governs rendering. */
int jinja_compile(const char *src, size_t len, const struct jinja_limits *limits, struct jinja_template **out,
                  skua_error *err);

/* Append the rendering with the variables of context (a JSON object) to out. A compiled template is immutable: several
   threads may render it at once, also with the same context. opts may be NULL. 0, SKUA_ETEMPLATE, SKUA_EARG (context is
   not an object), SKUA_ENOMEM; on failure out is as it was. */
int jinja_render(const struct jinja_template *t, const json_t *context, const struct jinja_render_options *opts,
                 struct strbuf *out, skua_error *err);

/* Does the template read this variable from its context anywhere? (reads of a name that it always sets itself do not count) */
bool jinja_uses_variable(const struct jinja_template *t, const char *name);

void jinja_free(struct jinja_template *t); /* NULL allowed */

#endif
