/* Split GGUF files: sets of shards in a temporary folder, right and wrong; failures of every allocation and every file
   operation while a set is opened. */
#include "gguf_temp.h"

#define NAME(no, count) "model-0000" #no "-of-0000" #count ".gguf"

/* What goes into one shard. Negative: the key is left out. */
struct shard {
    int no, count, total;
    int first_tensor, n_tensors; /* tensors t<first>, t<first+1>, ... of one f32 with value = number */
    uint32_t alignment;          /* 0: no key */
    uint32_t key_type;           /* of split.no and split.count: GGUF_U16 or GGUF_STRING */
};

static void put_split_key(struct strbuf *b, const char *name, uint32_t type, int v)
{
    put_key(b, name, type);
    if (type == GGUF_STRING)
        put_str(b, "1");
    else
        put_u16(b, (uint16_t)v);
}

static void write_shard(const char *name, struct shard s)
{
    struct strbuf b = {0};
    const uint64_t ne = 1;
    uint64_t n_keys = 1u + (s.no >= 0) + (s.count >= 0) + (s.total >= 0) + (s.alignment != 0);
    uint32_t alignment = s.alignment ? s.alignment : 32;
    put_header(&b, (uint64_t)s.n_tensors, n_keys);
    put_key_u32(&b, "own.key", (uint32_t)s.no);
    if (s.alignment)
        put_key_u32(&b, "general.alignment", s.alignment);
    if (s.no >= 0)
        put_split_key(&b, "split.no", s.key_type, s.no);
    if (s.count >= 0)
        put_split_key(&b, "split.count", s.key_type, s.count);
    if (s.total >= 0) {
        put_key(&b, "split.tensors.count", GGUF_I32);
        put_u32(&b, (uint32_t)s.total);
    }
    for (int i = 0; i < s.n_tensors; i++) {
        char tensor[16];
        snprintf(tensor, sizeof tensor, "t%d", s.first_tensor + i);
        put_tensor(&b, tensor, 1, &ne, QTYPE_F32, (uint64_t)i * alignment);
    }
    for (int i = 0; i < s.n_tensors; i++) {
        float v = (float)(s.first_tensor + i);
        put_padding(&b, alignment);
        strbuf_append(&b, &v, 4);
    }
    temp_write(name, b.data, b.len);
    strbuf_free(&b);
}

static void put_good_set(void)
{
    temp_entries(true);
    write_shard(NAME(1, 3), (struct shard){0, 3, 5, 0, 2, 64, GGUF_U16});
    write_shard(NAME(2, 3), (struct shard){1, 3, 5, 2, 0, 0, GGUF_U16}); /* a shard may be empty */
    write_shard(NAME(3, 3), (struct shard){2, 3, 5, 2, 3, 0, GGUF_U16}); /* and has its own alignment */
}

/* Opening must fail with the class; the message must hold the text. */
static void refused(const char *name, enum gguf_class want, const char *text)
{
    struct gguf *g = (struct gguf *)(uintptr_t)1;
    enum gguf_class class = GGUF_CLASS_END;
    skua_error err = {0};
    int fd = lowest_fd();
    int rc = gguf_open(&g, temp_path(name), &err);
    CHECK(rc < 0);
    CHECK(g == NULL);
    CHECK_INT(err.code, rc);
    if (!strstr(err.message, text))
        printf("message: %s\nwanted: %s\n", err.message, text);
    CHECK(strstr(err.message, text) != NULL);
    CHECK(want == GGUF_OK || strstr(err.message, gguf_class_name((int)want)) != NULL);
    CHECK_INT(gguf_check(temp_path(name), &class, NULL), rc);
    CHECK_INT(class, want);
    CHECK_INT(lowest_fd(), fd);
    CHECK_INT(temp_maps(), 0);
}

static void check_good_set(struct gguf *g)
{
    CHECK_INT(gguf_shard_count(g), 3);
    CHECK_INT(gguf_tensor_count(g), 5);
    CHECK_INT(gguf_alignment(g, 0), 64);
    CHECK_INT(gguf_alignment(g, 2), 32);
    CHECK(strstr(gguf_shard_path(g, 2), NAME(3, 3)) != NULL);
    CHECK(gguf_shard_path(g, 3) == NULL);
    CHECK(gguf_tensor_at(g, 5) == NULL);
    for (uint32_t i = 0; i < 5; i++) {
        char name[16];
        float v, want = (float)i;
        size_t size;
        snprintf(name, sizeof name, "t%u", i);
        const struct gguf_tensor *t = gguf_find_tensor(g, name);
        CHECK(t != NULL && t == gguf_tensor_at(g, i));
        CHECK_INT(t->shard, i < 2 ? 0 : 2);
        const uint8_t *base = gguf_shard_data(g, t->shard, &size);
        CHECK(t->data == base + t->file_offset && t->file_offset + t->size_bytes <= size);
        memcpy(&v, t->data, 4);
        CHECK(v == want);
    }
    uint32_t own = 9;
    CHECK_INT(gguf_get_u32(g, "own.key", &own, NULL), 1);
    CHECK_INT(own, 0); /* of the first shard */
}

