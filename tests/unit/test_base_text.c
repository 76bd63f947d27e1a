/* base: byte strings, UTF-8, errors, the hash map, random numbers, JSON on our memory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hashmap.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "support/support.h"

/* ---- strbuf ---- */

static void test_strbuf(void)
{
    struct strbuf b = {0};
    char *model = malloc(300000), *taken;
    size_t n = 0, len;
    CHECK(strcmp(strbuf_str(&b), "") == 0 && !strbuf_failed(&b), "empty");
    for (uint64_t i = 0; n < 250000; i++) {
        size_t k = rng_bits(1, i, 0) % (i % 50 ? 40 : 9000);
        for (size_t j = 0; j < k; j++)
            model[n + j] = (char)rng_bits(2, i, j);
        strbuf_append(&b, model + n, k);
        n += k;
        CHECK(b.len == n && b.cap > n && strbuf_str(&b)[n] == '\0', "append %zu bytes", k);
    }
    CHECK(memcmp(b.data, model, n) == 0, "the bytes, zeros among them");
    strbuf_clear(&b);
    CHECK(b.len == 0 && strcmp(strbuf_str(&b), "") == 0, "clear");
    memset(model, 'x', 1000);
    model[1000] = '\0';
    for (int k = 250; k < 260; k++) { /* around the size of the formatting buffer */
        strbuf_clear(&b);
        strbuf_printf(&b, "%.*s|%d", k, model, k);
        CHECK(b.len == (size_t)k + 4 && b.data[k] == '|' && strtol(b.data + k + 1, NULL, 10) == k && b.data[k + 4] == '\0',
              "printf of %d bytes", k);
    }
    strbuf_puts(&b, "tail");
    strbuf_putc(&b, '\0');
    CHECK(memcmp(b.data + b.len - 5, "tail", 5) == 0 && b.data[b.len] == '\0', "puts, putc");
    taken = strbuf_take(&b, &len);
    CHECK(taken && len == 268 && !b.data && !b.len && !b.cap, "take %zu", len);
    mem_free(taken);
    taken = strbuf_take(&b, NULL);
    CHECK(taken && *taken == '\0', "take of nothing is an empty string");
    mem_free(taken);

    /* errors stick, the content stays, nothing is written behind it */
    strbuf_puts(&b, "kept");
    CHECK(!strbuf_reserve(&b, SIZE_MAX) && strbuf_failed(&b), "overflow");
    strbuf_puts(&b, "lost");
    CHECK(strcmp(b.data, "kept") == 0, "after a failure: '%s'", b.data);
    strbuf_clear(&b);
    CHECK(!strbuf_failed(&b), "clear resets");
    fault_set_alloc(1, true);
    strbuf_append(&b, model, 1000);
    strbuf_puts(&b, "x");
    fault_set_alloc(0, false);
    CHECK(strbuf_failed(&b) && b.len == 0, "a failed allocation");
    CHECK(strbuf_take(&b, &len) == NULL && !b.data && !b.failed, "a failed buffer gives nothing");
    strbuf_free(&b);
    free(model);
}

/* ---- UTF-8 ---- */

