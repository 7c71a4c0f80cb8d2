/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/common/address.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

bool np_fail(char *err, size_t len, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, len, fmt, ap);
	va_end(ap);
	return false;
}

struct addrinfo *np_resolve(const char *address, bool passive, char *err, size_t err_len)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0};
	struct addrinfo *list = NULL;
	char host[NP_ADDRESS_LEN];
	const char *colon = strrchr(address, ':');
	size_t len;
	int rc;

	if (!colon || (size_t)(colon - address) >= sizeof(host)) {
		np_fail(err, err_len, "'%s' is not HOST:PORT", address);
		return NULL;
	}
	len = (size_t)(colon - address);
	memcpy(host, address, len);
	host[len] = '\0';
	if (len > 1 && host[0] == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		memmove(host, host + 1, len - 1);
	}
	rc = getaddrinfo(host, colon + 1, &hints, &list);
	if (rc) {
		np_fail(err, err_len, "cannot resolve '%s': %s", address, gai_strerror(rc));
		return NULL;
	}
	return list;
}
