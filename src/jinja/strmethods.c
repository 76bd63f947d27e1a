/* Methods of strings; see eval.h and strutil.h. Everything counts in code points, as Python does. */
#include "base/utf8.h"
#include "jinja/methods.h"
#include "jinja/strutil.h"
#include "jinja/text.h"

static uint32_t next_cp(struct str s, size_t *i)
{
    uint32_t cp;
    int k = utf8_decode(s.s + *i, s.n - *i, &cp);
    *i += k ? (size_t)k : 1;
    return cp;
}

static void add_mapped(struct sb *b, enum text_case how, struct str s, size_t at, uint32_t cp)
{
    uint32_t out[3];
    int n = text_map(how, s, at, cp, out);
    for (int i = 0; i < n; i++)
        sb_cp(b, out[i]);
}

static bool map_all(struct eval *e, enum text_case how, struct str s, struct val *out)
{
    struct sb b = {.e = e};
    for (size_t i = 0; i < s.n && !b.failed;) {
        size_t at = i;
        uint32_t cp = next_cp(s, &i);
        add_mapped(&b, how, s, at, cp);
    }
    return sb_done(&b, out);
}

bool str_lower(struct eval *e, struct str s, struct val *out) { return map_all(e, CASE_LOWER, s, out); }
bool str_upper(struct eval *e, struct str s, struct val *out) { return map_all(e, CASE_UPPER, s, out); }

bool str_title(struct eval *e, struct str s, struct val *out)
{
    struct sb b = {.e = e};
    bool inside = false; /* after a cased letter */
    for (size_t i = 0; i < s.n && !b.failed;) {
        size_t at = i;
        uint32_t cp = next_cp(s, &i);
        add_mapped(&b, inside ? CASE_LOWER : CASE_TITLE, s, at, cp);
        inside = text_is_upper(cp) || text_is_lower(cp) || text_is_title(cp);
    }
    return sb_done(&b, out);
}

bool str_capitalize(struct eval *e, struct str s, struct val *out)
{
    struct sb b = {.e = e};
    for (size_t i = 0; i < s.n && !b.failed;) {
        size_t at = i;
        uint32_t cp = next_cp(s, &i);
        add_mapped(&b, at ? CASE_LOWER : CASE_TITLE, s, at, cp);
    }
    return sb_done(&b, out);
}

static bool str_swapcase(struct eval *e, struct str s, struct val *out)
{
    struct sb b = {.e = e};
    for (size_t i = 0; i < s.n && !b.failed;) {
        size_t at = i;
        uint32_t cp = next_cp(s, &i);
        if (text_is_upper(cp))
            add_mapped(&b, CASE_LOWER, s, at, cp);
        else if (text_is_lower(cp))
            add_mapped(&b, CASE_UPPER, s, at, cp);
        else
            sb_cp(&b, cp);
    }
    return sb_done(&b, out);
}

static bool str_is_cased(struct str s, bool upper)
{
    bool any = false;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp = next_cp(s, &i);
        if (text_is_title(cp) || (upper ? text_is_lower(cp) : text_is_upper(cp)))
            return false;
        any = any || (upper ? text_is_upper(cp) : text_is_lower(cp));
    }
    return any;
}

bool str_is_lower(struct str s) { return str_is_cased(s, false); }
bool str_is_upper(struct str s) { return str_is_cased(s, true); }

static bool str_is_title(struct str s)
{
    bool any = false, inside = false;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp = next_cp(s, &i);
        bool start = text_is_upper(cp) || text_is_title(cp), lower = text_is_lower(cp);
        if (start ? inside : lower && !inside)
            return false;
        inside = start || lower;
        any = any || inside;
    }
    return any;
}

bool str_replace(struct eval *e, struct str s, struct str old, struct str new, int64_t count, struct val *out)
{
    struct sb b = {.e = e};
    size_t at = 0;
    for (; count != 0; count--) {
        size_t hit;
        if (!eval_step(e, 1))
            return false;
        if (old.n) {
            hit = text_find(s, old, at);
            if (hit == SIZE_MAX)
                break;
            sb_add(&b, s.s + at, hit - at);
            sb_str(&b, new);
            at = hit + old.n;
            continue;
        }
        sb_str(&b, new); /* an empty pattern matches before every character and at the end */
        if (at >= s.n)
            break;
        hit = at;
        next_cp(s, &at);
        sb_add(&b, s.s + hit, at - hit);
    }
    if (at < s.n)
        sb_add(&b, s.s + at, s.n - at);
    return sb_done(&b, out);
}

