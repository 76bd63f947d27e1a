/* Methods of values by number: an entry per (type, name). */
#ifndef SKUA_JINJA_METHODS_H
#define SKUA_JINJA_METHODS_H

/* type, name, allowed in the sandbox */
#define JINJA_METHODS(X) \
    X(STR, capitalize, 1) X(STR, casefold, 1) X(STR, center, 1) X(STR, count, 1) X(STR, endswith, 1) X(STR, expandtabs, 1) \
    X(STR, find, 1) X(STR, format, 1) X(STR, index, 1) X(STR, isalnum, 1) X(STR, isalpha, 1) X(STR, isascii, 1) \
    X(STR, isdecimal, 1) X(STR, isdigit, 1) X(STR, islower, 1) X(STR, isnumeric, 1) X(STR, isspace, 1) X(STR, istitle, 1) \
    X(STR, isupper, 1) X(STR, join, 1) X(STR, ljust, 1) X(STR, lower, 1) X(STR, lstrip, 1) X(STR, partition, 1) \
    X(STR, removeprefix, 1) X(STR, removesuffix, 1) X(STR, replace, 1) X(STR, rfind, 1) X(STR, rindex, 1) X(STR, rjust, 1) \
    X(STR, rpartition, 1) X(STR, rsplit, 1) X(STR, rstrip, 1) X(STR, split, 1) X(STR, splitlines, 1) X(STR, startswith, 1) \
    X(STR, strip, 1) X(STR, swapcase, 1) X(STR, title, 1) X(STR, upper, 1) X(STR, zfill, 1) X(STR, encode, 1) \
    X(STR, format_map, 1) X(STR, maketrans, 1) X(STR, translate, 1) X(STR, isidentifier, 1) X(STR, isprintable, 1) \
    X(LIST, index, 1) X(LIST, count, 1) X(LIST, copy, 1) X(LIST, pop, 1) X(LIST, clear, 1) X(LIST, append, 0) \
    X(LIST, extend, 0) X(LIST, insert, 0) X(LIST, remove, 0) X(LIST, reverse, 0) X(LIST, sort, 0) \
    X(TUPLE, index, 1) X(TUPLE, count, 1) X(RANGE, index, 1) X(RANGE, count, 1) \
    X(DICT, get, 1) X(DICT, items, 1) X(DICT, keys, 1) X(DICT, values, 1) X(DICT, copy, 1) X(DICT, fromkeys, 1) \
    X(DICT, clear, 0) X(DICT, pop, 0) X(DICT, popitem, 0) X(DICT, setdefault, 0) X(DICT, update, 0) \
    X(LOOP, cycle, 1) X(LOOP, changed, 1) X(CYCLER, next, 1) X(CYCLER, reset, 1) \
    X(INT, bit_length, 1) X(INT, bit_count, 1) X(INT, conjugate, 1) X(INT, to_bytes, 1) X(INT, from_bytes, 1) \
    X(INT, as_integer_ratio, 1) X(FLOAT, is_integer, 1) X(FLOAT, hex, 1) X(FLOAT, fromhex, 1) X(FLOAT, conjugate, 1) \
    X(FLOAT, as_integer_ratio, 1)

enum method_id {
#define X(type, name, allowed) M_##type##_##name,
    JINJA_METHODS(X)
#undef X
    METHOD_COUNT
};

#endif
