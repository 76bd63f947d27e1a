/* Formatting: the % operator (printf style) and str.format with its format specifications, as Python defines them. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "jinja/strutil.h"
#include "jinja/text.h"

#define MAX_WIDTH 1000000 /* also of a precision; beyond that a template is not formatting */
#define MAX_DIGITS 300    /* of a float's precision */

struct spec {
    struct str fill;
    char align;        /* '<', '>', '^', '=', or 0 */
    char sign;         /* '+', ' ', or 0 */
    bool alternate, zero;
    char group;        /* ',' or '_' or 0 */
    int64_t width, precision; /* -1 = not given */
    char type;
};

/* Pad the text of a number or string. prefix bytes at its front (sign, 0x) stay in front of '=' padding. */
static bool pad(struct eval *e, struct str text, size_t prefix, const struct spec *s, struct sb *b)
{
    int64_t missing = s->width - (int64_t)text_length(text);
    if (missing > 0 && !eval_step(e, (uint64_t)missing / 16))
        return false;
    int64_t left = missing <= 0 || s->align == '<' ? 0 : s->align == '^' ? missing / 2 : missing;
    if (s->align == '=') {
        sb_add(b, text.s, prefix);
        sb_fill(b, s->fill, left);
        sb_add(b, text.s + prefix, text.n - prefix);
    } else {
        sb_fill(b, s->fill, left);
        sb_str(b, text);
    }
    sb_fill(b, s->fill, missing - left);
    return !b->failed;
}

/* Digits of u in a base, most significant first; the length. */
static int digits(uint64_t u, unsigned base, bool upper, char out[72])
{
    char text[72];
    int n = 0, k = 0;
    do {
        text[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u);
    while (n)
        out[k++] = text[--n];
    out[k] = '\0';
    return k;
}

/* Insert separators every `every` digits into the leading digit run of text. */
static void grouped(struct sb *b, const char *text, char sep, int every)
{
    int n = (int)strspn(text, "0123456789abcdefABCDEF");
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % every == 0)
            sb_putc(b, sep);
        sb_putc(b, text[i]);
    }
    sb_puts(b, text + n);
}

static bool format_int(struct eval *e, int64_t v, const struct spec *s, struct sb *b)
{
    char text[72], prefix[4] = "";
    struct sb body = {.e = e};
    struct val whole;
    char type = s->type ? s->type : 'd';
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    if (s->precision >= 0)
        return eval_fail(e, "Precision not allowed in integer format specifier");
    size_t n = 0;
    if (v < 0 || s->sign)
        prefix[n++] = v < 0 ? '-' : s->sign;
    if (s->alternate && base != 10) {
        prefix[n++] = '0';
        prefix[n++] = type;
    }
    digits(v < 0 ? 0 - (uint64_t)v : (uint64_t)v, base, type == 'X', text);
    sb_add(&body, prefix, n);
    if (s->group)
        grouped(&body, text, s->group, base == 10 ? 3 : 4);
    else
        sb_puts(&body, text);
    if (s->group && s->zero && s->align == '=')
        return eval_fail(e, "zero padding together with grouping is not supported");
    return sb_done(&body, &whole) && pad(e, as_str(whole), n, s, b);
}

