/* What ops cost (kern_op_cost), each against a count by hand, and reading memory: every tier and way gives the sum of plain C. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kern/kern.h"
#include "kern/ref/kern_ref.h"
#include "quant/type.h"
#include "support/support.h"

static struct kern_seq seqs[2] = {{.row_begin = 0, .n_rows = 3, .pos_begin = 10}, {.row_begin = 3, .n_rows = 1, .pos_begin = 0}};
static const struct kern_batch batch = {.n_rows = 4, .n_seqs = 2, .seqs = seqs};
static bool tested[KERN_OP_COUNT];

static void costs(struct kern_op op, uint64_t weight, uint64_t state, uint64_t kv, uint64_t macs)
{
    const struct kern_cost c = kern_op_cost(&op, &batch);
    tested[op.code] = true;
    CHECK(c.weight_bytes == weight && c.state_bytes == state && c.kv_bytes == kv && c.macs == macs,
          "%s: %llu, %llu, %llu bytes, %llu multiply-adds; expected %llu, %llu, %llu, %llu", kern_op_name(op.code),
          (unsigned long long)c.weight_bytes, (unsigned long long)c.state_bytes, (unsigned long long)c.kv_bytes, (unsigned long long)c.macs,
          (unsigned long long)weight, (unsigned long long)state, (unsigned long long)kv, (unsigned long long)macs);
}

static void test_matrices(void)
{
    const struct kern_weight w = {.type = QTYPE_Q4_K, .n_in = 512, .n_out = 100, .n_expert = 1};
    struct kern_weight e = w;
    costs((struct kern_op){.code = KERN_EMBED, .p.embed = {.table = w}}, 4 * 2 * 144, 0, 0, 0);
    /* rows of a product are its own, not the batch's */
    costs((struct kern_op){.code = KERN_MATMUL, .p.matmul = {.w = w, .n_rows = 1}}, 100 * 2 * 144, 0, 0, 51200);
    costs((struct kern_op){.code = KERN_MATMUL, .p.matmul = {.w = w, .n_rows = 7}}, 100 * 2 * 144, 0, 0, 7 * 51200);
    costs((struct kern_op){.code = KERN_ARGMAX, .p.argmax.matmul = {.w = w, .n_rows = 2}}, 100 * 2 * 144, 0, 0, 2 * 51200);
    costs((struct kern_op){.code = KERN_TOPK, .p.topk = {.matmul = {.w = w, .n_rows = 2}, .k = 5}}, 100 * 2 * 144, 0, 0, 2 * 51200);
    e.n_expert = 8;
    /* one row: the experts that it uses; more rows: all of them at most; a down projection has a row per pair */
    costs((struct kern_op){.code = KERN_MOE_MATMUL, .p.moe_matmul = {.w = e, .n_rows = 1, .n_used = 3}}, 3 * 28800, 0, 0, 3 * 51200);
    costs((struct kern_op){.code = KERN_MOE_MATMUL, .p.moe_matmul = {.w = e, .n_rows = 2, .n_used = 3, .x_per_pair = true}}, 6 * 28800, 0,
          0, 6 * 51200);
    costs((struct kern_op){.code = KERN_MOE_MATMUL, .p.moe_matmul = {.w = e, .n_rows = 4, .n_used = 3}}, 8 * 28800, 0, 0, 12 * 51200);
    /* beyond 32 bits */
    e = (struct kern_weight){.type = QTYPE_F32, .n_in = 65536, .n_out = 65536, .n_expert = 512};
    costs((struct kern_op){.code = KERN_MOE_MATMUL, .p.moe_matmul = {.w = e, .n_rows = 1024, .n_used = 8}}, (uint64_t)1 << 43, 0, 0,
          (uint64_t)1 << 45);
}

static void test_attention(void)
{
    struct op_attn a = {.n_head = 6, .n_head_kv = 2, .head_dim = 64, .kv_type = QTYPE_F16};
    /* the first sequence ends with 13 positions, its rows see 11, 12 and 13; the second has one */
    const uint64_t row = 2 * 2 * 128, seen = 11 + 12 + 13 + 1;
    costs((struct kern_op){.code = KERN_ATTN, .p.attn = a}, 0, 0, 14 * row, seen * 6 * 64 * 2);
    a.kv_type = QTYPE_Q8_0;
    costs((struct kern_op){.code = KERN_ATTN, .p.attn = a}, 0, 0, 14 * 2 * 2 * 68, seen * 6 * 64 * 2);
    costs((struct kern_op){.code = KERN_ATTN_KV, .p.attn_kv = {.n_head_kv = 2, .head_dim = 64, .kv_type = QTYPE_F16}}, 256, 0, 4 * row, 0);
    costs((struct kern_op){.code = KERN_ATTN_Q, .p.attn_q = {.n_head = 6, .head_dim = 64}}, 256, 0, 0, 0);
    /* positions by pages: rows at 510, 511 and 512 see 255, 256 and 256 of the second page */
    a.kv_type = QTYPE_F16;
    costs((struct kern_op){.code = KERN_ATTN_PAGES, .p.attn_pages = {.attn = a, .n_pages = 1}}, 0, 0, 14 * row, seen * 6 * 64 * 2);
    costs((struct kern_op){.code = KERN_ATTN_PAGES, .p.attn_pages = {.attn = a, .page_begin = 1, .n_pages = 9}}, 0, 0, 0, 0);
    struct kern_seq far = {.n_rows = 3, .pos_begin = 510};
    const struct kern_batch far_batch = {.n_rows = 3, .n_seqs = 1, .seqs = &far};
    struct kern_op op = {.code = KERN_ATTN_PAGES, .p.attn_pages = {.attn = a, .page_begin = 1, .n_pages = 1}};
    struct kern_cost c = kern_op_cost(&op, &far_batch);
    CHECK(c.kv_bytes == 256 * row && c.macs == (255 + 256 + 256) * 6 * 64 * 2, "the second of three pages");
    op.p.attn_pages.page_begin = 2;
    c = kern_op_cost(&op, &far_batch);
    CHECK(c.kv_bytes == row && c.macs == 6 * 64 * 2, "the last of three pages");
    /* rows that see five positions at most: those from 506 on are read */
    a.window = 5;
    struct kern_op block = {.code = KERN_ATTN, .p.attn = a};
    c = kern_op_cost(&block, &far_batch);
    CHECK(c.kv_bytes == 7 * row && c.macs == (5 + 5 + 5) * 6 * 64 * 2, "a window");
    block.p.attn.bidirectional = true;
    c = kern_op_cost(&block, &far_batch);
    CHECK(c.kv_bytes == 7 * row && c.macs == (7 + 6 + 5) * 6 * 64 * 2, "a window on what is before a block");
}

