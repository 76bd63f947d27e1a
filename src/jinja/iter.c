/* Iteration; see eval.h. Iterators are lazy as in Python: an error in the tenth item of a map comes when it is asked for,
 * and a generator is used up by the first loop over it. */
#include "base/utf8.h"
#include "jinja/eval.h"
#include "jinja/text.h"

bool iter_can(struct val v)
{
    switch (v.type) {
    case V_UNDEF: case V_STR: case V_LIST: case V_TUPLE: case V_DICT: case V_RANGE: case V_VIEW: case V_ITER: case V_LOOP:
        return true;
    default:
        return false;
    }
}

bool has_len(struct val v) { return iter_can(v) && v.type != V_ITER; }

bool val_len(struct eval *e, struct val v, int64_t *n)
{
    bool found;
    struct val length;
    switch (v.type) {
    case V_UNDEF: *n = 0; return true;
    case V_STR: *n = (int64_t)text_length(as_str(v)); return eval_scan(e, v.n);
    case V_LIST: case V_TUPLE: *n = (int64_t)v.list->n; return true;
    case V_DICT: *n = (int64_t)v.dict->n; return true;
    case V_RANGE: *n = (int64_t)v.range->n; return true;
    case V_VIEW: *n = (int64_t)v.view->dict->n; return true;
    case V_LOOP:
        if (!loop_attr(e, v.loop, STR("length"), &length, &found))
            return false;
        *n = length.i;
        return true;
    default:
        return eval_fail(e, "object of type '%s' has no len()", val_type_name(v));
    }
}

static struct iter *iter_new(struct eval *e, enum iter_kind kind, struct val source)
{
    struct iter *it = eval_alloc(e, sizeof *it);
    if (it)
        *it = (struct iter){.kind = kind, .source = source, .path = VAL_MISSING, .fallback = VAL_MISSING};
    return it;
}

bool iter_open(struct eval *e, struct val v, struct iter **out)
{
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
        if (!(*out = iter_new(e, ITER_LIST, v)))
            return false;
        (*out)->list = v.list->items;
        (*out)->n = v.list->n;
        return true;
    case V_UNDEF: return (*out = iter_new(e, ITER_LIST, v));
    case V_STR: return (*out = iter_new(e, ITER_STR, v));
    case V_DICT: return (*out = iter_new(e, ITER_DICT, v));
    case V_RANGE: return (*out = iter_new(e, ITER_RANGE, v));
    case V_VIEW: return (*out = iter_new(e, ITER_VIEW, v));
    case V_ITER:
        *out = v.iter;
        return true;
    case V_LOOP:
        return eval_fail(e, "iterating over the loop variable itself is not supported");
    default:
        return eval_fail(e, "'%s' object is not iterable", val_type_name(v));
    }
}

bool iter_value(struct eval *e, const struct iter *it, struct val *out)
{
    struct iter *copy = eval_alloc(e, sizeof *copy);
    if (!copy)
        return false;
    *copy = *it;
    *out = (struct val){.type = V_ITER, .iter = copy};
    return true;
}

bool list_iter(struct eval *e, const struct vlist *l, struct val *out)
{
    struct iter it = {.kind = ITER_LIST, .list = l->items, .n = l->n, .path = VAL_MISSING, .fallback = VAL_MISSING};
    return iter_value(e, &it, out);
}

static bool dict_next(struct eval *e, const struct dict *d, int kind, size_t i, struct val *out)
{
    if (kind == VIEW_ITEMS) {
        struct val pair[2] = {d->entries[i].key, d->entries[i].value};
        return make_tuple(e, pair, 2, out);
    }
    *out = kind == VIEW_KEYS ? d->entries[i].key : d->entries[i].value;
    return true;
}

/* The next item of the source that the test keeps. */
static bool select_next(struct eval *e, struct iter *it, struct val *out, bool *more)
{
    for (;;) {
        struct val item;
        bool keep;
        if (!iter_next(e, it->from, out, more))
            return false;
        if (!*more)
            return true;
        item = *out;
        if (it->path.type != V_MISSING && !get_path(e, item, it->path, &item))
            return false;
        if (it->which < 0)
            keep = val_truth(item);
        else if (!call_test(e, it->which, item, it->args, &keep))
            return false;
        if (keep == it->want)
            return true;
    }
}

static bool map_next(struct eval *e, struct iter *it, struct val *out, bool *more)
{
    struct val item;
    if (!iter_next(e, it->from, &item, more) || !*more)
        return !e->code;
    if (it->which >= 0)
        return call_filter(e, it->which, item, it->args, out);
    if (!get_path(e, item, it->path, out))
        return false;
    if (out->type == V_UNDEF && it->fallback.type != V_MISSING && it->fallback.type != V_NONE)
        *out = it->fallback;
    return true;
}

bool iter_next(struct eval *e, struct iter *it, struct val *out, bool *more)
{
    if (!eval_step(e, 1))
        return false;
    *more = true;
    switch (it->kind) {
    case ITER_LIST:
        if ((*more = it->i < it->n))
            *out = it->list[it->i++];
        return true;
    case ITER_REVERSED:
        if ((*more = it->i < it->n))
            *out = it->list[it->n - ++it->i];
        return true;
    case ITER_STR: {
        uint32_t cp;
        if (!(*more = it->i < it->source.n))
            return true;
        int k = utf8_decode(it->source.s + it->i, it->source.n - it->i, &cp);
        *out = val_str((struct str){it->source.s + it->i, k ? (size_t)k : 1});
        it->i += out->n;
        return true;
    }
    case ITER_DICT:
        *more = it->i < it->source.dict->n;
        return !*more || dict_next(e, it->source.dict, VIEW_KEYS, it->i++, out);
    case ITER_VIEW:
        *more = it->i < it->source.view->dict->n;
        return !*more || dict_next(e, it->source.view->dict, it->source.view->kind, it->i++, out);
    case ITER_RANGE:
        if ((*more = it->i < it->source.range->n))
            *out = val_int(it->source.range->start + (int64_t)it->i++ * it->source.range->step);
        return true;
    case ITER_LAZY: {
        struct vlist all;
        if (!it->fill(e, it, &all))
            return false;
        it->kind = ITER_LIST;
        it->list = all.items;
        it->n = all.n;
        return iter_next(e, it, out, more);
    }
    case ITER_FILTERED:
        return filter_next(e, it, out, more);
    case ITER_MAP:
    case ITER_SELECT: {
        if (++e->depth > e->limits->max_depth) /* maps of maps of maps ... */
            return eval_fail(e, "evaluation nested deeper than %u levels", e->limits->max_depth);
        bool ok = it->kind == ITER_MAP ? map_next(e, it, out, more) : select_next(e, it, out, more);
        e->depth--;
        return ok;
    }
    }
    return false;
}

bool iter_list(struct eval *e, struct val v, struct vlist *out)
{
    if (is_seq(v)) {
        *out = (struct vlist){.items = v.list->items, .n = v.list->n};
        return true;
    }
    struct iter *it;
    struct list_builder l = {.e = e};
    if (!iter_open(e, v, &it))
        return false;
    for (;;) {
        struct val item;
        bool more;
        if (!iter_next(e, it, &item, &more))
            return false;
        if (!more)
            break;
        if (!list_add(&l, item))
            return false;
    }
    *out = (struct vlist){.items = l.items, .n = l.n};
    return true;
}