/* The digits of |f| for a presentation type, without sign. Python's 'g' and no-type rules: C's, and repr. */
static bool float_text(struct eval *e, double f, const struct spec *s, char out[700])
{
    int64_t precision = s->precision < 0 ? 6 : s->precision;
    char type = s->type;
    if (precision > MAX_DIGITS)
        return eval_fail(e, "a precision of more than %d digits is not supported", MAX_DIGITS);
    if (isnan(f) || isinf(f)) {
        strcpy(out, isnan(f) ? "nan" : "inf");
        if (type && isupper((unsigned char)type))
            strcpy(out, isnan(f) ? "NAN" : "INF");
    } else if (!type && s->precision < 0) {
        float_repr(f, out);
    } else if (!type) { /* like 'g', with at least one digit behind the point */
        int p = precision ? (int)precision : 1;
        char exponent[40];
        snprintf(exponent, sizeof exponent, "%.*e", p - 1 > 30 ? 30 : p - 1, f);
        int x = atoi(strchr(exponent, 'e') + 1);
        snprintf(out, 700, s->alternate ? "%#.*g" : "%.*g", p, f);
        if (x == p - 1 && !strchr(out, '.') && !strchr(out, 'e')) /* Python switches to the exponent one digit earlier */
            snprintf(out, 700, "%.*e", p - 1, f);
        if (!strchr(out, '.') && !strchr(out, 'e'))
            strcat(out, ".0");
    } else {
        char format[8], *o = format;
        *o++ = '%';
        if (s->alternate)
            *o++ = '#';
        *o++ = '.';
        *o++ = '*';
        *o++ = type == '%' ? 'f' : type;
        *o = '\0';
        switch (*(o - 1)) { /* literal formats, so that the compiler checks them */
        case 'e': snprintf(out, 700, s->alternate ? "%#.*e" : "%.*e", (int)precision, f); break;
        case 'E': snprintf(out, 700, s->alternate ? "%#.*E" : "%.*E", (int)precision, f); break;
        case 'g': snprintf(out, 700, s->alternate ? "%#.*g" : "%.*g", (int)precision, f); break;
        case 'G': snprintf(out, 700, s->alternate ? "%#.*G" : "%.*G", (int)precision, f); break;
        default: snprintf(out, 700, s->alternate ? "%#.*f" : "%.*f", (int)precision, type == '%' ? f * 100 : f); break;
        }
        if (type == '%')
            strcat(out, "%");
    }
    return true;
}

static bool format_float(struct eval *e, double f, const struct spec *s, struct sb *b)
{
    char text[700];
    struct sb body = {.e = e};
    struct val whole;
    bool negative = signbit(f) && !isnan(f);
    if (!float_text(e, fabs(f), s, text))
        return false;
    if (negative || s->sign)
        sb_putc(&body, negative ? '-' : s->sign);
    size_t prefix = body.n;
    if (s->group)
        grouped(&body, text, s->group, 3);
    else
        sb_puts(&body, text);
    if (s->group && s->zero && s->align == '=')
        return eval_fail(e, "zero padding together with grouping is not supported");
    return sb_done(&body, &whole) && pad(e, as_str(whole), prefix, s, b);
}

static bool format_text(struct eval *e, struct str text, const struct spec *s, struct sb *b)
{
    if (s->precision >= 0)
        text.n = text_offset(text, (size_t)s->precision);
    return pad(e, text, 0, s, b);
}

/* ---- format specifications ---- */

static bool spec_number(struct eval *e, struct str *t, int64_t *out)
{
    *out = 0;
    for (; t->n && t->s[0] >= '0' && t->s[0] <= '9'; t->s++, t->n--) {
        *out = *out * 10 + (t->s[0] - '0');
        if (*out > MAX_WIDTH)
            return eval_fail(e, "a width or precision beyond %d is not supported", MAX_WIDTH);
    }
    return true;
}

static bool take(struct str *t, const char *any, char *out)
{
    if (!t->n || !t->s[0] || !strchr(any, t->s[0]))
        return false;
    *out = t->s[0];
    t->s++;
    t->n--;
    return true;
}

