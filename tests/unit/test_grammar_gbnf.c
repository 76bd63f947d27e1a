/* GBNF: which texts a grammar takes, and how a malformed one is refused. */
#include "grammar_support.h"

static struct test_vocab vocab;

/* yes, no: texts, ended by NULL; a `no` that begins with '>' must still be a beginning of a text. */
static void table(const char *gbnf, const char *const *yes, const char *const *no)
{
    struct grammar *g;
    skua_error err = {0};
    if (grammar_from_gbnf(gbnf, strlen(gbnf), &g, &err)) {
        CHECK(0, "%s: %s", gbnf, err.message);
        return;
    }
    for (; *yes; yes++)
        CHECK(test_takes(g, vocab.v, *yes, strlen(*yes)) == 1, "%s must take '%s'", gbnf, *yes);
    for (; *no; no++) {
        const bool part = **no == '>';
        const char *text = *no + part;
        CHECK(test_takes(g, vocab.v, text, strlen(text)) == (part ? 0 : -1), "%s: '%s' must be %s", gbnf, text,
            part ? "a part" : "refused");
    }
    grammar_release(g);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_texts(void **state)
{
    (void)state;
    table("root ::= \"abc\"", LIST("abc"), LIST(">ab", ">", "abd", "abcd", "b"));
    table("root ::= \"a\" | \"bc\" | \"bd\" # two\n", LIST("a", "bc", "bd"), LIST(">b", "c", "aa"));
    table("root ::= \"\"", LIST(""), LIST("a"));
    table("root ::= |\"x\"", LIST("", "x"), LIST("xx"));
    table("root ::= a b? c*\na ::= \"a\"+\nb::=\"b\"{2,3}\n\nc ::= [c-e] | [^a-z\\n]", LIST("a", "aaa", "abb", "abbb", "acde", "aX",
        "a\xc3\xa9", "a€"),
          LIST(">", ">ab", "abbbb", "az", "a\n", "b", ">a\xc3", "a\xff", "a\xc0\x80", "a\xed\xa0\x80"));
    table("root ::= (\"x\" (\"y\" | \"z\"))+ \"!\"", LIST("xy!", "xzxy!"), LIST(">xy", "xx", "!"));
    table("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\\\\\"\" [\\]\\[\\-\\^]", LIST("Aé😀\n\t\\\"]", "Aé😀\n\t\\\"-", "Aé😀\n\t\\\"^"),
        LIST(">Aé", "A\n"));
    table("root ::= [a-]{2} [-b] [\"]", LIST("a--\"", "-ab\""), LIST("ab", "c"));
    table("root ::= .", LIST("x", "\n", "é", "😀"), LIST(">\xf0\x9f\x98", "\xf4\x90", "xx"));
    table("root ::= [^\\x00-\\x7f]", LIST("é", "€", "😀"), LIST("a", ">\xc3"));
    table("root ::= \"a\"{3} \"b\"{2,} \"c\"{,2}", LIST("aaabb", "aaabbbbbbcc", "aaabbc"), LIST("aab", ">aaab", "aaabbccc"));
    table("root ::=\n  \"a\"\n  | \"b\" # first\n  # a comment between\n  | \"c\" \"d\"\nother-rule_1 ::= root", LIST("a", "b", "cd"),
        LIST(">c"));
    table("root ::= \"a\"{0} \"b\"{0,0} \"c\"", LIST("c"), LIST("a", "b"));
    table("root ::= [] \"a\" | \"b\"", LIST("b"), LIST("a"));
}

/* A whole grammar as people write them: JSON. */
static void test_json(void **state)
{
    (void)state;
    table("# JSON\r\nroot ::= object\r\nvalue ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n\n"
          "object ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws\npair ::= string \":\" ws value\n"
          "array ::=\n  \"[\" ws (\n    value\n    (\",\" ws value)*\n  )? \"]\" ws\n"
          "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\" ws\n"
          "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
          "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}",
          LIST("{}", "{\"a\": [1, -2.5e3, {\"\\u00e9\\n\": null}], \"b\":\"\xc3\xa9\"}\n    "), LIST("[", "{\"a\":\"\n", "{\"a\":01",
              "{\"a\":  "));
}

static void test_recursion(void **state)
{
    (void)state;
    char deep[2001];
    table("root ::= \"(\" root \")\" | \"x\"", LIST("x", "(x)", "((((((x))))))"), LIST(">((x)", "()", "(x))"));
    table("root ::= e\ne ::= t (\"+\" t)*\nt ::= f (\"*\" f)*\nf ::= \"(\" e \")\" | [0-9]+", LIST("1", "12+3*(4+5)", "((1))*2"),
        LIST(">1+", "1+*", ">((1)"));
    table("root ::= a | b\na ::= \"x\" a \"y\" | \"\"\nb ::= \"x\" b \"z\" | \"x\"", LIST("", "x", "xy", "xxz", "xxyy", "xxxzz"),
        LIST("xyz", ">xxy", "xxyz"));
    table("root ::= ((\"a\"*)* (\"b\"?)+)*", LIST("", "a", "bba", "abab"), LIST("c"));
    table("root ::= (\"a\"?){0,5}", LIST("", "a", "aaaaa"), LIST("aaaaaa"));
    table("root ::= (\"a\"?){3,5} \"b\"", LIST("b", "aaaaab"), LIST("aaaaaa"));
    table("root ::= p p\np ::= \"a\" p \"a\" | \"b\"", LIST("bb", "abaaba"), LIST(">ab", ">baab", "bbb"));
    memset(deep, '(', 1000);
    deep[1000] = 'x';
    memset(deep + 1001, ')', 999);
    deep[2000] = '\0';
    struct grammar *g;
    const char *text = "root ::= \"(\" root \")\" | \"x\"";
    assert_int_equal(grammar_from_gbnf(text, strlen(text), &g, NULL), 0);
    CHECK(test_takes(g, vocab.v, deep, 2000) == 0, "one bracket is missing");
    deep[2000] = ')';
    CHECK(test_takes(g, vocab.v, deep, 2001) == 1, "1000 levels");
    grammar_release(g);
}

/* Counts far above what could be unrolled. */
static void test_counts(void **state)
{
    (void)state;
    struct grammar *g;
    struct { const char *gbnf; size_t min, max; } cases[] = {
        {"root ::= [a-z]{3,10000}", 3, 10000}, {"root ::= ([a-z]){9999,10000}", 9999, 10000}, {"root ::= (\"a\" | \"aa\"){100}", 100, 200},
        {"root ::= ([a-z]{100}){0,100}", 0, 10000}, {"root ::= x{21,}\nx ::= [a]", 21, 20000}};
    char *text = malloc(20001);
    memset(text, 'a', 20001);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(grammar_from_gbnf(cases[i].gbnf, strlen(cases[i].gbnf), &g, NULL), 0);
        CHECK(test_takes(g, vocab.v, text, cases[i].max) == 1, "%s: %zu", cases[i].gbnf, cases[i].max);
        CHECK(test_takes(g, vocab.v, text, cases[i].min) == 1, "%s: %zu", cases[i].gbnf, cases[i].min);
        if (cases[i].max < 20000)
            CHECK(test_takes(g, vocab.v, text, cases[i].max + 1) == -1, "%s: %zu", cases[i].gbnf, cases[i].max + 1);
        if (cases[i].min)
            CHECK(test_takes(g, vocab.v, text, cases[i].min - 1) == 0, "%s: %zu", cases[i].gbnf, cases[i].min - 1);
        grammar_release(g);
    }
    free(text);
}

