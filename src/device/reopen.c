/* SPDX-License-Identifier: Apache-2.0 */
#include "device/reopen.h"

#include "base/text.h"
#include "device/sysfs.h"

#include <errno.h>
#include <string.h>

/* ---- which device --------------------------------------------------------------------------- */

static bool has_name(const struct ha_nic *nic, struct ibv_device *device)
{
	return strcmp(ibv_get_device_name(device), nic->name) == 0;
}

/*
 * GUIDs are of functions of a card, and may be wrong: all 0 in a virtual function, or the same in
 * two. Then it is the place that tells. A device without a place (soft RoCE) and without a GUID has
 * but its name.
 */
static bool is_the_nics(const struct ha_nic *nic, struct ibv_device *device)
{
	char pci_path[sizeof nic->pci_path];

	if (ibv_get_device_guid(device) != nic->attr.node_guid)
		return false;
	ha_sysfs_pci_path(device->ibdev_path, pci_path, sizeof pci_path);
	if (strcmp(pci_path, nic->pci_path) != 0)
		return false;
	return nic->attr.node_guid != 0 || pci_path[0] || has_name(nic, device);
}

/* One of several that are alike is rather that with the NIC's name. */
static struct ibv_device *find(const struct ha_nic *nic, struct ibv_device **list)
{
	struct ibv_device *found = NULL;

	for (int i = 0; list[i]; i++)
		if (is_the_nics(nic, list[i]) && (!found || has_name(nic, list[i])))
			found = list[i];
	return found;
}

/* ---- opening it ----------------------------------------------------------------------------- */

/* A driver may list a device that it is still bringing up. */
static bool makes_objects(struct ha_incarnation *incarnation, struct ha_verb_failure *why)
{
	struct ibv_pd *pd;

	errno = 0;
	pd = ibv_alloc_pd(incarnation->ctx);
	if (pd) {
		ha_give_back(incarnation, HA_OBJECT_PD, pd, NULL, NULL);
		return true;
	}
	*why = (struct ha_verb_failure){.verb = "ibv_alloc_pd", .error = errno ? errno : EIO};
	return false;
}

static void open_found(struct ha_nic *nic, struct ibv_device *device, struct ha_reopening *out)
{
	struct ibv_device_attr attr;

	ha_copy_text(out->name, sizeof out->name, ibv_get_device_name(device));
	if (ha_incarnation_open(nic, device, &attr, &out->incarnation, &out->why) != HA_OK)
		return;
	if (!makes_objects(out->incarnation, &out->why)) {
		ha_incarnation_close(out->incarnation);
		out->incarnation = NULL;
	}
}

void ha_nic_reopen(struct ha_nic *nic, struct ha_reopening *out)
{
	struct ibv_device **list, *found;
	int n;

	memset(out, 0, sizeof *out);
	list = ibv_get_device_list(&n);
	if (!list) {
		out->why = (struct ha_verb_failure){"ibv_get_device_list", errno};
		return;
	}
	found = find(nic, list);
	if (found)
		open_found(nic, found, out);
	ibv_free_device_list(list);
}

/* ---- in the place of the dead one ------------------------------------------------------------ */

void ha_nic_renew(struct ha_device_set *set, struct ha_nic *nic, struct ha_incarnation *incarnation)
{
	ha_nic_replace(nic, incarnation);
	for (int i = 0; i < set->nports_all; i++) {
		struct ha_port *port = &set->ports[i];

		if (port->nic != nic)
			continue;
		atomic_store(&port->state, IBV_PORT_DOWN);
		atomic_store(&port->refresh_due, true);
	}
}
