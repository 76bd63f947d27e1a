/* A checkpoint's tokenizer -> GGUF keys; see hf_tokenizer.h. Token texts point into the JSON values, which live as long. */
#include "convert/hf_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hashmap.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "convert/hf_json.h"

#define TOKENIZER_NAME "tokenizer.json"
#define TOKENIZER_CONFIG_NAME "tokenizer_config.json"
#define MAX_TEMPLATE_BYTES (16u << 20)

enum token_type { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5 };

struct hf_tokenizer {
    const struct hf_config *config;
    char path[512];               /* of tokenizer.json, for messages */
    json_t *json, *settings;      /* tokenizer.json, tokenizer_config.json (NULL: none) */
    struct gguf_string *tokens;   /* [n_vocab]; data NULL: no token has the id */
    int32_t *types;               /* [n_vocab] */
    struct gguf_string *merges;
    size_t n_merges;
    struct strbuf texts, holes, merge_texts; /* texts that are not as in the JSON, back to back */
    struct hashmap ids;           /* text of an added token -> id */
    char *template;               /* NULL: none */
    size_t template_len;
    const char *pre;
};

void hf_tokenizer_free(struct hf_tokenizer *t)
{
    if (!t)
        return;
    json_decref(t->json);
    json_decref(t->settings);
    mem_free(t->tokens);
    mem_free(t->types);
    mem_free(t->merges);
    strbuf_free(&t->texts);
    strbuf_free(&t->holes);
    strbuf_free(&t->merge_texts);
    hashmap_free(&t->ids);
    mem_free(t->template);
    mem_free(t);
}

static int bad(const struct hf_tokenizer *t, skua_error *err, const char *what, const char *which)
{
    return error_set(err, SKUA_EFORMAT, "%s: %s '%.100s'", t->path, what, which);
}

/* ---- vocabulary ---- */

static int set_token(struct hf_tokenizer *t, const char *text, size_t len, const json_t *id, int32_t type, skua_error *err)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= t->config->n_vocab)
        return error_set(err, SKUA_EFORMAT, "%s: the id of token '%.100s' is %lld, expected one below vocab_size %d", t->path, text,
                         (long long)json_integer_value(id), t->config->n_vocab);
    size_t i = (size_t)json_integer_value(id);
    if (t->tokens[i].data && (t->tokens[i].len != len || memcmp(t->tokens[i].data, text, len)))
        return error_set(err, SKUA_EFORMAT, "%s: tokens '%.60s' and '%.60s' have the same id %zu", t->path, t->tokens[i].data, text, i);
    t->tokens[i] = (struct gguf_string){text, len};
    t->types[i] = type;
    return 0;
}

static int read_vocab(struct hf_tokenizer *t, const json_t *model, skua_error *err)
{
    json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab))
        return error_set(err, SKUA_EFORMAT, "%s: has no 'model.vocab' that is an object", t->path);
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const char *text = json_object_iter_key(it);
        int rc = set_token(t, text, strlen(text), json_object_iter_value(it), TOKEN_NORMAL, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Control tokens are those that are flagged, and some that are so by their looks. */
static int32_t added_type(const char *text, bool special)
{
    size_t n = strlen(text);
    bool bars = n > 4 && !strncmp(text, "<|", 2) && !strcmp(text + n - 2, "|>");
    bool known = !strcmp(text, "<pad>") || !strcmp(text, "<mask>") || !strncmp(text, "<unused", 7);
    return special || bars || known ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
}

/* Where the text has U+2581, a copy with spaces in their place; else the text. */
static const char *plain_spaces(struct hf_tokenizer *t, const char *text, skua_error *err)
{
    static const char mark[] = "\xE2\x96\x81";
    if (!strstr(text, mark))
        return text;
    size_t at = t->texts.len; /* reserved by the caller: the buffer does not move */
    for (const char *p = text; *p;) {
        bool is_mark = !strncmp(p, mark, 3);
        strbuf_putc(&t->texts, is_mark ? ' ' : *p);
        p += is_mark ? 3 : 1;
    }
    strbuf_putc(&t->texts, '\0');
    if (strbuf_failed(&t->texts)) {
        error_nomem(err, "added tokens", t->texts.len);
        return NULL;
    }
    return t->texts.data + at;
}

static int add_token(struct hf_tokenizer *t, const char *content, const json_t *id, bool special, skua_error *err)
{
    int32_t type = added_type(content, special);
    const char *text = type == TOKEN_USER_DEFINED ? plain_spaces(t, content, err) : content;
    if (!text)
        return SKUA_ENOMEM;
    int64_t i = json_integer_value(id);
    if (text != content && i >= 0 && i < t->config->n_vocab)
        t->tokens[i].data = NULL; /* the vocabulary may have the other spelling */
    int rc = set_token(t, text, strlen(text), id, type, err);
    if (!rc && hashmap_put(&t->ids, content, strlen(content), (uint32_t)i) < 0)
        rc = error_nomem(err, "added tokens", 0);
    return rc;
}

static size_t text_bytes(const json_t *list)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_object_get(json_array_get(list, i), "content"));
        n += s ? strlen(s) + 1 : 0;
    }
    return n;
}