static void refuses(const char *gbnf, int code, const char *message)
{
    struct grammar *g = (void *)1;
    skua_error err = {0};
    char *exact = malloc(strlen(gbnf) + !*gbnf); /* without a terminator: a sanitizer sees reads behind the end */
    memcpy(exact, gbnf, strlen(gbnf));
    const int rc = grammar_from_gbnf(exact, strlen(gbnf), &g, &err);
    free(exact);
    CHECK(rc == code && err.code == code && !g && !strcmp(err.message, message), "%s\n   gives  %d %s\n   wanted %d %s", gbnf, rc,
        err.message,
          code, message);
}

static void test_errors(void **state)
{
    (void)state;
    refuses("", SKUA_EARG, "GBNF: there is no rule 'root', where a text begins");
    refuses("a ::= \"x\"", SKUA_EARG, "GBNF: there is no rule 'root', where a text begins");
    refuses("root = \"x\"", SKUA_EARG, "GBNF: line 1, column 1: expected a rule: a name of letters, digits, - and _, then ::=");
    refuses("root ::= \"x\nb ::= \"y\"", SKUA_EARG, "GBNF: line 1, column 10: a string without its closing quote");
    refuses("root ::= a\n  | bb c\na ::= \"é\" bb\nc ::= \"\"", SKUA_EARG,
        "GBNF: line 2, column 5: a rule of this name is nowhere defined");
    refuses("root ::= \"é\" %", SKUA_EARG, "GBNF: line 1, column 14: expected a string, a character class, a rule's name or a group");
    refuses("root ::= [a-z", SKUA_EARG, "GBNF: line 1, column 10: a character class without ']'");
    refuses("root ::= [z-a]", SKUA_EARG, "GBNF: line 1, column 11: a range whose end is before its beginning");
    refuses("root ::= (\"a\"", SKUA_EARG, "GBNF: line 1, column 10: a group without ')'");
    refuses("root ::= \"a\")", SKUA_EARG, "GBNF: line 1, column 13: a ')' without its group");
    refuses("root ::= *", SKUA_EARG, "GBNF: line 1, column 10: expected a string, a character class, a rule's name or a group");
    refuses("root ::= \"a\"{", SKUA_EARG, "GBNF: line 1, column 13: expected {m}, {m,}, {,n} or {m,n}");
    refuses("root ::= \"a\"{3,2}", SKUA_EARG, "GBNF: line 1, column 13: a repetition whose maximum is below its minimum");
    refuses("root ::= \"a\"{999999999}", SKUA_EARG, "GBNF: line 1, column 14: a count above 100000000");
    refuses("root ::= \"\\q\"", SKUA_EARG,
            "GBNF: line 1, column 11: unknown escape: expected one of \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH \\UHHHHHHHH");
    refuses("root ::= \"\\x4\"", SKUA_EARG, "GBNF: line 1, column 12: \\x without two hex digits");
    refuses("root ::= \"\\ud800\"", SKUA_EARG, "GBNF: line 1, column 12: an escape for what is no character");
    refuses("root ::= \"\\", SKUA_EARG, "GBNF: line 1, column 11: the text ends in an escape");
    refuses("root ::= \"\\u12", SKUA_EARG, "GBNF: line 1, column 12: \\u without four hex digits");
    refuses("root ::= \"\xe2\x82", SKUA_EARG, "GBNF: line 1, column 11: malformed UTF-8");
    refuses("root ::= \"\xff\"", SKUA_EARG, "GBNF: line 1, column 11: malformed UTF-8");
    refuses("root ::= \"a\"\nroot ::= \"b\"", SKUA_EARG, "GBNF: line 2, column 1: this rule is defined a second time");
    refuses("root ::= root \"a\" | \"b\"", SKUA_EARG,
        "the rule 'root' is left-recursive: it begins with itself, directly or through other rules");
    refuses("root ::= \"x\" e\ne ::= w? f\nf ::= e \"+\" | \"1\"\nw ::= \" \"*", SKUA_EARG,
            "the rule 'e' is left-recursive: it begins with itself, directly or through other rules");
    refuses("root ::= \"a\" root", SKUA_EARG, "the grammar describes no text that ever ends");
    refuses("root ::= (\"a\"?){300}", SKUA_ELIMIT, "what may be empty is repeated up to 300 times, the limit is 256");
}

