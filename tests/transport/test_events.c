/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to ports and connections is in the event log, the log and the statistics alike. */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "base/stats.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "base/text.h"
#include "transport/comm_event.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct observed {
	struct pair pair;
	char dir[64], stats[256];
	const char *stats_dir_before;
};

/* A connection whose event log and statistics lie in a folder of their own. */
static void observe_with(struct observed *o, uint32_t rails, bool backup, bool failback)
{
	strcpy(o->dir, "/tmp/ha-test-events-XXXXXX");
	assert_non_null(mkdtemp(o->dir));
	o->stats_dir_before = ha_stats_dir;
	ha_stats_dir = o->dir;
	pair_init(&o->pair);
	o->pair.fabric.rails = rails;
	o->pair.config.enable_backup = backup;
	o->pair.config.enable_failback = failback;
	o->pair.config.stats = true;
	snprintf(o->pair.config.event_log, sizeof(o->pair.config.event_log), "%s/events", o->dir);
	pair_up(&o->pair);
	ha_copy_text(o->stats, sizeof(o->stats), ha_stats_path(o->pair.inst[0]->stats));
}

static void observe(struct observed *o)
{
	observe_with(o, 1, false, false);
}

static void unobserve(struct observed *o)
{
	pair_close(&o->pair);
	unlink(o->pair.config.event_log);
	assert_int_equal(rmdir(o->dir), 0);
	ha_stats_dir = o->stats_dir_before;
}

static void rounds(struct observed *o)
{
	sv_stepped_run(sv_stepped_now() + 1000000000);
	for (int i = 0; i < 3; i++)
		for (uint32_t host = 0; host < 2; host++) {
			sv_stepped_set_host(host);
			ha_instance_progress(o->pair.inst[host]);
		}
}

enum whose { OF_A_PORT, OF_A_CONNECTION };

/* How many lines are of this kind, with this reason ("" none); the last of them, to be released. */
static int find_events(const struct observed *o, enum whose whose, const char *kind,
		       const char *reason, json_t **last)
{
	FILE *file = fopen(o->pair.config.event_log, "r");
	char line[16384];
	int found = 0;

	*last = NULL;
	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		json_t *event = json_loads(line, 0, NULL);
		const char *why;

		assert_non_null(event);
		why = json_string_value(json_object_get(event, "reason"));
		if (strcmp(json_string_value(json_object_get(event, "kind")), kind) != 0 ||
		    strcmp(why ? why : "", reason) != 0 ||
		    json_is_null(json_object_get(event, "name")) != (whose == OF_A_PORT)) {
			json_decref(event);
			continue;
		}
		found++;
		json_decref(*last);
		*last = event;
	}
	fclose(file);
	return found;
}

static struct nccl_ha_port_stats port_stats(const struct observed *o, unsigned slot)
{
	struct nccl_ha_port_stats port;
	struct ha_stats_reader reader;

	assert_int_equal(ha_stats_reader_open(&reader, o->stats), 0);
	assert_true(ha_stats_read_port(&reader, slot, &port));
	ha_stats_reader_close(&reader);
	return port;
}

static struct nccl_ha_conn_stats conn_stats(const struct observed *o, uint32_t direction)
{
	struct nccl_ha_conn_stats conn;
	struct ha_stats_reader reader;

	assert_int_equal(ha_stats_reader_open(&reader, o->stats), 0);
	for (unsigned i = 0;; i++) {
		assert_true(i < 16);
		if (ha_stats_read_conn(&reader, i, &conn) && conn.direction == direction)
			break;
	}
	ha_stats_reader_close(&reader);
	return conn;
}

static void a_port_that_goes_and_comes_back_is_seen(void **state)
{
	struct observed o;
	json_t *event;

	(void)state;
	observe(&o);
	assert_int_equal(port_stats(&o, 0).state, IBV_PORT_ACTIVE);
	sv_stepped_link(0, 0, false);
	rounds(&o);
	assert_int_equal(find_events(&o, OF_A_PORT, "failure", "local port down", &event), 1);
	assert_string_equal(
	    json_string_value(json_object_get(json_object_get(event, "from"), "port")), "sim0:1");
	json_decref(event);
	assert_int_equal(port_stats(&o, 0).port_errors, 1);
	assert_int_equal(port_stats(&o, 0).state, IBV_PORT_DOWN);
	sv_stepped_link(0, 0, true);
	rounds(&o);
	assert_int_equal(find_events(&o, OF_A_PORT, "recovery", "", &event), 1);
	json_decref(event);
	assert_int_equal(port_stats(&o, 0).port_recoveries, 1);
	assert_int_equal(port_stats(&o, 0).port_errors, 1);
	unobserve(&o);
}

