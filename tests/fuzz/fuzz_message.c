/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a control message or as a list of ports. A control message comes over the socket,
 * where TCP answers for it, or lies in a mailbox that may be half written: the decoders read
 * nothing beyond the end, refuse, or give fields within their ranges; and what they accept survives
 * being encoded again. The first byte says which decoder, and whether the checksum is put right
 * first.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "failover/message.h"
#include "failover/port_offer.h"

#include <infiniband/verbs.h>
#include <string.h>

enum { AS_IT_IS, WITH_ITS_SUM, AS_PORTS, MODES };

#define SUM_AT	    4
#define SUMMED_FROM 8
#define LENGTH_AT   (HA_MESSAGE_BYTES - 4)

static uint8_t messages[HA_MSG_END][1 + HA_MESSAGE_MAX_BYTES];
static uint8_t ports[1 + HA_PORT_OFFERS_MAX_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {messages[HA_MSG_SUSPECT], 1 + HA_MESSAGE_BYTES},
    {messages[HA_MSG_FENCE], 1 + HA_MESSAGE_BYTES},
    {messages[HA_MSG_RESUME], 1 + HA_MESSAGE_BYTES},
    {messages[HA_MSG_REBUILD], 1 + HA_MESSAGE_MAX_BYTES},
    {messages[HA_MSG_REBUILT], 1 + HA_MESSAGE_MAX_BYTES},
    {messages[HA_MSG_ABORT], 1 + HA_MESSAGE_BYTES},
    {messages[HA_MSG_BYE], 1 + HA_MESSAGE_BYTES},
    {messages[HA_MSG_SHED], 1 + HA_MESSAGE_BYTES + HA_MESSAGE_SHED},
    {messages[HA_MSG_MENDED], 1 + HA_MESSAGE_BYTES + HA_MESSAGE_MENDED},
    {ports, 1 + HA_PORT_OFFERS_MAX_BYTES},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_port_offers list = {.count = HA_MAX_OFFERS};

	for (unsigned kind = 1; kind < HA_MSG_END; kind++) {
		struct ha_message m = {.kind = (uint8_t)kind,
				       .path = 1,
				       .generation = 2,
				       .epoch = 3,
				       .serial = 4,
				       .fenced_gen = {1, 1},
				       .window = {.base = 5, .bits = 2},
				       .lost = kind == HA_MSG_SHED ? 3 : 0,
				       .drained = kind == HA_MSG_SHED ? 2 : 0,
				       .seen = {0, kind == HA_MSG_SHED ? 5 : 0},
				       .mended_gen = {0, kind == HA_MSG_MENDED ? 1 : 0},
				       .has_endpoint =
					   kind == HA_MSG_REBUILD || kind == HA_MSG_REBUILT,
				       .endpoint = {.path = 1,
						    .generation = 2,
						    .port_num = 1,
						    .link_layer = IBV_LINK_LAYER_ETHERNET,
						    .mtu = IBV_MTU_1024,
						    .nqps = 1,
						    .max_message = 1,
						    .ring_addr = 4096,
						    .device = "mlx5_0",
						    .qps = {{1, 1}}}};

		messages[kind][0] = WITH_ITS_SUM;
		ha_message_encode(&m, messages[kind] + 1);
	}
	ports[0] = AS_PORTS;
	for (unsigned i = 0; i < HA_MAX_OFFERS; i++)
		list.offers[i] = (struct ha_offer){.port_num = 1, .live_qpn = i, .device = "rxe0"};
	ha_port_offers_encode(&list, ports + 1);
}

/* Without it, one mutant in four billion would get past the sum. */
static void put_sum_right(uint8_t *data, size_t size)
{
	struct ha_reader said = {data + LENGTH_AT};
	struct ha_writer sum = {data + SUM_AT};
	uint32_t length;

	if (size < HA_MESSAGE_BYTES)
		return;
	length = ha_get32(&said);
	if (length >= SUMMED_FROM && length <= size)
		ha_put_uint(&sum, ha_checksum(data + SUMMED_FROM, length - SUMMED_FROM), 4);
}

static void as_message(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	struct ha_message m, again;

	if (ha_message_decode(data, size, &m) != HA_WIRE_OK)
		return;
	FUZZ_CHECK(size >= HA_MESSAGE_BYTES);
	FUZZ_CHECK(m.kind > 0 && m.kind < HA_MSG_END);
	FUZZ_CHECK(strcmp(ha_message_name(m.kind), "unknown") != 0);
	FUZZ_CHECK(m.window.base != 0);
	if (m.kind == HA_MSG_REBUILD || m.kind == HA_MSG_REBUILT)
		FUZZ_CHECK(m.has_endpoint && m.path < HA_MAX_PATHS && m.generation != 0);
	if (m.kind == HA_MSG_REBUILD)
		FUZZ_CHECK(m.port < HA_MAX_OFFERS && m.peer_port < HA_MAX_OFFERS);
	if (m.kind == HA_MSG_RESUME || m.kind == HA_MSG_SUSPECT)
		FUZZ_CHECK(m.path < HA_MAX_PATHS && m.generation != 0);
	if (m.kind == HA_MSG_SHED) {
		FUZZ_CHECK(m.lost != 0 && m.lost < 1u << HA_MAX_PATHS);
		FUZZ_CHECK((m.drained & ~m.lost) == 0 && !m.has_endpoint);
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		FUZZ_CHECK(!(m.lost >> p & 1) || m.fenced_gen[p] != 0);
		FUZZ_CHECK((m.seen[p] & m.window.bits) == 0);
		FUZZ_CHECK(m.mended_gen[p] <= m.fenced_gen[p] ||
			   m.mended_gen[p] <= m.yielded_gen[p]);
	}
	if (m.has_endpoint) {
		FUZZ_CHECK(ha_endpoint_valid(&m.endpoint));
		FUZZ_CHECK(memchr(m.endpoint.device, '\0', sizeof(m.endpoint.device)) != NULL);
	}
	FUZZ_CHECK(ha_message_decode(bytes, ha_message_encode(&m, bytes), &again) == HA_WIRE_OK);
	FUZZ_CHECK(memcmp(&m, &again, sizeof(m)) == 0);
}

static void as_message_with_its_sum(uint8_t *data, size_t size)
{
	put_sum_right(data, size);
	as_message(data, size);
}

static void as_ports(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_PORT_OFFERS_MAX_BYTES];
	struct ha_port_offers list, again;

	if (ha_port_offers_decode(data, size, &list) != HA_WIRE_OK)
		return;
	FUZZ_CHECK(list.count >= 1 && list.count <= HA_MAX_OFFERS);
	for (unsigned i = 0; i < list.count; i++) {
		FUZZ_CHECK(list.offers[i].live_qpn <= 0xffffff);
		FUZZ_CHECK(memchr(list.offers[i].device, '\0', sizeof(list.offers[i].device)));
	}
	FUZZ_CHECK(ha_port_offers_decode(bytes, ha_port_offers_encode(&list, bytes), &again) ==
		   HA_WIRE_OK);
	FUZZ_CHECK(memcmp(&list, &again, sizeof(list)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[MODES] = {
	    [AS_IT_IS] = as_message,
	    [WITH_ITS_SUM] = as_message_with_its_sum,
	    [AS_PORTS] = as_ports,
	};

	fuzz_one_of(decoders, MODES, data, size);
	return 0;
}