static void test_recurrence(void)
{
    costs((struct kern_op){.code = KERN_GDN_CONV, .p.gdn_conv = {.n_channel = 96, .kernel = 4}}, 96 * 4 * 4, 2 * 2 * 3 * 96 * 4, 0,
          4 * 96 * 4);
    costs((struct kern_op){.code = KERN_GDN_STEP, .p.gdn_step = {.n_key_head = 2, .n_v = 4, .d = 32}}, 0, 2 * 2 * 4 * 32 * 32 * 4, 0,
          4 * 3 * 4 * 32 * 32);
    costs((struct kern_op){.code = KERN_GDN_GATES, .p.gdn_gates = {.n_v = 4}}, 2 * 4 * 4, 0, 0, 0);
    costs((struct kern_op){.code = KERN_GDN_OUT, .p.gdn_out = {.n_v = 4, .d = 32}}, 32 * 4, 0, 0, 0);
    costs((struct kern_op){.code = KERN_GDN_QK, .p.gdn_qk = {.n_key_head = 2, .d = 32}}, 0, 0, 0, 0);
    costs((struct kern_op){.code = KERN_GDN_COMMIT, .p.gdn_commit = {.n_key_head = 2, .n_v = 4, .d = 32}}, 0, 2 * 2 * 4 * 32 * 32 * 4, 0,
          4 * 4 * 32 * 32);
    costs((struct kern_op){.code = KERN_GDN_CONV_COMMIT, .p.gdn_conv_commit = {.n_channel = 96, .kernel = 4}}, 0, 2 * 2 * 3 * 96 * 4, 0, 0);
    /* held rows read their state and do not write it */
    struct kern_buf tape = {0};
    seqs[0].tape = &tape;
    costs((struct kern_op){.code = KERN_GDN_CONV, .p.gdn_conv = {.n_channel = 96, .kernel = 4}}, 96 * 4 * 4, 3 * 3 * 96 * 4, 0, 4 * 96 * 4);
    costs((struct kern_op){.code = KERN_GDN_STEP, .p.gdn_step = {.n_key_head = 2, .n_v = 4, .d = 32}}, 0, 3 * 4 * 32 * 32 * 4, 0,
          4 * 3 * 4 * 32 * 32);
    seqs[0].tape = NULL;
}

static void test_others(void)
{
    costs((struct kern_op){.code = KERN_BLOCK_CONV, .p.block_conv = {.n = 48, .group = 16, .kernel = 2}}, 2 * 48 * 4, 0, 0, 4 * 48 * 2);
    costs((struct kern_op){.code = KERN_RMS_NORM, .p.rms_norm = {.n = 48, .n_rows = 4}}, 192, 0, 0, 0);
    for (int code = 0; code < KERN_OP_COUNT; code++)
        if (!tested[code])
            costs((struct kern_op){.code = (enum kern_op_code)code}, 0, 0, 0, 0);
}

static void test_reading(void)
{
    enum { WORDS = 3 * KERN_READ_GRAIN / 8 };
    uint64_t *p = aligned_alloc(64, WORDS * sizeof *p), seed = 5;
    for (int i = 0; i < WORDS; i++)
        p[i] = rng_next(&seed);
    for (size_t n = 0; n <= WORDS * sizeof *p; n += KERN_READ_GRAIN) {
        uint64_t want = 0;
        for (size_t i = 0; i < n / 8; i++)
            want += p[i];
        for (const char *const *t = kern_tiers(); *t; t++)
            for (int way = 0; way < KERN_READ_WAYS; way++) {
                const uint64_t got = kern_select(*t)->read_memory(p, n, (enum kern_read_way)way);
                CHECK(got == want, "%s, way %d: sum of %zu bytes is %llx, not %llx", *t, way, n, (unsigned long long)got,
                      (unsigned long long)want);
            }
        CHECK(kern_reference.read_memory(p, n, KERN_READ_PLAIN) == want, "reference");
    }
    free(p);
}

int main(void)
{
    test_matrices();
    test_attention();
    test_recurrence();
    test_others();
    test_reading();
    return support_finish("test_cost");
}
