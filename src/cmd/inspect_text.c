/* The report as text: sections with a title, the verdict last. */
#include <inttypes.h>
#include <string.h>

#include "cmd/inspect_report.h"
#include "cmd/inspect_value.h"
#include "spec/dflash_file.h"

#define LABEL "%-15s"

static void put_label(struct strbuf *out, const char *label) { strbuf_printf(out, LABEL, label); }

/* "16.2 MiB (17025216 bytes)", "512 bytes" */
static void put_size(struct strbuf *out, uint64_t bytes)
{
    if (bytes < 1024) {
        strbuf_printf(out, "%" PRIu64 " bytes", bytes);
        return;
    }
    value_append_bytes(out, bytes);
    strbuf_printf(out, " (%" PRIu64 " bytes)", bytes);
}

static void put_text(struct strbuf *out, const char *label, struct gguf_string s, const char *absent)
{
    put_label(out, label);
    if (s.len)
        value_append_escaped(out, s.data, s.len);
    else
        strbuf_puts(out, absent);
    strbuf_putc(out, '\n');
}

static void put_shards(const struct inspect_report *r, struct strbuf *out)
{
    uint32_t n = gguf_shard_count(r->g);
    for (uint32_t i = 0; i < n; i++) {
        size_t size;
        const char *path = gguf_shard_path(r->g, i);
        gguf_shard_data(r->g, i, &size);
        put_label(out, i ? "" : n > 1 ? "files" : "file");
        value_append_escaped(out, path, strlen(path));
        strbuf_puts(out, ", ");
        put_size(out, size);
        strbuf_putc(out, '\n');
    }
    if (n > 1) {
        put_label(out, "all files");
        put_size(out, r->file_bytes);
        strbuf_putc(out, '\n');
    }
}

static void put_head(const struct inspect_report *r, struct strbuf *out)
{
    put_text(out, "name", inspect_string(r->g, "general.name"), "(none)");
    put_text(out, "architecture", inspect_string(r->g, "general.architecture"), "(none)");
    put_label(out, "kind");
    strbuf_printf(out, "%s\n", inspect_kind_name(r->kind));
    put_shards(r, out);
    put_label(out, "container");
    strbuf_printf(out, "GGUF version %u, alignment %u, %u keys, %u tensors, %" PRIu64 " weights\n", gguf_version(r->g),
                  gguf_alignment(r->g, 0), gguf_key_count(r->g), gguf_tensor_count(r->g), r->tensors.all.elements);
}

/* ---- layers ---- */

/* Layers of a kind as ranges: "0-2, 4-6". */
static void put_layers(const struct model_config *c, bool recurrent, struct strbuf *out)
{
    bool first = true;
    for (int32_t i = 0; i < c->n_layer; i++) {
        if (c->recurrent[i] != recurrent)
            continue;
        int32_t last = i;
        while (last + 1 < c->n_layer && c->recurrent[last + 1] == recurrent)
            last++;
        strbuf_printf(out, last > i ? "%s%d-%d" : "%s%d", first ? "" : ", ", i, last);
        first = false;
        i = last;
    }
}

static void put_attention(const struct model_config *c, struct strbuf *out)
{
    strbuf_printf(out, "%d heads, %d KV heads of %d values, rope on %d values, base %.9g", c->n_head, c->n_head_kv, c->head_dim, c->n_rot,
                  c->rope_base);
    if (c->rope_scale != 1.0)
        strbuf_printf(out, ", YaRN scale %.6g", c->rope_scale);
}

static void put_ffn(const struct model_config *c, struct strbuf *out)
{
    if (!c->moe)
        strbuf_printf(out, "dense, %d wide", c->n_ff);
    else
        strbuf_printf(out, "%d experts of width %d, %d used per token, shared expert of width %d", c->n_expert, c->n_ff_expert,
                      c->n_expert_used, c->n_ff_shared);
}

