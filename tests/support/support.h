/* What test programs share: checks that are counted, the place of the shared data, and the closing line. */
#ifndef SKUA_TESTS_SUPPORT_H
#define SKUA_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stdio.h>

extern long support_checks, support_failures, support_skipped;

/* Count a check; on failure print where and what (the first 20 failures). Returns the condition. */
bool support_check(bool ok, const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
#define CHECK(cond, ...) support_check((cond), __FILE__, __LINE__, __VA_ARGS__)

/* SKUA_SHARED/NAME (default ../shared) in a static buffer, or NULL, counted as skipped, when that file is not there. */
const char *support_shared(const char *name);

/* A model by its file name: SKUA_SHARED/models, ./models or tests/data; NULL, counted as skipped, when it is nowhere. */
const char *support_model(const char *name);

/* A file name in the test's temporary folder, which is made on first use and removed at exit with the files named so. */
const char *support_temp(const char *name);

/* Call item(0) .. item(n - 1), dealt to one process per core, and add up their checks. */
void support_share(void (*item)(int), int n);

/* Print "NAME: N checks, M failed, K skipped" and return the exit status: 0 when nothing failed and something ran (or all was
   skipped for want of data). */
int support_finish(const char *name);

#endif