static bool parse_spec(struct eval *e, struct str t, struct spec *s)
{
    uint32_t cp;
    char c;
    *s = (struct spec){.fill = STR(" "), .width = -1, .precision = -1};
    int k = t.n ? utf8_decode(t.s, t.n, &cp) : 0;
    if (k && (size_t)k < t.n && strchr("<>^=", t.s[k]) && t.s[k]) {
        s->fill = (struct str){t.s, (size_t)k};
        s->align = t.s[k];
        t = (struct str){t.s + k + 1, t.n - (size_t)k - 1};
    } else {
        take(&t, "<>^=", &s->align);
    }
    if (take(&t, "+- ", &c))
        s->sign = c == '-' ? 0 : c;
    s->alternate = take(&t, "#", &c);
    if (t.n && t.s[0] == '0') {
        s->zero = true;
        if (!s->align) {
            s->align = '=';
            s->fill = STR("0");
        }
    }
    if (t.n && t.s[0] >= '0' && t.s[0] <= '9' && !spec_number(e, &t, &s->width))
        return false;
    take(&t, ",_", &s->group);
    if (take(&t, ".", &c)) {
        if (!t.n || t.s[0] < '0' || t.s[0] > '9')
            return eval_fail(e, "Format specifier missing precision");
        if (!spec_number(e, &t, &s->precision))
            return false;
    }
    if (t.n > 1)
        return eval_fail(e, "Invalid format specifier");
    s->type = t.n ? t.s[0] : '\0';
    return true;
}

bool format_spec(struct eval *e, struct val v, struct str text, struct sb *b)
{
    struct spec s;
    if (!text.n)
        return val_write(e, v, b);
    if (!parse_spec(e, text, &s))
        return false;
    if (is_number(v)) {
        if (!s.align)
            s.align = '>';
        bool float_type = s.type && strchr("eEfFgG%", s.type);
        if (v.type == V_FLOAT || float_type) {
            if (s.type && !float_type)
                return eval_fail(e, "Unknown format code '%c' for object of type 'float'", s.type);
            return format_float(e, float_of(v), &s, b);
        }
        if (v.type == V_BOOL && !s.type && !s.group && !s.sign && !s.alternate && s.width < 0)
            return val_write(e, v, b);
        if (s.type == 'c' || s.type == 'n' || (s.type && !strchr("bdoxX", s.type)))
            return eval_fail(e, "Unknown format code '%c' for object of type '%s'", s.type, val_type_name(v));
        return format_int(e, int_of(v), &s, b);
    }
    if (v.type != V_STR)
        return eval_fail(e, "unsupported format string passed to %s.__format__", val_type_name(v));
    if (s.type && s.type != 's')
        return eval_fail(e, "Unknown format code '%c' for object of type 'str'", s.type);
    if (s.align == '=' && !s.zero)
        return eval_fail(e, "'=' alignment not allowed in string format specifier");
    if (s.sign || s.alternate || s.group)
        return eval_fail(e, "Sign, '#' or grouping not allowed in string format specifier");
    if (!s.align || s.align == '=')
        s.align = '<';
    return format_text(e, as_str(v), &s, b);
}

/* ---- str.format ---- */

struct formatter {
    struct eval *e;
    const struct args *args;
    int64_t automatic; /* next automatic field number; -1 after an explicit one */
    bool used;
};

static bool field_number(struct formatter *f, struct str name, int64_t *index)
{
    *index = -1;
    if (!name.n) {
        if (f->automatic < 0)
            return eval_fail(f->e, "cannot switch from manual field specification to automatic field numbering");
        *index = f->automatic++;
        f->used = true;
        return true;
    }
    int64_t v = 0;
    for (size_t i = 0; i < name.n; i++) {
        if (name.s[i] < '0' || name.s[i] > '9' || v > MAX_WIDTH)
            return true;
        v = v * 10 + (name.s[i] - '0');
    }
    if (f->used && f->automatic >= 0)
        return eval_fail(f->e, "cannot switch from automatic field numbering to manual field specification");
    f->automatic = -1;
    *index = v;
    return true;
}

