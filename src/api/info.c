/* Models, tokens and text; see info.h. */
#include "api/info.h"

#include <string.h>
#include <time.h>

#include "api/common.h"
#include "api/json_text.h"
#include "api/template.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/chat_prompt.h"

static int status(const struct strbuf *out, struct api_error *e) { return strbuf_failed(out) ? api_fail_nomem(e) : 0; }

/* ---- models ---- */

static const char *truth(bool b) { return b ? "true" : "false"; }

static void put_count(struct strbuf *b, const char *key, int64_t n)
{
    if (n > 0)
        strbuf_printf(b, "\"%s\":%lld,", key, (long long)n);
    else
        strbuf_printf(b, "\"%s\":null,", key);
}

static void put_draft(struct strbuf *b, const struct api_env *env)
{
    if (!env->facts.draft_type) {
        strbuf_puts(b, "null");
        return;
    }
    strbuf_puts(b, "{\"type\":");
    api_json_text(b, env->facts.draft_type);
    strbuf_puts(b, ",\"file\":");
    api_json_text(b, env->facts.draft_file);
    strbuf_puts(b, ",\"verdict\":");
    api_json_text(b, env->facts.draft_verdict);
    strbuf_putc(b, '}');
}

static void put_meta(struct strbuf *b, const struct api_env *env)
{
    skua_engine_info info = skua_engine_get_info(env->engine);
    strbuf_puts(b, "{");
    put_count(b, "n_params", env->facts.n_params);
    put_count(b, "size_bytes", (int64_t)info.file_bytes);
    strbuf_printf(b, "\"n_ctx_train\":%d,\"n_ctx\":%d,\"vocab_size\":%d,\"quantization\":", info.n_ctx_train, env->n_ctx, info.n_vocab);
    api_json_text(b, env->facts.quantization);
    strbuf_puts(b, ",\"architecture\":");
    api_json_text(b, info.arch);
    strbuf_puts(b, ",\"draft\":");
    put_draft(b, env);
    strbuf_putc(b, '}');
}

static bool can_think(const struct api_template *t)
{
    return t && (!t->has_style || strcmp(t->style.generation[0], t->style.generation[1]) != 0);
}

static void put_model(struct strbuf *b, const struct api_env *env)
{
    char created_at[32] = "";
    time_t created = (time_t)env->facts.created;
    struct tm tm;
    if (gmtime_r(&created, &tm))
        strftime(created_at, sizeof created_at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    const char *name = skua_engine_get_info(env->engine).name;
    strbuf_puts(b, "{\"id\":");
    api_json_text(b, env->model_id);
    strbuf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"skua\",\"root\":", (long long)env->facts.created);
    api_json_text(b, env->model_id);
    strbuf_printf(b, ",\"parent\":null,\"max_model_len\":%d,\"display_name\":", env->n_ctx);
    api_json_text(b, *name ? name : env->model_id);
    strbuf_puts(b, ",\"type\":\"model\",\"created_at\":");
    api_json_text(b, created_at);
    strbuf_printf(b, ",\"max_input_tokens\":%d,\"max_tokens\":%d,\"status\":\"loaded\",\"aliases\":[", env->n_ctx - 1, env->n_ctx - 1);
    for (size_t i = 0; i < env->n_aliases; i++) {
        strbuf_puts(b, i ? "," : "");
        api_json_text(b, env->aliases[i]);
    }
    strbuf_printf(b, "],\"capabilities\":{\"completion\":true,\"chat\":%s,\"thinking\":%s,\"tools\":%s,\"vision\":false,"
                  "\"embedding\":false},",
                  truth(env->chat), truth(can_think(env->chat)), truth(env->chat && env->chat->has_style));
    strbuf_puts(b, "\"meta\":");
    put_meta(b, env);
    strbuf_putc(b, '}');
}

int api_models(const struct api_env *env, bool anthropic, struct strbuf *out, struct api_error *e)
{
    strbuf_puts(out, "{\"object\":\"list\",\"data\":[");
    put_model(out, env);
    strbuf_puts(out, "],\"models\":[]");
    if (anthropic) {
        strbuf_puts(out, ",\"first_id\":");
        api_json_text(out, env->model_id);
        strbuf_puts(out, ",\"last_id\":");
        api_json_text(out, env->model_id);
        strbuf_puts(out, ",\"has_more\":false");
    }
    strbuf_putc(out, '}');
    return status(out, e);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int api_model(const struct api_env *env, const char *id, struct strbuf *out, struct api_error *e)
{
    struct strbuf plain = {0};
    for (const char *p = id; *p; p++) {
        int high = *p == '%' ? hex_digit(p[1]) : -1, low = high >= 0 ? hex_digit(p[2]) : -1;
        strbuf_putc(&plain, low >= 0 ? (char)(high << 4 | low) : *p);
        p += low >= 0 ? 2 : 0;
    }
    int rc = strbuf_failed(&plain) ? api_fail_nomem(e) : api_model_check(env, strbuf_str(&plain), e);
    strbuf_free(&plain);
    if (rc)
        return rc;
    put_model(out, env);
    return status(out, e);
}

/* ---- tokens ---- */

static bool is_utf8(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp);
        if (!len)
            return false;
        i += (size_t)len;
    }
    return true;
}

static void put_bytes(struct strbuf *b, const char *s, size_t n)
{
    strbuf_putc(b, '[');
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%d", i ? "," : "", (unsigned char)s[i]);
    strbuf_putc(b, ']');
}

