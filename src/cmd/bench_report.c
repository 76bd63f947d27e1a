/* What `skua bench` found, as a table, JSON and CSV; see bench.h. */
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"
#include "cmd/bench.h"
#include "cmd/inspect_value.h"
#include "cmd/profile_report.h"

#define T1_TOLERANCE 0.03 /* of T(1) against the step that --tg times */

static const char *model_name(const skua_engine_info *i) { return *i->name ? i->name : i->arch; }

/* Percent of the bound that a step reaches; 0 when its bytes are not counted. */
static double percent(const struct bench *b, const struct bench_result *r)
{
    return 100 * bench_bound(b, r->bytes) / r->time.median;
}

static int finish(const struct strbuf *out, skua_error *err) { return strbuf_failed(out) ? error_nomem(err, "report", out->len) : 0; }

/* ---- table ---- */

static void header_text(const struct bench *b, struct strbuf *out)
{
    const skua_engine_info i = skua_engine_get_info(b->engine);
    const struct membw *m = &b->bandwidth;
    const enum kern_read_way best = membw_best(m);
    char cpu[256];
    cpu_describe(cpu, sizeof cpu);
    strbuf_puts(out, "model      ");
    value_append_escaped(out, model_name(&i), strlen(model_name(&i)));
    strbuf_printf(out, " (%s, %d layers), ", i.arch, i.n_layer);
    value_append_bytes(out, i.file_bytes);
    if (i.repacked_bytes) {
        strbuf_puts(out, ", of which repacked ");
        value_append_bytes(out, i.repacked_bytes);
    }
    strbuf_printf(out, "\nmachine    %s\nkernels    %s, %d thread%s, KV cache %s\n", cpu, i.kernels, i.n_threads,
                  i.n_threads == 1 ? "" : "s", i.kv_type);
    strbuf_printf(out, "memory     %.2f GB/s read (%s; ", m->way[best] * 1e-9, membw_way_name(best));
    for (int k = 0, n = 0; k < KERN_READ_WAYS; k++)
        if (k != (int)best)
            strbuf_printf(out, "%s%s %.2f", n++ ? ", " : "", membw_way_name((enum kern_read_way)k), m->way[k] * 1e-9);
    strbuf_printf(out, ") from %zu MiB\n", m->bytes >> 20);
}

static bool has(const struct bench *b, enum bench_kind kind)
{
    for (int i = 0; i < b->n_results; i++)
        if (b->results[i].kind == kind)
            return true;
    return false;
}

static void spread_text(const struct bench_stat *s, struct strbuf *out)
{
    strbuf_printf(out, " %10.3f %10.3f %10.3f %9.3f", s->median * 1e3, s->min * 1e3, s->max * 1e3, s->mad * 1e3);
}

#define SPREAD_NAMES "        ms        min        max       MAD"

static void section(const struct bench *b, enum bench_kind kind, const char *title, struct strbuf *out)
{
    if (!has(b, kind))
        return;
    strbuf_printf(out, "\n%s\n", title);
    for (int i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        if (r->kind != kind)
            continue;
        if (kind == BENCH_PP || kind == BENCH_TG)
            strbuf_printf(out, "  %6d %7d %9.2f", r->tokens, r->depth, bench_rate(r));
        else
            strbuf_printf(out, "  %6d %7d %9.2f", kind == BENCH_BATCH ? r->rows : r->seqs, r->depth, bench_rate(r));
        spread_text(&r->time, out);
        if (kind == BENCH_TG)
            strbuf_printf(out, " %9.1f %9.3f %9.2f %7.1f%% %7.1f%%", (double)r->bytes * 1e-6, bench_bound(b, r->bytes) * 1e3,
                          1 / bench_bound(b, r->bytes), percent(b, r), 100 * r->beside);
        else if (kind != BENCH_PP)
            strbuf_printf(out, " %9.3f", r->ratio);
        strbuf_putc(out, '\n');
    }
}

/* T(1) of the batch table is the step that --tg times; say so when they disagree. */
static void compare_text(const struct bench *b, struct strbuf *out)
{
    const struct bench_result *one = bench_find(b, BENCH_BATCH, (int32_t)b->opt->batch_depth, 1, 1);
    const struct bench_result *tg = bench_find(b, BENCH_TG, (int32_t)b->opt->batch_depth, 1, 1);
    if (!one || !tg)
        return;
    double off = one->time.median / tg->time.median - 1;
    strbuf_printf(out, "  T(1) is %+.1f %% off the decode step above%s\n", 100 * off,
                  fabs(off) > T1_TOLERANCE ? " (more than 3 %: the machine was not quiet; repeat)" : "");
}

