/* The report as one JSON object. Keys are stable: later versions only add to them. What is unknown is null. */
#include <string.h>

#include "cmd/inspect_report.h"
#include "cmd/inspect_value.h"

/* Appending with one sticky failure: a NULL value (out of memory) makes *failed true. */
struct maker {
    const struct inspect_report *r;
    bool failed;
};

static void put(struct maker *m, json_t *o, const char *key, json_t *value)
{
    m->failed |= json_object_set_new(o, key, value) != 0;
}

static void put_int(struct maker *m, json_t *o, const char *key, uint64_t v)
{
    put(m, o, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static void append(struct maker *m, json_t *list, json_t *value) { m->failed |= json_array_append_new(list, value) != 0; }

static json_t *string_or_null(struct gguf_string s) { return s.len ? value_json_string(s.data, s.len) : json_null(); }

static json_t *escaped(const char *s) { return value_json_string(s, strlen(s)); }

/* ---- container and shape ---- */

static json_t *make_container(struct maker *m)
{
    const struct gguf *g = m->r->g;
    json_t *o = json_object(), *shards = json_array();
    for (uint32_t i = 0; i < gguf_shard_count(g); i++) {
        size_t size;
        json_t *s = json_object();
        gguf_shard_data(g, i, &size);
        put(m, s, "file", escaped(gguf_shard_path(g, i)));
        put_int(m, s, "bytes", size);
        append(m, shards, s);
    }
    put_int(m, o, "version", gguf_version(g));
    put_int(m, o, "alignment", gguf_alignment(g, 0));
    put_int(m, o, "keys", gguf_key_count(g));
    put_int(m, o, "tensors", gguf_tensor_count(g));
    put_int(m, o, "bytes", m->r->file_bytes);
    put(m, o, "shards", shards);
    return o;
}

static json_t *make_layers(struct maker *m, const struct model_config *c, bool recurrent)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n_layer; i++)
        if (c->recurrent[i] == recurrent)
            append(m, list, json_integer(i));
    return list;
}

static json_t *make_ffn(struct maker *m, const struct model_config *c)
{
    json_t *o = json_object();
    put(m, o, "kind", json_string(c->moe ? "moe" : "dense"));
    if (!c->moe) {
        put_int(m, o, "width", (uint64_t)c->n_ff);
        return o;
    }
    put_int(m, o, "experts", (uint64_t)c->n_expert);
    put_int(m, o, "experts_used", (uint64_t)c->n_expert_used);
    put_int(m, o, "width", (uint64_t)c->n_ff_expert);
    put_int(m, o, "shared_width", (uint64_t)c->n_ff_shared);
    return o;
}

static json_t *make_trunk(struct maker *m)
{
    const struct model_config *c = m->r->config;
    if (!c)
        return json_null();
    json_t *o = json_object(), *gdn = json_object(), *attn = json_object();
    put_int(m, o, "layers", (uint64_t)c->n_layer);
    put_int(m, o, "width", (uint64_t)c->n_embd);
    put_int(m, o, "vocabulary", (uint64_t)c->n_vocab);
    put_int(m, o, "context_length", (uint64_t)c->n_ctx_train);
    put(m, o, "tied_output", json_boolean(!gguf_find_tensor(m->r->g, "output.weight")));
    put(m, gdn, "layers", make_layers(m, c, true));
    put_int(m, gdn, "key_heads", (uint64_t)c->n_k_head);
    put_int(m, gdn, "value_heads", (uint64_t)c->n_v_head);
    put_int(m, gdn, "head_size", (uint64_t)c->d_state);
    put_int(m, gdn, "conv_kernel", (uint64_t)c->conv_kernel);
    put(m, o, "gated_deltanet", gdn);
    put(m, attn, "layers", make_layers(m, c, false));
    put_int(m, attn, "heads", (uint64_t)c->n_head);
    put_int(m, attn, "kv_heads", (uint64_t)c->n_head_kv);
    put_int(m, attn, "head_size", (uint64_t)c->head_dim);
    put_int(m, attn, "rope_dimensions", (uint64_t)c->n_rot);
    put(m, attn, "rope_base", json_real(c->rope_base));
    put(m, attn, "rope_scale", json_real(c->rope_scale));
    put(m, o, "full_attention", attn);
    put(m, o, "feed_forward", make_ffn(m, c));
    return o;
}

