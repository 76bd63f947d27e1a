/* The data section of a GGUF file: does every tensor lie inside the file, does none overlap another, and do the sizes of
 * the two types whose ids are ambiguous agree with the file.
 *
 * Ids 36 and 37 were withdrawn from the format; this program's Q4_64A and Q2_64A use them privately and another program
 * uses 36 for something else. The sizes tell: such a tensor must be followed directly (after padding) by the next one, or by
 * the end of the file. Other tensors may be followed by gaps, and the file by bytes that are ignored.
 */
#include "base/mem.h"
#include "gguf/gguf_internal.h"

void gguf_decode_tensor(gguf_entry info, struct gguf_tensor *t, uint64_t *offset)
{
    uint64_t name_len = load_u64(info);
    const uint8_t *p = info + 8 + name_len;
    *t = (struct gguf_tensor){.name = (const char *)info + 8, .name_len = (uint8_t)name_len, .n_dims = (uint8_t)load_u32(p)};
    p += 4;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < GGUF_MAX_DIMS; d++) {
        t->ne[d] = 1;
        if (d < t->n_dims) {
            t->ne[d] = load_u64(p);
            p += 8;
        }
        elements *= t->ne[d];
    }
    t->type = load_u32(p);
    *offset = load_u64(p + 4);
    const struct qtype_info *type = qtype_info(t->type);
    /* a size that does not fit size_t is larger than any file here; gguf_check_layout judges the exact one */
    t->size_bytes = (size_t)(elements / type->block_elements * type->block_bytes);
}

/* Data offset and exact size of a tensor. */
struct extent {
    uint64_t offset, size;
};

static struct extent extent_of(gguf_entry info)
{
    struct gguf_tensor t;
    struct extent e;
    gguf_decode_tensor(info, &t, &e.offset);
    const struct qtype_info *type = qtype_info(t.type);
    e.size = t.ne[0] * t.ne[1] * t.ne[2] * t.ne[3] / type->block_elements * type->block_bytes;
    return e;
}

static uint64_t round_up(uint64_t n, uint64_t alignment)
{
    return (n + alignment - 1) & ~(alignment - 1);
}

static void name_tensor(struct gguf_report *r, gguf_entry info)
{
    gguf_report_subject(r, "tensor", (const char *)info + 8, (size_t)load_u64(info));
}

/* File offset of the field that holds a tensor's data offset: the last of its info. */
static size_t offset_field(const struct gguf_shard *s, gguf_entry info)
{
    const uint8_t *dims = info + 8 + load_u64(info);
    return (size_t)(dims - s->base) + 4 + 8 * (size_t)load_u32(dims) + 4;
}

static uint64_t offset_of(const struct gguf_shard *s, gguf_entry info)
{
    return load_u64(s->base + offset_field(s, info));
}

/* ---- order by offset ---- */

/* Heap sort of tensor numbers: in place and n log n for every input, which qsort does not promise. */
static void sift_down(uint32_t *order, uint32_t root, uint32_t n, const struct gguf_shard *s, const gguf_entry *infos)
{
    for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && offset_of(s, infos[order[child]]) < offset_of(s, infos[order[child + 1]]))
            child++;
        if (offset_of(s, infos[order[root]]) >= offset_of(s, infos[order[child]]))
            return;
        uint32_t swap = order[root];
        order[root] = order[child];
        order[child] = swap;
    }
}

static void sort_by_offset(uint32_t *order, uint32_t n, const struct gguf_shard *s, const gguf_entry *infos)
{
    bool sorted = true; /* the usual case */
    for (uint32_t i = 1; i < n && sorted; i++)
        sorted = offset_of(s, infos[order[i - 1]]) <= offset_of(s, infos[order[i]]);
    if (sorted)
        return;
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(order, i, n, s, infos);
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t swap = order[0];
        order[0] = order[i];
        order[i] = swap;
        sift_down(order, 0, i, s, infos);
    }
}

/* ---- checks ---- */

