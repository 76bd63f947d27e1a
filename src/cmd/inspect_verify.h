/* skua inspect --verify: all tensor data of a file is read; every block must have usable scales and finite values. */
#ifndef SKUA_CMD_INSPECT_VERIFY_H
#define SKUA_CMD_INSPECT_VERIFY_H

#include <stdbool.h>

#include "base/error.h"

/* Print the verdict on one file, tensor by tensor as JSON, or one line and a line per damaged tensor. *bad: tensors with damaged
   data. An error (the file is no container, no memory) prints nothing. */
int inspect_verify(const char *path, bool json, uint32_t *bad, skua_error *err);

#endif
