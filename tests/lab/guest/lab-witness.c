/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A witness in the guest that knows nothing of the plugin: what becomes of late
 * packets of queue pairs of its own, and which packets arrive.
 *
 * lab-witness late A B: at SIGUSR1 writes from A to B until the sender gives up, then watches the
 * memory: what lands late through a queue pair that is left alone, and through one that was moved
 * to ERR first. For links that delay packets for longer than the sender waits.
 *
 * lab-witness packets INTERFACE: remembers each RDMA write packet that comes in: when the kernel
 * got it, to which queue pair it goes, how many bytes. Tells at SIGTERM.
 *
 * One JSON object a line, flushed at once.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAIRS	      8
#define WRITES	      16 /* under way, of each pair */
#define WRITE_BYTES   8192u
#define GID_INDEX     1	 /* the IPv4 address; 0 is the link's own */
#define QP_TIMEOUT    10 /* 4.2 ms */
#define RETRY_CNT     3	 /* 7 is for ever here */
#define LATE_MS	      1500
#define CANARY	      0x5a
#define ROCE_PORT     4791
#define BTH_BYTES     12
#define MAX_PACKETS   200000
#define BYTES_OF_PAIR ((size_t)WRITES * WRITE_BYTES)

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory; /* PAIRS * WRITES places of WRITE_BYTES */
	union ibv_gid gid;
};

struct pair {
	struct ibv_qp *from, *to;
	uint64_t posted, done; /* work requests; done counts errors, too */
	uint64_t errors;
};

static struct end a, b;
static struct pair pairs[PAIRS];

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "lab-witness: %s: %s\n", what, strerror(error));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double ms_since(uint64_t ns)
{
	return (double)(now_ns() - ns) / 1e6;
}

static void sleep_us(unsigned us)
{
	const struct timespec pause = {.tv_nsec = (long)us * 1000};

	nanosleep(&pause, NULL);
}

/* ---- devices -------------------------------------------------------------------------------- */

static void open_end(struct end *end, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	const size_t bytes = PAIRS * BYTES_OF_PAIR;

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			end->ctx = ibv_open_device(list[i]);
	if (!end->ctx)
		die(name, ENODEV);
	ibv_free_device_list(list);
	end->pd = ibv_alloc_pd(end->ctx);
	end->cq = ibv_create_cq(end->ctx, 2 * PAIRS * (WRITES + 1), NULL, NULL, 0);
	end->memory = aligned_alloc(4096, bytes);
	if (!end->pd || !end->cq || !end->memory)
		die("making queues", errno);
	memset(end->memory, 0, bytes);
	end->mr = ibv_reg_mr(end->pd, end->memory, bytes,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!end->mr || ibv_query_gid(end->ctx, 1, GID_INDEX, &end->gid) != 0)
		die("memory or address", errno);
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

static struct ibv_qp *make_qp(const struct end *end)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = end->cq,
	    .recv_cq = end->cq,
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = WRITES + 1,
		    .max_recv_wr = 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp *qp = ibv_create_qp(end->pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS) != 0)
		die("making a queue pair", errno);
	return qp;
}

