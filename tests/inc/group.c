/* SPDX-License-Identifier: Apache-2.0 */
#include "group.h"

#include "../reduce/oracle.h"
#include "../reduce/samples.h"
#include "../seeded_random.h"
#include "device/events.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <stdlib.h>
#include <string.h>

#define POISON	   0xee
#define MARGIN	   64 /* poison on both sides of every buffer */
#define MAX_EVENTS 20000000u

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

/* ---- fabric and members --------------------------------------------------------------------- */

struct ha_port *group_port(struct group *group, unsigned int host)
{
	return &group->set[host]->ports[0];
}

/* On each of a host's ports. */
static unsigned int rails(const struct group *group)
{
	return group->shape.fabric.rails ? group->shape.fabric.rails : 1;
}

static void open_host(struct group *group, unsigned int i)
{
	const struct group_shape *shape = &group->shape;
	const struct ha_member_shape member = {
	    .ledger = {(uint16_t)i, shape->window, shape->copies},
	    .lanes = shape->lanes > shape->hosts ? shape->lanes : shape->hosts,
	    .unit_bytes = shape->unit_bytes,
	    .group = GROUP_ID,
	};
	struct ha_member_ports ports = {.n = rails(group)};
	struct group_host *host = &group->host[i];

	for (unsigned int p = 0; p < ports.n; p++) {
		ports.port[p] = &group->set[i]->ports[p];
		assert_int_equal(ha_nic_pd_get(ports.port[p]->nic, &host->on[p]), HA_OK);
		if (p > 0)
			host->other_mr[p] = ibv_reg_mr(host->on[p]->pd, host, sizeof(*host), 0);
	}
	assert_int_equal(ha_member_open(&member, &ports, &host->member), HA_OK);
}

void group_open(struct group *group, const struct group_shape *shape)
{
	struct sv_stepped_opts fabric = shape->fabric;

	memset(group, 0, sizeof(*group));
	group->shape = *shape;
	group->is_asking = true;
	group->epochs = 1;
	ha_config_load(&group->config, no_env);
	fabric.hosts = shape->hosts;
	fabric.aggregators = shape->switches;
	sv_stepped_destroy(); /* what a test that failed left behind */
	assert_int_equal(sv_stepped_open(&fabric), 0);
	for (unsigned int i = 0; i < shape->hosts + shape->switches; i++) {
		sv_stepped_set_host(i);
		assert_int_equal(ha_device_set_open(&group->config, &group->set[i]), HA_OK);
	}
	for (unsigned int i = 0; i < shape->hosts; i++)
		open_host(group, i);
}

unsigned int group_child(const struct group *group, uint32_t epoch, unsigned int place)
{
	if (group->hosts_add_in[epoch])
		return place;
	/* Neighbours that are added first in one epoch are not in the next one. */
	const unsigned int hosts = group->shape.hosts, stride = epoch % 2 && hosts % 3 ? 3 : 1;

	return (place * stride + epoch / 2) % hosts;
}

unsigned int group_epochs_of_hosts(const struct group *group)
{
	unsigned int epochs = 0;

	for (unsigned int epoch = 0; epoch < group->epochs; epoch++)
		epochs += group->hosts_add_in[epoch];
	return epochs;
}

static struct ha_tree_shape tree_shape(const struct group *group, unsigned int children,
				       uint32_t epoch)
{
	return (struct ha_tree_shape){
	    .lane = {children, true, group->shape.window, group->shape.unit_bytes},
	    .epoch = epoch,
	    .group = GROUP_ID,
	};
}

/* False: a port is down, so that there is no way to the other one. */
static bool connect_edges(struct ha_edge *a, struct ha_edge *b)
{
	struct ha_edge_address of_a, of_b;

	ha_edge_address(a, &of_a);
	ha_edge_address(b, &of_b);
	return ha_edge_connect(a, &of_b) == HA_OK && ha_edge_connect(b, &of_a) == HA_OK;
}

unsigned int group_lanes(const struct group *group, uint32_t epoch)
{
	return epoch > 0 && group->has_one_lane_later ? 1 : group->shape.lanes;
}

bool group_trees(struct group *group, unsigned int i, uint32_t epoch)
{
	const struct ha_tree_shape shape = tree_shape(group, group->shape.hosts, epoch);
	struct ha_port *port = group_port(group, group_switch(group, i));

	group->epochs = epoch + 1;
	assert_true(group->epochs <= GROUP_EPOCHS);
	for (unsigned int lane = 0; lane < group_lanes(group, epoch); lane++)
		if (ha_tree_open(&shape, port, &group->tree[i][lane]) != HA_OK)
			return false;
	return true;
}

