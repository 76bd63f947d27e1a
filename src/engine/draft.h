/* Speculative decoding in the engine: the sources of drafts that serve all its sessions, a session's own drafters and scheduler, and the
 * rounds. What drafts cost or whether they fail changes no answer: a drafter that fails is taken away and said once. */
#ifndef SKUA_ENGINE_DRAFT_H
#define SKUA_ENGINE_DRAFT_H

#include "base/strbuf.h"
#include "engine/engine.h"
#include "spec/combine.h"
#include "spec/dflash.h"
#include "spec/mtp.h"
#include "spec/mtp_file.h"
#include "spec/sched.h"

/* One source; what of it all sessions share. */
struct draft_source {
    enum sched_kind kind;
    struct dflash_file *dflash_file; /* DFlash family */
    struct dflash *dflash;
    struct mtp_file *mtp_file;       /* MTP from a sidecar file; else the bundled block */
    struct mtp_model mtp;
    char name[320];                  /* for people; a session's drafter has it too */
    char kind_name[16];              /* "dflash2", "mtp", "lookup": for traces and figures */
};

struct engine_draft {
    struct draft_source sources[SCHED_MAX_SOURCES];
    int32_t n_sources;
    struct sched_costs costs;
    struct sched_costs shared_costs; /* of passes that several answers share */
    enum sched_mode mode;
    int32_t *script; /* [n_script] */
    int32_t n_script, max;
    double min_gain;
    struct strbuf notes; /* lines: what is armed, and what was said while doing so */
};

void engine_draft_free(skua_engine *e); /* also when there is none */

/* A session's part. */
struct session_draft {
    struct drafter *drafters[SCHED_MAX_SOURCES]; /* as engine_draft.sources; NULL: made of the others (SCHED_COMBINED) */
    struct combine_gate gate;
    struct sched sched;
    bool told_lost[SCHED_MAX_SOURCES];
    struct draft copy;                       /* lookup's part of a combined proposal */
    struct draft offered[SCHED_MAX_SOURCES]; /* this round's proposals; lookup's before the choice */
};

int  session_draft_create(skua_session *s, skua_error *err); /* nothing when the engine has no sources */
void session_draft_free(skua_session *s);
void session_draft_reset(skua_session *s);
size_t session_draft_bytes(const skua_session *s); /* memory held */

/* A copy of what the drafters need to come back to this point. blob: size bytes of the caller's. */
enum draft_save {
    DRAFT_SAVE_BACK,  /* in this session, from further on */
    DRAFT_SAVE_WHOLE, /* in another session too */
    DRAFT_SAVE_REST   /* the same, but the pages of session_draft_kv are kept by the caller */
};
size_t session_draft_save_size(const skua_session *s, enum draft_save how);
void   session_draft_save(const skua_session *s, enum draft_save how, void *blob);
/* Bring the drafters to the session's tokens, of which a blob tells (NULL: none was kept). A drafter that cannot follow proposes nothing
   more. */
void   session_draft_load(skua_session *s, const void *blob, size_t size);

/* The first full pages of a drafter's own KV cache, which do not change any more, so that others may hold them (model/seq.h). What is in
   page i follows from the tokens of its positions and before, and the one behind. */
struct draft_pages {
    uint64_t source; /* a hash of its name and the page's size */
    uint64_t page_bytes;
    int64_t n_pages; /* at least 1 */
};
/* What the session has of them: how many drafters, and the sequences that hold the pages. */
int32_t session_draft_kv(const skua_session *s, struct draft_pages out[SKUA_DRAFT_SOURCES], const struct seq *kv[SKUA_DRAFT_SOURCES]);
/* The empty cache of a drafter that is reset: for its pages to be put into, and n_pos at their end, before session_draft_load of what was
   saved with DRAFT_SAVE_REST; without them, the drafter cannot follow. NULL: there is no such drafter. */
struct seq *session_draft_refill(skua_session *s, uint64_t source);
/* Let it hold these; nothing when there is no such drafter, or no memory. */
void session_draft_adopt(skua_session *s, uint64_t source, struct seq_page *const *pages, int32_t n_pages);

/* A round: the anchor, which is chosen and not evaluated yet, and drafts for the tokens behind it. */
struct draft_round {
    struct sched_choice choice;
    int32_t ids[DRAFT_MAX + 1]; /* the anchor, then n drafts: to be evaluated, held when n is not 0 */
    int32_t n;
    int32_t n_drafted, match, ctx;
    double begin, t_draft, t_verify, t_commit; /* seconds; the last two are the caller's to add to */
    bool shared;                               /* the caller's: the pass had other rows too, so it tells nothing of what a pass costs */
};

/* How a round may draft. */
struct draft_terms {
    int32_t remaining;  /* tokens that may still be published, at least 1 */
    bool off;           /* do not */
    int32_t max;        /* most drafts; 0: the engine's limit */
    int32_t n_together; /* answers that go on in the same pass; 0: as many as the engine has sessions */
    double temperature; /* above 0: drafts are sampled, for rejection sampling */
    uint64_t seed;
};

/* Decide from what to draft and how much (choice: a caller that knows of other answers may lower its k before drafting), then draft.
   Without drafters, or when that is what pays: n = 0. draft_round_begin: both. */
void draft_round_choose(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r);
void draft_round_draft(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r);
void draft_round_begin(skua_session *s, int32_t anchor, const struct draft_terms *t, struct draft_round *r);

/* What came of it: the tokens that were chosen behind the anchor, at least one unless the round failed. */
void draft_round_end(skua_session *s, const struct draft_round *r, const int32_t *chosen, int32_t n_chosen);

/* The next line that should be said of the session's drafters, each once: one that failed, one whose drafts are hardly ever accepted.
   false: there is none. */
bool session_draft_note(skua_session *s, char *line, size_t size);

#endif
