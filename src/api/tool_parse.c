/* The automaton over a model's output; see tool_parse.h.
 *
 * All bytes that are not decided lie in p->in from base on; at is the next to read. A candidate is a chain of tags with white space between
 * them (<tool_call> <function=f>, </parameter> </function>). When it turns out to be none, its first byte is data, and reading goes on
 * behind that byte: a tag has no second '<', so that every byte is read again a few times at most. */
#include "api/tool_parse.h"

#include <string.h>

#include "api/json_text.h"
#include "base/utf8.h"

enum {
    TAG_THINK = 1,
    TAG_END_THINK = 2,
    TAG_CALL = 4,
    TAG_END_CALL = 8,
    TAG_END_FUNCTION = 16,
    TAG_END_PARAMETER = 32,
    TAG_PARAMETER = 64,  /* its beginning, up to the = */
    TAG_FUNCTION = 128,  /* of an offered tool */
    TAG_KEY = 256,       /* <parameter=KEY> that the tool declares */
    TAG_ANY_KEY = 512    /* <parameter=KEY> */
};

static const struct { unsigned tag; const char *text; } fixed_tags[] = {
    {TAG_THINK, "<think>"},          {TAG_END_THINK, "</think>"},          {TAG_CALL, "<tool_call>"},      {TAG_END_CALL, "</tool_call>"},
    {TAG_END_FUNCTION, "</function>"}, {TAG_END_PARAMETER, "</parameter>"}, {TAG_PARAMETER, "<parameter="},
};
static const char function_tag[] = "<function=", parameter_tag[] = "<parameter=";

/* What the first tags of a candidate were. */
enum { CHAIN_FIRST, CHAIN_CALL, CHAIN_END_PARAMETER, CHAIN_END_PARAMETER_CALL, CHAIN_END_FUNCTION };

enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE };

static bool is_break(char c) { return c == '\n' || c == '\r'; }
static bool is_space(char c) { return is_break(c) || c == ' ' || c == '\t'; }

void tool_parse_init(struct tool_parser *p, const struct tool_set *tools, enum parse_begin begin, parse_sink *sink, void *user)
{
    static const enum parse_state states[] = {PARSE_START, PARSE_THINKING, PARSE_TEXT};
    *p = (struct tool_parser){.tools = tools, .sink = sink, .user = user, .state = states[begin],
                              .leading = begin == PARSE_BEGIN_THINKING, .line_start = true};
}

void tool_parse_free(struct tool_parser *p)
{
    struct strbuf *all[] = {&p->in, &p->key_name, &p->value, &p->args, &p->raw, &p->stray, &p->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        strbuf_free(all[i]);
}

bool tool_parse_in_opener(const struct tool_parser *p)
{
    return (p->state == PARSE_TEXT || p->state == PARSE_THINKING) && p->chain == CHAIN_CALL;
}

uint64_t tool_parse_decided(const struct tool_parser *p) { return p->in_source + p->base; }

/* ---- what goes out ---- */

/* Nothing goes out of a buffer that lacks something. */
static int check(struct tool_parser *p)
{
    const struct strbuf *all[] = {&p->in, &p->key_name, &p->value, &p->args, &p->raw, &p->stray, &p->out};
    for (size_t i = 0; i < sizeof all / sizeof *all && !p->rc; i++)
        if (strbuf_failed(all[i]))
            p->rc = SKUA_ENOMEM;
    return p->rc;
}

static void send(struct tool_parser *p, const struct parse_event *e)
{
    if (!check(p))
        p->rc = p->sink(p->user, e);
}

int tool_parse_flush(struct tool_parser *p)
{
    if (p->out.len)
        send(p, &(struct parse_event){.kind = p->out_kind, .text = p->out.data, .n = p->out.len, .source = p->out_source,
                                      .n_source = p->out_n_source, .def = p->def, .call = p->n_calls - 1});
    p->out.len = 0;
    return p->rc;
}

/* Out that will be of this kind. */
static struct strbuf *out_of(struct tool_parser *p, enum api_event_kind kind, uint64_t source, size_t n_source)
{
    if (p->out.len && (p->out_kind != kind || p->out_source + p->out_n_source != source))
        tool_parse_flush(p);
    if (!p->out.len) {
        p->out_kind = kind;
        p->out_source = source;
        p->out_n_source = 0;
    }
    p->out_n_source += n_source;
    return &p->out;
}

static void put_text(struct strbuf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len)
            strbuf_append(out, s + i, (size_t)len);
        else
            strbuf_puts(out, "\xEF\xBF\xBD");
        i += len ? (size_t)len : 1;
    }
}

