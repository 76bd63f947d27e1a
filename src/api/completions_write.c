/* Text completions, streamed and whole: spec/api.md 7. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/json_text.h"
#include "api/usage.h"
#include "api/writer.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sample/logprob.h"

/* Log-probabilities of a run of tokens: the insides of the four lists, with commas between the elements. */
struct scores {
    struct strbuf tokens, values, tops, offsets;
    size_t n, n_chars; /* tokens; characters of the text so far */
};

struct choice {
    struct strbuf text;      /* whole answers */
    struct scores scores;    /* of the next chunk in streams */
    double logprob;          /* sum over its tokens, for best_of */
    size_t n_tokens;
    bool begun, ended;       /* begun: what goes before the answer (echo) is written */
    enum api_finish finish;
    char *stop_string;
};

struct completions_writer {
    struct api_writer base;
    struct choice *choices;  /* [n_prompts * per_prompt] */
    struct scores *prompts;  /* [n_prompts], with echo and logprobs */
    int32_t n, per_prompt, n_ended, held;
    bool begun, comment;
    double begin_seconds;
};

static int status(const struct api_writer *w) { return strbuf_failed(&w->out) ? SKUA_ENOMEM : 0; }

static bool shows_logprobs(const struct api_request *r) { return r->n_logprobs >= 0 && !r->hide_logprobs; }

/* ---- log-probabilities ---- */

static bool scores_failed(const struct scores *s)
{
    return strbuf_failed(&s->tokens) || strbuf_failed(&s->values) || strbuf_failed(&s->tops) || strbuf_failed(&s->offsets);
}

static void scores_clear(struct scores *s)
{
    strbuf_clear(&s->tokens);
    strbuf_clear(&s->values);
    strbuf_clear(&s->tops);
    strbuf_clear(&s->offsets);
    s->n = 0;
}

static void scores_free(struct scores *s)
{
    strbuf_free(&s->tokens);
    strbuf_free(&s->values);
    strbuf_free(&s->tops);
    strbuf_free(&s->offsets);
}

/* {"text": value, ...}: the best tokens, and the chosen one if it is not among them. A text that two tokens share stands once. */
static void put_top(struct strbuf *b, const struct api_env *env, int32_t id, double logprob, const struct token_logprob *top, int32_t n_top)
{
    size_t ends[32], n = 0;
    struct strbuf names = {0};
    bool chosen = false;
    strbuf_putc(b, '{');
    for (int32_t i = 0; i <= n_top && n < sizeof ends / sizeof *ends; i++) {
        struct token_logprob t = i < n_top ? top[i] : (struct token_logprob){id, logprob};
        size_t len, begin = n ? ends[n - 1] : 0;
        bool known = i == n_top && chosen;
        const char *bytes = api_token_bytes(env, t.id, &len);
        chosen |= t.id == id;
        api_json_string(&names, bytes, len);
        if (strbuf_failed(&names))
            break;
        for (size_t k = 0; k < n && !known; k++) {
            size_t from = k ? ends[k - 1] : 0;
            known = ends[k] - from == names.len - begin && memcmp(names.data + from, names.data + begin, ends[k] - from) == 0;
        }
        if (known) {
            names.len = begin;
            continue;
        }
        strbuf_puts(b, n ? "," : "");
        strbuf_append(b, names.data + begin, names.len - begin);
        strbuf_putc(b, ':');
        api_json_double(b, t.logprob >= LOGPROB_FLOOR ? t.logprob : LOGPROB_FLOOR);
        ends[n++] = names.len;
    }
    strbuf_putc(b, '}');
    b->failed |= strbuf_failed(&names);
    strbuf_free(&names);
}

/* logprob NULL: the first token of a prompt, which nothing predicts. */
static void scores_add(struct scores *s, const struct api_env *env, int32_t id, const double *logprob, const struct token_logprob *top,
                       int32_t n_top)
{
    size_t len;
    const char *bytes = api_token_bytes(env, id, &len), *comma = s->n++ ? "," : "";
    strbuf_puts(&s->tokens, comma);
    api_json_string(&s->tokens, bytes, len);
    strbuf_puts(&s->values, comma);
    strbuf_puts(&s->tops, comma);
    if (logprob) {
        api_json_double(&s->values, *logprob >= LOGPROB_FLOOR ? *logprob : LOGPROB_FLOOR);
        put_top(&s->tops, env, id, *logprob, top, n_top);
    } else {
        strbuf_puts(&s->values, "null");
        strbuf_puts(&s->tops, "null");
    }
    strbuf_printf(&s->offsets, "%s%zu", comma, s->n_chars);
    for (size_t i = 0; i < len; i++)
        s->n_chars += ((unsigned char)bytes[i] & 0xC0) != 0x80;
}

