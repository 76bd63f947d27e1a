/* Making grammars out of parts. The front ends (GBNF, JSON schema, regular expressions) are built with this, and so is whatever combines
 * them: the forced beginning of a tool call, a name among several, a value that a schema describes.
 *
 *     struct grammar_builder *b = grammar_builder_new();
 *     grammar_expr value = grammar_schema(b, tool, schema_of_key, true, NULL);
 *     grammar_expr text = grammar_text_until(b, "</parameter>", 12);
 *     grammar_expr parts[] = {grammar_literal(b, "<parameter=n>\n", 14), value, grammar_literal(b, "\n</parameter>", 13)};
 *     rc = grammar_builder_finish(b, grammar_seq(b, parts, 3), &grammar, err);
 *     grammar_builder_free(b);
 *
 * Errors stick: after the first one every function returns 0 and does nothing, 0 as an operand is passed on, and grammar_builder_finish
 * reports it. So nothing needs to be checked in between. An expression may be used any number of times; it is copied into each place
 * when the grammar is finished, so what is large and used often should be a rule. All of it is bounded: SKUA_ELIMIT. */
#ifndef SKUA_SAMPLE_GRAMMAR_BUILD_H
#define SKUA_SAMPLE_GRAMMAR_BUILD_H

#include "sample/grammar.h"

struct grammar_builder;
typedef uint32_t grammar_expr; /* belongs to one builder; 0: failed */

#define GRAMMAR_UNLIMITED UINT32_MAX /* as a repetition's max */

struct grammar_builder *grammar_builder_new(void); /* NULL: out of memory; the other functions take that as a failed builder */
void grammar_builder_free(struct grammar_builder *b); /* NULL allowed */
/* The first error so far, or 0. A front end that finds one itself puts it there (err->code not 0) with grammar_builder_fail. */
int  grammar_builder_error(const struct grammar_builder *b, skua_error *err);
void grammar_builder_fail(struct grammar_builder *b, const skua_error *err);

/* Compile what root describes. SKUA_EARG: left recursion, a rule without a body (named), no text that ends; SKUA_ELIMIT; SKUA_ENOMEM;
   or the error that happened before. The builder stays the caller's. */
int grammar_builder_finish(struct grammar_builder *b, grammar_expr root, struct grammar **out, skua_error *err);

grammar_expr grammar_empty(struct grammar_builder *b);   /* the empty text */
grammar_expr grammar_nothing(struct grammar_builder *b); /* no text at all: an alternative that is not there */
grammar_expr grammar_literal(struct grammar_builder *b, const char *bytes, size_t n);
grammar_expr grammar_one_of(struct grammar_builder *b, const char *const *literals, const size_t *lens, size_t n); /* any number, fast */
grammar_expr grammar_seq(struct grammar_builder *b, const grammar_expr *parts, size_t n);
grammar_expr grammar_seq2(struct grammar_builder *b, grammar_expr x, grammar_expr y);
grammar_expr grammar_alt(struct grammar_builder *b, const grammar_expr *parts, size_t n); /* n 0: nothing */
grammar_expr grammar_alt2(struct grammar_builder *b, grammar_expr x, grammar_expr y);
grammar_expr grammar_optional(struct grammar_builder *b, grammar_expr x);
grammar_expr grammar_repeat(struct grammar_builder *b, grammar_expr x, uint32_t min, uint32_t max); /* counted, not unrolled */

/* One character (UTF-8) of these code points; surrogates are left out. negated: of all others. */
struct grammar_range { uint32_t first, last; };
grammar_expr grammar_chars(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated);

/* A rule, for recursion and for what is used often. Its expression can be used before its body is set (once). name is for messages
   (copied). */
grammar_expr grammar_rule(struct grammar_builder *b, const char *name, size_t n);
void grammar_rule_set(struct grammar_builder *b, grammar_expr rule, grammar_expr body);
bool grammar_rule_is_set(const struct grammar_builder *b, grammar_expr rule);
/* A rule with this body. */
grammar_expr grammar_rule_of(struct grammar_builder *b, const char *name, grammar_expr body);

/* Any text (valid UTF-8): all, what does not contain the literal (valid UTF-8, at least one byte), what ends with the literal's first
   occurrence. Rules, so they can be used in many places. */
grammar_expr grammar_text(struct grammar_builder *b);
grammar_expr grammar_text_without(struct grammar_builder *b, const char *literal, size_t n);
grammar_expr grammar_text_until(struct grammar_builder *b, const char *literal, size_t n);

/* A JSON value that schema describes, as grammar_from_schema. References are resolved in document (which schema is, or is a part of);
   neither is needed afterwards. NULL schema: any JSON object. */
grammar_expr grammar_schema(struct grammar_builder *b, const json_t *document, const json_t *schema, bool strict, struct strbuf *warnings);
/* The text of a string that schema describes, as it is, without quotes and escapes. 0 without an error: any text, or not only strings. */
grammar_expr grammar_schema_text(struct grammar_builder *b, const json_t *document, const json_t *schema, bool strict,
                                 struct strbuf *warnings);
/* What a GBNF text describes; what a regular expression matches as a whole. */
grammar_expr grammar_gbnf(struct grammar_builder *b, const char *text, size_t n);
grammar_expr grammar_regex(struct grammar_builder *b, const char *pattern, size_t n);

#endif
