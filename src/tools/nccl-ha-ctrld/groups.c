/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/groups.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "tools/nccl-ha-ctrld/plan_json.h"
#include "tools/nccl-ha-ctrld/receipt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { GATHERING, HELD, ORPHANED, REFUSED, GONE, STATES };
enum event {
	PLANNED,     /* all members are there, and there is a plan */
	UNPLANNED,   /* there will be none */
	MEMBER_LOST, /* another one than member 0 */
	LEADER_LOST,
	LEADER_BACK,
	LEFT,	  /* member 0 says that it is over */
	GIVEN_UP, /* before all were there a member waits no longer */
	EXPIRED,
	EVENTS
};

/* Where events lead. GONE is also what cannot be: nothing is done for it but to end the group. */
static const enum state next_states[STATES][EVENTS] = {
    [GATHERING] = {[PLANNED] = HELD,
		   [UNPLANNED] = REFUSED,
		   [MEMBER_LOST] = REFUSED,
		   [LEADER_LOST] = REFUSED,
		   [LEADER_BACK] = GONE,
		   [LEFT] = REFUSED,
		   [GIVEN_UP] = GONE,
		   [EXPIRED] = REFUSED},
    [HELD] = {[PLANNED] = GONE,
	      [UNPLANNED] = GONE,
	      [MEMBER_LOST] = HELD,
	      [LEADER_LOST] = ORPHANED,
	      [LEADER_BACK] = HELD,
	      [LEFT] = GONE,
	      [GIVEN_UP] = REFUSED,
	      [EXPIRED] = HELD},
    [ORPHANED] = {[PLANNED] = GONE,
		  [UNPLANNED] = GONE,
		  [MEMBER_LOST] = ORPHANED,
		  [LEADER_LOST] = ORPHANED,
		  [LEADER_BACK] = HELD,
		  [LEFT] = GONE,
		  [GIVEN_UP] = REFUSED,
		  [EXPIRED] = GONE},
    [REFUSED] = {[PLANNED] = GONE,
		 [UNPLANNED] = REFUSED,
		 [MEMBER_LOST] = REFUSED,
		 [LEADER_LOST] = REFUSED,
		 [LEADER_BACK] = REFUSED,
		 [LEFT] = REFUSED,
		 [GIVEN_UP] = REFUSED,
		 [EXPIRED] = GONE},
    [GONE] = {GONE, GONE, GONE, GONE, GONE, GONE, GONE, GONE},
};

static const char *const state_names[STATES] = {[GATHERING] = "gathering",
						[HELD] = "held",
						[ORPHANED] = "orphaned",
						[REFUSED] = "refused",
						[GONE] = "gone"};

struct nc_group {
	struct ha_list link;
	enum state state;
	char name[NC_GROUP_NAME], label[NC_NAME_MAX];
	unsigned ranks, here;
	bool has_begun;		    /* member 0 has said that all have come to it */
	struct nc_member **members; /* by rank; NULL: nobody */
	unsigned *ports;	    /* by rank: vertex; NC_NO_VERTEX: has not asked */
	struct nc_ask leader;	    /* once member 0 has asked */
	uint64_t deadline_ns;	    /* 0: none */
	struct nc_plan plan;	    /* HELD, ORPHANED */
	struct nc_parts parts;	    /* of it */
	uint32_t epoch, way;	    /* as member 0 said last */
	uint64_t number;	    /* by which switches know it */
	uint8_t key[HA_CTRL_SECRET_BYTES];
	struct nc_text *verdict; /* HELD, ORPHANED, REFUSED */
};

/* ---- text ------------------------------------------------------------------------------------ */

struct nc_text *nc_text_new(const char *bytes, size_t length)
{
	struct nc_text *text = length <= HA_CTRL_TEXT_MAX ? malloc(sizeof(*text) + length) : NULL;

	if (!text)
		return NULL;
	text->users = 1;
	text->length = (uint32_t)length;
	memcpy(text->bytes, bytes, length);
	ha_sha256(bytes, length, text->digest);
	return text;
}

void nc_text_release(struct nc_text *text)
{
	if (text && --text->users == 0)
		free(text);
}

struct nc_text *nc_text_of(json_t *json)
{
	char *bytes = json ? json_dumps(json, JSON_COMPACT) : NULL;
	struct nc_text *text = bytes ? nc_text_new(bytes, strlen(bytes)) : NULL;

