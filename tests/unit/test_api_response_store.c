/* Kept answers of /v1/responses: the store against a naive model, its bounds, several threads; requests that go on from an answer against
 * the same with the whole input; what the writer keeps; memory running out at each allocation. */
#include <pthread.h>

#include "api/response_read.h"
#include "api/writer.h"
#include "api_parse.h"
#include "api_script.h"

static struct response_access access_of(size_t max_answers, size_t max_bytes)
{
    struct response_access a = {NULL, 0};
    CHECK(response_store_new(max_answers, max_bytes, &a.store, NULL) == 0, "new");
    return a;
}

/* One message of this text, as input and as output. */
static json_t *message(const char *text) { return json_pack("{s:s, s:s}", "role", "user", "content", text); }

/* A kept answer "id" to that message; the output is a message "a-id" with the item id "out-id". */
static bool keep(const struct response_access *a, const char *before, const char *id, const char *text)
{
    struct strbuf response = {0}, output = {0};
    json_t *input = json_array();
    bool ok = json_array_append_new(input, message(text)) == 0;
    struct response_turn *t = ok ? response_turn_new(a, before ? response_turn_find(a, before) : NULL, input) : NULL;
    strbuf_printf(&response, "{\"id\":\"%s\"}", id);
    strbuf_printf(&output, "{\"type\":\"message\",\"id\":\"out-%s\",\"role\":\"assistant\",\"content\":\"a-%s\"}", id, id);
    ok = t && !response.failed && !output.failed && response_turn_keep(t, id, &response, &output);
    response_turn_drop(t);
    json_decref(input);
    strbuf_free(&response);
    strbuf_free(&output);
    return ok;
}

/* The conversation of an answer as "text a-id text a-id"; "-" if it is not kept, "!" behind an item with another id than it says. */
static void said(const struct response_access *a, const char *id, struct strbuf *out)
{
    struct response_turn *t = response_turn_find(a, id);
    struct response_item *items = NULL;
    size_t n = 0;
    if (!t)
        strbuf_puts(out, "-");
    else if (response_turn_items(t, true, &items, &n))
        out->failed = true;
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_loadb(items[i].text, items[i].n_text, 0, NULL);
        const bool same = strcmp(items[i].id, json_string_value(json_object_get(v, "id"))) == 0;
        strbuf_printf(out, "%s%s%s", i ? " " : "", json_string_value(json_object_get(v, "content")), same ? "" : "!");
        json_decref(v);
    }
    mem_free(items);
    response_turn_drop(t);
}

static void check_said(int line, const struct response_access *a, const char *id, const char *want)
{
    struct strbuf got = {0};
    said(a, id, &got);
    check_text(line, "conversation", strbuf_str(&got), want);
    strbuf_free(&got);
}
#define SAID(a, id, want) check_said(__LINE__, a, id, want)

static void test_store(void)
{
    struct response_access a = access_of(3, 1 << 20), other = {a.store, 1}, none = {NULL, 0};
    struct strbuf b = {0};
    size_t n, bytes;
    CHECK(keep(&a, NULL, "r1", "one") && keep(&a, "r1", "r2", "two") && keep(&a, "r1", "r3", "three"), "keep");
    SAID(&a, "r2", "one a-r1 two a-r2");
    SAID(&a, "r3", "one a-r1 three a-r3");
    SAID(&other, "r3", "-");
    SAID(&none, "r3", "-");
    CHECK(!response_store_item(&other, "out-r1", &b) && !response_store_delete(&other, "r1") && !response_store_answer(&other, "r1", &b) &&
          !response_store_item(&none, "out-r1", &b) && !response_store_delete(&none, "r1") && !response_store_answer(&none, "r1", &b) &&
          !b.len, "nothing for others");
    CHECK(response_store_answer(&a, "r1", &b) && strcmp(b.data, "{\"id\":\"r1\"}") == 0, "the answer: %s", strbuf_str(&b));
    CHECK(keep(&a, "r3", "r4", "four"), "keep"); /* r1 is the oldest */
    SAID(&a, "r1", "-");
    SAID(&a, "r4", "one a-r1 three a-r3 four a-r4");
    strbuf_clear(&b);
    CHECK(response_store_item(&a, "out-r1", &b) && strstr(b.data, "a-r1"), "what others go on from is there");
    CHECK(response_store_delete(&a, "r3") && !response_store_delete(&a, "r3"), "delete");
    SAID(&a, "r4", "one a-r1 three a-r3 four a-r4");
    CHECK(response_store_delete(&a, "r2"), "delete");
    CHECK(!response_store_item(&a, "out-r2", &b) && response_store_item(&a, "out-r3", &b), "an item of a deleted answer");
    CHECK(response_store_delete(&a, "r4"), "delete");
    response_store_get_stats(a.store, &n, &bytes);
    CHECK(n == 0 && bytes == 0 && !response_store_item(&a, "out-r1", &b), "%zu answers, %zu bytes are left", n, bytes);
    CHECK(keep(&a, NULL, "r1", "again"), "keep");
    SAID(&a, "r1", "again a-r1");
    strbuf_free(&b);
    response_store_free(a.store);
    response_store_free(NULL);
}

