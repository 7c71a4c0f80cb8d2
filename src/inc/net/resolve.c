/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/net/resolve.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define HOST_MAX 256

/* "[::1]" to "::1". */
static void without_brackets(char *host)
{
	const size_t length = strlen(host);

	if (length < 2 || host[0] != '[' || host[length - 1] != ']')
		return;
	memmove(host, host + 1, length - 2);
	host[length - 2] = '\0';
}

bool ha_resolve(const char *text, union ha_sockaddr *out, char *why, size_t size)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	const char *colon = strrchr(text, ':');
	char host[HOST_MAX];
	struct addrinfo *list;
	int rc;

	if (!colon || colon == text || !colon[1] || (size_t)(colon - text) >= sizeof(host)) {
		snprintf(why, size, "'%s' is not HOST:PORT", text);
		return false;
	}
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	without_brackets(host);
	rc = getaddrinfo(host, colon + 1, &hints, &list);
	if (rc != 0) {
		snprintf(why, size, "'%s': %s", text, gai_strerror(rc));
		return false;
	}
	memset(out, 0, sizeof(*out));
	memcpy(out, list->ai_addr, list->ai_addrlen); /* of IPv4 or IPv6, so it fits */
	freeaddrinfo(list);
	return true;
}
