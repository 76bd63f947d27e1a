/* What an answer cost, and how it was made, as JSON objects of chat and text completions: spec/api.md 5.10. */
#ifndef SKUA_API_USAGE_H
#define SKUA_API_USAGE_H

#include "api/writer.h"

void api_usage_json(struct strbuf *b, const struct api_usage *u);   /* {"prompt_tokens": ...} */
void api_timings_json(struct strbuf *b, const struct api_usage *u); /* {"cache_n": ...} */
/* {"backend": ...} with the request's warnings */
void api_engine_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *u);
/* ,"timings":{...} and, if the request asks for it, ,"engine":{...} */
void api_report_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *u);
/* What ends a chunk of a stream that asks for it: ,"usage":null or, with continuous_usage, what was used so far; ,"timings":{...} in the
   last chunk (final is not NULL; with the rest of api_report_json) and, with timings_per_token, in all from when it is known what was
   cached. now may be NULL: unknown. */
void api_chunk_json(struct strbuf *b, const struct api_env *env, const struct api_request *r, const struct api_usage *now,
                    const struct api_usage *final);
/* ,"prompt_progress":{...} */
void api_progress_json(struct strbuf *b, const struct api_usage *u, int32_t n_done, int32_t n_total, double seconds);

#endif
