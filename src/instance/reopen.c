/* SPDX-License-Identifier: Apache-2.0 */
#include "instance/reopen.h"

#include "base/log.h"
#include "device/events.h"
#include "device/reopen.h"
#include "instance/nic_watch.h"
#include "instance/port_watch.h"
#include "liveness/liveness.h"
#include "memory/mr.h"
#include "progress/command.h"
#include "transport/async_event.h"
#include "transport/comm_stats.h"
#include "transport/kept_path.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* While something is under way that calls nobody when it is over. */
#define LOOK_NS (5 * HA_NS_PER_MS)
/* Whether somebody still holds what is dead. */
#define IDLE_NS HA_NS_PER_S
/* A device that died again so soon has not come back for good. */
#define STABLE_NS HA_REOPEN_MAX_NS

enum stage {
	STAGE_ALIVE,
	STAGE_AWAY,	/* to be looked for at due_ns */
	STAGE_OPENING,	/* `open` looks for it */
	STAGE_STARTING, /* it is open: its ports are read, its heartbeats are made */
	STAGES
};

struct nic_reopen {
	struct ha_reopens *all;
	struct ha_nic *nic;
	enum stage stage;
	uint64_t died_ns, back_ns; /* back_ns 0: it never died */
	uint64_t due_ns, pause_ns;
	unsigned tries; /* since it died */
	struct ha_command open;
	struct ha_reopening found; /* by it */
	struct ha_verb_failure told;
	/* An incarnation that nobody holds any more is closed by a command, one at a time. */
	struct ha_command close;
	struct ha_incarnation *closing;
	uint64_t idle_ns; /* when to look for one; 0: there is none */
};

struct ha_reopens {
	struct ha_instance *inst;
	struct ha_poller poller;
	struct nic_reopen nics[HA_MAX_NICS];
};

static struct ha_commands *commands_of(const struct nic_reopen *r)
{
	return ha_progress_commands(r->all->inst->progress, (unsigned)r->nic->index);
}

/* ---- commands ------------------------------------------------------------------------------- */

static void run_open(struct ha_command *command)
{
	struct nic_reopen *r = ha_container_of(command, struct nic_reopen, open);

	ha_nic_reopen(r->nic, &r->found);
}

/* Nobody has use for what was opened. */
static void leave_open(struct ha_command *command)
{
	struct nic_reopen *r = ha_container_of(command, struct nic_reopen, open);

	if (r->found.incarnation)
		ha_incarnation_close(r->found.incarnation);
	r->found.incarnation = NULL;
}

static void run_close(struct ha_command *command)
{
	struct nic_reopen *r = ha_container_of(command, struct nic_reopen, close);

	ha_kept_paths_free(r->all->inst, r->closing);
	ha_incarnation_close(r->closing);
}

/* Its memory is the instance's, which waits for it. */
static void leave_close(struct ha_command *command)
{
	(void)command;
}

static void init_command(struct nic_reopen *r, struct ha_command *command,
			 void (*run)(struct ha_command *), void (*abandoned)(struct ha_command *))
{
	ha_list_init(&command->link);
	command->kind = HA_COMMAND_CLEAN; /* a device that is dead takes as long as it likes */
	command->key = (uintptr_t)command;
	command->owner = &r->all->poller;
	command->run = run;
	command->abandoned = abandoned;
}

/* ---- telling -------------------------------------------------------------------------------- */

static unsigned long long seconds(uint64_t ns)
{
	return (ns + HA_NS_PER_S / 2) / HA_NS_PER_S;
}

static bool told_already(struct nic_reopen *r)
{
	const struct ha_verb_failure before = r->told, now = r->found.why;

	r->told = now;
	return r->tries > 1 && before.error == now.error && before.verb && now.verb &&
	       strcmp(before.verb, now.verb) == 0;
}

