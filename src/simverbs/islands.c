/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts are an island; see islands.h. */
#include "islands.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT8_MAX

static bool read_host(const char **text, uint32_t hosts, uint32_t *host)
{
	char *end;
	unsigned long n;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	n = strtoul(*text, &end, 10);
	*text = end;
	*host = (uint32_t)n;
	return !errno && n < hosts;
}

/* "A-B" or "A". */
static int read_island(const char **text, uint32_t hosts, struct sv_islands *islands)
{
	uint32_t first, last;

	if (!read_host(text, hosts, &first))
		return EINVAL;
	last = first;
	if (**text == '-') {
		(*text)++;
		if (!read_host(text, hosts, &last) || last < first)
			return EINVAL;
	}
	for (uint32_t host = first; host <= last; host++) {
		if (islands->of_host[host] != NOWHERE)
			return EINVAL;
		islands->of_host[host] = (uint8_t)islands->number;
	}
	islands->number++;
	return 0;
}

int sv_islands_parse(const char *text, uint32_t hosts, struct sv_islands *islands)
{
	islands->number = 0;
	if (!text || !*text)
		return 0;
	if (hosts >= SV_ISLAND_HOSTS)
		return EINVAL;
	memset(islands->of_host, NOWHERE, sizeof(islands->of_host));
	for (;; text++) {
		int err = read_island(&text, hosts, islands);

		if (err || (*text && *text != ','))
			return EINVAL;
		if (!*text)
			break;
	}
	for (uint32_t host = 0; host < hosts; host++)
		if (islands->of_host[host] == NOWHERE)
			islands->of_host[host] = (uint8_t)islands->number++;
	return 0;
}
