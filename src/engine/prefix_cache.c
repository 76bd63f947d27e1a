/* The prefix cache: what is kept in memory, and which of it; see prefix_cache.h. */
#include "engine/prefix_cache.h"

#include <string.h>

#include "base/mem.h"
#include "engine/prefix_cache_internal.h"

#define EVERY 2048
#define DONOR_NODES 64 /* most that are looked at for pages to share */
#define FILED 0.25     /* a checkpoint that is also in a file is read again sooner than computed */

static const double worth_of[] = {[PREFIX_PASSING] = 0.25, [PREFIX_REGULAR] = 1, [PREFIX_BORDER] = 4};

double prefix_priority(const struct prefix_value *v, int32_t n_tokens, double bytes, double unit)
{
    return v->clock + worth_of[v->worth] * n_tokens / (bytes / unit);
}

static size_t ram_used(const struct prefix_cache *c) { return c->kept_bytes + c->keepers.model.idle + c->keepers.drafters.idle; }

static void publish(struct prefix_cache *c)
{
    struct prefix_cache_stats s = c->stats;
    const size_t page = config_kv_page_bytes(&c->engine->config, c->engine->kv_type);
    c->changes++;
    s.ram_bytes = (int64_t)ram_used(c);
    s.index_bytes = (int64_t)c->tree.bytes;
    s.kv_tokens_shared = page ? (int64_t)((c->keepers.model.bytes - c->keepers.model.idle) / page * KV_PAGE_ROWS) : 0;
    if (c->disk)
        prefix_disk_stats(c, &s);
    pthread_mutex_lock(&c->lock);
    c->published = s;
    pthread_mutex_unlock(&c->lock);
}

void prefix_cache_get_stats(struct prefix_cache *c, struct prefix_cache_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->published;
    pthread_mutex_unlock(&c->lock);
}

/* ---- evicted beginnings ---- */

static void forget_ghost(struct prefix_cache *c, int32_t i)
{
    struct prefix_node *node = c->ghosts[i];
    memmove(c->ghosts + i, c->ghosts + i + 1, (size_t)(--c->n_ghosts - i) * sizeof *c->ghosts);
    node->evicted = false;
    prefix_tree_prune(&c->tree, node);
}

void prefix_cache_ghost(struct prefix_cache *c, struct prefix_node *node)
{
    if (node->kept || node->file || node->evicted)
        return;
    node->evicted = true; /* first: nothing that is forgotten takes it along */
    if (c->n_ghosts == PREFIX_GHOSTS)
        forget_ghost(c, 0);
    c->ghosts[c->n_ghosts++] = node;
}

static void revive(struct prefix_cache *c, struct prefix_node *node)
{
    for (int32_t i = 0; i < c->n_ghosts; i++)
        if (c->ghosts[i] == node) {
            memmove(c->ghosts + i, c->ghosts + i + 1, (size_t)(--c->n_ghosts - i) * sizeof *c->ghosts);
            node->evicted = false;
            return;
        }
}

/* ---- checkpoints in memory ---- */

/* Without its node's fate: the caller prunes or remembers it. */
static void free_kept(struct prefix_cache *c, struct kept *k)
{
    *(k->previous ? &k->previous->next : &c->kept) = k->next;
    if (k->next)
        k->next->previous = k->previous;
    k->node->kept = NULL;
    c->kept_bytes -= checkpoint_bytes(&k->ck) + sizeof *k - sizeof k->ck;
    c->stats.n_ram--;
    checkpoint_free(c->engine->dev, &k->ck);
    mem_free(k);
}

/* What a checkpoint saves: the tokens behind the one before it. */
static int32_t tokens_saved(const struct kept *k)
{
    const struct prefix_node *n = k->node->parent;
    while (n && !n->kept)
        n = n->parent;
    return k->ck.n_tokens - (n ? n->kept->ck.n_tokens : 0);
}

static double priority(const struct kept *k)
{
    const bool filed = k->node->file && k->node->file->ready;
    const double bytes = (double)checkpoint_freed_bytes(&k->ck), unit = (double)k->ck.state_size;
    const double p = prefix_priority(&k->value, tokens_saved(k), bytes, unit);
    return filed ? k->value.clock + FILED * (p - k->value.clock) : p;
}