/* What args got from its byte `from` on also goes out. */
static void send_args(struct tool_parser *p, size_t from)
{
    if (!strbuf_failed(&p->args) && p->args.len > from)
        strbuf_append(out_of(p, API_EVENT_CALL_ARGS, 0, 0), p->args.data + from, p->args.len - from);
}

/* ---- values ---- */

static unsigned value_types(const struct tool_parser *p) { return p->key ? p->key->types : TOOL_STRING; }

static void put_key(struct tool_parser *p)
{
    strbuf_putc(&p->args, p->n_params ? ',' : '{');
    api_json_string(&p->args, strbuf_str(&p->key_name), p->key_name.len);
    strbuf_putc(&p->args, ':');
}

static void open_string(struct tool_parser *p)
{
    put_key(p);
    strbuf_putc(&p->args, '"');
    p->opened = true;
}

static void value_data(struct tool_parser *p, const char *s, size_t n)
{
    size_t from = p->args.len;
    unsigned types = value_types(p);
    if (p->def->custom) { /* its only parameter is the input */
        if (!p->n_params)
            put_text(&p->args, s, n);
    } else if (p->opened) {
        api_json_chars(&p->args, s, n);
    } else {
        strbuf_append(&p->value, s, n);
        bool undecided = (types & TOOL_NULL) && p->value.len <= 4 && memcmp(strbuf_str(&p->value), "null", p->value.len) == 0;
        if ((types & TOOL_STRING) && !undecided && !strbuf_failed(&p->value)) {
            open_string(p);
            api_json_chars(&p->args, p->value.data, p->value.len);
        }
    }
    send_args(p, from);
}

static void end_value(struct tool_parser *p)
{
    size_t from = p->args.len;
    if (!p->def->custom) {
        if (p->opened) {
            strbuf_putc(&p->args, '"');
        } else {
            put_key(p);
            tool_value_json(value_types(p), strbuf_str(&p->value), p->value.len, &p->args);
        }
        send_args(p, from);
    }
    p->opened = false;
    p->n_params++;
    p->state = PARSE_BETWEEN;
}

/* ---- calls ---- */

/* The bytes before `to` are decided; those of a call are remembered as they are. */
static void take(struct tool_parser *p, size_t to)
{
    if (p->def)
        strbuf_append(&p->raw, p->in.data + p->base, to - p->base);
    p->base = to;
}

static void end_thinking(struct tool_parser *p)
{
    tool_parse_flush(p);
    if (p->thought)
        send(p, &(struct parse_event){.kind = API_EVENT_THINKING_END});
    p->thought = false;
    p->state = PARSE_TEXT;
}

static void begin_call(struct tool_parser *p, const struct tool_def *def)
{
    if (p->state == PARSE_THINKING)
        end_thinking(p);
    tool_parse_flush(p);
    p->args.len = p->raw.len = p->stray.len = 0;
    p->base += p->line_breaks;
    p->def = def;
    p->n_params = 0;
    p->opened = p->line_start = false;
    p->state = PARSE_BETWEEN;
    take(p, p->at);
    send(p, &(struct parse_event){.kind = API_EVENT_CALL_BEGIN, .def = def, .call = p->n_calls++});
}

