/* An HTTP/1.1 server for short answers and event streams: one thread owns the sockets (libevent), answers may come from any thread. It
 * knows requests and bytes, no JSON. Semantics: spec/api.md 1 and 4.
 *
 * Life of a request: the handler is called on the socket thread when head and body are complete; it, or any thread later, answers once
 * with http_respond, or with http_begin, http_send (any number) and http_end; then http_release. The peer may go away at any time: on_close
 * tells so once, and what is sent afterwards is dropped. A connection has one request at a time; what is sent behind it waits.
 *
 * Peers that are gone. While a request is open its connection is looked at every 25 ms:
 *   - a reset is noticed within 25 ms, and so is a close by a peer that had not read everything (its kernel resets);
 *   - a FIN may be a close or a half-close (shutdown(SHUT_WR): the peer has finished sending and still reads), which TCP does not tell
 *     apart before something is sent. So something harmless is sent: "100 Continue" if the answer has not begun, a leading zero of the
 *     next chunk's size if it is a stream. The kernel of a peer that has closed answers with a reset, which is noticed at the next look:
 *     within 50 ms and a round trip. Relays that pass a FIN on (port forwarders) notice their client's reset at the second write only and
 *     answer the third one with a reset, so there are three, 50 ms apart. A half-closed peer gets its answer, and then the connection is
 *     closed;
 *   - HTTP/1.0 has neither interim answers nor chunks: after a FIN only the answer's own bytes find out;
 *   - a FIN before the request is complete ends the connection, and so does one between requests;
 *   - a peer that vanished without a word is found by TCP's keep-alive (30 s) or by unacknowledged bytes (the stall time-out);
 *   - a peer that does not read: unsent bytes and no progress for the stall time-out.
 * Behind a proxy all this is about the proxy's connection. A client that half-closes must understand interim answers, as HTTP/1.1 asks. */
#ifndef SKUA_HTTP_HTTP_H
#define SKUA_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct http_server;
struct http_request;

struct http_header { const char *name, *value; };

/* A request that is refused before it reaches the handler, or that the handler's side released unanswered (then on any thread): the caller
   makes the body in the manner of the path's family. path: "" if it was not understood. Status and code (words of spec/api.md 3.1 and
   a few of HTTP's own): 400 bad_request, 408 request_timeout, 411 length_required, 413 request_too_large, 415 unsupported_media_type,
   417 expectation_failed, 431 headers_too_large, 500 internal_error, 501 unsupported_transfer_encoding, 503 out_of_memory,
   505 http_version_not_supported. The result: *n bytes of mem_alloc, freed by the server; NULL: none. */
typedef char *http_error_body(void *user, const char *path, int status, const char *code, const char *message, const char *request_id,
                              size_t *n);
/* Every connection waits while it runs: it hands work on and returns. */
typedef void http_handler(void *user, struct http_request *r);

struct http_params {
    const char *host;              /* "127.0.0.1", "::1", "::" (takes IPv4 as well), a name: all its addresses */
    int port;                      /* 0: any free one, http_server_port tells */
    int max_connections;           /* 0: 512; accepting pauses at it */
    size_t max_head_bytes;         /* request line and header; 0: 64 KiB */
    int max_header_fields;         /* 0: 128 */
    size_t max_body_bytes;         /* 0: 64 MiB */
    size_t max_bodies_bytes;       /* of all bodies that are in memory, being received or not answered yet: what would exceed it is refused
                                      with 503. At least max_body_bytes; 0: four times that */
    double header_timeout_s, body_idle_timeout_s, body_timeout_s, idle_timeout_s, send_stall_timeout_s; /* 0: 10, 30, 300, 120, 30 */
    size_t max_pending_bytes;      /* most unsent bytes of one connection before http_send refuses; 0: 4 MiB */
    const char *server_name;       /* "skua/0.1.0" */
    http_handler *handler;
    http_error_body *error_body;
    void *user;
};

/* Listens when it returns. SKUA_EIO names the address and the cause. The strings of p are copied. From the first call on libevent takes
   its memory from base/mem.h. */
int  http_server_create(const struct http_params *p, struct http_server **out, skua_error *err);
int  http_server_port(const struct http_server *s);
/* The socket thread, until http_server_stop has done its work, or SKUA_EIO. All connections are closed when it returns. */
int  http_server_run(struct http_server *s, skua_error *err);
/* Any thread, or a signal handler; again with another time if need be: accept nothing more, close idle connections, let requests be
   completed and answered for so long (every answer closes its connection), then reset what is left (on_close). */
void http_server_stop(struct http_server *s, double drain_s);
/* After http_server_run, when every request is released; NULL allowed. Pending calls are dropped. */
void http_server_free(struct http_server *s);
/* Any thread: run fn on the socket thread soon. 0 or SKUA_ENOMEM. */
int  http_server_call(struct http_server *s, void (*fn)(void *arg), void *arg);
/* Run fn on the socket thread every interval_s until the server stops. To be called before http_server_run or on the socket thread. */
int  http_server_every(struct http_server *s, double interval_s, void (*fn)(void *arg), void *arg, skua_error *err);

struct http_server_stats { int connections, requests_open; uint64_t accepted, requests, pending_bytes, body_bytes, bodies_refused; };
void http_server_get_stats(struct http_server *s, struct http_server_stats *out); /* any thread */

/* ---- a request; pointers live until http_release ---- */
const char *http_method(const struct http_request *r);
/* Percent-decoded, without query and one trailing slash ("/" stays); valid UTF-8 without control characters. "*" for OPTIONS of all. */
const char *http_path(const struct http_request *r);
const char *http_raw_path(const struct http_request *r);
const char *http_query(const struct http_request *r);  /* raw, "" if none */
const char *http_header(const struct http_request *r, const char *name); /* the first, any case; NULL */
const char *http_body(const struct http_request *r, size_t *n); /* zero-terminated */
const char *http_peer(const struct http_request *r);   /* address and port, for the log */
const char *http_request_id(const struct http_request *r); /* "req_..." or the client's x-request-id */
double http_received(const struct http_request *r);    /* clock_seconds when it was complete */

/* The whole answer. Date, Content-Length, x-request-id, Server, Connection, and Content-Type unless extra has it (application/json), are
   added; control characters in extra's values become blanks. extra: n_extra fields; those that are added here are left out of them.
   HEAD requests get the head only. A second answer to a request is ignored. */
void http_respond(struct http_request *r, int status, const struct http_header *extra, size_t n_extra, const void *body, size_t n);
/* A streamed answer: chunked, or until close for HTTP/1.0. */
void http_begin(struct http_request *r, int status, const char *content_type, const struct http_header *extra, size_t n_extra);
/* All or nothing. SKUA_ECANCELED: the peer is gone; SKUA_ELIMIT: too much unsent, nothing was taken (a piece of any size is taken when all
   before it is with the kernel); SKUA_ENOMEM: the connection will be reset; SKUA_ESTATE: not between http_begin and http_end. */
int  http_send(struct http_request *r, const void *data, size_t n);
void http_end(struct http_request *r, bool complete);  /* complete false: the connection is closed without the last chunk */
bool http_began(const struct http_request *r);         /* http_begin or http_respond was called */
/* fn on the socket thread, once, if the connection is lost or stalled before http_respond or http_end; at once if it is already. Set on the
   socket thread. When http_release returns fn is not running and will not be called, so nobody may call that while holding a lock which
   fn takes. */
void http_on_close(struct http_request *r, void (*fn)(void *arg), void *arg);
void http_release(struct http_request *r);              /* any thread; the last use. An unanswered one gets 500 */

#endif