static void test_bytes(void)
{
    struct response_access a = access_of(1000, 100000);
    char big[40001], id[16];
    size_t n, bytes;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "r%d", i);
        CHECK(keep(&a, NULL, id, big), "keep");
        response_store_get_stats(a.store, &n, &bytes);
        CHECK(n == (i ? 2 : 1) && bytes <= 100000 && bytes > 40000 * n, "%zu answers of %zu bytes", n, bytes);
    }
    CHECK(keep(&a, "r4", "r5", big), "the second of a conversation");
    CHECK(!keep(&a, "r5", "r6", big), "a conversation that is too long is not kept");
    response_store_get_stats(a.store, &n, &bytes);
    CHECK(n == 0 && bytes == 0, "%zu answers, %zu bytes", n, bytes);
    response_store_free(a.store);
    a = access_of(1000, 10000);
    CHECK(keep(&a, NULL, "small", "s") && !keep(&a, NULL, "big", big), "an answer that is too large");
    SAID(&a, "small", "s a-small");
    response_store_free(a.store);
}

/* Random answers, after each other or after one that is kept, and deleted ones. The model: of each the whole text, and how old it is. */
static void test_random(void)
{
    enum { MAX = 7, MANY = 400 };
    static struct strbuf texts[MANY];
    static bool listed[MANY];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct response_access a = access_of(MAX, 1 << 20);
        uint64_t state = seed;
        char id[16], text[16], before[16];
        for (int i = 0, n_listed = 0; i < MANY; i++) {
            int from = i ? (int)script_below(&state, (uint64_t)i) : 0;
            from = i - from > 12 ? i - 1 : from;
            const bool goes_on = i && script_below(&state, 4) && listed[from];
            snprintf(id, sizeof id, "r%d", i);
            snprintf(text, sizeof text, "q%d", i);
            snprintf(before, sizeof before, "r%d", from);
            CHECK(keep(&a, goes_on ? before : NULL, id, text), "keep %d", i);
            if (goes_on)
                strbuf_printf(&texts[i], "%s ", strbuf_str(&texts[from]));
            strbuf_printf(&texts[i], "%s a-%s", text, id);
            listed[i] = true;
            n_listed++;
            for (int k = 0; k < i && n_listed > MAX; k++) {
                n_listed -= listed[k];
                listed[k] = false;
            }
            if (script_below(&state, 5) == 0) {
                int k = (int)script_below(&state, (uint64_t)i + 1);
                snprintf(id, sizeof id, "r%d", k);
                CHECK(response_store_delete(&a, id) == listed[k], "delete %d", k);
                n_listed -= listed[k];
                listed[k] = false;
            }
            for (int k = i > 20 ? i - 20 : 0; k <= i; k++) {
                snprintf(id, sizeof id, "r%d", k);
                SAID(&a, id, listed[k] ? strbuf_str(&texts[k]) : "-");
            }
        }
        for (int i = 0; i < MANY; i++) {
            strbuf_free(&texts[i]);
            listed[i] = false;
        }
        response_store_free(a.store);
    }
}