static void a_dead_device_is_seen(void **state)
{
	struct observed o;
	json_t *event;

	(void)state;
	observe(&o);
	sv_stepped_kill(0, 0);
	rounds(&o);
	assert_true(find_events(&o, OF_A_PORT, "failure", "local device failed", &event) > 0);
	json_decref(event);
	assert_int_equal(port_stats(&o, 0).device_errors, 1);
	assert_int_equal(port_stats(&o, 0).device_fatal, 1);
	unobserve(&o);
}

static void a_device_that_came_back_is_seen(void **state)
{
	struct observed o;
	json_t *event;

	(void)state;
	observe(&o);
	sv_stepped_kill(0, 0);
	rounds(&o);
	assert_int_equal(port_stats(&o, 0).device_fatal, 1);
	sv_stepped_revive(0, 0);
	for (int s = 0; s < 3; s++)
		rounds(&o);
	assert_int_equal(find_events(&o, OF_A_PORT, "recovery",
				     "local device is back and was opened again", &event),
			 1);
	assert_string_equal(
	    json_string_value(json_object_get(json_object_get(event, "to"), "port")), "sim0:1");
	json_decref(event);
	assert_int_equal(port_stats(&o, 0).device_fatal, 0);
	assert_int_equal(port_stats(&o, 0).port_recoveries, 1);
	assert_int_equal(port_stats(&o, 0).state, IBV_PORT_ACTIVE);
	unobserve(&o);
}

static void a_latched_error_is_in_the_event_log_with_its_text(void **state)
{
	struct observed o;
	char id[32];
	json_t *event;

	(void)state;
	observe(&o);
	ha_comm_fail(o.pair.send, HA_ERR_SYSTEM, "a \"test\"");
	ha_comm_fail(o.pair.send, HA_ERR_SYSTEM, "once is enough");
	assert_int_equal(find_events(&o, OF_A_CONNECTION, "latch", "", &event), 1);
	assert_string_equal(json_string_value(json_object_get(event, "detail")), "a \"test\"");
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)o.pair.send->id);
	assert_string_equal(json_string_value(json_object_get(event, "connection")), id);
	json_decref(event);
	unobserve(&o);
}

static void a_switch_is_told_three_times_and_the_same(void **state)
{
	struct ha_event event = ha_event_init(HA_EVENT_SWITCH, HA_REASON_LIVENESS);
	struct nccl_ha_conn_stats conn;
	struct observed o;
	json_t *line;

	(void)state;
	observe(&o);
	event.from = event.to = ha_event_path(o.pair.send->paths[0]);
	event.to.generation++;
	event.epoch = 2;
	event.detection_ns = 600000000;
	event.blackout_ns = 601500000;
	event.completed_without_resend = 1;
	event.replayed_messages = 2;
	event.replayed_bytes = 3000;
	ha_event_report(o.pair.send, &event);
	event.reason = HA_REASON_FAILBACK;
	ha_event_report(o.pair.send, &event);
	rounds(&o);

	assert_int_equal(captured_warnings, 2);
	assert_logged("failover from sim0:1 (path 0.1) to sim0:1 (path 0.2), epoch 2: heartbeats "
		      "lost; detected after 600.0 ms, blackout 601.5 ms, 1 message complete "
		      "without resend, 2 messages (3.0 kB) replayed");
	assert_int_equal(find_events(&o, OF_A_CONNECTION, "switch", "heartbeats lost", &line), 1);
	assert_true(json_real_value(json_object_get(line, "blackout_ms")) == 601.5);
	json_decref(line);

	conn = conn_stats(&o, NCCL_HA_CONN_SEND);
	assert_int_equal(conn.failovers, 2);
	assert_int_equal(conn.failbacks, 1);
	assert_int_equal(conn.completed_without_resend, 2);
	assert_int_equal(conn.replayed_messages, 4);
	assert_int_equal(conn.replayed_bytes, 6000);
	assert_int_equal(conn.detection.count[30], 2); /* 2^29 … 2^30 - 1 */
	assert_int_equal(conn.blackout.sum_ns, 2 * 601500000ull);
	assert_int_equal(conn.last_blackout_ns, 601500000);
	assert_string_equal(conn.last_failover_reason, "preferred path is back");
	assert_true(conn.last_failover_ns > conn.opened_ns);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).failovers, 0);
	unobserve(&o);
}

