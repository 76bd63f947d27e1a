/* Equality, order, hashing, membership and sorting as Python defines them; see eval.h. */
#include <math.h>
#include <xxhash.h>

#include "jinja/eval.h"
#include "jinja/text.h"

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}

bool val_hash(struct eval *e, struct val v, uint64_t *hash)
{
    switch (v.type) {
    case V_NONE:
        *hash = 1;
        return true;
    case V_BOOL:
    case V_INT:
        *hash = mix((uint64_t)int_of(v)); /* equal numbers of different types have equal hashes */
        return true;
    case V_FLOAT:
        *hash = v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == floor(v.f) ? mix((uint64_t)(int64_t)v.f)
                                                                     : XXH3_64bits(&v.f, sizeof v.f);
        return true;
    case V_STR:
        *hash = XXH3_64bits(v.s, v.n);
        return true;
    case V_TUPLE: {
        uint64_t h = 7, item;
        if (!data_enter(e))
            return false;
        for (size_t i = 0; i < v.list->n; i++) {
            if (!val_hash(e, v.list->items[i], &item))
                return false;
            h = mix(h ^ item) + i;
        }
        e->data_depth--;
        *hash = h;
        return true;
    }
    case V_LIST:
    case V_DICT:
    case V_VIEW:
        return eval_fail(e, "unhashable type: '%s'", val_type_name(v));
    case V_UNDEF:
        *hash = 3;
        return true;
    default:
        *hash = mix((uint64_t)(uintptr_t)v.list ^ v.n);
        return true;
    }
}

bool val_same(struct val a, struct val b)
{
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case V_NONE: return true;
    case V_BOOL: return a.b == b.b;
    case V_INT: return a.i == b.i;
    case V_FLOAT: return a.f == b.f;
    case V_STR: return a.s == b.s && a.n == b.n;
    case V_GLOBAL: return a.n == b.n;
    default: return a.list == b.list;
    }
}

/* int against float without rounding the int. Order of a relative to b: -1, 0, 1; 2 = unordered. */
static int compare_int_float(int64_t i, double f)
{
    if (isnan(f))
        return 2;
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)f; /* towards zero */
    if (i != whole)
        return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(struct val a, struct val b)
{
    if (a.type != V_FLOAT && b.type != V_FLOAT) {
        int64_t x = int_of(a), y = int_of(b);
        return x < y ? -1 : x > y;
    }
    if (a.type == V_FLOAT && b.type == V_FLOAT)
        return isnan(a.f) || isnan(b.f) ? 2 : a.f < b.f ? -1 : a.f > b.f;
    if (a.type == V_FLOAT) {
        int c = compare_int_float(int_of(b), a.f);
        return c == 2 ? 2 : -c;
    }
    return compare_int_float(int_of(a), b.f);
}

static int compare_strings(struct str a, struct str b)
{
    int c = memcmp(a.s, b.s, a.n < b.n ? a.n : b.n); /* UTF-8 sorts as code points do */
    return c ? c : a.n < b.n ? -1 : a.n > b.n;
}

static bool equal_dicts(struct eval *e, const struct dict *a, const struct dict *b, bool *equal)
{
    *equal = a->n == b->n;
    for (size_t i = 0; *equal && i < a->n; i++) {
        const struct val *other;
        if (!dict_find(e, b, a->entries[i].key, &other))
            return false;
        if (!other)
            *equal = false;
        else if (!val_equal(e, a->entries[i].value, *other, equal))
            return false;
    }
    return true;
}

bool val_equal(struct eval *e, struct val a, struct val b, bool *equal)
{
    *equal = false;
    if (is_number(a) && is_number(b)) {
        *equal = compare_numbers(a, b) == 0;
        return true;
    }
    if (a.type != b.type)
        return true;
    switch (a.type) {
    case V_STR:
        *equal = str_eq(as_str(a), as_str(b));
        return !*equal || !e || eval_scan(e, a.n);
    case V_UNDEF:
        *equal = true;
        return true;
    case V_LIST:
    case V_TUPLE:
        if (a.list->n != b.list->n)
            return true;
        if (!data_enter(e) || !eval_step(e, a.list->n))
            return false;
        *equal = true;
        for (size_t i = 0; *equal && i < a.list->n; i++)
            if (!val_equal(e, a.list->items[i], b.list->items[i], equal))
                return false;
        e->data_depth--;
        return true;
    case V_DICT:
        if (!data_enter(e) || !eval_step(e, a.dict->n) || !equal_dicts(e, a.dict, b.dict, equal))
            return false;
        e->data_depth--;
        return true;
    case V_RANGE:
        *equal = a.range->n == b.range->n &&
                 (!a.range->n || (a.range->start == b.range->start && (a.range->n == 1 || a.range->step == b.range->step)));
        return true;
    default:
        *equal = val_same(a, b);
        return true;
    }
}

