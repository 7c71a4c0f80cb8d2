/* SPDX-License-Identifier: Apache-2.0 */
#include "hints/hints.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "hints/agent_call.h"
#include "hints/hint_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is worth a WARN, once in a process each. */
enum cause { NO_AGENT, FOREIGN, SILENT, BAD_FILE, NO_SLOT, OTHER_FLOW, LOST, NO_IPV4 };

struct flow {
	struct ha_list link;
	struct ha_hint hint;
	struct ha_agent_flow addresses;
	uint32_t conn_id;
	atomic_bool leaving;
	/* The thread's. */
	bool registered; /* and `hint` has its slot */
	bool told;	 /* the agent knows of it, as far as we know */
	uint32_t slot;
	unsigned pause_ms; /* grows while the agent has nothing for it */
	uint64_t again_ns;
};

struct ha_hints {
	struct ha_hints_settings settings;
	char dir[128];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* With the lock. */
	struct ha_list incoming;
	uint16_t counter;
	bool called;
	atomic_uint warned;	 /* bits of enum cause */
	_Atomic uint64_t end_ns; /* ha_hints_end was called; nothing is said after that */
	/* The thread's. */
	struct ha_list flows;
	struct ha_hint_file file;
	bool present; /* the agent, at the last look */
	bool lost;    /* it is not, or never was, or for too long */
	pid_t pid;
	uint64_t present_ns, look_ns;
	unsigned pause_ms; /* grows while it does not answer */
	uint64_t again_ns;
};

static bool first_time(struct ha_hints *h, enum cause cause)
{
	return !(atomic_fetch_or(&h->warned, 1u << cause) & 1u << cause);
}

static uint64_t after(const struct ha_hints *h, unsigned *pause_ms)
{
	unsigned next_ms = *pause_ms ? 2 * *pause_ms : h->settings.pause_least_ms;

	*pause_ms = next_ms < h->settings.pause_most_ms ? next_ms : h->settings.pause_most_ms;
	return ha_real_ns() + *pause_ms * HA_NS_PER_MS;
}

/* ---- what readers see ------------------------------------------------------------------------ */

static void publish(struct ha_hints *h, struct flow *flow, uint64_t ips)
{
	flow->registered = true;
	flow->pause_ms = 0;
	__atomic_store_n(&flow->hint.fd, h->file.fd, __ATOMIC_RELAXED);
	__atomic_store_n(&flow->hint.ips, ips, __ATOMIC_RELAXED);
	/* Release: who sees where it is sees the addresses. */
	__atomic_store_n(&flow->hint.at, ha_hint_at(flow->slot), __ATOMIC_RELEASE);
}

static void withdraw(struct flow *flow)
{
	flow->registered = false;
	__atomic_store_n(&flow->hint.at, 0, __ATOMIC_RELAXED);
}

static struct flow *flow_at(struct ha_list *link)
{
	return ha_container_of(link, struct flow, link);
}

static void withdraw_all(struct ha_hints *h)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &h->flows)
		withdraw(flow_at(pos));
}

/* Slots may have moved; until the agent has said where to, what was said last stands. */
static void register_all_again(struct ha_hints *h)
{
	struct ha_list *pos;

	h->again_ns = 0;
	h->pause_ms = 0;
	ha_list_for_each (pos, &h->flows) {
		flow_at(pos)->registered = false;
		flow_at(pos)->again_ns = 0;
	}
}

/* ---- whose entry it is ----------------------------------------------------------------------- */

static uint64_t ips_of(const struct ha_agent_flow *flow)
{
	const uint32_t both[2] = {flow->sout_src_ip, flow->sout_dst_ip};
	uint64_t ips;

	memcpy(&ips, both, sizeof(ips));
	return ips;
}

/* Takes the slot into use if its entry is this flow's, or if the agent fills in nobody's. */
static bool use_slot(struct ha_hints *h, struct flow *flow)
{
	uint64_t ips;

	if (!ha_hint_file_ips(&h->file, flow->slot, &ips))
		return false;
	if (ips != 0 && ips != ips_of(&flow->addresses))
		return false;
	publish(h, flow, ips);
	return true;
}

static void warn_other_flow(struct ha_hints *h)
{
	if (first_time(h, OTHER_FLOW))
		HA_WARN("the agent at %s has given us the entry of another flow, or none of its "
			"file: it is not used, and the agent is asked again",
			h->dir);
}

/* What had this flow's addresses must have them for as long as it is used. */
static bool is_still_ours(struct ha_hints *h, struct flow *flow)
{
	uint64_t ips;

	if (flow->hint.ips == 0)
		return use_slot(h, flow); /* the agent may have filled them in */
	return ha_hint_file_ips(&h->file, flow->slot, &ips) && ips == flow->hint.ips;
}

static void check_slots(struct ha_hints *h)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &h->flows) {
		struct flow *flow = flow_at(pos);

		if (!flow->registered || is_still_ours(h, flow))
			continue;
		warn_other_flow(h);
		flow->registered = false;
	}
}

