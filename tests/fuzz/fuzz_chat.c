/* Fuzz target: any bytes as a body of /v1/chat/completions, or of /v1/completions when their number is odd. A refusal is the client's
 * fault, in
 * one line of UTF-8; an accepted body has a prompt, and its empty answer is JSON. */
#include "fuzz/api_body.h"

#include "api/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct api_env env = {.model_id = "fuzz", .n_ctx = 4096, .thinking_budget = -1, .completions_max_tokens = 16,
                             .defaults = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};

static void start(void)
{
    skua_error err = {0};
    struct api_template *chat = NULL;
    json_use_mem();
    json_object_seed(1);
    if (skua_engine_open("models/tiny-q8_0.gguf", &(skua_engine_params){.n_threads = 1}, &env.engine, &err) ||
        api_template_new(env.engine, &chat, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    env.chat = chat;
}

static void answer(const struct api_request *r)
{
    struct api_writer *w = r->family == API_CHAT ? chat_writer_new() : completions_writer_new();
    const struct api_usage usage = {.n_prompt = 1};
    const struct api_choice_end end = {.finish = API_FINISH_STOP};
    MUST(w);
    api_writer_init(w, &env, r, "req_fuzz");
    MUST(!w->ops->begin(w, &usage));
    int32_t per_prompt = r->best_of > r->n ? r->best_of : r->n;
    for (int32_t i = 0; i < per_prompt * (int32_t)r->n_prompts; i++)
        MUST(!w->ops->choice_end(w, i, &end));
    MUST(!w->ops->end(w, &usage));
    if (!r->stream) {
        json_t *v = json_loadb(w->out.data, w->out.len, 0, NULL);
        MUST(json_is_object(v));
        json_decref(v);
    }
    api_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api_request r = {0};
    struct api_error e = {0};
    json_t *body;
    if (!env.engine)
        start();
    size_t live = mem_live_blocks();
    if (api_body_parse((const char *)data, size, &body, &e)) {
        check_error(&e);
    } else if (size % 2 ? completions_parse(&env, body, NULL, NULL, &r, &e) : chat_parse(&env, body, NULL, NULL, &r, &e)) {
        check_error(&e);
        json_decref(body);
    } else {
        if (r.family == API_CHAT)
            check_request(&r);
        if (r.family == API_CHAT && api_prompt_build(&env, NULL, &r, &e))
            check_error(&e);
        else
            answer(&r);
        api_request_free(&r);
    }
    MUST(mem_live_blocks() == live);
    return 0;
}
