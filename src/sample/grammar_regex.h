/* Regular expressions as parts of grammars. */
#ifndef SKUA_SAMPLE_GRAMMAR_REGEX_H
#define SKUA_SAMPLE_GRAMMAR_REGEX_H

#include "sample/grammar_build.h"

/* How a JSON schema reads one: in the characters of a string, each as JSON writes it between quotes; and anywhere in it, if it is not
   anchored. */
grammar_expr grammar_regex_json(struct grammar_builder *b, const char *pattern, size_t n);

/* The same in a string that is written as it is and ends at a tag: what stands around the match has no '<'. */
grammar_expr grammar_regex_found(struct grammar_builder *b, const char *pattern, size_t n);

#endif
