/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that a fault rule makes wait (wait=), on a virtual clock. No lock is held here: other
 * threads use their devices and step the fabric meanwhile.
 */
#include "fault_names.h"
#include "stepped.h"

/* What verbs of this thread have waited, on the fabric with this number. */
static _Thread_local struct {
	uint64_t fabric;
	uint64_t ns;
} waited;

static void add_waited(const struct sv_stepped *fab, uint64_t ns)
{
	if (waited.fabric != fab->number)
		waited.ns = 0;
	waited.fabric = fab->number;
	waited.ns += ns;
}

static bool is_dead(const bool *dead)
{
	return __atomic_load_n(dead, __ATOMIC_RELAXED);
}

/* Delivers what is due within the time; less of it passes when the device dies. */
static void advance(struct sv_stepped *fab, uint64_t ns, const bool *dead)
{
	uint64_t end_ns = fab->now_ns + ns;
	bool due = true;

	while (due && !is_dead(dead)) {
		sv_stepped_lock();
		due = sv_stepped_step_until(fab, end_ns);
		if (!due && fab->now_ns < end_ns)
			fab->now_ns = end_ns;
		sv_stepped_unlock();
	}
}

void sv_stepped_verb_waits(struct sv_port *port, uint32_t verb, uint64_t ns, const bool *dead)
{
	struct sv_stepped *fab = sv_fabric;
	const struct sv_port_config *cfg = sv_port_cfg(port);
	uint64_t since_ns = fab->now_ns;
	enum sv_wait_mode mode;
	sv_wait_fn *fn;
	void *arg;

	sv_stepped_lock();
	mode = fab->wait_mode;
	fn = fab->on_wait;
	arg = fab->on_wait_arg;
	sv_stepped_unlock();
	if (fn) {
		fn(&(struct sv_wait_info){.host = cfg->host,
					  .rail = cfg->rail,
					  .verb = sv_verb_name((enum sv_verb)verb),
					  .wait_ns = ns},
		   arg);
	} else if (mode == SV_WAIT_ADVANCE) {
		advance(fab, ns, dead);
		ns = fab->now_ns - since_ns;
	}
	add_waited(fab, ns);
}

/* ---------------------------------------------------------------- from outside */

void sv_stepped_set_wait(enum sv_wait_mode mode)
{
	sv_stepped_lock();
	sv_fabric->wait_mode = mode;
	sv_stepped_unlock();
}

void sv_stepped_on_wait(sv_wait_fn *fn, void *arg)
{
	sv_stepped_lock();
	sv_fabric->on_wait = fn;
	sv_fabric->on_wait_arg = arg;
	sv_stepped_unlock();
}

uint64_t sv_stepped_waited_ns(void)
{
	uint64_t ns = 0;

	if (sv_fabric && waited.fabric == sv_fabric->number)
		ns = waited.ns;
	waited.ns = 0;
	return ns;
}
