/* Filters on strings; see filters.h. Most convert what they get with str(), as jinja2 does. */
#include "base/utf8.h"
#include "jinja/filters.h"
#include "jinja/strutil.h"
#include "jinja/text.h"

static bool keep_markup(bool ok, struct val from, struct val *out)
{
    if (ok && from.type == V_STR && from.markup)
        out->markup = true;
    return ok;
}

FILTER(lower)
{
    struct val s;
    return args_bind(e, "lower", a, NULL, 0, 0, NULL) && val_string(e, v, &s) && keep_markup(str_lower(e, as_str(s), out), v, out);
}

FILTER(upper)
{
    struct val s;
    return args_bind(e, "upper", a, NULL, 0, 0, NULL) && val_string(e, v, &s) && keep_markup(str_upper(e, as_str(s), out), v, out);
}

FILTER(capitalize)
{
    struct val s;
    return args_bind(e, "capitalize", a, NULL, 0, 0, NULL) && val_string(e, v, &s) &&
           keep_markup(str_capitalize(e, as_str(s), out), v, out);
}

/* Words begin after whitespace and after - ( { [ < : not the rule of str.title. */
FILTER(title)
{
    struct val s;
    struct sb b = {.e = e};
    if (!args_bind(e, "title", a, NULL, 0, 0, NULL) || !val_string(e, v, &s))
        return false;
    struct str t = as_str(s);
    size_t word = 0, second = 0; /* where the word and its second character begin */
    for (size_t i = 0; i < t.n && !b.failed;) {
        uint32_t cp, out_cp[3];
        int k = utf8_decode(t.s + i, t.n - i, &cp);
        bool separator = text_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) && cp);
        /* the rest of a word is mapped by itself: the final sigma does not see the first letter */
        struct str rest = {t.s + second, t.n - second};
        int n = i == word ? text_map(CASE_UPPER, t, i, cp, out_cp) : text_map(CASE_LOWER, rest, i - second, cp, out_cp);
        for (int j = 0; j < n; j++)
            sb_cp(&b, separator ? cp : out_cp[j]);
        second = i == word ? i + (size_t)k : second;
        i += k ? (size_t)k : 1;
        word = separator ? i : word;
    }
    return keep_markup(sb_done(&b, out), v, out);
}

FILTER(trim)
{
    static const char *const names[] = {"chars"};
    struct val p, s;
    struct str chars;
    if (!args_bind(e, "trim", a, names, 1, 0, &p) || !val_string(e, v, &s))
        return false;
    bool given = p.type != V_MISSING && p.type != V_NONE;
    if ((given && !arg_str(e, p, "strip", &chars)) || !eval_search(e, s.n, given ? chars.n : 0))
        return false;
    *out = val_str(text_strip(as_str(s), given ? &chars : NULL, true, true));
    return keep_markup(true, v, out);
}

FILTER(replace)
{
    static const char *const names[] = {"old", "new", "count"};
    struct val p[3], s, old, new;
    int64_t count;
    if (!args_bind(e, "replace", a, names, 3, 2, p) || !val_string(e, v, &s) || !val_string(e, p[0], &old) ||
        !val_string(e, p[1], &new))
        return false;
    if (p[2].type == V_NONE)
        p[2] = VAL_MISSING;
    return arg_int(e, p[2], -1, "replace", &count) && str_replace(e, as_str(s), as_str(old), as_str(new), count, out);
}

FILTER(center)
{
    static const char *const names[] = {"width"};
    struct val p, s;
    int64_t width;
    return args_bind(e, "center", a, names, 1, 0, &p) && val_string(e, v, &s) && arg_int(e, p, 80, "center", &width) &&
           keep_markup(str_pad(e, as_str(s), width, STR(" "), 0, out), v, out);
}

