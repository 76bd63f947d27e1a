/* Operators on values, with Python's rules for types, overflow (an error here: integers have 64 bits) and rounding. */
#include <math.h>

#include "jinja/eval.h"

static const char *const op_text[] = {[OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/",
                                      [OP_FLOORDIV] = "//", [OP_MOD] = "%", [OP_POW] = "** or pow()"};

static bool overflow(struct eval *e) { return eval_fail(e, "integer result beyond 64 bits"); }

static bool bad_operands(struct eval *e, enum bin_op op, struct val a, struct val b)
{
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        return undef_fail(e, a.type == V_UNDEF ? a : b);
    if (op == OP_ADD && a.type == V_STR)
        return eval_fail(e, "can only concatenate str (not \"%s\") to str", val_type_name(b));
    if (op == OP_ADD && is_seq(a))
        return eval_fail(e, "can only concatenate %s (not \"%s\") to %s", val_type_name(a), val_type_name(b), val_type_name(a));
    if (op == OP_MUL && (a.type == V_STR || is_seq(a)))
        return eval_fail(e, "can't multiply sequence by non-int of type '%s'", val_type_name(b));
    return eval_fail(e, "unsupported operand type(s) for %s: '%s' and '%s'", op_text[op], val_type_name(a), val_type_name(b));
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool int_pow(struct eval *e, int64_t base, int64_t exponent, struct val *out)
{
    if (exponent < 0) {
        if (!base)
            return eval_fail(e, "0.0 cannot be raised to a negative power");
        *out = val_float(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    while (exponent) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return overflow(e);
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return overflow(e);
    }
    *out = val_int(result);
    return true;
}

static bool int_op(struct eval *e, enum bin_op op, int64_t a, int64_t b, struct val *out)
{
    int64_t r = 0;
    bool over = false;
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return eval_fail(e, op == OP_DIV ? "division by zero" : "integer %s by zero",
                         op == OP_MOD ? "modulo" : "division or modulo");
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_DIV:
        *out = val_float((double)a / (double)b); /* exact for |a|, |b| < 2^53 */
        return true;
    case OP_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        r = over ? 0 : floor_div(a, b);
        break;
    case OP_MOD:
        r = b == -1 ? 0 : a % b;
        r += r && (r < 0) != (b < 0) ? b : 0;
        break;
    case OP_POW:
        return int_pow(e, a, b, out);
    }
    if (over)
        return overflow(e);
    *out = val_int(r);
    return true;
}

static bool float_op(struct eval *e, enum bin_op op, double a, double b, struct val *out)
{
    if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
        return eval_fail(e, op == OP_DIV ? "float division by zero" : op == OP_MOD ? "float modulo" : "float floor division by zero");
    double r = 0, mod;
    switch (op) {
    case OP_ADD: r = a + b; break;
    case OP_SUB: r = a - b; break;
    case OP_MUL: r = a * b; break;
    case OP_DIV: r = a / b; break;
    case OP_MOD:
    case OP_FLOORDIV: /* as CPython's float_divmod */
        mod = fmod(a, b);
        r = (a - mod) / b;
        if (mod != 0) {
            if ((b < 0) != (mod < 0)) {
                mod += b;
                r -= 1;
            }
        } else {
            mod = copysign(0, b);
        }
        if (r != 0) {
            double whole = floor(r);
            r = r - whole > 0.5 ? whole + 1 : whole;
        } else {
            r = copysign(0, a / b);
        }
        r = op == OP_MOD ? mod : r;
        break;
    case OP_POW:
        if (a == 0 && b < 0)
            return eval_fail(e, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return eval_fail(e, "a negative number to a fractional power is complex, which is not supported");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b))
            return eval_fail(e, "(34, 'Numerical result out of range')");
        break;
    }
    *out = val_float(r);
    return true;
}

static bool escape_str(struct eval *e, struct val v, struct val *out)
{
    struct args none = {0};
    return call_filter(e, filter_number(STR("escape")), v, &none, out);
}

static bool add_strings(struct eval *e, struct val a, struct val b, struct val *out)
{
    bool markup = a.markup || b.markup;
    if (markup && (!escape_str(e, a, &a) || !escape_str(e, b, &b)))
        return false;
    struct sb text = {.e = e};
    sb_add(&text, a.s, a.n);
    sb_add(&text, b.s, b.n);
    if (!sb_done(&text, out))
        return false;
    out->markup = markup;
    return true;
}

static bool add_lists(struct eval *e, struct val a, struct val b, struct val *out)
{
    size_t n = a.list->n + b.list->n;
    struct vlist *l = eval_alloc(e, sizeof *l);
    if (!l || !(l->items = eval_array(e, n, sizeof *l->items)))
        return false;
    if (a.list->n)
        memcpy(l->items, a.list->items, a.list->n * sizeof *l->items);
    if (b.list->n)
        memcpy(l->items + a.list->n, b.list->items, b.list->n * sizeof *l->items);
    l->n = n;
    l->group = false;
    *out = (struct val){.type = a.type, .list = l};
    return eval_step(e, n / 16);
}

static bool repeat(struct eval *e, struct val v, int64_t count, struct val *out)
{
    if (v.type == V_STR) {
        struct sb b = {.e = e};
        if (count > 0 && !eval_step(e, (uint64_t)count / 16))
            return false;
        sb_fill(&b, as_str(v), count);
        bool ok = sb_done(&b, out);
        out->markup = ok && v.markup;
        return ok;
    }
    struct list_builder l = {.e = e};
    for (; v.list->n && count > 0; count--)
        for (size_t i = 0; i < v.list->n; i++)
            if (!eval_step(e, 1) || !list_add(&l, v.list->items[i]))
                return false;
    return list_done(&l, v.type, out);
}

bool op_binary(struct eval *e, enum bin_op op, struct val a, struct val b, struct val *out)
{
    if (is_integer(a) && is_integer(b))
        return int_op(e, op, int_of(a), int_of(b), out);
    if (is_number(a) && is_number(b))
        return float_op(e, op, float_of(a), float_of(b), out);
    if (op == OP_ADD && a.type == V_STR && b.type == V_STR)
        return add_strings(e, a, b, out);
    if (op == OP_ADD && is_seq(a) && a.type == b.type)
        return add_lists(e, a, b, out);
    if (op == OP_MUL && (a.type == V_STR || is_seq(a)) && is_integer(b))
        return repeat(e, a, int_of(b), out);
    if (op == OP_MUL && (b.type == V_STR || is_seq(b)) && is_integer(a))
        return repeat(e, b, int_of(a), out);
    if (op == OP_MOD && a.type == V_STR)
        return percent_format(e, as_str(a), b, out);
    return bad_operands(e, op, a, b);
}

bool op_unary(struct eval *e, bool negate, struct val a, struct val *out)
{
    if (a.type == V_UNDEF)
        return undef_fail(e, a);
    if (!is_number(a))
        return eval_fail(e, "bad operand type for unary %s: '%s'", negate ? "-" : "+", val_type_name(a));
    if (a.type == V_FLOAT) {
        *out = val_float(negate ? -a.f : a.f);
        return true;
    }
    int64_t i = int_of(a);
    if (negate && i == INT64_MIN)
        return overflow(e);
    *out = val_int(negate ? -i : i);
    return true;
}
