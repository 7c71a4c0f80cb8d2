/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What part of a large message each rail of a sender's bundle is to carry: what was given
 * (HA_NCCL_RAIL_SHARE), what an agent says (rail_agent.h), or what they were seen to carry
 * (balance.h), and to cost the others (shared_parking.h). All of it under the token.
 */
#ifndef HA_TRANSPORT_RAIL_SHARE_H
#define HA_TRANSPORT_RAIL_SHARE_H

#include "device/bundle.h"
#include "transport/split.h"

#include <stdint.h>

struct ha_comm;
struct ha_path;

/* Which rail of our bundle a path is on. */
unsigned ha_rail_of(const struct ha_comm *comm, const struct ha_path *path);

/*
 * The pieces of a message of so many bytes that is to be posted now on these slots: a mask, of
 * paths that are ready and on rails of their own. One that is too small to be cut is one piece, for
 * the slot whose turn it is. Returns how many; at least one.
 */
unsigned ha_rail_pieces(struct ha_comm *comm, unsigned mask, uint64_t bytes, uint64_t now_ns,
			struct ha_piece out[HA_MAX_PATHS]);

/* A piece sets out on that slot, at the time of the pieces; it is through. */
void ha_rail_posted(struct ha_comm *comm, unsigned p, uint32_t bytes, uint64_t now_ns);
void ha_rail_carried(struct ha_comm *comm, unsigned p, uint32_t bytes);

/* What part each rail of our bundle has, of 1024: all 0 where nothing was cut in this epoch, and at
 * a receiver. */
void ha_rail_shares_now(const struct ha_comm *comm, uint16_t share[HA_RAILS_MAX]);

/* The path at slot p is lost: another one may come there, and nothing is under way. */
void ha_rail_shares_lost(struct ha_comm *comm, unsigned p);

/* Another epoch begins: nothing carries. */
void ha_rail_shares_begin(struct ha_comm *comm);

/* In a visit: another sender may have to decide for all. */
void ha_rail_shares_visit(struct ha_comm *comm);

/* A connection ends. */
void ha_rail_shares_leave(struct ha_comm *comm);

#endif
