/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/coll/names.h"

#include "base/bytes.h"
#include "base/random.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAGIC	    0x4341484eu /* "NHAC" */
#define VERSION	    1
#define RANDOM_PART 16

void ha_coll_handle_make(void *handle)
{
	struct ha_writer w = {handle};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, VERSION, 4);
	ha_put_uint(&w, ha_random(), 8);
	ha_put_uint(&w, ha_random(), 8);
	ha_put_zeros(&w, HA_COLL_HANDLE_BYTES - 8 - RANDOM_PART);
}

bool ha_coll_group_name(const void *handle, char out[HA_COLL_GROUP_NAME])
{
	struct ha_reader r = {handle};
	const bool is_ours = ha_get32(&r) == MAGIC && ha_get32(&r) == VERSION;
	const uint64_t first = ha_get64(&r), second = ha_get64(&r);

	snprintf(out, HA_COLL_GROUP_NAME, "nccl-%016llx%016llx", (unsigned long long)first,
		 (unsigned long long)second);
	return is_ours;
}

void ha_coll_port_name(const struct ha_config *config, const struct ha_port *port,
		       char out[HA_COLL_PORT_NAME])
{
	char host[64] = "";

	if (*config->inc_host)
		snprintf(host, sizeof(host), "%.63s", config->inc_host);
	else if (gethostname(host, sizeof(host) - 1) == 0)
		host[strcspn(host, ".")] = '\0';
	snprintf(out, HA_COLL_PORT_NAME, "%s/%s", host, port->nic->name);
}
