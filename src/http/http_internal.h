/* Inside src/http: the server, its connections and requests, and who may touch what.
 *
 * The socket thread owns the event base, the connections and every descriptor. Other threads reach it through the outbox only: a request
 * with something to send is put into the server's list under the server's lock, and an eventfd wakes the socket thread. So libevent is
 * used by one thread and needs no locks of its own. */
#ifndef SKUA_HTTP_HTTP_INTERNAL_H
#define SKUA_HTTP_HTTP_INTERNAL_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/strbuf.h"
#include "http/http.h"
#include "http/http_parse.h"

enum { HTTP_READ_BYTES = 65536, HTTP_MAX_LISTENERS = 8 };

enum http_answer { HTTP_UNANSWERED, HTTP_ANSWERING, HTTP_ANSWERED };

struct http_request {
    struct http_server *server;
    struct http_parser parser;          /* constant once the handler has the request */
    char peer[72], id[132];
    double received;
    size_t counted;                     /* bytes of the body that the server's body_bytes has */
    bool head_only;                     /* HEAD */
    /* The socket thread's. */
    struct http_conn *conn;             /* NULL: the connection is gone */
    void (*on_close)(void *arg);
    void *on_close_arg;
    /* Under the server's lock. */
    struct strbuf out;                  /* bytes not yet taken by the connection */
    size_t unsent;                      /* those, and the ones that the connection holds */
    enum http_answer answer;
    bool chunked;                       /* chunks may follow */
    bool close;                         /* the connection ends with this answer */
    bool broken;                        /* the answer has lost bytes: end the connection at once */
    bool gone;                          /* conn is NULL, for other threads */
    bool in_outbox, closing;            /* closing: on_close is running */
    int refs;                           /* connection, user, outbox */
    struct http_request *next;          /* in the outbox */
};

struct http_conn {
    struct http_server *server;
    struct http_conn *prev, *next;
    int fd;
    struct event readable, writable, timer; /* timer is pending all the time, so that setting it needs no memory */
    struct http_request *request;           /* being read or answered; NULL: idle */
    bool answering;                         /* the request is complete or refused: nothing is read */
    bool sent_continue, lingering;
    int looks;                              /* of the watch, since the peer's FIN */
    double deadline;                        /* of the body as a whole; of lingering */
    struct strbuf in;                       /* read behind the request that is being answered */
    struct strbuf out;                      /* being sent, from out_at on */
    size_t out_at;
    char peer[72];
};

struct http_listener { int fd; struct event event; };
struct http_call { void (*fn)(void *arg); void *arg; struct http_call *next; };
struct http_periodic { struct event event; void (*fn)(void *arg); void *arg; struct http_periodic *next; };

struct http_server {
    struct http_params params;
    struct http_limits limits;
    char *host, *name;
    int port, n_listeners, wake_fd;
    struct http_listener listeners[HTTP_MAX_LISTENERS];
    struct event_base *base;
    struct event wake, watch, accept_again, drain;
    struct http_periodic *periodic;
    struct http_conn *conns;
    int n_conns;
    bool accepting;
    struct pollfd *polls;            /* max_connections, for the watch */
    struct http_conn **polled;
    char *read_buffer;               /* HTTP_READ_BYTES */
    pthread_mutex_t lock;
    pthread_cond_t closed;           /* an on_close has returned */
    pthread_t thread;                /* the socket thread, while running */
    struct http_request *outbox;
    struct http_call *calls, **calls_end;
    atomic_bool draining;
    _Atomic int64_t drain_ms;        /* asked for by http_server_stop; -1: nothing */
    _Atomic int connections, requests_open; /* open: being answered or refused */
    _Atomic uint64_t accepted, requests, pending_bytes, body_bytes, bodies_refused;
};

/* ---- http_listen.c ---- */
/* Bind and listen on every address of params.host; sets port and listeners' descriptors. */
int  http_listen(struct http_server *s, skua_error *err);
void http_address_text(const struct sockaddr_storage *a, char *out, size_t n); /* "127.0.0.1:8000", "[::1]:8000" */

/* ---- http_server.c ---- */
void http_timer(struct event *timer, double seconds); /* a pending timer: when it fires next */
#define HTTP_NEVER 1e6
#define HTTP_WATCH_S 0.025  /* how often the peers of open requests are looked at */
enum { HTTP_PROBES = 3, HTTP_PROBE_LOOKS = 2 }; /* how often a half-closed peer is asked, and at every how many looks */
void http_server_wake(struct http_server *s);
void http_conn_gone(struct http_server *s); /* a connection was freed */

/* ---- http_conn.c: the socket thread only ---- */
void http_conn_accept(struct http_server *s, int fd, const struct sockaddr_storage *peer); /* takes fd */
void http_conn_free(struct http_conn *c);   /* closes; no callback */
void http_conn_lost(struct http_conn *c);   /* the same, and tells on_close if an answer was not complete */
void http_conn_flush(struct http_conn *c);  /* send what can be sent; may free c */
void http_conn_watch(struct http_server *s);/* look for peers that are gone; see http.h */

/* ---- http_answer.c ---- */
struct http_request *http_request_new(struct http_conn *c); /* one reference; NULL: no memory */
void http_request_unref(struct http_request *r);
void http_request_prepare(struct http_request *r); /* the request is complete or refused: its id and the like */
/* Answer in the server's own name: the caller's error body. */
void http_refuse(struct http_request *r, int status, const char *code, const char *message);
/* Interim bytes (RFC 9110, 15.2), or nothing that changes the meaning of a chunked answer; only if the answer's state allows. */
void http_send_interim(struct http_request *r);
void http_send_probe(struct http_request *r);

#endif
