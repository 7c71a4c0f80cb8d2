/* SPDX-License-Identifier: Apache-2.0 */
/* What a host or a switch says, from the text of its frame: docs/inc.md has its keys. */
#ifndef NC_REQUEST_H
#define NC_REQUEST_H

#include "tools/nccl-ha-ctrld/groups.h"

/* What a host asks for. False: `why` says what is wrong with it. */
bool nc_request_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_ask *ask, char *why, size_t size) HA_MUST_CHECK;

/* What a program that adds at a switch says: which one, where it listens, and perhaps that it was
 * drained. False: as above. */
bool nc_service_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_service *service, char *why, size_t size) HA_MUST_CHECK;

/* Which switch an operator wants to be drained, or not to be. False: as above. */
bool nc_change_read(const struct nc_topology *topology, const char *text, size_t length,
		    unsigned *vertex, bool *is_drained, char *why, size_t size) HA_MUST_CHECK;

/* ADDRESS:PORT, in numbers: nothing is looked up for who asks. False: as above. */
bool nc_address_read(const char *text, union ha_sockaddr *at, char *why, size_t size) HA_MUST_CHECK;
/* Whether a unit may have as many bytes, and a window as many units. */
bool nc_is_unit(int unit_bytes, int window);

#endif