bool str_pad(struct eval *e, struct str s, int64_t width, struct str fill, int where, struct val *out)
{
    int64_t missing = width - (int64_t)text_length(s);
    if (text_length(fill) != 1)
        return eval_fail(e, "The fill character must be exactly one character long");
    if (missing <= 0) {
        *out = val_str(s);
        return true;
    }
    if (!eval_step(e, (uint64_t)missing / 16))
        return false;
    int64_t left = where < 0 ? 0 : where > 0 ? missing : missing / 2 + (missing & width & 1); /* as CPython centres */
    struct sb b = {.e = e};
    sb_fill(&b, fill, left);
    sb_str(&b, s);
    sb_fill(&b, fill, missing - left);
    return sb_done(&b, out);
}

bool str_splitlines(struct eval *e, struct str s, bool keep, struct val *out)
{
    struct list_builder l = {.e = e};
    for (size_t start = 0; start < s.n;) {
        size_t end = start, i = start;
        bool found = false;
        while (i < s.n && !found) {
            end = i;
            uint32_t cp = next_cp(s, &i);
            found = text_is_line_break(cp);
            if (cp == '\r' && i < s.n && s.s[i] == '\n')
                i++;
        }
        end = found ? end : s.n;
        if (!eval_step(e, 1) || !list_add(&l, val_str((struct str){s.s + start, (keep ? i : end) - start})))
            return false;
        start = i;
    }
    return list_done(&l, V_LIST, out);
}

bool str_join(struct eval *e, struct str sep, const struct vlist *items, bool convert, struct val *out)
{
    struct sb b = {.e = e};
    for (size_t i = 0; i < items->n; i++) {
        if (!convert && items->items[i].type != V_STR)
            return eval_fail(e, "sequence item %zu: expected str instance, %s found", i, val_type_name(items->items[i]));
        if (i)
            sb_str(&b, sep);
        if (!eval_step(e, 1) || !val_write(e, items->items[i], &b))
            return false;
    }
    return sb_done(&b, out);
}

/* ---- split ---- */

static bool add_part(struct list_builder *l, const char *from, const char *to)
{
    return eval_step(l->e, 1) && list_add(l, val_str((struct str){from, (size_t)(to - from)}));
}

static bool split_space(struct list_builder *l, struct str s, int64_t max)
{
    s = text_strip(s, NULL, true, false);
    while (s.n) {
        size_t end = 0, next = 0;
        if (max-- == 0)
            return add_part(l, s.s, s.s + s.n); /* the rest keeps the whitespace at its end */
        while (next < s.n) {
            end = next;
            if (text_is_space(next_cp(s, &next)))
                break;
            end = next;
        }
        if (!add_part(l, s.s, s.s + end))
            return false;
        s = text_strip((struct str){s.s + end, s.n - end}, NULL, true, false);
    }
    return true;
}

static bool split_at(struct list_builder *l, struct str s, struct str sep, int64_t max)
{
    size_t at = 0;
    for (; max != 0; max--) {
        size_t hit = text_find(s, sep, at);
        if (hit == SIZE_MAX)
            break;
        if (!add_part(l, s.s + at, s.s + hit))
            return false;
        at = hit + sep.n;
    }
    return add_part(l, s.s + at, s.s + s.n);
}

/* Parts are collected from the right and turned round by the caller. */
static bool rsplit(struct list_builder *l, struct str s, const struct str *sep, int64_t max)
{
    if (!sep)
        s = text_strip(s, NULL, false, true);
    while (sep || s.n) {
        size_t hit = SIZE_MAX, behind = 0;
        if (max != 0 && sep) {
            hit = text_rfind(s, *sep);
            behind = hit + sep->n;
        } else if (max != 0) {
            for (size_t i = 0, at = 0; i < s.n; at = i)
                if (text_is_space(next_cp(s, &i))) {
                    hit = at;
                    behind = i;
                }
        }
        if (hit == SIZE_MAX) {
            if (!sep && max != 0)
                s = text_strip(s, NULL, true, false);
            return (!sep && !s.n) || add_part(l, s.s, s.s + s.n);
        }
        if (!eval_search(l->e, s.n, sep ? sep->n : 0) || !add_part(l, s.s + behind, s.s + s.n))
            return false;
        s.n = hit;
        if (!sep)
            s = text_strip(s, NULL, false, true);
        max--;
    }
    return true;
}

