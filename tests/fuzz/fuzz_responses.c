/* Fuzz target: any bytes as a body of /v1/responses. */
#include "fuzz/api_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct response_access kept; /* one answer, "resp_1", with the items "msg_0" and "msg_1" */

static void keep_one(void)
{
    struct strbuf response = {0}, output = {0};
    json_t *input = json_pack("[{s:s, s:s, s:s}]", "role", "user", "content", "hi", "id", "msg_0");
    MUST(response_store_new(1, 1 << 20, &kept.store, NULL) == 0);
    struct response_turn *t = response_turn_new(&kept, NULL, input);
    strbuf_puts(&response, "{}");
    strbuf_puts(&output, "{\"type\":\"message\",\"id\":\"msg_1\",\"role\":\"assistant\",\"content\":\"hello\"}");
    MUST(t && response_turn_keep(t, "resp_1", &response, &output));
    response_turn_drop(t);
    json_decref(input);
    strbuf_free(&response);
    strbuf_free(&output);
}

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    int rc = responses_parse(env, &kept, body, NULL, NULL, r, e);
    if (!rc) { /* nothing is to be left behind, also no answer */
        response_turn_drop(r->turn);
        r->turn = NULL;
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        json_use_mem();
        json_object_seed(1);
        keep_one();
        ready = true;
    }
    return fuzz_body(parse, data, size);
}
