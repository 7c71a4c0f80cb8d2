/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/groups.h"

#include "base/bytes.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

struct group {
	struct ha_list link;
	struct ha_part part;
	uint8_t key[HA_CTRL_SECRET_BYTES];
	uint64_t doubted_ns; /* since when the controller may not know it; 0: it does */
	uint64_t over_ns;    /* since when it is over; 0: it is not */
	uint32_t epoch;	     /* the latest that a child has come for */
	struct ha_list trees;
	uint8_t *thread;   /* of each place of the part; NULL: it is this one */
	unsigned away;	   /* children at other threads */
	bool is_forgotten; /* others were told to forget it, and it goes when nobody is there */
};

struct ns_tree {
	struct ns_line up;   /* first: lines are trees; to the parent, of others than the root */
	struct ha_list link; /* of its group, or of those that have ended */
	struct ns_groups *groups;
	struct group *group; /* NULL: it has ended */
	const struct ha_part_place *place;
	uint32_t epoch;
	uint64_t since_ns;
	struct ha_tree *tree;
	bool is_up; /* connected to its parent, or the root */
	struct ns_child *child[HA_PLAN_CHILDREN];
	unsigned here;
	bool some_left;
	bool is_left_above; /* a switch above wants it to be left */
};

static struct group *group_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct group, link);
}

static struct ns_tree *tree_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct ns_tree, link);
}

static struct group *find(const struct ns_groups *groups, uint64_t number)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &groups->all)
		if (group_at(pos)->part.group == number)
			return group_at(pos);
	return NULL;
}

/* ---- several threads ------------------------------------------------------------------------ */

void ns_groups_share(struct ns_groups *groups, unsigned threads,
		     void (*tell)(void *others, const struct ns_order *order), void *others)
{
	groups->sharing = (struct ns_sharing){.threads = threads, .tell = tell, .others = others};
}

static void tell(const struct ns_groups *groups, const struct ns_order *order)
{
	if (groups->sharing.threads > 1)
		groups->sharing.tell(groups->sharing.others, order);
}

/* Lanes have work, and spares when a lane is gone: so each sort is dealt by itself. */
static unsigned *dealt_like(struct ns_groups *groups, const struct group *group, unsigned place)
{
	return group->part.places[place].tree < group->part.lanes ? groups->sharing.lanes
								  : groups->sharing.spares;
}

/* To who has fewest; of several to the last one, since the first one has strangers to look at. */
static bool deal(struct ns_groups *groups, struct group *group)
{
	const unsigned threads = groups->sharing.threads;

	if (threads == 1)
		return true;
	group->thread = calloc(group->part.n ? group->part.n : 1, sizeof(*group->thread));
	for (unsigned i = 0; group->thread && i < group->part.n; i++) {
		unsigned *dealt = dealt_like(groups, group, i), to = threads - 1;

		for (unsigned t = threads - 1; t-- > 0;)
			to = dealt[t] < dealt[to] ? t : to;
		group->thread[i] = (uint8_t)to;
		dealt[to]++;
	}
	return group->thread != NULL;
}

static void take_back(struct ns_groups *groups, struct group *group)
{
	for (unsigned i = 0; group->thread && i < group->part.n; i++)
		dealt_like(groups, group, i)[group->thread[i]]--;
	free(group->thread);
}

static unsigned thread_of(const struct group *group, const struct ha_part_place *place)
{
	return group->thread ? group->thread[place - group->part.places] : 0;
}

void ns_groups_return(struct ns_groups *groups, const struct ns_child *child)
{
	find(groups, child->join.group)->away--; /* it is kept for that */
	groups->sharing.away--;
}

bool ns_groups_are_left(const struct ns_groups *groups)
{
	return groups->n_trees == 0 && groups->sharing.away == 0;
}

/* ---- the end of a tree ---------------------------------------------------------------------- */

/* False: the device does not let go of it. */
static bool free_tree(struct ns_tree *tree)
{
	if (ha_tree_close(tree->tree) != HA_OK)
		return false;
	ha_list_remove(&tree->link);
	free(tree);
	return true;
}

