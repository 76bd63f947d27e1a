/* Basic facts of values, text under construction, lists and dicts; see value.h and eval.h. */
#include <stdio.h>

#include "base/utf8.h"
#include "jinja/eval.h"

const char *val_type_name(struct val v)
{
    static const char *const names[] = {
        [V_MISSING] = "missing", [V_UNDEF] = "Undefined", [V_NONE] = "NoneType", [V_BOOL] = "bool", [V_INT] = "int",
        [V_FLOAT] = "float", [V_STR] = "str", [V_LIST] = "list", [V_TUPLE] = "tuple", [V_DICT] = "dict",
        [V_RANGE] = "range", [V_VIEW] = "dict_items", [V_ITER] = "generator", [V_NS] = "Namespace",
        [V_LOOP] = "LoopContext", [V_MACRO] = "Macro", [V_METHOD] = "builtin_function_or_method", [V_GLOBAL] = "function",
        [V_CYCLER] = "Cycler", [V_JOINER] = "Joiner",
    };
    if (v.type == V_STR && v.markup)
        return "Markup";
    if (v.type == V_VIEW && v.view->kind != VIEW_ITEMS)
        return v.view->kind == VIEW_KEYS ? "dict_keys" : "dict_values";
    return names[v.type];
}

bool val_truth(struct val v)
{
    switch (v.type) {
    case V_MISSING: case V_UNDEF: case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STR: return v.n != 0;
    case V_LIST: case V_TUPLE: return v.list->n != 0;
    case V_DICT: return v.dict->n != 0;
    case V_RANGE: return v.range->n != 0;
    case V_VIEW: return v.view->dict->n != 0;
    default: return true;
    }
}

/* ---- text ---- */

void sb_add(struct sb *b, const char *s, size_t n)
{
    if (b->failed || !n)
        return;
    if (b->max && n > b->max - b->n) {
        eval_fail(b->e, "the output is larger than the limit of %zu bytes", b->max);
        b->failed = true;
        return;
    }
    if (n > b->cap - b->n) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap - b->n < n)
            cap *= 2; /* stays below the arena's limit, or the request fails */
        char *p = cap > UINT32_MAX / 2 ? NULL : arena_grow(&b->e->arena, b->s, b->cap, cap);
        if (!p) {
            b->e->arena.limited = b->e->arena.limited || cap > UINT32_MAX / 2;
            eval_nomem(b->e);
            b->failed = true;
            return;
        }
        b->s = p;
        b->cap = cap;
    }
    memcpy(b->s + b->n, s, n);
    b->n += n;
}

void sb_str(struct sb *b, struct str s) { sb_add(b, s.s, s.n); }
void sb_puts(struct sb *b, const char *s) { sb_add(b, s, strlen(s)); }
void sb_putc(struct sb *b, char c) { sb_add(b, &c, 1); }

void sb_cp(struct sb *b, uint32_t cp)
{
    char text[4];
    sb_add(b, text, (size_t)utf8_encode(cp, text));
}

void sb_fill(struct sb *b, struct str unit, int64_t count)
{
    if (!unit.n)
        return;
    for (; count > 0 && !b->failed; count--)
        sb_str(b, unit);
}