static bool field_value(struct formatter *f, struct str path, struct val *out)
{
    size_t end = 0;
    int64_t index;
    while (end < path.n && path.s[end] != '.' && path.s[end] != '[')
        end++;
    struct str name = {path.s, end};
    if (!field_number(f, name, &index))
        return false;
    *out = VAL_MISSING;
    if (index >= 0 && (uint64_t)index < f->args->npos)
        *out = f->args->pos[index];
    for (size_t i = 0; index < 0 && i < f->args->nkw; i++)
        if (str_eq(f->args->kw[i].name, name))
            *out = f->args->kw[i].value;
    if (out->type == V_MISSING)
        return index >= 0 ? eval_fail(f->e, "Replacement index %lld out of range for positional args tuple", (long long)index)
                          : eval_fail(f->e, "'%.*s'", (int)name.n, name.s);
    while (end < path.n) {
        bool attr = path.s[end++] == '.';
        size_t from = end;
        while (end < path.n && (attr ? path.s[end] != '.' && path.s[end] != '[' : path.s[end] != ']'))
            end++;
        struct str part = {path.s + from, end - from};
        if (!part.n || (!attr && end++ >= path.n))
            return eval_fail(f->e, "Empty attribute in format string");
        struct val key = val_str(part);
        if (!attr && part.n < 18 && strspn(part.s, "0123456789") >= part.n) {
            key = val_int(0);
            for (size_t i = 0; i < part.n; i++)
                key.i = key.i * 10 + (part.s[i] - '0');
        }
        if (!(attr ? get_attr(f->e, *out, part, out) : get_item(f->e, *out, key, out)))
            return false;
    }
    return true;
}

static bool format_fields(struct formatter *f, struct str format, int depth, struct sb *b);

static bool format_field(struct formatter *f, struct str field, int depth, struct sb *b)
{
    size_t end = 0;
    struct val v, spec = val_str(STR(""));
    char conversion = '\0';
    for (int brackets = 0; end < field.n; end++) {
        brackets += field.s[end] == '[' ? 1 : field.s[end] == ']' ? -1 : 0;
        if (brackets <= 0 && (field.s[end] == '!' || field.s[end] == ':'))
            break;
    }
    if (!field_value(f, (struct str){field.s, end}, &v))
        return false;
    if (end < field.n && field.s[end] == '!') {
        if (end + 1 >= field.n || (end + 2 < field.n && field.s[end + 2] != ':'))
            return eval_fail(f->e, "expected ':' after conversion specifier");
        conversion = field.s[end + 1];
        end += 2;
    }
    if (end < field.n) {
        struct sb text = {.e = f->e};
        if (!format_fields(f, (struct str){field.s + end + 1, field.n - end - 1}, depth + 1, &text) || !sb_done(&text, &spec))
            return false;
    }
    if (conversion) {
        struct sb text = {.e = f->e};
        if (conversion != 's' && conversion != 'r')
            return eval_fail(f->e, "the conversion !%c is not supported", conversion);
        if (!(conversion == 's' ? val_write(f->e, v, &text) : val_repr(f->e, v, &text)) || !sb_done(&text, &v))
            return false;
    }
    return format_spec(f->e, v, as_str(spec), b);
}

static bool format_fields(struct formatter *f, struct str t, int depth, struct sb *b)
{
    if (depth > 2)
        return eval_fail(f->e, "Max string recursion exceeded");
    for (size_t i = 0; i < t.n && !b->failed;) {
        char c = t.s[i];
        if ((c != '{' && c != '}') || (i + 1 < t.n && t.s[i + 1] == c)) {
            i += c == '{' || c == '}';
            sb_putc(b, t.s[i++]);
            continue;
        }
        if (c == '}')
            return eval_fail(f->e, "Single '}' encountered in format string");
        size_t end = i + 1;
        for (int level = 1; end < t.n; end++) {
            level += t.s[end] == '{' ? 1 : t.s[end] == '}' ? -1 : 0;
            if (!level)
                break;
        }
        if (end >= t.n)
            return eval_fail(f->e, i + 1 < t.n ? "expected '}' before end of string" : "Single '{' encountered in format string");
        if (!eval_step(f->e, 1) || !format_field(f, (struct str){t.s + i + 1, end - i - 1}, depth, b))
            return false;
        i = end + 1;
    }
    return !b->failed;
}