	free(bytes);
	json_decref(json);
	return text;
}

/* ---- groups ---------------------------------------------------------------------------------- */

bool nc_groups_begin(struct nc_groups *groups, const struct nc_topology *topology)
{
	groups->topology = topology;
	groups->n = 0;
	ha_list_init(&groups->all);
	groups->serving = calloc(topology->n_switches + 1, sizeof(struct nc_serving *));
	groups->at = calloc(topology->n_switches + 1, sizeof(*groups->at));
	groups->counted = calloc(topology->n_switches + 1, sizeof(*groups->counted));
	groups->drains = calloc(topology->n_switches + 1, sizeof(*groups->drains));
	if (!nc_use_begin(&groups->use, topology) || !groups->serving || !groups->at ||
	    !groups->counted || !groups->drains)
		return false;
	for (unsigned i = 0; i < topology->n_switches; i++)
		groups->use.switches[i].is_idle = true;
	return true;
}

static struct nc_group *group_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct nc_group, link);
}

static struct nc_group *find(const struct nc_groups *groups, const char *name)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &groups->all)
		if (!strcmp(group_at(pos)->name, name))
			return group_at(pos);
	return NULL;
}

/* ---- what switches hear ---------------------------------------------------------------------- */

static void instruct(struct nc_groups *groups, struct nc_serving *serving, enum ha_ctrl_kind kind,
		     const void *bytes, size_t length, const uint8_t *key)
{
	struct nc_text *text = nc_text_new(bytes, length);

	if (text)
		groups->instruct(groups->arg, serving, kind, text, key);
	nc_text_release(text);
}

/* Nothing where the switch is not in the group's plan. Without memory it does not hear of it, and
 * children that come are not let in. */
static void install(struct nc_groups *groups, const struct nc_group *group,
		    struct nc_serving *serving)
{
	size_t length;
	uint8_t *part = nc_part_of_switch(&group->parts, serving->vertex, &length);

	if (part)
		instruct(groups, serving, HA_CTRL_PART, part, length, group->key);
	free(part);
}

static void install_everywhere(struct nc_groups *groups, const struct nc_group *group)
{
	for (unsigned i = 0; i < groups->topology->n_switches; i++)
		if (groups->serving[i])
			install(groups, group, groups->serving[i]);
}

static void remove_everywhere(struct nc_groups *groups, const struct nc_group *group)
{
	uint8_t number[8];
	struct ha_writer w = {number};

	ha_put_uint(&w, group->number, sizeof(number));
	for (unsigned i = 0; i < groups->topology->n_switches; i++)
		if (groups->serving[i])
			instruct(groups, groups->serving[i], HA_CTRL_OVER, number, sizeof(number),
				 NULL);
}

/* Nothing is added where nobody is to add it. */
static void set_idle(struct nc_groups *groups, unsigned i)
{
	groups->use.switches[i].is_idle = !groups->serving[i] || groups->drains[i].is_on;
}

static void tell_whether_drained(struct nc_groups *groups, unsigned i)
{
	instruct(groups, groups->serving[i], groups->drains[i].is_on ? HA_CTRL_DRAIN : HA_CTRL_GO,
		 "", 0, NULL);
}

bool nc_groups_serve(struct nc_groups *groups, struct nc_serving *serving,
		     const struct nc_service *service, char *why, size_t size)
{
	const unsigned vertex = service->vertex, i = vertex - groups->topology->n_ports;
	struct nc_drain *drain = &groups->drains[i];
	struct ha_list *pos;

	if (groups->serving[i]) {
		snprintf(why, size, "another program serves %s",
			 nc_vertex_name(groups->topology, vertex));
		return false;
	}
	*serving = (struct nc_serving){true, vertex};
	groups->serving[i] = serving;
	groups->at[i] = service->at;
	*drain = (struct nc_drain){drain->is_settled ? drain->is_on : service->is_drained, true};
	set_idle(groups, i);
	instruct(groups, serving, HA_CTRL_GO, "", 0, NULL);
	if (drain->is_on)
		tell_whether_drained(groups, i);
	ha_list_for_each (pos, &groups->all)
		if (group_at(pos)->plan.n_members > 0)
			install(groups, group_at(pos), serving);
	return true;
}

