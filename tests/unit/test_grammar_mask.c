/* Token masks: against every token by itself, in the states of random answers; that these answers end in texts that are what the grammar
 * says; builder parts; several threads; the N-th allocation failing. */
#include "grammar_support.h"

#include <pthread.h>

#include "base/json.h"
#include "gguf/gguf.h"
#include "model/vocab.h"
#include "sample/grammar_internal.h"
#include "schema_check.h"

static struct test_vocab vocab;

static bool closes(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("\"}]", s[i]))
            return false;
    return n > 0;
}

/* A random answer under masks, each mask checked; appended to out. true: it came to its end. */
static bool random_answer(struct grammar *g, const char *what, uint64_t *rng, struct strbuf *out, int check_steps)
{
    struct grammar_state *s;
    skua_error err;
    uint32_t list[TEST_MASK_WORDS * 64];
    bool ended = false;
    assert_int_equal(grammar_state_new(g, vocab.v, &s, &err), 0);
    for (int step = 0; step < 400 && !ended; step++) {
        size_t n = 0, len;
        if (step < check_steps) {
            n = test_mask(&vocab, s, list, what);
        } else {
            uint64_t mask[TEST_MASK_WORDS];
            assert_int_equal(grammar_state_mask(s, mask, &err), 0);
            for (uint32_t id = 0; id < grammar_vocab_size(vocab.v); id++)
                if (mask[id / 64] >> (id & 63) & 1)
                    list[n++] = id;
        }
        CHECK(n > 0, "%s: a dead end after %s", what, strbuf_str(out));
        if (!n)
            break;
        uint32_t id = list[rng_next(rng) % n];
        for (int tries = 0; tries < 40 && step > 25; tries++) { /* time to end */
            const uint32_t other = list[rng_next(rng) % n];
            const char *piece = tokenizer_piece(vocab.tok, other, false, &len);
            if (tokenizer_is_eog(vocab.tok, other) || closes(piece, len)) {
                id = other;
                break;
            }
        }
        if (tokenizer_is_eog(vocab.tok, id)) {
            ended = true;
            continue;
        }
        const char *piece = tokenizer_piece(vocab.tok, id, false, &len);
        CHECK(grammar_state_accept(s, piece, len), "%s: a token of the mask, after %s", what, strbuf_str(out));
        strbuf_append(out, piece, len);
        ended = grammar_state_must_end(s);
    }
    grammar_state_free(s);
    return ended;
}

static const char *const schemas[] = {
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},"
        "\"a\":{\"type\":\"number\"},"
    "\"b\":{\"type\":[\"boolean\",\"null\"]}},\"required\":[\"name\",\"b\"],\"additionalProperties\":false}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"minLength\":2,\"maxLength\":30},\"b\":{\"type\":\"string\","
        "\"maxLength\":3}}}",
    "{\"type\":\"string\",\"minLength\":40,\"maxLength\":100}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1},\"minItems\":1,\"maxItems\":3}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{\"type\":\"boolean\"},\"minItems\":1}",
    "{\"enum\":[\"the\",\"the quick\",\"a\",12,123,null,[1,2],{\"a\":\"\\u00e9\"}]}",
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"l\":{\"anyOf\":[{\"type\":\"null\"},"
        "{\"$ref\":\"#/$defs/n\"}]}},"
    "\"required\":[\"l\"]}},\"$ref\":\"#/$defs/n\"}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"const\":\"the\"}},"
        "\"additionalProperties\":{\"type\":\"null\"}}",
    "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-20}},\"required\":[\"a\"]},"
        "{\"properties\":{\"a\":{\"maximum\":99},\"b\":{\"type\":\"array\"}}}],"
    "\"type\":\"object\"}",
    "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"},\"b\":{\"const\":1}},\"anyOf\":[{\"required\":[\"k\"]},"
        "{\"required\":[\"b\"]}]}",
    "{\"type\":\"object\"}",
    "true",
    "{\"oneOf\":[{\"type\":\"integer\",\"exclusiveMinimum\":-5,\"exclusiveMaximum\":1200},{\"type\":\"array\",\"maxItems\":2,"
        "\"items\":{\"type\":\"number\"}}]}",
};

