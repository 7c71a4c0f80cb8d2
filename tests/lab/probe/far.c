/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second device in another process, perhaps on another host: what is to be done there goes over
 * a TCP connection as a struct call, and comes back with what came of it. The same program is at
 * both ends, so its structs are the format; a pointer in one means something only where it was
 * written.
 *
 * Who serves calls the very function that was called here, with an end of its own.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_ENDS 8u

struct far {
	int fd;
	bool taken[MAX_ENDS];
};

enum what {
	REFRESH,
	END_OPEN,
	END_CLOSE,
	DESTROY_QP,
	MODIFY,
	QUERY,
	PUT_MEMORY,
	GET_MEMORY,
	REGION_OPEN,
	REGION_CLOSE,
	POST,
	POST_RECV,
	NEXT_WC,
	ARM,
	CQ_EVENTS,
	NEXT_EVENT,
};

struct call {
	enum what what;
	uint32_t slot; /* of the end */
	unsigned int value, ms;
	bool flag;
	int rc;
	union {
		struct port port;
		struct options options;
		struct end end;
		struct {
			struct ibv_qp_attr attr;
			int mask;
		} qp;
		struct region region;
		struct send send;
		struct {
			struct ibv_recv_wr wr;
			struct ibv_sge pieces[RECV_PIECES];
		} recv;
		struct ibv_wc wc;
		enum ibv_event_type event;
	};
};

/* ---- the connection ------------------------------------------------------------------------ */

/* False: the other side is gone. */
static bool get(int fd, void *to, size_t length)
{
	ssize_t n;

	for (uint8_t *at = to; length > 0; at += n, length -= (size_t)n) {
		n = recv(fd, at, length, 0);
		if (n <= 0)
			return false;
	}
	return true;
}

static void put(int fd, const void *from, size_t length)
{
	ssize_t n;

	for (const uint8_t *at = from; length > 0; at += n, length -= (size_t)n) {
		n = send(fd, at, length, MSG_NOSIGNAL);
		NEED(n > 0);
	}
}

static struct sockaddr_in address_from(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	char host[INET_ADDRSTRLEN] = "";
	unsigned port = 0;

	if (sscanf(text, "%15[0-9.]:%u", host, &port) < 1 || port > UINT16_MAX ||
	    inet_pton(AF_INET, host, &address.sin_addr) != 1)
		give_up("not an IPv4 address: %s", text);
	address.sin_port = htons((uint16_t)port);
	return address;
}