static void add_work(struct ha_switch_counts *counts, const struct ns_tree *tree)
{
	const struct ha_tree_work work = ha_tree_work(tree->tree);

	counts->units += work.units;
	counts->unit_bytes += work.bytes;
}

/* Its children are told by the end of their connections, which the server closes. */
static void end_tree(struct ns_tree *tree)
{
	for (unsigned i = 0; i < HA_PLAN_CHILDREN; i++) {
		if (!tree->child[i])
			continue;
		tree->child[i]->tree = NULL;
		ha_talk_end(&tree->child[i]->line.talk);
	}
	ha_talk_end(&tree->up.talk);
	add_work(&tree->groups->counts, tree);
	tree->group = NULL;
	tree->groups->n_trees--;
	ha_list_remove(&tree->link);
	ha_list_push_back(&tree->groups->ended, &tree->link);
}

static void free_ended(struct ns_groups *groups)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &groups->ended)
		(void)free_tree(tree_at(pos));
}

static void end_trees_before(struct group *group, uint32_t epoch)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &group->trees)
		if (tree_at(pos)->epoch < epoch)
			end_tree(tree_at(pos));
}

static void end_trees(struct group *group)
{
	while (!ha_list_empty(&group->trees))
		end_tree(tree_at(group->trees.next));
}

static void free_group(struct ns_groups *groups, struct group *group)
{
	end_trees(group);
	take_back(groups, group);
	ha_list_remove(&group->link);
	ha_part_free(&group->part);
	explicit_bzero(group->key, sizeof(group->key));
	free(group);
}

/* It is kept until its children have come back from other threads, whose trees end. */
static void forget(struct ns_groups *groups, struct group *group)
{
	if (!group->is_forgotten)
		tell(groups, &(struct ns_order){NS_ORDER_FORGET, .group = group->part.group});
	group->is_forgotten = true;
	end_trees(group);
	if (group->away == 0)
		free_group(groups, group);
}

/* ---- life ----------------------------------------------------------------------------------- */

void ns_groups_begin(struct ns_groups *groups, struct ha_port *port, const struct ha_job_key *site,
		     int epoll)
{
	*groups = (struct ns_groups){.port = port, .site = site, .epoll = epoll};
	ha_list_init(&groups->all);
	ha_list_init(&groups->ended);
	ns_groups_share(groups, 1, NULL, NULL);
}

bool ns_groups_end(struct ns_groups *groups)
{
	while (!ha_list_empty(&groups->all))
		free_group(groups, group_at(groups->all.next));
	free_ended(groups);
	return ha_list_empty(&groups->ended);
}

/* ---- the controller's word ------------------------------------------------------------------ */

static bool install(struct ns_groups *groups, const struct ha_talk_frame *frame)
{
	struct group *group, *known;

	group = calloc(1, sizeof(*group));
	if (!group || !ha_part_decode(frame->text, frame->length, &group->part)) {
		free(group);
		return false;
	}
	known = find(groups, group->part.group);
	if (known) {
		known->doubted_ns = known->over_ns = 0;
		known->is_forgotten = false;
	}
	if (known || !deal(groups, group)) {
		ha_part_free(&group->part);
		free(group);
		return known != NULL;
	}
	memcpy(group->key, frame->secret, sizeof(group->key));
	ha_list_init(&group->trees);
	ha_list_push_back(&groups->all, &group->link);
	return true;
}

bool ns_groups_install(struct ns_groups *groups, const struct ha_talk_frame *frame)
{
	const bool good = install(groups, frame);

	if (good) /* also of one that is known here, as others may have been told to forget it */
		tell(groups, &(struct ns_order){NS_ORDER_INSTALL, .frame = frame});
	return good;
}

/* Its members are about to go by themselves, from below, and a tree that waits for that tells
 * nobody below that it is gone. */
void ns_groups_remove(struct ns_groups *groups, const struct ha_talk_frame *frame, uint64_t now_ns)
{
	struct ha_reader r = {frame->text};
	struct group *group = frame->length == 8 ? find(groups, ha_get64(&r)) : NULL;

	if (group)
		group->over_ns = now_ns;
}

