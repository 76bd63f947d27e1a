/* The native renderer against templates: the generations of this family, the shipped model's own, and templates of other kinds. */
#include <string.h>

#include "api/style.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "jinja/chat.h"
#include "support/support.h"

static int render(void *user, const json_t *messages, const json_t *tools, const json_t *args, bool generation, struct strbuf *out,
                  skua_error *err)
{
    return chat_render(user, messages, tools, generation, args, "<s>", "</s>", out, err);
}

static json_t *load(const char *path)
{
    char *text;
    size_t n;
    json_error_t at;
    bool no_memory;
    if (file_read_all(path, 64u << 20, &text, &n, NULL))
        return NULL;
    json_t *v = json_read(text, n, 0, &at, &no_memory);
    mem_free(text);
    return v;
}

static struct jinja_template *compile(const char *text)
{
    struct jinja_template *t = NULL;
    skua_error err = {0};
    CHECK(jinja_compile(text, strlen(text), NULL, &t, &err) == 0, "%s", err.message);
    return t;
}

static const char *template_of(const json_t *corpus, const char *family)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(corpus, "cases"), i, c)
        if (!strncmp(json_string_value(json_object_get(c, "name")), family, strlen(family)))
            return json_string_value(json_object_get(json_object_get(corpus, "values"),
                                                     json_string_value(json_object_get(json_object_get(c, "template"), "use"))));
    return NULL;
}

/* The check must see every trait of a style: with any one of them wrong it fails. */
static void check_notices(const char *name, const struct chat_style *right, struct jinja_template *t)
{
    struct chat_style wrong[9];
    skua_error err = {0};
    for (size_t i = 0; i < 9; i++)
        wrong[i] = *right;
    wrong[0].empty_system ^= true;
    wrong[1].response_users ^= right->history[2] != STYLE_KEPT; /* else nothing depends on it */
    wrong[2].inline_tags ^= true;
    wrong[3].python_values ^= true;
    wrong[4].call_gap = (char *)(uintptr_t)(strlen(right->call_gap) == 1 ? "\n\n" : "\n");
    wrong[5].history[2] = right->history[2] == STYLE_EMPTY ? STYLE_DROPPED : STYLE_EMPTY;
    wrong[6].generation[2] = (char *)(uintptr_t)"x";
    wrong[7].rules = right->head;
    wrong[8].first_tool_bare ^= true;
    for (size_t i = 0; i < 9; i++)
        if (memcmp(&wrong[i], right, sizeof *right) != 0)
            CHECK(chat_style_check(&wrong[i], render, t, 1, 1500, &err) == SKUA_ETEMPLATE, "%s: trait %zu goes unnoticed", name, i);
}

static void check_equal(const char *name, const char *text, int n)
{
    struct jinja_template *t = compile(text);
    struct chat_style s;
    skua_error err = {0};
    if (CHECK(chat_style_find(render, t, &s, &err) == 0, "%s: %s", name, err.message)) {
        for (uint64_t seed = 1; seed <= 4; seed++)
            CHECK(chat_style_check(&s, render, t, seed, n, &err) == 0, "%s, seed %d: %s", name, (int)seed, err.message);
        check_notices(name, &s, t);
    }
    chat_style_free(&s);
    jinja_free(t);
}

int main(void)
{
    static const char *const ours[] = {"qwen3.5", "qwen3.6", "qwen3.8", "qwen-small"};
    static const char *const others[] = {"chatml", "llama3", "mistral", "gemma", "deepseek", "hermes", "generation"};
    json_use_mem();
    json_t *corpus = load("tests/golden/jinja/chats.json");
    for (size_t i = 0; i < 4; i++)
        check_equal(ours[i], template_of(corpus, ours[i]), 1500);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct jinja_template *t = compile(template_of(corpus, others[i]));
        struct chat_style s;
        skua_error err = {0};
        CHECK(chat_style_find(render, t, &s, &err) == SKUA_ETEMPLATE, "%s is taken for one of ours", others[i]);
        chat_style_free(&s);
        jinja_free(t);
    }
    const char *path = support_shared("hf/tiny-dense/tokenizer_config.json");
    json_t *config = path ? load(path) : NULL;
    if (config)
        check_equal("tiny", json_string_value(json_object_get(config, "chat_template")), 1500);
    json_decref(config);
    json_decref(corpus);
    return support_finish("test_api_style");
}
