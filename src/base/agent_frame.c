/* SPDX-License-Identifier: Apache-2.0 */
#include "base/agent_frame.h"

#include "base/bytes.h"

#define HEADER	 sizeof(struct mpib_agent_header)
#define SET	 (HEADER + 12)
#define ANSWER	 offsetof(struct mpib_agent_response, hint_slot) /* without a slot */
#define WITH_ALL sizeof(struct mpib_agent_response)

/* 0: no frame is like that. */
static size_t length_of(const struct ha_agent_frame *frame)
{
	switch (frame->type) {
	case MPIB_AGENT_REGISTER:
		return sizeof(struct mpib_agent_register);
	case MPIB_AGENT_DEREGISTER:
		return sizeof(struct mpib_agent_deregister);
	case MPIB_AGENT_RESPONSE:
		return frame->has_slot ? WITH_ALL : ANSWER;
	case HA_AGENT_SET:
		return SET;
	default:
		return 0;
	}
}

/* Addresses are bytes: they lie in the frame as they lie in memory. */
static void put_ip(struct ha_writer *w, uint32_t ip)
{
	ha_put_bytes(w, &ip, sizeof(ip));
}

static uint32_t get_ip(struct ha_reader *r)
{
	uint32_t ip;

	ha_get_bytes(r, &ip, sizeof(ip));
	return ip;
}

size_t ha_agent_encode(const struct ha_agent_frame *frame, uint8_t *out)
{
	const size_t length = length_of(frame);
	struct ha_writer w = {out};

	ha_put_uint(&w, MPIB_AGENT_MAGIC, 4);
	ha_put_uint(&w, length, 2);
	ha_put_uint(&w, frame->type, 1);
	ha_put_zeros(&w, 1);
	switch (frame->type) {
	case MPIB_AGENT_REGISTER:
		ha_put_uint(&w, frame->conn_id, 4);
		put_ip(&w, frame->flow.sout_src_ip);
		put_ip(&w, frame->flow.sout_dst_ip);
		put_ip(&w, frame->flow.sup_src_ip);
		put_ip(&w, frame->flow.sup_dst_ip);
		break;
	case MPIB_AGENT_DEREGISTER:
		ha_put_uint(&w, frame->conn_id, 4);
		break;
	case HA_AGENT_SET:
		put_ip(&w, frame->flow.sout_src_ip);
		put_ip(&w, frame->flow.sout_dst_ip);
		ha_put_uint(&w, frame->share, 4);
		break;
	default:
		ha_put_uint(&w, frame->status, 1);
		ha_put_zeros(&w, 3);
		if (frame->has_slot)
			ha_put_uint(&w, frame->hint_slot, 4);
	}
	return length;
}

static void get_body(struct ha_reader *r, struct ha_agent_frame *frame)
{
	switch (frame->type) {
	case MPIB_AGENT_REGISTER:
		frame->conn_id = ha_get32(r);
		frame->flow.sout_src_ip = get_ip(r);
		frame->flow.sout_dst_ip = get_ip(r);
		frame->flow.sup_src_ip = get_ip(r);
		frame->flow.sup_dst_ip = get_ip(r);
		break;
	case MPIB_AGENT_DEREGISTER:
		frame->conn_id = ha_get32(r);
		break;
	case HA_AGENT_SET:
		frame->flow.sout_src_ip = get_ip(r);
		frame->flow.sout_dst_ip = get_ip(r);
		frame->share = ha_get32(r);
		break;
	default:
		frame->status = ha_get8(r);
		r->at += 3;
		if (frame->has_slot)
			frame->hint_slot = ha_get32(r);
	}
}

int ha_agent_decode(const uint8_t *data, size_t size, struct ha_agent_frame *frame)
{
	struct ha_reader r = {data};
	size_t length;

	*frame = (struct ha_agent_frame){0};
	if (size < HEADER)
		return 0;
	if (ha_get32(&r) != MPIB_AGENT_MAGIC)
		return -1;
	length = ha_get16(&r);
	frame->type = ha_get8(&r);
	r.at++;
	frame->has_slot = frame->type == MPIB_AGENT_RESPONSE && length == WITH_ALL;
	if (length == 0 || length != length_of(frame))
		return -1;
	if (size < length)
		return 0;
	get_body(&r, frame);
	return (int)length;
}
