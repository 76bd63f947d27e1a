/* Faults where text is worked on: the tokenizer of a file, chat templates with tools and tool calls, reading and writing JSON. */
#include "fault/sweep.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cmd/chatlog.h"
#include "jinja/chat.h"
#include "model/vocab.h"

/* What the first run gives is what every successful run must give. */
struct first {
    char *data;
    size_t n;
};

static void same(struct first *f, const void *data, size_t n, const char *what)
{
    if (!f->data) {
        f->data = malloc(n + 1);
        f->n = n;
        memcpy(f->data, data, n);
    }
    CHECK(n == f->n && memcmp(data, f->data, n) == 0, "%s: another result of %zu bytes", what, n);
}

/* ---- tokenizer ---- */

static int tokenize(void *context, skua_error *err)
{
    static const char text[] = "<|im_start|>user\nStra\xC3\x9F" "e 12345 \xE4\xBD\xA0\xE5\xA5\xBD \n\n  don't<|im_end|>";
    static struct first first;
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct token_vec ids = {0};
    struct strbuf back = {0};
    int rc = gguf_open(&g, context, err);
    if (!rc)
        rc = vocab_load(g, &t, err);
    for (int special = 0; special < 2 && !rc; special++)
        rc = tokenizer_encode(t, text, sizeof text - 1, special, &ids, err);
    if (!rc)
        rc = tokenizer_decode(t, ids.ids, ids.n, true, &back, err);
    if (!rc) {
        same(&first, ids.ids, ids.n * sizeof *ids.ids, "tokenizer");
        CHECK(back.len == 2 * (sizeof text - 1) && !memcmp(back.data, text, sizeof text - 1) &&
                  !memcmp(back.data + sizeof text - 1, text, sizeof text - 1), "the text does not come back");
    }
    strbuf_free(&back);
    token_vec_free(&ids);
    tokenizer_free(t);
    gguf_close(g);
    if (!err) {
        free(first.data);
        first.data = NULL;
    }
    return rc;
}

/* ---- templates ---- */

static const char template[] =
    "{%- macro show(x, sep=', ') -%}{{ x | map('upper') | join(sep) }}{%- endmacro -%}"
    "{%- set ns = namespace(n=0, seen={}) -%}"
    "{%- for t in tools %}{{ t | tojson(indent=2) }}{% endfor -%}"
    "{%- for m in messages[::-1] -%}{%- set ns.n = ns.n + 1 -%}"
    "{{ loop.index }}/{{ loop.length }} {{ m.role }}: {{ m.content | default('', true) | trim | replace('a', 'bb') }}"
    "{%- for c in m.tool_calls or [] -%}{%- for k, v in c.function.arguments | items -%}"
    "[{{ k }}={{ v | tojson if v is not string else v }}]{%- endfor -%}{%- endfor -%}\n"
    "{%- endfor -%}{{ show(['x', 'y', '\xC3\xBC'] + messages | map(attribute='role') | list) }}"
    "{{ '%s %05.1f %r' % ('a' * 70, 2.5, [1, none]) }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ 'a,b,,c'.split(',') }}{{ (range(40) | list | string)[5:200:3] }}{{ {'k': {'deep': [1.5, true]}} | tojson }}";

static const char messages[] =
    "[{\"role\": \"system\", \"content\": \"Be a banana\"}, {\"role\": \"user\", \"content\": \"  What\\nis it? \\u00fc\"},"
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\":"
    "\"{\\\"city\\\": \\\"Paris\\\", \\\"days\\\": [1, 2, {\\\"x\\\": 1.25}]}\"}}, {\"function\": {\"name\": \"g\", \"arguments\": {\"a\": "
    "true}}}]},"
    "{\"role\": \"tool\", \"content\": \"rain\"}]";

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\":"
    "{\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"array\"}}}}}]";

static int read_json(const char *text, json_t **out, skua_error *err)
{
    json_error_t at;
    bool no_memory;
    *out = json_read(text, strlen(text), JSON_REJECT_DUPLICATES, &at, &no_memory);
    CHECK(*out || no_memory, "'%.40s' is taken for bad JSON: %s", text, at.text);
    return *out ? 0 : error_nomem(err, "JSON", strlen(text));
}

static int render(void *context, skua_error *err)
{
    static struct first first;
    struct jinja_template *t = NULL;
    json_t *m = NULL, *k = NULL;
    struct strbuf out = {0};
    (void)context;
    int rc = read_json(messages, &m, err);
    if (!rc)
        rc = read_json(tools, &k, err);
    if (!rc)
        rc = jinja_compile(template, sizeof template - 1, NULL, &t, err);
    if (!rc)
        rc = chat_render(t, m, k, true, NULL, "<s>", "</s>", &out, err);
    if (!rc) {
        CHECK(strstr(out.data, "[city=Paris][days=[1, 2, {\"x\": 1.25}]][a=true]"), "arguments: %s", out.data);
        same(&first, out.data, out.len, "template");
    }
    json_decref(m);
    json_decref(k);
    jinja_free(t);
    strbuf_free(&out);
    if (!err) {
        free(first.data);
        first.data = NULL;
    }
    return rc;
}

/* ---- conversations: JSON written to a file and read back ---- */

static int converse(void *context, skua_error *err)
{
    const char *path = context;
    struct chatlog a = {0}, b = {0};
    char answer[3000];
    memset(answer, 'x', sizeof answer);
    memcpy(answer, "caf\xC3\xA9 \xFF \"quoted\"\n", 17);
    int rc = chatlog_init(&a, err);
    if (!rc)
        rc = chatlog_init(&b, err);
    if (!rc)
        rc = chatlog_set_system(&a, "be brief", 8, err);
    if (!rc)
        rc = chatlog_add(&a, "user", "hello", 5, NULL, 0, err);
    if (!rc)
        rc = chatlog_add(&a, "assistant", answer, sizeof answer, "hmm", 3, err);
    if (!rc)
        rc = chatlog_save(&a, path, err);
    if (!rc)
        rc = chatlog_load(&b, path, err);
    if (!rc)
        CHECK(chatlog_len(&b) == 3 && json_equal(a.messages, b.messages), "the conversation does not come back");
    else
        CHECK(b.messages == NULL || chatlog_len(&b) == 0, "half a conversation");
    chatlog_free(&a);
    chatlog_free(&b);
    sweep_disarm();
    char temp[4200]; /* of the writer (base/file.h) */
    snprintf(temp, sizeof temp, "%s.tmp.%ld", path, (long)getpid());
    CHECK(access(temp, F_OK) != 0, "%s is left behind", temp);
    char *data;
    size_t n;
    skua_error e;
    if (file_read_all(path, 1 << 20, &data, &n, &e) == 0) { /* there: then whole */
        CHECK(n > sizeof answer && memcmp(data + n - 2, "]\n", 2) == 0, "half a file of %zu bytes", n);
        mem_free(data);
    }
    unlink(path);
    return rc;
}

int main(void)
{
    char path[4096];
    const char *model = support_model("tiny-q8_0.gguf");
    sweep_init();
    if (model) {
        snprintf(path, sizeof path, "%s", model);
        sweep("tokenizer", tokenize, path, 200);
        tokenize(path, NULL);
    }
    sweep("template", render, NULL, 700);
    render(NULL, NULL);
    snprintf(path, sizeof path, "%s", support_temp("chat.json"));
    sweep("conversation", converse, path, 500);
    return support_finish("test_data");
}