void prefix_cache_trim(struct prefix_cache *c)
{
    while (ram_used(c) > c->ram_bytes && c->kept) {
        struct kept *victim = NULL;
        double least = 0;
        if (!c->ram_bytes && c->kept->writing && !c->kept->next) /* the one that may be there */
            break;
        for (struct kept *k = c->kept; k; k = k->next) {
            const double p = priority(k);
            if (!victim || p < least) {
                victim = k;
                least = p;
            }
        }
        if (victim->writing)
            prefix_disk_wait(c, victim);
        struct prefix_node *node = victim->node;
        c->clock = least > c->clock ? least : c->clock;
        c->stats.evictions_ram++;
        free_kept(c, victim);
        prefix_cache_ghost(c, node);
    }
    publish(c);
}

/* A checkpoint with the same first tokens as the session, up to n_shared of them: its full pages are as good as the session's own. */
static struct kept *find_donor(struct prefix_node *at, int32_t matched, int32_t *n_shared)
{
    int32_t left = DONOR_NODES;
    *n_shared = matched;
    for (struct prefix_node *n = at; n && left--; n = prefix_tree_next(at, n))
        if (n->kept && n->kept->ck.n_tokens >= matched)
            return n->kept;
    for (struct prefix_node *n = at; n; n = n->parent)
        if (n->kept && n->kept->ck.n_tokens <= matched) {
            *n_shared = n->kept->ck.n_tokens;
            return n->kept;
        }
    *n_shared = 0;
    return NULL;
}

/* Shorter checkpoints whose last page is in part filled share the longer one's, which holds the same rows and more. */
static void share_last_pages(struct prefix_cache *c, const struct kept *k)
{
    for (struct prefix_node *n = k->node->parent; n; n = n->parent) {
        struct checkpoint *old = n->kept && !n->kept->writing ? &n->kept->ck : NULL;
        const int32_t i = old ? old->n_pages - 1 : -1;
        if (i < 0 || old->pages[i] == k->ck.pages[i])
            continue;
        seq_page_keep(k->ck.pages[i], &c->keepers.model);
        seq_page_drop(c->engine->dev, old->pages[i]);
        old->pages[i] = k->ck.pages[i];
    }
}

static int add_kept(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth, struct kept **out, skua_error *err)
{
    int32_t matched, shared;
    const int32_t n = s->seq.n_pos;
    *out = NULL;
    struct prefix_node *at = prefix_tree_find(&c->tree, s->tokens, n, &matched);
    const struct kept *donor = find_donor(at, matched, &shared);
    struct kept *k = mem_calloc(1, sizeof *k);
    struct prefix_node *node = k ? prefix_tree_insert(&c->tree, s->tokens, n) : NULL;
    if (!node) {
        mem_free(k);
        return error_nomem(err, "checkpoint", sizeof *k);
    }
    int rc = checkpoint_take(s, donor ? &donor->ck : NULL, shared, &c->keepers, &k->ck, err);
    if (rc) {
        mem_free(k);
        prefix_tree_prune(&c->tree, node);
        return rc;
    }
    k->node = node;
    k->value = (struct prefix_value){.clock = c->clock, .worth = worth};
    k->next = c->kept;
    if (k->next)
        k->next->previous = k;
    c->kept = k;
    node->kept = k;
    revive(c, node);
    prefix_node_touch(node, ++c->now);
    c->kept_bytes += checkpoint_bytes(&k->ck) + sizeof *k - sizeof k->ck;
    c->stats.n_ram++;
    share_last_pages(c, k);
    *out = k;
    return 0;
}

static struct prefix_node *exact_node(struct prefix_cache *c, const int32_t *ids, int32_t n)
{
    int32_t matched;
    struct prefix_node *at = prefix_tree_find(&c->tree, ids, n, &matched);
    return matched == n && prefix_node_end(at) == n ? at : NULL;
}

/* Is there one already that will do? It is then as good as kept now. */
static bool renew(struct prefix_cache *c, struct prefix_node *node, enum prefix_worth worth)
{
    struct kept *k = node ? node->kept : NULL;
    struct prefix_file *f = node ? node->file : NULL;
    if (!k && (!f || c->ram_bytes))
        return false;
    if (k) {
        k->value.clock = c->clock;
        k->value.worth = worth > k->value.worth ? worth : k->value.worth;
    }
    if (f)
        f->value.worth = worth > f->value.worth ? worth : f->value.worth;
    prefix_node_touch(node, ++c->now);
    if (k && !f && c->disk && worth > PREFIX_PASSING)
        prefix_disk_write(c, k, true);
    return true;
}

