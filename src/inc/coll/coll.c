/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/coll/coll.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/hist.h"
#include "base/job_key.h"
#include "base/log.h"
#include "base/outage.h"
#include "base/thread.h"
#include "device/events.h"
#include "device/rank.h"
#include "inc/coll/names.h"
#include "inc/cut.h"
#include "inc/net/resolve.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAP_MIN_NS (20 * HA_NS_PER_US)
#define NAP_MAX_NS HA_NS_PER_MS
#define PUBLISH_NS (100 * HA_NS_PER_MS) /* between two times that counts are published */
#define EVENTS_NS  (5 * HA_NS_PER_MS)	/* between two times that events are read */
#define POLLED_NS  (5 * HA_NS_PER_MS)	/* for so long NCCL counts as being there */
#define LEAVE_NS   (5 * HA_NS_PER_S)	/* for the others to leave, too */
#define LET_GO_NS  (2 * HA_NS_PER_S)	/* for a device that refuses to destroy */
#define WHY	   HA_HOST_WHY

struct ha_coll_request {
	struct ha_coll *coll; /* NULL: free */
	uint64_t number;
	size_t bytes;
};

struct ha_coll {
	/* Constant while the thread runs. */
	struct ha_stats *stats;
	struct ha_eventlog *events;
	struct ha_device_set *set;
	struct ha_member_ports ports;
	struct ha_job_key *site;
	union ha_sockaddr controller;
	char group[HA_COLL_GROUP_NAME], name[HA_COLL_PORT_NAME];
	unsigned int rank, ranks;
	uint64_t outage_ns;
	bool reads_events;
	pthread_t thread;

	atomic_bool is_ending;
	atomic_uint forgone;	    /* ports that memory could not be registered for: a bit each */
	_Atomic uint64_t polled_ns; /* when NCCL moved it last */
	atomic_bool is_to_join;	    /* and it cannot go on without the thread */

	pthread_mutex_t lock; /* protects the rest */
	struct ha_host *host;
	bool is_over_told;
	uint32_t epochs_told;
	struct ha_host_fates fates_told;
	bool is_alone;			  /* as was counted last */
	struct nccl_ha_inc_stats counted; /* since it was published; its pauses: */
	struct ha_hist pauses;
	unsigned int open; /* requests that are not free */
	struct ha_coll_request request[HA_MEMBER_OPS];
};

/* ---- what people are told ------------------------------------------------------------------- */

static struct ha_event event_of(const struct ha_coll *coll, enum ha_event_kind kind,
				const char *detail)
{
	struct ha_event event = ha_event_init(kind, HA_REASON_NONE);

	event.detail = detail;
	event.conn_name = *coll->group ? coll->group : NULL;
	if (coll->host) {
		event.conn_id = ha_host_part(coll->host)->group;
		event.epoch = ha_host_epochs(coll->host);
	}
	return event;
}

static void log_event(const struct ha_coll *coll, enum ha_event_kind kind, const char *detail)
{
	const struct ha_event event = event_of(coll, kind, detail);

	ha_eventlog_write(coll->events, &event);
}

static void tell_how_it_begins(const struct ha_coll *coll)
{
	const struct ha_part *part = ha_host_part(coll->host);

	HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
		"INC group %s: rank %u of %u at %s, %u lanes, %u spare trees, units of %u bytes, "
		"%s%s",
		coll->group, coll->rank, coll->ranks, coll->name, part->lanes, part->spares,
		part->unit_bytes, coll->ports.n > 1 ? "if its port goes down by " : "no other port",
		coll->ports.n > 1 ? coll->ports.port[1]->nic->name : "");
	log_event(coll, HA_EVENT_INC_CONNECT, NULL);
}

