/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that begin while something is broken: a port or device that died after the plugin
 * started, at either end or both, also while the connection is being made; ports that were down
 * at the start and come up later; a process without descriptors; and ends that say nothing.
 */
#include "harness.h"
#include "instance/instance.h"
#include "peer.h"
#include "transport/path_close.h"
#include "transport/path_connect.h"
#include "transport/path_open.h"

#include "base/clock.h"
#include "device/rank.h"
#include "transport/ctrl_sock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Healthy heartbeats and probes need so long at most. */
#define SETTLE_MS 2000

static void begin(struct pair *pair, bool isolated_rails)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair->fabric.isolated_rails = isolated_rails;
}

static const struct ha_path *active(const struct ha_comm *comm)
{
	return comm->paths[comm->active];
}

static void break_rail_0(uint32_t host, bool kill)
{
	if (kill)
		sv_stepped_kill(host, 0);
	else
		sv_stepped_link(host, 0, false);
}

/* NCCL connects device 0 at both ends, whatever became of it. */
static void a_port_that_died_before_the_connection(void **state)
{
	(void)state;
	/* Hosts 0, 1, both; link or device; rails that reach each other and that do not; before or
	 * after the instance has read the event. */
	for (unsigned variant = 0; variant < 24; variant++) {
		const unsigned hosts = variant % 3 + 1;
		const bool kill = variant / 3 & 1, isolated = variant / 6 & 1,
			   unread = variant / 12 & 1;
		struct pair pair;

		begin(&pair, isolated);
		pair_open(&pair);
		for (uint32_t host = 0; host < 2; host++)
			if (hosts & 1u << host)
				break_rail_0(host, kill);
		if (!unread)
			for (int i = 0; i < 2; i++)
				ha_instance_progress(pair.inst[i]);
		pair_connect(&pair);
		for (uint32_t i = 1; i < 5; i++)
			transfer(&pair, i * 3000, i);
		pair_idle(&pair, SETTLE_MS);
		transfer(&pair, 70000, 9);
		for (uint32_t host = 0; host < 2; host++) {
			struct ha_comm *comm = host ? pair.recv : pair.send;

			if (isolated || hosts & 1u << host)
				assert_string_equal(active(comm)->nic->name, "sim1");
			assert_int_equal(ha_comm_error(comm), HA_OK);
			assert_int_equal(comm->port->index, 0);
		}
		pair_close(&pair);
	}
}

/* What it was asked for is what it returns to, although it did not begin there. */
static void it_prefers_the_port_it_was_asked_for_once_that_is_back(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;

		begin(&pair, true);
		pair.config.enable_failback = true;
		pair_open(&pair);
		sv_stepped_link(host, 0, false);
		for (int i = 0; i < 2; i++)
			ha_instance_progress(pair.inst[i]);
		pair_connect(&pair);
		transfer(&pair, 3000, 1);
		pair_idle(&pair, SETTLE_MS);
		assert_string_equal(active(pair.send)->nic->name, "sim1");
		assert_string_equal(active(pair.recv)->nic->name, "sim1");
		sv_stepped_link(host, 0, true);
		pair_idle(&pair, 3 * SETTLE_MS);
		transfer(&pair, 3000, 2);
		assert_string_equal(active(pair.send)->nic->name, "sim0");
		assert_string_equal(active(pair.recv)->nic->name, "sim0");
		pair_close(&pair);
	}
}

/* One call of one of the two ends, or a round of both threads. */
static void handshake_step(struct pair *pair, int i)
{
	if (i % 3 == 0 && !pair->send)
		assert_int_equal(
		    ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair->handle, &pair->send),
		    HA_OK);
	if (i % 3 == 1 && !pair->recv)
		assert_int_equal(ha_accept(pair->listen, &pair->recv), HA_OK);
	if (i % 3 == 2)
		for (int k = 0; k < 2; k++)
			ha_instance_progress(pair->inst[k]);
}

/* False: the connection was there before. */
static bool dies_at_step(uint32_t host, int at)
{
	struct pair pair;
	bool dead = false;

	begin(&pair, false);
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	for (int i = 0; i < 2000 && !(pair.send && pair.recv); i++) {
		if (i == at) {
			sv_stepped_link(host, 0, false);
			dead = true;
		}
		handshake_step(&pair, i);
	}
	pair_connect(&pair);
	transfer(&pair, 20000, 3);
	pair_idle(&pair, SETTLE_MS);
	transfer(&pair, 20000, 4);
	if (dead)
		assert_string_equal(active(host ? pair.recv : pair.send)->nic->name, "sim1");
	pair_close(&pair);
	return dead;
}

