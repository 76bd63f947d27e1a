/* Splitting and merging: names, keys and sizes of shards, every tensor back through the reader, the whole file back byte for byte, limits,
   and what is left after a failure. */
#include "gguf_temp.h"

#include "convert/shards.h"

#define N_TENSORS 9

struct variant {
    uint32_t alignment;   /* of the data */
    bool states_alignment;
    size_t text_bytes;    /* of a long key */
};

static const struct variant variants[] = {{32, false, 10}, {32, true, 10}, {64, true, 10}, {8, true, 5000}};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static void append_tensor_infos(struct strbuf *b, uint32_t alignment)
{
    uint64_t offset = 0;
    for (uint64_t i = 0; i < N_TENSORS; i++) {
        uint64_t ne[3] = {32, 1 + i * 5, 2};
        char name[32];
        snprintf(name, sizeof name, "blk.%d.some.weight", (int)i);
        put_tensor(b, name, i % 3 == 0 ? 3 : 2, ne, QTYPE_Q8_0, offset);
        uint64_t size = ne[1] * (i % 3 == 0 ? 2 : 1) * 34;
        offset += (size + alignment - 1) / alignment * alignment;
    }
}

/* A file as the writer writes it, with the alignment key in an odd place. */
static void whole_bytes(struct strbuf *b, const struct variant *v)
{
    put_header(b, N_TENSORS, 3u + v->states_alignment);
    put_key(b, "general.architecture", GGUF_STRING);
    put_str(b, "qwen35");
    put_key(b, "a.text", GGUF_STRING);
    put_u64(b, v->text_bytes);
    put_zeros(b, v->text_bytes);
    if (v->states_alignment)
        put_key_u32(b, "general.alignment", v->alignment);
    put_key_u32(b, "a.last", 7);
    append_tensor_infos(b, v->alignment);
    put_padding(b, v->alignment);
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        uint32_t size = (1 + i * 5) * (i % 3 == 0 ? 2 : 1) * 34;
        for (uint32_t k = 0; k < size; k++)
            put_u8(b, (uint8_t)(k * 7 + i * 31));
        put_padding(b, v->alignment);
    }
}

static bool file_is(const char *path, const void *want, size_t n)
{
    char *data = NULL;
    size_t size = 0;
    skua_error err;
    bool same = file_read_all(path, 1 << 24, &data, &size, &err) == 0 && size == n && memcmp(data, want, n) == 0;
    mem_free(data);
    return same;
}

static uint64_t last_done, last_total;

static void watch(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    CHECK(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
}

static struct gguf *open_file(const char *path)
{
    struct gguf *g = NULL;
    skua_error err = {0};
    if (gguf_open(&g, path, &err))
        printf("%s\n", err.message);
    assert_non_null(g);
    return g;
}

static void check_split_keys(const char *path, uint32_t no, uint32_t count, uint32_t n_keys)
{
    struct gguf *g = NULL;
    char *data = NULL;
    size_t size;
    skua_error err;
    struct gguf_value v;
    CHECK_INT(file_read_all(path, 1 << 24, &data, &size, &err), 0);
    CHECK_INT(gguf_parse_memory(&g, (const uint8_t *)data, size, "shard", NULL, &err), 0);
    CHECK_INT(gguf_key_count(g), n_keys);
    CHECK(gguf_find_key(g, "split.no", &v) && v.type == GGUF_U16 && v.u == no);
    CHECK(gguf_find_key(g, "split.count", &v) && v.type == GGUF_U16 && v.u == count);
    CHECK(gguf_find_key(g, "split.tensors.count", &v) && v.type == GGUF_I32 && v.i == N_TENSORS);
    gguf_close(g);
    mem_free(data);
}

/* Split, look at every shard, merge. Returns the number of shards. */
static uint32_t round_trip(const struct variant *v, struct shard_limits limits)
{
    struct strbuf whole = {0};
    struct shard_plan plan;
    struct stream s = {.progress = watch};
    skua_error err = {0};
    temp_entries(true);
    whole_bytes(&whole, v);
    temp_write("whole.gguf", whole.data, whole.len);
    struct gguf *g = open_file(temp_path("whole.gguf"));
    CHECK_INT(shards_plan(g, limits, &plan, &err), 0);
    last_done = 0;
    CHECK_INT(shards_split(g, &plan, temp_path("part"), &s, &err), 0);
    CHECK(last_done == last_total && last_total > 0);
    CHECK_INT(temp_entries(false), (int)plan.n + 1);
    uint32_t next = 0;
    for (uint32_t no = 0; no < plan.n; no++) {
        char name[64];
        struct stat st;
        snprintf(name, sizeof name, "part-%05u-of-%05u.gguf", no + 1, plan.n);
        assert_int_equal(stat(temp_path(name), &st), 0);
        CHECK_INT(st.st_size, plan.parts[no].bytes);
        CHECK_INT(plan.parts[no].begin, next);
        next = plan.parts[no].end;
        uint32_t n = plan.parts[no].end - plan.parts[no].begin;
        CHECK(!limits.max_tensors || n <= limits.max_tensors);
        CHECK(!limits.max_bytes || plan.parts[no].bytes <= limits.max_bytes || n <= (no != 0));
        check_split_keys(temp_path(name), no, plan.n, no ? 3 : 6u + v->states_alignment);
    }
    CHECK_INT(next, N_TENSORS);
    char first[64];
    snprintf(first, sizeof first, "part-00001-of-%05u.gguf", plan.n);
    struct gguf *set = open_file(temp_path(first));
    CHECK_INT(gguf_shard_count(set), plan.n);
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        const struct gguf_tensor *was = gguf_tensor_at(g, i), *is = gguf_tensor_at(set, i);
        CHECK(is->name_len == was->name_len && memcmp(is->name, was->name, was->name_len) == 0);
        CHECK_MEM(is->ne, was->ne, sizeof is->ne);
        CHECK_INT(is->size_bytes, was->size_bytes);
        CHECK_MEM(is->data, was->data, was->size_bytes);
    }
    last_done = 0;
    CHECK_INT(shards_merge(set, temp_path("again.gguf"), &s, &err), 0);
    CHECK(last_done == last_total);
    CHECK(file_is(temp_path("again.gguf"), whole.data, whole.len));
    uint32_t n = plan.n;
    shards_plan_free(&plan);
    gguf_close(set);
    gguf_close(g);
    strbuf_free(&whole);
    return n;
}

