/* The tests (`x is name`), in one table; see eval.h. */
#include "jinja/eval.h"
#include "jinja/strutil.h"

typedef bool test_fn(struct eval *e, struct val v, struct val arg, bool *out);
#define TEST(name) static bool is_##name(struct eval *e, struct val v, struct val arg, bool *out)
#define UNUSED (void)e, (void)v, (void)arg

TEST(defined) { UNUSED; *out = v.type != V_UNDEF; return true; }
TEST(undefined) { UNUSED; *out = v.type == V_UNDEF; return true; }
TEST(none) { UNUSED; *out = v.type == V_NONE; return true; }
TEST(boolean) { UNUSED; *out = v.type == V_BOOL; return true; }
TEST(true) { UNUSED; *out = v.type == V_BOOL && v.b; return true; }
TEST(false) { UNUSED; *out = v.type == V_BOOL && !v.b; return true; }
TEST(int) { UNUSED; *out = v.type == V_INT; return true; }
TEST(float) { UNUSED; *out = v.type == V_FLOAT; return true; }
TEST(number_value) { UNUSED; *out = is_number(v); return true; }
TEST(string) { UNUSED; *out = v.type == V_STR; return true; }
TEST(mapping) { UNUSED; *out = v.type == V_DICT; return true; }
TEST(iterable) { UNUSED; *out = iter_can(v); return true; }
TEST(escaped) { UNUSED; *out = v.type == V_STR && v.markup; return true; }
TEST(sameas) { UNUSED; *out = val_same(v, arg); return true; }
TEST(in) { return val_contains(e, v, arg, out); }

TEST(sequence)
{
    UNUSED;
    *out = v.type == V_UNDEF || v.type == V_STR || is_seq(v) || v.type == V_DICT || v.type == V_RANGE;
    return true;
}

TEST(callable)
{
    UNUSED;
    *out = v.type == V_UNDEF || v.type == V_MACRO || v.type == V_METHOD || v.type == V_GLOBAL || v.type == V_JOINER ||
           v.type == V_LOOP;
    return true;
}

TEST(lower)
{
    struct val s;
    (void)arg;
    if (!val_string(e, v, &s))
        return false;
    *out = str_is_lower(as_str(s));
    return true;
}

TEST(upper)
{
    struct val s;
    (void)arg;
    if (!val_string(e, v, &s))
        return false;
    *out = str_is_upper(as_str(s));
    return true;
}

static bool modulo_is(struct eval *e, struct val v, struct val by, int64_t want, bool *out)
{
    struct val rest;
    return op_binary(e, OP_MOD, v, by, &rest) && val_equal(e, rest, val_int(want), out);
}

TEST(odd) { (void)arg; return modulo_is(e, v, val_int(2), 1, out); }
TEST(even) { (void)arg; return modulo_is(e, v, val_int(2), 0, out); }
TEST(divisibleby) { return modulo_is(e, v, arg, 0, out); }
TEST(eq) { return val_equal(e, v, arg, out); }
TEST(ne) { bool ok = val_equal(e, v, arg, out); *out = !*out; return ok; }
TEST(lt) { return val_less(e, v, arg, "<", out); }
TEST(le) { return val_less(e, v, arg, "<=", out); }
TEST(gt) { return val_less(e, v, arg, ">", out); }
TEST(ge) { return val_less(e, v, arg, ">=", out); }
TEST(filter)
{
    uint64_t hash; /* jinja2 looks the value up in a dict */
    (void)arg;
    *out = v.type == V_STR && filter_number(as_str(v)) >= 0;
    return val_hash(e, v, &hash);
}

TEST(test)
{
    uint64_t hash;
    (void)arg;
    *out = v.type == V_STR && test_number(as_str(v)) >= 0;
    return val_hash(e, v, &hash);
}

/* name, function, arguments beside the value, parameter name */
static const struct { const char *name; test_fn *call; size_t n; const char *param; } tests[] = {
    {"odd", is_odd, 0, NULL}, {"even", is_even, 0, NULL}, {"divisibleby", is_divisibleby, 1, "num"},
    {"defined", is_defined, 0, NULL}, {"undefined", is_undefined, 0, NULL}, {"filter", is_filter, 0, NULL},
    {"test", is_test, 0, NULL}, {"none", is_none, 0, NULL}, {"boolean", is_boolean, 0, NULL},
    {"false", is_false, 0, NULL}, {"true", is_true, 0, NULL}, {"integer", is_int, 0, NULL},
    {"float", is_float, 0, NULL}, {"lower", is_lower, 0, NULL}, {"upper", is_upper, 0, NULL},
    {"string", is_string, 0, NULL}, {"mapping", is_mapping, 0, NULL}, {"number", is_number_value, 0, NULL},
    {"sequence", is_sequence, 0, NULL}, {"iterable", is_iterable, 0, NULL}, {"callable", is_callable, 0, NULL},
    {"sameas", is_sameas, 1, "other"}, {"escaped", is_escaped, 0, NULL}, {"in", is_in, 1, "seq"},
    {"==", is_eq, 1, ""}, {"eq", is_eq, 1, ""}, {"equalto", is_eq, 1, ""}, {"!=", is_ne, 1, ""},
    {"ne", is_ne, 1, ""}, {">", is_gt, 1, ""}, {"gt", is_gt, 1, ""}, {"greaterthan", is_gt, 1, ""},
    {">=", is_ge, 1, ""}, {"ge", is_ge, 1, ""}, {"<", is_lt, 1, ""}, {"lt", is_lt, 1, ""},
    {"lessthan", is_lt, 1, ""}, {"<=", is_le, 1, ""}, {"le", is_le, 1, ""},
};

int test_number(struct str name)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (str_is(name, tests[i].name))
            return (int)i;
    return -1;
}

bool call_test(struct eval *e, int which, struct val v, const struct args *a, bool *out)
{
    static const struct args none = {0};
    struct val arg = VAL_NONE;
    *out = false;
    return args_bind(e, tests[which].name, a ? a : &none, &tests[which].param, tests[which].n, tests[which].n, &arg) &&
           tests[which].call(e, v, arg, out);
}
