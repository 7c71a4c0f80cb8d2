/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/message.h"

#include "base/bytes.h"
#include "failover/port_offer.h"
#include "transport/rings.h"

_Static_assert(HA_MESSAGE_MAX_BYTES == HA_MAILBOX_EXPECTED, "a message fits into a mailbox");

#define MESSAGE_MAGIC 0x4d41484eu /* "NHAM" */
#define SUM_OFFSET    4
#define SUMMED_FROM   8

static const char *const names[HA_MSG_END] = {
#define HA_MESSAGE_NAME(name, number) [HA_MSG_##name] = #name,
    HA_MESSAGES(HA_MESSAGE_NAME)
#undef HA_MESSAGE_NAME
};

const char *ha_message_name(unsigned kind)
{
	return kind < HA_MSG_END && names[kind] ? names[kind] : "unknown";
}

/* What follows the part that all kinds have. */
static size_t tail_bytes(unsigned kind, bool has_endpoint)
{
	if (has_endpoint)
		return HA_ENDPOINT_BYTES;
	return kind == HA_MSG_SHED     ? HA_MESSAGE_SHED
	       : kind == HA_MSG_MENDED ? HA_MESSAGE_MENDED
				       : 0;
}

static void put_tail(struct ha_writer *w, const struct ha_message *in)
{
	if (in->has_endpoint) {
		ha_put_endpoint(w, &in->endpoint);
	} else if (in->kind == HA_MSG_SHED) {
		ha_put_uint(w, in->lost, 1);
		ha_put_uint(w, in->drained, 1);
		ha_put_uint(w, 0, 6);
		for (int i = 0; i < HA_MAX_PATHS; i++)
			ha_put_uint(w, in->seen[i], 8);
	} else if (in->kind == HA_MSG_MENDED) {
		for (int i = 0; i < HA_MAX_PATHS; i++)
			ha_put_uint(w, in->mended_gen[i], 4);
	}
}

static void get_tail(struct ha_reader *r, struct ha_message *out)
{
	if (out->has_endpoint) {
		ha_get_endpoint(r, &out->endpoint);
	} else if (out->kind == HA_MSG_SHED) {
		out->lost = ha_get8(r);
		out->drained = ha_get8(r);
		(void)ha_get16(r);
		(void)ha_get32(r);
		for (int i = 0; i < HA_MAX_PATHS; i++)
			out->seen[i] = ha_get64(r);
	} else if (out->kind == HA_MSG_MENDED) {
		for (int i = 0; i < HA_MAX_PATHS; i++)
			out->mended_gen[i] = ha_get32(r);
	}
}

size_t ha_message_encode(const struct ha_message *in, uint8_t out[HA_MESSAGE_MAX_BYTES])
{
	struct ha_writer w = {out}, sum = {out + SUM_OFFSET};
	size_t length = HA_MESSAGE_BYTES + tail_bytes(in->kind, in->has_endpoint);

	ha_put_uint(&w, MESSAGE_MAGIC, 4);
	ha_put_uint(&w, 0, 4);
	ha_put_uint(&w, in->kind, 1);
	ha_put_uint(&w, in->reason, 1);
	ha_put_uint(&w, in->path, 1);
	ha_put_uint(&w, in->port, 1);
	ha_put_uint(&w, in->peer_port, 1);
	ha_put_uint(&w, in->has_endpoint, 1);
	ha_put_uint(&w, in->code, 2);
	ha_put_uint(&w, in->epoch, 4);
	ha_put_uint(&w, in->serial, 4);
	ha_put_uint(&w, in->generation, 4);
	ha_put_uint(&w, in->ports_up, 2);
	ha_put_uint(&w, in->ports_drained, 2);
	for (int i = 0; i < HA_MAX_PATHS; i++)
		ha_put_uint(&w, in->fenced_gen[i], 4);
	for (int i = 0; i < HA_MAX_PATHS; i++)
		ha_put_uint(&w, in->yielded_gen[i], 4);
	ha_put_uint(&w, in->window.base, 8);
	ha_put_uint(&w, in->window.bits, 8);
	ha_put_uint(&w, in->rto_ms, 4);
	ha_put_uint(&w, length, 4);
	put_tail(&w, in);
	ha_put_uint(&sum, ha_checksum(out + SUMMED_FROM, length - SUMMED_FROM), 4);
	return length;
}