static int read_added(struct hf_tokenizer *t, skua_error *err)
{
    const json_t *list = json_object_get(t->json, "added_tokens");
    if (list && !json_is_array(list))
        return error_set(err, SKUA_EFORMAT, "%s: 'added_tokens' is not an array", t->path);
    if (!strbuf_reserve(&t->texts, text_bytes(list)))
        return error_nomem(err, "added tokens", text_bytes(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *content = json_string_value(json_object_get(item, "content"));
        if (!content)
            return error_set(err, SKUA_EFORMAT, "%s: 'added_tokens' entry %zu has no 'content' that is a string", t->path, i);
        int rc = add_token(t, content, json_object_get(item, "id"), json_is_true(json_object_get(item, "special")), err);
        if (rc)
            return rc;
    }
    return 0;
}

/* tokenizer_config.json may add tokens of its own: {"ID": {"content": ..., "special": ...}}. */
static int read_decoder(struct hf_tokenizer *t, skua_error *err)
{
    json_t *decoder = json_object_get(t->settings, "added_tokens_decoder");
    for (void *it = json_object_iter(decoder); it; it = json_object_iter_next(decoder, it)) {
        const json_t *item = json_object_iter_value(it);
        const char *content = json_string_value(json_object_get(item, "content")), *key = json_object_iter_key(it);
        char *end;
        long id = strtol(key, &end, 10);
        if (!content || *end || end == key || id < 0 || id >= t->config->n_vocab)
            return bad(t, err, "'added_tokens_decoder' of " TOKENIZER_CONFIG_NAME " beside it has an entry that is no token below "
                       "vocab_size:", key);
        if (t->tokens[id].data)
            continue;
        t->tokens[id] = (struct gguf_string){content, strlen(content)};
        t->types[id] = added_type(content, json_is_true(json_object_get(item, "special")));
        if (hashmap_put(&t->ids, content, strlen(content), (uint32_t)id) < 0)
            return error_nomem(err, "added tokens", 0);
    }
    return 0;
}

/* ids without a token become [PADn]. */
static int fill_holes(struct hf_tokenizer *t, skua_error *err)
{
    struct strbuf *names = &t->holes;
    size_t n = (size_t)t->config->n_vocab, holes = 0;
    for (size_t i = 0; i < n; i++)
        holes += !t->tokens[i].data;
    if (!strbuf_reserve(names, holes * 16 + 1))
        return error_nomem(err, "unused tokens", holes * 16);
    for (size_t i = 0; i < n; i++)
        if (!t->tokens[i].data) {
            size_t at = names->len;
            strbuf_printf(names, "[PAD%zu]", i);
            t->tokens[i] = (struct gguf_string){names->data + at, names->len - at};
            t->types[i] = TOKEN_UNUSED;
        }
    return strbuf_failed(names) ? error_nomem(err, "unused tokens", holes * 16) : 0;
}

/* ---- merges ---- */

/* A part of a pair; a space inside of it is written as the alphabet's letter for it. */
static void append_part(struct strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == ' ')
            strbuf_puts(b, "\xC4\xA0");
        else
            strbuf_putc(b, *s);
    }
}