static void test_schemas(void **state)
{
    (void)state;
    uint64_t rng = 7;
    int ended = 0;
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        json_t *schema = json_loads(schemas[i], JSON_DECODE_ANY, NULL);
        struct grammar *g;
        skua_error err;
        assert_non_null(schema);
        if (grammar_from_schema(schema, true, NULL, &g, &err))
            fail_msg("%s: %s", schemas[i], err.message);
        for (int k = 0; k < 12; k++) {
            struct strbuf text = {0};
            json_error_t at;
            if (random_answer(g, schemas[i], &rng, &text, k < 3 ? 40 : 0)) {
                json_t *value = json_loadb(strbuf_str(&text), text.len, JSON_DECODE_ANY, &at);
                CHECK(value, "%s: not JSON (%s): %s", schemas[i], at.text, strbuf_str(&text));
                CHECK(!value || schema_valid(schema, schema, value), "%s: not valid: %s", schemas[i], strbuf_str(&text));
                json_decref(value);
                ended++;
            }
            strbuf_free(&text);
        }
        grammar_release(g);
        json_decref(schema);
    }
    CHECK(ended > 12 * 10, "most answers end: %d", ended);
}

static const char *const gbnfs[] = {
    "root ::= [a-z ]{0,60} \"!\"",
    "root ::= (\"the \" | \"a\"){3,70} [^a]*",
    "root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]{1,3} | \"(\" e \")\"",
    "root ::= [^\\x00-\\x7f]{2,40}",
    "root ::= x \"a\" | y \"b\"\nx ::= \"a\" x | \"\"\ny ::= \"a\" y | \"\"",
    "root ::= ([a-c]{2,30} \" \"){1,40}",
    "root ::= line+\nline ::= [A-Za-z] [^\\n]* \"\\n\"",
    "root ::= \" \"{30,34} \"a\"{30,50}",
};

static const char *const regexes[] = {"[a-f]+@(the|quick){2}", "\\d{4}-\\d\\d", ".*name.*", "(?:ab|a)*c?", "[^\"\\\\]{0,30}\""};

static void test_texts(void **state)
{
    (void)state;
    uint64_t rng = 3;
    struct grammar *g;
    skua_error err;
    const size_t n_gbnf = sizeof gbnfs / sizeof gbnfs[0], n_regex = sizeof regexes / sizeof regexes[0];
    for (size_t i = 0; i < n_gbnf + n_regex; i++) {
        const char *what = i < n_gbnf ? gbnfs[i] : regexes[i - n_gbnf];
        if (i < n_gbnf ? grammar_from_gbnf(what, strlen(what), &g, &err) : grammar_from_regex(what, strlen(what), &g, &err))
            fail_msg("%s: %s", what, err.message);
        for (int k = 0; k < 4; k++) {
            struct strbuf text = {0};
            if (random_answer(g, what, &rng, &text, 40))
                CHECK(test_takes(g, vocab.v, strbuf_str(&text), text.len) == 1, "%s: %s", what, strbuf_str(&text));
            strbuf_free(&text);
        }
        grammar_release(g);
    }
}

/* The same with a real vocabulary, the shipped model's. */
static void test_model(void **state)
{
    (void)state;
    const char *const picked[] = {schemas[0], schemas[1], schemas[11]};
    const char *path = support_model("tiny-q8_0.gguf");
    const struct test_vocab small = vocab;
    struct gguf *file;
    skua_error err;
    uint64_t rng = 5;
    if (!path)
        skip();
    if (gguf_open(&file, path, &err) || vocab_load(file, &vocab.tok, &err) || grammar_vocab_new(vocab.tok, &vocab.v, &err))
        fail_msg("%s", err.message);
    for (size_t i = 0; i < 3; i++) {
        json_t *schema = json_loads(picked[i], 0, NULL);
        struct grammar *g;
        assert_int_equal(grammar_from_schema(schema, true, NULL, &g, &err), 0);
        struct strbuf text = {0};
        random_answer(g, picked[i], &rng, &text, 8);
        strbuf_free(&text);
        grammar_release(g);
        json_decref(schema);
    }
    grammar_vocab_free(vocab.v);
    tokenizer_free(vocab.tok);
    gguf_close(file);
    vocab = small;
}

