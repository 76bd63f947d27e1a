/* JSON schemas as grammars: each keyword with texts that it takes and refuses, what is not supported, and hostile ones. */
#include "grammar_support.h"

#include "base/json.h"

static struct test_vocab vocab;

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct grammar *compile(const char *schema, bool strict, struct strbuf *warnings, skua_error *err)
{
    struct grammar *g;
    json_error_t at;
    json_t *j = json_loads(schema, JSON_DECODE_ANY, &at);
    if (!j)
        fail_msg("%s: %s", schema, at.text);
    const int rc = grammar_from_schema(j, strict, warnings, &g, err);
    CHECK(!rc == (g != NULL), "%s: a grammar or an error", schema);
    json_decref(j);
    return g;
}

/* The grammar of a string's text, unquoted; NULL: an error, or err->code 0: any text. */
static struct grammar *compile_text(const char *schema, skua_error *err)
{
    struct grammar *g = NULL;
    struct grammar_builder *b = grammar_builder_new();
    json_t *j = json_loads(schema, 0, NULL);
    err->code = 0;
    const grammar_expr e = grammar_schema_text(b, j, j, true, NULL);
    if (e || grammar_builder_error(b, err))
        grammar_builder_finish(b, e, &g, err);
    grammar_builder_free(b);
    json_decref(j);
    return g;
}

static void check_table(const char *schema, struct grammar *g, const skua_error *err, const char *const *yes, const char *const *no)
{
    if (!g) {
        CHECK(0, "%s: %s", schema, err->message);
        return;
    }
    for (; *yes; yes++)
        CHECK(test_takes(g, vocab.v, *yes, strlen(*yes)) == 1, "%s must take %s", schema, *yes);
    for (; *no; no++) {
        const bool part = **no == '>';
        const char *text = *no + part;
        CHECK(test_takes(g, vocab.v, text, strlen(text)) == (part ? 0 : -1), "%s: %s must be %s", schema, text,
            part ? "a part" : "refused");
    }
    grammar_release(g);
}

/* As in test_grammar_gbnf.c: a `no` that begins with '>' is a beginning of a text. */
static void table(const char *schema, const char *const *yes, const char *const *no)
{
    skua_error err = {0};
    struct grammar *g = compile(schema, true, NULL, &err);
    check_table(schema, g, &err, yes, no);
}

static void text_table(const char *schema, const char *const *yes, const char *const *no)
{
    skua_error err = {0};
    struct grammar *g = compile_text(schema, &err);
    check_table(schema, g, &err, yes, no);
}

