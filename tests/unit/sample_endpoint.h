/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint no two fields of which are alike, for the tests of what it travels in. */
#ifndef HA_TESTS_UNIT_SAMPLE_ENDPOINT_H
#define HA_TESTS_UNIT_SAMPLE_ENDPOINT_H

#include "transport/wire.h"

#include <infiniband/verbs.h>

static inline struct ha_wire_endpoint sample_endpoint(void)
{
	return (struct ha_wire_endpoint){.path = 1,
					 .generation = 7,
					 .port_num = 2,
					 .link_layer = IBV_LINK_LAYER_ETHERNET,
					 .mtu = IBV_MTU_4096,
					 .sl = 3,
					 .traffic_class = 105,
					 .nqps = 2,
					 .lid = 0xabcd,
					 .gid = {0xfe, 0x80, [15] = 1},
					 .guid = 0xa0a1a2a3a4a5a6a7,
					 .max_message = 1u << 30,
					 .ring_addr = 0x7f0000001000,
					 .ring_rkey = 0xdeadbeef,
					 .ring_length = 40960,
					 .ece = {true, 0x15b3, 0x10000003, 0x80},
					 .device = "mlx5_0",
					 .qps = {{0x123456, 0xabcdef}, {0x1, 0x2}}};
}

#endif
