/*
 * Waits for data and connections on sockets of several kinds, none of which come, and writes its own
 * account of each wait: bounds of the time in ns, and the peer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 50
#define LEAST_NS (WAIT_MS * 1000000L - 10000000L) /* a timer of the kernel is exact to a tick */

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Waits with a call that times out. Peers are those of ss(8) with the words of fulgur. */
static void wait_with(int fd, int accepts, const char *peer)
{
	struct timeval timeout = { 0, WAIT_MS * 1000 };
	long begin = now();
	char c;

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)))
		err(1, "set a timeout");
	if (accepts ? accept(fd, NULL, NULL) >= 0 : recv(fd, &c, 1, 0) >= 0)
		errx(1, "%s: something came", peer);
	printf("%ld %ld %s\n", LEAST_NS, now() - begin, peer);
}

static int new_socket(int family, int type)
{
	int fd = socket(family, type, 0);

	if (fd < 0)
		err(1, "open a socket");
	return fd;
}

/* The address of a socket, or of its peer, as text. */
static const char *name(int fd, int peer)
{
	static char text[128];
	char ip[64];
	struct sockaddr_in6 a;
	struct sockaddr_in *v4 = (void *)&a;
	socklen_t size = sizeof(a);

	if (peer ? getpeername(fd, (void *)&a, &size) : getsockname(fd, (void *)&a, &size))
		err(1, "get an address");
	if (a.sin6_family == AF_INET)
		snprintf(text, sizeof(text), "%s:%d", inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof(ip)), ntohs(v4->sin_port));
	else
		snprintf(text, sizeof(text), "[%s]:%d", inet_ntop(AF_INET6, &a.sin6_addr, ip, sizeof(ip)), ntohs(a.sin6_port));
	return text;
}

static void wait_inet(int fd, int accepts, const char *protocol, const char *words, int peer)
{
	char text[256];

	snprintf(text, sizeof(text), "%s%s %s", protocol, words, name(fd, peer));
	wait_with(fd, accepts, text);
}

/* Binds a socket to a free port of the loopback interface. */
static int bound(int family, int type, struct sockaddr_in6 *at, socklen_t *size)
{
	struct sockaddr_in *v4 = (void *)at;
	int fd = new_socket(family, type);

	memset(at, 0, sizeof(*at));
	at->sin6_family = family;
	if (family == AF_INET)
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		at->sin6_addr = in6addr_loopback;
	*size = family == AF_INET ? sizeof(*v4) : sizeof(*at);
	if (bind(fd, (void *)at, *size) || getsockname(fd, (void *)at, size))
		err(1, "bind a socket");
	return fd;
}

static void tcp(int family)
{
	struct sockaddr_in6 at;
	socklen_t size;
	int listener = bound(family, SOCK_STREAM, &at, &size), client = new_socket(family, SOCK_STREAM), server;

	if (listen(listener, 1) || connect(client, (void *)&at, size))
		err(1, "connect");
	server = accept(listener, NULL, NULL);
	wait_inet(listener, 1, "tcp", " listening on", 0);
	wait_inet(client, 0, "tcp", "", 1);
	wait_inet(server, 0, "tcp", "", 1);
}

static void udp(int family)
{
	struct sockaddr_in6 at;
	socklen_t size;
	int receiver = bound(family, SOCK_DGRAM, &at, &size), client = new_socket(family, SOCK_DGRAM);

	if (connect(client, (void *)&at, size))
		err(1, "connect");
	wait_inet(receiver, 0, "udp", " any, on", 0);
	wait_inet(client, 0, "udp", "", 1);
}

/* Also with an abstract address, which begins with 0. */
static void local(int type, const char *path, int abstract)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	socklen_t size = sizeof(at.sun_family) + abstract + strlen(path) + !abstract;
	int listener = new_socket(AF_UNIX, type), client = new_socket(AF_UNIX, type), server;
	const char *mark = abstract ? "@" : "";
	char text[256];

	strcpy(at.sun_path + abstract, path);
	if (bind(listener, (void *)&at, size))
		err(1, "bind %s", path);
	if (type == SOCK_STREAM && listen(listener, 1))
		err(1, "listen");
	if (connect(client, (void *)&at, size))
		err(1, "connect");
	snprintf(text, sizeof(text), "unix %s%s", mark, path);
	wait_with(client, 0, text);
	if (type != SOCK_STREAM) {
		snprintf(text, sizeof(text), "unix any, on %s%s", mark, path);
		wait_with(listener, 0, text);
		return;
	}
	server = accept(listener, NULL, NULL);
	snprintf(text, sizeof(text), "unix listening on %s%s", mark, path);
	wait_with(listener, 1, text);
	snprintf(text, sizeof(text), "unix client of %s%s", mark, path);
	wait_with(server, 0, text);
}

