/* Variables to slots: jinja2's static scoping (idtracking.py), which a template can tell from dynamic scoping.
 *
 * A scope (struct scope) knows the variables it reads or writes (refs: name to variable) and what happens to each of them
 * when the scope is entered (loads): looked up in the context, copied from an outer scope, made undefined, or set by
 * whoever enters. A variable is a slot of the function it belongs to: the template, a macro, a call block, the test of a
 * for loop. A read of a name goes to the innermost scope that mentions the name anywhere, even further down.
 */
#include "jinja/ast.h"
#include "jinja/registry.h"

#include <stdio.h>

struct function {
    struct function *outer;
    uint32_t nslots;
    struct ident *idents; /* list of all */
};

/* One variable, identified by (function, level of the scope, name) as in jinja2's l_<level>_<name>. */
struct ident {
    struct ident *next;
    struct function *function;
    struct str name;
    uint32_t level, slot;
};

struct ref { struct str name; struct ident *ident; };
struct scope_load { struct ident *ident; struct load load; struct ident *alias; };

struct scope {
    struct scope *parent;
    struct function *function;
    uint32_t level;
    struct ref *refs;
    struct scope_load *loads;
    struct str *stores;
    uint32_t nrefs, nloads, nstores, crefs, cloads, cstores;
};

/* How a statement is compiled: its scope, inside a loop of the same function or not, under an if (soft) or not. */
struct place {
    struct scope *scope;
    bool in_loop, soft;
};

#define MAX_STEPS 200000000u

static bool steps(struct compile *c, size_t n)
{
    c->steps += n + 1;
    return c->steps <= MAX_STEPS || compile_fail(c, 1, 1, "the template has too many variables to be resolved");
}

static void *grow(struct compile *c, void *items, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return items;
    uint32_t more = *cap ? *cap * 2 : 8;
    void *p = arena_grow(&c->scratch, items, n * size, more * size);
    if (p)
        *cap = more;
    else
        compile_nomem(c, &c->scratch);
    return p;
}

/* ---- scopes ---- */

static struct scope *new_scope(struct compile *c, struct scope *parent, struct function *function)
{
    struct scope *s = arena_zalloc(&c->scratch, sizeof *s);
    if (!s)
        return compile_nomem(c, &c->scratch), NULL;
    s->parent = parent;
    s->function = function;
    s->level = parent ? parent->level + 1 : 0;
    return s;
}

static struct function *new_function(struct compile *c, struct function *outer)
{
    struct function *f = arena_zalloc(&c->scratch, sizeof *f);
    if (!f)
        return compile_nomem(c, &c->scratch), NULL;
    f->outer = outer;
    return f;
}

static struct ident *own_ref(struct compile *c, const struct scope *s, struct str name)
{
    steps(c, s->nrefs);
    for (uint32_t i = 0; i < s->nrefs; i++)
        if (str_eq(s->refs[i].name, name))
            return s->refs[i].ident;
    return NULL;
}

static struct ident *find_ref(struct compile *c, const struct scope *s, struct str name)
{
    for (; s; s = s->parent) {
        struct ident *id = own_ref(c, s, name);
        if (id)
            return id;
    }
    return NULL;
}

static bool set_load(struct compile *c, struct scope *s, struct scope_load l)
{
    steps(c, s->nloads);
    for (uint32_t i = 0; i < s->nloads; i++)
        if (s->loads[i].ident == l.ident) {
            s->loads[i] = l;
            return true;
        }
    struct scope_load *loads = grow(c, s->loads, s->nloads, &s->cloads, sizeof *loads);
    if (!loads)
        return false;
    s->loads = loads;
    loads[s->nloads++] = l;
    return true;
}

static bool set_ref(struct compile *c, struct scope *s, struct str name, struct ident *id)
{
    for (uint32_t i = 0; i < s->nrefs; i++)
        if (str_eq(s->refs[i].name, name)) {
            s->refs[i].ident = id;
            return true;
        }
    struct ref *refs = grow(c, s->refs, s->nrefs, &s->crefs, sizeof *refs);
    if (!refs)
        return false;
    s->refs = refs;
    refs[s->nrefs++] = (struct ref){name, id};
    return true;
}

