/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a group goes on without a switch: each member adds for all of them, every so manyth unit. It
 * is the root of a tree of its own, whose children are all members, itself among them, in their
 * order; so the bytes are those that one switch above all members gives. Each member sends and gets
 * 2 (N - 1) / N of the data, as on a ring, in two steps instead of 2 (N - 1).
 *
 *            all are linked
 *   LINKING ----------------> LINKED          FAILED: the member is cut, for its leader to begin
 *       `------------------------`----------> another epoch. CLOSED: neither
 *
 * Ends of edges go to the other members as frames (LINK), through the leader; they may be lost,
 * doubled and late, so each is said again until the other one says that it has it.
 *
 * A mesh is made for one epoch. For the protocol (docs/inc-protocol.md) it is a plan as any other,
 * with N lanes. One thread, the member's.
 */
#ifndef HA_INC_VERBS_MESH_H
#define HA_INC_VERBS_MESH_H

#include "inc/frame.h"
#include "inc/verbs/member.h"
#include "inc/verbs/tree.h"

#define HA_MESH_MEMBERS HA_UNIT_CHILDREN /* at most */

enum ha_mesh_state { HA_MESH_CLOSED, HA_MESH_LINKING, HA_MESH_LINKED, HA_MESH_FAILED };

struct ha_mesh_shape {
	uint16_t number, members; /* 1 to HA_MESH_MEMBERS; the member's lanes are as many */
	uint64_t group;
	unsigned int window;
	uint32_t unit_bytes;
	uint64_t limit_ns; /* for all to be linked */
};

/* Sends a LINK to the member that it names; it may get lost. */
typedef void ha_mesh_say(void *arg, const struct ha_inc_frame *frame);

struct ha_mesh {
	enum ha_mesh_state state;
	struct ha_mesh_shape shape;
	struct ha_member *member;
	ha_mesh_say *say;
	void *arg;
	uint32_t epoch;
	struct ha_tree *tree; /* in which this member adds; NULL: none */
	enum ha_inc_linking linking[HA_MESH_MEMBERS];
	uint64_t again_ns, pause_ns, until_ns;
	const char *why;	   /* FAILED */
	struct ha_dispute dispute; /* FAILED: if that is why */
};

/* Closed. */
void ha_mesh_init(struct ha_mesh *mesh, const struct ha_mesh_shape *shape, struct ha_member *member,
		  ha_mesh_say *say, void *arg);

/* After a fence: joins the member, which waits until all are linked, and then has it go on. */
void ha_mesh_join(struct ha_mesh *mesh, uint32_t epoch, uint64_t now_ns);

/* A LINK that is to this member. What is of another epoch or group counts for nothing. */
void ha_mesh_hear(struct ha_mesh *mesh, const struct ha_inc_frame *frame);

/* Says again what is due, and looks whether it gets on. */
void ha_mesh_tick(struct ha_mesh *mesh, uint64_t now_ns);

/* Adds what has come. True: something was moved. */
bool ha_mesh_progress(struct ha_mesh *mesh);

/* The member's edges are about to be destroyed. Its tree stays until it is closed, or joined anew:
 * what that still does reaches no member that has fenced. */
void ha_mesh_fence(struct ha_mesh *mesh);

/* HA_ERR_SYSTEM: the device does not let go of it; to be called again. */
ha_result_t ha_mesh_close(struct ha_mesh *mesh) HA_MUST_CHECK;

#endif