static int pair[2], other[2], moved;

/* Polls some descriptors, which may belong to several sockets. */
static void wait_polling(const int *fds, int n, const char *peer)
{
	struct pollfd polled[8];
	struct timespec timeout = { 0, WAIT_MS * 1000000L };
	long begin = now();
	int i;

	for (i = 0; i < n; i++)
		polled[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	if (n == 1 ? poll(polled, n, WAIT_MS) : ppoll(polled, n, &timeout, NULL))
		errx(1, "%s: something came", peer);
	printf("%ld %ld %s\n", LEAST_NS, now() - begin, peer);
}

/* A program that polls more than seven descriptors, or two sockets, waits for none in particular. */
static void polling(void)
{
	struct sockaddr_in6 at;
	socklen_t size;
	int listener = bound(AF_INET, SOCK_STREAM, &at, &size), client = new_socket(AF_INET, SOCK_STREAM), ends[2], sockets[2];
	char text[256];

	if (listen(listener, 1) || connect(client, (void *)&at, size) || pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		err(1, "connect");
	snprintf(text, sizeof(text), "tcp %s", name(client, 1));
	wait_polling(&client, 1, text);
	wait_polling((int[]){ ends[0], -1, client }, 3, text);
	wait_polling((int[]){ sockets[0], client }, 2, "[no peer]");
	wait_polling((int[]){ ends[0], -1, -1, -1, -1, -1, client }, 7, text);
	wait_polling((int[]){ ends[0], -1, -1, -1, -1, -1, -1, client }, 8, "[no peer]");
}

/* Waits for two bytes of a socket whose descriptor belongs to another socket after the first. */
static void *receiver(void *unused)
{
	char text[2];

	(void)unused;
	if (recv(moved, text, 2, MSG_WAITALL) != 2)
		err(1, "receive two bytes");
	return NULL;
}

/* Waits until a thread that waits for a socket has taken all that came. */
static void taken(int from)
{
	int left;

	do {
		usleep(WAIT_MS * 1000);
		if (recv(from, &left, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
			return;
	} while (1);
}

static void replaced(void)
{
	struct sockaddr_in6 at;
	socklen_t size;
	int listener = bound(AF_INET, SOCK_STREAM, &at, &size), client = new_socket(AF_INET, SOCK_STREAM), server, keep;
	pthread_t thread;
	long begin, first, took;

	if (listen(listener, 1) || connect(client, (void *)&at, size) || socketpair(AF_UNIX, SOCK_STREAM, 0, other))
		err(1, "connect");
	server = accept(listener, NULL, NULL);
	keep = dup(server);
	moved = server;
	begin = now();
	pthread_create(&thread, NULL, receiver, NULL);
	usleep(WAIT_MS * 1000);
	if (dup2(other[0], moved) != moved || write(client, "a", 1) != 1)
		err(1, "replace a descriptor");
	first = now();
	taken(keep);
	took = now();
	usleep(WAIT_MS * 1000);
	if (write(client, "b", 1) != 1)
		err(1, "write");
	pthread_join(thread, NULL);
	printf("%ld %ld tcp %s\n", 0L, took - begin, name(keep, 1));
	printf("%ld %ld unknown\n", LEAST_NS, now() - first);
}

int main(int argc, char **argv)
{
	(void)argc;
	tcp(AF_INET);
	tcp(AF_INET6);
	udp(AF_INET);
	udp(AF_INET6);
	local(SOCK_STREAM, argv[1], 0);
	local(SOCK_DGRAM, argv[2], 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		err(1, "pair sockets");
	wait_with(pair[0], 0, "unix unnamed");
	replaced();
	polling();
	return 0;
}
