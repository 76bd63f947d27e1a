/* str(), repr() and JSON of values; see eval.h. Formats: Python 3's float repr and str repr, json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "jinja/eval.h"
#include "jinja/text.h"

/* The shortest decimal that reads back as f, in Python's layout: exponent form below 1e-4 and from 1e16. */
void float_repr(double f, char out[40])
{
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[40];
    for (int digits = 0; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits, f);
        if (strtod(text, NULL) == f)
            break;
    }
    char *e = strchr(text, 'e');
    int exponent = atoi(e + 1);
    bool negative = text[0] == '-';
    char mantissa[24];
    int n = 0;
    for (const char *p = text + negative; p < e; p++)
        if (*p >= '0' && *p <= '9')
            mantissa[n++] = *p;
    char *o = out;
    if (negative)
        *o++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *o++ = mantissa[0];
        if (n > 1) {
            *o++ = '.';
            memcpy(o, mantissa + 1, (size_t)n - 1);
            o += n - 1;
        }
        snprintf(o, 14, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = -1; i > exponent; i--)
            *o++ = '0';
        memcpy(o, mantissa, (size_t)n);
        o += n;
    } else {
        for (int i = 0; i <= exponent || i < n; i++) {
            if (i == exponent + 1)
                *o++ = '.';
            *o++ = i < n ? mantissa[i] : '0';
        }
        if (n <= exponent + 1) {
            *o++ = '.';
            *o++ = '0';
        }
    }
    *o = '\0';
}