static void test_round_trips(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_VARIANTS; i++) {
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_tensors = 1}), 9);
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_tensors = 4}), 3);
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_tensors = 9}), 1);
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_tensors = 1000}), 1);
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_bytes = 1u << 30}), 1);
        for (uint64_t bytes = 1; bytes < 8000; bytes += 399)
            CHECK(round_trip(&variants[i], (struct shard_limits){.max_bytes = bytes, .max_tensors = bytes % 2 ? 3 : 0}) > 1);
        /* no tensor fits beside the keys, or anywhere: the first shard is empty, the others have one each */
        CHECK_INT(round_trip(&variants[i], (struct shard_limits){.max_bytes = 1}), 10);
    }
    /* exactly at the limit, and one byte less */
    struct strbuf whole = {0};
    struct shard_plan plan;
    skua_error err;
    whole_bytes(&whole, &variants[0]);
    temp_write("whole.gguf", whole.data, whole.len);
    strbuf_free(&whole);
    struct gguf *g = open_file(temp_path("whole.gguf"));
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_bytes = 1u << 30}, &plan, &err), 0);
    uint64_t all = plan.parts[0].bytes;
    shards_plan_free(&plan);
    for (uint64_t less = 0; less < 2; less++) {
        CHECK_INT(shards_plan(g, (struct shard_limits){.max_bytes = all - less}, &plan, &err), 0);
        CHECK_INT(plan.n, 1 + less);
        shards_plan_free(&plan);
    }
    gguf_close(g);
}

/* A set can be split anew. */
static void test_split_again(void **state)
{
    (void)state;
    struct shard_plan plan;
    struct stream s = {0};
    skua_error err = {0};
    struct strbuf whole = {0};
    whole_bytes(&whole, &variants[2]);
    round_trip(&variants[2], (struct shard_limits){.max_tensors = 4});
    struct gguf *g = open_file(temp_path("part-00001-of-00003.gguf"));
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_tensors = 2}, &plan, &err), 0);
    CHECK_INT(shards_split(g, &plan, temp_path("part"), &s, &err), 0); /* another number: other names */
    shards_plan_free(&plan);
    gguf_close(g);
    g = open_file(temp_path("part-00001-of-00005.gguf"));
    CHECK_INT(shards_merge(g, temp_path("again.gguf"), &s, &err), 0);
    CHECK(file_is(temp_path("again.gguf"), whole.data, whole.len));
    CHECK_INT(shards_merge(g, temp_path("part-00003-of-00005.gguf"), &s, &err), SKUA_EARG);
    CHECK(strstr(err.message, "part-00003-of-00005.gguf: is the input") != NULL);
    gguf_close(g);
    strbuf_free(&whole);
}

