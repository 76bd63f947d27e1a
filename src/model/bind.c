/* Binding tensors; see bind.h. */
#include "model/bind.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "quant/quant.h"

/* The names of all types that the device can multiply, "F32, F16, ..." */
static const char *supported_types(const struct binder *b, char out[256])
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t id = 0; id < QTYPE_END; id++)
        if (qtype_info(id) && b->dev->ops->act_kind(b->dev, id) >= 0)
            used += (size_t)snprintf(out + used, 256 - used, "%s%s", used ? ", " : "", qtype_info(id)->name);
    return out;
}

static void tensor_name(char out[96], int block, const char *role)
{
    if (block < 0)
        snprintf(out, 96, "%s", role);
    else
        snprintf(out, 96, "blk.%d.%s", block, role);
}

const struct gguf_tensor *bind_find(const struct binder *b, int block, const char *role)
{
    char name[96];
    tensor_name(name, block, role);
    return gguf_find_tensor(b->g, name);
}

const struct gguf_tensor *bind_require(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, int64_t ne2)
{
    char name[96];
    const struct gguf_tensor *t;
    if (b->rc)
        return NULL;
    tensor_name(name, block, role);
    b->rc = gguf_require_tensor(b->g, name, &t, b->err);
    if (b->rc)
        return NULL;
    if (t->ne[0] != (uint64_t)ne0 || t->ne[1] != (uint64_t)ne1 || t->ne[2] != (uint64_t)ne2 || t->ne[3] != 1) {
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor '%s' has shape [%llu, %llu, %llu, %llu], expected [%lld, %lld, %lld, 1]", name,
                          (unsigned long long)t->ne[0], (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                          (unsigned long long)t->ne[3], (long long)ne0, (long long)ne1, (long long)ne2);
        return NULL;
    }
    b->n_used++;
    return t;
}

struct kern_view bind_view(const struct binder *b, const struct gguf_tensor *t)
{
    return (struct kern_view){b->file->shards[t->shard], t->file_offset};
}

/* The companions of a matrix: NAME.scale, a factor per matrix that multiplies its products; NAME.input_scale, which would tell how
   to quantise activations and has no use here. */
static void bind_companions(struct binder *b, const char *name, int64_t n_expert, struct kern_weight *w)
{
    char companion[112];
    if (strlen(name) < strlen(".weight") || strcmp(name + strlen(name) - strlen(".weight"), ".weight") != 0)
        return;
    int stem = (int)(strlen(name) - strlen(".weight"));
    snprintf(companion, sizeof companion, "%.*s.input_scale", stem, name);
    b->n_used += gguf_find_tensor(b->g, companion) != NULL;
    snprintf(companion, sizeof companion, "%.*s.scale", stem, name);
    const struct gguf_tensor *t = gguf_find_tensor(b->g, companion);
    if (!t)
        return;
    if (t->type != QTYPE_F32 || t->ne[0] != (uint64_t)n_expert || t->ne[1] * t->ne[2] * t->ne[3] != 1) {
        b->rc = error_set(b->err, SKUA_EFORMAT, "tensor '%s' is %s [%llu, %llu, %llu, %llu], expected F32 [%lld], one factor per matrix",
                          companion, qtype_info(t->type)->name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
                          (unsigned long long)t->ne[2], (unsigned long long)t->ne[3], (long long)n_expert);
        return;
    }
    b->rc = quant_row_check(QTYPE_F32, t->data, n_expert, NULL);
    if (b->rc) {
        error_set(b->err, b->rc, "tensor '%s' holds a factor that is not finite", companion);
        return;
    }
    w->scale = bind_view(b, t);
    b->n_used++;
}

void bind_tiles(struct binder *b, const struct gguf_tensor *t, struct kern_weight *w)
{
    struct bound_file *f = b->file;
    if (b->rc || !b->tiling || !b->dev->ops->tiles_fit(b->dev, w->type, w->n_out))
        return;
    struct kern_buf **list = mem_realloc_array(f->tiles, (size_t)f->n_tiles + 1, sizeof *list), *tiles;
    if (!list) {
        b->rc = error_nomem(b->err, "list of tiled matrices", ((size_t)f->n_tiles + 1) * sizeof *list);
        return;
    }
    f->tiles = list;
    b->rc = b->dev->ops->tile(b->dev, w, &tiles, b->err);
    if (b->rc)
        return;
    f->tiles[f->n_tiles++] = tiles;
    w->tiles = (struct kern_view){tiles, 0};
    gguf_forget(b->g, t);
    if (b->dev->on_tiled)
        b->dev->on_tiled(b->dev->on_tiled_user, tiles->size);
}

