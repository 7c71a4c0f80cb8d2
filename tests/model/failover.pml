/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The failover protocol of one connection: fence, reconcile, replay.
 *
 * Two ends, several paths with generations, a window of slots that are reused, a fabric that
 * delivers late or never, control channels that reorder, repeat, lose and break, and a bounded
 * number of faults that may happen at any moment, also in the middle of a failover. spin visits
 * every interleaving; docs/protocol-model.md says what is abstracted and why that is sound.
 *
 * This file holds the parameters, the state and the properties. The steps are in
 *   fabric.pml    packets: data writes, CTS writes, acknowledgements
 *   sender.pml    the sender's rules
 *   receiver.pml  the receiver's rules
 *   control.pml   the control channels
 *   faults.pml    what can go wrong
 *
 * Every step is one atomic transition. That is sound for an end because everything between two
 * steps of one end is private to it: a fence is only spoken of, and only relied on, after the
 * drain has been confirmed, and whatever arrived while it went on could have arrived just before.
 *
 * MUT_<RULE> removes one rule of the protocol; tests/model/run knows which property must then fail.
 */

/* ---- parameters ------------------------------------------------------------------------- */

#ifndef FAULTS
#define FAULTS 2 /* faults and false alarms in one run */
#endif
#ifndef PATHS
#define PATHS 2
#endif
#ifndef GENS /* generations of a path; a fault costs at most one, so FAULTS of them is enough */
#if FAULTS > 2
#define GENS FAULTS
#else
#define GENS 2
#endif
#endif
#ifndef MSGS
#define MSGS 3 /* messages of a run: the window and one more, so that a slot is used again */
#endif
#define WINDOW 2 /* slots of the CTS ring */

/* STEPWISE: a fence takes time. It is ordered in one step and confirmed in another; in between the
 * queue pairs drain, what was under way may still land, and everything else goes on. Without it a
 * fence is one step. */

/* SICK: so many times something happens to the NIC of one end's path, FAULTS apart, so that it does
 * not stop its queue pairs when it is told to. It carries packets as before. NIC_* is what it may
 * be, one or several; without any it is NIC_SILENT. */
#if defined(SICK) && !defined(NIC_BUSY) && !defined(NIC_LOST) && !defined(NIC_LIES)
#define NIC_SILENT
#endif
/* Odd is for good, even until some time. */
#define SILENT 1 /* NIC_SILENT: commands do not return */
#define BUSY   3 /* NIC_BUSY: they answer with an error, to ERR as to destroy */
#define LOST   5 /* NIC_LOST: the device is taken away, they answer EIO; later its queue pairs are
		  * destroyed, and then comes the event that says so */
#define GONE   7 /* ... which it has */
#define LIES   9 /* NIC_LIES: they answer that it is done */
#define FOR_NOW(kind)	((kind) + 1)
#define IS(sick, kind)	((sick) == (kind) || (sick) == FOR_NOW(kind))
#define FOR_GOOD(sick)	((sick)&1)
/* The end says that it has fenced, and its hardware has not. */
#if defined(MUT_EIO_FENCE)
#define MISTAKEN(sick) IS(sick, LOST)
#elif defined(MUT_EBUSY_FENCE)
#define MISTAKEN(sick) IS(sick, BUSY)
#else
#define MISTAKEN(sick) ((sick) == LIES)
#endif
#define GOES_ON(sick)  ((sick) && (sick) != GONE)
#define NO_FENCE(sick) (GOES_ON(sick) && !MISTAKEN(sick)) /* it has not, and the end knows */

/* IN_PLACE: paths 0 and 1 lie on the same two ports and die together; any other path lies elsewhere.
 * A receiver that leaves one of the two means to go on with fresh queue pairs on the same ports, and
 * takes no other path until that has failed, or it has waited long enough. */
#ifdef IN_PLACE
#define ON_THE_PORTS_OF(p) ((p) < 2 -> 3 : BIT(p))
#else
#define ON_THE_PORTS_OF(p) BIT(p)
#endif

/* MODE_E2E: the sender completes when the receiver's software has the message; without it (mode
 * rc) when the hardware has acknowledged it. */

/* COUNTS: in mode e2e counts travel. Each entry of the CTS ring carries what the receiver had when it
 * wrote it, in whatever order entries are placed; and a sender that waits asks, by a read of the
 * receiver's count, one at a time. Without it the sender knows what the receiver has. The receiver
 * closes after the sender. */

/* The same ports are taken for the same queue pairs: neither end fences. */
#ifdef MUT_REPAIR_FENCE
#define MUT_RECEIVER_FENCE
#define MUT_SENDER_FENCE
#endif

