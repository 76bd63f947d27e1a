/* A session's drafters and its rounds; see draft.h. */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/draft.h"
#include "model/seq.h"
#include "spec/lookup.h"

_Static_assert(SKUA_DRAFT_MAX == DRAFT_MAX && SKUA_DRAFT_SOURCES == SCHED_MAX_SOURCES, "public sizes");

static int create_drafter(const skua_engine *e, const struct draft_source *s, struct drafter **out, skua_error *err)
{
    (void)e;
    if (s->dflash)
        return dflash_drafter(s->dflash, s->name, out, err);
    if (s->kind == SCHED_COMBINED)
        return 0;
    if (s->kind == SCHED_CHAIN)
        return mtp_create(&s->mtp, out, err);
    return lookup_create(LOOKUP_MIN_MATCH, LOOKUP_MIN_SHORT, DRAFT_MAX, out, err);
}

static void init_sched(skua_session *s)
{
    const struct engine_draft *d = s->engine->draft;
    struct sched_config c = {.costs = &s->engine->draft->costs, .n_sources = d->n_sources, .min_gain = d->min_gain, .mode = d->mode,
                             .script = d->script, .n_script = d->n_script};
    for (int32_t i = 0; i < d->n_sources; i++)
        c.kinds[i] = d->sources[i].kind;
    sched_init(&s->draft->sched, &c);
}

int session_draft_create(skua_session *s, skua_error *err)
{
    const struct engine_draft *d = s->engine->draft;
    if (!d)
        return 0;
    s->draft = mem_calloc(1, sizeof *s->draft);
    if (!s->draft)
        return error_nomem(err, "drafters of a session", sizeof *s->draft);
    int rc = 0;
    for (int32_t i = 0; !rc && i < d->n_sources; i++)
        rc = create_drafter(s->engine, &d->sources[i], &s->draft->drafters[i], err);
    if (rc)
        session_draft_free(s);
    else
        init_sched(s);
    return rc;
}

void session_draft_free(skua_session *s)
{
    if (!s->draft)
        return;
    for (int32_t i = 0; i < SCHED_MAX_SOURCES; i++)
        if (s->draft->drafters[i])
            s->draft->drafters[i]->ops->free(s->draft->drafters[i]);
    mem_free(s->draft);
    s->draft = NULL;
}

void session_draft_reset(skua_session *s)
{
    if (!s->draft)
        return;
    for (int32_t i = 0; i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (d)
            d->ops->reset(d);
        s->draft->sched.removed[i] = d && d->lost; /* what was learned stays */
    }
    sched_forget_shadows(&s->draft->sched);
}

size_t session_draft_bytes(const skua_session *s)
{
    size_t size = s->draft ? sizeof *s->draft : 0;
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++)
        size += s->draft->drafters[i] ? s->draft->drafters[i]->ops->bytes(s->draft->drafters[i]) : 0;
    return size;
}

/* ---- coming back to a point: per drafter its length, the size of its state, and the state, in multiples of 8 bytes ---- */

struct blob_part {
    int64_t n_pos; /* -1: lost */
    uint64_t size;
    char name[sizeof((struct draft_source *)0)->name]; /* of the source: a state is of use to the same one only */
};

static size_t padded(size_t n) { return (n + 7) & ~(size_t)7; }

/* Pages of a drafter's own cache that cannot change any more: the last of its rows may wait for the next token. */
static int32_t final_pages(const struct drafter *d)
{
    const int32_t n = !d->kv || d->lost ? 0 : d->kv->n_pos < d->n_pos ? d->kv->n_pos : d->n_pos - 1;
    return n > 0 ? n / KV_PAGE_ROWS : 0;
}

static void save_as(struct drafter *d, enum draft_save how)
{
    d->save_whole = how != DRAFT_SAVE_BACK;
    d->save_from = how == DRAFT_SAVE_REST ? final_pages(d) : 0;
}

size_t session_draft_save_size(const skua_session *s, enum draft_save how)
{
    size_t size = 0;
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (!d)
            continue;
        save_as(d, how);
        size += sizeof(struct blob_part) + (d->lost ? 0 : padded(d->ops->save_size(d)));
    }
    return size;
}

void session_draft_save(const skua_session *s, enum draft_save how, void *blob)
{
    char *p = blob;
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (!d)
            continue;
        save_as(d, how);
        struct blob_part part = {.n_pos = d->lost ? -1 : d->n_pos, .size = d->lost ? 0 : d->ops->save_size(d)};
        memcpy(part.name, s->engine->draft->sources[i].name, sizeof part.name);
        memcpy(p, &part, sizeof part);
        p += sizeof part;
        memset(p, 0, padded(part.size));
        if (part.size)
            d->ops->save(d, p);
        p += padded(part.size);
    }
}

