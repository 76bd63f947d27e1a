/* Running statements: scopes, loops, assignments, macros; see eval.h. */
#include "jinja/eval.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAIL };

static enum flow exec(struct eval *e, struct act *act, const struct node *n, struct sb *out);

struct act *act_new(struct eval *e, struct act *outer, const struct frame *f)
{
    struct act *a = eval_alloc(e, sizeof *a + f->nslots * sizeof a->slots[0]);
    if (!a)
        return NULL;
    a->outer = outer;
    for (uint32_t i = 0; i < f->nslots; i++)
        a->slots[i] = VAL_MISSING;
    return a;
}

void frame_enter(struct eval *e, struct act *act, const struct frame *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct load *l = &f->loads[i];
        struct val *slot = &act->slots[l->slot];
        if (l->action == LOAD_RESOLVE) {
            const struct val *v = dict_get(e->context, l->name.s, l->name.n);
            *slot = VAL_MISSING;
            if (v)
                *slot = *v;
            else
                find_global(l->name, slot);
        } else if (l->action == LOAD_ALIAS) {
            const struct act *from = act;
            for (uint32_t k = 0; k < l->alias_depth; k++)
                from = from->outer;
            *slot = from->slots[l->alias_slot];
        } else if (l->action == LOAD_UNDEFINED) {
            *slot = VAL_MISSING;
        }
    }
}

static void frame_leave(struct act *act, const struct frame *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        act->slots[f->loads[i].slot] = VAL_MISSING;
}

/* ---- assignment ---- */

static bool assign_tuple(struct eval *e, struct act *act, const struct node *target, struct val v)
{
    struct vlist items;
    if (!iter_can(v))
        return eval_fail(e, "cannot unpack non-iterable %s object", val_type_name(v));
    if (!iter_list(e, v, &items))
        return false;
    if (items.n > target->n)
        return eval_fail(e, "too many values to unpack (expected %u)", target->n);
    if (items.n < target->n)
        return eval_fail(e, "not enough values to unpack (expected %u, got %zu)", target->n, items.n);
    for (uint32_t i = 0; i < target->n; i++)
        if (!assign(e, act, target->list[i], items.items[i]))
            return false;
    return true;
}

bool assign(struct eval *e, struct act *act, const struct node *target, struct val v)
{
    e->at = target;
    if (target->kind == N_TUPLE)
        return assign_tuple(e, act, target, v);
    for (uint32_t i = 0; i < target->depth; i++)
        act = act->outer;
    if (target->kind == N_NAME) {
        act->slots[target->slot] = v;
        return true;
    }
    struct val ns = act->slots[target->slot];
    if (ns.type != V_NS)
        return eval_fail(e, "cannot assign attribute on non-namespace object");
    return dict_set(e, ns.dict, val_str(target->name2), v);
}

/* ---- loops ---- */

bool filter_next(struct eval *e, struct iter *it, struct val *out, bool *more)
{
    const struct node *n = it->node;
    for (;;) {
        struct val keep;
        if (!iter_next(e, it->from, out, more))
            return false;
        if (!*more)
            return true;
        if (!assign(e, it->act, n->list[2], *out) || !eval_expr(e, it->act, n->c, &keep))
            return false;
        if (val_truth(keep))
            return true;
    }
}

static bool loop_advance(struct eval *e, struct loop *l, bool *more)
{
    struct val v = l->after;
    *more = true;
    l->after = VAL_MISSING;
    if (v.type == V_MISSING && !iter_next(e, l->it, &v, more))
        return false;
    if (!*more)
        return true;
    l->index0++;
    l->before = l->current;
    l->current = v;
    return true;
}

