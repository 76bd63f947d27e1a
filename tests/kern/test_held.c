/* Held rows: GDN_CONV and GDN_STEP leave the state as it is and give the same results; GDN_CONV_COMMIT and GDN_COMMIT bring it to where
 * the first so many rows alone would have brought it, bit for bit. In every tier against the scalar functions, and in the reference table
 * against itself.
 */
#include "kern/harness.h"

#define N_SEQS 4 /* the last one is not held */
#define MOST_ROWS 6

struct held_case {
    struct h_batch *h;
    struct kern_op step, commit;
    struct kern_view out;
    size_t tape_stride;
    bool nan_allowed;
    int32_t n_rows[N_SEQS];
    struct kern_buf *tapes[N_SEQS];
    char *initial[N_SEQS], *serial[MOST_ROWS + 1][N_SEQS], *plain_out;
};

static char *copy_of(const struct kern_buf *b)
{
    char *p = malloc(b->size + 1);
    assert_non_null(p);
    memcpy(p, b->host, b->size);
    return p;
}

static bool same(const struct held_case *c, const void *a, const void *b, size_t size)
{
    bool ok = memcmp(a, b, size) == 0;
    for (size_t at = 0; !ok && c->nan_allowed && at + 4 <= size; at += 4) {
        uint32_t x, y;
        memcpy(&x, (const char *)a + at, 4);
        memcpy(&y, (const char *)b + at, 4);
        if (!h_same_nan(x, y))
            return false;
    }
    return ok || c->nan_allowed;
}

/* Sequences at their first states, with at most `keep` rows. */
static void set_back(struct held_case *c, int32_t keep, bool held)
{
    for (int s = 0; s < N_SEQS; s++) {
        struct kern_seq *seq = &c->h->seqs[s];
        memcpy(seq->state->host, c->initial[s], seq->state->size);
        seq->n_rows = keep < c->n_rows[s] ? keep : c->n_rows[s];
        seq->tape = held ? c->tapes[s] : NULL;
    }
}

static void run_all(const struct kern_table *t, const struct kern_op *op, const struct kern_batch *b)
{
    kern_run(t, op, b, 0, kern_units(op, b));
}

static void baseline(struct held_case *c, const struct kern_table *t)
{
    for (int32_t keep = 0; keep <= MOST_ROWS; keep++) {
        set_back(c, keep, false);
        run_all(t, &c->step, &c->h->b);
        for (int s = 0; s < N_SEQS; s++)
            c->serial[keep][s] = copy_of(c->h->seqs[s].state);
    }
    c->plain_out = copy_of(c->out.buf);
}

static void check_held(struct held_case *c, const char *who)
{
    const char *name = kern_op_name(c->step.code);
    for (int s = 0; s < N_SEQS; s++) {
        const char *want = c->tapes[s] ? c->initial[s] : c->serial[MOST_ROWS][s];
        const struct kern_buf *state = c->h->seqs[s].state;
        CHECK(memcmp(state->host, want, state->size) == 0 || !c->tapes[s], "%s, %s: a held state moved", who, name);
        CHECK(same(c, state->host, want, state->size), "%s, %s: sequence %d", who, name, s);
    }
    CHECK(same(c, c->out.buf->host, c->plain_out, c->out.buf->size), "%s, %s: other results", who, name);
}

static void check_committed(struct held_case *c, int32_t keep, const char *who)
{
    for (int s = 0; s < N_SEQS - 1; s++)
        CHECK(same(c, c->h->seqs[s].state->host, c->serial[keep][s], c->h->seqs[s].state->size), "%s, %s: %d of %d rows kept: other state",
              who, kern_op_name(c->commit.code), c->h->seqs[s].n_rows, c->n_rows[s]);
}

static void run_case(struct held_case *c)
{
    struct h_batch *h = c->h;
    for (int s = 0; s < N_SEQS; s++) {
        c->n_rows[s] = h->seqs[s].n_rows;
        c->initial[s] = copy_of(h->seqs[s].state);
        c->tapes[s] = s < N_SEQS - 1 ? &h_buf((size_t)c->n_rows[s] * c->tape_stride)->kern : NULL;
    }
    for (int k = 0; k < 2; k++) {
        const struct kern_table *t = k ? &kern_reference : &kern_scalar;
        baseline(c, t);
        set_back(c, MOST_ROWS, true);
        if (k)
            run_all(t, &c->step, &h->b);
        else
            h_compare(&c->step, &h->b, c->nan_allowed);
        check_held(c, t->name);
        for (int32_t keep = 0; keep <= MOST_ROWS; keep++) {
            struct kern_batch b = h->b;
            b.n_seqs = N_SEQS - 1;
            set_back(c, keep, true);
            if (k)
                run_all(t, &c->commit, &b);
            else
                h_compare(&c->commit, &b, c->nan_allowed);
            check_committed(c, keep, t->name);
        }
        for (int s = 0; s < N_SEQS; s++)
            for (int32_t keep = 0; keep <= MOST_ROWS; keep++)
                free(c->serial[keep][s]);
        free(c->plain_out);
    }
    for (int s = 0; s < N_SEQS; s++)
        free(c->initial[s]);
    h_free_all();
}