static void end_call(struct tool_parser *p, bool complete)
{
    size_t from = p->args.len, n_stray = p->stray.len;
    if (!p->def->custom) {
        if (p->opened)
            strbuf_putc(&p->args, '"');
        strbuf_puts(&p->args, p->n_params || p->opened ? "}" : "{}");
        if (complete)
            send_args(p, from);
    }
    tool_parse_flush(p);
    send(p, &(struct parse_event){.kind = API_EVENT_CALL_END, .text = strbuf_str(&p->args), .n = p->args.len, .def = p->def,
                                  .call = p->n_calls - 1, .raw = n_stray ? NULL : strbuf_str(&p->raw), .n_raw = n_stray ? 0 : p->raw.len,
                                  .complete = complete});
    while (n_stray && is_space(p->stray.data[n_stray - 1]))
        n_stray--;
    p->def = NULL;
    if (n_stray) {
        put_text(out_of(p, API_EVENT_TEXT, 0, 0), p->stray.data, n_stray);
        tool_parse_flush(p);
    }
    p->n_ended++;
    p->opened = false;
    p->state = PARSE_TEXT;
    p->leading = true;
    p->line_start = false;
}

/* ---- tags ---- */

static unsigned tags_here(const struct tool_parser *p)
{
    unsigned function = p->tag_on_line ? TAG_FUNCTION : 0;
    if (p->chain == CHAIN_CALL || p->chain == CHAIN_END_PARAMETER_CALL)
        return TAG_FUNCTION;
    if (p->chain == CHAIN_END_PARAMETER)
        return TAG_PARAMETER | TAG_END_FUNCTION | TAG_END_CALL | TAG_END_PARAMETER | TAG_CALL | function;
    if (p->chain == CHAIN_END_FUNCTION)
        return TAG_END_CALL;
    switch (p->state) {
    case PARSE_START: return TAG_THINK;
    case PARSE_THINKING: return TAG_END_THINK | (p->tools->n && p->tag_on_line ? TAG_CALL | function : 0);
    case PARSE_TEXT: return p->tools->n ? TAG_CALL | function : 0;
    case PARSE_BETWEEN: return TAG_ANY_KEY | TAG_END_FUNCTION | TAG_END_CALL | TAG_END_PARAMETER | TAG_CALL | function;
    case PARSE_VALUE: return TAG_END_PARAMETER | TAG_END_FUNCTION | (p->tag_on_line ? TAG_KEY : 0);
    default: return TAG_END_CALL;
    }
}

/* s against the tag that begins so and goes on with name and >. */
static enum match match_named(const char *s, size_t n, const char *tag, const char *name, size_t n_name)
{
    size_t n_tag = strlen(tag);
    if (n <= n_tag || memcmp(s, tag, n_tag) != 0)
        return memcmp(s, tag, n < n_tag ? n : n_tag) == 0 ? MATCH_PART : MATCH_NONE;
    s += n_tag;
    n -= n_tag;
    if (n <= n_name)
        return memcmp(s, name, n) == 0 ? MATCH_PART : MATCH_NONE;
    return n == n_name + 1 && s[n_name] == '>' && memcmp(s, name, n_name) == 0 ? MATCH_WHOLE : MATCH_NONE;
}

static enum match match_any_key(const char *s, size_t n)
{
    size_t n_tag = sizeof parameter_tag - 1;
    if (memcmp(s, parameter_tag, n < n_tag ? n : n_tag) != 0)
        return MATCH_NONE;
    if (n <= n_tag)
        return MATCH_PART;
    unsigned char c = (unsigned char)s[n - 1];
    return c == '>' ? MATCH_WHOLE : c == '<' || c < ' ' ? MATCH_NONE : MATCH_PART; /* control characters are in no sensible key */
}