struct worker {
    pthread_t thread;
    struct response_access a;
    uint64_t seed;
    int n_kept, n_wrong;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    const struct response_access a = w->a;
    uint64_t state = w->seed;
    char id[24], before[24] = "";
    struct strbuf b = {0};
    for (int i = 0; i < 1500; i++) {
        snprintf(id, sizeof id, "r%d", (int)script_below(&state, 1 << 20));
        w->n_kept += keep(&a, *before ? before : NULL, id, "text");
        strbuf_clear(&b);
        said(&a, id, &b);
        w->n_wrong += strcmp(strbuf_str(&b), "-") != 0 && (!strstr(strbuf_str(&b), id) || strchr(strbuf_str(&b), '!'));
        snprintf(before, sizeof before, "%s", i % 8 ? id : "");
        if (i % 5 == 0)
            response_store_delete(&a, id);
    }
    strbuf_free(&b);
    return NULL;
}

static void test_threads(void)
{
    struct response_access a = access_of(16, 1 << 20);
    struct worker w[3];
    for (int i = 0; i < 3; i++) {
        w[i] = (struct worker){.a = a, .seed = (uint64_t)i + 1};
        CHECK(pthread_create(&w[i].thread, NULL, work, &w[i]) == 0, "thread");
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        CHECK(w[i].n_kept == 1500 && !w[i].n_wrong, "%d are kept, %d wrong", w[i].n_kept, w[i].n_wrong);
    }
    size_t n, bytes;
    response_store_get_stats(a.store, &n, &bytes);
    CHECK(n && n <= 16, "%zu answers", n);
    response_store_free(a.store);
}

/* ---- requests ---- */

static struct response_access kept;

static int parse(const struct api_env *env, json_t *body, struct api_request *r, struct api_error *e)
{
    return responses_parse(env, &kept, body, NULL, NULL, r, e);
}

/* The body's input is kept with an answer of this id and output. */
static void answer(const struct api_env *env, const char *body, const char *id, const char *output)
{
    struct api_request r;
    struct api_error e;
    struct strbuf response = {0}, items = {0};
    json_t *list = parse_json(output), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        strbuf_puts(&items, i ? "," : "");
        api_json_value(&items, item);
    }
    strbuf_puts(&response, "{}");
    if (CHECK(parse(env, parse_json(body), &r, &e) == 0 && r.turn, "%s", e.message)) {
        CHECK(response_turn_keep(r.turn, id, &response, &items), "keep");
        api_request_free(&r);
    }
    json_decref(list);
    strbuf_free(&response);
    strbuf_free(&items);
}

#define Q1 "{'role':'system','content':'s'},{'role':'user','content':[{'type':'input_text','text':'q\\u0000\\u00e9'}],'id':'mine'}"
#define A1 "{'type':'reasoning','id':'rs_1','summary':[],'content':[{'type':'reasoning_text','text':'why'}],'encrypted_content':null}," \
    "{'type':'message','id':'msg_1','role':'assistant','content':[{'type':'output_text','text':'so','annotations':[]}]}," \
    "{'type':'function_call','id':'fc_1','call_id':'c1','name':'f','arguments':'{\\\"b\\\":1,\\\"a\\\":1e3}'}"
#define Q2 "{'type':'function_call_output','call_id':'c1','output':'1'}"
#define A2 "{'type':'message','id':'msg_2','role':'assistant','content':[{'type':'output_text','text':'done','annotations':[]}]}"
#define Q3 "{'role':'user','content':'next'}"

