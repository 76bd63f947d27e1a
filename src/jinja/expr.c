/* Evaluating expressions; see eval.h. Each function sets e->at to its node before an operation that can fail, so that a
 * message points at the innermost expression. */
#include "jinja/eval.h"

static bool eval_list(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct vlist *l = eval_alloc(e, sizeof *l);
    if (!l || !(l->items = eval_array(e, n->n, sizeof *l->items)))
        return false;
    l->n = n->n;
    l->group = false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!eval_expr(e, act, n->list[i], &l->items[i]))
            return false;
    *out = (struct val){.type = n->kind == N_LIST ? V_LIST : V_TUPLE, .list = l};
    return true;
}

static bool eval_dict(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct dict *d = dict_new(e);
    if (!d)
        return false;
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val key, value;
        if (!eval_expr(e, act, n->list[i], &key) || !eval_expr(e, act, n->list[i + 1], &value))
            return false;
        e->at = n;
        if (!dict_set(e, d, key, value))
            return false;
    }
    *out = (struct val){.type = V_DICT, .dict = d};
    return true;
}

static bool eval_concat(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val *parts = eval_array(e, n->n, sizeof *parts);
    if (!parts)
        return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!eval_expr(e, act, n->list[i], &parts[i]))
            return false;
    e->at = n;
    struct sb b = {.e = e};
    for (uint32_t i = 0; i < n->n; i++)
        if (!val_write(e, parts[i], &b))
            return false;
    return sb_done(&b, out);
}

static bool compare_one(struct eval *e, enum cmp_op op, struct val a, struct val b, bool *result)
{
    static const char *const text[] = {[CMP_LT] = "<", [CMP_LE] = "<=", [CMP_GT] = ">", [CMP_GE] = ">="};
    bool ok;
    switch (op) {
    case CMP_EQ:
        return val_equal(e, a, b, result);
    case CMP_NE:
        ok = val_equal(e, a, b, result);
        *result = !*result;
        return ok;
    case CMP_IN:
        return val_contains(e, a, b, result);
    case CMP_NOTIN:
        ok = val_contains(e, a, b, result);
        *result = !*result;
        return ok;
    default:
        return val_less(e, a, b, text[op], result);
    }
}

static bool eval_compare(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val left, right;
    bool result = true;
    if (!eval_expr(e, act, n->a, &left))
        return false;
    for (uint32_t i = 0; result && i < n->n; i++) {
        if (!eval_expr(e, act, n->list[i], &right))
            return false;
        e->at = n;
        if (!compare_one(e, n->ops[i], left, right, &result))
            return false;
        left = right;
    }
    *out = val_bool(result);
    return true;
}

static bool eval_slice(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val obj, part[3];
    if (!eval_expr(e, act, n->a, &obj))
        return false;
    for (int i = 0; i < 3; i++) {
        part[i] = VAL_MISSING;
        if (n->list[i] && !eval_expr(e, act, n->list[i], &part[i]))
            return false;
    }
    e->at = n;
    return get_slice(e, obj, part[0], part[1], part[2], out);
}

static bool add_kwarg(struct eval *e, struct args *a, size_t *cap, struct str name, struct val value)
{
    for (size_t i = 0; i < a->nkw; i++)
        if (str_eq(a->kw[i].name, name))
            return eval_fail(e, "got multiple values for keyword argument '%.*s'", (int)name.n, name.s);
    if (a->nkw == *cap) {
        size_t more = *cap ? *cap * 2 : 4;
        struct kwarg *kw = arena_grow(&e->arena, a->kw, *cap * sizeof *kw, more * sizeof *kw);
        if (!kw)
            return eval_nomem(e);
        a->kw = kw;
        *cap = more;
    }
    a->kw[a->nkw++] = (struct kwarg){name, value};
    return true;
}

static bool spread_kwargs(struct eval *e, struct val v, struct args *out, size_t *cap)
{
    if (v.type != V_DICT)
        return eval_fail(e, "argument after ** must be a mapping, not %s", val_type_name(v));
    for (size_t i = 0; i < v.dict->n; i++) {
        if (v.dict->entries[i].key.type != V_STR)
            return eval_fail(e, "keywords must be strings");
        if (!eval_step(e, 1 + out->nkw) || !add_kwarg(e, out, cap, as_str(v.dict->entries[i].key), v.dict->entries[i].value))
            return false;
    }
    return true;
}

