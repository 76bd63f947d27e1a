/* The conversation log and its file: round trips, refused files, failures of memory and disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cmd/chatlog.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static skua_error err;
static char path[4096];

static void write_text(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static int add(struct chatlog *c, const char *role, const char *content, const char *reasoning)
{
    return chatlog_add(c, role, content, strlen(content), reasoning, reasoning ? strlen(reasoning) : 0, &err);
}

static const char *field(const struct chatlog *c, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(c->messages, i), key));
}

static void test_messages(void **state)
{
    (void)state;
    struct chatlog c;
    CHECK(chatlog_init(&c, &err) == 0 && chatlog_len(&c) == 0);
    CHECK(add(&c, "user", "hello", NULL) == 0 && add(&c, "assistant", "hi", "thinking") == 0 && chatlog_len(&c) == 2);
    CHECK(!strcmp(field(&c, 0, "role"), "user") && !strcmp(field(&c, 0, "content"), "hello") && !field(&c, 0, "reasoning_content"));
    CHECK(!strcmp(field(&c, 1, "reasoning_content"), "thinking"));
    CHECK(add(&c, "robot", "x", NULL) == SKUA_EARG && chatlog_len(&c) == 2);
    CHECK(!strcmp(err.message, "chat role 'robot', expected system, user, assistant or tool"));
    CHECK(add(&c, "system", "x", NULL) == SKUA_EARG);
    CHECK(!strcmp(err.message, "system message behind 2 others, expected it first"));
    CHECK(chatlog_set_system(&c, NULL, 0, &err) == 0 && chatlog_len(&c) == 2);
    CHECK(chatlog_set_system(&c, "be brief", 8, &err) == 0 && chatlog_len(&c) == 3 && !strcmp(field(&c, 0, "content"), "be brief"));
    CHECK(chatlog_set_system(&c, "be long", 7, &err) == 0 && chatlog_len(&c) == 3 && !strcmp(field(&c, 0, "content"), "be long"));
    chatlog_pop(&c);
    CHECK(chatlog_len(&c) == 2 && !strcmp(field(&c, 1, "content"), "hello"));
    chatlog_reset(&c);
    CHECK(chatlog_len(&c) == 1 && !strcmp(field(&c, 0, "role"), "system"));
    CHECK(chatlog_set_system(&c, NULL, 0, &err) == 0 && chatlog_len(&c) == 0);
    chatlog_pop(&c);
    chatlog_reset(&c);
    CHECK(add(&c, "user", "a\xff" "b\xc3", NULL) == 0 && !strcmp(field(&c, 0, "content"), "a\xef\xbf\xbd" "b\xef\xbf\xbd"));
    chatlog_free(&c);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct chatlog c, d;
    CHECK(chatlog_init(&c, &err) == 0 && chatlog_init(&d, &err) == 0);
    CHECK(chatlog_set_system(&c, "s", 1, &err) == 0);
    CHECK(add(&c, "user", "gr\xc3\xbc\xc3\x9f \"dich\"\n\t\x01 \xf0\x9f\x90\xa6", NULL) == 0);
    CHECK(chatlog_add(&c, "assistant", "zero\0byte", 9, "", 0, &err) == 0 && add(&c, "tool", "", NULL) == 0);
    CHECK(chatlog_save(&c, path, &err) == 0 && add(&d, "user", "replaced", NULL) == 0 && chatlog_load(&d, path, &err) == 0);
    CHECK(json_equal(c.messages, d.messages) && chatlog_len(&d) == 4);
    chatlog_reset(&c);
    CHECK(chatlog_set_system(&c, NULL, 0, &err) == 0 && chatlog_save(&c, path, &err) == 0 && chatlog_load(&d, path, &err) == 0);
    CHECK(chatlog_len(&d) == 0);
    CHECK(chatlog_save(&c, "/nonexistent-folder/x.json", &err) == SKUA_EIO && strstr(err.message, "/nonexistent-folder/x.json"));
    chatlog_free(&c);
    chatlog_free(&d);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message; /* behind "PATH: " */
    } bad[] = {
        {"{}", "is not an array of messages"},
        {"[1]", "message 0 is not an object"},
        {"[{\"role\":\"user\",\"content\":\"x\"},[]]", "message 1 is not an object"},
        {"[{\"content\":\"x\"}]", "message 0 has no role"},
        {"[{\"role\":\"user\"}]", "message 0 has no content"},
        {"[{\"role\":\"bot\",\"content\":\"x\"}]", "message 0: role 'bot', expected system, user, assistant or tool"},
        {"[{\"role\":1,\"content\":\"x\"}]", "message 0: role is not a string"},
        {"[{\"role\":\"user\",\"content\":null}]", "message 0: content is not a string"},
        {"[{\"role\":\"user\",\"content\":\"\",\"reasoning_content\":[]}]", "message 0: reasoning_content is not a string"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"name\":\"y\"}]",
         "message 0 has the field 'name', expected role, content and reasoning_content"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"y\"}]",
         "message 1: role system, expected it only at message 0"},
    };
    static const char good[] = "[{\"role\":\"user\",\"content\":\"caf\xc3\xa9 \\u0000\"}]";
    struct chatlog c;
    CHECK(chatlog_init(&c, &err) == 0 && add(&c, "user", "kept", NULL) == 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[4600];
        write_text(bad[i].text, strlen(bad[i].text));
        snprintf(want, sizeof want, "%s: %s", path, bad[i].message);
        CHECK(chatlog_load(&c, path, &err) == SKUA_EFORMAT && strcmp(err.message, want) == 0);
        CHECK(chatlog_len(&c) == 1 && !strcmp(field(&c, 0, "content"), "kept"));
    }
    for (size_t n = 0; n < sizeof good - 1; n++) { /* cut at every byte */
        write_text(good, n);
        CHECK(chatlog_load(&c, path, &err) == SKUA_EFORMAT && strstr(err.message, "line "));
        CHECK(!strcmp(field(&c, 0, "content"), "kept"));
    }
    write_text(good, sizeof good - 1);
    CHECK(chatlog_load(&c, path, &err) == 0 && chatlog_len(&c) == 1);
    write_text("[{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}]", 46);
    CHECK(chatlog_load(&c, path, &err) == SKUA_EFORMAT);
    char *deep = malloc(200000);
    memset(deep, '[', 200000);
    write_text(deep, 200000);
    free(deep);
    CHECK(chatlog_load(&c, path, &err) == SKUA_EFORMAT);
    unlink(path);
    CHECK(chatlog_load(&c, path, &err) == SKUA_EIO && strstr(err.message, path));
    chatlog_free(&c);
}

