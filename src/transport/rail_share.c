/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rail_share.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/comm.h"
#include "transport/rail_agent.h"
#include "transport/send.h"
#include "transport/shared.h"

#include <string.h>

unsigned ha_rail_of(const struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_bundle *bundle = comm->port->bundle;
	unsigned rail = 0;

	while (rail + 1 < (unsigned)bundle->nrails && bundle->rails[rail] != path->port)
		rail++;
	return rail;
}

/* Whether senders learn what rails carry. */
static bool learns(const struct ha_bundle *bundle)
{
	return !bundle->by_agent && !bundle->shares_given;
}

/* With others that reach the same port of the peer by their first rail. */
static void join_parking(struct ha_comm *comm)
{
	struct ha_send_side *s = comm->send;

	if (s->shares.rails > 1 && learns(comm->port->bundle))
		ha_parking_join(&s->parking, &comm->inst->parkings, comm->port->bundle,
				comm->paths[s->shares.slot_of_rail[0]]->remote.gid);
}

/* Takes these paths, in the order of rails, for those that carry. */
static void take(struct ha_comm *comm, unsigned mask)
{
	const struct ha_bundle *bundle = comm->port->bundle;
	struct ha_send_side *s = comm->send;
	uint8_t slots[HA_MAX_PATHS];
	uint16_t weights[HA_MAX_PATHS];
	unsigned n = 0;

	if ((mask & ~(unsigned)s->shares.slots) == 0)
		return;
	for (unsigned rail = 0; rail < HA_RAILS_MAX; rail++)
		for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
			const struct ha_path *path = comm->paths[p];
			int speed_mbps;

			if (!(mask >> p & 1) || ha_rail_of(comm, path) != rail || n == HA_MAX_PATHS)
				continue;
			speed_mbps = atomic_load(&path->port->speed_mbps);
			ha_balance_begin(&s->balance, p, speed_mbps > 0 ? (uint32_t)speed_mbps : 1);
			s->parking.rail_of_slot[p] = (uint8_t)rail;
			slots[n] = (uint8_t)p;
			weights[n++] = bundle->share[rail];
		}
	ha_shares_make(&s->shares, n, slots, weights);
	join_parking(comm);
}

/* Where one rail alone is there it has all, whatever the agent says. */
static void ask_agent(struct ha_comm *comm, uint64_t bytes, uint64_t now_ns)
{
	struct ha_shares *shares = &comm->send->shares;
	const struct ha_path *first, *second;

	if (shares->rails != 2)
		return;
	first = comm->paths[shares->slot_of_rail[0]];
	second = comm->paths[shares->slot_of_rail[1]];
	ha_shares_hint(shares, ha_rail_agent_second(comm, first, second, bytes, now_ns));
}

/* *mask: the paths that could carry it, then those that are to. */
static const struct ha_shares *shares_of(struct ha_comm *comm, unsigned *mask, uint64_t bytes,
					 uint64_t now_ns)
{
	struct ha_send_side *s = comm->send;

	take(comm, *mask);
	if (comm->port->bundle->by_agent)
		ask_agent(comm, bytes, now_ns);
	if (!learns(comm->port->bundle))
		return &s->shares;
	*mask = ha_parking_carriers(&s->parking, *mask);
	s->shares.of_mask[*mask - 1] = ha_balance_shares(&s->balance, *mask, bytes, now_ns);
	return &s->shares;
}

unsigned ha_rail_pieces(struct ha_comm *comm, unsigned mask, uint64_t bytes, uint64_t now_ns,
			struct ha_piece out[HA_MAX_PATHS])
{
	const struct ha_shares *shares = shares_of(comm, &mask, bytes, now_ns);
	const struct ha_bundle *bundle = comm->port->bundle;
	unsigned slot;

