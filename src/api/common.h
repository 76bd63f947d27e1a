/* Fields that several APIs share: spec/api.md 5.2, 5.3, 5.5, 5.6, 5.7. All functions return 0, or -1 with the error set, and leave a
 * request that api_request_free takes. Those that read body fields look at r->body. */
#ifndef SKUA_API_COMMON_H
#define SKUA_API_COMMON_H

#include "api/field.h"

/* Before anything else: what a request is when nothing is said, and body is its body from here on (taken over in every case). */
void api_request_init(struct api_request *r, enum api_family family, const struct api_env *env, json_t *body);

/* What every generating endpoint reads: model, stream, sampling fields and limits of 5.2, priority, timeout, cache_prompt, speculative,
   engine_info (field or header x-engine-info), return_progress, timings_per_token, return_tokens. min_max_tokens: 0 where max_tokens 0 is
   allowed, else 1. The largest sensible values of n are the caller's business (api_choices_parse). */
int api_common_parse(const struct api_env *env, struct api_request *r, int32_t min_max_tokens, api_header_fn *header, void *user,
                     struct api_error *e);
int api_model_check(const struct api_env *env, const char *name, struct api_error *e); /* 404 unless it is served */
int api_choices_parse(struct api_request *r, struct api_error *e);                  /* n: 1 to 16 */
int api_stop_parse(struct api_request *r, const char *key, struct api_error *e);    /* "stop", "stop_sequences" */
int api_stream_options_parse(struct api_request *r, struct api_error *e);           /* chat and completions */

/* Thinking by the table of 5.5. effort and its place: reasoning_effort and the like, NULL if not given. off_when_absent: what nobody speaks
   about is off (Messages with --anthropic-thinking client). Sets thinking_budget, reasoning_format and the template's arguments; the
   template's own default is found when the prompt is rendered. */
int api_thinking_parse(const struct api_env *env, struct api_request *r, const json_t *effort, const struct api_path *effort_at,
                       bool off_when_absent, struct api_error *e);

/* Add a tool. name and parameters (NULL: none) are borrowed from the body, or from template_tool, which is the object that the template
   renders, {"type": "function", "function": {...}}, and is taken over in every case (NULL: out of memory). at: the tool's place.
   Choice becomes AUTO if it was NONE. */
int api_tool_add(struct api_request *r, const struct api_path *at, const char *name, bool custom, bool strict, const json_t *parameters,
                 json_t *template_tool, struct api_error *e);
/* The template's object of a tool with a name, a description (NULL: none) and parameters (NULL: one string named "input"). NULL: memory. */
json_t *api_tool_template(const char *name, const json_t *description, const json_t *parameters);
/* What a custom tool takes: {"type": "text"} or {"type": "grammar", "syntax", "definition"} in its "format"; the latter two in an object of
   that with the name inner, if not NULL. A regular expression is enforced (*regex, borrowed); a Lark grammar is told to the model, with a
   warning. *description: what the model is told (owned; NULL: nothing). */
int api_tool_format(struct api_request *r, const json_t *tool, const struct api_path *at, const char *inner, const char **regex,
                    json_t **description, struct api_error *e);
const struct api_tool *api_tool_find(const struct api_request *r, const char *name);
/* Allow a tool by name; unknown ones are errors at that place. Then only allowed ones may be called. */
int api_tool_allow(struct api_request *r, const struct api_path *at, const json_t *name, struct api_error *e);

/* A response format: {"type": "text" | "json_object" | "json_schema", ...}; the schema is in the object itself (flat) or in its
   json_schema. format NULL: nothing. And the extensions grammar, regex, json_schema of the body. One of all at most. */
int api_structure_parse(struct api_request *r, const json_t *format, const struct api_path *at, bool flat, struct api_error *e);

/* Append a line to the request's warnings. */
void api_warn(struct api_request *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
