/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams by UDP sockets, one for each address of the interface: nothing that needs privileges.
 *
 * The ICRC covers IPv4's identification, which the kernel chooses: 0 for what is sent (socket.h).
 * What a received packet had stays unknown (sv_icrc_fits_some_id).
 */
#include "simverbs/roce/bytes.h"
#include "simverbs/roce/socket.h"
#include "simverbs/roce/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RECEIVE_BATCH 32u
/* Sockets other than that of the last packet are looked at so seldom: each look is a call. */
#define LOOK_AT_ALL	     8u
#define FULL_LOOKS	     3u
#define RECEIVE_BUFFER_BYTES (16 << 20)
#define SEND_BUFFER_BYTES    (4 << 20)
/* Room for a traffic class and a hop limit. */
#define CONTROL_BYTES (2 * CMSG_SPACE(sizeof(int)))

struct udp_sockets {
	int fds[SV_MAX_GIDS]; /* -1: no address */
	uint32_t hot, rounds;
	uint32_t batch;	     /* how many to ask for */
	uint32_t full_looks; /* that found so many, in a row */
	/* Receiving. One byte more than a datagram may have tells those that are too long. */
	struct mmsghdr in[RECEIVE_BATCH];
	struct iovec in_bytes[RECEIVE_BATCH];
	struct sv_roce_socket_address from[RECEIVE_BATCH];
	uint8_t bytes[RECEIVE_BATCH][SV_ROCE_MAX_BYTES + 8];
	/* Sending. */
	struct mmsghdr out[SV_ROCE_BATCH];
	struct iovec out_bytes[SV_ROCE_BATCH];
	alignas(struct cmsghdr) uint8_t control[SV_ROCE_BATCH][CONTROL_BYTES];
};

/* ---------------------------------------------------------------- sockets */

/* As large as may be had. */
static void set_buffers(int fd)
{
	const int in = RECEIVE_BUFFER_BYTES, out = SEND_BUFFER_BYTES;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &in, sizeof(in));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &in, sizeof(in));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &out, sizeof(out));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &out, sizeof(out));
}

