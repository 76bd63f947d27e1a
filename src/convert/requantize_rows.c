/* Rows of a tensor to another type; see requantize_rows.h. */
#include "convert/requantize_rows.h"

#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"

#define SLICE_ELEMENTS ((uint64_t)1 << 20)

struct failure {
    uint64_t row; /* UINT64_MAX: none */
    skua_error err;
};

/* One slice in work. Threads take rows from a counter; what they find out about a row is kept by row and added up in order. */
struct slice {
    const struct rows_job *job;
    const struct stream *stream;
    uint64_t begin, n;         /* rows */
    atomic_uint_fast64_t next; /* row to take, from 0 */
    atomic_bool failed;
    size_t row_elements, source_bytes, result_bytes; /* of a row */
    float *scratch;            /* [threads][2][row_elements] */
    uint8_t *result;           /* [n][result_bytes], NULL: look for the largest magnitude only */
    float *largest;            /* [n] */
    struct rows_sums *sums;    /* [n] */
    struct failure *failures;  /* [threads] */
};

uint64_t rows_matrices(const struct gguf_tensor *t) { return t->ne[2] * t->ne[3]; }

/* Row `row` of the tensor as numbers, all of them finite. */
static int load_row(const struct slice *s, uint64_t row, float *x, skua_error *err)
{
    const struct gguf_tensor *t = s->job->source;
    size_t n = s->row_elements;
    int rc = dequant_row(t->type, t->data + row * s->source_bytes, x, (int64_t)n);
    if (rc)
        return error_set(err, rc, "type %s cannot be converted", qtype_info(t->type)->name);
    float factor = s->job->factors ? s->job->factors[row / t->ne[1]] : 1.0f;
    for (size_t i = 0; i < n; i++) {
        x[i] *= factor;
        if (!isfinite(x[i]))
            return error_set(err, SKUA_EFORMAT, "element %zu is %g, expected a finite value", i, (double)x[i]);
    }
    return 0;
}

static float largest(const float *x, size_t n)
{
    float m = 0;
    for (size_t i = 0; i < n; i++)
        m = fabsf(x[i]) > m ? fabsf(x[i]) : m;
    return m;
}

/* x: the values; y: what was stored for them, before the multiplication by `divisor`; w: NULL or importance weights. */
static struct rows_sums measure(const float *x, const float *y, float divisor, const float *w, size_t n)
{
    struct rows_sums s = {0};
    for (size_t i = 0; i < n; i++) {
        double value = x[i], e = value - (double)y[i] * divisor, k = w ? w[i] : 0;
        s.error += e * e;
        s.value += value * value;
        s.weighted_error += k * e * e;
        s.weighted_value += k * value * value;
    }
    return s;
}

static int quantize(const struct slice *s, uint64_t row, float *x, float *y, skua_error *err)
{
    const struct rows_job *job = s->job;
    size_t n = s->row_elements;
    uint64_t matrix = row / job->source->ne[1];
    const float *w = job->weights ? job->weights + matrix * n : NULL;
    uint8_t *out = s->result + (row - s->begin) * s->result_bytes;
    float divisor = job->divisors ? job->divisors[matrix] : 1.0f;
    for (size_t i = 0; i < n && job->divisors; i++)
        y[i] = x[i] / divisor;
    int rc = quantize_row_by(job->tier, job->type, job->divisors ? y : x, out, (int64_t)n, w, err);
    if (!rc)
        rc = quant_row_check(job->type, out, (int64_t)n, err);
    if (!rc && job->measure) {
        rc = dequant_row(job->type, out, y, (int64_t)n);
        s->sums[row - s->begin] = measure(x, y, divisor, w, n);
    }
    return rc;
}

static void work(void *arg, int thread, int n_threads)
{
    (void)n_threads;
    struct slice *s = arg;
    float *x = s->scratch + (size_t)thread * 2 * s->row_elements;
    struct failure *f = &s->failures[thread];
    for (;;) {
        /* A row that was taken is finished, so all rows before the first failure are looked at: the failure that is told is the first
           in the tensor, whatever the threads do. */
        if (atomic_load(&s->failed) || stream_stopped(s->stream))
            return;
        uint64_t i = atomic_fetch_add(&s->next, 1);
        if (i >= s->n)
            return;
        int rc = load_row(s, s->begin + i, x, &f->err);
        if (!rc && s->result)
            rc = quantize(s, s->begin + i, x, x + s->row_elements, &f->err);
        else if (!rc)
            s->largest[i] = largest(x, s->row_elements);
        if (rc) {
            f->row = s->begin + i;
            atomic_store(&s->failed, true);
            return;
        }
    }
}

