/* Values of the template language: what Python objects are to jinja2, reduced to the kinds a chat template can meet.
 *
 * A value is 16 bytes and is copied freely; what it points to lives in the arena of the rendering (or of the template, for
 * constants) and is never changed afterwards, with these exceptions: namespaces (set), iterators, loops, cyclers and
 * joiners (position). Strings are UTF-8, point into other strings where possible, and are not zero-terminated.
 */
#ifndef SKUA_JINJA_VALUE_H
#define SKUA_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *s;
    size_t n; /* bytes */
};
#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})

static inline bool str_eq(struct str a, struct str b) { return a.n == b.n && !memcmp(a.s, b.s, a.n); }
static inline bool str_is(struct str a, const char *z) { return a.n == strlen(z) && !memcmp(a.s, z, a.n); }

enum value_type {
    V_MISSING,  /* a variable without a value; never seen by templates */
    V_UNDEF,    /* jinja2's Undefined, which knows why */
    V_NONE, V_BOOL, V_INT, V_FLOAT, V_STR, V_LIST, V_TUPLE, V_DICT,
    V_RANGE, V_VIEW /* dict_keys, dict_values, dict_items */, V_ITER /* a generator or iterator: one pass */,
    V_NS, V_LOOP, V_MACRO, V_METHOD, V_GLOBAL, V_CYCLER, V_JOINER
};

struct node;
struct iter;
struct act;

struct val {
    uint8_t type;
    bool markup;  /* V_STR: a markupsafe.Markup (escape and safe make them) */
    uint32_t n;   /* V_STR: bytes; V_GLOBAL: which */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct vlist *list;   /* V_LIST, V_TUPLE */
        struct dict *dict;    /* V_DICT, V_NS */
        struct undef *undef;
        struct range *range;
        struct view *view;
        struct iter *iter;
        struct loop *loop;
        struct macro *macro;
        struct method *method;
        struct cycler *cycler;
        struct joiner *joiner;
    };
};

struct vlist {
    struct val *items;
    size_t n;
    bool group; /* a tuple of groupby: has the attributes grouper and list */
};

struct dict_entry {
    struct val key, value;
    uint64_t hash;
};
/* Insertion order; a hash index (entry number + 1, 0 = free) once it has more than 8 entries. */
struct dict {
    struct dict_entry *entries;
    size_t n, cap;
    uint32_t *index;
    size_t mask;
};

/* Why a value is undefined, in the cases jinja2 tells apart. */
struct undef {
    enum { UNDEF_NAME, UNDEF_HINT, UNDEF_ATTR, UNDEF_ITEM, UNDEF_UNSAFE } kind;
    struct str text;       /* the name; or the whole message (UNDEF_HINT) */
    const char *owner;     /* type of the object that lacks it */
    struct val item;       /* UNDEF_ITEM: the subscript */
};

struct range { int64_t start, stop, step; size_t n; };
struct view { const struct dict *dict; enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS } kind; };
struct cycler { struct vlist items; size_t pos; };
struct joiner { struct val sep; bool used; };
struct method { struct val self; uint32_t id; };
struct macro { const struct node *node; struct act *act; };

struct loop {
    struct iter *it;
    struct val iterable;
    int64_t index0;
    struct val after, current, before; /* V_MISSING when absent */
    struct val changed;                /* a tuple, V_MISSING before the first call */
    int64_t length;                    /* -1 = not known yet */
};

#define VAL_NONE    ((struct val){.type = V_NONE})
#define VAL_MISSING ((struct val){.type = V_MISSING})
static inline struct val val_bool(bool b) { return (struct val){.type = V_BOOL, .b = b}; }
static inline struct val val_int(int64_t i) { return (struct val){.type = V_INT, .i = i}; }
static inline struct val val_float(double f) { return (struct val){.type = V_FLOAT, .f = f}; }
static inline struct val val_str(struct str s) { return (struct val){.type = V_STR, .n = (uint32_t)s.n, .s = s.s}; }
static inline struct str as_str(struct val v) { return (struct str){v.s, v.n}; }
static inline bool is_number(struct val v) { return v.type == V_BOOL || v.type == V_INT || v.type == V_FLOAT; }
static inline bool is_integer(struct val v) { return v.type == V_BOOL || v.type == V_INT; }
static inline bool is_seq(struct val v) { return v.type == V_LIST || v.type == V_TUPLE; }
static inline int64_t int_of(struct val v) { return v.type == V_BOOL ? v.b : v.i; }          /* is_integer only */
static inline double float_of(struct val v) { return v.type == V_FLOAT ? v.f : (double)int_of(v); } /* is_number only */

const char *val_type_name(struct val v); /* Python's type(v).__name__ */
bool val_truth(struct val v);            /* Python's bool(v) */

#endif
