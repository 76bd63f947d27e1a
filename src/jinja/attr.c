/* Attributes, items and slices, as jinja2's sandbox gives them: obj.name prefers attributes (methods), obj[key] prefers
 * items; what is missing is an undefined value that remembers why; what would modify a value is not accessible. */
#include <stdio.h>

#include "jinja/eval.h"
#include "jinja/text.h"

/* ---- undefined values ---- */

static bool make_undef(struct eval *e, struct undef u, struct val *out)
{
    struct undef *p = eval_alloc(e, sizeof *p);
    if (!p)
        return false;
    *p = u;
    *out = (struct val){.type = V_UNDEF, .undef = p};
    return true;
}

bool undef_name(struct eval *e, struct str name, struct val *out)
{
    return make_undef(e, (struct undef){.kind = UNDEF_NAME, .text = name}, out);
}

bool undef_hint(struct eval *e, const char *hint, struct val *out)
{
    return make_undef(e, (struct undef){.kind = UNDEF_HINT, .text = {hint, strlen(hint)}}, out);
}

static const char *object_type(struct val v)
{
    switch (v.type) {
    case V_NONE: return "None";
    case V_BOOL: return "bool object";
    case V_INT: return "int object";
    case V_FLOAT: return "float object";
    case V_STR: return v.markup ? "markupsafe.Markup object" : "str object";
    case V_LIST: return "list object";
    case V_TUPLE: return "tuple object";
    case V_DICT: return "dict object";
    case V_RANGE: return "range object";
    case V_VIEW: return v.view->kind == VIEW_KEYS ? "dict_keys object" : v.view->kind == VIEW_VALUES ? "dict_values object"
                                                                                                   : "dict_items object";
    case V_ITER: return v.iter->kind == ITER_REVERSED ? "list_reverseiterator object" : "generator object";
    case V_NS: return "jinja2.utils.Namespace object";
    case V_LOOP: return "jinja2.runtime.LoopContext object";
    case V_MACRO: return "jinja2.runtime.Macro object";
    case V_CYCLER: return "jinja2.utils.Cycler object";
    case V_JOINER: return "jinja2.utils.Joiner object";
    default: return "builtin_function_or_method object";
    }
}

bool undef_attr(struct eval *e, struct val owner, struct val name, struct val *out)
{
    struct undef u = {.kind = name.type == V_STR ? UNDEF_ATTR : UNDEF_ITEM, .owner = object_type(owner), .item = name};
    if (name.type == V_STR)
        u.text = as_str(name);
    return make_undef(e, u, out);
}

bool undef_fail(struct eval *e, struct val undef)
{
    const struct undef *u = undef.undef;
    struct sb b = {.e = e};
    struct val text;
    switch (u->kind) {
    case UNDEF_NAME:
        str_repr(u->text, &b);
        sb_puts(&b, " is undefined");
        break;
    case UNDEF_HINT:
        sb_str(&b, u->text);
        break;
    case UNDEF_ATTR:
        sb_printf(&b, "'%s' has no attribute ", u->owner);
        str_repr(u->text, &b);
        break;
    case UNDEF_ITEM:
        sb_printf(&b, "%s has no element ", u->owner);
        if (!val_repr(e, u->item, &b))
            return false;
        break;
    case UNDEF_UNSAFE:
        sb_puts(&b, "access to attribute ");
        str_repr(u->text, &b);
        sb_printf(&b, " of '%s' object is unsafe.", u->owner);
        break;
    }
    if (!sb_done(&b, &text))
        return false;
    return eval_fail(e, "%.*s", (int)text.n, text.s);
}

/* ---- attributes ---- */

/* The item after the current one, fetched ahead of time. V_MISSING at the end. */
static bool loop_peek(struct eval *e, struct loop *l)
{
    bool more;
    if (l->after.type != V_MISSING)
        return true;
    if (!iter_next(e, l->it, &l->after, &more))
        return false;
    if (!more)
        l->after = VAL_MISSING;
    return true;
}