static void test_requests(const struct api_env *env)
{
    static const struct { const char *by_id, *whole; } pairs[] = {
        {"{'previous_response_id':'r1','input':[" Q2 "]}", "{'input':[" Q1 "," A1 "," Q2 "]}"},
        {"{'previous_response_id':'r1','input':[" Q2 "],'instructions':'i'}", "{'input':[" Q1 "," A1 "," Q2 "],'instructions':'i'}"},
        {"{'previous_response_id':'r2','input':'next'}", "{'input':[" Q1 "," A1 "," Q2 "," A2 "," Q3 "]}"},
        {"{'previous_response_id':'r2','input':[]}", "{'input':[" Q1 "," A1 "," Q2 "," A2 "]}"},
        {"{'input':[{'type':'item_reference','id':'mine'},{'type':'item_reference','id':'rs_1'},{'type':'item_reference','id':'msg_2'}]}",
         "{'input':[{'role':'user','content':[{'type':'input_text','text':'q\\u0000\\u00e9'}]},{'type':'reasoning','summary':[],"
         "'content':[{'type':'reasoning_text','text':'why'}]}," A2 "]}"},
    };
    static const struct bad_body bad[] = {
        {__LINE__, "{'previous_response_id':'r9','input':'x'}", "previous_response_not_found", "previous_response_id",
         "previous_response_id: no response 'r9' is kept here, or no longer; send the whole conversation as input"},
        {__LINE__, "{'previous_response_id':7,'input':'x'}", "invalid_type", "previous_response_id",
         "previous_response_id: expected a string, got 7"},
        {__LINE__, "{'previous_response_id':'r1'}", "missing_required_parameter", "input",
         "input: missing; expected a string or a list of items"},
        {__LINE__, "{'input':['x',{'type':'item_reference','id':'no'}]}", "invalid_value", "input[1].id",
         "input[1].id: no item 'no' is kept here, or no longer; send the item itself"},
        {__LINE__, "{'input':[{'type':'item_reference'}]}", "missing_required_parameter", "input[0].id",
         "input[0].id: missing; expected a string"},
        {__LINE__, "{'previous_response_id':'r2','input':[{'type':'function_call_output','call_id':'c9','output':'1'}]}",
         "unknown_tool_call_id", "input[0].call_id", "input[0].call_id: expected the call_id of a call in the input, got 'c9'"},
    };
    answer(env, "{'input':[" Q1 "]}", "r1", "[" A1 "]");
    answer(env, "{'previous_response_id':'r1','input':[" Q2 "]}", "r2", "[" A2 "]");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct api_request r, whole;
        struct api_error e = {0};
        struct strbuf b = {0};
        const bool ok = parse(env, parse_json(pairs[i].by_id), &r, &e) == 0;
        if (!CHECK(ok && responses_parse(env, NULL, parse_json(pairs[i].whole), NULL, NULL, &whole, &e) == 0, "%s", e.message))
            continue;
        api_json_value(&b, whole.messages);
        check_json(__LINE__, "messages", r.messages, strbuf_str(&b));
        CHECK(r.turn && !whole.turn, "what is to be kept");
        CHECK(json_is_true(json_object_get(r.echo_fields, "store")) && json_is_false(json_object_get(whole.echo_fields, "store")), "store");
        strbuf_free(&b);
        api_request_free(&r);
        api_request_free(&whole);
        check_memory(parse, env, pairs[i].by_id);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad(parse, env, &bad[i]);
    struct api_request r;
    struct api_error e;
    if (CHECK(parse(env, parse_json("{'previous_response_id':'r1','input':[" Q2 "],'store':false}"), &r, &e) == 0, "%s", e.message)) {
        CHECK(!r.turn && json_is_false(json_object_get(r.echo_fields, "store")), "not to be kept");
        api_request_free(&r);
    }
}