/* The tag that is being read, after one more byte: *tag and, of a function, *def are set when it is whole. */
static enum match match_tag(const struct tool_parser *p, unsigned *tag, const struct tool_def **def)
{
    const char *s = p->in.data + p->tag_at;
    size_t n = p->at - p->tag_at;
    unsigned set = tags_here(p);
    enum match best = MATCH_NONE;
    for (size_t i = 0; i < sizeof fixed_tags / sizeof *fixed_tags && best != MATCH_WHOLE; i++) {
        size_t len = strlen(fixed_tags[i].text);
        if (!(set & fixed_tags[i].tag) || n > len || memcmp(s, fixed_tags[i].text, n) != 0)
            continue;
        best = n == len ? MATCH_WHOLE : MATCH_PART;
        *tag = fixed_tags[i].tag;
    }
    for (size_t i = 0; (set & TAG_FUNCTION) && i < p->tools->n && best != MATCH_WHOLE; i++) {
        enum match m = match_named(s, n, function_tag, p->tools->defs[i].name, p->tools->defs[i].n);
        *def = &p->tools->defs[i];
        *tag = TAG_FUNCTION;
        best = m > best ? m : best;
    }
    for (size_t i = 0; (set & TAG_KEY) && i < p->def->n_keys && best != MATCH_WHOLE; i++) {
        enum match m = match_named(s, n, parameter_tag, p->def->keys[i].name, p->def->keys[i].n);
        *tag = TAG_KEY;
        best = m > best ? m : best;
    }
    if ((set & TAG_ANY_KEY) && best != MATCH_WHOLE) {
        enum match m = match_any_key(s, n);
        *tag = TAG_ANY_KEY;
        best = m > best ? m : best;
    }
    return best;
}

/* in[base, to) is what it is where it stands: thinking, text, a value. */
static void data(struct tool_parser *p, size_t to)
{
    size_t from = p->base, n = to - from;
    if (!n)
        return;
    const char *s = p->in.data + from;
    if (p->state == PARSE_VALUE) {
        value_data(p, s, n);
    } else if (p->state == PARSE_THINKING) {
        put_text(out_of(p, API_EVENT_THINKING, p->in_source + from, n), s, n);
        p->thought = true;
    } else {
        put_text(out_of(p, API_EVENT_TEXT, p->in_source + from, n), s, n);
    }
    take(p, to);
    p->line_breaks = 0;
    p->leading = false;
    p->line_start = false;
}

static void leave_candidate(struct tool_parser *p)
{
    p->in_tag = p->in_space = false;
    p->chain = CHAIN_FIRST;
}

/* The candidate at base is none. */
static void reject(struct tool_parser *p)
{
    p->n_refused += p->state == PARSE_TEXT && p->chain == CHAIN_CALL;
    leave_candidate(p);
    if (p->state == PARSE_START) {
        p->state = PARSE_TEXT;
        p->at = p->base;
        p->line_start = true;
    } else if (p->state == PARSE_BETWEEN) {
        strbuf_putc(&p->stray, '<');
        take(p, p->base + 1);
        p->at = p->base;
        p->line_start = false;
    } else if (p->state == PARSE_AFTER) {
        end_call(p, true);
        p->at = p->base;
    } else {
        data(p, p->base + p->line_breaks + 1);
        p->at = p->base;
    }
}

/* The candidate goes on: white space and one of the tags that may follow. */
static void follow(struct tool_parser *p, int chain)
{
    if (p->chain == CHAIN_FIRST)
        p->cut_at = p->at;
    p->chain = chain;
    p->in_space = true;
}

/* The value ends before byte `end`, and what is from there to `next` is of no more use; reading goes on there. */
static void cut_value(struct tool_parser *p, size_t end, size_t next)
{
    leave_candidate(p);
    p->base = end; /* the break before the tag is nobody's, but is part of the call as it was written */
    strbuf_append(&p->raw, p->in.data + end - p->line_breaks, p->line_breaks);
    end_value(p);
    take(p, next);
    p->at = next;
    p->line_breaks = 0;
    p->line_start = p->at > 0 && p->at == end && is_break(p->in.data[end - 1]);
}

static void begin_value(struct tool_parser *p)
{
    size_t n_tag = sizeof parameter_tag - 1;
    leave_candidate(p);
    p->key_name.len = p->value.len = 0;
    strbuf_append(&p->key_name, p->in.data + p->tag_at + n_tag, p->at - p->tag_at - n_tag - 1);
    p->key = tool_find_key(p->def, strbuf_str(&p->key_name), p->key_name.len);
    p->value_begun = p->opened = false;
    p->line_breaks = 0;
    p->line_start = false;
    take(p, p->at);
    p->state = PARSE_VALUE;
}

