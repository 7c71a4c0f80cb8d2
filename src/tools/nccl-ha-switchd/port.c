/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/port.h"

#include <stdio.h>
#include <string.h>

#define PORT_TEXT 72

const char *ns_port_text(const struct ha_port *port, char *text, size_t size)
{
	snprintf(text, size, "%s:%u", port->nic->name, port->port_num);
	return text;
}

static bool is_named(const struct ha_port *port, const char *name)
{
	char text[PORT_TEXT];

	return !strcmp(port->nic->name, name) ||
	       !strcmp(ns_port_text(port, text, sizeof(text)), name);
}

/* All there are, as many as there is room for. */
static void list(const struct ha_device_set *set, char *out, size_t size)
{
	size_t used = 0;

	*out = '\0';
	for (int i = 0; i < set->nports_all && used < size; i++) {
		char text[PORT_TEXT];
		const int n = snprintf(out + used, size - used, "%s%s%s", i ? ", " : "",
				       ns_port_text(&set->ports[i], text, sizeof(text)),
				       set->ports[i].was_up ? "" : " (down)");

		used += (size_t)n;
	}
}

static struct ha_port *refuse(const struct ha_device_set *set, const char *what, const char *name,
			      char *why, size_t size)
{
	char ports[512];

	list(set, ports, sizeof(ports));
	snprintf(why, size, "%s%s; there %s %s", what, name, set->nports_all == 1 ? "is" : "are",
		 *ports ? ports : "none");
	return NULL;
}

struct ha_port *ns_port_find(struct ha_device_set *set, const char *name, char *why, size_t size)
{
	struct ha_port *found = NULL;
	unsigned n = 0;

	for (int i = 0; i < set->nports_all; i++) {
		struct ha_port *port = &set->ports[i];

		if (name ? !is_named(port, name) : !port->was_up)
			continue;
		n++;
		found = port;
	}
	if (name && n == 0)
		return refuse(set, "no RDMA device has a port ", name, why, size);
	if (n == 0)
		return refuse(set, "no port of an RDMA device is up", "", why, size);
	if (n > 1)
		return refuse(set, "several ports would do: name one, as --device=DEVICE:PORT", "",
			      why, size);
	if (!ha_port_usable(found))
		return refuse(set, "the link is down of ", name, why, size);
	return found;
}