int prefix_cache_keep(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth, skua_error *err)
{
    const int32_t n = s->seq.n_pos;
    struct kept *k = NULL;
    int rc = engine_session_settled(s, "keeping a checkpoint", err);
    if (rc || !n || (!c->disk && s->seq.state->size > c->ram_bytes) || (!c->ram_bytes && worth == PREFIX_PASSING))
        return rc;
    if (c->disk)
        prefix_disk_collect(c);
    if (!renew(c, exact_node(c, s->tokens, n), worth) && !(n > 1 && renew(c, exact_node(c, s->tokens, n - 1), worth))) {
        rc = add_kept(c, s, worth, &k, err);
        c->stats.saves[worth] += !rc;
        if (k && c->disk && !k->node->file && worth > PREFIX_PASSING)
            prefix_disk_write(c, k, true);
    }
    prefix_cache_trim(c);
    return rc;
}

/* ---- looking up ---- */

/* The longest beginning of ids[0, n) that is kept and that the session has room for. */
static struct prefix_node *find_best(struct prefix_cache *c, const skua_session *s, const int32_t *ids, int32_t n)
{
    int32_t matched;
    struct prefix_node *at = prefix_tree_find(&c->tree, ids, n, &matched);
    for (; at; at = at->parent) {
        const int32_t end = prefix_node_end(at);
        if (end <= matched && end <= s->n_ctx && (at->kept || (at->file && at->file->ready)))
            return at;
    }
    return NULL;
}

/* A checkpoint that came from a file, in memory as well. */
static void promote(struct prefix_cache *c, const skua_session *s, enum prefix_worth worth)
{
    struct kept *k;
    if (c->ram_bytes >= s->seq.state->size)
        add_kept(c, s, worth, &k, NULL);
}

static int fill_session(struct prefix_cache *c, struct prefix_node *node, skua_session *s, const int32_t *ids, struct prefix_hit *hit,
                        skua_error *err)
{
    int rc;
    hit->tier = node->kept ? PREFIX_RAM : PREFIX_DISK;
    if (node->kept) {
        rc = checkpoint_restore(&node->kept->ck, ids, s, err);
        node->kept->value.clock = c->clock;
    } else {
        const enum prefix_worth worth = node->file->value.worth;
        rc = prefix_disk_load(c, node->file, ids, s, err);
        if (!rc)
            promote(c, s, worth);
    }
    if (rc)
        return rc;
    hit->n_tokens = s->seq.n_pos;
    prefix_node_touch(node, ++c->now);
    return 0;
}

static bool was_evicted(const struct prefix_node *at, int32_t matched, int32_t above, int32_t most)
{
    for (; at; at = at->parent)
        if (at->evicted && prefix_node_end(at) > above && prefix_node_end(at) <= (matched < most ? matched : most))
            return true;
    return false;
}

static void explain(struct prefix_cache *c, const int32_t *ids, int32_t n, struct prefix_hit *hit)
{
    int32_t matched;
    const struct prefix_node *at = prefix_tree_find(&c->tree, ids, n, &matched);
    hit->miss_reason = "";
    if (matched > 0 && matched < n)
        hit->n_diverged_from = prefix_node_ahead(at, matched, hit->diverged_from, sizeof hit->diverged_from / sizeof *hit->diverged_from);
    if (hit->n_diverged_from)
        hit->diverged_at = matched;
    if (hit->n_tokens >= n - 1)
        return;
    if (matched - hit->n_tokens > n - matched)
        hit->miss_reason = was_evicted(at, matched, hit->n_tokens, n - 1) ? "evicted" : "no_checkpoint";
    else if (hit->n_diverged_from)
        hit->miss_reason = "diverged";
    else
        hit->miss_reason = !c->tree.root.child && c->disk && c->published.n_foreign ? "different_model" : "cold";
}