static bool split_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    static const char *const names[] = {"sep", "maxsplit"};
    struct val v[2];
    int64_t max;
    struct str s = as_str(m->self), sep = {0};
    struct list_builder l = {.e = e};
    if (!args_bind(e, method_name(m->id), a, names, 2, 0, v) || !arg_int(e, v[1], -1, "maxsplit", &max))
        return false;
    bool space = v[0].type == V_MISSING || v[0].type == V_NONE;
    if (!space && !arg_str(e, v[0], "split", &sep))
        return false;
    if (!space && !sep.n)
        return eval_fail(e, "empty separator");
    if (m->id == M_STR_split) {
        if (!(space ? split_space(&l, s, max) : split_at(&l, s, sep, max)))
            return false;
    } else {
        if (!rsplit(&l, s, space ? NULL : &sep, max))
            return false;
        for (size_t i = 0; i < l.n / 2; i++) {
            struct val t = l.items[i];
            l.items[i] = l.items[l.n - 1 - i];
            l.items[l.n - 1 - i] = t;
        }
    }
    return list_done(&l, V_LIST, out);
}

static bool partition_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self), sep;
    bool right = m->id == M_STR_rpartition;
    if (a->npos != 1 || a->nkw)
        return eval_fail(e, "str.%s() takes exactly one argument (%zu given)", method_name(m->id), a->npos + a->nkw);
    if (!arg_str(e, a->pos[0], method_name(m->id), &sep))
        return false;
    if (!sep.n)
        return eval_fail(e, "empty separator");
    if (!eval_search(e, s.n, right ? sep.n : 0))
        return false;
    size_t hit = right ? text_rfind(s, sep) : text_find(s, sep, 0);
    struct val part[3] = {val_str(s), val_str(STR("")), val_str(STR(""))};
    if (hit != SIZE_MAX) {
        part[0] = val_str((struct str){s.s, hit});
        part[1] = val_str(sep);
        part[2] = val_str((struct str){s.s + hit + sep.n, s.n - hit - sep.n});
    } else if (right) {
        part[2] = part[0];
        part[0] = val_str(STR(""));
    }
    return make_tuple(e, part, 3, out);
}

/* ---- searching ---- */

/* Optional start and end (code points, may be negative or None) of args from position `first`: the part of *s they select,
   as bytes, and the code points before it. False also when they select nothing at all (start beyond the end). */
static bool window(struct eval *e, const struct args *a, size_t first, struct str *s, size_t *before, bool *empty)
{
    if (!eval_scan(e, s->n))
        return false;
    int64_t n = (int64_t)text_length(*s), from = 0, to = n;
    if (a->npos > first && a->pos[first].type != V_NONE && !arg_int(e, a->pos[first], 0, "start", &from))
        return false;
    if (a->npos > first + 1 && a->pos[first + 1].type != V_NONE && !arg_int(e, a->pos[first + 1], 0, "end", &to))
        return false;
    to = to > n ? n : to < 0 ? (to + n < 0 ? 0 : to + n) : to;
    from = from < 0 ? (from < -n ? 0 : from + n) : from;
    *empty = from > to;
    if (*empty)
        return true;
    size_t begin = text_offset(*s, (size_t)from), end = text_offset(*s, (size_t)to);
    *before = (size_t)from;
    *s = (struct str){s->s + begin, end - begin};
    return true;
}

static bool find_method_call(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self), what;
    size_t before = 0, hit = SIZE_MAX;
    bool empty;
    if (a->npos < 1 || a->npos > 3 || a->nkw)
        return eval_fail(e, "%s() takes from 1 to 3 arguments (%zu given)", method_name(m->id), a->npos + a->nkw);
    if (!arg_str(e, a->pos[0], method_name(m->id), &what) || !window(e, a, 1, &s, &before, &empty))
        return false;
    if (m->id == M_STR_count) {
        int64_t n = 0;
        if (!empty && !what.n)
            n = (int64_t)text_length(s) + 1;
        else if (!empty)
            for (size_t at = 0; (hit = text_find(s, what, at)) != SIZE_MAX; at = hit + what.n)
                n++;
        *out = val_int(n);
        return eval_step(e, (uint64_t)n);
    }
    bool right = m->id == M_STR_rfind || m->id == M_STR_rindex;
    if (right && !eval_search(e, s.n, what.n))
        return false;
    if (!empty)
        hit = right ? text_rfind(s, what) : text_find(s, what, 0);
    if (hit == SIZE_MAX && (m->id == M_STR_index || m->id == M_STR_rindex))
        return eval_fail(e, "substring not found");
    *out = val_int(hit == SIZE_MAX ? -1 : (int64_t)(before + text_length((struct str){s.s, hit})));
    return true;
}

static bool starts(struct str s, struct str what, bool at_end)
{
    return what.n <= s.n && !memcmp(at_end ? s.s + s.n - what.n : s.s, what.s, what.n);
}

