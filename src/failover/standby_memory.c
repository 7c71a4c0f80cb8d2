/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/standby_memory.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/notes.h"
#include "failover/port_pair.h"
#include "failover/visit.h"
#include "transport/comm.h"
#include "transport/gpu_proof.h"
#include "transport/user_mr.h"

/* Memory may have been unlocked by then. */
#define ASK_AGAIN_NS (60 * HA_NS_PER_S)
/* Where nothing else works it is worth a try at once, and then after pauses that double. */
#define PAUSE_NS     (10 * HA_NS_PER_MS)
#define PAUSE_MAX_NS HA_NS_PER_S
#define FORGIVEN_MAX 7 /* then the pause does not grow any more */
/* Where no NIC is left at all it is an error after so many of these pauses: 150 ms. */
#define LAST_TRIES 4

/* ---- NICs that refuse ----------------------------------------------------------------------- */

static bool is_refusing(const struct ha_failover *fo, const struct ha_nic *nic)
{
	return fo->refusing & 1u << nic->index;
}

static bool some_nic_is_left(const struct ha_failover *fo)
{
	for (unsigned i = 0; i < fo->noffers; i++)
		if (!is_refusing(fo, fo->offers[i]->nic) &&
		    !atomic_load(&fo->offers[i]->nic->fatal))
			return true;
	return false;
}

bool ha_standby_memory_refused(struct ha_comm *comm, const struct ha_nic *nic)
{
	struct ha_failover *fo = comm->failover;

	if (!is_refusing(fo, nic))
		HA_INFO(HA_SUBSYS_NET,
			"connection %s: %s cannot take the connection's memory, another NIC has to",
			comm->name, nic->name);
	fo->refusing |= 1u << nic->index;
	fo->refused_ns = ha_now_ns();
	fo->look = true;
	fo->say |= HA_SAY_STATE; /* the peer picks no path to it */
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_path_ready(comm->paths[p]) && comm->paths[p]->nic == nic)
			ha_failover_trigger(comm, comm->paths[p], HA_REASON_MEMORY,
					    "%s cannot take the connection's memory", nic->name);
	return some_nic_is_left(fo) || fo->forgiven < LAST_TRIES;
}

void ha_standby_memory_renewed(struct ha_comm *comm, const struct ha_nic *nic)
{
	if (!is_refusing(comm->failover, nic))
		return;
	comm->failover->refusing &= ~(1u << nic->index);
	comm->failover->say |= HA_SAY_STATE;
}

static bool is_up(const struct ha_comm *comm, unsigned p)
{
	return ha_slot_is_up(&comm->failover->slots[p]) && ha_path_ready(comm->paths[p]);
}

/* A port that is up is no path: the wire behind it may be cut. */
static bool nothing_else_works(const struct ha_comm *comm)
{
	bool some_path_is_up = false;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		some_path_is_up |= is_up(comm, p);
	if (!some_path_is_up)
		return true;
	for (unsigned i = 0; i < comm->failover->noffers; i++)
		if (ha_offer_usable(comm, i))
			return false;
	return true;
}

static uint64_t pause_ns(const struct ha_failover *fo)
{
	const uint64_t pause_ns = (uint64_t)PAUSE_NS << fo->forgiven;

	return pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
}

uint64_t ha_standby_memory_due_ns(const struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	if (fo->refusing == 0)
		return 0;
	return fo->refused_ns + (nothing_else_works(comm) ? pause_ns(fo) : ASK_AGAIN_NS);
}

/* They are tried once more, where nothing better is there. */
static void forgive(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;

	for (unsigned i = 0; i < fo->noffers; i++)
		if (fo->refusing & 1u << fo->offers[i]->nic->index)
			fo->renewed |= (uint16_t)(1u << i);
	fo->refusing = 0;
	if (fo->forgiven < FORGIVEN_MAX)
		fo->forgiven++;
	fo->look = true;
	fo->say |= HA_SAY_STATE;
}

/* ---- registering ---------------------------------------------------------------------------- */

static bool is_registered(const struct ha_comm *comm, unsigned p)
{
	const struct ha_slot *slot = &comm->failover->slots[p];

	return slot->memory_serial == comm->memory.serial &&
	       slot->memory_gen == comm->paths[p]->generation;
}

static void register_for(struct ha_comm *comm, unsigned p)
{
	struct ha_slot *slot = &comm->failover->slots[p];
	struct ha_nic *nic = comm->paths[p]->nic;

	switch (ha_comm_register_all(comm, nic)) {
	case HA_MR_READY:
		comm->failover->forgiven = 0;
		slot->memory_serial = comm->memory.serial;
		slot->memory_gen = comm->paths[p]->generation;
		break;
	case HA_MR_FAILED:
		(void)ha_standby_memory_refused(comm, nic);
		break;
	default: /* the connection is visited when it is through */
		break;
	}
}

/* ---- reaching a GPU -------------------------------------------------------------------------- */

/* The active path is proved by what it carries. */
static bool wants_proof(const struct ha_comm *comm, unsigned p)
{
	return p != comm->active && comm->paths[p]->gpu_proof.state != HA_GPU_PROOF_GOOD &&
	       ha_gpu_memory(comm) != NULL;
}

bool ha_standby_memory_is_proved(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (p != comm->active && is_up(comm, p) &&
		    comm->paths[p]->gpu_proof.state == HA_GPU_PROOF_GOOD)
			return true;
	return false;
}

/* ---- visits ---------------------------------------------------------------------------------- */

static bool is_missing(const struct ha_comm *comm, unsigned p)
{
	return is_up(comm, p) && (!is_registered(comm, p) || wants_proof(comm, p));
}

bool ha_standby_memory_is_missing(const struct ha_comm *comm)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (is_missing(comm, p))
			return true;
	return false;
}

void ha_standby_memory_visit(struct ha_comm *comm, uint64_t now_ns)
{
	const uint64_t due_ns = ha_standby_memory_due_ns(comm);

	if (due_ns != 0 && now_ns >= due_ns)
		forgive(comm);
	/* What a switch needs now goes first. */
	if (comm->failover->state != HA_FO_ACTIVE || ha_failover_holds_off(comm, now_ns))
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		if (!is_missing(comm, p))
			continue;
		if (!is_registered(comm, p))
			register_for(comm, p);
		if (is_up(comm, p) && is_registered(comm, p) && wants_proof(comm, p))
			ha_gpu_proof_go_on(comm, comm->paths[p]);
	}
}
