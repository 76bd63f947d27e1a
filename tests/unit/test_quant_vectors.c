/* src/quant against the published vectors (spec/quant_vectors.json, spec/iq2_grids.json of the shared data): every block
   and row bit for bit. Without the shared data those checks are skipped and counted; the codebook sums always run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/iq2_grid.h"
#include "quant/quant.h"

#define ROW 256 /* elements of every quantize and dot row */
#define MAX_BYTES 4096

static unsigned long checks, skipped;
#define CHECK(x) (checks++, assert_true(x))

static json_t *vectors, *grids;

static json_t *load(const char *name)
{
    const char *root = getenv("SKUA_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/spec/%s", root ? root : "../shared", name);
    return json_load_file(path, 0, NULL);
}

/* Hex text to bytes; returns their number. */
static size_t unhex(const json_t *text, void *out, size_t room)
{
    const char *s = json_string_value(text);
    assert_non_null(s);
    size_t n = strlen(s) / 2;
    assert_true(n <= room);
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {s[2 * i], s[2 * i + 1], 0};
        ((uint8_t *)out)[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static uint32_t hex_number(const json_t *text)
{
    return (uint32_t)strtoul(json_string_value(text), NULL, 16);
}

static uint32_t type_id(const json_t *type) { return (uint32_t)json_integer_value(json_object_get(type, "id")); }

/* One input row of the file by name, NULL for JSON null. */
static const float *input(const json_t *name, float *room)
{
    if (json_is_null(name))
        return NULL;
    const json_t *text = json_object_get(json_object_get(vectors, "inputs"), json_string_value(name));
    assert_int_equal(unhex(text, room, ROW * sizeof *room), ROW * sizeof *room);
    return room;
}

static void test_dequant(void **state)
{
    (void)state;
    if (!vectors) {
        skipped += 117;
        skip();
    }
    size_t blocks = 0, i;
    const char *name;
    json_t *type, *entry;
    json_object_foreach(json_object_get(vectors, "types"), name, type) {
        const struct qtype_info *info = qtype_info(type_id(type));
        CHECK(info && strcmp(info->name, name) == 0);
        CHECK(info->block_elements == json_integer_value(json_object_get(type, "block")));
        CHECK(info->block_bytes == json_integer_value(json_object_get(type, "bytes")));
        json_array_foreach(json_object_get(type, "dequant"), i, entry) {
            uint8_t block[MAX_BYTES];
            float expected[ROW], got[ROW];
            size_t bytes = unhex(json_object_get(entry, "hex"), block, sizeof block);
            size_t n = unhex(json_object_get(entry, "f32"), expected, sizeof expected) / sizeof(float);
            assert_int_equal(bytes, info->block_bytes);
            assert_int_equal(n, info->block_elements);
            memset(got, 0x55, sizeof got);
            assert_int_equal(dequant_row(type_id(type), block, got, (int64_t)n), 0);
            if (memcmp(got, expected, n * sizeof *got))
                print_error("%s dequant %s\n", name, json_string_value(json_object_get(entry, "name")));
            CHECK(memcmp(got, expected, n * sizeof *got) == 0);
            blocks++;
        }
    }
    assert_int_equal(blocks, 117);
}

static void test_quantize(void **state)
{
    (void)state;
    if (!vectors) {
        skipped += 255;
        skip();
    }
    size_t rows = 0, wrong = 0, i;
    const char *name;
    json_t *type, *entry;
    json_object_foreach(json_object_get(vectors, "types"), name, type)
        json_array_foreach(json_object_get(type, "quantize"), i, entry) {
            uint8_t expected[MAX_BYTES], got[MAX_BYTES];
            float x[ROW], imp[ROW];
            skua_error err = {0};
            size_t bytes = unhex(json_object_get(entry, "hex"), expected, sizeof expected);
            const float *weights = input(json_object_get(entry, "imatrix"), imp);
            assert_int_equal(bytes, qtype_row_bytes(type_id(type), ROW));
            memset(got, 0x55, sizeof got);
            int rc = quantize_row(type_id(type), input(json_object_get(entry, "x"), x), got, ROW, weights, &err);
            if (rc || memcmp(got, expected, bytes)) {
                print_error("%s quantize %s %s: rc %d %s\n", name, json_string_value(json_object_get(entry, "x")),
                            weights ? "imatrix" : "", rc, err.message);
                wrong++;
            }
            checks++;
            rows++;
        }
    assert_int_equal(wrong, 0);
    assert_int_equal(rows, 255);
}

/* The listed result of one dot product is near to the same sum in double. The affine types Q4_1 and Q5_1 use the rounded
   sum that a Q8_1 block stores. */
static void check_dot(uint32_t type, const json_t *entry)
{
    uint8_t w[MAX_BYTES], act[MAX_BYTES];
    float wx[ROW], ax[ROW], listed;
    int act_type = qtype_from_name(json_string_value(json_object_get(entry, "act_type")));
    assert_int_equal(unhex(json_object_get(entry, "w"), w, sizeof w), qtype_row_bytes(type, ROW));
    assert_int_equal(unhex(json_object_get(entry, "act"), act, sizeof act), qtype_row_bytes((uint32_t)act_type, ROW));
    unhex(json_object_get(entry, "f32"), &listed, sizeof listed);
    assert_int_equal(dequant_row(type, w, wx, ROW), 0);
    assert_int_equal(dequant_row((uint32_t)act_type, act, ax, ROW), 0);

    double sum = 0, magnitude = 0;
    for (int i = 0; i < ROW; i++) {
        double term = (double)wx[i] * (double)ax[i];
        if (act_type == QTYPE_Q8_1) {
            const struct block_q8_1 *a = (const struct block_q8_1 *)act + i / QK32;
            const uint8_t *b = w + (size_t)(i / QK32) * qtype_info(type)->block_bytes;
            double m = (double)f16_to_f32((uint16_t)(b[2] | b[3] << 8));
            term += m * ((double)f16_to_f32(a->s) / QK32 - (double)ax[i]);
        }
        sum += term;
        magnitude += fabs(term);
    }
    if (!(fabs(sum - (double)listed) <= 1e-5 * magnitude))
        print_error("type %u: %.9g, listed %.9g, magnitude %g\n", (unsigned)type, sum, (double)listed, magnitude);
    CHECK(fabs(sum - (double)listed) <= 1e-5 * magnitude);
}

static void test_dot(void **state)
{
    (void)state;
    if (!vectors) {
        skipped += 32;
        skip();
    }
    size_t dots = 0, i;
    const char *name;
    json_t *type, *entry;
    json_object_foreach(json_object_get(vectors, "types"), name, type)
        json_array_foreach(json_object_get(type, "dot"), i, entry) {
            check_dot(type_id(type), entry);
            dots++;
        }
    assert_int_equal(dots, 32);
}

static void test_scalar_tables(void **state)
{
    (void)state;
    if (!vectors) {
        skipped += 359;
        skip();
    }
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(vectors, "f16_to_f32"), i, row)
        CHECK(f32_to_bits(f16_to_f32((uint16_t)hex_number(json_array_get(row, 0)))) == hex_number(json_array_get(row, 1)));
    json_array_foreach(json_object_get(vectors, "f32_to_f16"), i, row)
        CHECK(f32_to_f16(f32_from_bits(hex_number(json_array_get(row, 0)))) == hex_number(json_array_get(row, 1)));
    json_array_foreach(json_object_get(vectors, "f32_to_bf16_rne"), i, row)
        CHECK(f32_to_bf16(f32_from_bits(hex_number(json_array_get(row, 0)))) == hex_number(json_array_get(row, 1)));
    json_array_foreach(json_object_get(vectors, "e8m0_half_to_f32"), i, row)
        CHECK(f32_to_bits(e8m0_half_to_f32((uint8_t)json_integer_value(json_array_get(row, 0)))) ==
              hex_number(json_array_get(row, 1)));
    json_array_foreach(json_object_get(vectors, "ue4m3_to_f32_half"), i, row)
        CHECK(f32_to_bits(ue4m3_half_to_f32((uint8_t)i)) == hex_number(row));
    json_array_foreach(json_object_get(vectors, "f32_to_ue4m3"), i, row)
        CHECK(f32_to_ue4m3(f32_from_bits(hex_number(json_array_get(row, 0)))) ==
              json_integer_value(json_array_get(row, 1)));
}

static void check_grid(const char *name, const uint16_t *codes, size_t n, unsigned long sum)
{
    unsigned long got = 0;
    for (size_t i = 0; i < n; i++) {
        got += codes[i];
        CHECK(i == 0 || codes[i] > codes[i - 1]);
        CHECK((codes[i] & codes[i] >> 1 & 0x5555) == 0); /* no digit 3 */
    }
    CHECK(got == sum);
    if (!grids) {
        skipped += n;
        return;
    }
    const json_t *list = json_object_get(json_object_get(grids, name), "codes");
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        CHECK(json_integer_value(json_array_get(list, i)) == codes[i]);
}

static void test_grids(void **state)
{
    (void)state;
    check_grid("iq2_xxs", iq2_xxs_codes, 256, 3697703);
    check_grid("iq2_s", iq2_s_codes, 1024, 16519059);
    CHECK(iq2_levels[0] == 8 && iq2_levels[1] == 25 && iq2_levels[2] == 43);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequant),       cmocka_unit_test(test_quantize), cmocka_unit_test(test_dot),
        cmocka_unit_test(test_scalar_tables), cmocka_unit_test(test_grids),
    };
    vectors = load("quant_vectors.json");
    grids = load("iq2_grids.json");
    int rc = cmocka_run_group_tests_name("quant_vectors", tests, NULL, NULL);
    json_decref(vectors);
    json_decref(grids);
    printf("quant_vectors: %lu checks, %lu skipped\n", checks, skipped);
    return rc != 0 || checks == 0;
}
