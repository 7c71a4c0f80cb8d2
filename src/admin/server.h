/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the operator's requests come in: the Unix socket next to the statistics file, served by the
 * background thread (nccl_ha/control.h says what goes over it).
 *
 * The file is 0600, and of whoever gets at it all the same (through a descriptor, another mount,
 * from another container) the kernel is asked who it is: admin/peer.h. Whoever is let in may be a
 * broken program: requests are short, have to come soon, and their answers have to be read soon; of
 * several that keep silent the oldest makes way. None of it ever waits.
 */
#ifndef HA_ADMIN_SERVER_H
#define HA_ADMIN_SERVER_H

struct ha_instance;

/*
 * Opens it, unless HA_NCCL_CONTROL=0 or there are no statistics to be next to. What cannot be made
 * is one INFO line: a job does not need it.
 */
void ha_admin_server_open(struct ha_instance *inst);
/* Removes it. Any thread but the progress thread; before progress is stopped. */
void ha_admin_server_close(struct ha_instance *inst);

#endif
