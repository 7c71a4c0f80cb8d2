/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A port that hundreds of connections use goes down, and commands take as long as a NIC's, which
 * does one at a time or eight: each connection goes on as soon as its own fences are done, and the
 * NICs make nothing before the last one has moved. On a virtual clock, in turns of the background
 * threads. The argument is how many connections there are.
 */
#include "at_scale.h"
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "base/stats.h"
#include "failover/engine.h"
#include "failover/standby_memory.h"
#include "memory/mr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE	4096 /* of GPU memory */
#define HOSTS	2
#define RAILS	2
#define TURN_NS (10 * HA_NS_PER_US)

/* What a command takes that makes a path. */
#define MAKING_NS (2200 * HA_NS_PER_US)
#define MODIFY_NS (200 * HA_NS_PER_US)
/* All of 512. */
#define LIMIT_NS (50 * HA_NS_PER_MS)
/* What a repair in place is waited for. */
#define REPAIR_NS (20 * HA_NS_PER_MS)
/* So long records wait for connections that move. */
#define HELD_NS (100 * HA_NS_PER_MS)
/* From a connection's later fence to RESUMED: a drain, RESUME, RESUMED. */
#define AFTER_FENCE_NS (8 * TURN_NS)

static unsigned connections = 512;

/* ---- records -------------------------------------------------------------------------------- */

/* There is no file: those that would be written since commands take time. */
static unsigned conns_written, ports_written;

int __wrap_ha_stats_conn_add(struct ha_stats *stats);
void __wrap_ha_stats_conn_write(struct ha_stats *stats, int slot,
				const struct nccl_ha_conn_stats *conn);
void __wrap_ha_stats_port_write(struct ha_stats *stats, int slot,
				const struct nccl_ha_port_stats *port);

int __wrap_ha_stats_conn_add(struct ha_stats *stats)
{
	(void)stats;
	return 0;
}

void __wrap_ha_stats_conn_write(struct ha_stats *stats, int slot,
				const struct nccl_ha_conn_stats *conn)
{
	(void)stats;
	(void)slot;
	(void)conn;
	conns_written++;
}

void __wrap_ha_stats_port_write(struct ha_stats *stats, int slot,
				const struct nccl_ha_port_stats *port)
{
	(void)stats;
	(void)slot;
	(void)port;
	ports_written++;
}

/* ---- NICs ----------------------------------------------------------------------------------- */

/* How many commands each does at once. */
static unsigned nic_does = 1;

static struct nic {
	struct nic_units units;
	unsigned modified, destroyed, made; /* calls since commands take time */
} nics[HOSTS][RAILS];

static struct nic *in_use = &nics[0][0]; /* by the command that was run last */

static void count_verb(const struct sv_wait_info *info, void *arg)
{
	struct nic *nic = &nics[info->host][info->rail];

	(void)arg;
	in_use = nic;
	if (!strcmp(info->verb, "modify_qp"))
		nic->modified++;
	else if (!strcmp(info->verb, "destroy_qp"))
		nic->destroyed++;
	else
		nic->made++;
}

static uint64_t took_ns(void)
{
	return nic_took_ns(&in_use->units, nic_does);
}

static void commands_take_time(void)
{
	conns_written = ports_written = 0;
	memset(nics, 0, sizeof(nics));
	(void)add_rule("wait=200us verb=modify_qp");
	(void)add_rule("wait=1ms verb=create_qp");
	(void)add_rule("wait=1ms verb=reg_mr");
	sv_stepped_on_wait(count_verb, NULL);
	ha_command_took_ns = took_ns;
}

/* ---- connections ---------------------------------------------------------------------------- */

struct connection {
	struct pair pair;    /* of its own: the ends and their memory */
	uint64_t fenced_ns;  /* since when both ends are known to have fenced */
	uint64_t goes_on_ns; /* since when traffic may flow; 0: not yet */
};

struct world {
	struct pair pair; /* fabric and instances */
	struct connection *conns;
};

static void turn(struct world *w)
{
	pair_turn(&w->pair, TURN_NS);
}

static void turns(struct world *w, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		turn(w);
}

/* A millisecond in which nobody looks at single turns. */
static void pass(struct world *w)
{
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	pair_settle(&w->pair);
}

static bool all_have_standbys(const struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		if (!pair_has_standby(&w->conns[i].pair))
			return false;
	return true;
}