static int append_merge(struct hf_tokenizer *t, struct strbuf *b, const json_t *item, size_t i, skua_error *err)
{
    const char *text = json_string_value(item), *left = json_string_value(json_array_get(item, 0));
    const char *right = json_string_value(json_array_get(item, 1));
    if (text) {
        const char *space = strchr(text, ' ');
        if (!space || space == text || !space[1] || strchr(space + 1, ' '))
            return bad(t, err, "a merge is not two parts with one space between:", text);
        strbuf_puts(b, text);
    } else if (left && right && *left && *right && json_array_size(item) == 2) {
        append_part(b, left);
        strbuf_putc(b, ' ');
        append_part(b, right);
    } else {
        return error_set(err, SKUA_EFORMAT, "%s: merge %zu is neither a string nor a pair of strings", t->path, i);
    }
    return 0;
}

/* All merges back to back in one buffer; texts are cut out of it when it moves no more. */
static int read_merges(struct hf_tokenizer *t, const json_t *model, skua_error *err)
{
    struct strbuf *b = &t->merge_texts;
    const json_t *list = json_object_get(model, "merges");
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return error_set(err, SKUA_EFORMAT, "%s: has no 'model.merges' that is an array", t->path);
    t->merges = mem_alloc((n ? n : 1) * sizeof *t->merges);
    if (!t->merges)
        return error_nomem(err, "merges", n * sizeof *t->merges);
    for (size_t i = 0; i < n; i++) {
        size_t before = b->len;
        int rc = append_merge(t, b, json_array_get(list, i), i, err);
        if (rc)
            return rc;
        t->merges[i].len = b->len - before;
    }
    if (strbuf_failed(b))
        return error_nomem(err, "merges", b->len);
    const char *at = strbuf_str(b);
    for (size_t i = 0; i < n; at += t->merges[i++].len)
        t->merges[i].data = at;
    t->n_merges = n;
    return 0;
}

/* ---- kind of tokenizer ---- */

/* The splitter is known by what it lets join a run of letters. */
static const char *find_pre(const json_t *v)
{
    const json_t *parts = json_object_get(v, "pretokenizers");
    const char *regex = json_string_value(json_object_get(json_object_get(v, "pattern"), "Regex")), *found;
    if (regex && strstr(regex, "[\\p{L}\\p{M}]+|\\p{N}|"))
        return "qwen35";
    if (regex && strstr(regex, "?\\p{L}+|\\p{N}|"))
        return "qwen2";
    for (size_t i = 0; i < json_array_size(parts); i++)
        if ((found = find_pre(json_array_get(parts, i))) != NULL)
            return found;
    return NULL;
}

static int read_kind(struct hf_tokenizer *t, const json_t *model, st_warn_fn *warn, void *context, skua_error *err)
{
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model) || (type && strcmp(type, "BPE")))
        return error_set(err, SKUA_EUNSUPPORTED, "%s: 'model.type' is '%.40s'; supported: BPE", t->path, type ? type : "(missing)");
    if (json_is_true(json_object_get(model, "byte_fallback")))
        return error_set(err, SKUA_EUNSUPPORTED, "%s: 'model.byte_fallback' is true; supported: byte-level BPE", t->path);
    t->pre = find_pre(json_object_get(t->json, "pre_tokenizer"));
    if (!t->pre) {
        skua_error text;
        t->pre = "qwen35";
        error_set(&text, 0, "%s: 'pre_tokenizer' has no pattern that is known; taken for that of qwen35", t->path);
        warn(context, text.message);
    }
    return 0;
}

/* ---- chat template ---- */

/* A string, or a list of {"name", "template"} of which "default" counts, or else the first. */
static const json_t *pick_template(const json_t *v)
{
    const json_t *picked = json_is_string(v) ? v : json_object_get(json_array_get(v, 0), "template");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(v, i), "name"));
        if (name && !strcmp(name, "default"))
            picked = json_object_get(json_array_get(v, i), "template");
    }
    return picked;
}

static int keep_template(struct hf_tokenizer *t, const json_t *v, skua_error *err)
{
    const json_t *picked = pick_template(v);
    if (!picked)
        return 0;
    if (!json_is_string(picked))
        return bad(t, err, "the chat template beside it is not a", "string");
    t->template_len = json_string_length(picked);
    t->template = mem_strndup(json_string_value(picked), t->template_len);
    return t->template ? 0 : error_nomem(err, "chat template", t->template_len);
}

