/* Inside of the engine: what the other files of this folder and the commands may look at. The public side is skua.h. */
#ifndef SKUA_ENGINE_ENGINE_H
#define SKUA_ENGINE_ENGINE_H

#include "dev/dev.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/forward.h"
#include "model/seq.h"
#include "model/weights.h"
#include "skua.h"
#include "spec/drafter.h"

struct engine_draft;
struct session_draft;
struct tokenizer;
struct jinja_template;

struct skua_engine {
    char *path;
    char *name;
    struct gguf *gguf;
    struct dev *dev;
    struct model_config config;
    struct weights weights;
    struct forward *forward;
    struct tokenizer *tokenizer;
    uint64_t *samplable; /* bitmap of the vocabulary: tokens that may be chosen */
    struct jinja_template *chat_template; /* compiled on first use */
    uint32_t kv_type;
    int32_t max_rows;
    int32_t n_sessions; /* alive */
    struct engine_draft *draft; /* NULL: nothing drafts */

    int32_t n_pending;  /* sessions with held rows */

    /* Called for every run of rows that a session was brought forward by (skua_eval, skua_commit), with what forward_set_capture has the
       passes keep of them. NULL: nobody is told. */
    void (*on_rows)(void *user, skua_session *s, const struct draft_rows *rows);
    void *on_rows_user;

    /* one batch under construction, [max_rows] each */
    int32_t *token, *pos, *seq;
    struct kern_seq *seqs;
};

struct skua_session {
    skua_engine *engine;
    struct seq seq;
    int32_t *tokens; /* [seq.n_pos], and the held ones behind them */
    int32_t cap_tokens, n_ctx;
    int32_t n_held, held_row; /* rows held since the last pass, the first of them in its batch; 0: none */
    struct session_draft *draft; /* NULL: nothing drafts */
    bool lost;                /* a commit failed: the recurrent state is of no use */
};

struct skua_snapshot {
    const skua_engine *engine;
    int32_t n_tokens;
    int32_t *tokens; /* [n_tokens] */
    void *state;     /* [config_state_bytes] */
    void *draft;     /* [draft_size] what the drafters need to come back; NULL: nothing */
    size_t draft_size;
};

/* Make an empty session of the same engine hold what another one holds; pages of KV cache are shared until one of the two writes there.
   SKUA_ENOMEM, SKUA_ELIMIT: it has not the room; it is empty then. */
int engine_session_copy(const skua_session *from, skua_session *to, skua_error *err);

/* ---- inspection (skua logits), not for speed ---- */

struct engine_inspect {
    bool layers;         /* keep the residual of the last position after every layer */
    bool mtp;            /* run the MTP block over all pairs (h_p, x_{p+1}) */
    float *logits;       /* out: [n_ids][n_vocab] */
    float *layer_rows;   /* out when layers: [n_layer][n_embd] */
    float *mtp_logits;   /* out when mtp and n_ids > 1: [n_vocab], of the last pair */
};

/* Evaluate ids on an empty session, filling what is asked for. SKUA_ESTATE when mtp is wanted and the model has none. */
int engine_inspect(skua_session *s, const int32_t *ids, int32_t n_ids, const struct engine_inspect *what, skua_error *err);

/* Append rows of one session to the batch arrays of the engine, at batch row `row`; returns the new row count. Pages must be
   reserved. Used by eval.c and inspect.c. */
int32_t engine_batch_add(skua_engine *e, struct kern_batch *b, skua_session *s, const int32_t *ids, int32_t n_ids, int32_t pos_begin);

/* SKUA_ESTATE, with what for in the message, unless the session's state stands for its tokens: nothing held, nothing lost. */
int engine_session_settled(const skua_session *s, const char *what, skua_error *err);

/* Token space, and also pages, for total tokens. Nothing is lost on failure. */
int engine_session_reserve_tokens(skua_session *s, int32_t total, skua_error *err);
int engine_session_reserve(skua_session *s, int32_t total, skua_error *err);

/* Session files with what drafters keep of the session: named pieces (1 to 15 characters). Loading gives each piece to fn (NULL: to nobody)
   once the session is complete; the data is valid during the call. */
struct engine_blob {
    const char *name;
    const void *data; /* not NULL */
    size_t size;
};
typedef void engine_blob_fn(void *user, skua_session *s, const struct engine_blob *blob);
int engine_session_save(const skua_session *s, const char *path, const struct engine_blob *blobs, int32_t n_blobs, skua_error *err);
int engine_session_load(skua_engine *e, const char *path, int32_t n_ctx, skua_session **out, engine_blob_fn *fn, void *user,
                        skua_error *err);

/* Check ids against the vocabulary and the session's room for them, reserve pages and token space. */
int engine_prepare(skua_session *s, const int32_t *ids, int32_t n_ids, skua_error *err);

/* The same for a feed, with the tape of one that is held: whatever skua_eval could refuse it for, or want memory for, by itself. */
int engine_prepare_feed(const skua_feed *f, skua_error *err);

#define ENGINE_PASS_SESSIONS 64 /* most sessions of one pass */

#endif