static unsigned int place_of(const struct group *group, uint32_t epoch, unsigned int host)
{
	unsigned int place = 0;

	while (group_child(group, epoch, place) != host)
		place++;
	return place;
}

void group_join(struct group *group, unsigned int i, uint32_t epoch, unsigned int host)
{
	struct ha_member *member = group->host[host].member;

	assert_int_equal(ha_member_join(member, group_lanes(group, epoch), group->shape.window),
			 HA_OK);
	for (unsigned int lane = 0; lane < group_lanes(group, epoch); lane++)
		if (!connect_edges(
			ha_member_edge(member, lane),
			ha_tree_edge(group->tree[i][lane], place_of(group, epoch, host))))
			ha_member_cut(member); /* as inc/host/joining.c does */
}

void group_star(struct group *group, unsigned int i, uint32_t epoch)
{
	assert_true(group_trees(group, i, epoch));
	for (unsigned int h = 0; h < group->shape.hosts; h++)
		group_join(group, i, epoch, h);
}

static void open_tree(struct group *group, unsigned int i, const struct ha_tree_shape *shape)
{
	assert_int_equal(
	    ha_tree_open(shape, group_port(group, group_switch(group, i)), &group->tree[i][0]),
	    HA_OK);
}

void group_two_levels(struct group *group)
{
	const unsigned int half = group->shape.hosts / 2;
	struct ha_tree_shape leaf = tree_shape(group, half, 0), root = tree_shape(group, 2, 0);

	leaf.lane.is_root = false;
	root.is_inner_below = true;
	open_tree(group, 0, &root);
	for (unsigned int i = 0; i < 2; i++) {
		open_tree(group, 1 + i, &leaf);
		assert_true(connect_edges(ha_tree_edge(group->tree[1 + i][0], HA_UNIT_UP),
					  ha_tree_edge(group->tree[0][0], i)));
		for (unsigned int k = 0; k < half; k++) {
			struct ha_member *member = group->host[half * i + k].member;

			assert_int_equal(
			    ha_member_join(member, group->shape.lanes, group->shape.window), HA_OK);
			assert_true(connect_edges(ha_member_edge(member, 0),
						  ha_tree_edge(group->tree[1 + i][0], k)));
		}
	}
}

/* ---- operations ----------------------------------------------------------------------------- */

static uint8_t *new_buffer(size_t bytes)
{
	uint8_t *buffer = malloc(bytes + 2 * MARGIN);

	assert_non_null(buffer);
	memset(buffer, POISON, bytes + 2 * MARGIN);
	return buffer + MARGIN;
}

static void free_buffer(uint8_t *buffer)
{
	free(buffer - MARGIN);
}

static void register_on(const struct group *group, const struct group_host *host, uint8_t *buffer,
			size_t bytes, struct ibv_mr *mr[HA_MEMBER_PORTS])
{
	for (unsigned int p = 0; p < rails(group); p++) {
		mr[p] = ibv_reg_mr(host->on[p]->pd, buffer - MARGIN, bytes + 2 * MARGIN,
				   IBV_ACCESS_LOCAL_WRITE);
		assert_non_null(mr[p]);
	}
}

struct group_op *group_add(struct group *group, unsigned int type, unsigned int operation,
			   size_t count, bool in_place)
{
	const size_t bytes = count * oracle_bytes(type, operation, HA_REDUCE_WIRE);
	const unsigned int n = group->ops++;
	struct group_op *op = &group->op[n];

	assert_true(n < GROUP_OPS);
	*op = (struct group_op){.type = type,
				.op = operation,
				.count = count,
				.cut = {n ? op[-1].cut.first + ha_cut_units(&op[-1].cut) : 0, bytes,
					group->shape.unit_bytes},
				.result = new_buffer(bytes),
				.in_place = in_place};
	for (unsigned int h = 0; h < group->shape.hosts; h++) {
		struct group_host *host = &group->host[h];

		op->pristine[h] = new_buffer(bytes);
		sample_elements(type, op->pristine[h], count, 8191 * ++group->seed);
		op->send[h] = new_buffer(bytes);
		memcpy(op->send[h], op->pristine[h], bytes);
		op->recv[h] = in_place ? op->send[h] : new_buffer(bytes);
		register_on(group, host, op->send[h], bytes, host->send_mr[n]);
		if (in_place)
			memcpy(host->recv_mr[n], host->send_mr[n], sizeof(host->recv_mr[n]));
		else
			register_on(group, host, op->recv[h], bytes, host->recv_mr[n]);
	}
	return op;
}