static bool is_ambiguous(gguf_entry info)
{
    struct gguf_tensor t;
    uint64_t offset;
    gguf_decode_tensor(info, &t, &offset);
    return t.type == QTYPE_Q4_64A || t.type == QTYPE_Q2_64A;
}

/* Said in addition when a size is wrong: the file may be right and mean another type by the number. */
static const char *hint(gguf_entry info)
{
    return is_ambiguous(info) ? " (type ids 36 and 37 are read as Q4_64A and Q2_64A; other programs use them differently)" : "";
}

static int check_ranges(struct gguf_report *r, const struct gguf_shard *s, const gguf_entry *infos, uint32_t n)
{
    uint64_t room = s->size - s->data_start;
    for (uint32_t i = 0; i < n; i++) {
        struct extent e = extent_of(infos[i]);
        if (e.offset <= room && e.size <= room - e.offset)
            continue;
        name_tensor(r, infos[i]);
        return gguf_fail(r, GGUF_E_RANGE, offset_field(s, infos[i]),
                         "%llu bytes at data offset %llu, but the data section has %llu bytes%s", (unsigned long long)e.size,
                         (unsigned long long)e.offset, (unsigned long long)room, hint(infos[i]));
    }
    return 0;
}

/* For an ambiguous type, what follows must begin right behind it. `next` is the next tensor's offset or, for the last
   one, the size of the data section (which may or may not have the final padding). */
static int check_ambiguous(struct gguf_report *r, const struct gguf_shard *s, gguf_entry info, uint64_t next, bool last)
{
    struct extent e = extent_of(info);
    uint64_t end = round_up(e.offset + e.size, s->alignment);
    if (last ? next <= end : next == end)
        return 0;
    struct gguf_tensor t;
    uint64_t offset;
    gguf_decode_tensor(info, &t, &offset);
    name_tensor(r, info);
    return gguf_fail(r, GGUF_E_TTYPE, offset_field(s, info) - 4,
                     "type id %u is ambiguous: read as %s it has %llu bytes and ends at data offset %llu, but %s at %llu; "
                     "other programs use this id for other types",
                     (unsigned)t.type, qtype_info(t.type)->name, (unsigned long long)e.size, (unsigned long long)end,
                     last ? "the file ends" : "the next tensor begins", (unsigned long long)next);
}

static int check_overlaps(struct gguf_report *r, const struct gguf_shard *s, const gguf_entry *infos,
                          const uint32_t *order, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        gguf_entry before = infos[order[i - 1]], info = infos[order[i]];
        struct extent a = extent_of(before), b = extent_of(info);
        if (b.offset >= a.offset + a.size)
            continue;
        name_tensor(r, info);
        return gguf_fail(r, GGUF_E_OVERLAP, offset_field(s, info),
                         "starts at data offset %llu, before tensor '%s' ends at %llu%s", (unsigned long long)b.offset,
                         gguf_quote((const char *)before + 8, (size_t)load_u64(before)).text,
                         (unsigned long long)(a.offset + a.size), hint(before));
    }
    return 0;
}

int gguf_check_layout(struct gguf_report *r, const struct gguf_shard *s, const gguf_entry *infos, uint32_t n)
{
    if (n == 0)
        return 0;
    if (s->data_start > s->size) {
        r->subject[0] = '\0';
        return gguf_fail(r, GGUF_E_RANGE, s->size, "the data section starts at byte %llu, past the end",
                         (unsigned long long)s->data_start);
    }
    int rc = check_ranges(r, s, infos, n);
    if (rc)
        return rc;
    uint32_t *order = mem_alloc(n * sizeof *order);
    if (!order)
        return error_nomem(r->err, "tensor order", n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    sort_by_offset(order, n, s, infos);
    rc = check_overlaps(r, s, infos, order, n);
    for (uint32_t i = 0; i < n && !rc; i++) {
        bool last = i + 1 == n;
        if (is_ambiguous(infos[order[i]]))
            rc = check_ambiguous(r, s, infos[order[i]],
                                 last ? s->size - s->data_start : offset_of(s, infos[order[i + 1]]), last);
    }
    mem_free(order);
    return rc;
}