bool nc_groups_count(struct nc_groups *groups, const struct nc_serving *serving, const void *text,
		     size_t length)
{
	struct nc_counted *counted;

	if (!serving->is_on)
		return false;
	counted = &groups->counted[serving->vertex - groups->topology->n_ports];
	counted->is_said = ha_switch_counts_decode(text, length, &counted->counts);
	return counted->is_said;
}

void nc_groups_unserve(struct nc_groups *groups, struct nc_serving *serving)
{
	const unsigned i = serving->vertex - groups->topology->n_ports;

	if (serving->is_on) {
		groups->serving[i] = NULL;
		groups->counted[i].is_said = false;
		set_idle(groups, i);
	}
	*serving = (struct nc_serving){0};
}

/* What its program has counted before may be of who has joined since. */
void nc_groups_drain(struct nc_groups *groups, unsigned vertex, bool is_on)
{
	const unsigned i = vertex - groups->topology->n_ports;

	groups->drains[i] = (struct nc_drain){is_on, true};
	set_idle(groups, i);
	if (!groups->serving[i])
		return;
	groups->counted[i].is_said = false;
	tell_whether_drained(groups, i);
}

/* ---- the end of one -------------------------------------------------------------------------- */

static void release_plan(struct nc_groups *groups, struct nc_group *group)
{
	if (group->plan.n_members == 0)
		return;
	remove_everywhere(groups, group);
	nc_parts_end(&group->parts);
	nc_unplace(&groups->use, &group->plan);
}

/* It is in no state any more. */
static void free_group(struct nc_groups *groups, struct nc_group *group)
{
	for (unsigned i = 0; i < group->ranks; i++)
		if (group->members[i])
			*group->members[i] = (struct nc_member){0};
	release_plan(groups, group);
	ha_list_remove(&group->link);
	groups->n--;
	nc_text_release(group->verdict);
	explicit_bzero(group->key, sizeof(group->key));
	free(group->members);
	free(group->ports);
	free(group);
}

void nc_groups_end(struct nc_groups *groups)
{
	while (!ha_list_empty(&groups->all))
		free_group(groups, group_at(groups->all.next));
	free(groups->serving);
	free(groups->at);
	free(groups->counted);
	free(groups->drains);
	nc_use_end(&groups->use);
}

static void tell_part(struct nc_groups *groups, struct nc_group *group, unsigned rank)
{
	size_t length;
	uint8_t *part = nc_part_of_member(&group->parts, rank, &length);
	struct nc_text *text = part ? nc_text_new((const char *)part, length) : NULL;

	if (text)
		groups->answer(groups->arg, group->members[rank], HA_CTRL_PART, text, group->key);
	nc_text_release(text);
	free(part);
}

/* Without one the group is not known to the next controller. */
static void tell_receipt(struct nc_groups *groups, struct nc_group *group)
{
	const struct nc_receipt receipt = {.leader = group->leader,
					   .number = group->number,
					   .ports = group->ports,
					   .plan = group->plan};
	struct nc_text *text = nc_receipt_write(groups->topology, &receipt, group->parts.at);

	if (text)
		groups->answer(groups->arg, group->members[0], HA_CTRL_RECEIPT, text, group->key);
	nc_text_release(text);
}

static void tell(struct nc_groups *groups, struct nc_group *group, unsigned rank)
{
	const bool is_plan = group->plan.n_members > 0;

	groups->answer(groups->arg, group->members[rank], is_plan ? HA_CTRL_PLAN : HA_CTRL_NONE,
		       group->verdict, is_plan ? group->key : NULL);
	if (is_plan && rank == 0)
		tell_receipt(groups, group);
	if (is_plan)
		tell_part(groups, group, rank);
}

static void enter(struct nc_groups *groups, struct nc_group *group, enum state state,
		  uint64_t now_ns)
{
	const enum state was = group->state;

	group->state = state;
	if (state == was)
		return;
	group->deadline_ns = state == ORPHANED	? now_ns + groups->lease_ns
			     : state == REFUSED ? now_ns + NC_LATE_NS
						: 0;
	if (was == GATHERING || state == REFUSED)
		for (unsigned i = 0; i < group->ranks && group->verdict; i++)
			if (group->members[i])
				tell(groups, group, i);
	if (state == GONE)
		free_group(groups, group);
}