/* As many as there were since somebody looked: the last one's time stands for all. */
static void count_epochs(struct ha_coll *coll, uint32_t epochs, const char *why)
{
	const struct ha_host_fates fates = ha_host_fates(coll->host);
	struct ha_event event = event_of(coll, HA_EVENT_INC_EPOCH, why);

	event.blackout_ns = ha_host_pause_ns(coll->host);
	event.completed_without_resend = fates.taken - coll->fates_told.taken;
	event.replayed_messages = fates.again - coll->fates_told.again;
	coll->fates_told = fates;
	coll->counted.epochs += epochs;
	coll->counted.units_taken += event.completed_without_resend;
	coll->counted.units_again += event.replayed_messages;
	ha_hist_add(&coll->pauses, event.blackout_ns);
	ha_eventlog_write(coll->events, &event);
}

static void tell_of_epochs(struct ha_coll *coll)
{
	const uint32_t epochs = ha_host_epochs(coll->host);
	const char *loss = ha_host_last_loss(coll->host);
	const bool is_away = ha_host_is_away(coll->host);

	if (epochs == coll->epochs_told || ha_host_state(coll->host) == HA_HOST_OVER)
		return;
	if (!*loss)
		loss = "other ranks lost theirs";
	count_epochs(coll, epochs - coll->epochs_told,
		     is_away ? loss : "its plan's switches are back");
	coll->epochs_told = epochs;
	if (!is_away) {
		HA_ATTN(HA_SUBSYS_NET, "INC group %s, rank %u: goes by its plan's switches again",
			coll->group, coll->rank);
		return;
	}
	HA_WARN("INC group %s, rank %u: goes on by another way, for the %u. time, as %s",
		coll->group, coll->rank, epochs, loss);
}

/* A group that has ended and that nothing more is asked of is of no interest. */
static void tell_of_the_end(struct ha_coll *coll, bool is_asked)
{
	char why[HA_HOST_WHY];

	if (coll->is_over_told || !is_asked || ha_host_state(coll->host) != HA_HOST_OVER)
		return;
	coll->is_over_told = true;
	coll->counted.groups_failed++;
	ha_host_why(coll->host, why);
	log_event(coll, HA_EVENT_INC_ABORT, why);
	HA_WARN("INC group %s, rank %u: its all-reduces have ended: %s", coll->group, coll->rank,
		why);
}

/* ---- progress ------------------------------------------------------------------------------- */

/* With the lock. May wait for switches of another plan. */
static bool move(struct ha_coll *coll)
{
	const bool moved = ha_host_progress(coll->host);

	atomic_store(&coll->is_to_join, false);
	tell_of_epochs(coll);
	tell_of_the_end(coll, coll->open > 0);
	return moved;
}

/* The same for whoever may not wait. */
static void poll(struct ha_coll *coll)
{
	ha_host_poll(coll->host);
	atomic_store(&coll->is_to_join, ha_host_is_to_join(coll->host));
}

/* With the lock. What is "now" grows less by wrapping. */
static void publish(struct ha_coll *coll)
{
	static const struct nccl_ha_inc_stats nothing;
	const bool is_alone = ha_host_is_without_switches(coll->host);

	coll->counted.groups_alone += (uint64_t)is_alone - (uint64_t)coll->is_alone;
	coll->is_alone = is_alone;
	memcpy(&coll->counted.pause, &coll->pauses, sizeof(coll->pauses));
	if (memcmp(&coll->counted, &nothing, sizeof(nothing)) == 0)
		return;
	ha_stats_inc_add(coll->stats, &coll->counted);
	coll->counted = (struct nccl_ha_inc_stats){0};
	coll->pauses = (struct ha_hist){0};
}

/* Where NCCL moves everything a thread that held the lock, and no processor, would be in its way.
 */
static bool is_needed(const struct ha_coll *coll)
{
	return ha_real_ns() > atomic_load(&coll->polled_ns) + POLLED_NS ||
	       atomic_load(&coll->is_to_join);
}

/* Without work a sixteenth of the time that there has been none. */
static uint64_t nap(uint64_t moved_ns, uint64_t now_ns)
{
	const uint64_t nap_ns = (now_ns - moved_ns) / 16;

	if (nap_ns > NAP_MAX_NS)
		return NAP_MAX_NS;
	return nap_ns > NAP_MIN_NS ? nap_ns : NAP_MIN_NS;
}