void bind_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, int64_t n_expert, struct kern_weight *w)
{
    bind_lookup(b, block, role, n_in, n_out, n_expert, w);
    if (!b->rc)
        bind_tiles(b, bind_find(b, block, role), w);
}

void bind_lookup(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, int64_t n_expert, struct kern_weight *w)
{
    char name[96], types[256];
    const struct gguf_tensor *t = bind_require(b, block, role, n_in, n_out, n_expert);
    if (!t)
        return;
    tensor_name(name, block, role);
    if (b->dev->ops->act_kind(b->dev, t->type) < 0) {
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor '%s' has type %s, which this version cannot run; supported: %s", name,
                          qtype_info(t->type)->name, supported_types(b, types));
        return;
    }
    *w = (struct kern_weight){.data = bind_view(b, t), .type = t->type, .n_in = (int32_t)n_in, .n_out = (int32_t)n_out,
                              .n_expert = (int32_t)n_expert};
    bind_companions(b, name, n_expert, w);
}

void bind_float_matrix(struct binder *b, int block, const char *role, int64_t n_in, int64_t n_out, struct kern_weight *w)
{
    bind_matrix(b, block, role, n_in, n_out, 1, w);
    if (b->rc || w->type == QTYPE_F32 || w->type == QTYPE_F16 || w->type == QTYPE_BF16)
        return;
    b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor 'blk.%d.%s' has type %s; supported here: F32, F16, BF16", block, role,
                      qtype_info(w->type)->name);
}

void bind_vector(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, struct kern_view *v)
{
    bind_table(b, block, role, ne0, ne1, 1, v);
}

void bind_table(struct binder *b, int block, const char *role, int64_t ne0, int64_t ne1, int64_t ne2, struct kern_view *v)
{
    const struct gguf_tensor *t = bind_require(b, block, role, ne0, ne1, ne2);
    if (!t)
        return;
    if (t->type == QTYPE_F32) {
        *v = bind_view(b, t);
        return;
    }
    if (t->type != QTYPE_F16 && t->type != QTYPE_BF16) {
        char name[96];
        tensor_name(name, block, role);
        b->rc = error_set(b->err, SKUA_EUNSUPPORTED, "tensor '%s' has type %s; supported here: F32, F16, BF16", name,
                          qtype_info(t->type)->name);
        return;
    }
    size_t bytes = (size_t)(ne0 * ne1 * ne2) * sizeof(float);
    *v = (struct kern_view){b->file->vectors, b->file->vectors_used};
    b->file->vectors_used += bytes;
    for (int64_t i = 0; i < ne1 * ne2; i++) {
        const uint8_t *row = t->data + (size_t)i * qtype_row_bytes(t->type, (uint64_t)ne0);
        float piece[256];
        for (int64_t k = 0; k < ne0; k += 256) {
            int64_t n = ne0 - k < 256 ? ne0 - k : 256;
            dequant_row(t->type, row + 2 * k, piece, n); /* both types have two bytes per value */
            b->dev->ops->write(b->dev, kern_view_at(*v, (size_t)(i * ne0 + k) * sizeof(float)), piece, (size_t)n * sizeof(float));
        }
    }
}

int bind_open(struct binder *b, size_t vector_bytes)
{
    struct bound_file *f = b->file;
    uint32_t n = gguf_shard_count(b->g);
    *f = (struct bound_file){0};
    b->tiling = b->dev->tiling;
    f->shards = mem_calloc(n, sizeof *f->shards);
    if (!f->shards)
        return b->rc = error_nomem(b->err, "shard list", n * sizeof *f->shards);
    for (; f->n_shards < n; f->n_shards++) {
        size_t size;
        const uint8_t *data = gguf_shard_data(b->g, f->n_shards, &size);
        b->rc = b->dev->ops->buf_wrap(b->dev, data, size, &f->shards[f->n_shards], b->err);
        if (b->rc)
            return b->rc;
    }
    return b->rc = b->dev->ops->buf_alloc(b->dev, vector_bytes, &f->vectors, b->err);
}

size_t bound_file_tiled_bytes(const struct bound_file *f)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < f->n_tiles; i++)
        sum += f->tiles[i]->size;
    return sum;
}

void bound_file_free(struct bound_file *f, struct dev *d)
{
    for (uint32_t i = 0; i < f->n_shards; i++)
        d->ops->buf_free(d, f->shards[i]);
    mem_free(f->shards);
    for (uint32_t i = 0; i < f->n_tiles; i++)
        d->ops->buf_free(d, f->tiles[i]);
    mem_free(f->tiles);
    d->ops->buf_free(d, f->vectors);
    *f = (struct bound_file){0};
}