static void test_good_set(void **state)
{
    (void)state;
    struct gguf *g;
    skua_error err;
    put_good_set();
    CHECK_INT(gguf_open(&g, temp_path(NAME(1, 3)), &err), 0);
    check_good_set(g);
    CHECK(temp_maps() >= 3);
    gguf_close(g);
    CHECK_INT(temp_maps(), 0);
    /* a relative name without a folder works as well */
    char cwd[4096];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(temp_dir), 0);
    int rc = gguf_open(&g, NAME(1, 3), &err);
    assert_int_equal(chdir(cwd), 0);
    CHECK_INT(rc, 0);
    check_good_set(g);
    gguf_close(g);
}

static void test_wrong_first(void **state)
{
    (void)state;
    put_good_set();
    refused(NAME(2, 3), GGUF_E_SPLIT, "shard 2 of 3; open the first one, '" NAME(1, 3) "'");
    refused(NAME(3, 3), GGUF_E_SPLIT, "'" NAME(1, 3) "'");
    assert_int_equal(rename(temp_path(NAME(2, 3)), temp_path("second.gguf")), 0);
    refused("second.gguf", GGUF_E_SPLIT, "name ends in '-00001-of-00003.gguf'");
    assert_int_equal(rename(temp_path(NAME(1, 3)), temp_path("renamed.gguf")), 0);
    refused("renamed.gguf", GGUF_E_SPLIT, "invalid split file name");
    assert_int_equal(rename(temp_path("renamed.gguf"), temp_path("m-00001-of-00004.gguf")), 0);
    refused("m-00001-of-00004.gguf", GGUF_E_SPLIT, "invalid split file name");
    assert_int_equal(rename(temp_path("m-00001-of-00004.gguf"), temp_path("-00001-of-00003.gguf")), 0);
    refused("-00001-of-00003.gguf", GGUF_E_SPLIT, "invalid split file name"); /* empty prefix */
}

static void test_missing_and_odd_files(void **state)
{
    (void)state;
    put_good_set();
    remove(temp_path(NAME(2, 3)));
    refused(NAME(1, 3), GGUF_E_SPLIT, NAME(2, 3) ": cannot open");
    assert_int_equal(mkdir(temp_path(NAME(2, 3)), 0700), 0);
    refused(NAME(1, 3), GGUF_E_SPLIT, NAME(2, 3) ": is not a regular file");
    assert_int_equal(rmdir(temp_path(NAME(2, 3))), 0);
    assert_int_equal(mkfifo(temp_path(NAME(2, 3)), 0600), 0);
    refused(NAME(1, 3), GGUF_E_SPLIT, NAME(2, 3) ": is not a regular file");
    remove(temp_path(NAME(2, 3)));
    assert_int_equal(symlink(NAME(2, 3), temp_path(NAME(2, 3))), 0); /* a loop */
    refused(NAME(1, 3), GGUF_E_SPLIT, NAME(2, 3) ": cannot open");
    remove(temp_path(NAME(2, 3)));
    assert_int_equal(symlink(NAME(1, 3), temp_path(NAME(2, 3))), 0); /* the same file twice */
    refused(NAME(1, 3), GGUF_E_SPLIT, NAME(2, 3) ": E_SPLIT: split.no is 0, expected 1");
    remove(temp_path(NAME(2, 3)));
    assert_int_equal(link(temp_path(NAME(3, 3)), temp_path(NAME(2, 3))), 0);
    refused(NAME(1, 3), GGUF_E_SPLIT, "split.no is 2, expected 1");
    remove(temp_path(NAME(2, 3)));
    temp_write(NAME(2, 3), "GGUX, not a model at all", 24);
    refused(NAME(1, 3), GGUF_E_MAGIC, NAME(2, 3));
    temp_write(NAME(2, 3), "", 0);
    refused(NAME(1, 3), GGUF_E_TRUNCATED, NAME(2, 3));
    /* single files of these kinds */
    refused("absent.gguf", GGUF_OK, "absent.gguf: cannot open");
    assert_int_equal(mkfifo(temp_path("fifo"), 0600), 0);
    refused("fifo", GGUF_OK, "is not a regular file");
    refused("", GGUF_OK, "is not a regular file"); /* the folder itself */
    temp_write("empty", "", 0);
    refused("empty", GGUF_E_TRUNCATED, "empty");
}