static void test_utf8_decode(void)
{
    static const uint8_t edge[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF};
    uint32_t cp;
    char s[4], again[4];
    long accepted[5] = {0}, wrong = 0;
    for (uint32_t v = 0; v < 1u << 24; v++) { /* every string of one, two and three bytes */
        int n = v < 256 ? 1 : v < 65536 ? 2 : 3;
        for (int i = 0; i < n; i++)
            s[i] = (char)(v >> (8 * (n - 1 - i)));
        int len = utf8_decode(s, (size_t)n, &cp);
        wrong += len > n || (len && (utf8_encode(cp, again) != len || memcmp(s, again, (size_t)len))) || (!len && cp != UTF8_REPLACEMENT);
        accepted[n] += len == n;
    }
    for (int lead = 0xF0; lead < 0x100; lead++)
        for (int second = 0; second < 256; second++)
            for (size_t k = 0; k < sizeof edge * sizeof edge; k++) {
                s[0] = (char)lead;
                s[1] = (char)second;
                s[2] = (char)edge[k / sizeof edge];
                s[3] = (char)edge[k % sizeof edge];
                int len = utf8_decode(s, 4, &cp);
                wrong += len && (utf8_encode(cp, again) != len || memcmp(s, again, (size_t)len));
                accepted[4] += len == 4;
            }
    CHECK(wrong == 0, "%ld strings are decoded to what is encoded otherwise", wrong);
    /* two bytes: 1920; three: 63488 without surrogates; four: leads F0 to F4 with 48 + 3 * 64 + 16 second bytes, 6 * 6 of these ends */
    CHECK(accepted[1] == 128 && accepted[2] == 1920 && accepted[3] == 61440 && accepted[4] == 256 * 36, "accepted %ld %ld %ld %ld",
          accepted[1], accepted[2], accepted[3], accepted[4]);
    wrong = 0;
    for (cp = 0; cp < 0x120000; cp++) {
        uint32_t back;
        int len = utf8_encode(cp, s);
        bool scalar = cp < 0x110000 && !(cp >= 0xD800 && cp < 0xE000);
        wrong += len != (!scalar ? 0 : cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        if (!len)
            continue;
        wrong += utf8_decode(s, (size_t)len, &back) != len || back != cp || utf8_complete_prefix(s, (size_t)len) != (size_t)len;
        for (int cut = 1; cut < len; cut++) /* what may still become a character is held back, alone and behind others */
            wrong += utf8_complete_prefix(s, (size_t)cut) != 0 || utf8_decode(s, (size_t)cut, &back) != 0;
    }
    CHECK(wrong == 0, "%ld code points do not come back", wrong);
}

static void test_utf8_rest(void)
{
    static const struct {
        const char *s;
        size_t n, complete, length;
    } cases[] = {{"", 0, 0, 0},          {"abc", 3, 3, 3},           {"ab\xC3", 3, 2, 3},       {"a\xC3\xA9", 3, 3, 2},
                 {"\xE2\x82", 2, 0, 2},  {"\xED\xA0", 2, 2, 2},      {"\xED\x9F", 2, 0, 2},     {"\xF4\x90", 2, 2, 2},
                 {"\xF0\x90\x80", 3, 0, 3}, {"\xF5\x80", 2, 2, 2},   {"\xC1", 1, 1, 1},         {"\x80\x80\x80", 3, 3, 3},
                 {"\xE2\x82\xACx\xF0", 5, 4, 3}, {"\xF0\x9F\x98\x80", 4, 4, 1}, {"\xFF", 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(utf8_complete_prefix(cases[i].s, cases[i].n) == cases[i].complete, "complete prefix %zu", i);
        CHECK(utf8_length(cases[i].s, cases[i].n) == cases[i].length, "length %zu", i);
    }
    static const char *const escapes[][2] = {
        {"a", "a"}, {"\n", "\\n"}, {"\t", "\\t"}, {"\r", "\\r"}, {"\x1b", "\\x1B"}, {"\x7f", "\\x7F"}, {"\\", "\\"}, {"\"", "\""},
        {"\xC2\x9B", "\\u009B"}, {"\xC2\xA0", "\xC2\xA0"}, {"\xE2\x80\xAE", "\\u202E"}, {"\xE2\x81\xA6", "\\u2066"},
        {"\xD8\x9C", "\\u061C"},
        {"\xE2\x80\xA8", "\\u2028"}, {"\xFF", "\\xFF"}, {"\xE2\x82", "\\xE2"}, {"\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"}};
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++) {
        char out[7];
        size_t used, n = strlen(escapes[i][0]);
        int len = utf8_escape(escapes[i][0], n, out, &used);
        CHECK((size_t)len == strlen(escapes[i][1]) && memcmp(out, escapes[i][1], (size_t)len) == 0 &&
              used == (*out == '\\' && out[1] == 'x' ? 1 : n),
              "escape %zu: %.*s", i, len, out);
    }
    char out[7];
    size_t used;
    CHECK(utf8_escape("\0", 1, out, &used) == 4 && memcmp(out, "\\x00", 4) == 0 && used == 1, "a zero byte");
}

/* ---- errors ---- */

static void test_error(void)
{
    skua_error e = {0};
    CHECK(error_set(NULL, SKUA_EIO, "x") == SKUA_EIO, "no error object");
    error_prefix(NULL, "x");
    CHECK(error_set(&e, SKUA_EARG, "%s is %d", "n", 5) == SKUA_EARG && e.code == SKUA_EARG && !strcmp(e.message, "n is 5"), "'%s'",
          e.message);
    error_prefix(&e, "file %c", 'f');
    CHECK(!strcmp(e.message, "file f: n is 5") && e.code == SKUA_EARG, "'%s'", e.message);
    error_set(&e, SKUA_EIO, "<%s>", e.message); /* its own message as an argument */
    CHECK(!strcmp(e.message, "<file f: n is 5>"), "'%s'", e.message);
    error_nomem(&e, "table", 42);
    CHECK(e.code == SKUA_ENOMEM && !strcmp(e.message, "out of memory: table (42 bytes)"), "'%s'", e.message);

    error_set(&e, SKUA_EIO, "a\nb\x1b[31m\xC2\x9B\xFF\xE2\x80\xAE\\n");
    CHECK(!strcmp(e.message, "a\\nb\\x1B[31m\\u009B\\xFF\\u202E\\n"), "'%s'", e.message);
    error_prefix(&e, "p\r");
    CHECK(!strcmp(e.message, "p\\r: a\\nb\\x1B[31m\\u009B\\xFF\\u202E\\n"), "'%s'", e.message);

    /* too long: cut between characters, still terminated */
    char name[2000];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(name, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof name; i += 3)
            memcpy(name + i, "\xE2\x82\xAC", 4);
        error_set(&e, SKUA_EIO, "%s", name);
        size_t n = strlen(e.message);
        CHECK(n <= sizeof e.message - 1 && n >= sizeof e.message - 4 && (n - shift) % 3 == 0 && !strncmp(e.message, name, n), "cut at %zu",
              n);
        error_prefix(&e, "%s", name);
        n = strlen(e.message);
        CHECK(n >= sizeof e.message - 4 && utf8_complete_prefix(e.message, n) == n && !strncmp(e.message, name, n - 2), "cut prefix at %zu",
              n);
    }
    memset(name, '\n', sizeof name);
    name[sizeof name - 1] = '\0';
    error_set(&e, SKUA_EIO, "%s", name);
    CHECK(strlen(e.message) == 506 && strspn(e.message, "\\n") == 506, "escapes are not cut: %zu", strlen(e.message));

    for (int a = SKUA_ESTATE - 1; a <= 1; a++)
        for (int b = SKUA_ESTATE; b < a; b++)
            CHECK(strcmp(skua_error_name(a), skua_error_name(b)) || (a > 0 && b < SKUA_ESTATE), "codes %d and %d have one name", a, b);
    CHECK(!strcmp(skua_error_name(-1000), skua_error_name(1)), "unknown codes");
}