static json_t *make_mtp(struct maker *m)
{
    static const char *const states[] = {"none", "missing", "present"};
    json_t *o = json_object();
    put(m, o, "state", json_string(states[m->r->mtp]));
    put(m, o, "block", m->r->mtp == INSPECT_MTP_NONE ? json_null() : json_integer(m->r->n_layer));
    return o;
}

/* ---- tensors ---- */

static void put_sum(struct maker *m, json_t *o, const struct inspect_sum *s)
{
    put_int(m, o, "tensors", s->n_tensors);
    put_int(m, o, "elements", s->elements);
    put_int(m, o, "bytes", s->bytes);
    put(m, o, "bits_per_weight", json_real(inspect_bits(s)));
}

static json_t *make_role(struct maker *m, const struct inspect_role *role)
{
    static const char *const status[] = {"ok", "unsupported", "unused", NULL};
    const struct inspect_tensors *ts = &m->r->tensors;
    json_t *o = json_object(), *types = json_object();
    put(m, o, "part", json_string(inspect_part_name(role->part)));
    put(m, o, "role", value_json_string(role->name.data, role->name.len));
    put_sum(m, o, &role->sum);
    for (size_t k = role->run_begin; k < role->run_begin + role->n_runs; k++)
        put_int(m, types, qtype_info(ts->runs[k].type)->name, ts->runs[k].sum.n_tensors);
    put(m, o, "types", types);
    put(m, o, "status", status[role->status] ? json_string(status[role->status]) : json_null());
    return o;
}

static void put_tensors(struct maker *m, json_t *o)
{
    const struct inspect_tensors *ts = &m->r->tensors;
    json_t *list = json_array(), *totals = json_object();
    for (size_t i = 0; i < ts->n_roles; i++)
        append(m, list, make_role(m, &ts->roles[i]));
    put(m, o, "tensors", list);
    for (int part = 0; part <= INSPECT_PARTS; part++) {
        json_t *sum = json_object();
        put_sum(m, sum, part < INSPECT_PARTS ? &ts->part[part] : &ts->all);
        put(m, totals, part < INSPECT_PARTS ? inspect_part_name((enum inspect_part)part) : "all", sum);
    }
    put(m, o, "totals", totals);
}

/* ---- tokenizer, memory, metadata ---- */

static json_t *id_or_null(int32_t id) { return id < 0 ? json_null() : json_integer(id); }

static json_t *make_end_tokens(struct maker *m, const struct tokenizer *t)
{
    json_t *list = json_array();
    for (uint32_t id = 0; id < tokenizer_size(t); id++) {
        if (!tokenizer_is_eog(t, id))
            continue;
        size_t n;
        const char *s = tokenizer_piece(t, id, true, &n);
        json_t *o = json_object();
        put_int(m, o, "id", id);
        put(m, o, "text", value_json_string(s, n));
        append(m, list, o);
    }
    return list;
}

static json_t *make_tokenizer(struct maker *m)
{
    const struct tokenizer *t = m->r->tokenizer;
    const struct gguf *g = m->r->g;
    struct gguf_array tokens = {0}, merges = {0};
    struct inspect_template chat = inspect_chat_template(g);
    json_t *o = json_object(), *template = json_object();
    gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_STRINGS, &tokens, NULL);
    gguf_get_array(g, "tokenizer.ggml.merges", GGUF_STRINGS, &merges, NULL);
    put(m, o, "model", string_or_null(inspect_string(g, "tokenizer.ggml.model")));
    put(m, o, "pre", string_or_null(inspect_string(g, "tokenizer.ggml.pre")));
    put_int(m, o, "tokens", tokens.count);
    put_int(m, o, "merges", merges.count);
    put(m, o, "bos", t ? id_or_null(tokenizer_bos(t)) : json_null());
    put(m, o, "eos", t ? id_or_null(tokenizer_eos(t)) : json_null());
    put(m, o, "eot", t ? id_or_null(tokenizer_eot(t)) : json_null());
    put(m, o, "padding", t ? id_or_null(tokenizer_pad(t)) : json_null());
    put(m, o, "end_tokens", t ? make_end_tokens(m, t) : json_null());
    put(m, o, "adds_bos", t ? json_boolean(tokenizer_adds_bos(t)) : json_null());
    put(m, template, "present", json_boolean(chat.present));
    put_int(m, template, "bytes", chat.bytes);
    put(m, template, "enable_thinking", json_boolean(chat.enable_thinking));
    put(m, template, "reasoning_effort", json_boolean(chat.reasoning_effort));
    put(m, template, "preserve_thinking", json_boolean(chat.preserve_thinking));
    put(m, o, "chat_template", template);
    return o;
}

