/* Skua: inference for the Qwen3.5 family of hybrid language models. The one public header.
 *
 * Conventions. Functions that can fail return 0 (SKUA_OK) or a negative SKUA_E... code and describe the failure in an
 * optional last skua_error argument (NULL allowed): one line that names the thing, its value and what was expected.
 * On failure an output pointer is set to NULL and nothing is left allocated. Strings are UTF-8. Nothing here prints, exits
 * or aborts.
 */
#ifndef SKUA_H
#define SKUA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

enum {
    SKUA_OK = 0,
    SKUA_ENOMEM = -1,       /* an allocation failed */
    SKUA_EIO = -2,          /* the operating system refused a file operation */
    SKUA_EFORMAT = -3,      /* a file is malformed */
    SKUA_EUNSUPPORTED = -4, /* well-formed, but not something this program can run */
    SKUA_EARG = -5,         /* an argument is out of range or does not fit the model */
    SKUA_ELIMIT = -6,       /* a stated limit (context length, size) is reached */
    SKUA_ETEMPLATE = -7,    /* a chat template failed: message with line and column */
    SKUA_ECANCELED = -8,    /* the caller asked to stop */
    SKUA_ESTATE = -9        /* the object is not in a state that allows this call */
};

typedef struct skua_error {
    int code;
    char message[508]; /* one line, zero-terminated, no trailing newline or full stop needed */
} skua_error;

const char *skua_error_name(int code); /* "malformed file", ... never NULL */

/* ---- engine: a model file on a device ---- */

typedef struct skua_engine skua_engine;
typedef struct skua_session skua_session;

enum skua_precision {
    SKUA_PRECISION_AUTO,      /* integer activations for quantised weights: the fast path */
    SKUA_PRECISION_REFERENCE  /* float32 activations, double accumulation, float32 KV cache: slow, for checking */
};

/* Weights in a layout that this processor multiplies faster, instead of the file's (docs/ARCHITECTURE.md, "Tiles"): the same bits, but
   memory of the process's own, as much as those matrices have in the file, where mapped pages would be shared and could be dropped. */
enum skua_repack {
    SKUA_REPACK_AUTO, /* where it pays, if it takes at most half of the memory that is available */
    SKUA_REPACK_ON,
    SKUA_REPACK_OFF
};

typedef struct skua_engine_params {
    int32_t n_threads;             /* 0: all physical cores that this process may use */
    int32_t n_threads_prefill;     /* for forward passes of more than 16 rows; 0: as many as n_threads */
    enum skua_precision precision;
    const char *cpu_tier;          /* "scalar", "avx2", "avx512", ... NULL: the best one. SKUA_EARG if this CPU lacks it */
    const char *kv_type;           /* "F16" (default, NULL), "F32", "BF16", "Q8_0"; the reference precision always uses F32 */
    int32_t max_rows;              /* rows per forward pass; 0: 512 */
    enum skua_repack repack;
    void (*on_progress)(void *user, uint64_t done, uint64_t total); /* bytes repacked; called while opening. NULL: nobody is told */
    void *progress_user;
} skua_engine_params;

/* Map and check the model, start the threads. params may be NULL. The engine and all its sessions are used by one thread at a
   time. */
int  skua_engine_open(const char *path, const skua_engine_params *params, skua_engine **out, skua_error *err);
void skua_engine_close(skua_engine *e); /* NULL allowed; sessions must be freed before */

typedef struct skua_engine_info {
    const char *path, *arch, *name; /* name: general.name, "" when absent */
    int32_t n_layer, n_vocab, n_embd, n_ctx_train;
    bool has_mtp;                   /* a bundled MTP block was found */
    const char *kernels;            /* the kernel tier in use */
    const char *kv_type;
    int32_t n_threads, n_threads_prefill;
    size_t repacked_bytes;          /* weights that are kept in another layout than the file's */
    size_t file_bytes, workspace_bytes, state_bytes, kv_page_bytes; /* state and KV page: per session */
    int32_t kv_page_rows;           /* positions per KV page */
    const char *warnings;           /* lines, "" when there is nothing to say */
    const char *chat_template;      /* tokenizer.chat_template, NULL when absent; not zero-terminated */
    size_t chat_template_len;
} skua_engine_info;

/* Facts of an open engine; the pointers live as long as it does. */
skua_engine_info skua_engine_get_info(const skua_engine *e);

/* ---- sessions: one sequence of tokens with its KV cache and recurrent state ---- */

