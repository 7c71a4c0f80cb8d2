/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/adder.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/mr.h"
#include "memory/pages.h"

#include <stdlib.h>

#define AGAIN_NS (10 * HA_NS_PER_MS)

static const struct ha_gin_depth depth = {.sends = HA_GIN_TASKS};

static size_t bytes_of_landing(const struct ha_device_set *set)
{
	return (size_t)set->nnics * HA_GIN_TASKS * sizeof(uint64_t);
}

ha_result_t ha_gin_adder_open(struct ha_gin_adder *adder, struct ha_device_set *set,
			      struct ha_nic *nic, bool is_e2e)
{
	ha_result_t result;

	*adder = (struct ha_gin_adder){.set = set};
	ha_gin_applier_init(&adder->applier, (unsigned int)set->nnics, is_e2e);
	for (int n = 0; n < set->nnics; n++) { /* none has a loopback yet */
		ha_gin_loopback_failed(&adder->applier, (unsigned int)n);
		ha_gin_loopback_fenced(&adder->applier, (unsigned int)n);
	}
	adder->landing = ha_pages_new(bytes_of_landing(set));
	if (!adder->landing)
		return HA_ERR_SYSTEM;
	result = ha_mr_register(set, nic, adder->landing, bytes_of_landing(set),
				HA_MEM_HOST | HA_MEM_STRICT_ORDER, 0, -1, &adder->landing_mr);
	if (result != HA_OK)
		(void)ha_gin_adder_close(adder);
	return result;
}

/* ---- loopbacks ------------------------------------------------------------------------------ */

static bool make(struct ha_gin_adder *adder, struct ha_gin_loopback *loopback)
{
	const unsigned int n = (unsigned int)loopback->port->nic->index;
	struct ha_gin_address self;

	if (ha_now_ns() < loopback->again_ns)
		return false;
	loopback->again_ns = ha_now_ns() + AGAIN_NS;
	if (ha_gin_qp_open(&loopback->qp, loopback->port, &depth) != HA_OK)
		return false;
	ha_gin_qp_address(&loopback->qp, &self);
	if (ha_gin_qp_connect(&loopback->qp, &self) != HA_OK) {
		ha_gin_qp_discard(&loopback->qp);
		return false;
	}
	if (!ha_gin_loopback_made(&adder->applier, n)) {
		ha_gin_qp_discard(&loopback->qp);
		return false;
	}
	loopback->state = HA_GIN_LOOPBACK_WORKS;
	return true;
}

bool ha_gin_adder_has(struct ha_gin_adder *adder, struct ha_port *port)
{
	struct ha_gin_loopback **at = &adder->nics[port->nic->index];

	if (!*at)
		*at = calloc(1, sizeof(**at));
	if (!*at)
		return false;
	(*at)->is_wanted = true;
	if ((*at)->state == HA_GIN_LOOPBACK_NONE)
		(*at)->port = port;
	return (*at)->state == HA_GIN_LOOPBACK_WORKS ||
	       ((*at)->state == HA_GIN_LOOPBACK_NONE && make(adder, *at));
}

/* What it had to do is looked into when nothing of it can happen any more. */
static void fails(struct ha_gin_adder *adder, unsigned int n)
{
	struct ha_gin_loopback *loopback = adder->nics[n];

	if (loopback->state != HA_GIN_LOOPBACK_WORKS)
		return;
	HA_INFO(HA_SUBSYS_NET, "GIN: the loopback of %s that adds signals failed: %s",
		loopback->port->nic->name,
		loopback->qp.fault ? loopback->qp.fault : "its NIC is dead");
	adder->failed++;
	loopback->state = HA_GIN_LOOPBACK_FENCING;
	ha_gin_loopback_failed(&adder->applier, n);
	ha_gin_qp_fence(&loopback->qp);
}

static void is_fenced(struct ha_gin_adder *adder, unsigned int n)
{
	struct ha_gin_loopback *loopback = adder->nics[n];

	if (!ha_gin_qp_close(&loopback->qp))
		return;
	for (unsigned int i = 0; i < HA_GIN_TASKS; i++) {
		struct ha_gin_errand *errand = &loopback->errands[i];

		if (errand->is_out &&
		    (errand->task.what == HA_GIN_READ || errand->task.what == HA_GIN_SET))
			(void)ha_gin_read_failed(errand->inbox, errand->task.number);
		errand->is_out = false;
	}
	loopback->out = 0;
	loopback->pushing = loopback->pushed;
	loopback->state = HA_GIN_LOOPBACK_NONE;
	loopback->again_ns = 0;
	ha_gin_loopback_fenced(&adder->applier, n);
}

