/* A growable byte string. Always zero-terminated behind len, may hold zero bytes. Errors are sticky: after a failed
   allocation further appends do nothing and strbuf_failed is true, so a caller checks once at the end. */
#ifndef SKUA_BASE_STRBUF_H
#define SKUA_BASE_STRBUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct strbuf {
    char *data;  /* NULL until the first append */
    size_t len;  /* bytes, without the terminator */
    size_t cap;
    bool failed;
};

void strbuf_init(struct strbuf *b); /* the same as = {0} */
void strbuf_free(struct strbuf *b); /* back to the initial state */
void strbuf_clear(struct strbuf *b);/* len = 0, memory kept, failed reset */
bool strbuf_reserve(struct strbuf *b, size_t extra); /* room for extra more bytes; false: failed is set */
void strbuf_append(struct strbuf *b, const void *p, size_t n);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strbuf_vprintf(struct strbuf *b, const char *fmt, va_list ap);
bool strbuf_failed(const struct strbuf *b);
const char *strbuf_str(const struct strbuf *b); /* never NULL */
char *strbuf_take(struct strbuf *b, size_t *len); /* gives the memory away (mem_free); NULL if failed; b is empty after */

#endif