/* 0 or errno. */
static int connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = IBV_MTU_4096,
	    .dest_qp_num = peer->qp_num,
	    .rq_psn = 1,
	    .max_dest_rd_atomic = 1,
	    .min_rnr_timer = 12,
	    .ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	int rc =
	    ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = QP_TIMEOUT;
	attr.retry_cnt = RETRY_CNT;
	attr.rnr_retry = 7;
	attr.sq_psn = 1;
	attr.max_rd_atomic = 1;
	return rc ? rc
		  : ibv_modify_qp(qp, &attr,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int to_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static void open_pairs(void)
{
	for (int i = 0; i < PAIRS; i++) {
		int rc;

		pairs[i].from = make_qp(&a);
		pairs[i].to = make_qp(&b);
		rc = connect_qp(pairs[i].from, pairs[i].to, &b.gid);
		if (rc == 0)
			rc = connect_qp(pairs[i].to, pairs[i].from, &a.gid);
		if (rc != 0)
			die("connecting a queue pair", rc);
	}
}

/* ---- writes --------------------------------------------------------------------------------- */

/* The next write of a pair, each to a place of its own. */
static void post(int i)
{
	uint64_t place = ((uint64_t)i * WRITES + pairs[i].posted % WRITES) * WRITE_BYTES;
	struct ibv_sge sge = {(uintptr_t)a.memory + place, WRITE_BYTES, a.mr->lkey};
	struct ibv_send_wr wr = {
	    .wr_id = (uint64_t)i,
	    .sg_list = &sge,
	    .num_sge = 1,
	    .opcode = IBV_WR_RDMA_WRITE,
	    .send_flags = IBV_SEND_SIGNALED,
	    .wr.rdma = {.remote_addr = (uintptr_t)b.memory + place, .rkey = b.mr->rkey},
	};
	struct ibv_send_wr *bad;

	if (ibv_post_send(pairs[i].from, &wr, &bad) == 0)
		pairs[i].posted++;
}

static void take_completions(void)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(a.cq, 1, &wc) > 0) {
		struct pair *pair = &pairs[wc.wr_id % PAIRS];

		pair->done++;
		pair->errors += wc.status != IBV_WC_SUCCESS;
	}
}

static bool all_done(void)
{
	for (int i = 0; i < PAIRS; i++)
		if (pairs[i].done < pairs[i].posted)
			return false;
	return true;
}

/* Until all work requests have completed; false: not in time. */
static bool wait_for_all(unsigned limit_ms)
{
	uint64_t since = now_ns();

	do {
		take_completions();
		if (all_done())
			return true;
		sleep_us(500);
	} while (ms_since(since) < limit_ms);
	return false;
}

/* ---- late ----------------------------------------------------------------------------------- */

static unsigned changed_places(int i)
{
	unsigned n = 0;

	for (unsigned k = 0; k < WRITES; k++) {
		const uint8_t *place = b.memory + ((size_t)i * WRITES + k) * WRITE_BYTES;
		bool changed = false;

		for (size_t at = 0; at < WRITE_BYTES; at++)
			changed |= place[at] != CANARY;
		n += changed;
	}
	return n;
}

/* The first half of the pairs is left alone, the other fenced. Returns an exit status. */
static int watch_late(void)
{
	unsigned open = 0, fenced = 0, gave_up = 0;
	uint64_t since;
	sigset_t told;
	int number;

	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	sigprocmask(SIG_BLOCK, &told, NULL);
	open_pairs();
	puts("{\"kind\": \"ready\"}");
	sigwait(&told, &number); /* the link delays from now on */
	for (unsigned k = 0; k < WRITES; k++)
		for (int i = 0; i < PAIRS; i++)
			post(i);
	wait_for_all(LATE_MS);
	for (int i = 0; i < PAIRS; i++)
		gave_up += pairs[i].errors == WRITES;
	for (int i = PAIRS / 2; i < PAIRS; i++)
		to_error(pairs[i].to);
	/* What the senders gave up on is nobody's any more: the memory has another use. */
	memset(b.memory, CANARY, PAIRS * BYTES_OF_PAIR);
	since = now_ns();
	while (ms_since(since) < LATE_MS)
		sleep_us(10000);
	for (int i = 0; i < PAIRS; i++)
		*(i < PAIRS / 2 ? &open : &fenced) += changed_places(i);
	printf("{\"kind\": \"late\", \"pairs\": %d, \"gave_up\": %u, \"landed_unfenced\": %u, "
	       "\"landed_fenced\": %u}\n",
	       PAIRS, gave_up, open, fenced);
	return 0;
}

/* ---- packets -------------------------------------------------------------------------------- */

/* RC: write first, middle, last, only; with immediates. */
static bool is_write(uint8_t opcode)
{
	return opcode >= 6 && opcode <= 11;
}