/* Compute one slice. */
static int run_slice(struct pool *p, struct slice *s, const char *path, skua_error *err)
{
    const struct failure *first = NULL;
    for (int t = 0; t < pool_threads(p); t++)
        s->failures[t].row = UINT64_MAX;
    atomic_store(&s->next, 0);
    atomic_store(&s->failed, false);
    pool_run(p, work, s);
    for (int t = 0; t < pool_threads(p); t++)
        if (s->failures[t].row != UINT64_MAX && (!first || s->failures[t].row < first->row))
            first = &s->failures[t];
    if (first) {
        const struct gguf_tensor *t = s->job->source;
        return error_set(err, first->err.code, "tensor '%.*s', row %llu: %s", t->name_len, t->name, (unsigned long long)first->row,
                         first->err.message);
    }
    return stream_stopped(s->stream) ? stream_canceled(path, err) : 0;
}

static void slice_free(struct slice *s)
{
    mem_free(s->scratch);
    mem_free(s->result);
    mem_free(s->largest);
    mem_free(s->sums);
    mem_free(s->failures);
}

/* Rows per slice in s->n, and its buffers. */
static int slice_init(struct slice *s, struct pool *p, const struct rows_job *job, const struct stream *stream, bool results,
                      skua_error *err)
{
    const struct gguf_tensor *t = job->source;
    uint64_t rows = t->ne[1] * rows_matrices(t), n = SLICE_ELEMENTS / t->ne[0];
    size_t threads = (size_t)pool_threads(p);
    *s = (struct slice){.job = job, .stream = stream, .row_elements = t->ne[0]};
    s->n = n < 1 ? 1 : n < rows ? n : rows;
    s->source_bytes = qtype_row_bytes(t->type, t->ne[0]);
    s->result_bytes = qtype_row_bytes(job->type, t->ne[0]);
    s->scratch = mem_realloc_array(NULL, threads * 2 * s->row_elements, sizeof *s->scratch);
    s->failures = mem_calloc(threads, sizeof *s->failures);
    bool ok = s->scratch && s->failures;
    if (results) {
        s->result = mem_realloc_array(NULL, s->n, s->result_bytes);
        s->sums = mem_realloc_array(NULL, s->n, sizeof *s->sums);
        ok = ok && s->result && s->sums;
    } else {
        s->largest = mem_realloc_array(NULL, s->n, sizeof *s->largest);
        ok = ok && s->largest;
    }
    if (ok)
        return 0;
    slice_free(s);
    return error_nomem(err, "rows to quantize", s->n * s->result_bytes);
}

int rows_largest(struct pool *p, const struct rows_job *job, float *amax, const struct stream *stream, const char *path, skua_error *err)
{
    const struct gguf_tensor *t = job->source;
    uint64_t rows = t->ne[1] * rows_matrices(t);
    struct slice s;
    int rc = slice_init(&s, p, job, stream, false, err);
    if (rc)
        return rc;
    for (uint64_t m = 0; m < rows_matrices(t); m++)
        amax[m] = 0;
    for (uint64_t step = s.n; s.begin < rows && !rc; s.begin += s.n) {
        s.n = rows - s.begin < step ? rows - s.begin : step;
        rc = run_slice(p, &s, path, err);
        for (uint64_t i = 0; i < s.n && !rc; i++) {
            float *m = &amax[(s.begin + i) / t->ne[1]];
            *m = s.largest[i] > *m ? s.largest[i] : *m;
        }
        stream_release(t->data + s.begin * s.source_bytes, s.n * s.source_bytes);
    }
    slice_free(&s);
    return rc;
}

int rows_quantize(struct pool *p, const struct rows_job *job, struct gguf_writer *w, const char *name, struct rows_sums *sums,
                  struct stream *stream, const char *path, skua_error *err)
{
    const struct gguf_tensor *t = job->source;
    uint64_t rows = t->ne[1] * rows_matrices(t);
    struct slice s;
    *sums = (struct rows_sums){0};
    int rc = slice_init(&s, p, job, stream, true, err);
    if (rc)
        return rc;
    for (uint64_t step = s.n; s.begin < rows && !rc; s.begin += s.n) {
        s.n = rows - s.begin < step ? rows - s.begin : step;
        rc = run_slice(p, &s, path, err);
        for (uint64_t i = 0; i < s.n && !rc && job->measure; i++) {
            sums->error += s.sums[i].error;
            sums->value += s.sums[i].value;
            sums->weighted_error += s.sums[i].weighted_error;
            sums->weighted_value += s.sums[i].weighted_value;
        }
        if (!rc)
            rc = gguf_writer_data(w, name, s.result, s.n * s.result_bytes, err);
        stream_release(t->data + s.begin * s.source_bytes, s.n * s.source_bytes);
        if (!rc)
            stream_advance(stream, s.n * s.source_bytes);
    }
    slice_free(&s);
    return rc;
}