static bool starts_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self);
    size_t before;
    bool empty, end = m->id == M_STR_endswith, hit = false;
    if (a->npos < 1 || a->npos > 3 || a->nkw)
        return eval_fail(e, "%s() takes from 1 to 3 arguments (%zu given)", method_name(m->id), a->npos + a->nkw);
    if (!window(e, a, 1, &s, &before, &empty))
        return false;
    struct vlist one = {.items = a->pos, .n = 1}, *list = a->pos[0].type == V_TUPLE ? a->pos[0].list : &one;
    for (size_t i = 0; i < list->n && !hit; i++) {
        if (list->items[i].type != V_STR)
            return list == &one ? eval_fail(e, "%s first arg must be str or a tuple of str, not %s", method_name(m->id),
                                            val_type_name(list->items[i]))
                                : eval_fail(e, "tuple for %s must only contain str, not %s", method_name(m->id),
                                            val_type_name(list->items[i]));
        hit = !empty && starts(s, as_str(list->items[i]), end);
    }
    *out = val_bool(hit);
    return true;
}

/* ---- classes ---- */

static bool all_of(struct str s, bool (*is)(uint32_t))
{
    for (size_t i = 0; i < s.n;)
        if (!is(next_cp(s, &i)))
            return false;
    return s.n;
}

static bool is_alnum(uint32_t cp) { return text_is_alpha(cp) || text_is_numeric(cp); }
static bool is_ascii(uint32_t cp) { return cp < 0x80; }

static bool class_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self);
    if (a->npos || a->nkw)
        return eval_fail(e, "str.%s() takes no arguments (%zu given)", method_name(m->id), a->npos + a->nkw);
    switch (m->id) {
    case M_STR_isalnum: *out = val_bool(all_of(s, is_alnum)); break;
    case M_STR_isalpha: *out = val_bool(all_of(s, text_is_alpha)); break;
    case M_STR_isascii: *out = val_bool(!s.n || all_of(s, is_ascii)); break;
    case M_STR_isdecimal: *out = val_bool(all_of(s, text_is_decimal)); break;
    case M_STR_isdigit: *out = val_bool(all_of(s, text_is_digit)); break;
    case M_STR_isprintable: *out = val_bool(!s.n || all_of(s, text_is_printable)); break;
    case M_STR_isspace: *out = val_bool(all_of(s, text_is_space)); break;
    case M_STR_islower: *out = val_bool(str_is_lower(s)); break;
    case M_STR_isupper: *out = val_bool(str_is_upper(s)); break;
    case M_STR_istitle: *out = val_bool(str_is_title(s)); break;
    case M_STR_lower: return str_lower(e, s, out);
    case M_STR_upper: return str_upper(e, s, out);
    case M_STR_title: return str_title(e, s, out);
    case M_STR_capitalize: return str_capitalize(e, s, out);
    default: return str_swapcase(e, s, out);
    }
    return true;
}

/* ---- the rest ---- */

static bool strip_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str chars;
    bool given = a->npos == 1 && a->pos[0].type != V_NONE;
    if (a->npos > 1 || a->nkw)
        return eval_fail(e, "%s expected at most 1 argument, got %zu", method_name(m->id), a->npos + a->nkw);
    if (given && a->pos[0].type != V_STR)
        return eval_fail(e, "%s arg must be None or str", method_name(m->id));
    if (given)
        chars = as_str(a->pos[0]);
    if (!eval_search(e, m->self.n, given ? chars.n : 0))
        return false;
    *out = val_str(text_strip(as_str(m->self), given ? &chars : NULL, m->id != M_STR_rstrip, m->id != M_STR_lstrip));
    return true;
}

static bool replace_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str old, new;
    int64_t count = -1;
    if (a->npos < 2 || a->npos > 3 || a->nkw)
        return eval_fail(e, "replace expected from 2 to 3 arguments, got %zu", a->npos + a->nkw);
    if (!arg_str(e, a->pos[0], "replace() argument 1", &old) || !arg_str(e, a->pos[1], "replace() argument 2", &new) ||
        (a->npos > 2 && !arg_int(e, a->pos[2], -1, "replace", &count)))
        return false;
    return str_replace(e, as_str(m->self), old, new, count, out);
}

static bool affix_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self), affix;
    bool suffix = m->id == M_STR_removesuffix;
    if (a->npos != 1 || a->nkw)
        return eval_fail(e, "str.%s() takes exactly one argument (%zu given)", method_name(m->id), a->npos + a->nkw);
    if (!arg_str(e, a->pos[0], method_name(m->id), &affix))
        return false;
    if (starts(s, affix, suffix))
        s = (struct str){suffix ? s.s : s.s + affix.n, s.n - affix.n};
    *out = val_str(s);
    return true;
}