static struct grammar *finish(struct grammar_builder *b, grammar_expr root)
{
    struct grammar *g;
    skua_error err;
    if (grammar_builder_finish(b, root, &g, &err))
        fail_msg("%s", err.message);
    grammar_builder_free(b);
    return g;
}

/* A tool call as it is forced: a name among several, parameters as text or by a schema. */
static struct grammar *tool_call(void)
{
    static const char *const names[] = {"get", "get_all", "put"};
    static const size_t lens[] = {3, 7, 3};
    struct grammar_builder *b = grammar_builder_new();
    json_t *schema = json_pack("{s:s,s:i}", "type", "integer", "minimum", 10);
    const grammar_expr number[] = {grammar_literal(b, "<parameter=n>\n", 14), grammar_schema(b, schema, schema, true, NULL),
        grammar_literal(b, "\n</parameter>\n", 14)};
    const grammar_expr text[] = {grammar_literal(b, "<parameter=t>\n", 14), grammar_text_until(b, "\n</parameter>", 13),
        grammar_literal(b, "\n", 1)};
    const grammar_expr parts[] = {grammar_literal(b, "<function=", 10), grammar_one_of(b, names, lens, 3), grammar_literal(b, ">\n", 2),
                                  grammar_seq(b, number, 3), grammar_optional(b, grammar_seq(b, text, 3)), grammar_literal(b,
                                      "</function>", 11)};
    struct grammar *g = finish(b, grammar_seq(b, parts, 6));
    json_decref(schema);
    return g;
}

static void takes(struct grammar *g, const char *text, int want)
{
    CHECK(test_takes(g, vocab.v, text, strlen(text)) == want, "%s: %d", text, want);
}

static void test_builder(void **state)
{
    (void)state;
    uint64_t rng = 11;
    struct grammar *g = tool_call();
    takes(g, "<function=get>\n<parameter=n>\n10\n</parameter>\n</function>", 1);
    takes(g, "<function=get_all>\n<parameter=n>\n123\n</parameter>\n<parameter=t>\nx </parameter>\n</\n</parameter>\n</function>", 1);
    takes(g, "<function=put>\n<parameter=n>\n9\n", -1);
    takes(g, "<function=pet", -1);
    for (int k = 0; k < 4; k++) {
        struct strbuf text = {0};
        random_answer(g, "tool call", &rng, &text, 60);
        strbuf_free(&text);
    }
    grammar_release(g);
    struct grammar_builder *b = grammar_builder_new();
    g = finish(b, grammar_text_until(b, "abab", 4));
    takes(g, "abab", 1);
    takes(g, "xaabaab\xc3\xa9" "abab", 1);
    takes(g, "abababab", -1);
    takes(g, "aba", 0);
    grammar_release(g);
    b = grammar_builder_new();
    g = finish(b, grammar_text_without(b, "aab\xc3\xa9", 5));
    takes(g, "", 1);
    takes(g, "aaab\xc3\xa8 aab", 1);
    takes(g, "aaab\xc3\xa9", -1);
    takes(g, "\xff", -1);
    grammar_release(g);
    b = grammar_builder_new();
    g = finish(b, grammar_seq2(b, grammar_text(b), grammar_literal(b, "\0z", 2)));
    CHECK(test_takes(g, vocab.v, "a\0z", 3) == 1, "zero bytes");
    grammar_release(g);
    b = grammar_builder_new(); /* errors stick, and the first one stays */
    skua_error err;
    CHECK(!grammar_text_until(b, "", 0) && !grammar_literal(b, "x", 1) && !grammar_regex(b, "(", 1), "nothing is made any more");
    CHECK(grammar_builder_finish(b, grammar_alt2(b, 0, 0), &g, &err) == SKUA_EARG && !g && !strcmp(err.message,
        "text up to an empty literal"), "%s",
          err.message);
    grammar_builder_free(b);
    CHECK(grammar_builder_finish(NULL, 0, &g, &err) == SKUA_ENOMEM && !g, "no builder");
    b = grammar_builder_new();
    CHECK(grammar_builder_finish(b, grammar_rule(b, "a", 1), &g, &err) == SKUA_EARG && !strcmp(err.message,
        "the rule 'a' is used and nowhere defined"), "%s",
          err.message);
    grammar_builder_free(b);
}

