/* The table of filters, and the filters on single values; see filters.h. */
#include "jinja/filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "jinja/strutil.h"
#include "jinja/text.h"

static const struct { const char *name; filter_fn *call; } filters[] = {
#define X(name, function) {#name, filter_##function},
    JINJA_FILTERS(X)
#undef X
};

int filter_number(struct str name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (str_is(name, filters[i].name))
            return filters[i].call == filter_unsupported ? -1 : (int)i;
    return -1;
}

bool call_filter(struct eval *e, int which, struct val v, const struct args *a, struct val *out)
{
    return filters[which].call(e, v, a, out);
}

FILTER(unsupported)
{
    (void)v, (void)a, (void)out;
    return eval_fail(e, "this filter is not supported"); /* not reached: the name is refused when compiling */
}

FILTER(default)
{
    static const char *const names[] = {"default_value", "boolean"};
    struct val p[2];
    if (!args_bind(e, "default", a, names, 2, 0, p))
        return false;
    bool use = v.type == V_UNDEF || (val_truth(p[1]) && !val_truth(v));
    *out = !use ? v : p[0].type == V_MISSING ? val_str(STR("")) : p[0];
    return true;
}

FILTER(attr)
{
    static const char *const names[] = {"name"};
    struct val p;
    struct str name;
    uint32_t id;
    if (!args_bind(e, "attr", a, names, 1, 1, &p) || !arg_str(e, p, "attr", &name))
        return false;
    /* attributes only: never an item */
    if (v.type == V_DICT && !find_method(v, name, &id))
        return undef_attr(e, v, p, out);
    return get_attr(e, v, name, out);
}

FILTER(string)
{
    return args_bind(e, "string", a, NULL, 0, 0, NULL) && val_string(e, v, out);
}

FILTER(length)
{
    int64_t n = 0;
    if (!args_bind(e, "length", a, NULL, 0, 0, NULL) || !val_len(e, v, &n))
        return false;
    *out = val_int(n);
    return true;
}

FILTER(tojson)
{
    static const char *const names[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    struct val p[4];
    if (!args_bind(e, "tojson", a, names, 4, 0, p))
        return false;
    struct json_style style = {.ascii = val_truth(p[0]), .sort_keys = val_truth(p[3]), .item_sep = STR(", "),
                               .key_sep = STR(": ")};
    if (p[1].type != V_MISSING && p[1].type != V_NONE) {
        style.multiline = true;
        style.item_sep = STR(",");
        if (p[1].type == V_STR) {
            style.indent = as_str(p[1]);
        } else {
            int64_t n;
            struct sb b = {.e = e};
            struct val spaces;
            if (!arg_int(e, p[1], 0, "tojson", &n) || (n > 1000 && !eval_fail(e, "an indent of more than 1000 is not supported")))
                return false;
            sb_fill(&b, STR(" "), n);
            if (!sb_done(&b, &spaces))
                return false;
            style.indent = as_str(spaces);
        }
    }
    if (p[2].type != V_MISSING && p[2].type != V_NONE) {
        struct vlist two;
        if (!iter_list(e, p[2], &two))
            return false;
        if (two.n != 2 || two.items[0].type != V_STR || two.items[1].type != V_STR)
            return eval_fail(e, "tojson: separators must be two strings");
        style.item_sep = as_str(two.items[0]);
        style.key_sep = as_str(two.items[1]);
    }
    struct sb b = {.e = e};
    return val_json(e, v, &style, &b) && sb_done(&b, out);
}

/* ---- numbers ---- */

FILTER(abs)
{
    if (!args_bind(e, "abs", a, NULL, 0, 0, NULL))
        return false;
    if (!is_number(v))
        return eval_fail(e, "bad operand type for abs(): '%s'", val_type_name(v));
    if (v.type == V_FLOAT)
        *out = val_float(fabs(v.f));
    else if (int_of(v) == INT64_MIN)
        return eval_fail(e, "integer result beyond 64 bits");
    else
        *out = val_int(llabs(int_of(v)));
    return true;
}

/* Python's int(text, base): whitespace around, sign, prefix, single underscores between digits. 1 = a number, 0 = none,
   -1 after a failure (beyond 64 bits). */
static int parse_int(struct eval *e, struct str s, int64_t base, int64_t *out)
{
    s = text_strip(s, NULL, true, true);
    size_t i = 0;
    bool negative = s.n && s.s[0] == '-';
    i += s.n && (s.s[0] == '-' || s.s[0] == '+');
    if (i + 1 < s.n && s.s[i] == '0') {
        char x = s.s[i + 1] | 0x20;
        int64_t implied = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 0;
        if (implied && (base == implied || base == 0)) {
            base = implied;
            i += 2;
            i += i < s.n && s.s[i] == '_';
        }
    }
    bool zero_base = base == 0;
    base = zero_base ? 10 : base;
    int64_t value = 0;
    size_t digits = 0, start = i;
    for (; i < s.n; i++) {
        char c = s.s[i];
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
        if (c == '_' && i > start && s.s[i - 1] != '_' && i + 1 < s.n)
            continue;
        if (d >= base)
            return 0;
        if (__builtin_mul_overflow(value, base, &value) ||
            (negative ? __builtin_sub_overflow(value, d, &value) : __builtin_add_overflow(value, d, &value)))
            return eval_fail(e, "integer beyond 64 bits"), -1;
        digits++;
    }
    if (!digits || (zero_base && s.s[start] == '0' && value != 0))
        return 0;
    *out = value;
    return 1;
}

/* Python's float(text). */
static bool parse_float(struct str s, double *out)
{
    char text[400];
    size_t n = 0;
    s = text_strip(s, NULL, true, true);
    if (!s.n || s.n >= sizeof text)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.s[i];
        bool digit = c >= '0' && c <= '9';
        if (c == '_') {
            if (!i || i + 1 == s.n || s.s[i - 1] < '0' || s.s[i - 1] > '9' || s.s[i + 1] < '0' || s.s[i + 1] > '9')
                return false;
            continue;
        }
        if (!digit && !strchr("+-.eEinfatyINFATY", c))
            return false; /* strtod also knows hexadecimal and nan(...) */
        text[n++] = c;
    }
    text[n] = '\0';
    if (memchr(s.s, '\0', s.n))
        return false;
    char *end;
    *out = strtod(text, &end);
    return end == text + n;
}

