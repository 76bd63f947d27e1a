/* The table of skua quantize, as text and as JSON; see quantize_report.h. */
#include "cmd/quantize_report.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/inspect_value.h"
#include "quant/type.h"

static const char *type_name(uint32_t type) { return qtype_info(type)->name; }

static double bits(uint64_t bytes, uint64_t elements) { return elements ? 8.0 * (double)bytes / (double)elements : 0; }

static void append_shape(struct strbuf *out, const struct requantize_item *item)
{
    for (uint32_t d = 0; d < item->n_dims; d++)
        strbuf_printf(out, "%s%" PRIu64, d ? " x " : "", item->ne[d]);
}

/* `text`, left-aligned in `width` columns, and two blanks. Its characters are ASCII or escaped to it, but for letters of other
   alphabets in names, where a column may be off. */
static void append_cell(struct strbuf *out, const struct strbuf *text, size_t width)
{
    strbuf_append(out, strbuf_str(text), text->len);
    for (size_t i = text->len; i < width + 2; i++)
        strbuf_putc(out, ' ');
}

static void fill_name(struct strbuf *cell, const struct requantize_item *item)
{
    strbuf_clear(cell);
    value_append_escaped(cell, item->name, strlen(item->name));
}

static void fill_shape(struct strbuf *cell, const struct requantize_item *item)
{
    strbuf_clear(cell);
    append_shape(cell, item);
}

static void append_errors(struct strbuf *out, const struct requantize_item *item)
{
    if (item->measured)
        strbuf_printf(out, "%10.3e  %8.5f  ", item->rmse, item->relative);
    else
        strbuf_printf(out, "%10s  %8s  ", "-", "-");
    if (item->weighted)
        strbuf_printf(out, "%8.5f  ", item->weighted_relative);
    else
        strbuf_printf(out, "%8s  ", "-");
}

static void append_table(const struct quantize_report *q, struct strbuf *out)
{
    struct strbuf cell = {0};
    size_t name_width = strlen("tensor"), shape_width = strlen("shape");
    for (uint32_t i = 0; i < q->r->n_items; i++) {
        fill_name(&cell, &q->r->items[i]);
        name_width = cell.len > name_width ? cell.len : name_width;
        fill_shape(&cell, &q->r->items[i]);
        shape_width = cell.len > shape_width ? cell.len : shape_width;
    }
    strbuf_printf(out, "%-*s  %-*s  %-7s  %-7s  %14s  ", (int)name_width, "tensor", (int)shape_width, "shape", "from", "to", "bytes");
    if (q->errors)
        strbuf_printf(out, "%10s  %8s  %8s  ", "RMSE", "relative", "weighted");
    strbuf_puts(out, "reason\n");
    for (uint32_t i = 0; i < q->r->n_items; i++) {
        const struct requantize_item *item = &q->r->items[i];
        fill_name(&cell, item);
        append_cell(out, &cell, name_width);
        fill_shape(&cell, item);
        append_cell(out, &cell, shape_width);
        strbuf_printf(out, "%-7s  %-7s  %14" PRIu64 "  ", item->added ? "-" : type_name(item->from), type_name(item->to), item->bytes);
        if (q->errors)
            append_errors(out, item);
        strbuf_puts(out, item->added ? "factor" : recipe_reason_name(item->reason));
        if (item->reason == RECIPE_FALLBACK)
            strbuf_printf(out, ": rows do not fit %s", type_name(item->wanted));
        strbuf_putc(out, '\n');
    }
    if (strbuf_failed(&cell))
        out->failed = true;
    strbuf_free(&cell);
}

struct type_sum {
    uint64_t tensors, bytes;
};

static void sum_types(const struct quantize_report *q, struct type_sum sums[QTYPE_END])
{
    memset(sums, 0, QTYPE_END * sizeof *sums);
    for (uint32_t i = 0; i < q->r->n_items; i++) {
        sums[q->r->items[i].to].tensors++;
        sums[q->r->items[i].to].bytes += q->r->items[i].bytes;
    }
}

static void append_file(struct strbuf *out, const char *path, uint64_t file_bytes, uint64_t bytes, uint64_t elements)
{
    value_append_escaped(out, path, strlen(path));
    strbuf_puts(out, ": ");
    value_append_bytes(out, file_bytes);
    strbuf_printf(out, " (%" PRIu64 " bytes), %.3f bits per weight", file_bytes, bits(bytes, elements));
}

