/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/net/lease.h"

void ha_lease_begin(struct ha_lease *lease, const struct ha_ask *ask, struct ha_ask_answer *answer)
{
	*lease = (struct ha_lease){.ask = ask, .answer = answer, .pause_ns = HA_LEASE_REDIAL_NS};
}

static void lose(struct ha_lease *lease, uint64_t now_ns)
{
	ha_talk_end(&lease->answer->talk);
	lease->dialled_ns = 0;
	lease->due_ns = now_ns + lease->pause_ns;
	lease->pause_ns = 2 * lease->pause_ns < HA_LEASE_REDIAL_MOST_NS ? 2 * lease->pause_ns
									: HA_LEASE_REDIAL_MOST_NS;
}

static void dial(struct ha_lease *lease, uint64_t now_ns)
{
	lease->due_ns = 0;
	lease->dialled_ns = now_ns;
	ha_talk_dial(&lease->answer->talk, lease->ask->controller, lease->ask->site,
		     HA_CTRL_TEXT_MAX);
}

static void look_how_long(struct ha_lease *lease, uint64_t now_ns)
{
	struct ha_talk *talk = &lease->answer->talk;

	if (ha_talk_is_stuck(talk, lease->dialled_ns, now_ns)) {
		ha_talk_end(talk);
		dial(lease, now_ns);
	} else if (now_ns - lease->dialled_ns > HA_LEASE_ANSWER_NS) {
		lose(lease, now_ns);
	}
}

/* What is long is heard only of who has proved the site's key, which is what IS_BACK is for here.
 */
static void say_again(struct ha_lease *lease)
{
	struct ha_ask_answer *answer = lease->answer;

	lease->dialled_ns = 0;
	(void)ha_talk_say(&answer->talk, HA_CTRL_IS_BACK, NULL, "", 0);
	(void)ha_talk_say(&answer->talk, HA_CTRL_KNOW, answer->key, answer->receipt,
			  answer->receipt_bytes);
}

enum ha_lease_event ha_lease_next(struct ha_lease *lease, uint64_t now_ns)
{
	if (!lease->answer->receipt && lease->due_ns)
		return HA_LEASE_NOTHING;
	if (lease->due_ns && now_ns >= lease->due_ns)
		dial(lease, now_ns);
	switch (ha_talk_next(&lease->answer->talk)) {
	case HA_TALK_OPENED:
		say_again(lease);
		return HA_LEASE_AGAIN;
	case HA_TALK_HEARD:
		lease->pause_ns = HA_LEASE_REDIAL_NS;
		return HA_LEASE_HEARD;
	case HA_TALK_ENDED:
		lose(lease, now_ns);
		return HA_LEASE_NOTHING;
	case HA_TALK_NOTHING:
		break;
	}
	if (lease->dialled_ns)
		look_how_long(lease, now_ns);
	return HA_LEASE_NOTHING;
}
