/* Ctrl-C, and the other requests to end, while a command writes a file: they set a flag, and the command stops by itself and removes what
   is unfinished. */
#ifndef SKUA_CMD_INTERRUPT_H
#define SKUA_CMD_INTERRUPT_H

#include <stdatomic.h>

/* From now on SIGINT, SIGTERM and SIGHUP set the flag that is returned (0 before) and do nothing else. */
const atomic_int *interrupt_catch(void);
/* The signals do again what they did before. */
void interrupt_restore(void);

#endif
