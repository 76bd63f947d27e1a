/* The same rows give the same bits however they are cut into batches, and beside whatever other sequences: the ops with
 * memory (GDN_CONV, GDN_STEP with their states, ATTN_KV and ATTN with the KV cache), in every tier. The wanted values are
 * those of the scalar functions on one batch per sequence.
 */
#include "kern/harness.h"

#define N_SEQS 3

/* A batch for the next piece of each sequence: how many of its rows, at random; at least one row in all. */
static void next_pieces(const int32_t *lengths, const int32_t *done, int32_t most, int32_t *take)
{
    bool any = false;
    while (!any)
        for (int s = 0; s < N_SEQS; s++) {
            const int32_t left = lengths[s] - done[s], limit = left < most ? left : most;
            take[s] = h_below(4) == 0 ? 0 : h_below(limit + 1);
            any = any || take[s] > 0;
        }
}

static bool all_done(const int32_t *lengths, const int32_t *done)
{
    for (int s = 0; s < N_SEQS; s++)
        if (done[s] < lengths[s])
            return false;
    return true;
}

/* ---- Gated DeltaNet ---- */

enum { D = 32, N_KEY = 2, N_V = 4, CHANNELS = (2 * N_KEY + N_V) * D, KERNEL = 4 };
enum { CONV_FLOATS = (KERNEL - 1) * CHANNELS, STATE_FLOATS = CONV_FLOATS + N_V * D * D, GDN_ROWS = 128 };

struct gdn_data {
    float x[GDN_ROWS][CHANNELS], decay[GDN_ROWS][N_V], beta[GDN_ROWS][N_V]; /* inputs */
    float state0[STATE_FLOATS], state[STATE_FLOATS], out[GDN_ROWS][N_V * D];
};

static const int32_t gdn_lengths[N_SEQS] = {37, 1, GDN_ROWS};
static struct gdn_data gdn[N_SEQS], gdn_want[N_SEQS];
static float gdn_w[CHANNELS * KERNEL];

/* One batch with take[s] rows of each sequence from done[s] on; sequences with none are in it or not, at random. */
static void gdn_batch(const struct kern_table *t, const int32_t *done, const int32_t *take)
{
    static float x[N_SEQS * GDN_ROWS][CHANNELS], qkv[N_SEQS * GDN_ROWS][CHANNELS], out[N_SEQS * GDN_ROWS][N_V * D];
    static float decay[N_SEQS * GDN_ROWS][N_V], beta[N_SEQS * GDN_ROWS][N_V];
    static struct h_batch h;
    struct kern_buf state[N_SEQS], bx = {x, 0}, bqkv = {qkv, 0}, bout = {out, 0}, bdecay = {decay, 0}, bbeta = {beta, 0};
    struct kern_buf bw = {gdn_w, 0};
    int32_t row_of[N_SEQS] = {0};
    h_batch_start(&h);
    for (int s = 0; s < N_SEQS; s++) {
        if (take[s] == 0 && h_below(2))
            continue;
        struct kern_seq *seq = h_batch_add(&h, take[s], done[s]);
        state[s] = (struct kern_buf){gdn[s].state, 0};
        seq->state = &state[s];
        row_of[s] = seq->row_begin;
        for (int32_t i = 0; i < take[s]; i++) {
            memcpy(x[seq->row_begin + i], gdn[s].x[done[s] + i], sizeof x[0]);
            memcpy(decay[seq->row_begin + i], gdn[s].decay[done[s] + i], sizeof decay[0]);
            memcpy(beta[seq->row_begin + i], gdn[s].beta[done[s] + i], sizeof beta[0]);
        }
    }
    struct kern_op conv = {.code = KERN_GDN_CONV}, qk = {.code = KERN_GDN_QK}, step = {.code = KERN_GDN_STEP};
    conv.p.gdn_conv = (struct op_gdn_conv){{&bx, 0}, {&bw, 0}, {&bqkv, 0}, CHANNELS, CHANNELS, CHANNELS, KERNEL, 0, 0, 0};
    qk.p.gdn_qk = (struct op_gdn_qk){{&bqkv, 0}, CHANNELS, N_KEY, D, 1e-6f, 0.176776695f};
    step.p.gdn_step = (struct op_gdn_step){{&bqkv, 0}, {&bdecay, 0}, {&bbeta, 0}, {&bout, 0}, CHANNELS, N_V * D, N_KEY, N_V, D,
                                           CONV_FLOATS * sizeof(float), 0, 0};
    h_run_pieces(t, &conv, &h.b);
    h_run_pieces(t, &qk, &h.b);
    h_run_pieces(t, &step, &h.b);
    for (int s = 0; s < N_SEQS; s++)
        for (int32_t i = 0; i < take[s]; i++)
            memcpy(gdn[s].out[done[s] + i], out[row_of[s] + i], sizeof out[0]);
}

