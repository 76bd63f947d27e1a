/* Fuzz target: any bytes as a body of /v1/messages, of an odd number of bytes a body of /v1/messages/count_tokens. */
#include "fuzz/api_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count_only;

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return messages_parse(env, body, count_only, NULL, NULL, r, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        json_use_mem();
        json_object_seed(1);
        ready = true;
    }
    count_only = size % 2;
    return fuzz_body(parse, data, size);
}