static bool add_store(struct compile *c, struct scope *s, struct str name)
{
    steps(c, s->nstores);
    for (uint32_t i = 0; i < s->nstores; i++)
        if (str_eq(s->stores[i], name))
            return true;
    struct str *stores = grow(c, s->stores, s->nstores, &s->cstores, sizeof *stores);
    if (!stores)
        return false;
    s->stores = stores;
    stores[s->nstores++] = name;
    return true;
}

static struct ident *define_ref(struct compile *c, struct scope *s, struct str name, int action, struct ident *alias)
{
    struct function *f = s->function;
    struct ident *id;
    for (id = f->idents; id && !(id->level == s->level && str_eq(id->name, name)); id = id->next)
        if (!steps(c, 0))
            return NULL;
    if (!id) {
        id = arena_alloc(&c->scratch, sizeof *id);
        if (!id)
            return compile_nomem(c, &c->scratch), NULL;
        *id = (struct ident){f->idents, f, name, s->level, f->nslots++};
        f->idents = id;
    }
    struct scope_load l = {.ident = id, .load = {.action = action, .slot = id->slot, .name = name}, .alias = alias};
    return set_ref(c, s, name, id) && set_load(c, s, l) ? id : NULL;
}

static struct ident *declare_parameter(struct compile *c, struct scope *s, struct str name)
{
    return add_store(c, s, name) ? define_ref(c, s, name, LOAD_PARAMETER, NULL) : NULL;
}

static bool scope_load(struct compile *c, struct scope *s, struct str name)
{
    return find_ref(c, s, name) || define_ref(c, s, name, LOAD_RESOLVE, NULL);
}

static bool scope_store(struct compile *c, struct scope *s, struct str name)
{
    if (!add_store(c, s, name))
        return false;
    if (own_ref(c, s, name))
        return true;
    struct ident *outer = s->parent ? find_ref(c, s->parent, name) : NULL;
    return define_ref(c, s, name, outer ? LOAD_ALIAS : LOAD_UNDEFINED, outer);
}

static struct scope *copy_scope(struct compile *c, const struct scope *s)
{
    struct scope *n = arena_alloc(&c->scratch, sizeof *n);
    if (!n)
        return compile_nomem(c, &c->scratch), NULL;
    *n = *s;
    n->refs = arena_array(&c->scratch, s->nrefs, sizeof *s->refs);
    n->loads = arena_array(&c->scratch, s->nloads, sizeof *s->loads);
    n->stores = arena_array(&c->scratch, s->nstores, sizeof *s->stores);
    if (!n->refs || !n->loads || !n->stores)
        return compile_nomem(c, &c->scratch), NULL;
    if (s->nrefs) memcpy(n->refs, s->refs, s->nrefs * sizeof *s->refs);
    if (s->nloads) memcpy(n->loads, s->loads, s->nloads * sizeof *s->loads);
    if (s->nstores) memcpy(n->stores, s->stores, s->nstores * sizeof *s->stores);
    n->crefs = s->nrefs;
    n->cloads = s->nloads;
    n->cstores = s->nstores;
    return n;
}

static bool is_stored(const struct scope *s, struct str name)
{
    for (uint32_t i = 0; i < s->nstores; i++)
        if (str_eq(s->stores[i], name))
            return true;
    return false;
}