struct group_op *group_add_copy(struct group *group, size_t bytes, unsigned int from)
{
	struct group_op *op = group_add(group, HA_REDUCE_UINT8, HA_REDUCE_MAX, bytes, false);

	for (unsigned int h = 0; h < group->shape.hosts; h++) {
		op->is_empty[h] = h != from;
		if (h != from)
			memset(op->pristine[h], 0, bytes);
	}
	return op;
}

unsigned int group_asks(const struct group *group, unsigned int host)
{
	return group->ops - group->fewer[host];
}

static void ask(struct group *group, unsigned int h)
{
	struct group_host *host = &group->host[h];
	struct group_op *op = &group->op[host->asked];
	struct ha_all_reduce all_reduce = {
	    .type = (enum ha_reduce_type)op->type,
	    .op = (enum ha_reduce_op)op->op,
	    .count = op->count,
	    .send = op->send[h],
	    .recv = op->recv[h],
	    .is_direct = group->is_direct,
	    .is_empty = op->is_empty[h],
	};

	for (unsigned int p = 0; p < rails(group); p++) {
		all_reduce.send_lkey[p] = host->send_mr[host->asked][p]->lkey;
		all_reduce.recv_lkey[p] = host->recv_mr[host->asked][p]->lkey;
	}
	if (group->twist.does && group->twist.host == h && group->twist.op == host->asked)
		group->twist.does(&all_reduce);
	if (ha_member_all_reduce(host->member, &all_reduce, &host->number[host->asked]))
		host->asked++;
}

/* ---- results -------------------------------------------------------------------------------- */

/* Whether these are the bytes that a switch gives that adds in this epoch's order. */
static bool is_of_epoch(const struct group *group, const struct group_op *op, uint32_t epoch,
			const struct ha_piece *piece, const uint8_t *bytes)
{
	const size_t count = piece->bytes / oracle_bytes(op->type, op->op, HA_REDUCE_WIRE);
	uint8_t *wanted = new_buffer(piece->bytes);
	const void *src[GROUP_HOSTS];
	bool is_equal;

	for (unsigned int place = 0; place < group->shape.hosts; place++)
		src[place] = op->pristine[group_child(group, epoch, place)] + piece->offset;
	oracle_reduce(op->type, op->op, HA_REDUCE_WIRE, HA_REDUCE_WIRE, wanted, src,
		      group->shape.hosts, count);
	is_equal = memcmp(wanted, bytes, piece->bytes) == 0;
	free_buffer(wanted);
	return is_equal;
}

static bool is_right(const struct group *group, const struct group_op *op,
		     const struct ha_piece *piece, const uint8_t *bytes)
{
	for (uint32_t epoch = 0; epoch < group->epochs; epoch++)
		if (is_of_epoch(group, op, epoch, piece, bytes))
			return true;
	return false;
}

/* Each unit is one epoch's, whole; and every host has what the first one has. */
static void compare(struct group *group, struct group_op *op, unsigned int h)
{
	if (op->has_result) {
		if (memcmp(op->recv[h], op->result, op->cut.bytes) != 0)
			fail_msg("host %u has another result than the first one", h);
		return;
	}
	for (uint64_t i = 0; i < ha_cut_units(&op->cut); i++) {
		const struct ha_piece piece = ha_cut_piece(&op->cut, op->cut.first + i);

		if (!is_right(group, op, &piece, op->recv[h] + piece.offset))
			fail_msg("%s %s of %zu: unit %u of host %u is not what the oracle has",
				 type_names[op->type], op_names[op->op], op->count, (unsigned int)i,
				 h);
	}
	memcpy(op->result, op->recv[h], op->cut.bytes);
	op->has_result = true;
}

static void assert_poison(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != POISON)
			fail_msg("memory was touched that is the application's");
}

/* The application does with its memory what it likes. */
static void hand_back(struct group *group, struct group_op *op, unsigned int h)
{
	compare(group, op, h);
	memset(op->recv[h], POISON, op->cut.bytes);
	memset(op->send[h], POISON, op->cut.bytes);
}

static bool is_late(const struct group *group, unsigned int h)
{
	return h + 1 == group->shape.hosts && sv_stepped_now() < group->late_ns;
}

static unsigned int may_ask(const struct group *group, unsigned int h)
{
	const unsigned int asks = group_asks(group, h);

	return group->most && group->most < asks ? group->most : asks;
}

void group_lose_host(struct group *group, unsigned int h)
{
	group->is_gone[h] = true;
	ha_mesh_fence(&group->mesh[h]);
	assert_true(ha_member_stop(group->host[h].member));
}