static void test_without_path(void)
{
    char path[400], message[1000];
    CHECK(!strcmp(error_without_path("m.gguf: broken", "m.gguf"), "broken"), "path in front");
    CHECK(!strcmp(error_without_path("m.gguf: m.gguf: broken", "m.gguf"), "broken"), "twice");
    CHECK(!strcmp(error_without_path("m.gguf2: broken", "m.gguf"), "m.gguf2: broken"), "another path");
    CHECK(!strcmp(error_without_path("m.gguf", "m.gguf"), "m.gguf"), "nothing but the path");
    CHECK(!strcmp(error_without_path(": broken", ""), ": broken"), "no path");
    CHECK(!strcmp(error_without_path("a\\nb: broken", "a\nb"), "broken"), "an escaped path");
    memset(path, 'd', sizeof path);
    path[sizeof path - 1] = '\0';
    snprintf(message, sizeof message, "%s: %s: broken", path, path + sizeof path - 1 - ERROR_PATH_BYTES);
    CHECK(!strcmp(error_without_path(message, path), "broken"), "a long path and its tail");
}

/* ---- hash map ---- */

static void test_hashmap(void)
{
    enum { N = 100000 };
    struct hashmap m = {0};
    static char keys[N][8];
    uint32_t v = 7;
    CHECK(!hashmap_get(&m, "x", 1, &v) && v == 7, "a zeroed map holds nothing");
    hashmap_free(&m);
    CHECK(hashmap_init(&m, 10) == 0, "init");
    long wrong = 0;
    for (uint32_t i = 0; i < N; i++) { /* keys of 0 to 7 bytes, with zeros inside, all different */
        size_t len = i ? 1 + i % 7 : 0;
        uint64_t bits = i % 7 >= 3 || !i ? rng_bits(3, i, 0) << 32 | i : i;
        memcpy(keys[i], &bits, 8);
        int rc = hashmap_put(&m, keys[i], len, i);
        wrong += rc != 0 && rc != 1;
    }
    CHECK(wrong == 0 && m.used <= N && m.used * 2 <= m.mask + 1, "%zu entries in %zu slots", m.used, m.mask + 1);
    for (uint32_t i = 0; i < N; i++) { /* the first of equal keys counts */
        size_t len = i ? 1 + i % 7 : 0;
        char copy[8];
        memcpy(copy, keys[i], 8);
        bool found = hashmap_get(&m, copy, len, &v);
        wrong += !found || v > i || (v ? 1 + v % 7 : 0) != len || memcmp(keys[v], keys[i], len);
        wrong += hashmap_put(&m, copy, len, 5) != 1;
    }
    CHECK(wrong == 0, "%ld keys are lost or changed", wrong);
    CHECK(!hashmap_get(&m, "absent!!", 8, &v), "a key that is not there");
    size_t used = m.used;
    hashmap_free(&m);
    fault_set_alloc(1, true);
    CHECK(hashmap_init(&m, 10) == SKUA_ENOMEM, "init without memory");
    CHECK(hashmap_init(&m, 2) == 0, "init");
    uint32_t i = 0, failed = 0;
    fault_set_alloc(1, true);
    for (; i < 100; i++)
        if (hashmap_put(&m, keys[1000 + 7 * i], 6, i) == SKUA_ENOMEM) {
            failed++;
            fault_set_alloc(1, true);
            CHECK(failed < 2 || i < 100, "growing");
            fault_set_alloc(0, false);
            CHECK(hashmap_put(&m, keys[1000 + 7 * i], 6, i) == 0, "again with memory");
        }
    fault_set_alloc(0, false);
    for (i = 0; i < 100; i++)
        CHECK(hashmap_get(&m, keys[1000 + 7 * i], 6, &v) && v == i, "key %u after a failed growth", i);
    CHECK(failed == 1 && used > 50000, "%u failures", failed);
    hashmap_free(&m);
}