/* ---- whether it is there --------------------------------------------------------------------- */

static void tell(struct ha_hints *h, bool found)
{
	if (h->settings.agent_changed)
		h->settings.agent_changed(h->settings.arg, found);
}

static void is_there(struct ha_hints *h, pid_t pid)
{
	bool found = h->lost;

	if (!h->present || pid != h->pid)
		register_all_again(h);
	h->present = true;
	h->pid = pid;
	h->lost = false;
	h->present_ns = ha_real_ns();
	if (found)
		tell(h, true);
}

static void is_not_there(struct ha_hints *h, enum ha_agent_reply reply)
{
	h->present = false;
	if (reply == HA_AGENT_FOREIGN && first_time(h, FOREIGN))
		HA_WARN("the agent at %s is another user's, neither root's nor ours: its hints are "
			"not used",
			h->dir);
	else if (h->lost && reply == HA_AGENT_ABSENT && first_time(h, NO_AGENT))
		HA_WARN("no agent at %s: messages go over rails by islands until there is one",
			h->dir);
	if (h->lost || ha_real_ns() - h->present_ns < h->settings.stale_ms * HA_NS_PER_MS)
		return;
	h->lost = true;
	withdraw_all(h);
	(void)first_time(h, NO_AGENT); /* the WARN below says more */
	if (first_time(h, LOST))
		HA_WARN(
		    "the agent at %s has been gone for %u ms: messages go over rails by islands "
		    "until it is back",
		    h->dir, h->settings.stale_ms);
	tell(h, false);
}

static void look_at_agent(struct ha_hints *h)
{
	enum ha_agent_reply reply;
	pid_t pid = 0;

	reply = ha_agent_find(h->dir, &pid);
	if (reply == HA_AGENT_ANSWERED)
		is_there(h, pid);
	else
		is_not_there(h, reply);
}

static void look_at_file(struct ha_hints *h)
{
	const char *why;

	switch (ha_hint_file_look(&h->file, h->dir, &why)) {
	case HA_HINT_FILE_SAME:
		check_slots(h);
		break;
	case HA_HINT_FILE_NEW:
		withdraw_all(h);
		register_all_again(h);
		break;
	case HA_HINT_FILE_NONE:
		withdraw_all(h);
		if (why && first_time(h, BAD_FILE))
			HA_WARN("the hints of the agent at %s are not used: %s", h->dir, why);
	}
}

/* ---- what is said to it ---------------------------------------------------------------------- */

static void is_no_answer(struct ha_hints *h, enum ha_agent_reply reply)
{
	h->again_ns = after(h, &h->pause_ms);
	if (reply == HA_AGENT_SILENT && first_time(h, SILENT))
		HA_WARN("the agent at %s does not answer: messages go over rails by islands until "
			"it does",
			h->dir);
	if (reply == HA_AGENT_GARBLED && first_time(h, SILENT))
		HA_WARN("the agent at %s gives no valid answer: messages go over rails by islands "
			"until it does",
			h->dir);
}

static void answered(struct ha_hints *h, struct flow *flow, const struct ha_agent_frame *response)
{
	flow->told = response->status == MPIB_AGENT_OK;
	flow->slot = response->hint_slot;
	if (flow->told && response->has_slot && use_slot(h, flow))
		return;
	withdraw(flow);
	flow->again_ns = after(h, &flow->pause_ms);
	if (flow->told)
		warn_other_flow(h);
	else if (response->status == MPIB_AGENT_NO_FREE_SLOTS && first_time(h, NO_SLOT))
		HA_WARN("the agent at %s has no free slot for a connection: its messages go over "
			"rails by islands",
			h->dir);
	else if (first_time(h, NO_SLOT))
		HA_WARN("the agent at %s does not take a connection: its messages go over rails by "
			"islands",
			h->dir);
}

static void register_flow(struct ha_hints *h, struct flow *flow)
{
	struct ha_agent_frame request = {.type = MPIB_AGENT_REGISTER,
					 .conn_id = flow->conn_id,
					 .flow = flow->addresses},
			      response;
	enum ha_agent_reply reply = ha_agent_call(h->dir, &request, h->settings.step_ms, &response);

	if (reply != HA_AGENT_ANSWERED) {
		is_no_answer(h, reply);
		return;
	}
	h->pause_ms = 0;
	answered(h, flow, &response);
}

static bool is_ending(struct ha_hints *h)
{
	return atomic_load(&h->end_ns) != 0;
}

static bool may_ask(struct ha_hints *h, uint64_t now_ns)
{
	uint64_t end_ns = atomic_load(&h->end_ns);

	return h->present && now_ns >= h->again_ns && (end_ns == 0 || now_ns < end_ns);
}

static void register_flows(struct ha_hints *h, uint64_t now_ns)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &h->flows) {
		struct flow *flow = flow_at(pos);

		if (h->file.entries == 0 || is_ending(h) || !may_ask(h, now_ns))
			return;
		if (!flow->registered && now_ns >= flow->again_ns)
			register_flow(h, flow);
	}
}

