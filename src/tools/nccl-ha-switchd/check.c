/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/check.h"
#include "base/clock.h"
#include "inc/net/talk.h"
#include "tools/nccl-ha-switchd/equipment.h"
#include "tools/nccl-ha-switchd/port.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define TIMEOUT_NS (10 * HA_NS_PER_S)

/* What the controller has of the switch; NULL: nothing. */
static json_t *find_switch(json_t *report, const char *name)
{
	json_t *list = json_object_get(report, "switches"), *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		const char *is = json_string_value(json_object_get(one, "switch"));

		if (is && !strcmp(is, name))
			return one;
	}
	return NULL;
}

static bool judge(const struct ns_settings *settings, const struct ns_equipment *e,
		  const struct ha_talk_frame *heard)
{
	json_error_t error;
	json_t *report = json_loadb((const char *)heard->text, heard->length, 0, &error);
	json_t *found = find_switch(report, settings->name);
	char port[80];
	bool good = false;

	if (!found)
		ns_wrong("controller at %s: its topology has no switch %s that adds",
			 settings->controller, settings->name);
	else if (json_is_true(json_object_get(found, "served")))
		ns_wrong("controller at %s: another program serves %s", settings->controller,
			 settings->name);
	else
		good = printf("%s can be served at %s\n", settings->name,
			      ns_port_text(e->port, port, sizeof(port))) > 0 &&
		       fflush(stdout) == 0;
	json_decref(report);
	return good;
}

static bool converse(const struct ns_settings *settings, const struct ns_equipment *e,
		     struct ha_talk *talk)
{
	const uint64_t until_ns = ha_real_ns() + TIMEOUT_NS;

	for (;;) {
		switch (ha_talk_await(talk, until_ns)) {
		case HA_TALK_NOTHING:
			return ns_wrong("controller at %s: it says nothing", settings->controller);
		case HA_TALK_ENDED:
			return ns_wrong("controller at %s: %s", settings->controller, talk->why);
		case HA_TALK_OPENED:
			ha_talk_say(talk, HA_CTRL_STATUS, NULL, "", 0);
			continue;
		case HA_TALK_HEARD:
			return judge(settings, e, &talk->heard);
		}
	}
}

int ns_check(const struct ns_settings *settings)
{
	struct ns_equipment e;
	bool good = ns_equipment_begin(&e, settings);
	struct ha_talk talk;

	if (good) {
		ha_talk_dial(&talk, &e.controller, e.site, HA_CTRL_TEXT_MAX);
		good = converse(settings, &e, &talk);
		ha_talk_end(&talk);
	}
	ns_equipment_end(&e);
	return good ? 0 : 1;
}