/* Merge the three branches of an if into s: what only some of them store keeps its value from outside. */
static bool merge_branches(struct compile *c, struct scope *s, struct scope *const branch[3])
{
    struct scope partial = {0};
    for (int b = 0; b < 3; b++)
        for (uint32_t i = 0; i < branch[b]->nstores; i++) {
            struct str name = branch[b]->stores[i];
            if (!steps(c, (size_t)s->nstores + branch[0]->nstores + branch[1]->nstores + branch[2]->nstores))
                return false;
            bool everywhere = is_stored(branch[0], name) && is_stored(branch[1], name) && is_stored(branch[2], name);
            if (!is_stored(s, name) && !everywhere && !add_store(c, &partial, name))
                return false;
        }
    for (int b = 0; b < 3; b++) {
        for (uint32_t i = 0; i < branch[b]->nrefs; i++)
            if (!steps(c, s->nrefs) || !set_ref(c, s, branch[b]->refs[i].name, branch[b]->refs[i].ident))
                return false;
        for (uint32_t i = 0; i < branch[b]->nloads; i++)
            if (!set_load(c, s, branch[b]->loads[i]))
                return false;
        for (uint32_t i = 0; i < branch[b]->nstores; i++)
            if (!add_store(c, s, branch[b]->stores[i]))
                return false;
    }
    for (uint32_t i = 0; i < partial.nstores; i++) {
        struct str name = partial.stores[i];
        struct ident *id = find_ref(c, s, name), *outer = s->parent ? find_ref(c, s->parent, name) : NULL;
        struct load l = {.action = outer ? LOAD_ALIAS : LOAD_RESOLVE, .slot = id->slot, .name = name};
        if (!set_load(c, s, (struct scope_load){id, l, outer}))
            return false;
    }
    return true;
}

/* ---- first pass: what a scope reads and writes, without entering inner scopes ---- */

enum name_use { USE_LOAD, USE_STORE, USE_PARAM };

static bool collect(struct compile *c, struct scope *s, const struct node *n, enum name_use use);

static bool collect_args(struct compile *c, struct scope *s, const struct call_args *a)
{
    if (!a)
        return true;
    for (uint32_t i = 0; i < a->npos; i++)
        if (!collect(c, s, a->pos[i], USE_LOAD))
            return false;
    for (uint32_t i = 0; i < a->nkw; i++)
        if (!collect(c, s, a->kw[i].value, USE_LOAD))
            return false;
    return collect(c, s, a->dyn_pos, USE_LOAD) && collect(c, s, a->dyn_kw, USE_LOAD);
}

/* One branch of an if: a copy of s into which the statements are collected. */
static struct scope *collect_branch(struct compile *c, struct scope *s, const struct node *body)
{
    struct scope *b = copy_scope(c, s);
    return b && collect(c, b, body, USE_LOAD) ? b : NULL;
}

static bool collect_if(struct compile *c, struct scope *s, const struct node *n)
{
    if (!collect(c, s, n->list[0], USE_LOAD))
        return false;
    struct scope *body = collect_branch(c, s, n->list[1]), *elifs = copy_scope(c, s), *otherwise;
    if (!body || !elifs)
        return false;
    for (uint32_t i = 2; i < n->n; i += 2) { /* each elif is an if of its own with empty elif and else branches */
        struct scope *branch[3];
        if (!collect(c, elifs, n->list[i], USE_LOAD) || !(branch[0] = collect_branch(c, elifs, n->list[i + 1])) ||
            !(branch[1] = copy_scope(c, elifs)) || !(branch[2] = copy_scope(c, elifs)) ||
            !merge_branches(c, elifs, branch))
            return false;
    }
    if (!(otherwise = collect_branch(c, s, n->c)))
        return false;
    return merge_branches(c, s, (struct scope *const[3]){body, elifs, otherwise});
}

