/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RoCE wire over UDP on the loopback interface: two devices of one process, each with an
 * address of its own, and a stranger at a third one who may send anything. In real time; nothing
 * here depends on how long it takes.
 */
#include "../../unit/cmocka_all.h"

#include "simverbs/roce/packet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BUF_BYTES 300000u
#define LIMIT_S	  20
#define QKEY	  0x1111u

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	union ibv_gid gid;
	uint32_t psn;
};

/* Addresses that no other test on this machine has. */
static char own_address[4][INET_ADDRSTRLEN];
static char stats_path[] = "/tmp/sv-roce-XXXXXX";

/* ---------------------------------------------------------------- two ends */

static struct ibv_context *open_device(int index)
{
	int num;
	struct ibv_device **list = ibv_get_device_list(&num);
	struct ibv_context *ctx;

	assert_non_null(list);
	assert_int_equal(num, 3);
	ctx = ibv_open_device(list[index]);
	ibv_free_device_list(list);
	return ctx;
}

static void open_end(struct end *e, int device, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
	    .cap = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 2, .max_recv_sge = 2},
	    .qp_type = type,
	    .sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = QKEY,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};

	memset(e, 0, sizeof(*e));
	e->ctx = open_device(device);
	assert_non_null(e->ctx);
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 512, NULL, NULL, 0);
	e->buf = calloc(1, BUF_BYTES);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(e->mr);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->qp);
	assert_int_equal(ibv_query_gid(e->ctx, 1, 1, &e->gid), 0);
	e->psn = 0xfffff0; /* wraps soon */
	assert_int_equal(
	    ibv_modify_qp(e->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	    0);
}

static struct ibv_ah_attr address_of(const struct end *e)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .port_num = 1,
				    .grh = {.dgid = e->gid, .sgid_index = 1, .hop_limit = 64}};
}

static void connect_end(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer->qp->qp_num,
				   .rq_psn = peer->psn,
				   .sq_psn = e->psn,
				   .max_dest_rd_atomic = 8,
				   .max_rd_atomic = 8,
				   .min_rnr_timer = 1,
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .ah_attr = address_of(peer)};

	assert_int_equal(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void ready_datagrams(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .sq_psn = e->psn};

	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void open_pair(struct end *a, struct end *b, enum ibv_qp_type type)
{
	open_end(a, 0, type);
	open_end(b, 1, type);
	if (type == IBV_QPT_UD) {
		ready_datagrams(a);
		ready_datagrams(b);
	} else {
		connect_end(a, b);
		connect_end(b, a);
	}
}

static void close_end(struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

static void close_pair(struct end *a, struct end *b)
{
	close_end(a);
	close_end(b);
}

/* ---------------------------------------------------------------- work */

static void fill(uint8_t *at, size_t length, uint32_t seed)
{
	for (size_t i = 0; i < length; i++)
		at[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static void post_send(struct end *e, const struct end *peer, enum ibv_wr_opcode op, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .imm_data = htonl(77)},
			   *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->buf;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 9;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
}

static void post_recv(struct end *e, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

/* Polls one end; the engine of the other one does the rest. */
static struct ibv_wc expect_wc(struct end *e, enum ibv_wc_status status)
{
	time_t end = time(NULL) + LIMIT_S;
	struct ibv_wc wc = {0};
	int n;

	do
		n = ibv_poll_cq(e->cq, 1, &wc);
	while (n == 0 && time(NULL) < end);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, status);
	return wc;
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
	open_pair(&a, &b, IBV_QPT_RC);
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

static void atomics_are_done_once_and_answered(void **state)
{
	uint64_t value = 7, found;
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC);
	memcpy(b.buf, &value, sizeof(value));
	post_send(&a, &b, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
	expect_wc(&a, IBV_WC_SUCCESS);
	memcpy(&found, a.buf, sizeof(found));
	memcpy(&value, b.buf, sizeof(value));
	assert_int_equal(found, 7);
	assert_int_equal(value, 12);
	value = 5;
	memcpy(b.buf, &value, sizeof(value));
	post_send(&a, &b, IBV_WR_ATOMIC_CMP_AND_SWP, 8);
	expect_wc(&a, IBV_WC_SUCCESS);
	memcpy(&found, a.buf, sizeof(found));
	memcpy(&value, b.buf, sizeof(value));
	assert_int_equal(found, 5);
	assert_int_equal(value, 9);
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
	open_pair(&a, &b, IBV_QPT_UD);
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

static void a_receiver_that_is_not_ready_is_waited_for(void **state)
{
	struct timespec pause = {.tv_nsec = 20000000};
	struct end a, b;

	(void)state;
	open_pair(&a, &b, IBV_QPT_RC);
	fill(a.buf, 5000, 9);
	post_send(&a, &b, IBV_WR_SEND, 5000);
	nanosleep(&pause, NULL);
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
	open_pair(&a, &b, IBV_QPT_RC);
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
	open_pair(&a, &b, IBV_QPT_RC);
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
	connect_end(&a, &b);
	connect_end(&b, &a);
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
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
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
	open_pair(&a, &b, IBV_QPT_RC);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(test) cmocka_unit_test_setup(test, forget_counts)
	    TEST(messages_of_every_kind_and_length_arrive_whole),
	    TEST(atomics_are_done_once_and_answered),
	    TEST(datagrams_arrive_with_the_addresses_of_both),
	    TEST(a_receiver_that_is_not_ready_is_waited_for),
	    TEST(a_key_that_is_wrong_is_refused),
	    TEST(a_peer_that_is_gone_is_given_up),
	    TEST(what_is_lost_doubled_or_late_is_made_good),
	    TEST(strangers_are_counted_and_do_no_harm),
	    TEST(a_port_that_is_taken_is_said),
	};
	unsigned id = (unsigned)getpid();
	char names[128];
	int fd = mkstemp(stats_path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	for (unsigned i = 0; i < 4; i++)
		snprintf(own_address[i], sizeof(own_address[i]), "127.%u.%u.%u", 1 + id / 250 % 250,
			 1 + id % 250, i + 1 + id / 62500 % 60 * 4);
	snprintf(names, sizeof(names), "lo@%s,lo@%s,lo@%s", own_address[0], own_address[1],
		 own_address[2]);
	setenv("SIMVERBS_ROCE", names, 1);
	setenv("SIMVERBS_ROCE_STATS", stats_path, 1);
	setenv("SIMVERBS_FAULTS",
	       "drop rail=2 prob=0.04 seed=1\ndup rail=2 prob=0.04 seed=2\nreorder=2 rail=2 "
	       "prob=0.04 seed=3",
	       1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(stats_path);
	return failed;
}
