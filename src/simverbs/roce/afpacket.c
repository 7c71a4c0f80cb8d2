/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams as Ethernet frames by a packet socket (CAP_NET_RAW). The kernel writes what arrives
 * into a ring that both see, so looking costs no call; each packet's identification is seen, and so
 * its ICRC is looked at in full; and a queue pair's packets have a source port of its own, by which
 * switches spread them.
 *
 * The kernel sees the packets, too: UDP sockets at the addresses, which take nothing, keep it from
 * answering that nobody is there. By these a packet leaves whose Ethernet address is not known: the
 * kernel keeps it while it looks for that.
 */
#include "simverbs/roce/frame.h"
#include "simverbs/roce/neighbours.h"
#include "simverbs/roce/socket.h"
#include "simverbs/roce/wire.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_BYTES	  8192u /* of the ring: a packet and what the kernel says of it */
#define BLOCK_FRAMES	  8u
#define RING_FRAMES	  1024u
#define BUDGET		  64u /* packets a round */
#define SEND_BUFFER_BYTES (4 << 20)
/* How soon the kernel is asked again for a neighbour that it did not know. */
#define ASK_AGAIN_NS 5000000u
/* And how long one is believed. */
#define BELIEVE_NS 1000000000u

/* What is known of a peer's Ethernet address. */
struct way {
	bool known;
	uint8_t mac[6];
	uint64_t ask_ns; /* not before */
};

struct packet_socket {
	int fd;
	int guards[SV_MAX_GIDS];      /* UDP sockets at our addresses; -1: none */
	uint16_t sports[SV_MAX_GIDS]; /* theirs */
	uint8_t *ring;
	_Atomic uint32_t next; /* changed under the port lock, read without */
	struct way *ways;      /* by peer */
	uint32_t num_ways;
	struct mmsghdr out[SV_ROCE_BATCH];
	struct iovec parts[SV_ROCE_BATCH][2];
	uint8_t fronts[SV_ROCE_BATCH][SV_ROCE_FRONT_BYTES + 2];
};

/* UDP to our port, no fragments, over IPv4 or IPv6 without extension headers. */
static struct sock_filter wanted[] = {
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, 7),
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN + 9),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 11),
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ETH_HLEN + 6),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x3fff, 9, 0),
    BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, ETH_HLEN),
    BPF_STMT(BPF_LD | BPF_H | BPF_IND, ETH_HLEN + 2),
    BPF_JUMP(BPF_JMP | BPF_JA, 4, 0, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, 5),
    BPF_STMT(BPF_LD | BPF_B | BPF_ABS, ETH_HLEN + 6),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_UDP, 0, 3),
    BPF_STMT(BPF_LD | BPF_H | BPF_ABS, ETH_HLEN + 40 + 2),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SV_ROCE_PORT, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, 65535),
    BPF_STMT(BPF_RET | BPF_K, 0),
};
static struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};

