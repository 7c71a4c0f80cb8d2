/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hosts of a stepped fabric that exchange heartbeats, in one process and on its virtual clock:
 * what the tests of liveness sessions share.
 */
#ifndef HA_TESTS_LIVENESS_WORLD_H
#define HA_TESTS_LIVENESS_WORLD_H

#include "../unit/cmocka_all.h"

#include "base/clock.h"
#include "liveness/liveness.h"
#include "liveness/session_report.h"
#include "simverbs/simverbs.h"

#include <string.h>

#define INTERVAL_MS 10
#define RAILS	    3
/* On the last rail there is always a session, which shows that the peer is there. */
#define WITNESS (RAILS - 1)

/* A link that notes what it is told. */
struct observer {
	struct ha_live_link link;
	int ups, downs;
	uint64_t down_ns;
	bool traffic; /* what it answers when asked */
	int asked;
};

struct end {
	struct ha_device_set *set;
	struct ha_progress *progress;
	struct ha_liveness *live;
	bool asleep; /* its thread does not run */
};

extern struct ha_config config; /* both ends'; changed before `fabric` */
extern struct end ends[2];
extern struct observer witness[2];

/* Of each test: defaults at an interval of INTERVAL_MS; and that nothing is left open. */
int setup(void **state);
int teardown(void **state);

/* A fabric of RAILS rails, whatever opts says, and both ends, which see each other over WITNESS. */
void fabric(const struct sv_stepped_opts *opts);
void open_end(int host);
void close_end(int host);
/* Closes both; asserts that nothing is left. */
void done(void);

void rounds(void);
/* Both ends look after each packet, and every millisecond. */
void run_us(uint64_t us);
void run_ms(uint64_t ms);

struct ha_port *port_of(int host, int rail);
struct ha_live_endpoint endpoint_of(int host, int rail);
void attach_to(int host, int rail, const struct ha_live_endpoint *remote, struct observer *o);
/* To a rail of the other host. */
void attach(int host, int rail, int remote_rail, struct observer *o);
void detach(int host, struct observer *o);
enum ha_session_state state_of(const struct observer *o);
struct ha_live_port_report port_report(int host, int rail);

/* A session between the same rail of both hosts, up at both. */
void up(int rail, struct observer o[2]);

/* Within three intervals and a tick of `since`, and not much before. */
void assert_went_down_in_time(const struct observer *o, uint64_t since_ns);

#endif
