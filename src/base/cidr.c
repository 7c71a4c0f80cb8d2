/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cidr.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 3 /* of a prefix's length */

static bool parse_length(const char *text, int most, int *length)
{
	const size_t digits = strspn(text, "0123456789");

	if (digits == 0 || digits > DIGITS_MAX ||
	    text[digits + strspn(text + digits, " \t")] != '\0')
		return false;
	*length = atoi(text);
	return *length <= most;
}

bool ha_cidr_parse(const char *text, struct ha_cidr *out)
{
	struct ha_cidr range = {.family = strchr(text, ':') ? AF_INET6 : AF_INET};
	const int bits = range.family == AF_INET ? 32 : 128;
	const char *slash = strchr(text, '/');
	const size_t length = slash ? (size_t)(slash - text) : strlen(text);
	char address[INET6_ADDRSTRLEN];

	if (length >= sizeof(address))
		return false;
	memcpy(address, text, length);
	address[length] = '\0';
	range.prefix_len = bits;
	if (inet_pton(range.family, address, range.addr) != 1 ||
	    (slash && !parse_length(slash + 1, bits, &range.prefix_len)))
		return false;
	*out = range;
	return true;
}