bool str_format(struct eval *e, struct str format, const struct args *a, struct val *out)
{
    struct formatter f = {.e = e, .args = a};
    struct sb b = {.e = e};
    return format_fields(&f, format, 1, &b) && sb_done(&b, out);
}

/* ---- the % operator ---- */

struct percent {
    struct eval *e;
    struct val args;
    size_t next;
};

static bool next_arg(struct percent *p, struct val *out)
{
    bool tuple = p->args.type == V_TUPLE;
    if (p->next >= (tuple ? p->args.list->n : 1))
        return eval_fail(p->e, "not enough arguments for format string");
    *out = tuple ? p->args.list->items[p->next] : p->args;
    p->next++;
    return true;
}

static bool star_or_number(struct percent *p, struct str *t, int64_t *out)
{
    char c;
    struct val v;
    if (!take(t, "*", &c))
        return spec_number(p->e, t, out);
    if (!next_arg(p, &v))
        return false;
    if (!is_integer(v))
        return eval_fail(p->e, "* wants int");
    *out = int_of(v);
    return (*out <= MAX_WIDTH && *out >= -MAX_WIDTH) || eval_fail(p->e, "a width or precision beyond %d is not supported", MAX_WIDTH);
}

static bool percent_int(struct eval *e, struct val v, struct spec *s, struct sb *b)
{
    bool decimal = strchr("diu", s->type);
    if (v.type == V_UNDEF && !decimal)
        return eval_fail(e, "%%%c format: an integer is required, not Undefined", s->type);
    if (v.type == V_UNDEF)
        return undef_fail(e, v);
    if (!is_number(v) || (v.type == V_FLOAT && !decimal))
        return eval_fail(e, decimal ? "%%%c format: a real number is required, not %s"
                                    : "%%%c format: an integer is required, not %s", s->type, val_type_name(v));
    int64_t i = 0;
    if (v.type == V_FLOAT) {
        if (!(v.f > -9.2e18 && v.f < 9.2e18))
            return eval_fail(e, "cannot convert this float to a 64-bit integer");
        i = (int64_t)v.f;
    } else {
        i = int_of(v);
    }
    char text[72], prefix[4];
    size_t n = 0;
    unsigned base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : 10;
    int len = digits(i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, s->type == 'X', text);
    if (i < 0 || s->sign)
        prefix[n++] = i < 0 ? '-' : s->sign;
    if (s->alternate && base != 10) {
        prefix[n++] = '0';
        prefix[n++] = s->type;
    }
    struct sb body = {.e = e};
    struct val whole;
    sb_add(&body, prefix, n);
    if (s->precision > len && !eval_step(e, (uint64_t)s->precision / 16))
        return false;
    sb_fill(&body, STR("0"), s->precision - len);
    sb_puts(&body, text);
    return sb_done(&body, &whole) && pad(e, as_str(whole), n, s, b);
}

static bool percent_char(struct eval *e, struct val v, struct spec *s, struct sb *b)
{
    char text[4];
    struct str c = {text, 0};
    if (is_integer(v)) {
        int64_t i = int_of(v);
        c.n = i >= 0 && i < 0x110000 ? (size_t)utf8_encode((uint32_t)i, text) : 0;
        if (!c.n)
            return eval_fail(e, "%%c arg not in range(0x110000)");
    } else if (v.type == V_STR && text_length(as_str(v)) == 1) {
        c = as_str(v);
    } else {
        return eval_fail(e, "%%c requires int or char");
    }
    return pad(e, c, 0, s, b);
}