static void gdn_reset(void)
{
    for (int s = 0; s < N_SEQS; s++) {
        memcpy(gdn[s].state, gdn[s].state0, sizeof gdn[s].state);
        memset(gdn[s].out, 0, sizeof gdn[s].out);
    }
}

static void test_gdn_splits(void **unused)
{
    (void)unused;
    h_fill(gdn_w, CHANNELS * KERNEL, H_NORMAL);
    for (int s = 0; s < N_SEQS; s++) {
        h_fill(&gdn[s].x[0][0], GDN_ROWS * CHANNELS, H_NORMAL);
        h_fill(gdn[s].state0, STATE_FLOATS, H_NORMAL);
        for (int i = 0; i < GDN_ROWS * N_V; i++) {
            (&gdn[s].decay[0][0])[i] = h_uniform(0.3f, 1.0f);
            (&gdn[s].beta[0][0])[i] = h_uniform(0.0f, 1.0f);
        }
    }
    gdn_reset();
    for (int s = 0; s < N_SEQS; s++) { /* each alone, in one batch */
        int32_t done[N_SEQS] = {0}, take[N_SEQS] = {0};
        take[s] = gdn_lengths[s];
        gdn_batch(&kern_scalar, done, take);
    }
    memcpy(gdn_want, gdn, sizeof gdn);
    for (const char *const *tier = kern_tiers(); *tier; tier++)
        for (int round = 0; round < 4; round++) {
            int32_t done[N_SEQS] = {0}, take[N_SEQS];
            gdn_reset();
            while (!all_done(gdn_lengths, done)) {
                next_pieces(gdn_lengths, done, round == 0 ? 1 : round == 1 ? 3 : GDN_ROWS, take);
                gdn_batch(kern_select(*tier), done, take);
                for (int s = 0; s < N_SEQS; s++)
                    done[s] += take[s];
            }
            for (int s = 0; s < N_SEQS; s++) {
                CHECK(memcmp(gdn[s].state, gdn_want[s].state, sizeof gdn[s].state) == 0, "%s: state of sequence %d", *tier, s);
                CHECK(memcmp(gdn[s].out, gdn_want[s].out, sizeof gdn[s].out) == 0, "%s: outputs of sequence %d", *tier, s);
            }
        }
}

/* ---- attention ---- */

enum { HEAD_DIM = 32, HEADS = 2, N_ROT = 32, ATTN_ROWS = 700, Q_FLOATS = HEADS * HEAD_DIM };

static const int32_t attn_lengths[N_SEQS] = {ATTN_ROWS, 257, 3};
static float attn_q[N_SEQS][ATTN_ROWS][Q_FLOATS], attn_u[N_SEQS][ATTN_ROWS][2 * Q_FLOATS], attn_out[N_SEQS][ATTN_ROWS][Q_FLOATS];
static float attn_k[N_SEQS][ATTN_ROWS][HEAD_DIM], attn_v[N_SEQS][ATTN_ROWS][HEAD_DIM], attn_rope[N_SEQS][ATTN_ROWS][N_ROT];
static float attn_want[N_SEQS][ATTN_ROWS][Q_FLOATS];
static float attn_norm[HEAD_DIM];

