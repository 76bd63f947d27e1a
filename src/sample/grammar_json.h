/* JSON's own parts: white space, strings, numbers, any value. Each is a rule of the builder, made once. */
#ifndef SKUA_SAMPLE_GRAMMAR_JSON_H
#define SKUA_SAMPLE_GRAMMAR_JSON_H

#include "sample/grammar_build.h"

#define JSON_VALUE_DEPTH 24 /* levels of arrays and objects in 'any value' */

grammar_expr gjson_space(struct grammar_builder *b);  /* nothing, one space, or one line break with indentation */
/* One character of a string: of these code points (all for n 0 and negated), as JSON has it, escaped where it must be. */
grammar_expr gjson_chars(struct grammar_builder *b, const struct grammar_range *ranges, size_t n, bool negated);
grammar_expr gjson_char(struct grammar_builder *b);   /* any, also by any escape */
grammar_expr gjson_string(struct grammar_builder *b);
grammar_expr gjson_counted_string(struct grammar_builder *b, uint32_t min, uint32_t max); /* characters */
grammar_expr gjson_number(struct grammar_builder *b);
grammar_expr gjson_int(struct grammar_builder *b);
grammar_expr gjson_int_range(struct grammar_builder *b, int64_t min, int64_t max); /* INT64_MIN, INT64_MAX: no bound (18 digits) */
grammar_expr gjson_any(struct grammar_builder *b, int depth);
grammar_expr gjson_any_object(struct grammar_builder *b, int depth);
/* A key, in quotes, that is none of these (texts of keys, as UTF-8). */
grammar_expr gjson_key_except(struct grammar_builder *b, const char *const *keys, const size_t *lens, size_t n);

/* A value as JSON writes it in the fewest characters; 0: failed. */
grammar_expr gjson_constant(struct grammar_builder *b, const json_t *value);
/* The same as text, appended to out. */
bool gjson_constant_text(struct strbuf *out, const json_t *value);

#endif