static bool loop_length(struct eval *e, struct loop *l)
{
    if (l->length >= 0)
        return true;
    if (has_len(l->iterable))
        return val_len(e, l->iterable, &l->length);
    struct vlist rest; /* an iterator: fetch what is left, and walk that from now on */
    struct val again;
    if (!iter_list(e, (struct val){.type = V_ITER, .iter = l->it}, &rest) || !list_iter(e, &rest, &again))
        return false;
    l->it = again.iter;
    l->length = (int64_t)rest.n + l->index0 + 1 + (l->after.type != V_MISSING);
    return true;
}

bool loop_attr(struct eval *e, struct loop *l, struct str name, struct val *out, bool *found)
{
    *found = true;
    if (str_is(name, "index0") || str_is(name, "index"))
        *out = val_int(l->index0 + (name.n == 5));
    else if (str_is(name, "first"))
        *out = val_bool(l->index0 == 0);
    else if (str_is(name, "depth") || str_is(name, "depth0"))
        *out = val_int(name.n == 5);
    else if (str_is(name, "length") || str_is(name, "revindex") || str_is(name, "revindex0")) {
        if (!loop_length(e, l))
            return false;
        *out = val_int(name.n == 6 ? l->length : l->length - l->index0 - (name.n == 9));
    } else if (str_is(name, "last")) {
        if (!loop_peek(e, l))
            return false;
        *out = val_bool(l->after.type == V_MISSING);
    } else if (str_is(name, "previtem")) {
        if (l->index0 == 0)
            return undef_hint(e, "there is no previous item", out);
        *out = l->before;
    } else if (str_is(name, "nextitem")) {
        if (!loop_peek(e, l))
            return false;
        if (l->after.type == V_MISSING)
            return undef_hint(e, "there is no next item", out);
        *out = l->after;
    } else
        *found = false;
    return true;
}

static bool macro_attr(struct eval *e, const struct node *m, struct str name, struct val *out, bool *found)
{
    *found = true;
    if (str_is(name, "name"))
        *out = m->kind == N_MACRO ? val_str(m->name) : VAL_NONE;
    else if (str_is(name, "catch_kwargs") || str_is(name, "catch_varargs"))
        *out = val_bool(name.n == 12 ? m->uses_kwargs : m->uses_varargs);
    else if (str_is(name, "caller"))
        *out = val_bool(m->uses_caller);
    else if (str_is(name, "arguments")) {
        struct list_builder l = {.e = e};
        for (uint32_t i = 0; i < m->n; i++)
            if (!list_add(&l, val_str(m->list[i]->name)))
                return false;
        return list_done(&l, V_TUPLE, out);
    } else
        *found = false;
    return true;
}

/* The attribute of an object, as Python's getattr followed by the sandbox's check. *found = false: there is none. */
static bool attribute(struct eval *e, struct val obj, struct str name, struct val *out, bool *found)
{
    uint32_t id;
    *found = false;
    if (name.n >= 2 && name.s[0] == '_' && name.s[1] == '_') /* every Python object has such attributes */
        *found = str_is(name, "__class__") || str_is(name, "__init__") || str_is(name, "__doc__") ||
                 str_is(name, "__dict__") || str_is(name, "__globals__") || str_is(name, "__subclasses__");
    if (*found)
        return make_undef(e, (struct undef){.kind = UNDEF_UNSAFE, .text = name, .owner = val_type_name(obj)}, out);
    switch (obj.type) {
    case V_NS: {
        const struct val *v = dict_get(obj.dict, name.s, name.n);
        if ((*found = v)) {
            if (name.n && name.s[0] == '_')
                return make_undef(e, (struct undef){.kind = UNDEF_UNSAFE, .text = name, .owner = "Namespace"}, out);
            *out = *v;
        }
        return true;
    }
    case V_LOOP:
        if (!loop_attr(e, obj.loop, name, out, found))
            return false;
        break;
    case V_MACRO:
        return macro_attr(e, obj.macro->node, name, out, found);
    case V_TUPLE:
        if ((*found = obj.list->group && (str_is(name, "grouper") || str_is(name, "list")))) {
            *out = obj.list->items[name.n == 4];
            return true;
        }
        break;
    case V_CYCLER:
        if ((*found = str_is(name, "current"))) {
            *out = obj.cycler->items.items[obj.cycler->pos];
            return true;
        }
        break;
    default:
        break;
    }
    if (*found)
        return true;
    int known = find_method(obj, name, &id);
    if (!known)
        return true;
    *found = true;
    if (known < 0)
        return make_undef(e, (struct undef){.kind = UNDEF_UNSAFE, .text = name, .owner = val_type_name(obj)}, out);
    struct method *m = eval_alloc(e, sizeof *m);
    if (!m)
        return false;
    *m = (struct method){obj, id};
    *out = (struct val){.type = V_METHOD, .method = m};
    return true;
}