static void specs_text(const struct bench *b, struct strbuf *out)
{
    if (!b->n_specs)
        return;
    strbuf_puts(out, "\nspeculation with simulated acceptance, in turns with plain decoding\n"
                     "       p  tokens/round  verified      t/s  plain t/s   ratio   ms of a round: draft   verify   commit\n");
    for (int i = 0; i < b->n_specs; i++) {
        const struct bench_spec *s = &b->specs[i];
        const double rounds = (double)s->rounds;
        strbuf_printf(out, "  %6.3f  %12.2f  %8.2f %8.2f  %9.2f  %6.3f                %8.2f %8.2f %8.2f\n", s->p,
                      (double)s->tokens / rounds, (double)s->verified / rounds, (double)s->tokens / s->seconds,
                      (double)s->plain_tokens / s->plain_seconds, s->ratio, 1e3 * s->draft_seconds / rounds,
                          1e3 * s->verify_seconds / rounds,
                      1e3 * s->commit_seconds / rounds);
    }
}

int bench_text(const struct bench *b, struct strbuf *out, skua_error *err)
{
    header_text(b, out);
    section(b, BENCH_PP, "prefill\n  tokens   depth       t/s " SPREAD_NAMES, out);
    section(b, BENCH_TG, "decode, one step\n   steps   depth       t/s " SPREAD_NAMES
            "        MB  bound ms bound t/s  reached   beside", out);
    section(b, BENCH_BATCH, "batch, one held step of w rows with the best token of each, and its commit\n"
                "    rows   depth       t/s " SPREAD_NAMES " T(w)/T(1)", out);
    compare_text(b, out);
    section(b, BENCH_SEQS, "sequences decoded together, one step\n    seqs   depth       t/s " SPREAD_NAMES "  over one", out);
    specs_text(b, out);
    strbuf_puts(out, "\nkernels of the matrix products\n");
    profile_kernels_text(&b->kernels, skua_engine_get_info(b->engine).kernels, out);
    if (b->opt->profile) {
        struct profile p = b->profile;
        strbuf_puts(out, "\nprofile of the measured prefill and decode\n");
        profile_text(&p, out);
    }
    return finish(out, err);
}

/* ---- JSON ---- */

static json_t *bandwidth_json(const struct bench *b)
{
    const struct membw *m = &b->bandwidth;
    json_t *o = json_pack("{s:f, s:s, s:I, s:i}", "gb_s", m->way[membw_best(m)] * 1e-9, "best", membw_way_name(membw_best(m)),
                          "buffer_bytes", (json_int_t)m->bytes, "threads", m->n_threads);
    json_t *ways = json_object();
    int rc = json_object_set_new(o, "ways", ways);
    for (int k = 0; k < KERN_READ_WAYS && !rc; k++)
        rc = json_object_set_new(ways, membw_way_name((enum kern_read_way)k), json_real(m->way[k] * 1e-9));
    if (rc) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *model_json(const struct bench *b)
{
    const skua_engine_info i = skua_engine_get_info(b->engine);
    return json_pack("{s:o, s:o, s:s, s:i, s:i, s:i, s:I, s:I}", "path", value_json_string(i.path, strlen(i.path)), "name",
                     value_json_string(i.name, strlen(i.name)), "arch", i.arch, "layers", i.n_layer, "vocabulary", i.n_vocab, "embedding",
                     i.n_embd, "file_bytes", (json_int_t)i.file_bytes, "state_bytes", (json_int_t)i.state_bytes);
}

static json_t *machine_json(const struct bench *b)
{
    const skua_engine_info i = skua_engine_get_info(b->engine);
    char cpu[256];
    cpu_describe(cpu, sizeof cpu);
    return json_pack("{s:o, s:s, s:i, s:s}", "cpu", value_json_string(cpu, strlen(cpu)), "kernels", i.kernels, "threads", i.n_threads,
                     "kv_type", i.kv_type);
}

static json_t *result_json(const struct bench *b, const struct bench_result *r)
{
    const struct bench_stat *s = &r->time;
    json_t *o = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:i}", "depth", r->depth, "ms", s->median * 1e3, "t_s", bench_rate(r), "min_ms",
                          s->min * 1e3, "max_ms", s->max * 1e3, "mad_ms", s->mad * 1e3, "samples", s->n);
    int rc = 0;
    if (r->kind == BENCH_PP || r->kind == BENCH_TG)
        rc |= json_object_set_new(o, "tokens", json_integer(r->tokens));
    if (r->kind == BENCH_BATCH)
        rc |= json_object_set_new(o, "rows", json_integer(r->rows));
    if (r->kind == BENCH_SEQS)
        rc |= json_object_set_new(o, "seqs", json_integer(r->seqs));
    if (r->ratio > 0)
        rc |= json_object_set_new(o, "ratio", json_real(r->ratio));
    if (r->bytes) {
        rc |= json_object_set_new(o, "bytes", json_integer((json_int_t)r->bytes));
        rc |= json_object_set_new(o, "bound_ms", json_real(bench_bound(b, r->bytes) * 1e3));
        rc |= json_object_set_new(o, "bound_t_s", json_real(1 / bench_bound(b, r->bytes)));
        rc |= json_object_set_new(o, "percent", json_real(percent(b, r)));
        rc |= json_object_set_new(o, "percent_beside", json_real(100 * r->beside));
    }
    if (rc) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static json_t *spec_json(const struct bench_spec *s)
{
    return json_pack("{s:f, s:I, s:I, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "p", s->p, "rounds", (json_int_t)s->rounds, "drafted",
                     (json_int_t)s->drafted, "verified", (json_int_t)s->verified, "tokens", (json_int_t)s->tokens, "seconds", s->seconds,
                     "plain_tokens", (json_int_t)s->plain_tokens, "plain_seconds", s->plain_seconds, "ratio", s->ratio, "draft_seconds",
                     s->draft_seconds, "verify_seconds", s->verify_seconds, "commit_seconds", s->commit_seconds);
}