/* n_ctx: most tokens the session may hold; 0: the model's trained context length. */
int  skua_session_create(skua_engine *e, int32_t n_ctx, skua_session **out, skua_error *err);
void skua_session_free(skua_session *s);   /* NULL allowed */
void skua_session_reset(skua_session *s);  /* back to no tokens */
int32_t skua_session_length(const skua_session *s);          /* tokens evaluated */
int32_t skua_session_ctx(const skua_session *s);
const int32_t *skua_session_tokens(const skua_session *s);   /* [length] */
size_t skua_session_bytes(const skua_session *s);            /* memory held */

/* A point in a session to come back to: its tokens and a copy of its recurrent state (state_bytes), not of its KV cache. */
typedef struct skua_snapshot skua_snapshot;
int  skua_snapshot_take(const skua_session *s, skua_snapshot **out, skua_error *err); /* SKUA_ENOMEM */
void skua_snapshot_free(skua_snapshot *p); /* NULL allowed */
int32_t skua_snapshot_length(const skua_snapshot *p); /* tokens */

/* Take a session back to a snapshot: as if it held those tokens and no more, bit for bit. The KV cache only ever grows at its end, so what
   belongs to the tokens is still there; memory of the cut part is kept for what comes next. The session must be of the engine that the
   snapshot was taken from, and its tokens must begin with those of the snapshot: SKUA_ESTATE otherwise, and the session stays as it is. It
   need not be the session that the snapshot was taken from, and a snapshot may be used any number of times. */
int skua_session_restore(skua_session *s, const skua_snapshot *p, skua_error *err);

/* A session in a file: tokens, recurrent state and KV cache, as they are; loading goes on with the same bits, also with other numbers of
   threads and on another CPU. An existing file is replaced when the new one is complete, or not at all. Saving: SKUA_EIO, SKUA_ENOMEM. */
int skua_session_save(const skua_session *s, const char *path, skua_error *err);

/* A new session from a file; n_ctx 0: the limit that it had. SKUA_EFORMAT: not a session file, or damaged (checksums); SKUA_EUNSUPPORTED:
   another version; SKUA_EARG: saved with another model file, KV cache type or precision; SKUA_ELIMIT: more tokens than n_ctx. */
int skua_session_load(skua_engine *e, const char *path, int32_t n_ctx, skua_session **out, skua_error *err);

enum skua_logits { SKUA_LOGITS_NONE, SKUA_LOGITS_LAST, SKUA_LOGITS_ALL, SKUA_LOGITS_ARGMAX, SKUA_LOGITS_ARGMAX_ALL };

#define SKUA_HOLD_MAX 32 /* most tokens of a feed that is held */

/* Tokens to append to a session. */
typedef struct skua_feed {
    skua_session *session;
    const int32_t *ids;
    int32_t n_ids;           /* >= 1 */
    enum skua_logits want;
    bool hold;               /* evaluate the tokens without appending them: skua_commit says how many of them stay */
    float *logits;           /* the caller's: n_vocab floats for LAST, n_ids * n_vocab for ALL, unused for the others */
    int32_t *best_ids;       /* the caller's, [n_ids], for ARGMAX_ALL: best_id behind each id */
    float *best_logits;      /* and best_logit */
    int32_t best_id;         /* out, ARGMAX: the greedy choice behind the last id: the lowest of the samplable tokens with the largest
                                logit. The lowest whose logit is NaN or +inf if there are such; -1 if all are -inf */
    float best_logit;
    int32_t n_done;          /* out: tokens of ids that are evaluated; equals n_ids on success, 0 for a held feed otherwise */
} skua_feed;

/* Called between forward passes with the tokens done and the total over all feeds; return false to stop (SKUA_ECANCELED). */
typedef bool skua_progress(void *user, int32_t n_done, int32_t n_total);

/* Evaluate all feeds (each session at most once), packed into forward passes of up to max_rows rows. A failure leaves every
   session valid with n_done tokens appended. Errors: SKUA_EARG for an id outside the vocabulary, SKUA_ELIMIT when a session's
   context would overflow (checked before anything is evaluated), SKUA_ENOMEM, SKUA_ESTATE when tokens of a session of this engine are held.
   Feeds together with one that is held must fit one pass (SKUA_EARG). */
int skua_eval(skua_engine *e, skua_feed *feeds, int32_t n_feeds, skua_progress *progress, void *user, skua_error *err);