/* The file of its own comes first: it is the newer way. */
static int read_template(struct hf_tokenizer *t, const char *dir, skua_error *err)
{
    json_t *json = NULL;
    struct strbuf path = {0};
    int rc = 0;
    if (t->config->kind != HF_TARGET)
        return 0;
    strbuf_printf(&path, "%s/chat_template.jinja", dir);
    if (strbuf_failed(&path))
        rc = error_nomem(err, "chat template", path.len);
    else if (access(path.data, F_OK) == 0)
        rc = file_read_all(path.data, MAX_TEMPLATE_BYTES, &t->template, &t->template_len, err);
    strbuf_free(&path);
    if (!rc && !t->template)
        rc = keep_template(t, json_object_get(t->settings, "chat_template"), err);
    if (!rc && !t->template) {
        rc = hf_json_load(&json, dir, "chat_template.json", false, err);
        if (!rc)
            rc = keep_template(t, json_object_get(json, "chat_template"), err);
        json_decref(json);
    }
    return rc;
}

/* ---- all of it ---- */

static int load(struct hf_tokenizer *t, const char *dir, st_warn_fn *warn, void *context, skua_error *err)
{
    size_t n = (size_t)t->config->n_vocab;
    int rc = hf_json_load(&t->json, dir, TOKENIZER_NAME, true, err);
    if (!rc) rc = hf_json_load(&t->settings, dir, TOKENIZER_CONFIG_NAME, false, err);
    if (rc)
        return rc;
    const json_t *model = json_object_get(t->json, "model");
    t->tokens = mem_calloc(n, sizeof *t->tokens);
    t->types = mem_calloc(n, sizeof *t->types);
    if (!t->tokens || !t->types || hashmap_init(&t->ids, 64))
        return error_nomem(err, "vocabulary", n * sizeof *t->tokens);
    rc = read_kind(t, model, warn, context, err);
    if (!rc) rc = read_vocab(t, model, err);
    if (!rc) rc = read_added(t, err);
    if (!rc) rc = read_decoder(t, err);
    if (!rc) rc = fill_holes(t, err);
    if (!rc) rc = read_merges(t, model, err);
    if (!rc) rc = read_template(t, dir, err);
    return rc;
}

int hf_tokenizer_load(struct hf_tokenizer **out, const char *dir, const struct hf_config *config, st_warn_fn *warn, void *context,
                      skua_error *err)
{
    *out = NULL;
    struct hf_tokenizer *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_nomem(err, "tokenizer", sizeof *t);
    t->config = config;
    snprintf(t->path, sizeof t->path, "%s/" TOKENIZER_NAME, dir);
    int rc = load(t, dir, warn, context, err);
    if (rc)
        hf_tokenizer_free(t);
    else
        *out = t;
    return rc;
}

/* ---- keys ---- */

static int64_t id_of(const struct hf_tokenizer *t, const char *text)
{
    uint32_t id;
    const json_t *known = json_object_get(json_object_get(json_object_get(t->json, "model"), "vocab"), text);
    if (hashmap_get(&t->ids, text, strlen(text), &id))
        return id;
    return json_is_integer(known) ? json_integer_value(known) : -1;
}

/* The id of what a setting names ("<|im_end|>", or an object with that content); else what config.json says; else -1. */
static int64_t special_id(const struct hf_tokenizer *t, const char *setting, int32_t otherwise)
{
    const json_t *v = json_object_get(t->settings, setting);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    int64_t id = text ? id_of(t, text) : -1;
    return id >= 0 ? id : otherwise;
}

static int put_id(struct gguf_writer *w, const char *key, int64_t id, skua_error *err)
{
    return id < 0 ? 0 : gguf_writer_add_u32(w, key, (uint32_t)id, err);
}

static int put_flag(const struct hf_tokenizer *t, struct gguf_writer *w, const char *setting, const char *key, skua_error *err)
{
    const json_t *v = json_object_get(t->settings, setting);
    return json_is_boolean(v) ? gguf_writer_add_bool(w, key, json_is_true(v), err) : 0;
}

static int put_mask(const struct hf_tokenizer *t, struct gguf_writer *w, skua_error *err)
{
    int64_t id = t->config->mask_id >= 0 ? t->config->mask_id : special_id(t, "mask_token", -1);
    if (id < 0)
        return error_set(err, SKUA_EFORMAT, "%s: neither the drafter's config.json has a 'mask_token_id' nor the tokenizer a 'mask_token'",
                         t->path);
    return gguf_writer_add_u32(w, "tokenizer.ggml.mask_token_id", (uint32_t)id, err);
}