	if (bundle->by_agent || ha_way_of(bytes, bundle->stripe_min) == HA_WAY_SPLIT)
		return ha_split(bytes, shares, mask, comm->active, 0, out);
	slot = ha_turns_next(&comm->send->turns, shares->of_mask[mask - 1], bytes);
	out[0] = (struct ha_piece){.slot = (uint8_t)slot, .length = bytes};
	return 1;
}

void ha_rail_posted(struct ha_comm *comm, unsigned p, uint32_t bytes, uint64_t now_ns)
{
	struct ha_send_side *s = comm->send;

	if (learns(comm->port->bundle) && ha_balance_pending(&s->balance) == 0)
		ha_parking_sets_out(&s->parking, now_ns);
	ha_balance_posted(&s->balance, p, bytes, now_ns);
}

static void say_parked(const struct ha_comm *comm, const struct ha_parking *parking)
{
	const struct ha_path *path = comm->paths[parking->slot];
	const struct ha_port *port;

	if (!path) /* it was lost meanwhile, and may be gone */
		return;
	port = path->port;
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: more gets through without %s:%d, which carries no large messages "
		"for %u s",
		comm->name, port->nic->name, port->port_num, parking->parked_ms / 1000);
}

void ha_rail_carried(struct ha_comm *comm, unsigned p, uint32_t bytes)
{
	struct ha_send_side *s = comm->send;
	const uint64_t now_ns = ha_now_ns();

	ha_balance_carried(&s->balance, p, bytes, now_ns);
	if (learns(comm->port->bundle) &&
	    ha_parking_sender_carried(&s->parking, &s->balance, s->shares.slots, bytes, now_ns))
		say_parked(comm, &s->parking.trial);
}

void ha_rail_shares_now(const struct ha_comm *comm, uint16_t share[HA_RAILS_MAX])
{
	const struct ha_shares *shares = comm->is_send ? &comm->send->shares : NULL;
	uint64_t word;

	memset(share, 0, HA_RAILS_MAX * sizeof(*share));
	if (!shares || shares->slots == 0)
		return;
	word = learns(comm->port->bundle)
		   ? ha_balance_by_rates(&comm->send->balance,
					 ha_parking_carriers(&comm->send->parking, shares->slots))
		   : shares->of_mask[shares->slots - 1];
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (shares->slots >> p & 1 && comm->paths[p]) /* one that is lost may be gone */
			share[ha_rail_of(comm, comm->paths[p])] = (uint16_t)ha_share_of(word, p);
}

void ha_rail_shares_lost(struct ha_comm *comm, unsigned p)
{
	comm->send->shares.slots &= (uint8_t) ~(1u << p);
	comm->send->balance.rails[p] = (struct ha_rail_load){0};
	ha_parking_sender_lost(&comm->send->parking, p, comm->send->shares.slots);
	memset(&comm->send->turns, 0, sizeof(comm->send->turns));
}

void ha_rail_shares_begin(struct ha_comm *comm)
{
	memset(&comm->send->shares, 0, sizeof(comm->send->shares));
	memset(&comm->send->balance, 0, sizeof(comm->send->balance));
	ha_parking_sender_begins(&comm->send->parking);
	memset(&comm->send->turns, 0, sizeof(comm->send->turns));
}

void ha_rail_shares_visit(struct ha_comm *comm)
{
	struct ha_parking_sender *parking;
	uint64_t look_ns;

	if (!comm->is_send || !comm->send->parking.shared)
		return;
	parking = &comm->send->parking;
	if (ha_comm_error(comm) != HA_OK)
		ha_parking_resign(parking);
	look_ns =
	    ha_parking_look(parking, ha_balance_pending(&comm->send->balance) != 0, ha_now_ns());
	comm->poller.due_ns = ha_earlier_ns(comm->poller.due_ns, look_ns);
}

void ha_rail_shares_leave(struct ha_comm *comm)
{
	if (comm->is_send)
		ha_parking_leave(&comm->send->parking, &comm->inst->parkings);
}
