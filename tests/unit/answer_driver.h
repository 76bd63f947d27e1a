/* A batcher for the tests of answers: it gives tokens of a script, or any that the masks allow, and keeps to the contract of hooks. */
#ifndef SKUA_TESTS_ANSWER_DRIVER_H
#define SKUA_TESTS_ANSWER_DRIVER_H

#include "api/answer.h"
#include "base/rng.h"
#include "tok/tokenizer.h"
#include "support/support.h"
#include "support/tok_vocab.h"
#include "unit/tool_cases.h"

static const char *const driver_words[] = {
    "</", "think", ">\n", ">\n\n", ">\n\n{", ">x", "k>", "nk>\n", "nk>\n\nx", "\n\n", "<function", "=get", "=get>\n", "get>", "get>\n<",
    ">\n<", "<parameter=",
    "</parameter>", "</parameter>\n", "</function>", "city", "content", "{\"", "\":", "\"}", "true", "false", "null", "12", " 1", "\r\n",
    "x{", "a b", "ST", "STOP",
    "\xE2\x82", "\xAC", "\n</", "\n<parameter", ">x\n", "[1", "}\n",
};
#define DRIVER_WORDS (sizeof driver_words / sizeof *driver_words)
enum { WORD = 256, THINK_TAG = WORD + DRIVER_WORDS, END_THINK_TAG, CALL_TAG, END_CALL_TAG, END_TOKEN, DRIVER_VOCAB };

static struct tokenizer *driver_tokenizer(void)
{
    static const char *const tags[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};
    struct tok_vocab v;
    struct tokenizer *t = NULL;
    skua_error err;
    char text[64];
    tok_vocab_init(&v);
    for (size_t i = 0; i < DRIVER_WORDS; i++)
        tok_list_add(&v.tokens, &v.n_tokens, text, tok_to_alphabet(driver_words[i], strlen(driver_words[i]), text), 1);
    for (size_t i = 0; i < 4; i++)
        tok_vocab_add(&v, tags[i], 4);
    tok_vocab_add(&v, "<|im_end|>", 3);
    struct tokenizer_source source = tok_vocab_source(&v, "qwen35");
    source.eos = END_TOKEN;
    if (tokenizer_new(&t, &source, &err))
        printf("%s\n", err.message);
    tok_vocab_free(&v);
    return t;
}

struct driver {
    const struct tokenizer *t;
    struct answer *answer;
    struct batch_next next;
    const int32_t *forced;     /* left of it */
    int32_t n_forced;
    struct tool_transcript transcript;
    struct strbuf text, args, tokens; /* visible text; arguments of all complete calls, one a line; bytes of all tokens that counted */
    struct strbuf logprobs;    /* bytes of the tokens that events carried */
    int32_t n_tokens, n_forced_in_all, n_logprobs;
    bool logprob_wrong, bad_json, not_allowed, finished;
    const char *last_name;
    struct api_choice_end end;
    int rc;
    skua_error err;
};

static int driver_sink(void *user, const struct api_event *e, skua_error *err)
{
    struct driver *d = user;
    (void)err;
    transcript_add(&d->transcript, e->kind, e->text, e->n, e->name, e->complete);
    if (e->kind == API_EVENT_TEXT)
        strbuf_append(&d->text, e->text, e->n);
    for (size_t i = 0; i < e->n_logprobs; i++) {
        const struct api_token_logprob *l = &e->logprobs[i];
        strbuf_append(&d->logprobs, l->bytes, l->n);
        d->n_logprobs++;
        d->logprob_wrong |= l->logprob != -0.5 * l->id || l->n_top != 1 || l->top[0].id != l->id;
    }
    if (e->kind == API_EVENT_CALL_END && !e->custom) {
        json_t *v = json_loadb(e->text, e->n, 0, NULL);
        d->bad_json |= !json_is_object(v);
        json_decref(v);
    }
    if (e->kind == API_EVENT_CALL_END && e->complete) {
        d->last_name = e->name;
        strbuf_append(&d->args, e->text, e->n);
        strbuf_putc(&d->args, '\n');
    }
    return 0;
}