static void put_tokens(const struct api_env *env, const int32_t *ids, size_t n, bool pieces, struct strbuf *out)
{
    strbuf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *s = api_token_bytes(env, ids[i], &len);
        strbuf_puts(out, i ? "," : "");
        strbuf_printf(out, pieces ? "{\"id\":%d,\"piece\":" : "%d", ids[i]);
        if (pieces && is_utf8(s, len))
            api_json_string(out, s, len);
        else if (pieces)
            put_bytes(out, s, len);
        strbuf_puts(out, pieces ? "}" : "");
    }
    strbuf_printf(out, "],\"count\":%zu,\"max_model_len\":%d}", n, env->n_ctx);
}

/* A chat request of the body; the body's fields stay where they are. */
static int parse_chat(const struct api_env *env, const json_t *body, struct api_request *r, struct api_error *e)
{
    json_t *copy = json_copy_whole(body);
    if (!copy)
        return api_fail_nomem(e);
    json_object_del(copy, "stream_options"); /* nothing is streamed here */
    int rc = chat_parse(env, copy, NULL, NULL, r, e);
    if (rc)
        json_decref(copy);
    return rc;
}

static int tokenize_chat(const struct api_env *env, struct replay *replay, const json_t *body, bool pieces, struct strbuf *out,
                         struct api_error *e)
{
    struct api_request r;
    if (parse_chat(env, body, &r, e))
        return -1;
    int rc = api_prompt_build(env, replay, &r, e);
    if (!rc || e->n_ctx) { /* too long for the context is no reason not to count */
        put_tokens(env, r.prompts[0].ids, (size_t)r.prompts[0].n, pieces, out);
        rc = status(out, e);
    }
    api_request_free(&r);
    return rc;
}

int api_tokenize(const struct api_env *env, struct replay *replay, const json_t *body, struct strbuf *out, struct api_error *e)
{
    bool add_special = false, parse_special = true, pieces = false;
    const char *key = api_field(body, "content") ? "content" : "prompt";
    const json_t *text = api_field(body, key);
    struct token_vec ids = {0};
    skua_error err = {0};
    if (api_get_bool(body, NULL, "add_special", &add_special, e) || api_get_bool(body, NULL, "parse_special", &parse_special, e) ||
        api_get_bool(body, NULL, "with_pieces", &pieces, e))
        return -1;
    if (!text && api_field(body, "messages"))
        return tokenize_chat(env, replay, body, pieces, out, e);
    if (!text)
        return api_fail_missing(e, API_KEY(NULL, "content"), "a string in content or prompt, or messages");
    if (!json_is_string(text))
        return api_fail_type(e, API_KEY(NULL, key), text, "a string");
    const struct tokenizer *t = chat_prompt_tokenizer(env->engine);
    int rc = (add_special ? tokenizer_encode : tokenizer_encode_part)(t, json_string_value(text), json_string_length(text), parse_special,
                                                                      &ids, &err);
    if (rc)
        api_error_from(&err, e);
    else
        put_tokens(env, (const int32_t *)ids.ids, ids.n, pieces, out);
    token_vec_free(&ids);
    return rc ? -1 : status(out, e);
}

int api_detokenize(const struct api_env *env, const json_t *body, struct strbuf *out, struct api_error *e)
{
    const struct api_path *at = API_KEY(NULL, "tokens");
    int32_t n_vocab = skua_engine_get_info(env->engine).n_vocab;
    json_t *tokens = NULL, *id;
    struct strbuf text = {0};
    bool bytes = false;
    size_t i;
    if (api_get_array(body, NULL, "tokens", &tokens, e) || api_get_bool(body, NULL, "bytes", &bytes, e))
        return -1;
    if (!tokens)
        return api_fail_missing(e, at, "a list of token ids");
    int rc = 0;
    json_array_foreach(tokens, i, id) {
        json_int_t v = json_integer_value(id);
        if (!json_is_integer(id))
            rc = api_fail_type(e, API_ITEM(at, i), id, "a token id (an integer)");
        else if (v < 0 || v >= n_vocab)
            rc = api_fail(e, "invalid_value", API_ITEM(at, i), "expected a token id from 0 to %d, got %" JSON_INTEGER_FORMAT,
                          (int)n_vocab - 1, v);
        if (rc)
            break;
        size_t len;
        const char *s = api_token_bytes(env, (int32_t)v, &len);
        strbuf_append(&text, s, len);
    }
    strbuf_puts(out, rc ? "" : "{\"content\":");
    if (!rc && bytes)
        put_bytes(out, strbuf_str(&text), text.len);
    else if (!rc)
        api_json_string(out, strbuf_str(&text), text.len);
    strbuf_puts(out, rc ? "" : "}");
    if (!rc && strbuf_failed(&text))
        rc = api_fail_nomem(e);
    strbuf_free(&text);
    return rc ? rc : status(out, e);
}

int api_apply_template(const struct api_env *env, struct replay *replay, const json_t *body, struct strbuf *out, struct api_error *e)
{
    struct api_request r;
    struct strbuf text = {0};
    if (parse_chat(env, body, &r, e))
        return -1;
    int rc = api_prompt_text(env, replay, &r, &text, e);
    api_request_free(&r);
    if (!rc) {
        strbuf_puts(out, "{\"prompt\":");
        api_json_string(out, strbuf_str(&text), text.len);
        strbuf_putc(out, '}');
        rc = status(out, e);
    }
    strbuf_free(&text);
    return rc;
}

int api_embeddings_refuse(struct api_error *e)
{
    return api_error_set(e, 400, "unsupported_parameter", "model",
                         "model: the loaded model generates text and makes no embeddings; ask a server that has an embedding model");
}
