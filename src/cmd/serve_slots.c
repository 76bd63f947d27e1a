/* Slots: what they do, saving and restoring them; and orders to the cache. The engine is the batcher's: what needs it is done between two
 * of its steps, and answered from there. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "api/json_text.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/mem.h"
#include "cmd/serve.h"
#include "engine/engine.h"

/* ---- what they do ---- */

/* The call that a slot's job belongs to, and which of its prompts that reads. With calls_lock. */
static struct serve_call *call_of(struct serve *s, uint64_t job, size_t *prompt)
{
    for (struct serve_call *c = s->calls; c && job; c = c->next) {
        bool found = false;
        pthread_mutex_lock(&c->ids_lock);
        for (size_t i = 0; i < c->n_ids; i++)
            if (c->ids[i] == job) {
                found = true;
                *prompt = i;
            }
        pthread_mutex_unlock(&c->ids_lock);
        if (found)
            return c;
    }
    return NULL;
}

/* The text of a prompt, with its control tokens. */
static void put_prompt(struct strbuf *b, const struct api_env *env, const struct api_prompt *p)
{
    struct strbuf text = {0};
    for (int32_t i = 0; i < p->n; i++) {
        size_t n;
        const char *bytes = api_token_bytes(env, p->ids[i], &n);
        strbuf_append(&text, bytes, n);
    }
    strbuf_puts(b, ",\"prompt\":");
    api_json_string(b, strbuf_str(&text), text.len);
    strbuf_free(&text);
}

static void put_slot(struct strbuf *b, struct serve *s, int32_t i, const struct batch_slot *v, double now)
{
    size_t prompt = 0;
    struct serve_call *c = call_of(s, v->job, &prompt);
    const long long used = v->last_used > 0 ? (long long)((double)time(NULL) - (now - v->last_used)) : 0;
    strbuf_printf(b,
                  "%s{\"id\":%d,\"n_ctx\":%d,\"n_tokens\":%d,\"is_processing\":%s,\"phase\":\"%s\",\"prompt_processed\":%d,"
                  "\"prompt_total\":%d,\"cached\":%d,\"generated\":%d,\"speculation\":%s,\"last_used\":%lld,\"request_id\":",
                  i ? "," : "", i, v->n_ctx, v->n_tokens, v->job ? "true" : "false", v->phase, v->prompt_done, v->prompt_total, v->n_cached,
                  v->n_generated, v->drafting ? "true" : "false", used);
    api_json_text(b, c ? http_request_id(c->http) : NULL);
    strbuf_puts(b, ",\"checkpoints\":[");
    for (int32_t k = 0; k < v->n_checkpoints; k++) {
        const struct prefix_checkpoint *p = &v->checkpoints[k];
        strbuf_printf(b, "%s{\"tokens\":%d,\"bytes\":%lld,\"kind\":\"%s\"}", k ? "," : "", p->n_tokens, (long long)p->bytes,
                      p->ram && p->disk ? "ram+disk" : p->ram ? "ram" : "disk");
    }
    strbuf_putc(b, ']');
    if (c && s->opt.slots_debug)
        put_prompt(b, &s->env, &c->request.prompts[prompt]);
    strbuf_putc(b, '}');
}

void serve_slots(struct serve_call *c)
{
    struct serve *s = c->s;
    struct batch_slot slots[SERVE_MAX_SLOTS];
    struct strbuf b = {0};
    const int32_t n = batcher_slots(s->batcher, slots, SERVE_MAX_SLOTS);
    bool idle = false;
    for (int32_t i = 0; i < n; i++)
        idle |= !slots[i].job;
    if (strstr(http_query(c->http), "fail_on_no_slot=1") && !idle) {
        struct api_error e;
        api_error_set(&e, 503, "no_slot", NULL, "all %d slots are busy", n);
        e.retry_after_s = 1;
        serve_fail(c, &e);
        return;
    }
    pthread_mutex_lock(&s->calls_lock);
    strbuf_putc(&b, '[');
    for (int32_t i = 0; i < n; i++)
        put_slot(&b, s, i, &slots[i], clock_seconds());
    strbuf_putc(&b, ']');
    pthread_mutex_unlock(&s->calls_lock);
    serve_reply(c, 200, NULL, &b);
    strbuf_free(&b);
}

/* ---- orders ---- */

struct order {
    struct serve_call *call;
    int32_t slot;
    char *path;               /* of the file; NULL: none */
    char name[256];
    bool ram, disk;
    void (*carry_out)(struct order *o, skua_session **session);
};

static void order_free(struct order *o)
{
    serve_call_unref(o->call);
    mem_free(o->path);
    mem_free(o);
}

