/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a member gets its part of a plan: it asks the controller, which answers all members when all
 * have asked. Member 0 says where the others reach it, which is at the address from which it
 * reaches the controller.
 */
#ifndef HA_INC_NET_ASK_H
#define HA_INC_NET_ASK_H

#include "inc/net/talk.h"
#include "inc/part.h"

#define HA_ASK_NAME 63 /* letters of a name, at most */

struct ha_ask {
	const union ha_sockaddr *controller;
	const struct ha_job_key *site;
	const char *group, *port; /* the port's name in the topology: HOST/NIC, or HOST */
	const char *label;	  /* of a quota; NULL: none */
	unsigned int rank, ranks;
	uint32_t unit_bytes;  /* of member 0, for all; a multiple of HA_CUT_ALIGN */
	unsigned int window;  /* the same */
	bool is_reproducible; /* the same: one switch adds all members, in each tree */
};

struct ha_ask_answer {
	struct ha_talk talk; /* with the controller: member 0 has its plan as long as it keeps it */
	int listener;	     /* of member 0; others: -1 */
	struct ha_part part; /* ha_part_free */
	uint8_t key[HA_CTRL_SECRET_BYTES]; /* the group's */
	uint8_t
	    *receipt; /* of member 0: for a controller that does not know the group; NULL: none */
	size_t receipt_bytes;
};

/* Waits for the verdict. HA_ERR_USAGE: there is no plan for this member, or the controller has
 * another key; HA_ERR_REMOTE: it is not there, or does not answer in time; HA_ERR_ARGUMENT: a name
 * that is none; HA_ERR_SYSTEM: this host. `why` says why, and nothing is left to be ended. */
ha_result_t ha_ask(const struct ha_ask *ask, uint64_t until_ns, struct ha_ask_answer *answer,
		   char *why, size_t size) HA_MUST_CHECK;
void ha_ask_end(struct ha_ask_answer *answer);

/* What the controller says with NONE. */
void ha_ask_why_none(const struct ha_talk_frame *heard, char *why, size_t size);

#endif