static void put_mtp(const struct inspect_report *r, struct strbuf *out)
{
    strbuf_puts(out, "\nMTP block\n");
    if (r->mtp == INSPECT_MTP_NONE)
        strbuf_puts(out, "  none\n");
    else if (r->mtp == INSPECT_MTP_MISSING)
        strbuf_printf(out, "  announced (block %d), but the file has no tensors of it; the model runs without\n", r->n_layer);
    else
        strbuf_printf(out, "  present (block %d): full attention and feed-forward like the trunk's; drafts with 'skua run --draft mtp'\n",
                      r->n_layer);
}

static void put_trunk(const struct inspect_report *r, struct strbuf *out)
{
    const struct model_config *c = r->config;
    if (!c)
        return;
    strbuf_printf(out, "\ntrunk: %d layers, %d wide, vocabulary of %d, context of %d tokens\n", c->n_layer, c->n_embd, c->n_vocab,
                  c->n_ctx_train);
    strbuf_printf(out, "  Gated DeltaNet  %d layers", c->n_recurrent);
    if (c->n_recurrent) {
        strbuf_puts(out, " (");
        put_layers(c, true, out);
        strbuf_printf(out, "): %d key heads, %d value heads of %d values, convolution over %d tokens", c->n_k_head, c->n_v_head, c->d_state,
                      c->conv_kernel);
    }
    strbuf_printf(out, "\n  full attention  %d layers", c->n_attn);
    if (c->n_attn) {
        strbuf_puts(out, " (");
        put_layers(c, false, out);
        strbuf_puts(out, "): ");
        put_attention(c, out);
    }
    strbuf_puts(out, "\n  feed-forward    ");
    put_ffn(c, out);
    strbuf_printf(out, "\n  output head     %s\n", gguf_find_tensor(r->g, "output.weight") ? "own matrix" : "the token embedding (tied)");
    put_mtp(r, out);
}

static void put_drafter_key(const struct inspect_report *r, const char *suffix, const char *label, struct strbuf *out)
{
    struct gguf_string arch = inspect_string(r->g, "general.architecture");
    struct strbuf key = {0};
    struct gguf_value v;
    strbuf_printf(&key, "%.*s%s", (int)arch.len, arch.data, suffix);
    out->failed = out->failed || key.failed;
    if (gguf_find_key(r->g, strbuf_str(&key), &v)) {
        strbuf_printf(out, "  %-15s ", label);
        value_append_text(out, &v, false);
        strbuf_putc(out, '\n');
    }
    strbuf_free(&key);
}

static void put_drafter(const struct inspect_report *r, struct strbuf *out)
{
    if (!dflash_file_is(r->g, NULL))
        return;
    strbuf_puts(out, "\ndrafter\n");
    put_drafter_key(r, ".block_count", "layers", out);
    put_drafter_key(r, ".embedding_length", "width", out);
    put_drafter_key(r, ".feed_forward_length", "feed-forward", out);
    put_drafter_key(r, ".attention.head_count", "heads", out);
    put_drafter_key(r, ".attention.head_count_kv", "KV heads", out);
    put_drafter_key(r, ".attention.key_length", "head size", out);
    put_drafter_key(r, ".attention.sliding_window", "window", out);
    put_drafter_key(r, ".attention.sliding_window_pattern", "windowed", out);
    put_drafter_key(r, ".attention.causal", "causal", out);
    put_drafter_key(r, ".block_size", "block size", out);
    put_drafter_key(r, ".dflash.block_size", "block size", out);
    put_drafter_key(r, ".target_layers", "target layers", out);
    put_drafter_key(r, ".dflash.target_layer_ids", "target layers", out);
    put_drafter_key(r, ".selector_top_k", "candidates", out);
    put_drafter_key(r, ".sample_from_anchor", "anchor first", out);
}

/* ---- tensors ---- */

static void put_types(const struct inspect_tensors *ts, const struct inspect_role *role, struct strbuf *out)
{
    for (size_t k = role->run_begin; k < role->run_begin + role->n_runs; k++) {
        const struct inspect_run *run = &ts->runs[k];
        strbuf_printf(out, "%s%s", k > role->run_begin ? ", " : "", qtype_info(run->type)->name);
        if (role->n_runs > 1)
            strbuf_printf(out, " x%" PRIu64, run->sum.n_tensors);
    }
}

