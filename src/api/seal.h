/* Opaque texts that clients carry for the server: signatures of thinking (Messages) and encrypted_content of reasoning (Responses).
 * Versioned, and checked against damage. Not secret: what is inside is the client's own answer. */
#ifndef SKUA_API_SEAL_H
#define SKUA_API_SEAL_H

#include "base/strbuf.h"

/* Append a seal of text: base64 letters only, never empty, the same for the same text. carry: the text can be got back from it. */
void seal_write(struct strbuf *out, const char *text, size_t n, bool carry);

/* Append the text that a seal carries. false, with nothing appended: the seal carries none, is damaged or somebody else's, or there is no
   memory (strbuf_failed). */
bool seal_read(const char *seal, size_t n, struct strbuf *text);

#endif
