/* SPDX-License-Identifier: Apache-2.0 */
#include "device/bundle.h"

#include "base/log.h"
#include "base/text.h"
#include "device/device.h"
#include "device/partition.h"
#include "device/rail_id.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 68 /* bytes of a value that a log line repeats, at most */

#define SHARE_MOST 1024

#define RAILS_OF_AGENT 2

/* In the place of a list: NCCL has it made. */
#define BY_NCCL "nccl"

/* Why what was asked for cannot be had; text[0] == 0: it can. */
struct refusal {
	char text[192];
};

__attribute__((format(printf, 2, 3))) static bool refuse(struct refusal *refusal, const char *fmt,
							 ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(refusal->text, sizeof(refusal->text), fmt, args);
	va_end(args);
	return false;
}

/* ---- names of ports ------------------------------------------------------------------------- */

/* ":7" → 7, "" → 0 for any; -1: neither. */
static int port_number(const char *text)
{
	char *end;
	long number;

	if (*text == '\0')
		return 0;
	number = strtol(text + 1, &end, 10);
	return text[1] >= '0' && text[1] <= '9' && *end == '\0' && number >= 1 && number <= 255
		   ? (int)number
		   : -1;
}

/* NAME or NAME:PORT. Without a number the first port of the NIC that is up, else the first. */
static struct ha_port *find_port(struct ha_device_set *set, const char *name,
				 struct refusal *refusal)
{
	size_t length = strcspn(name, ":");
	int number = port_number(name + length);
	char safe[SHOWN_MAX];

	ha_printable(name, SIZE_MAX, safe, sizeof(safe));
	if (length == 0 || number < 0) {
		(void)refuse(refusal, "\"%s\" is not NAME or NAME:PORT with a port of 1 to 255",
			     safe);
		return NULL;
	}
	for (int i = 0; i < set->nports_all; i++) {
		struct ha_port *port = &set->ports[i];

		if (strlen(port->nic->name) == length &&
		    memcmp(port->nic->name, name, length) == 0 &&
		    (number == 0 || number == port->port_num))
			return port;
	}
	(void)refuse(refusal, "there is no port %s here that is used (see NCCL_IB_HCA)", safe);
	return NULL;
}

/* The next part of a list, without spaces around it, in `part`; *list is after the mark. */
static bool next_part(char **list, const char *mark, char **part)
{
	size_t length;

	*part = strsep(list, mark);
	if (!*part)
		return false;
	*part += strspn(*part, " \t");
	length = strlen(*part);
	while (length > 0 && strchr(" \t", (*part)[length - 1]))
		(*part)[--length] = '\0';
	return true;
}

/* ---- bundles -------------------------------------------------------------------------------- */

static void append_name(struct ha_bundle *bundle, const struct ha_port *port)
{
	size_t used = strlen(bundle->name), room = sizeof(bundle->name) - used;

	if (port->nic->attr.phys_port_cnt > 1 && bundle->nrails > 0)
		snprintf(bundle->name + used, room, "+%s:%d", port->nic->name, port->port_num);
	else if (port->nic->attr.phys_port_cnt > 1)
		snprintf(bundle->name + used, room, "%s:%d", port->nic->name, port->port_num);
	else
		snprintf(bundle->name + used, room, "%s%s", bundle->nrails > 0 ? "+" : "",
			 port->nic->name);
}

static int16_t common_id(int16_t a, int16_t b)
{
	return a == b ? a : HA_FABRIC_ID_UNKNOWN;
}

static void add_rail(struct ha_bundle *bundle, struct ha_port *port)
{
	int ptr_support = ha_nic_ptr_support(port->nic);
	bool first = bundle->nrails == 0;

	bundle->speed_mbps += port->was_up ? atomic_load(&port->speed_mbps) : 0;
	bundle->max_comms =
	    first || port->max_comms < bundle->max_comms ? port->max_comms : bundle->max_comms;
	bundle->ptr_support = first ? ptr_support : bundle->ptr_support & ptr_support;
	bundle->rail_id = first ? port->rail_id : common_id(bundle->rail_id, port->rail_id);
	bundle->plane_id = first ? port->plane_id : common_id(bundle->plane_id, port->plane_id);
	bundle->rails[bundle->nrails++] = port;
}

/* From now on that is where they are. */
static void enter(const struct ha_device_set *set, struct ha_bundle *bundle)
{
	bundle->stripe_min = (uint32_t)set->config->stripe_min;
	for (int rail = 0; rail < bundle->nrails; rail++) {
		bundle->rails[rail]->rail = rail;
		atomic_store(&bundle->rails[rail]->bundle, bundle);
	}
}

