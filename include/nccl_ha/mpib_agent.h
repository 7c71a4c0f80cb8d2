/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent of a host and network plugins with two rails (MPIB) say to each other. The agent
 * decides how much of a flow's messages goes over the second rail ("SUP") in place of the first
 * one ("SOUT"); plugins read that for each message. Any agent and any plugin that keep to these
 * bytes go together.
 *
 * All is in one directory, MPIB_AGENT_DIR unless both are told another one:
 *
 *  - `hints`, a file of MPIB_HINT_BYTES that the agent writes and plugins read: one entry for each
 *    flow, that is for each pair of SOUT addresses;
 *  - `agent.sock`, a listening AF_UNIX stream socket: a plugin dials it for each request, says it,
 *    reads the answer, and hangs up.
 *
 * Numbers are little-endian. Addresses are IPv4, in network byte order.
 */
#ifndef NCCL_HA_MPIB_AGENT_H
#define NCCL_HA_MPIB_AGENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define MPIB_STATIC_ASSERT static_assert
#else
#define MPIB_STATIC_ASSERT _Static_assert
#endif

#define MPIB_AGENT_DIR	  "/tmp/mpib"
#define MPIB_AGENT_HINTS  "hints"
#define MPIB_AGENT_SOCKET "agent.sock"

/* ---- hints ----------------------------------------------------------------------------------- */

#define MPIB_HINT_MAGIC	      0x4D504948u /* "MPIH" as a number: in the file 48 49 50 4D */
#define MPIB_HINT_MAX_ENTRIES 256
#define MPIB_HINT_BYTES	      4112
#define MPIB_HINT_ALL	      1024u /* parts of a message: what is more means all, too */

struct mpib_hint_header {
	uint32_t magic;
	uint32_t max_entries; /* MPIB_HINT_MAX_ENTRIES */
	uint8_t zero[8];
};

/*
 * The writer makes seq odd, writes, and makes it even again, the next number but one. A reader has
 * a whole entry if seq was even and the same before and after.
 */
struct mpib_hint_entry {
	uint32_t sup_bw; /* SUP's part of each message, of 1024: 0 none, 1024 all of it */
	uint32_t seq;
	uint32_t src_ip, dst_ip; /* SOUT's */
};

struct mpib_hint_shm {
	struct mpib_hint_header header;
	struct mpib_hint_entry entries[MPIB_HINT_MAX_ENTRIES];
};

/* ---- requests -------------------------------------------------------------------------------- */

#define MPIB_AGENT_MAGIC 0x4D504952u /* "MPIR" as a number */

enum mpib_agent_type {
	MPIB_AGENT_REGISTER = 1,
	MPIB_AGENT_DEREGISTER = 2,
	MPIB_AGENT_RESPONSE = 128,
};

enum mpib_agent_status {
	MPIB_AGENT_OK = 0,
	MPIB_AGENT_NO_FREE_SLOTS = 1,
	MPIB_AGENT_INVALID = 2,
};

struct mpib_agent_header {
	uint32_t magic;
	uint16_t length; /* of all of it, with this header */
	uint8_t type;	 /* enum mpib_agent_type */
	uint8_t zero;
};

/* A connection has come up. */
struct mpib_agent_register {
	struct mpib_agent_header header;
	uint32_t conn_id; /* pid << 16 | a number of 16 bits that the process counts */
	uint32_t sout_src_ip, sout_dst_ip, sup_src_ip, sup_dst_ip;
};

/* It is gone. */
struct mpib_agent_deregister {
	struct mpib_agent_header header;
	uint32_t conn_id;
};

/* The answer to REGISTER. That to DEREGISTER ends before hint_slot. */
struct mpib_agent_response {
	struct mpib_agent_header header;
	uint8_t status; /* enum mpib_agent_status */
	uint8_t zero[3];
	uint32_t hint_slot; /* index of the entry, if the status is OK */
};

/* ---- every offset, since others were compiled with theirs ------------------------------------ */

#define MPIB_AT(type, field, offset)                                                               \
	MPIB_STATIC_ASSERT(offsetof(struct type, field) == (offset), #type "." #field)
#define MPIB_SIZE(type, size) MPIB_STATIC_ASSERT(sizeof(struct type) == (size), #type)

MPIB_STATIC_ASSERT(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is mapped as it is");
MPIB_AT(mpib_hint_header, magic, 0);
MPIB_AT(mpib_hint_header, max_entries, 4);
MPIB_AT(mpib_hint_header, zero, 8);
MPIB_SIZE(mpib_hint_header, 16);
MPIB_AT(mpib_hint_entry, sup_bw, 0);
MPIB_AT(mpib_hint_entry, seq, 4);
MPIB_AT(mpib_hint_entry, src_ip, 8);
MPIB_AT(mpib_hint_entry, dst_ip, 12);
MPIB_SIZE(mpib_hint_entry, 16);
MPIB_AT(mpib_hint_shm, header, 0);
MPIB_AT(mpib_hint_shm, entries, 16);
MPIB_SIZE(mpib_hint_shm, MPIB_HINT_BYTES);
MPIB_AT(mpib_agent_header, magic, 0);
MPIB_AT(mpib_agent_header, length, 4);
MPIB_AT(mpib_agent_header, type, 6);
MPIB_AT(mpib_agent_header, zero, 7);
MPIB_SIZE(mpib_agent_header, 8);
MPIB_AT(mpib_agent_register, header, 0);
MPIB_AT(mpib_agent_register, conn_id, 8);
MPIB_AT(mpib_agent_register, sout_src_ip, 12);
MPIB_AT(mpib_agent_register, sout_dst_ip, 16);
MPIB_AT(mpib_agent_register, sup_src_ip, 20);
MPIB_AT(mpib_agent_register, sup_dst_ip, 24);
MPIB_SIZE(mpib_agent_register, 28);
MPIB_AT(mpib_agent_deregister, header, 0);
MPIB_AT(mpib_agent_deregister, conn_id, 8);
MPIB_SIZE(mpib_agent_deregister, 12);
MPIB_AT(mpib_agent_response, header, 0);
MPIB_AT(mpib_agent_response, status, 8);
MPIB_AT(mpib_agent_response, zero, 9);
MPIB_AT(mpib_agent_response, hint_slot, 12);
MPIB_SIZE(mpib_agent_response, 16);

#undef MPIB_AT
#undef MPIB_SIZE
#undef MPIB_STATIC_ASSERT

#ifdef __cplusplus
}
#endif

#endif
