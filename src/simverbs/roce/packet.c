/* SPDX-License-Identifier: Apache-2.0 */
/* RoCE v2 datagrams; see packet.h. */
#include "simverbs/roce/packet.h"

#include "simverbs/roce/bytes.h"

#include <string.h>

#define BTH_BYTES  12u
#define OPCODE_CNP 0x81u
#define UD_OPCODE  0x64u

/* Bits of the BTH's second byte. */
#define BTH_SOLICITED 0x80u
#define BTH_MIGRATED  0x40u
#define BTH_PAD_SHIFT 4
#define BTH_VERSION   0x0fu
/* Of its ninth. */
#define BTH_ACKREQ 0x80u

/* ---------------------------------------------------------------- opcodes */

enum header {
	RETH = 1 << 0,
	AETH = 1 << 1,
	DETH = 1 << 2,
	ATOMIC_ETH = 1 << 3,
	ATOMIC_ACK_ETH = 1 << 4,
	IMM = 1 << 5,
	IETH = 1 << 6,
	PAYLOAD = 1 << 7,
};

#define ONLY (SV_PKT_FIRST | SV_PKT_LAST)

struct opcode {
	bool known;
	uint8_t op;	 /* enum sv_op */
	uint8_t headers; /* enum header */
	uint16_t flags;	 /* enum sv_packet_flags */
};

/* What each opcode says of a packet. */
static const struct opcode opcodes[] = {
    [0x00] = {true, SV_OP_SEND, PAYLOAD, SV_PKT_FIRST},
    [0x01] = {true, SV_OP_SEND, PAYLOAD, 0},
    [0x02] = {true, SV_OP_SEND, PAYLOAD, SV_PKT_LAST},
    [0x03] = {true, SV_OP_SEND, PAYLOAD | IMM, SV_PKT_LAST | SV_PKT_IMM},
    [0x04] = {true, SV_OP_SEND, PAYLOAD, ONLY},
    [0x05] = {true, SV_OP_SEND, PAYLOAD | IMM, ONLY | SV_PKT_IMM},
    [0x06] = {true, SV_OP_WRITE, PAYLOAD | RETH, SV_PKT_FIRST},
    [0x07] = {true, SV_OP_WRITE, PAYLOAD, 0},
    [0x08] = {true, SV_OP_WRITE, PAYLOAD, SV_PKT_LAST},
    [0x09] = {true, SV_OP_WRITE, PAYLOAD | IMM, SV_PKT_LAST | SV_PKT_IMM},
    [0x0a] = {true, SV_OP_WRITE, PAYLOAD | RETH, ONLY},
    [0x0b] = {true, SV_OP_WRITE, PAYLOAD | RETH | IMM, ONLY | SV_PKT_IMM},
    [0x0c] = {true, SV_OP_READ_REQ, RETH, ONLY},
    [0x0d] = {true, SV_OP_READ_RESP, PAYLOAD | AETH, SV_PKT_FIRST},
    [0x0e] = {true, SV_OP_READ_RESP, PAYLOAD, 0},
    [0x0f] = {true, SV_OP_READ_RESP, PAYLOAD | AETH, SV_PKT_LAST},
    [0x10] = {true, SV_OP_READ_RESP, PAYLOAD | AETH, ONLY},
    [0x11] = {true, SV_OP_ACK, AETH, ONLY},
    [0x12] = {true, SV_OP_ATOMIC_ACK, AETH | ATOMIC_ACK_ETH, ONLY},
    [0x13] = {true, SV_OP_CMP_SWAP, ATOMIC_ETH, ONLY},
    [0x14] = {true, SV_OP_FETCH_ADD, ATOMIC_ETH, ONLY},
    [0x16] = {true, SV_OP_SEND, PAYLOAD | IETH, SV_PKT_LAST | SV_PKT_INVALIDATE},
    [0x17] = {true, SV_OP_SEND, PAYLOAD | IETH, ONLY | SV_PKT_INVALIDATE},
    [UD_OPCODE] = {true, SV_OP_UD, PAYLOAD | DETH, ONLY},
    [UD_OPCODE + 1] = {true, SV_OP_UD, PAYLOAD | DETH | IMM, ONLY | SV_PKT_IMM},
};

