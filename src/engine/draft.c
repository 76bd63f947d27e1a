/* Attaching drafters to an engine; see draft.h. */
#include "engine/draft.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "spec/lookup.h"

/* ---- what a source costs, before it was measured ---- */

/* Guesses, replaced by measurements within a few rounds. Only their proportions matter then. */
#define GUESS_BANDWIDTH 20e9 /* bytes per second */

/* Multiply-adds per second and thread. */
static double guess_macs(const struct dev *d)
{
    static const struct {
        const char *kernels;
        double rate;
    } guesses[] = {{"avx512vnni", 100e9}, {"avx512", 50e9}, {"avxvnni", 60e9}, {"avx2", 40e9},
                   {"i8mm", 80e9}, {"dotprod", 50e9}, {"neon", 20e9}};
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses; i++)
        if (!strcmp(d->kernels, guesses[i].kernels))
            return guesses[i].rate;
    return 2e9;
}

/* What a tensor's bytes and multiply-adds are per row, of routed experts only those that a row uses. */
static void add_tensor(const skua_engine *e, const struct gguf_tensor *t, struct sched_prior *p)
{
    const double macs = (double)t->ne[0] * (double)t->ne[1] * (double)t->ne[2];
    if (t->n_dims < 2 || (!e->weights.tied && t->name_len == 17 && !memcmp(t->name, "token_embd.weight", 17)))
        return;
    if (t->n_dims == 3 && e->config.n_expert > 0) {
        const double share = (double)e->config.n_expert_used / e->config.n_expert;
        p->bytes_row += share * (double)t->size_bytes;
        p->macs_row += share * macs;
        return;
    }
    p->bytes += (double)t->size_bytes;
    p->macs_row += macs;
}

static struct sched_prior target_prior(const skua_engine *e)
{
    const struct model_config *c = &e->config;
    struct sched_prior p = {.bandwidth = GUESS_BANDWIDTH, .mac_rate = guess_macs(e->dev) * e->dev->n_threads};
    for (uint32_t i = 0; i < gguf_tensor_count(e->gguf); i++)
        add_tensor(e, gguf_tensor_at(e->gguf, i), &p);
    p.bytes_row += 2.0 * (double)config_state_bytes(c);
    p.bytes_pos = (double)config_kv_page_bytes(c, e->kv_type) / KV_PAGE_ROWS;
    p.macs_pos = 2.0 * c->n_attn * c->n_head * c->head_dim;
    return p;
}

static double weight_bytes(const struct kern_weight *w)
{
    return w->n_out ? (double)qtype_row_bytes(w->type, (uint64_t)w->n_in) * w->n_out : 0;
}

static double file_bytes(const struct gguf *g)
{
    double sum = 0;
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++)
        sum += (double)gguf_tensor_at(g, i)->size_bytes;
    return sum;
}

/* Bytes of the bundled block; its experts count as those of the model's layers do. */
static double mtp_bytes(const skua_engine *e)
{
    double sum = weight_bytes(&e->weights.mtp.eh_proj), one = target_prior(e).bytes + target_prior(e).bytes_row;
    return sum + (one - weight_bytes(&e->weights.head)) / (e->config.n_layer + 1);
}

/* ---- sources ---- */

static struct draft_source *add_source(struct engine_draft *d, enum sched_kind kind, const char *kind_name, const char *name)
{
    struct draft_source *s = &d->sources[d->n_sources++];
    s->kind = kind;
    snprintf(s->kind_name, sizeof s->kind_name, "%s", kind_name);
    snprintf(s->name, sizeof s->name, "%s", name);
    return s;
}

static void add_lookup(struct engine_draft *d)
{
    add_source(d, SCHED_LOOKUP, "lookup", "lookup");
    sched_costs_source(&d->costs, d->n_sources - 1, 0, 0);
}

