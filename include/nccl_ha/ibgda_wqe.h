/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work requests as a ConnectX reads them from a send queue, one block of 64 bytes each: written by
 * who owns the queue, a GPU's thread or the host that does its work again. Everything is
 * big-endian.
 *
 *    0  control   index and opcode; queue pair and size in 16 bytes; flags; immediate
 *   16  remote    address, key (not of a NOP)
 *   32  data      bytes, key, address of what is sent or filled; or inline: bytes | 1 << 31, then
 * these; of a fetch-and-add: the addend, and the data behind it
 *
 * C and C++, also for a compiler of GPU code.
 */
#ifndef HA_IBGDA_WQE_H
#define HA_IBGDA_WQE_H

#include "nccl_ha/ibgda_memory.h"

#include <stdint.h>

#define HA_WQE_BLOCK	   64u
#define HA_WQE_INLINE_MOST 28u /* bytes of data within a block */

enum ha_wqe_opcode {
	HA_WQE_NOP = 0x00,
	HA_WQE_WRITE = 0x08,
	HA_WQE_WRITE_IMM = 0x09,
	HA_WQE_READ = 0x10,
	HA_WQE_FETCH_ADD = 0x12,
};

/* A queue entry in memory: 8 words of 8 bytes, as they are stored. */
struct ha_wqe {
	uint64_t words[HA_WQE_BLOCK / 8];
};

/* What it reads or fills at this end, and where at the other one. */
struct ha_wqe_data {
	uint64_t addr, remote_addr;
	uint32_t lkey, rkey;
	uint32_t size; /* bytes */
};

HA_DEV uint32_t ha_wqe_be32(uint32_t value)
{
	return ha_dev_swap32(value);
}

/* Two words of 4 bytes, in the order of memory. */
HA_DEV uint64_t ha_wqe_pair(uint32_t first, uint32_t second)
{
	return (uint64_t)ha_wqe_be32(first) | (uint64_t)ha_wqe_be32(second) << 32;
}

/* The first 8 bytes, which are the doorbell's, too. sixteenths: the request's size in 16 bytes. */
HA_DEV uint64_t ha_wqe_head(uint32_t index, enum ha_wqe_opcode opcode, uint32_t qpn,
			    uint32_t sixteenths)
{
	return ha_wqe_pair((index & 0xffffu) << 8 | (uint32_t)opcode, qpn << 8 | sixteenths);
}

/* Each has a completion. `imm` as the other end's program sees its bytes; others than a
 * WRITE_IMM carry it along for who reads the queue. */
HA_DEV void ha_wqe_control(struct ha_wqe *wqe, uint32_t index, enum ha_wqe_opcode opcode,
			   uint32_t qpn, uint32_t sixteenths, uint32_t imm)
{
	const uint32_t completion = 2u << 2;

	wqe->words[0] = ha_wqe_head(index, opcode, qpn, sixteenths);
	wqe->words[1] = (uint64_t)ha_wqe_be32(completion) | (uint64_t)imm << 32;
}

HA_DEV void ha_wqe_remote(struct ha_wqe *wqe, uint64_t addr, uint32_t rkey)
{
	wqe->words[2] = ha_dev_swap64(addr);
	wqe->words[3] = ha_wqe_pair(rkey, 0);
}

HA_DEV void ha_wqe_local(struct ha_wqe *wqe, uint64_t addr, uint32_t lkey, uint32_t size)
{
	wqe->words[4] = ha_wqe_pair(size, lkey);
	wqe->words[5] = ha_dev_swap64(addr);
}

/* 8 bytes that the request carries itself: length, then the value as it lies in memory, four bytes
 * further on than words do. */
HA_DEV void ha_wqe_value(struct ha_wqe *wqe, uint64_t value)
{
	wqe->words[4] = (uint64_t)ha_wqe_be32(8u | 1u << 31) | value << 32;
	wqe->words[5] = value >> 32;
}

HA_DEV void ha_wqe_nop(struct ha_wqe *wqe, uint32_t index, uint32_t qpn)
{
	ha_wqe_control(wqe, index, HA_WQE_NOP, qpn, 1, 0);
}

/* WRITE, WRITE_IMM or READ. */
HA_DEV void ha_wqe_transfer(struct ha_wqe *wqe, uint32_t index, enum ha_wqe_opcode opcode,
			    uint32_t qpn, const struct ha_wqe_data *data, uint32_t imm)
{
	ha_wqe_control(wqe, index, opcode, qpn, 3, imm);
	ha_wqe_remote(wqe, data->remote_addr, data->rkey);
	ha_wqe_local(wqe, data->addr, data->lkey, data->size);
}

/* WRITE or WRITE_IMM of 8 bytes that the request carries itself. */
HA_DEV void ha_wqe_write_value(struct ha_wqe *wqe, uint32_t index, enum ha_wqe_opcode opcode,
			       uint32_t qpn, uint64_t remote_addr, uint32_t rkey, uint64_t value,
			       uint32_t imm)
{
	ha_wqe_control(wqe, index, opcode, qpn, 3, imm);
	ha_wqe_remote(wqe, remote_addr, rkey);
	ha_wqe_value(wqe, value);
}

/* The word at the other end is increased; what it was comes to data->addr, 8 bytes. */
HA_DEV void ha_wqe_fetch_add(struct ha_wqe *wqe, uint32_t index, uint32_t qpn,
			     const struct ha_wqe_data *data, uint64_t addend)
{
	ha_wqe_control(wqe, index, HA_WQE_FETCH_ADD, qpn, 4, 0);
	ha_wqe_remote(wqe, data->remote_addr, data->rkey);
	wqe->words[4] = ha_dev_swap64(addend);
	wqe->words[5] = 0;
	wqe->words[6] = ha_wqe_pair(8, data->lkey);
	wqe->words[7] = ha_dev_swap64(data->addr);
}

/* What the doorbell record says when all up to, and without, that index is there. */
HA_DEV uint32_t ha_wqe_record(uint32_t index)
{
	return ha_wqe_be32(index & 0xffffu);
}

#endif
