/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/ece.h"

#include "base/log.h"
#include "device/newer_verbs.h"
#include "transport/comm.h"
#include "transport/path.h"

#include <string.h>

/* Queue pairs of a path are alike: what one says goes for all. */
static void query(struct ha_path *path)
{
	struct ibv_ece ece = {0};
	int rc = ha_ibv_query_ece(path->qps[0].qp, &ece);

	path->ece = (struct ha_wire_ece){
	    .known = rc == 0,
	    .vendor_id = ece.vendor_id,
	    .options = ece.options,
	    .comp_mask = ece.comp_mask,
	};
	if (rc != 0)
		path->ece = (struct ha_wire_ece){0};
}

/* On each queue pair. 0, or the errno with which one of them refuses. */
static int set_all(const struct ha_path *path, const struct ha_wire_ece *wanted, uint32_t options)
{
	int error = 0;

	for (unsigned i = 0; i < path->nqps; i++) {
		struct ibv_ece ece = {.vendor_id = wanted->vendor_id,
				      .options = options,
				      .comp_mask = wanted->comp_mask};
		int rc = ha_ibv_set_ece(path->qps[i].qp, &ece);

		if (rc != 0)
			error = rc;
	}
	return error;
}

/* At no queue pair: options at one end alone nobody has tried. */
static void without(struct ha_path *path)
{
	if (path->ece.known)
		(void)set_all(path, &path->ece, 0);
	path->ece = (struct ha_wire_ece){0};
}

void ha_ece_offer(struct ha_path *path)
{
	if (!path->comm->config->ib_ece_enable)
		return;
	query(path);
	/* What is refused when the peer has set its own is found out too late. */
	if (path->ece.known && set_all(path, &path->ece, path->ece.options) != 0)
		without(path);
}

void ha_ece_set(struct ha_path *path)
{
	const struct ha_wire_ece *remote = &path->remote.ece;
	int rc;

	if (!path->ece.known || !remote->known) {
		without(path);
		return;
	}
	rc = set_all(path, remote, remote->options);
	if (rc == 0)
		return;
	without(path);
	HA_INFO_LIMITED(
	    HA_SUBSYS_NET,
	    "connection %s: without ECE on %s:%d: ibv_set_ece of vendor %#x, options %#x: %s",
	    path->comm->name, path->nic->name, path->port->port_num, remote->vendor_id,
	    remote->options, strerror(rc));
}

void ha_ece_agreed(struct ha_path *path)
{
	if (path->ece.known)
		query(path);
}
