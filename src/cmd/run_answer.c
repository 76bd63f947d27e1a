/* Producing one answer on the terminal; see run_answer.h. */
#include "cmd/run_answer.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "cmd/opts.h"
#include "engine/sampling.h"
#include "engine/think_split.h"

volatile sig_atomic_t run_interrupted;

/* Where the pieces of an answer go. */
struct output {
    struct run *run;
    struct term_printer out, thoughts;
    struct think_split split;
    struct strbuf reasoning, answer; /* of one event */
    struct progress progress;
    bool show_thinking, raw, dimmed, wrote_thoughts, failed;
    int write_error;                 /* errno of the first write to standard output that failed */
};

/* Switching dim text on and off goes around the printer, which would make the sequences visible. */
static void set_dim(struct output *o, bool on)
{
    if (o->dimmed == on)
        return;
    fputs(on ? term_dim_on(o->run->term.err_colour) : term_dim_off(o->run->term.err_colour), stderr);
    o->dimmed = on;
}

static void show(struct output *o)
{
    struct run *r = o->run;
    if (o->reasoning.len) {
        strbuf_append(&r->reasoning, o->reasoning.data, o->reasoning.len);
        if (o->show_thinking) {
            set_dim(o, true);
            term_print(&o->thoughts, o->reasoning.data, o->reasoning.len);
            o->wrote_thoughts = true;
        }
    }
    if (o->answer.len) {
        if (o->wrote_thoughts && !r->answer.len) {
            set_dim(o, false);
            fputs("\n\n", stderr);
        }
        strbuf_append(&r->answer, o->answer.data, o->answer.len);
        if (!o->write_error && !term_print(&o->out, o->answer.data, o->answer.len))
            o->write_error = errno ? errno : EIO;
    }
    o->failed |= strbuf_failed(&o->reasoning) || strbuf_failed(&o->answer) || strbuf_failed(&r->reasoning) || strbuf_failed(&r->answer);
    strbuf_clear(&o->reasoning);
    strbuf_clear(&o->answer);
}

static bool on_event(void *user, const skua_event *event)
{
    struct output *o = user;
    progress_end(&o->progress);
    if (o->raw)
        strbuf_append(&o->answer, event->text, event->n);
    else
        think_split_push(&o->split, event->text, event->n, &o->reasoning, &o->answer);
    show(o);
    return !run_interrupted && !o->write_error && !o->failed;
}

static bool on_progress(void *user, int32_t n_done, int32_t n_total)
{
    (void)n_total;
    progress_set(&((struct output *)user)->progress, (uint64_t)n_done);
    return !run_interrupted;
}

/* How many tokens at the beginning of the prompt the session already holds. A recurrent state cannot be cut, so it is all that the
   session holds or nothing; at least one token must be left to evaluate. */
static int32_t reusable(const skua_session *s, const struct token_vec *prompt)
{
    int32_t held = skua_session_length(s);
    if (!held) /* then there may be no array of tokens either */
        return 0;
    return (size_t)held < prompt->n && memcmp(skua_session_tokens(s), prompt->ids, (size_t)held * sizeof *prompt->ids) == 0 ? held : 0;
}

static void on_note(void *user, const char *note)
{
    (void)user;
    opts_warn("run", "%s", note);
}

static void on_round(void *user, const skua_draft_round *round)
{
    const struct output *o = user;
    struct strbuf line = {0};
    draft_trace_json(round, &line);
    if (strbuf_failed(&line))
        o->run->trace_lacks++;
    else
        fputs(strbuf_str(&line), o->run->trace);
    strbuf_free(&line);
}

int run_answer(struct run *r, const struct token_vec *prompt, bool thinking, skua_error *err)
{
    struct output o = {.run = r, .raw = r->opt.raw, .show_thinking = r->opt.show_thinking || (r->term.err_tty && r->term.out_tty)};
    struct sampler_settings settings;
    strbuf_clear(&r->reasoning);
    strbuf_clear(&r->answer);
    r->last = (skua_result){0};
    if (!prompt->n)
        return error_set(err, SKUA_EARG, "the prompt is empty");
    if (prompt->n > INT32_MAX / 2)
        return error_set(err, SKUA_ELIMIT, "the prompt has %zu tokens; more than a session can hold", prompt->n);
    int rc = engine_resolve_sampling(r->engine, thinking, &r->opt.sampling, &settings, err);
    if (rc)
        return rc;
    r->n_reused = reusable(r->session, prompt);
    if (!r->n_reused)
        skua_session_reset(r->session);
    skua_generate_params p = {.sampling = settings.params, .max_tokens = (int32_t)r->opt.max_tokens, .stop = r->opt.stop,
                              .n_stop = r->opt.n_stop, .special = r->opt.special, .on_note = on_note, .rejection = r->opt.draft.rejection,
                              .on_round = r->trace ? on_round : NULL};
    term_printer_init(&o.out, stdout, r->term.out_tty);
    term_printer_init(&o.thoughts, stderr, r->term.err_tty);
    think_split_init(&o.split, thinking);
    progress_begin(&o.progress, "reading the prompt", prompt->n - (size_t)r->n_reused);
    rc = skua_generate(r->session, (const int32_t *)prompt->ids + r->n_reused, (int32_t)prompt->n - r->n_reused, &p, on_event, on_progress,
                       &o, &r->last, err);
    progress_end(&o.progress);
    think_split_finish(&o.split, &o.reasoning, &o.answer);
    show(&o);
    set_dim(&o, false);
    term_print_end(&o.thoughts);
    if (!term_print_end(&o.out) && !o.write_error)
        o.write_error = errno ? errno : EIO;
    strbuf_free(&o.reasoning);
    strbuf_free(&o.answer);
    if (!rc && o.write_error)
        rc = error_set(err, SKUA_EIO, "cannot write to standard output: %s", strerror(o.write_error));
    if (!rc && o.failed)
        rc = error_nomem(err, "answer", r->answer.len);
    return rc;
}

void run_figures(const struct run *r)
{
    const skua_result *g = &r->last;
    int32_t steps = g->n_generated;
    if (r->opt.quiet || (g->finish == SKUA_FINISH_NONE && !g->n_generated)) /* nothing was computed that could be counted */
        return;
    fprintf(stderr, "prompt %d tokens, %.1f t/s", g->n_prompt + r->n_reused, g->prompt_seconds > 0 ? g->n_prompt / g->prompt_seconds : 0.0);
    if (r->n_reused)
        fprintf(stderr, " (%d reused)", r->n_reused);
    fprintf(stderr, "; generated %d tokens, %.1f t/s; end: %s\n", steps, g->generate_seconds > 0 ? steps / g->generate_seconds : 0.0,
            g->finish == SKUA_FINISH_NONE ? "an error" : skua_finish_name(g->finish));
}

int run_template_args(const struct run *r, json_t **args, skua_error *err)
{
    *args = NULL;
    if (r->opt.think == THINK_AS_TEMPLATE)
        return 0;
    *args = json_pack("{s:b}", "enable_thinking", r->opt.think == THINK_ON);
    return *args ? 0 : error_nomem(err, "template variables", 0);
}
