/* Methods of lists, tuples, dicts, ranges and numbers; see eval.h. The immutable sandbox hides those that modify. */
#include "jinja/methods.h"

#include <math.h>

#include "jinja/eval.h"

static const struct { uint8_t type; bool allowed; const char *name; } methods[] = {
#define X(type, name, allowed) {V_##type, allowed, #name},
    JINJA_METHODS(X)
#undef X
};

int find_method(struct val v, struct str name, uint32_t *id)
{
    int type = v.type == V_BOOL ? V_INT : v.type;
    for (uint32_t i = 0; i < METHOD_COUNT; i++)
        if (methods[i].type == type && str_is(name, methods[i].name)) {
            *id = i;
            return methods[i].allowed ? 1 : -1;
        }
    return 0;
}

const char *method_name(uint32_t id) { return methods[id].name; }

static bool dict_view(struct eval *e, const struct dict *d, int kind, struct val *out)
{
    struct view *v = eval_alloc(e, sizeof *v);
    if (!v)
        return false;
    *v = (struct view){.dict = d, .kind = kind};
    *out = (struct val){.type = V_VIEW, .view = v};
    return true;
}

static bool dict_fromkeys(struct eval *e, const struct args *a, struct val *out)
{
    struct vlist keys;
    struct dict *d = dict_new(e);
    if (!d || a->npos < 1 || a->npos > 2 || a->nkw)
        return e->code ? false : eval_fail(e, "fromkeys expected 1 or 2 arguments, got %zu", a->npos);
    if (!iter_list(e, a->pos[0], &keys))
        return false;
    for (size_t i = 0; i < keys.n; i++)
        if (!dict_set(e, d, keys.items[i], a->npos > 1 ? a->pos[1] : VAL_NONE))
            return false;
    *out = (struct val){.type = V_DICT, .dict = d};
    return true;
}

static bool dict_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    const struct dict *d = m->self.dict;
    const struct val *found;
    if (m->id == M_DICT_fromkeys)
        return dict_fromkeys(e, a, out);
    if (a->nkw)
        return eval_fail(e, "dict.%s() takes no keyword arguments", method_name(m->id));
    if (m->id == M_DICT_get) {
        if (a->npos < 1 || a->npos > 2)
            return eval_fail(e, "get expected %s, got %zu", a->npos < 1 ? "at least 1 argument" : "at most 2 arguments", a->npos);
        if (!dict_find(e, d, a->pos[0], &found))
            return false;
        *out = found ? *found : a->npos > 1 ? a->pos[1] : VAL_NONE;
        return true;
    }
    if (a->npos)
        return eval_fail(e, "dict.%s() takes no arguments (%zu given)", method_name(m->id), a->npos);
    if (m->id == M_DICT_copy) {
        *out = m->self; /* nothing can change either */
        return true;
    }
    return dict_view(e, d, m->id == M_DICT_keys ? VIEW_KEYS : m->id == M_DICT_values ? VIEW_VALUES : VIEW_ITEMS, out);
}

static int64_t clamp(int64_t i, int64_t n) { return i < 0 ? i + n < 0 ? 0 : i + n : i > n ? n : i; }

static bool list_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    const char *name = method_name(m->id);
    struct vlist items;
    if (a->nkw)
        return eval_fail(e, "%s.%s() takes no keyword arguments", val_type_name(m->self), name);
    if (m->id == M_LIST_copy) {
        *out = m->self;
        return !a->npos || eval_fail(e, "list.copy() takes no arguments (%zu given)", a->npos);
    }
    if (m->id == M_LIST_pop || m->id == M_LIST_clear) /* jinja2's sandbox forgot them; values never change here */
        return eval_fail(e, "list.%s() would modify the list, which is not supported", name);
    bool index = name[0] == 'i';
    if (a->npos < 1 || a->npos > (index && m->self.type != V_RANGE ? 3 : 1))
        return eval_fail(e, "%s.%s() got %zu arguments", val_type_name(m->self), name, a->npos);
    if (!iter_list(e, m->self, &items))
        return false;
    int64_t from = 0, to = (int64_t)items.n, count = 0;
    if (a->npos > 1 && !arg_int(e, a->pos[1], 0, "index", &from))
        return false;
    if (a->npos > 2 && !arg_int(e, a->pos[2], 0, "index", &to))
        return false;
    from = clamp(from, (int64_t)items.n);
    to = clamp(to, (int64_t)items.n);
    for (int64_t i = from; i < to; i++) {
        bool equal;
        if (!eval_step(e, 1) || !val_equal(e, items.items[i], a->pos[0], &equal))
            return false;
        count += equal;
        if (equal && index) {
            *out = val_int(i);
            return true;
        }
    }
    if (index) {
        struct sb b = {.e = e};
        struct val text;
        if (!val_repr(e, a->pos[0], &b) || !sb_done(&b, &text))
            return false;
        if (m->self.type == V_TUPLE)
            return eval_fail(e, "tuple.index(x): x not in tuple");
        return eval_fail(e, "%.*s is not in %s", (int)text.n, text.s, val_type_name(m->self));
    }
    *out = val_int(count);
    return true;
}

static bool number_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    uint64_t u = m->self.type == V_FLOAT ? 0 : (uint64_t)int_of(m->self);
    u = m->self.type != V_FLOAT && int_of(m->self) < 0 ? 0 - u : u;
    if (a->npos || a->nkw)
        return eval_fail(e, "%s.%s() takes no arguments (%zu given)", val_type_name(m->self), method_name(m->id),
                         a->npos + a->nkw);
    switch (m->id) {
    case M_INT_bit_length:
        *out = val_int(u ? 64 - __builtin_clzll(u) : 0);
        return true;
    case M_INT_bit_count:
        *out = val_int(__builtin_popcountll(u));
        return true;
    case M_INT_conjugate:
        *out = val_int(int_of(m->self));
        return true;
    case M_FLOAT_conjugate:
        *out = m->self;
        return true;
    case M_FLOAT_is_integer:
        *out = val_bool(isfinite(m->self.f) && m->self.f == floor(m->self.f));
        return true;
    default:
        return eval_fail(e, "the method %s.%s is not supported", val_type_name(m->self), method_name(m->id));
    }
}

bool call_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    if (m->self.type == V_DICT)
        return dict_method(e, m, a, out);
    if (is_number(m->self))
        return number_method(e, m, a, out);
    return list_method(e, m, a, out);
}