/* Strings without quotes, as tool calls write them. */
static void test_texts(void **state)
{
    static const char *const any[] = {"{\"type\":\"string\"}", "{\"type\":\"integer\",\"minimum\":1}", "{}", "true",
                                      "{\"type\":[\"string\",\"null\"],\"maxLength\":3}",
                                      "{\"type\":\"string\",\"nullable\":true,\"maxLength\":3}",
                                      "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3}]}"};
    static const struct { const char *schema; int code; } bad[] = {
        {"{\"type\":\"string\",\"pattern\":\"a(?=b)\"}", SKUA_EUNSUPPORTED},
        {"{\"type\":\"string\",\"pattern\":\"(a\"}", SKUA_EARG},
        {"{\"type\":\"string\",\"format\":\"colour\"}", SKUA_EUNSUPPORTED}, {"{\"$ref\":\"#/$defs/none\"}", SKUA_EARG},
        {"{\"type\":\"string\",\"minLength\":-1}", SKUA_EARG}};
    skua_error err;
    (void)state;
    text_table("{\"type\":\"string\",\"pattern\":\"^[a-c]{2}\\n$\"}", LIST("ab\n", "cc\n"), LIST(">ab", "\"", "ad"));
    text_table("{\"type\":\"string\",\"pattern\":\"[0-9]x\"}", LIST("1x", "a \"1x\n>", "11x"), LIST("<", "1x<", ">1", ">a"));
    text_table("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", LIST("ab", "\"<\n", "\xc3\xa9\xc3\xa9\xc3\xa9"),
               LIST(">a", "abcd"));
    text_table("{\"type\":\"string\",\"format\":\"date\"}", LIST("2024-02-29"), LIST("2023-02-29", "\"2", ">2024-02"));
    text_table("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"type\":\"string\",\"maxLength\":1}}}",
               LIST("", "x"), LIST("xy"));
    for (size_t i = 0; i < sizeof any / sizeof *any; i++)
        CHECK(!compile_text(any[i], &err) && err.code == 0, "%s: any text", any[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!compile_text(bad[i].schema, &err) && err.code == bad[i].code, "%s: %d %s", bad[i].schema, err.code, err.message);
    CHECK(!compile_text("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/a\"}}}", &err), "a circle");
}

static void test_scalars(void **state)
{
    (void)state;
    table("{\"type\":\"null\"}", LIST("null"), LIST("true", ">nul", " null"));
    table("{\"type\":\"boolean\"}", LIST("true", "false"), LIST("null", "\"true\""));
    table("{\"type\":\"integer\"}", LIST("0", "-1", "123456789012345678", "10"), LIST("01", "-0", "1.0", "1e2", "1234567890123456789",
        ">-"));
    table("{\"type\":\"number\"}", LIST("0", "-0.5", "1e5", "1.25E-10", "-12"), LIST(".5", ">1.", "1e999", "01", "+1", "NaN"));
    table("{\"type\":[\"string\",\"null\"]}", LIST("null", "\"\"", "\"x\""), LIST("1", "{"));
    table("{\"type\":\"string\",\"nullable\":true}", LIST("null", "\"x\""), LIST("1"));
    table("{\"type\":[\"integer\",\"boolean\"],\"minimum\":3}", LIST("3", "true"), LIST(">2", "-"));
    table("{\"enum\":[\"a\",\"ab\",1,10,null,{\"x\":[1,true]},0.5]}", LIST("\"a\"", "\"ab\"", "1", "10", "null", "{\"x\":[1,true]}", "0.5"),
          LIST("\"b\"", "2", "100", "{ ", "\"abc"));
    table("{\"const\":\"\\u00e9\\n\\\"\"}", LIST("\"\xc3\xa9\\n\\\"\""), LIST("\"e"));
    table("{\"type\":\"string\",\"enum\":[\"a\",1]}", LIST("\"a\""), LIST("1"));
    table("{\"type\":\"integer\",\"enum\":[\"a\",1,1.5]}", LIST("1"), LIST("\"a\"", "1."));
    table("{\"enum\":[1,5,7,\"a\",\"abc\",[1],[]],\"minimum\":3,\"exclusiveMaximum\":7,\"minLength\":2,\"minItems\":1}",
        LIST("5", "\"abc\"", "[1]"), LIST("1", "7", "\"a\"", "[]"));
    table("{\"const\":3,\"enum\":[1,2,3]}", LIST("3"), LIST("1"));
    table("true", LIST("1", "\"x\"", "{\"a\":[1, {}]}", "[]", "null"), LIST("x", "[1,]", "{a", "{\"a\":}"));
    table("{}", LIST("1", "{}"), LIST("x"));
    table("{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[2],\"$schema\":\"s\",\"x-y\":1}", LIST("1", "{}"), LIST("x"));
}

static void test_strings(void **state)
{
    (void)state;
    table("{\"type\":\"string\"}",
          LIST("\"\"", "\"a b\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u00e9\\uD83d\\uDe00\"",
              "\"\x7f\"", "\"\\u0001\""),
          LIST("\"\n", "\"\x01", "\"\\x", "\"\\u000g", "\"\\u0000", "\"\\ud83d\"", "\"\\ude00", "\"\xff", "\"\xed\xa0", "\"a\"b", ">\"a",
              "'a'"));
    table("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", LIST("\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\u00e9a\"",
        "\"\\ud83d\\ude00x\""),
          LIST("\"a\"", "\"abcd", "\"\xc3\xa9\xc3\xa9\xc3\xa9\xc3"));
    table("{\"minLength\":1}", LIST("\"a\"", "\"abc\""), LIST("\"\"", "1"));
    table("{\"type\":\"string\",\"maxLength\":0}", LIST("\"\""), LIST("\"a"));
    table("{\"type\":\"string\",\"pattern\":\"^a+b?$\"}", LIST("\"a\"", "\"aab\""), LIST("\"\"", "\"ba", "\"abb"));
    table("{\"type\":\"string\",\"pattern\":\"b\"}", LIST("\"b\"", "\"abc\"", "\"\\nb\\n\""), LIST(">\"a", "\"a\""));
    table("{\"type\":\"string\",\"pattern\":\"^a|b$\"}", LIST("\"axx\"", "\"xxb\"", "\"a\""), LIST("\"xa\"", "\"bx\""));
    table("{\"type\":\"string\",\"pattern\":\"^[\\\\\\\\\\\"\\n\\u0001]{2}$\"}", LIST("\"\\\\\\\"\"", "\"\\n\\n\"", "\"\\u0001\\n\""),
        LIST("\"a", "\"\\u000a"));
    table("{\"type\":\"string\",\"pattern\":\"^\\\\d{3}-\\\\w\\\\s.$\"}", LIST("\"123-a x\"", "\"123-_\\t\xc3\xa9\""), LIST("\"12a",
        "\"123--", "\"123-a \\n"));
    table("{\"type\":\"string\",\"format\":\"date\"}", LIST("\"2026-12-31\"", "\"2024-02-29\"", "\"2000-02-29\"", "\"1999-02-28\""),
          LIST("\"2023-02-29", "\"1900-02-29", "\"2026-13", "\"2026-04-31", "\"2026-1-"));
    table("{\"type\":\"string\",\"format\":\"time\"}", LIST("\"23:59:59Z\"", "\"00:00:00.123+05:30\""), LIST("\"24", "\"12:60",
        "\"12:00:00\""));
    table("{\"type\":\"string\",\"format\":\"date-time\"}", LIST("\"2026-12-31T12:00:00Z\""), LIST("\"2026-12-31 ", "\"2026-12-31T1:"));
    table("{\"type\":\"string\",\"format\":\"uuid\"}", LIST("\"123e4567-e89b-12d3-a456-426614174000\""), LIST("\"123e4567e", "\"g"));
    table("{\"type\":\"string\",\"format\":\"email\"}", LIST("\"a.b+c@x-y.example.org\""), LIST("\"a@b\"", "\"@", "\"a..", "\"a@-"));
    table("{\"type\":\"string\",\"format\":\"ipv4\"}", LIST("\"255.0.10.1\""), LIST("\"256", "\"1.2.3\"", "\"01", "\"1.2.3.4."));
}

static void test_integers(void **state)
{
    (void)state;
    static const struct { long long min, max; } ranges[] = {
        {0, 0}, {0, 9}, {3, 7}, {5, 123}, {10, 10}, {99, 101}, {-5, 5}, {-123, -17}, {-1000, 999}, {1, 1000}, {-1, 0}, {217, 891}, {1000,
            1999}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        char schema[200], text[40];
        snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%lld,\"maximum\":%lld}", ranges[i].min, ranges[i].max);
        skua_error err = {0};
        struct grammar *g = compile(schema, true, NULL, &err);
        assert_non_null(g);
        for (int v = -2100; v <= 2100; v++) {
            snprintf(text, sizeof text, "%d", v);
            CHECK((test_takes(g, vocab.v, text, strlen(text)) == 1) == (v >= ranges[i].min && v <= ranges[i].max), "%s: %d", schema, v);
        }
        grammar_release(g);
    }
    table("{\"type\":\"integer\",\"exclusiveMinimum\":3,\"exclusiveMaximum\":5}", LIST("4"), LIST("3", "5", "-"));
    table("{\"type\":\"integer\",\"minimum\":3,\"exclusiveMinimum\":true,\"maximum\":4.5}", LIST("4"), LIST("3", "5"));
    table("{\"type\":\"integer\",\"minimum\":0.5}", LIST("1", "999999999999999999"), LIST("0", "-"));
    table("{\"type\":\"integer\",\"minimum\":9223372036854775806}", LIST("9223372036854775806", "9223372036854775807"),
        LIST("9223372036854775808", "1\""));
    table("{\"type\":\"integer\",\"maximum\":-9223372036854775807}", LIST("-9223372036854775807", "-9223372036854775808"),
        LIST("-9223372036854775809", "0"));
    table("{\"type\":\"integer\",\"maximum\":-3}", LIST("-3", "-10"), LIST(">-2", "0", "3"));
}

