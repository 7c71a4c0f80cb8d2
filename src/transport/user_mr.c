/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's memory on other devices than the first.
 *
 * Registering is a command that takes a device microseconds for each page, and a sick one a minute:
 * a thread of the device's commands does it. Meanwhile the messages that need the memory are held
 * back, in order, as they are when there is no room; polls look again, and the connection is
 * visited when it is done.
 */
#include "transport/user_mr.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/comm.h"
#include "transport/path_error.h"
#include "transport/recv.h"
#include "transport/send.h"

static void let_go(struct ha_poller *poller)
{
	ha_comm_put(ha_container_of(poller, struct ha_comm, poller));
}

static enum ha_mr_request request(struct ha_comm *comm, struct ha_nic *nic, struct ha_mr *mr)
{
	const struct ha_mr_waiter waiter = {.poller = &comm->poller, .let_go = let_go};
	enum ha_mr_request found;

	(void)ha_comm_hold(comm);
	found = ha_mr_request(mr, nic, &waiter);
	if (found != HA_MR_SENT)
		ha_comm_put(comm);
	return found;
}

uint64_t ha_comm_find_keys(struct ha_comm *comm, const struct ha_path *path, struct ha_mr *mr,
			   const char *what)
{
	switch (request(comm, path->nic, mr)) {
	case HA_MR_READY: /* 0: forgotten since, with its device */
		return ha_mr_keys(mr, path->nic_index);
	case HA_MR_SENT:
	case HA_MR_PENDING: /* requests have come since */
		ha_comm_register_ahead(comm, path->nic);
		break;
	case HA_MR_OVERDUE:
		ha_comm_path_failed(comm, comm->paths[path->index], HA_REASON_SOFT_TIMEOUT,
				    HA_ERR_SYSTEM,
				    "%s is being registered on %s, which takes longer than a "
				    "device that is well",
				    what, path->nic->name);
		break;
	case HA_MR_FAILED:
		ha_comm_registration_failed(comm, path, what);
		break;
	}
	return 0;
}

/* ---- ahead of need -------------------------------------------------------------------------- */

enum ha_mr_request ha_comm_register_all(struct ha_comm *comm, struct ha_nic *nic)
{
	enum ha_mr_request all = HA_MR_READY, one;
	struct ha_list *pos;

	ha_list_for_each (pos, &comm->memory.handles) {
		struct ha_mr *mr = ha_container_of(pos, struct ha_mr, in_owner);

		if (ha_mr_keys(mr, (unsigned)nic->index) != 0)
			continue;
		one = request(comm, nic, mr);
		if (one == HA_MR_FAILED)
			return one;
		if (one != HA_MR_READY)
			all = HA_MR_PENDING;
	}
	return all;
}

void ha_user_mr_ahead(struct ha_mr *mr, struct ha_nic *nic)
{
	static const struct ha_mr_waiter nobody;

	if (mr && ha_mr_keys(mr, (unsigned)nic->index) == 0 &&
	    ha_mr_request(mr, nic, &nobody) == HA_MR_FAILED)
		HA_TRACE(1, "memory of a request cannot be registered on %s ahead of need",
			 nic->name);
}

static void register_sends(struct ha_comm *comm, struct ha_nic *nic)
{
	struct ha_send_side *s = comm->send;

	for (uint64_t seq = s->completed.base; seq != s->match_seq; seq++) {
		const struct ha_send_group *group = &s->groups[seq & comm->slot_mask];

		if (group->state != HA_GROUP_POSTED && group->state != HA_GROUP_MATCHED)
			continue;
		for (unsigned i = 0; i < group->n; i++)
			ha_user_mr_ahead(group->reqs[i]->mr, nic);
	}
}

static void register_receives(struct ha_comm *comm, struct ha_nic *nic)
{
	struct ha_recv_side *r = comm->recv;

	for (uint64_t seq = r->done.base; seq != r->next_seq; seq++) {
		const struct ha_recv_slot *slot = &r->slots[seq & comm->slot_mask];

		if (ha_window_has(&r->done, seq))
			continue;
		for (unsigned i = 0; i < slot->n; i++)
			ha_user_mr_ahead(slot->mrs[i], nic);
	}
}

void ha_comm_register_ahead(struct ha_comm *comm, struct ha_nic *nic)
{
	if (comm->is_send)
		register_sends(comm, nic);
	else
		register_receives(comm, nic);
}