/* One of the four lists: the prompt's part, if any, and the answer's. */
static void put_list(struct strbuf *b, const char *name, const struct strbuf *first, const struct strbuf *second)
{
    strbuf_printf(b, "\"%s\":[", name);
    if (first)
        strbuf_append(b, first->data, first->len);
    strbuf_puts(b, first && first->len && second->len ? "," : "");
    strbuf_append(b, second->data, second->len);
    strbuf_putc(b, ']');
}

static void put_scores(struct strbuf *b, const struct scores *p, const struct scores *s)
{
    if (!s->n && !(p && p->n)) {
        strbuf_puts(b, "null");
        return;
    }
    strbuf_putc(b, '{');
    put_list(b, "tokens", p ? &p->tokens : NULL, &s->tokens);
    strbuf_putc(b, ',');
    put_list(b, "token_logprobs", p ? &p->values : NULL, &s->values);
    strbuf_putc(b, ',');
    put_list(b, "top_logprobs", p ? &p->tops : NULL, &s->tops);
    strbuf_putc(b, ',');
    put_list(b, "text_offset", p ? &p->offsets : NULL, &s->offsets);
    strbuf_putc(b, '}');
}

/* ---- choices ---- */

static void put_head(struct api_writer *w)
{
    struct strbuf *b = &w->out;
    strbuf_puts(b, "{\"id\":");
    api_json_text(b, w->id);
    strbuf_printf(b, ",\"object\":\"text_completion\",\"created\":%lld,\"model\":", (long long)w->created);
    api_json_text(b, w->request->model);
    strbuf_puts(b, ",\"system_fingerprint\":");
    api_json_text(b, w->env->fingerprint);
}

static void put_finish(struct strbuf *b, const struct choice *c)
{
    bool cut = c->finish == API_FINISH_LENGTH || c->finish == API_FINISH_CONTEXT;
    strbuf_printf(b, ",\"finish_reason\":\"%s\",\"stop_reason\":", cut ? "length" : "stop");
    api_json_text(b, c->stop_string);
}

/* The prompt's text, as its tokens print it. */
static void append_prompt(struct strbuf *b, const struct api_env *env, const struct api_prompt *p)
{
    for (int32_t i = 0; i < p->n; i++) {
        size_t len;
        const char *bytes = api_token_bytes(env, p->ids[i], &len);
        strbuf_append(b, bytes, len);
    }
}

static void chunk(struct completions_writer *cw, int32_t index, const char *text, size_t n, const struct scores *prompt, bool last,
                  const struct api_usage *final)
{
    struct api_writer *w = &cw->base;
    struct choice *c = &cw->choices[index];
    strbuf_puts(&w->out, "data: ");
    put_head(w);
    strbuf_printf(&w->out, ",\"choices\":[{\"index\":%d,\"text\":", index);
    api_json_string(&w->out, text, n);
    strbuf_puts(&w->out, ",\"logprobs\":");
    put_scores(&w->out, prompt, &c->scores);
    scores_clear(&c->scores);
    if (last)
        put_finish(&w->out, c);
    else
        strbuf_puts(&w->out, ",\"finish_reason\":null");
    strbuf_puts(&w->out, "}]");
    api_chunk_json(&w->out, w->env, w->request, w->now, final);
    strbuf_puts(&w->out, "}\n\n");
}