static void test_arrays(void **state)
{
    (void)state;
    table("{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", LIST("[]", "[1]", "[1,2]", "[1, 2]", "[ 1 ]", "[\n  1,\n  2\n]"),
          LIST("[,", "[1,]", "[1 ,", "[  1", ">[1,", "[\n\n", "[\"a"));
    table("{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":2,\"maxItems\":3}", LIST("[null,null]", "[null,null,null]"),
          LIST("[]", "[null]", "[null,null,null,"));
    table("{\"type\":\"array\",\"maxItems\":0}", LIST("[]", "[ ]"), LIST("[1"));
    table("{\"minItems\":1,\"items\":{\"const\":1},\"maxItems\":1000}", LIST("[1]", "[1,1,1]"), LIST("[]"));
    table("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":\"b\"}]}", LIST("[]", "[1]", "[1,\"b\"]"), LIST("[2", "[\"",
        "[1,\"b\","));
    table("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},\"minItems\":1,\"maxItems\":4}",
          LIST("[1]", "[1,2]", "[1,2,3,3]"), LIST("[]", "[1,3", "[1,2,3,3,"));
    table("{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"maxItems\":1,\"items\":false}", LIST("[]", "[1]"),
        LIST("[1,"));
    table("{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"minItems\":2}", LIST("[1,{}]", "[1,2,3]"), LIST("[1]"));
    table("{\"type\":\"array\"}", LIST("[1,\"a\",[{}]]"), LIST("{"));
}