/* Once for each way to fail: a device may be away for days. */
static void tell_failure(struct nic_reopen *r)
{
	const struct ha_reopening *found = &r->found;

	if (!found->why.verb)
		HA_TRACE(1, "%s: the device is not listed; the next look is in %llu s",
			 r->nic->name, seconds(r->pause_ns));
	else if (told_already(r))
		HA_INFO(HA_SUBSYS_NET, "%s: cannot be opened again: %s failed: %s, as before",
			r->nic->name, found->why.verb, strerror(found->why.error));
	else
		HA_WARN("%s: the device, listed as %s, cannot be opened again: %s failed: %s; it "
			"is tried again for as long as it takes, and its ports are not used until "
			"then (see dmesg; are /dev/infiniband/uverbs* readable and writable here?)",
			r->nic->name, found->name[0] ? found->name : "?", found->why.verb,
			strerror(found->why.error));
}

static void tell_back(const struct nic_reopen *r)
{
	HA_ATTN(
	    HA_SUBSYS_NET,
	    "%s: the device is back, as %s, %llu s after it failed: it is open again, and those of "
	    "its ports that are up are used again",
	    r->nic->name, r->found.name, seconds(r->back_ns - r->died_ns));
}

/* ---- stages --------------------------------------------------------------------------------- */

static void go_away(struct nic_reopen *r, uint64_t now_ns)
{
	r->stage = STAGE_AWAY;
	r->due_ns = now_ns + r->pause_ns;
}

static void wait_longer(struct nic_reopen *r)
{
	r->pause_ns = r->pause_ns < HA_REOPEN_MAX_NS / 2 ? r->pause_ns * 2 : HA_REOPEN_MAX_NS;
}

static void while_alive(struct nic_reopen *r, uint64_t now_ns)
{
	if (!atomic_load(&r->nic->fatal))
		return;
	if (r->back_ns != 0 && now_ns - r->back_ns < STABLE_NS)
		wait_longer(r);
	else
		r->pause_ns = HA_REOPEN_MIN_NS;
	r->died_ns = now_ns;
	r->tries = 0;
	HA_INFO(HA_SUBSYS_NET, "%s: the device is looked for again in %llu s", r->nic->name,
		seconds(r->pause_ns));
	go_away(r, now_ns);
}

static void while_away(struct nic_reopen *r, uint64_t now_ns)
{
	if (now_ns < r->due_ns)
		return;
	r->stage = STAGE_OPENING;
	r->tries++;
	ha_command_send(commands_of(r), &r->open);
}

/* What was made on the dead incarnation is not found any more, and what is made is made here. */
static void begin(struct nic_reopen *r)
{
	struct ha_instance *inst = r->all->inst;
	struct ha_device_set *set = inst->devices;

	ha_nic_renew(set, r->nic, r->found.incarnation);
	r->found.incarnation = NULL;
	ha_mr_forget_dead(set, r->nic);
	ha_port_watches_look(inst, r->nic);
	for (int i = 0; i < set->nports_all; i++)
		if (set->ports[i].nic == r->nic)
			ha_liveness_reopen(inst->liveness, &set->ports[i]);
	r->stage = STAGE_STARTING;
	r->idle_ns = 1;
}

static void try_later(struct nic_reopen *r, uint64_t now_ns)
{
	wait_longer(r);
	tell_failure(r);
	go_away(r, now_ns);
}

static void while_opening(struct nic_reopen *r, uint64_t now_ns)
{
	if (ha_command_busy(&r->open))
		return;
	if (!r->found.incarnation) {
		try_later(r, now_ns);
		return;
	}
	begin(r);
	/* Without events of it nobody would know that it dies. */
	if (!ha_nic_watch_again(r->all->inst, r->nic)) {
		r->found.why = (struct ha_verb_failure){"epoll_ctl", ENOMEM};
		try_later(r, now_ns);
	}
}

static bool is_ready(const struct nic_reopen *r)
{
	struct ha_instance *inst = r->all->inst;

	for (int i = 0; i < inst->devices->nports_all; i++)
		if (inst->devices->ports[i].nic == r->nic &&
		    ha_liveness_reopening(inst->liveness, &inst->devices->ports[i]))
			return false;
	return !ha_port_watches_pending(inst, r->nic);
}

