/* Filters on sequences and mappings; see filters.h. */
#include "jinja/filters.h"
#include "jinja/strutil.h"

FILTER(list)
{
    struct vlist items;
    struct list_builder l = {.e = e};
    if (!args_bind(e, "list", a, NULL, 0, 0, NULL) || !iter_list(e, v, &items))
        return false;
    l.items = items.items; /* lists never change: shared */
    l.n = items.n;
    return list_done(&l, V_LIST, out);
}

/* A generator: its arguments are checked when it is called, everything else happens when the first item is asked for. */
static bool lazy(struct eval *e, struct val v, bool (*fill)(struct eval *, struct iter *, struct vlist *),
                 const struct val param[2], struct val *out)
{
    struct iter it = {.kind = ITER_LAZY, .source = v, .fill = fill, .path = VAL_MISSING, .fallback = VAL_MISSING};
    if (param)
        memcpy(it.param, param, sizeof it.param);
    return iter_value(e, &it, out);
}

static bool fill_items(struct eval *e, struct iter *it, struct vlist *out)
{
    *out = (struct vlist){0};
    if (it->source.type == V_UNDEF)
        return true;
    if (it->source.type != V_DICT)
        return eval_fail(e, "Can only get item pairs from a mapping.");
    struct view *view = eval_alloc(e, sizeof *view);
    if (!view)
        return false;
    *view = (struct view){.dict = it->source.dict, .kind = VIEW_ITEMS};
    return iter_list(e, (struct val){.type = V_VIEW, .view = view}, out);
}

FILTER(items) { return args_bind(e, "items", a, NULL, 0, 0, NULL) && lazy(e, v, fill_items, NULL, out); }

FILTER(first)
{
    struct iter *it;
    bool more;
    if (!args_bind(e, "first", a, NULL, 0, 0, NULL) || !iter_open(e, v, &it) || !iter_next(e, it, out, &more))
        return false;
    return more || undef_hint(e, "No first item, sequence was empty.", out);
}

FILTER(last)
{
    struct vlist items;
    if (!args_bind(e, "last", a, NULL, 0, 0, NULL))
        return false;
    if (v.type == V_ITER || !iter_can(v)) /* an iterator of a reversed sequence could be, but is rare */
        return eval_fail(e, "'%s' object is not reversible", val_type_name(v));
    if (!iter_list(e, v, &items))
        return false;
    if (!items.n)
        return undef_hint(e, "No last item, sequence was empty.", out);
    *out = items.items[items.n - 1];
    return true;
}

FILTER(reverse)
{
    struct vlist items;
    if (!args_bind(e, "reverse", a, NULL, 0, 0, NULL))
        return false;
    if (v.type == V_STR)
        return get_slice(e, v, VAL_MISSING, VAL_MISSING, val_int(-1), out);
    if (!iter_can(v))
        return eval_fail(e, "argument must be iterable");
    if (!iter_list(e, v, &items))
        return false;
    if (v.type == V_ITER) { /* has no length: jinja2 makes a list */
        struct list_builder l = {.e = e};
        for (size_t i = items.n; i-- > 0;)
            if (!list_add(&l, items.items[i]))
                return false;
        return list_done(&l, V_LIST, out);
    }
    struct iter it = {.kind = ITER_REVERSED, .list = items.items, .n = items.n, .path = VAL_MISSING, .fallback = VAL_MISSING};
    return iter_value(e, &it, out);
}

FILTER(join)
{
    static const char *const names[] = {"d", "attribute"};
    struct val p[2], sep = val_str(STR(""));
    struct vlist items;
    if (!args_bind(e, "join", a, names, 2, 0, p) || !iter_list(e, v, &items))
        return false;
    if (p[0].type != V_MISSING && !val_string(e, p[0], &sep))
        return false;
    if (p[1].type != V_MISSING && p[1].type != V_NONE) {
        struct list_builder l = {.e = e};
        for (size_t i = 0; i < items.n; i++) {
            struct val item;
            if (!eval_step(e, 1) || !get_path(e, items.items[i], p[1], &item) || !list_add(&l, item))
                return false;
        }
        items.items = l.items;
    }
    return str_join(e, as_str(sep), &items, true, out);
}

/* ---- sorting and grouping ---- */

static bool fold(struct eval *e, bool case_sensitive, struct val *v)
{
    return case_sensitive || v->type != V_STR || str_lower(e, as_str(*v), v);
}

/* The key of an item for attribute "a,b.c": a list with one value per part. A list also for one part, as in jinja2: lists
   compare their items with == first, so that undefined values are equal and not an error. */
