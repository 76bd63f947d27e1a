/* Made-up answers for the writers of Responses and Messages: a list of events and how it ended, played into a writer streamed or whole; and
 * a reader of the server-sent events that come out. Ids are replaced by their prefix and a number in order of appearance. */
#ifndef SKUA_TESTS_API_SCRIPT_H
#define SKUA_TESTS_API_SCRIPT_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/writer.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/support.h"

#define SCRIPT_MAX 64

struct script {
    struct api_event events[SCRIPT_MAX];
    size_t n;
    struct api_choice_end end;
    struct api_error fail;    /* status not 0: instead of the ending */
    size_t keepalive_at;      /* before this event, and once before the end if it is n; SIZE_MAX: never */
    bool recover;             /* when memory runs out, the faults end and the answer fails with that */
    struct strbuf texts[SCRIPT_MAX]; /* of random scripts: what events point to */
    size_t n_texts;
};

static inline struct api_event text_event(enum api_event_kind kind, const char *text)
{
    return (struct api_event){.kind = kind, .text = text, .n = text ? strlen(text) : 0};
}

static inline struct api_event call_event(enum api_event_kind kind, const char *id, const char *name, const char *text, bool complete)
{
    return (struct api_event){.kind = kind, .text = text, .n = text ? strlen(text) : 0, .id = id, .name = name, .complete = complete};
}

#define THINK(s) text_event(API_EVENT_THINKING, s)
#define THINK_END() text_event(API_EVENT_THINKING_END, NULL)
#define TEXT(s) text_event(API_EVENT_TEXT, s)
#define CALL(id, name) call_event(API_EVENT_CALL_BEGIN, id, name, NULL, false)
#define ARGS(id, name, s) call_event(API_EVENT_CALL_ARGS, id, name, s, false)
#define CALL_END(id, name, s) call_event(API_EVENT_CALL_END, id, name, s, true)
#define CALL_CUT(id, name, s) call_event(API_EVENT_CALL_END, id, name, s, false)

/* Ids in text (prefix and 24 letters) become "prefix#1", ... */
static inline void mask_ids(const char *text, size_t n, struct strbuf *out)
{
    static const char *const prefixes[] = {"rs_", "msg_", "fc_", "ctc_"};
    char seen[SCRIPT_MAX][32];
    size_t n_seen = 0;
    for (size_t i = 0; i < n;) {
        size_t len = 0, k;
        for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
            size_t prefix = strlen(prefixes[p]), letters = 0;
            if (i == 0 || text[i - 1] != '"' || strncmp(text + i, prefixes[p], prefix) != 0)
                continue;
            while (i + prefix + letters < n && isalnum((unsigned char)text[i + prefix + letters]))
                letters++;
            len = letters == 24 ? prefix + letters : 0;
            if (len)
                break;
        }
        if (!len) {
            strbuf_putc(out, text[i++]);
            continue;
        }
        for (k = 0; k < n_seen && (strlen(seen[k]) != len || memcmp(seen[k], text + i, len) != 0); k++)
            ;
        if (k == n_seen && n_seen < SCRIPT_MAX)
            snprintf(seen[n_seen++], sizeof seen[0], "%.*s", (int)len, text + i);
        strbuf_printf(out, "%.*s#%zu", (int)(len - 24), text + i, k + 1);
        i += len;
    }
}

/* Play s into a new writer; out gets its bytes with masked ids. 0 or the first error. */
static inline int script_play(struct api_writer *w, const struct script *s, const struct api_env *env, const struct api_request *r,
                              struct strbuf *out)
{
    struct api_usage start = {.n_prompt = 30, .n_cached = 20}, end = start;
    end.n_generated = s->end.n_tokens;
    end.n_thinking = s->end.n_thinking_tokens;
    end.prompt_s = 1.25;
    end.generate_s = 2.5;
    if (!w)
        return SKUA_ENOMEM;
    w->env = env;
    w->request = r;
    w->created = 1700000000;
    snprintf(w->request_id, sizeof w->request_id, "req_test");
    snprintf(w->id, sizeof w->id, "%s", r->family == API_RESPONSES ? "resp_test" : "msg_test");
    int rc = w->ops->begin(w, &start);
    for (size_t i = 0; !rc && i < s->n; i++) {
        if (r->stream && i == s->keepalive_at)
            rc = w->ops->keepalive(w);
        if (!rc)
            rc = w->ops->event(w, 0, &s->events[i]);
    }
    if (!rc && r->stream && s->keepalive_at == s->n)
        rc = w->ops->keepalive(w);
    if (!rc && s->fail.status)
        rc = w->ops->fail(w, &s->fail);
    else if (!rc)
        rc = w->ops->choice_end(w, 0, &s->end);
    if (!rc && !s->fail.status)
        rc = w->ops->end(w, &end);
    if (rc && s->recover) {
        struct api_error e;
        fault_set_alloc(0, false);
        api_error_set(&e, 503, "out_of_memory", NULL, "out of memory");
        CHECK(w->ops->fail(w, &e) == 0, "failing after memory ran out");
    }
    mask_ids(strbuf_str(&w->out), w->out.len, out);
    strbuf_free(&w->out);
    w->ops->free(w);
    return rc ? rc : out->failed ? SKUA_ENOMEM : 0;
}

/* ---- reading a stream ---- */

struct sse_event {
    const char *name; /* zero-terminated, in the buffer */
    json_t *data;
};

/* Cut text (changed) into events: "event: NAME\ndata: JSON\n\n" each, comments skipped. The number of them, or -1 when it is anything
   else. */