int prefix_cache_take(struct prefix_cache *c, skua_session *s, const int32_t *ids, int32_t n, struct prefix_hit *hit, skua_error *err)
{
    *hit = (struct prefix_hit){.miss_reason = "cold", .diverged_at = -1};
    if (s->seq.n_pos || s->n_held)
        return error_set(err, SKUA_ESTATE, "the session holds %d tokens; expected an empty one", s->seq.n_pos + s->n_held);
    int rc = 0;
    if (c->disk)
        prefix_disk_collect(c);
    for (struct prefix_node *node; n > 1 && (node = find_best(c, s, ids, n - 1));) {
        rc = fill_session(c, node, s, ids, hit, err);
        if (rc != SKUA_EFORMAT) /* else there is one file less */
            break;
        rc = 0;
    }
    explain(c, ids, n, hit);
    prefix_cache_trim(c);
    return rc;
}

int32_t prefix_cache_resident(struct prefix_cache *c, const int32_t *ids, int32_t n)
{
    int32_t matched = 0;
    const struct prefix_node *at = n > 1 ? prefix_tree_find(&c->tree, ids, n - 1, &matched) : NULL;
    while (at && !(at->kept && prefix_node_end(at) <= matched))
        at = at->parent;
    return at ? prefix_node_end(at) : 0;
}

uint64_t prefix_cache_changes(const struct prefix_cache *c) { return c->changes; }

int32_t prefix_cache_list(struct prefix_cache *c, const int32_t *ids, int32_t n, struct prefix_checkpoint *out, int32_t max)
{
    int32_t matched, found = 0;
    for (const struct prefix_node *at = prefix_tree_find(&c->tree, ids, n, &matched); at && found < max; at = at->parent) {
        const bool ram = at->kept, disk = at->file && at->file->ready;
        if ((ram || disk) && prefix_node_end(at) <= matched)
            out[found++] = (struct prefix_checkpoint){.n_tokens = prefix_node_end(at), .ram = ram, .disk = disk,
                                                      .bytes = (int64_t)(ram ? checkpoint_bytes(&at->kept->ck) : at->file->bytes)};
    }
    return found;
}

int32_t prefix_cache_next(const struct prefix_cache *c, int32_t n_done, int32_t n_total, const int32_t *marks, int32_t n_marks)
{
    const int64_t multiple = ((int64_t)n_done / c->every + 1) * c->every;
    int32_t next = n_total;
    bool near = false;
    for (int32_t i = 0; i < n_marks; i++) {
        near |= marks[i] < n_total && marks[i] >= n_total - PREFIX_NEAR;
        if (marks[i] > n_done && marks[i] < next)
            next = marks[i];
    }
    if (multiple < next)
        next = (int32_t)multiple;
    return !near && next == n_total && n_done < n_total - 1 ? n_total - 1 : next;
}

/* ---- all of it ---- */

int prefix_cache_create(skua_engine *e, const struct prefix_cache_params *p, struct prefix_cache **out, skua_error *err)
{
    *out = NULL;
    struct prefix_cache *c = mem_calloc(1, sizeof *c);
    if (!c)
        return error_nomem(err, "prefix cache", sizeof *c);
    c->engine = e;
    c->ram_bytes = p->ram_bytes;
    c->every = p->every > 0 ? p->every : EVERY;
    prefix_tree_init(&c->tree);
    pthread_mutex_init(&c->lock, NULL);
    int rc = p->disk_dir ? prefix_disk_open(c, p, err) : 0;
    if (rc) {
        prefix_cache_free(c);
        return rc;
    }
    publish(c);
    *out = c;
    return 0;
}

void prefix_cache_flush(struct prefix_cache *c)
{
    if (!c->disk)
        return;
    prefix_disk_collect(c);
    for (struct kept *k = c->kept; k; k = k->next)
        if (!k->node->file)
            prefix_disk_write(c, k, false);
    prefix_disk_wait(c, NULL);
    prefix_cache_trim(c);
}

static void clear_ram(struct prefix_cache *c)
{
    if (c->disk)
        prefix_disk_wait(c, NULL);
    while (c->kept) {
        struct prefix_node *node = c->kept->node;
        free_kept(c, c->kept);
        prefix_tree_prune(&c->tree, node);
    }
}

void prefix_cache_clear(struct prefix_cache *c, bool ram, bool disk)
{
    if (ram)
        clear_ram(c);
    if (disk && c->disk)
        prefix_disk_clear(c);
    while (ram && c->n_ghosts)
        forget_ghost(c, 0);
    publish(c);
}

void prefix_cache_free(struct prefix_cache *c)
{
    if (!c)
        return;
    prefix_cache_flush(c);
    clear_ram(c);
    if (c->disk)
        prefix_disk_close(c);
    prefix_tree_free(&c->tree);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}
