/* SPDX-License-Identifier: Apache-2.0 */
#include "scenario.h"

#include <string.h>

/* The fabric's packets carry 1024 bytes, 4096 where ports are bundled: 2500 are three of them. */
#define SIZES(...)                                                                                 \
	.nsizes = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), .sizes = {__VA_ARGS__}

const struct scenario scenarios[] = {
    {
	.name = "one",
	.about = "one message of three packets",
	.rails = 2,
	.connections = 1,
	.plan = {.groups = 1, .window = 1, .group = 1, SIZES(2500)},
    },
    {
	.name = "window",
	.about = "32 in flight, every slot used again",
	.rails = 2,
	.connections = 1,
	.plan = {.groups = 40, .window = 32, .group = 1, SIZES(700, 64, 1500)},
    },
    {
	.name = "groups",
	.about = "receives of 8 buffers, sends in any order",
	.rails = 2,
	.connections = 1,
	.plan = {.groups = 5, .window = 3, .group = 8, SIZES(300, 0, 1100, 8)},
    },
    {
	.name = "mixed",
	.about = "groups of one to eight, equal tags, 0 bytes to several packets",
	.rails = 2,
	.connections = 1,
	.plan = {.groups = 10, .window = 4, .same_tags = true, SIZES(0, 1, 2500, 77, 1024, 1025)},
    },
    {
	.name = "split",
	.about = "every message over four queue pairs",
	.rails = 2,
	.connections = 1,
	.qps = 4,
	.split = true,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(4000, 0, 500, 130)},
    },
    {
	.name = "qps",
	.about = "messages in turn over three queue pairs",
	.rails = 2,
	.connections = 1,
	.qps = 3,
	.plan = {.groups = 12, .window = 6, .group = 1, SIZES(1500, 10, 600)},
    },
    {
	.name = "both",
	.about = "two connections, one in each direction",
	.rails = 2,
	.connections = 2,
	.both_directions = true,
	.plan = {.groups = 6, .window = 3, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "shared",
	.about = "three connections that share a port",
	.rails = 2,
	.connections = 3,
	.plan = {.groups = 5, .window = 3, .group = 1, SIZES(1500, 0, 300)},
    },
    {
	.name = "connect",
	.about = "from the first call of connect on",
	.rails = 2,
	.connections = 1,
	.from_connect = true,
	.plan = {.groups = 6, .window = 3, .group = 1, SIZES(1500, 1)},
    },
    {
	.name = "close",
	.about = "each end closes as soon as it is through",
	.rails = 2,
	.connections = 1,
	.close_at_once = true,
	.plan = {.groups = 3, .window = 3, .group = 1, SIZES(1500, 1)},
    },
    {
	.name = "slow",
	.about = "the hardware retries for long: heartbeats and soft timeouts see it first",
	.rails = 2,
	.connections = 1,
	.slow_hardware = true,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(1500, 20, 2500)},
    },
    {
	.name = "single",
	.about = "one port per host",
	.rails = 1,
	.connections = 1,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "four",
	.about = "four ports per host",
	.rails = 4,
	.connections = 1,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "bundle",
	.about = "two ports as one device: large messages over both, small ones between",
	.rails = 2,
	.bundled = 2,
	.connections = 1,
	.for_walks = true,
	.plan = {.groups = 16, .window = 4, .group = 1, SIZES(200000, 1500, 140000)},
    },
    {
	.name = "bundle-qps",
	.about = "two ports as one device, with two queue pairs on one and three on the other",
	.rails = 2,
	.bundled = 2,
	.rail_qps = {2, 3},
	.connections = 1,
	.for_walks = true,
	.plan = {.groups = 16, .window = 4, .group = 1, SIZES(200000, 1500, 140000)},
    },
    {
	.name = "bundle3",
	.about = "a third port beside a bundle of two",
	.rails = 3,
	.bundled = 2,
	.connections = 1,
	.for_walks = true,
	.plan = {.groups = 16, .window = 4, .group = 1, SIZES(200000, 1500, 140000)},
    },
    {
	.name = "three",
	.about = "three ports per host, a connection in each direction",
	.rails = 3,
	.connections = 2,
	.both_directions = true,
	.for_walks = true,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "in-turn",
	.about = "three connections that open and close one after another",
	.rails = 2,
	.connections = 3,
	.from_connect = true,
	.in_turn = true,
	.for_walks = true,
	.plan = {.groups = 24, .window = 4, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "ring",
	.about = "three hosts, each sends to the next one",
	.hosts = 3,
	.rails = 2,
	.connections = 3,
	.for_walks = true,
	.plan = {.groups = 8, .window = 4, .group = 1, SIZES(1500, 1, 2500)},
    },
    {
	.name = "stream",
	.about = "a long stream, for several faults in a row",
	.rails = 2,
	.connections = 1,
	.for_walks = true,
	.plan = {.groups = 200, .window = 8, .same_tags = true, SIZES(0, 1, 2500, 77, 1024, 1025)},
    },
};

const unsigned nscenarios = sizeof(scenarios) / sizeof(scenarios[0]);

const struct scenario *scenario_find(const char *name)
{
	for (unsigned i = 0; i < nscenarios; i++)
		if (!strcmp(scenarios[i].name, name))
			return &scenarios[i];
	return NULL;
}
