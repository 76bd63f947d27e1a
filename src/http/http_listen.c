/* Listening sockets; see http_internal.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "http/http_internal.h"

void http_address_text(const struct sockaddr_storage *a, char *out, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
        inet_ntop(mapped ? AF_INET : AF_INET6, mapped ? &in6->sin6_addr.s6_addr[12] : in6->sin6_addr.s6_addr, host, sizeof host);
        snprintf(out, n, mapped ? "%s:%d" : "[%s]:%d", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in4 = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &in4->sin_addr, host, sizeof host);
        snprintf(out, n, "%s:%d", host, ntohs(in4->sin_port));
    }
}

static void set_port(struct sockaddr_storage *a, int port)
{
    if (a->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
}

static int get_port(const struct sockaddr_storage *a)
{
    return ntohs(a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)a)->sin6_port : ((const struct sockaddr_in *)a)->sin_port);
}

/* A listening socket, or -1 with errno. "::" takes IPv4 as well. */
static int listen_on(struct sockaddr_storage *a, socklen_t length)
{
    static const int one = 1;
    int fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ss_family == AF_INET6) {
        int only = !IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)a)->sin6_addr);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    }
    if (!bind(fd, (struct sockaddr *)a, length) && !listen(fd, SOMAXCONN) && !getsockname(fd, (struct sockaddr *)a, &length))
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* All addresses of the list that this machine has. 0; or -1 with *failed and errno: that one cannot be used. */
static int listen_on_all(struct http_server *s, const struct addrinfo *list, struct sockaddr_storage *failed)
{
    for (const struct addrinfo *i = list; i && s->n_listeners < HTTP_MAX_LISTENERS; i = i->ai_next) {
        if (i->ai_family != AF_INET && i->ai_family != AF_INET6)
            continue;
        memset(failed, 0, sizeof *failed);
        memcpy(failed, i->ai_addr, i->ai_addrlen);
        set_port(failed, s->port);
        int fd = listen_on(failed, i->ai_addrlen);
        if (fd < 0 && errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
            return -1;
        if (fd < 0)
            continue;
        s->listeners[s->n_listeners++].fd = fd;
        s->port = get_port(failed); /* the others get the same */
    }
    return 0;
}

int http_listen(struct http_server *s, skua_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct sockaddr_storage failed;
    struct addrinfo *list;
    char text[72];
    int tries = s->port ? 1 : 10; /* a port that is free on one address may be taken on another */
    int rc = getaddrinfo(s->host, NULL, &hints, &list);
    if (rc)
        return error_set(err, SKUA_EIO, "cannot listen on '%s': %s", s->host, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    while ((rc = listen_on_all(s, list, &failed)) < 0 && errno == EADDRINUSE && --tries) {
        while (s->n_listeners)
            close(s->listeners[--s->n_listeners].fd);
        s->port = 0;
    }
    int cause = errno;
    freeaddrinfo(list);
    http_address_text(&failed, text, sizeof text);
    if (rc < 0)
        return error_set(err, SKUA_EIO, "cannot listen on %s: %s", text, strerror(cause));
    if (!s->n_listeners)
        return error_set(err, SKUA_EIO, "cannot listen on '%s': it is no address of this machine", s->host);
    return 0;
}