static void test_disagreement(void **state)
{
    (void)state;
    const struct shard first = {0, 3, 5, 0, 2, 0, GGUF_U16}, third = {2, 3, 5, 2, 3, 0, GGUF_U16};
    struct shard s;
    put_good_set();
#define WITH(base, field, value, file, class, text) \
    do { \
        s = base; \
        s.field = value; \
        write_shard(file, s); \
        refused(NAME(1, 3), class, text); \
        write_shard(NAME(1, 3), first); \
        write_shard(NAME(3, 3), third); \
    } while (0)
    WITH(third, count, 4, NAME(3, 3), GGUF_E_SPLIT, "split.count is 4, the first shard has 3");
    WITH(third, count, 1, NAME(3, 3), GGUF_E_SPLIT, "split.count is 1, the first shard has 3");
    WITH(third, count, -1, NAME(3, 3), GGUF_E_SPLIT, "key 'split.count' is missing");
    WITH(third, no, -1, NAME(3, 3), GGUF_E_SPLIT, "key 'split.no' is missing");
    WITH(third, total, 6, NAME(3, 3), GGUF_E_SPLIT, "split.tensors.count is 6, the first shard has 5");
    WITH(third, n_tensors, 2, NAME(3, 3), GGUF_E_SPLIT, "hold 4 tensors, but split.tensors.count is 5");
    WITH(third, n_tensors, 4, NAME(3, 3), GGUF_E_SPLIT, "4 tensors here and 2 before, but split.tensors.count is 5");
    WITH(first, total, 1, NAME(1, 3), GGUF_E_SPLIT, "2 tensors in the first shard, but split.tensors.count is 1");
    WITH(third, first_tensor, 1, NAME(3, 3), GGUF_E_DUP_TENSOR, "tensor 't1'");
    WITH(first, total, -1, NAME(1, 3), GGUF_E_SPLIT, "key 'split.tensors.count' is missing");
    WITH(first, no, -1, NAME(1, 3), GGUF_E_SPLIT, "key 'split.no' is missing");
    WITH(first, no, 3, NAME(1, 3), GGUF_E_SPLIT, "split.no is 3, but the set has 3 shards");
    WITH(first, count, 1025, NAME(1, 3), GGUF_E_SPLIT, "'split.count' is 1025, the limit is 1024");
    WITH(first, count, 2, NAME(1, 3), GGUF_E_SPLIT, "invalid split file name");
    WITH(first, key_type, GGUF_STRING, NAME(1, 3), GGUF_E_SPLIT, "'split.count' is not a non-negative integer");
    WITH(third, key_type, GGUF_STRING, NAME(3, 3), GGUF_E_SPLIT, "'split.no' is not a non-negative integer");
    WITH(first, total, 1048577, NAME(1, 3), GGUF_E_SPLIT, "'split.tensors.count' is 1048577, the limit is 1048576");
#undef WITH
    /* siblings may leave the total out */
    s = third;
    s.total = -1;
    write_shard(NAME(3, 3), s);
    struct gguf *g;
    CHECK_INT(gguf_open(&g, temp_path(NAME(1, 3)), NULL), 0);
    gguf_close(g);
    /* a count of 0 or 1, or none, is a single file of any name */
    for (int count = -1; count <= 1; count++) {
        s = first;
        s.count = count;
        write_shard("single.gguf", s);
        CHECK_INT(gguf_open(&g, temp_path("single.gguf"), NULL), 0);
        CHECK_INT(gguf_shard_count(g), 1);
        CHECK_INT(gguf_tensor_count(g), 2);
        gguf_close(g);
    }
}

/* Fail each allocation, then each file operation, once and for good; nothing may leak and the class stays open. */
static void test_faults(void **state)
{
    (void)state;
    put_good_set();
    const char *path = temp_path(NAME(1, 3));
    for (int io = 0; io < 2; io++)
        for (int once = 0; once < 2; once++) {
            void (*arm)(uint64_t, bool) = io ? fault_set_io : fault_set_alloc;
            int rc = -1, fd = lowest_fd();
            uint64_t n = 0;
            while (rc && n < 1000) {
                struct gguf *g = NULL;
                skua_error err = {0};
                arm(++n, once != 0);
                rc = gguf_open(&g, path, &err);
                arm(0, false);
                CHECK((rc == 0) == (g != NULL));
                CHECK_INT(rc, rc ? io ? SKUA_EIO : SKUA_ENOMEM : 0);
                CHECK_INT(err.code, rc);
                if (g)
                    check_good_set(g);
                gguf_close(g);
                CHECK_INT(temp_maps(), 0);
                CHECK_INT(lowest_fd(), fd);
            }
            printf("%s failures (%s): %llu\n", io ? "file" : "allocation", once ? "once" : "from then on",
                   (unsigned long long)(n - 1));
            CHECK(n > (io ? 8 : 20)); /* 3 files of 3 operations; at least 7 allocations a file */
        }
}

static void test_long_path(void **state)
{
    (void)state;
    /* a message keeps class and reason however long the path is */
    char path[3000];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    struct gguf *g;
    skua_error err;
    CHECK_INT(gguf_parse_memory(&g, (const uint8_t *)"GGUX", 4, path, NULL, &err), SKUA_EFORMAT);
    CHECK(strstr(err.message, "x: E_MAGIC at byte 0: ") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_set),     cmocka_unit_test(test_wrong_first), cmocka_unit_test(test_missing_and_odd_files),
        cmocka_unit_test(test_disagreement), cmocka_unit_test(test_faults),      cmocka_unit_test(test_long_path),
    };
    return finish_checks("test_gguf_split", cmocka_run_group_tests(tests, temp_setup, temp_teardown));
}