static void the_other_kinds_are_counted_and_only_an_outage_warns(void **state)
{
	static const enum ha_event_kind kinds[] = {HA_EVENT_FAILURE, HA_EVENT_RECOVERY,
						   HA_EVENT_REBUILD, HA_EVENT_OUTAGE};
	struct observed o;

	(void)state;
	observe(&o);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct ha_event event = ha_event_init(kinds[i], HA_REASON_POST);

		assert_int_equal(captured_warnings, 0);
		event.from = event.to = ha_event_path(o.pair.recv->paths[0]);
		ha_event_report(o.pair.recv, &event);
	}
	assert_int_equal(captured_warnings, 1);
	rounds(&o);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).outages, 1);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).rebuilds, 1);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).failovers, 0);
	unobserve(&o);
}

static void pass(struct observed *o, unsigned ms)
{
	for (unsigned i = 0; i < ms; i++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		for (int host = 0; host < 2; host++)
			ha_instance_progress(o->pair.inst[host]);
	}
}

/* Of the ports that NCCL asked for, while all is well. */
static const uint32_t at_home =
    NCCL_HA_PREFERRED_KNOWN | NCCL_HA_PREFERRED_ANSWERS | NCCL_HA_PREFERRED_READY;

/* As the sender has it and as the receiver has it. */
static void preferred(const struct observed *o, struct nccl_ha_preferred_stats ends[2])
{
	ends[0] = conn_stats(o, NCCL_HA_CONN_SEND).preferred;
	ends[1] = conn_stats(o, NCCL_HA_CONN_RECV).preferred;
}

/* A silent cut, from the heartbeats that noticed it to the switch, as somebody outside sees it. */
static void a_failover_can_be_followed_from_outside(void **state)
{
	struct nccl_ha_conn_stats send, recv;
	struct nccl_ha_port_stats port;
	struct observed o;
	json_t *line;

	(void)state;
	observe_with(&o, 2, true, false);
	transfer(&o.pair, 1000, 1);
	pass(&o, 3000);
	port = port_stats(&o, 0);
	assert_in_range(port.heartbeats_sent, 10, 60);
	assert_in_range(port.heartbeats_received, port.heartbeats_sent - 5, port.heartbeats_sent);
	assert_int_equal(port.heartbeats_lost, 0);
	assert_true(port.sessions_up > 0);
	assert_true(port.heartbeat_rtt.max_ns > 0 && port.heartbeat_rtt.max_ns <= 4 * HA_NS_PER_MS);
	send = conn_stats(&o, NCCL_HA_CONN_SEND);
	assert_int_equal(send.paths[0].health, NCCL_HA_PATH_GOOD);
	assert_int_equal(send.paths[1].health, NCCL_HA_PATH_GOOD);
	assert_int_equal(send.paths[1].device, 1);
	assert_true(send.control_sent > 0 && send.control_received > 0);
	assert_int_equal(send.preferred.left_ns, 0);
	assert_int_equal(send.preferred.marks, at_home);

	sv_stepped_cut(0, true);
	pass(&o, 3000);
	send = conn_stats(&o, NCCL_HA_CONN_SEND);
	recv = conn_stats(&o, NCCL_HA_CONN_RECV);
	assert_int_equal(send.failovers, 1);
	assert_int_equal(recv.failovers, 1);
	assert_int_equal(send.state, NCCL_HA_CONN_ACTIVE);
	assert_int_equal(send.active_path, recv.active_path);
	assert_int_not_equal(send.active_path, 0);
	assert_int_equal(send.device, 1);
	assert_true(send.epoch > 1);
	assert_int_not_equal(send.paths[0].health, NCCL_HA_PATH_GOOD);
	assert_in_range(recv.detection.max_ns, 40 * HA_NS_PER_MS, 255 * HA_NS_PER_MS);
	assert_true(recv.blackout.max_ns >= recv.detection.max_ns);
	assert_true(port_stats(&o, 0).heartbeats_lost > 0);
	assert_true(find_events(&o, OF_A_CONNECTION, "failure", "heartbeats lost", &line) > 0);
	json_decref(line);
	assert_true(find_events(&o, OF_A_CONNECTION, "switch", "heartbeats lost", &line) > 0);
	json_decref(line);
	transfer(&o.pair, 1000, 2);
	unobserve(&o);
}