static bool index_range(int64_t i, size_t n, size_t *at)
{
    i += i < 0 ? (int64_t)n : 0;
    if (i < 0 || (uint64_t)i >= n)
        return false;
    *at = (size_t)i;
    return true;
}

/* obj[key] without the fallback to attributes. *found = false: no such item (or no items at all). */
static bool item(struct eval *e, struct val obj, struct val key, struct val *out, bool *found)
{
    size_t at;
    *found = false;
    switch (obj.type) {
    case V_DICT: {
        const struct val *v = NULL;
        if (key.type == V_LIST || key.type == V_DICT || key.type == V_VIEW)
            return true; /* unhashable: a TypeError, which jinja2 catches */
        if (!dict_find(e, obj.dict, key, &v))
            return false;
        if ((*found = v))
            *out = *v;
        return true;
    }
    case V_LIST:
    case V_TUPLE:
        if (is_integer(key) && (*found = index_range(int_of(key), obj.list->n, &at)))
            *out = obj.list->items[at];
        return true;
    case V_RANGE:
        if (is_integer(key) && (*found = index_range(int_of(key), obj.range->n, &at)))
            *out = val_int(obj.range->start + (int64_t)at * obj.range->step);
        return true;
    case V_STR:
        if (!eval_scan(e, obj.n))
            return false;
        if (is_integer(key) && (*found = index_range(int_of(key), text_length(as_str(obj)), &at))) {
            size_t from = text_offset(as_str(obj), at);
            struct str rest = {obj.s + from, obj.n - from};
            *out = val_str((struct str){rest.s, text_offset(rest, 1)});
            out->markup = obj.markup;
        }
        return true;
    default:
        return true;
    }
}

bool get_attr(struct eval *e, struct val obj, struct str name, struct val *out)
{
    bool found;
    if (obj.type == V_UNDEF && !(name.n >= 2 && !memcmp(name.s, "__", 2)))
        return undef_fail(e, obj);
    if (!attribute(e, obj, name, out, &found))
        return false;
    if (!found && !item(e, obj, val_str(name), out, &found))
        return false;
    return found || undef_attr(e, obj, val_str(name), out);
}

bool get_item(struct eval *e, struct val obj, struct val key, struct val *out)
{
    bool found;
    if (obj.type == V_UNDEF)
        return undef_fail(e, obj);
    if (!item(e, obj, key, out, &found))
        return false;
    if (!found && key.type == V_STR && !attribute(e, obj, as_str(key), out, &found))
        return false;
    return found || undef_attr(e, obj, key, out);
}

bool get_path(struct eval *e, struct val obj, struct val path, struct val *out)
{
    *out = obj;
    if (path.type == V_NONE)
        return true;
    if (path.type != V_STR)
        return get_item(e, obj, path, out);
    struct str rest = as_str(path);
    for (bool more = true; more;) {
        size_t dot = text_find(rest, STR("."), 0);
        struct str part = {rest.s, dot == SIZE_MAX ? rest.n : dot};
        more = dot != SIZE_MAX;
        rest = (struct str){rest.s + part.n + more, rest.n - part.n - more};
        struct val key = val_str(part);
        bool digits = part.n && part.n < 18;
        int64_t number = 0;
        for (size_t i = 0; digits && i < part.n; i++) {
            digits = part.s[i] >= '0' && part.s[i] <= '9';
            number = number * 10 + (part.s[i] - '0');
        }
        if (!get_item(e, *out, digits ? val_int(number) : key, out))
            return false;
    }
    return true;
}

/* ---- slices ---- */

