/* The assembler puts the files of src/web into the program as they are; the Makefile knows that this file is made of them. */
#include "cmd/serve_web.h"

#include <stdint.h>
#include <string.h>

#define HTML "text/html; charset=utf-8"
#define CSS "text/css; charset=utf-8"
#define JS "text/javascript; charset=utf-8"
#define SVG "image/svg+xml"

/* name of its symbols, name, content type */
#define FILES(X) \
    X(index_html, "index.html", HTML) \
    X(app_css, "app.css", CSS) \
    X(app_js, "app.js", JS) \
    X(api_js, "api.js", JS) \
    X(chats_js, "chats.js", JS) \
    X(icon_svg, "icon.svg", SVG) \
    X(markdown_js, "markdown.js", JS) \
    X(messages_js, "messages.js", JS) \
    X(panels_js, "panels.js", JS) \
    X(run_js, "run.js", JS) \
    X(store_js, "store.js", JS) \
    X(theme_js, "theme.js", JS)

#define EMBED(symbol, file, type) \
    __asm__(".pushsection .rodata\n" \
            ".balign 8\n" \
            "skua_web_" #symbol "_size: .8byte 1f - 0f\n" \
            "skua_web_" #symbol ":\n" \
            "0: .incbin \"src/web/" file "\"\n" \
            "1: .byte 0\n" \
            ".popsection\n"); \
    extern const unsigned char skua_web_##symbol[]; \
    extern const uint64_t skua_web_##symbol##_size;
FILES(EMBED)

#define ENTRY(symbol, file, type) {file, type, skua_web_##symbol, &skua_web_##symbol##_size},
static const struct {
    const char *name, *content_type;
    const unsigned char *data;
    const uint64_t *n;
} files[] = {FILES(ENTRY)};

bool serve_web_find(const char *name, struct serve_web_file *out)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (!strcmp(files[i].name, name)) {
            *out = (struct serve_web_file){files[i].name, files[i].content_type, files[i].data, (size_t)*files[i].n};
            return true;
        }
    return false;
}
