/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/controller/ask.h"

#include "base/clock.h"
#include "base/job_key.h"
#include "base/random.h"
#include "inc/net/talk.h"
#include "tools/common/address.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_NS   (10 * HA_NS_PER_S)
#define NAME_MOST    63
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"

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

/* What is said, and the address for messages. */
struct question {
	const char *address;
	enum ha_ctrl_kind kind;
	const char *text;
};

static char *converse(const struct question *q, struct ha_talk *talk, char *why, size_t len)
{
	const uint64_t until_ns = ha_real_ns() + TIMEOUT_NS;
	char *text;

	for (;;) {
		switch (ha_talk_await(talk, until_ns)) {
		case HA_TALK_NOTHING:
			return wrong(why, len, q->address, "the controller says nothing");
		case HA_TALK_ENDED:
			return wrong(why, len, q->address, talk->why);
		case HA_TALK_OPENED:
			ha_talk_say(talk, q->kind, NULL, q->text, strlen(q->text));
			continue;
		case HA_TALK_HEARD:
			if (talk->heard.kind != HA_CTRL_REPORT)
				return wrong(why, len, q->address, "what it says is no report");
			text = strndup((const char *)talk->heard.text, talk->heard.length);
			return text ? text : wrong(why, len, q->address, "out of memory");
		}
	}
}

static char *ask(const struct nc_controller *controller, enum ha_ctrl_kind kind, const char *said,
		 char *why, size_t why_len)
{
	const struct question q = {controller->address, kind, said};
	struct ha_job_key *site = NULL;
	union ha_sockaddr at;
	struct ha_talk talk;
	char *text = NULL;

	if (ha_job_key_load_file(controller->key_name, controller->key_file, &site) != HA_OK)
		return wrong(why, why_len, q.address, "without the site's key it says nothing");
	if (!ha_random_works()) {
		(void)wrong(why, why_len, q.address, "there are no random numbers");
	} else if (resolve(q.address, &at, why, why_len)) {
		ha_talk_dial(&talk, &at, site, HA_CTRL_TEXT_MAX);
		text = converse(&q, &talk, why, why_len);
		ha_talk_end(&talk);
	}
	ha_job_key_free(site);
	return text;
}

char *nc_ask_status(const struct nc_controller *controller, char *why, size_t why_len)
{
	return ask(controller, HA_CTRL_STATUS, "", why, why_len);
}

/* So nothing in it has to be escaped in JSON. */
static bool is_name(const char *name, const char *of, char *why, size_t why_len)
{
	if (*name && strlen(name) <= NAME_MOST && strspn(name, NAME_LETTERS) == strlen(name))
		return true;
	(void)np_fail(why, why_len,
		      "this is no name of a %s: it has 1 to %d letters, digits and . _ - :", of,
		      NAME_MOST);
	return false;
}

char *nc_ask_drain(const struct nc_controller *controller, const char *name, bool is_drained,
		   char *why, size_t why_len)
{
	char text[NAME_MOST + 64];

	if (!is_name(name, "switch", why, why_len))
		return NULL;
	snprintf(text, sizeof(text), "{\"switch\":\"%s\",\"drained\":%s}", name,
		 is_drained ? "true" : "false");
	return ask(controller, HA_CTRL_CHANGE, text, why, why_len);
}

char *nc_ask_verdict(const struct nc_controller *controller, const char *group, char *why,
		     size_t why_len)
{
	if (!is_name(group, "group", why, why_len))
		return NULL;
	return ask(controller, HA_CTRL_VERDICT, group, why, why_len);
}
