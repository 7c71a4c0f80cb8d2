/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/wire.h"

#include "base/bytes.h"

#include <infiniband/verbs.h>

#define MAGIC	    0x41474249u /* "IBGA" */
#define NUMBER_MOST 0xffffffu	/* of a queue pair, and of a packet */

static void put_address(struct ha_writer *w, const struct ha_ibgda_address *address)
{
	ha_put_uint(w, address->qpn, 4);
	ha_put_uint(w, address->psn, 4);
	ha_put_bytes(w, address->gid, sizeof(address->gid));
	ha_put_uint(w, address->lid, 2);
	ha_put_uint(w, address->mtu, 1);
}

static void get_address(struct ha_reader *r, struct ha_ibgda_address *out)
{
	out->qpn = ha_get32(r);
	out->psn = ha_get32(r);
	ha_get_bytes(r, out->gid, sizeof(out->gid));
	out->lid = ha_get16(r);
	out->mtu = ha_get8(r);
}

void ha_ibgda_wire_encode(const struct ha_ibgda_message *message, uint8_t frame[HA_IBGDA_FRAME])
{
	struct ha_writer w = {frame};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, message->version, 2);
	ha_put_uint(&w, message->kind, 2);
	ha_put_uint(&w, message->pair, 4);
	ha_put_uint(&w, message->nic, 4);
	put_address(&w, &message->address);
	ha_put_uint(&w, message->is_flushed, 1);
	ha_put_uint(&w, message->cells_addr, 8);
	ha_put_uint(&w, message->cells_key, 4);
	for (unsigned int region = 0; region < HA_IBGDA_REGIONS; region++)
		ha_put_uint(&w, message->keys[region], 4);
	for (unsigned int id = 0; id < HA_IBGDA_IDS; id++)
		ha_put_uint(&w, message->cells[id], 8);
	ha_put_uint(&w, ha_checksum(frame, HA_IBGDA_FRAME - 4), 4);
}

static bool is_address(const struct ha_ibgda_address *address)
{
	return address->qpn > 0 && address->qpn <= NUMBER_MOST && address->psn <= NUMBER_MOST &&
	       address->mtu >= IBV_MTU_256 && address->mtu <= IBV_MTU_4096;
}

static bool is_sense(const struct ha_ibgda_message *message)
{
	switch ((enum ha_ibgda_kind)message->kind) {
	case HA_IBGDA_OPEN:
	case HA_IBGDA_OPENED:
		return message->pair != 0 && is_address(&message->address);
	case HA_IBGDA_REFUSED:
	case HA_IBGDA_CLOSE:
	case HA_IBGDA_VERDICT:
		return message->pair != 0 && message->is_flushed <= 1;
	case HA_IBGDA_SUSPECT:
		return true;
	case HA_IBGDA_KINDS:
		break;
	}
	return false;
}

bool ha_ibgda_wire_decode(const uint8_t frame[HA_IBGDA_FRAME], struct ha_ibgda_message *out)
{
	struct ha_reader r = {frame}, end = {frame + HA_IBGDA_FRAME - 4};

	*out = (struct ha_ibgda_message){0};
	if (ha_get32(&r) != MAGIC || ha_get32(&end) != ha_checksum(frame, HA_IBGDA_FRAME - 4))
		return false;
	out->version = ha_get16(&r);
	out->kind = ha_get16(&r);
	out->pair = ha_get32(&r);
	out->nic = ha_get32(&r);
	get_address(&r, &out->address);
	out->is_flushed = ha_get8(&r);
	out->cells_addr = ha_get64(&r);
	out->cells_key = ha_get32(&r);
	for (unsigned int region = 0; region < HA_IBGDA_REGIONS; region++)
		out->keys[region] = ha_get32(&r);
	for (unsigned int id = 0; id < HA_IBGDA_IDS; id++)
		out->cells[id] = ha_get64(&r);
	return out->version == HA_IBGDA_VERSION && is_sense(out);
}
