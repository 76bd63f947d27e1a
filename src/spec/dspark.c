/* DSpark's heads; see dspark.h. */
#include "spec/dspark.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/op_list.h"
#include "quant/quant.h"

#define OPS 8

struct dspark {
    const struct dflash_config *c;
    const struct dflash_weights *w;
    struct dev *dev;
    struct kern_buf *buf;
    struct kern_view logits, markov, bias; /* [max_rows][head rows]; [markov_rank]; [head rows] */
    struct kern_view hidden;               /* of the block that was begun */
    struct op_list list;
    struct kern_op ops[OPS];
    float *conf;                           /* [n_embd + markov_rank] the confidence head's row, and as much for its input */
    float *row, *shift;                    /* [head rows] of the step: logits, what the Markov head adds */
};

static int32_t head_rows(const struct dspark *s) { return s->w->head.n_out; }
static int32_t conf_width(const struct dspark *s) { return s->c->n_embd + s->c->markov_rank; }

static size_t act_bytes(const struct dspark *s, enum kern_act kind, int32_t max_rows)
{
    const size_t hidden = op_act_bytes(kind, s->c->n_embd, max_rows), markov = op_act_bytes(kind, s->c->markov_rank, 1);
    return hidden > markov ? hidden : markov;
}

static int allocate(struct dspark *s, int32_t max_rows, skua_error *err)
{
    const size_t n = (size_t)head_rows(s);
    size_t end = 0;
    s->logits.offset = op_take(&end, (size_t)max_rows * n * sizeof(float));
    s->bias.offset = op_take(&end, n * sizeof(float));
    s->markov.offset = op_take(&end, (size_t)s->c->markov_rank * sizeof(float));
    for (int kind = 0; kind < KERN_ACT_COUNT; kind++)
        s->list.act[kind].offset = op_take(&end, act_bytes(s, (enum kern_act)kind, max_rows));
    int rc = s->dev->ops->buf_alloc(s->dev, end, &s->buf, err);
    if (rc)
        return rc;
    s->logits.buf = s->bias.buf = s->markov.buf = s->buf;
    for (int kind = 0; kind < KERN_ACT_COUNT; kind++)
        s->list.act[kind].buf = s->buf;
    s->row = mem_realloc_array(NULL, n, 2 * sizeof *s->row);
    s->conf = mem_realloc_array(NULL, (size_t)conf_width(s), 2 * sizeof *s->conf);
    if (!s->row || !s->conf)
        return error_nomem(err, "heads of the drafter", 2 * (n + (size_t)conf_width(s)) * sizeof *s->row);
    s->shift = s->row + n;
    return 0;
}

/* The confidence head is one row: it is multiplied here, in double. */
static int read_confidence(struct dspark *s, skua_error *err)
{
    const struct kern_weight *w = &s->w->conf_proj;
    const size_t size = w->n_out ? qtype_row_bytes(w->type, (uint64_t)w->n_in) : 0;
    if (!size)
        return 0;
    void *packed = mem_alloc(size);
    if (!packed)
        return error_nomem(err, "confidence head", size);
    s->dev->ops->read(s->dev, w->data, packed, size);
    dequant_row(w->type, packed, s->conf, w->n_in);
    for (int32_t i = 0; w->scale.buf && i < w->n_in; i++)
        s->conf[i] *= kern_scale(w, 0);
    mem_free(packed);
    return 0;
}