static int whole_life(void)
{
    struct chatlog c = {0}, d = {0};
    int rc = chatlog_init(&c, &err);
    if (!rc)
        rc = chatlog_init(&d, &err);
    if (!rc) {
        rc = chatlog_set_system(&c, "s", 1, &err);
        CHECK(chatlog_len(&c) == (rc ? 0u : 1u));
    }
    for (int i = 0; i < 10 && !rc; i++) {
        size_t len = chatlog_len(&c);
        rc = add(&c, i & 1 ? "assistant" : "user", "bad \xff text", "why");
        CHECK(chatlog_len(&c) == len + (rc == 0));
    }
    if (!rc)
        rc = chatlog_save(&c, path, &err);
    if (!rc) {
        rc = chatlog_load(&d, path, &err);
        CHECK(rc ? chatlog_len(&d) == 0 : json_equal(c.messages, d.messages));
    }
    chatlog_free(&c);
    chatlog_free(&d);
    return rc;
}

static void test_failures(void **state)
{
    (void)state;
    int failed = 0, rc;
    json_use_mem();
    for (uint64_t n = 1;; n++) {
        fault_set_alloc(n, false); /* this one and all after it */
        rc = whole_life();
        fault_set_alloc(0, false);
        if (!rc)
            break;
        CHECK(rc == SKUA_ENOMEM);
        failed++;
    }
    CHECK(failed > 100);
    failed = 0;
    for (uint64_t n = 1;; n++) {
        fault_set_io(n, true);
        rc = whole_life();
        fault_set_io(0, false);
        if (!rc)
            break;
        CHECK(rc == SKUA_EIO && strstr(err.message, path));
        failed++;
    }
    CHECK(failed >= 6); /* open, write, sync, rename, open, read */
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_failures),
    };
    snprintf(path, sizeof path, "%s/skua-chatlog-%ld.json", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
