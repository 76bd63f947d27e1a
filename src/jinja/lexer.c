/* The lexer; see lexer.h. Follows the regular expressions of jinja2's lexer.py: positions where several rules could match
 * are decided in the same order. Line and column come from the position in the text, which is scanned once, forwards. */
#include "jinja/lexer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "jinja/text.h"

static const char *const type_text[] = {
    [T_EOF] = "end of template", [T_DATA] = "template data / text", [T_VARIABLE_BEGIN] = "begin of print statement",
    [T_VARIABLE_END] = "end of print statement", [T_BLOCK_BEGIN] = "begin of statement block",
    [T_BLOCK_END] = "end of statement block", [T_NAME] = "name", [T_STRING] = "string", [T_INTEGER] = "integer",
    [T_FLOAT] = "float", [T_ADD] = "+", [T_SUB] = "-", [T_DIV] = "/", [T_FLOORDIV] = "//", [T_MUL] = "*", [T_MOD] = "%",
    [T_POW] = "**", [T_TILDE] = "~", [T_LBRACKET] = "[", [T_RBRACKET] = "]", [T_LPAREN] = "(", [T_RPAREN] = ")",
    [T_LBRACE] = "{", [T_RBRACE] = "}", [T_EQ] = "==", [T_NE] = "!=", [T_GT] = ">", [T_GTEQ] = ">=", [T_LT] = "<",
    [T_LTEQ] = "<=", [T_ASSIGN] = "=", [T_DOT] = ".", [T_COLON] = ":", [T_PIPE] = "|", [T_COMMA] = ",",
    [T_SEMICOLON] = ";",
};

const char *token_type_text(enum token_type type) { return type_text[type]; }

bool lexer_init(struct lexer *lx, struct compile *c, struct str src)
{
    *lx = (struct lexer){.c = c, .mark_line = 1, .last_line = 1, .last_col = 1};
    char *text = arena_alloc(&c->t->arena, src.n);
    if (!text)
        return compile_nomem(c, &c->t->arena);
    size_t n = 0;
    for (size_t i = 0; i < src.n;) {
        uint32_t cp;
        int k = utf8_decode(src.s + i, src.n - i, &cp);
        if (!k)
            return compile_fail(c, 1, 1, "the template is not valid UTF-8 (byte %zu)", i);
        if (cp == '\r') {
            text[n++] = '\n';
            i += i + 1 < src.n && src.s[i + 1] == '\n' ? 2 : 1;
            continue;
        }
        memcpy(text + n, src.s + i, (size_t)k);
        n += (size_t)k;
        i += (size_t)k;
    }
    if (n && text[n - 1] == '\n')
        n--;
    lx->src = (struct str){text, n};
    return true;
}

static void position(struct lexer *lx, size_t pos, uint32_t *line, uint32_t *col)
{
    if (pos < lx->mark) { /* a few bytes back at most: recount the column from the start of that line */
        lx->mark = lx->mark_line_start = 0;
        lx->mark_line = 1;
    }
    for (; lx->mark < pos; lx->mark++)
        if (lx->src.s[lx->mark] == '\n') {
            lx->mark_line++;
            lx->mark_line_start = lx->mark + 1;
        }
    *line = lx->mark_line;
    *col = 1 + (uint32_t)utf8_length(lx->src.s + lx->mark_line_start, pos - lx->mark_line_start);
}

static bool fail_at(struct lexer *lx, size_t pos, const char *text)
{
    uint32_t line, col;
    position(lx, pos, &line, &col);
    return compile_fail(lx->c, line, col, "%s", text);
}

static bool has(const struct lexer *lx, size_t pos, const char *z)
{
    size_t n = strlen(z);
    return n <= lx->src.n - pos && !memcmp(lx->src.s + pos, z, n);
}

static size_t skip_space(const struct lexer *lx, size_t pos)
{
    while (pos < lx->src.n) {
        uint32_t cp;
        int k = utf8_decode(lx->src.s + pos, lx->src.n - pos, &cp);
        if (!text_is_space(cp))
            break;
        pos += (size_t)k;
    }
    return pos;
}

