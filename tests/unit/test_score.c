/* Scores: means and percentiles of known numbers, divergences of distributions computed by hand, rows through their 16-bit form, base
   files and everything that is refused of them. */
#include <math.h>

#include "gguf_temp.h"

#include "engine/score_base.h"
#include "sample/logprob.h"

#define OK(call) CHECK_INT(call, 0)

static bool near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance))
        printf("%.17g, expected %.17g\n", a, b);
    return fabs(a - b) <= tolerance;
}

static void test_means(void **state)
{
    (void)state;
    static const double v[] = {2, 4, 4, 4, 5, 5, 7, 9};
    struct score_mean m = {0};
    CHECK(isnan(score_error(&m)));
    for (size_t i = 0; i < 8; i++)
        score_add(&m, 1e6 + v[i]);
    CHECK(m.n == 8 && near(m.mean, 1e6 + 5, 1e-9) && near(score_error(&m), sqrt(32.0 / 7 / 8), 1e-9));
    struct score_mean one = {0};
    score_add(&one, 3);
    CHECK(one.mean == 3 && isnan(score_error(&one)));
}

static void test_percentiles(void **state)
{
    (void)state;
    static const double v[] = {1, 2, 4, 8, 16};
    CHECK(score_percentile(v, 5, 0) == 1 && score_percentile(v, 5, 1) == 16 && score_percentile(v, 5, 0.5) == 4);
    CHECK(near(score_percentile(v, 5, 0.9), 12.8, 1e-12) && near(score_percentile(v, 5, 0.125), 1.5, 1e-12));
    CHECK(score_percentile(v, 1, 0.999) == 1 && score_percentile(v, 2, 0.5) == 1.5);
}

static double norm_of(const float *logits, int n)
{
    double norm = 0;
    skua_error err = {0};
    OK(logprob_norm(logits, n, &norm, &err));
    return norm;
}

/* Encode with some logits, compare with others. */
static struct score_pair pair_of(const float *base, const float *own, int32_t n, int32_t next)
{
    uint8_t *bytes = malloc(score_row_bytes(n));
    struct score_row row;
    skua_error err = {0};
    score_encode(base, n, norm_of(base, n), next, bytes);
    OK(score_decode(bytes, n, &row, &err));
    struct score_pair p = score_compare(&row, own, n, norm_of(own, n), next);
    free(bytes);
    return p;
}

static void test_divergence(void **state)
{
    (void)state;
    /* p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = 1/2 ln 2 + 1/4 ln 1/2 = 1/4 ln 2 */
    static const float p[] = {0.69314718f, 0, 0}, q[] = {5, 5.69314718f, 5};
    struct score_pair r = pair_of(p, q, 3, 0);
    CHECK(near(r.kl, 0.25 * log(2), 1e-6) && near(r.base_nll, log(2), 1e-6) && near(r.nll, log(4), 1e-6));
    CHECK(near(r.delta_p, -0.25, 1e-6) && !r.same_best);
    r = pair_of(p, q, 3, 2);
    CHECK(near(r.delta_p, 0, 1e-6) && near(r.nll, log(4), 1e-6));
    /* p = (9/10, 1/10), q = (1/2, 1/2): KL = ln 2 - H(p) */
    static const float p2[] = {2.19722458f, 0}, q2[] = {-1, -1};
    r = pair_of(p2, q2, 2, 0);
    CHECK(near(r.kl, log(2) + 0.9 * log(0.9) + 0.1 * log(0.1), 1e-6) && r.same_best && near(r.delta_p, -0.4, 1e-6));
    /* both even: steps of 0 */
    static const float even[] = {3, 3, 3, 3};
    r = pair_of(even, even, 4, 1);
    CHECK(near(r.kl, 0, 1e-12) && near(r.nll, log(4), 1e-7) && r.same_best && near(r.delta_p, 0, 1e-7));
    /* tokens that p rules out: q's floor instead of infinity, and nothing where p has nothing */
    static const float sure[] = {0, -INFINITY}, other[] = {-INFINITY, 0};
    CHECK(near(pair_of(sure, sure, 2, 0).kl, 0, 1e-9) && near(pair_of(sure, other, 2, 0).kl, -LOGPROB_FLOOR, 1e-6));
}

/* Random rows of any width: decoded log-probabilities within half a step, the divergence from itself below step^2, the divergence from
   another row that of the exact numbers. */
