/* Growable byte string; see strbuf.h. Grows by doubling. */
#include "base/strbuf.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void strbuf_init(struct strbuf *b) { *b = (struct strbuf){0}; }

void strbuf_free(struct strbuf *b)
{
    mem_free(b->data);
    *b = (struct strbuf){0};
}

void strbuf_clear(struct strbuf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

bool strbuf_reserve(struct strbuf *b, size_t extra)
{
    if (b->failed)
        return false;
    if (extra < b->cap - b->len) /* cap 0 and len 0: false for every extra */
        return true;
    size_t need;
    if (__builtin_add_overflow(b->len, extra, &need) || need > SIZE_MAX / 2 - 1) {
        b->failed = true;
        return false;
    }
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need + 1)
        cap *= 2;
    char *p = mem_realloc(b->data, cap);
    if (!p) {
        b->failed = true;
        return false;
    }
    if (!b->data)
        p[0] = '\0';
    b->data = p;
    b->cap = cap;
    return true;
}

void strbuf_append(struct strbuf *b, const void *p, size_t n)
{
    if (!n || !strbuf_reserve(b, n))
        return;
    memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void strbuf_puts(struct strbuf *b, const char *s) { strbuf_append(b, s, strlen(s)); }

void strbuf_putc(struct strbuf *b, char c) { strbuf_append(b, &c, 1); }

void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    char small[256];
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n < 0)
        b->failed = true;
    else if ((size_t)n < sizeof small)
        strbuf_append(b, small, (size_t)n);
    else if (strbuf_reserve(b, (size_t)n + 1)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_vprintf(b, fmt, ap);
    va_end(ap);
}

bool strbuf_failed(const struct strbuf *b) { return b->failed; }

const char *strbuf_str(const struct strbuf *b) { return b->data ? b->data : ""; }

char *strbuf_take(struct strbuf *b, size_t *len)
{
    if (!b->failed && !b->data)
        strbuf_reserve(b, 0);
    if (b->failed) {
        strbuf_free(b);
        return NULL;
    }
    char *p = b->data;
    if (len)
        *len = b->len;
    *b = (struct strbuf){0};
    return p;
}
