/* Answers in a real batcher: the shipped model at a high temperature under required strict tools and a schema, several choices at once. */
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "base/json.h"
#include "engine/engine.h"
#include "unit/fake_prefix_cache.h"
#include "support/support.h"

#define CHOICES 4

static const char parameters_text[] =
    "{\"type\": \"object\", \"required\": [\"n\", \"unit\"], \"properties\": {\"n\": {\"type\": \"integer\"},"
    " \"unit\": {\"type\": \"string\", \"enum\": [\"C\", \"F\"]}}}";
static const char schema_text[] = "{\"type\": \"object\", \"required\": [\"a\"], \"properties\": {\"a\": {\"type\": \"boolean\"}}}";

static struct answer *answers[CHOICES];
static struct api_choice_end ends[CHOICES];
static struct strbuf texts[CHOICES], calls[CHOICES];
static struct batcher *batcher;

static int sink(void *user, const struct api_event *e, skua_error *err)
{
    int k = (int)(intptr_t)user;
    (void)err;
    if (e->kind == API_EVENT_TEXT)
        strbuf_append(&texts[k], e->text, e->n);
    if (e->kind == API_EVENT_CALL_END && e->complete && !calls[k].len)
        strbuf_append(&calls[k], e->text, e->n);
    return 0;
}

static int first(void *user, int32_t choice, struct batch_next *next, skua_error *err)
{
    (void)user;
    return answer_first(answers[choice], next, err);
}

static int token(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err)
{
    (void)user;
    return answer_token(answers[t->choice], t, replace, next, err);
}

static void choice_end(void *user, int32_t choice, enum skua_finish finish)
{
    skua_error err;
    (void)user;
    CHECK(answer_finish(answers[choice], finish, &ends[choice], &err) == 0, "finish");
}

static void done(void *user, const struct batch_result *r)
{
    (void)user;
    CHECK(r->rc == 0, "%s", r->err.message);
    batcher_stop(batcher, true);
}

static void check_choice(int kind, int k)
{
    const struct strbuf *text = kind < 2 ? &texts[k] : &calls[k];
    json_t *v = json_loadb(strbuf_str(text), text->len, 0, NULL);
    if (kind < 2)
        CHECK(json_is_boolean(json_object_get(v, "a")) && ends[k].finish == API_FINISH_STOP, "kind %d: %s", kind, strbuf_str(text));
    else
        CHECK(json_is_number(json_object_get(v, "n")) && json_is_string(json_object_get(v, "unit")), "kind %d: %s", kind, strbuf_str(text));
    CHECK(kind != 3 || (ends[k].finish == API_FINISH_CALLS && !texts[k].len), "kind %d: finish %d, %s", kind, (int)ends[k].finish,
          strbuf_str(&texts[k]));
    CHECK(!(kind & 1) || (ends[k].n_thinking_tokens > 5 && ends[k].n_thinking_tokens < 40), "kind %d: %d tokens of thinking", kind,
          (int)ends[k].n_thinking_tokens);
    json_decref(v);
}

/* kind: odd ones think, with a budget of 5 tokens; 0 and 1 are bound by the schema, 2 and 3 must call, 3 once. */
static void run(skua_engine *e, struct answer_shared *shared, int kind, struct api_tool *tool, json_t *schema)
{
    static const struct batch_callbacks callbacks = {.first = first, .token = token, .choice_end = choice_end, .done = done};
    const int32_t prompt[] = {100, 200, 300, 400};
    struct api_request r = {.thinking_budget = kind & 1 ? 5 : -1, .n_logprobs = -1, .max_tokens = 300, .parallel_calls = kind != 3,
                            .opens_thinking = kind & 1, .structure = kind < 2 ? API_JSON_SCHEMA : API_FREE, .schema = schema,
                            .tools = tool, .n_tools = kind < 2 ? 0 : 1, .tool_choice = kind < 2 ? API_TOOLS_NONE : API_TOOLS_REQUIRED};
    struct batch_params p = {.prompt = prompt, .n_prompt = 4, .n_choices = CHOICES, .max_tokens = 300, .n_logprobs = -1,
                             .callbacks = &callbacks,
                             .sampling = {.temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)kind}};
    const struct batcher_params b = {.n_parallel = CHOICES, .n_ctx = 600, .queue_max = CHOICES};
    struct answer_plan *plan = NULL;
    struct api_error problem = {0};
    skua_error err = {0};
    uint64_t id;
    if (!CHECK(answer_plan_new(shared, &r, &plan, &problem) == 0, "%s", problem.message))
        return;
    for (int k = 0; k < CHOICES; k++) {
        strbuf_clear(&texts[k]);
        strbuf_clear(&calls[k]);
        CHECK(answer_new(plan, sink, (void *)(intptr_t)k, &answers[k], &err) == 0, "%s", err.message);
    }
    if (CHECK(batcher_create(e, &b, &batcher, &err) == 0 && batcher_submit(batcher, &p, &id, &err) == 0, "%s", err.message))
        batcher_run(batcher);
    batcher_free(batcher);
    for (int k = 0; k < CHOICES; k++) {
        check_choice(kind, k);
        answer_free(answers[k]);
    }
    answer_plan_free(plan);
    strbuf_free(&r.warnings);
}

int main(void)
{
    const char *path = support_model("tiny-q8_0.gguf");
    skua_engine *e = NULL;
    skua_error err = {0};
    struct answer_shared *shared = NULL;
    struct api_env env = {.budget_message = "Enough."};
    json_use_mem();
    fake_clear(&(struct prefix_cache){0});
    if (path && CHECK(skua_engine_open(path, &(skua_engine_params){0}, &e, &err) == 0, "%s", err.message) &&
        CHECK(answer_shared_new(&env, e->tokenizer, NULL, &shared, &err) == 0, "%s", err.message)) {
        json_t *parameters = json_loads(parameters_text, 0, NULL), *schema = json_loads(schema_text, 0, NULL);
        struct api_tool tool = {.name = "get", .strict = true, .parameters = parameters};
        for (int kind = 0; kind < 4; kind++)
            run(e, shared, kind, &tool, schema);
        json_decref(parameters);
        json_decref(schema);
    }
    for (int k = 0; k < CHOICES; k++) {
        strbuf_free(&texts[k]);
        strbuf_free(&calls[k]);
    }
    answer_shared_free(shared);
    skua_engine_close(e);
    return support_finish("test_answer_batch");
}
