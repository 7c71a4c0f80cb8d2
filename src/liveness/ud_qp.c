/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/ud_qp.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/log.h"
#include "device/give_back.h"
#include "device/newer_verbs.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/ip.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A receive buffer begins with room for a global route header, used or not. */
#define SLOT_BYTES 128

_Static_assert(HA_GRH_BYTES + HA_DATAGRAM_MAX <= SLOT_BYTES, "a datagram fits in a slot");

/* What may come between two looks at the queue, from all peers together; and go out. */
#define RECV_SLOTS 512
#define SEND_SLOTS 128

#define POLL_BATCH 16

/* A queue pair that keeps failing is not brought back more often than this. */
#define RESTART_PAUSE_NS (100 * HA_NS_PER_MS)

struct ha_ud_qp {
	atomic_uint users;
	struct ha_port *port;
	struct ha_incarnation *on; /* held: what its objects are made on */
	struct ibv_comp_channel *channel;
	struct ibv_cq *recv_cq;
	struct ibv_cq *send_cq; /* wakes nobody: what was sent is looked at when something comes */
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory; /* receive slots, then send slots */
	uint32_t recv_slots, send_slots;
	uint32_t sent, send_done; /* send slots are used in a circle */
	uint32_t qkey;
	uint16_t pkey_index; /* that the queue pair was given */
	bool broken;	     /* the queue pair is in an error state */
	bool restarting; /* by another thread: the queues and pkey_index are its own meanwhile */
	uint64_t restart_ns; /* not before that */
	uint64_t restarts;
};

static ha_result_t failed(const struct ha_ud_qp *d, const char *verb, int rc)
{
	HA_WARN("%s:%d: no heartbeats on this port, %s failed: %s%s", d->port->nic->name,
		d->port->port_num, verb, strerror(rc), rc == ENOMEM ? "; " HA_RAISE_MEMLOCK : "");
	return HA_ERR_SYSTEM;
}

/* ---- queues --------------------------------------------------------------------------------- */

static uint8_t *recv_slot(const struct ha_ud_qp *d, uint32_t i)
{
	return d->memory + (size_t)i * SLOT_BYTES;
}

static uint8_t *send_slot(const struct ha_ud_qp *d, uint32_t i)
{
	return d->memory + (size_t)(d->recv_slots + i) * SLOT_BYTES;
}

static int post_recv(struct ha_ud_qp *d, uint32_t slot)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)recv_slot(d, slot), .length = SLOT_BYTES, .lkey = d->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(d->qp, &wr, &bad);
}

