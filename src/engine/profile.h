/* Where the time of an engine's forward passes goes, and the memory and arithmetic behind it: sums over the ops of all passes while a
 * profile is attached, one entry per op, role and weight type. Attaching does not change how the ops run. */
#ifndef SKUA_ENGINE_PROFILE_H
#define SKUA_ENGINE_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* A pass with more than one row of some sequence is prefill, any other decode. */
enum profile_phase { PROFILE_PREFILL, PROFILE_DECODE, PROFILE_PHASES };
const char *profile_phase_name(enum profile_phase phase); /* "prefill", "decode" */

struct profile_entry {
    enum profile_phase phase;
    enum kern_op_code code;
    const char *role;
    int32_t type, act;  /* of matrix products: weight type and enum kern_act; -1 for other ops */
    bool tiled;         /* the weights are in the device's own layout */
    uint64_t calls, ns;
    struct kern_cost cost; /* sums */
};

/* {0} is an empty one. */
struct profile {
    skua_engine *engine; /* NULL: not attached */
    struct profile_entry *entries; /* [n] in the order of their first call */
    int n, cap;
    uint64_t passes[PROFILE_PHASES], rows[PROFILE_PHASES];
    enum profile_phase phase; /* of the last pass: what comes after it without rows of its own (more rows through the head) is part of it */
    bool failed;         /* no memory for an entry */
};

/* Count the engine's passes from now on, on top of what is there; one profile at a time. */
void profile_attach(struct profile *p, skua_engine *e);
void profile_detach(struct profile *p); /* nothing to do when not attached */
void profile_free(struct profile *p);   /* detaches; zeroed allowed */

/* SKUA_ENOMEM when something could not be counted. */
int profile_check(const struct profile *p, skua_error *err);

/* Sums of a phase. */
uint64_t profile_ns(const struct profile *p, enum profile_phase phase);
struct kern_cost profile_cost(const struct profile *p, enum profile_phase phase);
static inline uint64_t profile_bytes(const struct kern_cost *c) { return c->weight_bytes + c->state_bytes + c->kv_bytes; }

#endif
