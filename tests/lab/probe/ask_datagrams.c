/* SPDX-License-Identifier: Apache-2.0 */
/* Unreliable datagrams: what arrives, and what is lost without a word. */
#include "probe.h"

#include <errno.h>
#include <string.h>

#define QKEY 0x11111111u
#define GRH  40u

struct datagrams {
	struct pair pair;
	struct ibv_ah *ah; /* from a to b */
};

static void begin(struct datagrams *d, struct probe *probe)
{
	struct options options = patient();
	struct ibv_ah_attr attr;

	options.type = IBV_QPT_UD;
	pair_open(&d->pair, &probe->a, &probe->b, &options);
	attr = address_of(&d->pair.a, &d->pair.b);
	d->ah = ibv_create_ah(probe->a.pd, &attr);
	NEED(d->ah);
}

static void end(struct datagrams *d)
{
	NEED(!ibv_destroy_ah(d->ah));
	pair_close(&d->pair);
}

static int send_datagram(struct datagrams *d, uint32_t qpn, uint32_t qkey, uint32_t length)
{
	struct send send;

	make_send(&send, &d->pair.a, &d->pair.b, IBV_WR_SEND, length);
	send.wr.wr.ud.ah = d->ah;
	send.wr.wr.ud.remote_qpn = qpn;
	send.wr.wr.ud.remote_qkey = qkey;
	return post(&d->pair.a, &send);
}

static void ask_arrival(struct datagrams *d)
{
	struct end *b = &d->pair.b;
	struct ibv_wc wc;

	fill(&d->pair);
	NEED(!post_recv(b, 2000, 7) && !send_datagram(d, b->qpn, QKEY, 500));
	answer("ud.sender", "%s", next_status(&d->pair.a, WAIT_MS));
	NEED(next_wc(b, &wc, WAIT_MS));
	answer("ud.receiver", "%s %s byte_len=%u grh=%s src=%s", status_name(wc.status),
	       wc_opcode_name(wc.opcode), wc.byte_len, yes_no(wc.wc_flags & IBV_WC_GRH),
	       yes_no(wc.src_qp == d->pair.a.qpn));
	end_get_memory(b);
	answer("ud.data-after-the-header", "%s", yes_no(!memcmp(d->pair.a.buf, b->buf + GRH, 500)));
}

static void ask_losses(struct datagrams *d)
{
	struct end *b = &d->pair.b;
	uint32_t qpn = b->qpn, mtu = 128u << d->pair.a.port->attr.active_mtu;

	NEED(!post_recv(b, 2000, 8) && !send_datagram(d, qpn, QKEY + 1, 8));
	answer("ud.wrong-qkey", "%s, %s", next_status(&d->pair.a, WAIT_MS),
	       next_status(b, QUIET_MS));
	NEED(!send_datagram(d, 0xfffff0, QKEY, 8));
	answer("ud.to-nobody", "%s, %s", next_status(&d->pair.a, WAIT_MS),
	       next_status(b, QUIET_MS));
	NEED(!send_datagram(d, qpn, QKEY, 8));
	answer("ud.after-losses", "%s, %s", next_status(&d->pair.a, WAIT_MS),
	       next_status(b, WAIT_MS));
	NEED(!send_datagram(d, qpn, QKEY, 8));
	answer("ud.no-receive", "%s, %s", next_status(&d->pair.a, WAIT_MS),
	       next_status(b, QUIET_MS));
	NEED(!send_datagram(d, qpn, QKEY, 0));
	answer("ud.empty", "%s", next_status(&d->pair.a, WAIT_MS));
	answer("ud.too-long", "%s", errno_name(send_datagram(d, qpn, QKEY, mtu + 1)));
	answer("ud.too-long.completes", "%s", next_status(&d->pair.a, QUIET_MS));
	answer("ud.too-long.state", "%s", state_name(end_settled_state(&d->pair.a, IBV_QPS_ERR)));
}

static void ask_short_receive(struct probe *probe)
{
	struct datagrams d;

	begin(&d, probe);
	NEED(!post_recv(&d.pair.b, 100, 1) && !post_recv(&d.pair.b, 2000, 2));
	NEED(!send_datagram(&d, d.pair.b.qpn, QKEY, 500));
	answer("ud.short-receive", "%s", next_status(&d.pair.b, QUIET_MS));
	answer("ud.short-receive.state", "%s",
	       state_name(end_settled_state(&d.pair.b, IBV_QPS_ERR)));
	end(&d);
}

static void ask_wrong_use(struct probe *probe)
{
	struct ibv_ah_attr attr;
	struct datagrams d;
	struct send send;
	struct ibv_ah *ah;

	begin(&d, probe);
	make_send(&send, &d.pair.a, &d.pair.b, IBV_WR_RDMA_WRITE, 8);
	send.wr.wr.ud.ah = d.ah; /* drivers look at it, whatever the work is */
	answer("ud.write", "%s", errno_name(post(&d.pair.a, &send)));
	attr = address_of(&d.pair.a, &d.pair.b);
	attr.grh.sgid_index = (uint8_t)port_empty_gid(&probe->a);
	errno = 0;
	ah = ibv_create_ah(probe->a.pd, &attr);
	answer("ud.address-of-no-entry", "%s", ah ? "0" : errno_name(errno));
	if (ah)
		NEED(!ibv_destroy_ah(ah));
	end(&d);
}

void ask_datagrams(struct probe *probe)
{
	struct datagrams d;

	begin(&d, probe);
	ask_arrival(&d);
	ask_losses(&d);
	end(&d);
	ask_short_receive(probe);
	ask_wrong_use(probe);
}