static void add_mtp(skua_engine *e, struct engine_draft *d, const struct mtp_weights *w, double bytes, const char *name)
{
    struct draft_source *s = add_source(d, SCHED_CHAIN, "mtp", name);
    s->mtp = (struct mtp_model){.config = &e->config, .weights = w, .forward = e->forward, .dev = e->dev, .kv_type = e->kv_type,
                                .max_rows = e->max_rows, .name = s->name};
    sched_costs_source(&d->costs, d->n_sources - 1, 0,
        (bytes + weight_bytes(w->head.n_out ? &w->head : &e->weights.head)) / GUESS_BANDWIDTH);
}

static int add_dflash(skua_engine *e, struct engine_draft *d, const skua_draft_params *p, const struct dflash_target *t, skua_error *err)
{
    static const enum dflash_numbering numbering[] = {DFLASH_NUMBERING_AUTO, DFLASH_NUMBERING_INPUT, DFLASH_NUMBERING_OUTPUT};
    static const char *const kinds[] = {"dflash", "dflash2", "dspark"};
    struct draft_source *s = &d->sources[d->n_sources];
    struct dflash_options o = {.numbering = numbering[p->taps], .causal = p->causal, .head_ids_path = p->head_ids};
    int rc = dflash_file_open(&s->dflash_file, p->source, t, &o, e->dev, err);
    if (!rc)
        rc = dflash_create(&s->dflash_file->config, &s->dflash_file->weights, e->dev, e->kv_type, &s->dflash, err);
    if (rc)
        return rc;
    add_source(d, SCHED_BLOCK, kinds[s->dflash_file->config.variant], s->dflash_file->summary);
    strbuf_puts(&d->notes, strbuf_str(&s->dflash_file->warnings));
    sched_costs_source(&d->costs, d->n_sources - 1,
                       (file_bytes(s->dflash_file->gguf) + weight_bytes(&s->dflash_file->weights.head)) / GUESS_BANDWIDTH, 0);
    return 0;
}

/* A drafter file: of the DFlash family, or an MTP head. */
static int add_file(skua_engine *e, struct engine_draft *d, const skua_draft_params *p, skua_error *err)
{
    const struct dflash_target t = {.gguf = e->gguf, .config = &e->config, .weights = &e->weights, .samplable = e->samplable};
    struct gguf *g;
    int rc = gguf_open(&g, p->source, err);
    if (rc == SKUA_EIO && !strpbrk(p->source, "/.")) /* a word that was meant to be another */
        return error_set(err, rc, "there is no drafter file '%s'; expected the name of one, mtp, lookup, auto or none", p->source);
    if (rc)
        return rc;
    const bool dflash = dflash_file_is(g, NULL);
    gguf_close(g);
    if (dflash)
        return add_dflash(e, d, p, &t, err);
    if (p->head_ids || p->causal >= 0 || p->taps != SKUA_TAPS_AUTO)
        return error_set(err, SKUA_EARG, "%s: options for DFlash drafters, but this is none", p->source);
    struct draft_source *s = &d->sources[d->n_sources];
    rc = mtp_file_open(&s->mtp_file, p->source, &t, e->kv_type, e->dev, err);
    if (rc)
        return rc;
    strbuf_puts(&d->notes, strbuf_str(&s->mtp_file->warnings));
    add_mtp(e, d, &s->mtp_file->weights, file_bytes(s->mtp_file->gguf), s->mtp_file->summary);
    return 0;
}

