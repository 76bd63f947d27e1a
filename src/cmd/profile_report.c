/* Profiles for people and for programs; see profile_report.h. */
#include "cmd/profile_report.h"

#include <stdlib.h>

#include "quant/type.h"

static int by_phase_and_time(const void *a, const void *b)
{
    const struct profile_entry *x = a, *y = b;
    if (x->phase != y->phase)
        return x->phase < y->phase ? -1 : 1;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

static void sort(struct profile *p)
{
    if (p->n)
        qsort(p->entries, (size_t)p->n, sizeof *p->entries, by_phase_and_time);
}

static const char *type_name(const struct profile_entry *e) { return e->type < 0 ? "" : qtype_info((uint32_t)e->type)->name; }

static const char *rows_name(const struct profile_entry *e)
{
    switch (e->act) {
    case KERN_ACT_Q12_32: return "12 bits per 32";
    case KERN_ACT_Q12_256: return "12 bits per 256";
    case KERN_ACT_Q8_256: return "8 bits per 256";
    default: return "float32";
    }
}

/* 1e9 of something per second. */
static double giga(uint64_t amount, uint64_t ns) { return ns ? (double)amount / (double)ns : 0; }

static void line(struct strbuf *out, const char *op, const char *role, const char *type, uint64_t calls, uint64_t ns, uint64_t all_ns,
                 const struct kern_cost *c)
{
    const uint64_t bytes = profile_bytes(c);
    strbuf_printf(out, "  %-11s %-20s %-8s %8llu %10.2f %6.1f%%", op, role, type, (unsigned long long)calls, (double)ns * 1e-6,
                  all_ns ? 100.0 * (double)ns / (double)all_ns : 0.0);
    if (bytes)
        strbuf_printf(out, " %10.1f %7.2f", (double)bytes * 1e-6, giga(bytes, ns));
    else
        strbuf_puts(out, c->macs ? "                   " : "");
    if (c->macs)
        strbuf_printf(out, " %8.2f", giga(c->macs, ns));
    strbuf_putc(out, '\n');
}

static void phase_text(const struct profile *p, enum profile_phase phase, struct strbuf *out)
{
    const uint64_t all = profile_ns(p, phase);
    const struct kern_cost sum = profile_cost(p, phase);
    uint64_t calls = 0;
    strbuf_printf(out, "%s: %llu passes, %llu rows, %.2f ms in ops\n", profile_phase_name(phase), (unsigned long long)p->passes[phase],
                  (unsigned long long)p->rows[phase], (double)all * 1e-6);
    strbuf_puts(out, "  op          role                 type        calls         ms   share         MB    GB/s   GMAC/s\n");
    for (int i = 0; i < p->n; i++) {
        const struct profile_entry *e = &p->entries[i];
        if (e->phase != phase)
            continue;
        calls += e->calls;
        line(out, kern_op_name(e->code), e->role, type_name(e), e->calls, e->ns, all, &e->cost);
    }
    line(out, "all", "", "", calls, all, all, &sum);
}

void profile_text(struct profile *p, struct strbuf *out)
{
    sort(p);
    for (int phase = 0; phase < PROFILE_PHASES; phase++)
        if (p->passes[phase])
            phase_text(p, (enum profile_phase)phase, out);
}

static json_t *entry_json(const struct profile_entry *e, uint64_t all_ns)
{
    const uint64_t bytes = profile_bytes(&e->cost);
    return json_pack("{s:s, s:s, s:s?, s:I, s:f, s:f, s:I, s:f, s:I, s:f}", "op", kern_op_name(e->code), "role", e->role, "type",
                     e->type < 0 ? NULL : type_name(e), "calls", (json_int_t)e->calls, "ms", (double)e->ns * 1e-6, "share",
                     all_ns ? (double)e->ns / (double)all_ns : 0.0, "bytes", (json_int_t)bytes, "gb_s", giga(bytes, e->ns), "macs",
                     (json_int_t)e->cost.macs, "gmac_s", giga(e->cost.macs, e->ns));
}

json_t *profile_json(struct profile *p)
{
    json_t *root = json_object();
    int rc = 0;
    sort(p);
    for (int k = 0; k < PROFILE_PHASES; k++) {
        const enum profile_phase phase = (enum profile_phase)k;
        json_t *ops = json_array();
        for (int i = 0; i < p->n; i++)
            if (p->entries[i].phase == phase)
                rc |= json_array_append_new(ops, entry_json(&p->entries[i], profile_ns(p, phase)));
        rc |= json_object_set_new(root, profile_phase_name(phase),
                                  json_pack("{s:I, s:I, s:f, s:o}", "passes", (json_int_t)p->passes[phase], "rows",
                                            (json_int_t)p->rows[phase], "ms", (double)profile_ns(p, phase) * 1e-6, "ops", ops));
    }
    if (rc) {
        json_decref(root);
        return NULL;
    }
    return root;
}

/* ---- kernels ---- */

void profile_kernels_text(const struct profile *p, const char *tier, struct strbuf *out)
{
    strbuf_printf(out, "  %-20s %-8s %-16s %8s  %s\n", "role", "type", "rows as", "matrices", "kernel");
    for (int i = 0; i < p->n; i++) {
        const struct profile_entry *e = &p->entries[i];
        if (e->type >= 0)
            strbuf_printf(out, "  %-20s %-8s %-16s %8llu  %s, %s%s\n", e->role, type_name(e), rows_name(e), (unsigned long long)e->calls,
                          kern_op_name(e->code), tier, e->tiled ? ", tiled" : "");
    }
}

json_t *profile_kernels_json(const struct profile *p, const char *tier)
{
    json_t *list = json_array();
    int rc = 0;
    for (int i = 0; i < p->n; i++) {
        const struct profile_entry *e = &p->entries[i];
        if (e->type >= 0)
            rc |= json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:b}", "role", e->role, "type", type_name(e),
                                                        "rows", rows_name(e), "matrices", (json_int_t)e->calls, "op",
                                                        kern_op_name(e->code), "tier", tier, "tiled", (int)e->tiled));
    }
    if (rc) {
        json_decref(list);
        return NULL;
    }
    return list;
}