/* The end of a tag at pos: `+%}`, `-%}\s*` or `%}\n?` (plus and newline only where trim is set). 0 = none here. */
static size_t match_close(const struct lexer *lx, size_t pos, const char *close, bool trim)
{
    size_t n = strlen(close);
    if (trim && has(lx, pos, "+") && has(lx, pos + 1, close))
        return pos + 1 + n;
    if (has(lx, pos, "-") && has(lx, pos + 1, close))
        return skip_space(lx, pos + 1 + n);
    if (!has(lx, pos, close))
        return 0;
    return pos + n + (trim && has(lx, pos + n, "\n"));
}

/* Text before a tag, with the whitespace removed that the tag's sign or lstrip_blocks removes. */
static struct str strip_before(const struct lexer *lx, size_t start, size_t end, char sign, bool variable)
{
    struct str text = {lx->src.s + start, end - start};
    if (sign == '-')
        return text_strip(text, NULL, false, true);
    if (sign == '+' || variable)
        return text;
    size_t line = text.n;
    while (line && text.s[line - 1] != '\n')
        line--;
    if (line || start == 0 || lx->src.s[start - 1] == '\n') {
        struct str rest = {text.s + line, text.n - line};
        if (rest.n && !text_strip(rest, NULL, true, false).n)
            text.n = line;
    }
    return text;
}

/* `{%[-+]?\s*raw\s*-%}\s*` or `...%}` at pos: the position behind it, else 0. */
static size_t match_raw_begin(const struct lexer *lx, size_t pos)
{
    size_t p = pos + 2;
    if (p < lx->src.n && (lx->src.s[p] == '-' || lx->src.s[p] == '+'))
        p++;
    p = skip_space(lx, p);
    if (!has(lx, p, "raw"))
        return 0;
    return match_close(lx, skip_space(lx, p + 3), "%}", false);
}

static bool raw_block(struct lexer *lx, size_t start, struct str *text)
{
    for (size_t p = start; p + 1 < lx->src.n; p++) {
        if (!has(lx, p, "{%"))
            continue;
        size_t q = p + 2;
        char sign = q < lx->src.n ? lx->src.s[q] : '\0';
        if (sign == '-' || sign == '+')
            q++;
        q = skip_space(lx, q);
        if (!has(lx, q, "endraw"))
            continue;
        size_t end = match_close(lx, skip_space(lx, q + 6), "%}", true);
        if (!end)
            continue;
        *text = strip_before(lx, start, p, sign, false);
        lx->pos = end;
        return true;
    }
    if (start < lx->src.n)
        return fail_at(lx, start, "Missing end of raw directive");
    *text = (struct str){lx->src.s + start, 0};
    lx->pos = start;
    return true;
}

static bool skip_comment(struct lexer *lx, size_t start)
{
    for (size_t p = start; p < lx->src.n; p++) {
        size_t end = match_close(lx, p, "#}", true);
        if (end) {
            lx->pos = end;
            return true;
        }
    }
    if (start < lx->src.n)
        return fail_at(lx, start, "Missing end of comment tag");
    lx->pos = start;
    return true;
}