void sb_printf(struct sb *b, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sb_add(b, text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
}

bool sb_done(struct sb *b, struct val *out)
{
    if (b->failed)
        return false;
    if (b->s)
        arena_trim(&b->e->arena, b->s, b->cap, b->n);
    b->cap = b->n;
    *out = val_str((struct str){b->s ? b->s : "", b->n});
    return true;
}

/* ---- lists ---- */

bool list_add(struct list_builder *l, struct val v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct val *items = arena_grow(&l->e->arena, l->items, l->cap * sizeof v, cap * sizeof v);
        if (!items)
            return eval_nomem(l->e);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return true;
}

bool list_done(struct list_builder *l, enum value_type type, struct val *out)
{
    struct vlist *list = eval_alloc(l->e, sizeof *list);
    if (!list)
        return false;
    *list = (struct vlist){.items = l->items, .n = l->n};
    *out = (struct val){.type = (uint8_t)type, .list = list};
    return true;
}

bool make_tuple(struct eval *e, const struct val *items, size_t n, struct val *out)
{
    struct vlist *list = eval_alloc(e, sizeof *list);
    struct val *copy = list ? eval_array(e, n, sizeof *items) : NULL;
    if (!copy)
        return false;
    if (n)
        memcpy(copy, items, n * sizeof *items);
    *list = (struct vlist){.items = copy, .n = n};
    *out = (struct val){.type = V_TUPLE, .list = list};
    return true;
}

/* ---- dicts ---- */

struct dict *dict_new(struct eval *e)
{
    struct dict *d = eval_alloc(e, sizeof *d);
    if (d)
        *d = (struct dict){0};
    return d;
}

static bool dict_index(struct eval *e, struct dict *d)
{
    size_t size = 32;
    while (size < d->cap * 2)
        size *= 2;
    uint32_t *index = eval_array(e, size, sizeof *index);
    if (!index)
        return false;
    memset(index, 0, size * sizeof *index);
    for (size_t i = 0; i < d->n; i++) {
        size_t slot = d->entries[i].hash & (size - 1);
        while (index[slot])
            slot = (slot + 1) & (size - 1);
        index[slot] = (uint32_t)i + 1;
    }
    d->index = index;
    d->mask = size - 1;
    return true;
}

static bool dict_lookup(struct eval *e, const struct dict *d, struct val key, uint64_t hash, struct dict_entry **found)
{
    bool equal = false;
    *found = NULL;
    if (!d->index) {
        for (size_t i = 0; i < d->n && !equal; i++)
            if (d->entries[i].hash == hash) {
                if (!val_equal(e, d->entries[i].key, key, &equal))
                    return false;
                *found = equal ? &d->entries[i] : NULL;
            }
        return true;
    }
    for (size_t slot = hash & d->mask; d->index[slot]; slot = (slot + 1) & d->mask) {
        struct dict_entry *entry = &d->entries[d->index[slot] - 1];
        if (entry->hash == hash) {
            if (!val_equal(e, entry->key, key, &equal))
                return false;
            if (equal) {
                *found = entry;
                return true;
            }
        }
    }
    return true;
}

bool dict_find(struct eval *e, const struct dict *d, struct val key, const struct val **found)
{
    uint64_t hash;
    struct dict_entry *entry;
    if (!val_hash(e, key, &hash) || !dict_lookup(e, d, key, hash, &entry))
        return false;
    *found = entry ? &entry->value : NULL;
    return true;
}

bool dict_set(struct eval *e, struct dict *d, struct val key, struct val value)
{
    uint64_t hash;
    struct dict_entry *entry;
    if (!val_hash(e, key, &hash) || !dict_lookup(e, d, key, hash, &entry))
        return false;
    if (entry) {
        entry->value = value;
        return true;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        struct dict_entry *entries = arena_grow(&e->arena, d->entries, d->cap * sizeof *entries, cap * sizeof *entries);
        if (!entries)
            return eval_nomem(e);
        d->entries = entries;
        d->cap = cap;
        d->index = NULL;
    }
    d->entries[d->n++] = (struct dict_entry){key, value, hash};
    if (!d->index)
        return d->n <= 8 || dict_index(e, d);
    size_t slot = hash & d->mask;
    while (d->index[slot])
        slot = (slot + 1) & d->mask;
    d->index[slot] = (uint32_t)d->n;
    return true;
}

const struct val *dict_get(const struct dict *d, const char *name, size_t n)
{
    /* hashing and comparing strings cannot fail, so no evaluator is needed */
    uint64_t hash;
    struct dict_entry *entry;
    struct val key = val_str((struct str){name, n});
    if (!val_hash(NULL, key, &hash) || !dict_lookup(NULL, d, key, hash, &entry) || !entry)
        return NULL;
    return &entry->value;
}
