/* Producing one answer: prompt in, sampled tokens and text out, until something ends it. */
#ifndef SKUA_ENGINE_GENERATE_H
#define SKUA_ENGINE_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sample/params.h"
#include "skua.h"

enum finish_reason {
    FINISH_NONE,
    FINISH_END_TOKEN,   /* the model ended its answer */
    FINISH_STOP_STRING,
    FINISH_MAX_TOKENS,
    FINISH_CANCELED     /* the callback said stop */
};
const char *finish_reason_name(enum finish_reason r);

struct generate_params {
    struct sampler_params sampling;
    int32_t max_tokens;             /* -1: no limit but the context */
    const char *const *stop;        /* stop strings, not part of the output */
    size_t n_stop;
    bool special;                   /* print control tokens as their text */
};

/* A piece of output. text is complete UTF-8 (n bytes, may be 0 while bytes are held back); id is the token that was just chosen,
   -1 for the last piece, which may carry text that was held back. */
struct generate_event {
    int32_t id;
    const char *text;
    size_t n;
};
/* false: stop here (FINISH_CANCELED). */
typedef bool generate_callback(void *user, const struct generate_event *event);

struct generate_result {
    enum finish_reason finish;
    int32_t n_prompt, n_generated;  /* tokens; the end token counts as generated */
    double prompt_seconds, generate_seconds;
};

/* Evaluate the prompt on the session (appending to what it holds), then generate. Tokens that were chosen but not needed for a
   later one (the last) are not evaluated. On an error what was generated so far has been delivered, the session is valid, and
   *result is filled as far as it got. SKUA_ELIMIT: the context is full; SKUA_ECANCELED: progress said stop during the
   prompt. */
int generate(skua_session *s, const int32_t *prompt, int32_t n_prompt, const struct generate_params *p, generate_callback *callback,
             skua_progress *progress, void *user, struct generate_result *result, skua_error *err);

#endif
