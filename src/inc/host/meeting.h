/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All members of a group that has a plan begin it, or none does.
 *
 * They come to member 0. When all have, it says so to the controller, whose GO it passes on; a
 * member that has waited for its limit, or has lost member 0, says that instead. Of these two the
 * controller hears one first, and answers both by that: GO, or that nobody is to go on. So there is
 * one verdict, whoever is stopped meanwhile, and however long, but for both of them at once: the
 * controller and member 0, behind whose word it was said to some.
 *
 *	WAITS -> ASKS -> BEGINS or ENDS
 *
 * Member 0 for whom somebody is late, or the controller, says to all that nobody is to go on,
 * before anybody else asks by the clock; a part of its time is for the controller's answer alone.
 * Whoever asks, however late, waits that long: so one that was stopped before its question, or
 * behind it, finds the answer that others may have heard.
 */
#ifndef HA_INC_HOST_MEETING_H
#define HA_INC_HOST_MEETING_H

#include "inc/net/star.h"

/* Half of limit_ns from now on; as much again is waited for a controller that does not answer.
 * True: it begins; is_leader_gone: without member 0, which has ended since. False: `why` says why
 * not. */
bool ha_meet(struct ha_star *star, struct ha_talk *controller, uint16_t member, uint64_t limit_ns,
	     bool *is_leader_gone, char *why, size_t size) HA_MUST_CHECK;

#endif