/* Before a choice's first text: its echo. The prompt is scored by then. */
static int begin_choice(struct completions_writer *cw, int32_t index)
{
    const struct api_request *r = cw->base.request;
    struct choice *c = &cw->choices[index];
    int32_t prompt = index / cw->per_prompt;
    if (c->begun || !r->echo)
        return 0;
    c->begun = true;
    if (cw->prompts)
        c->scores.n_chars = cw->prompts[prompt].n_chars;
    if (r->stream) {
        struct strbuf text = {0};
        append_prompt(&text, cw->base.env, &r->prompts[prompt]);
        chunk(cw, index, strbuf_str(&text), text.len, cw->prompts ? &cw->prompts[prompt] : NULL, false, NULL);
        bool failed = strbuf_failed(&text);
        strbuf_free(&text);
        return failed ? SKUA_ENOMEM : status(&cw->base);
    }
    append_prompt(&c->text, cw->base.env, &r->prompts[prompt]);
    return strbuf_failed(&c->text) ? SKUA_ENOMEM : 0;
}

/* ---- operations ---- */

static int completions_begin(struct api_writer *w, const struct api_usage *u)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    const struct api_request *r = w->request;
    (void)u;
    if (cw->begun)
        return 0;
    cw->per_prompt = r->best_of > r->n ? r->best_of : r->n;
    cw->n = (int32_t)r->n_prompts * cw->per_prompt;
    cw->choices = mem_calloc((size_t)cw->n, sizeof *cw->choices);
    cw->begin_seconds = clock_seconds();
    if (!cw->choices)
        return SKUA_ENOMEM;
    if (r->echo && shows_logprobs(r)) {
        cw->prompts = mem_calloc(r->n_prompts, sizeof *cw->prompts);
        if (!cw->prompts)
            return SKUA_ENOMEM;
        for (size_t i = 0; i < r->n_prompts; i++)
            scores_add(&cw->prompts[i], w->env, r->prompts[i].ids[0], NULL, NULL, 0);
    }
    cw->begun = true;
    return status(w);
}

static int completions_progress(struct api_writer *w, const struct api_usage *u, int32_t n_done, int32_t n_total)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    if (!w->request->stream || !w->request->return_progress)
        return 0;
    strbuf_puts(&w->out, "data: ");
    put_head(w);
    strbuf_puts(&w->out, ",\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":null}]");
    strbuf_puts(&w->out, w->request->include_usage ? ",\"usage\":null" : "");
    api_progress_json(&w->out, u, n_done, n_total, clock_seconds() - cw->begin_seconds);
    strbuf_puts(&w->out, "}\n\n");
    return status(w);
}

static int completions_prompt_token(struct api_writer *w, int32_t prompt, int32_t i, int32_t id, const struct batch_logprob *l)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    (void)i;
    if (!cw->prompts)
        return 0;
    struct scores *s = &cw->prompts[prompt];
    scores_add(s, w->env, id, &l->logprob, l->top, l->n_top);
    return scores_failed(s) ? SKUA_ENOMEM : 0;
}

static int completions_event(struct api_writer *w, int32_t choice, const struct api_event *e)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    struct choice *c = &cw->choices[choice];
    int rc = begin_choice(cw, choice);
    if (rc || e->kind != API_EVENT_TEXT)
        return rc;
    for (size_t i = 0; i < e->n_logprobs; i++) {
        const struct api_token_logprob *l = &e->logprobs[i];
        c->logprob += l->logprob >= LOGPROB_FLOOR ? l->logprob : LOGPROB_FLOOR;
        c->n_tokens++;
        if (shows_logprobs(w->request))
            scores_add(&c->scores, w->env, l->id, &l->logprob, l->top, l->n_top);
    }
    if (scores_failed(&c->scores))
        return SKUA_ENOMEM;
    if (!w->request->stream)
        strbuf_append(&c->text, e->text, e->n);
    else if (e->n || c->scores.n)
        chunk(cw, choice, e->text, e->n, NULL, false, NULL);
    return strbuf_failed(&c->text) ? SKUA_ENOMEM : status(w);
}

static int completions_choice_end(struct api_writer *w, int32_t choice, const struct api_choice_end *end)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    struct choice *c = &cw->choices[choice];
    int rc = begin_choice(cw, choice);
    c->ended = true;
    c->finish = end->finish;
    if (end->stop_string && !(c->stop_string = mem_strdup(end->stop_string)))
        return SKUA_ENOMEM;
    if (rc || !w->request->stream)
        return rc;
    if (++cw->n_ended == cw->n)
        cw->held = choice;
    else
        chunk(cw, choice, "", 0, NULL, true, NULL);
    return status(w);
}

