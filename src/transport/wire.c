/* SPDX-License-Identifier: Apache-2.0 */
/* Encoders and decoders of wire.h. No input and no allocation beyond the arguments. */
#include "transport/wire.h"

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
	case HA_WIRE_BAD_VALUE:
		return "a field out of range";
	}
	return "unknown";
}

/* ---- a cursor over a buffer whose length was checked ---------------------------------------- */

struct writer {
	uint8_t *at;
};

static void put_bytes(struct writer *w, const void *data, size_t len)
{
	memcpy(w->at, data, len);
	w->at += len;
}

static void put_zeros(struct writer *w, size_t len)
{
	memset(w->at, 0, len);
	w->at += len;
}

static void put_uint(struct writer *w, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*w->at++ = (uint8_t)(value >> (8 * i));
}

struct reader {
	const uint8_t *at;
};

static void get_bytes(struct reader *r, void *out, size_t len)
{
	memcpy(out, r->at, len);
	r->at += len;
}

static uint64_t get_uint(struct reader *r, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)*r->at++ << (8 * i);
	return value;
}

static uint8_t get8(struct reader *r)
{
	return (uint8_t)get_uint(r, 1);
}

static uint16_t get16(struct reader *r)
{
	return (uint16_t)get_uint(r, 2);
}

static uint32_t get32(struct reader *r)
{
	return (uint32_t)get_uint(r, 4);
}

static uint64_t get64(struct reader *r)
{
	return get_uint(r, 8);
}

/* Text for logs only: whatever is not printable becomes '?'. */
static void get_text(struct reader *r, char *out, size_t len)
{
	size_t used;

	get_bytes(r, out, len);
	used = strnlen(out, len - 1);
	memset(out + used, 0, len - used);
	for (char *c = out; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
}

static void put_text(struct writer *w, const char *text, size_t len)
{
	size_t used = strnlen(text, len - 1);

	put_bytes(w, text, used);
	put_zeros(w, len - used);
}

/* FNV-1a: tells a damaged or foreign handle from ours; nothing here needs more. */
static uint32_t checksum(const uint8_t *data, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ data[i]) * 16777619u;
	return hash;
}

/* ---- handle ------------------------------------------------------------------------------ */

#define HANDLE_SUMMED 40 /* bytes under the checksum */

void ha_handle_encode(const struct ha_handle *in, uint8_t out[HA_HANDLE_BYTES])
{
	struct writer w = {out};
	bool v6 = in->addr.sa.sa_family == AF_INET6;
	const struct sockaddr_in *in4 = &in->addr.in;
	const struct sockaddr_in6 *in6 = &in->addr.in6;

	put_uint(&w, HANDLE_MAGIC, 4);
	put_uint(&w, in->version, 2);
	put_uint(&w, in->flags, 2);
	put_uint(&w, in->cookie, 8);
	put_uint(&w, v6 ? 6 : 4, 1);
	put_uint(&w, 0, 1);
	put_uint(&w, ntohs(v6 ? in6->sin6_port : in4->sin_port), 2);
	put_uint(&w, v6 ? in6->sin6_scope_id : 0, 4);
	if (v6) {
		put_bytes(&w, &in6->sin6_addr, 16);
	} else {
		put_bytes(&w, &in4->sin_addr, 4);
		put_zeros(&w, 12);
	}
	put_uint(&w, checksum(out, HANDLE_SUMMED), 4);
	put_zeros(&w, HA_HANDLE_BYTES - (size_t)(w.at - out));
}

enum ha_wire_result ha_handle_decode(const uint8_t in[HA_HANDLE_BYTES], struct ha_handle *out)
{
	struct reader r = {in};
	struct sockaddr_in *in4 = &out->addr.in;
	struct sockaddr_in6 *in6 = &out->addr.in6;
	uint8_t family;
	uint16_t port;
	uint32_t scope;

