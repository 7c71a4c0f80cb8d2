/* SPDX-License-Identifier: Apache-2.0 */
/* Work requests, completions and events, with a limit on every wait. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

struct send *make_send(struct send *send, const struct end *from, const struct end *to,
		       enum ibv_wr_opcode opcode, uint32_t length)
{
	*send = (struct send){
	    .sge = {.addr = from->addr, .length = length, .lkey = from->lkey},
	    .wr = {.num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED},
	};
	send->wr.sg_list = &send->sge;
	send->wr.imm_data = htonl(0x12345678);
	send->wr.wr.rdma.remote_addr = to->addr;
	send->wr.wr.rdma.rkey = to->rkey;
	return send;
}

int post(struct end *end, struct send *send)
{
	struct ibv_send_wr *bad;

	if (end->port->far)
		return far_post(end, send);
	return ibv_post_send(end->qp, &send->wr, &bad);
}

static int post_as(enum ibv_wr_opcode opcode, struct end *from, const struct end *to,
		   uint32_t length, uint64_t wr_id)
{
	struct send send;

	make_send(&send, from, to, opcode, length)->wr.wr_id = wr_id;
	return post(from, &send);
}

int post_write(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id)
{
	return post_as(IBV_WR_RDMA_WRITE, from, to, length, wr_id);
}

int post_write_imm(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id)
{
	return post_as(IBV_WR_RDMA_WRITE_WITH_IMM, from, to, length, wr_id);
}

int post_message(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id)
{
	return post_as(IBV_WR_SEND, from, to, length, wr_id);
}

int post_read(struct end *from, const struct end *to, uint32_t length, uint64_t wr_id)
{
	return post_as(IBV_WR_RDMA_READ, from, to, length, wr_id);
}

int post_recv_wr(struct end *end, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;

	return end->port->far ? far_post_recv(end, wr) : ibv_post_recv(end->qp, wr, &bad);
}

int post_recv(struct end *end, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = end->addr, .length = length, .lkey = end->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = length ? 1 : 0};

	return post_recv_wr(end, &wr);
}

bool next_wc(struct end *end, struct ibv_wc *wc, unsigned ms)
{
	double until = now_ms() + ms;
	bool over;
	int n;

	if (end->port->far)
		return far_next_wc(end, wc, ms);
	do {
		over = now_ms() >= until; /* and one look after that */
		n = ibv_poll_cq(end->cq, 1, wc);
		NEED(n >= 0);
		if (n == 0)
			sleep_ms(0); /* lets the other side run where there is one processor */
	} while (n == 0 && !over);
	return n == 1;
}

const char *next_status(struct end *end, unsigned ms)
{
	struct ibv_wc wc;

	return next_wc(end, &wc, ms) ? status_name(wc.status) : "nothing";
}

unsigned take_all(struct end *end, struct ibv_wc *wcs, unsigned max)
{
	unsigned n = 0;

	while (n < max && next_wc(end, &wcs[n], QUIET_MS))
		n++;
	return n;
}

int arm(struct end *end, bool solicited_only)
{
	return end->port->far ? far_arm(end, solicited_only)
			      : ibv_req_notify_cq(end->cq, solicited_only);
}

unsigned cq_events(struct end *end, unsigned ms)
{
	struct pollfd fd = {.events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	unsigned n = 0;

	if (end->port->far)
		return far_cq_events(end, ms);
	fd.fd = end->channel->fd;
	while (poll(&fd, 1, (int)ms) == 1) {
		NEED(!ibv_get_cq_event(end->channel, &cq, &context));
		NEED(cq == end->cq && context == end);
		ibv_ack_cq_events(cq, 1);
		n++;
	}
	return n;
}

bool next_event(struct port *port, enum ibv_event_type *type, unsigned ms)
{
	struct pollfd fd = {.events = POLLIN};
	struct ibv_async_event event;

	if (port->far)
		return far_next_event(port, type, ms);
	fd.fd = port->ctx->async_fd;
	if (poll(&fd, 1, (int)ms) != 1 || ibv_get_async_event(port->ctx, &event))
		return false;
	*type = event.event_type;
	ibv_ack_async_event(&event);
	return true;
}

const char *events_within(struct port *port, struct words *words, unsigned ms)
{
	enum ibv_event_type type, last = (enum ibv_event_type) - 1;

	*words = (struct words){0};
	while (next_event(port, &type, ms)) {
		if (type != last)
			add_word(words, "%s", event_name(type));
		last = type;
	}
	return words_text(words);
}

void drop_events(struct port *port)
{
	enum ibv_event_type type;

	while (next_event(port, &type, 0))
		;
}

void fill(struct pair *pair)
{
	static uint8_t round;

	round++;
	for (uint32_t i = 0; i < BUF_BYTES; i++)
		pair->a.buf[i] = (uint8_t)(i * 7 + i / 256 + round);
	for (uint32_t i = 0; i < BUF_BYTES; i++)
		pair->b.buf[i] = (uint8_t)~pair->a.buf[i];
	end_put_memory(&pair->b);
}

bool arrived(struct pair *pair, uint32_t length)
{
	end_get_memory(&pair->b);
	return !memcmp(pair->a.buf, pair->b.buf, length);
}
