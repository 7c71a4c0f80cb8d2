/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/ask.h"

#include "base/clock.h"
#include "base/random.h"
#include "inc/net/talk.h"
#include "tools/common/address.h"
#include "tools/nccl-ha-ctrld/key.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_NS (10 * HA_NS_PER_S)

static bool wrong(const char *address, const char *why)
{
	fprintf(stderr, "nccl-ha-ctrld: %s: %s\n", address, why);
	return false;
}

static bool resolve(const char *address, union ha_sockaddr *at)
{
	char why[256];
	struct addrinfo *list = np_resolve(address, false, why, sizeof(why));

	if (!list)
		return wrong(address, why);
	memset(at, 0, sizeof(*at));
	memcpy(at, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return true;
}

static bool print(const struct ha_talk_frame *heard)
{
	return heard->kind == HA_CTRL_REPORT &&
	       fwrite(heard->text, 1, heard->length, stdout) == heard->length &&
	       putchar('\n') >= 0 && fflush(stdout) == 0;
}

static bool converse(const char *address, struct ha_talk *talk)
{
	const uint64_t until_ns = ha_real_ns() + TIMEOUT_NS;

	for (;;) {
		switch (ha_talk_await(talk, until_ns)) {
		case HA_TALK_NOTHING:
			return wrong(address, "the controller says nothing");
		case HA_TALK_ENDED:
			return wrong(address, talk->why);
		case HA_TALK_OPENED:
			ha_talk_say(talk, HA_CTRL_STATUS, NULL, "", 0);
			continue;
		case HA_TALK_HEARD:
			return print(&talk->heard) ||
			       wrong(address, "what it says cannot be printed, or is no report");
		}
	}
}

int nc_ask_status(const char *address, const char *key_file)
{
	struct ha_job_key *site = nc_key_load(key_file);
	union ha_sockaddr at;
	struct ha_talk talk;
	bool good = site && ha_random_works() && resolve(address, &at);

	if (good) {
		ha_talk_dial(&talk, &at, site, HA_CTRL_TEXT_MAX);
		good = converse(address, &talk);
		ha_talk_end(&talk);
	}
	ha_job_key_free(site);
	return good ? 0 : 1;
}