static bool collect(struct compile *c, struct scope *s, const struct node *n, enum name_use use)
{
    if (!n)
        return true;
    switch (n->kind) {
    case N_NAME:
        return use == USE_LOAD ? scope_load(c, s, n->name) : use == USE_STORE ? scope_store(c, s, n->name)
                                                                             : declare_parameter(c, s, n->name) != NULL;
    case N_NSREF:
        return scope_load(c, s, n->name);
    case N_IF:
        return collect_if(c, s, n);
    case N_MACRO:
        return scope_store(c, s, n->name);
    case N_SET:
        return collect(c, s, n->b, USE_LOAD) && collect(c, s, n->a, USE_STORE);
    case N_SETBLOCK:
        return collect(c, s, n->a, USE_STORE);
    case N_FOR:
        return collect(c, s, n->b, USE_LOAD);
    case N_CALLBLOCK:
        return collect(c, s, n->a, USE_LOAD);
    case N_FILTERBLOCK:
        return collect(c, s, n->b, USE_LOAD);
    case N_WITH:
        for (uint32_t i = 1; i < n->n; i += 2)
            if (!collect(c, s, n->list[i], USE_LOAD))
                return false;
        return true;
    case N_SCOPE:
        return true;
    case N_COND: /* jinja2 visits the fields in the order test, then, else */
        return collect(c, s, n->b, use) && collect(c, s, n->a, use) && collect(c, s, n->c, use);
    default:
        if (!collect(c, s, n->a, use) || !collect(c, s, n->b, use) || !collect(c, s, n->c, use))
            return false;
        for (uint32_t i = 0; i < n->n; i++)
            if (!collect(c, s, n->list[i], use))
                return false;
        return collect_args(c, s, n->args);
    }
}

/* ---- which special names does a body read without setting them? (jinja2's find_undeclared) ---- */

struct special {
    const char *name;
    bool removed, found;
};

static void find_special(const struct node *n, struct special *sp, int count, bool store);

static void find_in_name(struct str name, struct special *sp, int count, bool store)
{
    for (int i = 0; i < count; i++)
        if (!sp[i].removed && str_is(name, sp[i].name)) {
            sp[i].found = sp[i].found || !store;
            sp[i].removed = store;
        }
}

static void find_special(const struct node *n, struct special *sp, int count, bool store)
{
    if (!n)
        return;
    if (n->kind == N_NAME) {
        find_in_name(n->name, sp, count, store);
        return;
    }
    bool stores = n->kind == N_FOR || n->kind == N_SET || n->kind == N_SETBLOCK;
    find_special(n->a, sp, count, stores || (store && n->kind == N_TUPLE));
    find_special(n->b, sp, count, false);
    if (n->kind != N_FOR && n->kind != N_MACRO && n->kind != N_CALLBLOCK)
        find_special(n->c, sp, count, false);
    for (uint32_t i = 0; i < n->n; i++)
        if (!(n->kind == N_FOR && i == 2)) {
            bool target = (n->kind == N_TUPLE && store) || n->kind == N_MACRO || n->kind == N_CALLBLOCK ||
                          (n->kind == N_WITH && i % 2 == 0);
            find_special(n->list[i], sp, count, target);
        }
    for (uint32_t i = 0; i < n->n2; i++)
        find_special(n->list2[i], sp, count, false);
    if (n->kind == N_FOR || n->kind == N_MACRO || n->kind == N_CALLBLOCK)
        find_special(n->c, sp, count, false);
    for (uint32_t i = 0; n->args && i < n->args->npos; i++)
        find_special(n->args->pos[i], sp, count, false);
    for (uint32_t i = 0; n->args && i < n->args->nkw; i++)
        find_special(n->args->kw[i].value, sp, count, false);
    if (n->args) {
        find_special(n->args->dyn_pos, sp, count, false);
        find_special(n->args->dyn_kw, sp, count, false);
    }
}

/* ---- second pass: slots into the nodes, loads into the frames ---- */

static bool resolve(struct compile *c, struct place at, struct node *n);

static uint32_t hops(const struct function *from, const struct function *to)
{
    uint32_t n = 0;
    for (; from && from != to; from = from->outer)
        n++;
    return n;
}

