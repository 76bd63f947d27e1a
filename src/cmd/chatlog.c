/* A conversation; see chatlog.h. */
#include "cmd/chatlog.h"

#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"

static const char *const roles[] = {"system", "user", "assistant", "tool"};

static bool known_role(const char *role)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

int chatlog_init(struct chatlog *c, skua_error *err)
{
    c->messages = json_array();
    return c->messages ? 0 : error_nomem(err, "chat log", sizeof(json_t *));
}

void chatlog_free(struct chatlog *c)
{
    json_decref(c->messages);
    c->messages = NULL;
}

size_t chatlog_len(const struct chatlog *c) { return json_array_size(c->messages); }

/* A JSON string of n bytes, malformed ones as U+FFFD; NULL when memory is short. */
static json_t *text_value(const char *s, size_t n)
{
    json_t *v = json_stringn(s, n);
    if (v)
        return v;
    struct strbuf clean = {0};
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len)
            strbuf_append(&clean, s + i, (size_t)len);
        else
            strbuf_append(&clean, "\xEF\xBF\xBD", 3);
        i += len ? (size_t)len : 1;
    }
    if (!strbuf_failed(&clean))
        v = json_stringn(strbuf_str(&clean), clean.len);
    strbuf_free(&clean);
    return v;
}

static json_t *message(const char *role, const char *content, size_t n, const char *reasoning, size_t n_reasoning)
{
    json_t *m = json_object();
    bool ok = m && json_object_set_new(m, "role", json_string(role)) == 0 &&
              json_object_set_new(m, "content", text_value(content, n)) == 0 &&
              (!reasoning || json_object_set_new(m, "reasoning_content", text_value(reasoning, n_reasoning)) == 0);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

int chatlog_add(struct chatlog *c, const char *role, const char *content, size_t n, const char *reasoning, size_t n_reasoning,
                skua_error *err)
{
    if (!known_role(role))
        return error_set(err, SKUA_EARG, "chat role '%s', expected system, user, assistant or tool", role);
    if (chatlog_len(c) && strcmp(role, "system") == 0)
        return error_set(err, SKUA_EARG, "system message behind %zu others, expected it first", chatlog_len(c));
    if (json_array_append_new(c->messages, message(role, content, n, reasoning, n_reasoning)) != 0)
        return error_nomem(err, "chat message", n);
    return 0;
}

static bool has_system(const struct chatlog *c)
{
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, 0), "role"));
    return role && strcmp(role, "system") == 0;
}

int chatlog_set_system(struct chatlog *c, const char *text, size_t n, skua_error *err)
{
    if (!text) {
        if (has_system(c))
            json_array_remove(c->messages, 0);
        return 0;
    }
    json_t *m = message("system", text, n, NULL, 0);
    int rc = has_system(c) ? json_array_set_new(c->messages, 0, m) : json_array_insert_new(c->messages, 0, m);
    return rc ? error_nomem(err, "system message", n) : 0;
}

void chatlog_pop(struct chatlog *c)
{
    if (chatlog_len(c))
        json_array_remove(c->messages, chatlog_len(c) - 1);
}

void chatlog_reset(struct chatlog *c)
{
    while (chatlog_len(c) > (has_system(c) ? 1u : 0u))
        chatlog_pop(c);
}

/* ---- the file ---- */

struct sink {
    struct file_writer writer;
    skua_error *err;
    int rc; /* of the first write that failed */
};

static int write_chunk(const char *bytes, size_t n, void *user)
{
    struct sink *s = user;
    if (!s->rc) /* jansson goes on after a key that could not be written */
        s->rc = file_writer_write(&s->writer, bytes, n, s->err);
    return s->rc;
}

int chatlog_save(const struct chatlog *c, const char *path, skua_error *err)
{
    struct sink s = {.err = err};
    int rc = file_writer_open(&s.writer, path, err);
    if (rc)
        return rc;
    if (json_dump_callback(c->messages, write_chunk, &s, JSON_INDENT(2)) == 0)
        rc = write_chunk("\n", 1, &s);
    else
        rc = s.rc ? s.rc : error_nomem(err, path, 0); /* valid messages: nothing else can go wrong */
    if (!rc)
        return file_writer_commit(&s.writer, err);
    file_writer_abort(&s.writer);
    return rc;
}

static int check_message(const json_t *m, size_t index, const char *path, skua_error *err)
{
    if (!json_is_object(m))
        return error_set(err, SKUA_EFORMAT, "%s: message %zu is not an object", path, index);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)m, key, value) {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && strcmp(key, "reasoning_content") != 0)
            return error_set(err, SKUA_EFORMAT,
                             "%s: message %zu has the field '%.80s', expected role, content and reasoning_content", path, index, key);
        if (!json_is_string(value))
            return error_set(err, SKUA_EFORMAT, "%s: message %zu: %s is not a string", path, index, key);
    }
    const char *role = json_string_value(json_object_get(m, "role"));
    if (!role || !json_object_get(m, "content"))
        return error_set(err, SKUA_EFORMAT, "%s: message %zu has no %s", path, index, role ? "content" : "role");
    if (!known_role(role))
        return error_set(err, SKUA_EFORMAT, "%s: message %zu: role '%.80s', expected system, user, assistant or tool", path, index,
                         role);
    if (index && strcmp(role, "system") == 0)
        return error_set(err, SKUA_EFORMAT, "%s: message %zu: role system, expected it only at message 0", path, index);
    return 0;
}

int chatlog_load(struct chatlog *c, const char *path, skua_error *err)
{
    char *data;
    size_t size;
    json_error_t at;
    int rc = file_read_all(path, CHATLOG_MAX_FILE_BYTES, &data, &size, err);
    if (rc)
        return rc;
    bool no_memory;
    json_t *messages = json_read(data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at, &no_memory);
    mem_free(data);
    if (no_memory)
        return error_nomem(err, path, size);
    if (!messages)
        return error_set(err, SKUA_EFORMAT, "%s: line %d, column %d: %s", path, at.line, at.column, at.text);
    if (!json_is_array(messages))
        rc = error_set(err, SKUA_EFORMAT, "%s: is not an array of messages", path);
    for (size_t i = 0; !rc && i < json_array_size(messages); i++)
        rc = check_message(json_array_get(messages, i), i, path, err);
    if (rc) {
        json_decref(messages);
        return rc;
    }
    json_decref(c->messages);
    c->messages = messages;
    return 0;
}