/* The drafter at the session's length: from its part of a blob (NULL: there is none), which may lean on what the drafter still has; or by
   cutting what it has; or, where tokens are all it needs, from these. */
static bool bring_back(struct drafter *d, const skua_session *s, const struct blob_part *part, const void *state)
{
    const int32_t n = s->seq.n_pos;
    bool ok = part && part->n_pos == n && part->size ? !d->ops->load(d, n, state, part->size, NULL)
                                                     : !d->lost && d->n_pos >= n && d->ops->truncate(d, n);
    if (!(ok && d->n_pos == n) && !d->needs.n_taps && !d->needs.hidden) {
        d->ops->reset(d);
        ok = !n || !d->ops->extend(d, &(struct draft_rows){.ids = s->tokens, .n = n}, NULL);
    }
    return ok && d->n_pos == n;
}

/* The part of a source, wherever it stands; *state: its bytes. Parts behind one that is damaged are not found. */
static bool find_part(const void *blob, size_t size, const struct draft_source *source, struct blob_part *part, const char **state)
{
    const char *p = blob;
    while (p && size >= sizeof *part) {
        memcpy(part, p, sizeof *part);
        p += sizeof *part;
        size -= sizeof *part;
        if (part->size > size || padded(part->size) > size)
            return false;
        *state = p;
        if (!memcmp(part->name, source->name, sizeof part->name))
            return true;
        p += padded(part->size);
        size -= padded(part->size);
    }
    return false;
}

void session_draft_load(skua_session *s, const void *blob, size_t size)
{
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        struct blob_part part;
        const char *state = NULL;
        if (!d)
            continue;
        const bool found = find_part(blob, size, &s->engine->draft->sources[i], &part, &state);
        d->lost = !bring_back(d, s, found ? &part : NULL, state);
        s->draft->sched.removed[i] = d->lost;
    }
    if (s->draft)
        sched_forget_shadows(&s->draft->sched);
}

/* ---- their own KV caches ---- */

static uint64_t source_id(const struct draft_source *source, const struct seq *kv)
{
    return XXH3_64bits_withSeed(source->name, strlen(source->name), kv->page_bytes);
}

int32_t session_draft_kv(const skua_session *s, struct draft_pages out[SKUA_DRAFT_SOURCES], const struct seq *kv[SKUA_DRAFT_SOURCES])
{
    int32_t n = 0;
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        const struct drafter *d = s->draft->drafters[i];
        const int32_t n_pages = d ? final_pages(d) : 0;
        if (!n_pages)
            continue;
        out[n] = (struct draft_pages){.source = source_id(&s->engine->draft->sources[i], d->kv), .page_bytes = d->kv->page_bytes,
                                      .n_pages = n_pages};
        kv[n++] = d->kv;
    }
    return n;
}

struct seq *session_draft_refill(skua_session *s, uint64_t source)
{
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (d && d->kv && source_id(&s->engine->draft->sources[i], d->kv) == source) {
            d->ops->reset(d);
            return d->kv;
        }
    }
    return NULL;
}

void session_draft_adopt(skua_session *s, uint64_t source, struct seq_page *const *pages, int32_t n_pages)
{
    struct seq *kv = session_draft_refill(s, source);
    if (kv && !seq_adopt(kv, pages, n_pages, NULL))
        kv->n_pos = n_pages * KV_PAGE_ROWS;
}

/* ---- rounds ---- */

static void lose(skua_session *s, int32_t source)
{
    s->draft->drafters[source]->lost = true;
    sched_remove(&s->draft->sched, source);
}

/* The number of the source of a kind, or SCHED_NONE. */
static int32_t source_of(const skua_session *s, enum sched_kind kind)
{
    for (int32_t i = 0; i < s->engine->draft->n_sources; i++)
        if (s->engine->draft->sources[i].kind == kind)
            return i;
    return SCHED_NONE;
}

/* Ask a drafter for n drafts behind the anchor; how many it gives. A drafter that fails is taken away. */
static int32_t propose(skua_session *s, int32_t source, int32_t anchor, int32_t n, bool full_block, const struct draft_terms *t,
                       struct draft *draft)
{
    struct drafter *d = s->draft->drafters[source];
    struct draft_request q = {.anchor = anchor, .n_max = n < d->n_max ? n : d->n_max, .full_block = full_block,
                              .temperature = t->temperature, .seed = t->seed};
    draft->n = draft->match = 0;
    if (d->ops->propose(d, &q, draft, NULL)) {
        lose(s, source);
        draft->n = 0;
    }
    return draft->n;
}