static bool note_read(struct compile *c, struct str name)
{
    struct jinja_template *t = c->t;
    if (!steps(c, t->nreads))
        return false;
    for (size_t i = 0; i < t->nreads; i++)
        if (str_eq(t->reads[i], name))
            return true;
    if (t->nreads == t->reads_cap) {
        size_t cap = t->reads_cap ? t->reads_cap * 2 : 16;
        struct str *reads = arena_grow(&t->arena, t->reads, t->nreads * sizeof *reads, cap * sizeof *reads);
        if (!reads)
            return compile_nomem(c, &t->arena);
        t->reads = reads;
        t->reads_cap = cap;
    }
    t->reads[t->nreads++] = name;
    return true;
}

/* The frame of a finished scope. nslots is filled in when its function is finished. */
static struct frame *make_frame(struct compile *c, const struct scope *s)
{
    struct frame *f = arena_zalloc(&c->t->arena, sizeof *f);
    if (!f || !(f->loads = arena_array(&c->t->arena, s->nloads, sizeof *f->loads)))
        return compile_nomem(c, &c->t->arena), NULL;
    for (uint32_t i = 0; i < s->nloads; i++) {
        struct load l = s->loads[i].load;
        if (l.action == LOAD_ALIAS) {
            l.alias_depth = hops(s->function, s->loads[i].alias->function);
            l.alias_slot = s->loads[i].alias->slot;
        }
        if (l.action == LOAD_RESOLVE && !note_read(c, l.name))
            return NULL;
        f->loads[f->n++] = l;
    }
    return f;
}

static bool bind(struct compile *c, const struct scope *s, struct str name, uint32_t *depth, uint32_t *slot)
{
    struct ident *id = find_ref(c, s, name);
    if (!id)
        return false;
    *depth = hops(s->function, id->function);
    *slot = id->slot;
    return true;
}

static bool resolve_all(struct compile *c, struct place at, struct node *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i] && !resolve(c, at, list[i]))
            return false;
    return true;
}

static bool resolve_args(struct compile *c, struct place at, const struct call_args *a)
{
    if (!a)
        return true;
    for (uint32_t i = 0; i < a->nkw; i++)
        if (!resolve(c, at, a->kw[i].value))
            return false;
    return resolve_all(c, at, a->pos, a->npos) && resolve(c, at, a->dyn_pos) && resolve(c, at, a->dyn_kw);
}

static struct node *clone_target(struct compile *c, const struct node *t)
{
    struct node *n = arena_alloc(&c->t->arena, sizeof *n);
    if (!n)
        return compile_nomem(c, &c->t->arena), NULL;
    *n = *t;
    if (t->kind == N_TUPLE) {
        if (!(n->list = arena_array(&c->t->arena, t->n, sizeof *n->list)))
            return compile_nomem(c, &c->t->arena), NULL;
        for (uint32_t i = 0; i < t->n; i++)
            if (!(n->list[i] = clone_target(c, t->list[i])))
                return NULL;
    }
    return n;
}

/* Does a node below n assign the name `loop`? Then jinja2 refuses the loop. */
static const struct node *assigns_loop(const struct node *n, bool store)
{
    const struct node *found = NULL;
    if (!n)
        return NULL;
    if (n->kind == N_NAME)
        return store && str_is(n->name, "loop") ? n : NULL;
    bool stores = n->kind == N_FOR || n->kind == N_SET || n->kind == N_SETBLOCK;
    found = assigns_loop(n->a, stores);
    if (!found) found = assigns_loop(n->c, false);
    for (uint32_t i = 0; !found && i < n->n; i++)
        if (n->kind != N_MACRO && n->kind != N_CALLBLOCK && !(n->kind == N_FOR && i == 2))
            found = assigns_loop(n->list[i], n->kind == N_TUPLE && store);
    return found;
}