static void driver_take_next(struct driver *d)
{
    if (d->next.n_forced) {
        d->forced = d->next.forced;
        d->n_forced = d->next.n_forced;
    }
    d->finished |= d->next.finish != SKUA_FINISH_NONE;
}

static int driver_begin(struct driver *d, const struct tokenizer *t, const struct answer_plan *plan)
{
    *d = (struct driver){.t = t, .transcript = {.open = -1}};
    d->rc = answer_new(plan, driver_sink, d, &d->answer, &d->err);
    if (!d->rc)
        d->rc = answer_first(d->answer, &d->next, &d->err);
    if (!d->rc)
        driver_take_next(d);
    return d->rc;
}

static bool driver_allows(const struct driver *d, int32_t id)
{
    return !d->next.mask || d->next.mask[id / 64] >> (id & 63) & 1;
}

/* Forced tokens go before id; true: id itself was given. */
static bool driver_token(struct driver *d, int32_t id)
{
    bool forced = d->n_forced > 0, own = !forced;
    if (forced) {
        id = *d->forced++;
        d->n_forced--;
        d->n_forced_in_all++;
    } else {
        d->not_allowed |= !driver_allows(d, id);
    }
    for (int call = 0; call < 2 && !d->rc; call++) {
        struct token_logprob top = {id, -0.5 * id};
        struct batch_logprob l = {-0.5 * id, &top, 1};
        struct batch_token token = {.id = id, .ends = tokenizer_is_eog(d->t, (uint32_t)id), .logprob = &l};
        int32_t replace = -1;
        token.bytes = tokenizer_piece(d->t, (uint32_t)id, false, &token.n);
        d->next = (struct batch_next){0};
        d->rc = answer_token(d->answer, &token, &replace, &d->next, &d->err);
        if (!d->rc && replace >= 0 && call == 0) {
            id = replace;
            continue;
        }
        if (!d->rc && replace >= 0)
            d->rc = error_set(&d->err, SKUA_ESTATE, "replaced twice");
        if (!token.ends) {
            strbuf_append(&d->tokens, token.bytes, token.n);
            d->n_tokens++;
        } else {
            d->finished = true;
        }
        break;
    }
    if (!d->rc)
        driver_take_next(d);
    return own;
}

static int driver_end(struct driver *d, enum skua_finish finish)
{
    if (!d->rc)
        d->rc = answer_finish(d->answer, finish, &d->end, &d->err);
    transcript_close(&d->transcript);
    return d->rc;
}

static void driver_free(struct driver *d)
{
    answer_free(d->answer);
    strbuf_free(&d->transcript.text);
    strbuf_free(&d->text);
    strbuf_free(&d->args);
    strbuf_free(&d->tokens);
    strbuf_free(&d->logprobs);
}

/* A token that s begins with: tags as they are mostly, else any. */
static int32_t driver_segment(const struct driver *d, const char *s, size_t n, uint64_t *rng, size_t *len)
{
    int32_t fits[8], n_fits = 0;
    size_t lens[8];
    for (int32_t id = WORD; id < END_TOKEN && n_fits < 7; id++) {
        const char *bytes = tokenizer_piece(d->t, (uint32_t)id, false, len);
        if (*len && *len <= n && memcmp(bytes, s, *len) == 0) {
            lens[n_fits] = *len;
            fits[n_fits++] = id;
        }
    }
    lens[n_fits] = 1;
    fits[n_fits++] = (unsigned char)*s;
    int32_t k = (int32_t)(rng_next(rng) % (uint64_t)n_fits);
    *len = lens[k];
    return fits[k];
}

/* A whole answer of these bytes in random tokens; then an end token (n_max < 0) or the limit. Ends early when told so. */
static void driver_script(struct driver *d, const char *s, size_t n, bool cut, uint64_t *rng)
{
    for (size_t at = 0, len; at < n && !d->finished && !d->rc;) {
        int32_t id = driver_segment(d, s + at, n - at, rng, &len);
        at += driver_token(d, id) ? len : 0;
    }
    while (d->n_forced && !d->finished && !d->rc)
        driver_token(d, 0);
    while (!cut && !d->finished && !d->rc)
        driver_token(d, END_TOKEN);
}

#endif
