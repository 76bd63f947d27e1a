/* Outputs of models and what they mean: shared by the tests of the parser. What is expected is written as tool_transcript (below) writes
 * it: think(...) end text(...) call NAME args(...) done(...), or cut(...) for a call that is not complete. */
#ifndef SKUA_TESTS_TOOL_CASES_H
#define SKUA_TESTS_TOOL_CASES_H

#include <string.h>

#include "api/tool_parse.h"

static const char tool_case_tools[] =
    "[{\"name\": \"get\", \"parameters\": {\"type\": \"object\", \"$defs\": {\"when\": {\"type\": [\"integer\", \"null\"]}},"
    " \"properties\": {"
    "\"city\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"on\": {\"type\": \"boolean\"}, \"list\": {\"type\": \"array\"},"
    "\"any\": {}, \"note\": {\"type\": [\"string\", \"null\"]}, \"nil\": {\"type\": \"null\"}, \"when\": {\"$ref\": \"#/$defs/when\"},"
    "\"pick\": {\"enum\": [1, 2]}, \"or\": {\"anyOf\": [{\"type\": \"number\"}, {\"type\": \"object\"}]}}}},"
    "{\"name\": \"get_all\", \"parameters\": null},"
    "{\"name\": \"write\", \"parameters\": {\"type\": \"object\", \"properties\": {\"path\": {\"type\": \"string\"},"
    "\"content\": {\"type\": \"string\"}}}},"
    "{\"name\": \"patch\", \"custom\": true}]";

enum { CASE_THINKS = 1, CASE_CUT = 2, CASE_NO_TOOLS = 4, CASE_MAYBE = 8 };

struct tool_case {
    const char *name;
    int flags;
    const char *output, *expected;
};

#define CALL(body) "<tool_call>\n<function=get>\n" body "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