static void test_rounding(void **state)
{
    (void)state;
    enum { N = 1001 };
    static const float widths[] = {0.01f, 1, 8, 40, 400};
    uint32_t seed = 1;
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        float a[N], b[N];
        uint8_t bytes[12 + 2 * N + 2];
        struct score_row row;
        skua_error err = {0};
        for (int i = 0; i < N; i++) {
            seed = seed * 1664525u + 1013904223u;
            a[i] = (float)(seed >> 8) / (float)(1 << 24) * widths[w];
            seed = seed * 1664525u + 1013904223u;
            b[i] = a[i] + (float)(seed >> 8) / (float)(1 << 24) * 0.1f;
        }
        double na = norm_of(a, N), nb = norm_of(b, N), sum = 0, kl = 0, worst = 0;
        CHECK_INT(score_row_bytes(N), sizeof bytes);
        score_encode(a, N, na, 7, bytes);
        OK(score_decode(bytes, N, &row, &err));
        CHECK(row.step <= 4.9e-4f && (float)(a[7] - na) == row.target);
        for (int i = 0; i < N; i++) {
            uint16_t q;
            memcpy(&q, row.q + 2 * i, 2);
            sum += exp(-(double)row.step * q);
            kl += exp(a[i] - na) * ((a[i] - na) - (b[i] - nb));
        }
        for (int i = 0; i < N; i++) {
            uint16_t q;
            memcpy(&q, row.q + 2 * i, 2);
            double lp = -(double)row.step * q - log(sum), want = a[i] - na;
            if (a[row.best] - a[i] < SCORE_MAX_RANGE)
                worst = fmax(worst, fabs(lp - want));
            else
                CHECK_INT(q, 65535);
        }
        CHECK(worst <= row.step * 1.001 + 1e-9); /* half of it in the token, as much in the norm */
        CHECK(score_compare(&row, a, N, na, 7).kl <= (double)row.step * row.step);
        CHECK(near(score_compare(&row, b, N, nb, 7).kl, kl, 1e-5));
    }
}

static void test_pairs(void **state)
{
    (void)state;
    struct score_pairs s = {0};
    skua_error err = {0};
    for (int i = 0; i < 3000; i++) {
        struct score_pair p = {.kl = (i * 7) % 3000, .nll = 2, .base_nll = 1.5, .delta_p = i % 2 ? 0.3 : -0.4, .same_best = i % 4 != 0};
        OK(score_pairs_add(&s, &p, &err));
    }
    score_pairs_sort(&s);
    for (int i = 0; i < 3000; i++)
        CHECK(s.kls[i] == i);
    CHECK(s.kl.n == 3000 && near(s.kl.mean, 1499.5, 1e-9) && near(s.ratio.mean, 0.5, 1e-12) && near(score_error(&s.ratio), 0, 1e-12));
    CHECK(near(s.same_best.mean, 0.75, 1e-12) && near(score_error(&s.same_best), sqrt(0.75 * 0.25 / 2999), 1e-12));
    CHECK(near(s.delta_p.mean, -0.05, 1e-12) && near(s.delta_p2.mean, 0.125, 1e-12) && near(s.base_nll.mean, 1.5, 1e-12));
    score_pairs_free(&s);
    CHECK(!s.kls);
}

/* ---- files ---- */

static const struct score_shape shape = {.n_vocab = 3, .chunk_size = 4, .score_from = 1, .n_chunks = 2};
static const int32_t ids[] = {0, 1, 2, 0, 2, 1, 0, 1};
static const float rows[4][3] = {{1, 2, 3}, {0, 0, 0}, {-5, 4, 4}, {9, 0, -50}};

static void write_base(const char *name, int n_rows)
{
    struct score_base_writer w;
    skua_error err = {0};
    OK(score_base_create(&w, temp_path(name), &shape, ids, &err));
    for (int i = 0; i < n_rows; i++)
        OK(score_base_write(&w, rows[i], norm_of(rows[i], 3), i % 3, &err));
    if (n_rows == 4) {
        CHECK_INT(score_base_write(&w, rows[0], 0, 0, &err), SKUA_ESTATE);
        OK(score_base_finish(&w, &err));
    } else {
        CHECK_INT(score_base_finish(&w, &err), SKUA_ESTATE);
        CHECK(strstr(err.message, "rows are missing"));
    }
    score_base_abort(&w);
}