/* A block and a copy, made one. */
static int32_t propose_both(skua_session *s, int32_t anchor, int32_t n, const struct draft_terms *t, struct draft *out)
{
    const int32_t block = source_of(s, SCHED_BLOCK), lookup = source_of(s, SCHED_LOOKUP);
    struct draft *copy = &s->draft->copy;
    out->n = 0;
    if (propose(s, block, anchor, n, true, t, &s->draft->offered[block]) < 1 || propose(s, lookup, anchor, n, true, t, copy) < 1)
        return 0;
    combine_drafts(&s->draft->offered[block], copy, n, out);
    return out->n;
}

/* What the two together can do: the block, and more where the gate lets it. */
static struct sched_offer offer_both(const skua_session *s, const struct sched_ask *ask, int32_t limit, const struct draft_terms *t)
{
    const int32_t block = source_of(s, SCHED_BLOCK), lookup = source_of(s, SCHED_LOOKUP);
    const int32_t match = ask->offers[lookup].match, most = ask->offers[block].n;
    if (most < 1 || match < COMBINE_WEAK)
        return (struct sched_offer){0};
    const int32_t together = t->n_together ? t->n_together : s->engine->n_sessions;
    return (struct sched_offer){.n = combine_long(&s->draft->gate, together) ? limit : most, .match = match};
}

/* What the sources can do now. Lookup is asked right away: it costs nothing, and its match decides. */
static void fill_offers(skua_session *s, int32_t anchor, int32_t limit, const struct draft_terms *t, struct sched_ask *ask)
{
    const struct engine_draft *e = s->engine->draft;
    for (int32_t i = 0; i < e->n_sources; i++) {
        struct drafter *d = s->draft->drafters[i];
        if (!d) { /* comes behind those that it is made of */
            ask->offers[i] = offer_both(s, ask, limit, t);
            continue;
        }
        if (d->lost || d->n_pos != s->seq.n_pos) {
            if (!s->draft->sched.removed[i])
                lose(s, i);
            continue;
        }
        if (e->sources[i].kind == SCHED_LOOKUP) {
            ask->offers[i].n = propose(s, i, anchor, limit, false, t, &s->draft->offered[i]);
            ask->offers[i].match = s->draft->offered[i].match;
        } else
            ask->offers[i].n = d->n_max;
    }
}

/* Proposals that are not used are judged by what comes. */
static void shadow_the_others(skua_session *s, const struct draft_round *r)
{
    const struct engine_draft *e = s->engine->draft;
    for (int32_t i = 0; i < e->n_sources; i++)
        if (e->sources[i].kind == SCHED_LOOKUP && i != r->choice.source && s->draft->offered[i].n > 0)
            sched_shadow(&s->draft->sched, i, &s->draft->offered[i]);
}

/* The drafts of the source that was chosen. */
static int32_t draft_chosen(skua_session *s, int32_t anchor, const struct draft_terms *t, const struct sched_choice *c)
{
    struct draft *draft = &s->draft->offered[c->source];
    int32_t n = draft->n; /* lookup's is there */
    if (s->engine->draft->sources[c->source].kind == SCHED_COMBINED)
        n = propose_both(s, anchor, c->k, t, draft);
    else if (s->engine->draft->sources[c->source].kind != SCHED_LOOKUP)
        n = propose(s, c->source, anchor, c->k, c->full_block, t, draft);
    return n < c->k ? n : c->k;
}

void draft_round_choose(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r)
{
    *r = (struct draft_round){.choice = {.source = SCHED_NONE, .hindsight = SCHED_NONE}, .ids = {anchor}, .ctx = s->seq.n_pos,
                              .begin = clock_seconds()};
    if (!s->draft || t->off)
        return;
    const int32_t room = s->n_ctx - s->seq.n_pos - 1, all = s->engine->draft->max ? s->engine->draft->max : DRAFT_MAX;
    const int32_t max = t->max && t->max < all ? t->max : all;
    struct sched_ask ask = {.ctx = s->seq.n_pos, .remaining = t->remaining, .k_limit = room < max ? (room > 0 ? room : 0) : max};
    for (int32_t i = 0; i < s->engine->draft->n_sources; i++)
        s->draft->offered[i].n = 0;
    if (ask.k_limit > 0)
        fill_offers(s, anchor, ask.k_limit, t, &ask);
    r->choice = sched_choose(&s->draft->sched, &ask);
    if (r->choice.source != SCHED_NONE)
        r->match = ask.offers[r->choice.source].match;
}