static bool slice_bound(struct eval *e, struct val v, int64_t n, int64_t step, int64_t fallback, int64_t *out)
{
    if (v.type == V_NONE || v.type == V_MISSING) {
        *out = fallback;
        return true;
    }
    if (!is_integer(v))
        return eval_fail(e, "slice indices must be integers or None or have an __index__ method");
    int64_t i = int_of(v);
    if (i < 0)
        i = i < -n ? -1 : i + n;
    if (i < 0)
        i = step < 0 ? -1 : 0;
    *out = i >= n ? step < 0 ? n - 1 : n : i;
    return true;
}

static bool slice_text(struct eval *e, struct val v, int64_t start, int64_t step, int64_t count, struct val *out)
{
    struct str s = as_str(v);
    if (step == 1) {
        size_t from = text_offset(s, (size_t)start);
        struct str rest = {s.s + from, s.n - from};
        *out = val_str((struct str){rest.s, text_offset(rest, (size_t)count)});
        out->markup = v.markup;
        return true;
    }
    /* byte offset of every code point once, then pick */
    size_t n = text_length(s), k = 0;
    uint32_t *offsets = eval_array(e, n + 1, sizeof *offsets);
    if (!offsets || !eval_step(e, n / 16))
        return false;
    for (size_t i = 0; i < s.n; i++)
        if (((uint8_t)s.s[i] & 0xC0) != 0x80)
            offsets[k++] = (uint32_t)i;
    offsets[k] = (uint32_t)s.n;
    struct sb b = {.e = e};
    for (int64_t j = 0; j < count; j++) {
        size_t i = (size_t)(start + j * step);
        sb_add(&b, s.s + offsets[i], offsets[i + 1] - offsets[i]);
    }
    bool ok = sb_done(&b, out);
    out->markup = ok && v.markup;
    return ok;
}

bool get_slice(struct eval *e, struct val obj, struct val start, struct val stop, struct val step, struct val *out)
{
    int64_t n, by = 1, from, to, count;
    if (obj.type == V_UNDEF)
        return undef_fail(e, obj);
    if (obj.type != V_STR && !is_seq(obj) && obj.type != V_RANGE) {
        if (obj.type == V_DICT)
            return eval_fail(e, "unhashable type: 'slice'");
        return eval_fail(e, "'%s' object is not subscriptable", val_type_name(obj));
    }
    if (step.type == V_UNDEF || start.type == V_UNDEF || stop.type == V_UNDEF || !val_len(e, obj, &n))
        return e->code ? false : eval_fail(e, "slice indices must be integers or None or have an __index__ method");
    if (step.type != V_NONE && step.type != V_MISSING) {
        if (!is_integer(step))
            return eval_fail(e, "slice indices must be integers or None or have an __index__ method");
        by = int_of(step);
        if (!by)
            return eval_fail(e, "slice step cannot be zero");
        by = by > n ? n + 1 : by < -n ? -n - 1 : by; /* the same items, and no overflow below */
    }
    if (!slice_bound(e, start, n, by, by < 0 ? n - 1 : 0, &from) || !slice_bound(e, stop, n, by, by < 0 ? -1 : n, &to))
        return false;
    count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (to < from ? (from - to - 1) / -by + 1 : 0);
    if (obj.type == V_STR)
        return slice_text(e, obj, from, by, count, out);
    if (obj.type == V_RANGE) {
        struct range *r = eval_alloc(e, sizeof *r);
        if (!r)
            return false;
        *r = (struct range){obj.range->start + from * obj.range->step, obj.range->start + to * obj.range->step,
                            obj.range->step * by, (size_t)count};
        *out = (struct val){.type = V_RANGE, .range = r};
        return true;
    }
    struct vlist *l = eval_alloc(e, sizeof *l);
    if (!l || !eval_step(e, (uint64_t)count / 16))
        return false;
    *l = (struct vlist){.n = (size_t)count};
    if (by == 1)
        l->items = count ? obj.list->items + from : obj.list->items; /* lists never change: share */
    else if (!(l->items = eval_array(e, (size_t)count, sizeof *l->items)))
        return false;
    for (int64_t j = 0; by != 1 && j < count; j++)
        l->items[j] = obj.list->items[from + j * by];
    *out = (struct val){.type = obj.type, .list = l};
    return true;
}
