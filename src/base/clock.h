/* Monotonic time. */
#ifndef SKUA_BASE_CLOCK_H
#define SKUA_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_ns(void);     /* nanoseconds since an arbitrary start */
double   clock_seconds(void);

#endif