static bool loop_open(struct eval *e, struct act *act, const struct node *n, struct loop *l)
{
    *l = (struct loop){.index0 = -1, .length = -1, .after = VAL_MISSING, .current = VAL_MISSING, .before = VAL_MISSING,
                       .changed = VAL_MISSING};
    if (!eval_expr(e, act, n->b, &l->iterable))
        return false;
    e->at = n->b;
    if (!iter_open(e, l->iterable, &l->it) || !n->c)
        return !e->code;
    struct iter it = {.kind = ITER_FILTERED, .from = l->it, .node = n, .act = act_new(e, act, n->frame_test)};
    if (!it.act)
        return false;
    frame_enter(e, it.act, n->frame_test);
    if (!iter_value(e, &it, &l->iterable))
        return false;
    l->it = l->iterable.iter;
    return true;
}

static enum flow exec_for(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    struct loop *l = eval_alloc(e, sizeof *l);
    if (!l || !loop_open(e, act, n, l))
        return FLOW_FAIL;
    bool completed = false; /* the body ran to its end at least once: jinja2 skips the else branch only then */
    for (;;) {
        bool more;
        if (!loop_advance(e, l, &more))
            return FLOW_FAIL;
        if (!more)
            break;
        if (!assign(e, act, n->a, l->current))
            return FLOW_FAIL;
        if (n->extended)
            act->slots[n->slot] = (struct val){.type = V_LOOP, .loop = l};
        frame_enter(e, act, n->frame);
        enum flow flow = exec(e, act, n->list[0], out);
        if (flow == FLOW_FAIL)
            return flow;
        if (flow == FLOW_BREAK)
            break;
        completed = completed || flow == FLOW_NEXT;
    }
    frame_leave(act, n->frame);
    enum flow flow = FLOW_NEXT;
    if (n->list[1] && !completed) {
        frame_enter(e, act, n->frame_else);
        flow = exec(e, act, n->list[1], out);
        frame_leave(act, n->frame_else);
    }
    return flow;
}

/* What filter and call blocks put out is not converted to text by jinja2: it must be text. */
static bool write_text(struct eval *e, struct val v, struct sb *out)
{
    if (v.type != V_STR)
        return eval_fail(e, "expected str instance, %s found", val_type_name(v));
    sb_add(out, v.s, v.n);
    return !out->failed;
}

/* ---- macros ---- */

/* Keyword argument `name` of a, removed from the list; false when it is not there. */
static bool take_kwarg(struct args *a, struct str name, struct val *out)
{
    for (size_t i = 0; i < a->nkw; i++)
        if (str_eq(a->kw[i].name, name)) {
            *out = a->kw[i].value;
            memmove(a->kw + i, a->kw + i + 1, (a->nkw - i - 1) * sizeof *a->kw);
            a->nkw--;
            return true;
        }
    return false;
}

static bool macro_rest(struct eval *e, const struct node *m, struct act *act, struct args *kw, const struct args *a)
{
    char name[80] = "None"; /* call blocks have no name */
    if (m->kind == N_MACRO) {
        size_t n = m->name.n < sizeof name - 3 ? m->name.n : sizeof name - 3;
        name[0] = '\'';
        memcpy(name + 1, m->name.s, n);
        memcpy(name + 1 + n, "'", 2);
    }
    if (m->uses_kwargs) {
        struct dict *d = dict_new(e);
        if (!d)
            return false;
        for (size_t i = 0; i < kw->nkw; i++)
            if (!dict_set(e, d, val_str(kw->kw[i].name), kw->kw[i].value))
                return false;
        act->slots[m->slot_kwargs] = (struct val){.type = V_DICT, .dict = d};
    } else if (kw->nkw) {
        struct val caller;
        if (take_kwarg(kw, STR("caller"), &caller))
            return eval_fail(e, "macro %s was invoked with two values for the special caller argument. This is most likely "
                                "a bug.", name);
        return eval_fail(e, "macro %s takes no keyword argument '%.*s'", name, (int)kw->kw[0].name.n, kw->kw[0].name.s);
    }
    if (m->uses_varargs) {
        size_t from = a->npos < m->n ? a->npos : m->n;
        return make_tuple(e, from < a->npos ? a->pos + from : NULL, a->npos - from, &act->slots[m->slot_varargs]);
    }
    if (a->npos > m->n)
        return eval_fail(e, "macro %s takes not more than %u argument(s)", name, m->n);
    return true;
}

