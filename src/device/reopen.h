/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a NIC's device again after it has died: a reset takes it away and brings it back, and not
 * always under the name that it had.
 */
#ifndef HA_DEVICE_REOPEN_H
#define HA_DEVICE_REOPEN_H

#include "device/device.h"

struct ha_reopening {
	struct ha_incarnation *incarnation; /* NULL: it is not to be had now, and `why` */
	struct ha_verb_failure why;	    /* verb NULL: no such device is listed */
	char name[64];			    /* of the device that was found */
};

/*
 * Looks for the device with the NIC's node GUID at its place in the PCI tree, whatever its name,
 * opens it and tries whether it makes objects. Logs nothing. Waits for the device.
 */
void ha_nic_reopen(struct ha_nic *nic, struct ha_reopening *out);

/*
 * The opening that was found becomes the present one. Its ports are taken for down until they were
 * read anew, which is due; the NIC stays fatal until its owner says that all is ready. Progress
 * thread.
 */
void ha_nic_renew(struct ha_device_set *set, struct ha_nic *nic,
		  struct ha_incarnation *incarnation);

#endif
