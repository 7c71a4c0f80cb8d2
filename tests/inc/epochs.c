/* SPDX-License-Identifier: Apache-2.0 */
#include "epochs.h"

#include "../seeded_random.h"
#include "../stepped_rules.h"

#include <string.h>

#define FRAMES	   256
#define LIMIT_NS   60000000000ull
#define EVERY_LOST 5 /* frames: one of so many gets lost, and one is doubled */
#define LINK_NS	   5000000000ull

struct letter {
	uint64_t due_ns; /* 0: none */
	bool is_to_leader;
	uint16_t member;
	size_t size;
	uint8_t bytes[HA_INC_FRAME_MAX];
};

struct group g;
struct ha_leader leader;
struct ha_follower follower[GROUP_HOSTS];
struct epochs_plan plan;
struct epochs_seen seen;

static struct ha_fenced said[GROUP_HOSTS], held[GROUP_HOSTS];
static uint64_t asked[GROUP_HOSTS];
static struct letter letters[FRAMES];
static uint64_t chance;
static uint32_t counted;		    /* plans */
static uint32_t tree_epoch[GROUP_SWITCHES]; /* of their trees */

void tell(void)
{
	print_message("%u epochs; units taken %llu, of them lacked by somebody %llu, %llu of these "
		      "from a copy, again %llu; %u frames lost, %llu packets\n",
		      seen.epochs, (unsigned long long)seen.taken, (unsigned long long)seen.lacked,
		      (unsigned long long)seen.from_copy, (unsigned long long)seen.again,
		      seen.lost_frames, (unsigned long long)seen.lost_packets);
}

static uint64_t random_below(uint64_t n)
{
	chance = mix(chance);
	return chance % n;
}

/* ---- the star ------------------------------------------------------------------------------- */

static struct letter *free_letter(void)
{
	for (unsigned int i = 0; i < FRAMES; i++)
		if (!letters[i].due_ns)
			return &letters[i];
	fail_msg("more frames are on their way than there is room for");
	return NULL;
}

static void post_letter(bool is_to_leader, uint16_t member, const struct ha_inc_frame *frame)
{
	struct letter *letter = free_letter();

	*letter = (struct letter){.due_ns = sv_stepped_now() + 20000 + random_below(2000000),
				  .is_to_leader = is_to_leader,
				  .member = member};
	letter->size = ha_inc_frame_encode(frame, letter->bytes);
}

static void post(bool is_to_leader, uint16_t member, const struct ha_inc_frame *frame)
{
	const uint64_t fate = plan.is_quiet ? 2 : random_below(EVERY_LOST);

	seen.lost_frames += fate == 0;
	if (fate > 0)
		post_letter(is_to_leader, member, frame);
	if (fate == 1)
		post_letter(is_to_leader, member, frame);
}

static void say_to_member(void *arg, uint16_t member, const struct ha_inc_frame *frame)
{
	(void)arg;
	post(false, member, frame);
}

static void say_to_leader(void *arg, const struct ha_inc_frame *frame)
{
	const struct ha_follower *from = arg;

	post(true, from->number, frame);
}

static void say_link(void *arg, const struct ha_inc_frame *frame)
{
	(void)arg;
	post(frame->member != 0, frame->member ? frame->member : frame->link.to, frame);
}

static void deliver(struct letter *letter)
{
	struct ha_inc_frame frame;

	assert_true(
	    ha_inc_frame_decode(letter->bytes, letter->size, (uint16_t)g.shape.hosts, &frame));
	letter->due_ns = 0;
	if (g.is_gone[letter->is_to_leader ? 0 : letter->member])
		return;
	if (frame.kind == HA_INC_LINK && letter->is_to_leader && frame.link.to != 0)
		post(false, frame.link.to, &frame);
	else if (frame.kind == HA_INC_LINK && !g.is_gone[frame.link.to])
		ha_mesh_hear(&g.mesh[frame.link.to], &frame);
	else if (frame.kind == HA_INC_LINK)
		return;
	else if (letter->is_to_leader)
		ha_leader_hear(&leader, letter->member, &frame, sv_stepped_now());
	else
		ha_follower_hear(&follower[letter->member], &frame, sv_stepped_now());
}

/* Those that are due; returns when the next one is. */
static uint64_t deliver_due(void)
{
	uint64_t next_ns = UINT64_MAX;

	for (unsigned int i = 0; i < FRAMES; i++)
		if (letters[i].due_ns && letters[i].due_ns <= sv_stepped_now())
			deliver(&letters[i]);
	for (unsigned int i = 0; i < FRAMES; i++)
		if (letters[i].due_ns && letters[i].due_ns < next_ns)
			next_ns = letters[i].due_ns;
	return next_ns;
}

/* ---- ways ----------------------------------------------------------------------------------- */

static bool hosts_add(uint32_t way)
{
	return plan.hosts_add_from && way >= plan.hosts_add_from;
}

/* Way n is a star around a switch of its own; the first one may have two more below that. */
static unsigned int switch_of_way(uint32_t way)
{
	const unsigned int i = way && plan.has_levels ? way + 2 : way;

	if (plan.has_one_switch)
		return 0;
	assert_true(i < g.shape.switches);
	return i;
}