static bool resolve_for(struct compile *c, struct place at, struct node *n)
{
    struct scope *body = new_scope(c, at.scope, at.scope->function);
    struct special loop = {.name = "loop"};
    find_special(n->list[0], &loop, 1, false);
    n->extended = loop.found;
    if (!body)
        return false;
    if (n->extended) {
        struct ident *id = declare_parameter(c, body, STR("loop"));
        if (!id)
            return false;
        n->slot = id->slot;
    }
    if (!collect(c, body, n->a, USE_PARAM) || !collect(c, body, n->list[0], USE_LOAD))
        return false;
    const struct node *bad = assigns_loop(n, false);
    if (bad)
        return compile_fail(c, bad->line, bad->col, "Can't assign to special loop variable in for-loop target");
    if (n->c) {
        struct function *f = new_function(c, at.scope->function);
        struct scope *test = f ? new_scope(c, at.scope, f) : NULL;
        if (!test || !collect(c, test, n->a, USE_PARAM) || !collect(c, test, n->c, USE_LOAD) ||
            !(n->list[2] = clone_target(c, n->a)) ||
            !resolve(c, (struct place){test, false, false}, n->list[2]) ||
            !resolve(c, (struct place){test, false, false}, n->c) || !(n->frame_test = make_frame(c, test)))
            return false;
        n->frame_test->nslots = f->nslots;
    }
    if (!resolve(c, at, n->b) || !resolve(c, (struct place){body, true, false}, n->a) ||
        !resolve(c, (struct place){body, true, false}, n->list[0]) || !(n->frame = make_frame(c, body)))
        return false;
    if (n->list[1]) {
        struct scope *otherwise = new_scope(c, at.scope, at.scope->function);
        if (!otherwise || !collect(c, otherwise, n->list[1], USE_LOAD) ||
            !resolve(c, (struct place){otherwise, at.in_loop, false}, n->list[1]) ||
            !(n->frame_else = make_frame(c, otherwise)))
            return false;
    }
    return true;
}

static bool collect_macro(struct compile *c, struct scope *s, const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++)
        if (!declare_parameter(c, s, n->list[i]->name))
            return false;
    for (uint32_t i = 0; i < n->n2; i++)
        if (!collect(c, s, n->list2[i], USE_LOAD))
            return false;
    return collect(c, s, n->c, USE_LOAD);
}

static bool special_parameter(struct compile *c, struct scope *s, const char *name, uint32_t *slot)
{
    struct ident *id = declare_parameter(c, s, (struct str){name, strlen(name)});
    if (id)
        *slot = id->slot;
    return id;
}

/* The body of a macro or call block: a function of its own. */
static bool resolve_macro(struct compile *c, struct place at, struct node *n)
{
    struct function *f = new_function(c, at.scope->function);
    struct scope *s = f ? new_scope(c, at.scope, f) : NULL;
    if (!s || !collect_macro(c, s, n))
        return false;
    struct special sp[3] = {{.name = "caller"}, {.name = "kwargs"}, {.name = "varargs"}};
    find_special(n->c, sp, 3, false);
    bool takes_kwargs = false, takes_varargs = false;
    uint32_t caller_at = UINT32_MAX;
    for (uint32_t i = 0; i < n->n; i++) {
        if (str_is(n->list[i]->name, "caller"))
            caller_at = i;
        takes_kwargs = takes_kwargs || str_is(n->list[i]->name, "kwargs");
        takes_varargs = takes_varargs || str_is(n->list[i]->name, "varargs");
    }
    n->explicit_caller = caller_at != UINT32_MAX;
    n->uses_caller = sp[0].found;
    n->uses_kwargs = sp[1].found && !takes_kwargs;
    n->uses_varargs = sp[2].found && !takes_varargs;
    if (n->uses_caller && n->explicit_caller && caller_at < n->n - n->n2)
        return compile_fail(c, n->line, n->col, "When defining macros or call blocks the special \"caller\" argument must "
                                                "be omitted or be given a default.");
    if ((n->uses_caller && !n->explicit_caller && !special_parameter(c, s, "caller", &n->slot_caller)) ||
        (n->uses_kwargs && !special_parameter(c, s, "kwargs", &n->slot_kwargs)) ||
        (n->uses_varargs && !special_parameter(c, s, "varargs", &n->slot_varargs)) || !collect_macro(c, s, n))
        return false;
    struct place inside = {s, false, false};
    if (!resolve_all(c, inside, n->list, n->n) || !resolve_all(c, inside, n->list2, n->n2) || !resolve(c, inside, n->c) ||
        !(n->frame = make_frame(c, s)))
        return false;
    n->frame->nslots = f->nslots;
    return true;
}

