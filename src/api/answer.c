/* The answer machine; see answer.h. Bytes of tokens go to the parser (tool_parse.h), what it finds goes out (answer_out.c), and the rule
 * for the next token changes where thinking ends and calls begin and end. Where a rule begins inside a token and does not allow the rest
 * of it, the token is replaced by one for the part before, so that nothing is read that is not allowed. */
#include <string.h>

#include "api/answer_internal.h"
#include "base/clock.h"
#include "base/mem.h"

#define MAX_BREAKS 2 /* line breaks between the end of thinking or of a call and structured text */

static bool is_thinking(const struct answer *a) { return a->parser.state == PARSE_THINKING; }

/* ---- rules ---- */

static void relax(struct answer *a)
{
    atomic_fetch_add(&a->plan->shared->schema_relaxed, 1);
    a->rule = RULE_NONE;
    grammar_state_free(a->text_state);
    grammar_state_free(a->call_state);
    a->text_state = a->call_state = NULL;
}

/* Outside of thinking and calls. */
static void begin_text_rule(struct answer *a, int breaks)
{
    bool must_call = a->plan->r->tool_choice == API_TOOLS_REQUIRED && a->plan->tools.n && !a->parser.n_calls;
    a->rule = must_call ? RULE_CALL_FIRST : a->text_state ? RULE_TEXT : RULE_NONE;
    a->breaks_left = a->rule == RULE_NONE ? 0 : breaks;
}

static void end_call_rule(struct answer *a)
{
    grammar_state_free(a->call_state);
    a->call_state = NULL;
    a->rule = RULE_NONE;
}

/* From behind <tool_call>; read: what of the call was read already, by a model that left that out. */
static int begin_call_rule(struct answer *a, const struct tool_def *read)
{
    struct strbuf head = {0};
    int rc = grammar_state_new(a->plan->call, a->plan->shared->vocab, &a->call_state, a->err);
    if (rc)
        return rc;
    a->rule = RULE_CALL;
    if (read) {
        strbuf_printf(&head, "\n<function=%s>", read->name);
        if (strbuf_failed(&head))
            rc = error_nomem(a->err, "tool call", head.len);
        else if (!grammar_state_accept(a->call_state, head.data, head.len) || grammar_state_must_end(a->call_state))
            end_call_rule(a);
        strbuf_free(&head);
    }
    return rc;
}

static bool structured_break(const struct answer *a) { return a->breaks_left > 0 && !a->text_begun; }

static bool allows(struct answer *a, const char *c)
{
    switch (a->rule) {
    case RULE_NONE: return true;
    case RULE_CALL: return grammar_state_accept(a->call_state, c, 1);
    case RULE_CALL_FIRST:
        return *c == '\n' && a->breaks_left-- > 0;
    default:
        if (*c == '\n' && structured_break(a)) {
            a->breaks_left--;
            return true;
        }
        if (!grammar_state_accept(a->text_state, c, 1))
            return false;
        a->text_begun = true;
        return true;
    }
}

struct place { /* of the parser, before a byte */
    bool thinking, opener;
    int32_t n_calls, n_ended;
};

static struct place place_of(const struct answer *a)
{
    return (struct place){is_thinking(a), tool_parse_in_opener(&a->parser), a->parser.n_calls, a->parser.n_ended};
}

static int follow_parser(struct answer *a, const struct place *was, bool by_tag)
{
    const struct tool_parser *p = &a->parser;
    int rc = 0;
    if (p->n_ended > was->n_ended) {
        end_call_rule(a);
        begin_text_rule(a, MAX_BREAKS);
    } else if (p->n_calls > was->n_calls && a->rule != RULE_CALL) {
        a->rule = RULE_NONE;
        if (a->plan->call)
            rc = begin_call_rule(a, p->def);
    } else if (tool_parse_in_opener(p) && !was->opener && a->plan->call && by_tag) {
        rc = begin_call_rule(a, NULL);
    } else if (was->thinking && p->state == PARSE_TEXT) {
        begin_text_rule(a, MAX_BREAKS);
        a->owes_breaks = a->rule != RULE_NONE;
    }
    if (!rc && a->rule == RULE_CALL && grammar_state_must_end(a->call_state))
        end_call_rule(a); /* what is left of the call is free */
    return rc;
}

/* ---- reading ---- */

