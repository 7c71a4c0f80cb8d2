/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verbs/mesh.h"

#include "inc/leader.h"

void ha_mesh_init(struct ha_mesh *mesh, const struct ha_mesh_shape *shape, struct ha_member *member,
		  ha_mesh_say *say, void *arg)
{
	*mesh = (struct ha_mesh){.shape = *shape, .member = member, .say = say, .arg = arg};
}

static void fail(struct ha_mesh *mesh, const char *why)
{
	mesh->state = HA_MESH_FAILED;
	mesh->why = why;
	ha_member_cut(mesh->member);
}

/* ---- linking -------------------------------------------------------------------------------- */

/* Units of a lane that may be under way: the member's window, dealt to all lanes. */
static unsigned int share(const struct ha_mesh *mesh)
{
	return (mesh->shape.window + mesh->shape.members - 1) / mesh->shape.members;
}

static void say_to(const struct ha_mesh *mesh, uint16_t member)
{
	struct ha_inc_frame frame = {
	    .kind = HA_INC_LINK,
	    .member = mesh->shape.number,
	    .epoch = mesh->epoch,
	    .group = mesh->shape.group,
	    .link = {.to = member, .state = mesh->linking[member]},
	};

	ha_edge_address(ha_member_edge(mesh->member, member), &frame.link.child);
	ha_edge_address(ha_tree_edge(mesh->tree, member), &frame.link.parent);
	mesh->say(mesh->arg, &frame);
}

/* To all of whom there is something to be heard. */
static void say_now(struct ha_mesh *mesh, uint64_t now_ns)
{
	for (uint16_t m = 0; m < mesh->shape.members; m++)
		if (mesh->linking[m] != HA_INC_LINK_KNOWS)
			say_to(mesh, m);
	mesh->again_ns = now_ns + mesh->pause_ns;
	mesh->pause_ns *= 2;
	if (mesh->pause_ns > HA_INC_AGAIN_MAX_NS)
		mesh->pause_ns = HA_INC_AGAIN_MAX_NS;
}

static bool connect_to(struct ha_mesh *mesh, uint16_t member, const struct ha_edge_address *child,
		       const struct ha_edge_address *parent)
{
	return ha_edge_connect(ha_tree_edge(mesh->tree, member), child) == HA_OK &&
	       ha_edge_connect(ha_member_edge(mesh->member, member), parent) == HA_OK;
}

static bool connect_to_itself(struct ha_mesh *mesh)
{
	const uint16_t own = mesh->shape.number;
	struct ha_edge_address child, parent;

	ha_edge_address(ha_member_edge(mesh->member, own), &child);
	ha_edge_address(ha_tree_edge(mesh->tree, own), &parent);
	mesh->linking[own] = HA_INC_LINK_KNOWS;
	return connect_to(mesh, own, &child, &parent);
}

/* LINK_KNOWS: whoever contributes before the other one's end is connected is not heard. */
static void look_whether_linked(struct ha_mesh *mesh)
{
	for (uint16_t m = 0; m < mesh->shape.members; m++)
		if (mesh->linking[m] != HA_INC_LINK_KNOWS)
			return;
	mesh->state = HA_MESH_LINKED;
	ha_member_wait(mesh->member, false);
}

static bool opens(struct ha_mesh *mesh)
{
	const struct ha_mesh_shape *shape = &mesh->shape;
	const struct ha_tree_shape tree = {
	    .lane = {shape->members, true, share(mesh), shape->unit_bytes},
	    .epoch = mesh->epoch,
	    .group = shape->group,
	};

	return ha_member_join(mesh->member, shape->members, share(mesh)) == HA_OK &&
	       ha_tree_open(&tree, ha_member_port(mesh->member), &mesh->tree) == HA_OK &&
	       connect_to_itself(mesh);
}

