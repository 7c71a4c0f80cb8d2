/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a connection's paths to carry traffic on, at the receiver: it is the end that decides.
 *
 * After a failure that nobody reported a path is taken only when something proves that it still
 * works: an answer to a heartbeat that was sent, or a probe that came back, after what failed had
 * failed. When the heartbeats of each pair of ports happen to be due has no part in that. [T]
 */
#ifndef HA_FAILOVER_PATH_SELECT_H
#define HA_FAILOVER_PATH_SELECT_H

#include "event/reason.h"

#include <stdbool.h>

struct ha_comm;

/* The heartbeats of path p's ports got no answer for so long that they count as lost. */
bool ha_path_select_is_silent(const struct ha_comm *comm, unsigned p);

/* The active path is left: asks the others for signs of life, if they have to prove that they work.
 */
void ha_path_select_begin(struct ha_comm *comm, enum ha_reason reason);

/* A path could be taken now: from here on the hold-off time counts. Again is fine. */
void ha_path_select_agreed(struct ha_comm *comm);

/* Path p was proved and nothing says that it is dead. */
bool ha_path_select_can_carry(const struct ha_comm *comm, unsigned p);

/* The slot to resume on, the best that can carry; -1: none, or none worth taking yet. */
int ha_path_select_best(const struct ha_comm *comm);

/* None is worth taking yet, but for one an answer is expected at any moment: no need to build. */
bool ha_path_select_awaits_answer(const struct ha_comm *comm);

/* Nothing says that the ports of the path that was left do not reach each other: their heartbeats
 * are in time, and one that was asked since is answered or still may be. */
bool ha_path_select_left_answers(const struct ha_comm *comm);

/* Path p can carry, and connects a pair that is preferred to the active one. */
bool ha_path_select_is_better(const struct ha_comm *comm, unsigned p);

/*
 * A path other than the active one that is known to work: proved, its heartbeats in time, and with
 * no more drained ports than `most_drained`. The cheapest; -1: none. Either end.
 */
int ha_path_select_healthy(const struct ha_comm *comm, unsigned most_drained);

/* A path in reserve shares no port with the active one, so that no single failure takes both, and
 * nobody wants it left alone. */
bool ha_path_select_has_standby(const struct ha_comm *comm);

#endif