/* Read bytes one by one under the rules; *n_allowed: so many were, the rest is not read. A <tool_call> that comes as its token, or that we
   force, was judged by the mask. */
static int read_bound(struct answer *a, int32_t id, const char *bytes, size_t n, size_t *n_allowed)
{
    int32_t call_id = a->plan->shared->call_id;
    bool is_tag = a->plan->call && ((call_id >= 0 && id == call_id) || (a->rule == RULE_CALL_FIRST && a->forced_left && !a->owes_breaks));
    int rc = 0;
    *n_allowed = n;
    for (size_t i = 0; i < n && !rc && !a->closed; i++) {
        struct place was = place_of(a);
        bool judged = is_tag && a->rule != RULE_CALL;
        if (!judged && !allows(a, bytes + i)) {
            *n_allowed = i;
            return 0;
        }
        rc = tool_parse_push(&a->parser, bytes + i, 1);
        if (!rc)
            rc = follow_parser(a, &was, is_tag || call_id < 0);
    }
    return rc;
}

/* The longest token that is a beginning of these bytes, and how long it is; -1: there is none. */
static int32_t beginning(const struct answer *a, const char *bytes, size_t n, size_t *len)
{
    for (*len = n; *len; --*len) {
        int32_t id = tokenizer_find(a->plan->shared->tokenizer, bytes, *len);
        if (id >= 0)
            return id;
    }
    return -1;
}

/* Of a token only the first n bytes are allowed; they were read. Others take its place that print just these: *replace and a->rest; -1:
   there are none. */
static int find_replacement(struct answer *a, const struct batch_token *t, size_t n, int32_t *replace)
{
    size_t len = 0, at;
    *replace = a->replacing || a->skip ? -1 : beginning(a, t->bytes, n, &len);
    a->rest.n = 0;
    for (at = *replace >= 0 ? len : n; at < n; at += len) {
        int32_t id = beginning(a, t->bytes + at, n - at, &len);
        if (id < 0) {
            *replace = -1;
            a->rest.n = 0;
            return 0;
        }
        if (token_vec_push(&a->rest, (uint32_t)id))
            return error_nomem(a->err, "forced tokens", n);
    }
    return 0;
}

/* ---- what comes next ---- */

static int force(struct answer *a, const struct token_vec *ids, struct batch_next *next)
{
    a->forced.n = 0;
    if (token_vec_reserve(&a->forced, ids->n))
        return error_nomem(a->err, "forced tokens", ids->n * sizeof *ids->ids);
    memcpy(a->forced.ids, ids->ids, ids->n * sizeof *ids->ids);
    a->forced.n = a->forced_left = ids->n;
    next->forced = (const int32_t *)a->forced.ids;
    next->n_forced = (int32_t)ids->n;
    return 0;
}

static const struct token_vec *due_end_of_thinking(struct answer *a)
{
    const struct answer_plan *p = a->plan;
    if (!is_thinking(a) || a->rule != RULE_NONE || a->closing)
        return NULL;
    if (p->think_limit >= 0 && a->n_thinking >= p->think_limit) {
        atomic_fetch_add(&p->shared->budget_hits, 1);
        return &p->shared->budget_end;
    }
    bool reserve = p->reserve_at >= 0 && a->n_tokens >= p->reserve_at;
    return reserve || atomic_load(&a->end_thinking) ? &p->shared->plain_end : NULL;
}

static void set_bit(uint64_t *mask, int32_t id, bool on)
{
    if (id >= 0 && on)
        mask[id / 64] |= UINT64_C(1) << (id & 63);
    else if (id >= 0)
        mask[id / 64] &= ~(UINT64_C(1) << (id & 63));
}

static int grammar_mask(struct answer *a, struct grammar_state *s, struct batch_next *next)
{
    uint64_t begin = clock_ns();
    int rc = grammar_state_mask(s, a->mask, a->err);
    atomic_fetch_add(&a->plan->shared->grammar_ns, clock_ns() - begin);
    next->mask = a->mask;
    if (rc != SKUA_ELIMIT)
        return rc;
    relax(a); /* rather an answer that is not bound than none */
    next->mask = NULL;
    return 0;
}