/* One thread at a time, whichever of those whose NICs they are. */
static void read_events(const struct ha_coll *coll)
{
	static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

	if (pthread_mutex_trylock(&reading) != 0)
		return;
	for (unsigned int p = 0; p < coll->ports.n; p++) {
		struct ha_port *port = coll->ports.port[p];

		(void)ha_nic_read_events(coll->set, port->nic);
		if (atomic_exchange(&port->refresh_due, false))
			(void)!ha_port_refresh(port); /* another event tells when it can be used */
	}
	pthread_mutex_unlock(&reading);
}

static void *run(void *arg)
{
	struct ha_coll *coll = arg;
	uint64_t moved_ns = 0, published_ns = 0, read_ns = 0;

	while (!atomic_load(&coll->is_ending)) {
		if (coll->reads_events && ha_real_ns() - read_ns >= EVENTS_NS) {
			read_events(coll);
			read_ns = ha_real_ns();
		}
		const bool is_to_move = is_needed(coll);
		const bool is_to_publish = ha_real_ns() - published_ns >= PUBLISH_NS;

		if ((is_to_move || is_to_publish) && pthread_mutex_trylock(&coll->lock) == 0) {
			if (is_to_move && move(coll))
				moved_ns = ha_real_ns();
			if (is_to_publish) {
				publish(coll);
				published_ns = ha_real_ns();
			}
			pthread_mutex_unlock(&coll->lock);
		}
		ha_real_sleep_ns(nap(moved_ns, ha_real_ns()));
	}
	return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */

static ha_result_t refuse(ha_result_t result, char *why, const char *reason)
{
	snprintf(why, WHY, "%s", reason);
	return result;
}

/* What can be known before anybody is asked. */
static ha_result_t check(const struct ha_coll_wish *wish, char *why)
{
	const struct ha_config *config = wish->config;

	if (wish->is_nccl && wish->ranks < (unsigned int)config->inc_min_ranks) {
		snprintf(why, WHY, "HA_NCCL_INC_MIN_RANKS is %d", config->inc_min_ranks);
		return HA_ERR_ARGUMENT;
	}
	if (!*config->inc_controller || !*config->inc_key_file)
		return refuse(HA_ERR_ARGUMENT, why,
			      "HA_NCCL_INC_CONTROLLER and HA_NCCL_INC_KEY_FILE are needed: where "
			      "nccl-ha-ctrld listens, and the site's key");
	if (wish->is_nccl && wish->port->bundle && wish->port->bundle->ptr_support & HA_MEM_CUDA)
		return refuse(HA_ERR_ARGUMENT, why,
			      "this NIC reaches GPU memory, and only host memory can be added up "
			      "yet");
	return HA_OK;
}

/* The one that NCCL has chosen, and of the others the best that works now, or the best of all. */
static struct ha_member_ports ports_of(const struct ha_coll_wish *wish)
{
	struct ha_port *ranked[HA_MAX_PORTS];
	struct ha_member_ports ports = {{wish->port}, 1};
	int n = 1, best = 1;

	if (wish->config->enable_backup)
		n = ha_standby_rank(wish->set, wish->port, wish->rank, ranked, HA_MAX_PORTS);
	while (best < n && !ha_port_usable(ranked[best]))
		best++;
	if (n > 1)
		ports.port[ports.n++] = ranked[best < n ? best : 1];
	return ports;
}

static ha_result_t prepare(struct ha_coll *coll, const struct ha_coll_wish *wish, char *why)
{
	const struct ha_config *config = wish->config;

	if (!wish->group)
		return refuse(HA_ERR_USAGE, why, "rank 0 has another version of the plugin");
	snprintf(coll->group, sizeof(coll->group), "%s", wish->group);
	ha_coll_port_name(config, wish->port, coll->name);
	coll->ports = ports_of(wish);
	if (!ha_resolve(config->inc_controller, &coll->controller, why, WHY))
		return HA_ERR_ARGUMENT;
	if (ha_job_key_load_file("HA_NCCL_INC_KEY_FILE", config->inc_key_file, &coll->site) !=
	    HA_OK)
		return refuse(HA_ERR_ARGUMENT, why, "the site's key cannot be read");
	return HA_OK;
}

static ha_result_t open_host(struct ha_coll *coll, const struct ha_coll_wish *wish, char *why)
{
	const struct ha_config *config = wish->config;
	const struct ha_host_wish host = {
	    .ask = {.controller = &coll->controller,
		    .site = coll->site,
		    .group = coll->group,
		    .port = coll->name,
		    .label = *config->inc_label ? config->inc_label : NULL,
		    .rank = wish->rank,
		    .ranks = wish->ranks,
		    .unit_bytes = (uint32_t)config->inc_unit & ~(uint32_t)(HA_CUT_ALIGN - 1),
		    .window = (unsigned int)config->inc_window,
		    .is_reproducible = config->inc_reproducible},
	    .ports = coll->ports,
	    .copies = (unsigned int)config->inc_copies,
	    .connect_ns = (unsigned int)config->inc_connect_ms * HA_NS_PER_MS,
	    .join_ns = (unsigned int)config->inc_join_ms * HA_NS_PER_MS,
	    .late_ns = (unsigned int)config->inc_rto_ms * HA_NS_PER_MS,
	    .outage_ns = coll->outage_ns,
	    .failback_ns = (unsigned int)config->inc_failback_ms * HA_NS_PER_MS,
	    .needs_switches = config->inc_fallback == HA_INC_FALLBACK_NONE,
	};

	return ha_host_open(&host, &coll->host, why, WHY);
}

static void free_coll(struct ha_coll *coll)
{
	ha_job_key_free(coll->site);
	pthread_mutex_destroy(&coll->lock);
	free(coll);
}

/* As far as it goes; the thread is the last thing that can fail, and ends the group for all. */
static ha_result_t open_all(struct ha_coll *coll, const struct ha_coll_wish *wish, char *why)
{
	HA_TRY(check(wish, why));
	HA_TRY(prepare(coll, wish, why));
	HA_TRY(open_host(coll, wish, why));
	if (ha_thread_start(&coll->thread, "nccl-ha-inc", run, coll) == 0)
		return HA_OK;
	while (ha_host_close(coll->host) != HA_OK)
		ha_real_sleep_ns(NAP_MAX_NS);
	return refuse(HA_ERR_SYSTEM, why, "no thread can be started");
}

ha_result_t ha_coll_open(const struct ha_coll_wish *wish, struct ha_coll **out)
{
	struct ha_coll *coll = calloc(1, sizeof(*coll));
	char own_why[WHY] = "", *why = wish->why ? wish->why : own_why;
	ha_result_t result;

	*out = NULL;
	*why = '\0';
	if (!coll)
		return HA_ERR_SYSTEM;
	pthread_mutex_init(&coll->lock, NULL);
	coll->stats = wish->stats;
	coll->events = wish->events;
	coll->set = wish->set;
	coll->reads_events = wish->reads_events;
	coll->rank = wish->rank;
	coll->ranks = wish->ranks;
	coll->outage_ns = ha_outage_ns(wish->config);
	result = open_all(coll, wish, why);
	if (result != HA_OK) {
		ha_stats_inc_add(wish->stats, &(struct nccl_ha_inc_stats){.groups_refused = 1});
		log_event(coll, HA_EVENT_INC_REFUSED, why);
		HA_WARN("INC: a group of %u ranks is refused: %s", wish->ranks, why);
		free_coll(coll);
		return result;
	}
	ha_stats_inc_add(coll->stats, &(struct nccl_ha_inc_stats){.groups = 1, .groups_joined = 1});
	tell_how_it_begins(coll);
	*out = coll;
	return HA_OK;
}

size_t ha_coll_unit_bytes(const struct ha_coll *coll)
{
	return ha_host_part(coll->host)->unit_bytes;
}

void ha_coll_why(struct ha_coll *coll, char why[HA_HOST_WHY])
{
	pthread_mutex_lock(&coll->lock);
	ha_host_why(coll->host, why);
	pthread_mutex_unlock(&coll->lock);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Nobody asks again for what a NIC has refused once. */
static bool is_forgone(const struct ha_coll *coll, unsigned int port)
{
	return atomic_load(&coll->forgone) >> port & 1;
}

/* Its key on the NIC of a port; false: there is none any more. */
static bool key_of(const struct ha_coll *coll, struct ha_mr *mr, unsigned int port, uint32_t *lkey)
{
	struct ibv_mr *on_nic;

	if (!mr || ha_mr_on(mr, coll->ports.port[port]->nic, &on_nic) != HA_OK)
		return false;
	*lkey = on_nic->lkey;
	return true;
}

static struct ha_nic *nic_to_begin_with(const struct ha_coll *coll)
{
	const bool is_second = coll->ports.n > 1 && !ha_port_usable(coll->ports.port[0]) &&
			       ha_port_usable(coll->ports.port[1]);

	return coll->ports.port[is_second]->nic;
}

ha_result_t ha_coll_register(struct ha_coll *coll, void *data, size_t size, int type,
			     struct ha_mr **out)
{
	*out = NULL;
	if (type != HA_MEM_HOST) {
		HA_WARN("INC group %s: memory that is not a host's cannot be added up",
			coll->group);
		return HA_ERR_ARGUMENT;
	}
	HA_TRY(ha_mr_register(coll->set, nic_to_begin_with(coll), data, size, type, 0, -1, out));
	for (unsigned int p = 0; p < coll->ports.n; p++) {
		uint32_t lkey;

		if (!is_forgone(coll, p))
			(void)key_of(coll, *out, p, &lkey); /* who needs it asks again */
	}
	return HA_OK;
}

/* ---- operations ----------------------------------------------------------------------------- */

static struct ha_coll_request *free_request(struct ha_coll *coll)
{
	for (unsigned int i = 0; i < HA_MEMBER_OPS; i++)
		if (!coll->request[i].coll)
			return &coll->request[i];
	return NULL;
}

/* Returns the ports on whose NIC its memory is not registered: a bit each. */
static unsigned int fill_keys(const struct ha_coll *coll, const struct ha_coll_all_reduce *ask,
			      struct ha_all_reduce *reduce)
{
	unsigned int missing = 0;

	for (unsigned int p = 0; p < coll->ports.n; p++)
		if (!is_forgone(coll, p) &&
		    (!key_of(coll, ask->send_mr, p, &reduce->send_lkey[p]) ||
		     !key_of(coll, ask->recv_mr, p, &reduce->recv_lkey[p])))
			missing |= 1u << p;
	return missing;
}

/* With the lock: the member goes by no port that an operation cannot go by. False: it does now. */
static bool forgo(struct ha_coll *coll, unsigned int missing)
{
	if (missing >> ha_host_at(coll->host) & 1)
		return false;
	for (unsigned int p = 0; p < coll->ports.n; p++)
		if (missing >> p & 1)
			ha_host_forgo(coll->host, p);
	atomic_fetch_or(&coll->forgone, missing);
	return true;
}

/* With the lock. */
static void begin(struct ha_coll *coll, const struct ha_all_reduce *reduce, size_t bytes,
		  struct ha_coll_request **out)
{
	struct ha_coll_request *request = free_request(coll);

	if (!request || !ha_host_all_reduce(coll->host, reduce, &request->number))
		return;
	request->coll = coll;
	request->bytes = bytes;
	coll->open++;
	*out = request;
	poll(coll);
}

ha_result_t ha_coll_all_reduce(struct ha_coll *coll, const struct ha_coll_all_reduce *ask,
			       struct ha_coll_request **request)
{
	const struct ha_reduction *reduction = ha_reduction_of(ask->type, ask->op);
	struct ha_all_reduce reduce = {.type = ask->type,
				       .op = ask->op,
				       .count = ask->count,
				       .send = ask->send,
				       .recv = ask->recv,
				       .is_empty = ask->is_empty};
	const unsigned int missing = fill_keys(coll, ask, &reduce);
	ha_result_t result = HA_OK;

	*request = NULL;
	if (!reduction)
		return HA_ERR_ARGUMENT;
	atomic_store(&coll->polled_ns, ha_real_ns());
	if (pthread_mutex_trylock(&coll->lock) != 0)
		return HA_OK;
	tell_of_the_end(coll, true);
	if (ha_host_state(coll->host) == HA_HOST_OVER)
		result = ha_host_result(coll->host);
	else if (!forgo(coll, missing))
		result = HA_ERR_ARGUMENT;
	else
		begin(coll, &reduce, ask->count * ha_reduce_bytes(reduction, HA_REDUCE_WIRE),
		      request);
	pthread_mutex_unlock(&coll->lock);
	return result;
}

static void end(struct ha_coll_request *request)
{
	request->coll->open--;
	request->coll = NULL;
}

ha_result_t ha_coll_test(struct ha_coll_request *request, bool *done, size_t *bytes)
{
	struct ha_coll *coll = request->coll;
	ha_result_t result = HA_OK;

	*done = false;
	atomic_store(&coll->polled_ns, ha_real_ns());
	if (pthread_mutex_trylock(&coll->lock) != 0)
		return HA_OK;
	poll(coll);
	*done = ha_host_is_done(coll->host, request->number);
	coll->counted.all_reduces += *done;
	coll->counted.bytes += *done ? request->bytes : 0;
	tell_of_the_end(coll, !*done);
	*bytes = request->bytes;
	if (!*done && ha_host_state(coll->host) == HA_HOST_OVER)
		result = ha_host_result(coll->host);
	if (*done || result != HA_OK)
		end(request);
	pthread_mutex_unlock(&coll->lock);
	return result;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Until something is so, or it is over; false: not within the time. */
static bool wait_until(struct ha_coll *coll, bool (*is_so)(const struct ha_host *host),
		       uint64_t limit_ns)
{
	const uint64_t until_ns = ha_real_ns() + limit_ns;

	while (!is_so(coll->host) && ha_host_state(coll->host) != HA_HOST_OVER) {
		if (ha_real_ns() >= until_ns)
			return false;
		if (!move(coll))
			ha_real_sleep_ns(NAP_MIN_NS);
	}
	return true;
}

static bool has_left(const struct ha_host *host)
{
	return ha_host_state(host) == HA_HOST_LEFT;
}

/* The thread has ended. */
static void leave(struct ha_coll *coll)
{
	if (coll->open > 0)
		return;
	ha_host_leave(coll->host);
	if (!wait_until(coll, ha_host_has_said_so, coll->outage_ns))
		HA_WARN("INC group %s, rank %u: is closed while other ranks lack what this one has "
			"asked for, as they have not come for it in time",
			coll->group, coll->rank);
	else
		(void)wait_until(coll, has_left, LEAVE_NS);
}

void ha_coll_close(struct ha_coll *coll)
{
	uint64_t until_ns;

	if (!coll)
		return;
	atomic_store(&coll->is_ending, true);
	pthread_join(coll->thread, NULL);
	pthread_mutex_lock(&coll->lock);
	leave(coll);
	publish(coll);
	ha_stats_inc_add(coll->stats,
			 &(struct nccl_ha_inc_stats){.groups = (uint64_t)-1,
						     .groups_alone = -(uint64_t)coll->is_alone});
	until_ns = ha_real_ns() + LET_GO_NS;
	while (ha_host_close(coll->host) != HA_OK) {
		if (ha_real_ns() < until_ns) {
			ha_real_sleep_ns(NAP_MAX_NS);
			continue;
		}
		HA_WARN("INC group %s, rank %u: the device does not destroy its queue pairs; their "
			"memory is left to it",
			coll->group, coll->rank);
		break;
	}
	pthread_mutex_unlock(&coll->lock);
	free_coll(coll);
}
