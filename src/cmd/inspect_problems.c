/* Why a file does not run: every reason that can be told apart, not only the first. Each piece is examined by the same function
   that the engine uses (config_load, vocab_load, weights_bind). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/inspect_report.h"
#include "cmd/inspect_value.h"
#include "model/vocab.h"

static const char *class_of(int code)
{
    switch (code) {
    case SKUA_EFORMAT: return "E_SCHEMA";
    case SKUA_EUNSUPPORTED: return "unsupported";
    default: return skua_error_name(code);
    }
}

static int add_problem(struct inspect_report *r, int code, const char *message, skua_error *err)
{
    struct inspect_problem *p = mem_realloc_array(r->problems, r->n_problems + 1, sizeof *p);
    struct strbuf escaped = {0};
    if (!p)
        return error_nomem(err, "list of problems", (r->n_problems + 1) * sizeof *p);
    r->problems = p;
    message = error_without_path(message, r->opt->path);
    value_append_escaped(&escaped, message, strlen(message));
    if (strbuf_failed(&escaped)) {
        strbuf_free(&escaped);
        return error_nomem(err, "message", strlen(message));
    }
    p[r->n_problems].class = class_of(code);
    snprintf(p[r->n_problems].message, sizeof p->message, "%s", strbuf_str(&escaped));
    r->n_problems++;
    strbuf_free(&escaped);
    return 0;
}

bool inspect_has_tensor(const struct gguf *g, const char *prefix, const char *within)
{
    size_t n_prefix = strlen(prefix), n_within = strlen(within);
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->name_len >= n_prefix && memcmp(t->name, prefix, n_prefix) == 0 && memmem(t->name, t->name_len, within, n_within))
            return true;
    }
    return false;
}

/* Files that are no models, refused by what they are. */
static const char *refusal(enum inspect_kind kind)
{
    switch (kind) {
    case INSPECT_KIND_MTP_ONLY:
        return "the file holds only an MTP block (no trunk): it drafts for another model and is no model by itself";
    case INSPECT_KIND_DFLASH: return "the file is a DFlash drafter: it drafts for another model and is no model by itself";
    case INSPECT_KIND_DFLASH2: return "the file is a DFlash2 drafter: it drafts for another model and is no model by itself";
    case INSPECT_KIND_DSPARK: return "the file is a DSpark drafter: it drafts for another model and is no model by itself";
    case INSPECT_KIND_IMATRIX: return "the file is an importance matrix (general.type 'imatrix'), not a model";
    case INSPECT_KIND_ADAPTER: return "the file is an adapter (general.type 'adapter'), which this version cannot apply";
    case INSPECT_KIND_PROJECTOR: return "the file is a vision or audio projector (architecture 'clip'), which this version cannot run";
    default: return NULL;
    }
}

static void append_type_names(struct strbuf *b, const struct dev *d)
{
    bool first = true;
    for (uint32_t id = 0; id < QTYPE_END; id++)
        if (qtype_info(id) && d->ops->act_kind(d, id) >= 0) {
            strbuf_printf(b, "%s%s", first ? "" : ", ", qtype_info(id)->name);
            first = false;
        }
}

/* One problem for every role and type that cannot be used. */
static int add_type_problems(struct inspect_report *r, const struct dev *d, skua_error *err)
{
    const struct inspect_tensors *ts = &r->tensors;
    struct strbuf b = {0};
    int rc = 0;
    for (size_t i = 0; i < ts->n_roles && !rc; i++) {
        const struct inspect_role *role = &ts->roles[i];
        for (size_t k = role->run_begin; k < role->run_begin + role->n_runs && !rc; k++) {
            const struct inspect_run *run = &ts->runs[k];
            if (run->status != INSPECT_UNSUPPORTED)
                continue;
            const struct gguf_tensor *t = gguf_tensor_at(r->g, run->first);
            strbuf_clear(&b);
            strbuf_printf(&b, "tensor '%.*s'", (int)t->name_len, t->name);
            if (run->sum.n_tensors > 1)
                strbuf_printf(&b, " and %llu more of this role (%s)", (unsigned long long)(run->sum.n_tensors - 1),
                              inspect_part_name(role->part));
            strbuf_printf(&b, ": type %s cannot be used here; supported: ", qtype_info(run->type)->name);
            if (role->floats)
                strbuf_puts(&b, "F32, F16, BF16");
            else
                append_type_names(&b, d);
            rc = strbuf_failed(&b) ? error_nomem(err, "message", 0) : add_problem(r, SKUA_EUNSUPPORTED, strbuf_str(&b), err);
        }
    }
    strbuf_free(&b);
    return rc;
}

static int any_type(const struct dev *d, uint32_t type)
{
    (void)d;
    (void)type;
    return KERN_ACT_F32;
}

/* Names and shapes. Types have been judged already, so that here the device is made to take all of them. */
static int check_shapes(struct inspect_report *r, struct dev *d, bool bad_types, skua_error *err)
{
    const struct dev_ops *ops = d->ops;
    struct dev_ops permissive = *ops;
    struct weights w;
    skua_error e = {0};
    permissive.act_kind = any_type;
    d->ops = &permissive;
    int rc = weights_bind(r->g, r->config, d, &w, &e);
    if (!rc) {
        r->mtp = w.mtp.present ? INSPECT_MTP_PRESENT : r->mtp;
        weights_free(&w, d);
    }
    d->ops = ops;
    /* with bad types known, "unsupported" can only repeat one of them */
    return rc && !(bad_types && rc == SKUA_EUNSUPPORTED) ? add_problem(r, rc, e.message, err) : 0;
}

static int examine_model(struct inspect_report *r, struct dev *d, skua_error *err)
{
    skua_error e = {0};
    int rc = config_load(r->g, &r->own_config, &e);
    if (r->own_config.n_layer > 0) { /* a shape that was refused later still tells trunk and MTP block apart */
        r->n_block = r->own_config.n_block;
        r->n_layer = r->own_config.n_layer;
    }
    if (rc && (rc = add_problem(r, e.code, e.message, err)))
        return rc;
    if (!r->own_config.arch[0]) /* another architecture: nothing else would mean anything */
        return inspect_sum_tensors(r, NULL, err);
    if (!e.code)
        r->config = &r->own_config;
    skua_error vocab_error = {0};
    if (vocab_load(r->g, &r->own_tokenizer, &vocab_error) && (rc = add_problem(r, vocab_error.code, vocab_error.message, err)))
        return rc;
    r->tokenizer = r->own_tokenizer;
    if ((rc = inspect_sum_tensors(r, d, err)))
        return rc;
    size_t before = r->n_problems;
    if ((rc = add_type_problems(r, d, err)))
        return rc;
    return r->config ? check_shapes(r, d, r->n_problems > before, err) : 0;
}

int inspect_find_problems(struct inspect_report *r, const skua_error *engine_error, skua_error *err)
{
    struct dev *d = NULL;
    const char *why = refusal(r->kind);
    int rc = why ? add_problem(r, SKUA_EUNSUPPORTED, why, err) : dev_cpu_create(kern_select(NULL), 1, 1, &d, err);
    if (rc)
        return rc;
    if (why)
        rc = inspect_sum_tensors(r, NULL, err);
    else
        rc = examine_model(r, d, err);
    if (d)
        d->ops->destroy(d);
    /* what no piece showed: a device that has no memory left, a cache type that does not fit the heads */
    return rc || r->n_problems ? rc : add_problem(r, engine_error->code, engine_error->message, err);
}
