/* Parameter ranges, defaults and their sources, log-probabilities. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sample/defaults.h"
#include "sample/logprob.h"

static unsigned long checks;
#define CHECK(x) (checks++, assert_true(x))

static const skua_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};

static void set(skua_sampling *p, enum sampler_field f, double v)
{
    switch (f) {
    case SAMPLER_TEMPERATURE: p->temperature = v; break;
    case SAMPLER_TOP_K: p->top_k = (int32_t)v; break;
    case SAMPLER_TOP_P: p->top_p = v; break;
    case SAMPLER_MIN_P: p->min_p = v; break;
    case SAMPLER_REPETITION_PENALTY: p->repetition_penalty = v; break;
    case SAMPLER_PRESENCE_PENALTY: p->presence_penalty = v; break;
    case SAMPLER_FREQUENCY_PENALTY: p->frequency_penalty = v; break;
    case SAMPLER_PENALTY_LAST_N: p->penalty_last_n = (int32_t)v; break;
    case SAMPLER_SEED: p->seed = (uint64_t)v; break;
    case SAMPLER_FIELD_COUNT: break;
    }
}

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        enum sampler_field f;
        double v;
        const char *message; /* NULL = fine */
    } cases[] = {
        {SAMPLER_TEMPERATURE, 0, NULL},
        {SAMPLER_TEMPERATURE, 2, NULL},
        {SAMPLER_TEMPERATURE, 2.5, "temperature is 2.5, expected a number from 0 to 2"},
        {SAMPLER_TEMPERATURE, -1e-9, "temperature is -1e-09, expected a number from 0 to 2"},
        {SAMPLER_TEMPERATURE, NAN, ""},
        {SAMPLER_TOP_K, -1, NULL},
        {SAMPLER_TOP_K, INT32_MAX, NULL},
        {SAMPLER_TOP_K, -2, "top_k is -2, expected an integer of at least 0, or -1 for off"},
        {SAMPLER_TOP_P, 0, NULL},
        {SAMPLER_TOP_P, 1, NULL},
        {SAMPLER_TOP_P, 1.01, "top_p is 1.01, expected a number from 0 to 1"},
        {SAMPLER_MIN_P, 1, NULL},
        {SAMPLER_MIN_P, -0.1, "min_p is -0.1, expected a number from 0 to 1"},
        {SAMPLER_REPETITION_PENALTY, 2, NULL},
        {SAMPLER_REPETITION_PENALTY, 1e-6, NULL},
        {SAMPLER_REPETITION_PENALTY, 0, "repetition_penalty is 0, expected a number above 0, at most 2"},
        {SAMPLER_REPETITION_PENALTY, 2.1, "repetition_penalty is 2.1, expected a number above 0, at most 2"},
        {SAMPLER_PRESENCE_PENALTY, -2, NULL},
        {SAMPLER_PRESENCE_PENALTY, 2.01, "presence_penalty is 2.01, expected a number from -2 to 2"},
        {SAMPLER_FREQUENCY_PENALTY, 2, NULL},
        {SAMPLER_FREQUENCY_PENALTY, -3, "frequency_penalty is -3, expected a number from -2 to 2"},
        {SAMPLER_FREQUENCY_PENALTY, INFINITY, ""},
        {SAMPLER_PENALTY_LAST_N, -1, NULL},
        {SAMPLER_PENALTY_LAST_N, -2, "penalty_last_n is -2, expected an integer of at least 0, or -1 for everything"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skua_sampling p = plain;
        skua_error err;
        set(&p, cases[i].f, cases[i].v);
        int rc = sampler_params_check(&p, 10, &err);
        CHECK(rc == (cases[i].message ? SKUA_EARG : 0));
        CHECK(!cases[i].message || !*cases[i].message || strcmp(err.message, cases[i].message) == 0);
    }
    skua_sampling p = plain;
    p.seed = UINT64_MAX;
    CHECK(sampler_params_check(&p, 10, NULL) == 0);
}

static void test_bias_list(void **state)
{
    (void)state;
    static skua_logit_bias many[SAMPLER_MAX_BIAS + 1];
    skua_logit_bias bias[3] = {{0, -100}, {9, 100}, {4, 0.5f}};
    skua_sampling p = plain;
    skua_error err;
    p.bias = bias;
    p.n_bias = 3;
    CHECK(sampler_params_check(&p, 10, &err) == 0);
    CHECK(sampler_params_check(&p, 9, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "logit_bias names token 9, expected an id from 0 to 8") == 0);
    bias[2].id = 9;
    CHECK(sampler_params_check(&p, 10, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "logit_bias names token 9 twice, expected each token once") == 0);
    bias[2] = (skua_logit_bias){3, -100.5f};
    CHECK(sampler_params_check(&p, 10, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "logit_bias of token 3 is -100.5, expected a number from -100 to 100") == 0);
    for (int i = 0; i <= SAMPLER_MAX_BIAS; i++)
        many[i].id = i;
    p.bias = many;
    p.n_bias = SAMPLER_MAX_BIAS;
    CHECK(sampler_params_check(&p, SAMPLER_MAX_BIAS, &err) == 0);
    p.n_bias++;
    CHECK(sampler_params_check(&p, SAMPLER_MAX_BIAS + 1, &err) == SKUA_EARG);
}

static bool comes_from(const struct sampler_settings *s, enum sampler_field f, const char *source, double v)
{
    return strcmp(sampler_source_name(s->source[f]), source) == 0 && sampler_field_value(&s->params, f) == v;
}