static const struct tool_case tool_cases[] = {
    {"text", 0, "Hello\n\nyou\n", "text(Hello\n\nyou\n)"},
    {"nothing", 0, "", ""},
    {"thinking", CASE_THINKS, "\nI think\n\nso\n</think>\n\nYes\n", "think(I think\n\nso)end text(Yes\n)"},
    {"empty thinking", CASE_THINKS, "\n\n</think>\n\nYes", "text(Yes)"},
    {"thinking that does not end", CASE_THINKS | CASE_CUT, "so\n\n", "think(so)end "},
    {"thinking cut in its tag", CASE_THINKS | CASE_CUT, "so\n</thi", "think(so\n</thi)end "},
    {"near tags in thinking", CASE_THINKS, "a <b </thin </think</think>c", "think(a <b </thin </think)end text(c)"},
    {"thinking that the model opens", CASE_MAYBE, "\n<think>\nx\n</think>\ny", "think(x)end text(y)"},
    {"no thinking after all", CASE_MAYBE, "\n <thinker>", "text(\n <thinker>)"},
    {"only white space", CASE_MAYBE, " \n", "text( \n)"},
    {"call", 0, CALL(P("city", "Oslo")), "call get args({\"city\":\"Oslo\"})done({\"city\":\"Oslo\"})"},
    {"no parameters", 0, CALL(""), "call get args({})done({})"},
    {"tool without a schema", 0, "<tool_call><function=get_all><parameter=x>5</parameter></function></tool_call>",
     "call get_all args({\"x\":\"5\"})done({\"x\":\"5\"})"},
    {"text around calls", 0, "A\n\n" CALL("") "\n" CALL(P("n", "1")) "\n\nB\n",
     "text(A)call get args({})done({})call get args({\"n\":1})done({\"n\":1})text(B\n)"},
    {"CR LF everywhere", 0,
     "A\r\n<tool_call>\r\n<function=get>\r\n<parameter=city>\r\n a\r\nb \r\n\r\n</parameter>\r\n</function>\r\n</tool_call>\r\n",
     "text(A)call get args({\"city\":\" a\\r\\nb \\r\\n\"})done({\"city\":\" a\\r\\nb \\r\\n\"})"},
    {"lone CR is a character", 0, CALL("<parameter=city>\r\rx\r</parameter>"),
     "call get args({\"city\":\"\\r\\rx\\r\"})done({\"city\":\"\\r\\rx\\r\"})"},
    {"no opener, first on its line", 0, "Now:\n<function=get>\n" P("n", "2") "</function>\nEnd",
     "text(Now:)call get args({\"n\":2})done({\"n\":2})text(End)"},
    {"no opener, with an end", 0, "<function=get></function></tool_call>x", "call get args({})done({})text(x)"},
    {"function in the middle of a line is text", 0, "see <function=get> there", "text(see <function=get> there)"},
    {"unknown tool", 0, "<tool_call>\n<function=gets>\n</function>\n</tool_call>",
     "text(<tool_call>\n<function=gets>\n</function>\n</tool_call>)"},
    {"opener of nothing", 0, "a <tool_call> b\n\n<tool_call>\n", "text(a <tool_call> b\n\n<tool_call>\n)"},
    {"opener twice", 0, "<tool_call>\n<tool_call>\n<function=get></function></tool_call>", "text(<tool_call>)call get args({})done({})"},
    {"no tools", CASE_NO_TOOLS, CALL(P("n", "1")), "text(" CALL(P("n", "1")) ")"},
    {"name that begins another", 0, "<tool_call><function=get_all></function></tool_call>", "call get_all args({})done({})"},
    {"call in thinking", CASE_THINKS, "hm\n\n" CALL("") "x", "think(hm)end call get args({})done({})text(x)"},
    {"opener inside a line of thinking", CASE_THINKS, "I do <tool_call>\n<function=gets> a</think>b",
     "think(I do <tool_call>\n<function=gets> a)end text(b)"},
    {"opener inside a line, function on the next", CASE_THINKS, "do <tool_call>\n<function=get></function></tool_call>",
     "think(do <tool_call>)end call get args({})done({})"},
    {"one break on each side is removed", 0, CALL("<parameter=city>\n\n x\n\n</parameter>"),
     "call get args({\"city\":\"\\n x\\n\"})done({\"city\":\"\\n x\\n\"})"},
    {"empty values", 0, CALL("<parameter=city></parameter><parameter=any>\n</parameter><parameter=n>\n\n</parameter>"),
     "call get args({\"city\":\"\",\"any\":\"\",\"n\":\"\"})done({\"city\":\"\",\"any\":\"\",\"n\":\"\"})"},
    {"literal tags survive", 0, CALL(P("city", "a</parameter>b <parameter=q> </function> x </tool_call> <tool_call>\n<function=get>")),
     "call get args({\"city\":\"a</parameter>b <parameter=q> </function> x </tool_call> <tool_call>\\n<function=get>\"})"
     "done({\"city\":\"a</parameter>b <parameter=q> </function> x </tool_call> <tool_call>\\n<function=get>\"})"},
    {"an undeclared parameter's line is text in a value", 0, CALL("<parameter=city>\na\n<parameter=zzz>\nb\n</parameter>"),
     "call get args({\"city\":\"a\\n<parameter=zzz>\\nb\"})done({\"city\":\"a\\n<parameter=zzz>\\nb\"})"},
    {"end of a parameter twice", 0, CALL("<parameter=city>\na\n</parameter>\n</parameter>\n"),
     "call get args({\"city\":\"a\"})done({\"city\":\"a\"})"},
    {"missing end of a parameter, then another", 0, CALL("<parameter=city>\na\n<parameter=n>\n3\n</parameter>"),
     "call get args({\"city\":\"a\",\"n\":3})done({\"city\":\"a\",\"n\":3})"},
    {"missing end of a parameter, then the end", 0, CALL("<parameter=city>\na\n"), "call get args({\"city\":\"a\"})done({\"city\":\"a\"})"},
    {"end of a function inside code", 0, CALL(P("city", "x </function> y")),
     "call get args({\"city\":\"x </function> y\"})done({\"city\":\"x </function> y\"})"},
    {"missing end of the function", 0, "<tool_call>\n<function=get>\n" P("n", "1") "</tool_call>\nx",
     "call get args({\"n\":1})done({\"n\":1})text(x)"},
    {"missing ends before the next call", 0,
     "<tool_call>\n<function=get>\n" P("n", "1") "<tool_call>\n<function=get_all></function></tool_call>",
     "call get args({\"n\":1})done({\"n\":1})call get_all args({})done({})"},
    {"missing ends before a bare call", 0, "<tool_call>\n<function=get>\n" P("n", "1") "<function=get_all></function>",
     "call get args({\"n\":1})done({\"n\":1})call get_all args({})done({})"},
    {"all ends missing", 0, "<tool_call>\n<function=get>\n<parameter=city>\nOslo\n",
     "call get args({\"city\":\"Oslo\"})done({\"city\":\"Oslo\"})"},
    {"output ends behind a parameter", 0, "<tool_call>\n<function=get>\n" P("city", "a"),
     "call get args({\"city\":\"a\"})done({\"city\":\"a\"})"},
    {"cut in a string", CASE_CUT, "<tool_call>\n<function=get>\n<parameter=city>\nOs\n</par",
     "call get args({\"city\":\"Os)cut({\"city\":\"Os\"})"},
    {"cut in a number", CASE_CUT, "<tool_call>\n<function=get>\n" P("city", "a") "<parameter=n>\n12",
     "call get args({\"city\":\"a\")cut({\"city\":\"a\"})"},
    {"cut before a parameter", CASE_CUT, "<tool_call>\n<function=get>\n<param", "call get cut({})"},
    {"cut behind the function", CASE_CUT, "<tool_call>\n<function=get>\n" P("n", "1") "</function>\n</too",
     "call get args({\"n\":1})done({\"n\":1})"},
    {"cut in an opener", CASE_CUT, "a\n<tool_call>\n<func", "text(a\n<tool_call>\n<func)"},
    {"types", 0,
     CALL(P("n", " -12 ") P("on", "TRUE") P("list", "[1, {\"a\": null}]\n") P("any", "5") P("nil", "null") P("when", "null") P("pick", "2")
          P("or", "{\"x\": 1.50}")),
     "call get args({\"n\":-12,\"on\":true,\"list\":[1, {\"a\": null}],\"any\":\"5\",\"nil\":null,\"when\":null,\"pick\":2,"
     "\"or\":{\"x\": 1.50}})"
     "done({\"n\":-12,\"on\":true,\"list\":[1, {\"a\": null}],\"any\":\"5\",\"nil\":null,\"when\":null,\"pick\":2,\"or\":{\"x\": 1.50}})"},
    {"types that do not fit", 0, CALL(P("n", "ten") P("on", "yes") P("list", "[1,") P("nil", "0") P("when", "1e999") P("or", "true")),
     "call get args({\"n\":\"ten\",\"on\":\"yes\",\"list\":\"[1,\",\"nil\":\"0\",\"when\":\"1e999\",\"or\":\"true\"})"
     "done({\"n\":\"ten\",\"on\":\"yes\",\"list\":\"[1,\",\"nil\":\"0\",\"when\":\"1e999\",\"or\":\"true\"})"},
    {"string or null", 0, CALL(P("note", "null") P("note", "nul") P("note", "nullx") P("note", "") P("note", " null")),
     "call get args({\"note\":null,\"note\":\"nul\",\"note\":\"nullx\",\"note\":\"\",\"note\":\" null\"})"
     "done({\"note\":null,\"note\":\"nul\",\"note\":\"nullx\",\"note\":\"\",\"note\":\" null\"})"},
    {"escapes", 0, CALL(P("city", "\"\\\t\x01\xC3\xA9/")),
     "call get args({\"city\":\"\\\"\\\\\\t\\u0001\xC3\xA9/\"})done({\"city\":\"\\\"\\\\\\t\\u0001\xC3\xA9/\"})"},
    {"malformed bytes", 0, "\xE2\x82" CALL(P("city", "\xF0\x9F\x98")) "\xC3",
     "text(\xEF\xBF\xBD\xEF\xBF\xBD)call get args({\"city\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"})"
     "done({\"city\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"})text(\xEF\xBF\xBD)"},
    {"custom tool", 0, "<tool_call>\n<function=patch>\n<parameter=input>\n*** \"Begin\"\n\n</parameter>\n</function>\n</tool_call>",
     "call patch args(*** \"Begin\"\n)done(*** \"Begin\"\n)"},
    {"custom tool, cut", CASE_CUT, "<tool_call>\n<function=patch>\n<parameter=input>\nabc\n", "call patch args(abc)cut(abc)"},
    {"text between the parts of a call", 0, "<tool_call>\n<function=get>\nso <b>:\n" P("n", "1") "</function>\n</tool_call>x",
     "call get args({\"n\":1})done({\"n\":1})text(so <b>:x)"},
    {"near tags in a value", 0, CALL(P("city", "</parameter> </parametez></function> </tool_calm></parameter>\n\n</funct<")),
     "call get args({\"city\":\"</parameter> </parametez></function> </tool_calm></parameter>\\n\\n</funct<\"})"
     "done({\"city\":\"</parameter> </parametez></function> </tool_calm></parameter>\\n\\n</funct<\"})"},
    {"a break before a near tag", 0, CALL(P("city", "a\n</function>\n\n\n")),
     "call get args({\"city\":\"a\\n</function>\\n\\n\\n\"})done({\"city\":\"a\\n</function>\\n\\n\\n\"})"},
    {"a tag's beginning ends the output", 0, "see <tool_", "text(see <tool_)"},
};
#undef CALL
#undef P
#define TOOL_CASES (sizeof tool_cases / sizeof *tool_cases)

