/* The parts of responses_parse, which are files of their own. 0, or -1 with the error set. */
#ifndef SKUA_API_RESPONSES_H
#define SKUA_API_RESPONSES_H

#include "api/field.h"

/* tools, tool_choice, parallel_tool_calls, max_tool_calls. */
int responses_tools_parse(struct api_request *r, struct api_error *e);

/* instructions, what is before the input (previous_response_id), and input to r->messages; the names of tools are not looked up.
   kept: where earlier items are (NULL: nowhere). store: the input is to be kept there with its answer (r->turn). */
int responses_input_parse(struct api_request *r, const struct response_access *kept, bool store, struct api_error *e);

#endif