static void test_reading(void)
{
    static const struct { struct response_page page; const char *want; } pages[] = {
        {{NULL, 20, true}, "message,message,reasoning,message,function_call,function_call_output-"},
        {{"", 2, false}, "function_call_output,function_call+"},
        {{"fc_1", 2, false}, "message,reasoning+"},
        {{"msg_1", 9, true}, "function_call,function_call_output-"},
        {{"mine", 1, true}, "reasoning+"},
        {{"rs_1", 2, false}, "message,message-"},
    };
    struct strbuf out = {0}, got = {0};
    struct api_error e = {0};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        strbuf_clear(&out);
        strbuf_clear(&got);
        CHECK(response_input_items(&kept, "r2", &pages[i].page, &out, &e) == 0, "%s", e.message);
        json_t *list = json_loadb(out.data, out.len, JSON_ALLOW_NUL, NULL), *item, *data = json_object_get(list, "data");
        size_t k;
        json_array_foreach(data, k, item)
            strbuf_printf(&got, "%s%s", k ? "," : "", json_string_value(json_object_get(item, "type")));
        strbuf_puts(&got, json_is_true(json_object_get(list, "has_more")) ? "+" : "-");
        check_text(__LINE__, "items", strbuf_str(&got), pages[i].want);
        const json_t *first = json_array_get(data, 0), *last = json_array_get(data, json_array_size(data) - 1);
        CHECK(json_equal(json_object_get(list, "first_id"), json_object_get(first, "id")), "first_id");
        CHECK(json_equal(json_object_get(list, "last_id"), json_object_get(last, "id")), "last_id");
        json_decref(list);
    }
    CHECK(response_input_items(&kept, "r2", &(struct response_page){"msg_2", 5, true}, &out, &e) == -1 && e.status == 400 &&
          strcmp(e.param, "after") == 0, "its own output is not among them");
    CHECK(response_input_items(&kept, "no", &pages[0].page, &out, &e) == -1 && e.status == 404, "%d", e.status);
    CHECK(response_read(&kept, "no", &out, &e) == -1 && e.status == 404, "%d", e.status);
    CHECK(response_delete(&kept, "no", &out, &e) == -1 && e.status == 404 && strcmp(e.code, "response_not_found") == 0, "%d", e.status);
    size_t live = mem_live_blocks();
    for (uint64_t n = 1, done = 0; !done; n++) {
        struct strbuf page = {0};
        fault_set_alloc(n, true);
        int rc = response_input_items(&kept, "r2", &pages[0].page, &page, &e);
        done = fault_alloc_count() < n;
        fault_set_alloc(0, false);
        CHECK((rc == 0) == done || page.failed || (rc == -1 && e.status == 503), "allocation %d: %d", (int)n, rc);
        strbuf_free(&page);
        CHECK(mem_live_blocks() == live, "allocation %d: %zu blocks left behind", (int)n, mem_live_blocks() - live);
    }
    strbuf_free(&out);
    strbuf_free(&got);
}

/* What the writer keeps is what the client got; an answer for which there is no memory to keep it says so, and is the same else. */
static void test_writer(const struct api_env *env)
{
    struct script s = {.events = {TEXT("Hi"), CALL("c1", "f"), ARGS("c1", "f", "{}"), CALL_END("c1", "f", "{}")}, .n = 4,
                       .end = {.finish = API_FINISH_CALLS}, .keepalive_at = SIZE_MAX};
    bool unkept = false;
    for (int stream = 0; stream < 2; stream++)
        for (uint64_t n = 0, done = 0; !done; n++) {
            struct api_request r;
            struct api_error e;
            struct strbuf got = {0}, have = {0}, masked = {0};
            json_t *body = parse_json(stream ? "{'input':'q','stream':true}" : "{'input':'q'}");
            size_t live = mem_live_blocks();
            if (!CHECK(parse(env, json_incref(body), &r, &e) == 0, "%s", e.message))
                return;
            fault_set_alloc(n, true);
            int rc = script_play(responses_writer_new(), &s, env, &r, &got);
            done = n && fault_alloc_count() < n;
            fault_set_alloc(0, false);
            const bool is_kept = response_store_answer(&kept, "resp_test", &have);
            mask_ids(strbuf_str(&have), have.len, &masked);
            if (!rc) {
                CHECK(strstr(got.data, is_kept ? "\"store\":true" : "\"store\":false") != NULL, "allocation %d: store", (int)n);
                CHECK(!is_kept || strstr(got.data, masked.data), "allocation %d: %s is not what was sent:\n%s", (int)n, masked.data,
                      got.data);
                CHECK(is_kept || n, "not kept");
                unkept |= !is_kept;
            }
            response_store_delete(&kept, "resp_test");
            api_request_free(&r);
            json_decref(body);
            strbuf_free(&got);
            strbuf_free(&have);
            strbuf_free(&masked);
            CHECK(mem_live_blocks() <= live, "allocation %d: %zu blocks left behind", (int)n, mem_live_blocks() - live);
        }
    CHECK(unkept, "memory that is there for the answer, but not to keep it");
}

int main(void)
{
    json_use_mem();
    json_object_seed(1);
    const struct api_env env = parse_env();
    const size_t live = mem_live_blocks();
    test_store();
    test_bytes();
    test_random();
    test_threads();
    kept = access_of(16, 1 << 20);
    test_requests(&env);
    test_reading();
    test_writer(&env);
    response_store_free(kept.store);
    CHECK(mem_live_blocks() == live, "%zu blocks left behind", mem_live_blocks() - live);
    return support_finish("test_api_response_store");
}
