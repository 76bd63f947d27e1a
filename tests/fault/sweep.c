/* The fault sweep; see sweep.h. */
#include "fault/sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

struct kind {
    const char *name;
    void (*arm)(uint64_t n, bool once);
    uint64_t (*count)(void);
};

static const struct kind kinds[] = {{"allocation", fault_set_alloc, fault_alloc_count}, {"file operation", fault_set_io, fault_io_count}};

static uint64_t seed, hits; /* hits: operations counted before the faults were switched off in the middle of a run */
static const struct kind *armed;

void sweep_init(void)
{
    const char *s = getenv("SKUA_SEED");
    json_use_mem();
    json_object_seed(1); /* jansson would read /dev/urandom at its first object */
    seed = s ? strtoull(s, NULL, 10) : 1;
    printf("fault sweep: seed %" PRIu64 "%s\n", seed, getenv("SKUA_FAULT_ALL") ? ", all points" : "");
}

void sweep_disarm(void)
{
    if (armed)
        hits = armed->count();
    armed = NULL;
    fault_set_alloc(0, false);
    fault_set_io(0, false);
}

static int run(sweep_fn *fn, void *context, const struct kind *k, uint64_t n, bool once, skua_error *err)
{
    memset(err, 0, sizeof *err);
    hits = 0;
    armed = k;
    k->arm(n, once);
    int rc = fn(context, err);
    sweep_disarm();
    return rc;
}

static bool one_line(const char *message)
{
    return *message && !strpbrk(message, "\r\n") && memchr(message, 0, sizeof((skua_error *)0)->message);
}

static void point(const char *name, sweep_fn *fn, void *context, const struct kind *k, uint64_t n, bool once, long *absorbed)
{
    skua_error err;
    size_t live = mem_live_blocks();
    int rc = run(fn, context, k, n, once, &err);
    size_t after = mem_live_blocks();
    const char *how = once ? "fails" : "and all after fail";
    CHECK(after == live, "%s: %s %" PRIu64 " %s: %zu blocks left behind (%s)", name, k->name, n, how, after - live, err.message);
    CHECK(rc <= 0, "%s: %s %" PRIu64 " %s: returned %d", name, k->name, n, how, rc);
    if (rc) {
        CHECK(one_line(err.message), "%s: %s %" PRIu64 " %s: message '%s'", name, k->name, n, how, err.message);
        CHECK(err.code == rc, "%s: %s %" PRIu64 " %s: returned %d, error code %d", name, k->name, n, how, rc, err.code);
        CHECK(rc == SKUA_ENOMEM || (k == &kinds[1] && rc == SKUA_EIO), "%s: %s %" PRIu64 " %s: code %d (%s)", name, k->name, n, how, rc,
              err.message);
    } else if (hits >= n) {
        ++*absorbed;
    }
}

void sweep(const char *name, sweep_fn *fn, void *context, int max_points)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        skua_error err;
        size_t live = mem_live_blocks();
        long absorbed = 0, points = 0;
        int rc = run(fn, context, k, 0, false, &err);
        uint64_t total = hits;
        if (!CHECK(rc == 0, "%s: without faults: %s", name, err.message))
            return;
        CHECK(mem_live_blocks() == live, "%s: without faults: %zu blocks left behind", name, mem_live_blocks() - live);
        uint64_t stretch = getenv("SKUA_FAULT_ALL") ? 1 : (total + (uint64_t)max_points - 1) / (uint64_t)max_points;
        for (uint64_t begin = 0; begin < total; begin += stretch) {
            uint64_t n = begin + 1 + rng_bits(seed, begin, i) % stretch;
            if (n <= total)
                point(name, fn, context, k, n, points++ % 2, &absorbed);
        }
        rc = run(fn, context, k, 0, false, &err);
        CHECK(rc == 0, "%s: after the faults: %s", name, err.message);
        printf("%s: %ld of %" PRIu64 " %ss failed in turn, %ld of them without consequence\n", name, points, total, k->name, absorbed);
    }
}
