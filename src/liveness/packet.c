/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/packet.h"

#include "base/bytes.h"

/* "HAHB", a version, a kind, two zeros; from, to, sequence number; a checksum of all that. */
#define MAGIC	   0x42484148u
#define VERSION	   1
#define CHECKED_BY 4

void ha_heartbeat_encode(const struct ha_heartbeat *in, uint8_t out[HA_HEARTBEAT_BYTES])
{
	struct ha_writer w = {out};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, VERSION, 1);
	ha_put_uint(&w, in->kind, 1);
	ha_put_zeros(&w, 2);
	ha_put_uint(&w, in->from, 8);
	ha_put_uint(&w, in->to, 8);
	ha_put_uint(&w, in->seq, 8);
	ha_put_uint(&w, ha_checksum(out, HA_HEARTBEAT_BYTES - CHECKED_BY), CHECKED_BY);
}

static bool code_of(const struct ha_job_key *key, const uint8_t *packet, uint8_t *code)
{
	static const char label[] = "nccl-ha heartbeat 1";
	struct ha_hmac mac;

	if (!ha_job_key_begin(key, &mac))
		return false;
	ha_hmac_add(&mac, label, sizeof(label));
	ha_hmac_add(&mac, packet, HA_HEARTBEAT_BYTES);
	ha_hmac_end(&mac, code, HA_HEARTBEAT_SEALED - HA_HEARTBEAT_BYTES);
	return true;
}

bool ha_heartbeat_seal(const struct ha_job_key *key, uint8_t packet[HA_HEARTBEAT_SEALED])
{
	return code_of(key, packet, packet + HA_HEARTBEAT_BYTES);
}

bool ha_heartbeat_is_genuine(const struct ha_job_key *key, const uint8_t *packet, size_t len)
{
	uint8_t code[HA_HEARTBEAT_SEALED - HA_HEARTBEAT_BYTES];

	return len == HA_HEARTBEAT_SEALED && code_of(key, packet, code) &&
	       ha_same_secret(code, packet + HA_HEARTBEAT_BYTES, sizeof(code));
}

bool ha_heartbeat_decode(const uint8_t *in, size_t len, struct ha_heartbeat *out)
{
	struct ha_reader r = {in};

	if (len != HA_HEARTBEAT_BYTES || ha_get32(&r) != MAGIC || ha_get8(&r) != VERSION)
		return false;
	out->kind = ha_get8(&r);
	ha_get16(&r);
	out->from = ha_get64(&r);
	out->to = ha_get64(&r);
	out->seq = ha_get64(&r);
	return (out->kind == HA_HEARTBEAT_PING || out->kind == HA_HEARTBEAT_PONG) &&
	       ha_get32(&r) == ha_checksum(in, HA_HEARTBEAT_BYTES - CHECKED_BY);
}