static void attn_batch(const struct kern_table *t, const struct h_kv *kv, struct kern_buf *pages[N_SEQS][H_MAX_PAGES],
                       const int32_t *done, const int32_t *take)
{
    enum { ROWS = N_SEQS * ATTN_ROWS };
    static float q[ROWS][Q_FLOATS], u[ROWS][2 * Q_FLOATS], out[ROWS][Q_FLOATS], k[ROWS][HEAD_DIM], v[ROWS][HEAD_DIM];
    static float rope[ROWS][N_ROT];
    static struct h_batch h;
    struct kern_buf bq = {q, 0}, bu = {u, 0}, bout = {out, 0}, bk = {k, 0}, bv = {v, 0}, brope = {rope, 0}, bnorm = {attn_norm, 0};
    int32_t row_of[N_SEQS] = {0};
    h_batch_start(&h);
    for (int s = 0; s < N_SEQS; s++) {
        if (take[s] == 0)
            continue;
        struct kern_seq *seq = h_batch_add(&h, take[s], done[s]);
        row_of[s] = seq->row_begin;
        seq->kv_pages = pages[s];
        seq->n_kv_pages = (done[s] + take[s] + KV_PAGE_ROWS - 1) / KV_PAGE_ROWS;
        for (int32_t i = 0, r = seq->row_begin, from = done[s]; i < take[s]; i++, r++, from++) {
            memcpy(q[r], attn_q[s][from], sizeof q[0]);
            memcpy(u[r], attn_u[s][from], sizeof u[0]);
            memcpy(k[r], attn_k[s][from], sizeof k[0]);
            memcpy(v[r], attn_v[s][from], sizeof v[0]);
            memcpy(rope[r], attn_rope[s][from], sizeof rope[0]);
        }
    }
    struct kern_op store = {.code = KERN_ATTN_KV}, attn = {.code = KERN_ATTN};
    store.p.attn_kv = (struct op_attn_kv){{&bk, 0}, {&bv, 0}, {&bnorm, 0}, {&brope, 0}, HEAD_DIM, HEAD_DIM, 1, HEAD_DIM, N_ROT,
                                          1e-6f, kv->type, kv->k_offset, kv->v_offset};
    attn.p.attn = (struct op_attn){{&bq, 0}, {&bu, 0}, {&bout, 0}, Q_FLOATS, 2 * Q_FLOATS, Q_FLOATS, HEADS, 1, HEAD_DIM,
                                   0.176776695f, kv->type, kv->k_offset, kv->v_offset, 0, false};
    h_run_pieces(t, &store, &h.b);
    h_run_pieces(t, &attn, &h.b);
    for (int s = 0; s < N_SEQS; s++)
        for (int32_t i = 0; i < take[s]; i++)
            memcpy(attn_out[s][done[s] + i], out[row_of[s] + i], sizeof out[0]);
}

static void attn_splits(uint32_t type)
{
    const struct h_kv kv = h_kv_layout(type, 1, HEAD_DIM);
    static struct h_batch h;
    h_batch_start(&h);
    for (int s = 0; s < N_SEQS; s++)
        h_kv_pages(&h, h_batch_add(&h, 0, 0), &kv, attn_lengths[s], 0, H_ZERO);
    h_save(); /* the empty pages */
    for (int s = 0; s < N_SEQS; s++) {
        int32_t done[N_SEQS] = {0}, take[N_SEQS] = {0};
        take[s] = attn_lengths[s];
        attn_batch(&kern_scalar, &kv, h.pages, done, take);
    }
    h_keep_as_wanted();
    memcpy(attn_want, attn_out, sizeof attn_out);
    for (const char *const *tier = kern_tiers(); *tier; tier++)
        for (int round = 0; round < 2; round++) {
            int32_t done[N_SEQS] = {0}, take[N_SEQS];
            h_restore();
            memset(attn_out, 0, sizeof attn_out);
            while (!all_done(attn_lengths, done)) {
                next_pieces(attn_lengths, done, round == 0 ? 7 : 400, take);
                attn_batch(kern_select(*tier), &kv, h.pages, done, take);
                for (int s = 0; s < N_SEQS; s++)
                    done[s] += take[s];
            }
            CHECK(h_as_wanted(false, *tier), "%s: pages of cache type %u", *tier, type);
            for (int s = 0; s < N_SEQS; s++)
                CHECK(memcmp(attn_out[s], attn_want[s], sizeof attn_out[s]) == 0, "%s: cache type %u, outputs of sequence %d", *tier,
                      type, s);
        }
    h_free_all();
}

static void test_attn_splits(void **unused)
{
    (void)unused;
    h_fill(attn_norm, HEAD_DIM, H_NORMAL);
    h_fill(&attn_q[0][0][0], sizeof attn_q / 4, H_NORMAL);
    h_fill(&attn_u[0][0][0], sizeof attn_u / 4, H_NORMAL);
    h_fill(&attn_k[0][0][0], sizeof attn_k / 4, H_NORMAL);
    h_fill(&attn_v[0][0][0], sizeof attn_v / 4, H_NORMAL);
    for (size_t i = 0; i < sizeof attn_rope / 4; i++)
        (&attn_rope[0][0][0])[i] = h_uniform(-1.0f, 1.0f);
    for (int i = 0; i < H_N_KV_TYPES; i++)
        attn_splits(h_kv_types[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gdn_splits), cmocka_unit_test(test_attn_splits)};
    h_start();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_split") || failed;
}