static bool names_a_path(unsigned kind)
{
	return kind == HA_MSG_SUSPECT || kind == HA_MSG_RESUME || kind == HA_MSG_REBUILD ||
	       kind == HA_MSG_REBUILT || kind == HA_MSG_REFUSED;
}

/* Its endpoint is one, and of the path that it names. */
static bool is_end_of_path(const struct ha_message *m)
{
	return ha_endpoint_valid(&m->endpoint) && m->endpoint.path == m->path &&
	       m->endpoint.generation == (uint16_t)m->generation;
}

/* What is final is lost, what is lost had a generation, and what is done has no stripes. */
static bool is_shed(const struct ha_message *m)
{
	if (m->has_endpoint || m->lost == 0 || m->lost >> HA_MAX_PATHS != 0 ||
	    (m->drained & ~m->lost) != 0)
		return false;
	for (int i = 0; i < HA_MAX_PATHS; i++)
		if ((m->lost >> i & 1 && m->fenced_gen[i] == 0) || m->seen[i] & m->window.bits)
			return false;
	return true;
}

/* Nothing is posted again that may still be read, or counted. */
static bool is_mended(const struct ha_message *m)
{
	for (int i = 0; i < HA_MAX_PATHS; i++)
		if (m->mended_gen[i] > m->fenced_gen[i] && m->mended_gen[i] > m->yielded_gen[i])
			return false;
	return !m->has_endpoint;
}

static bool valid(const struct ha_message *m)
{
	if (m->kind == 0 || m->kind >= HA_MSG_END)
		return false;
	if (names_a_path(m->kind) && (m->path >= HA_MAX_PATHS || m->generation == 0))
		return false;
	if ((m->kind == HA_MSG_REBUILD || m->kind == HA_MSG_REBUILT) && !m->has_endpoint)
		return false;
	if (m->kind == HA_MSG_REBUILD &&
	    (m->port >= HA_MAX_OFFERS || m->peer_port >= HA_MAX_OFFERS))
		return false;
	if (m->has_endpoint && !is_end_of_path(m))
		return false;
	if ((m->kind == HA_MSG_SHED && !is_shed(m)) || (m->kind == HA_MSG_MENDED && !is_mended(m)))
		return false;
	return m->window.base != 0;
}

enum ha_wire_result ha_message_decode(const uint8_t *in, size_t len, struct ha_message *out)
{
	struct ha_reader r = {in};
	uint32_t sum, length;

	memset(out, 0, sizeof(*out));
	if (len < HA_MESSAGE_BYTES)
		return HA_WIRE_SHORT;
	if (ha_get32(&r) != MESSAGE_MAGIC)
		return HA_WIRE_MAGIC;
	sum = ha_get32(&r);
	out->kind = ha_get8(&r);
	out->reason = ha_get8(&r);
	out->path = ha_get8(&r);
	out->port = ha_get8(&r);
	out->peer_port = ha_get8(&r);
	out->has_endpoint = ha_get8(&r) != 0;
	out->code = ha_get16(&r);
	out->epoch = ha_get32(&r);
	out->serial = ha_get32(&r);
	out->generation = ha_get32(&r);
	out->ports_up = ha_get16(&r);
	out->ports_drained = ha_get16(&r);
	for (int i = 0; i < HA_MAX_PATHS; i++)
		out->fenced_gen[i] = ha_get32(&r);
	for (int i = 0; i < HA_MAX_PATHS; i++)
		out->yielded_gen[i] = ha_get32(&r);
	out->window.base = ha_get64(&r);
	out->window.bits = ha_get64(&r);
	out->rto_ms = ha_get32(&r);
	length = ha_get32(&r);
	if (length > len || length < HA_MESSAGE_BYTES + tail_bytes(out->kind, out->has_endpoint))
		return HA_WIRE_SHORT;
	if (sum != ha_checksum(in + SUMMED_FROM, length - SUMMED_FROM))
		return HA_WIRE_CHECKSUM;
	get_tail(&r, out);
	return valid(out) ? HA_WIRE_OK : HA_WIRE_BAD_VALUE;
}
