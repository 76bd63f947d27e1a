/* Remembered calls: what is found and what not, bounds, files that are whole, damaged and cut, memory and files that fail, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "api/replay.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/support.h"

static bool found(struct replay *r, const char *id, const char *name, const char *arguments, const char *expected)
{
    struct strbuf text = {0};
    json_t *v = json_loads(arguments, JSON_DECODE_ANY, NULL);
    bool ok = replay_find(r, id, name, v, &text);
    ok = expected ? ok && strcmp(strbuf_str(&text), expected) == 0 : !ok && !text.len;
    json_decref(v);
    strbuf_free(&text);
    return ok;
}

static int put(struct replay *r, const char *id, const char *name, const char *arguments, const char *text)
{
    return replay_put(r, id, name, arguments, text, strlen(text), NULL);
}

static void test_find(void **state)
{
    struct replay *r;
    size_t n;
    uint64_t hits;
    skua_error err;
    (void)state;
    assert_int_equal(replay_new(0, &r, &err), 0);
    CHECK(put(r, "call_1", "f", "{\"a\":1,\"b\":\"x\"}", "<tool_call>one</tool_call>") == 0, "put");
    CHECK(put(r, "call_2", "f", "{}", "") == 0, "put");
    CHECK(found(r, "call_1", "f", "{\"b\": \"x\", \"a\": 1}", "<tool_call>one</tool_call>"), "the order of keys does not count");
    CHECK(found(r, "call_1", "f", "{\"a\":2,\"b\":\"x\"}", NULL), "other arguments");
    CHECK(found(r, "call_1", "g", "{\"a\":1,\"b\":\"x\"}", NULL), "another name");
    CHECK(found(r, "call_3", "f", "{}", NULL), "another id");
    CHECK(found(r, "call_2", "f", "{}", ""), "an empty text");
    CHECK(put(r, "call_1", "g", "{\"a\":1,\"a\":2}", "new") == 0 && found(r, "call_1", "g", "{\"a\":2}", "new"),
          "replaced; the last key counts");
    CHECK(put(r, "call_4", "g", "{\"s\":\"\\u0000\"}", "nul") == 0, "a zero character in the arguments");
    CHECK(replay_put(r, "call_5", "g", "{", "x", 1, &err) == SKUA_EARG, "arguments that are no JSON");
    CHECK(!replay_find(r, "call_2", "f", NULL, NULL), "no arguments");
    replay_get_stats(r, &n, &hits);
    CHECK(n == 3 && hits == 3, "%zu calls, %llu hits", n, (unsigned long long)hits);
    replay_free(r);
    replay_free(NULL);
}

static void test_bounds(void **state)
{
    struct replay *r;
    size_t n;
    uint64_t hits;
    char id[24];
    (void)state;
    assert_int_equal(replay_new(100, &r, NULL), 0);
    for (int i = 0; i < 250; i++) {
        snprintf(id, sizeof id, "call_%d", i);
        put(r, id, "f", "{}", id);
    }
    put(r, "call_150", "f", "{}", "again"); /* becomes the newest */
    put(r, "more", "f", "{}", "more");
    for (int i = 0; i < 250; i++) {
        snprintf(id, sizeof id, "call_%d", i);
        CHECK(found(r, id, "f", "{}", i == 150 ? "again" : i > 151 ? id : i == 151 ? NULL : NULL), "call %d", i);
    }
    replay_get_stats(r, &n, &hits);
    CHECK(n == 100, "%zu calls", n);
    replay_free(r);
}

static int save_some(struct replay **r, const char *path)
{
    if (replay_new(0, r, NULL))
        return -1;
    put(*r, "call_a", "f", "{\"x\":[1,2]}", "text a\n");
    put(*r, "call_b", "g", "{}", "text b");
    return replay_save(*r, path, NULL);
}

