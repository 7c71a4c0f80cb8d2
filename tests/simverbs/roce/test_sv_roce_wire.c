/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RoCE wire on the loopback interface, over UDP or, with SIMVERBS_ROCE_MODE=packet, by packet
 * sockets: two devices of one process, each with an
 * address of its own, and a stranger at a third one who may send anything. In real time; nothing
 * here depends on how long it takes.
 */
#include "../../unit/cmocka_all.h"

#include "ends.h"

#include "simverbs/roce/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MTU IBV_MTU_1024

static char stats_path[] = "/tmp/sv-roce-XXXXXX";

static void fill(uint8_t *at, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

/* What one of the devices counted, of all that have been closed since the last call. */
static long counted(const char *name)
{
	char line[4096], wanted[64];
	FILE *file = fopen(stats_path, "r");
	long sum = 0;

	assert_non_null(file);
	snprintf(wanted, sizeof(wanted), "\"%s\":", name);
	while (fgets(line, sizeof(line), file)) {
		const char *at = strstr(line, wanted);

		assert_non_null(at);
		sum += strtol(at + strlen(wanted), NULL, 10);
	}
	fclose(file);
	return sum;
}

/* Before each test. */
static int forget_counts(void **state)
{
	(void)state;
	return truncate(stats_path, 0);
}

/* ---------------------------------------------------------------- messages */

static void messages_of_every_kind_and_length_arrive_whole(void **state)
{
	static const uint32_t lengths[] = {0, 1, 3, 1023, 1024, 1025, 4096, 100001, 262144};
	static const enum ibv_wr_opcode ops[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
						 IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
						 IBV_WR_RDMA_READ};
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		for (uint32_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
			bool received = ops[o] != IBV_WR_RDMA_WRITE && ops[o] != IBV_WR_RDMA_READ;
			bool imm =
			    ops[o] == IBV_WR_SEND_WITH_IMM || ops[o] == IBV_WR_RDMA_WRITE_WITH_IMM;
			uint32_t length = lengths[i];

			fill(a.buf, length + 1, i + o);
			fill(b.buf, length + 1, i + o + 100);
			if (received)
				post_recv(&b, length);
			post_send(&a, &b, ops[o], length);
			expect_wc(&a, IBV_WC_SUCCESS);
			if (received) {
				struct ibv_wc wc = expect_wc(&b, IBV_WC_SUCCESS);

				assert_int_equal(wc.byte_len, length);
				assert_int_equal(wc.wc_flags & IBV_WC_WITH_IMM ? 1 : 0, imm);
				assert_true(!imm || wc.imm_data == htonl(77));
			}
			assert_memory_equal(a.buf, b.buf, length);
			assert_int_not_equal(a.buf[length], b.buf[length]);
		}
	}
	close_pair(&a, &b);
	assert_int_equal(counted("rx_bad_icrc") + counted("rx_malformed"), 0);
	assert_true(counted("rx_datagrams") > 1000);
}

/* A word of a buffer that a device's thread may be at: the network orders the two, which no lock
 * shows. */
static uint64_t get_word(const struct end *e)
{
	return __atomic_load_n((uint64_t *)(void *)e->buf, __ATOMIC_SEQ_CST);
}

static void set_word(struct end *e, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)e->buf, value, __ATOMIC_SEQ_CST);
}

static void atomics_are_done_once_and_answered(void **state)
{
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	set_word(&b, 7);
	post_send(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	expect_wc(&a, IBV_WC_SUCCESS);
	assert_int_equal(get_word(&a), 7);
	assert_int_equal(get_word(&b), 12);
	set_word(&b, 5);
	post_send(&a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 8);
	expect_wc(&a, IBV_WC_SUCCESS);
	assert_int_equal(get_word(&a), 5);
	assert_int_equal(get_word(&b), 9);
	close_pair(&a, &b);
}

static void datagrams_arrive_with_the_addresses_of_both(void **state)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad;
	struct ibv_ah_attr attr;
	struct ibv_grh grh;
	struct ibv_wc wc;
	struct end a, b;
	struct ibv_ah *ah;

	(void)state;
	open_pair(&a, &b, IBV_QPT_UD, MTU);
	attr = address_of(&b);
	ah = ibv_create_ah(a.pd, &attr);
	assert_non_null(ah);
	fill(a.buf, 900, 3);
	post_recv(&b, 1000);
	sge = (struct ibv_sge){(uintptr_t)a.buf, 900, a.mr->lkey};
	wr = (struct ibv_send_wr){.sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_IMM,
				  .imm_data = htonl(5),
				  .wr.ud = {ah, b.qp->qp_num, QKEY}};
	assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
	expect_wc(&a, IBV_WC_SUCCESS);
	wc = expect_wc(&b, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 940);
	assert_int_equal(wc.src_qp, a.qp->qp_num);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	memcpy(&grh, b.buf, sizeof(grh));
	assert_memory_equal(&grh.sgid, &a.gid, sizeof(a.gid));
	assert_memory_equal(&grh.dgid, &b.gid, sizeof(b.gid));
	assert_memory_equal(b.buf + 40, a.buf, 900);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	close_pair(&a, &b);
}

