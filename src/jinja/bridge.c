/* JSON to values; see bridge.h. Objects keep their order. jansson has checked that strings are UTF-8. */
#include "jinja/bridge.h"

static bool array_to_list(struct eval *e, const json_t *j, struct val *out)
{
    struct vlist *l = eval_alloc(e, sizeof *l);
    size_t n = json_array_size(j);
    if (!l || !(l->items = eval_array(e, n, sizeof *l->items)))
        return false;
    l->n = n;
    l->group = false;
    for (size_t i = 0; i < n; i++)
        if (!json_to_value(e, json_array_get(j, i), &l->items[i]))
            return false;
    *out = (struct val){.type = V_LIST, .list = l};
    return true;
}

static bool object_to_dict(struct eval *e, const json_t *j, struct val *out)
{
    struct dict *d = dict_new(e);
    if (!d)
        return false;
    json_t *object = (json_t *)j; /* iterating does not change it, but jansson's functions take no const */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        const char *key = json_object_iter_key(it);
        struct val v;
        if (!json_to_value(e, json_object_iter_value(it), &v) || !dict_set(e, d, val_str((struct str){key, strlen(key)}), v))
            return false;
    }
    *out = (struct val){.type = V_DICT, .dict = d};
    return true;
}

bool json_to_value(struct eval *e, const json_t *j, struct val *out)
{
    bool ok = true;
    if (!eval_step(e, 1) || !data_enter(e))
        return false;
    switch (json_typeof(j)) {
    case JSON_OBJECT: ok = object_to_dict(e, j, out); break;
    case JSON_ARRAY: ok = array_to_list(e, j, out); break;
    case JSON_STRING:
        if (json_string_length(j) > UINT32_MAX / 2)
            return eval_fail(e, "a string of the context is too long");
        *out = val_str((struct str){json_string_value(j), json_string_length(j)});
        break;
    case JSON_INTEGER: *out = val_int(json_integer_value(j)); break;
    case JSON_REAL: *out = val_float(json_real_value(j)); break;
    case JSON_TRUE: *out = val_bool(true); break;
    case JSON_FALSE: *out = val_bool(false); break;
    case JSON_NULL: *out = VAL_NONE; break;
    }
    e->data_depth--;
    return ok;
}