static void tag_in_value(struct tool_parser *p, unsigned tag)
{
    size_t first = p->base + p->line_breaks;
    if (p->chain == CHAIN_FIRST && tag != TAG_KEY)
        follow(p, tag == TAG_END_PARAMETER ? CHAIN_END_PARAMETER : CHAIN_END_FUNCTION);
    else if (p->chain == CHAIN_END_PARAMETER && tag == TAG_CALL)
        follow(p, CHAIN_END_PARAMETER_CALL);
    else if (p->chain == CHAIN_END_PARAMETER || p->chain == CHAIN_END_PARAMETER_CALL)
        cut_value(p, first, p->cut_at);
    else
        cut_value(p, first, first);
}

static void tag_between(struct tool_parser *p, unsigned tag, const struct tool_def *def)
{
    if (tag == TAG_CALL) {
        follow(p, CHAIN_CALL);
        return;
    }
    if (tag == TAG_ANY_KEY) {
        begin_value(p);
        return;
    }
    leave_candidate(p);
    if (tag == TAG_FUNCTION) {
        end_call(p, true);
        begin_call(p, def);
        return;
    }
    take(p, p->at);
    if (tag == TAG_END_CALL)
        end_call(p, true);
    else if (tag == TAG_END_FUNCTION)
        p->state = PARSE_AFTER;
    p->line_start = false;
}

/* A tag is whole. */
static void on_tag(struct tool_parser *p, unsigned tag, const struct tool_def *def)
{
    p->in_tag = false;
    if (p->state == PARSE_VALUE) {
        tag_in_value(p, tag);
    } else if (p->state == PARSE_BETWEEN) {
        tag_between(p, tag, def);
    } else if (tag == TAG_CALL) {
        follow(p, CHAIN_CALL);
    } else {
        leave_candidate(p);
        if (tag == TAG_FUNCTION) {
            begin_call(p, def);
        } else if (tag == TAG_END_CALL) {
            take(p, p->at);
            end_call(p, true);
        } else { /* <think>, </think> */
            p->base = p->at;
            if (tag == TAG_THINK)
                p->state = PARSE_THINKING;
            else
                end_thinking(p);
            p->leading = p->line_start = true;
        }
        p->line_breaks = 0;
    }
}

/* ---- bytes ---- */

static void tag_byte(struct tool_parser *p)
{
    unsigned tag = 0;
    const struct tool_def *def = NULL;
    enum match m = match_tag(p, &tag, &def);
    if (m == MATCH_NONE)
        reject(p);
    else if (m == MATCH_WHOLE)
        on_tag(p, tag, def);
}

static void begin_tag(struct tool_parser *p)
{
    p->tag_at = p->at - 1;
    p->tag_on_line = p->line_start;
    p->in_tag = true;
    p->in_space = false;
    tag_byte(p);
}

static void space_byte(struct tool_parser *p, char c)
{
    if (c == '<')
        begin_tag(p);
    else if (!is_space(c))
        reject(p);
    else
        p->line_start = is_break(c);
}

/* To the next byte that is not simply data. */
static void run(struct tool_parser *p, size_t limit)
{
    const char *s = p->in.data;
    while (p->at < limit && s[p->at] != '<' && !is_break(s[p->at]))
        p->at++;
    data(p, p->at);
}

static void value_byte(struct tool_parser *p, char c, size_t limit)
{
    bool after_return = p->line_breaks == 1 && p->in.data[p->base] == '\r';
    if (!p->value_begun) { /* the break behind the opening tag */
        if (c == '\r' && p->at - p->base == 1)
            return;
        p->value_begun = true;
        if (c == '\n') {
            take(p, p->at);
            p->line_start = true;
        } else {
            p->at = p->base;
        }
    } else if (c == '\n' && after_return) {
        p->line_breaks = 2;
        p->line_start = true;
    } else if (is_break(c)) {
        data(p, p->at - 1);
        p->line_breaks = 1;
        p->line_start = c == '\n';
    } else if (c == '<') {
        if (after_return)
            data(p, p->at - 1);
        begin_tag(p);
    } else {
        run(p, limit);
    }
}