/* A switch that has a tree of an earlier epoch ends that one. */
static void make_trees(unsigned int i, uint32_t epoch)
{
	if (g.tree[i][0] && tree_epoch[i] == epoch)
		return;
	for (unsigned int lane = 0; lane < GROUP_LANES; lane++) {
		assert_int_equal(ha_tree_close(g.tree[i][lane]), HA_OK);
		g.tree[i][lane] = NULL;
	}
	assert_true(group_trees(&g, i, epoch));
	tree_epoch[i] = epoch;
}

static void join(void *arg, uint32_t way, uint32_t epoch)
{
	const struct ha_follower *who = arg;
	unsigned int i;

	if (hosts_add(way)) {
		assert_true(epoch < GROUP_EPOCHS);
		g.hosts_add_in[epoch] = true;
		g.epochs = epoch + 1;
		ha_mesh_join(&g.mesh[who->number], epoch, sv_stepped_now());
		return;
	}
	i = switch_of_way(way);
	if (g.is_dead[i])
		return;
	make_trees(i, epoch);
	group_join(&g, i, epoch, who->number);
}

static void fence(void *arg)
{
	const struct ha_follower *who = arg;

	ha_mesh_fence(&g.mesh[who->number]);
}

bool switch_in_use(unsigned int *i)
{
	if (hosts_add(leader.way))
		return false;
	*i = switch_of_way(leader.way);
	return !g.is_dead[*i];
}

void kill_switch(void)
{
	const unsigned int i = switch_of_way(leader.way);

	g.is_dead[i] = true;
	sv_stepped_kill(group_switch(&g, i), 0);
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* So that some hosts have a result when the switch dies, and others never get it. */
#define LOSSES "drop op=send prob=0.2"

void open_run(const struct group_shape *shape, uint64_t seed)
{
	memset(letters, 0, sizeof(letters));
	chance = seed;
	counted = 0;
	memset(tree_epoch, 0, sizeof(tree_epoch));
	group_open(&g, shape);
	g.has_one_lane_later = plan.has_one_lane_later;
	plan.losses = plan.has_no_losses ? 0 : add_rule(LOSSES);
	for (unsigned int h = 0; h < shape->hosts; h++)
		if (plan.starts_without[h])
			sv_stepped_link(h, 0, false);
	group_act(&g); /* their hosts hear of it */
	if (plan.has_levels)
		group_two_levels(&g);
	else
		group_star(&g, 0, 0);
	ha_leader_init(&leader, GROUP_ID, (uint16_t)shape->hosts,
		       &(struct ha_leader_room){said, held, asked}, say_to_member, NULL);
	for (unsigned int h = 0; h < shape->hosts; h++) {
		const struct ha_follower_calls calls = {say_to_leader, join, fence, &follower[h]};

		const struct ha_mesh_shape mesh = {(uint16_t)h,	  (uint16_t)shape->hosts, GROUP_ID,
						   shape->window, shape->unit_bytes,	  LINK_NS};

		ha_follower_init(&follower[h], g.host[h].member, (uint16_t)h, GROUP_ID, LATE_NS,
				 &calls);
		follower[h].to_port = ha_failback_after(plan.failback_ns);
		ha_mesh_init(&g.mesh[h], &mesh, g.host[h].member, say_link, NULL);
	}
}

/* The owner's request is complete: its memory is the application's, and the result in a copy. */
static bool is_from_copy(const struct ha_resume *resume, unsigned int i)
{
	const struct ha_ledger *ledger = ha_member_ledger(g.host[resume->owner[i]].member);

	return resume->lacked >> i & 1 && ledger->kept >> (resume->retired + i - ledger->first) & 1;
}

static void count_epoch(void)
{
	const struct ha_resume *resume = &leader.answer.resume;

	seen.epochs++;
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++) {
		bool is_sent = false;

		for (unsigned int h = 0; h < g.shape.hosts; h++)
			is_sent |= said[h].sent >> i & 1;
		seen.taken += resume->taken >> i & 1;
		seen.lacked += resume->lacked >> i & 1;
		seen.from_copy += is_from_copy(resume, i);
		seen.again += is_sent && !(resume->taken >> i & 1);
	}
}

bool all_have_left(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (!g.is_gone[h] && follower[h].state != HA_FOLLOWER_LEFT)
			return false;
	return g.is_gone[0] || ha_leader_may_leave(&leader);
}

/* As nccl-ha-switchd does, and a host that adds. */
static void tell_of_dispute(const struct ha_dispute *dispute, unsigned int from, unsigned int to)
{
	if (dispute->about == HA_DISPUTE_NONE)
		return;
	for (unsigned int h = from; h < to; h++)
		ha_follower_dispute(&follower[h], dispute, sv_stepped_now());
}