/* What is small goes at once. */
static void be_quick(int fd)
{
	int one = 1;

	NEED(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

struct far *far_open(const char *text)
{
	struct sockaddr_in address = address_from(text);
	struct far *far = calloc(1, sizeof(*far));

	NEED(far);
	far->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	NEED(far->fd >= 0);
	if (connect(far->fd, (const struct sockaddr *)&address, sizeof(address)))
		give_up("nobody serves a device at %s", text);
	be_quick(far->fd);
	return far;
}

void far_close(struct far *far)
{
	close(far->fd);
	free(far);
}

/* ---- who asks ------------------------------------------------------------------------------ */

static void send_call(const struct far *far, const struct call *call)
{
	put(far->fd, call, sizeof(*call));
}

static int come_back(const struct far *far, struct call *call)
{
	if (!get(far->fd, call, sizeof(*call)))
		give_up("who serves the device is gone");
	return call->rc;
}

static int do_there(const struct far *far, struct call *call)
{
	send_call(far, call);
	return come_back(far, call);
}

static int do_to_end(const struct end *end, struct call *call)
{
	call->slot = end->slot;
	return do_there(end->port->far, call);
}

void far_refresh(struct port *port)
{
	struct call call = {.what = REFRESH};

	do_there(port->far, &call);
	port->attr = call.port.attr;
	port->gid = call.port.gid;
	port->gid_index = call.port.gid_index;
}

void far_end_open(struct end *end, const struct options *options)
{
	struct call call = {.what = END_OPEN, .options = *options};
	bool *taken = end->port->far->taken;

	while (end->slot < MAX_ENDS && taken[end->slot])
		end->slot++;
	NEED(end->slot < MAX_ENDS);
	taken[end->slot] = true;
	do_to_end(end, &call);
	end->qpn = call.end.qpn;
	end->lkey = call.end.lkey;
	end->rkey = call.end.rkey;
	end->addr = call.end.addr;
}

void far_end_close(struct end *end)
{
	do_to_end(end, &(struct call){.what = END_CLOSE});
	end->port->far->taken[end->slot] = false;
}

void far_destroy_qp(struct end *end)
{
	do_to_end(end, &(struct call){.what = DESTROY_QP});
}

int far_modify(struct end *end, const struct ibv_qp_attr *attr, int mask)
{
	return do_to_end(end, &(struct call){.what = MODIFY, .qp = {*attr, mask}});
}

void far_query(const struct end *end, struct ibv_qp_attr *attr)
{
	struct call call = {.what = QUERY};

	do_to_end(end, &call);
	*attr = call.qp.attr;
}

void far_put_memory(struct end *end)
{
	struct call call = {.what = PUT_MEMORY, .slot = end->slot};

	send_call(end->port->far, &call);
	put(end->port->far->fd, end->buf, BUF_BYTES);
	come_back(end->port->far, &call);
}

void far_get_memory(struct end *end)
{
	do_to_end(end, &(struct call){.what = GET_MEMORY});
	if (!get(end->port->far->fd, end->buf, BUF_BYTES))
		give_up("who serves the device is gone");
}

void far_region_open(struct region *region, unsigned int access, bool own_pd)
{
	struct call call = {.what = REGION_OPEN, .value = access, .flag = own_pd};

	do_to_end(region->end, &call);
	region->lkey = call.region.lkey;
	region->rkey = call.region.rkey;
}

int far_region_close(struct region *region)
{
	return do_to_end(region->end, &(struct call){.what = REGION_CLOSE});
}

int far_post(struct end *end, const struct send *send)
{
	NEED(!send->wr.next && send->wr.num_sge <= 1);
	return do_to_end(end, &(struct call){.what = POST, .send = *send});
}

int far_post_recv(struct end *end, const struct ibv_recv_wr *wr)
{
	struct call call = {.what = POST_RECV, .recv = {.wr = *wr}};

	NEED(!wr->next && wr->num_sge <= RECV_PIECES);
	for (int i = 0; i < wr->num_sge; i++)
		call.recv.pieces[i] = wr->sg_list[i];
	return do_to_end(end, &call);
}

bool far_next_wc(struct end *end, struct ibv_wc *wc, unsigned ms)
{
	struct call call = {.what = NEXT_WC, .ms = ms};
	bool found = do_to_end(end, &call);

	*wc = call.wc;
	return found;
}

int far_arm(struct end *end, bool solicited_only)
{
	return do_to_end(end, &(struct call){.what = ARM, .flag = solicited_only});
}

unsigned far_cq_events(struct end *end, unsigned ms)
{
	return (unsigned)do_to_end(end, &(struct call){.what = CQ_EVENTS, .ms = ms});
}

bool far_next_event(struct port *port, enum ibv_event_type *type, unsigned ms)
{
	struct call call = {.what = NEXT_EVENT, .ms = ms};
	bool found = do_there(port->far, &call);

	*type = call.event;
	return found;
}

/* ---- who serves ---------------------------------------------------------------------------- */

struct served {
	struct end end;
	struct region region;
};

static void serve_end(struct served *it, struct port *port, struct call *call)
{
	struct end *end = &it->end;
	struct options options;

	switch (call->what) {
	case END_OPEN:
		options = call->options;
		end_open(end, port, &options);
		call->end = *end;
		break;
	case END_CLOSE:
		end_close(end);
		break;
	case DESTROY_QP:
		end_destroy_qp(end);
		break;
	case MODIFY:
		call->rc = ibv_modify_qp(end->qp, &call->qp.attr, call->qp.mask);
		break;
	case QUERY:
		end_query(end, &call->qp.attr);
		break;
	case REGION_OPEN:
		region_open(&it->region, end, call->value, call->flag);
		call->region = it->region;
		break;
	case REGION_CLOSE:
		call->rc = region_close(&it->region);
		break;
	case POST:
		call->send.wr.sg_list = &call->send.sge;
		call->rc = post(end, &call->send);
		break;
	case POST_RECV:
		call->recv.wr.sg_list = call->recv.pieces;
		call->rc = post_recv_wr(end, &call->recv.wr);
		break;
	case NEXT_WC:
		call->rc = next_wc(end, &call->wc, call->ms);
		break;
	case ARM:
		call->rc = arm(end, call->flag);
		break;
	case CQ_EVENTS:
		call->rc = (int)cq_events(end, call->ms);
		break;
	default:
		give_up("asked for %d, which nobody knows", (int)call->what);
	}
}

static void serve(struct port *port, struct served *all, struct call *call, int fd)
{
	NEED(call->slot < MAX_ENDS);
	call->rc = 0;
	if (call->what == REFRESH) {
		port_refresh(port);
		call->port = *port;
	} else if (call->what == NEXT_EVENT) {
		call->rc = next_event(port, &call->event, call->ms);
	} else if (call->what == PUT_MEMORY) {
		NEED(get(fd, all[call->slot].end.buf, BUF_BYTES));
	} else if (call->what != GET_MEMORY) {
		serve_end(&all[call->slot], port, call);
	}
	put(fd, call, sizeof(*call));
	if (call->what == GET_MEMORY)
		put(fd, all[call->slot].end.buf, BUF_BYTES);
}

void far_serve(struct port *port, const char *text)
{
	struct sockaddr_in address = address_from(text);
	struct served all[MAX_ENDS] = {0};
	socklen_t length = sizeof(address);
	int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	struct call call;

	NEED(listening >= 0);
	NEED(!bind(listening, (const struct sockaddr *)&address, sizeof(address)));
	NEED(!listen(listening, 1));
	NEED(!getsockname(listening, (struct sockaddr *)&address, &length));
	printf("port %u\n", ntohs(address.sin_port));
	fflush(stdout);
	fd = accept(listening, NULL, NULL);
	NEED(fd >= 0);
	be_quick(fd);
	while (get(fd, &call, sizeof(call)))
		serve(port, all, &call, fd);
	close(fd);
	close(listening);
}
