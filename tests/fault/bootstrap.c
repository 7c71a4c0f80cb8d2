/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap.h"
#include "../seeded_random.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

int __real_socket(int domain, int type, int protocol);
int __real_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __real_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __real_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __real_getifaddrs(struct ifaddrs **list);

/* Visible, because the run-time of a sanitizer refers to them, too. */
#pragma GCC visibility push(default)
int __wrap_socket(int domain, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_getifaddrs(struct ifaddrs **list);
void __wrap_freeifaddrs(struct ifaddrs *list);
#pragma GCC visibility pop

static uint16_t last_port;
#define PORT_OF_NOBODY 1

void bootstrap_seed(uint64_t seed)
{
	seed_random(seed);
	last_port = PORT_OF_NOBODY;
}

/* ---- an address of the IPv4 loopback network, as a name in the abstract namespace ----------- */

static socklen_t name_of_port(uint16_t port, struct sockaddr_un *out)
{
	int n;

	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "nccl-ha-fault-%d-%u",
		     (int)getpid(), port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void address_of_port(uint16_t port, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memcpy(addr, &in, *len < sizeof(in) ? *len : sizeof(in));
	*len = sizeof(in);
}

static uint16_t port_of(const struct sockaddr *addr)
{
	struct sockaddr_in in;

	memcpy(&in, addr, sizeof(in));
	return ntohs(in.sin_port);
}

int __wrap_socket(int domain, int type, int protocol)
{
	return __real_socket(domain == AF_INET ? AF_UNIX : domain, type,
			     domain == AF_INET ? 0 : protocol);
}

/* Every listener gets a port of its own, whatever it asked for. */
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un name;

	if (addr->sa_family != AF_INET)
		return __real_bind(fd, addr, len);
	len = name_of_port(++last_port, &name);
	return __real_bind(fd, (const struct sockaddr *)&name, len);
}

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_un name;

	if (addr->sa_family != AF_INET)
		return __real_connect(fd, addr, len);
	len = name_of_port(port_of(addr), &name);
	return __real_connect(fd, (const struct sockaddr *)&name, len);
}

int __wrap_getsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct sockaddr_un name;
	socklen_t got = sizeof(name);
	const char *number;
	unsigned port = 0;

	if (__real_getsockname(fd, (struct sockaddr *)&name, &got) != 0)
		return -1;
	if (name.sun_family != AF_UNIX) {
		errno = EOPNOTSUPP;
		return -1;
	}
	if (got <= offsetof(struct sockaddr_un, sun_path) + 1) { /* of one that dials */
		address_of_port(PORT_OF_NOBODY, addr, len);
		return 0;
	}
	((char *)&name)[got < sizeof(name) ? got : sizeof(name) - 1] = '\0';
	number = strrchr(name.sun_path + 1, '-');
	if (!number || sscanf(number, "-%u", &port) != 1) {
		errno = EOPNOTSUPP;
		return -1;
	}
	address_of_port((uint16_t)port, addr, len);
	return 0;
}

/* All are of one host, and its ports say nothing. */
int __wrap_getpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	(void)fd;
	address_of_port(PORT_OF_NOBODY, addr, len);
	return 0;
}

int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	int client = __real_accept4(fd, NULL, NULL, flags);

	if (client >= 0 && addr)
		address_of_port(PORT_OF_NOBODY, addr, len);
	return client;
}

/* ---- strangers ------------------------------------------------------------------------------- */

unsigned bootstrap_visit(int *fds, unsigned room)
{
	struct sockaddr_un name;
	unsigned n = 0;

	for (uint16_t port = PORT_OF_NOBODY + 1; port <= last_port && n < room; port++) {
		socklen_t len = name_of_port(port, &name);
		int fd = __real_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (fd < 0)
			break;
		if (__real_connect(fd, (const struct sockaddr *)&name, len) == 0)
			fds[n++] = fd;
		else
			close(fd);
	}
	return n;
}

/* ---- interfaces ------------------------------------------------------------------------------ */

/* Of all runs: asking the kernel takes longer than anything else a run begins with. */
static struct ifaddrs *interfaces;

int __wrap_getifaddrs(struct ifaddrs **list)
{
	if (!interfaces && __real_getifaddrs(&interfaces) != 0)
		return -1;
	*list = interfaces;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	(void)list;
}
