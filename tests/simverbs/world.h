/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of one connection over a stepped fabric, for tests of simverbs itself. Every helper
 * fails the running test when something unexpected happens.
 */
#ifndef TESTS_SIMVERBS_WORLD_H
#define TESTS_SIMVERBS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <infiniband/verbs.h>
#include <simverbs/simverbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../stepped_rules.h"
#include "verb_calls.h"

#define BUF_SIZE (128u * 1024)
#define QKEY	 0x11111111u

struct end {
	uint32_t host, rail;
	/* Of the queue pair, to be changed before it is initialised. */
	uint8_t port_num;    /* 1 */
	uint16_t pkey_index; /* 0 */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	uint32_t psn;
};

struct world {
	struct end a, b;
};

/* Zero means the default of each. */
struct world_opts {
	struct sv_stepped_opts fabric;
	enum ibv_qp_type type; /* IBV_QPT_RC */
	int cqe;	       /* 256 */
	uint32_t wrs;	       /* 64, of each queue */
	uint32_t max_inline;   /* 0 */
	uint32_t srq_wrs;      /* 0: no SRQ at end b */
	enum ibv_mtu mtu;      /* IBV_MTU_1024 */
	unsigned int access;   /* of QPs and MRs: everything */
	uint8_t timeout;       /* 10: 4.2 ms */
	uint8_t retry_cnt;     /* 3 */
	uint8_t rnr_retry;     /* 3; 255: zero */
	uint8_t rd_atomic;     /* 4 */
	uint8_t dest_rd_atomic;
	bool sig_all;
	bool unconnected; /* stay in RESET */
	bool loopback;	  /* both ends on one device */
};

extern const unsigned int all_access;

void world_open(struct world *w, const struct world_opts *opts);
void world_close(struct world *w);

/* A test that finds an open world in *state, which is closed after it even if the test fails. */
#define WORLD_TEST(test, ...)                                                                      \
	cmocka_unit_test_prestate_setup_teardown((test), world_setup, world_teardown,              \
						 (&(struct world_opts){__VA_ARGS__}))
int world_setup(void **state);
int world_teardown(void **state);

void end_open(struct end *e, uint32_t host, uint32_t rail, const struct world_opts *opts);
void end_close(struct end *e);
struct ibv_context *open_host(uint32_t host, uint32_t rail);

/* The transitions, with the attributes of opts. */
int to_init(struct end *e, const struct world_opts *opts);
int to_rtr(struct end *e, const struct end *peer, const struct world_opts *opts);
int to_rts(struct end *e, const struct world_opts *opts);
void connect_ends(struct end *a, struct end *b, const struct world_opts *opts);
int to_state(struct ibv_qp *qp, enum ibv_qp_state state);
enum ibv_qp_state state_of(struct ibv_qp *qp);

/* Address of the end, as another one uses it. */
struct ibv_ah_attr address_of(const struct end *e);

/* One-SGE work requests; offsets into the ends' buffers. */
struct ibv_send_wr wr_of(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *sge);
int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t offset, uint32_t length,
	 const struct end *peer, uint32_t peer_offset);
int post_flags(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t offset, uint32_t length,
	       const struct end *peer, uint32_t peer_offset, unsigned int flags);
int post_recv(struct end *e, uint64_t id, uint32_t offset, uint32_t length);

/* Steps until nothing is left; a limit catches runs that never end. */
void settle(void);
/* The next completion, which must be there, with this id and status. */
struct ibv_wc expect_wc(struct end *e, uint64_t id, enum ibv_wc_status status);
void expect_no_wc(struct end *e);
/* An async event that must be there, acknowledged at once. */
void expect_event(struct ibv_context *ctx, enum ibv_event_type type);
void expect_no_event(struct ibv_context *ctx);

/* For calls of verbs with objects of the end. */
struct verb_target target_of(const struct end *e);

void fill(uint8_t *buf, size_t length, unsigned int seed);

#endif