static bool macro_bind(struct eval *e, const struct node *m, struct act *act, const struct args *a)
{
    struct args kw = {.nkw = a->nkw};
    if (a->nkw) {
        if (!(kw.kw = eval_array(e, a->nkw, sizeof *kw.kw)))
            return false;
        memcpy(kw.kw, a->kw, a->nkw * sizeof *kw.kw);
    }
    bool found_caller = m->explicit_caller && a->npos >= m->n;
    for (uint32_t i = 0; i < m->n; i++) {
        struct val v = VAL_MISSING;
        if (i < a->npos)
            v = a->pos[i];
        else {
            take_kwarg(&kw, m->list[i]->name, &v);
            found_caller = found_caller || str_is(m->list[i]->name, "caller");
        }
        act->slots[m->list[i]->slot] = v;
    }
    if (m->uses_caller && !found_caller) {
        struct val v = VAL_NONE;
        take_kwarg(&kw, STR("caller"), &v);
        if (v.type == V_NONE && !undef_hint(e, "No caller defined", &v))
            return false;
        if (!m->explicit_caller)
            act->slots[m->slot_caller] = v;
    }
    return macro_rest(e, m, act, &kw, a);
}

static bool macro_defaults(struct eval *e, const struct node *m, struct act *act)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct val *slot = &act->slots[m->list[i]->slot];
        if (slot->type != V_MISSING)
            continue;
        uint32_t first = m->n - m->n2;
        if (i >= first) {
            struct val v;
            if (!eval_expr(e, act, m->list2[i - first], &v))
                return false;
            *slot = v;
            continue;
        }
        struct sb b = {.e = e};
        struct val text;
        sb_puts(&b, "parameter ");
        str_repr(m->list[i]->name, &b);
        sb_puts(&b, " was not provided");
        sb_putc(&b, '\0');
        if (!sb_done(&b, &text) || !undef_hint(e, text.s, slot))
            return false;
    }
    return true;
}

bool call_macro(struct eval *e, const struct macro *mac, const struct args *a, struct val *out)
{
    const struct node *m = mac->node;
    struct act *act = act_new(e, mac->act, m->frame);
    struct sb b = {.e = e};
    if (!act || !macro_bind(e, m, act, a))
        return false;
    if (e->depth >= e->limits->max_depth)
        return eval_fail(e, "evaluation nested deeper than %u levels", e->limits->max_depth);
    e->depth++;
    frame_enter(e, act, m->frame);
    bool ok = macro_defaults(e, m, act) && exec(e, act, m->c, &b) != FLOW_FAIL;
    e->depth--;
    return ok && sb_done(&b, out);
}

static bool make_macro(struct eval *e, struct act *act, const struct node *n, struct val *out)
{
    struct macro *m = eval_alloc(e, sizeof *m);
    if (!m)
        return false;
    *m = (struct macro){n, act};
    *out = (struct val){.type = V_MACRO, .macro = m};
    return true;
}

static bool exec_call_block(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    struct val caller, callee, result;
    struct args args;
    const struct node *call = n->a;
    if (!make_macro(e, act, n, &caller) || !eval_expr(e, act, call->a, &callee) || !eval_args(e, act, call->args, &args))
        return false;
    struct kwarg *kw = eval_array(e, args.nkw + 1, sizeof *kw);
    if (!kw)
        return false;
    if (args.nkw)
        memcpy(kw, args.kw, args.nkw * sizeof *kw);
    kw[args.nkw++] = (struct kwarg){STR("caller"), caller};
    args.kw = kw;
    e->at = call;
    return call_value(e, callee, &args, &result) && write_text(e, result, out);
}

/* ---- blocks ---- */

