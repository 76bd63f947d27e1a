/* Line editing; see lineedit.h. */
#include "cmd/lineedit.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"

struct lineedit {
    EditLine *el; /* NULL: plain reading */
    History *history;
    char *history_path; /* NULL: none */
    FILE *screen;       /* where the prompt goes */
    const char *prompt;
    bool interrupted;   /* Ctrl-C ended the last read */
};

static char *show_prompt(EditLine *el)
{
    struct lineedit *le = NULL;
    el_get(el, EL_CLIENTDATA, &le);
    return (char *)(uintptr_t)le->prompt; /* libedit does not write to it */
}

static unsigned char on_interrupt(EditLine *el, int key)
{
    struct lineedit *le = NULL;
    (void)key;
    el_get(el, EL_CLIENTDATA, &le);
    le->interrupted = true;
    return CC_EOF;
}

/* Signals from keys are off while editing, so that Ctrl-C can be a key; Ctrl-Z then has to be done by hand. */
static unsigned char on_suspend(EditLine *el, int key)
{
    (void)key;
    el_set(el, EL_PREP_TERM, 0);
    kill(0, SIGTSTP); /* to the whole foreground group, as the terminal does; goes on here after fg */
    el_set(el, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
}

/* ---- history file ---- */

static char *history_path(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    struct strbuf path = {0};
    if (state && *state == '/') /* the specification: relative values are ignored */
        strbuf_printf(&path, "%s/skua/history", state);
    else if (home && *home == '/')
        strbuf_printf(&path, "%s/.local/state/skua/history", home);
    return path.len ? strbuf_take(&path, NULL) : NULL;
}

static void make_folders(char *path) /* of the file path; failures show when the file is written */
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
}

static void save_history(struct lineedit *le)
{
    HistEvent event;
    if (!le->history_path)
        return;
    make_folders(le->history_path);
    history(le->history, &event, H_SAVE, le->history_path); /* libedit gives the file mode 0600 */
}

/* ---- opening ---- */

static void open_editor(struct lineedit *le)
{
    HistEvent event;
    le->history = history_init();
    if (!le->history)
        return;
    le->el = el_init("skua", stdin, le->screen, stderr);
    if (!le->el) {
        history_end(le->history);
        le->history = NULL;
        return;
    }
    history(le->history, &event, H_SETSIZE, LINEEDIT_MAX_HISTORY);
    history(le->history, &event, H_SETUNIQUE, 1);
    el_set(le->el, EL_CLIENTDATA, le);
    el_set(le->el, EL_PROMPT, show_prompt);
    el_set(le->el, EL_HIST, history, le->history);
    el_set(le->el, EL_EDITOR, "emacs");
    el_set(le->el, EL_SIGNAL, 1); /* libedit restores the terminal before a signal takes effect, and follows resizes */
    el_set(le->el, EL_SETTY, "-d", "-isig", NULL);
    el_source(le->el, NULL); /* the user's ~/.editrc */
    el_wset(le->el, EL_ADDFN, L"skua-interrupt", L"drop the line", on_interrupt); /* el_set would leak the two names */
    el_wset(le->el, EL_ADDFN, L"skua-suspend", L"stop the program", on_suspend);
    el_set(le->el, EL_BIND, "^C", "skua-interrupt", NULL);
    el_set(le->el, EL_BIND, "^Z", "skua-suspend", NULL);
    el_set(le->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    le->history_path = history_path();
    if (le->history_path)
        history(le->history, &event, H_LOAD, le->history_path);
}

int lineedit_open(struct lineedit **out, skua_error *err)
{
    struct lineedit *le = *out = mem_calloc(1, sizeof *le);
    if (!le)
        return error_nomem(err, "line editor", sizeof *le);
    le->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    if (!isatty(STDIN_FILENO) || !isatty(fileno(le->screen)))
        return 0;
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    open_editor(le);
    return 0;
}

void lineedit_close(struct lineedit *le)
{
    if (!le)
        return;
    if (le->el) {
        save_history(le);
        el_end(le->el);
        history_end(le->history);
    }
    mem_free(le->history_path);
    mem_free(le);
}

/* ---- reading ---- */

/* Append one line of input with its newline (the last may lack it). 1, or 0 at the end of input or after Ctrl-C. */
static int read_physical(struct lineedit *le, struct strbuf *line)
{
    if (le->el) {
        int n = 0;
        el_set(le->el, EL_PREP_TERM, 1); /* before the prompt shows: from then on Ctrl-C is a key and no signal */
        const char *s = el_gets(le->el, &n);
        if (!s || n <= 0)
            return 0;
        strbuf_append(line, s, (size_t)n);
        return 1;
    }
    int c;
    size_t before = line->len;
    while ((c = getc(stdin)) != EOF && line->len <= LINEEDIT_MAX_BYTES && !strbuf_failed(line)) {
        strbuf_putc(line, (char)c);
        if (c == '\n')
            break;
    }
    return line->len > before;
}

static bool goes_on(const struct strbuf *line)
{
    size_t slashes = 0;
    while (slashes < line->len && line->data[line->len - 1 - slashes] == '\\')
        slashes++;
    return slashes & 1;
}

static void cut_last(struct strbuf *line) { line->data[--line->len] = '\0'; }

static void remember(struct lineedit *le, const struct strbuf *line)
{
    HistEvent event;
    if (le->el && line->len)
        history(le->history, &event, H_ENTER, line->data);
}

int lineedit_read(struct lineedit *le, const char *prompt, struct strbuf *line, skua_error *err)
{
    strbuf_clear(line);
    le->prompt = prompt;
    for (;;) {
        le->interrupted = false;
        int more = read_physical(le, line);
        if (le->interrupted) {
            fputs("^C\n", le->screen);
            strbuf_clear(line);
            le->prompt = prompt;
            continue;
        }
        if (strbuf_failed(line))
            return error_nomem(err, "input line", line->len);
        if (line->len > LINEEDIT_MAX_BYTES)
            return error_set(err, SKUA_ELIMIT, "the input line is longer than the limit of %u bytes", LINEEDIT_MAX_BYTES);
        if (!more && !line->len)
            return 0;
        if (line->data[line->len - 1] == '\n') /* the line's own, or that of a continuation that never came */
            cut_last(line);
        if (!more || !goes_on(line))
            break;
        line->data[line->len - 1] = '\n';
        le->prompt = "... ";
    }
    remember(le, line);
    return 1;
}
