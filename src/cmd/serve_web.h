/* The files of the chat page (src/web), as they are in the program. */
#ifndef SKUA_CMD_SERVE_WEB_H
#define SKUA_CMD_SERVE_WEB_H

#include <stdbool.h>
#include <stddef.h>

struct serve_web_file {
    const char *name, *content_type;
    const unsigned char *data;
    size_t n;
};

/* By name, "index.html"; false: there is none. */
bool serve_web_find(const char *name, struct serve_web_file *out);

#endif