/* A filter whose innermost value is the captured text. */
static bool apply_filters(struct eval *e, struct act *act, const struct node *f, struct val text, struct val *out)
{
    struct args args;
    if (f->a) {
        if (!apply_filters(e, act, f->a, text, &text))
            return false;
    }
    if (!eval_args(e, act, f->args, &args))
        return false;
    e->at = f;
    if (f->which == WHICH_UNKNOWN)
        return eval_fail(e, "No filter named '%.*s' found.", (int)f->name.n, f->name.s);
    return call_filter(e, f->which, text, &args, out);
}

static enum flow exec_block(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    struct sb captured = {.e = e};
    struct val v;
    bool capture = n->kind == N_SETBLOCK || n->kind == N_FILTERBLOCK;
    struct val *values = NULL;
    if (n->kind == N_WITH && !(values = eval_array(e, n->n / 2, sizeof *values)))
        return FLOW_FAIL;
    frame_enter(e, act, n->frame);
    for (uint32_t i = 0; n->kind == N_WITH && i < n->n; i += 2)
        if (!eval_expr(e, act, n->list[i + 1], &values[i / 2]) || !assign(e, act, n->list[i], values[i / 2]))
            return FLOW_FAIL;
    enum flow flow = exec(e, act, n->c, capture ? &captured : out);
    if (flow == FLOW_NEXT && capture) {
        if (!sb_done(&captured, &v) || (n->b && !apply_filters(e, act, n->b, v, &v)))
            return FLOW_FAIL;
        e->at = n;
        if (n->kind == N_SETBLOCK ? !assign(e, act, n->a, v) : !write_text(e, v, out))
            return FLOW_FAIL;
    }
    if (flow != FLOW_FAIL)
        frame_leave(act, n->frame);
    return flow;
}

static enum flow exec_if(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val v;
        if (!eval_expr(e, act, n->list[i], &v))
            return FLOW_FAIL;
        if (val_truth(v))
            return exec(e, act, n->list[i + 1], out);
    }
    return n->c ? exec(e, act, n->c, out) : FLOW_NEXT;
}

static enum flow exec_node(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    struct val v;
    bool ok = true;
    switch (n->kind) {
    case N_BODY:
        for (uint32_t i = 0; i < n->n; i++) {
            enum flow flow = exec(e, act, n->list[i], out);
            if (flow != FLOW_NEXT)
                return flow;
        }
        return FLOW_NEXT;
    case N_TEXT:
        sb_str(out, n->name);
        ok = !out->failed;
        break;
    case N_PRINT:
        ok = eval_expr(e, act, n->a, &v);
        e->at = n->a;
        ok = ok && val_write(e, v, out);
        break;
    case N_IF:
        return exec_if(e, act, n, out);
    case N_FOR:
        return exec_for(e, act, n, out);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    case N_SET:
        ok = eval_expr(e, act, n->b, &v) && assign(e, act, n->a, v);
        break;
    case N_MACRO:
        ok = make_macro(e, act, n, &v);
        for (uint32_t i = 0; i < n->depth; i++)
            act = act->outer;
        if (ok)
            act->slots[n->slot] = v;
        break;
    case N_CALLBLOCK:
        ok = exec_call_block(e, act, n, out);
        break;
    default:
        return exec_block(e, act, n, out);
    }
    return ok ? FLOW_NEXT : FLOW_FAIL;
}

static enum flow exec(struct eval *e, struct act *act, const struct node *n, struct sb *out)
{
    e->at = n;
    if (!eval_step(e, 1))
        return FLOW_FAIL;
    if (e->depth >= e->limits->max_depth)
        return eval_fail(e, "evaluation nested deeper than %u levels", e->limits->max_depth), FLOW_FAIL;
    e->depth++;
    enum flow flow = exec_node(e, act, n, out);
    e->depth--;
    return flow;
}

bool exec_template(struct eval *e, struct sb *out)
{
    struct act *act = act_new(e, NULL, e->t->frame);
    if (!act)
        return false;
    frame_enter(e, act, e->t->frame);
    return exec(e, act, e->t->root, out) != FLOW_FAIL;
}
