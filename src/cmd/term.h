/* The terminal: what the standard streams are, safe printing of model output, a progress bar.

   A model's output is text from an untrusted source. On a terminal every control character but newline and tab is shown as
   ^X (C0, DEL) or \x9b (C1, which terminals obey too), and bytes that are not UTF-8 become U+FFFD, so no escape sequence gets
   through. Into a file or pipe the bytes go exactly as they are. */
#ifndef SKUA_CMD_TERM_H
#define SKUA_CMD_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/strbuf.h"

struct term {
    bool in_tty, out_tty, err_tty;
    bool out_colour, err_colour; /* a terminal, TERM is set and not "dumb", NO_COLOR is unset or empty */
    bool dumb;                   /* TERM unset or "dumb": not even the cursor may be moved */
    int width;                   /* columns of the terminal, 80 when unknown */
};

void term_probe(struct term *t); /* of standard input, output and error, and the environment, now */

/* Sequences to switch dim text on and off; empty without colour. */
const char *term_dim_on(bool colour);
const char *term_dim_off(bool colour);

/* Make bytes harmless; characters may be cut between calls. finish appends what a cut character at the end becomes. A failed
   allocation shows in strbuf_failed(out). */
struct term_filter {
    char pending[4];
    size_t n_pending;
};
void term_filter_push(struct term_filter *f, const char *bytes, size_t n, struct strbuf *out);
void term_filter_finish(struct term_filter *f, struct strbuf *out);

/* Print to a stream, filtered when it is a terminal, and flush. false: the stream no longer takes output (or memory is short). */
struct term_printer {
    FILE *file;
    bool filtered;
    struct term_filter filter;
    struct strbuf text; /* reused between calls */
};
void term_printer_init(struct term_printer *p, FILE *file, bool is_terminal);
bool term_print(struct term_printer *p, const char *bytes, size_t n);
bool term_print_end(struct term_printer *p); /* what is pending, and release the memory */

/* A progress line on standard error: silent unless that is a terminal, drawn only when the work lasts (0.3 s), at most ten
   times a second, removed at the end. */
struct progress {
    const char *label; /* the caller's */
    uint64_t total;
    uint64_t start_ns, drawn_ns;
    int width;
    bool on, drawn;
};
void progress_begin(struct progress *p, const char *label, uint64_t total);
void progress_set(struct progress *p, uint64_t done);
void progress_end(struct progress *p);
/* The line as text: "LABEL [####......]  42%", at most width - 1 columns (label in ASCII). */
void progress_format(const struct progress *p, uint64_t done, char *line, size_t size);

#endif