static void put_sum(struct strbuf *out, const char *part, const char *role, const struct inspect_sum *s)
{
    strbuf_printf(out, "  %-6s %-31s %6" PRIu64 " %14" PRIu64 " %14" PRIu64 " %7.3f  ", part, role, s->n_tensors, s->elements, s->bytes,
                  inspect_bits(s));
}

static void put_tensors(const struct inspect_report *r, struct strbuf *out)
{
    const struct inspect_tensors *ts = &r->tensors;
    struct strbuf name = {0};
    strbuf_printf(out, "\ntensors\n  %-6s %-31s %6s %14s %14s %7s  %s\n", "part", "role", "count", "weights", "bytes", "bits/w", "types");
    for (size_t i = 0; i < ts->n_roles; i++) {
        const struct inspect_role *role = &ts->roles[i];
        strbuf_clear(&name);
        value_append_escaped(&name, role->name.data, role->name.len);
        out->failed = out->failed || name.failed;
        put_sum(out, inspect_part_name(role->part), strbuf_str(&name), &role->sum);
        put_types(ts, role, out);
        strbuf_puts(out, role->status == INSPECT_UNSUPPORTED ? "  (cannot run)\n"
                         : role->status == INSPECT_UNUSED    ? "  (not used)\n"
                                                             : "\n");
    }
    strbuf_free(&name);
    for (int part = 0; part < INSPECT_PARTS; part++)
        if (ts->part[part].n_tensors) {
            put_sum(out, inspect_part_name((enum inspect_part)part), "(sum)", &ts->part[part]);
            value_append_bytes(out, ts->part[part].bytes);
            strbuf_putc(out, '\n');
        }
    put_sum(out, "all", "(sum)", &ts->all);
    value_append_bytes(out, ts->all.bytes);
    strbuf_putc(out, '\n');
}

/* ---- tokenizer ---- */

static void put_token(const struct tokenizer *t, const char *label, int32_t id, struct strbuf *out)
{
    if (id < 0)
        return;
    size_t n;
    const char *s = tokenizer_piece(t, (uint32_t)id, true, &n);
    strbuf_printf(out, "  %-15s %d ", label, id);
    value_append_quoted(out, s, n, 0);
    strbuf_putc(out, '\n');
}

static void put_template(const struct inspect_report *r, struct strbuf *out)
{
    struct inspect_template t = inspect_chat_template(r->g);
    strbuf_puts(out, "  chat template   ");
    if (!t.present) {
        strbuf_puts(out, "none\n");
        return;
    }
    const struct {
        const char *name;
        bool mentioned;
    } flags[] = {{"enable_thinking", t.enable_thinking},
                 {"reasoning_effort", t.reasoning_effort},
                 {"preserve_thinking", t.preserve_thinking}};
    const char *separator = ", mentions ";
    strbuf_printf(out, "%zu bytes", t.bytes);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].mentioned) {
            strbuf_printf(out, "%s%s", separator, flags[i].name);
            separator = ", ";
        }
    strbuf_putc(out, '\n');
}

static void put_tokenizer(const struct inspect_report *r, struct strbuf *out)
{
    const struct tokenizer *t = r->tokenizer;
    struct gguf_array tokens = {0}, merges = {0};
    struct gguf_string model = inspect_string(r->g, "tokenizer.ggml.model"), pre = inspect_string(r->g, "tokenizer.ggml.pre");
    gguf_get_array(r->g, "tokenizer.ggml.tokens", GGUF_STRINGS, &tokens, NULL);
    gguf_get_array(r->g, "tokenizer.ggml.merges", GGUF_STRINGS, &merges, NULL);
    strbuf_puts(out, "\ntokenizer\n");
    if (!model.len && !tokens.count) {
        strbuf_puts(out, "  none\n");
        return;
    }
    strbuf_puts(out, "  model           ");
    value_append_quoted(out, model.data, model.len, 0);
    strbuf_puts(out, ", pre-tokenizer ");
    value_append_quoted(out, pre.data, pre.len, 0);
    strbuf_printf(out, "\n  size            %" PRIu64 " tokens, %" PRIu64 " merges\n", tokens.count, merges.count);
    if (t) {
        put_token(t, "bos", tokenizer_bos(t), out);
        put_token(t, "eos", tokenizer_eos(t), out);
        put_token(t, "eot", tokenizer_eot(t), out);
        put_token(t, "padding", tokenizer_pad(t), out);
        for (uint32_t id = 0; id < tokenizer_size(t); id++)
            if (tokenizer_is_eog(t, id))
                put_token(t, "ends an answer", (int32_t)id, out);
        strbuf_printf(out, "  adds bos        %s\n", tokenizer_adds_bos(t) ? "yes" : "no");
    }
    put_template(r, out);
}