static void fail_with(struct serve_call *c, const skua_error *err)
{
    struct api_error e;
    api_error_from(err, &e);
    if (err->code == SKUA_EFORMAT || err->code == SKUA_EIO)
        api_error_set(&e, 400, "invalid_value", "filename", "%s", err->message);
    serve_fail(c, &e);
}

static void on_turn(void *user, bool run, skua_session **session)
{
    struct order *o = user;
    if (run) {
        o->carry_out(o, session);
    } else {
        struct api_error e;
        api_error_set(&e, 503, "shutting_down", NULL, "the server is stopping");
        serve_fail(o->call, &e);
    }
    order_free(o);
}

static struct order *order_new(struct serve_call *c, void (*carry_out)(struct order *o, skua_session **session))
{
    struct order *o = mem_calloc(1, sizeof *o);
    if (!o) {
        skua_error err;
        error_nomem(&err, "order", sizeof *o);
        fail_with(c, &err);
        return NULL;
    }
    o->call = c;
    o->slot = -1;
    o->carry_out = carry_out;
    atomic_fetch_add(&c->refs, 1);
    return o;
}

static void give(struct order *o)
{
    skua_error err;
    if (batcher_call(o->call->s->batcher, o->slot, on_turn, o, &err)) {
        fail_with(o->call, &err);
        order_free(o);
    }
}

static int64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (int64_t)st.st_size;
}

/* The answer of saving and restoring. */
static void say_file(struct order *o, const char *tokens, const char *bytes, int32_t n, const char *more, const char *time, double begin)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "{\"id_slot\":%d,\"filename\":", o->slot);
    api_json_text(&b, o->name);
    strbuf_printf(&b, ",\"%s\":%d,\"%s\":%lld,\"n_checkpoints\":1%s,\"timings\":{\"%s\":", tokens, n, bytes,
                  (long long)file_bytes(o->path), more, time);
    api_json_double(&b, (clock_seconds() - begin) * 1e3);
    strbuf_puts(&b, "}}");
    serve_reply(o->call, 200, NULL, &b);
    strbuf_free(&b);
}

static void save(struct order *o, skua_session **session)
{
    skua_error err;
    const double begin = clock_seconds();
    if (skua_session_save(*session, o->path, &err))
        fail_with(o->call, &err);
    else
        say_file(o, "n_saved", "n_written", skua_session_length(*session), "", "save_ms", begin);
}

static void restore(struct order *o, skua_session **session)
{
    skua_session *loaded;
    skua_error err;
    char usable[48];
    const double begin = clock_seconds();
    if (skua_session_load(o->call->s->engine, o->path, skua_session_ctx(*session), &loaded, &err)) {
        fail_with(o->call, &err);
        return;
    }
    skua_session_free(*session);
    *session = loaded;
    snprintf(usable, sizeof usable, ",\"usable_prefix\":%d", skua_session_length(loaded));
    say_file(o, "n_restored", "n_read", skua_session_length(loaded), usable, "restore_ms", begin);
}

static void erase(struct order *o, skua_session **session)
{
    struct strbuf b = {0};
    strbuf_printf(&b, "{\"id_slot\":%d,\"n_erased\":%d}", o->slot, skua_session_length(*session));
    skua_session_reset(*session);
    serve_reply(o->call, 200, NULL, &b);
    strbuf_free(&b);
}

static void flush(struct order *o, skua_session **session)
{
    struct serve *s = o->call->s;
    struct strbuf b = {0};
    skua_error err;
    (void)session;
    if (s->cache)
        prefix_cache_flush(s->cache);
    if (s->replay_path && replay_save(s->replay, s->replay_path, &err)) {
        struct api_error e; /* the server's folder, which no client has named */
        api_error_set(&e, 503, "cache_not_written", NULL, "%s", err.message);
        serve_fail(o->call, &e);
        return;
    }
    strbuf_printf(&b, "{\"flushed\":%s}", s->cache && s->opt.cache_disk ? "true" : "false");
    serve_reply(o->call, 200, NULL, &b);
    strbuf_free(&b);
}

static void clear(struct order *o, skua_session **session)
{
    struct strbuf b = {0};
    (void)session;
    if (o->call->s->cache)
        prefix_cache_clear(o->call->s->cache, o->ram, o->disk);
    strbuf_puts(&b, "{\"cleared\":true}");
    serve_reply(o->call, 200, NULL, &b);
    strbuf_free(&b);
}

/* ---- requests ---- */