/* ---- sets, generations, vectors ----------------------------------------------------------- */

#define BIT(m)	   (1 << (m))
#define ALL	   (BIT(MSGS) - 1)
#define SLOT(m)	   ((m) % WINDOW)
#define GEN(g)	   (1 << ((g)-1)) /* generations count from 1; a set of them is a bit mask */
#define UPTO(g)	   ((1 << (g)) - 1)
#define MAX(a, b)  ((a) > (b) -> (a) : (b))
#define NEWEST(gs) (((gs)&4) -> 3 : (((gs)&2) -> 2 : ((gs)&1)))
#define PG(p, g)   ((p)*GENS + (g)-1) /* index of path.generation */
#define ENTRY_OF(p, g, m) (PG(p, g) * MSGS + (m))

#if PATHS == 2
#define ANY_PATH(f) (f(0) || f(1))
#define EACH_PATH(f) f(0) f(1)
#elif PATHS == 3
#define ANY_PATH(f) (f(0) || f(1) || f(2))
#define EACH_PATH(f) f(0) f(1) f(2)
#endif
#if MSGS == 1
#define ANY_MSG(f) (f(0))
#define EACH_MSG(f) f(0)
#define PREFIX(set) (((set)&1) == 0 -> 0 : 1)
#elif MSGS == 2
#define ANY_MSG(f) (f(0) || f(1))
#define EACH_MSG(f) f(0) f(1)
#define PREFIX(set) (((set)&1) == 0 -> 0 : (((set)&2) == 0 -> 1 : 2))
#elif MSGS == 3
#define ANY_MSG(f) (f(0) || f(1) || f(2))
#define EACH_MSG(f) f(0) f(1) f(2)
#define PREFIX(set) (((set)&1) == 0 -> 0 : (((set)&2) == 0 -> 1 : (((set)&4) == 0 -> 2 : 3)))
#elif MSGS == 4
#define ANY_MSG(f) (f(0) || f(1) || f(2) || f(3))
#define EACH_MSG(f) f(0) f(1) f(2) f(3)
#define PREFIX(set)                                                                               \
	(((set)&1) == 0 -> 0 : (((set)&2) == 0 -> 1 : (((set)&4) == 0 -> 2 : (((set)&8) == 0 -> 3 : 4))))
#endif

/* ---- names ------------------------------------------------------------------------------ */

/* States of an end. The sender is ACTIVE, SUSPECTED (it fenced on its own trigger and says
 * SUSPECT) or FENCED (it answered a FENCE); the receiver is ACTIVE or FENCING. */
mtype = { ACTIVE, SUSPECTED, FENCED, FENCING, LATCHED, CLOSED };

/* Control messages; FENCED is also one. */
mtype = { SUSPECT, FENCE, RESUME, RESUMED, REBUILD, ANSWER, STATE, ABORT, BYE };

/* What must never happen. */
mtype = { late_write, wrong_buffer, lost_message, early_release, stale_key, false_loss,
	  needless_error, stuck, waits_for_latched }; /* the last two are invalid end states */
#ifdef SICK

/* How a NIC of which a fence cannot be had is called in what is printed. */
mtype = { silent, silent_for_now, refuses, refuses_for_now, is_taken_away, is_never_gone, lies };
#endif

/* ---- state: the sender -------------------------------------------------------------------- */

mtype s_state = ACTIVE;
byte s_epoch = 1;
byte s_path;		    /* the active path and its generation, */
byte s_gen = 1;		    /* 0: none */
byte s_order[PATHS];	    /* watermark: every generation up to this one is to be fenced, */
byte s_fenced_gen[PATHS];   /* and up to this one is: this is what the sender says */
byte s_qp[PATHS];	    /* generations whose QP is up at this end */
byte s_posted;		    /* messages posted in this epoch */
byte s_outstanding;	    /* ... that the hardware still holds */
byte s_acked;		    /* ... whose success completion is on its way */
byte s_completed;	    /* messages NCCL was told are complete */
byte s_told_done;	    /* what the receiver has, to be completed once the fence is confirmed */
byte s_ring_seq[WINDOW];    /* the CTS ring, written by the receiver: message + 1 */
byte s_ring_epoch[WINDOW];  /* and the epoch in the entry; 0: nothing usable */
#ifdef MUT_REPLAY
byte s_bound; /* messages posted in any epoch */
#endif
#ifdef MODE_E2E
byte s_count; /* cumulative count written by the receiver's software */
#endif
#ifdef COUNTS
byte s_ring_count[WINDOW]; /* the counts in the CTS ring that are news; 0: none */
#endif
#ifdef SICK
byte s_sick[PATHS];	    /* what is wrong with the NIC; 0: nothing */
byte s_yielded_gen[PATHS];  /* watermark: not fenced, but no completion is taken any more; 0: none */
#endif

