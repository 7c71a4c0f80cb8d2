/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport by itself: two hosts with two rails each, put together here out of configuration,
 * devices, background work and ha_no_failover, without anything that lies above the transport. It
 * carries data over both rails. What the hardware does not survive is latched, and is no business
 * of the connection on the other rail.
 */
#include "../unit/cmocka_all.h"

#include "../unit/captured_log.h"
#include "../unit/read_events.h"
#include "base/clock.h"
#include "base/net.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "simverbs/simverbs.h"
#include "transport/async_event.h"
#include "transport/comm.h"
#include "transport/comm_stats.h"
#include "transport/connect.h"
#include "transport/failover_ops.h"
#include "transport/shared.h"

#include <string.h>
#include <sys/epoll.h>

/* Fails with the whole log when it says no such thing. */
#define assert_logged_text(text)                                                                   \
	do {                                                                                       \
		if (!logged(text))                                                                 \
			fail_msg("not in the log: %s; it says:\n%s", (text), captured_log);        \
	} while (0)

#define RAILS	 2
#define MEM_SIZE (2u << 20)
#define CANARY	 0xa5
#define AT	 4096 /* where a message lies in a buffer, with canaries before and behind it */

/* How far the clock jumps when nothing moves, and how long a test waits of its time. */
#define QUIET_NS   HA_NS_PER_MS
#define TIMEOUT_NS (200 * HA_NS_PER_S)
#define CONNECT_NS (20 * HA_NS_PER_S) /* of real time: the sockets are real */

enum { SENDER, RECEIVER, HOSTS };

/* A connection from one host to the other, both ends on device `rail`. */
struct connection {
	struct ha_comm *send, *recv;
	struct ha_mr *from_mr, *to_mr;
	uint8_t from[MEM_SIZE], to[MEM_SIZE];
	struct ha_request *sending, *receiving; /* NULL: nothing is under way */
	size_t size;
	uint32_t seed;
};

static struct {
	struct ha_instance hosts[HOSTS];
	struct connection on[RAILS];
	uint64_t data_packets[RAILS]; /* delivered or lost on the way */
} world;

/* ---- hosts: what instance/ does, without failover, heartbeats and operator ------------------ */

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

static void nic_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_nic_watch *w = ha_container_of(watch, struct ha_nic_watch, watch);
	int read = read_events(w->inst->devices, w->nic);

	if (atomic_load(&w->nic->fatal) || (read == 0 && (events & (EPOLLHUP | EPOLLERR))))
		ha_progress_unwatch_self(w->inst->progress, watch);
}

static void watch_nics(struct ha_instance *inst)
{
	inst->devices->on_event = ha_instance_event;
	inst->devices->on_event_arg = inst;
	for (int i = 0; i < inst->devices->nnics; i++) {
		struct ha_nic_watch *w = &inst->nic_watches[i];

		w->inst = inst;
		w->nic = &inst->devices->nics[i];
		w->watch = (struct ha_watch){.fd = w->nic->now->ctx->async_fd, .ready = nic_ready};
		assert_int_equal(ha_progress_watch(inst->progress, &w->watch), HA_OK);
	}
}

static void host_open(uint32_t host)
{
	const struct ha_progress_options progress = {.thread = false, .idle_spin_threshold = 1};
	struct ha_instance *inst = &world.hosts[host];
	struct ha_netif all[HA_NETIFS_MAX], netif;

	sv_stepped_set_host(host);
	ha_config_load(&inst->config, no_environment);
	strcpy(inst->config.socket_ifname, "=lo");
	inst->config.lone_timeout_min = inst->config.lone_rto_min_ms = 0;
	strcpy(inst->host, host == SENDER ? "sender" : "receiver");
	inst->failover = &ha_no_failover;
	pthread_mutex_init(&inst->lock, NULL);
	ha_unreachable_init(&inst->unreachable);
	ha_list_init(&inst->comms);
	ha_list_init(&inst->attempts);
	ha_kept_paths_init(&inst->kept);
	assert_int_equal(ha_device_set_open(&inst->config, &inst->devices), HA_OK);
	assert_int_equal(inst->devices->nports, RAILS);
	assert_int_equal(ha_net_choose(&inst->config, all, ha_net_list(all, HA_NETIFS_MAX), &netif),
			 HA_OK);
	inst->bootstrap_addr = netif.addr;
	assert_int_equal(ha_progress_start(&progress, &inst->progress), HA_OK);
	ha_kept_paths_start(inst);
	watch_nics(inst);
}