static void test_files(void **state)
{
    struct replay *r = NULL, *q = NULL;
    const char *path = support_temp("calls");
    char *data;
    size_t size, n;
    uint64_t hits;
    skua_error err;
    (void)state;
    CHECK(save_some(&r, path) == 0 && replay_new(0, &q, NULL) == 0, "save");
    CHECK(replay_load(q, path, &err) == 0 && found(q, "call_a", "f", "{\"x\":[1,2]}", "text a\n") &&
          found(q, "call_b", "g", "{}", "text b"), "load");
    CHECK(file_read_all(path, 1 << 20, &data, &size, &err) == 0, "read");
    replay_free(q);
    replay_new(0, &q, NULL);
    const char *bad = support_temp("bad");
    for (size_t i = 0; i < 2 * size; i++) { /* each byte changed, each length cut */
        struct file_writer w;
        size_t at = i % size;
        data[at] ^= i < size ? 0x20 : 0;
        CHECK(file_writer_open(&w, bad, &err) == 0 && file_writer_write(&w, data, i < size ? size : at, &err) == 0 &&
              file_writer_commit(&w, &err) == 0,
              "write");
        data[at] ^= i < size ? 0x20 : 0;
        CHECK(replay_load(q, bad, &err) == SKUA_EFORMAT && strncmp(err.message, bad, strlen(bad)) == 0, "damage %zu is seen", i);
    }
    replay_get_stats(q, &n, &hits);
    CHECK(n == 0, "nothing is taken of damaged files");
    CHECK(replay_load(q, support_temp("missing"), &err) == SKUA_EIO, "a missing file");
    mem_free(data);
    replay_free(q);
    replay_free(r);
}

static struct replay *journaled(const char *path)
{
    struct replay *r = NULL;
    skua_error err = {0};
    CHECK(replay_new(0, &r, &err) == 0 && replay_journal(r, path, &err) == 0, "%s", err.message);
    return r;
}

static void write_bytes(const char *path, const char *data, size_t n)
{
    struct file_writer w;
    skua_error err;
    CHECK(file_writer_open(&w, path, &err) == 0 && file_writer_write(&w, data, n, &err) == 0 && file_writer_commit(&w, &err) == 0, "write");
}

/* What nobody saved is there again, up to the first byte that is not as it was, and what comes then is too. */
static void test_journal(void **state)
{
    static const char *const ids[] = {"call_1", "call_2", "call_3"};
    const char *path = support_temp("journal"), *saved = support_temp("calls");
    size_t ends[4] = {0}, size, n;
    uint64_t hits;
    char *data;
    skua_error err;
    (void)state;
    struct replay *r = journaled(path);
    for (int i = 0; i < 3; i++) {
        CHECK(put(r, ids[i], "f", "{}", ids[i]) == 0 && file_read_all(path, 1 << 20, &data, &ends[i + 1], &err) == 0, "put");
        mem_free(data);
    }
    replay_free(r);
    CHECK(file_read_all(path, 1 << 20, &data, &size, &err) == 0 && size == ends[3] && ends[1] > 6, "%zu bytes", size);
    for (size_t i = 0; i <= 2 * size; i++) { /* each length cut, each byte changed */
        const size_t at = i <= size ? i : i - size - 1;
        size_t whole = 0;
        while (whole < 3 && ends[whole + 1] <= at)
            whole++;
        data[at % size] ^= i > size ? 0x20 : 0;
        write_bytes(path, data, i <= size ? i : size);
        data[at % size] ^= i > size ? 0x20 : 0;
        r = journaled(path);
        replay_get_stats(r, &n, &hits);
        CHECK(n == whole, "%zu: %zu calls, expected %zu", i, n, whole);
        CHECK(put(r, "call_4", "g", "{}", "four") == 0, "put");
        replay_free(r);
        r = journaled(path);
        replay_get_stats(r, &n, &hits);
        CHECK(n == whole + 1 && found(r, "call_4", "g", "{}", "four"), "%zu: then %zu", i, n);
        CHECK(!whole || found(r, "call_1", "f", "{}", "call_1"), "%zu: the first", i);
        replay_free(r);
    }
    mem_free(data);
    write_bytes(path, "", 0);
    r = journaled(path);
    CHECK(put(r, "call_1", "f", "{}", "one") == 0 && replay_save(r, saved, &err) == 0 && put(r, "call_2", "f", "{}", "two") == 0, "save");
    replay_free(r);
    r = journaled(path);
    CHECK(found(r, "call_1", "f", "{}", NULL) && found(r, "call_2", "f", "{}", "two"), "what is saved is not in the journal");
    CHECK(replay_load(r, saved, &err) == 0 && found(r, "call_1", "f", "{}", "one"), "it is in the file");
    replay_free(r);
    replay_new(0, &r, NULL);
    CHECK(replay_journal(r, "/nowhere/journal", &err) == SKUA_EIO && strstr(err.message, "/nowhere/journal"), "no folder");
    for (uint64_t k = 1;; k++) { /* each file operation fails */
        write_bytes(path, "", 0);
        fault_set_io(k, true);
        const int rc = replay_journal(r, path, &err), put_rc = put(r, "call_9", "f", "{}", "nine");
        const bool over = fault_io_count() < k;
        fault_set_io(0, false);
        CHECK((rc == 0 || rc == SKUA_EIO) && put_rc == 0 && found(r, "call_9", "f", "{}", "nine"), "operation %llu", (unsigned long long)k);
        if (over)
            break;
        CHECK(replay_journal(r, path, &err) == 0 && put(r, "call_8", "f", "{}", "eight") == 0, "again");
    }
    replay_free(r);
}