int bench_json(const struct bench *b, struct strbuf *out, skua_error *err)
{
    json_t *root = json_object();
    int rc = json_object_set_new(root, "version", json_string(SKUA_VERSION));
    rc |= json_object_set_new(root, "machine", machine_json(b));
    rc |= json_object_set_new(root, "model", model_json(b));
    rc |= json_object_set_new(root, "bandwidth", bandwidth_json(b));
    rc |= json_object_set_new(root, "kernels", profile_kernels_json(&b->kernels, skua_engine_get_info(b->engine).kernels));
    for (int kind = BENCH_PP; kind <= BENCH_SEQS; kind++) {
        json_t *list = json_array();
        for (int i = 0; i < b->n_results; i++)
            if ((int)b->results[i].kind == kind)
                rc |= json_array_append_new(list, result_json(b, &b->results[i]));
        rc |= json_object_set_new(root, bench_kind_name((enum bench_kind)kind), list);
    }
    json_t *specs = json_array();
    for (int i = 0; i < b->n_specs; i++)
        rc |= json_array_append_new(specs, spec_json(&b->specs[i]));
    rc |= json_object_set_new(root, "spec_sim", specs);
    if (b->opt->profile) {
        struct profile p = b->profile;
        rc |= json_object_set_new(root, "profile", profile_json(&p));
    }
    return value_json_dump(root, rc != 0, out, err);
}

/* ---- CSV ---- */

int bench_csv(const struct bench *b, struct strbuf *out, skua_error *err)
{
    strbuf_puts(out, "kind,tokens,depth,rows,seqs,samples,median_ms,min_ms,max_ms,mad_ms,t_s,ratio,bytes,bound_ms,percent,"
                     "percent_beside\n");
    for (int i = 0; i < b->n_results; i++) {
        const struct bench_result *r = &b->results[i];
        const struct bench_stat *s = &r->time;
        strbuf_printf(out, "%s,%d,%d,%d,%d,%d,%.6f,%.6f,%.6f,%.6f,%.6f,", bench_kind_name(r->kind), r->tokens, r->depth, r->rows, r->seqs,
                      s->n, s->median * 1e3, s->min * 1e3, s->max * 1e3, s->mad * 1e3, bench_rate(r));
        if (r->ratio > 0)
            strbuf_printf(out, "%.6f", r->ratio);
        if (r->bytes)
            strbuf_printf(out, ",%llu,%.6f,%.3f,%.3f\n", (unsigned long long)r->bytes, bench_bound(b, r->bytes) * 1e3,
                          percent(b, r), 100 * r->beside);
        else
            strbuf_puts(out, ",,,,\n");
    }
    return finish(out, err);
}
