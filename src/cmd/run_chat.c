/* `skua run` without a prompt: a chat on the terminal. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cmd/inspect_value.h"
#include "cmd/lineedit.h"
#include "cmd/run_answer.h"

static const char chat_help[] =
    "  /help           this list\n"
    "  /reset          forget the conversation (the system message stays)\n"
    "  /system TEXT    set the system message (without TEXT: remove it)\n"
    "  /save FILE      write the conversation as JSON\n"
    "  /load FILE      replace the conversation by a saved one\n"
    "  /stats          figures of the last answer, of memory and of drafting\n"
    "  /exit           leave (or Ctrl-D)\n"
    "A line that ends in \\ goes on in the next one. Ctrl-C stops an answer.\n";

struct chat {
    struct run *run;
    struct chatlog log;
    bool done;
};

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    run_interrupted = 1;
}

static void print_error(const skua_error *err)
{
    fprintf(stderr, "skua run: %s\n", err->message);
}

static void print_hello(const struct run *r)
{
    skua_engine_info info = skua_engine_get_info(r->engine);
    const char *name = *info.name ? info.name : info.path;
    struct strbuf safe = {0};
    value_append_escaped(&safe, name, strlen(name));
    fprintf(stderr, "%s (%s), %s kernels, %d threads. /help tells the commands.\n", strbuf_str(&safe), info.arch, info.kernels,
            info.n_threads);
    strbuf_free(&safe);
}

static void print_stats(const struct run *r)
{
    skua_engine_info info = skua_engine_get_info(r->engine);
    run_figures(r);
    fprintf(stderr, "context %d of %d tokens; session %.1f MB, workspace %.1f MB, file %.1f MB; %s kernels, %d threads, KV cache %s\n",
            skua_session_length(r->session), skua_session_ctx(r->session), (double)skua_session_bytes(r->session) / 1e6,
            (double)info.workspace_bytes / 1e6, (double)info.file_bytes / 1e6, info.kernels, info.n_threads, info.kv_type);
    const skua_draft_stats drafts = skua_session_draft_stats(r->session);
    struct strbuf out = {0};
    if (drafts.n_sources)
        draft_stats_text(&drafts, &out);
    fputs(strbuf_str(&out), stderr);
    strbuf_free(&out);
}

/* A line that begins with a slash. Problems are told, and the chat goes on. */
static void command(struct chat *c, const char *line)
{
    size_t n = strcspn(line, " \t");
    const char *arg = line + n;
    skua_error err = {0};
    int rc = 0;
    while (isspace((unsigned char)*arg))
        arg++;
    if (!strncmp(line, "/help", n) || n == 1)
        fputs(chat_help, stderr);
    else if (n == 6 && !strncmp(line, "/reset", n))
        chatlog_reset(&c->log);
    else if (n == 7 && !strncmp(line, "/system", n))
        rc = chatlog_set_system(&c->log, *arg ? arg : NULL, strlen(arg), &err);
    else if (n == 5 && (!strncmp(line, "/save", n) || !strncmp(line, "/load", n))) {
        if (!*arg)
            rc = error_set(&err, SKUA_EARG, "%.5s needs a file name", line);
        else if (line[1] == 's')
            rc = chatlog_save(&c->log, arg, &err);
        else
            rc = chatlog_load(&c->log, arg, &err);
        if (!rc)
            fprintf(stderr, "%zu messages %s %s\n", chatlog_len(&c->log), line[1] == 's' ? "written to" : "read from", arg);
    } else if (n == 6 && !strncmp(line, "/stats", n))
        print_stats(c->run);
    else if (n == 5 && (!strncmp(line, "/exit", n) || !strncmp(line, "/quit", n)))
        c->done = true;
    else
        rc = error_set(&err, SKUA_EARG, "unknown command %.*s (see /help)", (int)n, line);
    if (rc)
        print_error(&err);
}

/* One user message and its answer. On failure the conversation is as it was, and the session starts anew next time if it must. */
static void turn(struct chat *c, const char *text, size_t n)
{
    struct run *r = c->run;
    struct chat_prompt prompt = {0};
    skua_error err = {0};
    json_t *args = NULL;
    strbuf_clear(&r->answer); /* of the last turn */
    strbuf_clear(&r->reasoning);
    run_interrupted = 0;
    int rc = chatlog_add(&c->log, "user", text, n, NULL, 0, &err);
    if (rc) {
        print_error(&err);
        return;
    }
    rc = run_template_args(r, &args, &err);
    if (!rc)
        rc = chat_prompt_build(r->engine, c->log.messages, NULL, args, &prompt, &err);
    bool asked = !rc;
    if (asked) {
        rc = run_answer(r, &prompt.ids, prompt.opens_thinking, &err);
        putchar('\n');
        fflush(stdout);
    }
    json_decref(args);
    chat_prompt_free(&prompt);
    if (rc && rc != SKUA_ECANCELED)
        print_error(&err);
    if (run_interrupted)
        fputs("(stopped)\n", stderr);
    /* keep what was said; a turn without any answer is taken back */
    rc = 0;
    bool said = r->answer.len || r->reasoning.len;
    if (said)
        rc = chatlog_add(&c->log, "assistant", strbuf_str(&r->answer), r->answer.len, r->reasoning.len ? r->reasoning.data : NULL,
                         r->reasoning.len, &err);
    if (rc)
        print_error(&err);
    if (rc || !said)
        chatlog_pop(&c->log);
    if (asked)
        run_figures(r);
}

int run_chat(struct run *r, skua_error *err)
{
    struct chat c = {.run = r};
    struct lineedit *le = NULL;
    struct strbuf line = {0};
    int rc = chatlog_init(&c.log, err);
    if (!rc && r->opt.system)
        rc = chatlog_set_system(&c.log, r->opt.system, strlen(r->opt.system), err);
    if (!rc)
        rc = lineedit_open(&le, err);
    if (!rc && r->term.in_tty)
        print_hello(r);
    /* for the whole chat: a Ctrl-C that comes a moment after the answer must not end the program either. A write must not fail for it. */
    struct sigaction now = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    sigaction(SIGINT, &now, &before);
    while (!rc && !c.done) {
        run_interrupted = 0;
        int got = lineedit_read(le, "> ", &line, err);
        if (got == 0 && run_interrupted) /* the signal, not the end of input, has ended the reading */
            continue;
        if (got == SKUA_ELIMIT) {
            print_error(err);
            continue;
        }
        if (got <= 0) {
            rc = got;
            break;
        }
        const char *text = strbuf_str(&line);
        if (text[strspn(text, " \t\n")] == '\0')
            continue;
        if (*text == '/')
            command(&c, text);
        else
            turn(&c, text, line.len);
    }
    sigaction(SIGINT, &before, NULL);
    lineedit_close(le);
    strbuf_free(&line);
    chatlog_free(&c.log);
    return rc;
}