static int add_sources(skua_engine *e, struct engine_draft *d, const skua_draft_params *p, skua_error *err)
{
    const bool automatic = !strcmp(p->source, "auto"), mtp = !strcmp(p->source, "mtp"), lookup = !strcmp(p->source, "lookup");
    const bool file = !automatic && !mtp && !lookup, bundled = e->weights.mtp.present;
    int rc = file ? add_file(e, d, p, err) : 0;
    if (!rc && mtp && !bundled)
        rc = error_set(err, SKUA_EUNSUPPORTED, "the model has no MTP block to draft with; expected one in %s, or a drafter file", e->path);
    if (!rc && !file && (p->head_ids || p->causal >= 0 || p->taps != SKUA_TAPS_AUTO))
        rc = error_set(err, SKUA_EARG, "options for DFlash drafters, but '%s' is no drafter file", p->source);
    if (rc)
        return rc;
    const bool has_head = d->n_sources && d->sources[0].mtp_file;
    if (bundled && !lookup && !has_head)
        add_mtp(e, d, &e->weights.mtp, mtp_bytes(e), "mtp (bundled)");
    if (!mtp)
        add_lookup(d);
    if (d->sources[0].dflash) {
        add_source(d, SCHED_COMBINED, "combined", "combined");
        d->costs.draft_fixed[d->n_sources - 1] = d->costs.draft_fixed[0];
    }
    return 0;
}

/* ---- attaching ---- */

static int check_params(const skua_draft_params *p, skua_error *err)
{
    if (p->max < 0 || p->max > DRAFT_MAX)
        return error_set(err, SKUA_EARG, "at most %d drafts of a round; expected 1 to %d, or 0 for no limit", p->max, DRAFT_MAX);
    if (p->fixed < -1)
        return error_set(err, SKUA_EARG, "%d drafts in every round; expected 0 or more, or -1 for adaptive", p->fixed);
    if (!(p->min_gain >= 0 && p->min_gain <= 10))
        return error_set(err, SKUA_EARG, "a gain of %g to draft for; expected 0 to 10", p->min_gain);
    if (p->fixed >= 0 && p->schedule)
        return error_set(err, SKUA_EARG, "both a fixed number of drafts and a schedule; expected one of them");
    if (p->schedule && p->n_schedule < 1)
        return error_set(err, SKUA_EARG, "an empty schedule of drafts; expected at least one number");
    for (int32_t i = 0; p->schedule && i < p->n_schedule; i++)
        if (p->schedule[i] < 0)
            return error_set(err, SKUA_EARG, "%d drafts in round %d of the schedule; expected 0 or more", p->schedule[i], i + 1);
    return 0;
}

/* The most that one of the sources can draft in a round. */
static int32_t longest_draft(const struct engine_draft *d)
{
    int32_t most = 0;
    for (int32_t i = 0; i < d->n_sources; i++) {
        const struct draft_source *s = &d->sources[i];

                   const int32_t n = s->dflash_file ? dflash_max_drafts(&s->dflash_file->config)
                       : s->kind == SCHED_LOOKUP ? DRAFT_MAX : MTP_MAX_DRAFTS;
        most = n > most ? n : most;
    }
    return most;
}

/* Fixed numbers and schedules are clamped to what the first source can do, and that is said. */
static int copy_script(struct engine_draft *d, const skua_draft_params *p, skua_error *err)
{
    const int32_t *from = p->schedule ? p->schedule : &p->fixed;
    const int32_t n = p->schedule ? p->n_schedule : p->fixed >= 0 ? 1 : 0;
    const int32_t first = d->sources[0].dflash_file ? dflash_max_drafts(&d->sources[0].dflash_file->config) : longest_draft(d);
    const int32_t most = d->max && d->max < first ? d->max : first;
    d->mode = p->schedule ? SCHED_SCRIPT : n ? SCHED_FIXED : SCHED_ADAPT;
    d->n_script = n;
    if (!n)
        return 0;
    d->script = mem_alloc((size_t)n * sizeof *d->script);
    if (!d->script)
        return error_nomem(err, "schedule of drafts", (size_t)n * sizeof *d->script);
    int32_t asked = 0;
    for (int32_t i = 0; i < n; i++) {
        asked = from[i] > asked ? from[i] : asked;
        d->script[i] = from[i] < most ? from[i] : most;
    }
    if (asked > most)
        strbuf_printf(&d->notes, "%d drafts in a round are more than %s: %d are taken\n", asked,
                      most < first ? "the limit" : "can be drafted", most);
    return 0;
}