/* ---- errands -------------------------------------------------------------------------------- */

static struct ha_gin_errand *free_errand(struct ha_gin_loopback *loopback)
{
	for (unsigned int i = 0; i < HA_GIN_TASKS; i++)
		if (!loopback->errands[i].is_out)
			return &loopback->errands[i];
	return NULL;
}

/* The applier says which NIC it is only when the errand is under way. */
static bool all_have_room(const struct ha_gin_adder *adder)
{
	for (int n = 0; n < adder->set->nnics; n++)
		if (adder->nics[n] && adder->nics[n]->out == HA_GIN_TASKS)
			return false;
	return true;
}

static bool post(struct ha_gin_adder *adder, unsigned int n, const struct ha_gin_errand *errand)
{
	struct ha_gin_loopback *loopback = adder->nics[n];
	const uint64_t slot = (uint64_t)(errand - loopback->errands);
	struct ibv_mr *landing_mr, *mr;
	struct ha_mr *memory;
	uint64_t addr;
	struct ibv_sge sge = {(uintptr_t)&adder->landing[n * HA_GIN_TASKS + slot], 8, 0};
	struct ibv_send_wr wr = {.wr_id = ha_gin_wr_id(HA_GIN_WR_TASK, slot),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED};

	if (!adder->find(adder->arg, errand->task.word, &addr, &memory) ||
	    ha_mr_on(adder->landing_mr, loopback->port->nic, &landing_mr) != HA_OK ||
	    ha_mr_on(memory, loopback->port->nic, &mr) != HA_OK) {
		loopback->qp.fault = "its memory cannot be registered";
		return false;
	}
	sge.lkey = landing_mr->lkey;
	if (errand->task.what == HA_GIN_ADD) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = errand->task.addend;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = mr->rkey;
	}
	if (errand->task.what == HA_GIN_SET) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		adder->landing[n * HA_GIN_TASKS + slot] = errand->task.addend;
	}
	return ha_gin_qp_send(&loopback->qp, &wr);
}

static void begin(struct ha_gin_adder *adder, struct ha_gin_inbox *inbox,
		  const struct ha_gin_task *task)
{
	struct ha_gin_loopback *loopback = adder->nics[task->nic];
	struct ha_gin_errand *errand = free_errand(loopback);

	*errand = (struct ha_gin_errand){*task, inbox, true};
	if (loopback->out++ == 0)
		loopback->since_ns = ha_now_ns();
	if (!post(adder, task->nic, errand))
		fails(adder, task->nic);
}

static void go_on_pushing(struct ha_gin_adder *adder, unsigned int n)
{
	const struct ha_gin_task push = {.what = HA_GIN_FLUSH, .nic = n};
	struct ha_gin_loopback *loopback = adder->nics[n];

	while (loopback->pushing != loopback->pushes && loopback->out < HA_GIN_TASKS &&
	       loopback->state == HA_GIN_LOOPBACK_WORKS) {
		loopback->pushing++;
		begin(adder, NULL, &push);
	}
}

/* What a dead NIC has written may not be in memory. */
static void give_up_pushes(struct ha_gin_adder *adder, unsigned int n)
{
	struct ha_gin_loopback *loopback = adder->nics[n];

	if (loopback->pushed == loopback->pushes)
		return;
	ha_gin_unproved(&adder->applier);
	loopback->pushed = loopback->pushing = loopback->pushes;
}

uint32_t ha_gin_adder_life(const struct ha_gin_adder *adder, unsigned int nic)
{
	return adder->nics[nic] ? adder->nics[nic]->deaths : 0;
}

bool ha_gin_adder_push(struct ha_gin_adder *adder, unsigned int nic, uint32_t life,
		       struct ha_gin_push *push)
{
	struct ha_gin_loopback *loopback = adder->nics[nic];

	if (!loopback)
		return false;
	*push = (struct ha_gin_push){nic, loopback->pushes++};
	if (loopback->deaths != life || adder->applier.dead >> nic & 1)
		give_up_pushes(adder, nic);
	else
		go_on_pushing(adder, nic);
	return true;
}

bool ha_gin_adder_has_pushed(const struct ha_gin_adder *adder, const struct ha_gin_push *push)
{
	return push->number < adder->nics[push->nic]->pushed;
}

void ha_gin_adder_serve(struct ha_gin_adder *adder, struct ha_gin_inbox *inbox)
{
	struct ha_gin_task task;

	while (all_have_room(adder)) {
		task = ha_gin_next(inbox);
		if (task.what == HA_GIN_WAIT)
			return;
		begin(adder, inbox, &task);
	}
}