/* After an evaluation with hold: append the first n_keep (0 .. n_ids) of the tokens that were held and forget the others. The session is
   then what it would be if only these had been evaluated, bit for bit, and so are the logits that the held evaluation gave for them. To
   come for each held feed before the next skua_eval on this engine; until then the session cannot be saved, copied or restored, and
   skua_session_reset and skua_session_free forget what is held. SKUA_ESTATE: nothing is held; SKUA_EARG: n_keep. Any other error: the
   session's state is lost, and until it is reset or restored it refuses everything with SKUA_ESTATE. */
int skua_commit(skua_session *s, int32_t n_keep, skua_error *err);

/* ---- tokens and text ---- */

/* Ids of n bytes of text; parse_special: control tokens named in the text become those tokens. *ids is the caller's (skua_free). */
int  skua_tokenize(const skua_engine *e, const char *text, size_t n, bool parse_special, int32_t **ids, size_t *n_ids, skua_error *err);
void skua_free(void *p); /* what this library allocated for the caller; NULL allowed */

/* The bytes of a token, not zero-terminated, valid as long as the engine; any part of a UTF-8 sequence. Control tokens have none unless
   special is set. */
const char *skua_token_bytes(const skua_engine *e, int32_t id, bool special, size_t *n);
bool skua_token_ends(const skua_engine *e, int32_t id); /* does it end an answer? */

/* Prompt of a conversation through the model's chat template. messages: a JSON array of {"role", "content", ...}; tools: a JSON array or
   NULL; args: a JSON object of template variables, for example {"enable_thinking": false}, or NULL. Names of control tokens inside
   messages are text, not tokens. *opens_thinking (may be NULL): the prompt ends inside an open <think>. SKUA_ETEMPLATE, SKUA_EARG for bad
   JSON. */
int skua_chat_prompt(skua_engine *e, const char *messages, const char *tools, const char *args, int32_t **ids, size_t *n_ids,
                     bool *opens_thinking, skua_error *err);

/* ---- speculative decoding ---- */

/* Tokens are drafted cheaply and verified together in one pass of the model. The answer is the same with and without, bit for bit; only the
   time differs, and drafting goes on only while it saves time. */
typedef struct skua_draft_params {
    const char *source;       /* a drafter file (DFlash, DFlash2, DSpark or an MTP head),
        which competes with lookup and a bundled MTP block;
                                 "mtp": the model's own block; "lookup": what the session's tokens repeat; "auto": both of these as far as
                                 they are there; "none" or NULL */
    int32_t max;              /* most drafts of a round; 0: as many as the drafters can */
    double min_gain;          /* draft when it is expected to be this much faster: 0.03 = 3 % */
    int32_t fixed;            /* drafts of every round, without adaptation; -1: adaptive */
    const int32_t *schedule;  /* drafts of the rounds, again and again, without adaptation: n_schedule entries; NULL: adaptive */
    int32_t n_schedule;
    bool force;               /* draft whenever there is something to propose, even when it does not pay */
    /* how a DFlash file numbers the layers it reads, if not as its layout has it */
    enum { SKUA_TAPS_AUTO, SKUA_TAPS_INPUT, SKUA_TAPS_OUTPUT } taps;
    int32_t causal;           /* 1, 0: whether rows of a block see only those before them, in all layers; -1: as the file says */
    const char *head_ids;     /* file with the ids of the tokens that may be drafted (DFlash); NULL: all */
} skua_draft_params;
#define SKUA_DRAFT_DEFAULTS {.min_gain = 0.03, .fixed = -1, .causal = -1}

/* Attach drafters to an engine, before its first session is created (SKUA_ESTATE). A file that does not fit the model is refused with the
   reason, as skua_engine_open does with files. *notes (may be NULL): lines that tell what drafts and what else is to be said; they live as
   long as the engine. */
int skua_engine_draft(skua_engine *e, const skua_draft_params *p, const char **notes, skua_error *err);

/* One round in which something was drafted. */
typedef struct skua_draft_round {
    const char *drafter;      /* "dflash", "dflash2", "dspark", "mtp", "lookup", "combined" (a block, and copies where the text repeats) */
    const int32_t *drafts;    /* [n_drafts] */
    int32_t n_drafts, n_verified, n_accepted;
} skua_draft_round;

#define SKUA_DRAFT_MAX 31     /* most drafts of a round */
#define SKUA_DRAFT_SOURCES 4

