/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/controller/ask.h"

#include "base/clock.h"
#include "base/job_key.h"
#include "base/random.h"
#include "inc/net/talk.h"
#include "tools/common/address.h"

#include <string.h>

#define TIMEOUT_NS (10 * HA_NS_PER_S)

static char *wrong(char *why, size_t len, const char *address, const char *what)
{
	(void)np_fail(why, len, "%s: %s", address, what);
	return NULL;
}

static bool resolve(const char *address, union ha_sockaddr *at, char *why, size_t len)
{
	struct addrinfo *list = np_resolve(address, false, why, len);

	if (!list)
		return false;
	memset(at, 0, sizeof(*at));
	memcpy(at, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	return true;
}

static char *converse(const char *address, struct ha_talk *talk, char *why, size_t len)
{
	const uint64_t until_ns = ha_real_ns() + TIMEOUT_NS;
	char *text;

	for (;;) {
		switch (ha_talk_await(talk, until_ns)) {
		case HA_TALK_NOTHING:
			return wrong(why, len, address, "the controller says nothing");
		case HA_TALK_ENDED:
			return wrong(why, len, address, talk->why);
		case HA_TALK_OPENED:
			ha_talk_say(talk, HA_CTRL_STATUS, NULL, "", 0);
			continue;
		case HA_TALK_HEARD:
			if (talk->heard.kind != HA_CTRL_REPORT)
				return wrong(why, len, address, "what it says is no report");
			text = strndup((const char *)talk->heard.text, talk->heard.length);
			return text ? text : wrong(why, len, address, "out of memory");
		}
	}
}

char *nc_ask_status(const char *address, const char *key_name, const char *key_file, char *why,
		    size_t why_len)
{
	struct ha_job_key *site = NULL;
	union ha_sockaddr at;
	struct ha_talk talk;
	char *text = NULL;

	if (ha_job_key_load_file(key_name, key_file, &site) != HA_OK)
		return wrong(why, why_len, address, "without the site's key it says nothing");
	if (!ha_random_works()) {
		(void)wrong(why, why_len, address, "there are no random numbers");
	} else if (resolve(address, &at, why, why_len)) {
		ha_talk_dial(&talk, &at, site, HA_CTRL_TEXT_MAX);
		text = converse(address, &talk, why, why_len);
		ha_talk_end(&talk);
	}
	ha_job_key_free(site);
	return text;
}