/* ---- random numbers: the published vectors of Philox4x32-10 and splitmix64 ---- */

static void test_rng(void)
{
    CHECK(rng_bits(0, 0, 0) == 0xe169c58d6627e8d5u, "%016" PRIx64, rng_bits(0, 0, 0));
    CHECK(rng_bits(UINT64_MAX, UINT64_MAX, UINT64_MAX) == 0x41c83b0e408f276du, "%016" PRIx64, rng_bits(UINT64_MAX, UINT64_MAX, UINT64_MAX));
    CHECK(rng_bits(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu) == 0x94fdccebd16cfe09u, "%016" PRIx64,
          rng_bits(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu));
    CHECK(rng_uniform(0, 0, 0) == (double)(0xe169c58d6627e8d5u >> 11) / 9007199254740992.0, "uniform");
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_uniform(9, i, 1);
        CHECK(u >= 0 && u < 1, "%g", u);
        sum += u;
    }
    CHECK(sum > 49500 && sum < 50500, "mean %g", sum / 100000); /* more than five standard deviations */
    static const uint64_t split[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
                                     16408922859458223821u};
    uint64_t state = 1234567;
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        uint64_t x = rng_next(&state);
        CHECK(x == split[i], "splitmix64 %zu: %" PRIu64, i, x);
    }
}

/* ---- JSON ---- */

static void test_json(void)
{
    static char text[40000];
    json_error_t at;
    bool no_memory = true;
    json_use_mem();
    json_object_seed(1);
    size_t live = mem_live_blocks();
    CHECK(!json_read("[1, }", 5, 0, &at, &no_memory) && !no_memory && at.line == 1 && at.column == 5, "bad JSON at %d", at.column);
    CHECK(mem_live_blocks() == live, "bad JSON leaves blocks");
    size_t n = (size_t)snprintf(text, sizeof text, "{\"long\": \"\\u00e9");
    memset(text + n, 'y', 30000);
    n += 30000;
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "\\n\", \"list\": [1, 2.5, true, null, {\"a\": {\"b\": \"\\ud83d\\ude00\"}}], \"%0200d\": -1}", 7);
    json_t *whole = json_read(text, n, 0, &at, &no_memory);
    CHECK(whole && !no_memory && json_string_length(json_object_get(whole, "long")) == 30003, "good JSON: %s", at.text);
    for (int once = 0; once < 2; once++) {
        uint64_t i = 1;
        for (bool done = false; !done; i++) {
            size_t before = mem_live_blocks();
            fault_set_alloc(i, once);
            json_t *v = json_read(text, n, 0, &at, &no_memory);
            done = fault_alloc_count() < i;
            fault_set_alloc(0, false);
            CHECK(done ? v && json_equal(v, whole) && !no_memory : !v && no_memory, "allocation %" PRIu64 " of a reading", i);
            json_decref(v);
            CHECK(mem_live_blocks() == before, "allocation %" PRIu64 " of a reading leaves %zu blocks", i, mem_live_blocks() - before);
        }
        CHECK(i > 20, "only %" PRIu64 " allocations", i);
    }
    json_decref(whole);
    CHECK(mem_live_blocks() == live, "%zu blocks left", mem_live_blocks() - live);
}

int main(void)
{
    test_json();
    test_strbuf();
    test_utf8_decode();
    test_utf8_rest();
    test_error();
    test_without_path();
    test_hashmap();
    test_rng();
    return support_finish("test_base_text");
}
