/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the RoCE wire costs over UDP on the loopback interface, as ratios to bare sockets that send
 * and receive datagrams of the same sizes, in turn with it and between the same two threads. Each
 * side's best counts: whatever else the machine does makes both slower, and where it leaves no
 * moment to one of them it is tried for longer.
 */
#include "../../unit/cmocka_all.h"

#include "ends.h"

#include "simverbs/roce/packet.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS		25
#define MAX_ROUNDS	150 /* on a machine that others use */
#define PINGS		400u
#define IN_A_ROW	20u /* pings that are measured as one */
#define WRITES		96u
#define WRITES_IN_A_ROW 24u
#define WRITE_BYTES	65536u
#define WRITE_DEPTH	8u
#define PACKET_BYTES	4096u
#define SEND_BYTES	(12 + 8 + SV_ICRC_BYTES) /* a SEND of 8 bytes */
#define ACK_BYTES	(12 + 4 + SV_ICRC_BYTES)
#define DATA_BYTES	(12 + PACKET_BYTES + SV_ICRC_BYTES)
/* As the wire has it: packets in flight, and how many an acknowledgement is for. */
#define WINDOW		    32u
#define PER_ACK		    8u
#define BATCH		    16u
#define MAX_LATENCY_RATIO   1.6
#define MIN_BANDWIDTH_RATIO 0.5

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double shorter(double a, double b)
{
	return a < b ? a : b;
}

static double higher(double a, double b)
{
	return a > b ? a : b;
}

/* ---------------------------------------------------------------- bare sockets */

static int bare_socket(unsigned own, unsigned peer)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(SV_ROCE_PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), bytes = 16 << 20;

	assert_true(fd >= 0);
	inet_pton(AF_INET, own_address[own], &at.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	inet_pton(AF_INET, own_address[peer], &at.sin_addr);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	return fd;
}

/* Polls, and gives way as the wire does where there are few processors. */
static ssize_t bare_receive(int fd, void *buf, size_t size)
{
	ssize_t n;

	for (unsigned polls = 1; (n = recv(fd, buf, size, MSG_DONTWAIT)) < 0; polls++)
		if (polls % 64 == 0)
			sched_yield();
	return n;
}

/* Until a ping has come; what comes else are acknowledgements. Answers with one. */
static void bare_take_ping(int fd)
{
	char buf[64] = "";

	while (bare_receive(fd, buf, sizeof(buf)) != SEND_BYTES)
		;
	assert_int_equal(send(fd, buf, ACK_BYTES, 0), ACK_BYTES);
}

static void *bare_pong(void *arg)
{
	int fd = *(int *)arg;
	char buf[64] = "";

	for (unsigned i = 0; i < PINGS; i++) {
		bare_take_ping(fd);
		send(fd, buf, SEND_BYTES, 0);
	}
	return NULL;
}

static double bare_latency(void)
{
	int a = bare_socket(0, 1), b = bare_socket(1, 0);
	char buf[64] = "";
	pthread_t other;
	double best = 1e9;

	pthread_create(&other, NULL, bare_pong, &b);
	for (unsigned i = 0; i < PINGS; i += IN_A_ROW) {
		double began = now_s();

		for (unsigned j = 0; j < IN_A_ROW; j++) {
			send(a, buf, SEND_BYTES, 0);
			bare_take_ping(a);
		}
		best = shorter(best, now_s() - began);
	}
	pthread_join(other, NULL);
	close(a);
	close(b);
	return best / IN_A_ROW / 2;
}

#define DATAGRAMS	   (WRITES * (WRITE_BYTES / PACKET_BYTES))
#define DATAGRAMS_IN_A_ROW (WRITES_IN_A_ROW * (WRITE_BYTES / PACKET_BYTES))

static void *bare_sink(void *arg)
{
	static char bytes[BATCH][DATA_BYTES];
	struct mmsghdr msgs[BATCH] = {0};
	struct iovec iov[BATCH];
	int fd = *(int *)arg;
	char ack[ACK_BYTES] = "";

	for (unsigned i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){bytes[i], DATA_BYTES};
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	for (unsigned got = 0, polls = 1; got < DATAGRAMS; polls++) {
		int n = recvmmsg(fd, msgs, BATCH, MSG_DONTWAIT, NULL);

		for (int i = 0; i < n; i++)
			if (++got % PER_ACK == 0)
				send(fd, ack, ACK_BYTES, 0);
		if (n < 0 && polls % 64 == 0)
			sched_yield();
	}
	return NULL;
}