void ns_groups_doubt(struct ns_groups *groups, uint64_t now_ns)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &groups->all)
		if (!group_at(pos)->doubted_ns)
			group_at(pos)->doubted_ns = now_ns;
}

/* ---- an end that is announced ---------------------------------------------------------------- */

static void ask_to_leave(struct ns_tree *tree, struct ns_child *child)
{
	(void)ha_talk_say(&child->line.talk, HA_CTRL_DRAIN, NULL, "", 0);
	ns_line_watch(&child->line, tree->groups->epoll);
}

/* Three reasons, each with its own end: so each is a mark of its own. */
static bool is_to_be_left(const struct ns_tree *tree)
{
	return tree->groups->is_drained || tree->groups->is_ending || tree->is_left_above;
}

/* Before there is one more reason. Who is a switch asks its own children. */
static void ask_all_to_leave(struct ns_tree *tree)
{
	if (is_to_be_left(tree))
		return;
	for (unsigned i = 0; i < HA_PLAN_CHILDREN; i++)
		if (tree->child[i])
			ask_to_leave(tree, tree->child[i]);
}

/* ---- the way up ----------------------------------------------------------------------------- */

static void say_up(struct ns_tree *tree)
{
	struct ha_join join = {.group = tree->group->part.group,
			       .epoch = tree->epoch,
			       .node = tree->place->parent,
			       .place = tree->place->place,
			       .tree = tree->place->tree};
	uint8_t text[HA_JOIN_BYTES];

	ha_edge_address(ha_tree_edge(tree->tree, HA_UNIT_UP), &join.edge);
	ha_join_encode(&join, text);
	ha_talk_say(&tree->up.talk, HA_CTRL_JOIN, tree->group->key, text, sizeof(text));
}

static bool connect_up(struct ns_tree *tree)
{
	const struct ha_talk_frame *heard = &tree->up.talk.heard;
	struct ha_edge_address remote;

	tree->is_up = heard->kind == HA_CTRL_JOINED && !tree->is_up &&
		      ha_edge_address_decode(heard->text, heard->length, &remote) &&
		      ha_edge_connect(ha_tree_edge(tree->tree, HA_UNIT_UP), &remote) == HA_OK;
	return tree->is_up;
}

static void fail(struct ns_tree *tree, const char *what, const char *why)
{
	if (!tree->some_left) /* else it is at its end, and that is no news */
		fprintf(stderr,
			"nccl-ha-switchd: tree %u of group %016llx, epoch %u, has ended: %s%s\n",
			tree->place->tree, (unsigned long long)tree->group->part.group, tree->epoch,
			what, why);
	tree->groups->counts.trees_failed += !tree->some_left;
	end_tree(tree);
}

/* No other tree would help, so who is below is to know more than that this one ends. */
static void pass_dispute(const struct ns_tree *tree, const uint8_t bytes[HA_DISPUTE_BYTES])
{
	for (unsigned i = 0; i < HA_PLAN_CHILDREN; i++)
		if (tree->child[i])
			(void)ha_talk_say(&tree->child[i]->line.talk, HA_CTRL_DISPUTE, NULL, bytes,
					  HA_DISPUTE_BYTES);
}

static void look_up(struct ns_line *line, uint64_t now_ns)
{
	struct ns_tree *tree = (struct ns_tree *)line;
	enum ha_talk_event event;

	(void)now_ns;
	while ((event = ha_talk_next(&line->talk)) != HA_TALK_NOTHING) {
		if (event == HA_TALK_OPENED) {
			say_up(tree);
		} else if (event == HA_TALK_ENDED) {
			fail(tree, "the switch above: ", line->talk.why);
			return;
		} else if (tree->is_up && line->talk.heard.kind == HA_CTRL_DRAIN) {
			ask_all_to_leave(tree);
			tree->is_left_above = true;
		} else if (tree->is_up && line->talk.heard.kind == HA_CTRL_DISPUTE &&
			   line->talk.heard.length == HA_DISPUTE_BYTES) {
			pass_dispute(tree, line->talk.heard.text); /* its end comes next */
		} else if (!connect_up(tree)) {
			fail(tree, "the switch above answers with what is no end of an edge", "");
			return;
		}
	}
	ns_line_watch(line, tree->groups->epoll);
}