/* Outside of tags: a data token, or the beginning of a tag, or the end. Empty data and comments produce nothing. */
static bool lex_root(struct lexer *lx, struct token *t, bool *produced)
{
    size_t start = lx->pos, p = start;
    for (; p + 1 < lx->src.n; p++)
        if (lx->src.s[p] == '{' && memchr("{%#", lx->src.s[p + 1], 3))
            break;
    if (p + 1 >= lx->src.n) {
        lx->pos = lx->src.n;
        *t = (struct token){.type = start < lx->src.n ? T_DATA : T_EOF, .text = {lx->src.s + start, lx->src.n - start}};
        position(lx, start, &t->line, &t->col);
        *produced = true;
        return true;
    }
    char kind = lx->src.s[p + 1], sign = p + 2 < lx->src.n ? lx->src.s[p + 2] : '\0';
    struct str text = strip_before(lx, start, p, sign, kind == '{');
    if (text.n) { /* the tag itself comes with the next call, which finds nothing before it */
        *t = (struct token){.type = T_DATA, .text = text};
        position(lx, start, &t->line, &t->col);
        lx->pos = p;
        *produced = true;
        return true;
    }
    size_t raw = kind == '%' ? match_raw_begin(lx, p) : 0;
    size_t inside = p + 2 + (sign == '-' || sign == '+');
    if (raw) {
        *t = (struct token){.type = T_DATA};
        position(lx, raw, &t->line, &t->col);
        *produced = true;
        return raw_block(lx, raw, &t->text);
    }
    if (kind == '#')
        return skip_comment(lx, inside);
    *t = (struct token){.type = kind == '%' ? T_BLOCK_BEGIN : T_VARIABLE_BEGIN};
    position(lx, p, &t->line, &t->col);
    lx->state = kind == '%' ? LEX_BLOCK : LEX_VARIABLE;
    lx->pos = inside;
    *produced = true;
    return true;
}

static bool digit(const struct lexer *lx, size_t p) { return p < lx->src.n && lx->src.s[p] >= '0' && lx->src.s[p] <= '9'; }

/* digits with single underscores between them; the position behind, or p when there are none */
static size_t digits(const struct lexer *lx, size_t p)
{
    if (!digit(lx, p))
        return p;
    for (;;) {
        while (digit(lx, p))
            p++;
        if (p + 1 < lx->src.n && lx->src.s[p] == '_' && digit(lx, p + 1))
            p++;
        else
            return p;
    }
}

/* The end of a float literal at p (`d.d`, `d.de+d`, `ded`), or 0. */
static size_t match_float(const struct lexer *lx, size_t p)
{
    if (p && lx->src.s[p - 1] == '.')
        return 0;
    size_t q = digits(lx, p);
    if (q == p)
        return 0;
    size_t fraction = 0;
    if (q < lx->src.n && lx->src.s[q] == '.' && digit(lx, q + 1))
        fraction = q = digits(lx, q + 1);
    if (q < lx->src.n && (lx->src.s[q] == 'e' || lx->src.s[q] == 'E')) {
        size_t e = q + 1;
        if (e < lx->src.n && (lx->src.s[e] == '+' || lx->src.s[e] == '-'))
            e++;
        if (digit(lx, e))
            return digits(lx, e);
    }
    return fraction;
}

static int digit_value(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
    return 99;
}

static bool lex_number(struct lexer *lx, struct token *t)
{
    size_t start = lx->pos, end = match_float(lx, start);
    if (end) {
        char text[128];
        size_t n = 0;
        for (size_t i = start; i < end && n < sizeof text - 1; i++)
            if (lx->src.s[i] != '_')
                text[n++] = lx->src.s[i];
        if (n == sizeof text - 1)
            return fail_at(lx, start, "a float literal is limited to 126 characters");
        text[n] = '\0';
        t->type = T_FLOAT;
        t->f = strtod(text, NULL);
        lx->pos = end;
        return true;
    }
    int base = 10;
    size_t p = start;
    if (lx->src.s[p] == '0' && p + 1 < lx->src.n) {
        char x = lx->src.s[p + 1] | 0x20;
        int b = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
        size_t q = p + 2 + (p + 2 < lx->src.n && lx->src.s[p + 2] == '_');
        if (b != 10 && q < lx->src.n && digit_value(lx->src.s[q]) < b) {
            base = b;
            p = q;
        }
    }
    bool zero = base == 10 && lx->src.s[p] == '0'; /* a decimal that begins with 0 is all zeros: 007 is the tokens 00 and 7 */
    int64_t value = 0;
    for (; p < lx->src.n; p++) {
        if (lx->src.s[p] == '_' && p > start && p + 1 < lx->src.n && digit_value(lx->src.s[p + 1]) < (zero ? 1 : base))
            continue;
        int d = digit_value(lx->src.s[p]);
        if (d >= (zero ? 1 : base))
            break;
        if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, d, &value))
            return fail_at(lx, start, "integer literal beyond 64 bits");
    }
    t->type = T_INTEGER;
    t->i = value;
    lx->pos = p;
    return true;
}