static json_t *make_memory(struct maker *m)
{
    const struct inspect_memory *mem = &m->r->memory;
    if (!m->r->engine)
        return json_null();
    json_t *o = json_object();
    put_int(m, o, "ctx", (uint64_t)mem->n_ctx);
    put(m, o, "kv_type", json_string(qtype_info(m->r->engine->kv_type)->name));
    put_int(m, o, "file_bytes", mem->file);
    put_int(m, o, "workspace_bytes", mem->workspace);
    put_int(m, o, "vector_bytes", mem->vectors);
    put_int(m, o, "state_bytes", mem->state);
    put_int(m, o, "kv_bytes", mem->kv);
    put_int(m, o, "kv_pages", (uint64_t)mem->n_pages);
    put_int(m, o, "kv_page_bytes", mem->kv_page);
    put_int(m, o, "kv_page_rows", KV_PAGE_ROWS);
    put_int(m, o, "held_row_bytes", mem->held_row);
    put_int(m, o, "session_bytes", mem->session);
    put_int(m, o, "total_bytes", mem->total);
    return o;
}

/* A key as a member name: unlike a value it must stay distinct, so that malformed bytes are escaped, not replaced. */
static void put_metadata_value(struct maker *m, json_t *o, const struct gguf_value *v)
{
    struct strbuf name = {0};
    value_append_escaped(&name, v->key.data, v->key.len);
    m->failed |= strbuf_failed(&name);
    put(m, o, strbuf_str(&name), value_json(v, m->r->opt->all));
    strbuf_free(&name);
}

static json_t *make_metadata(struct maker *m)
{
    json_t *o = json_object();
    struct gguf_value v;
    for (uint32_t i = 0; gguf_key_at(m->r->g, i, &v); i++)
        put_metadata_value(m, o, &v);
    return o;
}

/* ---- the whole ---- */

static json_t *make_warnings(struct maker *m)
{
    json_t *list = json_array();
    for (const char *line = strbuf_str(&m->r->warnings); *line;) {
        const char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) : strlen(line);
        append(m, list, value_json_string(line, n));
        line += n + (end ? 1 : 0);
    }
    return list;
}

static json_t *make_problem(struct maker *m, const char *class, const char *message)
{
    json_t *o = json_object();
    put(m, o, "class", json_string(class));
    put(m, o, "message", escaped(message));
    return o;
}

int inspect_json(const struct inspect_report *r, struct strbuf *out, skua_error *err)
{
    struct maker m = {.r = r};
    json_t *o = json_object(), *problems = json_array();
    for (size_t i = 0; i < r->n_problems; i++)
        append(&m, problems, make_problem(&m, r->problems[i].class, r->problems[i].message));
    put(&m, o, "file", escaped(r->opt->path));
    put(&m, o, "runs", json_boolean(r->engine != NULL));
    put(&m, o, "reason", r->n_problems ? escaped(r->problems[0].message) : json_null());
    put(&m, o, "problems", problems);
    put(&m, o, "warnings", make_warnings(&m));
    put(&m, o, "kind", json_string(inspect_kind_name(r->kind)));
    put(&m, o, "name", string_or_null(inspect_string(r->g, "general.name")));
    put(&m, o, "architecture", string_or_null(inspect_string(r->g, "general.architecture")));
    put(&m, o, "container", make_container(&m));
    put(&m, o, "trunk", make_trunk(&m));
    put(&m, o, "mtp", make_mtp(&m));
    put_tensors(&m, o);
    put(&m, o, "tokenizer", make_tokenizer(&m));
    put(&m, o, "memory", make_memory(&m));
    put(&m, o, "metadata", make_metadata(&m));
    return value_json_dump(o, m.failed, out, err);
}

int inspect_json_failure(const char *path, const char *class, const char *message, struct strbuf *out, skua_error *err)
{
    struct maker m = {0};
    json_t *o = json_object(), *problems = json_array();
    append(&m, problems, make_problem(&m, class, message));
    put(&m, o, "file", escaped(path));
    put(&m, o, "runs", json_false());
    put(&m, o, "reason", escaped(message));
    put(&m, o, "problems", problems);
    return value_json_dump(o, m.failed, out, err);
}
