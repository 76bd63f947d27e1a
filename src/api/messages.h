/* The parts of messages_parse, which are files of their own. 0, or -1 with the error set. */
#ifndef SKUA_API_MESSAGES_H
#define SKUA_API_MESSAGES_H

#include "api/field.h"

/* tools, tool_choice. */
int messages_tools_parse(struct api_request *r, struct api_error *e);

/* system and messages to r->messages; an assistant's message at the end is to be continued. */
int messages_input_parse(const struct api_env *env, struct api_request *r, struct api_error *e);

#endif
