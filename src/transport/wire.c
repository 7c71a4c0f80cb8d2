/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders and decoders of wire.h. No input and no allocation beyond the arguments. */
#include "transport/wire.h"

#include "base/bytes.h"
#include "transport/rings.h"

#include <infiniband/verbs.h>
#include <string.h>

#define HANDLE_MAGIC 0x4841484eu /* "NHAH" */
#define FRAME_MAGIC  0x4641484eu /* "NHAF" */

const char *ha_wire_strerror(enum ha_wire_result result)
{
	switch (result) {
	case HA_WIRE_OK:
		return "no error";
	case HA_WIRE_SHORT:
		return "too short";
	case HA_WIRE_MAGIC:
		return "not from this plugin (wrong magic)";
	case HA_WIRE_CHECKSUM:
		return "damaged (wrong checksum)";
	case HA_WIRE_UNSUPPORTED:
		return "a protocol version that is not supported";
	case HA_WIRE_TOO_LONG:
		return "too long";
	case HA_WIRE_FORGED:
		return "not the peer's (said again, altered, or by somebody without its key)";
	case HA_WIRE_BAD_VALUE:
		return "a field out of range";
	}
	return "unknown";
}

/* ---- addresses --------------------------------------------------------------------------- */

void ha_put_address(struct ha_writer *w, const union ha_sockaddr *addr)
{
	bool v6 = addr->sa.sa_family == AF_INET6;
	const struct sockaddr_in *in4 = &addr->in;
	const struct sockaddr_in6 *in6 = &addr->in6;

	ha_put_uint(w, v6 ? 6 : 4, 1);
	ha_put_uint(w, 0, 1);
	ha_put_uint(w, ntohs(v6 ? in6->sin6_port : in4->sin_port), 2);
	ha_put_uint(w, v6 ? in6->sin6_scope_id : 0, 4);
	if (v6) {
		ha_put_bytes(w, &in6->sin6_addr, 16);
	} else {
		ha_put_bytes(w, &in4->sin_addr, 4);
		ha_put_zeros(w, 12);
	}
}

bool ha_get_address(struct ha_reader *r, union ha_sockaddr *addr)
{
	uint8_t family = ha_get8(r);
	uint16_t port;
	uint32_t scope;

	memset(addr, 0, sizeof(*addr));
	ha_get8(r);
	port = ha_get16(r);
	scope = ha_get32(r);
	if (family == 6) {
		addr->in6.sin6_family = AF_INET6;
		addr->in6.sin6_port = htons(port);
		addr->in6.sin6_scope_id = scope;
		ha_get_bytes(r, &addr->in6.sin6_addr, 16);
	} else {
		addr->in.sin_family = AF_INET;
		addr->in.sin_port = htons(port);
		ha_get_bytes(r, &addr->in.sin_addr, 4);
		r->at += 12;
	}
	return (family == 4 || family == 6) && port != 0;
}

/* ---- handle ------------------------------------------------------------------------------ */

#define HANDLE_SUMMED 64 /* bytes under the checksum */
_Static_assert(HANDLE_SUMMED + 4 <= HA_HANDLE_STATE_OFFS &&
		   HA_HANDLE_STATE_OFFS + 8 <= HA_HANDLE_BYTES,
	       "the connector's own state is behind what the listener says");

void ha_handle_encode(const struct ha_handle *in, uint8_t out[HA_HANDLE_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, HANDLE_MAGIC, 4);
	ha_put_uint(&w, in->version, 2);
	ha_put_uint(&w, in->flags, 2);
	ha_put_uint(&w, in->secrets.ask, 8);
	ha_put_address(&w, &in->addr);
	ha_put_uint(&w, in->secrets.answer, 8);
	ha_put_bytes(&w, in->gid, sizeof(in->gid));
	ha_put_uint(&w, ha_checksum(out, HANDLE_SUMMED), 4);
	ha_put_zeros(&w, HA_HANDLE_BYTES - (size_t)(w.at - out));
}

enum ha_wire_result ha_handle_decode(const uint8_t in[HA_HANDLE_BYTES], struct ha_handle *out)
{
	struct ha_reader r = {in};
	bool valid;

	memset(out, 0, sizeof(*out));
	if (ha_get32(&r) != HANDLE_MAGIC)
		return HA_WIRE_MAGIC;
	out->version = ha_get16(&r);
	out->flags = ha_get16(&r);
	out->secrets.ask = ha_get64(&r);
	valid = ha_get_address(&r, &out->addr);
	out->secrets.answer = ha_get64(&r);
	ha_get_bytes(&r, out->gid, sizeof(out->gid));
	if (ha_get32(&r) != ha_checksum(in, HANDLE_SUMMED))
		return HA_WIRE_CHECKSUM;
	return valid && ha_secrets_known(&out->secrets) ? HA_WIRE_OK : HA_WIRE_BAD_VALUE;
}

