/* SPDX-License-Identifier: Apache-2.0 */
#include "simverbs/roce/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

static void set(int fd, int level, int option, int value)
{
	/* What a kernel does not know makes it slower, or is the default. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void set_options_v4(int fd, unsigned ifindex)
{
	set(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
	set(fd, IPPROTO_IP, IP_UNICAST_IF, (int)htonl(ifindex));
	set(fd, SOL_SOCKET, SO_NO_CHECK, 1); /* the ICRC is better */
}

static void set_options_v6(int fd, unsigned ifindex)
{
	set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	set(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
	set(fd, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
	set(fd, IPPROTO_IPV6, IPV6_UNICAST_IF, (int)htonl(ifindex));
	/* The kernel's soft RoCE sends none. */
	set(fd, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);
}

int sv_roce_socket(sa_family_t family, unsigned ifindex)
{
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (family == AF_INET)
		set_options_v4(fd, ifindex);
	else
		set_options_v6(fd, ifindex);
	return fd;
}
