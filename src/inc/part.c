/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/part.h"

#include "base/bytes.h"
#include "inc/cut.h"

#include <stdlib.h>

#define MAGIC	    0x5041484eu /* "NHAP" */
#define AT_CHECKSUM 48

/* ---- addresses ------------------------------------------------------------------------------ */

static void put_address(struct ha_writer *w, const union ha_sockaddr *at)
{
	const bool is_v4 = at->sa.sa_family == AF_INET, is_v6 = at->sa.sa_family == AF_INET6;

	ha_put_uint(w, is_v4 ? 4u : is_v6 ? 6u : 0u, 2);
	ha_put_uint(w, is_v4 ? ntohs(at->in.sin_port) : is_v6 ? ntohs(at->in6.sin6_port) : 0u, 2);
	if (is_v6) {
		ha_put_bytes(w, &at->in6.sin6_addr, 16);
		return;
	}
	ha_put_uint(w, is_v4 ? ntohl(at->in.sin_addr.s_addr) : 0u, 4);
	ha_put_zeros(w, 12);
}

static bool is_zero(const uint8_t *at, size_t length)
{
	while (length > 0 && at[length - 1] == 0)
		length--;
	return length == 0;
}

static bool get_address(struct ha_reader *r, union ha_sockaddr *at)
{
	const uint16_t family = ha_get16(r), port = ha_get16(r);
	const size_t used = family == 6 ? 16 : family == 4 ? 4 : 0;
	struct ha_reader bytes = *r;

	memset(at, 0, sizeof(*at));
	r->at += 16;
	if (!is_zero(bytes.at + used, 16 - used))
		return false;
	if (family == 6) {
		at->in6.sin6_family = AF_INET6;
		at->in6.sin6_port = htons(port);
		ha_get_bytes(&bytes, &at->in6.sin6_addr, 16);
	} else if (family == 4) {
		at->in.sin_family = AF_INET;
		at->in.sin_port = htons(port);
		at->in.sin_addr.s_addr = htonl(ha_get32(&bytes));
	}
	return family == 0 ? port == 0 : port != 0 && (family == 4 || family == 6);
}

/* ---- parts ---------------------------------------------------------------------------------- */

size_t ha_part_bytes(const struct ha_part *part)
{
	return HA_PART_HEAD_BYTES + (size_t)part->n * HA_PART_PLACE_BYTES;
}

static void put_place(struct ha_writer *w, const struct ha_part_place *place)
{
	ha_put_uint(w, place->tree, 1);
	ha_put_uint(w, place->inner_below, 1);
	ha_put_uint(w, place->node, 2);
	ha_put_uint(w, place->children, 2);
	ha_put_uint(w, place->parent, 2);
	ha_put_uint(w, place->place, 2);
	ha_put_zeros(w, 2);
	put_address(w, &place->at);
}

void ha_part_encode(const struct ha_part *part, uint8_t *out)
{
	struct ha_writer w = {out}, sum = {out + AT_CHECKSUM};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, part->n, 4);
	ha_put_uint(&w, part->group, 8);
	ha_put_uint(&w, part->unit_bytes, 4);
	ha_put_uint(&w, part->window, 2);
	ha_put_uint(&w, part->members, 2);
	ha_put_uint(&w, part->lanes, 1);
	ha_put_uint(&w, part->spares, 1);
	ha_put_zeros(&w, 2);
	put_address(&w, &part->leader);
	ha_put_zeros(&w, HA_PART_HEAD_BYTES - AT_CHECKSUM);
	for (unsigned int i = 0; i < part->n; i++)
		put_place(&w, &part->places[i]);
	ha_put_uint(&sum, ha_checksum(out, ha_part_bytes(part)), 4);
}

/* A node that a member or a switch can be, which has a parent with an address, or is the root. */
static bool get_place(struct ha_reader *r, const struct ha_part *part, struct ha_part_place *place)
{
	bool is_place;
	uint8_t inner;

	place->tree = ha_get8(r);
	inner = ha_get8(r);
	place->inner_below = inner == 1;
	place->node = ha_get16(r);
	place->children = ha_get16(r);
	place->parent = ha_get16(r);
	place->place = ha_get16(r);
	is_place = ha_get16(r) == 0 && inner <= 1;
	is_place &= get_address(r, &place->at);
	is_place &= place->tree < part->lanes + part->spares && place->node < HA_PLAN_NODES;
	is_place &= place->children <= HA_PLAN_CHILDREN && place->place < HA_PLAN_CHILDREN;
	is_place &= (place->node < part->members) == (place->children == 0);
	is_place &= (place->parent == HA_PLAN_NONE) == (place->at.sa.sa_family == AF_UNSPEC);
	/* A member is below a switch. */
	return is_place && (place->children > 0 || place->parent != HA_PLAN_NONE);
}

static bool get_head(struct ha_reader *r, struct ha_part *part)
{
	const uint32_t magic = ha_get32(r);
	bool is_part;

	part->n = ha_get32(r);
	part->group = ha_get64(r);
	part->unit_bytes = ha_get32(r);
	part->window = ha_get16(r);
	part->members = ha_get16(r);
	part->lanes = ha_get8(r);
	part->spares = ha_get8(r);
	is_part = magic == MAGIC && ha_get16(r) == 0 && get_address(r, &part->leader);
	is_part &= is_zero(r->at + 4, HA_PART_HEAD_BYTES - AT_CHECKSUM - 4);
	r->at += HA_PART_HEAD_BYTES - AT_CHECKSUM;
	is_part &= part->n <= HA_PART_PLACES && part->members >= 1 && part->lanes >= 1;
	is_part &= part->lanes + part->spares <= HA_PLAN_LANES;
	is_part &= part->window >= 1 && part->window <= HA_PART_WINDOW;
	return is_part && part->unit_bytes >= HA_CUT_ALIGN &&
	       part->unit_bytes <= HA_PART_UNIT_BYTES && part->unit_bytes % HA_CUT_ALIGN == 0;
}

static bool is_whole(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size);
	struct ha_reader r = {data + AT_CHECKSUM};
	bool is_same = false;

	if (copy) {
		memcpy(copy, data, size);
		memset(copy + AT_CHECKSUM, 0, 4);
		is_same = ha_checksum(copy, size) == ha_get32(&r);
	}
	free(copy);
	return is_same;
}

bool ha_part_decode(const void *data, size_t size, struct ha_part *part)
{
	struct ha_reader r = {data};
	bool is_part;

	*part = (struct ha_part){0};
	if (size < HA_PART_HEAD_BYTES || !is_whole(data, size) || !get_head(&r, part) ||
	    size != ha_part_bytes(part))
		return false;
	part->places = calloc(part->n + 1, sizeof(*part->places));
	is_part = part->places != NULL;
	for (unsigned int i = 0; i < part->n && is_part; i++)
		is_part = get_place(&r, part, &part->places[i]);
	if (!is_part)
		ha_part_free(part);
	return is_part;
}

void ha_part_free(struct ha_part *part)
{
	free(part->places);
	*part = (struct ha_part){0};
}

const struct ha_part_place *ha_part_find(const struct ha_part *part, unsigned int tree,
					 uint16_t node)
{
	for (unsigned int i = 0; i < part->n; i++)
		if (part->places[i].tree == tree && part->places[i].node == node)
			return &part->places[i];
	return NULL;
}