/* Escapes of a Python string literal. out has room for twice the input. */
static bool unescape(struct lexer *lx, size_t at, struct str in, char *out, size_t *len)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t n = 0;
    for (size_t i = 0; i < in.n;) {
        if (in.s[i] != '\\') {
            out[n++] = in.s[i++];
            continue;
        }
        i++; /* the literal's pattern guarantees a character behind a backslash */
        char ch = in.s[i];
        const char *known = memchr(from, ch, sizeof from - 1);
        if (known) {
            out[n++] = to[known - from];
            i++;
        } else if (ch == '\n') {
            i++;
        } else if (ch >= '0' && ch <= '7') {
            uint32_t cp = 0;
            for (int k = 0; k < 3 && i < in.n && in.s[i] >= '0' && in.s[i] <= '7'; k++)
                cp = cp * 8 + (uint32_t)(in.s[i++] - '0');
            n += (size_t)utf8_encode(cp, out + n);
        } else if (ch == 'x' || ch == 'u' || ch == 'U') {
            int want = ch == 'x' ? 2 : ch == 'u' ? 4 : 8, got = 0;
            uint64_t cp = 0;
            for (i++; got < want && i < in.n && digit_value(in.s[i]) < 16; got++)
                cp = cp * 16 + (uint64_t)digit_value(in.s[i++]);
            int k = got == want && cp <= 0x10FFFF ? utf8_encode((uint32_t)cp, out + n) : 0;
            if (!k)
                return fail_at(lx, at, got < want ? ch == 'x' ? "truncated \\xXX escape"
                                                   : ch == 'u' ? "truncated \\uXXXX escape" : "truncated \\UXXXXXXXX escape"
                                       : cp > 0x10FFFF ? "illegal Unicode character"
                                                       : "an escape for a lone surrogate is not supported");
            n += (size_t)k;
        } else if (ch == 'N') {
            return fail_at(lx, at, "escapes by character name (\\N{...}) are not supported");
        } else {
            out[n++] = '\\'; /* unknown: both characters stay */
        }
    }
    *len = n;
    return true;
}

static bool lex_string(struct lexer *lx, struct token *t)
{
    size_t start = lx->pos, p = start + 1;
    char quote = lx->src.s[start];
    bool escapes = false;
    for (; p < lx->src.n && lx->src.s[p] != quote; p++)
        if (lx->src.s[p] == '\\') {
            escapes = true;
            p++;
        }
    if (p >= lx->src.n) { /* jinja2's message: the literal does not match, and a quote is no operator */
        uint32_t line, col;
        position(lx, start, &line, &col);
        return compile_fail(lx->c, line, col, quote == '"' ? "unexpected char '\"' at %zu" : "unexpected char \"'\" at %zu",
                            utf8_length(lx->src.s, start));
    }
    struct str in = {lx->src.s + start + 1, p - start - 1};
    t->type = T_STRING;
    t->text = in;
    lx->pos = p + 1;
    if (!escapes)
        return true;
    char *out = arena_alloc(&lx->c->t->arena, in.n * 2);
    if (!out)
        return compile_nomem(lx->c, &lx->c->t->arena);
    t->text.s = out;
    return unescape(lx, start, in, out, &t->text.n);
}