uint64_t ha_handle_attempt(const uint8_t handle[HA_HANDLE_BYTES])
{
	struct ha_reader r = {handle + HA_HANDLE_STATE_OFFS};

	return ha_get64(&r);
}

void ha_handle_set_attempt(uint8_t handle[HA_HANDLE_BYTES], uint64_t attempt)
{
	struct ha_writer w = {handle + HA_HANDLE_STATE_OFFS};

	ha_put_uint(&w, attempt, 8);
}

/* ---- frames ------------------------------------------------------------------------------ */

void ha_frame_header_encode(const struct ha_frame_header *in, uint8_t out[HA_FRAME_HEADER])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, FRAME_MAGIC, 4);
	ha_put_uint(&w, in->type, 2);
	ha_put_uint(&w, 0, 2);
	ha_put_uint(&w, in->length, 4);
	ha_put_uint(&w, 0, 4);
}

enum ha_wire_result ha_frame_header_decode(const uint8_t *in, size_t len,
					   struct ha_frame_header *out)
{
	struct ha_reader r = {in};

	/* A stranger is known by its first four bytes; don't wait for the rest. */
	if (len >= 4) {
		if (ha_get32(&r) != FRAME_MAGIC)
			return HA_WIRE_MAGIC;
	}
	if (len < HA_FRAME_HEADER)
		return HA_WIRE_SHORT;
	out->type = ha_get16(&r);
	ha_get16(&r);
	out->length = ha_get32(&r);
	if (out->length > HA_FRAME_MAX_PAYLOAD)
		return HA_WIRE_TOO_LONG;
	return HA_WIRE_OK;
}

/* ---- hello ------------------------------------------------------------------------------- */

void ha_put_endpoint(struct ha_writer *w, const struct ha_wire_endpoint *e)
{
	ha_put_uint(w, e->path, 1);
	ha_put_uint(w, e->port_num, 1);
	ha_put_uint(w, e->generation, 2);
	ha_put_uint(w, e->link_layer, 1);
	ha_put_uint(w, e->mtu, 1);
	ha_put_uint(w, e->sl, 1);
	ha_put_uint(w, e->traffic_class, 1);
	ha_put_uint(w, e->nqps, 1);
	ha_put_uint(w, e->ece.known, 1);
	ha_put_uint(w, e->lid, 2);
	ha_put_uint(w, e->ece.options, 4);
	ha_put_bytes(w, e->gid, sizeof(e->gid));
	ha_put_uint(w, e->guid, 8);
	ha_put_uint(w, e->max_message, 8);
	ha_put_uint(w, e->ring_addr, 8);
	ha_put_uint(w, e->ring_rkey, 4);
	ha_put_uint(w, e->ring_length, 4);
	ha_put_text(w, e->device, sizeof(e->device));
	ha_put_uint(w, e->ece.vendor_id, 4);
	ha_put_uint(w, e->ece.comp_mask, 4);
	for (int i = 0; i < HA_WIRE_MAX_QPS; i++) {
		ha_put_uint(w, e->qps[i].qpn, 4);
		ha_put_uint(w, e->qps[i].psn, 4);
	}
}

void ha_get_endpoint(struct ha_reader *r, struct ha_wire_endpoint *e)
{
	e->path = ha_get8(r);
	e->port_num = ha_get8(r);
	e->generation = ha_get16(r);
	e->link_layer = ha_get8(r);
	e->mtu = ha_get8(r);
	e->sl = ha_get8(r);
	e->traffic_class = ha_get8(r);
	e->nqps = ha_get8(r);
	e->ece.known = ha_get8(r) & 1;
	e->lid = ha_get16(r);
	e->ece.options = ha_get32(r);
	ha_get_bytes(r, e->gid, sizeof(e->gid));
	e->guid = ha_get64(r);
	e->max_message = ha_get64(r);
	e->ring_addr = ha_get64(r);
	e->ring_rkey = ha_get32(r);
	e->ring_length = ha_get32(r);
	ha_get_text(r, e->device, sizeof(e->device));
	e->ece.vendor_id = ha_get32(r);
	e->ece.comp_mask = ha_get32(r);
	for (int i = 0; i < HA_WIRE_MAX_QPS; i++) {
		e->qps[i].qpn = ha_get32(r);
		e->qps[i].psn = ha_get32(r);
	}
}

