/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enhanced connection establishment: options of a vendor's NICs, such as selective repeat, that two
 * queue pairs agree on when they are connected (ibv_query_ece). An end says what its device offers;
 * the one that connects first takes of it what its own device has, and says that; the other one
 * takes this. Where either end has none, or a verb fails, there is none, and nothing is wrong.
 *
 * Each is for who makes the path: its command, or nobody else knows it.
 */
#ifndef HA_TRANSPORT_ECE_H
#define HA_TRANSPORT_ECE_H

struct ha_path;

/* What the device offers, into path->ece: queue pairs are in INIT. */
void ha_ece_offer(struct ha_path *path);
/* Of what the peer's end says, before RTR. */
void ha_ece_set(struct ha_path *path);
/* What came of it, into path->ece: queue pairs are in RTS. */
void ha_ece_agreed(struct ha_path *path);

#endif