static void test_defaults(void **state)
{
    (void)state;
    struct sampler_settings s;
    struct sampler_partial file = {0}, user = {0};
    skua_error err;
    CHECK(sampler_resolve(&s, true, NULL, NULL, 10, &err) == 0);
    CHECK(comes_from(&s, SAMPLER_TEMPERATURE, "family", 1) && comes_from(&s, SAMPLER_TOP_P, "family", 0.95));
    CHECK(comes_from(&s, SAMPLER_TOP_K, "family", 20) && comes_from(&s, SAMPLER_MIN_P, "family", 0));
    CHECK(comes_from(&s, SAMPLER_REPETITION_PENALTY, "family", 1) && comes_from(&s, SAMPLER_PRESENCE_PENALTY, "builtin", 0));
    CHECK(comes_from(&s, SAMPLER_FREQUENCY_PENALTY, "builtin", 0) && comes_from(&s, SAMPLER_PENALTY_LAST_N, "builtin", 64));
    CHECK(comes_from(&s, SAMPLER_SEED, "builtin", 0));
    CHECK(sampler_resolve(&s, false, &file, &user, 10, &err) == 0);
    CHECK(comes_from(&s, SAMPLER_TEMPERATURE, "family", 0.7) && comes_from(&s, SAMPLER_TOP_P, "family", 0.8));
    /* each field alone from the file, then from the user over the file */
    for (int f = 0; f < SAMPLER_FIELD_COUNT; f++) {
        enum sampler_field field = (enum sampler_field)f;
        double other = 0.5;
        file = user = (struct sampler_partial){0};
        file.given = 1u << f;
        set(&file.value, field, 1);
        user.given = 1u << f;
        set(&user.value, field, other);
        other = sampler_field_value(&user.value, field);
        CHECK(sampler_resolve(&s, false, &file, NULL, 10, &err) == 0 && comes_from(&s, field, "file", 1));
        for (int g = 0; g < SAMPLER_FIELD_COUNT; g++)
            CHECK(g == f || s.source[g] <= SAMPLER_SOURCE_FAMILY);
        CHECK(sampler_resolve(&s, false, &file, &user, 10, &err) == 0 && comes_from(&s, field, "user", other));
    }
    file = user = (struct sampler_partial){0};
    file.given = 1u << SAMPLER_TEMPERATURE;
    file.value.temperature = -3;
    CHECK(sampler_resolve(&s, true, &file, NULL, 10, &err) == SKUA_EARG);
    CHECK(strcmp(err.message, "the model file's general.sampling.temp: temperature is -3, expected a number from 0 to 2") == 0);
    user.given = 1u << SAMPLER_TEMPERATURE; /* 0 from the user hides it */
    CHECK(sampler_resolve(&s, true, &file, &user, 10, &err) == 0 && comes_from(&s, SAMPLER_TEMPERATURE, "user", 0));
    skua_logit_bias bias = {11, 1};
    user.value.bias = &bias;
    user.value.n_bias = 1;
    CHECK(sampler_resolve(&s, true, NULL, &user, 10, &err) == SKUA_EARG);
    CHECK(sampler_resolve(&s, true, NULL, &user, 12, &err) == 0 && s.params.n_bias == 1 && s.params.bias == &bias);
    CHECK(strcmp(sampler_field_name(SAMPLER_TOP_P), "top_p") == 0 && !sampler_field_key(SAMPLER_SEED));
}

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = 500, TOP = 25 };
    static float z[N];
    uint64_t rng = 5;
    for (int trial = 0; trial < 200; trial++) {
        struct token_logprob top[TOP];
        double norm, sum = 0, max = -INFINITY;
        for (int i = 0; i < N; i++) {
            z[i] = (float)(rng_next(&rng) % 2000) / 100 - 10; /* ties */
            max = z[i] > max ? (double)z[i] : max;
        }
        for (int i = 0; i < N; i++)
            sum += exp(z[i] - max);
        CHECK(logprob_norm(z, N, &norm, NULL) == 0 && fabs(norm - (max + log(sum))) < 1e-12);
        logprob_top(z, N, norm, top, TOP);
        for (int k = 0; k < TOP; k++) {
            int better = 0;
            for (int i = 0; i < N; i++)
                better += z[i] > z[top[k].id] || (z[i] == z[top[k].id] && i < top[k].id);
            CHECK(better == k && top[k].logprob == logprob_of(z[top[k].id], norm));
            CHECK(fabs(top[k].logprob - (z[top[k].id] - max - log(sum))) < 1e-12);
        }
    }
    float few[3] = {-INFINITY, 0, -20000};
    struct token_logprob top[3];
    double norm;
    skua_error err;
    CHECK(logprob_norm(few, 3, &norm, NULL) == 0 && norm == 0);
    logprob_top(few, 3, norm, top, 3);
    CHECK(top[0].id == 1 && top[0].logprob == 0 && top[1].id == 2 && top[1].logprob == -9999);
    CHECK(top[2].id == 0 && top[2].logprob == -9999);
    logprob_top(few, 3, norm, top, 0);
    few[2] = NAN;
    CHECK(logprob_norm(few, 3, &norm, &err) == SKUA_ESTATE);
    CHECK(strcmp(err.message, "the logit of token 2 is NaN, expected a finite number") == 0);
    few[2] = INFINITY;
    CHECK(logprob_norm(few, 3, &norm, &err) == SKUA_ESTATE);
    few[1] = few[2] = -INFINITY;
    CHECK(logprob_norm(few, 3, &norm, &err) == SKUA_ESTATE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bias_list),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_logprobs),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    printf("%lu checks\n", checks);
    return failed || !checks;
}
