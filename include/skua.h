/* Skua: inference for the Qwen3.5 family of hybrid language models. The one public header.
 *
 * Conventions. Functions that can fail return 0 (SKUA_OK) or a negative SKUA_E... code and describe the failure in an
 * optional last skua_error argument (NULL allowed): one line that names the thing, its value and what was expected.
 * On failure an output pointer is set to NULL and nothing is left allocated. Strings are UTF-8. Nothing here prints, exits
 * or aborts.
 */
#ifndef SKUA_H
#define SKUA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

enum {
    SKUA_OK = 0,
    SKUA_ENOMEM = -1,       /* an allocation failed */
    SKUA_EIO = -2,          /* the operating system refused a file operation */
    SKUA_EFORMAT = -3,      /* a file is malformed */
    SKUA_EUNSUPPORTED = -4, /* well-formed, but not something this program can run */
    SKUA_EARG = -5,         /* an argument is out of range or does not fit the model */
    SKUA_ELIMIT = -6,       /* a stated limit (context length, size) is reached */
    SKUA_ETEMPLATE = -7,    /* a chat template failed: message with line and column */
    SKUA_ECANCELED = -8,    /* the caller asked to stop */
    SKUA_ESTATE = -9        /* the object is not in a state that allows this call */
};

typedef struct skua_error {
    int code;
    char message[508]; /* one line, zero-terminated, no trailing newline or full stop needed */
} skua_error;

const char *skua_error_name(int code); /* "malformed file", ... never NULL */

#ifdef __cplusplus
}
#endif
#endif
