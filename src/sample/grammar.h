/* Constrained decoding: a grammar over bytes, and which tokens may come next.
 *
 * A grammar is compiled once (from GBNF, a JSON schema or a regular expression), constant from then on, counted by references and shared by
 * any number of threads. A state is one answer's place in it. Only tokens that were chosen are fed to a state, so speculation needs no way
 * back: each row of a verify pass is chosen under the mask behind the row before it. */
#ifndef SKUA_SAMPLE_GRAMMAR_H
#define SKUA_SAMPLE_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "tok/tokenizer.h"

struct grammar;

/* Rules in GBNF with the start rule "root". SKUA_EARG: malformed (line and column, what was expected), left recursion, an unknown rule;
   SKUA_ELIMIT: the compiler's step limit; SKUA_ENOMEM. The caller holds one reference of *out. */
int grammar_from_gbnf(const char *text, size_t n, struct grammar **out, skua_error *err);

/* JSON values that a schema describes (spec/api.md 5.7: keywords, order of properties, white space). schema NULL: any JSON object.
   strict: an unsupported keyword is SKUA_EUNSUPPORTED with its path; else it is ignored, and a line with its path is appended to warnings
   (may be NULL). Other errors as above. Never crashes or hangs whatever the schema: work is bounded. */
int grammar_from_schema(const json_t *schema, bool strict, struct strbuf *warnings, struct grammar **out, skua_error *err);

/* Texts that match the whole of a regular expression (no look-around, no back references). */
int grammar_from_regex(const char *pattern, size_t n, struct grammar **out, skua_error *err);

/* One reference more, and one less. */
struct grammar *grammar_retain(struct grammar *g);
void grammar_release(struct grammar *g); /* NULL allowed */

/* The vocabulary in an order that masks can be computed from fast; one for an engine, constant, shared by threads. */
struct grammar_vocab;
int  grammar_vocab_new(const struct tokenizer *t, struct grammar_vocab **out, skua_error *err);
void grammar_vocab_free(struct grammar_vocab *v); /* NULL allowed; after the states that use it */
uint32_t grammar_vocab_size(const struct grammar_vocab *v); /* n_vocab of masks: tokenizer_size */

struct grammar_state;
int  grammar_state_new(struct grammar *g, const struct grammar_vocab *v, struct grammar_state **out, skua_error *err); /* retains g */
int  grammar_state_copy(const struct grammar_state *from, struct grammar_state **out, skua_error *err);
void grammar_state_free(struct grammar_state *s); /* NULL allowed */

/* Go on by these bytes. false: the grammar does not allow them, and the state is as before; also when memory or the step limit ran out,
   which the next grammar_state_mask then reports. */
bool grammar_state_accept(struct grammar_state *s, const char *bytes, size_t n);
bool grammar_state_can_end(const struct grammar_state *s);  /* may the text end here? */
bool grammar_state_must_end(const struct grammar_state *s); /* nothing but the end is allowed */

/* Which tokens may come next: bit id & 63 of word id / 64 of mask, (n_vocab + 63) / 64 words. A token is allowed when all its bytes are;
   tokens without bytes are not, but those that end an answer are allowed when the text may end. SKUA_ENOMEM, SKUA_ELIMIT. Masks of places
   seen before are remembered in the grammar. A token that could only lead deeper than 4,096 calls of rules is not allowed. SKUA_ELIMIT also
   when no token is allowed at all. */
int grammar_state_mask(struct grammar_state *s, uint64_t *mask, skua_error *err);

#endif
