/* The terminal; see term.h. */
#include "cmd/term.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"

static int columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void term_probe(struct term *t)
{
    const char *name = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *t = (struct term){.in_tty = isatty(STDIN_FILENO), .out_tty = isatty(STDOUT_FILENO), .err_tty = isatty(STDERR_FILENO)};
    t->dumb = !name || !*name || strcmp(name, "dumb") == 0;
    bool colour = !t->dumb && !(no_color && *no_color);
    t->out_colour = colour && t->out_tty;
    t->err_colour = colour && t->err_tty;
    t->width = columns(t->out_tty ? STDOUT_FILENO : STDERR_FILENO);
}

const char *term_dim_on(bool colour) { return colour ? "\033[2m" : ""; }
const char *term_dim_off(bool colour) { return colour ? "\033[22m" : ""; }

/* ---- safe printing ---- */

static void append_safe(struct strbuf *out, const char *s, int len, uint32_t cp)
{
    if (len == 0)
        strbuf_append(out, "\xEF\xBF\xBD", 3);
    else if ((cp < 0x20 && cp != '\n' && cp != '\t') || cp == 0x7F)
        strbuf_printf(out, "^%c", (char)(cp ^ 0x40));
    else if (cp >= 0x80 && cp < 0xA0)
        strbuf_printf(out, "\\x%02x", (unsigned)cp);
    else
        strbuf_append(out, s, (size_t)len);
}

static void filter_complete(const char *s, size_t n, struct strbuf *out)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        append_safe(out, s + i, len, cp);
        i += len ? (size_t)len : 1;
    }
}

void term_filter_push(struct term_filter *f, const char *bytes, size_t n, struct strbuf *out)
{
    while (n && f->n_pending) { /* complete the cut character byte by byte: at most four rounds per character */
        f->pending[f->n_pending++] = *bytes++;
        n--;
        size_t whole = utf8_complete_prefix(f->pending, f->n_pending);
        filter_complete(f->pending, whole, out);
        memmove(f->pending, f->pending + whole, f->n_pending - whole);
        f->n_pending -= whole;
    }
    size_t whole = utf8_complete_prefix(bytes, n);
    filter_complete(bytes, whole, out);
    if (n > whole) {
        memcpy(f->pending, bytes + whole, n - whole); /* at most 3 */
        f->n_pending = n - whole;
    }
}

void term_filter_finish(struct term_filter *f, struct strbuf *out)
{
    filter_complete(f->pending, f->n_pending, out);
    f->n_pending = 0;
}

void term_printer_init(struct term_printer *p, FILE *file, bool is_terminal)
{
    *p = (struct term_printer){.file = file, .filtered = is_terminal};
}

static bool write_out(struct term_printer *p, const char *bytes, size_t n)
{
    return fwrite(bytes, 1, n, p->file) == n && fflush(p->file) == 0;
}

bool term_print(struct term_printer *p, const char *bytes, size_t n)
{
    if (!p->filtered)
        return write_out(p, bytes, n);
    strbuf_clear(&p->text);
    term_filter_push(&p->filter, bytes, n, &p->text);
    return !strbuf_failed(&p->text) && write_out(p, strbuf_str(&p->text), p->text.len);
}

bool term_print_end(struct term_printer *p)
{
    strbuf_clear(&p->text);
    term_filter_finish(&p->filter, &p->text);
    bool ok = !strbuf_failed(&p->text) && write_out(p, strbuf_str(&p->text), p->text.len);
    strbuf_free(&p->text);
    return ok;
}

/* ---- progress ---- */

#define FIRST_DRAW_NS 300000000u
#define NEXT_DRAW_NS 100000000u

void progress_begin(struct progress *p, const char *label, uint64_t total)
{
    struct term t;
    term_probe(&t);
    *p = (struct progress){.label = label, .total = total, .on = t.err_tty && !t.dumb};
    p->start_ns = p->drawn_ns = clock_ns();
    p->width = p->on ? columns(STDERR_FILENO) : 80;
}

void progress_format(const struct progress *p, uint64_t done, char *line, size_t size)
{
    enum { MAX_BAR = 40 };
    char bar[MAX_BAR + 1];
    if (done > p->total)
        done = p->total;
    double part = p->total ? (double)done / (double)p->total : 1;
    int room = p->width - 1 - (int)strlen(p->label) - 8; /* " [", "] " and "100%" */
    if (room > MAX_BAR)
        room = MAX_BAR;
    if (room < 4) { /* no bar in a narrow terminal */
        snprintf(line, size, "%.*s %3d%%", p->width > 10 ? p->width - 6 : 4, p->label, (int)(part * 100));
        return;
    }
    memset(bar, '.', (size_t)room);
    memset(bar, '#', (size_t)(part * room));
    bar[room] = '\0';
    snprintf(line, size, "%s [%s] %3d%%", p->label, bar, (int)(part * 100));
}

void progress_set(struct progress *p, uint64_t done)
{
    char line[256];
    uint64_t now = clock_ns();
    if (!p->on || now - p->start_ns < FIRST_DRAW_NS || (p->drawn && now - p->drawn_ns < NEXT_DRAW_NS))
        return;
    progress_format(p, done, line, sizeof line);
    fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    p->drawn = true;
    p->drawn_ns = now;
}

void progress_end(struct progress *p)
{
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    p->on = p->drawn = false;
}