/* Kept until the end: what is printed while packets come would delay them, and us. */
static struct packet {
	uint64_t at_ns;
	uint32_t qpn, bytes;
} packets[MAX_PACKETS];
static unsigned n_packets;
static volatile sig_atomic_t enough;

static void on_signal(int number)
{
	(void)number;
	enough = 1;
}

static void remember(const uint8_t *packet, size_t len, uint64_t at_ns)
{
	size_t ip = (size_t)(packet[0] & 15) * 4;
	const uint8_t *udp = packet + ip, *bth = udp + 8;

	if (len < ip + 8 + BTH_BYTES || packet[0] >> 4 != 4 || packet[9] != IPPROTO_UDP ||
	    (udp[2] << 8 | udp[3]) != ROCE_PORT || !is_write(bth[0]) || n_packets == MAX_PACKETS)
		return;
	packets[n_packets++] = (struct packet){
	    .at_ns = at_ns,
	    .qpn = (uint32_t)bth[5] << 16 | (uint32_t)bth[6] << 8 | bth[7],
	    .bytes = (uint32_t)(len - ip - 8 - BTH_BYTES),
	};
}

/* When the kernel got a packet, by the clock that all others use; it says so by the other one. */
static uint64_t arrival_ns(struct msghdr *message, int64_t clocks_differ_ns)
{
	struct timespec at = {0};

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS)
			memcpy(&at, CMSG_DATA(c), sizeof(at));
	return (uint64_t)((int64_t)at.tv_sec * 1000000000 + at.tv_nsec - clocks_differ_ns);
}

static int64_t clocks_differ(void)
{
	struct timespec real;

	clock_gettime(CLOCK_REALTIME, &real);
	return (int64_t)real.tv_sec * 1000000000 + real.tv_nsec - (int64_t)now_ns();
}

static int open_packets(const char *interface)
{
	struct sockaddr_ll where = {.sll_family = AF_PACKET,
				    .sll_protocol = htons(ETH_P_IP),
				    .sll_ifindex = (int)if_nametoindex(interface)};
	int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP)), room = 32 << 20, on = 1;

	if (!where.sll_ifindex ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) != 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)) != 0 ||
	    bind(fd, (struct sockaddr *)&where, sizeof(where)) != 0)
		die(interface, errno);
	return fd;
}

static int watch_packets(const char *interface)
{
	const struct sigaction action = {.sa_handler = on_signal}; /* ends the wait below */
	int64_t clocks_differ_ns = clocks_differ();
	int fd = open_packets(interface);

	sigaction(SIGTERM, &action, NULL);
	puts("{\"kind\": \"ready\"}");
	while (!enough) {
		uint8_t packet[128], control[128];
		struct sockaddr_ll from;
		struct iovec into = {packet, sizeof(packet)};
		struct msghdr message = {.msg_name = &from,
					 .msg_namelen = sizeof(from),
					 .msg_iov = &into,
					 .msg_iovlen = 1,
					 .msg_control = control,
					 .msg_controllen = sizeof(control)};
		ssize_t n = recvmsg(fd, &message,
				    MSG_TRUNC); /* the whole length, of which we take the head */

		if (n < 0 && errno != EINTR)
			die(interface, errno);
		if (n > 20 && from.sll_pkttype != PACKET_OUTGOING)
			remember(packet, (size_t)n, arrival_ns(&message, clocks_differ_ns));
	}
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	for (unsigned i = 0; i < n_packets; i++)
		printf("{\"at_ns\": %llu, \"qpn\": %u, \"bytes\": %u}\n",
		       (unsigned long long)packets[i].at_ns, packets[i].qpn, packets[i].bytes);
	printf("{\"kind\": \"packets\", \"seen\": %u, \"room\": %d}\n", n_packets, MAX_PACKETS);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "packets"))
		return watch_packets(argv[2]);
	if (argc != 4 || strcmp(argv[1], "late") != 0) {
		fprintf(stderr, "lab-witness: late A B | packets INTERFACE\n");
		return 2;
	}
	open_end(&a, argv[2]);
	open_end(&b, argv[3]);
	return watch_late();
}