bool ha_endpoint_valid(const struct ha_wire_endpoint *e)
{
	if (e->nqps < 1 || e->nqps > HA_WIRE_MAX_QPS)
		return false;
	if (e->mtu < IBV_MTU_256 || e->mtu > IBV_MTU_4096)
		return false;
	if (e->link_layer != IBV_LINK_LAYER_INFINIBAND && e->link_layer != IBV_LINK_LAYER_ETHERNET)
		return false;
	if (e->sl > 15 || e->max_message == 0 || e->ring_addr == 0)
		return false;
	for (int i = 0; i < e->nqps; i++)
		if (e->qps[i].qpn == 0 || e->qps[i].qpn > 0xffffff || e->qps[i].psn > 0xffffff)
			return false;
	return true;
}

/* The host is not said: it is the one that the first socket goes to. */
static void put_reconnect_at(struct ha_writer *w, const union ha_sockaddr *addr)
{
	bool v6 = addr->sa.sa_family == AF_INET6, v4 = addr->sa.sa_family == AF_INET;

	ha_put_uint(w, v6 ? ntohs(addr->in6.sin6_port) : v4 ? ntohs(addr->in.sin_port) : 0, 2);
	ha_put_uint(w, v6 ? 6 : v4 ? 4 : 0, 1);
	ha_put_uint(w, 0, 1);
}

static void get_reconnect_at(struct ha_reader *r, union ha_sockaddr *addr)
{
	uint16_t port = htons(ha_get16(r));
	uint8_t family = ha_get8(r);

	ha_get8(r);
	if (port == 0)
		return;
	if (family == 6)
		addr->in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
	else if (family == 4)
		addr->in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
}

void ha_hello_encode(const struct ha_hello *in, uint8_t out[HA_HELLO_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->secret, 8);
	ha_put_uint(&w, in->version, 2);
	ha_put_uint(&w, in->min_version, 2);
	ha_put_uint(&w, in->max_recvs, 2);
	ha_put_uint(&w, in->window, 2);
	ha_put_uint(&w, in->features, 8);
	ha_put_uint(&w, in->connection_id, 8);
	ha_put_uint(&w, in->pid, 4);
	put_reconnect_at(&w, &in->reconnect_at.addr);
	ha_put_text(&w, in->host, sizeof(in->host));
	ha_put_endpoint(&w, &in->endpoint);
	ha_put_uint(&w, in->rail, 1);
	ha_put_bytes(&w, in->rail_nqps, sizeof(in->rail_nqps));
	ha_put_uint(&w, in->rail_mode, 1);
	ha_put_uint(&w, in->nrails, 1);
	ha_put_zeros(&w, HA_HELLO_NONCE_OFFS - (size_t)(w.at - out));
	ha_put_bytes(&w, in->nonce, sizeof(in->nonce));
	ha_put_uint(&w, in->reconnect_at.secrets.ask, 8);
	ha_put_uint(&w, in->reconnect_at.secrets.answer, 8);
	ha_put_zeros(&w, HA_HELLO_BYTES - (size_t)(w.at - out));
}

enum ha_wire_result ha_hello_decode(const uint8_t *in, size_t len, struct ha_hello *out)
{
	struct ha_reader r = {in};

	memset(out, 0, sizeof(*out));
	if (len < HA_HELLO_BYTES)
		return HA_WIRE_SHORT;
	out->secret = ha_get64(&r);
	out->version = ha_get16(&r);
	out->min_version = ha_get16(&r);
	out->max_recvs = ha_get16(&r);
	out->window = ha_get16(&r);
	out->features = ha_get64(&r);
	out->connection_id = ha_get64(&r);
	out->pid = ha_get32(&r);
	get_reconnect_at(&r, &out->reconnect_at.addr);
	ha_get_text(&r, out->host, sizeof(out->host));
	ha_get_endpoint(&r, &out->endpoint);
	out->rail = ha_get8(&r);
	ha_get_bytes(&r, out->rail_nqps, sizeof(out->rail_nqps));
	out->rail_mode = ha_get8(&r);
	out->nrails = ha_get8(&r);
	r.at = in + HA_HELLO_NONCE_OFFS;
	ha_get_bytes(&r, out->nonce, sizeof(out->nonce));
	out->reconnect_at.secrets.ask = ha_get64(&r);
	out->reconnect_at.secrets.answer = ha_get64(&r);
	if (out->reconnect_at.addr.sa.sa_family == AF_UNSPEC)
		out->reconnect_at.secrets = (struct ha_secrets){0}; /* they are good for nothing */
	if (out->version == 0 || out->min_version == 0 || out->min_version > out->version)
		return HA_WIRE_BAD_VALUE;
	if (out->max_recvs < 1 || out->window < HA_MAX_OUTSTANDING ||
	    (out->window & (out->window - 1)) != 0)
		return HA_WIRE_BAD_VALUE;
	for (int rail = 0; rail < HA_WIRE_RAILS; rail++)
		if (out->rail_nqps[rail] > HA_WIRE_MAX_QPS)
			return HA_WIRE_BAD_VALUE;
	if (!ha_endpoint_valid(&out->endpoint))
		return HA_WIRE_BAD_VALUE;
	return HA_WIRE_OK;
}