/* Whatever makes a connection leave the ports that NCCL asked for, both ends' statistics say which
 * of them it was as far as each knows, for as long as it lasts. */
static void both_ends_say_what_is_wrong_with_the_ports_that_were_asked_for(void **state)
{
	enum { CUT, DOWN_AT_SENDER, DOWN_AT_RECEIVER, FAULTS };
	static const uint32_t expected[FAULTS][2] = {
	    [CUT] = {NCCL_HA_PREFERRED_SILENT, NCCL_HA_PREFERRED_SILENT},
	    [DOWN_AT_SENDER] = {NCCL_HA_PREFERRED_PORT_DOWN, NCCL_HA_PREFERRED_PEER_PORT_DOWN},
	    [DOWN_AT_RECEIVER] = {NCCL_HA_PREFERRED_PEER_PORT_DOWN, NCCL_HA_PREFERRED_PORT_DOWN},
	};
	static const uint32_t faults = NCCL_HA_PREFERRED_KNOWN | NCCL_HA_PREFERRED_PORT_DOWN |
				       NCCL_HA_PREFERRED_PEER_PORT_DOWN | NCCL_HA_PREFERRED_READY |
				       NCCL_HA_PREFERRED_DRAINED;
	struct nccl_ha_preferred_stats ends[2];
	struct observed o;
	uint64_t since_ns;

	(void)state;
	for (int fault = 0; fault < FAULTS; fault++) {
		uint32_t mask = faults | (fault == CUT ? NCCL_HA_PREFERRED_SILENT : 0);

		observe_with(&o, 2, true, false);
		pass(&o, 3000);
		since_ns = ha_wall_clock_ns();
		if (fault == CUT)
			sv_stepped_cut(0, true);
		else
			sv_stepped_link(fault == DOWN_AT_RECEIVER, 0, false);
		pass(&o, 3000);
		preferred(&o, ends);
		for (int end = 0; end < 2; end++) {
			assert_int_equal(ends[end].marks & mask,
					 NCCL_HA_PREFERRED_KNOWN | expected[fault][end]);
			assert_int_equal(ends[end].device, 0);
			assert_string_equal(ends[end].peer_port, "sim0:1");
			assert_in_range(ends[end].left_ns, since_ns, ha_wall_clock_ns());
		}

		/* Mended: traffic stays where it is, and the ports could have it again. */
		sv_stepped_cut(0, false);
		sv_stepped_link(0, 0, true);
		sv_stepped_link(1, 0, true);
		pass(&o, 5000);
		preferred(&o, ends);
		for (int end = 0; end < 2; end++) {
			assert_int_equal(ends[end].marks, at_home);
			assert_int_equal(ends[end].left_ns, 0);
		}
		assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).device, 1);

		/* The next time is another time. */
		since_ns = ha_wall_clock_ns();
		sv_stepped_cut(0, true);
		pass(&o, 3000);
		preferred(&o, ends);
		for (int end = 0; end < 2; end++)
			assert_in_range(ends[end].left_ns, since_ns, ha_wall_clock_ns());
		unobserve(&o);
	}
}

static void the_ports_that_were_asked_for_have_traffic_again_after_a_failback(void **state)
{
	struct nccl_ha_preferred_stats ends[2];
	struct observed o;

	(void)state;
	observe_with(&o, 2, true, true);
	pass(&o, 3000);
	sv_stepped_cut(0, true);
	pass(&o, 3000);
	preferred(&o, ends);
	assert_true(ends[0].left_ns != 0 && ends[1].left_ns != 0);
	sv_stepped_cut(0, false);
	pass(&o, 10000);
	preferred(&o, ends);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).failbacks, 1);
	assert_true(ends[0].left_ns == 0 && ends[1].left_ns == 0);
	unobserve(&o);
}