void ha_mesh_join(struct ha_mesh *mesh, uint32_t epoch, uint64_t now_ns)
{
	if (ha_mesh_close(mesh) != HA_OK) {
		fail(mesh, "the device does not let go of an earlier epoch's queue pairs");
		return;
	}
	*mesh = (struct ha_mesh){.shape = mesh->shape,
				 .member = mesh->member,
				 .say = mesh->say,
				 .arg = mesh->arg,
				 .state = HA_MESH_LINKING,
				 .epoch = epoch,
				 .pause_ns = HA_INC_AGAIN_NS,
				 .until_ns = now_ns + mesh->shape.limit_ns};
	if (!opens(mesh)) {
		fail(mesh, "the device gives no queue pairs to the other members");
		return;
	}
	ha_member_wait(mesh->member, true);
	say_now(mesh, now_ns);
	look_whether_linked(mesh); /* a group of one */
}

/* LINK_EPOCH: ends of another epoch are of queue pairs that are gone, or not there yet. */
static bool counts(const struct ha_mesh *mesh, const struct ha_inc_frame *frame)
{
	return (mesh->state == HA_MESH_LINKING || mesh->state == HA_MESH_LINKED) &&
	       frame->group == mesh->shape.group && frame->epoch == mesh->epoch &&
	       frame->link.to == mesh->shape.number && frame->member != mesh->shape.number &&
	       frame->member < mesh->shape.members;
}

void ha_mesh_hear(struct ha_mesh *mesh, const struct ha_inc_frame *frame)
{
	const struct ha_inc_link *link = &frame->link;
	const uint16_t from = frame->member;
	enum ha_inc_linking *linking = &mesh->linking[from];

	if (!counts(mesh, frame))
		return;
	if (*linking == HA_INC_LINK_ALONE) {
		if (!connect_to(mesh, from, &link->child, &link->parent)) {
			fail(mesh, "the device does not connect to another member");
			return;
		}
		*linking = HA_INC_LINK_HAS;
	}
	if (link->state != HA_INC_LINK_ALONE)
		*linking = HA_INC_LINK_KNOWS;
	if (link->state != HA_INC_LINK_KNOWS) /* LINK_AGAIN: it has to hear more */
		say_to(mesh, from);
	if (mesh->state == HA_MESH_LINKING)
		look_whether_linked(mesh);
}

/* ---- adding --------------------------------------------------------------------------------- */

bool ha_mesh_progress(struct ha_mesh *mesh)
{
	unsigned int child;
	bool moved;

	if (mesh->state != HA_MESH_LINKING && mesh->state != HA_MESH_LINKED)
		return false;
	moved = ha_tree_progress(mesh->tree);
	switch (ha_tree_fault(mesh->tree, &child)) {
	case HA_TREE_SOUND:
		break;
	case HA_TREE_DISAGREES:
		mesh->dispute = *ha_tree_dispute(mesh->tree);
		fail(mesh, "members ask for different operations");
		break;
	case HA_TREE_EDGE:
	case HA_TREE_HEADER:
	case HA_TREE_LANE:
		fail(mesh, "an edge between members has failed");
		break;
	}
	return moved;
}

void ha_mesh_tick(struct ha_mesh *mesh, uint64_t now_ns)
{
	if (mesh->state == HA_MESH_LINKED)
		ha_tree_look(mesh->tree, now_ns);
	if (mesh->state != HA_MESH_LINKING)
		return;
	if (now_ns >= mesh->until_ns)
		fail(mesh, "not all members have answered in time");
	else if (now_ns >= mesh->again_ns)
		say_now(mesh, now_ns);
}

void ha_mesh_fence(struct ha_mesh *mesh)
{
	mesh->state = HA_MESH_CLOSED;
}

ha_result_t ha_mesh_close(struct ha_mesh *mesh)
{
	HA_TRY(ha_tree_close(mesh->tree));
	mesh->tree = NULL;
	mesh->state = HA_MESH_CLOSED;
	return HA_OK;
}