	memset(out, 0, sizeof(*out));
	if (get32(&r) != HANDLE_MAGIC)
		return HA_WIRE_MAGIC;
	out->version = get16(&r);
	out->flags = get16(&r);
	out->cookie = get64(&r);
	family = get8(&r);
	get8(&r);
	port = get16(&r);
	scope = get32(&r);
	if (family == 6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		in6->sin6_scope_id = scope;
		get_bytes(&r, &in6->sin6_addr, 16);
	} else {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(port);
		get_bytes(&r, &in4->sin_addr, 4);
		r.at += 12;
	}
	if (get32(&r) != checksum(in, HANDLE_SUMMED))
		return HA_WIRE_CHECKSUM;
	if ((family != 4 && family != 6) || port == 0)
		return HA_WIRE_BAD_VALUE;
	return HA_WIRE_OK;
}

uint64_t ha_handle_attempt(const uint8_t handle[HA_HANDLE_BYTES])
{
	struct reader r = {handle + HA_HANDLE_STATE_OFFS};

	return get64(&r);
}

void ha_handle_set_attempt(uint8_t handle[HA_HANDLE_BYTES], uint64_t attempt)
{
	struct writer w = {handle + HA_HANDLE_STATE_OFFS};

	put_uint(&w, attempt, 8);
}

/* ---- frames ------------------------------------------------------------------------------ */

void ha_frame_header_encode(const struct ha_frame_header *in, uint8_t out[HA_FRAME_HEADER])
{
	struct writer w = {out};

	put_uint(&w, FRAME_MAGIC, 4);
	put_uint(&w, in->type, 2);
	put_uint(&w, 0, 2);
	put_uint(&w, in->length, 4);
	put_uint(&w, 0, 4);
}

enum ha_wire_result ha_frame_header_decode(const uint8_t *in, size_t len,
					   struct ha_frame_header *out)
{
	struct reader r = {in};

	/* A stranger is known by its first four bytes; don't wait for the rest. */
	if (len >= 4) {
		if (get32(&r) != FRAME_MAGIC)
			return HA_WIRE_MAGIC;
	}
	if (len < HA_FRAME_HEADER)
		return HA_WIRE_SHORT;
	out->type = get16(&r);
	get16(&r);
	out->length = get32(&r);
	if (out->length > HA_FRAME_MAX_PAYLOAD)
		return HA_WIRE_TOO_LONG;
	return HA_WIRE_OK;
}

/* ---- hello ------------------------------------------------------------------------------- */

static void put_endpoint(struct writer *w, const struct ha_wire_endpoint *e)
{
	put_uint(w, e->path, 1);
	put_uint(w, e->port_num, 1);
	put_uint(w, e->generation, 2);
	put_uint(w, e->link_layer, 1);
	put_uint(w, e->mtu, 1);
	put_uint(w, e->sl, 1);
	put_uint(w, e->traffic_class, 1);
	put_uint(w, e->nqps, 1);
	put_uint(w, 0, 1);
	put_uint(w, e->lid, 2);
	put_uint(w, 0, 4);
	put_bytes(w, e->gid, sizeof(e->gid));
	put_uint(w, e->guid, 8);
	put_uint(w, e->max_message, 8);
	put_uint(w, e->ring_addr, 8);
	put_uint(w, e->ring_rkey, 4);
	put_uint(w, e->ring_length, 4);
	put_text(w, e->device, sizeof(e->device));
	for (int i = 0; i < HA_WIRE_MAX_QPS; i++) {
		put_uint(w, e->qps[i].qpn, 4);
		put_uint(w, e->qps[i].psn, 4);
	}
}

static void get_endpoint(struct reader *r, struct ha_wire_endpoint *e)
{
	e->path = get8(r);
	e->port_num = get8(r);
	e->generation = get16(r);
	e->link_layer = get8(r);
	e->mtu = get8(r);
	e->sl = get8(r);
	e->traffic_class = get8(r);
	e->nqps = get8(r);
	get8(r);
	e->lid = get16(r);
	get32(r);
	get_bytes(r, e->gid, sizeof(e->gid));
	e->guid = get64(r);
	e->max_message = get64(r);
	e->ring_addr = get64(r);
	e->ring_rkey = get32(r);
	e->ring_length = get32(r);
	get_text(r, e->device, sizeof(e->device));
	for (int i = 0; i < HA_WIRE_MAX_QPS; i++) {
		e->qps[i].qpn = get32(r);
		e->qps[i].psn = get32(r);
	}
}