static int filter(int fd, struct sock_filter *code, size_t bytes)
{
	struct sock_fprog program = {.len = (unsigned short)(bytes / sizeof(*code)),
				     .filter = code};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* ---------------------------------------------------------------- open, close */

/* At our port, or at any if that is taken: whoever has it guards the address for us, too. */
static bool bind_guard(int fd, const struct sv_roce_socket_address *own, uint16_t *sport)
{
	struct sv_roce_socket_address at = *own;

	if (bind(fd, &at.sa, at.bytes)) {
		if (errno != EADDRINUSE)
			return false;
		*sv_roce_socket_port(&at) = 0;
		if (bind(fd, &at.sa, at.bytes) || getsockname(fd, &at.sa, &at.bytes))
			return false;
	}
	*sport = ntohs(*sv_roce_socket_port(&at));
	return true;
}

static bool packet_address_changed(struct sv_roce_wire *w, uint32_t index)
{
	struct packet_socket *s = w->io_state;
	struct sv_roce_socket_address own;
	int fd;

	if (s->guards[index] >= 0)
		close(s->guards[index]);
	s->guards[index] = -1;
	if (sv_roce_no_gid(&w->link.gids[index]))
		return true;
	sv_roce_socket_address(&w->link.gids[index], w->itf.index, &own);
	fd = sv_roce_socket(own.sa.sa_family, w->itf.index);
	if (fd < 0)
		return false;
	if (filter(fd, nothing, sizeof(nothing)) || !bind_guard(fd, &own, &s->sports[index])) {
		close(fd);
		return false;
	}
	s->guards[index] = fd;
	return true;
}

static void packet_close(struct sv_roce_wire *w)
{
	struct packet_socket *s = w->io_state;

	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (s->guards[i] >= 0)
			close(s->guards[i]);
	if (s->ring)
		munmap(s->ring, (size_t)RING_FRAMES * FRAME_BYTES);
	if (s->fd >= 0)
		close(s->fd);
	free(s->ways);
	free(s);
	w->io_state = NULL;
}

static int open_ring(const struct sv_roce_wire *w, struct packet_socket *s)
{
	const int version = TPACKET_V2, on = 1, bytes = SEND_BUFFER_BYTES;
	const struct tpacket_req req = {.tp_block_size = BLOCK_FRAMES * FRAME_BYTES,
					.tp_block_nr = RING_FRAMES / BLOCK_FRAMES,
					.tp_frame_size = FRAME_BYTES,
					.tp_frame_nr = RING_FRAMES};
	const struct sockaddr_ll own = {.sll_family = AF_PACKET,
					.sll_protocol = htons(ETH_P_ALL),
					.sll_ifindex = (int)w->itf.index};
	void *ring;

	(void)setsockopt(s->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	(void)setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
	if (filter(s->fd, wanted, sizeof(wanted)) ||
	    setsockopt(s->fd, SOL_PACKET, PACKET_VERSION, &version, sizeof(version)) ||
	    setsockopt(s->fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) ||
	    setsockopt(s->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)))
		return -errno;
	ring = mmap(NULL, (size_t)RING_FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		    s->fd, 0);
	if (ring == MAP_FAILED)
		return -errno;
	s->ring = ring;
	return bind(s->fd, (const struct sockaddr *)&own, sizeof(own)) ? -errno : 0;
}

static int packet_open(struct sv_roce_wire *w)
{
	struct packet_socket *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	w->io_state = s;
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		s->guards[i] = -1;
	s->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = s->fd < 0 ? -errno : open_ring(w, s);
	if (err) {
		fprintf(
		    stderr, "simverbs: %s: no packet socket: %s%s\n", w->itf.name, strerror(-err),
		    err == -EPERM ? " (SIMVERBS_ROCE_MODE=packet needs CAP_NET_RAW; udp does not)"
				  : "");
		packet_close(w);
		return err;
	}
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (!packet_address_changed(w, i))
			memset(&w->link.gids[i], 0, sizeof(w->link.gids[i]));
	return 0;
}

/* ---------------------------------------------------------------- ways */

/* Room for all peers; false: no memory. */
static bool grow_ways(struct packet_socket *s, uint32_t num)
{
	struct way *ways;

	if (num <= s->num_ways)
		return true;
	ways = realloc(s->ways, num * sizeof(*ways));
	if (!ways)
		return false;
	memset(ways + s->num_ways, 0, (num - s->num_ways) * sizeof(*ways));
	s->ways = ways;
	s->num_ways = num;
	return true;
}

/* NULL: it is not known where the packet has to go. */
static const uint8_t *mac_of(struct sv_roce_wire *w, const struct sv_roce_peer *peer)
{
	static const uint8_t loopback[6];
	struct packet_socket *s = w->io_state;
	uint64_t now_ns;
	struct way *way;
	int err;

	if (w->link.loopback)
		return loopback;
	if (!grow_ways(s, w->peers.num))
		return NULL;
	way = &s->ways[peer->index];
	now_ns = sv_roce_now_ns();
	if (now_ns < way->ask_ns)
		return way->known ? way->mac : NULL;
	err = sv_roce_neighbour(w->itf.index, &peer->remote, way->mac);
	way->known = !err;
	way->ask_ns = now_ns + (err ? ASK_AGAIN_NS : BELIEVE_NS);
	return err ? NULL : way->mac;
}

/* ---------------------------------------------------------------- sending */

static size_t put_front(const struct sv_roce_wire *w, uint8_t *front, const struct sv_roce_out *out,
			const uint8_t *mac)
{
	const struct sv_roce_flow flow = {
	    .src = out->peer->local, .dst = out->peer->remote, .sport = out->sport};

	memcpy(front, mac, 6);
	memcpy(front + 6, w->link.mac, 6);
	return sv_roce_frame_front(front, &flow, out->traffic_class, out->hop_limit, out->bytes,
				   out->length);
}

/* The kernel is to find its way, and has it meanwhile. What it does not take is lost. */
static void send_by_kernel(struct sv_roce_wire *w, struct sv_roce_out *out)
{
	const struct packet_socket *s = w->io_state;
	const struct sv_roce_peer *peer = out->peer;
	ssize_t sent;

	out->sport = s->sports[peer->gid_index];
	sv_roce_seal(out);
	sent = sendto(s->guards[peer->gid_index], out->bytes, out->length, MSG_DONTWAIT,
		      &peer->to.sa, peer->to.bytes);
	sv_roce_count(w, sent < 0 ? SV_ROCE_tx_refused : SV_ROCE_tx_datagrams);
}

/* Those from the first on whose way is known. */
static uint32_t prepare(struct sv_roce_wire *w)
{
	struct packet_socket *s = w->io_state;
	uint32_t n = 0;

	for (uint32_t i = w->first_out; i < w->num_out; i++) {
		struct sv_roce_out *out = &w->out[i];
		const uint8_t *mac = mac_of(w, out->peer);

		if (!mac) {
			if (n)
				break;
			send_by_kernel(w, out);
			w->first_out++;
			continue;
		}
		s->parts[n][0] = (struct iovec){s->fronts[n], put_front(w, s->fronts[n], out, mac)};
		s->parts[n][1] = (struct iovec){out->bytes, out->length};
		s->out[n].msg_hdr = (struct msghdr){.msg_iov = s->parts[n], .msg_iovlen = 2};
		n++;
	}
	return n;
}

/* As sendmmsg(). A link that went down is told of by the next call once, even if it is up again. */
static int send_frames(struct packet_socket *s, uint32_t n)
{
	int sent = sendmmsg(s->fd, s->out, n, MSG_DONTWAIT);

	return sent < 0 && errno == ENETDOWN ? sendmmsg(s->fd, s->out, n, MSG_DONTWAIT) : sent;
}

static bool packet_flush(struct sv_roce_wire *w)
{
	struct packet_socket *s = w->io_state;

	while (w->first_out < w->num_out) {
		uint32_t n = prepare(w);
		int sent = n ? send_frames(s, n) : 0;

		/* What is refused: the link is down, or its queue is full. */
		if (!sv_roce_sent(w, sent))
			return false;
	}
	return true;
}

/* ---------------------------------------------------------------- receiving */

static bool is_ours(const struct sv_roce_wire *w, const union ibv_gid *gid)
{
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		if (!memcmp(&w->link.gids[i], gid, sizeof(*gid)))
			return !sv_roce_no_gid(gid);
	return false;
}

/* A frame that the filter let through. */
static void take_frame(struct sv_roce_wire *w, const uint8_t *frame, size_t length)
{
	struct sv_roce_in in = {.id_known = true};

	if (!sv_roce_frame_take(frame, length, &in.flow, &in.bytes, &in.length) ||
	    !is_ours(w, &in.flow.dst))
		return;
	sv_roce_receive(w, &in);
}

static struct tpacket2_hdr *next_frame(const struct packet_socket *s)
{
	uint32_t next = atomic_load_explicit(&s->next, memory_order_relaxed);

	return (struct tpacket2_hdr *)(void *)(s->ring + (size_t)next * FRAME_BYTES);
}

static bool has_frame(const struct packet_socket *s)
{
	/* The kernel writes it behind the packet. */
	return __atomic_load_n(&next_frame(s)->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;
}

static void step(struct packet_socket *s)
{
	uint32_t next = atomic_load_explicit(&s->next, memory_order_relaxed);

	__atomic_store_n(&next_frame(s)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	atomic_store_explicit(&s->next, (next + 1) % RING_FRAMES, memory_order_relaxed);
}

static void packet_receive(struct sv_roce_wire *w, bool everywhere)
{
	struct packet_socket *s = w->io_state;

	(void)everywhere; /* there is one place */
	for (uint32_t i = 0; i < BUDGET && has_frame(s); i++) {
		const struct tpacket2_hdr *h = next_frame(s);

		take_frame(w, (const uint8_t *)h + h->tp_mac, h->tp_snaplen);
		step(s);
	}
}

static bool packet_pending(const struct sv_roce_wire *w)
{
	return has_frame(w->io_state);
}

static nfds_t packet_fds(struct sv_roce_wire *w, struct pollfd *fds, short events)
{
	const struct packet_socket *s = w->io_state;

	*fds = (struct pollfd){.fd = s->fd, .events = events};
	return 1;
}

const struct sv_roce_io sv_roce_packets = {
    .own_sports = true,
    .open = packet_open,
    .close = packet_close,
    .address_changed = packet_address_changed,
    .flush = packet_flush,
    .receive = packet_receive,
    .pending = packet_pending,
    .fds = packet_fds,
};