static inline enum parse_begin tool_case_begin(int flags)
{
    return flags & CASE_THINKS ? PARSE_BEGIN_THINKING : flags & CASE_MAYBE ? PARSE_BEGIN_MAYBE_THINKING : PARSE_BEGIN_TEXT;
}

/* A request with the tools of tool_case_tools; its memory is the caller's: tools with mem_free, json with json_decref. */
static int tool_case_request(struct api_request *r, json_t **json)
{
    *json = json_loads(tool_case_tools, 0, NULL);
    *r = (struct api_request){.tool_choice = API_TOOLS_AUTO, .parallel_calls = true, .thinking_budget = -1, .n_logprobs = -1,
                              .max_tokens = -1};
    r->tools = calloc(json_array_size(*json), sizeof *r->tools);
    for (size_t i = 0; r->tools && i < json_array_size(*json); i++) {
        const json_t *t = json_array_get(*json, i);
        r->tools[r->n_tools++] = (struct api_tool){.name = json_string_value(json_object_get(t, "name")),
                                                   .custom = json_is_true(json_object_get(t, "custom")),
                                                   .parameters = json_object_get(t, "parameters")};
    }
    return r->tools ? 0 : -1;
}

/* Events as text; those of one kind run together. */
struct tool_transcript {
    struct strbuf text;
    int open; /* kind of the open parenthesis, -1 */
};

