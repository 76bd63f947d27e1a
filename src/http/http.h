/* An HTTP/1.1 server for short answers and event streams: one thread owns the sockets (libevent), answers may come from any thread. It
 * knows requests and bytes, no JSON. Semantics: spec/api.md 1 and 4.
 *
 * Life of a request: the handler is called on the socket thread when head and body are complete; it, or any thread later, answers once
 * with http_respond, or with http_begin, http_send (any number) and http_end; then http_release. The peer may go away at any time: on_close
 * tells so once, and what is sent afterwards is dropped. */
#ifndef SKUA_HTTP_HTTP_H
#define SKUA_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct http_server;
struct http_request;

struct http_header { const char *name, *value; };

/* A request that is refused before it reaches the handler: the caller makes the body in the manner of the path's family. code: a word of
   spec/api.md 3.1 ("headers_too_large", "length_required", ...). The body is appended to what http_error_body gives: *n bytes of
   mem_alloc, freed by the server; NULL: none. */
typedef char *http_error_body(void *user, const char *path, int status, const char *code, const char *message, const char *request_id,
                              size_t *n);
typedef void http_handler(void *user, struct http_request *r);

struct http_params {
    const char *host;              /* "127.0.0.1", "::1", "::", a name */
    int port;                      /* 0: any free one, http_server_port tells */
    int max_connections;           /* 0: 512; accepting pauses at it */
    size_t max_body_bytes;         /* 0: 64 MiB */
    double header_timeout_s, body_idle_timeout_s, body_timeout_s, idle_timeout_s, send_stall_timeout_s; /* 0: 10, 30, 300, 120, 30 */
    size_t max_pending_bytes;      /* most unsent bytes of one connection before http_send refuses; 0: 4 MiB */
    const char *server_name;       /* "skua/0.1.0" */
    http_handler *handler;
    http_error_body *error_body;
    void *user;
};

/* Listens when it returns. SKUA_EIO names the address and the cause. */
int  http_server_create(const struct http_params *p, struct http_server **out, skua_error *err);
int  http_server_port(const struct http_server *s);
int  http_server_run(struct http_server *s, skua_error *err); /* the socket thread, until http_server_stop has done its work */
/* Any thread, or a signal handler: accept nothing more, let answers end for so long, then close. */
void http_server_stop(struct http_server *s, double drain_s);
void http_server_free(struct http_server *s);
void http_server_call(struct http_server *s, void (*fn)(void *arg), void *arg); /* any thread: run fn on the socket thread soon */
/* Run fn on the socket thread every interval_s until the server stops. */
int  http_server_every(struct http_server *s, double interval_s, void (*fn)(void *arg), void *arg, skua_error *err);

struct http_server_stats { int connections, requests_open; uint64_t accepted, requests, pending_bytes; };
void http_server_get_stats(struct http_server *s, struct http_server_stats *out); /* any thread */

/* ---- a request; pointers live until http_release ---- */
const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r);   /* percent-decoded, without query and trailing slash ("/" stays) */
const char *http_raw_path(const struct http_request *r);
const char *http_query(const struct http_request *r);  /* raw, "" if none */
const char *http_header(const struct http_request *r, const char *name); /* the first, any case; NULL */
const char *http_body(const struct http_request *r, size_t *n);
const char *http_peer(const struct http_request *r);   /* address, for the log */
const char *http_request_id(const struct http_request *r); /* "req_..." or the client's x-request-id */
double http_received(const struct http_request *r);    /* clock_seconds */

/* The whole answer. Content-Length, x-request-id, Server, Connection, and Content-Type unless headers has it (application/json), are added.
   extra: n_extra headers. HEAD requests get the head only. */
void http_respond(struct http_request *r, int status, const struct http_header *extra, size_t n_extra, const void *body, size_t n);
/* A streamed answer: chunked, or until close for HTTP/1.0. */
void http_begin(struct http_request *r, int status, const char *content_type, const struct http_header *extra, size_t n_extra);
int  http_send(struct http_request *r, const void *data, size_t n); /* SKUA_ECANCELED: the peer is gone; SKUA_ELIMIT: too much unsent */
void http_end(struct http_request *r, bool complete);  /* complete false: the connection is closed without the last chunk */
bool http_began(const struct http_request *r);
/* fn on the socket thread, once, if the connection is lost or stalled before the answer is complete. Set on the socket thread. */
void http_on_close(struct http_request *r, void (*fn)(void *arg), void *arg);
void http_release(struct http_request *r);              /* any thread; the last use. An unanswered one gets 500 */

#endif
