/* Ids; spec/api.md 14. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/rng.h"

#define RANDOM_CHARS 24

/* Random bytes from the kernel. Where it has none yet, the clock and a counter keep ids apart. */
static void random_bytes(unsigned char *out, size_t n)
{
    static _Thread_local uint64_t state;
    size_t done = 0;
    while (done < n) {
        ssize_t got = getrandom(out + done, n - done, GRND_NONBLOCK);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    for (state += done < n ? clock_ns() : 0; done < n; done++)
        out[done] = (unsigned char)(rng_next(&state) >> 32);
}

void api_id(const char *prefix, char *out)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[2 * RANDOM_CHARS];
    size_t at = (size_t)snprintf(out, 48 - RANDOM_CHARS, "%s", prefix), n = 0, i = sizeof bytes;
    while (n < RANDOM_CHARS) {
        if (i == sizeof bytes) {
            random_bytes(bytes, sizeof bytes);
            i = 0;
        }
        unsigned v = bytes[i++];
        if (v < 62 * 4) /* the rest would make some letters likelier */
            out[at + n++] = letters[v % 62];
    }
    out[at + n] = '\0';
}
