/* What answers share and what a request's answers obey; see answer.h. */
#include <string.h>

#include <jansson.h>

#include "api/answer_internal.h"
#include "base/mem.h"

static const char end_think_tag[] = "</think>";

static int encode(const struct answer_shared *s, const char *text, struct token_vec *out, skua_error *err)
{
    return tokenizer_encode_part(s->tokenizer, text, strlen(text), false, out, err);
}

static int make_closings(struct answer_shared *s, skua_error *err)
{
    struct strbuf text = {0};
    const char *message = s->env->budget_message;
    strbuf_printf(&text, "%s%s\n</think>\n\n", message && *message ? "\n\n" : "", message ? message : "");
    int rc = strbuf_failed(&text) ? error_nomem(err, "end of thinking", 0) : encode(s, strbuf_str(&text), &s->budget_end, err);
    strbuf_free(&text);
    if (!rc)
        rc = encode(s, "\n</think>\n\n", &s->plain_end, err);
    if (!rc)
        rc = encode(s, end_think_tag, &s->end_think, err);
    if (!rc)
        rc = encode(s, "\n\n", &s->breaks, err);
    return rc ? rc : encode(s, "<tool_call>", &s->call, err);
}

static int32_t one_token(const struct answer_shared *s, const char *text)
{
    return tokenizer_find(s->tokenizer, text, strlen(text));
}

static int make_masks(struct answer_shared *s, skua_error *err)
{
    uint32_t n = tokenizer_size(s->tokenizer);
    s->n_words = (n + 63) / 64;
    s->ends = mem_calloc(s->n_words, sizeof *s->ends);
    if (s->call_id >= 0)
        s->no_call = mem_calloc(s->n_words, sizeof *s->no_call);
    if (!s->ends || (s->call_id >= 0 && !s->no_call))
        return error_nomem(err, "token masks", s->n_words * sizeof *s->ends);
    for (uint32_t id = 0; id < n; id++) {
        if (tokenizer_is_eog(s->tokenizer, id))
            s->ends[id / 64] |= UINT64_C(1) << (id & 63);
        if (s->no_call && (int32_t)id != s->call_id)
            s->no_call[id / 64] |= UINT64_C(1) << (id & 63);
    }
    return 0;
}

int answer_shared_new(const struct api_env *env, const struct tokenizer *tokenizer, struct replay *replay, struct answer_shared **out,
                      skua_error *err)
{
    struct answer_shared *s = *out = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "answers", sizeof *s);
    s->env = env;
    s->tokenizer = tokenizer;
    s->replay = replay;
    s->call_id = one_token(s, "<tool_call>");
    s->end_call_id = one_token(s, "</tool_call>");
    s->newline_id = one_token(s, "\n");
    int rc = make_closings(s, err);
    if (!rc)
        rc = make_masks(s, err);
    if (!rc)
        rc = grammar_cache_new(&s->cache, err);
    if (!rc)
        rc = grammar_vocab_new(s->tokenizer, &s->vocab, err);
    if (rc) {
        answer_shared_free(s);
        *out = NULL;
    }
    return rc;
}

void answer_shared_free(struct answer_shared *s)
{
    if (!s)
        return;
    struct token_vec *all[] = {&s->call, &s->end_think, &s->breaks, &s->budget_end, &s->plain_end};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        token_vec_free(all[i]);
    grammar_cache_free(s->cache);
    grammar_vocab_free(s->vocab);
    mem_free(s->no_call);
    mem_free(s->ends);
    mem_free(s);
}

void answer_get_counters(const struct answer_shared *s, struct answer_counters *out)
{
    *out = (struct answer_counters){.calls = s->calls, .parse_fallbacks = s->parse_fallbacks, .budget_hits = s->budget_hits,
                                    .end_rescued = s->end_rescued, .schema_relaxed = s->schema_relaxed,
                                    .grammar_seconds = 1e-9 * (double)s->grammar_ns};
}

/* ---- the structure of visible text ---- */

static int compile_structure(const void *user, struct strbuf *warnings, struct grammar **out, skua_error *err)
{
    const struct api_request *r = user;
    switch (r->structure) {
    case API_GBNF: return grammar_from_gbnf(r->grammar, strlen(r->grammar), out, err);
    case API_REGEX: return grammar_from_regex(r->grammar, strlen(r->grammar), out, err);
    default: return grammar_from_schema(r->structure == API_JSON_OBJECT ? NULL : r->schema, r->strict_schema, warnings, out, err);
    }
}

static void dump_into(const json_t *v, struct strbuf *key)
{
    json_free_t release;
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_get_alloc_funcs(NULL, &release);
    if (text)
        strbuf_puts(key, text);
    else
        key->failed |= v != NULL;
    release(text);
}