/* What would take for ever, or all memory, ends in an error. */
static void test_hostile(void **state)
{
    (void)state;
    struct strbuf s = {0};
    struct grammar *g;
    skua_error err;
    for (int i = 0; i < 300000; i++)
        strbuf_puts(&s, i ? "(" : "root ::= ");
    CHECK(grammar_from_gbnf(s.data, s.len, &g, &err) == SKUA_EARG && strstr(err.message, "nested more than 100"), "%s", err.message);
    strbuf_clear(&s);
    strbuf_puts(&s, "root ::= \"a\"");
    for (int i = 0; i < 2000; i++)
        strbuf_puts(&s, "{1,2}");
    CHECK(grammar_from_gbnf(s.data, s.len, &g, &err) == SKUA_ELIMIT, "%s", err.message);
    strbuf_clear(&s);
    strbuf_puts(&s, "root ::= r0\n");
    for (int i = 0; i < 20000; i++)
        strbuf_printf(&s, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
    strbuf_puts(&s, "r20000 ::= \"\"");
    struct grammar_state *none;
    CHECK(grammar_from_gbnf(s.data, s.len, &g, &err) == 0, "%s", err.message);
    CHECK(grammar_state_new(g, vocab.v, &none, &err) == SKUA_ELIMIT && !none, "deeper than a stack may be");
    grammar_release(g);
    strbuf_clear(&s);
    strbuf_puts(&s, "root ::= (([ab]{0,1000}){0,1000}){0,1000} \"c\"");
    if (grammar_from_gbnf(s.data, s.len, &g, &err) == 0) {
        struct grammar_state *st;
        uint64_t mask[64];
        assert_int_equal(grammar_state_new(g, vocab.v, &st, &err), 0);
        bool ok = true;
        for (int i = 0; i < 10 && ok; i++)
            ok = grammar_state_accept(st, "ab", 2);
        const int rc = grammar_state_mask(st, mask, &err);
        CHECK(rc == 0 || rc == SKUA_ELIMIT, "%d", rc);
        grammar_state_free(st);
        grammar_release(g);
    } else {
        CHECK(err.code == SKUA_ELIMIT, "%s", err.message);
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_json), cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_errors), cmocka_unit_test(test_hostile)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