static void test_objects(void **state)
{
    (void)state;
    table("{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},\"required\":[\"b\"]}",
          LIST("{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1, \"b\": 2, \"c\": 3}", "{\n  \"b\": 2\n}", "{ \"b\":2 }"),
          LIST("{}", "{\"a\":1}", "{\"c", "{\"b\":2,\"a", "{\"b\":2,}", "{\"b\" ", "{\"b\":2 ,", "{\"b\":  ", "{\"b\":2,\"d", "{\n\n"));
    table("{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}}}", LIST("{}", "{ }", "{\"a\":1}", "{\"b\":2}",
        "{\"a\":1,\"b\":2}"),
          LIST("{\"b\":2,", "{,", "{\"a\":2"));
    table("{\"type\":\"object\",\"properties\":{}}", LIST("{}"), LIST("{\"a"));
    table("{\"type\":\"object\"}", LIST("{}", "{\"a\":1,\"b\":[]}"), LIST("["));
    table("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", LIST("{}", "{\"a\":1}", "{\"a\":1,\"\":2}"),
        LIST("{\"a\":\"", "{a"));
    table("{\"properties\":{\"ab\":{\"const\":1},\"ac\":{\"const\":2}},\"additionalProperties\":{\"const\":0}}",
          LIST("{\"ab\":1,\"a\":0}", "{\"abc\":0}", "{\"\":0}", "{\"x\":0,\"y\\\"\\n\":0}", "{\"ac\":2,\"ad\":0}", "{\"\xc3\xa9\":0}"),
          LIST("{\"ab\":0", "{\"x\":0,\"ab\"", "{\"\\u0061", "{\"abc\":1"));
    table("{\"required\":[\"x\",\"y\",\"x\"],\"properties\":{\"y\":{\"const\":1}},\"additionalProperties\":{\"const\":2}}",
        LIST("{\"y\":1,\"x\":2}"),
          LIST("{\"x", "{\"y\":1}"));
    table("{\"type\":\"object\",\"required\":[\"x\"]}", LIST("{\"x\":1}", "{\"x\":1,\"z\":{}}"), LIST("{}", "{\"y"));
    table("{\"properties\":{\"a\\\"\\u00e9/\":{\"const\":1}}}", LIST("{\"a\\\"\xc3\xa9/\":1}"), LIST("{\"a\\\"\xc3\xa9\\/"));
    table("{\"properties\":{\"a\":false,\"b\":true},\"required\":[\"b\"]}", LIST("{\"b\":[1]}"), LIST("{\"a"));
}