static bool lex_operator(struct lexer *lx, struct token *t)
{
    static const struct { const char *text; enum token_type type; } ops[] = {
        {"//", T_FLOORDIV}, {"**", T_POW}, {"==", T_EQ}, {"!=", T_NE}, {">=", T_GTEQ}, {"<=", T_LTEQ}, {"+", T_ADD},
        {"-", T_SUB}, {"/", T_DIV}, {"*", T_MUL}, {"%", T_MOD}, {"~", T_TILDE}, {"[", T_LBRACKET}, {"]", T_RBRACKET},
        {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE}, {"}", T_RBRACE}, {">", T_GT}, {"<", T_LT}, {"=", T_ASSIGN},
        {".", T_DOT}, {":", T_COLON}, {"|", T_PIPE}, {",", T_COMMA}, {";", T_SEMICOLON},
    };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (!has(lx, lx->pos, ops[i].text))
            continue;
        char ch = ops[i].text[0];
        char closing = ch == '{' ? '}' : ch == '(' ? ')' : ch == '[' ? ']' : '\0';
        if (closing) {
            if (lx->nbrackets == LEXER_MAX_BRACKETS)
                return fail_at(lx, lx->pos, "brackets nested deeper than 256");
            lx->brackets[lx->nbrackets++] = closing;
        } else if (ch == '}' || ch == ')' || ch == ']') {
            uint32_t line, col;
            position(lx, lx->pos, &line, &col);
            if (!lx->nbrackets)
                return compile_fail(lx->c, line, col, "unexpected '%c'", ch);
            char expected = lx->brackets[--lx->nbrackets];
            if (expected != ch)
                return compile_fail(lx->c, line, col, "unexpected '%c', expected '%c'", ch, expected);
        }
        t->type = ops[i].type;
        lx->pos += strlen(ops[i].text);
        return true;
    }
    uint32_t cp, line, col;
    int k = utf8_decode(lx->src.s + lx->pos, lx->src.n - lx->pos, &cp);
    position(lx, lx->pos, &line, &col);
    return compile_fail(lx->c, line, col, "unexpected char '%.*s' at %zu", k, lx->src.s + lx->pos,
                        utf8_length(lx->src.s, lx->pos));
}

static bool lex_tag(struct lexer *lx, struct token *t, bool *produced)
{
    bool block = lx->state == LEX_BLOCK;
    *produced = true;
    size_t end = lx->nbrackets ? 0 : match_close(lx, lx->pos, block ? "%}" : "}}", block);
    *t = (struct token){.type = block ? T_BLOCK_END : T_VARIABLE_END};
    if (end) {
        position(lx, lx->pos, &t->line, &t->col);
        lx->pos = end;
        lx->state = LEX_ROOT;
        return true;
    }
    lx->pos = skip_space(lx, lx->pos);
    if (!lx->nbrackets && match_close(lx, lx->pos, block ? "%}" : "}}", block))
        return *produced = false, true;
    position(lx, lx->pos, &t->line, &t->col);
    if (lx->pos >= lx->src.n) {
        t->type = T_EOF;
        return true;
    }
    if (digit(lx, lx->pos))
        return lex_number(lx, t);
    char ch = lx->src.s[lx->pos];
    if (ch == '\'' || ch == '"')
        return lex_string(lx, t);
    size_t p = lx->pos;
    while (p < lx->src.n) {
        uint32_t cp;
        int k = utf8_decode(lx->src.s + p, lx->src.n - p, &cp);
        if (!text_is_identifier(cp))
            break;
        p += (size_t)k;
    }
    if (p == lx->pos)
        return lex_operator(lx, t);
    t->type = T_NAME;
    t->text = (struct str){lx->src.s + lx->pos, p - lx->pos};
    lx->pos = p;
    return true;
}

bool lexer_next(struct lexer *lx, struct token *t)
{
    bool produced = false;
    while (!produced)
        if (!(lx->state == LEX_ROOT ? lex_root(lx, t, &produced) : lex_tag(lx, t, &produced)))
            return false;
    if (t->type == T_EOF) {
        t->line = lx->last_line;
        t->col = lx->last_col;
    }
    lx->last_line = t->line;
    lx->last_col = t->col;
    return true;
}
