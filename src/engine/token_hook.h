/* What the owner of an answer is told of each token that was chosen, and what it says about the next one. */
#ifndef SKUA_ENGINE_TOKEN_HOOK_H
#define SKUA_ENGINE_TOKEN_HOOK_H

#include "sample/logprob.h"
#include "skua.h"

/* What must hold for the next choice of an answer, and whether there is one. Zeroed: nothing. */
struct batch_next {
    enum skua_finish finish;   /* not NONE: the answer ends with this token */
    const int32_t *forced;     /* the next tokens, whatever the logits say; the owner's memory, valid until they are used up. They take the
                                  place of forced tokens that are not used up yet; none given: those stay */
    int32_t n_forced;
    const uint64_t *mask;      /* tokens allowed next, a bitmap of the vocabulary; NULL: all. Valid until the next call for this answer.
                                  Forced tokens need not be in it */
};

struct batch_logprob {
    double logprob;              /* of the token */
    const struct token_logprob *top; /* [n_top] */
    int32_t n_top;
};

struct batch_token {
    int32_t choice;            /* 0 .. n_choices - 1 */
    int32_t id;
    bool ends;                 /* skua_token_ends: the answer ends with it unless it is replaced */
    const char *bytes;         /* what it prints, n bytes; control tokens nothing */
    size_t n;
    const struct batch_logprob *logprob; /* when log-probabilities are wanted, else NULL; valid during the call */
};

/* A chosen token. *replace (-1 on entry) may be set to another id that takes its place: the function is then called again with that one,
   for which it must stay -1. Fill *next (zeroed) for the token after it. An error ends the answer with it: the token does not count. */
typedef int token_hook(void *user, const struct batch_token *t, int32_t *replace, struct batch_next *next, skua_error *err);

#endif