FILTER(indent)
{
    static const char *const names[] = {"width", "first", "blank"};
    struct val p[3], lines, spaces = val_str(STR("    "));
    if (!args_bind(e, "indent", a, names, 3, 0, p))
        return false;
    if (p[0].type == V_UNDEF)
        return undef_fail(e, p[0]);
    if (p[0].type == V_STR) {
        spaces = p[0];
    } else if (p[0].type != V_MISSING) {
        int64_t width;
        struct sb b = {.e = e};
        if (!arg_int(e, p[0], 4, "indent", &width) || (width > 0 && !eval_step(e, (uint64_t)width / 16)))
            return false;
        sb_fill(&b, STR(" "), width);
        if (!sb_done(&b, &spaces))
            return false;
    }
    if (v.type == V_UNDEF)
        return undef_fail(e, v);
    if (v.type != V_STR)
        return eval_fail(e, "unsupported operand type(s) for +=: '%s' and 'str'", val_type_name(v));
    bool first = val_truth(p[1]), blank = val_truth(p[2]);
    struct sb text = {.e = e}, b = {.e = e};
    struct val with_newline;
    sb_add(&text, v.s, v.n); /* a newline at the end makes splitlines keep a last empty line */
    sb_putc(&text, '\n');
    if (!sb_done(&text, &with_newline) || !str_splitlines(e, as_str(with_newline), false, &lines))
        return false;
    if (first)
        sb_add(&b, spaces.s, spaces.n);
    for (size_t i = 0; i < lines.list->n; i++) {
        struct val line = lines.list->items[i];
        if (i)
            sb_putc(&b, '\n');
        if (i && (blank || line.n))
            sb_add(&b, spaces.s, spaces.n);
        sb_add(&b, line.s, line.n);
    }
    return keep_markup(sb_done(&b, out), v, out);
}

FILTER(truncate)
{
    static const char *const names[] = {"length", "killwords", "end", "leeway"};
    struct val p[4];
    int64_t length, leeway, n;
    struct str end = STR("...");
    if (!args_bind(e, "truncate", a, names, 4, 0, p))
        return false;
    if (p[0].type == V_UNDEF)
        return undef_fail(e, p[0]);
    if (p[0].type == V_FLOAT && val_len(e, v, &n) && (double)n <= p[0].f)
        return *out = v, true; /* Python compares the length, and slices only what is too long */
    if (!arg_int(e, p[0], 255, "truncate", &length) ||
        !arg_int(e, p[3].type == V_NONE ? VAL_MISSING : p[3], 5, "truncate", &leeway) ||
        (p[2].type != V_MISSING && !arg_str(e, p[2], "truncate", &end)))
        return false;
    int64_t end_length = (int64_t)text_length(end);
    if (length < end_length)
        return eval_fail(e, "expected length >= %lld, got %lld", (long long)end_length, (long long)length);
    if (leeway < 0)
        return eval_fail(e, "expected leeway >= 0, got %lld", (long long)leeway);
    if (!val_len(e, v, &n))
        return false;
    *out = v;
    if (n <= leeway || n - leeway <= length)
        return true;
    if (v.type != V_STR)
        return eval_fail(e, "truncate: a str is required, not '%s'", val_type_name(v));
    struct str s = {v.s, text_offset(as_str(v), (size_t)(length - end_length))};
    if (!val_truth(p[1])) {
        size_t space = text_rfind(s, STR(" "));
        s.n = space == SIZE_MAX ? s.n : space;
    }
    struct sb b = {.e = e};
    sb_str(&b, s);
    sb_str(&b, end);
    return sb_done(&b, out);
}

FILTER(wordcount)
{
    struct val s;
    int64_t words = 0;
    bool inside = false;
    if (!args_bind(e, "wordcount", a, NULL, 0, 0, NULL) || !val_string(e, v, &s))
        return false;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        int k = utf8_decode(s.s + i, s.n - i, &cp);
        bool word = text_is_word(cp);
        words += word && !inside;
        inside = word;
        i += k ? (size_t)k : 1;
    }
    *out = val_int(words);
    return true;
}

FILTER(format)
{
    struct val s, values;
    if (a->npos && a->nkw)
        return eval_fail(e, "can't handle positional and keyword arguments at the same time");
    if (!val_string(e, v, &s))
        return false;
    if (!a->nkw)
        return make_tuple(e, a->pos, a->npos, &values) && percent_format(e, as_str(s), values, out);
    struct dict *d = dict_new(e);
    if (!d)
        return false;
    for (size_t i = 0; i < a->nkw; i++)
        if (!dict_set(e, d, val_str(a->kw[i].name), a->kw[i].value))
            return false;
    return percent_format(e, as_str(s), (struct val){.type = V_DICT, .dict = d}, out);
}

