/* What `skua bench` does with its measurements: statistics, bounds, what simulated speculation yields, and the reports of made-up results:
 * table, JSON, CSV and picture. And the profile's table and JSON. */
#include "engine_model.h"

#include <math.h>

#include "base/rng.h"
#include "base/strbuf.h"
#include "cmd/bench.h"
#include "cmd/profile_report.h"

/* ---- statistics ---- */

static void stat_is(const char *name, const double *values, int n, double median, double min, double max, double mad)
{
    double copy[16];
    memcpy(copy, values, (size_t)n * sizeof *copy);
    const struct bench_stat s = bench_stat_of(copy, n);
    CHECK(s.n == n && s.median == median && s.min == min && s.max == max && s.mad == mad, "%s: %g, %g to %g, %g of %d", name, s.median,
          s.min, s.max, s.mad, s.n);
}
#define STAT(median, min, max, mad, ...) \
    stat_is(#__VA_ARGS__, (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double), median, min, max, mad)

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double plain_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void test_statistics(void)
{
    STAT(3, 3, 3, 0, 3);
    STAT(2, 1, 3, 1, 3, 1);
    STAT(2, 1, 9, 1, 9, 1, 2);
    STAT(2.5, 1, 8, 1, 8, 1, 2, 3); /* deviations 0.5, 0.5, 1.5, 5.5 */
    STAT(5, 5, 5, 0, 5, 5, 5, 5);
    STAT(4, 1, 100, 0, 4, 4, 4, 100, 1);
    STAT(6, 1, 11, 2, 1, 4, 6, 8, 11);
    STAT(1, 0, 2, 1, 0, 0, 2, 2);
    uint64_t seed = 11;
    for (int round = 0; round < 2000; round++) { /* against the definition */
        double x[12], d[12];
        const int n = 1 + (int)(rng_next(&seed) % 12);
        for (int i = 0; i < n; i++)
            x[i] = (double)(rng_next(&seed) % 9);
        memcpy(d, x, sizeof d);
        const double m = plain_median(d, n);
        for (int i = 0; i < n; i++)
            d[i] = fabs(x[i] - m);
        const double mad = plain_median(d, n);
        const struct bench_stat s = bench_stat_of(x, n);
        CHECK(s.median == m && s.mad == mad && s.min == x[0] && s.max == x[n - 1], "%d values: %g, %g; expected %g, %g", n, s.median,
              s.mad, m, mad);
    }
}

/* ---- made-up results ---- */

static struct bench_result results[] = {
    {BENCH_PP, 0, 100, 1, 1, {3, 0.5, 0.4, 0.7, 0.1}, 0, 0, 0},
    {BENCH_PP, 1000, 100, 1, 1, {3, 0.8, 0.7, 0.9, 0.05}, 0, 0, 0},
    {BENCH_TG, 0, 8, 1, 1, {24, 0.02, 0.0195, 0.03, 0.001}, 0, 150000000, 0.75},
    {BENCH_TG, 1000, 8, 1, 1, {24, 0.025, 0.02, 0.03, 0.001}, 0, 200000000, 0.75},
    {BENCH_BATCH, 1000, 1, 1, 1, {6, 0.026, 0.02, 0.03, 0.001}, 1, 0, 0},
    {BENCH_BATCH, 1000, 1, 4, 1, {3, 0.039, 0.03, 0.05, 0.002}, 1.5, 0, 0},
    {BENCH_SEQS, 1000, 1, 1, 1, {3, 0.025, 0.02, 0.03, 0.001}, 1, 0, 0},
    {BENCH_SEQS, 1000, 1, 1, 4, {3, 0.04, 0.03, 0.05, 0.002}, 2.5, 0, 0},
};
static struct bench_spec specs[] = {{0.5, 10, 30, 20, 18, 18, 0.4, 0.5, 0.05, 0.3, 0.02, 1.25},
                                    {0.9, 10, 70, 60, 50, 50, 0.5, 1.5, 0.05, 0.4, 0.02, 3}};

static struct bench made_up(skua_engine *e, struct bench_options *o)
{
    o->pp = (struct bench_list){{100}, 1};
    o->tg = (struct bench_list){{8}, 1};
    o->batch_depth = 1000;
    return (struct bench){.opt = o, .engine = e, .results = results, .n_results = sizeof results / sizeof *results, .specs = specs,
                          .n_specs = 2, .bandwidth = {.bytes = (size_t)64 << 20, .n_threads = 2, .way = {8e9, 10e9, 9e9}}};
}

static int32_t ids[20];

static void count_some(struct profile *p, skua_engine *e)
{
    skua_session *s = session_open(e, 20);
    skua_error err = {0};
    profile_attach(p, e);
    for (int32_t n = 9; n; n = n == 9 ? 1 : 0) {
        skua_feed f = {.session = s, .ids = ids, .n_ids = n};
        CHECK(skua_eval(e, &f, 1, NULL, NULL, &err) == 0, "%s", err.message);
    }
    profile_detach(p);
    skua_session_free(s);
}

static bool has(const struct strbuf *out, const char *text)
{
    return strstr(strbuf_str(out), text) || (printf("no '%s' in:\n%s", text, strbuf_str(out)), false);
}

static void test_values(const struct bench *b)
{
    CHECK(bench_rate(&results[0]) == 200 && bench_rate(&results[2]) == 50 && bench_rate(&results[5]) == 4 / 0.039, "rates");
    CHECK(bench_rate(&results[7]) == 100, "rate of four sequences");
    CHECK(bench_bound(b, 150000000) == 0.015, "the bound comes of the best way: %g", bench_bound(b, 150000000));
    CHECK(bench_find(b, BENCH_TG, 1000, 1, 1) == &results[3] && bench_find(b, BENCH_BATCH, 1000, 4, 1) == &results[5], "found");
    CHECK(!bench_find(b, BENCH_BATCH, 0, 4, 1) && !bench_find(b, BENCH_TG, 1000, 1, 2), "not found");
    CHECK(!strcmp(bench_kind_name(BENCH_PP), "pp") && !strcmp(bench_kind_name(BENCH_SEQS), "seqs"), "names");
}

static void test_text(const struct bench *b)
{
    struct strbuf out = {0};
    skua_error err;
    CHECK(bench_text(b, &out, &err) == 0, "text");
    CHECK(has(&out, "\nmemory     10.00 GB/s read (streams; plain 8.00, prefetch 9.00) from 64 MiB\n"), "bandwidth");
    CHECK(has(&out, "     100    1000    125.00    800.000    700.000    900.000    50.000\n"), "prefill");
    CHECK(has(&out, "       8       0     50.00     20.000     19.500     30.000     1.000     150.0    15.000     66.67    75.0%"
                    "    75.0%\n"), "decode");
    CHECK(has(&out, "       4    1000    102.56     39.000     30.000     50.000     2.000     1.500\n"), "batch");
    CHECK(has(&out, "T(1) is +4.0 % off the decode step above (more than 3 %"), "comparison");
    CHECK(has(&out, "       4    1000    100.00     40.000     30.000     50.000     2.000     2.500\n"), "sequences");
    CHECK(has(&out, "   0.500          1.80      2.00    45.00      36.00   1.250                    5.00    30.00     2.00\n"), "p 0.5");
    CHECK(has(&out, "   0.900          5.00      6.00   100.00      33.33   3.000                    5.00    40.00     2.00\n"), "p 0.9");
    CHECK(has(&out, "  attn_output          Q8_0     12 bits per 32          2  MATMUL, "), "kernels");
    CHECK(has(&out, "\ndecode: 1 passes, 1 rows, ") && has(&out, "\nprefill: 1 passes, 9 rows, "), "profile");
    strbuf_free(&out);
}

static void test_json(const struct bench *b)
{
    struct strbuf out = {0};
    skua_error err;
    CHECK(bench_json(b, &out, &err) == 0, "JSON");
    json_t *d = json_loads(strbuf_str(&out), 0, NULL), *tg, *batch;
    CHECK(d, "no JSON: %s", strbuf_str(&out));
    tg = json_array_get(json_object_get(d, "tg"), 0);
    batch = json_array_get(json_object_get(d, "batch"), 1);
    const double bound = json_real_value(json_object_get(tg, "bound_ms"));
    CHECK(fabs(bound - 15) < 1e-9 && json_integer_value(json_object_get(tg, "bytes")) == 150000000, "bound %g", bound);
    CHECK(json_integer_value(json_object_get(batch, "rows")) == 4 && fabs(json_real_value(json_object_get(batch, "ms")) - 39) < 1e-9,
          "batch");
    CHECK(json_array_size(json_object_get(d, "pp")) == 2 && json_array_size(json_object_get(d, "seqs")) == 2 &&
              json_array_size(json_object_get(d, "spec_sim")) == 2, "lists");
    json_t *spec = json_array_get(json_object_get(d, "spec_sim"), 1);
    CHECK(json_integer_value(json_object_get(spec, "tokens")) == 50 && json_real_value(json_object_get(spec, "ratio")) == 3, "simulation");
    json_t *decode = json_object_get(json_object_get(d, "profile"), "decode"), *op;
    double share = 0;
    size_t i;
    json_array_foreach(json_object_get(decode, "ops"), i, op)
        share += json_real_value(json_object_get(op, "share"));
    CHECK(i > 10 && fabs(share - 1) < 1e-9, "shares of %zu ops make %g", i, share);
    json_decref(d);
    strbuf_free(&out);
}

static void test_csv(const struct bench *b)
{
    struct strbuf out = {0};
    skua_error err;
    int lines = 0, commas = 0;
    CHECK(bench_csv(b, &out, &err) == 0, "CSV");
    CHECK(has(&out, "\npp,100,0,1,1,3,500.000000,400.000000,700.000000,100.000000,200.000000,,,,,\n"), "prefill");
    CHECK(has(&out, "\ntg,8,0,1,1,24,20.000000,19.500000,30.000000,1.000000,50.000000,,150000000,15.000000,75.000,75.000\n"), "decode");
    CHECK(has(&out, "\nbatch,1,1000,4,1,3,39.000000,30.000000,50.000000,2.000000,102.564103,1.500000,,,,\n"), "batch");
    for (const char *p = strbuf_str(&out); *p; p++) {
        commas += *p == ',';
        lines += *p == '\n';
    }
    CHECK(lines == 9 && commas == lines * 15, "%d lines, %d commas", lines, commas);
    strbuf_free(&out);
}

static int count(const char *s, const char *what)
{
    int n = 0;
    for (; (s = strstr(s, what)); s++)
        n++;
    return n;
}

static void test_svg(struct bench *b)
{
    struct strbuf out = {0};
    skua_error err;
    CHECK(bench_svg(b, &out, &err) == 0, "SVG");
    const char *s = strbuf_str(&out);
    CHECK(strncmp(s, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1020\"", 51) == 0 && has(&out, "</svg>\n"), "begin and end");
    CHECK(count(s, "<circle") == 6 && count(s, "<path") == 4 && count(s, "memory bound") == 1, "%d points, %d lines", count(s, "<circle"),
          count(s, "<path"));
    CHECK(has(&out, "prefers-color-scheme:dark") && !strstr(s, "nan") && !strstr(s, "inf"), "numbers");
    CHECK(has(&out, ">A &lt;b&gt; &amp; \\x1B[7m, "), "the model's name");
    for (int only = 0; only < 3; only++) { /* one panel, one point */
        static const int at[] = {0, 2, 4};
        struct bench one = *b;
        one.results = results + at[only];
        one.n_results = 1;
        strbuf_clear(&out);
        CHECK(bench_svg(&one, &out, &err) == 0 && count(strbuf_str(&out), "<circle") == 1 && !strstr(strbuf_str(&out), "nan") &&
                  !strstr(strbuf_str(&out), "inf") && has(&out, "width=\"340\""), "panel %d", only);
    }
    strbuf_free(&out);
}

static int foreign_name(struct gguf_writer *w, skua_error *err)
{
    return gguf_writer_add_string(w, "general.name", "A <b> & \x1b[7m", 12, err);
}

int main(void)
{
    const char *model = support_model("tiny-q8_0.gguf");
    test_statistics();
    if (model) {
        skua_engine *e = model_open(model_copy(model, "named.gguf", foreign_name), &(skua_engine_params){.n_threads = 2});
        struct bench_options o = {.profile = true};
        struct bench b = made_up(e, &o);
        for (int i = 0; i < 20; i++)
            ids[i] = 100 + i;
        count_some(&b.kernels, e);
        count_some(&b.profile, e);
        test_values(&b);
        test_text(&b);
        test_json(&b);
        test_csv(&b);
        test_svg(&b);
        profile_free(&b.kernels);
        profile_free(&b.profile);
        skua_engine_close(e);
    }
    return support_finish("test_cmd_bench");
}