static inline int sse_read(char *text, struct sse_event *out, int max)
{
    int n = 0;
    while (*text) {
        char *end = strstr(text, "\n\n");
        if (!end)
            return -1;
        *end = '\0';
        if (*text != ':') {
            char *data = strstr(text, "\ndata: ");
            if (n == max || strncmp(text, "event: ", 7) != 0 || !data || strchr(data + 1, '\n'))
                return -1;
            *data = '\0';
            out[n].name = text + 7;
            out[n].data = json_loads(data + 7, 0, NULL);
            const char *type = json_string_value(json_object_get(out[n].data, "type"));
            if (!out[n++].data || !type || strcmp(type, out[n - 1].name) != 0)
                return -1;
        }
        text = end + 2;
    }
    return n;
}

static inline void sse_free(struct sse_event *events, int n)
{
    for (int i = 0; i < n; i++)
        json_decref(events[i].data);
}

/* ---- random answers ---- */

static inline uint64_t script_below(uint64_t *state, uint64_t n) { return rng_next(state) % n; }

static inline const char *script_text(struct script *s, const char *text, size_t n)
{
    struct strbuf *b = &s->texts[s->n_texts++];
    strbuf_append(b, text, n);
    return strbuf_str(b);
}

/* n characters: letters, quotes, line breaks, characters of several bytes, U+2028. */
static inline const char *script_random_text(struct script *s, uint64_t *state, size_t n)
{
    static const char *const pieces[] = {"a", "B", " ", "\"", "\\", "\n", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                         "\xE2\x80\xA8", "\t", "\x01", "</x>", "{"};
    struct strbuf b = {0};
    for (size_t i = 0; i < n; i++)
        strbuf_puts(&b, pieces[script_below(state, sizeof pieces / sizeof *pieces)]);
    const char *text = script_text(s, strbuf_str(&b), b.len);
    strbuf_free(&b);
    return text;
}

static inline void script_free(struct script *s)
{
    for (size_t i = 0; i < s->n_texts; i++)
        strbuf_free(&s->texts[i]);
    *s = (struct script){0};
}

/* Events of one kind with 1 to 3 pieces of text. */
static inline void script_pieces(struct script *s, uint64_t *state, enum api_event_kind kind)
{
    for (uint64_t i = script_below(state, 3) + 1; i > 0; i--)
        s->events[s->n++] = text_event(kind, script_random_text(s, state, script_below(state, 6)));
}

/* A call: its arguments, cut in two places, and perhaps no end. */
static inline void script_call(struct script *s, uint64_t *state, int number, bool custom, bool cut)
{
    static const char *const ids[] = {"call_0", "call_1", "call_2", "call_3", "call_4", "call_5"};
    static const char *const arguments[] = {"{}", "{\"a\":1}", "{\"path\":\"x\\ny\",\"n\":[1,2.5,null]}", "{\"t\":\"\\\"\xE2\x82\xAC\"}"};
    const char *text = custom ? "*** Begin\n\"x\"\n" : arguments[script_below(state, 4)];
    size_t n = strlen(text), a = script_below(state, n + 1), b = a + script_below(state, n - a + 1);
    while (((unsigned char)text[a] & 0xC0) == 0x80)
        a++;
    while (b < a || ((unsigned char)text[b] & 0xC0) == 0x80)
        b++;
    const char *name = custom ? "patch" : "read";
    size_t first = s->n;
    s->events[s->n++] = CALL(ids[number], name);
    s->events[s->n++] = ARGS(ids[number], name, script_text(s, text, a));
    s->events[s->n++] = ARGS(ids[number], name, script_text(s, text + a, b - a));
    if (!cut) {
        s->events[s->n++] = ARGS(ids[number], name, script_text(s, text + b, n - b));
        s->events[s->n++] = CALL_END(ids[number], name, text);
    }
    for (size_t i = first; i < s->n; i++)
        s->events[i].custom = custom;
}

/* An answer as answer.h gives it: thinking, then text and calls in turn, ended in any way. customs: calls may be of custom tools. */
static inline void script_random(struct script *s, uint64_t *state, bool customs)
{
    static const enum api_finish ends[] = {API_FINISH_STOP, API_FINISH_STOP_STRING, API_FINISH_LENGTH, API_FINISH_CONTEXT};
    *s = (struct script){.keepalive_at = SIZE_MAX};
    int calls = 0;
    if (script_below(state, 2)) {
        script_pieces(s, state, API_EVENT_THINKING);
        if (script_below(state, 4))
            s->events[s->n++] = THINK_END();
    }
    for (uint64_t parts = script_below(state, 5); parts > 0; parts--) {
        if (script_below(state, 2))
            script_pieces(s, state, API_EVENT_TEXT);
        else
            script_call(s, state, calls++, customs && script_below(state, 2), parts == 1 && script_below(state, 3) == 0);
    }
    bool open_call = s->n && s->events[s->n - 1].kind == API_EVENT_CALL_ARGS;
    s->end.finish = open_call ? API_FINISH_LENGTH : calls && script_below(state, 2) ? API_FINISH_CALLS : ends[script_below(state, 4)];
    s->end.stop_string = s->end.finish == API_FINISH_STOP_STRING ? "\"END\"" : NULL;
    s->end.n_tokens = (int32_t)script_below(state, 100);
    s->end.n_thinking_tokens = (int32_t)script_below(state, (uint64_t)s->end.n_tokens + 1);
    s->keepalive_at = script_below(state, 3) ? SIZE_MAX : script_below(state, s->n + 1);
    if (script_below(state, 8) == 0)
        api_error_set(&s->fail, 500, "internal_error", NULL, "the device \"0\" stopped");
}

#endif
