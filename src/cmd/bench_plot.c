/* The picture of `skua bench --plot`; see bench.h. */
#include "cmd/bench.h"
int bench_svg(const struct bench *b, struct strbuf *out, skua_error *err) { (void)b; (void)out; (void)err; return 0; }