bool str_repr(struct str s, struct sb *b)
{
    char quote = memchr(s.s, '\'', s.n) && !memchr(s.s, '"', s.n) ? '"' : '\'';
    sb_putc(b, quote);
    for (size_t i = 0; i < s.n && !b->failed;) {
        uint32_t cp;
        int k = utf8_decode(s.s + i, s.n - i, &cp);
        k = k ? k : 1;
        if (cp == (uint32_t)quote || cp == '\\')
            sb_printf(b, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            sb_puts(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        else if (text_is_printable(cp))
            sb_add(b, s.s + i, (size_t)k);
        else
            sb_printf(b, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        i += (size_t)k;
    }
    sb_putc(b, quote);
    return !b->failed;
}

static bool repr_items(struct eval *e, const struct vlist *l, struct sb *b)
{
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            sb_puts(b, ", ");
        if (!eval_step(e, 1) || !val_repr(e, l->items[i], b))
            return false;
    }
    return true;
}

static bool repr_dict(struct eval *e, const struct dict *d, struct sb *b)
{
    sb_putc(b, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            sb_puts(b, ", ");
        if (!eval_step(e, 1) || !val_repr(e, d->entries[i].key, b))
            return false;
        sb_puts(b, ": ");
        if (!val_repr(e, d->entries[i].value, b))
            return false;
    }
    sb_putc(b, '}');
    return !b->failed;
}

static bool repr_view(struct eval *e, const struct view *v, struct sb *b)
{
    struct val whole = {.type = V_VIEW, .view = (struct view *)v};
    struct vlist items;
    sb_printf(b, "%s([", val_type_name(whole));
    if (!iter_list(e, whole, &items) || !repr_items(e, &items, b))
        return false;
    sb_puts(b, "])");
    return !b->failed;
}

static bool repr_container(struct eval *e, struct val v, struct sb *b)
{
    bool ok = true;
    if (!data_enter(e))
        return false;
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
        sb_putc(b, v.type == V_LIST ? '[' : '(');
        ok = repr_items(e, v.list, b);
        if (v.type == V_TUPLE && v.list->n == 1)
            sb_putc(b, ',');
        sb_putc(b, v.type == V_LIST ? ']' : ')');
        break;
    case V_DICT:
        ok = repr_dict(e, v.dict, b);
        break;
    case V_VIEW:
        ok = repr_view(e, v.view, b);
        break;
    default:
        sb_puts(b, "<Namespace ");
        ok = repr_dict(e, v.dict, b);
        sb_putc(b, '>');
        break;
    }
    e->data_depth--;
    return ok && !b->failed;
}

static bool repr_object(struct eval *e, struct val v, struct sb *b)
{
    switch (v.type) {
    case V_RANGE:
        sb_printf(b, "range(%lld, %lld", (long long)v.range->start, (long long)v.range->stop);
        if (v.range->step != 1)
            sb_printf(b, ", %lld", (long long)v.range->step);
        sb_putc(b, ')');
        break;
    case V_LOOP: {
        struct val length;
        bool found;
        if (!loop_attr(e, v.loop, STR("length"), &length, &found))
            return false;
        sb_printf(b, "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1, (long long)length.i);
        break;
    }
    case V_MACRO:
        sb_puts(b, "<Macro ");
        if (v.macro->node->kind != N_MACRO)
            sb_puts(b, "anonymous");
        else if (!str_repr(v.macro->node->name, b))
            return false;
        sb_putc(b, '>');
        break;
    default: /* Python prints an address here */
        sb_printf(b, "<%s object>", val_type_name(v));
        break;
    }
    return !b->failed;
}

bool val_repr(struct eval *e, struct val v, struct sb *b)
{
    char text[40];
    switch (v.type) {
    case V_UNDEF:
        sb_puts(b, "Undefined");
        break;
    case V_NONE:
        sb_puts(b, "None");
        break;
    case V_BOOL:
        sb_puts(b, v.b ? "True" : "False");
        break;
    case V_INT:
        sb_printf(b, "%lld", (long long)v.i);
        break;
    case V_FLOAT:
        float_repr(v.f, text);
        sb_puts(b, text);
        break;
    case V_STR:
        if (v.markup)
            sb_puts(b, "Markup(");
        if (!str_repr(as_str(v), b))
            return false;
        if (v.markup)
            sb_putc(b, ')');
        break;
    case V_LIST: case V_TUPLE: case V_DICT: case V_VIEW: case V_NS:
        return repr_container(e, v, b);
    default:
        return repr_object(e, v, b);
    }
    return !b->failed;
}

bool val_write(struct eval *e, struct val v, struct sb *b)
{
    if (v.type == V_STR)
        sb_add(b, v.s, v.n);
    else if (v.type != V_UNDEF)
        return val_repr(e, v, b);
    return !b->failed;
}

bool val_string(struct eval *e, struct val v, struct val *out)
{
    if (v.type == V_STR) {
        *out = v;
        return true;
    }
    struct sb b = {.e = e};
    return val_write(e, v, &b) && sb_done(&b, out);
}

/* ---- JSON ---- */

static void json_text(struct str s, bool ascii, struct sb *b)
{
    sb_putc(b, '"');
    for (size_t i = 0; i < s.n && !b->failed;) {
        uint8_t c = (uint8_t)s.s[i];
        size_t plain = i; /* a run that needs no escape */
        while (plain < s.n && (c = (uint8_t)s.s[plain]) >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7F))
            plain++;
        sb_add(b, s.s + i, plain - i);
        if ((i = plain) >= s.n)
            break;
        static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
        const char *known = memchr(from, c, sizeof from - 1);
        uint32_t cp = c;
        int k = 1;
        if (known)
            sb_printf(b, "\\%c", to[known - from]);
        else {
            k = utf8_decode(s.s + i, s.n - i, &cp);
            if (cp >= 0x10000)
                sb_printf(b, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
            else
                sb_printf(b, "\\u%04x", cp);
        }
        i += k ? (size_t)k : 1;
    }
    sb_putc(b, '"');
}

static void json_newline(const struct json_style *style, uint32_t level, struct sb *b)
{
    if (!style->multiline)
        return;
    sb_putc(b, '\n');
    sb_fill(b, style->indent, level);
}

static bool json_key(struct eval *e, struct val key, const struct json_style *style, struct sb *b)
{
    struct val text = key;
    if (key.type == V_BOOL)
        text = val_str(key.b ? STR("true") : STR("false"));
    else if (key.type == V_NONE)
        text = val_str(STR("null"));
    else if (key.type == V_INT || key.type == V_FLOAT) {
        struct sb number = {.e = e};
        if (!val_json(e, key, style, &number) || !sb_done(&number, &text))
            return false;
    } else if (key.type != V_STR)
        return eval_fail(e, "keys must be str, int, float, bool or None, not %s", val_type_name(key));
    json_text(as_str(text), style->ascii, b);
    return !b->failed;
}

static bool json_value(struct eval *e, struct val v, const struct json_style *style, uint32_t level, struct sb *b);

static bool json_dict(struct eval *e, const struct dict *d, const struct json_style *style, uint32_t level, struct sb *b)
{
    if (!d->n) {
        sb_puts(b, "{}");
        return !b->failed;
    }
    struct sort_item *order = NULL;
    if (style->sort_keys) {
        if (!(order = eval_array(e, d->n, sizeof *order)))
            return false;
        for (size_t i = 0; i < d->n; i++)
            order[i] = (struct sort_item){d->entries[i].key, d->entries[i].value};
        if (!val_sort(e, order, d->n, false))
            return false;
    }
    sb_putc(b, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            sb_str(b, style->item_sep);
        json_newline(style, level + 1, b);
        if (!eval_step(e, 1) || !json_key(e, order ? order[i].key : d->entries[i].key, style, b))
            return false;
        sb_str(b, style->key_sep);
        if (!json_value(e, order ? order[i].value : d->entries[i].value, style, level + 1, b))
            return false;
    }
    json_newline(style, level, b);
    sb_putc(b, '}');
    return !b->failed;
}

static bool json_list(struct eval *e, const struct vlist *l, const struct json_style *style, uint32_t level, struct sb *b)
{
    if (!l->n) {
        sb_puts(b, "[]");
        return !b->failed;
    }
    sb_putc(b, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            sb_str(b, style->item_sep);
        json_newline(style, level + 1, b);
        if (!eval_step(e, 1) || !json_value(e, l->items[i], style, level + 1, b))
            return false;
    }
    json_newline(style, level, b);
    sb_putc(b, ']');
    return !b->failed;
}

static bool json_value(struct eval *e, struct val v, const struct json_style *style, uint32_t level, struct sb *b)
{
    char text[40];
    switch (v.type) {
    case V_NONE:
        sb_puts(b, "null");
        return !b->failed;
    case V_BOOL:
        sb_puts(b, v.b ? "true" : "false");
        return !b->failed;
    case V_INT:
        sb_printf(b, "%lld", (long long)v.i);
        return !b->failed;
    case V_FLOAT:
        float_repr(v.f, text);
        sb_puts(b, isnan(v.f) ? "NaN" : isinf(v.f) ? v.f < 0 ? "-Infinity" : "Infinity" : text);
        return !b->failed;
    case V_STR:
        json_text(as_str(v), style->ascii, b);
        return !b->failed;
    case V_LIST:
    case V_TUPLE:
    case V_DICT: {
        if (!data_enter(e))
            return false;
        bool ok = v.type == V_DICT ? json_dict(e, v.dict, style, level, b) : json_list(e, v.list, style, level, b);
        e->data_depth--;
        return ok;
    }
    default:
        return eval_fail(e, "Object of type %s is not JSON serializable", val_type_name(v));
    }
}

bool val_json(struct eval *e, struct val v, const struct json_style *style, struct sb *b)
{
    return json_value(e, v, style, 0, b);
}