/* What drafting came to in a session so far. */
typedef struct skua_draft_stats {
    int32_t n_sources;        /* 0: nothing drafts */
    int64_t rounds, tokens;   /* rounds of any depth, tokens they gave */
    int64_t depth[SKUA_DRAFT_MAX + 1]; /* rounds by drafts verified */
    double draft_seconds, verify_seconds, commit_seconds, other_seconds;
    struct {
        const char *name;     /* as skua_draft_round.drafter */
        int64_t rounds;       /* that used it */
        int64_t tested[SKUA_DRAFT_MAX], accepted[SKUA_DRAFT_MAX]; /* by depth */
        bool lost;            /* its context is gone, or it failed */
    } sources[SKUA_DRAFT_SOURCES];
} skua_draft_stats;
skua_draft_stats skua_session_draft_stats(const skua_session *s);

/* ---- sampling and generation ---- */

typedef struct skua_logit_bias {
    int32_t id;
    float bias; /* -100..100, added to the logit; exactly -100 bans, exactly 100 forces */
} skua_logit_bias;

typedef struct skua_sampling {
    double temperature;        /* 0..2; 0 = greedy */
    int32_t top_k;             /* keep the k best; 0 or -1 = off */
    double top_p;              /* 0..1: keep the fewest best tokens whose probabilities reach it; 1 = off, 0 keeps one */
    double min_p;              /* 0..1: drop tokens less likely than min_p times the best one; 0 = off */
    double repetition_penalty; /* above 0, up to 2; over prompt and generated tokens in the window; 1 = off */
    double presence_penalty;   /* -2..2, once per distinct generated token */
    double frequency_penalty;  /* -2..2, times the number of occurrences among the generated tokens */
    int32_t penalty_last_n;    /* window of repetition_penalty, in tokens from the end; 0 = off, -1 = everything */
    uint64_t seed;             /* the same seed gives the same answer */
    const skua_logit_bias *bias; /* the caller's; may be NULL when n_bias is 0 */
    size_t n_bias;
} skua_sampling;

/* The model file's defaults (general.sampling.*), else the family's published values. */
int skua_sampling_defaults(const skua_engine *e, bool thinking, skua_sampling *out, skua_error *err);

enum skua_finish {
    SKUA_FINISH_NONE,
    SKUA_FINISH_END_TOKEN,   /* the model ended its answer */
    SKUA_FINISH_STOP_STRING,
    SKUA_FINISH_MAX_TOKENS,
    SKUA_FINISH_CANCELED     /* the callback said stop */
};
const char *skua_finish_name(enum skua_finish f);

typedef struct skua_generate_params {
    skua_sampling sampling;
    int32_t max_tokens;       /* -1: no limit but the context */
    const char *const *stop;  /* stop strings, up to 16; not part of the output */
    size_t n_stop;
    bool special;             /* print control tokens as their text */
    bool no_draft;            /* decode one token at a time whatever is attached */
    bool rejection;           /* at a temperature above 0,
        drafts are drawn by the drafter and accepted by rejection sampling: the answer has
                                 the same distribution, but is not the one that the seed gives without drafts */
    void (*on_round)(void *user, const skua_draft_round *round); /* called for every round with drafts; NULL */
    void (*on_note)(void *user, const char *note); /* called with a line about drafting that should be said once; NULL */
} skua_generate_params;

/* A piece of output. text is complete UTF-8 (n bytes, may be 0 while bytes are held back); id is the token that was just chosen, -1 for
   the last piece, which may carry text that was held back. */
typedef struct skua_event {
    int32_t id;
    const char *text;
    size_t n;
} skua_event;
typedef bool skua_event_callback(void *user, const skua_event *event); /* false: stop here (SKUA_FINISH_CANCELED) */

typedef struct skua_result {
    enum skua_finish finish;
    int32_t n_prompt, n_generated; /* tokens; the end token counts as generated */
    double prompt_seconds, generate_seconds;
} skua_result;

/* Evaluate the prompt on the session (appending to what it holds), then generate. The token that ends the answer is not evaluated. On an
   error what was generated so far has been delivered, the session is valid, and *result is filled as far as it got. SKUA_ELIMIT: the
   context is full; SKUA_ECANCELED: progress (may be NULL) said stop during the prompt. */
int skua_generate(skua_session *s, const int32_t *prompt, int32_t n_prompt, const skua_generate_params *p, skua_event_callback *callback,
                  skua_progress *progress, void *user, skua_result *result, skua_error *err);

#ifdef __cplusplus
}
#endif
#endif