static void transcript_piece(struct tool_transcript *t, int kind, const char *label, const char *s, size_t n)
{
    if (t->open != kind) {
        if (t->open >= 0)
            strbuf_puts(&t->text, ")");
        strbuf_puts(&t->text, label);
    }
    strbuf_append(&t->text, s, n);
    t->open = kind;
}

static void transcript_close(struct tool_transcript *t)
{
    if (t->open >= 0)
        strbuf_puts(&t->text, ")");
    t->open = -1;
}

static void transcript_add(struct tool_transcript *t, enum api_event_kind kind, const char *text, size_t n, const char *name, bool complete)
{
    static const char *const labels[] = {"think(", "", "text(", "", "args(", ""};
    if (kind == API_EVENT_THINKING || kind == API_EVENT_TEXT || kind == API_EVENT_CALL_ARGS) {
        transcript_piece(t, (int)kind, labels[kind], text, n);
        return;
    }
    transcript_close(t);
    if (kind == API_EVENT_THINKING_END)
        strbuf_puts(&t->text, "end ");
    else if (kind == API_EVENT_CALL_BEGIN)
        strbuf_printf(&t->text, "call %s ", name);
    else {
        strbuf_puts(&t->text, complete ? "done(" : "cut(");
        strbuf_append(&t->text, text, n);
        strbuf_puts(&t->text, ")");
    }
}

#endif