static void test_file(void **state)
{
    (void)state;
    struct score_base b;
    skua_error err = {0};
    write_base("half", 3);
    CHECK_INT(temp_entries(false), 0);
    write_base("base", 4);
    int fd = lowest_fd();
    OK(score_base_open(&b, temp_path("base"), &err));
    CHECK(!memcmp(&b.shape, &shape, sizeof shape) && b.map.size == 32 + 8 * 4 + 4 * 20);
    for (int i = 0; i < 8; i++)
        CHECK_INT(score_base_id(&b, i), ids[i]);
    for (int i = 0; i < 4; i++) {
        struct score_row row;
        OK(score_base_row(&b, i / 2, i % 2, &row, &err));
        CHECK(near(row.target, rows[i][i % 3] - norm_of(rows[i], 3), 1e-6));
        CHECK(near(score_compare(&row, rows[i], 3, norm_of(rows[i], 3), 0).kl, 0, 1e-7));
    }
    score_base_close(&b);
    CHECK_INT(lowest_fd(), fd);
    CHECK_INT(temp_maps(), 0);
}

static void check_refused(char *bytes, size_t n, const char *text)
{
    struct score_base b;
    skua_error err = {0};
    temp_write("bad", bytes, n);
    int rc = score_base_open(&b, temp_path("bad"), &err);
    if (!rc || !strstr(err.message, text))
        printf("%d '%s', expected '%s'\n", rc, err.message, text);
    CHECK(rc && err.code == rc && strstr(err.message, text) && strstr(err.message, "bad: ") && !b.map.data);
}

static void test_file_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint32_t v;
        const char *text;
    } wrong[] = {
        {0, 0, "is no file of base"}, {8, 2, "version 2 of the format, expected 1"}, {12, 0, "vocabulary of 0"},
        {12, 0x80000000u, "impossible header"}, {12, 0x7FFFFFFFu, "do not fit its header"}, {12, 5, "do not fit"},
        {16, 1, "impossible header"}, {16, 0x7FFFFFFFu, "do not fit"}, {20, 3, "scored from 3"},
        {20, 0xFFFFFFFFu, "impossible header"}, {24, 0, "0 chunks"},
        {24, 0x7FFFFFFFu, "do not fit"}, {28, 1, "impossible header"}, {36, 3, "token 1 is 3, outside of its vocabulary of 3"},
        {40, 0xFFFFFFFFu, "token 2 is -1"},
    };
    skua_error err = {0};
    char *bytes;
    size_t n;
    write_base("base", 4);
    OK(file_read_all(temp_path("base"), 1 << 20, &bytes, &n, &err));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint32_t before;
        memcpy(&before, bytes + wrong[i].at, 4);
        memcpy(bytes + wrong[i].at, &wrong[i].v, 4);
        check_refused(bytes, n, wrong[i].text);
        memcpy(bytes + wrong[i].at, &before, 4);
    }
    for (size_t k = 0; k < n; k++)
        check_refused(bytes, k, k < 32 ? "is no file of base" : "do not fit its header");
    static const struct {
        size_t at;
        float v;
        const char *text;
    } rows_wrong[] = {
        {64, NAN, "step of nan"}, {64, -1, "step of -1"}, {64, 0.1f, "step of 0.1"}, {68, 0.5f, "log-probability of 0.5"},
        {68, -INFINITY, "log-probability of -inf"}, {72, -1, "as the most likely one of 3"},
    };
    for (size_t i = 0; i < sizeof rows_wrong / sizeof *rows_wrong; i++) {
        struct score_base b;
        struct score_row row;
        float before;
        memcpy(&before, bytes + rows_wrong[i].at, 4);
        memcpy(bytes + rows_wrong[i].at, &rows_wrong[i].v, 4);
        temp_write("bad", bytes, n);
        OK(score_base_open(&b, temp_path("bad"), &err));
        CHECK_INT(score_base_row(&b, 0, 0, &row, &err), SKUA_EFORMAT);
        CHECK(strstr(err.message, rows_wrong[i].text) && strstr(err.message, "row 0"));
        OK(score_base_row(&b, 1, 1, &row, &err));
        score_base_close(&b);
        memcpy(bytes + rows_wrong[i].at, &before, 4);
    }
    mem_free(bytes);
    struct score_base b;
    CHECK_INT(score_base_open(&b, temp_path("none"), &err), SKUA_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),    cmocka_unit_test(test_percentiles), cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_rounding), cmocka_unit_test(test_pairs),       cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_refused),
    };
    return finish_checks("test_score", cmocka_run_group_tests(tests, temp_setup, temp_teardown));
}
