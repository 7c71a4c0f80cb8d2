/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a handle, a frame, a hello or a small frame: the decoders refuse them or give fields
 * within their ranges, and what they accept survives being encoded again. The first byte says
 * which decoder.
 */
#include "fuzz.h"

#include "transport/rings.h"
#include "transport/wire.h"

#include <infiniband/verbs.h>
#include <string.h>

enum { AS_HANDLE, AS_HEADER, AS_HELLO, AS_REJECT, AS_BYE, AS_REJOIN, AS_ABORT, DECODERS };

static uint8_t seeds[DECODERS][1 + HA_HELLO_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {seeds[AS_HANDLE], 1 + HA_HANDLE_BYTES}, {seeds[AS_HEADER], 1 + HA_FRAME_HEADER},
    {seeds[AS_HELLO], 1 + HA_HELLO_BYTES},   {seeds[AS_REJECT], 1 + HA_REJECT_BYTES},
    {seeds[AS_BYE], 1 + HA_BYE_BYTES},	     {seeds[AS_REJOIN], 1 + HA_REJOIN_BYTES},
    {seeds[AS_ABORT], 1 + HA_ABORT_BYTES},   {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_handle handle = {.version = 1, .secrets = {2, 3}};
	struct ha_frame_header header = {.type = HA_FRAME_HELLO, .length = HA_HELLO_BYTES};
	struct ha_hello hello = {.secret = 2,
				 .version = 1,
				 .min_version = 1,
				 .max_recvs = 8,
				 .window = HA_WINDOW,
				 .host = "host",
				 .endpoint = {.port_num = 1,
					      .link_layer = IBV_LINK_LAYER_ETHERNET,
					      .mtu = IBV_MTU_1024,
					      .nqps = 1,
					      .max_message = 1,
					      .ring_addr = 4096,
					      .device = "mlx5_0",
					      .qps = {{1, 1}}}};
	struct ha_reject reject = {.reason = 1, .version = 1, .min_version = 1};
	struct ha_bye bye = {.done = 1};
	struct ha_rejoin rejoin = {.secret = 1, .connection_id = 2};
	struct ha_abort given_up = {.epoch = 3, .code = 4};

	for (uint8_t i = 0; i < DECODERS; i++)
		seeds[i][0] = i;
	handle.addr.in.sin_family = AF_INET;
	handle.addr.in.sin_port = htons(1);
	ha_handle_encode(&handle, seeds[AS_HANDLE] + 1);
	ha_frame_header_encode(&header, seeds[AS_HEADER] + 1);
	hello.reconnect_at.secrets = (struct ha_secrets){6, 7};
	hello.reconnect_at.addr.in.sin_family = AF_INET;
	hello.reconnect_at.addr.in.sin_port = htons(7);
	ha_hello_encode(&hello, seeds[AS_HELLO] + 1);
	ha_reject_encode(&reject, seeds[AS_REJECT] + 1);
	ha_bye_encode(&bye, seeds[AS_BYE] + 1);
	ha_rejoin_encode(&rejoin, seeds[AS_REJOIN] + 1);
	ha_abort_encode(&given_up, seeds[AS_ABORT] + 1);
}

static void as_handle(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_HANDLE_BYTES] = {0}, again[HA_HANDLE_BYTES];
	struct ha_handle handle;

	memcpy(bytes, data, size < sizeof(bytes) ? size : sizeof(bytes));
	if (ha_handle_decode(bytes, &handle) != HA_WIRE_OK)
		return;
	FUZZ_CHECK(handle.addr.sa.sa_family == AF_INET || handle.addr.sa.sa_family == AF_INET6);
	ha_handle_encode(&handle, again);
	FUZZ_CHECK(memcmp(again, bytes, 16) == 0); /* magic to the secret to ask */
}

static void as_header(uint8_t *data, size_t size)
{
	struct ha_frame_header header;

	if (ha_frame_header_decode(data, size, &header) == HA_WIRE_OK) {
		FUZZ_CHECK(size >= HA_FRAME_HEADER);
		FUZZ_CHECK(header.length <= HA_FRAME_MAX_PAYLOAD);
	}
}

static void as_hello(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_HELLO_BYTES];
	struct ha_hello hello, again;
	struct ha_agreement agreed;

	if (ha_hello_decode(data, size, &hello) != HA_WIRE_OK)
		return;
	FUZZ_CHECK(size >= HA_HELLO_BYTES);
	FUZZ_CHECK(hello.endpoint.nqps >= 1 && hello.endpoint.nqps <= HA_WIRE_MAX_QPS);
	FUZZ_CHECK(memchr(hello.host, '\0', sizeof(hello.host)) != NULL);
	FUZZ_CHECK(memchr(hello.endpoint.device, '\0', sizeof(hello.endpoint.device)) != NULL);
	if (ha_secrets_known(&hello.reconnect_at.secrets))
		FUZZ_CHECK(ha_sockaddr_len(&hello.reconnect_at.addr) != 0);
	ha_hello_encode(&hello, bytes);
	FUZZ_CHECK(ha_hello_decode(bytes, sizeof(bytes), &again) == HA_WIRE_OK);
	FUZZ_CHECK(memcmp(&hello, &again, sizeof(hello)) == 0);
	if (ha_hello_agree(&hello, &again, &agreed) == HA_WIRE_OK) {
		FUZZ_CHECK(agreed.window >= HA_MAX_OUTSTANDING);
		FUZZ_CHECK((agreed.window & (agreed.window - 1)) == 0);
		FUZZ_CHECK(!agreed.downgraded);
	}
}

static void as_reject(uint8_t *data, size_t size)
{
	struct ha_reject reject;

	FUZZ_CHECK((ha_reject_decode(data, size, &reject) == HA_WIRE_OK) ==
		   (size >= HA_REJECT_BYTES));
}

static void as_bye(uint8_t *data, size_t size)
{
	struct ha_bye bye;

	FUZZ_CHECK((ha_bye_decode(data, size, &bye) == HA_WIRE_OK) == (size >= HA_BYE_BYTES));
}

static void as_rejoin(uint8_t *data, size_t size)
{
	struct ha_rejoin rejoin;

	FUZZ_CHECK((ha_rejoin_decode(data, size, &rejoin) == HA_WIRE_OK) ==
		   (size >= HA_REJOIN_BYTES));
}

static void as_abort(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_ABORT_BYTES];
	struct ha_abort given_up, again;

	if (ha_abort_decode(data, size, &given_up) != HA_WIRE_OK)
		return;
	FUZZ_CHECK(size >= HA_ABORT_BYTES);
	ha_abort_encode(&given_up, bytes);
	FUZZ_CHECK(ha_abort_decode(bytes, sizeof(bytes), &again) == HA_WIRE_OK);
	FUZZ_CHECK(given_up.epoch == again.epoch && given_up.code == again.code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[DECODERS] = {
	    [AS_HANDLE] = as_handle, [AS_HEADER] = as_header, [AS_HELLO] = as_hello,
	    [AS_REJECT] = as_reject, [AS_BYE] = as_bye,	      [AS_REJOIN] = as_rejoin,
	    [AS_ABORT] = as_abort,
	};

	fuzz_one_of(decoders, DECODERS, data, size);
	return 0;
}