static bool has(const struct ha_bundle *bundle, const struct ha_port *port)
{
	for (int rail = 0; rail < bundle->nrails; rail++)
		if (bundle->rails[rail] == port)
			return true;
	return false;
}

/* Whether a packet may get from one rail to another, and the bundle lacks this one. */
static bool may_join(const struct ha_bundle *bundle, const struct ha_port *port,
		     struct refusal *refusal)
{
	const struct ha_port *first = bundle->rails[0];

	if (has(bundle, port))
		return refuse(refusal, "%s:%d is named twice", port->nic->name, port->port_num);
	if (bundle->nrails == HA_RAILS_MAX)
		return refuse(refusal, "a bundle has %d to %d ports", HA_RAILS_MIN, HA_RAILS_MAX);
	if (bundle->nrails > 0 && port->link_layer != first->link_layer)
		return refuse(refusal, "%s:%d and %s:%d are ports of different link layers",
			      first->nic->name, first->port_num, port->nic->name, port->port_num);
	if (bundle->nrails > 0 && !ha_partition_same(port, first))
		return refuse(refusal, "%s:%d and %s:%d are in different partitions",
			      first->nic->name, first->port_num, port->nic->name, port->port_num);
	return true;
}

/* "mlx5_0+mlx5_1". */
static bool add_bundle(struct ha_device_set *set, char *names, struct refusal *refusal)
{
	struct ha_bundle *bundle = &set->bundles[set->nbundles++];
	bool any_up = false;
	char *name;

	while (next_part(&names, "+", &name)) {
		struct ha_port *port = find_port(set, name, refusal);

		if (!port || !may_join(bundle, port, refusal))
			return false;
		if (port->bundle)
			return refuse(refusal, "%s:%d is named twice", port->nic->name,
				      port->port_num);
		append_name(bundle, port);
		add_rail(bundle, port);
		any_up |= port->was_up;
	}
	if (bundle->nrails < HA_RAILS_MIN)
		return refuse(refusal, "a bundle has %d to %d ports", HA_RAILS_MIN, HA_RAILS_MAX);
	if (!any_up)
		return refuse(refusal, "no port of %s is up", bundle->name);
	enter(set, bundle);
	return true;
}

static bool add_bundles(struct ha_device_set *set, char *list, struct refusal *refusal)
{
	char *names;

	if (!set->config->enable_backup)
		return refuse(refusal, "it needs HA_NCCL_ENABLE_BACKUP=1");
	if (strcmp(list, BY_NCCL) == 0)
		return true; /* later */
	while (next_part(&list, ",", &names))
		if (!add_bundle(set, names, refusal))
			return false;
	return true;
}

/* ---- shares --------------------------------------------------------------------------------- */

/* "3,1"; returns how many, 0 after a refusal. */
static int parse_shares(char *list, uint16_t share[HA_RAILS_MAX], struct refusal *refusal)
{
	unsigned sum = 0;
	char *text, *end;
	int n = 0;

	while (next_part(&list, ",", &text)) {
		const long number = strtol(text, &end, 10);

		if (n == HA_RAILS_MAX || *text < '0' || *text > '9' || *end != '\0' ||
		    number > SHARE_MOST) {
			(void)refuse(refusal, "it is not %d to %d numbers from 0 to %d",
				     HA_RAILS_MIN, HA_RAILS_MAX, SHARE_MOST);
			return 0;
		}
		share[n++] = (uint16_t)number;
		sum += (unsigned)number;
	}
	if (sum != 0)
		return n;
	(void)refuse(refusal, "no rail has a share");
	return 0;
}

static bool fit_all(const struct ha_device_set *set, int n, struct refusal *refusal)
{
	bool any = false;

	for (int i = 0; i < set->nbundles; i++) {
		const struct ha_bundle *bundle = &set->bundles[i];

		if (bundle->nrails < HA_RAILS_MIN)
			continue;
		any = true;
		if (bundle->nrails != n)
			return refuse(refusal, "it has %d shares, and %s has %d rails", n,
				      bundle->name, bundle->nrails);
	}
	return any || ha_bundles_by_nccl(set) || refuse(refusal, "there is no bundle");
}

static void give_share(struct ha_bundle *bundle, int n, const uint16_t share[HA_RAILS_MAX])
{
	bundle->shares_given = bundle->nrails == n;
	if (bundle->shares_given)
		memcpy(bundle->share, share, HA_RAILS_MAX * sizeof(*share));
}

