/* Fuzz target: any bytes as a body of /v1/responses. */
#include "fuzz/api_body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return responses_parse(env, NULL, body, NULL, NULL, r, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready) {
        json_use_mem();
        json_object_seed(1);
        ready = true;
    }
    return fuzz_body(parse, data, size);
}
