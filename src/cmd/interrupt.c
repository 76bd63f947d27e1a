/* Requests to end; see interrupt.h. */
#include "cmd/interrupt.h"

#include <signal.h>
#include <stddef.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof signals / sizeof *signals)

static atomic_int flag;
static struct sigaction before[N_SIGNALS];

static void set_flag(int signal_number)
{
    (void)signal_number;
    atomic_store(&flag, 1);
}

const atomic_int *interrupt_catch(void)
{
    struct sigaction now = {.sa_handler = set_flag, .sa_flags = SA_RESTART}; /* a write must not fail for it */
    atomic_store(&flag, 0);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) /* started in the background, or with nohup */
            sigaction(signals[i], &now, NULL);
    }
    return &flag;
}

void interrupt_restore(void)
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
}
