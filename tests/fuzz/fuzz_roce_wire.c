/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any datagrams, from a connection's peer or from a stranger, at a device of the RoCE wire whose
 * sockets are this program: each is counted, none does harm, and none writes anywhere but into the
 * region that was made for it.
 *
 * Input, again and again: what of the datagram is not put right (enum wrong), what it is, its
 * length, and its bytes.
 */
#include "fuzz.h"

#include "simverbs/roce/wire.h"

#include "input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define REGION	      5000u
#define GUARD	      256u
#define PEER_QPN      77u
#define PSN	      1000u
#define MAX_DATAGRAMS 32

/* What of a datagram is left as the input has it. */
enum wrong {
	WRONG_ICRC = 1,
	WRONG_BTH = 2, /* opcode, version, P_Key, queue pair */
	WRONG_PSN = 4,
	WRONG_RETH = 8, /* key and address */
	WRONG_LENGTH = 16,
	STRANGER = 32,
	WRONG_SOME = 160, /* below it nothing is wrong */
};

static struct sv_roce_wire wire;
static struct sv_device device;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static uint8_t *region; /* between two guards */
static union ibv_gid own = {.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1}};
static union ibv_gid peer = {.raw = {[10] = 0xff, 0xff, 10, 0, 0, 2}};
static union ibv_gid stranger = {.raw = {[10] = 0xff, 0xff, 10, 0, 0, 3}};

static uint8_t seeds[4][200];
#define SEED(i)                                                                                    \
	{                                                                                          \
		seeds[i], sizeof(seeds[i])                                                         \
	}
const struct fuzz_seed fuzz_seeds[] = {SEED(0), SEED(1), SEED(2), SEED(3), {NULL, 0}};

/* Sequences of what a peer may say, all of it right: what it is and its length. */
__attribute__((constructor)) static void make_seeds(void)
{
	static const uint8_t opcodes[4][8] = {{0x00, 0x01, 0x02, 0x04, 0x05, 0x16, 0x04, 0x03},
					      {0x06, 0x07, 0x08, 0x0a, 0x0b, 0x09, 0x06, 0x08},
					      {0x0c, 0x13, 0x14, 0x0c, 0x04, 0x81, 0x0c, 0x14},
					      {0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x64, 0x2a}};

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 8; j++) {
			uint8_t *at = &seeds[i][j * 24];

			at[1] = opcodes[i][j];
			at[2] = (uint8_t)(j * 16);
			at[6] = (uint8_t)(j + 1);
		}
}

/* ---------------------------------------------------------------- sockets that are not there */

static bool no_address(struct sv_roce_wire *w, uint32_t index)
{
	(void)w;
	(void)index;
	return true;
}

/* What is sent is looked at: its own decoder takes it. */
static bool swallow(struct sv_roce_wire *w)
{
	struct sv_packet pkt;

	for (; w->first_out < w->num_out; w->first_out++) {
		const struct sv_roce_out *out = &w->out[w->first_out];

		FUZZ_CHECK(sv_roce_decode(out->bytes, out->length, &pkt) == SV_ROCE_GOOD);
		FUZZ_CHECK(pkt.dst_qpn == PEER_QPN);
	}
	return true;
}

static void receive_nothing(struct sv_roce_wire *w, bool everywhere)
{
	(void)w;
	(void)everywhere;
}

static const struct sv_roce_io no_sockets = {
    .address_changed = no_address, .flush = swallow, .receive = receive_nothing};

/* ---------------------------------------------------------------- one connected end */

static struct sv_port *get_port(struct sv_device *dev)
{
	(void)dev;
	return wire.port;
}

static void put_port(struct sv_device *dev, struct sv_port *port)
{
	(void)dev;
	(void)port;
}