/* The first of an operation's opcodes. */
static const uint8_t first_opcodes[SV_OP_COUNT] = {
    [SV_OP_SEND] = 0x00,       [SV_OP_WRITE] = 0x06,	[SV_OP_READ_REQ] = 0x0c,
    [SV_OP_READ_RESP] = 0x0d,  [SV_OP_CMP_SWAP] = 0x13, [SV_OP_FETCH_ADD] = 0x14,
    [SV_OP_ATOMIC_ACK] = 0x12, [SV_OP_ACK] = 0x11,	[SV_OP_UD] = UD_OPCODE,
};

/* Of a message of several packets they are: first, middle, last, last with an immediate, only, only
 * with one; a response has no immediates. */
static uint32_t opcode_of(const struct sv_packet *pkt)
{
	uint32_t opcode = first_opcodes[pkt->op];
	uint32_t imm = pkt->flags & SV_PKT_IMM ? 1 : 0;

	if (pkt->op == SV_OP_UD)
		return opcode + imm;
	if (pkt->op != SV_OP_SEND && pkt->op != SV_OP_WRITE && pkt->op != SV_OP_READ_RESP)
		return opcode;
	if (pkt->flags & SV_PKT_INVALIDATE)
		return pkt->flags & SV_PKT_FIRST ? 0x17 : 0x16;
	switch (pkt->flags & ONLY) {
	case SV_PKT_FIRST:
		return opcode;
	case 0:
		return opcode + 1;
	case SV_PKT_LAST:
		return opcode + 2 + imm;
	default:
		return pkt->op == SV_OP_READ_RESP ? opcode + 3 : opcode + 4 + imm;
	}
}

/* ---------------------------------------------------------------- fields */

static uint32_t take32(const uint8_t **at)
{
	*at += sizeof(uint32_t);
	return sv_get32(*at - sizeof(uint32_t));
}

static uint64_t take64(const uint8_t **at)
{
	*at += sizeof(uint64_t);
	return sv_get64(*at - sizeof(uint64_t));
}

static uint32_t header_bytes(uint32_t headers)
{
	static const uint8_t bytes[] = {16, 4, 8, 28, 8, 4, 4};
	uint32_t sum = 0;

	for (uint32_t i = 0; i < sizeof(bytes); i++)
		if (headers & 1u << i)
			sum += bytes[i];
	return sum;
}

/* ---------------------------------------------------------------- encoding */

static uint8_t *put_bth(uint8_t *at, const struct sv_packet *pkt, uint32_t opcode)
{
	*at++ = (uint8_t)opcode;
	*at++ = (uint8_t)((pkt->flags & SV_PKT_SOLICITED ? BTH_SOLICITED : 0) |
			  (pkt->flags & SV_PKT_MIGRATED ? BTH_MIGRATED : 0) |
			  sv_roce_pad(pkt->payload_len) << BTH_PAD_SHIFT);
	at = sv_put16(at, pkt->pkey);
	at = sv_put32(at, pkt->dst_qpn & SV_QPN_MASK);
	return sv_put32(at, (pkt->flags & SV_PKT_ACKREQ ? (uint32_t)BTH_ACKREQ << 24 : 0) |
				(pkt->psn & SV_PSN_MASK));
}

uint32_t sv_roce_encode(const struct sv_packet *pkt, uint8_t *buf)
{
	uint32_t opcode = opcode_of(pkt), headers = opcodes[opcode].headers;
	uint8_t *at = put_bth(buf, pkt, opcode);

	if (headers & DETH) {
		at = sv_put32(at, pkt->ud.qkey);
		at = sv_put32(at, pkt->src_qpn & SV_QPN_MASK);
	}
	if (headers & RETH) {
		at = sv_put64(at, pkt->reth.addr);
		at = sv_put32(at, pkt->reth.rkey);
		at = sv_put32(at, pkt->reth.length);
	}
	if (headers & ATOMIC_ETH) {
		at = sv_put64(at, pkt->reth.addr);
		at = sv_put32(at, pkt->reth.rkey);
		at = sv_put64(at, pkt->reth.swap_add);
		at = sv_put64(at, pkt->reth.compare);
	}
	if (headers & AETH)
		at = sv_put32(at, (uint32_t)pkt->syndrome << 24 | (pkt->msn & SV_PSN_MASK));
	if (headers & ATOMIC_ACK_ETH)
		at = sv_put64(at, pkt->atomic_result);
	if (headers & IMM) {
		memcpy(at, &pkt->imm, sizeof(pkt->imm));
		at += sizeof(pkt->imm);
	}
	if (headers & IETH)
		at = sv_put32(at, pkt->invalidate_rkey);
	return (uint32_t)(at - buf);
}

