/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"
#include "memory/pd.h"

#include "../unit/read_events.h"

#include "memory/mr.h"

static void note_down(struct ha_live_link *link)
{
	struct observer *o = ha_container_of(link, struct observer, link);

	o->downs++;
	o->down_ns = ha_now_ns();
}

static void note_up(struct ha_live_link *link)
{
	ha_container_of(link, struct observer, link)->ups++;
}

static bool say_traffic(struct ha_live_link *link)
{
	struct observer *o = ha_container_of(link, struct observer, link);

	o->asked++;
	return o->traffic;
}

struct ha_config config;
struct end ends[2];
struct observer witness[2];

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

void open_end(int host)
{
	const struct ha_progress_options options = {.idle_spin_threshold = 1};
	struct end *e = &ends[host];

	sv_stepped_set_host((uint32_t)host);
	assert_int_equal(ha_device_set_open(&config, &e->set), HA_OK);
	assert_int_equal(ha_progress_start(&options, &e->progress), HA_OK);
	e->live = ha_liveness_new(e->progress, &config);
	assert_non_null(e->live);
}

void close_end(int host)
{
	struct end *e = &ends[host];

	if (!e->set)
		return;
	detach(host, &witness[host]);
	ha_liveness_free(e->live);
	ha_progress_stop(e->progress);
	for (int i = 0; i < e->set->nnics; i++)
		assert_null(e->set->nics[i].now->pd);
	ha_memory_close(e->set);
	ha_device_set_close(e->set);
	memset(e, 0, sizeof *e);
}

void fabric(const struct sv_stepped_opts *opts)
{
	struct sv_stepped_opts with_rails = *opts;

	with_rails.rails = RAILS;
	with_rails.seed = 1;
	assert_int_equal(sv_stepped_open(&with_rails), 0);
	ha_clock_set_source(sv_stepped_now);
	open_end(0);
	open_end(1);
	for (int i = 0; i < 2; i++)
		attach(i, WITNESS, WITNESS, &witness[i]);
}

int setup(void **state)
{
	(void)state;
	ha_config_load(&config, no_env);
	config.heartbeat_ms = INTERVAL_MS;
	memset(ends, 0, sizeof ends);
	return 0;
}

int teardown(void **state)
{
	bool clean = sv_stepped_open_contexts() == 0 && sv_stepped_close() == 0;

	(void)state;
	if (!clean)
		sv_stepped_destroy();
	ha_clock_set_source(NULL);
	return clean ? 0 : -1;
}

void done(void)
{
	close_end(0);
	close_end(1);
	assert_int_equal(sv_stepped_open_contexts(), 0);
}

/* ---- time ----------------------------------------------------------------------------------- */

void rounds(void)
{
	for (int i = 0; i < 2; i++) {
		if (!ends[i].progress || ends[i].asleep)
			continue;
		for (int nic = 0; nic < ends[i].set->nnics; nic++)
			read_events(ends[i].set, &ends[i].set->nics[nic]);
		ha_progress_round(ends[i].progress);
	}
}

void run_us(uint64_t us)
{
	uint64_t end = sv_stepped_now() + us * HA_NS_PER_US;

	rounds();
	while (sv_stepped_now() < end) {
		uint64_t next = sv_stepped_now() + HA_NS_PER_MS;
		struct sv_event_info info;

		if (next > end)
			next = end;
		while (sv_stepped_peek(&info) && info.time_ns <= next) {
			sv_stepped_step();
			rounds();
		}
		sv_stepped_run(next);
		rounds();
	}
}

void run_ms(uint64_t ms)
{
	run_us(ms * 1000);
}

/* ---- sessions ------------------------------------------------------------------------------- */

struct ha_port *port_of(int host, int rail)
{
	return &ends[host].set->ports[rail];
}

struct ha_live_endpoint endpoint_of(int host, int rail)
{
	struct ha_live_endpoint out;

	assert_true(ha_liveness_endpoint(ends[host].live, port_of(host, rail), &out));
	return out;
}

void attach_to(int host, int rail, const struct ha_live_endpoint *remote, struct observer *o)
{
	memset(o, 0, sizeof *o);
	o->link.down = note_down;
	o->link.up = note_up;
	o->link.alive = say_traffic;
	(void)endpoint_of(host, rail);
	assert_true(
	    ha_liveness_attach(ends[host].live, port_of(host, rail), remote, 0, 0, &o->link));
}

void attach(int host, int rail, int remote_rail, struct observer *o)
{
	struct ha_live_endpoint remote = endpoint_of(!host, remote_rail);

	attach_to(host, rail, &remote, o);
}

void detach(int host, struct observer *o)
{
	ha_liveness_detach(ends[host].live, &o->link);
	assert_null(o->link.session);
}

enum ha_session_state state_of(const struct observer *o)
{
	return ha_session_state(o->link.session);
}

void up(int rail, struct observer o[2])
{
	attach(0, rail, rail, &o[0]);
	attach(1, rail, rail, &o[1]);
	run_ms(2 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		assert_int_equal(o[i].ups, 1);
		assert_int_equal(o[i].downs, 0);
	}
}

void assert_went_down_in_time(const struct observer *o, uint64_t since_ns)
{
	uint64_t took = o->down_ns - since_ns;

	assert_int_equal(o->downs, 1);
	assert_int_equal(state_of(o), HA_SESSION_DOWN);
	assert_in_range(took, 15 * INTERVAL_MS * HA_NS_PER_MS / 10,
			(3 * INTERVAL_MS + 1) * HA_NS_PER_MS);
}

struct ha_live_port_report port_report(int host, int rail)
{
	struct ha_live_port_report report;

	assert_true(ha_liveness_port_report(ends[host].live, port_of(host, rail), &report));
	return report;
}
