/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stepped fabric: ports, switch and the heap of events to come (stepped_queue.c), sending
 * (stepped_wire.c), stepping (stepped.c), verbs that wait (stepped_wait.c), opening, devices and
 * faults by call (stepped_api.c).
 */
#ifndef SV_STEPPED_H
#define SV_STEPPED_H

#include "core.h"
#include "islands.h"
#include "link.h"

#include "simverbs/simverbs.h"

/* A packet on its way, with its payload. Kept on a free list between uses. */
struct sv_flight {
	struct sv_flight *next; /* free list, or the list of those held back */
	struct sv_packet pkt;
	uint64_t arrival_ns;
	uint32_t overtake; /* held back until this many more left the port */
	uint8_t refs;	   /* events in the heap that name it */
	bool done;	   /* delivered: a remaining event is void */
	bool arrived;	   /* has taken the way into its destination */
	bool rx_judged;	   /* rules at the destination have had their say */
	uint8_t payload[];
};

enum sv_event_type { SV_EV_PACKET, SV_EV_ACTION, SV_EV_TELL };

/* An action of the fabric at a time, such as undoing a `for=`. */
struct sv_action {
	uint32_t kind; /* enum sv_fault_kind */
	uint32_t host, rail;
	uint32_t leg;  /* of a bond's */
	uint32_t phys; /* SV_ANY: all ports of the device */
	uint64_t for_ns;
	uint64_t leave_ns; /* of DISASSOCIATE and FEIGN */
	bool leaves;	   /* its second half */
	bool renamed;	   /* of REVIVE */
};

struct sv_event {
	uint64_t time_ns;
	uint64_t order; /* of events at one time */
	enum sv_event_type type;
	union {
		struct sv_flight *flight;
		struct sv_action action;
		uint32_t port_index; /* TELL: contexts hear of its state */
	};
};

struct sv_stepped_device {
	struct sv_port *port;
	uint32_t first_qpn, next_qpn;
	uint32_t open_contexts;
	uint64_t leaves_ns; /* one that is leaving: when its queue pairs end */
	uint32_t renamed;   /* how often it came back under another name */
};

/* A physical port. */
struct sv_stepped_port {
	bool link_up;
	uint32_t legs; /* SV_LEG_DEAD and SV_LEG_REMAPPED */
	struct sv_flight *held;
	uint32_t inbound; /* events on their way here */
};

struct sv_stepped {
	/*
	 * The lock of every port and of everything here. Recursive, because a step holds it while
	 * it calls into ports: packets that one port sends go straight into the heap of all.
	 */
	pthread_mutex_t lock;
	struct sv_stepped_opts opts;
	uint32_t num_devices, num_ports;
	struct sv_link_plan plan;
	struct sv_links links;
	struct sv_islands islands;
	struct sv_stepped_device *devices; /* host * rails + rail */
	struct sv_stepped_port *ports;	   /* by sv_port_index() */
	uint64_t *last_arrival_ns;	   /* src * num_ports + dst: one path keeps its order */
	bool *blocked;			   /* src * num_ports + dst */
	bool *rail_cut;
	_Atomic uint64_t now_ns; /* read without the lock too */
	uint64_t index;
	uint64_t order;
	uint64_t rng;
	struct sv_event *heap;
	uint32_t heap_len, heap_cap;
	struct sv_flight *free_flights;
	uint32_t max_payload; /* of one flight */
	struct sv_fault_table faults;
	struct sv_stepped_stats stats;
	uint64_t number; /* of this fabric among all that the process has opened */
	/* What becomes of a verb that waits: the function if there is one, else by the mode. */
	enum sv_wait_mode wait_mode;
	sv_wait_fn *on_wait;
	void *on_wait_arg;
};

/* These begin as the public functions do, by whose names the library exports, but stay inside. */
#pragma GCC visibility push(hidden)

extern struct sv_stepped *sv_fabric;

void sv_stepped_lock(void);
void sv_stepped_unlock(void);
extern const struct sv_wire_ops sv_stepped_wire;

static inline uint32_t sv_bit(enum sv_fault_kind kind)
{
	return 1u << kind;
}

/* stepped_queue.c */
void sv_event_push(struct sv_stepped *fab, struct sv_event event);
struct sv_event sv_event_pop(struct sv_stepped *fab);
void sv_action_push(struct sv_stepped *fab, uint64_t time_ns, const struct sv_action *action);
void sv_tell_push(struct sv_stepped *fab, uint64_t time_ns, uint32_t port_index);
struct sv_flight *sv_flight_new(struct sv_stepped *fab);
struct sv_flight *sv_flight_copy(struct sv_stepped *fab, const struct sv_flight *from);
/* Arrives at this time: an event that names it. */
void sv_flight_push(struct sv_stepped *fab, struct sv_flight *f, uint64_t time_ns);
/* An event (or list) that named it is over. */
void sv_flight_drop_ref(struct sv_stepped *fab, struct sv_flight *f);
void sv_stepped_free_flights(struct sv_stepped *fab);

/* stepped_wire.c */
uint64_t sv_stepped_random(struct sv_stepped *fab);
/* Is there a way from one port to the other at this moment? Counts the loss if not. */
bool sv_connected(struct sv_stepped *fab, const struct sv_packet *pkt, bool at_source);
/* Does a rule lose this packet? Counts it. */
bool sv_lost_by_rule(struct sv_stepped *fab, const struct sv_fault_verdict *v);
/* Calls `act` for each fabric action of a verdict. */
void sv_for_actions(const struct sv_fault_verdict *v, void (*act)(const struct sv_action *action));

/* stepped.c */
void sv_stepped_act(const struct sv_action *action);
/* Locked. The next event, unless there is none up to this time: false. */
bool sv_stepped_step_until(struct sv_stepped *fab, uint64_t until_ns);

/* stepped_wait.c, not locked: sv_wire_ops.verb_waits. */
void sv_stepped_verb_waits(struct sv_port *port, uint32_t verb, uint64_t ns, const bool *dead);

/* stepped_api.c */
struct sv_stepped_device *sv_stepped_device_at(uint32_t host, uint32_t rail);
/* The device that a port index belongs to. */
static inline struct sv_stepped_device *sv_stepped_device_of(struct sv_stepped *fab,
							     uint32_t port_index)
{
	return &fab->devices[sv_index_device(port_index, fab->num_devices)];
}

static inline uint32_t sv_stepped_rail_of(const struct sv_stepped *fab, uint32_t port_index)
{
	return sv_index_device(port_index, fab->num_devices) % fab->opts.rails;
}

#pragma GCC visibility pop

#endif
