/* Tokens and text of the public interface; see skua.h. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/chat_prompt.h"
#include "engine/engine.h"
#include "tok/tokenizer.h"

/* Token ids are below 2^31 in every vocabulary, so signed and unsigned ids have the same bits. */
static void hand_over(struct token_vec *v, int32_t **ids, size_t *n_ids)
{
    *ids = (int32_t *)v->ids;
    *n_ids = v->n;
    *v = (struct token_vec){0};
}

int skua_tokenize(const skua_engine *e, const char *text, size_t n, bool parse_special, int32_t **ids, size_t *n_ids, skua_error *err)
{
    struct token_vec v = {0};
    *ids = NULL;
    *n_ids = 0;
    int rc = tokenizer_encode(e->tokenizer, text, n, parse_special, &v, err);
    if (rc)
        token_vec_free(&v);
    else
        hand_over(&v, ids, n_ids);
    return rc;
}

void skua_free(void *p)
{
    mem_free(p);
}

const char *skua_token_bytes(const skua_engine *e, int32_t id, bool special, size_t *n)
{
    return tokenizer_piece(e->tokenizer, (uint32_t)id, special, n);
}

bool skua_token_ends(const skua_engine *e, int32_t id)
{
    return tokenizer_is_eog(e->tokenizer, (uint32_t)id);
}

/* text (NULL: none) as a JSON value that must be an array or an object. */
static int parse(const char *what, const char *text, bool array, json_t **out, skua_error *err)
{
    json_error_t e;
    bool no_memory;
    *out = NULL;
    if (!text)
        return 0;
    *out = json_read(text, strlen(text), JSON_REJECT_DUPLICATES, &e, &no_memory);
    if (no_memory)
        return error_nomem(err, what, strlen(text));
    if (!*out)
        return error_set(err, SKUA_EARG, "%s: not valid JSON: %s (line %d, column %d)", what, e.text, e.line, e.column);
    if (array ? json_is_array(*out) : json_is_object(*out))
        return 0;
    json_decref(*out);
    *out = NULL;
    return error_set(err, SKUA_EARG, "%s: expected a JSON %s", what, array ? "array" : "object");
}

int skua_chat_prompt(skua_engine *e, const char *messages, const char *tools, const char *args, int32_t **ids, size_t *n_ids,
                     bool *opens_thinking, skua_error *err)
{
    json_t *m = NULL, *t = NULL, *a = NULL;
    struct chat_prompt prompt = {0};
    *ids = NULL;
    *n_ids = 0;
    if (opens_thinking)
        *opens_thinking = false;
    if (!messages)
        return error_set(err, SKUA_EARG, "messages: expected a JSON array, got NULL");
    int rc = parse("messages", messages, true, &m, err);
    if (!rc)
        rc = parse("tools", tools, true, &t, err);
    if (!rc)
        rc = parse("template arguments", args, false, &a, err);
    if (!rc)
        rc = chat_prompt_build(e, m, t, a, &prompt, err);
    if (!rc) {
        hand_over(&prompt.ids, ids, n_ids);
        if (opens_thinking)
            *opens_thinking = prompt.opens_thinking;
    }
    chat_prompt_free(&prompt);
    json_decref(m);
    json_decref(t);
    json_decref(a);
    return rc;
}