static void dial_up(struct ns_tree *tree)
{
	ns_line_begin(&tree->up, look_up);
	tree->up.talk.fd = -1;
	tree->up.talk.phase = HA_TALK_OVER;
	tree->is_up = tree->place->parent == HA_PLAN_NONE;
	if (tree->is_up)
		return;
	ha_talk_dial(&tree->up.talk, &tree->place->at, tree->groups->site, HA_CTRL_ASK_MAX);
	ns_line_watch(&tree->up, tree->groups->epoll);
}

/* ---- who joins ------------------------------------------------------------------------------ */

static struct ns_tree *find_tree(const struct group *group, const struct ha_part_place *place,
				 uint32_t epoch)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &group->trees)
		if (tree_at(pos)->place == place && tree_at(pos)->epoch == epoch)
			return tree_at(pos);
	return NULL;
}

static struct ns_tree *make_tree(struct ns_groups *groups, struct group *group,
				 const struct ha_part_place *place, uint32_t epoch, uint64_t now_ns)
{
	const struct ha_tree_shape shape = {
	    .lane = {place->children, place->parent == HA_PLAN_NONE, group->part.window,
		     group->part.unit_bytes},
	    .is_inner_below = place->inner_below,
	    .epoch = epoch,
	    .group = group->part.group,
	};
	struct ns_tree *tree = calloc(1, sizeof(*tree));
	ha_result_t result;

	if (!tree)
		return NULL;
	*tree = (struct ns_tree){
	    .groups = groups, .group = group, .place = place, .epoch = epoch, .since_ns = now_ns};
	result = ha_tree_open(&shape, groups->port, &tree->tree);
	ha_list_push_back(result == HA_OK ? &group->trees : &groups->ended, &tree->link);
	if (result != HA_OK) {
		(void)free_tree(tree);
		return NULL;
	}
	groups->n_trees++;
	groups->counts.trees_made++;
	dial_up(tree);
	return tree;
}

/* Its members have destroyed all edges of the epochs before, or it would not have begun. */
static void begin_epoch(struct ns_groups *groups, struct group *group, uint32_t epoch)
{
	if (epoch <= group->epoch)
		return;
	group->epoch = epoch;
	end_trees_before(group, epoch);
	tell(groups, &(struct ns_order){NS_ORDER_EPOCH, group->part.group, epoch, NULL});
}

/* Where a child wants to be; NULL: `why` says why not. */
static const struct ha_part_place *place_for(struct ns_groups *groups, struct group *group,
					     const struct ha_join *join, const char **why)
{
	const struct ha_part_place *place = ha_part_find(&group->part, join->tree, join->node);

	*why = "this switch has no such place in the group's plan";
	if (!place || join->place >= place->children)
		return NULL;
	*why = "that epoch is over";
	if (join->epoch < group->epoch)
		return NULL;
	begin_epoch(groups, group, join->epoch);
	return place;
}

static struct ns_tree *tree_for(struct ns_groups *groups, struct group *group,
				const struct ha_part_place *place, const struct ha_join *join,
				uint64_t now_ns, const char **why)
{
	struct ns_tree *tree = find_tree(group, place, join->epoch);

	if (!tree)
		tree = make_tree(groups, group, place, join->epoch, now_ns);
	*why = "the switch's device gives no memory or queue pairs";
	if (tree && tree->child[join->place])
		*why = "that place is taken";
	return tree && !tree->child[join->place] ? tree : NULL;
}

/* To another thread, whose trees nobody touches but itself. */
static enum ns_admission send_away(struct ns_groups *groups, struct group *group,
				   struct ns_child *child, unsigned thread)
{
	child->thread = thread;
	group->away++;
	groups->sharing.away++;
	return NS_AWAY;
}

