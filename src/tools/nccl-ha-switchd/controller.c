/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/controller.h"

#include "base/clock.h"
#include "base/text.h"
#include "tools/nccl-ha-switchd/port.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG	  1024
#define TEXT_MOST 256

void ns_controller_begin(struct ns_controller *c, const struct ns_settings *settings,
			 const struct ns_equipment *equipment, struct ns_groups *groups)
{
	*c = (struct ns_controller){.settings = settings,
				    .equipment = equipment,
				    .groups = groups,
				    .listener = -1,
				    .due_ns = 1,
				    .pause_ns = NS_REDIAL_NS};
	c->line.talk.fd = -1;
	c->line.talk.phase = HA_TALK_OVER;
}

void ns_controller_end(struct ns_controller *c)
{
	ha_talk_end(&c->line.talk);
	if (c->listener >= 0)
		close(c->listener);
	c->listener = -1;
}

/* ---- what it says --------------------------------------------------------------------------- */

static bool listen_once(struct ns_controller *c)
{
	union ha_sockaddr wanted = c->equipment->listen;
	char at[HA_SOCKADDR_TEXT_MAX];

	if (c->listener >= 0)
		return true;
	if (wanted.sa.sa_family == AF_UNSPEC) {
		if (!ha_talk_here(&c->line.talk, &wanted))
			return false;
		if (wanted.sa.sa_family == AF_INET)
			wanted.in.sin_port = 0;
		else
			wanted.in6.sin6_port = 0;
	}
	c->listener = ha_net_listen(&wanted, BACKLOG, &c->bound);
	return c->listener >= 0 ||
	       ns_wrong("cannot listen at %s: %s", ha_sockaddr_text(&wanted, at, sizeof(at)),
			strerror(errno));
}

static void introduce(struct ns_controller *c)
{
	char text[TEXT_MOST], at[HA_SOCKADDR_TEXT_MAX];
	int n;

	if (!listen_once(c)) {
		c->is_hopeless = true;
		return;
	}
	n = snprintf(text, sizeof(text), "{\"switch\":\"%s\",\"listen\":\"%s\"%s}",
		     c->settings->name, ha_sockaddr_text(&c->bound, at, sizeof(at)),
		     c->groups->is_drained ? ",\"drained\":true" : "");
	ha_talk_say(&c->line.talk, HA_CTRL_SERVE, NULL, text, (size_t)n);
}

static void be_served(struct ns_controller *c)
{
	char at[HA_SOCKADDR_TEXT_MAX], port[80];

	c->is_served = c->was_served = true;
	c->pause_ns = NS_REDIAL_NS;
	*c->said = '\0';
	printf("nccl-ha-switchd: %s adds at %s, and listens at %s\n", c->settings->name,
	       ns_port_text(c->equipment->port, port, sizeof(port)),
	       ha_sockaddr_text(&c->bound, at, sizeof(at)));
	(void)fflush(stdout);
}

/* ---- what it hears -------------------------------------------------------------------------- */

static void hear(struct ns_controller *c, uint64_t now_ns)
{
	const struct ha_talk_frame *heard = &c->line.talk.heard;

	if (heard->kind == HA_CTRL_GO) {
		ns_groups_undrain(c->groups);
		be_served(c);
	} else if (heard->kind == HA_CTRL_DRAIN) {
		ns_groups_drain(c->groups);
		printf("nccl-ha-switchd: %s is drained: whoever can leaves it, and nobody joins\n",
		       c->settings->name);
		(void)fflush(stdout);
	} else if (heard->kind == HA_CTRL_OVER) {
		ns_groups_remove(c->groups, heard, now_ns);
	} else if (heard->kind == HA_CTRL_PART) {
		c->has_news = true;
		if (!ns_groups_install(c->groups, heard))
			ns_wrong("a part of a plan cannot be read, or there is no memory for it");
	}
}

/* One line for each reason. */
static void lose(struct ns_controller *c, uint64_t now_ns)
{
	const char *why = c->line.talk.why;
	const bool is_answer = c->line.talk.is_known || strstr(why, "another") != NULL ||
			       strstr(why, "speaks version") != NULL;

	if (strcmp(c->said, why) != 0)
		ns_wrong("controller at %s: %s%s", c->settings->controller, why,
			 c->was_served ? "; trees go on, and it is dialled again" : "");
	ha_copy_text(c->said, sizeof(c->said), why);
	c->is_hopeless = !c->was_served && is_answer;
	if (c->is_served)
		ns_groups_doubt(c->groups, now_ns);
	c->is_served = false;
	c->due_ns = now_ns + c->pause_ns;
	c->pause_ns = 2 * c->pause_ns < NS_REDIAL_MOST_NS ? 2 * c->pause_ns : NS_REDIAL_MOST_NS;
}

static void look(struct ns_line *line, uint64_t now_ns)
{
	struct ns_controller *c = (struct ns_controller *)line;
	enum ha_talk_event event;

	while ((event = ha_talk_next(&line->talk)) != HA_TALK_NOTHING) {
		if (event == HA_TALK_OPENED)
			introduce(c);
		else if (event == HA_TALK_HEARD)
			hear(c, now_ns);
		else
			lose(c, now_ns);
	}
	ns_line_watch(line, c->groups->epoll);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void dial(struct ns_controller *c, uint64_t now_ns)
{
	ha_talk_end(&c->line.talk);
	ha_talk_dial(&c->line.talk, &c->equipment->controller, c->equipment->site,
		     HA_CTRL_TEXT_MAX);
	ns_line_begin(&c->line, look);
	c->due_ns = 0;
	c->dialled_ns = now_ns;
	look(&c->line, now_ns);
}

void ns_controller_leave(struct ns_controller *c)
{
	ha_talk_end(&c->line.talk);
	c->is_leaving = true;
	c->is_served = false;
}

void ns_controller_count(struct ns_controller *c, const struct ha_switch_counts *counts)
{
	uint8_t text[HA_SWITCH_COUNTS_BYTES];

	if (!c->is_served)
		return;
	ha_switch_counts_encode(counts, text);
	(void)ha_talk_say(&c->line.talk, HA_CTRL_COUNTS, NULL, text, sizeof(text));
	ns_line_watch(&c->line, c->groups->epoll);
}

static bool is_waited_for_too_long(const struct ns_controller *c, uint64_t now_ns)
{
	return ha_talk_is_stuck(&c->line.talk, c->dialled_ns, now_ns) ||
	       (!c->is_served && now_ns - c->dialled_ns > NS_ANSWER_NS);
}

void ns_controller_tick(struct ns_controller *c, uint64_t now_ns)
{
	if (c->is_leaving)
		return;
	if (c->due_ns ? now_ns >= c->due_ns : is_waited_for_too_long(c, now_ns))
		dial(c, now_ns);
}
