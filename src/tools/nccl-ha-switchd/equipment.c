/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/equipment.h"

#include "base/random.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "tools/common/address.h"
#include "tools/nccl-ha-switchd/port.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ns_wrong(const char *format, ...)
{
	va_list args;

	flockfile(stderr); /* a line of each thread is a line */
	fputs("nccl-ha-switchd: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	funlockfile(stderr);
	return false;
}

static bool resolve(const char *option, const char *text, bool passive, union ha_sockaddr *at)
{
	char why[256];
	struct addrinfo *list = np_resolve(text, passive, why, sizeof(why));

	if (!list)
		return ns_wrong("%s: %s", option, why);
	memcpy(at, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return true;
}

static bool is_wildcard(const union ha_sockaddr *at)
{
	if (at->sa.sa_family == AF_INET)
		return at->in.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&at->in6.sin6_addr);
}

static bool find_addresses(struct ns_equipment *e, const struct ns_settings *settings)
{
	if (!resolve("--connect", settings->controller, false, &e->controller))
		return false;
	if (!settings->listen)
		return true;
	if (!resolve("--listen", settings->listen, true, &e->listen))
		return false;
	return !is_wildcard(&e->listen) ||
	       ns_wrong("--listen=%s: hosts are told this address, so name one of this machine's",
			settings->listen);
}

static bool find_port(struct ns_equipment *e, const struct ns_settings *settings)
{
	char why[640];

	ha_config_load(&e->config, getenv);
	if (ha_device_set_open(&e->config, &e->set) != HA_OK)
		return ns_wrong("RDMA devices cannot be looked at");
	e->port = ns_port_find(e->set, settings->device, why, sizeof(why));
	return e->port || ns_wrong("%s", why);
}

/* Those that the process may run on, in order: so who starts it says which. */
static bool find_processors(struct ns_equipment *e, const struct ns_settings *settings)
{
	unsigned found = 0;
	cpu_set_t may;

	for (unsigned i = 0; i < NS_THREADS_MOST; i++)
		e->processor[i] = -1;
	if (!settings->is_pinned)
		return true;
	if (sched_getaffinity(0, sizeof(may), &may) != 0)
		return ns_wrong("--pin: sched_getaffinity: %s", strerror(errno));
	for (unsigned i = 0; i < CPU_SETSIZE && found < settings->threads; i++)
		if (CPU_ISSET(i, &may))
			e->processor[found++] = (int)i;
	return found == settings->threads ||
	       ns_wrong("--pin: there are %u threads, and this program may run on %u processors; "
			"say fewer threads, or give it more (taskset(1), CPUAffinity= of its unit)",
			settings->threads, found);
}

bool ns_equipment_begin(struct ns_equipment *equipment, const struct ns_settings *settings)
{
	*equipment = (struct ns_equipment){0};
	return ha_random_works() && find_processors(equipment, settings) &&
	       find_addresses(equipment, settings) &&
	       ha_job_key_load_file("--key-file", settings->key_file, &equipment->site) == HA_OK &&
	       find_port(equipment, settings);
}

void ns_equipment_end(struct ns_equipment *equipment)
{
	if (equipment->set) {
		ha_memory_close(equipment->set);
		ha_device_set_close(equipment->set);
	}
	ha_job_key_free(equipment->site);
	*equipment = (struct ns_equipment){0};
}