void quantize_report_text(const struct quantize_report *q, struct strbuf *out)
{
    const struct requantize_report *r = q->r;
    struct type_sum sums[QTYPE_END];
    append_table(q, out);
    strbuf_putc(out, '\n');
    sum_types(q, sums);
    for (uint32_t type = 0; type < QTYPE_END; type++)
        if (sums[type].tensors) {
            strbuf_printf(out, "%-7s  %6" PRIu64 " tensors  ", type_name(type), sums[type].tensors);
            value_append_bytes(out, sums[type].bytes);
            strbuf_putc(out, '\n');
        }
    append_file(out, q->input, r->file_bytes_before, r->bytes_before, r->elements);
    strbuf_putc(out, '\n');
    append_file(out, q->output, r->file_bytes, r->bytes, r->elements);
    strbuf_printf(out, ", %s%s\n", recipe_name(q->recipe), q->dry_run ? "; not written" : "");
}

/* ---- JSON ---- */

struct maker {
    bool failed; /* a NULL value: out of memory */
};

static void put(struct maker *m, json_t *o, const char *key, json_t *value) { m->failed |= json_object_set_new(o, key, value) != 0; }

static void put_int(struct maker *m, json_t *o, const char *key, uint64_t v)
{
    put(m, o, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static void put_string(struct maker *m, json_t *o, const char *key, const char *s)
{
    put(m, o, key, s ? value_json_string(s, strlen(s)) : json_null());
}

static json_t *make_tensor(struct maker *m, const struct requantize_item *item, bool errors)
{
    json_t *o = json_object(), *shape = json_array();
    for (uint32_t d = 0; d < item->n_dims; d++)
        m->failed |= json_array_append_new(shape, json_integer((json_int_t)item->ne[d])) != 0;
    put_string(m, o, "name", item->name);
    put(m, o, "shape", shape);
    put_string(m, o, "from", item->added ? NULL : type_name(item->from));
    put_string(m, o, "to", type_name(item->to));
    put_string(m, o, "wanted", type_name(item->wanted));
    put_int(m, o, "bytes_before", item->bytes_before);
    put_int(m, o, "bytes", item->bytes);
    put_string(m, o, "reason", item->added ? "factor" : recipe_reason_name(item->reason));
    if (errors) {
        put(m, o, "rmse", item->measured ? json_real(item->rmse) : json_null());
        put(m, o, "relative_rmse", item->measured ? json_real(item->relative) : json_null());
        put(m, o, "weighted_rmse", item->weighted ? json_real(item->weighted_relative) : json_null());
    }
    return o;
}

static json_t *make_types(struct maker *m, const struct quantize_report *q)
{
    struct type_sum sums[QTYPE_END];
    json_t *types = json_object();
    sum_types(q, sums);
    for (uint32_t type = 0; type < QTYPE_END; type++)
        if (sums[type].tensors) {
            json_t *o = json_object();
            put_int(m, o, "tensors", sums[type].tensors);
            put_int(m, o, "bytes", sums[type].bytes);
            put(m, types, type_name(type), o);
        }
    return types;
}

int quantize_report_json(const struct quantize_report *q, struct strbuf *out, skua_error *err)
{
    const struct requantize_report *r = q->r;
    struct maker m = {false};
    json_t *o = json_object(), *tensors = json_array();
    for (uint32_t i = 0; i < r->n_items; i++)
        m.failed |= json_array_append_new(tensors, make_tensor(&m, &r->items[i], q->errors)) != 0;
    put_string(&m, o, "input", q->input);
    put_string(&m, o, "output", q->output);
    put_string(&m, o, "recipe", recipe_name(q->recipe));
    put_string(&m, o, "imatrix", q->imatrix);
    put(&m, o, "dry_run", json_boolean(q->dry_run));
    put(&m, o, "tensors", tensors);
    put(&m, o, "types", make_types(&m, q));
    put_int(&m, o, "elements", r->elements);
    put_int(&m, o, "bytes_before", r->bytes_before);
    put_int(&m, o, "bytes", r->bytes);
    put_int(&m, o, "file_bytes_before", r->file_bytes_before);
    put_int(&m, o, "file_bytes", r->file_bytes);
    put(&m, o, "bits_per_weight_before", json_real(bits(r->bytes_before, r->elements)));
    put(&m, o, "bits_per_weight", json_real(bits(r->bytes, r->elements)));
    put_int(&m, o, "changed", r->n_changed);
    put_int(&m, o, "requantized", r->n_requantized);
    return value_json_dump(o, m.failed, out, err);
}
