/* What skua quantize says about a file that it writes, or would write. */
#ifndef SKUA_CMD_QUANTIZE_REPORT_H
#define SKUA_CMD_QUANTIZE_REPORT_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "convert/requantize.h"

struct quantize_report {
    const struct requantize_report *r;
    const struct recipe *recipe;
    const char *input, *output;
    const char *imatrix; /* NULL: none */
    bool dry_run, errors; /* errors: columns for them */
};

/* A table of tensors and the sums; a failed allocation shows in strbuf_failed(out). */
void quantize_report_text(const struct quantize_report *q, struct strbuf *out);
/* The same as a JSON object. Keys are stable: later versions only add to them. SKUA_ENOMEM. */
int quantize_report_json(const struct quantize_report *q, struct strbuf *out, skua_error *err);

#endif