static int completions_keepalive(struct api_writer *w)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    enum api_keepalive how = w->env->chat_keepalive;
    if (!w->request->stream)
        return 0;
    cw->comment = how == API_KEEPALIVE_BOTH ? !cw->comment : how == API_KEEPALIVE_COMMENT;
    if (cw->comment || !cw->begun || cw->choices[0].ended)
        strbuf_puts(&w->out, ": keep-alive\n\n");
    else
        chunk(cw, 0, "", 0, NULL, false, NULL);
    return status(w);
}

/* The better one first; of equals the earlier. */
static int better(const void *a, const void *b)
{
    const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;
    double p = x->n_tokens ? x->logprob / (double)x->n_tokens : 0, q = y->n_tokens ? y->logprob / (double)y->n_tokens : 0;
    return p != q ? (p < q) - (p > q) : (x > y) - (x < y);
}

static void put_body(struct completions_writer *cw, const struct api_usage *u)
{
    struct api_writer *w = &cw->base;
    const struct api_request *r = w->request;
    struct choice *order[16];
    put_head(w);
    strbuf_puts(&w->out, ",\"choices\":[");
    for (int32_t p = 0; p < (int32_t)r->n_prompts; p++) {
        for (int32_t k = 0; k < cw->per_prompt; k++)
            order[k] = &cw->choices[p * cw->per_prompt + k];
        if (cw->per_prompt > r->n)
            qsort(order, (size_t)cw->per_prompt, sizeof *order, better);
        for (int32_t k = 0; k < r->n; k++) {
            struct choice *c = order[k];
            strbuf_printf(&w->out, "%s{\"index\":%d,\"text\":", p + k ? "," : "", p * r->n + k);
            api_json_string(&w->out, strbuf_str(&c->text), c->text.len);
            strbuf_puts(&w->out, ",\"logprobs\":");
            put_scores(&w->out, cw->prompts ? &cw->prompts[p] : NULL, &c->scores);
            put_finish(&w->out, c);
            strbuf_putc(&w->out, '}');
        }
    }
    strbuf_puts(&w->out, "],\"usage\":");
    api_usage_json(&w->out, u);
    api_report_json(&w->out, w->env, w->request, u);
    strbuf_putc(&w->out, '}');
}

static int completions_end(struct api_writer *w, const struct api_usage *u)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    if (!w->request->stream) {
        put_body(cw, u);
        return status(w);
    }
    if (cw->held >= 0)
        chunk(cw, cw->held, "", 0, NULL, true, u);
    if (w->request->include_usage) {
        strbuf_puts(&w->out, "data: ");
        put_head(w);
        strbuf_puts(&w->out, ",\"choices\":[],\"usage\":");
        api_usage_json(&w->out, u);
        strbuf_puts(&w->out, "}\n\n");
    }
    strbuf_puts(&w->out, "data: [DONE]\n\n");
    return status(w);
}

static int completions_fail(struct api_writer *w, const struct api_error *e)
{
    bool streams = w->request->stream && ((struct completions_writer *)w)->begun;
    strbuf_puts(&w->out, streams ? "data: " : "");
    api_error_body(API_COMPLETIONS, e, w->request_id, &w->out);
    strbuf_puts(&w->out, streams ? "\n\n" : "");
    return status(w);
}

static void completions_free(struct api_writer *w)
{
    struct completions_writer *cw = (struct completions_writer *)w;
    for (int32_t i = 0; cw->choices && i < cw->n; i++) {
        strbuf_free(&cw->choices[i].text);
        scores_free(&cw->choices[i].scores);
        mem_free(cw->choices[i].stop_string);
    }
    for (size_t i = 0; cw->prompts && i < w->request->n_prompts; i++)
        scores_free(&cw->prompts[i]);
    mem_free(cw->choices);
    mem_free(cw->prompts);
    mem_free(cw);
}

struct api_writer *completions_writer_new(void)
{
    static const struct api_writer_ops ops = {
        .begin = completions_begin, .progress = completions_progress, .event = completions_event,
        .prompt_token = completions_prompt_token, .choice_end = completions_choice_end, .keepalive = completions_keepalive,
        .end = completions_end, .fail = completions_fail, .free = completions_free,
    };
    struct completions_writer *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->base.ops = &ops;
    w->held = -1;
    return &w->base;
}