static uint16_t min16(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

enum ha_wire_result ha_hello_agree(const struct ha_hello *local, const struct ha_hello *remote,
				   struct ha_agreement *out)
{
	memset(out, 0, sizeof(*out));
	out->version = min16(local->version, remote->version);
	if (out->version < local->min_version || out->version < remote->min_version)
		return HA_WIRE_UNSUPPORTED;
	out->window = min16(local->window, remote->window);
	out->max_recvs = min16(local->max_recvs, remote->max_recvs);
	out->features = local->features & remote->features;
	out->downgraded = local->version != remote->version || local->features != remote->features;
	return HA_WIRE_OK;
}

/* ---- small frames ------------------------------------------------------------------------ */

void ha_reject_encode(const struct ha_reject *in, uint8_t out[HA_REJECT_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->secret, 8);
	ha_put_uint(&w, in->reason, 2);
	ha_put_uint(&w, in->version, 2);
	ha_put_uint(&w, in->min_version, 2);
	ha_put_uint(&w, in->port_num, 1);
	ha_put_uint(&w, 0, 1);
	ha_put_text(&w, in->device, sizeof(in->device));
	memset(out + HA_REJECT_CODE_OFFS, 0, HA_REJECT_BYTES - HA_REJECT_CODE_OFFS);
}

enum ha_wire_result ha_reject_decode(const uint8_t *in, size_t len, struct ha_reject *out)
{
	struct ha_reader r = {in};

	if (len < HA_REJECT_BYTES)
		return HA_WIRE_SHORT;
	out->secret = ha_get64(&r);
	out->reason = ha_get16(&r);
	out->version = ha_get16(&r);
	out->min_version = ha_get16(&r);
	out->port_num = ha_get8(&r);
	(void)ha_get8(&r);
	ha_get_text(&r, out->device, sizeof(out->device));
	return HA_WIRE_OK;
}

void ha_bye_encode(const struct ha_bye *in, uint8_t out[HA_BYE_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->done, 8);
	ha_put_uint(&w, in->done_bits, 8);
}

enum ha_wire_result ha_bye_decode(const uint8_t *in, size_t len, struct ha_bye *out)
{
	struct ha_reader r = {in};

	if (len < HA_BYE_BYTES)
		return HA_WIRE_SHORT;
	out->done = ha_get64(&r);
	out->done_bits = ha_get64(&r);
	return HA_WIRE_OK;
}

void ha_abort_encode(const struct ha_abort *in, uint8_t out[HA_ABORT_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->epoch, 4);
	ha_put_uint(&w, in->code, 2);
	ha_put_uint(&w, 0, 2);
}

enum ha_wire_result ha_abort_decode(const uint8_t *in, size_t len, struct ha_abort *out)
{
	struct ha_reader r = {in};

	if (len < HA_ABORT_BYTES)
		return HA_WIRE_SHORT;
	out->epoch = ha_get32(&r);
	out->code = ha_get16(&r);
	return HA_WIRE_OK;
}

void ha_rejoin_encode(const struct ha_rejoin *in, uint8_t out[HA_REJOIN_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, in->secret, 8);
	ha_put_uint(&w, in->connection_id, 8);
	ha_put_bytes(&w, in->nonce, sizeof(in->nonce));
	ha_put_uint(&w, in->next.ask, 8);
	ha_put_uint(&w, in->next.answer, 8);
}

enum ha_wire_result ha_rejoin_decode(const uint8_t *in, size_t len, struct ha_rejoin *out)
{
	struct ha_reader r = {in};

	if (len < HA_REJOIN_BYTES)
		return HA_WIRE_SHORT;
	out->secret = ha_get64(&r);
	out->connection_id = ha_get64(&r);
	ha_get_bytes(&r, out->nonce, sizeof(out->nonce));
	out->next.ask = ha_get64(&r);
	out->next.answer = ha_get64(&r);
	return HA_WIRE_OK;
}