static void test_regexes(void **state)
{
    (void)state;
    static const struct { const char *pattern, *text; int takes; } cases[] = {
        {"^a|b$", "a", 1}, {"^a|b$", "b", 1}, {"a{2}", "aa", 1}, {"a{,2}", "a{,2}", 1}, {"a{2,}", "aaaa", 1}, {"[\\d-]+", "1-2", 1},
            {"[^\\W_]", "_", -1},
        {"\\u00e9\\x41\\u{1F600}", "\xc3\xa9" "A\xf0\x9f\x98\x80", 1}, {"\\uD83D\\uDE00", "\xf0\x9f\x98\x80", 1}, {"(?<n>a)+?b*", "aab", 1},
        {".", "\n", -1}, {"[.]", "x", -1}, {"\\.\\*\\/", ".*/", 1}, {"", "", 1}, {"a||b", "", 1}, {"\\S\\s", "a\t", 1}, {"[\\b]", "\b",
            1}, {"[]a]", "a", -1}};
    static const struct { const char *pattern; int code; const char *message; } errors[] = {
        {"(", SKUA_EARG, "at byte 0: a group without ')'"}, {"a)", SKUA_EARG, "at byte 1: a ')' without its group"},
        {"*a", SKUA_EARG, "at byte 0: nothing to repeat"}, {"a**", SKUA_EARG, "at byte 2: a repetition of a repetition"},
        {"[a", SKUA_EARG, "at byte 0: a character class without ']'"}, {"[b-a]", SKUA_EARG,
            "at byte 1: a range whose end is before its beginning"},
        {"(a)\\1", SKUA_EUNSUPPORTED, "at byte 3: back references are not supported"}, {"a^b", SKUA_EUNSUPPORTED,
         "at byte 1: ^ is supported at the beginning of an alternative of the whole expression, $ at its end"},
        {"(?!a)", SKUA_EUNSUPPORTED, "at byte 0: of groups only (...), (?:...) and (?<name>...) are supported: no look-around, no flags"},
        {"a{3,2}", SKUA_EARG, "at byte 1: a repetition whose maximum is below its minimum"}, {"\\", SKUA_EARG,
            "at byte 0: a backslash at the end"},
        {"\\x4", SKUA_EARG, "at byte 0: an escape without its hex digits"}, {"a++", SKUA_EUNSUPPORTED,
            "at byte 2: possessive repetitions are not supported"},
        {"\xff", SKUA_EARG, "at byte 0: malformed UTF-8"}, {"a{9999999}", SKUA_ELIMIT, "at byte 2: a count above 1000000"}};
    struct grammar *g;
    skua_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (grammar_from_regex(cases[i].pattern, strlen(cases[i].pattern), &g, &err)) {
            CHECK(!strcmp(cases[i].pattern, "[]a]"), "%s: %s", cases[i].pattern, err.message); /* an empty class ends nowhere */
            continue;
        }
        CHECK(test_takes(g, vocab.v, cases[i].text, strlen(cases[i].text)) == cases[i].takes, "%s: %s", cases[i].pattern, cases[i].text);
        grammar_release(g);
    }
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        const size_t n = strlen(errors[i].pattern);
        char *exact = malloc(n); /* without a terminator */
        memcpy(exact, errors[i].pattern, n);
        const int rc = grammar_from_regex(exact, n, &g, &err);
        free(exact);
        CHECK(rc == errors[i].code && !strncmp(err.message, "regular expression, ", 20) && !strcmp(err.message + 20, errors[i].message),
              "%s: %d %s", errors[i].pattern, rc, err.message);
    }
}

