/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats themselves: what their round trips say, and that strangers, garbage, copies, errors of
 * the queue pair and a lack of resources do no harm.
 */
#include "world.h"

#include "../made_key.h"
#include "../unit/captured_log.h"
#include "device/give_back.h"
#include "device/queue_depth.h"
#include "liveness/packet.h"
#include "liveness/session.h"
#include "liveness/session_recv.h"
#include "liveness/ud_qp.h"
#include "memory/mr.h"
#include "memory/pd.h"

static void round_trips_are_measured(void **state)
{
	struct ha_session_report report;
	struct ha_live_port_report port;
	struct observer o[2];
	uint64_t ms = 100 * INTERVAL_MS;

	(void)state;
	fabric(&(struct sv_stepped_opts){.latency_ns = 40000});
	up(0, o);
	run_ms(ms);
	for (int i = 0; i < 2; i++) {
		ha_session_report(o[i].link.session, &report);
		assert_int_equal(report.state, HA_SESSION_UP);
		assert_int_equal(report.lost, 0);
		assert_int_equal(report.downs, 0);
		assert_in_range(report.pings - report.pongs, 0, 1);
		assert_int_equal(ha_hist_samples(&report.round_trips), report.pongs);
		/* A heartbeat each 8.75 to 10 ms. */
		assert_in_range(report.pongs, 98, 125);
		/* There and back, and some wire time. */
		assert_in_range(ha_hist_mean(&report.round_trips), 80000, 82000);
		assert_in_range(report.round_trips.max, 80000, 82000);
		assert_in_range(report.round_trip_ns, 78000, 82000);
		detach(i, &o[i]);
	}
	/* The port keeps what its sessions measured. */
	port = port_report(0, 0);
	assert_in_range(ha_hist_samples(&port.round_trips), 98, 125);
	done();
}