/* ---------------------------------------------------------------- what goes wrong */

/* While it is tight a socket has no room for this thread until a device's engine has sent
 * something, and what it takes gets nowhere. */
static atomic_bool is_tight, engine_sent;
static atomic_uint refused;
static pthread_t application;

__attribute__((visibility("default"))) int sendmmsg(int fd, struct mmsghdr *messages,
						    unsigned int num, int flags)
{
	if (!atomic_load(&is_tight))
		return (int)syscall(SYS_sendmmsg, fd, messages, num, flags);
	if (pthread_equal(pthread_self(), application) && !atomic_load(&engine_sent)) {
		atomic_fetch_add(&refused, 1);
		errno = EAGAIN;
		return -1;
	}
	atomic_store(&engine_sent, true);
	return (int)num;
}

static void spin_us(unsigned us)
{
	struct timespec now, begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 <
	       (long)us);
}

/* More than go out at once, of which nothing comes back: who polls is all that can send the rest.
 */
static void what_found_no_room_goes_out_after_the_engine_made_some(void **state)
{
	enum { DATAGRAMS = 100 };
	struct ibv_send_wr wrs[DATAGRAMS], *bad;
	unsigned done = 0, in_vain = 0;
	struct ibv_sge sge;
	struct ibv_ah_attr attr;
	struct end a, b;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	(void)state;
	open_pair(&a, &b, IBV_QPT_UD, MTU);
	attr = address_of(&b);
	ah = ibv_create_ah(a.pd, &attr);
	assert_non_null(ah);
	sge = (struct ibv_sge){(uintptr_t)a.buf, 100, a.mr->lkey};
	for (unsigned i = 0; i < DATAGRAMS; i++)
		wrs[i] = (struct ibv_send_wr){.next = i + 1 < DATAGRAMS ? &wrs[i + 1] : NULL,
					      .sg_list = &sge,
					      .num_sge = 1,
					      .opcode = IBV_WR_SEND,
					      .wr.ud = {ah, b.qp->qp_num, QKEY}};
	application = pthread_self();
	atomic_store(&is_tight, true);
	assert_int_equal(ibv_poll_cq(a.cq, 1, &wc), 0); /* now the engine leaves it to us */
	assert_int_equal(ibv_post_send(a.qp, wrs, &bad), 0);
	/* Until it is done with that, and no longer: who does not poll for 0.2 ms has it all done
	 * for him. */
	for (time_t end = time(NULL) + 20; !atomic_load(&engine_sent) && time(NULL) < end;)
		;
	spin_us(50);
	while (done < DATAGRAMS && in_vain < 1000)
		if (ibv_poll_cq(a.cq, 1, &wc))
			done += wc.status == IBV_WC_SUCCESS;
		else
			in_vain++;
	assert_int_equal(done, DATAGRAMS);
	atomic_store(&is_tight, false);
	assert_true(atomic_load(&refused) > 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	close_pair(&a, &b);
}

static void a_receiver_that_is_not_ready_is_waited_for(void **state)
{
	struct end a, b;
	struct ibv_wc wc;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	fill(a.buf, 5000, 9);
	post_send(&a, &b, IBV_WR_SEND, 5000);
	/* Who polls takes the packet, and says no. */
	for (int i = 0; i < 100; i++)
		assert_int_equal(ibv_poll_cq(b.cq, 1, &wc), 0);
	post_recv(&b, 5000);
	expect_wc(&a, IBV_WC_SUCCESS);
	expect_wc(&b, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, 5000);
	close_pair(&a, &b);
	assert_true(counted("rnr_waits") > 0 && counted("naks_rnr") > 0);
}

static void a_key_that_is_wrong_is_refused(void **state)
{
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	b.mr->rkey ^= 0xff;
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3000);
	expect_wc(&a, IBV_WC_REM_ACCESS_ERR);
	b.mr->rkey ^= 0xff;
	close_pair(&a, &b);
	assert_int_equal(counted("naks_other"), 1);
}