static void up(struct world *w)
{
	pair_init(&w->pair);
	w->pair.config.enable_backup = true;
	w->pair.fabric.rails = RAILS;
	pair_open(&w->pair);
	w->conns = calloc(connections, sizeof(*w->conns));
	assert_non_null(w->conns);
	for (unsigned i = 0; i < connections; i++) {
		w->conns[i].pair = w->pair;
		pair_connect(&w->conns[i].pair);
	}
	for (unsigned ms = 0; ms < 60000 && !all_have_standbys(w); ms++)
		pass(w);
	assert_true(all_have_standbys(w));
	turns(w, 100);
}

static void down(struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		pair_disconnect(&w->conns[i].pair);
	ha_command_took_ns = NULL;
	pair_close(&w->pair);
	free(w->conns);
}

static bool has_fenced(const struct ha_comm *comm)
{
	const struct ha_slot *slot = &comm->failover->slots[0];

	return slot->want_gen != 0 && slot->fenced_gen >= slot->want_gen;
}

static bool goes_on(const struct ha_comm *comm)
{
	return comm->failover->epoch == 2 && comm->failover->state == HA_FO_ACTIVE &&
	       (comm->is_send || comm->failover->resumed);
}

static void look(struct connection *c)
{
	if (c->fenced_ns == 0 && has_fenced(c->pair.send) && has_fenced(c->pair.recv))
		c->fenced_ns = sv_stepped_now();
	if (c->goes_on_ns == 0 && goes_on(c->pair.send) && goes_on(c->pair.recv))
		c->goes_on_ns = sv_stepped_now();
	/* Where one NIC is far behind, the other's fence is enough. */
	if (c->goes_on_ns != 0 && c->fenced_ns == 0)
		c->fenced_ns = c->goes_on_ns;
}

static unsigned moved(struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < connections; i++) {
		look(&w->conns[i]);
		n += w->conns[i].goes_on_ns != 0;
	}
	return n;
}

/* The last connection and the last fence, and the connection that was slowest to go on once its
 * fences were done. */
struct times {
	uint64_t last_ns, fenced_ns, lag_ns;
};

/* Turns until all go on, and what that took from now. */
static struct times move(struct world *w)
{
	uint64_t began_ns = sv_stepped_now();
	struct times times = {0};

	while (moved(w) < connections) {
		if (sv_stepped_now() - began_ns > 5 * HA_NS_PER_S)
			fail_msg("%u of %u moved; log:\n%s", moved(w), connections, captured_log);
		turn(w);
	}
	for (unsigned i = 0; i < connections; i++) {
		const struct connection *c = &w->conns[i];

		if (c->goes_on_ns - began_ns > times.last_ns)
			times.last_ns = c->goes_on_ns - began_ns;
		if (c->fenced_ns - began_ns > times.fenced_ns)
			times.fenced_ns = c->fenced_ns - began_ns;
		if (c->goes_on_ns - c->fenced_ns > times.lag_ns)
			times.lag_ns = c->goes_on_ns - c->fenced_ns;
	}
	print_message("%u: fenced after %.2f ms, moved after %.2f ms, each within %.0f us of its "
		      "own fence\n",
		      connections, (double)times.fenced_ns / 1e6, (double)times.last_ns / 1e6,
		      (double)times.lag_ns / 1e3);
	return times;
}

/* A connection waits for each system call of it, its own and others'. */
static void records_are_written_afterwards(struct world *w, const struct times *times)
{
	assert_true(times->last_ns > HELD_NS || conns_written == 0);
	assert_in_range(ports_written, 0, 2 * RAILS); /* of the host that had the event */
	for (unsigned ms = 0; ms < 2 * HELD_NS / HA_NS_PER_MS; ms++)
		pass(w);
	assert_in_range(conns_written, HOSTS * connections, 3 * HOSTS * connections);
	assert_in_range(ports_written, 1, 6 * HOSTS * RAILS);
}

/* In NICs that do so many commands at once. */
static void a_port_goes_down(uint32_t host, unsigned at_once)
{
	struct times times;
	struct world w;

	up(&w);
	nic_does = at_once;
	commands_take_time();
	sv_stepped_link(host, 0, false);
	times = move(&w);
	nic_does = 1;
	assert_true(times.last_ns <= connections / at_once * MODIFY_NS + HA_NS_PER_MS);
	assert_true(at_once == 1 || times.last_ns <= LIMIT_NS);
	assert_true(times.lag_ns <= AFTER_FENCE_NS);
	for (uint32_t h = 0; h < HOSTS; h++) {
		assert_int_equal(nics[h][0].modified, connections);
		assert_int_equal(nics[h][1].modified, 0);
		assert_int_equal(nics[h][0].made + nics[h][1].made, 0);
	}
	records_are_written_afterwards(&w, &times);
	down(&w);
}

