/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a host asks the controller for: it is refused with a printable reason, or all
 * of it is within its limits and names what is in the topology.
 */
#include "fuzz.h"

#include "tools/nccl-ha-ctrld/request.h"

#include <string.h>

static const char fabric[] =
    "version: 1\nswitches: [{name: s}]\nhosts: [{name: a, ports: [{nic: n}, {nic: m}]}, {name: b, "
    "ports: [{nic: n}]}]\nlinks: []\n";

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("{\"group\": \"g\", \"rank\": 0, \"ranks\": 2, \"port\": \"b\"}"),
    FUZZ_TEXT(
	"{\"group\":\"g\",\"rank\":1,\"ranks\":2,\"port\":\"a/n\",\"label\":\"x\",\"unit\":64,"
	"\"window\":32,\"reproducible\":true,\"gone\":[\"s\",\"a/m\"]}"),
    FUZZ_TEXT("{\"group\": \"\\u0000g\", \"rank\": 1e9, \"ranks\": -1, \"port\": [\"a\"]}"),
    {NULL, 0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct nc_topology topology;
	struct nc_fault fault;
	struct nc_ask ask;
	char why[512] = "";

	if (!topology.switches)
		FUZZ_CHECK(nc_topology_read(&topology, fabric, strlen(fabric), &fault));
	if (!nc_request_read(&topology, (const char *)data, size, &ask, why, sizeof(why))) {
		FUZZ_CHECK(why[0]);
		for (const char *c = why; *c; c++)
			FUZZ_CHECK((uint8_t)*c >= ' ' && *c != 0x7f);
		return 0;
	}
	FUZZ_CHECK(nc_is_name(ask.group) && (!*ask.label || nc_is_name(ask.label)));
	FUZZ_CHECK(ask.rank < ask.ranks && ask.ranks <= NC_PORTS &&
		   nc_is_port(&topology, ask.port));
	FUZZ_CHECK(ask.unit_bytes >= 64 && ask.unit_bytes <= 1u << 20 && ask.window >= 1 &&
		   ask.window <= 32);
	FUZZ_CHECK(ask.n_gone <= NC_GONE_MAX);
	for (unsigned i = 0; i < ask.n_gone; i++)
		FUZZ_CHECK(ask.gone[i] < nc_vertices(&topology));
	return 0;
}