static void a_peer_that_is_gone_is_given_up(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	assert_int_equal(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3000);
	expect_wc(&a, IBV_WC_RETRY_EXC_ERR);
	close_pair(&a, &b);
	assert_int_equal(counted("timeouts"), 8);
}

/* SIMVERBS_FAULTS of main() makes the third device lose, double and reorder what it sends. */
static void what_is_lost_doubled_or_late_is_made_good(void **state)
{
	struct end a, b;

	(void)state;
	open_end(&a, 2, IBV_QPT_RC);
	open_end(&b, 1, IBV_QPT_RC);
	connect_ends(&a, &b, MTU);
	for (uint32_t i = 0; i < 60; i++) {
		uint32_t length = 20000 + i * 331;

		fill(a.buf, length, i);
		if (i % 3 == 2) {
			post_send(&a, &b, IBV_WR_RDMA_WRITE, length);
		} else if (i % 3 == 1) {
			fill(b.buf, length, i + 50);
			post_send(&a, &b, IBV_WR_RDMA_READ, length);
		} else {
			post_recv(&b, length);
			post_send(&a, &b, IBV_WR_SEND, length);
			expect_wc(&b, IBV_WC_SUCCESS);
		}
		expect_wc(&a, IBV_WC_SUCCESS);
		assert_memory_equal(a.buf, b.buf, length);
	}
	close_pair(&a, &b);
	assert_true(counted("lost_fault") > 5);
	assert_true(counted("retransmits") > 5);
	assert_true(counted("duplicates") > 5);
	assert_true(counted("naks_seq") > 0);
}

/* ---------------------------------------------------------------- strangers */

static int stranger_socket(const char *address, uint16_t port)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), whole = IP_PMTUDISC_DO;

	assert_true(fd >= 0);
	/* Then the identification is 0, which the ICRC covers. */
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof(whole)), 0);
	assert_int_equal(inet_pton(AF_INET, address, &own.sin_addr), 1);
	assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
	return fd;
}

static void map_v4(union ibv_gid *gid, const char *address)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, address, gid->raw + 12), 1);
}

static void send_bytes(int fd, const char *to, const void *bytes, size_t length)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(SV_ROCE_PORT)};

	assert_int_equal(inet_pton(AF_INET, to, &addr.sin_addr), 1);
	assert_int_equal(sendto(fd, bytes, length, 0, (struct sockaddr *)&addr, sizeof(addr)),
			 length);
}

/* With the right check sum for a packet from one address to another. */
static size_t finish(uint8_t *bytes, size_t length, const char *from, const char *to)
{
	struct sv_roce_flow flow = {.sport = SV_ROCE_PORT};
	uint32_t icrc;

	map_v4(&flow.src, from);
	map_v4(&flow.dst, to);
	icrc = sv_icrc(&flow, bytes, length);
	for (int i = 0; i < 4; i++)
		bytes[length + (size_t)i] = (uint8_t)(icrc >> 8 * i);
	return length + SV_ICRC_BYTES;
}

static void strangers_are_counted_and_do_no_harm(void **state)
{
	const char *me = own_address[3], *victim = own_address[1];
	uint8_t bytes[SV_ROCE_MAX_BYTES + 100] = {0};
	struct sv_packet pkt = {.op = SV_OP_WRITE,
				.flags = SV_PKT_FIRST | SV_PKT_LAST | SV_PKT_ACKREQ,
				.pkey = SV_DEFAULT_PKEY};
	int fd = stranger_socket(me, SV_ROCE_PORT);
	struct end a, b;
	size_t length;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	pkt.dst_qpn = b.qp->qp_num;
	pkt.psn = a.psn;
	pkt.reth.addr = (uintptr_t)b.buf;
	pkt.reth.rkey = b.mr->rkey;
	pkt.reth.length = 8;
	pkt.payload_len = 8;
	length = sv_roce_encode(&pkt, bytes);
	memset(bytes + length, 0xee, 8);
	length = finish(bytes, length + 8, me, victim);

	send_bytes(fd, victim, bytes, length);	      /* all is right but who sends it */
	send_bytes(fd, victim, bytes, 0);	      /* malformed: nothing at all, */
	send_bytes(fd, victim, bytes, 11);	      /* less than a BTH, */
	send_bytes(fd, victim, bytes, 24);	      /* half of its RETH, */
	send_bytes(fd, victim, bytes, sizeof(bytes)); /* and too much */
	bytes[length - 6] ^= 1;
	send_bytes(fd, victim, bytes, length); /* a bit that has changed on the way */
	bytes[length - 6] ^= 1;
	bytes[0] = 0x2a; /* unreliable connection */
	send_bytes(fd, victim, bytes, finish(bytes, length - 4, me, victim));
	bytes[0] = 0x81;
	bytes[1] = 0;
	send_bytes(fd, victim, bytes, finish(bytes, 28, me, victim));

	/* They came first. */
	fill(a.buf, 3000, 1);
	post_recv(&b, 3000);
	post_send(&a, &b, IBV_WR_SEND, 3000);
	expect_wc(&a, IBV_WC_SUCCESS);
	expect_wc(&b, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, 3000);
	close(fd);
	close_pair(&a, &b);
	assert_int_equal(counted("rx_malformed"), 4);
	assert_int_equal(counted("rx_bad_icrc"), 1);
	assert_int_equal(counted("rx_unknown_opcode"), 1);
	assert_int_equal(counted("rx_cnp"), 1);
	assert_int_equal(counted("rx_bad_state"), 1);
}