static void structure_key(const struct api_request *r, struct strbuf *key)
{
    strbuf_printf(key, "structure %d %d ", (int)r->structure, (int)r->strict_schema);
    if (r->structure == API_GBNF || r->structure == API_REGEX)
        strbuf_puts(key, r->grammar);
    else if (r->structure == API_JSON_SCHEMA)
        dump_into(r->schema, key);
}

void call_grammar_key(const struct call_grammar *c, struct strbuf *key)
{
    strbuf_printf(key, "calls %d", (int)c->whole);
    for (size_t i = 0; i < c->tools->n; i++) {
        const struct tool_def *def = &c->tools->defs[i];
        strbuf_printf(key, " %zu:%s %d%d ", def->n, def->name, (int)def->custom, (int)def->strict);
        if (def->strict || c->whole)
            dump_into(def->parameters, key);
        if (def->regex)
            strbuf_printf(key, "%zu:%s", strlen(def->regex), def->regex);
    }
}

/* ---- plans ---- */

static bool calls_bound(const struct answer_plan *p)
{
    const struct api_request *r = p->r;
    bool strict = false;
    for (size_t i = 0; i < p->tools.n; i++)
        strict |= p->tools.defs[i].strict || p->tools.defs[i].regex;
    return p->tools.n && (strict || r->n_allowed_tools || r->tool_choice == API_TOOLS_REQUIRED || r->structure != API_FREE);
}

static int make_grammars(struct answer_plan *p, struct api_request *r, const char **what, skua_error *err)
{
    struct call_grammar calls = {&p->tools, r->structure != API_FREE};
    struct strbuf key = {0};
    int rc = 0;
    *what = r->structure == API_GBNF ? "grammar" : r->structure == API_REGEX ? "regex" : "response_format";
    if (r->structure != API_FREE) {
        structure_key(r, &key);
        rc = grammar_cache_get(p->shared->cache, &key, compile_structure, r, &r->warnings, &p->structure, err);
    }
    if (!rc && calls_bound(p)) {
        *what = "tools";
        strbuf_clear(&key);
        call_grammar_key(&calls, &key);
        rc = grammar_cache_get(p->shared->cache, &key, call_grammar_compile, &calls, &r->warnings, &p->call, err);
    }
    strbuf_free(&key);
    return rc;
}

/* Where thinking is ended by force. */
static void set_limits(struct answer_plan *p)
{
    const struct api_request *r = p->r;
    int32_t reserve = p->shared->env->reserve_answer;
    p->think_limit = r->thinking_budget;
    p->reserve_at = -1;
    if (r->thinking_budget < 0 && reserve > 0 && r->max_tokens >= 0)
        p->reserve_at = r->max_tokens > reserve ? r->max_tokens - reserve : 0;
    p->max_calls = r->parallel_calls ? r->max_calls : 1;
}

static int make_plan(struct answer_plan *p, struct api_request *r, const char **what, skua_error *err)
{
    bool raw = r->family == API_COMPLETIONS;
    *what = NULL;
    set_limits(p);
    p->bans_call = !raw && r->n_tools && r->tool_choice == API_TOOLS_NONE;
    int rc = raw ? 0 : tool_set_init(&p->tools, r, err);
    if (!rc)
        rc = make_grammars(p, r, what, err);
    p->begin = raw ? PARSE_BEGIN_TEXT : r->opens_thinking ? PARSE_BEGIN_THINKING : PARSE_BEGIN_MAYBE_THINKING;
    if (p->begin == PARSE_BEGIN_MAYBE_THINKING && (p->structure || r->tool_choice == API_TOOLS_REQUIRED))
        p->begin = PARSE_BEGIN_TEXT; /* what binds the answer binds it from the first token on */
    return rc;
}

int answer_plan_new(struct answer_shared *s, struct api_request *r, struct answer_plan **out, struct api_error *error)
{
    skua_error err = {0};
    const char *what = NULL;
    struct answer_plan *p = *out = mem_calloc(1, sizeof *p);
    int rc = SKUA_ENOMEM;
    if (p) {
        p->shared = s;
        p->r = r;
        rc = make_plan(p, r, &what, &err);
    } else {
        error_nomem(&err, "plan of an answer", sizeof *p);
    }
    if (!rc)
        return 0;
    answer_plan_free(p);
    *out = NULL;
    if (what && (rc == SKUA_EARG || rc == SKUA_EUNSUPPORTED || rc == SKUA_ELIMIT))
        return api_error_set(error, 400, rc == SKUA_EARG && r->structure != API_JSON_SCHEMA ? "invalid_value" : "unsupported_schema", what,
                             "%s", err.message);
    api_error_from(&err, error);
    return -1;
}

void answer_plan_free(struct answer_plan *p)
{
    if (!p)
        return;
    grammar_release(p->structure);
    grammar_release(p->call);
    tool_set_free(&p->tools);
    mem_free(p);
}