FILTER(escape)
{
    struct val s;
    struct sb b = {.e = e};
    if (!args_bind(e, "escape", a, NULL, 0, 0, NULL) || !val_string(e, v, &s))
        return false;
    if (s.markup) {
        *out = s;
        return true;
    }
    for (size_t i = 0; i < s.n && !b.failed; i++) {
        static const char from[] = "&<>'\"";
        static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
        const char *hit = s.s[i] ? strchr(from, s.s[i]) : NULL;
        if (hit)
            sb_puts(&b, to[hit - from]);
        else
            sb_putc(&b, s.s[i]);
    }
    if (!sb_done(&b, out))
        return false;
    out->markup = true;
    return true;
}

FILTER(safe)
{
    if (!args_bind(e, "safe", a, NULL, 0, 0, NULL) || !val_string(e, v, out))
        return false;
    out->markup = true;
    return true;
}

/* Remove comments, then tags, then collapse whitespace. Entities other than the five that escape writes are not decoded. */
FILTER(striptags)
{
    struct val s;
    struct sb b = {.e = e};
    if (!args_bind(e, "striptags", a, NULL, 0, 0, NULL) || !val_string(e, v, &s))
        return false;
    struct str t = as_str(s);
    bool space = false;
    for (size_t i = 0; i < t.n && !b.failed;) {
        uint32_t cp;
        int k = utf8_decode(t.s + i, t.n - i, &cp);
        bool comment = t.n - i >= 4 && !memcmp(t.s + i, "<!--", 4);
        size_t end = cp != '<' ? SIZE_MAX : text_find(t, comment ? STR("-->") : STR(">"), i + 1);
        if (end != SIZE_MAX) {
            i = end + (comment ? 3 : 1);
            continue;
        }
        if (text_is_space(cp))
            space = true;
        else {
            if (space && b.n)
                sb_putc(&b, ' ');
            space = false;
            static const struct { const char *name; char c; } entities[] = {
                {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&#39;", '\''}, {"&#34;", '"'}, {"&quot;", '"'}};
            size_t j = 0, n = sizeof entities / sizeof entities[0];
            while (cp == '&' && j < n && !(t.n - i >= strlen(entities[j].name) &&
                                           !memcmp(t.s + i, entities[j].name, strlen(entities[j].name))))
                j++;
            if (cp == '&' && j < n) {
                sb_putc(&b, entities[j].c);
                k = (int)strlen(entities[j].name);
            } else {
                sb_cp(&b, cp);
            }
        }
        i += k ? (size_t)k : 1;
    }
    return sb_done(&b, out);
}

static void url_quote(struct str s, bool query, struct sb *b)
{
    for (size_t i = 0; i < s.n && !b->failed; i++) {
        uint8_t c = (uint8_t)s.s[i];
        bool plain = c < 0x80 && (text_is_alpha(c) || text_is_decimal(c) || (c && strchr("_.-~", c)) || (c == '/' && !query));
        if (plain)
            sb_putc(b, (char)c);
        else if (c == ' ' && query)
            sb_putc(b, '+');
        else
            sb_printf(b, "%%%02X", c);
    }
}

FILTER(urlencode)
{
    struct val s;
    struct vlist pairs;
    struct sb b = {.e = e};
    if (!args_bind(e, "urlencode", a, NULL, 0, 0, NULL))
        return false;
    if (v.type == V_STR || !iter_can(v)) {
        if (!val_string(e, v, &s))
            return false;
        url_quote(as_str(s), false, &b);
        return sb_done(&b, out);
    }
    struct args none = {0};
    if (v.type == V_DICT && !filter_items(e, v, &none, &v))
        return false;
    if (!iter_list(e, v, &pairs))
        return false;
    for (size_t i = 0; i < pairs.n; i++) {
        struct vlist pair;
        if (!iter_list(e, pairs.items[i], &pair))
            return false;
        if (pair.n != 2)
            return eval_fail(e, "urlencode: pairs of (key, value) are required");
        if (i)
            sb_putc(&b, '&');
        for (int j = 0; j < 2; j++) {
            if (!val_string(e, pair.items[j], &s))
                return false;
            url_quote(as_str(s), true, &b);
            if (!j)
                sb_putc(&b, '=');
        }
    }
    return sb_done(&b, out);
}