static bool answer(struct ns_tree *tree, struct ns_child *child)
{
	struct ha_edge *edge = ha_tree_edge(tree->tree, child->join.place);
	struct ha_edge_address own;
	uint8_t text[HA_EDGE_ADDRESS_BYTES];

	if (ha_edge_connect(edge, &child->join.edge) != HA_OK)
		return false;
	ha_edge_address(edge, &own);
	ha_edge_address_encode(&own, text);
	return ha_talk_say(&child->line.talk, HA_CTRL_JOINED, NULL, text, sizeof(text));
}

enum ns_admission ns_groups_admit(struct ns_groups *groups, struct ns_child *child, uint64_t now_ns,
				  const char **why)
{
	struct group *group = find(groups, child->join.group);
	const struct ha_part_place *place;
	struct ns_tree *tree;

	if (!group || group->over_ns)
		return NS_WAITS;
	*why = groups->is_ending ? "this switch is about to end" : "this switch is drained";
	if (groups->is_ending || groups->is_drained)
		return NS_REFUSED;
	*why = "it has not the group's key";
	if (!ha_same_secret(child->secret, group->key, sizeof(group->key)))
		return NS_REFUSED;
	place = place_for(groups, group, &child->join, why);
	if (!place)
		return NS_REFUSED;
	if (thread_of(group, place) != 0)
		return send_away(groups, group, child, thread_of(group, place));
	tree = tree_for(groups, group, place, &child->join, now_ns, why);
	if (!tree)
		return NS_REFUSED;
	if (!answer(tree, child)) {
		fail(tree, "a child cannot be connected to", "");
		*why = "the edge cannot be connected";
		return NS_REFUSED;
	}
	child->tree = tree;
	tree->child[child->join.place] = child;
	tree->here++;
	if (is_to_be_left(tree))
		ask_to_leave(tree, child);
	return NS_JOINED;
}

void ns_groups_leave(struct ns_groups *groups, struct ns_child *child)
{
	struct ns_tree *tree = child->tree;

	(void)groups;
	if (!tree)
		return;
	child->tree = NULL;
	tree->child[child->join.place] = NULL;
	tree->some_left = true;
	if (--tree->here == 0)
		end_tree(tree);
}

static void each_tree(struct ns_groups *groups, void (*act)(struct ns_tree *tree))
{
	struct ha_list *g, *t;

	ha_list_for_each (g, &groups->all)
		ha_list_for_each (t, &group_at(g)->trees)
			act(tree_at(t));
}

void ns_groups_drain(struct ns_groups *groups)
{
	each_tree(groups, ask_all_to_leave);
	groups->is_drained = true;
	tell(groups, &(struct ns_order){.kind = NS_ORDER_DRAIN});
}

void ns_groups_undrain(struct ns_groups *groups)
{
	groups->is_drained = false;
	tell(groups, &(struct ns_order){.kind = NS_ORDER_UNDRAIN});
}

void ns_groups_announce_end(struct ns_groups *groups)
{
	each_tree(groups, ask_all_to_leave);
	groups->is_ending = true;
	tell(groups, &(struct ns_order){.kind = NS_ORDER_END});
}

static void obey_of_group(struct ns_groups *groups, const struct ns_order *order)
{
	struct group *group = find(groups, order->group);

	if (group && order->kind == NS_ORDER_EPOCH)
		begin_epoch(groups, group, order->epoch);
	else if (group)
		forget(groups, group);
}

void ns_groups_obey(struct ns_groups *groups, const struct ns_order *order)
{
	switch (order->kind) {
	case NS_ORDER_INSTALL:
		if (!ns_groups_install(groups, order->frame)) /* its children are refused */
			fprintf(stderr, "nccl-ha-switchd: a thread has no memory for a group\n");
		return;
	case NS_ORDER_EPOCH:
	case NS_ORDER_FORGET:
		obey_of_group(groups, order);
		return;
	case NS_ORDER_DRAIN:
		ns_groups_drain(groups);
		return;
	case NS_ORDER_UNDRAIN:
		ns_groups_undrain(groups);
		return;
	case NS_ORDER_END:
		ns_groups_announce_end(groups);
		return;
	}
}

