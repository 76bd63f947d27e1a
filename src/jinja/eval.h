/* The evaluator: one struct eval per rendering, and the operations on values that its files share.
 *
 * Functions that return bool return false after eval_fail recorded the failure: callers only pass it on. Messages are
 * Python's or jinja2's where a template author would search for them. All memory comes from e->arena.
 */
#ifndef SKUA_JINJA_EVAL_H
#define SKUA_JINJA_EVAL_H

#include "jinja/ast.h"
#include "jinja/registry.h"

/* An activation: the variables of the template, of a macro call or of a loop test. */
struct act {
    struct act *outer;
    struct val slots[];
};

struct eval {
    const struct jinja_template *t;
    const struct jinja_limits *limits;
    struct arena arena;
    struct dict *context;
    int64_t time;
    const struct node *at; /* position for messages */
    uint32_t depth;        /* nested evaluations */
    uint32_t data_depth;   /* nested values in the walk that runs now */
    uint64_t steps;
    skua_error *err;
    int code;              /* 0, or the failure */
};

/* All return false, with the error filled in, when the evaluation must end: on failure, and when its budget of steps is used up. */
bool eval_fail(struct eval *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool eval_nomem(struct eval *e); /* after a failed arena request */
bool eval_step(struct eval *e, uint64_t n);
bool eval_scan(struct eval *e, size_t bytes);            /* the steps of reading so much text once */
bool eval_search(struct eval *e, size_t n, size_t m);    /* ... of comparing n bytes with m at every position, at worst */
void *eval_alloc(struct eval *e, size_t n);              /* NULL after eval_nomem */
void *eval_array(struct eval *e, size_t count, size_t size);
bool data_enter(struct eval *e);                         /* one level into a nested value; e->data_depth-- to leave */

/* ---- text under construction, in the arena ---- */
struct sb {
    struct eval *e;
    char *s;
    size_t n, cap;
    size_t max; /* 0 = only the arena's limit */
    bool failed;
};
void sb_add(struct sb *b, const char *s, size_t n); /* errors are sticky; sb_done reports them */
void sb_str(struct sb *b, struct str s);
void sb_puts(struct sb *b, const char *s);
void sb_putc(struct sb *b, char c);
void sb_cp(struct sb *b, uint32_t cp);
void sb_fill(struct sb *b, struct str unit, int64_t count); /* unit repeated; nothing for count <= 0 */
void sb_printf(struct sb *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool sb_done(struct sb *b, struct val *out); /* a V_STR */

/* ---- lists and dicts (list.c) ---- */
struct list_builder { struct eval *e; struct val *items; size_t n, cap; };
bool list_add(struct list_builder *l, struct val v);
bool list_done(struct list_builder *l, enum value_type type, struct val *out);
bool make_tuple(struct eval *e, const struct val *items, size_t n, struct val *out);
struct dict *dict_new(struct eval *e);
bool dict_set(struct eval *e, struct dict *d, struct val key, struct val value); /* false also for an unhashable key */
bool dict_find(struct eval *e, const struct dict *d, struct val key, const struct val **found); /* *found NULL: absent */
const struct val *dict_get(const struct dict *d, const char *name, size_t n); /* by a string key */

/* ---- comparing (compare.c) ---- */
bool val_hash(struct eval *e, struct val v, uint64_t *hash);
bool val_equal(struct eval *e, struct val a, struct val b, bool *equal);
bool val_less(struct eval *e, struct val a, struct val b, const char *op, bool *less); /* a < b; op for the message */
bool val_contains(struct eval *e, struct val item, struct val seq, bool *found);
bool val_same(struct val a, struct val b); /* Python's `is` */
/* Stable sort of n (key, value) pairs by key; reverse keeps the order of equals. */
struct sort_item { struct val key, value; };
bool val_sort(struct eval *e, struct sort_item *items, size_t n, bool reverse);

/* ---- text forms (format.c) ---- */
void float_repr(double f, char out[40]);
bool val_write(struct eval *e, struct val v, struct sb *b);  /* str(v) */
bool val_repr(struct eval *e, struct val v, struct sb *b);   /* repr(v) */
bool str_repr(struct str s, struct sb *b);
bool val_string(struct eval *e, struct val v, struct val *out); /* str(v) as a V_STR; strings as they are */
struct json_style { bool ascii, sort_keys, multiline; struct str indent, item_sep, key_sep; };
bool val_json(struct eval *e, struct val v, const struct json_style *style, struct sb *b);
/* strformat.c */
bool percent_format(struct eval *e, struct str format, struct val args, struct val *out);
bool format_spec(struct eval *e, struct val v, struct str spec, struct sb *b); /* format(v, spec) */

/* ---- undefined values ---- */
bool undef_name(struct eval *e, struct str name, struct val *out);
bool undef_hint(struct eval *e, const char *hint, struct val *out);
bool undef_attr(struct eval *e, struct val owner, struct val name, struct val *out);
bool undef_fail(struct eval *e, struct val undef); /* the UndefinedError that using it raises */

/* ---- operators and access (ops.c, attr.c) ---- */
bool op_binary(struct eval *e, enum bin_op op, struct val a, struct val b, struct val *out);
bool op_unary(struct eval *e, bool negate, struct val a, struct val *out);
bool get_attr(struct eval *e, struct val obj, struct str name, struct val *out);
bool get_item(struct eval *e, struct val obj, struct val key, struct val *out);
bool get_slice(struct eval *e, struct val obj, struct val start, struct val stop, struct val step, struct val *out);
bool get_path(struct eval *e, struct val obj, struct val path, struct val *out); /* filters' attribute="a.b.0"; None = obj */

/* ---- iteration (iter.c) ---- */
enum iter_kind { ITER_LIST, ITER_STR, ITER_DICT, ITER_VIEW, ITER_RANGE, ITER_REVERSED, ITER_FILTERED, ITER_MAP, ITER_SELECT,
                 ITER_LAZY /* a generator filter that has not run yet; then ITER_LIST */ };
struct args;
struct iter {
    enum iter_kind kind;
    struct val source;     /* what is walked; ITER_MAP and ITER_SELECT: see from */
    struct iter *from;
    size_t i;              /* position */
    size_t n;              /* ITER_LIST: items, at list; */
    const struct val *list;
    /* ITER_FILTERED: the loop and the activation of its test. ITER_MAP, ITER_SELECT: what to apply */
    const struct node *node;
    struct act *act;
    struct val path;       /* attribute to look at first; V_MISSING = none */
    struct val fallback;   /* ITER_MAP: default */
    int which;             /* filter or test number; -1 = none */
    bool want;             /* ITER_SELECT: keep items whose test gives this */
    const struct args *args;
    bool (*fill)(struct eval *e, struct iter *it, struct vlist *out); /* ITER_LAZY: source and param to all items */
    struct val param[2];
};
bool iter_open(struct eval *e, struct val v, struct iter **out); /* TypeError when v is not iterable */
bool iter_next(struct eval *e, struct iter *it, struct val *out, bool *more);
bool iter_can(struct val v);
bool iter_list(struct eval *e, struct val v, struct vlist *out);  /* all items; borrowed when v is a list or tuple */
bool iter_value(struct eval *e, const struct iter *it, struct val *out); /* a V_ITER */
bool list_iter(struct eval *e, const struct vlist *l, struct val *out); /* a V_ITER over these items */
bool val_len(struct eval *e, struct val v, int64_t *n);  /* len(v): TypeError for iterators and numbers */
bool has_len(struct val v);

/* ---- calls ---- */
struct kwarg { struct str name; struct val value; };
struct args {
    struct val *pos;
    struct kwarg *kw;
    size_t npos, nkw;
};
/* Sort arguments into out[0..n) by the parameter names given; absent ones become V_MISSING; `required` leading ones must be
   there. who names the function in messages. */
bool args_bind(struct eval *e, const char *who, const struct args *a, const char *const *names, size_t n, size_t required,
               struct val *out);
bool arg_int(struct eval *e, struct val v, int64_t fallback, const char *who, int64_t *out); /* V_MISSING: fallback */
bool arg_str(struct eval *e, struct val v, const char *who, struct str *out);
bool call_value(struct eval *e, struct val callee, const struct args *a, struct val *out);
bool call_method(struct eval *e, const struct method *m, const struct args *a, struct val *out); /* methods.c */
bool call_str_method(struct eval *e, const struct method *m, const struct args *a, struct val *out); /* strmethods.c */
bool call_global(struct eval *e, uint32_t which, const struct args *a, struct val *out);           /* globals.c */
bool call_filter(struct eval *e, int which, struct val v, const struct args *a, struct val *out);
bool call_test(struct eval *e, int which, struct val v, const struct args *a, bool *out);
bool call_macro(struct eval *e, const struct macro *m, const struct args *a, struct val *out);     /* exec.c */
bool find_global(struct str name, struct val *out);
/* The method `name` of values like v: 1 and *id, 0 = no such attribute, -1 = it exists but is not allowed (it modifies). */
int find_method(struct val v, struct str name, uint32_t *id);
const char *method_name(uint32_t id);

/* ---- running (expr.c, exec.c) ---- */
bool eval_expr(struct eval *e, struct act *act, const struct node *n, struct val *out);
bool eval_args(struct eval *e, struct act *act, const struct call_args *a, struct args *out);
bool assign(struct eval *e, struct act *act, const struct node *target, struct val v);
bool filter_next(struct eval *e, struct iter *it, struct val *out, bool *more); /* ITER_FILTERED; exec.c */
struct act *act_new(struct eval *e, struct act *outer, const struct frame *f);
void frame_enter(struct eval *e, struct act *act, const struct frame *f);
bool exec_template(struct eval *e, struct sb *out);
bool loop_attr(struct eval *e, struct loop *l, struct str name, struct val *out, bool *found); /* attr.c */

#endif