static bool pad_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct str s = as_str(m->self), fill = STR(" ");
    int64_t width;
    if (a->npos < 1 || a->npos > 2 || a->nkw)
        return eval_fail(e, "%s expected from 1 to 2 arguments, got %zu", method_name(m->id), a->npos + a->nkw);
    if (!arg_int(e, a->pos[0], 0, method_name(m->id), &width) ||
        (a->npos > 1 && !arg_str(e, a->pos[1], "The fill character", &fill)))
        return false;
    if (m->id == M_STR_zfill) {
        if (a->npos > 1)
            return eval_fail(e, "str.zfill() takes exactly one argument (2 given)");
        bool sign = s.n && (s.s[0] == '+' || s.s[0] == '-');
        int64_t missing = width - (int64_t)text_length(s);
        struct sb b = {.e = e};
        sb_add(&b, s.s, sign);
        if (missing > 0 && !eval_step(e, (uint64_t)missing / 16))
            return false;
        sb_fill(&b, STR("0"), missing);
        sb_add(&b, s.s + sign, s.n - sign);
        return sb_done(&b, out);
    }
    return str_pad(e, s, width, fill, m->id == M_STR_ljust ? -1 : m->id == M_STR_rjust, out);
}

static bool join_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    struct vlist items;
    if (a->npos != 1 || a->nkw)
        return eval_fail(e, "str.join() takes exactly one argument (%zu given)", a->npos + a->nkw);
    if (!iter_can(a->pos[0]))
        return eval_fail(e, "can only join an iterable");
    return iter_list(e, a->pos[0], &items) && str_join(e, as_str(m->self), &items, false, out);
}

static bool expandtabs_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    static const char *const names[] = {"tabsize"};
    struct val v;
    int64_t size, column = 0;
    struct str s = as_str(m->self);
    struct sb b = {.e = e};
    if (!args_bind(e, "expandtabs", a, names, 1, 0, &v) || !arg_int(e, v, 8, "expandtabs", &size))
        return false;
    for (size_t i = 0; i < s.n && !b.failed;) {
        uint32_t cp = next_cp(s, &i);
        if (cp == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            if (!eval_step(e, (uint64_t)n / 16))
                return false;
            sb_fill(&b, STR(" "), n);
            column += n;
            continue;
        }
        sb_cp(&b, cp);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    return sb_done(&b, out);
}

static bool call_one(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    static const char *const keep[] = {"keepends"};
    struct val v;
    switch (m->id) {
    case M_STR_split: case M_STR_rsplit:
        return split_method(e, m, a, out);
    case M_STR_partition: case M_STR_rpartition:
        return partition_method(e, m, a, out);
    case M_STR_splitlines:
        return args_bind(e, "splitlines", a, keep, 1, 0, &v) && str_splitlines(e, as_str(m->self), val_truth(v), out);
    case M_STR_find: case M_STR_rfind: case M_STR_index: case M_STR_rindex: case M_STR_count:
        return find_method_call(e, m, a, out);
    case M_STR_startswith: case M_STR_endswith:
        return starts_method(e, m, a, out);
    case M_STR_isalnum: case M_STR_isalpha: case M_STR_isascii: case M_STR_isdecimal: case M_STR_isdigit:
    case M_STR_isprintable: case M_STR_isspace: case M_STR_islower: case M_STR_isupper: case M_STR_istitle:
    case M_STR_lower: case M_STR_upper: case M_STR_title: case M_STR_capitalize: case M_STR_swapcase:
        return class_method(e, m, a, out);
    case M_STR_strip: case M_STR_lstrip: case M_STR_rstrip:
        return strip_method(e, m, a, out);
    case M_STR_replace:
        return replace_method(e, m, a, out);
    case M_STR_removeprefix: case M_STR_removesuffix:
        return affix_method(e, m, a, out);
    case M_STR_center: case M_STR_ljust: case M_STR_rjust: case M_STR_zfill:
        return pad_method(e, m, a, out);
    case M_STR_join:
        return join_method(e, m, a, out);
    case M_STR_expandtabs:
        return expandtabs_method(e, m, a, out);
    case M_STR_format:
        return str_format(e, as_str(m->self), a, out);
    default:
        return eval_fail(e, "the method str.%s is not supported", method_name(m->id));
    }
}

bool call_str_method(struct eval *e, const struct method *m, const struct args *a, struct val *out)
{
    if (!call_one(e, m, a, out))
        return false;
    if (m->self.markup && out->type == V_STR)
        out->markup = true;
    return true;
}