static bool sort_key(struct eval *e, struct val item, struct val attribute, bool case_sensitive, struct val *key)
{
    struct list_builder l = {.e = e};
    struct val v, part = attribute;
    const char *comma;
    do {
        comma = attribute.type == V_STR ? memchr(attribute.s, ',', attribute.n) : NULL;
        if (comma) {
            part = val_str((struct str){attribute.s, (size_t)(comma - attribute.s)});
            attribute = val_str((struct str){comma + 1, attribute.n - part.n - 1});
        } else {
            part = attribute;
        }
        if (!get_path(e, item, part, &v) || !fold(e, case_sensitive, &v) || !list_add(&l, v))
            return false;
    } while (comma);
    return list_done(&l, V_LIST, key);
}

static bool sorted(struct eval *e, struct sort_item *items, size_t n, struct val reverse, struct val *out)
{
    struct list_builder l = {.e = e};
    int64_t backwards;
    if (!arg_int(e, reverse, 0, "sort", &backwards) || !val_sort(e, items, n, backwards != 0))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!list_add(&l, items[i].value))
            return false;
    return list_done(&l, V_LIST, out);
}

FILTER(sort)
{
    static const char *const names[] = {"reverse", "case_sensitive", "attribute"};
    struct val p[3];
    struct vlist items;
    if (!args_bind(e, "sort", a, names, 3, 0, p) || !iter_list(e, v, &items))
        return false;
    struct val attribute = p[2].type == V_MISSING ? VAL_NONE : p[2];
    struct sort_item *s = eval_array(e, items.n, sizeof *s);
    if (!s)
        return false;
    for (size_t i = 0; i < items.n; i++) {
        s[i].value = items.items[i];
        if (!eval_step(e, 1) || !sort_key(e, items.items[i], attribute, val_truth(p[1]), &s[i].key))
            return false;
    }
    return sorted(e, s, items.n, p[0], out);
}

FILTER(dictsort)
{
    static const char *const names[] = {"case_sensitive", "by", "reverse"};
    struct val p[3];
    struct str by = STR("key");
    if (!args_bind(e, "dictsort", a, names, 3, 0, p) || (p[1].type != V_MISSING && !arg_str(e, p[1], "dictsort", &by)))
        return false;
    if (!str_is(by, "key") && !str_is(by, "value"))
        return eval_fail(e, "You can only sort by either \"key\" or \"value\"");
    if (v.type == V_UNDEF)
        return undef_fail(e, v);
    if (v.type != V_DICT)
        return eval_fail(e, "'%s' object has no attribute 'items'", val_type_name(v));
    struct sort_item *s = eval_array(e, v.dict->n, sizeof *s);
    if (!s)
        return false;
    for (size_t i = 0; i < v.dict->n; i++) {
        struct val pair[2] = {v.dict->entries[i].key, v.dict->entries[i].value};
        s[i].key = pair[by.n == 5];
        if (!eval_step(e, 1) || !make_tuple(e, pair, 2, &s[i].value) || !fold(e, val_truth(p[0]), &s[i].key))
            return false;
    }
    return sorted(e, s, v.dict->n, p[2], out);
}

FILTER(groupby)
{
    static const char *const names[] = {"attribute", "default", "case_sensitive"};
    struct val p[3];
    struct vlist items;
    struct list_builder groups = {.e = e};
    if (!args_bind(e, "groupby", a, names, 3, 1, p) || !iter_list(e, v, &items))
        return false;
    struct sort_item *s = eval_array(e, items.n, sizeof *s);
    if (!s)
        return false;
    for (size_t i = 0; i < items.n; i++) {
        s[i].value = items.items[i];
        if (!eval_step(e, 1) || !get_path(e, items.items[i], p[0], &s[i].key))
            return false;
        if (s[i].key.type == V_UNDEF && p[1].type != V_MISSING && p[1].type != V_NONE)
            s[i].key = p[1];
        if (!fold(e, val_truth(p[2]), &s[i].key))
            return false;
    }
    if (!val_sort(e, s, items.n, false))
        return false;
    for (size_t i = 0; i < items.n;) {
        struct list_builder group = {.e = e};
        struct val pair[2], tuple;
        size_t j = i;
        for (bool equal = true; j < items.n; j++) {
            if (!val_equal(e, s[i].key, s[j].key, &equal))
                return false;
            if (!equal)
                break;
            if (!list_add(&group, s[j].value))
                return false;
        }
        /* the group is named after its first item, in the spelling of that item */
        if (!get_path(e, s[i].value, p[0], &pair[0]) || !list_done(&group, V_LIST, &pair[1]))
            return false;
        if (pair[0].type == V_UNDEF && p[1].type != V_MISSING && p[1].type != V_NONE)
            pair[0] = p[1];
        if (!make_tuple(e, pair, 2, &tuple) || !list_add(&groups, tuple))
            return false;
        tuple.list->group = true;
        i = j > i ? j : i + 1; /* a NaN is equal to nothing, itself included */
    }
    return list_done(&groups, V_LIST, out);
}