bool eval_args(struct eval *e, struct act *act, const struct call_args *a, struct args *out)
{
    struct list_builder pos = {.e = e};
    size_t cap = 0;
    struct val v;
    *out = (struct args){0};
    if (!a)
        return true;
    for (uint32_t i = 0; i < a->npos; i++)
        if (!eval_expr(e, act, a->pos[i], &v) || !list_add(&pos, v))
            return false;
    if (a->dyn_pos) {
        struct vlist more;
        if (!eval_expr(e, act, a->dyn_pos, &v) || !iter_list(e, v, &more))
            return false;
        for (size_t i = 0; i < more.n; i++)
            if (!list_add(&pos, more.items[i]))
                return false;
    }
    for (uint32_t i = 0; i < a->nkw; i++)
        if (!eval_expr(e, act, a->kw[i].value, &v) || !add_kwarg(e, out, &cap, a->kw[i].name, v))
            return false;
    if (a->dyn_kw && (!eval_expr(e, act, a->dyn_kw, &v) || !spread_kwargs(e, v, out, &cap)))
        return false;
    out->pos = pos.items;
    out->npos = pos.n;
    return true;
}

static bool eval_call(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val callee;
    struct args args;
    if (!eval_expr(e, act, n->a, &callee) || !eval_args(e, act, n->args, &args))
        return false;
    e->at = n;
    return call_value(e, callee, &args, out);
}

static bool eval_filter(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val v;
    struct args args;
    if (!eval_expr(e, act, n->a, &v) || !eval_args(e, act, n->args, &args))
        return false;
    e->at = n;
    if (n->which == WHICH_UNKNOWN)
        return eval_fail(e, "No %s named '%.*s' found.", n->kind == N_FILTER ? "filter" : "test", (int)n->name.n, n->name.s);
    if (n->kind == N_FILTER)
        return call_filter(e, n->which, v, &args, out);
    bool result;
    if (!call_test(e, n->which, v, &args, &result))
        return false;
    *out = val_bool(result);
    return true;
}

static bool eval_name(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    for (uint32_t i = 0; i < n->depth; i++)
        act = act->outer;
    *out = act->slots[n->slot];
    e->at = n;
    return out->type != V_MISSING || undef_name(e, n->name, out);
}

static bool eval_cond(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val test;
    if (!eval_expr(e, act, n->b, &test))
        return false;
    if (val_truth(test))
        return eval_expr(e, act, n->a, out);
    if (n->c)
        return eval_expr(e, act, n->c, out);
    struct sb b = {.e = e};
    struct val text;
    sb_printf(&b, "the inline if-expression on line %u evaluated to false and no else section was defined.", n->line);
    sb_putc(&b, '\0');
    return sb_done(&b, &text) && undef_hint(e, text.s, out);
}

static bool eval_node(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct val a, b;
    switch (n->kind) {
    case N_CONST:
        *out = n->value;
        return true;
    case N_NAME:
        return eval_name(e, act, n, out);
    case N_TUPLE:
    case N_LIST:
        return eval_list(e, act, n, out);
    case N_DICT:
        return eval_dict(e, act, n, out);
    case N_COND:
        return eval_cond(e, act, n, out);
    case N_AND:
    case N_OR:
        if (!eval_expr(e, act, n->a, out))
            return false;
        return val_truth(*out) == (n->kind == N_OR) || eval_expr(e, act, n->b, out);
    case N_NOT:
        if (!eval_expr(e, act, n->a, &a))
            return false;
        *out = val_bool(!val_truth(a));
        return true;
    case N_BIN:
        if (!eval_expr(e, act, n->a, &a) || !eval_expr(e, act, n->b, &b))
            return false;
        e->at = n;
        return op_binary(e, n->op, a, b, out);
    case N_NEG:
    case N_POS:
        if (!eval_expr(e, act, n->a, &a))
            return false;
        e->at = n;
        return op_unary(e, n->kind == N_NEG, a, out);
    case N_CONCAT:
        return eval_concat(e, act, n, out);
    case N_COMPARE:
        return eval_compare(e, act, n, out);
    case N_ATTR:
        if (!eval_expr(e, act, n->a, &a))
            return false;
        e->at = n;
        return get_attr(e, a, n->name, out);
    case N_ITEM:
        if (!eval_expr(e, act, n->a, &a) || !eval_expr(e, act, n->b, &b))
            return false;
        e->at = n;
        return get_item(e, a, b, out);
    case N_SLICE:
        return eval_slice(e, act, n, out);
    case N_CALL:
        return eval_call(e, act, n, out);
    default:
        return eval_filter(e, act, n, out);
    }
}

bool eval_expr(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    e->at = n;
    if (!eval_step(e, 1))
        return false;
    if (e->depth >= e->limits->max_depth)
        return eval_fail(e, "evaluation nested deeper than %u levels", e->limits->max_depth);
    e->depth++;
    bool ok = eval_node(e, act, n, out);
    e->depth--;
    return ok;
}