/* The only way to another state. The group may be gone after it. */
static void happens(struct nc_groups *groups, struct nc_group *group, enum event event,
		    uint64_t now_ns)
{
	enter(groups, group, next_states[group->state][event], now_ns);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* What there will be for a group that is gathering, or has not begun. Without memory for a text
 * there is none to say, and its members' own time limits are left. */
__attribute__((format(printf, 5, 6))) static void refuse(struct nc_groups *groups,
							 struct nc_group *group, enum event event,
							 uint64_t now_ns, const char *format, ...)
{
	char why[320];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (group->state == GATHERING || event == GIVEN_UP) {
		release_plan(groups, group);
		nc_text_release(group->verdict);
		group->verdict =
		    nc_text_of(json_pack("{s:s, s:s}", "group", group->name, "why", why));
		groups->refusals++;
	}
	happens(groups, group, event, now_ns);
}

static unsigned with_label(const struct nc_groups *groups, const char *label)
{
	struct ha_list *pos;
	unsigned n = 0;

	ha_list_for_each (pos, &groups->all)
		n += group_at(pos)->plan.n_members > 0 && !strcmp(group_at(pos)->label, label);
	return n;
}

/* A fabric with quotas is for who has one. */
static bool check_quota(const struct nc_groups *groups, const struct nc_group *group, char *why,
			size_t size)
{
	const struct nc_quota *quota = nc_quota_find(groups->topology, group->label);

	if (groups->topology->n_quotas == 0)
		return true;
	if (!quota)
		snprintf(why, size, "there are quotas, and none for the label '%s'", group->label);
	else if (with_label(groups, group->label) >= (unsigned)quota->groups)
		snprintf(why, size, "the label %s has its %d groups already", group->label,
			 (int)quota->groups);
	else
		return true;
	return false;
}

static bool *gone_of(const struct nc_topology *t, const struct nc_ask *ask)
{
	bool *gone = calloc(nc_vertices(t) + 1, sizeof(*gone));

	for (unsigned i = 0; gone && i < ask->n_gone; i++)
		gone[ask->gone[i]] = true;
	return gone;
}

static bool place(struct nc_groups *groups, struct nc_group *group, char *why, size_t size)
{
	bool *gone = gone_of(groups->topology, &group->leader), good = false;
	const struct nc_wish wish = {group->ports,
				     group->ranks,
				     (unsigned)groups->topology->trees_per_group,
				     (unsigned)groups->topology->spare_trees,
				     (uint64_t)group->leader.unit_bytes * group->leader.window,
				     gone,
				     group->leader.is_reproducible};

	if (gone)
		good = nc_place(&groups->use, &wish, &group->plan, why, size);
	else
		snprintf(why, size, "the controller is out of memory");
	free(gone);
	return good;
}

static struct nc_text *plan_text(const struct nc_groups *groups, const struct nc_group *group)
{
	json_t *json = nc_plan_json(groups->topology, &group->plan, group->ports);

	if (json && json_object_set_new(json, "group", json_string(group->name)) != 0) {
		json_decref(json);
		return NULL;
	}
	return nc_text_of(json);
}

/* at: by switch, where its program listens. */
static bool make_parts(struct nc_groups *groups, struct nc_group *group,
		       const union ha_sockaddr *at)
{
	group->parts.whole = (struct ha_part){.group = group->number,
					      .unit_bytes = group->leader.unit_bytes,
					      .window = (uint16_t)group->leader.window,
					      .members = (uint16_t)group->ranks,
					      .lanes = (uint8_t)group->plan.n_lanes,
					      .spares = (uint8_t)group->plan.n_spares,
					      .leader = group->leader.listen};
	return nc_parts_begin(&group->parts, groups->topology, &group->plan, at);
}

static void judge(struct nc_groups *groups, struct nc_group *group, uint64_t now_ns)
{
	char why[256];

	if (!check_quota(groups, group, why, sizeof(why)) ||
	    !place(groups, group, why, sizeof(why))) {
		refuse(groups, group, UNPLANNED, now_ns, "%s", why);
		return;
	}
	group->number = ha_random();
	if (make_parts(groups, group, groups->at))
		group->verdict = plan_text(groups, group);
	if (!group->verdict) {
		nc_parts_end(&group->parts);
		nc_unplace(&groups->use, &group->plan);
		refuse(groups, group, UNPLANNED, now_ns,
		       "the plan of %u members is longer than %d bytes, or there is no memory",
		       group->ranks, HA_CTRL_TEXT_MAX);
		return;
	}
	ha_ctrl_nonce(group->key);
	groups->plans++;
	install_everywhere(groups, group);
	happens(groups, group, PLANNED, now_ns);
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* Verdicts that are kept for who comes late make room for who comes now. */
static bool make_room(struct nc_groups *groups)
{
	struct ha_list *pos;

	if (groups->n < NC_GROUPS)
		return true;
	ha_list_for_each (pos, &groups->all)
		if (group_at(pos)->state == REFUSED) {
			free_group(groups, group_at(pos));
			return true;
		}
	return false;
}

static struct nc_group *new_group(struct nc_groups *groups, const struct nc_ask *ask,
				  uint64_t now_ns)
{
	struct nc_group *group = make_room(groups) ? calloc(1, sizeof(*group)) : NULL;

	if (!group)
		return NULL;
	group->members = calloc(ask->ranks, sizeof(struct nc_member *));
	group->ports = calloc(ask->ranks, sizeof(*group->ports));
	if (!group->members || !group->ports) {
		free(group->members);
		free(group->ports);
		free(group);
		return NULL;
	}
	ha_copy_text(group->name, sizeof(group->name), ask->group);
	ha_copy_text(group->label, sizeof(group->label), ask->label);
	group->ranks = ask->ranks;
	for (unsigned i = 0; i < ask->ranks; i++)
		group->ports[i] = NC_NO_VERTEX;
	group->deadline_ns = now_ns + groups->verdict_ns;
	ha_list_push_back(&groups->all, &group->link);
	groups->n++;
	return group;
}

/* Members that do not agree about their group get no plan, all of them. */
static bool agrees(struct nc_groups *groups, struct nc_group *group, const struct nc_ask *ask,
		   uint64_t now_ns)
{
	if (ask->ranks == group->ranks && !strcmp(ask->label, group->label))
		return true;
	refuse(groups, group, UNPLANNED, now_ns,
	       "member %u says %u ranks and label '%s', others %u and '%s'", ask->rank, ask->ranks,
	       ask->label, group->ranks, group->label);
	return false;
}

static void join(struct nc_group *group, struct nc_member *member, const struct nc_ask *ask)
{
	*member = (struct nc_member){group, ask->rank};
	group->members[ask->rank] = member;
	group->here++;
	group->ports[ask->rank] = ask->port;
	if (ask->rank == 0)
		group->leader = *ask;
}

/* To a group that has its verdict. Who has a plan may come back for it, from the same port. */
static bool come_late(struct nc_groups *groups, struct nc_group *group, struct nc_member *member,
		      const struct nc_ask *ask, uint64_t now_ns, char *why, size_t size)
{
	if (group->plan.n_members > 0 && (ask->rank >= group->ranks || ask->ranks != group->ranks ||
					  group->ports[ask->rank] != ask->port)) {
		snprintf(why, size, "the group %s has a plan, and this is none of its members",
			 group->name);
		return false;
	}
	if (!group->verdict) {
		snprintf(why, size, "the controller is out of memory");
		return false;
	}
	if (group->plan.n_members == 0) {
		groups->answer(groups->arg, member, HA_CTRL_NONE, group->verdict, NULL);
		return true;
	}
	join(group, member, ask);
	tell(groups, group, ask->rank);
	if (ask->rank == 0)
		happens(groups, group, LEADER_BACK, now_ns);
	return true;
}

bool nc_groups_ask(struct nc_groups *groups, struct nc_member *member, const struct nc_ask *ask,
		   uint64_t now_ns, char *why, size_t size)
{
	struct nc_group *group = find(groups, ask->group);

	if (!group)
		group = new_group(groups, ask, now_ns);
	if (!group) {
		snprintf(why, size, "the controller has %u groups and no room for more", groups->n);
		return false;
	}
	if (ask->rank < group->ranks && group->members[ask->rank]) {
		snprintf(why, size, "member %u of group %s is there already", ask->rank,
			 group->name);
		return false;
	}
	if (group->state == GATHERING && agrees(groups, group, ask, now_ns)) {
		join(group, member, ask);
		if (group->here == group->ranks)
			judge(groups, group, now_ns);
		return true;
	}
	return come_late(groups, group, member, ask, now_ns, why, size);
}

/* ---- who was here before this controller ----------------------------------------------------- */

/* False: there is no memory, or the trees are none. The group has the plan either way. */
static bool remember(struct nc_groups *groups, struct nc_group *group, struct nc_receipt *receipt,
		     const uint8_t *key)
{
	free(group->ports);
	group->ports = receipt->ports;
	group->plan = receipt->plan;
	group->leader = receipt->leader;
	group->number = receipt->number;
	memcpy(group->key, key, sizeof(group->key));
	receipt->ports = NULL;
	receipt->plan = (struct nc_plan){0};
	nc_replace(&groups->use, &group->plan);
	if (make_parts(groups, group, receipt->at))
		group->verdict = plan_text(groups, group);
	return group->verdict != NULL;
}

static bool begin_again(struct nc_groups *groups, struct nc_member *member,
			struct nc_receipt *receipt, const uint8_t *key, uint64_t now_ns)
{
	const struct nc_ask leader = receipt->leader;
	struct nc_group *group = new_group(groups, &leader, now_ns);

	if (!group)
		return false;
	if (!remember(groups, group, receipt, key)) {
		free_group(groups, group);
		return false;
	}
	join(group, member, &leader);
	install_everywhere(groups, group);
	group->has_begun = true;
	happens(groups, group, PLANNED, now_ns);
	return true;
}

/* One that this controller knows: its connection alone was lost. */
static bool come_back(struct nc_groups *groups, struct nc_group *group, struct nc_member *member,
		      const struct nc_receipt *receipt, uint64_t now_ns)
{
	if (group->plan.n_members == 0 || group->number != receipt->number || group->members[0])
		return false;
	join(group, member, &group->leader);
	happens(groups, group, LEADER_BACK, now_ns);
	return true;
}

bool nc_groups_know(struct nc_groups *groups, struct nc_member *member, const char *text,
		    size_t length, const uint8_t *key, uint64_t now_ns, char *why, size_t size)
{
	struct nc_receipt receipt;
	struct nc_group *group;
	bool good = nc_receipt_read(groups->topology, text, length, &receipt, why, size);

	if (good) {
		group = find(groups, receipt.leader.group);
		good = group ? come_back(groups, group, member, &receipt, now_ns)
			     : begin_again(groups, member, &receipt, key, now_ns);
		if (!good)
			snprintf(why, size, "%s",
				 group ? "another group has that name by now"
				       : "its trees are none, or there is no room for it");
	}
	nc_receipt_end(&receipt);
	return good;
}

/* ---- who goes -------------------------------------------------------------------------------- */

void nc_groups_lost(struct nc_groups *groups, struct nc_member *member, uint64_t now_ns)
{
	struct nc_group *group = member->group;
	const unsigned rank = member->rank;

	if (!group)
		return;
	*member = (struct nc_member){0};
	group->members[rank] = NULL;
	group->here--;
	refuse(groups, group, rank == 0 ? LEADER_LOST : MEMBER_LOST, now_ns,
	       "member %u has gone before all %u were there", rank, group->ranks);
}

static bool is_same_place(const union ha_sockaddr *a, const union ha_sockaddr *b)
{
	char as[HA_SOCKADDR_TEXT_MAX], bs[HA_SOCKADDR_TEXT_MAX];

	return !strcmp(ha_sockaddr_text(a, as, sizeof(as)), ha_sockaddr_text(b, bs, sizeof(bs)));
}

/* Members know only where its programs listened when they got the plan. */
bool nc_groups_are_lanes_there(const struct nc_groups *groups, const struct nc_member *member)
{
	const struct nc_group *group = member->group;

	if (!group || member->rank != 0 || group->state != HELD)
		return false;
	for (unsigned n = 0; n < group->plan.n_nodes; n++) {
		const unsigned i = group->plan.nodes[n].vertex - groups->topology->n_ports;

		if (nc_parts_is_in_lanes(&group->parts, n) &&
		    (groups->use.switches[i].is_idle ||
		     !is_same_place(&groups->at[i], &group->parts.at[n])))
			return false;
	}
	return true;
}

bool nc_groups_way(struct nc_groups *groups, const struct nc_member *member, const void *text,
		   size_t length)
{
	struct nc_group *group = member->group;
	struct ha_reader r = {text};

	(void)groups;
	if (!group || member->rank != 0 || group->plan.n_members == 0 || length != 8)
		return false;
	group->epoch = ha_get32(&r);
	group->way = ha_get32(&r);
	return true;
}

void nc_groups_leave(struct nc_groups *groups, struct nc_member *member, uint64_t now_ns)
{
	if (member->group && member->rank == 0)
		refuse(groups, member->group, LEFT, now_ns, "member 0 has left");
}

static void say_go(struct nc_groups *groups, struct nc_member *member)
{
	struct nc_text *text = nc_text_new("", 0);

	if (text)
		groups->answer(groups->arg, member, HA_CTRL_GO, text, NULL);
	nc_text_release(text);
}

static void say_whether_begun(struct nc_groups *groups, struct nc_member *member)
{
	if (member->group->has_begun)
		say_go(groups, member);
	else if (member->group->verdict)
		tell(groups, member->group, member->rank);
}

bool nc_groups_all_here(struct nc_groups *groups, struct nc_member *member)
{
	struct nc_group *group = member->group;

	if (!group || member->rank != 0 || group->state == GATHERING)
		return false;
	group->has_begun |= group->state == HELD;
	say_whether_begun(groups, member);
	return true;
}

bool nc_groups_give_up(struct nc_groups *groups, struct nc_member *member, uint64_t now_ns)
{
	struct nc_group *group = member->group;

	if (!group || group->state == GATHERING)
		return false;
	if (group->has_begun || group->state == REFUSED)
		say_whether_begun(groups, member);
	else
		refuse(groups, group, GIVEN_UP, now_ns,
		       "member %u has not heard from member 0 that all are there", member->rank);
	return true;
}

/* Who has not asked, of those the first. */
static unsigned first_missing(const struct nc_group *group)
{
	unsigned rank = 0;

	while (rank < group->ranks && group->ports[rank] != NC_NO_VERTEX)
		rank++;
	return rank;
}

/* Members that begin hang up: who has not may still ask whether the others have. */
static void keep_while_asked(const struct nc_groups *groups, struct nc_group *group,
			     uint64_t now_ns)
{
	if (group->state == ORPHANED && group->has_begun && group->here > 0 &&
	    group->deadline_ns <= now_ns)
		group->deadline_ns = now_ns + groups->lease_ns;
}

uint64_t nc_groups_tick(struct nc_groups *groups, uint64_t now_ns)
{
	struct ha_list *pos, *after;
	uint64_t next_ns = 0;

	ha_list_for_each_safe (pos, after, &groups->all) {
		struct nc_group *group = group_at(pos);

		keep_while_asked(groups, group, now_ns);
		if (group->deadline_ns != 0 && group->deadline_ns <= now_ns)
			refuse(groups, group, EXPIRED, now_ns,
			       "%u of %u members have not asked in %llu ms; the first is member %u",
			       group->ranks - group->here, group->ranks,
			       (unsigned long long)(groups->verdict_ns / HA_NS_PER_MS),
			       first_missing(group));
		else
			next_ns = ha_earlier_ns(next_ns, group->deadline_ns);
	}
	return next_ns;
}

struct nc_text *nc_groups_verdict(const struct nc_groups *groups, const char *name, size_t length)
{
	char text[NC_GROUP_NAME];
	const struct nc_group *group;

	if (length >= sizeof(text))
		return NULL;
	snprintf(text, sizeof(text), "%.*s", (int)length, name);
	group = find(groups, text);
	return group ? group->verdict : NULL;
}

void nc_groups_each(const struct nc_groups *groups,
		    void (*see)(void *arg, const struct nc_group_view *group), void *arg)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &groups->all) {
		const struct nc_group *group = group_at(pos);
		const struct nc_group_view view = {.name = group->name,
						   .label = group->label,
						   .state = state_names[group->state],
						   .ranks = group->ranks,
						   .here = group->here,
						   .ports = group->ports,
						   .plan = group->plan.n_members > 0 ? &group->plan
										     : NULL,
						   .epoch = group->epoch,
						   .way = group->way,
						   .deadline_ns = group->deadline_ns};

		see(arg, &view);
	}
}
