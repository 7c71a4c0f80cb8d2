/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/set.h"

#include "hints/agent_call.h"
#include "hints/hint.h"
#include "hints/hint_file.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define LIMIT_MS 5000

static const char *no_answer(enum ha_agent_reply reply)
{
	switch (reply) {
	case HA_AGENT_ABSENT:
		return "no agent runs there";
	case HA_AGENT_FOREIGN:
		return "another user's agent runs there";
	case HA_AGENT_SILENT:
		return "the agent does not answer";
	default:
		return "what the agent answers makes no sense";
	}
}

int na_set(const char *dir, uint32_t src_ip, uint32_t dst_ip, uint32_t share)
{
	struct ha_agent_frame request = {.type = HA_AGENT_SET,
					 .share = share,
					 .flow = {.sout_src_ip = src_ip, .sout_dst_ip = dst_ip}},
			      response;
	enum ha_agent_reply reply = ha_agent_call(dir, &request, LIMIT_MS, &response);
	const char *why = NULL;

	if (reply != HA_AGENT_ANSWERED)
		why = no_answer(reply);
	else if (response.status != MPIB_AGENT_OK)
		why = "the agent refuses: you are neither root nor its user, there are too many "
		      "rules, or it is another program";
	if (why)
		fprintf(stderr, "nccl-ha-agent: %s: %s\n", dir, why);
	return why != NULL;
}

static void show_entry(const struct ha_hint_file *file, uint32_t slot, uint64_t ips)
{
	struct ha_hint hint = {
	    .at = ha_hint_at(slot), .fd = file->fd, .ips = ips, .last = HA_HINT_NONE};
	char src[INET_ADDRSTRLEN], dst[INET_ADDRSTRLEN];
	const uint32_t share = ha_hint_read(&hint, 0);
	uint32_t ip[2];

	memcpy(ip, &ips, sizeof(ip));
	inet_ntop(AF_INET, &ip[0], src, sizeof(src));
	inet_ntop(AF_INET, &ip[1], dst, sizeof(dst));
	if (share == HA_HINT_NONE)
		printf("%s %s -\n", src, dst); /* it is being written, and has been for long */
	else
		printf("%s %s %u\n", src, dst, share);
}

int na_show(const char *dir)
{
	struct ha_hint_file file;
	const char *why;
	uint64_t ips;

	ha_hint_file_begin(&file);
	if (ha_hint_file_look(&file, dir, &why) != HA_HINT_FILE_NEW) {
		fprintf(stderr, "nccl-ha-agent: %s/" MPIB_AGENT_HINTS ": %s\n", dir,
			why ? why : "it is not there");
		return 1;
	}
	for (uint32_t slot = 0; slot < file.entries; slot++)
		if (ha_hint_file_ips(&file, slot, &ips) && ips != 0)
			show_entry(&file, slot, ips);
	ha_hint_file_end(&file);
	return 0;
}