/* ---- adding --------------------------------------------------------------------------------- */

static const char *const faults[] = {
    [HA_TREE_SOUND] = "nothing",
    [HA_TREE_EDGE] = "an edge has failed",
    [HA_TREE_HEADER] = "a child sent what is no unit of this tree",
    [HA_TREE_DISAGREES] = "members do not ask for the same: ",
    [HA_TREE_LANE] = "the order of what came cannot be",
};

static void end_dispute(struct ns_tree *tree, const struct ha_dispute *dispute)
{
	uint8_t bytes[HA_DISPUTE_BYTES];
	char text[160];

	ha_dispute_encode(dispute, bytes);
	pass_dispute(tree, bytes);
	ha_dispute_text(dispute, text, sizeof(text));
	fail(tree, faults[HA_TREE_DISAGREES], text);
}

static void look_at_fault(struct ns_tree *tree)
{
	unsigned child;
	const enum ha_tree_fault fault = ha_tree_fault(tree->tree, &child);
	char which[32];

	if (fault == HA_TREE_SOUND)
		return;
	if (fault == HA_TREE_DISAGREES) {
		end_dispute(tree, ha_tree_dispute(tree->tree));
		return;
	}
	if (child == HA_UNIT_UP)
		snprintf(which, sizeof(which), ", above");
	else
		snprintf(which, sizeof(which), ", child %u", child);
	fail(tree, faults[fault], which);
}

static bool progress_of(struct group *group)
{
	struct ha_list *pos, *after;
	bool moved = false;

	ha_list_for_each_safe (pos, after, &group->trees) {
		if (!tree_at(pos)->is_up)
			continue;
		moved |= ha_tree_progress(tree_at(pos)->tree);
		look_at_fault(tree_at(pos));
	}
	return moved;
}

void ns_groups_count(const struct ns_groups *groups, struct ha_switch_counts *counts)
{
	struct ha_list *g, *t;

	*counts = groups->counts;
	counts->trees = groups->n_trees;
	ha_list_for_each (g, &groups->all)
		ha_list_for_each (t, &group_at(g)->trees)
			add_work(counts, tree_at(t));
}

bool ns_groups_progress(struct ns_groups *groups)
{
	struct ha_list *pos;
	bool moved = false;

	ha_list_for_each (pos, &groups->all)
		moved |= progress_of(group_at(pos));
	return moved;
}

void ns_groups_look(struct ns_groups *groups, uint64_t now_ns)
{
	struct ha_list *g, *t;

	ha_list_for_each (g, &groups->all)
		ha_list_for_each (t, &group_at(g)->trees)
			ha_tree_look(tree_at(t)->tree, now_ns);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* By some thread. */
static bool is_used(const struct group *group)
{
	return !ha_list_empty(&group->trees) || group->away > 0;
}

static void look_at_limits(struct group *group, uint64_t now_ns)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &group->trees)
		if (!tree_at(pos)->is_up && now_ns - tree_at(pos)->since_ns > NS_UP_NS)
			fail(tree_at(pos), "the switch above does not answer in time", "");
	if (is_used(group) && group->doubted_ns)
		group->doubted_ns = now_ns; /* it lives */
}

static bool is_past(const struct group *group, uint64_t now_ns)
{
	if (group->over_ns)
		return !is_used(group) || now_ns - group->over_ns > NS_OVER_NS;
	return group->doubted_ns && now_ns - group->doubted_ns > NS_FORGOTTEN_NS;
}

void ns_groups_tick(struct ns_groups *groups, uint64_t now_ns)
{
	struct ha_list *pos, *after;

	free_ended(groups);
	ha_list_for_each_safe (pos, after, &groups->all) {
		struct group *group = group_at(pos);

		look_at_limits(group, now_ns);
		if (is_past(group, now_ns))
			forget(groups, group);
	}
}