/* What was set, to those that there are, or to this one, which NCCL has made. */
static void give_what_was_set(struct ha_device_set *set, struct ha_bundle *fused)
{
	char list[HA_CONFIG_STRING_MAX], value[SHOWN_MAX];
	uint16_t share[HA_RAILS_MAX] = {0};
	struct refusal refusal = {""};
	int n;

	ha_copy_text(list, sizeof(list), set->config->rail_share);
	n = parse_shares(list, share, &refusal);
	if (n == 0 && fused)
		return; /* it was told of when there were none */
	if (fused && n != 0 && n != fused->nrails)
		(void)refuse(&refusal, "it has %d shares, and %s has %d rails", n, fused->name,
			     fused->nrails);
	if (n == 0 || *refusal.text || (!fused && !fit_all(set, n, &refusal))) {
		HA_WARN("HA_NCCL_RAIL_SHARE=%s cannot be used: %s; senders learn what rails carry",
			ha_printable(set->config->rail_share, SIZE_MAX, value, sizeof(value)),
			refusal.text);
		return;
	}
	for (int i = 0; i < set->nbundles && !fused; i++)
		give_share(&set->bundles[i], n, share);
	if (fused)
		give_share(fused, n, share);
}

/* A port of which no speed is known counts as the slowest. */
static void give_by_speed(struct ha_bundle *bundle)
{
	int speed[HA_RAILS_MAX], most = 1;

	for (int rail = 0; rail < bundle->nrails; rail++) {
		speed[rail] = atomic_load(&bundle->rails[rail]->speed_mbps);
		most = speed[rail] > most ? speed[rail] : most;
	}
	for (int rail = 0; rail < bundle->nrails; rail++) {
		const int share = (int)((int64_t)speed[rail] * SHARE_MOST / most);

		bundle->share[rail] = (uint16_t)(share > 1 ? share : 1);
	}
	bundle->shares_given = true;
}

static void follow_agent(struct ha_bundle *bundle)
{
	bundle->by_agent = bundle->nrails == RAILS_OF_AGENT;
	if (!bundle->by_agent)
		HA_WARN("HA_NCCL_RAIL_MODE=agent does not hold for %s: it has %d rails, and an "
			"agent speaks of %d; senders learn what rails carry",
			bundle->name, bundle->nrails, RAILS_OF_AGENT);
}

static void give_by_mode(const struct ha_device_set *set, struct ha_bundle *bundle)
{
	if (bundle->nrails < HA_RAILS_MIN)
		return;
	if (set->config->rail_mode == HA_RAIL_MODE_AGENT)
		follow_agent(bundle);
	else if (set->config->rail_mode == HA_RAIL_MODE_ISLAND)
		bundle->by_island = true;
	else if (set->config->rail_mode == HA_RAIL_MODE_STATIC)
		give_by_speed(bundle);
}

/* To those that there are, or to this one, which NCCL has made. */
static void give_shares(struct ha_device_set *set, struct ha_bundle *fused)
{
	const int mode = set->config->rail_mode;
	const bool has_effect = mode != HA_RAIL_MODE_AGENT && mode != HA_RAIL_MODE_ISLAND;
	char safe[SHOWN_MAX];

	if (*set->config->rail_share && has_effect) {
		give_what_was_set(set, fused);
		return;
	}
	if (*set->config->rail_share && !fused)
		HA_WARN("HA_NCCL_RAIL_SHARE=%s has no effect with HA_NCCL_RAIL_MODE=%s",
			ha_printable(set->config->rail_share, SIZE_MAX, safe, sizeof(safe)),
			mode == HA_RAIL_MODE_AGENT ? "agent" : "island");
	for (int i = 0; i < set->nbundles && !fused; i++)
		give_by_mode(set, &set->bundles[i]);
	if (fused)
		give_by_mode(set, fused);
}

/* ---- the set's ------------------------------------------------------------------------------ */

static void add_port_by_itself(struct ha_device_set *set, struct ha_port *port)
{
	struct ha_bundle *bundle = &set->bundles[set->nbundles++];

	ha_copy_text(bundle->name, sizeof(bundle->name), port->nic->name);
	add_rail(bundle, port);
	enter(set, bundle);
}

static void forget_bundles(struct ha_device_set *set)
{
	memset(set->bundles, 0, sizeof(set->bundles));
	set->nbundles = 0;
	for (int i = 0; i < set->nports_all; i++)
		set->ports[i].bundle = NULL;
}

static void say_refused(const struct ha_config *config, const struct refusal *refusal)
{
	char value[SHOWN_MAX];

	HA_WARN("%s=%s cannot be used: %s; each port is a device by itself",
		config->rails_by_alias ? "MPIB_HCA_SOUT+MPIB_HCA_SUP" : "HA_NCCL_RAILS",
		ha_printable(config->rails, SIZE_MAX, value, sizeof(value)), refusal->text);
}

