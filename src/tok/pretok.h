/* Pre-tokenizers: cut a text into the pieces inside which byte pairs are merged. They give exactly what the published
   regular expressions give under PCRE2 with UTF, UCP and White_Space as \s, in time linear in the text:

   qwen35  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|
           \s*[\r\n]+|\s+(?!\S)|\s+
   qwen2   the same with \p{L}+ in the second alternative and [^\s\p{L}\p{N}]+ in the fourth

   Case-insensitive matching of s includes U+017F (long s), which folds to s. Bytes that are not UTF-8 count as one
   character each of no class, like the U+FFFD that replaces them. */
#ifndef SKUA_TOK_PRETOK_H
#define SKUA_TOK_PRETOK_H

#include <stddef.h>

struct unicode_classes;

struct pretok {
    const char *name;     /* value of tokenizer.ggml.pre */
    unsigned letter_mask; /* CLASS_* bits that form words: letters, and for qwen35 also marks */
};

/* The pre-tokenizer of that name, or NULL. */
const struct pretok *pretok_by_name(const char *name, size_t len);

/* All accepted names, for error messages: "qwen35, qwen2, ...". */
const char *pretok_names(void);

/* End of the piece that begins at byte i of the n bytes at s; i < n, the result is in (i, n]. Successive calls from
   i = 0 on cover the text. n is where the segment ends for the look-ahead, too. */
size_t pretok_next(const struct pretok *p, const struct unicode_classes *classes, const char *s, size_t n, size_t i);

#endif