static bool act(struct group *group, unsigned int h)
{
	struct group_host *host = &group->host[h];
	bool moved = false;

	if (group->is_gone[h])
		return false;
	while (group->is_asking && !is_late(group, h) && host->asked < may_ask(group, h)) {
		const unsigned int before = host->asked;

		ask(group, h);
		if (host->asked == before)
			break;
	}
	moved |= ha_member_progress(host->member);
	moved |= ha_mesh_progress(&group->mesh[h]);
	while (host->done < host->asked &&
	       ha_member_is_done(host->member, host->number[host->done])) {
		hand_back(group, &group->op[host->done], h);
		host->done++;
		moved = true;
	}
	return moved;
}

bool group_is_done(const struct group *group)
{
	for (unsigned int h = 0; h < group->shape.hosts; h++)
		if (!group->is_gone[h] && group->host[h].done < group_asks(group, h))
			return false;
	return true;
}

/* As the plugin's progress thread does. */
static void read_events(struct group *group)
{
	for (unsigned int h = 0; h < group->shape.hosts; h++)
		for (unsigned int p = 0; p < rails(group); p++) {
			struct ha_port *port = &group->set[h]->ports[p];

			(void)ha_nic_read_events(group->set[h], port->nic);
			if (atomic_exchange(&port->refresh_due, false))
				assert_int_equal(ha_port_refresh(port), HA_OK);
		}
}

void group_act(struct group *group)
{
	bool moved;

	if (rails(group) > 1)
		read_events(group);
	do {
		moved = false;
		if (group->turns)
			group->turns = mix(group->turns);
		for (unsigned int h = 0; h < group->shape.hosts; h++)
			moved |=
			    act(group, (unsigned int)((h + group->turns) % group->shape.hosts));
		for (unsigned int i = 0; i < GROUP_SWITCHES; i++)
			for (unsigned int lane = 0; lane < GROUP_LANES; lane++)
				if (group->tree[i][lane] && !group->is_dead[i])
					moved |= ha_tree_progress(group->tree[i][lane]);
	} while (moved);
}

bool group_step(struct group *group)
{
	group_act(group);
	return sv_stepped_step();
}

void group_run(struct group *group)
{
	for (uint32_t i = 0; !group_is_done(group); i++) {
		if (!group_step(group) && !group_is_done(group))
			fail_msg("nothing happens any more, and operations are open");
		assert_true(i < MAX_EVENTS);
	}
}

/* ---- the end -------------------------------------------------------------------------------- */

static void free_op(struct group *group, unsigned int n)
{
	struct group_op *op = &group->op[n];

	for (unsigned int h = 0; h < group->shape.hosts; h++) {
		struct group_host *host = &group->host[h];

		if (host->done > n) {
			assert_poison(op->send[h] - MARGIN, op->cut.bytes + 2 * MARGIN);
			assert_poison(op->recv[h] - MARGIN, op->cut.bytes + 2 * MARGIN);
		}
		for (unsigned int p = 0; p < rails(group); p++) {
			assert_int_equal(ibv_dereg_mr(host->send_mr[n][p]), 0);
			if (!op->in_place)
				assert_int_equal(ibv_dereg_mr(host->recv_mr[n][p]), 0);
		}
		if (!op->in_place)
			free_buffer(op->recv[h]);
		free_buffer(op->send[h]);
		free_buffer(op->pristine[h]);
	}
	free_buffer(op->result);
}

void group_close(struct group *group)
{
	for (unsigned int h = 0; h < group->shape.hosts; h++) {
		assert_int_equal(ha_member_close(group->host[h].member), HA_OK);
		assert_int_equal(ha_mesh_close(&group->mesh[h]), HA_OK);
	}
	for (unsigned int i = 0; i < GROUP_SWITCHES; i++)
		for (unsigned int lane = 0; lane < GROUP_LANES; lane++)
			assert_int_equal(ha_tree_close(group->tree[i][lane]), HA_OK);
	while (sv_stepped_step()) /* what was on its way arrives, and finds nobody */
		;
	for (unsigned int n = 0; n < group->ops; n++)
		free_op(group, n);
	for (unsigned int h = 0; h < group->shape.hosts; h++)
		for (unsigned int p = 0; p < rails(group); p++) {
			if (p > 0)
				assert_int_equal(ibv_dereg_mr(group->host[h].other_mr[p]), 0);
			ha_nic_pd_put(group->host[h].on[p]);
		}
	for (unsigned int i = 0; i < group->shape.hosts + group->shape.switches; i++) {
		ha_memory_close(group->set[i]);
		ha_device_set_close(group->set[i]);
	}
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
}
