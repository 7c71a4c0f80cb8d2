/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completions as a ConnectX writes them, 64 bytes each, of which the last one says whose it is: its
 * lowest bit changes with each lap of the queue. What is not this lap's says nothing.
 */
#ifndef HA_IBGDA_CQE_H
#define HA_IBGDA_CQE_H

#include "nccl_ha/ibgda_memory.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_CQE_SIZE 64u

enum ha_cqe_kind {
	HA_CQE_NOT_YET, /* the device has not written it in this lap */
	HA_CQE_DONE,
	HA_CQE_FAILED, /* a request: syndrome says how */
	HA_CQE_OTHER,  /* nothing that a send queue gets */
};

/* Of a failed request. */
enum ha_cqe_syndrome {
	HA_CQE_LOCAL_QP = 0x02,
	HA_CQE_LOCAL_PROTECTION = 0x04,
	HA_CQE_FLUSHED = 0x05, /* behind one that failed */
	HA_CQE_REMOTE_INVALID = 0x12,
	HA_CQE_REMOTE_ACCESS = 0x13,
	HA_CQE_REMOTE_OPERATION = 0x14,
	HA_CQE_RETRIES = 0x15, /* nothing comes back */
	HA_CQE_RNR = 0x16,
};

struct ha_cqe {
	enum ha_cqe_kind kind;
	uint8_t syndrome;
	uint16_t index; /* of the work request */
};

/*
 * The completion that a queue of 2^log entries has at `number`, counted from its beginning. Index
 * and owner are one word, read at once, so they are of one completion; what it says is true of the
 * rest then.
 */
HA_DEV struct ha_cqe ha_cqe_read(const volatile uint8_t *queue, uint32_t log, uint64_t number)
{
	const volatile uint8_t *entry = queue + (number & (((uint64_t)1 << log) - 1)) * HA_CQE_SIZE;
	const uint32_t word = ha_dev_swap32(ha_dev_load32(&entry[60]));
	const uint8_t opcode = (uint8_t)(word >> 4 & 0xf), lap = (uint8_t)(number >> log & 1);
	struct ha_cqe cqe = {HA_CQE_NOT_YET, 0, 0};

	if (opcode == 0xf || (word & 1) != lap)
		return cqe;
	cqe.index = (uint16_t)(word >> 16);
	cqe.kind = opcode == 0x0 ? HA_CQE_DONE : opcode == 0xd ? HA_CQE_FAILED : HA_CQE_OTHER;
	if (cqe.kind == HA_CQE_FAILED)
		cqe.syndrome = ha_dev_load8(&entry[55]);
	return cqe;
}

#endif