static void hundreds_move_as_fast_as_their_nics_fence(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < HOSTS; host++)
		a_port_goes_down(host, 1);
}

/* A NIC that can do several is asked for so many. */
static void hundreds_move_in_an_eighth_where_nics_do_eight_at_once(void **state)
{
	(void)state;
	a_port_goes_down(0, AT_ONCE);
}

/*
 * However long they were idle before: that was no outage, in which what is left would be destroyed
 * at once. So few that no sender does without its NIC's word.
 */
static void what_is_left_is_destroyed_when_all_have_moved(void **state)
{
	const unsigned all = connections;
	struct world w;

	(void)state;
	connections = 32;
	up(&w);
	turns(&w, 500);
	commands_take_time();
	(void)add_rule("wait=200us verb=destroy_qp");
	sv_stepped_link(0, 0, false);
	(void)move(&w);
	for (uint32_t h = 0; h < HOSTS; h++)
		assert_int_equal(nics[h][0].destroyed, 0);
	turns(&w, 400);
	for (uint32_t h = 0; h < HOSTS; h++)
		assert_int_equal(nics[h][0].destroyed, connections);
	down(&w);
	connections = all;
}

/* Of every receiver: known to the NIC of its path in reserve, and read there once. */
static void up_with_gpu_memory(struct world *w, struct ha_mr **mrs)
{
	bool proved = false;

	up(w);
	for (unsigned i = 0; i < connections; i++) {
		struct pair *pair = &w->conns[i].pair;

		assert_int_equal(
		    ha_reg_mr(pair->recv, pair->to.bytes, SIZE, HA_MEM_CUDA, 0, -1, &mrs[i]),
		    HA_OK);
	}
	for (unsigned ms = 0; ms < 10000 && !proved; ms++) {
		pass(w);
		proved = true;
		for (unsigned i = 0; i < connections; i++)
			proved &= ha_standby_memory_is_proved(w->conns[i].pair.recv);
	}
	assert_true(proved);
	turns(w, 100);
}

/* Registration and flush queue pair are there before the port goes down: nothing is made for them,
 * and the first flush waits for nothing. */
static void gpu_memory_is_ready_where_the_standby_is(void **state)
{
	struct ha_mr **mrs = calloc(connections, sizeof(struct ha_mr *));
	struct world w;

	(void)state;
	assert_non_null(mrs);
	up_with_gpu_memory(&w, mrs);
	commands_take_time();
	sv_stepped_link(1, 0, false);
	(void)move(&w);
	for (uint32_t h = 0; h < HOSTS; h++)
		assert_int_equal(nics[h][0].made + nics[h][1].made, 0);
	for (unsigned i = 0; i < connections; i++) {
		struct ha_comm *recv = w.conns[i].pair.recv;

		assert_int_equal(ha_comm_path(recv)->nic->index, 1);
		assert_non_null(ha_comm_path(recv)->flush.qp);
		ha_dereg_mr(recv, mrs[i]);
	}
	down(&w);
	free(mrs);
}

/* Of all, at the sender: NICs have fences and queue pairs to make at once. */
static void break_all(struct world *w)
{
	for (unsigned i = 0; i < connections; i++) {
		struct ibv_qp *qp = ha_comm_path(w->conns[i].pair.send)->qps[0].qp;
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

		assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
		assert_true(sv_stepped_raise_qp(0, 0, qp->qp_num, IBV_EVENT_QP_FATAL));
	}
}

/*
 * A NIC that loses all its queue pairs has fences and queue pairs to make at once, and time for
 * some of the latter at most: whoever is not repaired in time goes to the standby, which needs the
 * fence alone.
 */
static void a_fence_waits_for_no_queue_pair_that_is_made(void **state)
{
	struct times times;
	struct world w;

	(void)state;
	up(&w);
	commands_take_time();
	break_all(&w);
	times = move(&w);
	assert_true(nics[1][0].made > 0);
	assert_true(times.fenced_ns <= connections * MODIFY_NS + 2 * AT_ONCE * MAKING_NS);
	assert_true(times.last_ns <= times.fenced_ns + REPAIR_NS + 2 * HA_NS_PER_MS);
	down(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hundreds_move_as_fast_as_their_nics_fence),
	    cmocka_unit_test(hundreds_move_in_an_eighth_where_nics_do_eight_at_once),
	    cmocka_unit_test(what_is_left_is_destroyed_when_all_have_moved),
	    cmocka_unit_test(gpu_memory_is_ready_where_the_standby_is),
	    cmocka_unit_test(a_fence_waits_for_no_queue_pair_that_is_made),
	};

	if (argc > 1)
		connections = (unsigned)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
