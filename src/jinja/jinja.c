/* The public side: compiling, rendering, limits and error messages; see jinja.h. */
#include "jinja/jinja.h"

#include <stdio.h>

#include "base/mem.h"
#include "jinja/bridge.h"

/* ---- failures ---- */

/* "chat template: line L, column C: text" on one line: control characters become spaces, a cut character is dropped. */
static int report(skua_error *err, uint32_t line, uint32_t col, const char *text)
{
    char clean[440];
    size_t n = 0;
    for (; text[n] && n < sizeof clean - 1; n++)
        clean[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7F ? ' ' : text[n];
    while (text[n] && n && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    clean[n] = '\0';
    return error_set(err, SKUA_ETEMPLATE, "chat template: line %u, column %u: %s", line, col, clean);
}

bool compile_fail(struct compile *c, uint32_t line, uint32_t col, const char *fmt, ...)
{
    char text[480];
    if (c->code)
        return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->code = report(c->err, line, col, text);
    return false;
}

bool compile_nomem(struct compile *c, const struct arena *a)
{
    if (c->code)
        return false;
    if (a->limited)
        return compile_fail(c, 1, 1, "compiling needs more than the limit of %zu bytes", a->limit);
    c->code = error_nomem(c->err, "chat template", a->used);
    return false;
}

bool eval_fail(struct eval *e, const char *fmt, ...)
{
    char text[480];
    if (e->code)
        return false;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->code = report(e->err, e->at ? e->at->line : 1, e->at ? e->at->col : 1, text);
    return false;
}

bool eval_nomem(struct eval *e)
{
    if (e->code)
        return false;
    if (e->arena.limited)
        return eval_fail(e, "rendering needs more than the limit of %zu bytes of memory", e->arena.limit);
    e->code = error_nomem(e->err, "chat template rendering", e->arena.used);
    return false;
}

bool eval_step(struct eval *e, uint64_t n)
{
    e->steps += n;
    if (e->steps <= e->limits->max_steps && e->steps >= n)
        return true;
    return eval_fail(e, "rendering takes more than the limit of %llu steps", (unsigned long long)e->limits->max_steps);
}

bool eval_scan(struct eval *e, size_t bytes) { return eval_step(e, bytes / 1024); }

bool eval_search(struct eval *e, size_t n, size_t m)
{
    return eval_step(e, ((uint64_t)n / 64) * ((uint64_t)m / 64) + n / 1024); /* both are below 2^32 */
}

void *eval_alloc(struct eval *e, size_t n)
{
    void *p = arena_alloc(&e->arena, n);
    if (!p)
        eval_nomem(e);
    return p;
}

void *eval_array(struct eval *e, size_t count, size_t size)
{
    void *p = arena_array(&e->arena, count, size);
    if (!p)
        eval_nomem(e);
    return p;
}

bool data_enter(struct eval *e)
{
    if (++e->data_depth <= e->limits->max_data_depth)
        return true;
    return eval_fail(e, "a value is nested deeper than %u levels", e->limits->max_data_depth);
}

/* ---- compiling and rendering ---- */

static struct jinja_limits with_defaults(const struct jinja_limits *given)
{
    struct jinja_limits l = given ? *given : (struct jinja_limits){0};
#define DEFAULT(field, value) l.field = l.field ? l.field : (value)
    DEFAULT(max_source_bytes, (size_t)1 << 20);
    DEFAULT(max_compile_bytes, (size_t)64 << 20);
    DEFAULT(max_nesting, 200);
    DEFAULT(max_depth, 1200);
    DEFAULT(max_data_depth, 250);
    DEFAULT(max_steps, 10000000);
    DEFAULT(max_memory_bytes, (size_t)256 << 20);
    DEFAULT(max_output_bytes, (size_t)64 << 20);
    DEFAULT(max_range, 100000);
#undef DEFAULT
    return l;
}

int jinja_compile(const char *src, size_t len, const struct jinja_limits *limits, struct jinja_template **out,
                  skua_error *err)
{
    *out = NULL;
    struct jinja_template *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "chat template", sizeof *t);
    t->limits = with_defaults(limits);
    arena_init(&t->arena, t->limits.max_compile_bytes);
    struct compile c = {.t = t, .err = err, .src = {src, len}};
    arena_init(&c.scratch, t->limits.max_compile_bytes);
    if (len > t->limits.max_source_bytes)
        compile_fail(&c, 1, 1, "the template has %zu bytes, the limit is %zu", len, t->limits.max_source_bytes);
    else if ((t->root = parse_template(&c)) && !c.code)
        resolve_template(&c);
    arena_free(&c.scratch);
    if (c.code) {
        jinja_free(t);
        return c.code;
    }
    *out = t;
    return SKUA_OK;
}

void jinja_free(struct jinja_template *t)
{
    if (!t)
        return;
    arena_free(&t->arena);
    mem_free(t);
}

bool jinja_uses_variable(const struct jinja_template *t, const char *name)
{
    for (size_t i = 0; i < t->nreads; i++)
        if (str_is(t->reads[i], name))
            return true;
    return false;
}

int jinja_render(const struct jinja_template *t, const json_t *context, const struct jinja_render_options *opts,
                 struct strbuf *out, skua_error *err)
{
    if (!json_is_object(context))
        return error_set(err, SKUA_EARG, "chat template: the variables must be a JSON object");
    struct eval e = {.t = t, .limits = &t->limits, .time = opts ? opts->time : 0, .err = err};
    struct sb text = {.e = &e, .max = t->limits.max_output_bytes};
    struct val v;
    arena_init(&e.arena, t->limits.max_memory_bytes);
    if (json_to_value(&e, context, &v)) {
        e.context = v.dict;
        if (exec_template(&e, &text) && sb_done(&text, &v)) {
            if (strbuf_reserve(out, v.n))
                strbuf_append(out, v.s, v.n);
            else
                e.code = error_nomem(err, "chat template output", v.n);
        }
    }
    arena_free(&e.arena);
    return e.code;
}