/* Of thinking and text. Breaks that a tag may follow wait. */
static void text_byte(struct tool_parser *p, char c, size_t limit)
{
    if (is_break(c) && p->leading) {
        take(p, p->at);
        p->line_start = true;
    } else if (is_break(c) && (p->tools->n || p->state == PARSE_THINKING)) {
        p->line_breaks++;
        p->line_start = true;
    } else if (c == '<') {
        begin_tag(p);
    } else {
        run(p, limit);
    }
}

static void between_byte(struct tool_parser *p, char c)
{
    if (c == '<') {
        begin_tag(p);
        return;
    }
    if (p->stray.len || !is_space(c))
        strbuf_putc(&p->stray, c);
    p->line_start = is_break(c);
    take(p, p->at);
}

static void step(struct tool_parser *p, size_t limit)
{
    char c = p->in.data[p->at++];
    if (p->in_tag)
        tag_byte(p);
    else if (p->in_space)
        space_byte(p, c);
    else if (p->state == PARSE_VALUE)
        value_byte(p, c, limit);
    else if (p->state == PARSE_BETWEEN)
        between_byte(p, c);
    else if (p->state == PARSE_START || p->state == PARSE_AFTER)
        space_byte(p, c);
    else
        text_byte(p, c, limit);
}

static int read_all(struct tool_parser *p, size_t limit)
{
    while (p->at < limit && !p->rc)
        step(p, limit);
    return check(p);
}

/* Decided bytes make room once there are more of them than others, so that moving costs no more than reading. */
static void drop_decided(struct tool_parser *p)
{
    size_t n = p->base;
    if (!n || n < p->in.len - n)
        return;
    memmove(p->in.data, p->in.data + n, p->in.len - n + 1);
    p->in.len -= n;
    p->in_source += n;
    p->at -= n;
    p->base = 0;
    p->tag_at -= p->tag_at < n ? p->tag_at : n;
    p->cut_at -= p->cut_at < n ? p->cut_at : n;
}

int tool_parse_push(struct tool_parser *p, const char *bytes, size_t n)
{
    if (p->rc)
        return p->rc;
    if (!n)
        return 0;
    strbuf_append(&p->in, bytes, n);
    if (check(p))
        return p->rc;
    read_all(p, p->at + utf8_complete_prefix(p->in.data + p->at, p->in.len - p->at));
    drop_decided(p);
    return p->rc;
}

/* ---- the end ---- */

static void finish_value(struct tool_parser *p, bool cut)
{
    size_t first = p->base + p->line_breaks;
    if (p->chain == CHAIN_END_PARAMETER || p->chain == CHAIN_END_PARAMETER_CALL) {
        cut_value(p, first, p->in.len);
    } else if (p->chain == CHAIN_END_FUNCTION) {
        cut_value(p, first, p->in.len);
        p->state = PARSE_AFTER;
    } else if (!cut) {
        bool is_data = p->in_tag || (p->base < p->in.len && p->in.data[p->in.len - 1] == '\r');
        if (is_data)
            data(p, p->in.len);
        cut_value(p, p->in.len, p->in.len);
    }
}

static void finish_text(struct tool_parser *p)
{
    bool thinking = p->state == PARSE_THINKING;
    p->n_refused += p->state == PARSE_TEXT && p->chain == CHAIN_CALL;
    if (p->in.len > p->base && (!thinking || p->in_tag || p->in_space))
        data(p, p->in.len);
    leave_candidate(p);
    if (thinking)
        end_thinking(p);
}

int tool_parse_finish(struct tool_parser *p, bool cut)
{
    if (read_all(p, p->in.len))
        return p->rc;
    if (p->state == PARSE_VALUE)
        finish_value(p, cut);
    else if (p->state == PARSE_BETWEEN && !cut && p->in.len > p->base)
        strbuf_append(&p->stray, p->in.data + p->base, p->in.len - p->base);
    if (p->def) {
        leave_candidate(p);
        end_call(p, !cut || p->state == PARSE_AFTER);
    } else {
        finish_text(p);
    }
    tool_parse_flush(p);
    return check(p);
}