static bool extreme(struct eval *e, struct val v, const struct args *a, bool max, struct val *out)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct val p[2], best = VAL_MISSING;
    struct vlist items;
    if (!args_bind(e, max ? "max" : "min", a, names, 2, 0, p) || !iter_list(e, v, &items))
        return false;
    if (!items.n)
        return undef_hint(e, "No aggregated item, sequence was empty.", out);
    for (size_t i = 0; i < items.n; i++) {
        struct val key;
        bool better = true;
        if (!eval_step(e, 1) || !get_path(e, items.items[i], p[1].type == V_MISSING ? VAL_NONE : p[1], &key) ||
            !fold(e, val_truth(p[0]), &key))
            return false;
        if (i && !val_less(e, key, best, max ? ">" : "<", &better))
            return false;
        if (better) {
            best = key;
            *out = items.items[i];
        }
    }
    return true;
}

FILTER(min) { return extreme(e, v, a, false, out); }
FILTER(max) { return extreme(e, v, a, true, out); }

FILTER(sum)
{
    static const char *const names[] = {"attribute", "start"};
    struct val p[2], total = val_int(0);
    struct vlist items;
    if (!args_bind(e, "sum", a, names, 2, 0, p) || !iter_list(e, v, &items))
        return false;
    if (p[1].type != V_MISSING)
        total = p[1];
    if (total.type == V_STR)
        return eval_fail(e, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < items.n; i++) {
        struct val item;
        if (!eval_step(e, 1) || !get_path(e, items.items[i], p[0].type == V_MISSING ? VAL_NONE : p[0], &item) ||
            !op_binary(e, OP_ADD, total, item, &total))
            return false;
    }
    *out = total;
    return true;
}

static bool fill_unique(struct eval *e, struct iter *it, struct vlist *out)
{
    struct vlist items;
    struct list_builder l = {.e = e};
    struct dict *seen = dict_new(e);
    if (!seen || !iter_list(e, it->source, &items))
        return false;
    for (size_t i = 0; i < items.n; i++) {
        struct val key;
        const struct val *known;
        if (!eval_step(e, 1) || !get_path(e, items.items[i], it->param[1].type == V_MISSING ? VAL_NONE : it->param[1], &key) ||
            !fold(e, val_truth(it->param[0]), &key) || !dict_find(e, seen, key, &known))
            return false;
        if (!known && (!dict_set(e, seen, key, VAL_NONE) || !list_add(&l, items.items[i])))
            return false;
    }
    *out = (struct vlist){.items = l.items, .n = l.n};
    return true;
}

FILTER(unique)
{
    static const char *const names[] = {"case_sensitive", "attribute"};
    struct val p[2];
    return args_bind(e, "unique", a, names, 2, 0, p) && lazy(e, v, fill_unique, p, out);
}

/* ---- cutting into pieces ---- */

static bool given(struct val v) { return v.type != V_MISSING && v.type != V_NONE; }

static bool add_row(struct list_builder *rows, struct list_builder *row)
{
    struct val done;
    if (!eval_step(rows->e, 1) || !list_done(row, V_LIST, &done))
        return false;
    *row = (struct list_builder){.e = rows->e};
    return list_add(rows, done);
}

static bool fill_batch(struct eval *e, struct iter *it, struct vlist *out)
{
    struct vlist items;
    struct list_builder rows = {.e = e}, row = {.e = e};
    struct val n = it->param[0];
    if (!iter_list(e, it->source, &items))
        return false;
    for (size_t i = 0; i < items.n; i++) {
        bool full;
        if (!val_equal(e, val_int((int64_t)row.n), n, &full) || (full && !add_row(&rows, &row)) ||
            !eval_step(e, 1) || !list_add(&row, items.items[i]))
            return false;
    }
    if (row.n) {
        bool more = false;
        if (given(it->param[1]) && !val_less(e, val_int((int64_t)row.n), n, "<", &more))
            return false;
        int64_t count = 0;
        if (more && !arg_int(e, n, 0, "batch", &count))
            return false;
        while ((int64_t)row.n < count)
            if (!eval_step(e, 1) || !list_add(&row, it->param[1]))
                return false;
        if (!add_row(&rows, &row))
            return false;
    }
    *out = (struct vlist){.items = rows.items, .n = rows.n};
    return true;
}