static void come_back(struct nic_reopen *r, uint64_t now_ns)
{
	struct ha_instance *inst = r->all->inst;

	r->stage = STAGE_ALIVE;
	r->back_ns = now_ns;
	atomic_store(&r->nic->fatal, false);
	tell_back(r);
	pthread_mutex_lock(&inst->lock);
	ha_port_stats_reopened(inst, r->nic);
	ha_comms_ports_changed(inst, ha_ports_of_nic(inst->devices, r->nic));
	pthread_mutex_unlock(&inst->lock);
	ha_port_stats_publish(inst, r->nic);
}

static void while_starting(struct nic_reopen *r, uint64_t now_ns)
{
	if (ha_incarnation_is_dead(r->nic->now)) {
		r->found.why = (struct ha_verb_failure){"bringing up its ports", EIO};
		try_later(r, now_ns);
	} else if (is_ready(r)) {
		come_back(r, now_ns);
	}
}

static void (*const stages[STAGES])(struct nic_reopen *, uint64_t) = {
    [STAGE_ALIVE] = while_alive,
    [STAGE_AWAY] = while_away,
    [STAGE_OPENING] = while_opening,
    [STAGE_STARTING] = while_starting,
};

/* ---- what is dead and nobody holds ---------------------------------------------------------- */

static void close_idle(struct nic_reopen *r, uint64_t now_ns)
{
	bool left;

	if (r->closing && ha_command_busy(&r->close))
		return;
	r->closing = NULL;
	if (r->idle_ns == 0 || now_ns < r->idle_ns)
		return;
	r->closing = ha_nic_idle(r->nic, &left);
	r->idle_ns = left || r->closing ? now_ns + IDLE_NS : 0;
	if (r->closing)
		ha_command_send(commands_of(r), &r->close);
}

/* ---- visits --------------------------------------------------------------------------------- */

static uint64_t due_ns(const struct nic_reopen *r, uint64_t now_ns)
{
	uint64_t due_ns = r->idle_ns ? r->idle_ns : UINT64_MAX;

	if (r->stage == STAGE_AWAY && r->due_ns < due_ns)
		due_ns = r->due_ns;
	if (r->stage == STAGE_STARTING && now_ns + LOOK_NS < due_ns)
		due_ns = now_ns + LOOK_NS;
	return due_ns;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_reopens *all = ha_container_of(poller, struct ha_reopens, poller);
	uint64_t now_ns = ha_now_ns(), next_ns = UINT64_MAX;

	for (int i = 0; i < all->inst->devices->nnics; i++) {
		struct nic_reopen *r = &all->nics[i];

		stages[r->stage](r, now_ns);
		close_idle(r, now_ns);
		if (due_ns(r, now_ns) < next_ns)
			next_ns = due_ns(r, now_ns);
	}
	poller->due_ns = next_ns == UINT64_MAX ? 0 : next_ns;
	return HA_POLL_ASLEEP;
}

void ha_reopen_look(struct ha_instance *inst)
{
	ha_progress_call(inst->progress, &inst->reopens->poller);
}

/* ---- life ----------------------------------------------------------------------------------- */

ha_result_t ha_reopen_open(struct ha_instance *inst)
{
	struct ha_reopens *all = calloc(1, sizeof(*all));

	if (!all)
		return HA_ERR_SYSTEM;
	all->inst = inst;
	ha_list_init(&all->poller.link);
	all->poller.visit = visit;
	for (int i = 0; i < inst->devices->nnics; i++) {
		struct nic_reopen *r = &all->nics[i];

		r->all = all;
		r->nic = &inst->devices->nics[i];
		init_command(r, &r->open, run_open, leave_open);
		init_command(r, &r->close, run_close, leave_close);
	}
	inst->reopens = all;
	ha_progress_add(inst->progress, &all->poller);
	return HA_OK;
}

void ha_reopen_close(struct ha_instance *inst)
{
	struct ha_reopens *all = inst->reopens;

	if (!all)
		return;
	ha_progress_remove(inst->progress, &all->poller);
	for (int i = 0; i < inst->devices->nnics; i++) {
		struct nic_reopen *r = &all->nics[i];

		if (r->stage == STAGE_OPENING)
			ha_command_leave(commands_of(r), &r->open);
		if (r->closing)
			ha_command_leave(commands_of(r), &r->close);
	}
}

void ha_reopen_free(struct ha_instance *inst)
{
	free(inst->reopens);
	inst->reopens = NULL;
}
