/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/port_offer.h"

#include "base/bytes.h"

static void put_offer(struct ha_writer *w, const struct ha_offer *o)
{
	ha_put_uint(w, o->link_layer, 1);
	ha_put_uint(w, o->port_num, 1);
	ha_put_uint(w, o->up, 1);
	ha_put_uint(w, 0, 1);
	ha_put_uint(w, o->lid, 2);
	ha_put_uint(w, 0, 2);
	ha_put_uint(w, o->speed_mbps, 4);
	ha_put_uint(w, o->live_qpn, 4);
	ha_put_uint(w, o->live_id, 8);
	ha_put_uint(w, o->guid, 8);
	ha_put_bytes(w, o->gid, sizeof(o->gid));
	ha_put_text(w, o->device, sizeof(o->device));
}

static void get_offer(struct ha_reader *r, struct ha_offer *o)
{
	o->link_layer = ha_get8(r);
	o->port_num = ha_get8(r);
	o->up = ha_get8(r);
	ha_get8(r);
	o->lid = ha_get16(r);
	ha_get16(r);
	o->speed_mbps = ha_get32(r);
	o->live_qpn = ha_get32(r);
	o->live_id = ha_get64(r);
	o->guid = ha_get64(r);
	ha_get_bytes(r, o->gid, sizeof(o->gid));
	ha_get_text(r, o->device, sizeof(o->device));
}

size_t ha_port_offers_encode(const struct ha_port_offers *in, uint8_t out[HA_PORT_OFFERS_MAX_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->count, 1);
	ha_put_uint(&w, in->rails, 1);
	ha_put_zeros(&w, 6);
	for (unsigned i = 0; i < in->count; i++)
		put_offer(&w, &in->offers[i]);
	return (size_t)(w.at - out);
}

enum ha_wire_result ha_port_offers_decode(const uint8_t *in, size_t len, struct ha_port_offers *out)
{
	struct ha_reader r = {in};
	unsigned said, rails;

	memset(out, 0, sizeof(*out));
	if (len < 8)
		return HA_WIRE_SHORT;
	said = ha_get8(&r);
	rails = ha_get8(&r);
	r.at += 6;
	if (len < 8 + (size_t)said * HA_OFFER_BYTES)
		return HA_WIRE_SHORT;
	if (said == 0 || rails > said)
		return HA_WIRE_BAD_VALUE;
	out->rails = (uint8_t)rails;
	out->count = (uint8_t)(said < HA_MAX_OFFERS ? said : HA_MAX_OFFERS);
	for (unsigned i = 0; i < out->count; i++) {
		get_offer(&r, &out->offers[i]);
		if (out->offers[i].live_qpn > 0xffffff)
			return HA_WIRE_BAD_VALUE;
	}
	return HA_WIRE_OK;
}
