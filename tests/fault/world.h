/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts on a stepped fabric with everything that runs on them: instances, connections and
 * their applications, in one thread. A step is a turn of each host and at most one event of the
 * fabric, so a run is a function of scenario, seed and faults.
 */
#ifndef HA_TESTS_FAULT_WORLD_H
#define HA_TESTS_FAULT_WORLD_H

#include "scenario.h"

#include "base/config.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"
#include "transport/shared.h"

#define WORLD_CONNECTIONS 4 /* with one for a process that begins anew */
#define WORLD_HOSTS	  3 /* at most; faults are at the first two */
#define WORLD_RAILS	  4

#define WORLD_STRANGERS 16

/* Timers of a run, of virtual time: short, so that a run is. */
#define WORLD_HEARTBEAT_MS 10
#define WORLD_RTO_MS	   40
#define WORLD_OUTAGE_MS	   400

struct end {
	struct traffic traffic;
	struct ha_comm *comm;
	uint32_t host;
	bool gone; /* its process */
	bool closed;
	uint64_t refused_by_step;    /* its memory, in the step before this one; 0: it was not */
	uint64_t failovers, replays; /* as they were when it was closed */
	uint64_t
	    through_ns; /* since when it waits for a count before it is closed; 0: it does not */
};

struct connection {
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_MAX];
	struct end send, recv;
};

/* Timers other than those above, as the variables of the same names. */
struct world_timers {
	int heartbeat_ms, rto_ms, outage_ms;
	int qp_timeout, qp_retry_cnt;
};

struct world_options {
	const struct scenario *scenario;
	bool e2e;	  /* HA_NCCL_COMPLETION=e2e */
	bool no_failover; /* HA_NCCL_ENABLE_BACKUP=0 */
	bool failback;	  /* HA_NCCL_ENABLE_FAILBACK=1 */
	bool unordered;	  /* devices place plain WRITEs in any order */
	bool apart;	  /* the hosts' clocks are: hours, and some go faster */
	uint64_t seed;	  /* 0: both hosts take every turn; else some turns are missed */
	bool trace;	  /* events and log to stderr */
	const struct world_timers *timers; /* NULL: those of a short run */
};

struct world {
	struct world_options options;
	struct ha_config config;
	uint32_t hosts;
	struct ha_instance *inst[WORLD_HOSTS];
	struct ha_instance *before[WORLD_HOSTS]; /* of a process that is gone and began anew */
	struct connection connections[WORLD_CONNECTIONS];
	unsigned nconnections;
	int standing_rules; /* of the fabric: those that are no faults */
	uint64_t steps;
	unsigned idle_ticks;
	uint64_t chance; /* of missed turns */
	unsigned lazy;	 /* of 8 turns so many are missed */
	uint64_t digest; /* of every event so far */
	/* What faults did. */
	uint64_t frozen_until_ns[WORLD_HOSTS];
	uint64_t frozen_turns[WORLD_HOSTS];
	uint64_t blocked_until_ns[WORLD_HOSTS]; /* the application, in a call */
	bool dead[WORLD_HOSTS];			/* its process is gone */
	uint64_t begins_ns[WORLD_HOSTS];	/* when another one begins; 0: none does */
	int strangers[WORLD_STRANGERS];		/* sockets of theirs */
	unsigned nstrangers;
	unsigned turned_away; /* of them: their sockets were closed while they were there */
	struct world_address {
		bool changed;
		uint32_t index;
		union ibv_gid gid; /* that it had at first */
	} addresses[WORLD_HOSTS][WORLD_RAILS];
};

void world_open(struct world *world, const struct world_options *options);
/* Closes what is open, in the order that NCCL would, and everything under it. What is wrong with
 * that is in `violation`, which is left alone otherwise. */
void world_close(struct world *world, char *violation, size_t size);

/* One step. Time goes on by a millisecond at most. */
void world_step(struct world *world);

/* What follows is done on this host: by its clock, with its devices. */
void world_act_as(uint32_t host);

/* The process of a host is gone, with its sockets; its devices have let go of it. */
void world_kill_process(struct world *world, uint32_t host);
/* After that: another one begins a little later, and has a connection of its own. False: there was
 * one already. */
bool world_begin_anew(struct world *world, uint32_t host);

/* Nobody is within a connect to one of them any more: it has failed, since it cannot be taken back.
 */
bool world_has_given_up_the_dead(const struct world *world);

/* What processes that are gone have left behind in this one is closed, and applications close their
 * connections to them. */
void world_bury_the_dead(struct world *world);

/* Strangers leave. */
void world_see_strangers_off(struct world *world);

/* Every connection is up at both ends (or has failed). */
bool world_connected(const struct world *world);
/* ... and has a standby path that was proved. */
bool world_protected(const struct world *world);
/* ... and large messages go over every port of its bundle; true where there is none. */
bool world_carries(const struct world *world);
/* Every end is done or has failed, or is gone, or connects to one that is. */
bool world_settled(const struct world *world);
/* Some end has failed: with which code, at least one of them; HA_OK: none. */
ha_result_t world_error(const struct world *world);
/* The first thing an application saw that must not be; NULL: nothing. */
const char *world_violation(const struct world *world);
/* Memory and, after errors, latched codes. */
void world_check(struct world *world);

/* A host's port on this rail, whatever device NCCL has it as. */
struct ha_port *world_port(const struct world *world, uint32_t host, unsigned rail);

/* The rail of a host's end of the active path of the first connection that has one. */
unsigned world_active_rail(const struct world *world, uint32_t host);

uint64_t world_failovers(const struct world *world);
uint64_t world_replays(const struct world *world);

/* The end of the log, for a failure's report. */
const char *world_log(void);
/* Empty: none. */
const char *world_first_warning(void);

/* Releases the memory kept between runs. */
void world_free(struct world *world);

static inline struct end *end_peer(const struct end *end)
{
	return (struct end *)((char *)end->traffic.peer - offsetof(struct end, traffic));
}

/* One of its connection's two processes is gone. */
static inline bool end_lost_a_process(const struct end *end)
{
	return end->gone || end_peer(end)->gone;
}

/* Closed with all its traffic through, as its application meant to. */
static inline bool end_is_through(const struct end *end)
{
	return end->closed && end->traffic.state == TRAFFIC_DONE;
}

/* ... or lost to a process that is gone, and closed for that. */
static inline bool end_is_over(const struct end *end)
{
	return end_is_through(end) || (end->closed && end_lost_a_process(end));
}

/* Calls fn for each end. */
#define world_each_end(world, end)                                                                 \
	for (struct end *end = world_first_end(world); end; end = world_next_end(world, end))

static inline struct end *world_first_end(const struct world *world)
{
	return world->nconnections ? (struct end *)&world->connections[0].send : NULL;
}

static inline struct end *world_next_end(const struct world *world, const struct end *end)
{
	const struct connection *connection = world->connections;

	for (unsigned i = 0; i < world->nconnections; i++) {
		if (end == &connection[i].send)
			return (struct end *)&connection[i].recv;
		if (end == &connection[i].recv && i + 1 < world->nconnections)
			return (struct end *)&connection[i + 1].send;
	}
	return NULL;
}

#endif