static double bare_bandwidth(void)
{
	static char data[DATA_BYTES];
	int a = bare_socket(0, 1), b = bare_socket(1, 0);
	struct iovec iov = {data, DATA_BYTES};
	struct mmsghdr msgs[BATCH] = {0};
	unsigned sent = 0, acked = 0;
	pthread_t other;
	char ack[64];
	double best = 1e9, began;

	for (unsigned i = 0; i < BATCH; i++)
		msgs[i].msg_hdr = (struct msghdr){.msg_iov = &iov, .msg_iovlen = 1};
	pthread_create(&other, NULL, bare_sink, &b);
	began = now_s();
	while (acked < DATAGRAMS) {
		unsigned room = WINDOW - (sent - acked), left = DATAGRAMS - sent;
		unsigned n = room < left ? room : left;

		if (n)
			sent += (unsigned)sendmmsg(a, msgs, n < BATCH ? n : BATCH, 0);
		if (sent - acked == WINDOW || sent == DATAGRAMS)
			bare_receive(a, ack, sizeof(ack));
		else if (recv(a, ack, sizeof(ack), MSG_DONTWAIT) < 0)
			continue;
		acked += PER_ACK;
		if (acked % DATAGRAMS_IN_A_ROW == 0) {
			best = shorter(best, now_s() - began);
			began = now_s();
		}
	}
	pthread_join(other, NULL);
	close(a);
	close(b);
	return (double)WRITES_IN_A_ROW * WRITE_BYTES / best;
}

/* ---------------------------------------------------------------- the wire */

struct side {
	struct end *own, *peer;
};

static void take_completion(struct end *e, enum ibv_wc_opcode what)
{
	while (expect_wc(e, IBV_WC_SUCCESS).opcode != what)
		;
}

static void *wire_pong(void *arg)
{
	struct side *s = arg;

	for (unsigned i = 0; i < PINGS; i++) {
		take_completion(s->own, IBV_WC_RECV);
		post_recv(s->own, 8);
		post_send(s->own, s->peer, IBV_WR_SEND, 8);
	}
	return NULL;
}

static double wire_latency(void)
{
	struct end a, b;
	struct side side = {&b, &a};
	pthread_t other;
	double best = 1e9;

	open_pair(&a, &b, IBV_QPT_RC, IBV_MTU_4096);
	for (unsigned i = 0; i < 16; i++) {
		post_recv(&a, 8);
		post_recv(&b, 8);
	}
	pthread_create(&other, NULL, wire_pong, &side);
	for (unsigned i = 0; i < PINGS; i += IN_A_ROW) {
		double began = now_s();

		for (unsigned j = 0; j < IN_A_ROW; j++) {
			post_send(&a, &b, IBV_WR_SEND, 8);
			take_completion(&a, IBV_WC_RECV);
			post_recv(&a, 8);
		}
		best = shorter(best, now_s() - began);
	}
	pthread_join(other, NULL);
	close_pair(&a, &b);
	return best / IN_A_ROW / 2;
}

static atomic_bool over;

/* Whoever is written to polls, too, as one that waits for a message does. */
static void *wire_sink(void *arg)
{
	struct end *b = arg;
	struct ibv_wc wc;

	while (!atomic_load_explicit(&over, memory_order_relaxed))
		ibv_poll_cq(b->cq, 1, &wc);
	return NULL;
}

static double wire_bandwidth(void)
{
	struct end a, b;
	pthread_t other;
	double best = 1e9, began;

	open_pair(&a, &b, IBV_QPT_RC, IBV_MTU_4096);
	atomic_store(&over, false);
	pthread_create(&other, NULL, wire_sink, &b);
	began = now_s();
	for (unsigned i = 0; i < WRITES + WRITE_DEPTH; i++) {
		if (i >= WRITE_DEPTH)
			expect_wc(&a, IBV_WC_SUCCESS);
		if (i < WRITES)
			post_send(&a, &b, IBV_WR_RDMA_WRITE, WRITE_BYTES);
		if (i >= WRITE_DEPTH && (i - WRITE_DEPTH + 1) % WRITES_IN_A_ROW == 0) {
			best = shorter(best, now_s() - began);
			began = now_s();
		}
	}
	atomic_store(&over, true);
	pthread_join(other, NULL);
	close_pair(&a, &b);
	return (double)WRITES_IN_A_ROW * WRITE_BYTES / best;
}

/* ---------------------------------------------------------------- ratios */

static void half_a_round_trip_of_8_bytes(void **state)
{
	double bare = 1e9, wire = 1e9;

	(void)state;
	for (int i = 0; i < ROUNDS || (i < MAX_ROUNDS && wire > MAX_LATENCY_RATIO * bare); i++) {
		bare = shorter(bare, bare_latency());
		wire = shorter(wire, wire_latency());
	}
	print_message("  half a round trip: sockets %.2f us, the wire %.2f us: ratio %.2f\n",
		      bare * 1e6, wire * 1e6, wire / bare);
	assert_true(wire <= MAX_LATENCY_RATIO * bare);
}

static void writes_of_64_kib(void **state)
{
	double bare = 0, wire = 0;

	(void)state;
	for (int i = 0; i < ROUNDS || (i < MAX_ROUNDS && wire < MIN_BANDWIDTH_RATIO * bare); i++) {
		bare = higher(bare, bare_bandwidth());
		wire = higher(wire, wire_bandwidth());
	}
	print_message("  64 KiB: sockets %.0f MB/s, the wire %.0f MB/s: ratio %.2f\n", bare / 1e6,
		      wire / 1e6, wire / bare);
	assert_true(wire >= MIN_BANDWIDTH_RATIO * bare);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(half_a_round_trip_of_8_bytes),
	    cmocka_unit_test(writes_of_64_kib),
	};

	name_devices(2);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