static void test_failures(void **state)
{
    (void)state;
    struct strbuf whole = {0};
    struct shard_plan plan;
    atomic_int stop = 1;
    struct stream s = {.stop = &stop}, go = {0};
    skua_error err = {0};
    temp_entries(true);
    whole_bytes(&whole, &variants[0]);
    temp_write("whole.gguf", whole.data, whole.len);
    struct gguf *g = open_file(temp_path("whole.gguf"));
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_tensors = 3}, &plan, &err), 0);
    CHECK_INT(shards_split(g, &plan, temp_path("p"), &s, &err), SKUA_ECANCELED);
    CHECK(strstr(err.message, "interrupted; ") != NULL);
    CHECK_INT(shards_merge(g, temp_path("m.gguf"), &s, &err), SKUA_ECANCELED);
    CHECK_INT(temp_entries(false), 1);
    /* what is there already is not touched, and nothing is written beside it */
    temp_write("p-00002-of-00003.gguf", "old", 3);
    CHECK_INT(shards_split(g, &plan, temp_path("p"), &go, &err), SKUA_EARG);
    CHECK(strstr(err.message, "p-00002-of-00003.gguf: is there already") != NULL);
    CHECK(file_is(temp_path("p-00002-of-00003.gguf"), "old", 3));
    CHECK_INT(temp_entries(false), 2);
    remove(temp_path("p-00002-of-00003.gguf"));
    CHECK_INT(shards_split(g, &plan, temp_path("no-folder/p"), &go, &err), SKUA_EIO);
    CHECK(strstr(err.message, "no-folder/p-00001-of-00003.gguf") != NULL);
    /* every allocation and every file operation: an error and an unchanged folder, or all of it */
    for (int kind = 0; kind < 2; kind++)
        for (uint64_t n = 1, done = 0; !done; n++) {
            size_t live = mem_live_blocks();
            struct shard_plan again;
            (kind ? fault_set_io : fault_set_alloc)(n, n % 2);
            int rc = shards_plan(g, (struct shard_limits){.max_tensors = 3}, &again, &err);
            rc = rc ? rc : shards_split(g, &again, temp_path("p"), &go, &err);
            done = (kind ? fault_io_count : fault_alloc_count)() < n;
            (kind ? fault_set_io : fault_set_alloc)(0, false);
            shards_plan_free(&again);
            CHECK_INT(rc, done ? 0 : kind ? SKUA_EIO : SKUA_ENOMEM);
            CHECK_INT(temp_entries(false), done ? 4 : 1);
            CHECK_INT(mem_live_blocks(), live);
            if (done) {
                temp_entries(true);
                temp_write("whole.gguf", whole.data, whole.len);
            }
        }
    shards_plan_free(&plan);
    gguf_close(g);
    strbuf_free(&whole);
}

static void test_too_many(void **state)
{
    (void)state;
    struct strbuf b = {0};
    struct shard_plan plan;
    skua_error err = {0};
    const uint64_t ne = 8;
    put_header(&b, 1025, 0);
    for (int i = 0; i < 1025; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        put_tensor(&b, name, 1, &ne, QTYPE_F32, (uint64_t)i * 32);
    }
    put_padding(&b, 32);
    put_zeros(&b, 1025 * 32);
    temp_write("many.gguf", b.data, b.len);
    strbuf_free(&b);
    struct gguf *g = open_file(temp_path("many.gguf"));
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_tensors = 1}, &plan, &err), SKUA_ELIMIT);
    CHECK(strstr(err.message, "more than 1024 shards") != NULL && plan.parts == NULL);
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_tensors = 2}, &plan, &err), 0);
    CHECK_INT(plan.n, 513);
    shards_plan_free(&plan);
    gguf_close(g);
    /* no tensors at all */
    put_header(&b, 0, 0);
    temp_write("none.gguf", b.data, b.len);
    strbuf_free(&b);
    g = open_file(temp_path("none.gguf"));
    CHECK_INT(shards_plan(g, (struct shard_limits){.max_bytes = 1}, &plan, &err), 0);
    CHECK(plan.n == 1 && plan.parts[0].end == 0);
    shards_plan_free(&plan);
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_split_again),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_too_many),
    };
    temp_make();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    temp_remove();
    return finish_checks("test_shards", failed);
}