/* ---- state: the receiver ------------------------------------------------------------------ */

mtype r_state = ACTIVE;
byte r_epoch = 1;
byte r_path;
byte r_gen = 1;
byte r_order[PATHS]; /* this is what the receiver says: an order */
byte r_fenced_gen[PATHS];
byte r_qp[PATHS];
byte r_healthy[PATHS];	  /* generation proved healthy since its last failure; 0: none */
byte r_peer_fenced[PATHS]; /* the sender's watermarks, as far as they are known here */
byte r_issued;		  /* messages whose CTS entry was written in this epoch */
byte r_done;		  /* messages NCCL was told have been received: their buffers are NCCL's */
byte r_told_completed;	  /* what the sender completed, to be compared with done */
bool r_resumed;		  /* the sender confirmed this epoch */
#ifdef IN_PLACE
bool r_repairs; /* FENCING: it waits for fresh queue pairs on the ports that it leaves */
#endif
#ifdef SICK
byte r_sick[PATHS];
byte r_peer_yielded[PATHS]; /* where it is above r_peer_fenced; 0: nowhere */
byte r_settled_gen[PATHS];  /* one end is fenced, and a packet's lifetime has passed; 0: not needed */
#endif

/* ---- state: the fabric -------------------------------------------------------------------- */

byte dead;			    /* set of paths that never work again */
byte broken[PATHS];		    /* generations whose QP pair passes nothing any more */
byte data_net[PATHS * GENS];	    /* data WRITEs on their way, per path.generation */
byte cts_net[PATHS * GENS];	    /* CTS entries on their way */
byte cts_net_epoch[PATHS * GENS];   /* and the epoch in them */
#ifdef COUNTS
byte cts_count[PATHS * GENS * MSGS]; /* and the count in each */
byte ask_net[PATHS * GENS];	    /* the sender's read: 0 none, 1 asks, 2 and more the answer */
#endif
byte unplaced;			    /* acknowledged by hardware whose software never got them */
bool socket = true;		    /* the bootstrap socket works */
byte faults = FAULTS;		    /* what may still go wrong */
#ifdef SICK
byte sick_left = SICK;
#endif

/* A control message overtaken by a newer one that may still arrive, one in each direction. */
typedef Late {
	mtype kind;
	byte epoch;
	byte path;
	byte gen;
	byte set; /* done or completed */
	byte fenced_gen[PATHS];
#ifdef SICK
	byte yielded_gen[PATHS]; /* the sender's */
#endif
};
Late late_rs; /* receiver to sender */
Late late_sr; /* sender to receiver */

#ifdef MUT_RESEND
bool s_lost; /* what this end says now was said once and lost */
bool r_lost;
#endif

/* Scratch of a single step, zero between steps; hidden keeps it out of the state, which a search in
 * breadth (for the shortest counterexample) does not support. */
#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif
SCRATCH byte keep_packets; /* packets in flight at a fence or a break arrive later, or never */
SCRATCH byte keep_message; /* the message this step makes obsolete arrives later, or never */
SCRATCH byte lose_message; /* MUT_RESEND: the message this step says is lost */
SCRATCH byte i;
SCRATCH byte j;
#ifdef COUNTS
SCRATCH byte k;
#endif
SCRATCH mtype m_kind;
SCRATCH byte m_epoch;
SCRATCH byte m_path;
SCRATCH byte m_gen;
SCRATCH byte m_set;
SCRATCH byte m_fenced_gen[PATHS];
#ifdef SICK
SCRATCH byte m_yielded_gen[PATHS];
#define M_LEFT(p) MAX(m_fenced_gen[p], m_yielded_gen[p]) /* what the sender has given up for good */
#else
#define M_LEFT(p) m_fenced_gen[p]
#endif

/* ---- the table of steps --------------------------------------------------------------------- */

/* TABLE: each step of an end, and each message, must be a row of steps.h, which is also what the code's traces are held
 * to. DOES and HEARS stand behind a step and look at what has become of the end since BEFORE. */