static void look_for_disputes(void)
{
	const unsigned int hosts = g.shape.hosts;

	for (unsigned int h = 0; h < hosts; h++)
		tell_of_dispute(&g.mesh[h].dispute, h, h + 1);
	for (unsigned int i = 0; i < GROUP_SWITCHES; i++) {
		const bool is_leaf = plan.has_levels && i > 0 && i < 3;
		const unsigned int from = is_leaf ? (i - 1) * hosts / 2 : 0;

		for (unsigned int lane = 0; lane < GROUP_LANES; lane++)
			if (g.tree[i][lane] && !g.is_dead[i])
				tell_of_dispute(ha_tree_dispute(g.tree[i][lane]), from,
						is_leaf ? from + hosts / 2 : hosts);
	}
}

static void tick(void)
{
	look_for_disputes();
	if (!g.is_gone[0])
		ha_leader_tick(&leader, sv_stepped_now());
	for (unsigned int h = 0; h < g.shape.hosts; h++) {
		if (g.is_gone[h])
			continue;
		if (g.host[h].done == group_asks(&g, h))
			ha_follower_leave(&follower[h], sv_stepped_now());
		ha_follower_tick(&follower[h], sv_stepped_now());
		ha_mesh_tick(&g.mesh[h], sv_stepped_now());
	}
}

static bool is_time_to_kill(void)
{
	return plan.kills < 2 && plan.kill_at[plan.kills] &&
	       sv_stepped_index() >= plan.kill_at[plan.kills] && !hosts_add(leader.way) &&
	       !g.is_dead[switch_of_way(leader.way)];
}

/* To the fabric's next event, or to the next frame or tick if that is sooner. */
static void pass_time(uint64_t until_ns)
{
	struct sv_event_info next;

	if (is_time_to_kill()) {
		kill_switch();
		plan.kills++;
	}
	if (plan.kill_rule && fired(plan.kill_rule))
		g.is_dead[0] = true;
	if (sv_stepped_peek(&next) && next.time_ns <= until_ns)
		sv_stepped_step();
	else
		sv_stepped_run(until_ns);
}

bool all_are_over(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (!g.is_gone[h] && follower[h].state != HA_FOLLOWER_OVER)
			return false;
	return true;
}

/* Each by itself: those that had left before somebody died hear of no error any more. */
static bool all_are_through(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (!g.is_gone[h] && follower[h].state < HA_FOLLOWER_LEFT)
			return false;
	return g.is_gone[0] || leader.state == HA_LEADER_OVER;
}

static bool is_ended(void)
{
	return all_have_left() || all_are_over() || all_are_through();
}

/* As inc/host/host.c does when the star says so. */
static void lose_leader(void)
{
	const struct ha_inc_frame end = {
	    .kind = HA_INC_ABORT, .group = GROUP_ID, .abort = {.why = HA_INC_ABORT_DEAD}};

	for (unsigned int h = 1; h < g.shape.hosts; h++)
		if (follower[h].state != HA_FOLLOWER_LEFT)
			ha_follower_hear(&follower[h], &end, sv_stepped_now());
}

void lose_host(unsigned int host)
{
	group_lose_host(&g, host);
	if (host == 0)
		lose_leader();
	else if (!said[host].leaves)
		ha_leader_give_up(&leader, HA_INC_ABORT_DEAD, (uint16_t)host);
}

static void step(uint64_t *next_tick_ns, uint64_t limit_ns)
{
	uint64_t next_ns;

	group_act(&g);
	if (sv_stepped_now() >= *next_tick_ns) {
		*next_tick_ns = sv_stepped_now() + TICK_NS;
		tick();
	}
	next_ns = deliver_due();
	if (leader.plan != counted) {
		counted = leader.plan;
		count_epoch();
	}
	pass_time(next_ns < *next_tick_ns ? next_ns : *next_tick_ns);
	if (sv_stepped_now() > limit_ns)
		fail_msg("the group does not come to its end");
}

void run_until(bool (*condition)(void))
{
	const uint64_t limit_ns = sv_stepped_now() + LIMIT_NS;
	uint64_t next_tick_ns = 0;

	while (!is_ended() && !condition())
		step(&next_tick_ns, limit_ns);
}

void run(void)
{
	run_until(is_ended);
	seen.lost_packets += plan.has_no_losses ? 0 : fired(plan.losses);
}

void run_well(void)
{
	run();
	assert_true(all_have_left() && group_is_done(&g));
}

struct group_shape small(void)
{
	return (struct group_shape){.hosts = 3,
				    .switches = 3,
				    .lanes = 1,
				    .window = 2,
				    .copies = 1,
				    .unit_bytes = 64,
				    .fabric = {.jitter_ns = 5000}};
}

void add_small(bool in_place)
{
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 16, in_place);
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40, in_place);
	group_add(&g, HA_REDUCE_BF16, HA_REDUCE_SUM, 9, !in_place);
}

uint64_t events_of_peace(const struct group_shape *shape, bool in_place)
{
	uint64_t events;

	plan.kills = 2; /* none is left */
	open_run(shape, 1);
	add_small(in_place);
	run_well();
	events = sv_stepped_index();
	assert_int_equal(leader.decision.epoch, 0);
	group_close(&g);
	return events;
}