struct worker { struct grammar *g; uint64_t rng; long failures; };

static void *work(void *p)
{
    struct worker *w = p;
    for (int k = 0; k < 30; k++) {
        struct grammar_state *s;
        uint64_t mask[64];
        if (grammar_state_new(w->g, vocab.v, &s, NULL)) {
            w->failures++;
            continue;
        }
        for (int step = 0; step < 60 && !grammar_state_must_end(s); step++) {
            uint32_t id = (uint32_t)(rng_next(&w->rng) % grammar_vocab_size(vocab.v));
            size_t len;
            if (grammar_state_mask(s, mask, NULL)) {
                w->failures++;
                break;
            }
            while (!(mask[id / 64] >> (id & 63) & 1))
                id = (id + 1) % grammar_vocab_size(vocab.v);
            if (tokenizer_is_eog(vocab.tok, id))
                break;
            const char *piece = tokenizer_piece(vocab.tok, id, false, &len);
            w->failures += !grammar_state_accept(s, piece, len);
        }
        grammar_state_free(s);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct worker workers[4];
    pthread_t threads[4];
    struct grammar *g = tool_call();
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){g, (uint64_t)i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(workers[i].failures == 0, "thread %d: %ld failures", i, workers[i].failures);
    }
    grammar_release(g);
}

/* A long counted text fills what is remembered many times over: it is forgotten, and nothing changes for the states that are there. */
static void test_forgetting(void **state)
{
    (void)state;
    struct strbuf text = {0};
    struct grammar *g;
    struct grammar_state *s, *early;
    skua_error err;
    uint32_t list[TEST_MASK_WORDS * 64];
    size_t most = 0;
    for (char c = '0'; c <= 'z'; c++) /* many classes of bytes */
        strbuf_printf(&text, c == '0' ? "root ::= ((\"%c\"" : c == '\\' ? " | \"%c%c\"" : " | \"%c\"", c, c);
    strbuf_puts(&text, "){0,200000} \"!\"){1,9}");
    if (grammar_from_gbnf(text.data, text.len, &g, &err))
        fail_msg("%s", err.message);
    assert_int_equal(grammar_state_new(g, vocab.v, &s, &err), 0);
    CHECK(grammar_state_accept(s, "abc!de", 6), "a beginning");
    assert_int_equal(grammar_state_copy(s, &early, &err), 0);
    for (int i = 0; i < 2000; i++) {
        if (!grammar_state_accept(s, "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", 40))
            fail_msg("after %d", i * 40);
        if (i % 400 == 0)
            test_mask(&vocab, s, list, "forgetting");
        most = g->run.n_configs > most ? g->run.n_configs : most;
    }
    CHECK(g->run.n_configs < most && most < 80000, "something was forgotten: %zu of %zu", g->run.n_configs, most);
    CHECK(grammar_state_accept(s, "!", 1) && grammar_state_can_end(s), "the end");
    for (int i = 2; i < 9; i++)
        CHECK(!grammar_state_must_end(early) && grammar_state_accept(early, "!", 1), "the early state counts on: %d", i);
    CHECK(grammar_state_accept(early, "a!", 2) && grammar_state_must_end(early), "to nine");
    grammar_state_free(s);
    grammar_state_free(early);
    grammar_release(g);
    strbuf_free(&text);
}

