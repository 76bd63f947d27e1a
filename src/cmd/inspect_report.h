/* What `skua inspect` finds out about a model file. inspect_report.c gathers it (inspect_tensors.c and inspect_problems.c are
 * parts of that), inspect_text.c and inspect_json.c print it, each independently of the other.
 *
 * The verdict is that of the engine: the file runs if and only if skua_engine_open takes it. For a file that it refuses, the
 * pieces (container, shape, tokenizer, tensors) are examined one by one, so that everything that can be said is said. All views
 * of strings and tensors point into the open file and live as long as the report. */
#ifndef SKUA_CMD_INSPECT_REPORT_H
#define SKUA_CMD_INSPECT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "engine/engine.h"
#include "tok/tokenizer.h"

struct inspect_options {
    const char *path;
    const char *kv_type;   /* a name that the engine takes */
    int64_t n_ctx;         /* 0: the file's context length */
    bool json, all;
};

/* ---- what is wrong ---- */

struct inspect_problem {
    const char *class;     /* static: "E_SCHEMA", "unsupported", a container class, or a word for failures outside the file */
    char message[508];     /* one line, control characters escaped */
};

/* ---- tensors by role ---- */

enum inspect_part { INSPECT_MODEL, INSPECT_TRUNK, INSPECT_MTP, INSPECT_OTHER, INSPECT_PARTS };
const char *inspect_part_name(enum inspect_part part); /* "model" (outside blocks), "trunk", "mtp", "other" (no such block) */

enum inspect_status { INSPECT_OK, INSPECT_UNSUPPORTED, INSPECT_UNUSED, INSPECT_UNJUDGED };

struct inspect_sum {
    uint64_t n_tensors, elements, bytes;
};

/* Tensors of one role and one type. A role is a tensor name without its "blk.N.". */
struct inspect_run {
    uint32_t type, first;  /* first: tensor index */
    struct inspect_sum sum;
    enum inspect_status status;
};

struct inspect_role {
    enum inspect_part part;
    struct gguf_string name;
    uint32_t first;           /* tensor index; roles are listed in this order */
    size_t run_begin, n_runs; /* in inspect_tensors.runs */
    struct inspect_sum sum;
    enum inspect_status status; /* unsupported if one of its runs is */
    bool floats;                /* read as floats, never multiplied in a quantised form */
};

struct inspect_tensors {
    struct inspect_run *runs;
    struct inspect_role *roles;
    size_t n_runs, n_roles;
    struct inspect_sum part[INSPECT_PARTS], all;
};

/* ---- the rest ---- */

enum inspect_kind {
    INSPECT_KIND_UNKNOWN, INSPECT_KIND_DENSE, INSPECT_KIND_MOE, INSPECT_KIND_MTP_ONLY, INSPECT_KIND_DFLASH, INSPECT_KIND_DFLASH2,
    INSPECT_KIND_DSPARK, INSPECT_KIND_IMATRIX, INSPECT_KIND_ADAPTER, INSPECT_KIND_PROJECTOR
};
const char *inspect_kind_name(enum inspect_kind kind); /* "language model, dense", ... */

enum inspect_mtp { INSPECT_MTP_NONE, INSPECT_MTP_MISSING, INSPECT_MTP_PRESENT };

/* Bytes. State and KV cache are needed once per session, the rest once. */
struct inspect_memory {
    int64_t n_ctx;
    int64_t n_pages; /* of KV_PAGE_ROWS positions */
    uint64_t file, vectors, workspace, state, kv_page, kv, held_row, session, total;
};

struct inspect_report {
    const struct inspect_options *opt;
    skua_engine *engine;          /* NULL when the file does not run */
    struct gguf *own;             /* the file, when there is no engine */
    const struct gguf *g;
    struct model_config own_config;
    const struct model_config *config; /* NULL when it could not be read */
    int32_t n_block, n_layer;     /* 0: unknown. Set as soon as block_count is readable */
    struct tokenizer *own_tokenizer;
    const struct tokenizer *tokenizer; /* NULL when it could not be built */

    enum inspect_kind kind;
    enum inspect_mtp mtp;
    uint64_t file_bytes;
    struct inspect_tensors tensors;
    struct inspect_memory memory; /* total 0: not known */
    struct inspect_problem *problems; /* empty exactly when engine is set */
    size_t n_problems;
    struct strbuf warnings;       /* lines */
};

/* Gather everything. 0, also for a file that does not run; an error when not even the container could be opened (SKUA_ENOMEM when
   memory ran out). Free the report in both cases. */
int  inspect_gather(struct inspect_report *r, const struct inspect_options *opt, skua_error *err);
void inspect_free(struct inspect_report *r);

/* Parts of inspect_gather. `judge`: the device whose act_kind decides about matrix types, NULL to leave types unjudged. Both: 0 or
   SKUA_ENOMEM. */
int inspect_sum_tensors(struct inspect_report *r, const struct dev *judge, skua_error *err);
int inspect_find_problems(struct inspect_report *r, const skua_error *engine_error, skua_error *err);
bool inspect_has_tensor(const struct gguf *g, const char *prefix, const char *within); /* a name that starts and contains so */

/* ---- printing ---- */

/* Both append to out; SKUA_ENOMEM is the only failure. */
int inspect_text(const struct inspect_report *r, struct strbuf *out, skua_error *err);
int inspect_json(const struct inspect_report *r, struct strbuf *out, skua_error *err);
/* The JSON object for a file that could not be opened. */
int inspect_json_failure(const char *path, const char *class, const char *message, struct strbuf *out, skua_error *err);

/* What the chat template can be told, by the variables that it mentions. */
struct inspect_template {
    bool present, enable_thinking, reasoning_effort, preserve_thinking;
    size_t bytes;
};
struct inspect_template inspect_chat_template(const struct gguf *g);

/* The string key, or an empty string. */
struct gguf_string inspect_string(const struct gguf *g, const char *key);
double inspect_bits(const struct inspect_sum *s); /* average bits per element; 0 for no elements */

#endif