/* Each port is in use with another one: who watches them is not told of a fault that is over. */
static void ports_that_are_well_are_said_to_be_so_while_paths_cross(void **state)
{
	struct nccl_ha_preferred_stats ends[2];
	struct observed o;

	(void)state;
	observe_with(&o, 2, true, false);
	pass(&o, 3000);
	sv_stepped_link(0, 0, false);
	sv_stepped_link(1, 1, false);
	pass(&o, 3000);
	preferred(&o, ends);
	assert_true(ends[0].left_ns != 0 && ends[1].left_ns != 0);
	sv_stepped_link(0, 0, true);
	sv_stepped_link(1, 1, true);
	pass(&o, 5000);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).device, 1);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_RECV).device, 0);
	preferred(&o, ends);
	for (int end = 0; end < 2; end++) {
		assert_true(ends[end].marks & NCCL_HA_PREFERRED_READY);
		assert_int_equal(ends[end].left_ns, 0);
	}
	unobserve(&o);
}

static void an_outage_is_a_state_of_the_connection(void **state)
{
	struct observed o;
	json_t *line;

	(void)state;
	observe_with(&o, 2, true, false);
	pass(&o, 1000);
	sv_stepped_link(0, 0, false);
	sv_stepped_link(0, 1, false);
	pass(&o, 2000);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).state, NCCL_HA_CONN_FAILING_OVER);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).outages, 1);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).suspects, 2);
	assert_int_equal(find_events(&o, OF_A_CONNECTION, "outage", "local port down", &line), 1);
	json_decref(line);
	sv_stepped_link(0, 1, true);
	transfer(&o.pair, 1000, 1);
	pass(&o, 500);
	assert_int_equal(conn_stats(&o, NCCL_HA_CONN_SEND).state, NCCL_HA_CONN_ACTIVE);
	unobserve(&o);
}

/* A registration that the device refuses to end is a leak when it has done so for seconds, and no
 * other one is: until it is taken back, by this device or with it. */
static void what_a_device_does_not_take_back_is_seen(void **state)
{
	struct observed o;
	struct ha_mr *mr;
	json_t *event;
	char *memory;
	int refused;

	(void)state;
	observe(&o);
	memory = calloc(1, 4096);
	assert_non_null(memory);
	assert_int_equal(ha_reg_mr(o.pair.send, memory, 4096, HA_MEM_HOST, 0, -1, &mr), HA_OK);
	refused = add_rule("errno=EBUSY verb=dereg_mr host=0");
	ha_dereg_mr(o.pair.send, mr);
	pair_idle(&o.pair, 1000);
	assert_true(fired(refused) > 1);
	assert_int_equal(port_stats(&o, 0).leaked_registrations, 0);
	assert_int_equal(find_events(&o, OF_A_PORT, "leak", "", &event), 0);
	pair_idle(&o.pair, 4000);
	assert_int_equal(port_stats(&o, 0).leaked_registrations, 1);
	assert_int_equal(port_stats(&o, 0).leaked_queue_pairs, 0);
	assert_int_equal(port_stats(&o, 0).leaked_objects, 0);
	assert_int_equal(find_events(&o, OF_A_PORT, "leak", "", &event), 1);
	assert_string_equal(
	    json_string_value(json_object_get(json_object_get(event, "from"), "port")), "sim0:1");
	assert_string_equal(json_string_value(json_object_get(event, "detail")), "a registration");
	json_decref(event);
	sv_stepped_fault_remove(-1);
	pair_idle(&o.pair, 20000);
	assert_int_equal(port_stats(&o, 0).leaked_registrations, 0);
	assert_int_equal(find_events(&o, OF_A_PORT, "leak", "", &event), 2);
	assert_string_equal(json_string_value(json_object_get(event, "detail")), "nothing");
	json_decref(event);
	unobserve(&o);
	free(memory);
}

/* Of a queue pair that may still write its path is the owner, not who asks again for other objects.
 */
