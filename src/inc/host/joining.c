/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/host/joining.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MOST 1024

/* ---- ways ----------------------------------------------------------------------------------- */

static unsigned int lanes_of(const struct ha_part *part, uint32_t way)
{
	return way == 0 ? part->lanes : 1;
}

static unsigned int tree_of(const struct ha_part *part, uint32_t way, unsigned int lane)
{
	if (way == 0)
		return lane;
	return (part->lanes + way - 1) % ((unsigned int)part->lanes + part->spares);
}

/* ---- one edge ------------------------------------------------------------------------------- */

static bool fail(struct ha_joining *joining, const struct ha_part_place *place, const char *reason)
{
	char at[HA_SOCKADDR_TEXT_MAX];

	snprintf(joining->why, sizeof(joining->why), "switch at %s: %s",
		 ha_sockaddr_text(&place->at, at, sizeof(at)), reason);
	return false;
}

static void say(struct ha_joining *joining, struct ha_talk *talk, const struct ha_edge *edge,
		const struct ha_part_place *place, uint32_t epoch)
{
	struct ha_join join = {.group = joining->part->group,
			       .epoch = epoch,
			       .node = place->parent,
			       .place = place->place,
			       .tree = place->tree};
	uint8_t text[HA_JOIN_BYTES];

	ha_edge_address(edge, &join.edge);
	ha_join_encode(&join, text);
	ha_talk_say(talk, HA_CTRL_JOIN, joining->key, text, sizeof(text));
}

static bool take(struct ha_joining *joining, const struct ha_talk *talk, struct ha_edge *edge,
		 const struct ha_part_place *place)
{
	struct ha_edge_address remote;

	if (talk->heard.kind != HA_CTRL_JOINED ||
	    !ha_edge_address_decode(talk->heard.text, talk->heard.length, &remote))
		return fail(joining, place, "what it answers is no end of an edge");
	return ha_edge_connect(edge, &remote) == HA_OK || fail(joining, place, edge->fault);
}

static bool connect_edge(struct ha_joining *joining, struct ha_talk *talk, struct ha_edge *edge,
			 const struct ha_part_place *place, uint32_t epoch, uint64_t until_ns)
{
	for (;;) {
		switch (ha_talk_await(talk, until_ns)) {
		case HA_TALK_NOTHING:
			return fail(joining, place, "it does not answer in time");
		case HA_TALK_ENDED:
			return fail(joining, place, talk->why);
		case HA_TALK_OPENED:
			say(joining, talk, edge, place, epoch);
			continue;
		case HA_TALK_HEARD:
			return take(joining, talk, edge, place);
		}
	}
}

/* ---- all of them ---------------------------------------------------------------------------- */

void ha_joining_leave(struct ha_joining *joining)
{
	for (unsigned int i = 0; i < joining->n; i++)
		ha_talk_end(&joining->talk[i]);
	joining->n = 0;
	joining->is_drained = false;
}

/* All at once: a switch may wait for what another one has yet to hear. */
static void dial(struct ha_joining *joining, uint32_t way, unsigned int lanes)
{
	for (unsigned int i = 0; i < lanes; i++) {
		const struct ha_part_place *place =
		    ha_part_find(joining->part, tree_of(joining->part, way, i), joining->member);

		ha_talk_dial(&joining->talk[i], &place->at, joining->site, TEXT_MOST);
	}
	joining->n = lanes;
}

void ha_joining_join(struct ha_joining *joining, struct ha_member *member, uint32_t way,
		     uint32_t epoch)
{
	const unsigned int lanes = lanes_of(joining->part, way);
	const uint64_t until_ns = ha_real_ns() + joining->limit_ns;
	bool is_joined = ha_member_join(member, lanes, joining->part->window) == HA_OK;

	ha_joining_leave(joining);
	if (is_joined)
		dial(joining, way, lanes);
	else
		snprintf(joining->why, sizeof(joining->why), "the device gives no queue pair");
	for (unsigned int i = 0; i < lanes && is_joined; i++) {
		const unsigned int tree = tree_of(joining->part, way, i);

		is_joined = connect_edge(joining, &joining->talk[i], ha_member_edge(member, i),
					 ha_part_find(joining->part, tree, joining->member), epoch,
					 until_ns);
	}
	if (!is_joined)
		ha_member_cut(member);
}

static void hear(struct ha_joining *joining, const struct ha_talk_frame *heard)
{
	struct ha_dispute dispute;

	if (heard->kind == HA_CTRL_DISPUTE &&
	    ha_dispute_decode(heard->text, heard->length, joining->part->members, &dispute))
		joining->dispute = dispute;
	if (heard->kind != HA_CTRL_DRAIN || joining->is_drained)
		return;
	joining->is_drained = true;
	snprintf(joining->why, sizeof(joining->why), "a switch is about to end");
}

void ha_joining_look(struct ha_joining *joining, struct ha_member *member)
{
	for (unsigned int i = 0; i < joining->n; i++) {
		enum ha_talk_event event;

		while ((event = ha_talk_next(&joining->talk[i])) == HA_TALK_HEARD)
			hear(joining, &joining->talk[i].heard);
		if (event != HA_TALK_ENDED)
			continue;
		snprintf(joining->why, sizeof(joining->why), "a switch is gone: %s",
			 joining->talk[i].why);
		ha_member_cut(member);
	}
}