FILTER(batch)
{
    static const char *const names[] = {"linecount", "fill_with"};
    struct val p[2];
    return args_bind(e, "batch", a, names, 2, 1, p) && lazy(e, v, fill_batch, p, out);
}

static bool fill_slice(struct eval *e, struct iter *it, struct vlist *out)
{
    int64_t count;
    struct vlist items;
    struct list_builder rows = {.e = e}, row = {.e = e};
    if (!iter_list(e, it->source, &items) || !arg_int(e, it->param[0], 0, "slice", &count))
        return false;
    if (!count)
        return eval_fail(e, "integer division or modulo by zero");
    for (int64_t i = 0, at = 0; i < count; i++) {
        bool extra = i < (int64_t)items.n % count;
        int64_t n = (int64_t)items.n / count + extra;
        for (int64_t j = 0; j < n; j++)
            if (!eval_step(e, 1) || !list_add(&row, items.items[at++]))
                return false;
        if ((given(it->param[1]) && !extra && !list_add(&row, it->param[1])) || !add_row(&rows, &row))
            return false;
    }
    *out = (struct vlist){.items = rows.items, .n = rows.n};
    return true;
}

FILTER(slice)
{
    static const char *const names[] = {"slices", "fill_with"};
    struct val p[2];
    return args_bind(e, "slice", a, names, 2, 1, p) && lazy(e, v, fill_slice, p, out);
}

/* ---- map, select, reject ---- */

/* Arguments from position `from` on, for the filter or test that is applied to each item. */
static bool rest_args(struct eval *e, const struct args *a, size_t from, const struct args **out)
{
    struct args *rest = eval_alloc(e, sizeof *rest);
    if (!rest)
        return false;
    *rest = *a;
    rest->pos = a->pos ? a->pos + from : NULL;
    rest->npos = a->npos - from;
    *out = rest;
    return true;
}

FILTER(map)
{
    struct iter it = {.kind = ITER_MAP, .path = VAL_MISSING, .fallback = VAL_MISSING, .which = -1};
    if (!val_truth(v))
        return list_iter(e, &(struct vlist){0}, out);
    if (!a->npos) {
        static const char *const names[] = {"attribute", "default"};
        struct val p[2];
        bool has = false;
        for (size_t i = 0; i < a->nkw; i++)
            has = has || str_is(a->kw[i].name, "attribute");
        if (!has)
            return eval_fail(e, "map requires a filter argument");
        if (!args_bind(e, "map", a, names, 2, 1, p))
            return false;
        it.path = p[0];
        it.fallback = p[1];
    } else {
        struct str name = {0};
        if (a->pos[0].type == V_STR)
            name = as_str(a->pos[0]);
        it.which = filter_number(name);
        if (it.which < 0)
            return eval_fail(e, "No filter named '%.*s'.", (int)name.n, name.s ? name.s : "");
        if (!rest_args(e, a, 1, &it.args))
            return false;
    }
    return iter_open(e, v, &it.from) && iter_value(e, &it, out);
}

static bool select_items(struct eval *e, struct val v, const struct args *a, bool want, bool attribute, struct val *out)
{
    struct iter it = {.kind = ITER_SELECT, .path = VAL_MISSING, .fallback = VAL_MISSING, .which = -1, .want = want};
    size_t next = 0;
    if (!val_truth(v))
        return list_iter(e, &(struct vlist){0}, out);
    if (attribute) {
        if (!a->npos)
            return eval_fail(e, "Missing parameter for attribute name");
        it.path = a->pos[next++];
    }
    if (a->npos > next) {
        struct str name = {0};
        if (a->pos[next].type == V_STR)
            name = as_str(a->pos[next]);
        it.which = test_number(name);
        if (it.which < 0)
            return eval_fail(e, "No test named '%.*s'.", (int)name.n, name.s ? name.s : "");
        if (!rest_args(e, a, next + 1, &it.args))
            return false;
    }
    return iter_open(e, v, &it.from) && iter_value(e, &it, out);
}

FILTER(select) { return select_items(e, v, a, true, false, out); }
FILTER(reject) { return select_items(e, v, a, false, false, out); }
FILTER(selectattr) { return select_items(e, v, a, true, true, out); }
FILTER(rejectattr) { return select_items(e, v, a, false, true, out); }