static void start_batch(struct h_batch *h, size_t state_floats, enum h_style style)
{
    h_batch_start(h);
    for (int s = 0; s < N_SEQS; s++) {
        struct kern_seq *seq = h_batch_add(h, s == 0 ? h_below(2) : 1 + h_below(MOST_ROWS), 0);
        seq->state = h_floats(state_floats, style).buf;
    }
}

static void test_conv(void **unused)
{
    (void)unused;
    static struct h_batch h;
    static const int channels[] = {1, 15, 16, 48, 64, 80, 100, 192};
    for (int i = 0; i < 8; i++)
        for (int style = 0; style < H_N_STYLES; style++) {
            const int32_t n = channels[i], kernel = h_below(4) ? 4 : 1 + h_below(6), xs = n + h_below(4), os = n + h_below(4);
            const size_t tape_offset = 4 * (size_t)h_below(5), stride = tape_offset + 4 * (size_t)(n + h_below(5));
            start_batch(&h, (size_t)(3 + (kernel - 1) * n), (enum h_style)style);
            struct held_case c = {.h = &h, .out = h_out((size_t)(h.b.n_rows * os)), .tape_stride = stride,
                                  .nan_allowed = style == H_SPECIAL || style == H_LARGE};
            c.step = (struct kern_op){.code = KERN_GDN_CONV, .p.gdn_conv = {
                .x = h_floats((size_t)(h.b.n_rows * xs), (enum h_style)style), .w = h_floats((size_t)(n * kernel), H_NORMAL), .out = c.out,
                .x_stride = xs, .out_stride = os, .n_channel = n, .kernel = kernel, .state_offset = 12, .tape_offset = tape_offset,
                .tape_stride = stride}};
            c.commit = (struct kern_op){.code = KERN_GDN_CONV_COMMIT, .p.gdn_conv_commit = {
                .n_channel = n, .kernel = kernel, .state_offset = 12, .tape_offset = tape_offset, .tape_stride = stride}};
            run_case(&c);
        }
}

static void step_case(int32_t d, enum h_style style)
{
    static struct h_batch h;
    const int32_t n_key = 1 + h_below(2), n_v = n_key * (1 + h_below(3)), width = (2 * n_key + n_v) * d;
    const int32_t qkv_stride = width + h_below(20), out_stride = n_v * d + h_below(20);
    const size_t tape_offset = 4 * (size_t)h_below(5), stride = tape_offset + 4 * (size_t)((n_key + n_v) * d + n_v + h_below(5));
    start_batch(&h, (size_t)(5 + n_v * d * d), style);
    const int32_t rows = h.b.n_rows;
    struct held_case c = {.h = &h, .out = h_out((size_t)(rows * out_stride)), .tape_stride = stride,
                          .nan_allowed = style == H_SPECIAL || style == H_LARGE || style == H_WIDE};
    c.step = (struct kern_op){.code = KERN_GDN_STEP, .p.gdn_step = {
        .qkv = h_floats((size_t)(rows * qkv_stride), style), .decay = h_floats((size_t)(rows * n_v), style),
        .beta = h_floats((size_t)(rows * n_v), style), .out = c.out, .qkv_stride = qkv_stride, .out_stride = out_stride,
        .n_key_head = n_key, .n_v = n_v, .d = d, .state_offset = 20, .tape_offset = tape_offset, .tape_stride = stride}};
    for (int32_t r = 0; style == H_NORMAL && r < rows * n_v; r++) { /* gates in 0 .. 1 */
        ((float *)kern_ptr(c.step.p.gdn_step.decay))[r] = h_uniform(0.5f, 1.0f);
        ((float *)kern_ptr(c.step.p.gdn_step.beta))[r] = h_uniform(0.0f, 1.0f);
    }
    c.commit = (struct kern_op){.code = KERN_GDN_COMMIT, .p.gdn_commit = {
        .n_key_head = n_key, .n_v = n_v, .d = d, .state_offset = 20, .tape_offset = tape_offset, .tape_stride = stride}};
    run_case(&c);
}

static void test_step(void **unused)
{
    (void)unused;
    static const int dims[] = {8, 16, 24, 32, 48, 64, 100, 128};
    for (int i = 0; i < 8; i++)
        for (int style = 0; style < H_N_STYLES; style++)
            step_case(dims[i], (enum h_style)style);
    step_case(KERN_HELD_KEYS, H_NORMAL);
    step_case(KERN_HELD_KEYS - 6, H_NORMAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_conv), cmocka_unit_test(test_step)};
    h_start();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return support_finish("test_held") || failed;
}