/* ---------------------------------------------------------------- decoding */

static const uint8_t *take_bth(const uint8_t *at, struct sv_packet *pkt)
{
	uint32_t word;

	pkt->flags |= (uint16_t)((at[1] & BTH_SOLICITED ? SV_PKT_SOLICITED : 0) |
				 (at[1] & BTH_MIGRATED ? SV_PKT_MIGRATED : 0));
	pkt->pkey = sv_get16(at + 2);
	at += 4;
	pkt->dst_qpn = take32(&at) & SV_QPN_MASK;
	word = take32(&at);
	pkt->psn = word & SV_PSN_MASK;
	if (word >> 24 & BTH_ACKREQ)
		pkt->flags |= SV_PKT_ACKREQ;
	return at;
}

static const uint8_t *take_headers(const uint8_t *at, uint32_t headers, struct sv_packet *pkt)
{
	uint32_t word;

	if (headers & DETH) {
		pkt->ud.qkey = take32(&at);
		pkt->src_qpn = take32(&at) & SV_QPN_MASK;
	}
	if (headers & (RETH | ATOMIC_ETH)) {
		pkt->reth.addr = take64(&at);
		pkt->reth.rkey = take32(&at);
	}
	if (headers & RETH)
		pkt->reth.length = take32(&at);
	if (headers & ATOMIC_ETH) {
		pkt->reth.swap_add = take64(&at);
		pkt->reth.compare = take64(&at);
		pkt->reth.length = sizeof(uint64_t);
	}
	if (headers & AETH) {
		word = take32(&at);
		pkt->syndrome = (uint8_t)(word >> 24);
		pkt->msn = word & SV_PSN_MASK;
	}
	if (headers & ATOMIC_ACK_ETH)
		pkt->atomic_result = take64(&at);
	if (headers & IMM) {
		memcpy(&pkt->imm, at, sizeof(pkt->imm));
		at += sizeof(pkt->imm);
	}
	if (headers & IETH)
		pkt->invalidate_rkey = take32(&at);
	return at;
}

enum sv_roce_verdict sv_roce_decode(const uint8_t *datagram, size_t length, struct sv_packet *pkt)
{
	const struct opcode *opcode;
	uint32_t pad, headers;

	if (length < BTH_BYTES + SV_ICRC_BYTES || length > SV_ROCE_MAX_BYTES ||
	    (datagram[1] & BTH_VERSION) != 0)
		return SV_ROCE_BAD;
	if (datagram[0] == OPCODE_CNP)
		return SV_ROCE_CNP;
	if (datagram[0] >= sizeof(opcodes) / sizeof(opcodes[0]) || !opcodes[datagram[0]].known)
		return SV_ROCE_UNKNOWN;
	opcode = &opcodes[datagram[0]];
	pad = datagram[1] >> BTH_PAD_SHIFT & 3;
	headers = BTH_BYTES + header_bytes(opcode->headers);
	if (length < headers + pad + SV_ICRC_BYTES || length % 4)
		return SV_ROCE_BAD;
	*pkt = (struct sv_packet){.op = opcode->op, .flags = opcode->flags, .npkts = 1};
	pkt->payload = take_headers(take_bth(datagram, pkt), opcode->headers, pkt);
	pkt->payload_len = (uint32_t)length - headers - pad - SV_ICRC_BYTES;
	if (pkt->payload_len > SV_ROCE_MAX_PAYLOAD ||
	    (!(opcode->headers & PAYLOAD) && (pkt->payload_len || pad)))
		return SV_ROCE_BAD;
	return SV_ROCE_GOOD;
}
