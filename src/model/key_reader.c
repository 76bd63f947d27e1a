/* Reading keys; see key_reader.h. */
#include "model/key_reader.h"

#include <stdio.h>

void key_name(char out[96], const char *arch, const char *suffix)
{
    snprintf(out, 96, "%s.%s", arch, suffix);
}

struct key_text key_show(struct gguf_string s)
{
    struct key_text out = {{0}};
    for (size_t i = 0; i < s.len && i < sizeof out.text - 1; i++)
        out.text[i] = s.data[i] < 0x20 || s.data[i] > 0x7E ? '?' : s.data[i];
    return out;
}

void key_fail(struct key_reader *r, const char *suffix, const char *expected, long long found)
{
    if (!r->rc)
        r->rc = error_set(r->err, SKUA_EFORMAT, "key '%s.%s' is %lld, expected %s", r->arch, suffix, found, expected);
}

void key_i32(struct key_reader *r, const char *suffix, bool required, int32_t lo, int32_t hi, int32_t *v)
{
    char key[96], range[64];
    uint32_t u = 0;
    if (r->rc)
        return;
    key_name(key, r->arch, suffix);
    int rc = required ? gguf_require_u32(r->g, key, &u, r->err) : gguf_get_u32(r->g, key, &u, r->err);
    if (rc < 0)
        r->rc = rc;
    else if (required || rc > 0) {
        if (u < (uint32_t)lo || u > (uint32_t)hi) {
            snprintf(range, sizeof range, "%d to %d", lo, hi);
            key_fail(r, suffix, range, u);
        } else {
            *v = (int32_t)u;
        }
    }
}
