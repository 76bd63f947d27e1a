/* Fuzzing GBNF and regular expressions: the input is compiled as both, and answered. */
#include <stddef.h>
#include <stdint.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grammar *g;
    skua_error err;
    walk_setup();
    for (int regex = 0; regex < 2; regex++) {
        err.code = 0;
        const int rc = (regex ? grammar_from_regex : grammar_from_gbnf)((const char *)data, size, &g, &err);
        if (rc != err.code || !rc != (g != NULL))
            abort();
        struct strbuf out = {0};
        if (!rc)
            walk(g, size, 12, &out);
        strbuf_free(&out);
        grammar_release(g);
    }
    return 0;
}
