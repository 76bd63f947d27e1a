/* Filter and test names, known when compiling. Numbers index the tables of filters.c and tests.c. */
#ifndef SKUA_JINJA_REGISTRY_H
#define SKUA_JINJA_REGISTRY_H

#include "jinja/value.h"

int filter_number(struct str name); /* -1 = unknown */
int test_number(struct str name);

#endif
