/* Reading a line from the user: with editing and history on a terminal (libedit), plainly otherwise.
   A line that ends with a backslash goes on in the next one (joined by a newline; an even number of backslashes is text).
   Ctrl-C drops what is typed and asks again, Ctrl-D on an empty line ends. History is kept in memory and in
   $XDG_STATE_HOME/skua/history (~/.local/state/skua/history); when that cannot be read or written, nothing is said. */
#ifndef SKUA_CMD_LINEEDIT_H
#define SKUA_CMD_LINEEDIT_H

#include "base/error.h"
#include "base/strbuf.h"

#define LINEEDIT_MAX_BYTES (1u << 20)
#define LINEEDIT_MAX_HISTORY 1000

struct lineedit;

/* SKUA_ENOMEM. Sets the process's LC_CTYPE, because libedit reads characters by it. */
int  lineedit_open(struct lineedit **le, skua_error *err);
void lineedit_close(struct lineedit *le); /* writes the history; NULL allowed */

/* Read one entry into line (replaced), without its newline. 1 = read, 0 = end of input; SKUA_ELIMIT: longer than
   LINEEDIT_MAX_BYTES, SKUA_ENOMEM. prompt is shown on a terminal only. */
int lineedit_read(struct lineedit *le, const char *prompt, struct strbuf *line, skua_error *err);

#endif
