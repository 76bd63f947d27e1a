/* The filters, one row each: name and function. FILTER(name) in the files filters_*.c defines them. */
#ifndef SKUA_JINJA_FILTERS_H
#define SKUA_JINJA_FILTERS_H

#include "jinja/eval.h"

typedef bool filter_fn(struct eval *e, struct val v, const struct args *a, struct val *out);
#define FILTER(name) bool filter_##name(struct eval *e, struct val v, const struct args *a, struct val *out)

/* template name, function */
#define JINJA_FILTERS(X) \
    X(abs, abs) X(attr, attr) X(batch, batch) X(capitalize, capitalize) X(center, center) X(count, length) X(d, default) \
    X(default, default) X(dictsort, dictsort) X(e, escape) X(escape, escape) X(first, first) X(float, float) \
    X(forceescape, escape) X(format, format) X(groupby, groupby) X(indent, indent) X(int, int) X(items, items) X(join, join) \
    X(last, last) X(length, length) X(list, list) X(lower, lower) X(map, map) X(max, max) X(min, min) X(reject, reject) \
    X(rejectattr, rejectattr) X(replace, replace) X(reverse, reverse) X(round, round) X(safe, safe) X(select, select) \
    X(selectattr, selectattr) X(slice, slice) X(sort, sort) X(string, string) X(striptags, striptags) X(sum, sum) \
    X(title, title) X(tojson, tojson) X(trim, trim) X(truncate, truncate) X(unique, unique) X(upper, upper) \
    X(urlencode, urlencode) X(wordcount, wordcount) \
    /* known to jinja2, refused here by name */ \
    X(filesizeformat, unsupported) X(pprint, unsupported) X(random, unsupported) X(urlize, unsupported) \
    X(wordwrap, unsupported) X(xmlattr, unsupported)

#define X(name, function) filter_fn filter_##function;
JINJA_FILTERS(X)
#undef X

#endif