/* In the middle of the handshake, at each of its steps. */
static void a_port_that_dies_while_the_connection_is_made(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		int steps = 0;

		while (dies_at_step(host, steps))
			steps++;
		assert_true(steps >= 4);
	}
}

/* Rail 1 is down at the start of host 1: NCCL sees one device there, the connection two. */
static void a_port_that_comes_up_later_protects(void **state)
{
	struct ha_instance_options options;
	struct pair pair;

	(void)state;
	begin(&pair, false);
	options = (struct ha_instance_options){.config = &pair.config, .no_threads = true};
	if (sv_stepped_open_contexts() != 0)
		sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(&pair.fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	sv_stepped_link(1, 1, false);
	for (uint32_t host = 0; host < 2; host++) {
		sv_stepped_set_host(host);
		assert_int_equal(ha_instance_open(&options, &pair.inst[host]), HA_OK);
	}
	assert_int_equal(ha_instance_devices(pair.inst[1])->nports, 1);
	pair_connect(&pair);
	transfer(&pair, 3000, 1);
	sv_stepped_link(1, 1, true);
	pair_idle(&pair, SETTLE_MS);
	/* There is nothing else that this could be replaced by. */
	sv_stepped_link(1, 0, false);
	for (uint32_t i = 2; i < 6; i++)
		transfer(&pair, 3000 * i, i);
	assert_string_equal(active(pair.recv)->nic->name, "sim1");
	assert_false(active(pair.recv)->port->was_up);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_close(&pair);
}

/* ---- who sees it ---------------------------------------------------------------------------- */

static unsigned starts, listed_early;
static void (*meanwhile)(struct ha_comm *comm);

static bool is_listed(const struct ha_comm *comm)
{
	struct ha_instance *inst = comm->inst;
	bool found = false;
	struct ha_list *pos;

	pthread_mutex_lock(&inst->lock);
	ha_list_for_each (pos, &inst->comms)
		found |= ha_container_of(pos, struct ha_comm, in_instance) == comm;
	pthread_mutex_unlock(&inst->lock);
	return found;
}

ha_result_t __real_ha_ctrl_sock_start(struct ha_ctrl_sock *sock, struct ha_comm *comm);
ha_result_t __wrap_ha_ctrl_sock_start(struct ha_ctrl_sock *sock, struct ha_comm *comm);
ha_result_t __wrap_ha_ctrl_sock_start(struct ha_ctrl_sock *sock, struct ha_comm *comm)
{
	starts++;
	listed_early += is_listed(comm);
	if (meanwhile)
		meanwhile(comm);
	return __real_ha_ctrl_sock_start(sock, comm);
}

/* Other threads go through the list and look at what is in it, without the token. */
static void a_connection_is_listed_when_it_is_complete(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair, false);
	starts = listed_early = 0;
	pair_up(&pair);
	assert_int_equal(starts, 2);
	assert_int_equal(listed_early, 0);
	assert_true(is_listed(pair.send) && is_listed(pair.recv));
	pair_close(&pair);
}

/* The event finds no connection to tell. */
static void lose_port(struct ha_comm *comm)
{
	if (!comm->is_send)
		return;
	sv_stepped_link(0, 0, false);
	sv_stepped_run_idle(HA_NS_PER_MS);
	sv_stepped_set_host(0);
	(void)ha_instance_progress(comm->inst);
}

static void a_port_that_goes_before_it_is_listed_is_noticed(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair, false);
	meanwhile = lose_port;
	pair_up(&pair);
	meanwhile = NULL;
	transfer(&pair, 20000, 5);
	assert_string_equal(active(pair.send)->nic->name, "sim1");
	assert_int_equal(pair.send->count.failovers, 1);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	pair_close(&pair);
}

/* ---- the address ---------------------------------------------------------------------------- */

