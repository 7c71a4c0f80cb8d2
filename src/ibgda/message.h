/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hosts of a stream's two ends say to each other, over whatever carries it in order and
 * without a loss. The one that sends puts asks, the other one answers.
 */
#ifndef HA_IBGDA_MESSAGE_H
#define HA_IBGDA_MESSAGE_H

#include "nccl_ha/ibgda_stream.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_IBGDA_VERSION 1u

struct ha_ibgda_address {
	uint32_t qpn, psn;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu, unused; /* enum ibv_mtu */
};

enum ha_ibgda_kind {
	HA_IBGDA_OPEN = 1, /* make a queue pair on that NIC, for mine */
	HA_IBGDA_OPENED,
	HA_IBGDA_REFUSED, /* it cannot be made */
	HA_IBGDA_CLOSE,	  /* nothing of it shall arrive any more: what is in the cells? */
	HA_IBGDA_VERDICT,
	HA_IBGDA_SUSPECT, /* by who receives: that NIC is gone */
	HA_IBGDA_KINDS,
};

struct ha_ibgda_message {
	uint32_t version, kind;
	uint32_t pair; /* counted by who sends puts, from 1 on */
	uint32_t nic;
	struct ha_ibgda_address address; /* OPEN, OPENED */
	uint64_t cells_addr;		 /* OPENED */
	uint32_t cells_key, is_flushed;	 /* OPENED; VERDICT */
	uint32_t keys[HA_IBGDA_REGIONS]; /* OPENED */
	uint64_t cells[HA_IBGDA_IDS];	 /* VERDICT */
};

struct ha_ibgda_channel {
	void *context;
	/* False: the other end does not read what it is told. That it is gone receive() says,
	 * whatever is told in between. */
	bool (*send)(void *context, const struct ha_ibgda_message *message);
	/* 1: one came; 0: none; -1: it is broken for ever. */
	int (*receive)(void *context, struct ha_ibgda_message *message);
	/* This end is over: the other one is to hear of nothing but that. Again is fine. */
	void (*end)(void *context);
};

#endif