static bool resolve_block(struct compile *c, struct place at, struct node *n)
{
    struct scope *s = new_scope(c, at.scope, at.scope->function);
    if (!s)
        return false;
    struct place inside = {s, at.in_loop, false};
    if (n->kind == N_WITH)
        for (uint32_t i = 0; i < n->n; i += 2)
            if (!collect(c, s, n->list[i], USE_PARAM))
                return false;
    if (!collect(c, s, n->c, USE_LOAD))
        return false;
    if ((n->kind == N_FILTERBLOCK || n->kind == N_SETBLOCK) && !collect(c, s, n->b, USE_LOAD))
        return false;
    for (uint32_t i = 0; n->kind == N_WITH && i < n->n; i += 2)
        if (!resolve(c, inside, n->list[i]) || !resolve(c, at, n->list[i + 1]))
            return false;
    if (n->kind == N_SETBLOCK && !resolve(c, at, n->a))
        return false;
    if (n->kind == N_SCOPE)
        inside.in_loop = false; /* transformers renders it through a function */
    return resolve(c, inside, n->c) && resolve(c, inside, n->b) && (n->frame = make_frame(c, s));
}

static bool resolve_filter_or_test(struct compile *c, struct place at, struct node *n)
{
    bool filter = n->kind == N_FILTER;
    int which = filter ? filter_number(n->name) : test_number(n->name);
    n->which = which < 0 ? WHICH_UNKNOWN : (uint16_t)which;
    if (which < 0 && !at.soft) /* under an if it is an error only when it is reached */
        return compile_fail(c, n->line, n->col, "No %s named '%.*s'.", filter ? "filter" : "test", (int)n->name.n, n->name.s);
    return (!n->a || resolve(c, at, n->a)) && resolve_args(c, at, n->args);
}

static bool resolve(struct compile *c, struct place at, struct node *n)
{
    if (!n)
        return true;
    if (c->code)
        return false;
    switch (n->kind) {
    case N_NAME:
    case N_NSREF:
        return bind(c, at.scope, n->name, &n->depth, &n->slot) ||
               compile_fail(c, n->line, n->col, "internal: unresolved name '%.*s'", (int)n->name.n, n->name.s);
    case N_FILTER:
    case N_TEST:
        return resolve_filter_or_test(c, at, n);
    case N_FOR:
        return resolve_for(c, at, n);
    case N_MACRO:
        return bind(c, at.scope, n->name, &n->depth, &n->slot) && resolve_macro(c, at, n);
    case N_CALLBLOCK:
        return resolve_macro(c, at, n) && resolve(c, at, n->a);
    case N_WITH:
    case N_SETBLOCK:
    case N_FILTERBLOCK:
    case N_SCOPE:
        return resolve_block(c, at, n);
    case N_BREAK:
    case N_CONTINUE:
        return at.in_loop || compile_fail(c, n->line, n->col, "'%s' outside loop", n->kind == N_BREAK ? "break" : "continue");
    case N_IF:
    case N_COND:
        at.soft = true;
        break;
    default:
        break;
    }
    return resolve(c, at, n->a) && resolve(c, at, n->b) && resolve(c, at, n->c) &&
           resolve_all(c, at, n->list, n->n) && resolve_args(c, at, n->args);
}

bool resolve_template(struct compile *c)
{
    struct function *f = new_function(c, NULL);
    struct scope *s = f ? new_scope(c, NULL, f) : NULL;
    if (!s || !collect(c, s, c->t->root, USE_LOAD) || c->code ||
        !resolve(c, (struct place){s, false, false}, c->t->root) || !(c->t->frame = make_frame(c, s)))
        return false;
    c->t->frame->nslots = f->nslots;
    return !c->code;
}