#ifdef TABLE
c_decl {
\#include "steps_model.h"
}
#define NUMBER(name) hidden byte model_##name = name;
NUMBER(ACTIVE) NUMBER(SUSPECTED) NUMBER(FENCED) NUMBER(FENCING) NUMBER(LATCHED)
NUMBER(SUSPECT) NUMBER(FENCE) NUMBER(RESUME) NUMBER(RESUMED) NUMBER(REBUILD) NUMBER(ANSWER) NUMBER(STATE) NUMBER(BYE)
#define BEFORE(end)   c_code { model_before(STEP_##end); }
#define DOES(end, on) c_code { model_does(STEP_##end, STEP_ON_##on); }
#define HEARS(end)    c_code { model_hears(STEP_##end); }
#define THROUGH(end)  c_code { model_through(STEP_##end); }
#define SAYS(end)     c_code { model_says(STEP_##end); }
#define PEER_CLOSED(end) c_code { model_peer_closed(STEP_##end); }
#define GOODBYE(end)  c_code { model_goodbye(STEP_##end); }
#define GAVE_UP(end)  c_code { model_gave_up(STEP_##end); }
#else
#define BEFORE(end)   skip
#define DOES(end, on) skip
#define HEARS(end)    skip
#define THROUGH(end)  skip
#define SAYS(end)     skip
#define PEER_CLOSED(end) skip
#define GOODBYE(end)  skip
#define GAVE_UP(end)  skip
#endif

/* ---- properties --------------------------------------------------------------------------- */

/* Prints the name of the property (read by tests/model/run) and stops the search. A mutant is asked
 * for one property and goes on past the others. */
#ifdef ONLY
#define IGNORED(property) (property != ONLY)
#else
#define IGNORED(property) false
#endif
inline must(condition, property)
{
	if
	:: (condition) || IGNORED(property) -> skip
	:: else ->
		printf("VIOLATED %e\n", property);
		assert(false)
	fi
}

#define FINAL(state) ((state) == CLOSED || (state) == LATCHED)

/* A path.generation carries packets both ways. */
#define FLOWS(p, g)                                                                                \
	(!(dead & BIT(p)) && !(broken[p] & GEN(g)) && (s_qp[p] & GEN(g)) && (r_qp[p] & GEN(g)))

/* What is written over it arrives, whatever the software of the end it goes to thinks. */
#ifdef NIC_LIES
#define S_STILL_TAKES(p, g) ((s_qp[p] & GEN(g)) || (s_sick[p] == LIES && (g) <= s_order[p]))
#define R_STILL_TAKES(p, g) ((r_qp[p] & GEN(g)) || (r_sick[p] == LIES && (g) <= r_order[p]))
#define PASSES(p, g)	    (!(dead & BIT(p)) && !(broken[p] & GEN(g)))
#define DATA_GOES(p, g)	    (PASSES(p, g) && (s_qp[p] & GEN(g)) && R_STILL_TAKES(p, g))
#define CTS_GOES(p, g)	    (PASSES(p, g) && (r_qp[p] & GEN(g)) && S_STILL_TAKES(p, g))
#else
#define DATA_GOES(p, g) FLOWS(p, g)
#define CTS_GOES(p, g)	FLOWS(p, g)
#endif

/* Both ends use the same path, and it works. */
#define WORKS                                                                                      \
	(s_state == ACTIVE && r_state == ACTIVE && s_path == r_path && s_gen == r_gen &&           \
	 FLOWS(s_path, s_gen))

/* Generations that are up and not about to be fenced. */
#define S_UP(p) (s_qp[p] & ~UPTO(s_order[p]))
#define R_UP(p) (r_qp[p] & ~UPTO(r_order[p]))

#define PATH_LANE(p) (!(dead & BIT(p)) && (S_UP(p) & R_UP(p) & ~broken[p]))
#define LANE	     (socket || ANY_PATH(PATH_LANE))
#ifdef SICK
/* A path is built again when both ends have fenced what was there: never, where a command never
 * returns. If both NICs of a path are sick, one of them answers at some time. */
#define S_RETURNS(p) (NO_FENCE(s_sick[p]) && (!FOR_GOOD(s_sick[p]) || r_sick[p]))
#define R_RETURNS(p) (NO_FENCE(r_sick[p]) && (!FOR_GOOD(r_sick[p]) || s_sick[p]))
#define S_STAYS(p)   (s_sick[p] && !S_RETURNS(p) && s_fenced_gen[p] < s_order[p])
#define R_STAYS(p)   (r_sick[p] && !R_RETURNS(p) && r_fenced_gen[p] < r_order[p])
#define USABLE(p)    (!(dead & BIT(p)) && !S_STAYS(p) && !R_STAYS(p))
#define NO_WAY	     (!LANE || !ANY_PATH(USABLE))
#else
#define NO_WAY	     (!LANE || dead == BIT(PATHS) - 1)
#endif