/* A descriptor or -errno. */
static int open_socket(const struct sv_roce_wire *w, uint32_t index)
{
	struct sv_roce_socket_address own;
	int fd;

	sv_roce_socket_address(&w->link.gids[index], w->itf.index, &own);
	fd = sv_roce_socket(own.sa.sa_family, w->itf.index);
	if (fd < 0)
		return fd;
	set_buffers(fd);
	if (bind(fd, &own.sa, own.bytes)) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

static void say_taken(const struct sv_roce_wire *w)
{
	fprintf(
	    stderr,
	    "simverbs: %s: UDP port %u is taken: by the kernel, if its module rdma_rxe is loaded "
	    "(rmmod rdma_rxe), or by another process that has this device open (give each an "
	    "address "
	    "of its own, %s@ADDRESS)\n",
	    w->itf.name, SV_ROCE_PORT, w->itf.name);
}

static void udp_close(struct sv_roce_wire *w)
{
	struct udp_sockets *s = w->io_state;

	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	free(s);
	w->io_state = NULL;
}

static bool udp_address_changed(struct sv_roce_wire *w, uint32_t index)
{
	struct udp_sockets *s = w->io_state;

	if (s->fds[index] >= 0)
		close(s->fds[index]);
	s->fds[index] = -1;
	if (sv_roce_no_gid(&w->link.gids[index]))
		return true;
	s->fds[index] = open_socket(w, index);
	if (s->fds[index] == -EADDRINUSE)
		say_taken(w);
	return s->fds[index] >= 0;
}

static int udp_open(struct sv_roce_wire *w)
{
	struct udp_sockets *s = calloc(1, sizeof(*s));
	int err = 0;

	if (!s)
		return -ENOMEM;
	w->io_state = s;
	s->batch = 1;
	for (uint32_t i = 0; i < RECEIVE_BATCH; i++) {
		s->in_bytes[i] = (struct iovec){s->bytes[i], sizeof(s->bytes[i])};
		s->in[i].msg_hdr = (struct msghdr){
		    .msg_name = &s->from[i], .msg_iov = &s->in_bytes[i], .msg_iovlen = 1};
	}
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		s->fds[i] = -1;
	for (uint32_t i = 0; i < SV_MAX_GIDS && err != -EADDRINUSE; i++) {
		if (!sv_roce_no_gid(&w->link.gids[i]) && !udp_address_changed(w, i)) {
			err = s->fds[i];
			memset(&w->link.gids[i], 0, sizeof(w->link.gids[i]));
		}
	}
	/* An address that is not there yet is none; a port that is taken is taken for all. */
	if (err != -EADDRINUSE)
		return 0;
	udp_close(w);
	return err;
}

/* ---------------------------------------------------------------- sending */

static size_t put_control(uint8_t *control, int level, int type, int value)
{
	struct cmsghdr *header = (struct cmsghdr *)(void *)control;

	*header = (struct cmsghdr){
	    .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = level, .cmsg_type = type};
	memcpy(CMSG_DATA(header), &value, sizeof(value));
	return CMSG_SPACE(sizeof(int));
}

static size_t put_class(uint8_t *control, const struct sv_roce_out *out)
{
	bool v4 = out->peer->to.sa.sa_family == AF_INET;
	int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
	size_t bytes = put_control(control, level, v4 ? IP_TOS : IPV6_TCLASS, out->traffic_class);

	return bytes +
	       put_control(control + bytes, level, v4 ? IP_TTL : IPV6_HOPLIMIT, out->hop_limit);
}

static void prepare(struct udp_sockets *s, uint32_t i, struct sv_roce_out *out)
{
	s->out_bytes[i] = (struct iovec){out->bytes, out->length};
	s->out[i].msg_hdr = (struct msghdr){
	    .msg_name = (void *)(uintptr_t)&out->peer->to.sa,
	    .msg_namelen = out->peer->to.bytes,
	    .msg_iov = &s->out_bytes[i],
	    .msg_iovlen = 1,
	};
	if (out->traffic_class || out->hop_limit != SV_ROCE_HOP_LIMIT) {
		s->out[i].msg_hdr.msg_control = s->control[i];
		s->out[i].msg_hdr.msg_controllen = put_class(s->control[i], out);
	}
}

/* Those from the first on that leave by the same socket. */
static uint32_t same_way(const struct sv_roce_wire *w)
{
	uint32_t n = w->first_out;

	while (n < w->num_out && w->out[n].peer->gid_index == w->out[w->first_out].peer->gid_index)
		n++;
	return n - w->first_out;
}

static bool udp_flush(struct sv_roce_wire *w)
{
	struct udp_sockets *s = w->io_state;

	while (w->first_out < w->num_out) {
		int fd = s->fds[w->out[w->first_out].peer->gid_index];
		uint32_t n = same_way(w);
		int sent = -1;

		for (uint32_t i = 0; i < n; i++)
			prepare(s, i, &w->out[w->first_out + i]);
		errno = ENETUNREACH; /* its address is gone */
		if (fd >= 0)
			sent = n == 1 ? (sendmsg(fd, &s->out->msg_hdr, MSG_DONTWAIT) < 0 ? -1 : 1)
				      : sendmmsg(fd, s->out, n, MSG_DONTWAIT);
		/* What is refused has no route, is too long, or is forbidden. */
		if (!sv_roce_sent(w, sent))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- receiving */

static void deliver(struct sv_roce_wire *w, uint32_t index, const struct mmsghdr *msg)
{
	const struct sv_roce_socket_address *from = msg->msg_hdr.msg_name;
	struct sv_roce_in in = {
	    .flow = {.dst = w->link.gids[index]},
	    .bytes = msg->msg_hdr.msg_iov->iov_base,
	    .length = msg->msg_len,
	};

	if (from->sa.sa_family == AF_INET) {
		sv_map_v4(&in.flow.src, &from->v4.sin_addr);
		in.flow.sport = ntohs(from->v4.sin_port);
	} else {
		memcpy(in.flow.src.raw, &from->v6.sin6_addr, 16);
		in.flow.sport = ntohs(from->v6.sin6_port);
	}
	sv_roce_receive(w, &in);
}

/* Up to `batch` datagrams into s->in. Their number; -1: there is none. */
static int take(struct udp_sockets *s, int fd, uint32_t batch)
{
	ssize_t n;

	if (batch == 1) { /* the call for one takes less */
		s->in[0].msg_hdr.msg_namelen = sizeof(s->from[0].v6);
		n = recvfrom(fd, s->bytes[0], sizeof(s->bytes[0]), MSG_DONTWAIT, &s->from[0].sa,
			     &s->in[0].msg_hdr.msg_namelen);
		s->in[0].msg_len = (unsigned)n;
		return n < 0 ? -1 : 1;
	}
	for (uint32_t i = 0; i < batch; i++)
		s->in[i].msg_hdr.msg_namelen = sizeof(s->from[i].v6);
	return recvmmsg(fd, s->in, batch, MSG_DONTWAIT, NULL);
}

/*
 * How many to ask for next: asking for more than there is costs another look, so not before several
 * looks in a row have found all that they asked for.
 */
static void adapt(struct udp_sockets *s, uint32_t asked, int got)
{
	if (got < (int)asked) {
		s->full_looks = 0;
		s->batch = got > 1 ? (uint32_t)got : 1;
	} else if (++s->full_looks >= FULL_LOOKS) {
		s->batch = asked * 2 < RECEIVE_BATCH ? asked * 2 : RECEIVE_BATCH;
	}
}

static void receive_from(struct sv_roce_wire *w, uint32_t index)
{
	struct udp_sockets *s = w->io_state;
	uint32_t batch = s->batch;
	int n = take(s, s->fds[index], batch);

	adapt(s, batch, n);
	if (n > 0)
		s->hot = index;
	for (int i = 0; i < n; i++)
		deliver(w, index, &s->in[i]);
}

static void udp_receive(struct sv_roce_wire *w, bool everywhere)
{
	struct udp_sockets *s = w->io_state;
	bool all = s->rounds++ % LOOK_AT_ALL == 0 || everywhere;

	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (s->fds[i] >= 0 && (all || i == s->hot))
			receive_from(w, i);
}

static nfds_t udp_fds(struct sv_roce_wire *w, struct pollfd *fds, short events)
{
	const struct udp_sockets *s = w->io_state;
	nfds_t n = 0;

	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (s->fds[i] >= 0)
			fds[n++] = (struct pollfd){.fd = s->fds[i], .events = events};
	return n;
}

const struct sv_roce_io sv_roce_udp = {
    .open = udp_open,
    .close = udp_close,
    .address_changed = udp_address_changed,
    .flush = udp_flush,
    .receive = udp_receive,
    .fds = udp_fds,
};
