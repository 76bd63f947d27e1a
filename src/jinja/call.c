/* Calling values and sorting out their arguments; see eval.h. */
#include "jinja/eval.h"

bool args_bind(struct eval *e, const char *who, const struct args *a, const char *const *names, size_t n, size_t required,
               struct val *out)
{
    if (a->npos > n)
        return eval_fail(e, "%s() takes at most %zu argument%s (%zu given)", who, n, n == 1 ? "" : "s", a->npos);
    for (size_t i = 0; i < n; i++)
        out[i] = i < a->npos ? a->pos[i] : VAL_MISSING;
    for (size_t k = 0; k < a->nkw; k++) {
        size_t i = 0;
        while (i < n && !str_is(a->kw[k].name, names[i]))
            i++;
        if (i == n)
            return eval_fail(e, "%s() got an unexpected keyword argument '%.*s'", who, (int)a->kw[k].name.n, a->kw[k].name.s);
        if (out[i].type != V_MISSING)
            return eval_fail(e, "%s() got multiple values for argument '%s'", who, names[i]);
        out[i] = a->kw[k].value;
    }
    for (size_t i = 0; i < required; i++)
        if (out[i].type == V_MISSING)
            return eval_fail(e, "%s() missing required argument '%s'", who, names[i]);
    return true;
}

bool arg_int(struct eval *e, struct val v, int64_t fallback, const char *who, int64_t *out)
{
    if (v.type == V_MISSING) {
        *out = fallback;
        return true;
    }
    if (!is_integer(v))
        return eval_fail(e, "%s: '%s' object cannot be interpreted as an integer", who, val_type_name(v));
    *out = int_of(v);
    return true;
}

bool arg_str(struct eval *e, struct val v, const char *who, struct str *out)
{
    if (v.type != V_STR)
        return eval_fail(e, "%s: a str is required, not '%s'", who, val_type_name(v));
    *out = as_str(v);
    return true;
}

static bool call_loop_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct loop *l = m->self.loop;
    if (a->nkw)
        return eval_fail(e, "loop.%s() takes no keyword arguments", method_name(m->id));
    if (!strcmp(method_name(m->id), "cycle")) {
        if (!a->npos)
            return eval_fail(e, "no items for cycling given");
        *out = a->pos[(size_t)l->index0 % a->npos];
        return true;
    }
    struct val now;
    bool same = false;
    if (!make_tuple(e, a->pos, a->npos, &now))
        return false;
    if (l->changed.type != V_MISSING && !val_equal(e, l->changed, now, &same))
        return false;
    if (!same)
        l->changed = now;
    *out = val_bool(!same);
    return true;
}

static bool call_object_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    if (m->self.type == V_LOOP)
        return call_loop_method(e, m, a, out);
    if (m->self.type != V_CYCLER)
        return m->self.type == V_STR ? call_str_method(e, m, a, out) : call_method(e, m, a, out);
    struct cycler *c = m->self.cycler;
    if (a->npos || a->nkw)
        return eval_fail(e, "cycler.%s() takes no arguments", method_name(m->id));
    *out = VAL_NONE;
    if (!strcmp(method_name(m->id), "reset")) {
        c->pos = 0;
        return true;
    }
    *out = c->items.items[c->pos];
    c->pos = (c->pos + 1) % c->items.n;
    return true;
}

bool call_value(struct eval *e, struct val callee, const struct args *a, struct val *out)
{
    switch (callee.type) {
    case V_UNDEF:
        return undef_fail(e, callee);
    case V_MACRO:
        return call_macro(e, callee.macro, a, out);
    case V_GLOBAL:
        return call_global(e, callee.n, a, out);
    case V_METHOD:
        return call_object_method(e, callee.method, a, out);
    case V_JOINER:
        if (a->npos || a->nkw)
            return eval_fail(e, "a joiner takes no arguments");
        *out = callee.joiner->used ? callee.joiner->sep : val_str(STR(""));
        callee.joiner->used = true;
        return true;
    case V_LOOP:
        return eval_fail(e, "The loop must have the 'recursive' marker to be called recursively.");
    default:
        return eval_fail(e, "'%s' object is not callable", val_type_name(callee));
    }
}