static bool not_ordered(struct eval *e, struct val a, struct val b, const char *op)
{
    if (a.type == V_UNDEF || b.type == V_UNDEF)
        return undef_fail(e, a.type == V_UNDEF ? a : b);
    return eval_fail(e, "'%s' not supported between instances of '%s' and '%s'", op, val_type_name(a), val_type_name(b));
}

bool val_less(struct eval *e, struct val a, struct val b, const char *op, bool *less)
{
    /* op is the operator of the template; the others are derived from it: a > b is b < a, a <= b compares items with == first */
    bool swap = op[0] == '>', or_equal = op[1] == '=';
    if (is_number(a) && is_number(b)) {
        int c = compare_numbers(a, b);
        *less = c != 2 && ((swap ? c > 0 : c < 0) || (or_equal && c == 0));
        return true;
    }
    if (a.type == V_STR && b.type == V_STR) {
        int c = compare_strings(as_str(a), as_str(b));
        *less = (swap ? c > 0 : c < 0) || (or_equal && c == 0);
        return true;
    }
    if (!is_seq(a) || a.type != b.type)
        return not_ordered(e, a, b, op);
    if (!data_enter(e))
        return false;
    size_t n = a.list->n < b.list->n ? a.list->n : b.list->n;
    for (size_t i = 0; i < n; i++) {
        bool equal;
        if (!eval_step(e, 1) || !val_equal(e, a.list->items[i], b.list->items[i], &equal))
            return false;
        if (!equal) {
            e->data_depth--;
            return val_less(e, a.list->items[i], b.list->items[i], op, less);
        }
    }
    e->data_depth--;
    *less = (swap ? a.list->n > b.list->n : a.list->n < b.list->n) || (or_equal && a.list->n == b.list->n);
    return true;
}

bool val_contains(struct eval *e, struct val item, struct val seq, bool *found)
{
    *found = false;
    if (seq.type == V_STR) {
        if (item.type != V_STR)
            return eval_fail(e, "'in <string>' requires string as left operand, not %s", val_type_name(item));
        *found = text_find(as_str(seq), as_str(item), 0) != SIZE_MAX;
        return eval_scan(e, seq.n);
    }
    if (seq.type == V_DICT || (seq.type == V_VIEW && seq.view->kind == VIEW_KEYS)) {
        const struct val *value;
        if (!dict_find(e, seq.type == V_DICT ? seq.dict : seq.view->dict, item, &value))
            return false;
        *found = value;
        return true;
    }
    struct iter *it;
    if (!iter_can(seq))
        return eval_fail(e, "argument of type '%s' is not iterable", val_type_name(seq));
    if (!iter_open(e, seq, &it))
        return false;
    for (bool more = true; !*found;) {
        struct val v;
        if (!iter_next(e, it, &v, &more))
            return false;
        if (!more)
            break;
        if (val_same(v, item))
            *found = true;
        else if (!val_equal(e, v, item, found))
            return false;
    }
    return true;
}

/* Merge sort from a into a, with b as room. An item of the right half goes first only when it is strictly before. */
static bool merge_sort(struct eval *e, struct sort_item *a, struct sort_item *b, size_t n, bool reverse)
{
    if (n < 2)
        return true;
    size_t half = n / 2;
    if (!merge_sort(e, a, b, half, reverse) || !merge_sort(e, a + half, b, n - half, reverse))
        return false;
    memcpy(b, a, half * sizeof *a);
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n) {
        bool right;
        if (!eval_step(e, 1) || !(reverse ? val_less(e, b[i].key, a[j].key, "<", &right)
                                          : val_less(e, a[j].key, b[i].key, "<", &right)))
            return false;
        a[k++] = right ? a[j++] : b[i++];
    }
    memcpy(a + k, b + i, (half - i) * sizeof *a);
    return true;
}

bool val_sort(struct eval *e, struct sort_item *items, size_t n, bool reverse)
{
    struct sort_item *room = eval_array(e, n / 2 + 1, sizeof *room);
    return room && merge_sort(e, items, room, n, reverse);
}