/* An agent that does not answer finds out by itself: a connection's end never waits for it long. */
static void see_off(struct ha_hints *h, struct flow *flow)
{
	struct ha_agent_frame request = {.type = MPIB_AGENT_DEREGISTER, .conn_id = flow->conn_id},
			      response;

	ha_list_remove(&flow->link);
	if (flow->told && may_ask(h, ha_real_ns())) {
		enum ha_agent_reply reply =
		    ha_agent_call(h->dir, &request, h->settings.step_ms, &response);

		if (reply != HA_AGENT_ANSWERED)
			is_no_answer(h, reply);
	}
	free(flow);
}

static void see_off_leaving(struct ha_hints *h)
{
	struct ha_list *pos, *next;

	ha_list_for_each_safe (pos, next, &h->flows)
		if (atomic_load(&flow_at(pos)->leaving))
			see_off(h, flow_at(pos));
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* When there is something to do unless it is called before. */
static uint64_t visit(struct ha_hints *h)
{
	see_off_leaving(h);
	if (ha_list_empty(&h->flows)) {
		h->look_ns = 0;
		return UINT64_MAX;
	}
	if (ha_real_ns() >= h->look_ns) {
		look_at_agent(h);
		look_at_file(h);
		h->look_ns = ha_real_ns() + h->settings.look_ms * HA_NS_PER_MS;
	}
	register_flows(h, ha_real_ns());
	return h->look_ns;
}

static void *run(void *arg)
{
	struct ha_hints *h = arg;

	pthread_mutex_lock(&h->lock);
	while (!is_ending(h)) {
		uint64_t due_ns;

		ha_list_move_all(&h->flows, &h->incoming);
		h->called = false;
		pthread_mutex_unlock(&h->lock);
		due_ns = visit(h);
		pthread_mutex_lock(&h->lock);
		while (!h->called && ha_cond_wait_until(&h->cond, &h->lock, due_ns))
			;
	}
	ha_list_move_all(&h->flows, &h->incoming);
	pthread_mutex_unlock(&h->lock);
	see_off_leaving(h);
	return NULL;
}

static void call(struct ha_hints *h)
{
	h->called = true;
	pthread_cond_signal(&h->cond);
}

/* ---- life ------------------------------------------------------------------------------------ */

static struct ha_hints *hints_new(const struct ha_hints_settings *settings)
{
	struct ha_hints *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->settings = *settings;
	ha_copy_text(h->dir, sizeof(h->dir), settings->dir);
	h->lost = true;
	ha_list_init(&h->incoming);
	ha_list_init(&h->flows);
	pthread_mutex_init(&h->lock, NULL);
	ha_cond_init(&h->cond);
	ha_hint_file_begin(&h->file);
	if (ha_thread_start(&h->thread, "nccl-ha-hints", run, h) == 0)
		return h;
	pthread_cond_destroy(&h->cond);
	pthread_mutex_destroy(&h->lock);
	free(h);
	return NULL;
}

struct ha_hints *ha_hints_begin(const struct ha_hints_settings *settings)
{
	struct ha_hints *h = NULL;

	if (!ha_agent_dir_fits(settings->dir))
		HA_WARN("the directory of the agent, %s, is too long for the name of a socket: "
			"messages go over rails by islands",
			settings->dir);
	else if ((h = hints_new(settings)) == NULL)
		HA_WARN("no memory or no thread for hints of the agent at %s: messages go over "
			"rails by islands",
			settings->dir);
	return h;
}

void ha_hints_end(struct ha_hints *h)
{
	pthread_mutex_lock(&h->lock);
	atomic_store(&h->end_ns, ha_real_ns() + h->settings.step_ms * HA_NS_PER_MS);
	call(h);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	ha_hint_file_end(&h->file);
	pthread_cond_destroy(&h->cond);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

struct ha_hint *ha_hints_join(struct ha_hints *h, const struct ha_agent_flow *addresses)
{
	struct flow *flow;

	if (addresses->sout_src_ip == 0 || addresses->sout_dst_ip == 0) {
		if (first_time(h, NO_IPV4))
			HA_WARN("a connection's first rail has no IPv4 address, by which the agent "
				"at %s could know it: its messages go over rails by islands",
				h->dir);
		return NULL;
	}
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return NULL;
	flow->addresses = *addresses;
	flow->hint.last = HA_HINT_NONE;
	pthread_mutex_lock(&h->lock);
	flow->conn_id = (uint32_t)getpid() << 16 | h->counter++;
	ha_list_push_back(&h->incoming, &flow->link);
	call(h);
	pthread_mutex_unlock(&h->lock);
	return &flow->hint;
}

void ha_hints_leave(struct ha_hints *h, struct ha_hint *hint)
{
	if (!hint)
		return;
	pthread_mutex_lock(&h->lock);
	atomic_store(&ha_container_of(hint, struct flow, hint)->leaving, true);
	call(h);
	pthread_mutex_unlock(&h->lock);
}