void ha_bundles_make(struct ha_device_set *set)
{
	struct refusal refusal = {""};
	char list[HA_CONFIG_STRING_MAX];

	ha_copy_text(list, sizeof(list), set->config->rails);
	if (*list && !add_bundles(set, list, &refusal)) {
		say_refused(set->config, &refusal);
		forget_bundles(set);
	}
	for (int i = 0; i < set->nports; i++)
		if (!set->ports[i].bundle)
			add_port_by_itself(set, &set->ports[i]);
	give_shares(set, NULL);
}

/* ---- those that NCCL asks for ---------------------------------------------------------------- */

bool ha_bundles_by_nccl(const struct ha_device_set *set)
{
	return strcmp(set->config->rails, BY_NCCL) == 0 && set->config->enable_backup;
}

/* Devices are ports by themselves, in the order of ports, before any is fused. */
static bool add_device(struct ha_device_set *set, struct ha_bundle *bundle, int dev,
		       struct refusal *refusal)
{
	const struct ha_bundle *alone = ha_bundle_of_device(set, dev);
	const struct ha_port *first = bundle->rails[0];
	struct ha_port *port;

	if (!alone)
		return refuse(refusal, "there is no device %d", dev);
	if (alone->nrails > 1)
		return refuse(refusal, "device %d is a bundle itself", dev);
	port = alone->rails[0];
	if (!may_join(bundle, port, refusal))
		return false;
	if (port->bundle != alone)
		return refuse(refusal, "%s:%d is in another bundle", port->nic->name,
			      port->port_num);
	if (alone->in_use)
		return refuse(refusal, "%s:%d is in use by itself", port->nic->name,
			      port->port_num);
	if (first && first->nic->numa_node != port->nic->numa_node)
		return refuse(refusal, "%s and %s are NICs of different NUMA nodes",
			      first->nic->name, port->nic->name);
	append_name(bundle, port);
	add_rail(bundle, port);
	return true;
}

static bool is_of(const struct ha_device_set *set, const struct ha_bundle *bundle, const int *devs,
		  int n)
{
	if (bundle->nrails != n || n < HA_RAILS_MIN)
		return false;
	for (int i = 0; i < n; i++) {
		const struct ha_bundle *alone = ha_bundle_of_device(set, devs[i]);

		if (!alone || alone->nrails != 1 || alone->rails[0] != bundle->rails[i])
			return false;
	}
	return true;
}

/* A bundle of these, which nobody sees yet. */
static bool make(struct ha_device_set *set, struct ha_bundle *bundle, const int *devs, int n,
		 struct refusal *refusal)
{
	if (!ha_bundles_by_nccl(set))
		return refuse(refusal, "HA_NCCL_RAILS is not " BY_NCCL);
	if (n < HA_RAILS_MIN || n > HA_RAILS_MAX)
		return refuse(refusal, "a bundle has %d to %d ports", HA_RAILS_MIN, HA_RAILS_MAX);
	for (int i = 0; i < n; i++)
		if (!add_device(set, bundle, devs[i], refusal))
			return false;
	return true;
}

ha_result_t ha_bundle_fuse(struct ha_device_set *set, const int *devs, int n, int *dev)
{
	const int made = set->nbundles;
	struct ha_bundle *bundle = &set->bundles[made];
	struct refusal refusal = {""};

	for (*dev = 0; *dev < made; ++*dev)
		if (is_of(set, &set->bundles[*dev], devs, n))
			return HA_OK;
	memset(bundle, 0, sizeof(*bundle));
	if (!make(set, bundle, devs, n, &refusal)) {
		HA_WARN("NCCL asks for %d of our devices as one, and cannot have them: %s", n,
			refusal.text);
		return HA_ERR_ARGUMENT;
	}
	give_shares(set, bundle);
	enter(set, bundle);
	atomic_store(&set->nbundles, made + 1);
	HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
		"NCCL's device %d is a bundle that it asked for: %s", made, bundle->name);
	return HA_OK;
}

struct ha_port *ha_bundle_use(struct ha_device_set *set, int dev)
{
	const struct ha_bundle *asked = ha_bundle_of_device(set, dev), *used;

	if (!asked)
		return NULL;
	used = asked->rails[0]->bundle;
	set->bundles[used - set->bundles].in_use = true;
	return used->rails[0];
}

const struct ha_bundle *ha_bundle_of_device(const struct ha_device_set *set, int dev)
{
	return dev >= 0 && dev < atomic_load(&set->nbundles) ? &set->bundles[dev] : NULL;
}
