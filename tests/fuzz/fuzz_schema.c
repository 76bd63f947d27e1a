/* Fuzzing JSON schemas: the input is read as JSON and compiled, strictly and not; an answer that comes to its end must be JSON. */
#include <stddef.h>
#include <stdint.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *schema = json_loadb((const char *)data, size, JSON_DECODE_ANY, NULL);
    walk_setup();
    for (int strict = 0; schema && strict < 2; strict++) {
        struct grammar *g;
        struct strbuf warnings = {0}, out = {0};
        skua_error err = {0};
        const int rc = grammar_from_schema(schema, strict, &warnings, &g, &err);
        if (rc != err.code || !rc != (g != NULL) || (strict && warnings.len))
            abort();
        for (uint64_t seed = 0; !rc && seed < 3; seed++) {
            strbuf_clear(&out);
            if (walk(g, seed, 40, &out)) {
                json_t *value = json_loadb(strbuf_str(&out), out.len, JSON_DECODE_ANY, NULL);
                if (!value)
                    abort();
                json_decref(value);
            }
        }
        grammar_release(g);
        strbuf_free(&warnings);
        strbuf_free(&out);
    }
    json_decref(schema);
    return 0;
}