static int set_capture(skua_engine *e, const struct engine_draft *d, skua_error *err)
{
    const struct dflash_config *c = d->sources[0].dflash_file ? &d->sources[0].dflash_file->config : NULL;
    bool hidden = false;
    for (int32_t i = 0; i < d->n_sources; i++)
        hidden = hidden || d->sources[i].kind == SCHED_CHAIN;
    return c || hidden ? forward_set_capture(e->forward, c ? c->taps : NULL, c ? c->n_taps : 0, hidden, err) : 0;
}

static void on_rows(void *user, skua_session *s, const struct draft_rows *rows)
{
    (void)user;
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (d && !d->lost && (d->n_pos != rows->pos || d->ops->extend(d, rows, NULL)))
            d->lost = true;
    }
}

/* One line: what is armed, and what decides. */
static void tell_armed(skua_engine *e, const skua_draft_params *p)
{
    struct engine_draft *d = e->draft;
    strbuf_puts(&d->notes, "drafting: ");
    for (int32_t i = 0; i < d->n_sources; i++)
        strbuf_printf(&d->notes, "%s%s", i ? ", " : "", d->sources[i].name);
    if (!strcmp(p->source, "auto") && !e->weights.mtp.present)
        strbuf_puts(&d->notes, " (the model has no MTP block)");
    if (d->mode == SCHED_SCRIPT)
        strbuf_puts(&d->notes, "; as many as the schedule says");
    else if (d->mode == SCHED_FIXED)
        strbuf_printf(&d->notes, "; %d in every round", d->script[0]);
    else
        strbuf_puts(&d->notes, p->force ? "; also where it does not pay" : "; as far as it is measured to pay");
    if (d->mode != SCHED_ADAPT && d->n_sources > 1)
        strbuf_puts(&d->notes, ", of the first that has any");
    strbuf_putc(&d->notes, '\n');
}

static int attach(skua_engine *e, const skua_draft_params *p, skua_error *err)
{
    struct engine_draft *d = e->draft;
    const struct sched_prior prior = target_prior(e);
    sched_costs_init(&d->costs, &prior);
    sched_costs_init(&d->shared_costs, &prior);
    d->max = p->max;
    d->min_gain = p->force ? -1.0 : p->min_gain;
    int rc = add_sources(e, d, p, err);
    if (!rc)
        rc = copy_script(d, p, err);
    if (!rc)
        rc = set_capture(e, d, err);
    if (!rc)
        tell_armed(e, p);
    if (!rc && strbuf_failed(&d->notes))
        rc = error_nomem(err, "notes on drafting", 0);
    return rc;
}

int skua_engine_draft(skua_engine *e, const skua_draft_params *p, const char **notes, skua_error *err)
{
    if (notes)
        *notes = "";
    int rc = check_params(p, err);
    if (rc || !p->source || !strcmp(p->source, "none"))
        return rc;
    if (e->n_sessions || e->draft)
        return error_set(err, SKUA_ESTATE, "drafters are attached once, before the first session");
    e->draft = mem_calloc(1, sizeof *e->draft);
    if (!e->draft)
        return error_nomem(err, "drafters", sizeof *e->draft);
    rc = attach(e, p, err);
    if (rc) {
        engine_draft_free(e);
        return rc;
    }
    e->on_rows = on_rows;
    if (notes)
        *notes = strbuf_str(&e->draft->notes);
    return 0;
}

void engine_draft_free(skua_engine *e)
{
    struct engine_draft *d = e->draft;
    if (!d)
        return;
    for (int32_t i = 0; i < SCHED_MAX_SOURCES; i++) {
        dflash_free(d->sources[i].dflash);
        dflash_file_close(d->sources[i].dflash_file);
        mtp_file_close(d->sources[i].mtp_file);
    }
    strbuf_free(&d->notes);
    mem_free(d->script);
    mem_free(d);
    e->draft = NULL;
    e->on_rows = NULL;
}