int hf_tokenizer_write(const struct hf_tokenizer *t, struct gguf_writer *w, skua_error *err)
{
    const struct hf_config *c = t->config;
    size_t n = (size_t)c->n_vocab;
    int64_t bos = special_id(t, "bos_token", c->bos_id);
    if (bos < 0)
        bos = id_of(t, "<|endoftext|>"); /* the family's; never put in front of a text unless add_bos_token says so */
    int rc = gguf_writer_add_string(w, "tokenizer.ggml.model", "gpt2", 4, err);
    if (!rc) rc = gguf_writer_add_string(w, "tokenizer.ggml.pre", t->pre, strlen(t->pre), err);
    if (!rc) rc = gguf_writer_add_strings(w, "tokenizer.ggml.tokens", t->tokens, n, err);
    if (!rc) rc = gguf_writer_add_array(w, "tokenizer.ggml.token_type", GGUF_I32, t->types, n, err);
    if (!rc) rc = gguf_writer_add_strings(w, "tokenizer.ggml.merges", t->merges, t->n_merges, err);
    if (!rc) rc = put_id(w, "tokenizer.ggml.eos_token_id", special_id(t, "eos_token", c->eos_id), err);
    if (!rc) rc = put_id(w, "tokenizer.ggml.padding_token_id", special_id(t, "pad_token", c->pad_id), err);
    if (!rc) rc = put_id(w, "tokenizer.ggml.bos_token_id", bos, err);
    if (!rc) rc = put_flag(t, w, "add_bos_token", "tokenizer.ggml.add_bos_token", err);
    if (!rc) rc = put_flag(t, w, "add_eos_token", "tokenizer.ggml.add_eos_token", err);
    if (!rc && t->template) rc = gguf_writer_add_string(w, "tokenizer.chat_template", t->template, t->template_len, err);
    if (!rc && c->kind != HF_TARGET) rc = put_mask(t, w, err);
    return rc;
}

/* ---- sampling ---- */

static const struct { const char *name, *key; bool integer; double min, max; } sampling[] = {
    {"temperature", "general.sampling.temp", false, 0, 2},
    {"top_k", "general.sampling.top_k", true, 0, INT32_MAX},
    {"top_p", "general.sampling.top_p", false, 0, 1},
    {"min_p", "general.sampling.min_p", false, 0, 1},
    {"repetition_penalty", "general.sampling.penalty_repeat", false, 0.01, 2},
};

static int put_sampling(const struct hf_reader *r, size_t i, st_warn_fn *warn, void *context, struct gguf_writer *w, skua_error *err)
{
    const json_t *v = hf_get(r, sampling[i].name);
    double d = json_number_value(v);
    int32_t whole;
    if (!v)
        return 0;
    if (!(sampling[i].integer ? json_is_integer(v) : json_is_number(v)) || d < sampling[i].min || d > sampling[i].max) {
        skua_error text;
        error_set(&text, 0, "%s: '%s' is not %s from %g to %g; left out", r->path, sampling[i].name,
                  sampling[i].integer ? "an integer" : "a number", sampling[i].min, sampling[i].max);
        warn(context, text.message);
        return 0;
    }
    whole = (int32_t)d;
    return sampling[i].integer ? gguf_writer_add_scalar(w, sampling[i].key, GGUF_I32, &whole, err)
                               : gguf_writer_add_f32(w, sampling[i].key, (float)d, err);
}

int hf_sampling_write(const char *dir, st_warn_fn *warn, void *context, struct gguf_writer *w, skua_error *err)
{
    json_t *json;
    char path[512];
    int rc = hf_json_load(&json, dir, "generation_config.json", false, err);
    snprintf(path, sizeof path, "%s/generation_config.json", dir);
    const struct hf_reader r = {.path = path, .objects = {json}, .err = err};
    bool samples = !json_is_false(json_object_get(json, "do_sample"));
    for (size_t i = 0; i < sizeof sampling / sizeof *sampling && !rc && samples; i++)
        rc = put_sampling(&r, i, warn, context, w, err);
    json_decref(json);
    return rc;
}
