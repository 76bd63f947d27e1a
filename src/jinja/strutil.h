/* String operations that methods and filters share, with the results of Python's str methods of these names. */
#ifndef SKUA_JINJA_STRUTIL_H
#define SKUA_JINJA_STRUTIL_H

#include "jinja/eval.h"

/* They set *out to new or shared text; false, with the error filled in, when the evaluation must end. */
bool str_lower(struct eval *e, struct str s, struct val *out);
bool str_upper(struct eval *e, struct str s, struct val *out);
bool str_title(struct eval *e, struct str s, struct val *out);      /* str.title */
bool str_capitalize(struct eval *e, struct str s, struct val *out);
bool str_replace(struct eval *e, struct str s, struct str old, struct str new, int64_t count, struct val *out); /* count < 0: all */
bool str_pad(struct eval *e, struct str s, int64_t width, struct str fill, int where /* -1 left text, 0 centre, 1 right text */,
             struct val *out);
bool str_is_lower(struct str s);
bool str_is_upper(struct str s);
bool str_splitlines(struct eval *e, struct str s, bool keep, struct val *out);
bool str_join(struct eval *e, struct str sep, const struct vlist *items, bool convert, struct val *out);
bool str_format(struct eval *e, struct str format, const struct args *a, struct val *out); /* str.format; strformat.c */

#endif
