/* SPDX-License-Identifier: Apache-2.0 */
#include "instance/ask_again.h"

#include "device/device.h"
#include "device/give_back.h"
#include "progress/command.h"
#include "progress/progress.h"
#include "transport/comm_stats.h"
#include "transport/shared.h"

#include <stdlib.h>
#include <string.h>

struct nic_asking {
	struct ha_ask_again *all;
	struct ha_nic *nic;
	struct ha_command command;
	struct ha_incarnation *on; /* held by the command; NULL: there is none */
	struct ha_leaks told;	   /* as statistics and events have it */
};

struct ha_ask_again {
	struct ha_asker asker;
	struct ha_instance *inst;
	struct ha_poller poller;
	struct nic_asking nics[HA_MAX_NICS];
};

static struct ha_commands *commands_of(const struct nic_asking *n)
{
	return ha_progress_commands(n->all->inst->progress, (unsigned)n->nic->index);
}

/* Any thread. */
static void refused(struct ha_asker *asker)
{
	struct ha_ask_again *all = ha_container_of(asker, struct ha_ask_again, asker);

	ha_progress_call(all->inst->progress, &all->poller);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void run(struct ha_command *command)
{
	ha_give_back_again(ha_container_of(command, struct nic_asking, command)->on);
}

/* Its memory is the instance's, which waits for it. */
static void leave(struct ha_command *command)
{
	ha_incarnation_let_go(ha_container_of(command, struct nic_asking, command)->on);
}

/* ---- visits ---------------------------------------------------------------------------------- */

/* The incarnation whose time comes first: an older one may still be held. Held for the caller;
 * NULL: nothing was refused. */
static struct ha_incarnation *first_due(struct ha_nic *nic, uint64_t *due_ns)
{
	struct ha_incarnation *found = NULL;

	*due_ns = 0;
	pthread_mutex_lock(&nic->lock);
	for (struct ha_incarnation *on = nic->now; on; on = on->older) {
		uint64_t own_ns = ha_give_back_due(on);

		if (own_ns == 0 || (found && own_ns >= *due_ns))
			continue;
		found = on;
		*due_ns = own_ns;
	}
	if (found)
		found->users++;
	pthread_mutex_unlock(&nic->lock);
	return found;
}

/* Returns when there is something to do for it, but for what its command says; 0: nothing. */
static uint64_t ask(struct nic_asking *n, uint64_t now_ns)
{
	struct ha_incarnation *on;
	uint64_t due_ns;

	if (ha_command_busy(&n->command))
		return 0;
	if (n->on)
		ha_incarnation_let_go(n->on);
	n->on = NULL;
	on = first_due(n->nic, &due_ns);
	if (!on)
		return 0;
	if (now_ns < due_ns) {
		ha_incarnation_let_go(on);
		return due_ns;
	}
	n->on = on;
	ha_command_send(commands_of(n), &n->command);
	return 0;
}

static void tell(struct nic_asking *n)
{
	struct ha_leaks leaks = ha_nic_leaks(n->nic);

	if (!memcmp(&leaks, &n->told, sizeof(leaks)))
		return;
	n->told = leaks;
	ha_port_stats_leak(n->all->inst, n->nic, &leaks);
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_ask_again *all = ha_container_of(poller, struct ha_ask_again, poller);
	uint64_t now_ns = ha_now_ns(), due_ns = 0;

	for (int i = 0; i < all->inst->devices->nnics; i++) {
		tell(&all->nics[i]);
		due_ns = ha_earlier_ns(due_ns, ask(&all->nics[i], now_ns));
	}
	poller->due_ns = due_ns;
	return HA_POLL_ASLEEP;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void init(struct ha_ask_again *all, struct nic_asking *n, struct ha_nic *nic)
{
	n->all = all;
	n->nic = nic;
	ha_list_init(&n->command.link);
	n->command.kind = HA_COMMAND_CLEAN;
	n->command.key = (uintptr_t)n;
	n->command.owner = &all->poller;
	n->command.run = run;
	n->command.abandoned = leave;
}

ha_result_t ha_ask_again_open(struct ha_instance *inst)
{
	struct ha_ask_again *all = calloc(1, sizeof(*all));

	if (!all)
		return HA_ERR_SYSTEM;
	all->asker.refused = refused;
	all->inst = inst;
	ha_list_init(&all->poller.link);
	all->poller.visit = visit;
	inst->ask_again = all;
	for (int i = 0; i < inst->devices->nnics; i++)
		init(all, &all->nics[i], &inst->devices->nics[i]);
	/* It is visited from here on, and whoever finds it as a NIC's calls it. */
	ha_progress_add(inst->progress, &all->poller);
	for (int i = 0; i < inst->devices->nnics; i++)
		atomic_store(&inst->devices->nics[i].asker, &all->asker);
	ha_progress_call(inst->progress, &all->poller); /* what was refused before */
	return HA_OK;
}

void ha_ask_again_look(struct ha_instance *inst)
{
	ha_progress_call(inst->progress, &inst->ask_again->poller);
}

void ha_ask_again_close(struct ha_instance *inst)
{
	struct ha_ask_again *all = inst->ask_again;

	if (!all)
		return;
	for (int i = 0; i < inst->devices->nnics; i++)
		atomic_store(&inst->devices->nics[i].asker, NULL);
	ha_progress_remove(inst->progress, &all->poller);
	for (int i = 0; i < inst->devices->nnics; i++)
		if (all->nics[i].on)
			ha_command_leave(commands_of(&all->nics[i]), &all->nics[i].command);
}

void ha_ask_again_free(struct ha_instance *inst)
{
	free(inst->ask_again);
	inst->ask_again = NULL;
}