static bool float_to_int(struct eval *e, double f, struct val *out)
{
    if (isinf(f))
        return eval_fail(e, "cannot convert float infinity to integer");
    if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0))
        return eval_fail(e, "integer beyond 64 bits");
    *out = val_int((int64_t)f);
    return true;
}

FILTER(int)
{
    static const char *const names[] = {"default", "base"};
    struct val p[2];
    int64_t base, i;
    double f = 0;
    if (!args_bind(e, "int", a, names, 2, 0, p) || !arg_int(e, p[1], 10, "int", &base))
        return false;
    if (v.type == V_UNDEF)
        return undef_fail(e, v);
    *out = p[0].type == V_MISSING ? val_int(0) : p[0];
    if (is_integer(v)) {
        *out = val_int(int_of(v));
        return true;
    }
    if (v.type == V_FLOAT)
        return isnan(v.f) || float_to_int(e, v.f, out);
    if (v.type != V_STR)
        return true;
    int ok = base == 0 || (base >= 2 && base <= 36) ? parse_int(e, as_str(v), base, &i) : 0;
    if (ok < 0)
        return false;
    if (ok) {
        *out = val_int(i);
        return true;
    }
    return !parse_float(as_str(v), &f) || isnan(f) || float_to_int(e, f, out);
}

FILTER(float)
{
    static const char *const names[] = {"default"};
    struct val p;
    double f;
    if (!args_bind(e, "float", a, names, 1, 0, &p))
        return false;
    if (v.type == V_UNDEF)
        return undef_fail(e, v);
    if (is_number(v))
        *out = val_float(float_of(v));
    else if (v.type == V_STR && parse_float(as_str(v), &f))
        *out = val_float(f);
    else
        *out = p.type == V_MISSING ? val_float(0) : p;
    return true;
}

/* round() to n decimals, half to even on the exact decimal value, as CPython does through the decimal text. */
static double round_decimals(double f, int64_t n)
{
    if (!isfinite(f) || n > 323)
        return f;
    if (n < -308)
        return copysign(0, f);
    if (n >= 0) {
        char text[700];
        snprintf(text, sizeof text, "%.*f", (int)n, f); /* glibc rounds the exact value, half to even */
        return strtod(text, NULL);
    }
    double scale = pow(10, (double)-n), q = f / scale, r = nearbyint(q);
    return r * scale;
}

FILTER(round)
{
    static const char *const names[] = {"precision", "method"};
    struct val p[2];
    int64_t n;
    struct str method = STR("common");
    if (!args_bind(e, "round", a, names, 2, 0, p) || !arg_int(e, p[0], 0, "round", &n) ||
        (p[1].type != V_MISSING && !arg_str(e, p[1], "round", &method)))
        return false;
    bool common = str_is(method, "common"), ceiling = str_is(method, "ceil");
    if (!common && !ceiling && !str_is(method, "floor"))
        return eval_fail(e, "method must be common, ceil or floor");
    if (v.type == V_UNDEF && !common)
        return undef_fail(e, v);
    if (!is_number(v))
        return eval_fail(e, "type %s doesn't define __round__ method", val_type_name(v));
    if (common && is_integer(v)) {
        int64_t i = int_of(v), unit = 1;
        for (int64_t k = n; k < 0 && unit < 1000000000000000000; k++)
            unit *= 10;
        if (n < -18)
            return *out = val_int(0), true;
        if (n < 0) {
            int64_t rest = ((i % unit) + unit) % unit, down = i - rest;
            bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2);
            if (unit > INT64_MAX / 4 || (up && __builtin_add_overflow(down, unit, &down)))
                return eval_fail(e, "integer result beyond 64 bits");
            i = down;
        }
        *out = val_int(i);
        return true;
    }
    if (common) {
        *out = val_float(round_decimals(v.f, n));
        return true;
    }
    double scale = pow(10, (double)n), x = float_of(v) * scale;
    if (!isfinite(x))
        return eval_fail(e, "cannot convert float %s to integer", isnan(x) ? "NaN" : "infinity");
    x = ceiling ? ceil(x) : floor(x);
    *out = val_float(x / scale + 0.0); /* Python divides an integer: there is no -0 */
    return true;
}