static void a_queue_pair_that_cannot_be_destroyed_is_seen(void **state)
{
	struct observed o;
	json_t *event;
	int refused;

	(void)state;
	observe_with(&o, 2, true, false);
	pair_wait_standby(&o.pair);
	assert_true(sv_stepped_wedge(0, 1, o.pair.send->paths[1]->qps[0].qp->qp_num, true));
	refused = add_rule("errno=EBUSY verb=destroy_qp host=0 rail=1");
	sv_stepped_link(0, 1, false);
	pair_idle(&o.pair, 6000);
	assert_true(fired(refused) > 2);
	assert_int_equal(port_stats(&o, 1).leaked_queue_pairs, 1);
	assert_int_equal(port_stats(&o, 0).leaked_queue_pairs, 0);
	assert_int_equal(find_events(&o, OF_A_PORT, "leak", "", &event), 1);
	assert_string_equal(json_string_value(json_object_get(event, "detail")), "a queue pair");
	json_decref(event);
	sv_stepped_link(0, 1, true);
	sv_stepped_fault_remove(-1);
	pair_idle(&o.pair, 5000);
	assert_int_equal(port_stats(&o, 1).leaked_queue_pairs, 0);
	unobserve(&o);
}

static void the_paths_of_a_connection_can_be_read(void **state)
{
	struct nccl_ha_conn_stats conn;
	struct observed o;

	(void)state;
	observe(&o);
	rounds(&o);
	conn = conn_stats(&o, NCCL_HA_CONN_SEND);
	assert_int_equal(conn.active_path, 0);
	assert_int_equal(conn.epoch, o.pair.send->epoch);
	assert_int_equal(conn.paths[0].health, NCCL_HA_PATH_GOOD);
	assert_int_equal(conn.paths[0].generation, 1);
	assert_int_equal(conn.paths[0].device, 0);
	assert_int_equal(conn.paths[0].port_num, 1);
	assert_true(conn.paths[0].peer_guid == o.pair.recv->paths[0]->nic->guid);
	assert_int_equal(conn.paths[3].health, NCCL_HA_PATH_NONE);
	assert_string_equal(conn.last_failover_reason, "");
	unobserve(&o);
}

/* With failover, so that there are heartbeats; nothing else is asked of it. */
static void heartbeats_are_in_the_statistics_of_their_port(void **state)
{
	struct nccl_ha_port_stats port;
	struct observed o;
	uint64_t samples = 0;

	(void)state;
	observe_with(&o, 1, true, false);
	/* Until they have come up and the statistics were written again. */
	for (uint64_t until = sv_stepped_now() + 3 * HA_NS_PER_S; sv_stepped_now() < until;)
		pair_step(&o.pair);
	port = port_stats(&o, 0);
	assert_true(port.heartbeats_received >= 10);
	assert_in_range(port.heartbeats_sent - port.heartbeats_received, 0, 20);
	assert_int_equal(port.sessions_up, 1);
	for (int i = 0; i < HA_HIST_BUCKETS; i++)
		samples += port.heartbeat_rtt.count[i];
	assert_int_equal(samples, port.heartbeats_received);
	/* A silent cut: they are lost, and the session goes. */
	sv_stepped_cut(0, true);
	for (uint64_t until = sv_stepped_now() + 3 * HA_NS_PER_S; sv_stepped_now() < until;)
		pair_step(&o.pair);
	port = port_stats(&o, 0);
	assert_true(port.heartbeats_lost >= 3);
	assert_int_equal(port.sessions_up, 0);
	unobserve(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_port_that_goes_and_comes_back_is_seen),
	    cmocka_unit_test(a_dead_device_is_seen),
	    cmocka_unit_test(a_device_that_came_back_is_seen),
	    cmocka_unit_test(a_latched_error_is_in_the_event_log_with_its_text),
	    cmocka_unit_test(a_switch_is_told_three_times_and_the_same),
	    cmocka_unit_test(the_other_kinds_are_counted_and_only_an_outage_warns),
	    cmocka_unit_test(what_a_device_does_not_take_back_is_seen),
	    cmocka_unit_test(a_queue_pair_that_cannot_be_destroyed_is_seen),
	    cmocka_unit_test(the_paths_of_a_connection_can_be_read),
	    cmocka_unit_test(heartbeats_are_in_the_statistics_of_their_port),
	    cmocka_unit_test(a_failover_can_be_followed_from_outside),
	    cmocka_unit_test(both_ends_say_what_is_wrong_with_the_ports_that_were_asked_for),
	    cmocka_unit_test(the_ports_that_were_asked_for_have_traffic_again_after_a_failback),
	    cmocka_unit_test(ports_that_are_well_are_said_to_be_so_while_paths_cross),
	    cmocka_unit_test(an_outage_is_a_state_of_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