void draft_round_draft(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r)
{
    if (!s->draft || t->off)
        return;
    const double begin = clock_seconds();
    const int32_t source = r->choice.source;
    if (r->choice.hindsight != SCHED_NONE && propose(s, r->choice.hindsight, anchor, r->choice.n_hindsight, true, t,
        &s->draft->offered[r->choice.hindsight]) > 0)
        sched_shadow(&s->draft->sched, r->choice.hindsight, &s->draft->offered[r->choice.hindsight]);
    if (r->choice.k > 0) {
        struct draft *draft = &s->draft->offered[source];
        r->n = r->n_drafted = draft_chosen(s, anchor, t, &r->choice);
        r->t_draft = clock_seconds() - begin;
        if (r->n > 0 && t->temperature == 0) /* confidences of drawn drafts must not decide which are tested: spec/reject.h */
            r->n = sched_truncate(&s->draft->sched, &r->choice, draft, r->n, r->ctx, r->t_draft);
        memcpy(r->ids + 1, draft->ids, (size_t)r->n * sizeof *r->ids);
    } else
        r->t_draft = clock_seconds() - begin;
    shadow_the_others(s, r);
}

void draft_round_begin(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r)
{
    draft_round_choose(s, anchor, t, r);
    draft_round_draft(s, anchor, t, r);
}

void draft_round_end(skua_session *s, const struct draft_round *r, const int32_t *chosen, int32_t n_chosen)
{
    if (!s->draft || n_chosen < 1)
        return;
    struct sched_round o = {.choice = r->choice, .match = r->match, .ctx = r->ctx, .n_drafted = r->n_drafted, .n_verified = r->n,
                            .ids = chosen, .n_ids = n_chosen, .t_draft = r->t_draft, .t_verify = r->t_verify, .t_commit = r->t_commit,
                            .shared = r->shared};
    if (r->n_drafted > 0) {
        const struct draft *draft = &s->draft->offered[r->choice.source];
        while (o.n_tested < n_chosen && o.n_tested < r->n_drafted) {
            o.n_tested++;
            if (draft->ids[o.n_tested - 1] != chosen[o.n_tested - 1])
                break;
            o.n_accepted++;
        }
        o.confidence = draft->confidence;
    }
    if (!r->shared) /* else the time between is that of others, too */
        o.t_other = clock_seconds() - r->begin - r->t_draft - r->t_verify - r->t_commit;
    sched_observe(&s->draft->sched, &o);
    const int32_t block = source_of(s, SCHED_BLOCK);
    if (block != SCHED_NONE)
        combine_observe(&s->draft->gate, n_chosen, s->draft->drafters[block]->n_max);
}

/* ---- what is said ---- */

bool session_draft_note(skua_session *s, char *line, size_t size)
{
    for (int32_t i = 0; s->draft && i < s->engine->draft->n_sources; i++) {
        const char *name = s->engine->draft->sources[i].kind_name;
        if (s->draft->drafters[i] && s->draft->drafters[i]->lost && !s->draft->told_lost[i]) {
            s->draft->told_lost[i] = true;
            snprintf(line, size, "%s failed or lost its context; it drafts no more in this session", name);
            return true;
        }
        if (sched_poor(&s->draft->sched, i)) {
            snprintf(line, size, "%s: fewer than one in five of its first drafts are accepted; it is tried now and then", name);
            return true;
        }
    }
    return false;
}


skua_draft_stats skua_session_draft_stats(const skua_session *s)
{
    skua_draft_stats out = {0};
    if (!s->draft)
        return out;
    const struct sched_stats *st = &s->draft->sched.stats;
    out = (skua_draft_stats){.n_sources = s->engine->draft->n_sources, .rounds = st->rounds, .tokens = st->tokens,
                             .draft_seconds = st->t_draft, .verify_seconds = st->t_verify, .commit_seconds = st->t_commit,
                             .other_seconds = st->t_other};
    memcpy(out.depth, st->depth, sizeof out.depth);
    for (int32_t i = 0; i < out.n_sources; i++) {
        out.sources[i].name = s->engine->draft->sources[i].kind_name;
        out.sources[i].rounds = st->used[i];
        out.sources[i].lost = s->draft->drafters[i] && s->draft->drafters[i]->lost;
        memcpy(out.sources[i].tested, st->tested[i], sizeof out.sources[i].tested);
        memcpy(out.sources[i].accepted, st->accepted[i], sizeof out.sources[i].accepted);
    }
    return out;
}