static void is_back(struct ha_gin_adder *adder, unsigned int n, uint64_t slot)
{
	struct ha_gin_loopback *loopback = adder->nics[n];
	struct ha_gin_errand *errand = &loopback->errands[slot];
	const uint64_t value = *(volatile uint64_t *)&adder->landing[n * HA_GIN_TASKS + slot];

	errand->is_out = false;
	loopback->out--;
	loopback->since_ns = ha_now_ns();
	if (!errand->inbox) {
		loopback->pushed += loopback->pushed != loopback->pushing;
		return;
	}
	switch (errand->task.what) {
	case HA_GIN_ADD:
		(void)ha_gin_added(errand->inbox, errand->task.number, value);
		return;
	case HA_GIN_READ:
		(void)ha_gin_was_read(errand->inbox, errand->task.number, value);
		return;
	case HA_GIN_SET:
		adder->written++;
		(void)ha_gin_was_set(errand->inbox, errand->task.number);
		return;
	case HA_GIN_FLUSH:
		(void)ha_gin_flushed(&adder->applier, n);
		return;
	case HA_GIN_WAIT:
		return;
	}
}

void ha_gin_adder_poll(struct ha_gin_adder *adder)
{
	struct ibv_wc wc;

	for (int n = 0; n < adder->set->nnics; n++) {
		struct ha_gin_loopback *loopback = adder->nics[n];

		if (!loopback || !loopback->out)
			continue;
		while (ha_gin_qp_poll(&loopback->qp, &wc))
			is_back(adder, (unsigned int)n, ha_gin_wr_low(wc.wr_id));
		if (loopback->qp.fault)
			fails(adder, (unsigned int)n);
	}
}

/* ---- what takes time ------------------------------------------------------------------------ */

/* A word's add that does not come back keeps all other NICs waiting. */
static bool is_stuck(const struct ha_gin_adder *adder, const struct ha_gin_loopback *loopback)
{
	const uint64_t rto_ns = (unsigned int)adder->set->config->rto_ms * HA_NS_PER_MS;

	return loopback->out && ha_now_ns() - loopback->since_ns > rto_ns;
}

static void mend(struct ha_gin_adder *adder, unsigned int n)
{
	struct ha_gin_loopback *loopback = adder->nics[n];
	struct ibv_wc wc;

	if (loopback->state == HA_GIN_LOOPBACK_WORKS && is_stuck(adder, loopback)) {
		loopback->qp.fault = "nothing comes back for as long as HA_NCCL_RTO_MS";
		fails(adder, n);
	}
	if (loopback->state == HA_GIN_LOOPBACK_FENCING) {
		while (ha_gin_qp_poll(&loopback->qp, &wc))
			is_back(adder, n, ha_gin_wr_low(wc.wr_id));
		if (ha_gin_qp_is_fenced(&loopback->qp))
			is_fenced(adder, n);
	}
	if (loopback->state == HA_GIN_LOOPBACK_NONE && loopback->is_wanted)
		(void)make(adder, loopback);
	go_on_pushing(adder, n);
}

/* Also one whose loopback failed a moment ago, before the death was known. */
static bool is_dead(const struct ha_gin_loopback *loopback)
{
	return atomic_load(&loopback->port->nic->fatal) ||
	       (loopback->qp.on && ha_incarnation_is_dead(loopback->qp.on));
}

static void look_for_death(struct ha_gin_adder *adder, unsigned int n)
{
	if (adder->applier.dead >> n & 1 || !is_dead(adder->nics[n]))
		return;
	fails(adder, n);
	adder->nics[n]->deaths++;
	give_up_pushes(adder, n);
	ha_gin_nic_died(&adder->applier, n);
}

void ha_gin_adder_mend(struct ha_gin_adder *adder)
{
	for (int n = 0; n < adder->set->nnics; n++) {
		if (!adder->nics[n])
			continue;
		look_for_death(adder, (unsigned int)n);
		mend(adder, (unsigned int)n);
	}
}

bool ha_gin_adder_close(struct ha_gin_adder *adder)
{
	for (int n = 0; adder->set && n < adder->set->nnics; n++) {
		if (adder->nics[n] && !ha_gin_qp_close(&adder->nics[n]->qp))
			return false;
		free(adder->nics[n]);
		adder->nics[n] = NULL;
	}
	ha_mr_deregister(adder->landing_mr);
	if (adder->landing)
		ha_pages_free(adder->landing, bytes_of_landing(adder->set));
	*adder = (struct ha_gin_adder){0};
	return true;
}
