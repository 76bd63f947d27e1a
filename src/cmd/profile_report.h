/* Profiles for people and for programs. */
#ifndef SKUA_CMD_PROFILE_REPORT_H
#define SKUA_CMD_PROFILE_REPORT_H

#include <jansson.h>

#include "base/strbuf.h"
#include "engine/profile.h"

/* A table per phase that has passes: time per op, role and weight type, the longest first, with calls, share, bytes and rates. Sorts the
   entries of p. */
void profile_text(struct profile *p, struct strbuf *out);

/* {"prefill": {"passes", "rows", "ms", "ops": [{"op", "role", "type", "calls", "ms", "share", "bytes", "gb_s", "macs", "gmac_s"}]},
   "decode": ...}; NULL when out of memory. */
json_t *profile_json(struct profile *p);

/* The matrices of a profile: role, weight type, how the rows are given, how many calls. One line each. */
void profile_kernels_text(const struct profile *p, const char *tier, struct strbuf *out);
/* [{"role", "type", "rows", "calls", "tier"}]; NULL when out of memory. */
json_t *profile_kernels_json(const struct profile *p, const char *tier);

#endif