int dspark_create(const struct dflash_config *c, const struct dflash_weights *w, struct dev *d, int32_t max_rows, struct dspark **out,
                  skua_error *err)
{
    *out = NULL;
    struct dspark *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_nomem(err, "drafter", sizeof *s);
    s->c = c;
    s->w = w;
    s->dev = d;
    s->list = (struct op_list){.dev = d, .ops = s->ops, .cap = OPS};
    int rc = allocate(s, max_rows, err);
    if (!rc)
        rc = read_confidence(s, err);
    if (rc) {
        dspark_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void dspark_free(struct dspark *s)
{
    if (!s)
        return;
    s->dev->ops->buf_free(s->dev, s->buf);
    mem_free(s->row);
    mem_free(s->conf);
    mem_free(s);
}

size_t dspark_bytes(const struct dspark *s)
{
    return sizeof *s + s->buf->size + 2 * ((size_t)head_rows(s) + (size_t)conf_width(s)) * sizeof *s->row;
}

int dspark_begin(struct dspark *s, struct kern_view hidden, int32_t n, skua_error *err)
{
    struct op_input in = {.x = hidden, .stride = s->c->n_embd, .n = s->c->n_embd, .n_rows = n};
    const struct kern_batch none = {.n_rows = n};
    s->hidden = hidden;
    s->list.n = 0;
    op_emit_matmul(&s->list, -1, "output", &s->w->head, &in, s->logits, head_rows(s), false);
    return s->dev->ops->run(s->dev, s->list.ops, s->list.n, &none, err);
}

static float confidence(struct dspark *s, int32_t i)
{
    const size_t e = (size_t)s->c->n_embd;
    float *in = s->conf + conf_width(s);
    double sum = (double)s->w->conf_bias;
    if (!s->w->conf_proj.n_out)
        return -1.0f;
    s->dev->ops->read(s->dev, kern_view_at(s->hidden, (size_t)i * e * sizeof *in), in, e * sizeof *in);
    s->dev->ops->read(s->dev, s->markov, in + e, (size_t)s->c->markov_rank * sizeof *in);
    for (int32_t k = 0; k < conf_width(s); k++)
        sum += (double)s->conf[k] * (double)in[k];
    return (float)(1.0 / (1.0 + exp(-sum)));
}

static int32_t token_of(const struct dspark *s, int32_t row)
{
    return s->w->head_ids ? s->w->head_ids[row] : row;
}

/* Put a candidate where it belongs among the best k. */
static void insert(struct choice *out, int32_t k, int32_t id, double score)
{
    int32_t at = out->n;
    while (at > 0 && (score > out->score[at - 1] || (score == out->score[at - 1] && id < out->ids[at - 1])))
        at--;
    if (at >= k)
        return;
    out->n += out->n < k;
    for (int32_t j = out->n - 1; j > at; j--) {
        out->ids[j] = out->ids[j - 1];
        out->score[j] = out->score[j - 1];
    }
    out->ids[at] = id;
    out->score[at] = score;
}

/* The k best of the step's rows; numbers that are none and -infinity are no candidates. */
static void best_rows(struct dspark *s, int32_t k, struct choice *out)
{
    const double scale = (double)s->c->logit_scale, cap = (double)s->c->softcap;
    const int32_t n = head_rows(s);
    for (int32_t base = 0; base < n; base += 64) {
        uint64_t allow;
        s->dev->ops->read(s->dev, kern_view_at(s->w->allow, (size_t)base / 8), &allow, sizeof allow);
        for (int32_t row = base; row < n && row < base + 64; row++) {
            double t = (double)s->row[row] * scale;
            if (cap > 0.0)
                t = cap * tanh(t / cap);
            t += (double)s->shift[row];
            if ((allow >> (row - base) & 1) && t > -INFINITY && (out->n < k || t >= out->score[out->n - 1]))
                insert(out, k, token_of(s, row), t);
        }
    }
}

int dspark_step(struct dspark *s, int32_t i, int32_t prev, int32_t k, struct dspark_step *out, skua_error *err)
{
    const size_t row = (size_t)head_rows(s) * sizeof *s->row;
    struct op_input in = {.x = s->markov, .stride = s->c->markov_rank, .n = s->c->markov_rank, .n_rows = 1};
    const struct kern_batch one = {.n_rows = 1, .token = &prev};
    out->choice.n = 0;
    s->list.n = 0;
    op_emit(&s->list, KERN_EMBED, -1, "markov_w1")->p.embed = (struct op_embed){
        .table = s->w->markov_w1, .out = s->markov, .stride = s->c->markov_rank};
    op_emit_matmul(&s->list, -1, "markov_w2", &s->w->markov_w2, &in, s->bias, head_rows(s), false);
    const int rc = s->dev->ops->run(s->dev, s->list.ops, s->list.n, &one, err);
    if (rc)
        return rc;
    s->dev->ops->read(s->dev, kern_view_at(s->logits, (size_t)i * row), s->row, row);
    s->dev->ops->read(s->dev, s->bias, s->shift, row);
    best_rows(s, k, &out->choice);
    out->confidence = confidence(s, i);
    return 0;
}