/* Every allocation and every file operation fails once: reported, nothing is left behind, and what was there stays. */
static void test_faults(void **state)
{
    const char *path = support_temp("faulty");
    size_t blocks = mem_live_blocks(), n;
    uint64_t hits;
    (void)state;
    for (int io = 0; io < 2; io++)
        for (uint64_t at = 1;; at++) {
            struct replay *r = NULL, *q = NULL;
            CHECK(save_some(&r, path) == 0, "save");
            (io ? fault_set_io : fault_set_alloc)(at, true);
            int rc = replay_put(r, "call_c", "f", "{\"y\":\"z\"}", "text c", 6, NULL);
            if (!rc)
                rc = replay_save(r, path, NULL);
            if (!rc)
                rc = replay_new(0, &q, NULL);
            if (!rc)
                rc = replay_load(q, path, NULL);
            bool hit = (io ? fault_io_count() : fault_alloc_count()) >= at;
            (io ? fault_set_io : fault_set_alloc)(0, false);
            CHECK(!hit == !rc, "fault %llu is reported", (unsigned long long)at);
            if (q && rc) {
                replay_get_stats(q, &n, &hits);
                CHECK(n == 0, "nothing is taken");
            }
            CHECK(found(r, "call_a", "f", "{\"x\":[1,2]}", "text a\n"), "what was there stays");
            replay_free(q);
            CHECK(replay_new(0, &q, NULL) == 0 && replay_load(q, path, NULL) == 0, "the file is whole");
            replay_free(q);
            replay_free(r);
            CHECK(mem_live_blocks() == blocks, "memory is left");
            if (!hit)
                break;
        }
}

static void *worker(void *user)
{
    struct replay *r = user;
    char id[24];
    for (int i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "call_%d", i % 60);
        put(r, id, "f", "{\"k\":1}", "text");
        if (!found(r, id, "f", "{\"k\":1}", "text")) { /* another thread may have pushed it out */
            size_t n;
            uint64_t hits;
            replay_get_stats(r, &n, &hits);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct replay *r;
    pthread_t threads[3];
    const char *path = support_temp("threads");
    size_t n;
    uint64_t hits;
    (void)state;
    assert_int_equal(replay_new(50, &r, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, worker, r);
    for (int i = 0; i < 5; i++)
        CHECK(replay_save(r, path, NULL) == 0 && replay_load(r, path, NULL) == 0, "save and load while others put");
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    replay_get_stats(r, &n, &hits);
    CHECK(n == 50, "%zu calls", n);
    replay_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),   cmocka_unit_test(test_bounds),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_journal), cmocka_unit_test(test_faults), cmocka_unit_test(test_threads),
    };
    json_use_mem();
    cmocka_run_group_tests_name("replay", tests, NULL, NULL);
    return support_finish("test_replay");
}
