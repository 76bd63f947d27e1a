/* The global functions; see eval.h. */
#include <time.h>

#include "jinja/eval.h"

enum { G_RANGE, G_DICT, G_NAMESPACE, G_CYCLER, G_JOINER, G_RAISE, G_STRFTIME, G_LIPSUM };
static const char *const globals[] = {
    [G_RANGE] = "range", [G_DICT] = "dict", [G_NAMESPACE] = "namespace", [G_CYCLER] = "cycler", [G_JOINER] = "joiner",
    [G_RAISE] = "raise_exception", [G_STRFTIME] = "strftime_now", [G_LIPSUM] = "lipsum",
};

bool find_global(struct str name, struct val *out)
{
    for (uint32_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (str_is(name, globals[i])) {
            *out = (struct val){.type = V_GLOBAL, .n = i};
            return true;
        }
    return false;
}

static bool global_range(struct eval *e, const struct args *a, struct val *out)
{
    int64_t v[3] = {0, 0, 1};
    if (a->nkw)
        return eval_fail(e, "range() takes no keyword arguments");
    if (a->npos < 1 || a->npos > 3)
        return eval_fail(e, "range expected %s, got %zu", a->npos ? "at most 3 arguments" : "at least 1 argument", a->npos);
    for (size_t i = 0; i < a->npos; i++)
        if (!arg_int(e, a->pos[i], 0, "range", &v[i]))
            return false;
    if (a->npos == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (!v[2])
        return eval_fail(e, "range() arg 3 must not be zero");
    uint64_t step = v[2] < 0 ? 0 - (uint64_t)v[2] : (uint64_t)v[2];
    bool some = v[2] > 0 ? v[0] < v[1] : v[0] > v[1];
    uint64_t span = v[2] > 0 ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
    uint64_t n = some ? (span - 1) / step + 1 : 0;
    if (n > e->limits->max_range)
        return eval_fail(e, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%u).", e->limits->max_range);
    struct range *r = eval_alloc(e, sizeof *r);
    if (!r)
        return false;
    *r = (struct range){v[0], v[1], v[2], (size_t)n};
    *out = (struct val){.type = V_RANGE, .range = r};
    return true;
}

/* dict(...) and namespace(...): a mapping or pairs, then keyword arguments. */
static bool global_dict(struct eval *e, const struct args *a, enum value_type type, struct val *out)
{
    struct dict *d = dict_new(e);
    if (!d)
        return false;
    if (a->npos > 1)
        return eval_fail(e, "dict expected at most 1 argument, got %zu", a->npos);
    if (a->npos && a->pos[0].type == V_DICT) {
        for (size_t i = 0; i < a->pos[0].dict->n; i++)
            if (!eval_step(e, 1) || !dict_set(e, d, a->pos[0].dict->entries[i].key, a->pos[0].dict->entries[i].value))
                return false;
    } else if (a->npos) {
        struct vlist pairs, pair;
        if (!iter_list(e, a->pos[0], &pairs))
            return false;
        for (size_t i = 0; i < pairs.n; i++) {
            if (!iter_list(e, pairs.items[i], &pair))
                return false;
            if (pair.n != 2)
                return eval_fail(e, "dictionary update sequence element #%zu has length %zu; 2 is required", i, pair.n);
            if (!dict_set(e, d, pair.items[0], pair.items[1]))
                return false;
        }
    }
    for (size_t i = 0; i < a->nkw; i++)
        if (!dict_set(e, d, val_str(a->kw[i].name), a->kw[i].value))
            return false;
    *out = (struct val){.type = (uint8_t)type, .dict = d};
    return true;
}

static bool global_cycler(struct eval *e, const struct args *a, struct val *out)
{
    struct cycler *c = eval_alloc(e, sizeof *c);
    struct val items;
    if (!c || a->nkw)
        return e->code ? false : eval_fail(e, "cycler takes no keyword arguments");
    if (!a->npos)
        return eval_fail(e, "at least one item has to be provided");
    if (!make_tuple(e, a->pos, a->npos, &items))
        return false;
    *c = (struct cycler){.items = *items.list};
    *out = (struct val){.type = V_CYCLER, .cycler = c};
    return true;
}

static bool global_joiner(struct eval *e, const struct args *a, struct val *out)
{
    static const char *const names[] = {"sep"};
    struct joiner *j = eval_alloc(e, sizeof *j);
    struct val sep;
    if (!j || !args_bind(e, "joiner", a, names, 1, 0, &sep))
        return false;
    *j = (struct joiner){.sep = sep.type == V_MISSING ? val_str(STR(", ")) : sep};
    *out = (struct val){.type = V_JOINER, .joiner = j};
    return true;
}

static bool global_strftime(struct eval *e, const struct args *a, struct val *out)
{
    static const char *const names[] = {"format"};
    struct val p;
    struct str format;
    struct tm tm;
    char text[512], spec[256];
    if (!args_bind(e, "strftime_now", a, names, 1, 1, &p) || !arg_str(e, p, "strftime_now", &format))
        return false;
    if (format.n >= sizeof spec - 1 || memchr(format.s, '\0', format.n))
        return eval_fail(e, "strftime_now: a format of more than %zu bytes is not supported", sizeof spec - 2);
    time_t t = (time_t)e->time;
    if (!(e->time ? gmtime_r(&t, &tm) : (t = time(NULL), localtime_r(&t, &tm))))
        return eval_fail(e, "strftime_now: the time cannot be converted");
    memcpy(spec, format.s, format.n);
    spec[format.n] = 'x'; /* so that an empty result differs from a failure */
    spec[format.n + 1] = '\0';
    size_t n = strftime(text, sizeof text, spec, &tm);
    if (!n)
        return eval_fail(e, "strftime_now: the result is longer than %zu bytes", sizeof text - 2);
    struct sb b = {.e = e};
    sb_add(&b, text, n - 1);
    return sb_done(&b, out);
}

static bool global_raise(struct eval *e, const struct args *a)
{
    static const char *const names[] = {"message"};
    struct val p, text;
    if (!args_bind(e, "raise_exception", a, names, 1, 1, &p) || !val_string(e, p, &text))
        return false;
    return eval_fail(e, "%.*s", text.n > 400 ? 400 : (int)text.n, text.s);
}

bool call_global(struct eval *e, uint32_t which, const struct args *a, struct val *out)
{
    switch (which) {
    case G_RANGE: return global_range(e, a, out);
    case G_DICT: return global_dict(e, a, V_DICT, out);
    case G_NAMESPACE: return global_dict(e, a, V_NS, out);
    case G_CYCLER: return global_cycler(e, a, out);
    case G_JOINER: return global_joiner(e, a, out);
    case G_STRFTIME: return global_strftime(e, a, out);
    case G_RAISE: return global_raise(e, a);
    default: return eval_fail(e, "the function %s is not supported", globals[which]);
    }
}