static int mask_text(struct answer *a, struct batch_next *next)
{
    const struct answer_shared *s = a->plan->shared;
    bool may_call = a->plan->tools.n && (!a->text_begun || grammar_state_can_end(a->text_state));
    int rc = grammar_mask(a, a->text_state, next);
    if (rc || !next->mask)
        return rc;
    if (a->plan->tools.n || a->plan->bans_call)
        set_bit(a->mask, s->call_id, may_call);
    if (a->parser.n_ended && !a->text_begun) { /* calls are an answer too */
        for (size_t i = 0; i < s->n_words; i++)
            a->mask[i] |= s->ends[i];
        if (structured_break(a))
            set_bit(a->mask, s->newline_id, true);
    }
    return 0;
}

static int mask_call(struct answer *a, struct batch_next *next)
{
    int rc = grammar_mask(a, a->call_state, next);
    if (!rc && next->mask && a->parser.state == PARSE_VALUE) { /* inside a value these would be read as tags */
        set_bit(a->mask, a->plan->shared->call_id, false);
        set_bit(a->mask, a->plan->shared->end_call_id, false);
    }
    return rc;
}

static const struct token_vec *due_tokens(struct answer *a)
{
    const struct answer_shared *s = a->plan->shared;
    const struct token_vec *end = due_end_of_thinking(a);
    if (end) {
        a->closing = true;
        return end;
    }
    if (a->forced_left)
        return NULL;
    bool breaks = a->owes_breaks && a->breaks_left == MAX_BREAKS;
    a->owes_breaks = false;
    return breaks ? &s->breaks : a->rule == RULE_CALL_FIRST ? &s->call : NULL;
}

static int fill_next(struct answer *a, struct batch_next *next)
{
    int rc = 0;
    if (a->stop_found >= 0)
        next->finish = SKUA_FINISH_STOP_STRING;
    else if (a->closed)
        next->finish = SKUA_FINISH_END_TOKEN;
    if (next->finish != SKUA_FINISH_NONE)
        return 0;
    if (a->rest.n) {
        rc = force(a, &a->rest, next);
        a->rest.n = 0;
    } else {
        const struct token_vec *due = due_tokens(a);
        rc = due ? force(a, due, next) : 0;
    }
    if (rc || a->forced_left)
        return rc;
    switch (a->rule) {
    case RULE_TEXT: return mask_text(a, next);
    case RULE_CALL: return mask_call(a, next);
    default: next->mask = a->plan->bans_call ? a->plan->shared->no_call : NULL; return 0;
    }
}

/* ---- the interface ---- */

static int make_stops(struct answer *a, const struct api_request *r)
{
    size_t lengths[STOP_MAX_STRINGS] = {0};
    for (size_t i = 0; i < r->n_stop && i < STOP_MAX_STRINGS; i++)
        lengths[i] = strlen(r->stop[i]);
    return stop_init(&a->stop, (const char *const *)r->stop, lengths, r->n_stop, a->err);
}

int answer_new(const struct answer_plan *p, answer_sink *sink, void *user, struct answer **out, skua_error *err)
{
    struct answer *a = *out = mem_calloc(1, sizeof *a);
    if (!a)
        return error_nomem(err, "answer", sizeof *a);
    a->plan = p;
    a->sink = sink;
    a->user = user;
    a->err = err;
    a->stop_found = -1;
    tool_parse_init(&a->parser, &p->tools, p->begin, answer_on_event, a);
    int rc = make_stops(a, p->r);
    if (!rc && (p->structure || p->call)) {
        a->mask = mem_alloc(p->shared->n_words * sizeof *a->mask);
        rc = a->mask ? 0 : error_nomem(err, "token mask", p->shared->n_words * sizeof *a->mask);
    }
    if (!rc && p->structure)
        rc = grammar_state_new(p->structure, p->shared->vocab, &a->text_state, err);
    if (rc) {
        answer_free(a);
        *out = NULL;
        return rc;
    }
    if (!is_thinking(a))
        begin_text_rule(a, 0);
    return 0;
}

void answer_free(struct answer *a)
{
    if (!a)
        return;
    tool_parse_free(&a->parser);
    stop_free(&a->stop);
    strbuf_free(&a->text);
    grammar_state_free(a->text_state);
    grammar_state_free(a->call_state);
    token_vec_free(&a->forced);
    token_vec_free(&a->rest);
    held_free(a);
    mem_free(a->mask);
    mem_free(a);
}

void answer_end_thinking(struct answer *a) { atomic_store(&a->end_thinking, true); }

int answer_first(struct answer *a, struct batch_next *next, skua_error *err)
{
    a->err = err;
    return fill_next(a, next);
}