/* A packet socket hears what is for us whoever has the port. */
static void a_port_that_is_taken_is_no_matter(void **state)
{
	int taken = stranger_socket(own_address[0], SV_ROCE_PORT);
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC, MTU);
	fill(a.buf, 3000, 1);
	post_send(&a, &b, IBV_WR_RDMA_WRITE, 3000);
	expect_wc(&a, IBV_WC_SUCCESS);
	assert_memory_equal(a.buf, b.buf, 3000);
	close_pair(&a, &b);
	close(taken);
}

static void a_port_that_is_taken_is_said(void **state)
{
	char said[512] = "", path[] = "/tmp/sv-roce-said-XXXXXX";
	int taken = stranger_socket(own_address[0], SV_ROCE_PORT), before = dup(2);
	int file = mkstemp(path);
	struct ibv_context *ctx;
	int err;

	(void)state;
	dup2(file, 2);
	errno = 0;
	ctx = open_device(0);
	err = errno;
	dup2(before, 2);
	assert_null(ctx);
	assert_int_equal(err, EADDRINUSE);
	assert_true(pread(file, said, sizeof(said) - 1, 0) > 0);
	assert_non_null(strstr(said, "UDP port 4791 is taken"));
	assert_non_null(strstr(said, "rmmod rdma_rxe"));
	close(before);
	close(file);
	unlink(path);
	close(taken);
	ctx = open_device(0);
	assert_non_null(ctx);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static bool by_packets(void)
{
	const char *mode = getenv("SIMVERBS_ROCE_MODE");

	return mode && !strcmp(mode, "packet");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(test) cmocka_unit_test_setup(test, forget_counts)
	    TEST(messages_of_every_kind_and_length_arrive_whole),
	    TEST(atomics_are_done_once_and_answered),
	    TEST(datagrams_arrive_with_the_addresses_of_both),
	    TEST(what_found_no_room_goes_out_after_the_engine_made_some),
	    TEST(a_receiver_that_is_not_ready_is_waited_for),
	    TEST(a_key_that_is_wrong_is_refused),
	    TEST(a_peer_that_is_gone_is_given_up),
	    TEST(what_is_lost_doubled_or_late_is_made_good),
	    TEST(strangers_are_counted_and_do_no_harm),
	    by_packets() ? (struct CMUnitTest)TEST(a_port_that_is_taken_is_no_matter)
			 : (struct CMUnitTest)TEST(a_port_that_is_taken_is_said),
	};
	int fd, failed;

	fd = by_packets() ? socket(AF_PACKET, SOCK_RAW, 0) : 0;
	if (fd < 0) {
		printf("SKIP: no packet socket may be had here: %s\n", strerror(errno));
		return 77;
	}
	if (by_packets())
		close(fd);
	fd = mkstemp(stats_path);
	if (fd < 0)
		return 1;
	close(fd);
	name_devices(3);
	setenv("SIMVERBS_ROCE_STATS", stats_path, 1);
	setenv("SIMVERBS_FAULTS",
	       "drop rail=2 prob=0.04 seed=1\ndup rail=2 prob=0.04 seed=2\nreorder=2 rail=2 "
	       "prob=0.04 seed=3",
	       1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(stats_path);
	return failed;
}