/* The table changes between the making of a path and its connecting. */
static void a_path_goes_out_from_the_address_that_the_peer_was_told(void **state)
{
	struct ha_path *path[2];
	struct pair pair;

	(void)state;
	for (unsigned gone = 0; gone < 2; gone++) {
		struct ha_wire_endpoint told[2];
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		union ibv_gid other = {{0}}, from;
		ha_result_t result;

		begin(&pair, false);
		pair.config.enable_backup = false; /* no path but ours */
		pair_up(&pair);
		for (int end = 0; end < 2; end++) {
			struct ha_path_options options = {
			    .port = &ha_instance_devices(pair.inst[end])->ports[1],
			    .index = 1,
			    .generation = 1,
			    .nqps = 1};

			assert_int_equal(
			    ha_path_open(end ? pair.recv : pair.send, &options, &path[end]), HA_OK);
			ha_path_endpoint(path[end], &told[end]);
		}
		memcpy(other.raw, told[0].gid, sizeof(other.raw));
		other.raw[15] ^= 0x40;
		memcpy(from.raw, told[0].gid, sizeof(from.raw));
		if (!gone)
			sv_stepped_set_gid(0, 1, 1, &from); /* of RoCE v2, too */
		sv_stepped_set_gid(0, 1, (uint32_t)path[0]->addr.gid_index, &other);
		pair_settle(&pair);
		result = ha_path_connect(path[0], &told[1]);
		if (gone) {
			assert_int_equal(result, HA_ERR_SYSTEM);
			assert_logged("from the address as it was told");
		} else {
			assert_int_equal(result, HA_OK);
			assert_int_equal(ibv_query_qp(path[0]->qps[0].qp, &attr, IBV_QP_AV, &init),
					 0);
			assert_int_equal(
			    ibv_query_gid(path[0]->on->ctx, 1, attr.ah_attr.grh.sgid_index, &from),
			    0);
			assert_memory_equal(from.raw, told[0].gid, sizeof(from.raw));
		}
		ha_path_close(path[0]);
		ha_path_close(path[1]);
		pair_close(&pair);
	}
}

/* ---- what does not go on -------------------------------------------------------------------- */

#define FEW_DESCRIPTORS 256

static struct {
	struct rlimit before;
	int fds[FEW_DESCRIPTORS], n;
} taken;

/* Until `free_one` or `free_all` there is no descriptor that one could get. */
static void take_all_descriptors(void)
{
	struct rlimit few;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &taken.before), 0);
	few = taken.before;
	few.rlim_cur = FEW_DESCRIPTORS;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (taken.n = 0; (fd = fcntl(0, F_DUPFD_CLOEXEC, 0)) >= 0; taken.n++)
		taken.fds[taken.n] = fd;
	assert_int_equal(errno, EMFILE);
	assert_true(taken.n > 0);
}

static void free_one(void)
{
	close(taken.fds[--taken.n]);
}

static void free_all(void)
{
	while (taken.n > 0)
		free_one();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &taken.before), 0);
}

static unsigned times_logged(const char *text)
{
	unsigned n = 0;

	for (const char *at = captured_log; (at = strstr(at, text)) != NULL; at++)
		n++;
	return n;
}

static void pass_s(unsigned s)
{
	sv_stepped_run(sv_stepped_now() + s * HA_NS_PER_S);
}

/* One of several connects through one listener, with the state in a handle of its own. */
struct connecting {
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_comm *comm;
};

static void connect_step(struct pair *pair, struct connecting *c)
{
	if (!c->comm)
		assert_int_equal(
		    ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, c->handle, &c->comm),
		    HA_OK);
}

#define NO_DESCRIPTORS "accept on sim0:1: Too many open files: connections wait"

static void
a_process_without_descriptors_takes_one_more_connection_and_says_that_others_wait(void **state)
{
	struct ha_comm *first = NULL, *second = NULL;
	struct connecting c[2] = {0};
	struct pair pair;

	(void)state;
	begin(&pair, false);
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	for (int i = 0; i < 2; i++) {
		memcpy(c[i].handle, pair.handle, sizeof(c[i].handle));
		for (int call = 0; call < 5; call++)
			connect_step(&pair, &c[i]);
	}
	take_all_descriptors();
	for (int call = 0; call < 5 && !first; call++)
		assert_int_equal(ha_accept(pair.listen, &first), HA_OK);
	for (int i = 0; i < 2 && !first; i++) { /* READY is still to come */
		connect_step(&pair, &c[0]);
		connect_step(&pair, &c[1]);
		assert_int_equal(ha_accept(pair.listen, &first), HA_OK);
	}
	assert_non_null(first);
	/* What is said once a minute. */
	for (unsigned s = 0; s < 119; s++) {
		assert_int_equal(ha_accept(pair.listen, &second), HA_OK);
		assert_null(second);
		if (s == 9)
			assert_int_equal(times_logged(NO_DESCRIPTORS), 1);
		pass_s(1);
	}
	assert_int_equal(times_logged(NO_DESCRIPTORS), 2);
	free_one();
	for (int i = 0; i < 10 && !second; i++) {
		assert_int_equal(ha_accept(pair.listen, &second), HA_OK);
		connect_step(&pair, &c[0]);
		connect_step(&pair, &c[1]);
	}
	free_all();
	assert_non_null(second);
	assert_true(c[0].comm && c[1].comm);
	for (int i = 0; i < 2; i++)
		ha_close_send(c[i].comm);
	ha_close_recv(first);
	ha_close_recv(second);
	pair_close(&pair);
}