/* ---- metadata, memory, verdict ---- */

static void put_metadata(const struct inspect_report *r, struct strbuf *out)
{
    struct gguf_value v;
    strbuf_puts(out, "\nmetadata\n");
    for (uint32_t i = 0; gguf_key_at(r->g, i, &v); i++) {
        strbuf_puts(out, "  ");
        value_append_escaped(out, v.key.data, v.key.len);
        strbuf_puts(out, " = ");
        value_append_text(out, &v, r->opt->all);
        strbuf_putc(out, '\n');
    }
}

static void put_memory_line(struct strbuf *out, const char *label, uint64_t bytes, const char *note)
{
    strbuf_printf(out, "  %-15s ", label);
    if (bytes == UINT64_MAX)
        strbuf_puts(out, "more than any machine has");
    else
        put_size(out, bytes);
    strbuf_printf(out, ", %s\n", note);
}

static void put_memory(const struct inspect_report *r, struct strbuf *out)
{
    const struct inspect_memory *m = &r->memory;
    if (!r->engine)
        return;
    strbuf_printf(out, "\nmemory for one session of %" PRId64 " tokens, KV cache in %s\n", m->n_ctx, qtype_info(r->engine->kv_type)->name);
    put_memory_line(out, "file", m->file, "mapped; or, where it is repacked, as much memory of the process's own");
    put_memory_line(out, "workspace", m->workspace, "shared by all sessions");
    put_memory_line(out, "vectors", m->vectors, "widened copies, shared");
    put_memory_line(out, "state", m->state, "per session");
    put_memory_line(out, "KV cache", m->kv, "per session when full; taken in pages as it grows:");
    strbuf_printf(out, "  %-15s %" PRId64 " pages of %d tokens, %" PRIu64 " bytes each\n", "", m->n_pages, KV_PAGE_ROWS, m->kv_page);
    put_memory_line(out, "held row", m->held_row, "each of up to 32, per session, while drafts are verified");
    put_memory_line(out, "per session", m->session, "state and KV cache");
    put_memory_line(out, "total", m->total, "one session; the tokenizer's tables come on top");
}

static void put_verdict(const struct inspect_report *r, struct strbuf *out)
{
    strbuf_putc(out, '\n');
    for (const char *line = strbuf_str(&r->warnings); *line;) {
        const char *end = strchr(line, '\n');
        size_t n = end ? (size_t)(end - line) : strlen(line);
        strbuf_puts(out, "warning: ");
        value_append_escaped(out, line, n);
        strbuf_putc(out, '\n');
        line += n + (end ? 1 : 0);
    }
    for (size_t i = 0; r->n_problems > 1 && i < r->n_problems; i++)
        strbuf_printf(out, "problem: %s: %s\n", r->problems[i].class, r->problems[i].message);
    if (r->n_problems)
        strbuf_printf(out, "runs: no: %s: %s\n", r->problems[0].class, r->problems[0].message);
    else
        strbuf_puts(out, "runs: yes\n");
}

int inspect_text(const struct inspect_report *r, struct strbuf *out, skua_error *err)
{
    put_head(r, out);
    put_trunk(r, out);
    put_drafter(r, out);
    put_tensors(r, out);
    put_tokenizer(r, out);
    put_metadata(r, out);
    put_memory(r, out);
    put_verdict(r, out);
    return strbuf_failed(out) ? error_nomem(err, "report", out->len) : 0;
}