static void a_round_trip_far_off_its_baseline_is_suspicious(void **state)
{
	struct ha_session_report report;
	struct observer o[2];
	char error[128];
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	run_ms(10 * INTERVAL_MS);
	capture_log();
	id = sv_stepped_fault_add("delay=8ms op=ud", error, sizeof error);
	assert_true(id >= 0);
	run_ms(10 * INTERVAL_MS);
	assert_true(logged("sim0:1: a heartbeat to ::ffff:10.0.0.2 (LID 0) is missing or far too"));
	assert_int_equal(captured_warnings, 4); /* each session once, however long it lasts */
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(o[0].downs, 0);
	sv_stepped_fault_remove(id);
	run_ms(5 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_UP);
	ha_session_report(o[0].link.session, &report);
	assert_true(report.suspicions >= 1);
	/* It was of use all the time: nobody was told that it is up again. */
	assert_int_equal(o[0].ups, 1);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void duplicated_and_reordered_heartbeats_are_counted_once(void **state)
{
	struct ha_session_report report;
	struct observer o[2];
	uint64_t matched, fired;
	char error[128];
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	id = sv_stepped_fault_add("dup op=ud", error, sizeof error);
	assert_true(id >= 0);
	run_ms(20 * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_true(fired >= 80);
	ha_session_report(o[0].link.session, &report);
	assert_true(report.pongs <= report.pings);
	assert_int_equal(ha_hist_samples(&report.round_trips), report.pongs);
	/* A ping that comes twice is answered twice, and each answer comes twice. */
	assert_true(port_report(0, 0).stale >= 3 * 18);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		assert_int_equal(o[i].downs, 0);
		detach(i, &o[i]);
	}
	done();
}

/* Datagrams of our own making to host 0's queue pair, from a queue pair of host 1. */
struct forger {
	struct ha_incarnation *on;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint8_t bytes[128];
};

static void forger_open(struct forger *f, const struct ha_live_endpoint *to)
{
	struct ha_nic *nic = port_of(1, 0)->nic;
	struct ibv_ah_attr address = {.port_num = 1, .is_global = 1};
	struct ibv_qp_init_attr init = {
	    .qp_type = IBV_QPT_UD,
	    .sq_sig_all = 1,
	    .cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	memset(f, 0, sizeof *f);
	assert_int_equal(ha_nic_pd_get(nic, &f->on), HA_OK);
	f->cq = ibv_create_cq(nic->now->ctx, 64, NULL, NULL, 0);
	assert_non_null(f->cq);
	init.send_cq = init.recv_cq = f->cq;
	f->qp = ibv_create_qp(f->on->pd, &init);
	assert_non_null(f->qp);
	f->mr = ibv_reg_mr(f->on->pd, f->bytes, sizeof f->bytes, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(f->mr);
	assert_int_equal(
	    ibv_modify_qp(f->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	    0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(f->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(f->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	memcpy(address.grh.dgid.raw, to->gid, sizeof to->gid);
	address.grh.sgid_index = (uint8_t)port_of(1, 0)->gid_index;
	address.grh.hop_limit = 1;
	f->ah = ibv_create_ah(f->on->pd, &address);
	assert_non_null(f->ah);
}

static void forge(struct forger *f, const struct ha_live_endpoint *to, const void *bytes,
		  size_t len)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)f->bytes, .length = (uint32_t)len, .lkey = f->mr->lkey};
	/* As a peer works it out: an observer of the fabric can read it. */
	uint32_t qkey = (uint32_t)(to->id ^ (to->id >> 32)) & 0x7fffffffu;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {f->ah, to->qpn, qkey}},
			   *bad;
	struct ibv_wc wc;

	memcpy(f->bytes, bytes, len);
	assert_int_equal(ibv_post_send(f->qp, &wr, &bad), 0);
	run_us(50);
	assert_int_equal(ibv_poll_cq(f->cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void forger_close(struct forger *f)
{
	ibv_destroy_ah(f->ah);
	ibv_destroy_qp(f->qp);
	ibv_destroy_cq(f->cq);
	ibv_dereg_mr(f->mr);
	ha_nic_pd_put(f->on);
}

/* To host 0's first port, as its device hands over what comes from there. */
static void say_from(const struct ha_live_endpoint *there, struct ha_heartbeat packet)
{
	uint8_t bytes[HA_HEARTBEAT_BYTES];
	struct ha_datagram datagram = {.data = bytes,
				       .len = sizeof bytes,
				       .from_qpn = there->qpn,
				       .from_lid = there->lid,
				       .has_gid = there->link_layer == IBV_LINK_LAYER_ETHERNET};

	memcpy(datagram.from_gid, there->gid, sizeof there->gid);
	ha_heartbeat_encode(&packet, bytes);
	pthread_mutex_lock(&ends[0].live->lock);
	ha_session_received(ends[0].live->asked[port_of(0, 0)->index], &datagram);
	pthread_mutex_unlock(&ends[0].live->lock);
}

/* Well made, by who knows the ids: an observer of the bootstrap, another process of the host. */
static void hear_from_elsewhere(void)
{
	struct ha_live_endpoint peer = endpoint_of(1, 0), elsewhere = peer;
	struct ha_heartbeat ping = {.kind = HA_HEARTBEAT_PING,
				    .from = peer.id,
				    .to = endpoint_of(0, 0).id,
				    .seq = 1u << 20};
	struct ha_live_port_report before = port_report(0, 0), after;

	elsewhere.qpn++;
	say_from(&elsewhere, ping);
	elsewhere = peer;
	elsewhere.gid[15]++;
	elsewhere.lid++;
	say_from(&elsewhere, ping);
	after = port_report(0, 0);
	assert_int_equal(after.strangers - before.strangers, 2);
	assert_int_equal(after.answered - before.answered, 0);
	say_from(&peer, ping);
	after = port_report(0, 0);
	assert_int_equal(after.strangers - before.strangers, 2);
	assert_int_equal(after.answered - before.answered, 1);
}

static void what_is_well_made_and_comes_from_elsewhere_is_a_strangers(void **state)
{
	struct ha_heartbeat ping = {.kind = HA_HEARTBEAT_PING, .seq = 1u << 20};
	struct ha_live_endpoint us;
	struct ha_live_port_report before, after;
	uint8_t bytes[HA_HEARTBEAT_BYTES];
	struct forger f;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	us = endpoint_of(0, 0);
	up(0, o);
	hear_from_elsewhere();
	/* And as the device has it, from another queue pair of the host. */
	ping.from = endpoint_of(1, 0).id;
	ping.to = us.id;
	before = port_report(0, 0);
	forger_open(&f, &us);
	ha_heartbeat_encode(&ping, bytes);
	forge(&f, &us, bytes, sizeof bytes);
	forger_close(&f);
	after = port_report(0, 0);
	assert_int_equal(after.strangers - before.strangers, 1);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void and_so_it_is_on_infiniband(void **state)
{
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){.infiniband = true});
	up(0, o);
	hear_from_elsewhere();
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void the_sender_is_read_from_an_ipv6_header_and_from_an_ipv4_one(void **state)
{
	static const uint8_t ipv4[20] = {0x45, 0x02, 0x00, 0x60, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11,
					 0x14, 0x55, 10,   0,	 0,    2,    10,   0,	 0,    1};
	static const uint8_t mapped[16] = {
	    [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 0, [14] = 0, [15] = 2};
	uint8_t grh[HA_GRH_BYTES] = {0x60}, gid[16];

	(void)state;
	for (uint8_t i = 0; i < 16; i++)
		grh[8 + i] = (uint8_t)(0x20 + i);
	assert_true(ha_grh_source(grh, gid));
	assert_memory_equal(gid, grh + 8, 16);
	/* Whatever is before it; and where that looks like the other one, by its checksum. */
	for (unsigned i = 0; i < 2; i++) {
		memset(grh, i ? 0x60 : 0, 20);
		memcpy(grh + 20, ipv4, sizeof ipv4);
		assert_true(ha_grh_source(grh, gid));
		assert_memory_equal(gid, mapped, 16);
	}
	grh[30] ^= 1;
	assert_true(ha_grh_source(grh, gid));
	assert_memory_equal(gid, grh + 8, 16);
	memset(grh, 0, sizeof grh);
	assert_false(ha_grh_source(grh, gid));
}

/* The one who has heard them goes on refusing what it has heard. */
static void a_session_made_anew_is_answered_by_a_peer_whose_own_is_old(void **state)
{
	struct ha_job_key *key = made_key(7);
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (int i = 0; i < 2; i++)
		ha_liveness_trust(ends[i].live, key, NULL, NULL);
	up(0, o);
	run_ms(30 * INTERVAL_MS);
	detach(1, &o[1]);
	attach(1, 0, 0, &o[1]);
	run_ms(8 * INTERVAL_MS);
	assert_int_equal(state_of(&o[1]), HA_SESSION_UP);
	assert_int_equal(state_of(&o[0]), HA_SESSION_UP);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
	ha_job_key_free(key);
}

static void strangers_garbage_and_replays_are_counted_and_ignored(void **state)
{
	struct ha_live_endpoint us, peer;
	struct ha_live_port_report before, after;
	struct ha_session_report session;
	struct ha_heartbeat packet = {.kind = HA_HEARTBEAT_PONG, .seq = 1};
	uint8_t bytes[88] = {0}; /* all that a slot takes */
	struct forger f;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	us = endpoint_of(0, 0);
	peer = endpoint_of(1, 0);
	up(0, o);
	forger_open(&f, &us);
	before = port_report(0, 0);

	/* Too short, too long, empty, noise. */
	packet.from = peer.id;
	packet.to = us.id;
	ha_heartbeat_encode(&packet, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES - 1);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES + 1);
	forge(&f, &us, bytes, 1);
	forge(&f, &us, bytes, sizeof bytes);
	bytes[20] ^= 4;
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	after = port_report(0, 0);
	assert_int_equal(after.malformed - before.malformed, 5);

	/* Well made, but from nobody we know, or to somebody else. */
	packet.from = peer.id + 1;
	say_from(&peer, packet);
	packet.from = peer.id;
	packet.to = us.id + 1;
	say_from(&peer, packet);
	after = port_report(0, 0);
	assert_int_equal(after.strangers - before.strangers, 2);

	/* An answer that came already, and one to what was never asked. */
	packet.to = us.id;
	say_from(&peer, packet);
	packet.seq = 1u << 30;
	ha_heartbeat_encode(&packet, bytes);
	say_from(&peer, packet);
	after = port_report(0, 0);
	assert_int_equal(after.stale - before.stale, 2);

	/* None of that keeps a dead path alive. */
	sv_stepped_block(0, 0, 1, 0, true);
	for (int i = 0; i < 60; i++) {
		forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
		say_from(&peer, packet);
		run_us(600);
	}
	assert_int_equal(o[0].downs, 1);
	sv_stepped_block(0, 0, 1, 0, false);
	run_ms(3 * INTERVAL_MS);
	ha_session_report(o[0].link.session, &session);
	assert_int_equal(session.state, HA_SESSION_UP);
	forger_close(&f);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

/* A queue of completions that never runs empty, as where datagrams come faster than they are read.
 */
static struct {
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	uint64_t at_ns, at_once, most_at_once;
} endless;

static int poll_endless(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	if (!cq->channel) /* of what was sent */
		return endless.poll_cq(cq, n, wc);
	if (endless.at_ns != ha_now_ns())
		endless.at_once = 0;
	endless.at_ns = ha_now_ns();
	if (endless.at_once > 100000) /* the test has failed, and is to end */
		return 0;
	endless.at_once += (uint64_t)n;
	if (endless.most_at_once < endless.at_once)
		endless.most_at_once = endless.at_once;
	for (int i = 0; i < n; i++)
		wc[i] = (struct ibv_wc){.status = IBV_WC_SUCCESS, .byte_len = 40 + 5};
	return n;
}

static int post_nothing(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

static void a_flood_lets_the_thread_do_its_other_work(void **state)
{
	struct ibv_context_ops *ops;
	struct ha_live_port_report before;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	before = port_report(0, 0);
	ops = &port_of(0, 0)->nic->now->ctx->ops;
	memset(&endless, 0, sizeof endless);
	endless.poll_cq = ops->poll_cq;
	endless.post_recv = ops->post_recv;
	ops->poll_cq = poll_endless;
	ops->post_recv = post_nothing;
	run_ms(2 * INTERVAL_MS);
	ops->poll_cq = endless.poll_cq;
	ops->post_recv = endless.post_recv;
	assert_true(port_report(0, 0).malformed - before.malformed >= 512);
	/* In a moment of virtual time there are some visits; without a bound one of them does not
	 * end. */
	assert_in_range(endless.most_at_once, 512, 16 * 512);

	run_ms(3 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

static void the_queue_pair_survives_errors_of_its_own(void **state)
{
	struct observer o[2];
	uint64_t matched, fired;
	char error[128];
	uint32_t qpn;
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	qpn = endpoint_of(0, 0).qpn;
	id =
	    sv_stepped_fault_add("wc=GENERAL_ERR host=0 rail=0 op=ud count=1", error, sizeof error);
	if (id < 0)
		fail_msg("%s", error);
	run_ms(60 * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_int_equal(fired, 1);
	assert_int_equal(port_report(0, 0).restarts, 1);
	assert_int_equal(endpoint_of(0, 0).qpn, qpn);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

/* Soft RoCE fails what is sent without a link, and the queue pair with it. */
static void a_port_that_is_down_is_not_asked_to_send(void **state)
{
	struct observer o[2];
	uint64_t matched, fired;
	char error[128];
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	id = sv_stepped_fault_add("wc=LOC_QP_OP_ERR host=0 rail=0 op=ud", error, sizeof error);
	if (id < 0)
		fail_msg("%s", error);
	sv_stepped_link(0, 0, false);
	run_ms(60 * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_in_range(fired, 0, 1); /* one may have been on its way */
	assert_in_range(port_report(0, 0).restarts, 0, 1);
	assert_int_equal(sv_stepped_fault_remove(id), 0);
	sv_stepped_link(0, 0, true);
	run_ms(4 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

static void without_resources_there_is_no_session_and_one_warning(void **state)
{
	struct ha_live_endpoint endpoint = {.id = 5, .qpn = 5};
	struct observer o = {0};

	(void)state;
	capture_log();
	/* The shortest queues of a device that is used at all are enough. */
	fabric(&(struct sv_stepped_opts){.max_qp_wr = HA_LEAST_DEPTH + 1});
	assert_true(ha_liveness_endpoint(ends[0].live, port_of(0, 0), &endpoint));
	done();
	assert_int_equal(sv_stepped_close(), 0);
	fabric(&(struct sv_stepped_opts){.max_qp = 1});
	assert_true(ha_liveness_endpoint(ends[0].live, port_of(0, 0), &endpoint));
	for (int i = 0; i < 2; i++) {
		struct ibv_cq *cq = ibv_create_cq(ends[1].set->nics[1].now->ctx, 4, NULL, NULL, 0);
		struct ibv_qp_init_attr init = {
		    .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
		struct ha_incarnation *on;
		struct ibv_qp *qp;

		assert_int_equal(ha_nic_pd_get(&ends[1].set->nics[1], &on), HA_OK);
		qp = ibv_create_qp(on->pd, &init);
		assert_non_null(qp);
		assert_false(ha_liveness_endpoint(ends[1].live, port_of(1, 1), &endpoint));
		endpoint.id = endpoint.qpn = 5;
		assert_false(
		    ha_liveness_attach(ends[1].live, port_of(1, 1), &endpoint, 0, 0, &o.link));
		assert_null(o.link.session);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("sim1:1: no heartbeats on this port"));
		ibv_destroy_qp(qp);
		ibv_destroy_cq(cq);
		ha_nic_pd_put(on);
	}
	/* A peer that offers none. */
	endpoint.id = 0;
	assert_false(ha_liveness_attach(ends[0].live, port_of(0, 0), &endpoint, 0, 0, &o.link));
	ha_liveness_detach(ends[0].live, &o.link);
	done();
}

/* ---- the end ---------------------------------------------------------------------------- */

#define QKEY 0x11u

static int refuse(const char *verb)
{
	char rule[64], why[256];

	snprintf(rule, sizeof(rule), "errno=EBUSY verb=%s host=0 rail=0", verb);
	return sv_stepped_fault_add(rule, why, sizeof(why));
}

/* One that comes for a queue pair that its owner has closed. */
static void send_late(struct ha_ud_qp *from, uint32_t qpn)
{
	struct ha_remote_addr to = {.lid = 0};
	struct ha_port_addr address;
	struct ibv_ah *ah;

	ha_port_addr(port_of(0, 0), &address);
	memcpy(to.gid, address.gid.raw, sizeof(to.gid));
	ah = ha_ud_qp_address(from, &to);
	assert_non_null(ah);
	assert_int_equal(ha_ud_qp_send(from, ah, qpn, QKEY, "late", 5), 0);
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	ha_ud_qp_address_free(from, ah);
}

/* What the allocator gives next is what was freed last. */
static void memory_of_queues_that_the_device_keeps_is_nobody_elses(void **state)
{
	const char *const verbs[] = {"destroy_qp", "destroy_cq", "dereg_mr"};
	struct sv_stepped_objects before, now;
	const size_t size = 19 * 4096; /* nearly as much as it has */
	struct ha_ud_qp *closed, *peer;
	struct ha_incarnation *on;
	uint8_t *next;
	uint32_t qpn;
	int rules[3];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	on = port_of(0, 0)->nic->now;
	sv_stepped_get_objects(0, 0, &before);
	assert_int_equal(ha_ud_qp_open(port_of(0, 0), QKEY, &closed), HA_OK);
	assert_int_equal(ha_ud_qp_open(port_of(1, 0), QKEY, &peer), HA_OK);
	qpn = ha_ud_qp_qpn(closed);
	for (int i = 0; i < 3; i++)
		rules[i] = refuse(verbs[i]);
	ha_ud_qp_close(closed);
	next = malloc(size);
	assert_non_null(next);
	memset(next, 0xa5, size);
	send_late(peer, qpn);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(next[i], 0xa5);
	free(next);
	for (int i = 0; i < 3; i++)
		assert_int_equal(sv_stepped_fault_remove(rules[i]), 0);
	sv_stepped_run(sv_stepped_now() + HA_GIVE_BACK_NS);
	ha_give_back_again(on);
	sv_stepped_run(sv_stepped_now() + 2 * HA_GIVE_BACK_NS);
	ha_give_back_again(on); /* what depended on another one */
	sv_stepped_get_objects(0, 0, &now);
	assert_memory_equal(&now, &before, sizeof(now));
	ha_ud_qp_close(peer);
	done();
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(memory_of_queues_that_the_device_keeps_is_nobody_elses),
	    TEST(round_trips_are_measured),
	    TEST(a_round_trip_far_off_its_baseline_is_suspicious),
	    TEST(duplicated_and_reordered_heartbeats_are_counted_once),
	    TEST(what_is_well_made_and_comes_from_elsewhere_is_a_strangers),
	    TEST(and_so_it_is_on_infiniband),
	    cmocka_unit_test(the_sender_is_read_from_an_ipv6_header_and_from_an_ipv4_one),
	    TEST(a_session_made_anew_is_answered_by_a_peer_whose_own_is_old),
	    TEST(strangers_garbage_and_replays_are_counted_and_ignored),
	    TEST(a_flood_lets_the_thread_do_its_other_work),
	    TEST(the_queue_pair_survives_errors_of_its_own),
	    TEST(a_port_that_is_down_is_not_asked_to_send),
	    TEST(without_resources_there_is_no_session_and_one_warning),
	};

	capture_log();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