static void test_combinations(void **state)
{
    (void)state;
    table("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}", LIST("1", "\"a\""), LIST("\"ab", "null"));
    table("{\"oneOf\":[{\"const\":1},{\"const\":12}]}", LIST("1", "12"), LIST("2"));
    table("{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"anyOf\":[{\"required\":[\"a\"]},"
        "{\"required\":[\"b\"]}]}",
          LIST("{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"), LIST("{}"));
    table("{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"b\":{\"const\":2},"
        "\"a\":{\"minimum\":5}},"
          "\"required\":[\"b\"]}],\"type\":\"object\"}", LIST("{\"a\":5,\"b\":2}"), LIST("{\"a\":5}", "{\"a\":4,", "{\"b"));
    table("{\"allOf\":[{\"type\":[\"integer\",\"string\"],\"minimum\":1},{\"type\":[\"number\",\"null\"],\"minimum\":3,\"maximum\":4}]}",
        LIST("3", "4"),
          LIST("1", "\"", "5", "n"));
    table("{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}],\"const\":3}", LIST("3"), LIST("2"));
    table("{\"allOf\":[{\"anyOf\":[{\"minimum\":1},{\"type\":\"null\"}]},{\"anyOf\":[{\"maximum\":2},{\"type\":\"string\"}]}],"
        "\"type\":[\"integer\",\"null\"]}",
          LIST("1", "2"), LIST("0", "3", "\""));
    table("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"const\":1}}}", LIST("1"), LIST("2"));
    table("{\"definitions\":{\"n/o\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
        "\"next\":{\"$ref\":\"#/definitions/n~1o\"}}}},"
          "\"$ref\":\"#/definitions/n%7E1o\"}", LIST("{}", "{\"v\":1,\"next\":{\"next\":{\"v\":2}}}"), LIST("{\"next\":1", "{\"w"));
    table("{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}", LIST("[]", "[[],[[]]]"), LIST("[1"));
    table("{\"$ref\":\"#/$defs/a\",\"maximum\":3,\"$defs\":{\"a\":{\"type\":\"integer\",\"minimum\":2}}}", LIST("2", "3"), LIST("1", "4"));
    table("{\"properties\":{\"l\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}},\"required\":[\"l\"]}", LIST("{\"l\":null}",
        "{\"l\":{\"l\":null}}"),
          LIST("{}", "{\"l\":1"));
}

static void test_json_object(void **state)
{
    (void)state;
    struct grammar *g;
    skua_error err;
    struct strbuf deep = {0};
    assert_int_equal(grammar_from_schema(NULL, true, NULL, &g, &err), 0);
    CHECK(test_takes(g, vocab.v, "{\"a\": [1, {\"b\": null}], \"c\": \"\"}", 32) == 1, "an object");
    CHECK(test_takes(g, vocab.v, "[", 1) == -1 && test_takes(g, vocab.v, " {", 2) == -1, "nothing else");
    for (int i = 0; i < 100; i++)
        strbuf_puts(&deep, "{\"a\":");
    CHECK(test_takes(g, vocab.v, deep.data, 24 * 5) == 0 && test_takes(g, vocab.v, deep.data, 25 * 5) == -1, "24 levels");
    strbuf_free(&deep);
    grammar_release(g);
}

