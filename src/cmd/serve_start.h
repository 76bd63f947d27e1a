/* From options to a server that can answer, and back to nothing. */
#ifndef SKUA_CMD_SERVE_START_H
#define SKUA_CMD_SERVE_START_H

#include "cmd/serve.h"

/* Load the model and make all that answers need, but no threads. On failure serve_unload frees what is there. */
int  serve_load(struct serve *s, skua_error *err);
/* Save what outlives the server, and free. */
void serve_unload(struct serve *s);
/* Lines on standard error and in the log: where, what, how many, and what is armed. */
void serve_say(struct serve *s);

#endif