static void host_close(struct ha_instance *inst)
{
	for (int i = 0; i < inst->devices->nnics; i++)
		ha_progress_unwatch(inst->progress, &inst->nic_watches[i].watch);
	ha_connect_abandon_all(inst);
	assert_true(ha_list_empty(&inst->comms));
	ha_kept_paths_stop(inst);
	assert_true(ha_progress_end(inst->progress, NULL, NULL));
	ha_memory_close(inst->devices);
	ha_device_set_close(inst->devices);
	ha_kept_paths_free(inst, NULL);
	ha_unreachable_destroy(&inst->unreachable);
	pthread_mutex_destroy(&inst->lock);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void connect_on(int rail)
{
	struct connection *c = &world.on[rail];
	uint64_t give_up_ns = ha_real_ns() + CONNECT_NS;
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_listen *listen;

	assert_int_equal(ha_listen(&world.hosts[RECEIVER], rail, handle, &listen), HA_OK);
	while (!(c->send && c->recv) && ha_real_ns() < give_up_ns) {
		if (!c->send)
			assert_int_equal(ha_connect(&world.hosts[SENDER], rail,
						    HA_TRAFFIC_CLASS_UNDEF, handle, &c->send),
					 HA_OK);
		if (!c->recv)
			assert_int_equal(ha_accept(listen, &c->recv), HA_OK);
	}
	assert_non_null(c->send);
	assert_non_null(c->recv);
	ha_close_listen(listen);
	assert_int_equal(ha_reg_mr(c->send, c->from, MEM_SIZE, HA_MEM_HOST, 0, -1, &c->from_mr),
			 HA_OK);
	assert_int_equal(ha_reg_mr(c->recv, c->to, MEM_SIZE, HA_MEM_HOST, 0, -1, &c->to_mr), HA_OK);
}

static void close_send(struct connection *c)
{
	ha_dereg_mr(c->send, c->from_mr);
	ha_close_send(c->send);
	c->send = NULL;
}

static void close_recv(struct connection *c)
{
	ha_dereg_mr(c->recv, c->to_mr);
	ha_close_recv(c->recv);
	c->recv = NULL;
}

static void disconnect(struct connection *c)
{
	if (c->send)
		close_send(c);
	if (c->recv)
		close_recv(c);
}

static int two_hosts_and_two_rails(void **state)
{
	const struct sv_stepped_opts fabric = {.rails = RAILS, .seed = 1, .isolated_rails = true};

	(void)state;
	if (sv_stepped_open_contexts() != 0)
		sv_stepped_destroy(); /* what a test that failed half way left */
	memset(&world, 0, sizeof(world));
	capture_log();
	assert_int_equal(sv_stepped_open(&fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	host_open(SENDER);
	host_open(RECEIVER);
	for (int rail = 0; rail < RAILS; rail++)
		connect_on(rail);
	return 0;
}

static int all_is_given_back(void **state)
{
	(void)state;
	for (int rail = 0; rail < RAILS; rail++)
		disconnect(&world.on[rail]);
	host_close(&world.hosts[SENDER]);
	host_close(&world.hosts[RECEIVER]);
	ha_clock_set_source(NULL);
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
	return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

static struct sv_stepped_stats counters(void)
{
	struct sv_stepped_stats stats;

	sv_stepped_get_stats(&stats);
	return stats;
}

static void count_packet(void)
{
	struct sv_event_info next;

	if (!sv_stepped_peek(&next) || next.kind != SV_EVENT_PACKET || next.length == 0)
		return;
	assert_int_equal(next.src_rail, next.dst_rail);
	world.data_packets[next.src_rail]++;
}

static void step(void)
{
	bool moved;

	count_packet();
	moved = sv_stepped_step();
	/* What they say to each other on sockets takes no time: the next event may be far away. */
	for (int round = 0, worked = 1; worked && round < 20; round++) {
		worked = ha_progress_round(world.hosts[SENDER].progress) > 0;
		worked |= ha_progress_round(world.hosts[RECEIVER].progress) > 0;
		moved |= worked;
	}
	if (!moved)
		sv_stepped_run(sv_stepped_now() + QUIET_NS);
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 13);
}

/* Posts a message at both ends. */
static void start(struct connection *c, size_t size, uint32_t seed)
{
	const size_t capacity = size + 100;
	const int tag = (int)seed;
	void *to = c->to + AT;

	assert_true(AT + capacity <= MEM_SIZE);
	c->size = size;
	c->seed = seed;
	memset(c->to, CANARY, sizeof(c->to));
	for (size_t i = 0; i < size; i++)
		c->from[AT + i] = pattern(i, seed);
	assert_int_equal(ha_irecv(c->recv, 1, &to, &capacity, &tag, &c->to_mr, &c->receiving),
			 HA_OK);
	assert_non_null(c->receiving);
	for (uint64_t give_up_ns = sv_stepped_now() + TIMEOUT_NS;
	     !c->sending && sv_stepped_now() < give_up_ns; step())
		assert_int_equal(
		    ha_isend(c->send, c->from + AT, size, tag, c->from_mr, &c->sending), HA_OK);
	if (!c->sending)
		fail_msg("a send does not match; log:\n%s", captured_log);
}

/* Until a request is done, or the connection it belongs to has failed. */
static ha_result_t finish(struct ha_request **request, int *size)
{
	uint64_t give_up_ns = sv_stepped_now() + TIMEOUT_NS;

	while (sv_stepped_now() < give_up_ns) {
		bool done;
		ha_result_t result = ha_test(*request, &done, size);

		if (done)
			*request = NULL;
		if (result != HA_OK || done)
			return result;
		step();
	}
	fail_msg("a request does not complete; log:\n%s", captured_log);
	return HA_ERR_INTERNAL;
}

static bool all_canaries(const uint8_t *bytes, size_t n)
{
	return bytes[0] == CANARY && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* The message that is under way arrives whole, and nothing beside it. */
static void assert_arrives(struct connection *c)
{
	int sent = -1, got = -1;

	assert_int_equal(finish(&c->receiving, &got), HA_OK);
	assert_int_equal(finish(&c->sending, &sent), HA_OK);
	assert_int_equal(sent, (int)c->size);
	assert_int_equal(got, (int)c->size);
	for (size_t i = 0; i < c->size; i++)
		if (c->to[AT + i] != pattern(i, c->seed))
			fail_msg("byte %zu is 0x%02x, not 0x%02x", i, c->to[AT + i],
				 pattern(i, c->seed));
	assert_true(all_canaries(c->to, AT));
	assert_true(all_canaries(c->to + AT + c->size, sizeof(c->to) - AT - c->size));
}

static void transfer(struct connection *c, size_t size, uint32_t seed)
{
	start(c, size, seed);
	assert_arrives(c);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* An error stays: each call on this end gives it, again and again. */
static void assert_latched(struct ha_comm *comm, struct ha_request *request, ha_result_t code)
{
	struct connection *c =
	    comm == world.on[0].send || comm == world.on[0].recv ? &world.on[0] : &world.on[1];
	void *to = c->to + AT;
	size_t size = 100;
	int tag = 1;

	for (int i = 0; i < 3; i++) {
		struct ha_request *out;
		bool done;

		assert_int_equal(ha_test(request, &done, NULL), code);
		assert_false(done);
		if (comm->is_send)
			assert_int_equal(ha_isend(comm, c->from + AT, size, tag, c->from_mr, &out),
					 code);
		else
			assert_int_equal(ha_irecv(comm, 1, &to, &size, &tag, &c->to_mr, &out),
					 code);
		assert_null(out);
	}
}

static void assert_healthy(const struct connection *c)
{
	assert_int_equal(ha_comm_error(c->send), HA_OK);
	assert_int_equal(ha_comm_error(c->recv), HA_OK);
}

/* The other rail: the message that was under way when this one failed, and more after it. */
static void assert_goes_on(struct connection *c)
{
	assert_arrives(c);
	for (uint32_t i = 0; i < 40; i++)
		transfer(c, 10000 * i, 100 + i);
	assert_healthy(c);
}

/* ---- while all is well ----------------------------------------------------------------------- */

static void a_transport_alone_keeps_no_connection_alive(void **state)
{
	(void)state;
	for (int rail = 0; rail < RAILS; rail++)
		for (int end = 0; end < HOSTS; end++) {
			const struct ha_comm *comm =
			    end == SENDER ? world.on[rail].send : world.on[rail].recv;

			/* It is what the settings ask for that is missing, not that it was asked.
			 */
			assert_true(comm->config->enable_backup);
			assert_ptr_equal(comm->ops, &ha_no_failover);
			assert_null(comm->failover);
			assert_int_equal(comm->features, 0);
			assert_int_equal(comm->npaths, 1);
			assert_int_equal(comm->paths[0]->port->index, rail);
		}
}

static void both_rails_carry_data_at_once(void **state)
{
	static const size_t sizes[] = {0, 1, 100, 4096, 4097, 65537, 300000, 2000000};
	size_t bytes = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (uint32_t rail = 0; rail < RAILS; rail++) {
			uint64_t before[RAILS];

			start(&world.on[0], sizes[i], (uint32_t)i + 1);
			start(&world.on[1], sizes[i], (uint32_t)i + 1000);
			/* Whichever is waited for first. */
			assert_arrives(&world.on[rail]);
			assert_arrives(&world.on[1 - rail]);
			/* Nothing of it takes the other rail. */
			memcpy(before, world.data_packets, sizeof(before));
			transfer(&world.on[rail], sizes[i] + 1, 7);
			assert_true(world.data_packets[rail] > before[rail]);
			assert_true(world.data_packets[1 - rail] == before[1 - rail]);
			bytes += sizes[i];
		}
	for (uint32_t rail = 0; rail < RAILS; rail++) {
		assert_true(world.data_packets[rail] >= bytes / 4096);
		assert_healthy(&world.on[rail]);
	}
	assert_int_equal(captured_warnings, 0);
}

static void an_end_that_closes_says_so_and_the_other_one_has_not_failed(void **state)
{
	(void)state;
	transfer(&world.on[0], 1000, 1);
	transfer(&world.on[1], 1000, 2);
	close_send(&world.on[0]);
	close_recv(&world.on[1]);
	for (int i = 0; i < 100; i++)
		step();
	assert_true(atomic_load(&world.on[0].recv->peer_bye));
	assert_true(atomic_load(&world.on[1].send->peer_bye));
	assert_int_equal(ha_comm_error(world.on[0].recv), HA_OK);
	assert_int_equal(ha_comm_error(world.on[1].send), HA_OK);
	assert_int_equal(captured_warnings, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A message is under way on each rail, of more packets than leave at once. */
static void start_on_both(void)
{
	start(&world.on[0], 2000000, 5);
	start(&world.on[1], 2000000, 6);
	/* Until what the receivers have sent is acknowledged: from here on it is the senders' turn.
	 */
	for (uint64_t until_ns = sv_stepped_now() + 10 * HA_NS_PER_US; sv_stepped_now() < until_ns;)
		step();
	assert_non_null(world.on[0].sending);
	assert_non_null(world.on[1].sending);
}

/* How long the sender's hardware tries before it gives up, at least. */
static uint64_t retries_ns(void)
{
	const struct ha_config *config = &world.hosts[SENDER].config;

	return (uint64_t)config->rc_retry_cnt * ((uint64_t)4096 << config->rc_timeout);
}

/* The sender's hardware retries until it gives up; the receiver hears of it from the sender. */
static void assert_sender_gives_up(struct connection *c, const struct sv_stepped_stats *before)
{
	const unsigned retries = (unsigned)world.hosts[SENDER].config.rc_retry_cnt;
	uint64_t cut_ns = sv_stepped_now();
	int warnings;

	assert_int_equal(finish(&c->sending, NULL), HA_ERR_REMOTE);
	assert_int_equal(finish(&c->receiving, NULL), HA_ERR_REMOTE);
	/* It was the retries, not something that came sooner. */
	assert_true(counters().timers - before->timers > retries);
	assert_true(sv_stepped_now() - cut_ns > retries_ns());
	assert_logged_text("transport retry counter exceeded");
	assert_logged_text("the peer has given up");
	/* What was under way touches no memory any more, should the link come back. */
	assert_true(ha_path_stopped(c->send->paths[0]));
	warnings = captured_warnings;
	assert_latched(c->send, c->sending, HA_ERR_REMOTE);
	assert_latched(c->recv, c->receiving, HA_ERR_REMOTE);
	assert_int_equal(captured_warnings, warnings);
}

static void a_link_stays_down(uint32_t host, uint32_t rail)
{
	struct sv_stepped_stats before;
	uint64_t errors = world.hosts[host].port_reports[rail].port_errors;

	start_on_both();
	before = counters();
	sv_stepped_link(host, rail, false);
	assert_sender_gives_up(&world.on[rail], &before);
	assert_true(counters().lost_link > before.lost_link);
	assert_int_equal(world.hosts[host].port_reports[rail].port_errors, errors + 1);
	assert_false(ha_port_usable(&world.hosts[host].devices->ports[rail]));
	assert_int_equal(captured_warnings, 3); /* one for each end, and one for the port */
	assert_goes_on(&world.on[1 - rail]);
}

static void a_sender_s_link_that_stays_down_is_latched(void **state)
{
	(void)state;
	a_link_stays_down(SENDER, 0);
}

static void a_receiver_s_link_that_stays_down_is_latched(void **state)
{
	(void)state;
	a_link_stays_down(RECEIVER, 1);
}

/* No event tells of it. */
static void a_switch_that_stays_silent_is_latched(void **state)
{
	struct sv_stepped_stats before;

	(void)state;
	start_on_both();
	before = counters();
	sv_stepped_cut(1, true);
	assert_sender_gives_up(&world.on[1], &before);
	assert_true(counters().lost_cut > before.lost_cut);
	assert_int_equal(captured_warnings, 2); /* one for each end */
	assert_goes_on(&world.on[0]);
}

/* The end whose device died knows at once, and tells the other one. */
static void a_device_dies(uint32_t host, uint32_t rail)
{
	struct connection *c = &world.on[rail];
	struct ha_comm *here = host == SENDER ? c->send : c->recv;
	uint64_t killed_ns;

	start_on_both();
	killed_ns = sv_stepped_now();
	sv_stepped_kill(host, rail);
	assert_int_equal(finish(&c->sending, NULL), host == SENDER ? HA_ERR_SYSTEM : HA_ERR_REMOTE);
	assert_int_equal(finish(&c->receiving, NULL),
			 host == SENDER ? HA_ERR_REMOTE : HA_ERR_SYSTEM);
	assert_true(atomic_load(&world.hosts[host].devices->ports[rail].nic->fatal));
	assert_int_equal(world.hosts[host].port_reports[rail].device_errors, 1);
	assert_logged_text(rail == 0 ? "device sim0 failed" : "device sim1 failed");
	assert_true(sv_stepped_now() - killed_ns < HA_NS_PER_S);
	assert_true(ha_path_stopped(here->paths[0]));
	assert_int_equal(captured_warnings, 3); /* one for each end, and one for the device */
	assert_latched(here, here->is_send ? c->sending : c->receiving, HA_ERR_SYSTEM);
	assert_int_equal(captured_warnings, 3);
	assert_goes_on(&world.on[1 - rail]);
}

static void a_sender_s_device_that_dies_is_latched_at_once(void **state)
{
	(void)state;
	a_device_dies(SENDER, 1);
}

static void a_receiver_s_device_that_dies_is_latched_at_once(void **state)
{
	(void)state;
	a_device_dies(RECEIVER, 0);
}

/* ---- what passes ----------------------------------------------------------------------------- */

/* Down until the hardware has tried again in vain so many times. */
static void a_link_comes_back(uint32_t host, uint32_t rail, uint64_t retries)
{
	const int warnings = captured_warnings;
	struct ha_instance *inst = &world.hosts[host];
	struct ha_port *port = &inst->devices->ports[rail];
	uint64_t errors = inst->port_reports[rail].port_errors;
	struct sv_stepped_stats before;

	start_on_both();
	before = counters();
	sv_stepped_link(host, rail, false);
	while (counters().timers - before.timers < retries ||
	       counters().lost_link == before.lost_link)
		step();
	/* Everybody has heard of it, and nobody minds. */
	assert_int_equal(inst->port_reports[rail].port_errors, errors + 1);
	assert_false(ha_port_usable(port));
	assert_healthy(&world.on[rail]);
	sv_stepped_link(host, rail, true);
	assert_arrives(&world.on[rail]);
	assert_true(ha_port_usable(port));
	assert_arrives(&world.on[1 - rail]);
	transfer(&world.on[rail], 100000, 8);
	assert_healthy(&world.on[rail]);
	assert_healthy(&world.on[1 - rail]);
	assert_int_equal(captured_warnings, warnings + 1); /* that the port was down */
}

static void a_port_that_is_back_within_the_retries_has_not_failed(void **state)
{
	/* The last retry gets through. */
	const uint64_t most = (uint64_t)world.hosts[SENDER].config.rc_retry_cnt - 1;

	(void)state;
	a_link_comes_back(SENDER, 0, 0);
	a_link_comes_back(RECEIVER, 1, 1);
	a_link_comes_back(RECEIVER, 0, most);
	a_link_comes_back(SENDER, 1, most);
}

static void an_address_that_is_replaced_is_no_failure(void **state)
{
	struct ha_port *port = &world.hosts[SENDER].devices->ports[0];
	union ibv_gid other = port->gid;
	struct ha_port_addr addr;

	(void)state;
	start_on_both();
	other.raw[15] ^= 0x40;
	sv_stepped_set_gid(SENDER, 0, (uint32_t)port->gid_index, &other);
	step();
	ha_port_addr(port, &addr);
	assert_memory_equal(&addr.gid, &other, sizeof(other));
	assert_int_equal(world.hosts[SENDER].port_reports[0].address_changes, 1);
	assert_arrives(&world.on[0]);
	assert_arrives(&world.on[1]);
	transfer(&world.on[0], 100000, 8);
	assert_healthy(&world.on[0]);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, two_hosts_and_two_rails, all_is_given_back)
	const struct CMUnitTest tests[] = {
	    TEST(a_transport_alone_keeps_no_connection_alive),
	    TEST(both_rails_carry_data_at_once),
	    TEST(an_end_that_closes_says_so_and_the_other_one_has_not_failed),
	    TEST(a_sender_s_link_that_stays_down_is_latched),
	    TEST(a_receiver_s_link_that_stays_down_is_latched),
	    TEST(a_switch_that_stays_silent_is_latched),
	    TEST(a_sender_s_device_that_dies_is_latched_at_once),
	    TEST(a_receiver_s_device_that_dies_is_latched_at_once),
	    TEST(a_port_that_is_back_within_the_retries_has_not_failed),
	    TEST(an_address_that_is_replaced_is_no_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