static bool endpoint_valid(const struct ha_wire_endpoint *e)
{
	if (e->nqps < 1 || e->nqps > HA_WIRE_MAX_QPS)
		return false;
	if (e->mtu < IBV_MTU_256 || e->mtu > IBV_MTU_4096)
		return false;
	if (e->link_layer != IBV_LINK_LAYER_INFINIBAND && e->link_layer != IBV_LINK_LAYER_ETHERNET)
		return false;
	if (e->sl > 15 || e->max_message == 0)
		return false;
	for (int i = 0; i < e->nqps; i++)
		if (e->qps[i].qpn == 0 || e->qps[i].qpn > 0xffffff || e->qps[i].psn > 0xffffff)
			return false;
	return true;
}

void ha_hello_encode(const struct ha_hello *in, uint8_t out[HA_HELLO_BYTES])
{
	struct writer w = {out};

	put_uint(&w, in->cookie, 8);
	put_uint(&w, in->version, 2);
	put_uint(&w, in->min_version, 2);
	put_uint(&w, in->max_recvs, 2);
	put_uint(&w, in->window, 2);
	put_uint(&w, in->features, 8);
	put_uint(&w, in->connection_id, 8);
	put_uint(&w, in->pid, 4);
	put_uint(&w, 0, 4);
	put_text(&w, in->host, sizeof(in->host));
	put_endpoint(&w, &in->endpoint);
	put_zeros(&w, HA_HELLO_BYTES - (size_t)(w.at - out));
}

enum ha_wire_result ha_hello_decode(const uint8_t *in, size_t len, struct ha_hello *out)
{
	struct reader r = {in};

	memset(out, 0, sizeof(*out));
	if (len < HA_HELLO_BYTES)
		return HA_WIRE_SHORT;
	out->cookie = get64(&r);
	out->version = get16(&r);
	out->min_version = get16(&r);
	out->max_recvs = get16(&r);
	out->window = get16(&r);
	out->features = get64(&r);
	out->connection_id = get64(&r);
	out->pid = get32(&r);
	get32(&r);
	get_text(&r, out->host, sizeof(out->host));
	get_endpoint(&r, &out->endpoint);
	if (out->version == 0 || out->min_version == 0 || out->min_version > out->version)
		return HA_WIRE_BAD_VALUE;
	if (out->max_recvs < 1 || out->window < HA_MAX_OUTSTANDING ||
	    (out->window & (out->window - 1)) != 0)
		return HA_WIRE_BAD_VALUE;
	if (!endpoint_valid(&out->endpoint))
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
	struct writer w = {out};

	put_uint(&w, in->reason, 2);
	put_uint(&w, in->version, 2);
	put_uint(&w, in->min_version, 2);
	put_uint(&w, 0, 2);
}

enum ha_wire_result ha_reject_decode(const uint8_t *in, size_t len, struct ha_reject *out)
{
	struct reader r = {in};

	if (len < HA_REJECT_BYTES)
		return HA_WIRE_SHORT;
	out->reason = get16(&r);
	out->version = get16(&r);
	out->min_version = get16(&r);
	return HA_WIRE_OK;
}

void ha_bye_encode(const struct ha_bye *in, uint8_t out[HA_BYE_BYTES])
{
	struct writer w = {out};

	put_uint(&w, in->done, 8);
	put_uint(&w, in->done_bits, 8);
}

enum ha_wire_result ha_bye_decode(const uint8_t *in, size_t len, struct ha_bye *out)
{
	struct reader r = {in};

	if (len < HA_BYE_BYTES)
		return HA_WIRE_SHORT;
	out->done = get64(&r);
	out->done_bits = get64(&r);
	return HA_WIRE_OK;
}

void ha_abort_encode(const struct ha_abort *in, uint8_t out[HA_ABORT_BYTES])
{
	struct writer w = {out};

	put_uint(&w, in->epoch, 4);
	put_uint(&w, in->code, 2);
	put_uint(&w, 0, 2);
}

enum ha_wire_result ha_abort_decode(const uint8_t *in, size_t len, struct ha_abort *out)
{
	struct reader r = {in};

	if (len < HA_ABORT_BYTES)
		return HA_WIRE_SHORT;
	out->epoch = get32(&r);
	out->code = get16(&r);
	return HA_WIRE_OK;
}