/* The value of action in the query. */
static bool action_is(struct serve_call *c, const char *name)
{
    const size_t n = strlen(name);
    for (const char *q = http_query(c->http); q; q = strchr(q, '&')) {
        q += *q == '&' || *q == '?';
        if (!strncmp(q, "action=", 7) && !strncmp(q + 7, name, n) && (q[7 + n] == '\0' || q[7 + n] == '&'))
            return true;
    }
    return false;
}

static bool has_control(const char *s)
{
    while (*s && (unsigned char)*s >= ' ' && *s != 0x7F)
        s++;
    return *s != '\0';
}

/* A link leads out of the folder, where a client has nothing to read or write. */
static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* The file that the body names, inside the folder of --slot-save-path. 0, or -1 with the call failed. */
static int name_file(struct serve_call *c, struct order *o)
{
    struct api_error e = {0};
    struct strbuf path = {0};
    const char *folder = c->s->opt.slot_save_path;
    json_t *body = serve_body(c);
    if (!body)
        return -1;
    const json_t *value = json_object_get(body, "filename");
    const char *name = json_string_value(value);
    if (!folder)
        api_error_set(&e, 400, "unsupported_parameter", NULL, "the server was started without --slot-save-path");
    else if (!value || json_is_null(value))
        api_error_set(&e, 400, "missing_required_parameter", "filename", "filename is missing; expected a plain name");
    else if (!name)
        api_error_set(&e, 400, "invalid_type", "filename", "filename: expected a string");
    else if (!*name || *name == '.' || strpbrk(name, "/\\") || strstr(name, "..") || strlen(name) >= sizeof o->name
             || strlen(name) != json_string_length(value) || has_control(name))
        api_error_set(&e, 400, "invalid_value", "filename",
                      "filename is \"%.80s\"; expected a plain name: no separators, no \"..\", no dot at its beginning, "
                      "no control characters", name);
    if (!e.status) {
        snprintf(o->name, sizeof o->name, "%s", name);
        strbuf_printf(&path, "%s/%s", folder, name);
        o->path = strbuf_take(&path, NULL);
        if (!o->path)
            api_error_set(&e, 503, "out_of_memory", NULL, "out of memory for a file name");
        else if (is_link(o->path))
            api_error_set(&e, 400, "invalid_value", "filename", "filename is \"%.80s\", a link; expected the name of a plain file",
                          name);
    }
    json_decref(body);
    if (e.status)
        serve_fail(c, &e);
    return e.status ? -1 : 0;
}

void serve_slot_action(struct serve_call *c)
{
    struct api_error e;
    const size_t n_digits = strspn(c->tail, "0123456789");
    void (*carry_out)(struct order *o, skua_session **session) = action_is(c, "save")      ? save
                                                                 : action_is(c, "restore") ? restore
                                                                 : action_is(c, "erase")   ? erase
                                                                                           : NULL;
    if (!n_digits || n_digits > 4 || c->tail[n_digits] || atoi(c->tail) >= c->s->n_parallel) {
        api_error_set(&e, 404, "not_found", NULL, "slot '%.40s' does not exist; expected 0 to %d", c->tail, c->s->n_parallel - 1);
        serve_fail(c, &e);
        return;
    }
    if (!carry_out) {
        api_error_set(&e, 400, "invalid_value", "action", "expected ?action=save, restore or erase");
        serve_fail(c, &e);
        return;
    }
    struct order *o = order_new(c, carry_out);
    if (!o)
        return;
    o->slot = atoi(c->tail);
    if (carry_out != erase && name_file(c, o)) {
        order_free(o);
        return;
    }
    give(o);
}

void serve_cache_flush(struct serve_call *c)
{
    struct order *o = order_new(c, flush);
    if (o)
        give(o);
}

void serve_cache_clear(struct serve_call *c)
{
    struct api_error e = {0};
    size_t n;
    const char *bytes = http_body(c->http, &n), *tier = NULL;
    json_t *body = NULL;
    if (n && bytes && !(body = serve_body(c)))
        return;
    const json_t *value = json_object_get(body, "tier");
    tier = json_string_value(value);
    if (value && !json_is_null(value) && (!tier || (strcmp(tier, "ram") && strcmp(tier, "disk") && strcmp(tier, "all"))))
        api_error_set(&e, 400, "invalid_value", "tier", "tier: expected \"ram\", \"disk\" or \"all\"");
    struct order *o = e.status ? NULL : order_new(c, clear);
    if (o) {
        o->ram = !tier || strcmp(tier, "disk");
        o->disk = !tier || strcmp(tier, "ram");
        give(o);
    } else if (e.status) {
        serve_fail(c, &e);
    }
    json_decref(body);
}