/* An end token while nothing visible was said: once, thinking ends instead. */
static int rescue(struct answer *a, int32_t *replace)
{
    const struct token_vec *end = &a->plan->shared->end_think;
    a->rescued = a->replacing = true;
    atomic_fetch_add(&a->plan->shared->end_rescued, 1);
    *replace = (int32_t)end->ids[0];
    a->rest.n = 0;
    for (size_t i = 1; i < end->n; i++)
        if (token_vec_push(&a->rest, end->ids[i]))
            return error_nomem(a->err, "forced tokens", end->n * sizeof *end->ids);
    return 0;
}

static int parser_error(struct answer *a, int rc)
{
    return rc == SKUA_ENOMEM ? error_nomem(a->err, "answer", a->parser.in.len) : rc;
}

/* A token that is what it will be. */
static int settle(struct answer *a, const struct batch_token *t, bool thinking, struct batch_next *next)
{
    a->replacing = false;
    a->n_thinking += thinking;
    a->skip -= a->skip < t->n ? a->skip : t->n;
    a->forced_left -= a->forced_left > 0;
    int rc = a->closed ? 0 : tool_parse_flush(&a->parser);
    if (rc)
        return parser_error(a, rc);
    a->n_tokens++;
    held_drop_decided(a);
    return fill_next(a, next);
}

int answer_token(struct answer *a, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    bool thinking = a->skip ? a->skip_thinking : is_thinking(a);
    size_t skipped = a->skip < t->n ? a->skip : t->n, n = t->n - skipped, n_allowed = n;
    uint64_t begin = a->n_read - a->skip;
    a->err = err;
    if (t->ends && is_thinking(a) && !a->rescued && !a->visible_begun && a->plan->shared->end_think.n)
        return rescue(a, replace);
    if (t->ends || a->closed)
        return a->closed ? fill_next(a, next) : 0;
    int rc = held_push(a, t, begin, begin + t->n);
    if (rc)
        return rc;
    if (a->plan->structure || a->plan->call)
        rc = read_bound(a, t->id, t->bytes + skipped, n, &n_allowed);
    else
        rc = tool_parse_push(&a->parser, t->bytes + skipped, n);
    if (rc)
        return parser_error(a, rc);
    a->n_read += n_allowed;
    if (n_allowed == n || a->closed)
        return settle(a, t, thinking, next);
    rc = find_replacement(a, t, n_allowed, replace);
    if (rc)
        return rc;
    if (*replace >= 0) {
        held_forget_last(a, t->id);
        a->skip = n_allowed;
        a->skip_thinking = thinking;
        a->replacing = true;
        return 0;
    }
    relax(a); /* no mask let it pass, or the grammar's limits ran out: the rest is not bound */
    rc = tool_parse_push(&a->parser, t->bytes + skipped + n_allowed, n - n_allowed);
    a->n_read += n - n_allowed;
    return rc ? parser_error(a, rc) : settle(a, t, thinking, next);
}

static enum api_finish how_ended(const struct answer *a, enum skua_finish finish)
{
    int32_t max = a->plan->r->max_tokens;
    if (a->stop_found >= 0)
        return API_FINISH_STOP_STRING;
    if (finish == SKUA_FINISH_CANCELED)
        return API_FINISH_CANCELED;
    if (finish == SKUA_FINISH_END_TOKEN || a->closed)
        return a->n_complete ? API_FINISH_CALLS : API_FINISH_STOP;
    return max >= 0 && a->n_tokens >= max ? API_FINISH_LENGTH : API_FINISH_CONTEXT;
}

int answer_finish(struct answer *a, enum skua_finish finish, struct api_choice_end *end, skua_error *err)
{
    int rc = 0;
    a->err = err;
    if (!a->closed) {
        a->finishing = true;
        rc = tool_parse_finish(&a->parser, finish != SKUA_FINISH_END_TOKEN);
        rc = rc ? parser_error(a, rc) : a->stop_found < 0 ? answer_flush_text(a) : 0;
    }
    atomic_fetch_add(&a->plan->shared->parse_fallbacks, a->parser.n_refused);
    *end = (struct api_choice_end){.finish = how_ended(a, finish), .n_tokens = a->n_tokens, .n_thinking_tokens = a->n_thinking,
                                   .stop_string = a->stop_found >= 0 ? a->plan->r->stop[a->stop_found] : NULL};
    a->closed = true;
    return rc;
}
