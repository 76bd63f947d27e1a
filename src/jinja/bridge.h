/* JSON to values. */
#ifndef SKUA_JINJA_BRIDGE_H
#define SKUA_JINJA_BRIDGE_H

#include <jansson.h>

#include "jinja/eval.h"

/* Copy j into the arena of e. Strings are borrowed from j, which must outlive e. */
bool json_to_value(struct eval *e, const json_t *j, struct val *out);

#endif