/* ---- shared by the steps ------------------------------------------------------------------ */

/* Everything to or from generations 1..g of path p that can no longer land. */
inline data_clear_upto(p, g)
{
	for (i : 1 .. g) {
		data_net[PG(p, i)] = 0
	}
}

inline cts_clear(p, g)
{
	cts_net[PG(p, g)] = 0;
	cts_net_epoch[PG(p, g)] = 0
#ifdef COUNTS
	; for (k : 0 .. MSGS - 1) {
		cts_count[ENTRY_OF(p, g, k)] = 0
	};
	k = 0
#endif
}

inline cts_clear_upto(p, g)
{
	for (i : 1 .. g) {
		cts_clear(p, i)
	}
}

/* A step with choices of the environment is offered once for each. */
#define CHOICE(guard, step, packets, message)                                                      \
	:: d_step {                                                                                \
		guard ->                                                                           \
		keep_packets = packets;                                                            \
		keep_message = message;                                                            \
		step;                                                                              \
		reset()                                                                            \
	}
#ifdef MUT_RESEND
#define LOSE(guard, step, packets, message)                                                        \
	CHOICE(guard, step, packets, message)                                                      \
	CHOICE(guard, lose_message = true; step, packets, message)
#else
#define LOSE(guard, step, packets, message) CHOICE(guard, step, packets, message)
#endif
#define LATE_PACKETS(guard, step)                                                                  \
	LOSE(guard, step, false, false)                                                            \
	LOSE(guard, step, true, false)
#define LATE_MESSAGE(guard, step)                                                                  \
	LOSE(guard, step, false, false)                                                            \
	LOSE(guard, step, false, true)
#define LATE_EITHER(guard, step)                                                                   \
	LATE_MESSAGE(guard, step)                                                                  \
	LOSE(guard, step, true, false)                                                             \
	LOSE(guard, step, true, true)

/* Every step ends with this. */
inline reset()
{
	keep_packets = false;
	keep_message = false;
	lose_message = false;
#ifdef SHORTEST
	m_kind = 0;
	m_epoch = 0;
	m_path = 0;
	m_gen = 0;
	m_set = 0;
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = 0
#ifdef SICK
		; m_yielded_gen[j] = 0
#endif
	};
	i = 0;
#endif
	j = 0
}

/* What FENCE and RESUME say is fenced, and how the sender takes it: watermarks. Without them the
 * receiver names the paths that are down, and the sender fences what it has of them. */
#ifdef MUT_WATERMARKS
#define R_SAYS_FENCED(p) (r_qp[p] == 0 && r_order[p])
#define S_UNDERSTANDS(p, said)                                                                     \
	(!(said) -> 0 :                                                                            \
	 (s_qp[p] -> NEWEST(s_qp[p]) : (s_fenced_gen[p] -> s_fenced_gen[p] : 1)))
#else
#define R_SAYS_FENCED(p) r_order[p]
#define S_UNDERSTANDS(p, said) (said)
#endif

#ifdef MUT_CLAIM_EARLY
#define S_SAYS_FENCED(p) s_order[p]
#elif defined(MUT_YIELD_CLAIMS)
#define S_SAYS_FENCED(p) MAX(s_fenced_gen[p], s_yielded_gen[p])
#else
#define S_SAYS_FENCED(p) s_fenced_gen[p]
#endif

#include "sender.pml"
#include "receiver.pml"
#include "fabric.pml"
#include "control.pml"
#include "faults.pml"

/* Phase 1 of connecting has brought up path 0; the standby comes from a REBUILD, as phase 2. */
init {
	atomic {
		s_qp[0] = GEN(1);
		r_qp[0] = GEN(1);
		r_healthy[0] = 1;
		run Sender();
		run Receiver();
		run Fabric();
		run Control();
		run Faults()
	}
	/* Both ends must come to an end: closed with everything delivered, or with a latched error
	 * (each step that latches has its own condition for being allowed to). Every other process
	 * may stop anywhere; this one may not, so when nothing can happen any more and an end is
	 * still waiting, spin reports an invalid end state: `stuck`, or `waits_for_latched` if the
	 * other end has latched. Since no run is endless (tests/model/run checks that the state
	 * graph has no cycle), this is "every message completes once the faults are over". */
	d_step {
		FINAL(s_state) && FINAL(r_state) ->
		must(r_state != CLOSED || r_done == ALL, lost_message);
		must(s_state != CLOSED || r_state == LATCHED || r_done == ALL, lost_message)
	}
}
