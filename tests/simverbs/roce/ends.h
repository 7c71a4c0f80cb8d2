/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two devices of one process on the loopback interface, each with an address of its own, and a
 * connection between them. Every helper fails the running test when something unexpected happens.
 */
#ifndef TESTS_SIMVERBS_ROCE_ENDS_H
#define TESTS_SIMVERBS_ROCE_ENDS_H

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define BUF_BYTES 300000u
#define QKEY	  0x1111u
#define ADDRESSES 4u

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

/* Addresses that no other test on this machine has; set by name_devices(). */
extern char own_address[ADDRESSES][INET_ADDRSTRLEN];

/* Devices at the first `num` of these: before any verb is called. */
void name_devices(unsigned num);

/* NULL with errno: it cannot be opened. */
struct ibv_context *open_device(unsigned index);
void open_end(struct end *e, unsigned device, enum ibv_qp_type type);
void close_end(struct end *e);
struct ibv_ah_attr address_of(const struct end *e);
/* The first two devices, connected if the type is RC. */
void open_pair(struct end *a, struct end *b, enum ibv_qp_type type, enum ibv_mtu mtu);
void connect_ends(struct end *a, struct end *b, enum ibv_mtu mtu);
void close_pair(struct end *a, struct end *b);

/* From the start of one buffer to the start of the other. */
void post_send(struct end *e, const struct end *peer, enum ibv_wr_opcode op, uint32_t length);
void post_recv(struct end *e, uint32_t length);
/* Polls one end until it has a completion, of this status; the engine of the other end does the
 * rest. */
struct ibv_wc expect_wc(struct end *e, enum ibv_wc_status status);

#endif