/* Everything with the N-th allocation failing, once. */
static int everything(skua_error *err)
{
    static const char gbnf[] = "root ::= a{3,40} [x-z]? \"q\"*\na ::= \"ab\" | [^a-c]";
    struct grammar *g = NULL;
    struct grammar_state *s = NULL, *copy = NULL;
    struct grammar_vocab *v = NULL;
    uint64_t mask[64];
    json_t *schema = NULL;
    json_error_t at;
    bool no_memory = false;
    int rc = grammar_vocab_new(vocab.tok, &v, err);
    if (!rc)
        rc = grammar_from_gbnf(gbnf, sizeof gbnf - 1, &g, err);
    if (!rc)
        rc = grammar_state_new(g, v, &s, err);
    if (!rc)
        rc = grammar_state_copy(s, &copy, err);
    if (!rc && !grammar_state_accept(s, "abde", 4))
        CHECK(grammar_state_mask(s, mask, err) == SKUA_ENOMEM, "why it was not accepted");
    if (!rc)
        rc = grammar_state_mask(s, mask, err);
    grammar_state_free(s);
    grammar_state_free(copy);
    grammar_release(g);
    g = NULL;
    s = NULL;
    const char *text = "{\"allOf\":[{\"properties\":{\"a\":{\"enum\":[1,\"x\"]},\"b\":{\"pattern\":\"a[b]\"}}},"
        "{\"properties\":{\"a\":{\"type\":\"string\"}}}],"
                       "\"additionalProperties\":{\"type\":\"string\",\"maxLength\":100},\"required\":[\"z\"],\"x\":1}";
    struct strbuf warnings = {0};
    if (!rc) {
        schema = json_read(text, strlen(text), 0, &at, &no_memory);
        rc = schema ? 0 : error_nomem(err, "schema", 0);
    }
    if (!rc)
        rc = grammar_from_schema(schema, false, &warnings, &g, err);
    if (!rc)
        rc = grammar_state_new(g, v, &s, err);
    if (!rc)
        rc = grammar_state_mask(s, mask, err);
    if (!rc) { /* nothing of the schema was lost on the way */
        CHECK(!grammar_state_accept(s, "{\"a\":1", 6) && !grammar_state_accept(s, "{\"b\":\"c\"", 8) && !grammar_state_accept(s,
            "{\"z\":1", 6), "refused");
        const char *whole = "{\"a\":\"x\",\"b\":\"ab\",\"z\":\"q\"}";
        if (!grammar_state_accept(s, whole, strlen(whole)))
            rc = grammar_state_mask(s, mask, err);
        CHECK(rc == SKUA_ENOMEM || (!rc && grammar_state_must_end(s)), "%d", rc);
    }
    if (!rc)
        CHECK(strstr(strbuf_str(&warnings), "#/x: "), "%s", strbuf_str(&warnings));
    grammar_state_free(s);
    grammar_release(g);
    grammar_vocab_free(v);
    json_decref(schema);
    strbuf_free(&warnings);
    return rc;
}

static void test_allocations(void **state)
{
    (void)state;
    const size_t before = mem_live_blocks();
    int rc = SKUA_ENOMEM;
    for (uint64_t n = 1; rc; n++) {
        skua_error err = {0};
        fault_set_alloc(n, true);
        rc = everything(&err);
        const bool hit = fault_alloc_count() >= n;
        fault_set_alloc(0, false);
        CHECK(mem_live_blocks() == before, "allocation %d: %zu blocks are left", (int)n, mem_live_blocks() - before);
        CHECK(!rc == !hit || (!rc && hit), "allocation %d: %d", (int)n, rc);
        CHECK(!rc || (rc == SKUA_ENOMEM && err.code == rc && err.message[0]), "allocation %d: %d %s", (int)n, rc, err.message);
        if (!rc && hit)
            rc = SKUA_ENOMEM; /* survived: go on with the next one */
    }
}

static int setup(void **state)
{
    (void)state;
    test_vocab_make(&vocab);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_vocab_free(&vocab);
    CHECK(mem_live_blocks() == 0, "%zu blocks are left", mem_live_blocks());
    print_message("%ld checks\n", support_checks);
    return support_failures != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schemas), cmocka_unit_test(test_texts), cmocka_unit_test(test_model),
        cmocka_unit_test(test_builder),
                                       cmocka_unit_test(test_regexes), cmocka_unit_test(test_threads),    cmocka_unit_test(test_forgetting),
                                       cmocka_unit_test(test_allocations)};
    json_use_mem();
    return cmocka_run_group_tests(tests, setup, teardown);
}