/* From RESET to ready, with all receive slots posted. errno. */
static int start(struct ha_ud_qp *d)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .pkey_index = atomic_load(&d->port->pkey_index),
	    .port_num = d->port->port_num,
	    .qkey = d->qkey,
	};
	int rc;

	d->pkey_index = attr.pkey_index;
	rc = ibv_modify_qp(d->qp, &attr,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	for (uint32_t i = 0; rc == 0 && i < d->recv_slots; i++)
		rc = post_recv(d, i);
	attr.qp_state = IBV_QPS_RTR;
	if (rc == 0)
		rc = ibv_modify_qp(d->qp, &attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = 0; /* nobody checks it: datagrams */
	if (rc == 0)
		rc = ibv_modify_qp(d->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return rc;
}

static void forget(struct ibv_cq *cq)
{
	struct ibv_wc wc[POLL_BATCH];

	while (ibv_poll_cq(cq, POLL_BATCH, wc) > 0)
		;
}

/* Through RESET: keeps the number, which the peers know. */
int ha_ud_qp_restart(struct ha_ud_qp *d)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	int rc = ibv_modify_qp(d->qp, &attr, IBV_QP_STATE);

	if (rc != 0)
		return rc;
	/* What was posted is forgotten; completions that are left belong to it. */
	forget(d->send_cq);
	forget(d->recv_cq);
	d->sent = d->send_done = 0;
	return start(d);
}

/* The port's partition is at another index than when the queue pair was told. */
static bool is_misplaced(const struct ha_ud_qp *d)
{
	return d->pkey_index != atomic_load_explicit(&d->port->pkey_index, memory_order_relaxed);
}

bool ha_ud_qp_restart_due(const struct ha_ud_qp *d)
{
	return !d->restarting && (d->broken || is_misplaced(d)) && ha_now_ns() >= d->restart_ns;
}

void ha_ud_qp_restart_begin(struct ha_ud_qp *d)
{
	d->restarting = true;
}

void ha_ud_qp_restart_end(struct ha_ud_qp *d, int rc)
{
	d->restarting = false;
	d->restart_ns = ha_now_ns() + RESTART_PAUSE_NS;
	d->restarts += rc == 0 && d->broken;
	if (rc == 0)
		HA_INFO(HA_SUBSYS_NET, "%s:%d: restarted the queue pair of heartbeats %s",
			d->port->nic->name, d->port->port_num,
			d->broken ? "after an error" : "for a partition that has moved");
	d->broken = rc != 0; /* once more, after the pause */
}

/* ---- life ----------------------------------------------------------------------------------- */

static uint32_t at_most(uint32_t wanted, int device_limit)
{
	return device_limit > 0 && (uint32_t)device_limit < wanted ? (uint32_t)device_limit
								   : wanted;
}

static uint32_t queue_depth(uint32_t wanted, const struct ibv_device_attr *device)
{
	return at_most(at_most(wanted, device->max_qp_wr), device->max_cqe);
}

static ha_result_t create_memory(struct ha_ud_qp *d)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = (size_t)(d->recv_slots + d->send_slots) * SLOT_BYTES;
	void *memory;

	size = (size + page - 1) / page * page;
	if (posix_memalign(&memory, page, size) != 0)
		return failed(d, "posix_memalign", ENOMEM);
	d->memory = memset(memory, 0, size);
	d->mr = ha_ibv_reg_mr(d->on->pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
	return d->mr ? HA_OK : failed(d, "ibv_reg_mr", errno);
}

static ha_result_t create_queues(struct ha_ud_qp *d)
{
	struct ibv_context *ctx = d->on->ctx;
	struct ibv_qp_init_attr init = {
	    .qp_type = IBV_QPT_UD,
	    .sq_sig_all = 1,
	    .cap = {.max_send_wr = d->send_slots,
		    .max_recv_wr = d->recv_slots,
		    .max_send_sge = 1,
		    .max_recv_sge = 1},
	};
	int flags;

	d->channel = ibv_create_comp_channel(ctx);
	if (!d->channel)
		return failed(d, "ibv_create_comp_channel", errno);
	ha_fork_closes(d->channel->fd);
	flags = fcntl(d->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(d->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
		return failed(d, "fcntl (of a completion channel)", errno);
	/* Without a context: a queue that has one is taken for a path's (transport/failure.c). */
	d->recv_cq = ibv_create_cq(ctx, (int)d->recv_slots, NULL, d->channel, 0);
	d->send_cq = ibv_create_cq(ctx, (int)d->send_slots, NULL, NULL, 0);
	if (!d->recv_cq || !d->send_cq)
		return failed(d, "ibv_create_cq", errno);
	init.recv_cq = d->recv_cq;
	init.send_cq = d->send_cq;
	d->qp = ibv_create_qp(d->on->pd, &init);
	return d->qp ? HA_OK : failed(d, "ibv_create_qp (unreliable datagrams)", errno);
}

ha_result_t ha_ud_qp_open(struct ha_port *port, uint32_t qkey, struct ha_ud_qp **out)
{
	struct ha_ud_qp *d = calloc(1, sizeof(*d));
	ha_result_t result;
	int rc;

	*out = NULL;
	if (!d)
		return HA_ERR_SYSTEM;
	atomic_store(&d->users, 1);
	d->port = port;
	d->qkey = qkey;
	d->send_slots = queue_depth(SEND_SLOTS, &port->nic->attr);
	d->recv_slots = queue_depth(RECV_SLOTS, &port->nic->attr);
	result = ha_nic_pd_get(port->nic, &d->on);
	if (result == HA_OK)
		result = create_memory(d);
	if (result == HA_OK)
		result = create_queues(d);
	if (result == HA_OK) {
		rc = ibv_req_notify_cq(d->recv_cq, 0);
		if (rc == 0)
			rc = start(d);
		if (rc != 0)
			result = failed(d, "bringing up the queue pair", rc);
	}
	if (result != HA_OK) {
		ha_ud_qp_close(d);
		return result;
	}
	*out = d;
	return HA_OK;
}

struct ha_ud_qp *ha_ud_qp_hold(struct ha_ud_qp *d)
{
	atomic_fetch_add_explicit(&d->users, 1, memory_order_relaxed);
	return d;
}

/* A queue pair that the device keeps may write to the memory until its registration has ended. */
static void give_back(struct ha_ud_qp *d)
{
	ha_give_back(d->on, HA_OBJECT_QP, d->qp, NULL, NULL);
	ha_give_back(d->on, HA_OBJECT_CQ, d->recv_cq, NULL, NULL);
	ha_give_back(d->on, HA_OBJECT_CQ, d->send_cq, NULL, NULL);
	if (d->channel)
		ha_fork_forgets(d->channel->fd);
	ha_give_back(d->on, HA_OBJECT_CHANNEL, d->channel, NULL, NULL);
	ha_give_back(d->on, HA_OBJECT_MR, d->mr, free, d->memory);
	if (d->on)
		ha_nic_pd_put(d->on);
}

void ha_ud_qp_close(struct ha_ud_qp *d)
{
	if (!d || atomic_fetch_sub_explicit(&d->users, 1, memory_order_acq_rel) != 1)
		return;
	give_back(d);
	free(d);
}

uint32_t ha_ud_qp_qpn(const struct ha_ud_qp *d)
{
	return d->qp->qp_num;
}

bool ha_ud_qp_device_died(const struct ha_ud_qp *d)
{
	return ha_incarnation_is_dead(d->on);
}

int ha_ud_qp_fd(const struct ha_ud_qp *d)
{
	return d->channel->fd;
}

uint64_t ha_ud_qp_restarts(const struct ha_ud_qp *d)
{
	return d->restarts;
}

/* ---- traffic -------------------------------------------------------------------------------- */

struct ibv_ah *ha_ud_qp_address(const struct ha_ud_qp *d, const struct ha_remote_addr *to)
{
	struct ibv_ah_attr attr;
	struct ha_port_addr own;

	ha_port_addr(d->port, &own);
	ha_address_fill(&own, d->port->port_num, to, &attr);
	return ibv_create_ah(d->on->pd, &attr);
}

void ha_ud_qp_address_free(const struct ha_ud_qp *d, struct ibv_ah *ah)
{
	ha_give_back(d->on, HA_OBJECT_AH, ah, NULL, NULL);
}

/* What was sent: its slots are free again. */
static void reap(struct ha_ud_qp *d)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;

	while ((n = ibv_poll_cq(d->send_cq, POLL_BATCH, wc)) > 0) {
		d->send_done += (uint32_t)n;
		for (int i = 0; i < n; i++)
			d->broken |= wc[i].status != IBV_WC_SUCCESS;
	}
}

static bool has_room(struct ha_ud_qp *d)
{
	if (d->sent - d->send_done == d->send_slots)
		reap(d);
	return d->sent - d->send_done < d->send_slots;
}

int ha_ud_qp_send(struct ha_ud_qp *d, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
		  const void *data, size_t len)
{
	struct ibv_sge sge = {.length = (uint32_t)len, .lkey = d->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = qkey}};
	struct ibv_send_wr *bad;
	uint32_t slot;
	int rc;

	if (d->broken) /* and perhaps another thread's */
		return EIO;
	/* A port without link may keep what it was given until the link is back. */
	if (!has_room(d))
		return ENOMEM;
	slot = d->sent % d->send_slots;
	memcpy(send_slot(d, slot), data, len);
	sge.addr = (uintptr_t)send_slot(d, slot);
	wr.wr_id = slot;
	rc = ibv_post_send(d->qp, &wr, &bad);
	if (rc == 0)
		d->sent++;
	return rc;
}

bool ha_grh_source(const uint8_t grh[HA_GRH_BYTES], uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *ipv4 = grh + (HA_GRH_BYTES - sizeof(struct iphdr));
	uint32_t sum = 0;

	/* What is before an IPv4 header is not defined, and may look like the beginning of an IPv6
	 * one: then the checksum decides. */
	for (size_t i = 0; i < sizeof(struct iphdr); i += 2)
		sum += (uint32_t)ipv4[i] << 8 | ipv4[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (ipv4[0] == 0x45 && (grh[0] >> 4 != 6 || sum == 0xffff)) {
		memcpy(gid, mapped, sizeof(mapped));
		memcpy(gid + sizeof(mapped), ipv4 + offsetof(struct iphdr, saddr), 4);
		return true;
	}
	if (grh[0] >> 4 != 6)
		return false;
	memcpy(gid, grh + offsetof(struct ibv_grh, sgid), 16);
	return true;
}

static void hand_over(const struct ha_ud_qp *d, const struct ibv_wc *wc,
		      void (*got)(void *arg, const struct ha_datagram *datagram), void *arg)
{
	const uint8_t *slot = recv_slot(d, (uint32_t)wc->wr_id);
	struct ha_datagram datagram = {.data = slot + HA_GRH_BYTES,
				       .len = wc->byte_len - HA_GRH_BYTES,
				       .from_qpn = wc->src_qp,
				       .from_lid = wc->slid};

	if (wc->wc_flags & IBV_WC_GRH)
		datagram.has_gid = ha_grh_source(slot, datagram.from_gid);
	got(arg, &datagram);
}

/* No more than there was room for when it began: who sends faster than this reads finds the thread
 * with its other work in between. What is left comes with the next event, or the next visit. */
static void drain(struct ha_ud_qp *d, void (*got)(void *arg, const struct ha_datagram *datagram),
		  void *arg)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;

	for (uint32_t all = 0; all < d->recv_slots; all += (uint32_t)n) {
		n = ibv_poll_cq(d->recv_cq, POLL_BATCH, wc);
		if (n <= 0)
			return;
		for (int i = 0; i < n; i++) {
			uint32_t slot = (uint32_t)wc[i].wr_id;

			if (wc[i].status != IBV_WC_SUCCESS) {
				d->broken = true;
				continue;
			}
			if (wc[i].byte_len >= HA_GRH_BYTES)
				hand_over(d, &wc[i], got, arg);
			if (!d->broken && post_recv(d, slot) != 0)
				d->broken = true;
		}
	}
}

void ha_ud_qp_receive(struct ha_ud_qp *d,
		      void (*got)(void *arg, const struct ha_datagram *datagram), void *arg)
{
	if (d->restarting)
		return;
	reap(d);
	drain(d, got, arg);
}

bool ha_ud_qp_arm(struct ha_ud_qp *d)
{
	struct ibv_cq *cq;
	void *context;

	/* There is one at most: another comes only after the queue is armed again. */
	if (ibv_get_cq_event(d->channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
	else if (errno != EAGAIN)
		return false;
	return ibv_req_notify_cq(d->recv_cq, 0) == 0;
}