static void an_accept_that_gets_no_descriptor_for_two_minutes_ends_with_a_reason(void **state)
{
	ha_result_t result = HA_OK;
	struct ha_comm *comm;
	struct pair pair;
	unsigned s = 0;
	int fd;

	(void)state;
	begin(&pair, false);
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	ha_net_reserve_close(&pair.inst[1]->reserve);
	take_all_descriptors();
	/* Nobody waits, so nothing is missing. */
	assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
	assert_int_equal(captured_warnings, 0);
	free_one();
	fd = peer_dial(pair.handle);
	for (; s < 200 && result == HA_OK; s++) {
		result = ha_accept(pair.listen, &comm);
		assert_null(comm);
		if (s == 0)
			assert_logged(NO_DESCRIPTORS);
		pass_s(1);
	}
	free_all();
	assert_int_equal(result, HA_ERR_SYSTEM);
	assert_in_range(s, 120, 122);
	assert_logged("Too many open files, for 120 s now: no connection can be made; raise "
		      "'ulimit -n'");
	close(fd);
	pair_close(&pair);
}

static void a_listener_that_says_nothing_is_told_of_dialled_again_and_given_up(void **state)
{
	uint8_t handle[HA_HANDLE_BYTES];
	ha_result_t result = HA_OK;
	int listener, dialled = 0;
	struct ha_comm *comm;
	struct pair pair;
	char text[200], address[HA_SOCKADDR_TEXT_MAX];
	struct ha_handle decoded;
	unsigned s = 0;

	(void)state;
	begin(&pair, false);
	pair_open(&pair);
	listener = peer_listen(handle, 77);
	assert_int_equal(ha_handle_decode(handle, &decoded), HA_WIRE_OK);
	ha_sockaddr_text(&decoded.addr, address, sizeof(address));
	for (; s < 600 && result == HA_OK; s++) {
		for (int call = 0; call < 3 && result == HA_OK; call++)
			result = ha_connect(pair.inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm);
		assert_null(comm);
		if (s == 10) {
			snprintf(text, sizeof(text),
				 "connect to %s: not through after 10 s: waiting for the "
				 "listener's answer",
				 address);
			assert_logged(text);
		}
		pass_s(1);
	}
	assert_int_equal(result, HA_ERR_REMOTE);
	assert_in_range(s, 200, 260);
	assert_int_equal(captured_warnings, 2);
	snprintf(text, sizeof(text),
		 "connect to %s: waiting for the listener's answer: it says "
		 "nothing, for 24",
		 address);
	assert_logged(text);
	for (int fd; (fd = peer_accept(listener)) >= 0; dialled++)
		close(fd);
	assert_int_equal(dialled, 2);
	close(listener);
	pair_close(&pair);
}

static void a_peer_that_begins_and_says_no_more_is_told_of(void **state)
{
	struct ha_handle decoded;
	struct ha_hello hello;
	struct ha_comm *comm;
	struct pair pair;
	int fd;

	(void)state;
	begin(&pair, false);
	pair.config.enable_backup = false; /* as this peer */
	pair_open(&pair);
	assert_int_equal(ha_listen(pair.inst[1], 0, pair.handle, &pair.listen), HA_OK);
	assert_int_equal(ha_handle_decode(pair.handle, &decoded), HA_WIRE_OK);
	hello = peer_hello(decoded.secrets.ask);
	fd = peer_dial(pair.handle);
	peer_say_hello(fd, &hello);
	for (unsigned s = 0; s < 130; s++) {
		assert_int_equal(ha_accept(pair.listen, &comm), HA_OK);
		assert_null(comm);
		assert_int_equal(captured_warnings, s < 120 ? 0 : 1);
		pass_s(1);
	}
	assert_logged("began a connection and then said nothing for 120 s");
	close(fd);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_port_that_died_before_the_connection),
	    cmocka_unit_test(it_prefers_the_port_it_was_asked_for_once_that_is_back),
	    cmocka_unit_test(a_port_that_dies_while_the_connection_is_made),
	    cmocka_unit_test(a_port_that_comes_up_later_protects),
	    cmocka_unit_test(a_connection_is_listed_when_it_is_complete),
	    cmocka_unit_test(a_port_that_goes_before_it_is_listed_is_noticed),
	    cmocka_unit_test(a_path_goes_out_from_the_address_that_the_peer_was_told),
	    cmocka_unit_test(
		a_process_without_descriptors_takes_one_more_connection_and_says_that_others_wait),
	    cmocka_unit_test(an_accept_that_gets_no_descriptor_for_two_minutes_ends_with_a_reason),
	    cmocka_unit_test(a_listener_that_says_nothing_is_told_of_dialled_again_and_given_up),
	    cmocka_unit_test(a_peer_that_begins_and_says_no_more_is_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