static bool percent_value(struct eval *e, struct val v, struct spec *s, struct sb *b)
{
    struct sb text = {.e = e};
    switch (s->type) {
    case 'd': case 'i': case 'u': case 'x': case 'X': case 'o':
        return percent_int(e, v, s, b);
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G':
        if (v.type == V_UNDEF)
            return undef_fail(e, v);
        if (!is_number(v))
            return eval_fail(e, "must be real number, not %s", val_type_name(v));
        return format_float(e, float_of(v), s, b);
    case 'c':
        if (s->align == '=')
            s->align = '>', s->fill = STR(" ");
        return percent_char(e, v, s, b);
    case 's': case 'r':
        if (s->align == '=')
            s->align = '>', s->fill = STR(" ");
        if (!(s->type == 's' ? val_write(e, v, &text) : val_repr(e, v, &text)) || !sb_done(&text, &v))
            return false;
        return format_text(e, as_str(v), s, b);
    default:
        return eval_fail(e, "unsupported format character '%c' (0x%x)", s->type, (unsigned)(uint8_t)s->type);
    }
}

/* One conversion; t is behind its '%'. */
static bool percent_one(struct percent *p, struct str *t, struct sb *b)
{
    struct spec s = {.fill = STR(" "), .align = '>', .width = -1, .precision = -1};
    struct val v = VAL_MISSING;
    char c;
    if (take(t, "(", &c)) {
        size_t end = 0;
        for (int level = 1; end < t->n; end++) {
            level += t->s[end] == '(' ? 1 : t->s[end] == ')' ? -1 : 0;
            if (!level)
                break;
        }
        if (p->args.type != V_DICT)
            return eval_fail(p->e, "format requires a mapping");
        if (end >= t->n)
            return eval_fail(p->e, "incomplete format key");
        const struct val *found = dict_get(p->args.dict, t->s, end);
        if (!found)
            return eval_fail(p->e, "'%.*s'", (int)end, t->s);
        v = *found;
        *t = (struct str){t->s + end + 1, t->n - end - 1};
    }
    while (take(t, "-+ #0", &c)) {
        if (c == '-') s.align = '<';
        else if (c == '+') s.sign = '+';
        else if (c == ' ') s.sign = s.sign ? s.sign : ' ';
        else if (c == '#') s.alternate = true;
        else s.zero = true;
    }
    if (s.zero && s.align != '<') {
        s.align = '=';
        s.fill = STR("0");
    }
    if (t->n && (t->s[0] == '*' || (t->s[0] >= '0' && t->s[0] <= '9')) && !star_or_number(p, t, &s.width))
        return false;
    if (s.width < -1) {
        s.width = -s.width;
        s.align = '<';
        s.fill = STR(" ");
    }
    if (take(t, ".", &c)) {
        if (!star_or_number(p, t, &s.precision))
            return false;
        s.precision = s.precision < 0 ? 0 : s.precision;
    }
    take(t, "hlL", &c);
    if (!t->n)
        return eval_fail(p->e, "incomplete format");
    s.type = t->s[0];
    t->s++;
    t->n--;
    if (s.type == '%') {
        sb_putc(b, '%');
        return !b->failed;
    }
    if (v.type == V_MISSING && !next_arg(p, &v))
        return false;
    return percent_value(p->e, v, &s, b);
}

bool percent_format(struct eval *e, struct str t, struct val args, struct val *out)
{
    struct percent p = {.e = e, .args = args};
    struct sb b = {.e = e};
    while (t.n && !b.failed) {
        const char *at = memchr(t.s, '%', t.n);
        size_t plain = at ? (size_t)(at - t.s) : t.n;
        sb_add(&b, t.s, plain);
        t = (struct str){t.s + plain, t.n - plain};
        if (!t.n)
            break;
        t.s++;
        t.n--;
        if (!eval_step(e, 1) || !percent_one(&p, &t, &b))
            return false;
    }
    bool mapping = args.type == V_DICT || args.type == V_LIST || args.type == V_UNDEF || args.type == V_RANGE; /* has __getitem__ */
    if (args.type == V_TUPLE ? p.next < args.list->n : !mapping && !p.next)
        return eval_fail(e, "not all arguments converted during string formatting");
    return sb_done(&b, out);
}