static void connect_qp(void)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RESET,
	    .port_num = 1,
	    .path_mtu = IBV_MTU_256,
	    .dest_qp_num = PEER_QPN,
	    .rq_psn = PSN,
	    .sq_psn = PSN,
	    .max_dest_rd_atomic = 4,
	    .max_rd_atomic = 4,
	    .retry_cnt = 3,
	    .rnr_retry = 3,
	    .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer, .sgid_index = 1}},
	    .qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_sge sge = {(uintptr_t)region, REGION, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	FUZZ_CHECK(!sv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_INIT;
	FUZZ_CHECK(!sv_modify_qp(
	    qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	for (int i = 0; i < 4; i++)
		FUZZ_CHECK(!sv_post_recv(qp, &wr, &bad));
	attr.qp_state = IBV_QPS_RTR;
	FUZZ_CHECK(!sv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	FUZZ_CHECK(!sv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void open_wire(void)
{
	struct sv_port_config cfg = {.devices = SV_NOWHERE,
				     .rails = 1,
				     .name = "sv_fuzz",
				     .link_layer = IBV_LINK_LAYER_ETHERNET,
				     .rate_mbps = 1000,
				     .mtu = IBV_MTU_4096,
				     .num_phys = 1,
				     .phys = {{.gids = {[1] = {.gid = own}},
					       .num_gids = 2,
					       .pkeys = {SV_DEFAULT_PKEY},
					       .num_pkeys = 1,
					       .state = IBV_PORT_ACTIVE}},
				     .window_bursts = 16,
				     .num_comp_vectors = 1};
	struct ibv_qp_init_attr init = {
	    .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	    .qp_type = IBV_QPT_RC,
	};

	sv_limits_default(&cfg.limits);
	wire.io = &no_sockets;
	wire.out = calloc(SV_ROCE_BATCH, sizeof(*wire.out));
	wire.link.up = wire.link.there = true;
	wire.wake_fd = open("/dev/null", O_WRONLY);
	wire.itf.news_fd = -1;
	wire.port = sv_port_create(&cfg, &sv_roce_wire_ops, &wire, NULL);
	region = malloc(REGION + 2 * GUARD);
	FUZZ_CHECK(wire.out && wire.port && region);
	memset(region, 0x77, REGION + 2 * GUARD);
	region += GUARD;
	sv_device_init(&device, &cfg);
	device.get_port = get_port;
	device.put_port = put_port;
	ctx = sv_open_device(&device.ibv);
	pd = sv_alloc_pd(ctx);
	cq = sv_create_cq(ctx, 255, NULL, NULL, 0);
	mr = sv_reg_mr(pd, region, REGION,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC);
	init.send_cq = init.recv_cq = cq;
	qp = sv_create_qp(pd, &init);
	FUZZ_CHECK(mr && qp);
}

/* ---------------------------------------------------------------- datagrams */

static void put_be(uint8_t *at, uint64_t value, unsigned bytes)
{
	while (bytes--)
		*at++ = (uint8_t)(value >> 8 * bytes);
}

static void ask_for_data(void)
{
	struct ibv_sge sge = {(uintptr_t)region, 1000, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	sv_post_send(qp, &wr, &bad);
}

static void put_bth(uint8_t *bytes, uint8_t opcode)
{
	bytes[0] = opcode;
	bytes[1] &= 0xf0;
	put_be(bytes + 2, SV_DEFAULT_PKEY, 2);
	put_be(bytes + 4, qp->qp_num, 4);
	bytes[8] |= 0x80; /* an acknowledgement is asked for */
}

/* The next packet in most cases; the first of them answer a READ. */
static void put_psn(uint8_t *bytes, uint32_t n)
{
	uint8_t ahead = byte();

	put_be(bytes + 9, PSN + n + (ahead < 32 ? ahead % 4 : 0) - (ahead > 224 ? 1 : 0), 3);
}

static void put_reth(uint8_t *bytes, size_t payload)
{
	uint8_t how = byte();

	put_be(bytes + 12, (uintptr_t)region + (how < 128 ? how * 8u : number(2) % (REGION + 8)),
	       8);
	put_be(bytes + 20, mr->rkey, 4);
	/* A first packet has more to come. */
	put_be(bytes + 24, how % 4 ? payload + how % 64u * (bytes[0] == 0x06) : number(2), 4);
}

/* All but a message's last packet have as much as the path takes. */
static size_t right_length(uint8_t opcode, uint8_t words)
{
	switch (opcode) {
	case 0x06:
		return 12 + 16 + 256;
	case 0x0d:
		return 12 + 4 + 256;
	case 0x00:
	case 0x01:
	case 0x07:
	case 0x0e:
		return 12 + 256;
	default:
		return 12 + words * 4u % 300;
	}
}

static void receive_one(uint32_t n)
{
	uint8_t first = byte(), opcode = byte();
	uint8_t wrong = first < WRONG_SOME ? 0 : first - WRONG_SOME;
	size_t length = right_length(opcode, byte());
	uint8_t *bytes;
	struct sv_roce_in in = {.flow = {.dst = own, .sport = SV_ROCE_PORT}, .id_known = true};
	uint32_t icrc;

	if (wrong & WRONG_LENGTH)
		length = byte() * 3u;
	bytes = calloc(1, length + SV_ICRC_BYTES);
	FUZZ_CHECK(bytes);
	for (size_t i = 0; i < length && i < 16; i++)
		bytes[i] = byte();
	if (length >= 12 && !(wrong & WRONG_BTH))
		put_bth(bytes, opcode);
	if (length >= 12 && !(wrong & WRONG_PSN))
		put_psn(bytes, n);
	if (length >= 28 && !(wrong & WRONG_RETH))
		put_reth(bytes, length - 28);
	in.flow.src = wrong & STRANGER ? stranger : peer;
	in.bytes = bytes;
	in.length = length + SV_ICRC_BYTES;
	if (length >= 12 && !(wrong & WRONG_ICRC)) {
		icrc = sv_icrc(&in.flow, bytes, length);
		for (unsigned i = 0; i < SV_ICRC_BYTES; i++)
			bytes[length + i] = (uint8_t)(icrc >> 8 * i);
	}
	sv_port_lock(wire.port);
	sv_roce_receive(&wire, &in);
	sv_roce_progress(&wire);
	sv_port_unlock(wire.port);
	free(bytes);
}

/* A connection that is broken hears nothing: a new one. */
static bool is_broken(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	FUZZ_CHECK(!sv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	FUZZ_CHECK(attr.qp_state == IBV_QPS_RTS || attr.qp_state == IBV_QPS_ERR);
	return attr.qp_state == IBV_QPS_ERR;
}

static void connect_and_ask(void)
{
	connect_qp();
	for (uint8_t asked = byte() % 3; asked; asked--)
		ask_for_data();
}

static void check_guards(void)
{
	for (uint32_t i = 0; i < GUARD; i++)
		FUZZ_CHECK(region[-1 - (int)i] == 0x77 && region[REGION + i] == 0x77);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t before = wire.counters[SV_ROCE_rx_datagrams];
	struct ibv_wc wc;
	int n = 0;

	if (!wire.port)
		open_wire();
	input = data;
	input_left = size;
	connect_and_ask();
	for (uint32_t next = 0; input_left && n < MAX_DATAGRAMS; n++) {
		receive_one(next++);
		if (is_broken()) {
			connect_and_ask();
			next = 0;
		}
		while (sv_poll_cq(cq, 1, &wc) == 1)
			FUZZ_CHECK(wc.qp_num == qp->qp_num && wc.byte_len <= REGION);
	}
	FUZZ_CHECK(wire.counters[SV_ROCE_rx_datagrams] == before + (unsigned)n);
	check_guards();
	return 0;
}