static void refuses(const char *schema, int code, const char *message)
{
    skua_error err = {0};
    struct grammar *g = compile(schema, true, NULL, &err);
    CHECK(!g && err.code == code && !strcmp(err.message, message), "%s\n   gives  %d %s\n   wanted %d %s", schema, err.code, err.message,
        code, message);
    grammar_release(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuses("3", SKUA_EARG, "schema #: a schema must be an object, true or false");
    refuses("{\"type\":\"text\"}", SKUA_EARG,
        "schema #/type: expected null, boolean, integer, number, string, array, object or a list of these");
    refuses("{\"properties\":{\"a\":{\"items\":{\"not\":{}}}}}", SKUA_EUNSUPPORTED,
        "schema #/properties/a/items/not: this keyword is not supported");
    refuses("{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"number\",\"minimum\":1}]}", SKUA_EUNSUPPORTED,
            "schema #/anyOf/1/minimum: bounds are supported for the type integer, not for numbers");
    refuses("{\"prefixItems\":[true,{\"multipleOf\":2}]}", SKUA_EUNSUPPORTED,
        "schema #/prefixItems/1/multipleOf: this keyword is not supported");
    refuses("{\"format\":\"hostname\"}", SKUA_EUNSUPPORTED, "schema #/format: the formats are date, time, date-time, uuid, email, ipv4");
    refuses("{\"pattern\":\"a(?=b)\"}", SKUA_EUNSUPPORTED,
            "schema #/pattern: regular expression, at byte 1: of groups only (...),"
                " (?:...) and (?<name>...) are supported: no look-around, no flags");
    refuses("{\"pattern\":\"a\",\"maxLength\":3}", SKUA_EUNSUPPORTED, "schema #/maxLength: not supported together with pattern");
    refuses("{\"$ref\":\"#/$defs/b\",\"$defs\":{}}", SKUA_EARG, "schema #/$ref: the reference points nowhere");
    refuses("{\"$ref\":\"http://x/y\"}", SKUA_EUNSUPPORTED, "schema #/$ref: only references into the same document (#/...) are supported");
    refuses("{\"$ref\":\"#\"}", SKUA_EARG, "the rule '#' is left-recursive: it begins with itself, directly or through other rules");
    refuses("{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", SKUA_EARG, "the grammar describes no text that ever ends");
    refuses("{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", SKUA_EARG, "the grammar describes no text that ever ends");
    refuses("{\"enum\":[]}", SKUA_EARG, "the grammar describes no text that ever ends");
    refuses("{\"minLength\":-1}", SKUA_EARG, "schema #/minLength: expected a whole number, 0 or more");
    refuses("{\"required\":[1]}", SKUA_EARG, "schema #/required: expected a list of names");
    refuses("{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", SKUA_EUNSUPPORTED,
            "schema #/pattern: two different values of this keyword, by allOf, anyOf or $ref, cannot be merged");
    refuses("{\"allOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", SKUA_ELIMIT,
        "schema #: allOf and $ref lead through each other more than 32 levels deep");
    refuses("{\"anyOf\":[]}", SKUA_EARG, "schema #/anyOf: expected a list of schemas");
}

static void test_warnings(void **state)
{
    (void)state;
    struct strbuf w = {0};
    skua_error err;
    struct grammar *g = compile("{\"properties\":{\"a\":{\"type\":\"number\",\"minimum\":1},\"b\":{\"type\":\"string\","
        "\"pattern\":\"\\\\bx\"},\"c\":{\"format\":\"uri\"}},"
                                "\"patternProperties\":{}}", false, &w, &err);
    assert_non_null(g);
    CHECK(!strcmp(strbuf_str(&w), "schema #/patternProperties: this keyword is not supported; ignored\n"
                                  "schema #/properties/c/format: the formats are date, time, date-time, uuid, email, ipv4; ignored\n"
                                  "schema #/properties/b/pattern: regular expression,"
                                      " at byte 0: of escapes only \\d \\w \\s \\D \\W \\S \\n \\r \\t \\f \\v \\0 "
                                  "\\xHH \\uHHHH \\u{H} are supported; ignored\n"
                                  "schema #/properties/a/minimum: bounds are supported for the type integer, not for numbers; ignored\n"),
          "%s", strbuf_str(&w));
    CHECK(test_takes(g, vocab.v, "{\"a\":-1,\"b\":\"y\",\"c\":\"z\"}", 24) == 1, "all is taken");
    grammar_release(g);
    strbuf_free(&w);
}

/* Big, deep and growing schemas end soon, in a grammar or in an error. */
static void test_hostile(void **state)
{
    (void)state;
    struct strbuf s = {0};
    skua_error err = {0};
    for (int i = 0; i < 600; i++)
        strbuf_puts(&s, "{\"type\":\"array\",\"items\":");
    strbuf_puts(&s, "true");
    for (int i = 0; i < 600; i++)
        strbuf_puts(&s, "}");
    struct grammar *g = compile(s.data, true, NULL, &err);
    CHECK(g && test_takes(g, vocab.v, "[[[[[", 5) == 0, "deep: %s", err.message);
    grammar_release(g);
    strbuf_clear(&s);
    for (int i = 0; i < 60000; i++)
        strbuf_printf(&s, "%s\"value number %d\"", i ? "," : "{\"enum\":[", i);
    strbuf_puts(&s, "]}");
    g = compile(s.data, true, NULL, &err);
    CHECK(g && test_takes(g, vocab.v, "\"value number 59999\"", 20) == 1 && test_takes(g, vocab.v, "\"value number 6000\"", 19) == 1 &&
          test_takes(g, vocab.v, "\"value number 60000\"", 20) == -1, "an enormous enum: %s", err.message);
    grammar_release(g);
    strbuf_clear(&s);
    for (int i = 0; i < 3000; i++)
        strbuf_printf(&s, "%s\"p%d\":{\"type\":\"integer\"}", i ? "," : "{\"properties\":{", i);
    strbuf_puts(&s, "}}");
    g = compile(s.data, true, NULL, &err);
    CHECK(g && test_takes(g, vocab.v, "{\"p7\":1,\"p2999\":2}", 18) == 1 && test_takes(g, vocab.v, "{\"p7\":1,\"p6", 11) == 0,
        "3000 properties: %s", err.message);
    grammar_release(g);
    /* merging that grows without end */
    CHECK(!compile("{\"$defs\":{\"a\":{\"properties\":{\"x\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"}]}}},"
        "\"b\":{\"properties\":{\"x\":{\"allOf\":["
                   "{\"$ref\":\"#/$defs/b\"},{\"$ref\":\"#/$defs/a\"},{\"properties\":{\"y\":{\"$ref\":\"#/$defs/a\"}}}]}}}},"
                       "\"allOf\":[{\"$ref\":\"#/$defs/a\"},"
                   "{\"$ref\":\"#/$defs/b\"}]}", true, NULL, &err) && err.code == SKUA_ELIMIT, "%s", err.message);
    strbuf_clear(&s);
    for (int i = 0; i < 40; i++)
        strbuf_puts(&s, "{\"anyOf\":[{\"type\":\"null\"},{\"maximum\":1}],\"allOf\":[");
    strbuf_puts(&s, "{}");
    for (int i = 0; i < 40; i++)
        strbuf_puts(&s, "]}");
    g = compile(s.data, true, NULL, &err);
    CHECK(!g && err.code < 0, "nested anyOf and allOf");
    grammar_release(g);
    strbuf_free(&s);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scalars),  cmocka_unit_test(test_strings), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_integers),
                                       cmocka_unit_test(test_arrays),   cmocka_unit_test(test_objects),
                                           cmocka_unit_test(test_combinations),
                                       cmocka_unit_test(test_json_object), cmocka_unit_test(test_errors), cmocka_unit_test(test_warnings),
                                       cmocka_unit_test(test_hostile)};
    json_use_mem();
    return cmocka_run_group_tests(tests, setup, teardown);
}
