/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue pairs that a GPU drives: one stream, two threads that put and signal, the host's thread that
 * moves the stream to another queue pair when a path fails, and back when it is asked to.
 *
 * An operation is a put with, or without, a signal: two writes in one turn, the second one of an
 * absolute value into a cell that only this stream writes. A thread reserves a number L, writes the work
 * request, waits for its turn, publishes, rings, and looks at the gate; then it waits for the completion.
 * The host closes the gate, fences both ends, reads what is published, asks the receiver for its cell,
 * writes the rest again in the next generation, and opens the gate there. docs/ibgda-protocol.md says why
 * that is sound, and what is not modelled.
 *
 * A generation has a descriptor: queues and control words. It is used again when nobody can store into it
 * any more. Numbers of queues are logical ones here, as long as nobody can tell the difference.
 *
 * MUT_<RULE> removes one rule; ibgda-mutants names the property that must then fail.
 *
 *   FAULTS        faults and false alarms in one run
 *   ALARMS        they are false alarms, and each operation carries a signal
 *   SWITCHES      planned switches
 *   OPS, DEPTH    operations in a run, and blocks of a send queue
 *   READS         an operation is the read of who waits until all before it is in memory
 *   LIMIT         a planned switch that takes too long to drain, as a thread that was to ring sleeps, fails over
 *   PROBES        planned switches are to another path that may be cut in silence, so it is probed first
 *   PLACED_ERROR  what a dead NIC has acknowledged and cannot prove placed is an error
 */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef SWITCHES
#define SWITCHES 0
#endif
#ifndef OPS
#define OPS 3
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifdef ALARMS
#define BREAKS false
#else
#define BREAKS faults
#endif
#define GENS  (FAULTS + SWITCHES + 1)
#define NEVER 15 /* prod: nobody rings any more */

#define BIT(n)	  (1 << (n))
#define SIGNAL(l) (signals & BIT(l))
#ifdef READS
#define ASKS(l) (reads & BIT(l))
#else
#define ASKS(l) false
#endif
#define AT(d, l)  ((d)*DEPTH + (((l) + 8 - base[d]) % DEPTH))
/* What a block of a queue holds. */
#define NOP	  7
#define WQE(l, v) (((l) + 1) * 8 + (v))
#define LOF(wqe)  ((wqe) / 8 - 1)
#define VOF(wqe)  ((wqe) % 8)

mtype = { late_write, torn, duplicate, wrong_sum, lost, early_complete, early_release, not_placed, unbelieved, stale, blind, stuck };

/* ---- a thread */
#define IDLE	0
#define GATE	1 /* it has a number, and wants a generation, */
#define ROOM	9 /* and room there */
#define WAIT	14
#define WRITE	2
#define TURN	3
#define PUBLISH 4
#define RING	5
#define LOCK	6
#define SETS	7
#define BELL	8
#define CHECK	10
#define AGAIN	11 /* the generation has ended under it */
#define POLL	12
#define POLLED	13
#define RESERVE 15 /* a mutant's */
byte t_at[2];
byte t_l[2];
byte t_d[2]; /* descriptor of its generation */
byte t_v[2]; /* number of its signal; 0: not taken */

/* ---- the stream, in the GPU's memory */
byte resv;
byte cons;
byte sum; /* the last number that was taken */
byte gate_d; /* which may be an earlier generation's, too, when that is used again */
bool closed;
bool latched;

/* ---- descriptors */
byte base[GENS];
byte ready[GENS];
byte prod[GENS];
byte taken[GENS];
byte lock[GENS]; /* thread + 1 */
byte sq[GENS * DEPTH];
byte h_of[GENS];  /* reserved when it was closed */
byte retire[GENS]; /* how far its proof is */
#define FRESH	 0
#define IN_USE	 1
#define LEFT	 2 /* the gate is open elsewhere */
#define PROD_SET 3
#define UNLOCKED 4
#define SILENT	 5 /* nobody rings any more */

/* ---- queue pair, path and NIC of the generation that the gate names, and of the next one while it is
 * made; a NIC counts half operations: the data, and the signal behind it */
byte rung[GENS];
byte arrived[GENS];
byte placed[GENS];
byte acked[GENS];
byte wire[GENS * DEPTH]; /* what a request was when it was taken out */
byte s_up;		 /* queue pairs that are up, of the sender, */
byte r_up;		 /* and of the receiver */
byte broken;
byte dead; /* the receiver's NIC is */
byte gone; /* ... and what it held is lost */

/* ---- the receiver's memory */
byte cell;
byte data;    /* operations whose data lies there */
byte told;    /* operations below were signalled */
byte excused; /* ... whose data is lost, and counted as not proved */
byte done;    /* operations that their thread was told are complete */

/* ---- the host */
#define RUNS   0
#define CLOSED 1
#define READ   2
#define BUILT  3
#define RUNG   4
#define PLAN   5 /* a planned switch: closed, */
#define PLAN_R 6 /* nobody rings any more and `ready` is read, */
#define PLAN_D 7 /* drained, and flushed */
byte h_at;
bool alarm;
byte h_r;
byte h_a;
byte h_lc; /* operations below were signalled, by the cell */
byte h_d;  /* the next descriptor */

byte signals;
#ifdef READS
byte reads;
#endif
byte faults = FAULTS;
byte switches = SWITCHES;
byte left = OPS;
byte val[OPS]; /* the number that each operation's signal has in the journal */

#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif
SCRATCH byte i;
SCRATCH byte x;
#ifdef MUT_QUEUE_RESET
byte remains[GENS];
#endif

#ifdef PROBES
/* ---- two paths, and whether the one that is not in use is fit to be gone to; a NIC is a path's */
bool on;   /* the path in use */
byte cut;  /* nothing comes through */
byte dark; /* ... and the host was told */
byte proved; /* a probe has come through, and nothing has spoken against it since */
#define NO_PROBE 0
#define SENT	 1
#define CAME	 2 /* it is answered, and nobody has looked */
#define LOST	 3 /* not before that path heals */
byte probe;
#define OTHER BIT(1 - on)
#define IS_PROVED IS(proved, 1 - on)
#endif

#include "properties.pml"

#define OPEN	    (!closed && !latched)
#define SAME(t)	    (gate_d == t_d[t] && !closed && !latched)
#define FINISHED    (latched || (left == 0 && t_at[0] == IDLE && t_at[1] == IDLE))
#define IS(set, d)  ((set)&BIT(d))
#define IS_HERE(d)  (gate_d == (d) && h_at != BUILT && h_at != RUNG)
/* It has arrived at the NIC in use, or at that of the next generation, which may be rung before the gate opens. */
#define HAS_ARRIVED(l)  (arrived[gate_d] >= 2 * (l) + 2 || (h_at == RUNG && arrived[h_d] >= 2 * (l) + 2))

/* Operations below are in memory, but for what is counted as not proved. */
#ifdef READS
#define IN_MEMORY (data | excused | reads)
#else
#define IN_MEMORY (data | excused)
#endif
#define ALL_PLACED(l) ((IN_MEMORY & (BIT(l) - 1)) == BIT(l) - 1)

/* ---- threads */

inline reserve(t)
{
	t_l[t] = resv;
	t_v[t] = 0;
	resv = resv + 1;
	left = left - 1
}

inline load_gate(t)
{
	t_d[t] = gate_d
}

inline take_number(t)
{
	if
	:: SIGNAL(t_l[t]) && t_v[t] == 0 ->
#ifdef MUT_ADDS_NOTHING
		sum = 1;
#else
		sum = sum + 1;
#endif
		t_v[t] = sum
	:: else -> skip
	fi;
	val[t_l[t]] = t_v[t]
}

inline write(t)
{
#ifdef MUT_NUMBER_OUTSIDE
	take_number(t);
#endif
	sq[AT(t_d[t], t_l[t])] = WQE(t_l[t], t_v[t])
}

inline finish(t)
{
	for (i : 0 .. GENS - 1) {
		must(i == gate_d || !IS(s_up, i) || rung[i] <= t_l[t] || acked[i] > t_l[t], early_release)
	};
	i = 0;
#ifdef READS
	reach_if(ASKS(t_l[t]), waits_placed);
	must(!ASKS(t_l[t]) || ALL_PLACED(t_l[t]), not_placed);
#endif
	must((IN_MEMORY & BIT(t_l[t])) || told > t_l[t] || HAS_ARRIVED(t_l[t]), early_complete);
	done = done | BIT(t_l[t]);
	t_at[t] = IDLE;
	t_l[t] = 0;
	t_v[t] = 0;
	t_d[t] = 0
}
#ifdef MUT_QUEUE_RESET
#define COMPLETION(d, l) (acked[d] > (l) || remains[d] > (l) - base[d])
#elif defined(MUT_ERROR_COMPLETES)
#define COMPLETION(d, l) (acked[d] > (l) || !IS(s_up, d) || IS(broken, d))
#else
#define COMPLETION(d, l) (acked[d] > (l))
#endif

#ifdef MUT_GATE_FIRST
#define BEGIN(t)                                                                                   \
	:: d_step { t_at[t] == IDLE && left && OPEN -> load_gate(t); t_at[t] = RESERVE; }          \
	:: d_step {                                                                                \
		t_at[t] == RESERVE && resv < cons + DEPTH && left -> reserve(t); t_at[t] = WRITE   \
	}                                                                                          \
	:: d_step { t_at[t] == RESERVE && left == 0 -> t_at[t] = IDLE }
#else
#define BEGIN(t)                                                                                   \
	:: d_step { t_at[t] == IDLE && left && !latched && (t == 0 || left < OPS) -> reserve(t); t_at[t] = GATE }
#endif

#ifdef MUT_GATE_BEFORE_PUBLISH
#define AFTER_TURN(t) (SAME(t) -> PUBLISH : AGAIN)
#define AFTER_RING    POLL
#else
#define AFTER_TURN(t) PUBLISH
#define AFTER_RING    CHECK
#endif
#ifdef MUT_TAKEN
#define WAS_TAKEN(t) false
#else
#define WAS_TAKEN(t) (t_l[t] < taken[gate_d])
#endif

inline go_on(t)
{
	load_gate(t);
	if
	:: WAS_TAKEN(t) -> reach(was_taken); t_at[t] = POLL
	:: else ->
		reach(writes_anew);
#ifdef MUT_NUMBER_AGAIN
		t_v[t] = 0;
#endif
		t_at[t] = WRITE
	fi
}

#define THREAD(t)                                                                                  \
	BEGIN(t)                                                                                   \
	:: d_step { t_at[t] == GATE && OPEN -> load_gate(t); t_at[t] = ROOM }                      \
	:: d_step { /* the gate may have moved meanwhile, and room come by that */                 \
		t_at[t] == ROOM -> t_at[t] = (t_l[t] < cons + DEPTH -> WRITE : WAIT)               \
	}                                                                                          \
	:: d_step { t_at[t] == WAIT && OPEN && t_l[t] < cons + DEPTH -> load_gate(t); t_at[t] = WRITE } \
	:: d_step { t_at[t] == WRITE -> write(t); t_at[t] = TURN }                                 \
	:: d_step {                                                                                \
		t_at[t] == TURN && ready[t_d[t]] == t_l[t] ->                                      \
		take_number(t);                                                                    \
		sq[AT(t_d[t], t_l[t])] = WQE(t_l[t], t_v[t]);                                      \
		t_at[t] = AFTER_TURN(t)                                                            \
	}                                                                                          \
	:: d_step { t_at[t] == TURN && !SAME(t) -> t_at[t] = AGAIN }                               \
	:: d_step { t_at[t] == PUBLISH -> ready[t_d[t]] = t_l[t] + 1; t_at[t] = RING }             \
	:: d_step { t_at[t] == RING -> t_at[t] = (prod[t_d[t]] > t_l[t] -> AFTER_RING : LOCK) }    \
	:: d_step { /* takes the lock, and looks again */                                          \
		t_at[t] == LOCK && lock[t_d[t]] == 0 && prod[t_d[t]] <= t_l[t] ->                  \
		lock[t_d[t]] = t + 1;                                                              \
		t_at[t] = SETS                                                                     \
	}                                                                                          \
	:: d_step { t_at[t] == LOCK && lock[t_d[t]] == 0 && prod[t_d[t]] > t_l[t] -> t_at[t] = AFTER_RING } \
	:: d_step { t_at[t] == LOCK && !SAME(t) -> t_at[t] = AGAIN }                               \
	:: d_step { t_at[t] == SETS -> prod[t_d[t]] = t_l[t] + 1; t_at[t] = BELL }                   \
	:: d_step { t_at[t] == BELL -> ring(t_d[t], t_l[t] + 1); lock[t_d[t]] = 0; t_at[t] = AFTER_RING } \
	:: d_step { t_at[t] == CHECK -> t_at[t] = (SAME(t) -> POLL : AGAIN) }                      \
	:: d_step { t_at[t] == AGAIN && OPEN -> go_on(t) }                                         \
	:: d_step { t_at[t] == POLL && COMPLETION(t_d[t], t_l[t]) -> t_at[t] = POLLED }            \
	:: d_step { t_at[t] == POLL && cons > t_l[t] -> finish(t) }                                \
	:: d_step { t_at[t] == POLL && gate_d != t_d[t] && OPEN -> reach(polls_elsewhere); load_gate(t) } \
	:: d_step {                                                                                \
		t_at[t] == POLLED ->                                                               \
		cons = (cons > t_l[t] -> cons : t_l[t] + 1);                                       \
		finish(t)                                                                          \
	}

/* ---- the NIC */

/* A register that is written in an older generation's name would make the device run over old blocks. */
inline ring(d, upto)
{
	if
	:: IS(s_up, d) && !IS(broken, d) ->
		must(upto >= rung[d], stale);
		rung[d] = upto
	:: else -> reach(rings_in_vain)
	fi
}

/* A request is read when it is executed: its first half arrives. */
inline take_out(d)
{
	x = sq[AT(d, arrived[d] / 2)];
	must(x != 0 && LOF(x) == arrived[d] / 2, stale);
	wire[AT(d, arrived[d] / 2)] = x;
	x = 0
}

/* Half an operation arrives; of a whole one the acknowledgement comes if there is a way, and somebody to hear it. */
inline arrive(d)
{
	if
	:: arrived[d] % 2 == 0 -> take_out(d)
	:: else -> skip
	fi;
	arrived[d] = arrived[d] + 1;
	if
	:: arrived[d] % 2 == 0 && IS(s_up, d) && !IS(broken, d) && 2 * acked[d] + 2 == arrived[d] ->
		sq[AT(d, acked[d])] = 0;
		acked[d] = acked[d] + 1
	:: else -> skip
	fi
}

/* Half an operation comes into memory. */
inline place(d)
{
	x = wire[AT(d, placed[d] / 2)];
	if
	:: VOF(x) == NOP -> reach_if(placed[d] % 2, nop)
	:: VOF(x) != NOP && placed[d] % 2 == 0 && !ASKS(LOF(x)) ->
		must(told <= LOF(x), late_write);
		data = data | BIT(LOF(x))
	:: VOF(x) != NOP && placed[d] % 2 && VOF(x) ->
		must(ALL_PLACED(LOF(x) + 1), torn);
		must(VOF(x) > cell, duplicate);
		cell = VOF(x);
		told = LOF(x) + 1
	:: else -> skip
	fi;
	if
	:: placed[d] % 2 -> wire[AT(d, placed[d] / 2)] = 0
	:: else -> skip
	fi;
	placed[d] = placed[d] + 1;
	x = 0
}

inline place_all(d)
{
	do
	:: placed[d] < arrived[d] -> place(d)
	:: else -> break
	od
}

#ifdef PROBES
#define cut_path() cut = cut | BIT(on)
#else
#define cut_path() skip
#endif
/* A read is answered from behind what came before it: that is in memory then. */
#if defined(READS) && !defined(MUT_PLACED_UNREAD)
#define MAY_ARRIVE(d)                                                                              \
	(arrived[d] % 2 == 0 || placed[d] == arrived[d] || VOF(wire[AT(d, arrived[d] / 2)]) == NOP || \
	 !ASKS(arrived[d] / 2))
#else
#define MAY_ARRIVE(d) true
#endif
#define NIC(d)                                                                                     \
	:: d_step {                                                                                \
		IS(r_up, d) && !IS(dead, d) && arrived[d] < 2 * rung[d] && MAY_ARRIVE(d) &&        \
		placed[d] / 2 + DEPTH > arrived[d] / 2 -> arrive(d)                                \
	}                                                                                          \
	:: d_step { placed[d] < arrived[d] && !IS(gone, d) -> place(d) }                           \
	:: d_step { /* the path breaks: what is under way arrives, or not */                       \
		BREAKS && !FINISHED && IS_HERE(d) && !IS(broken, d) -> faults--; cut_path(); broken = broken | BIT(d) \
	}                                                                                          \
	:: d_step {                                                                                \
		BREAKS && !FINISHED && IS_HERE(d) && !IS(broken, d) && arrived[d] < 2 * rung[d] -> \
		faults--;                                                                          \
		cut_path();                                                                        \
		broken = broken | BIT(d);                                                          \
		rung[d] = arrived[d] / 2                                                           \
	}                                                                                          \
	DIES(d, place_all(d))                                                                      \
	DIES(d, if :: placed[d] < arrived[d] -> gone = gone | BIT(d) :: else -> skip fi)
#define DIES(d, held)                                                                              \
	:: d_step { /* the receiver's NIC dies: what it holds is placed, or lost */                \
		BREAKS && !FINISHED && IS_HERE(d) && !IS(dead, d) && h_at != READ ->                \
		faults--;                                                                          \
		cut_path();                                                                        \
		held;                                                                              \
		dead = dead | BIT(d);                                                              \
		broken = broken | BIT(d)                                                           \
	}

/* ---- the host */

#ifdef MUT_R_FENCE
#define R_FENCED true
#else
#define R_FENCED (!IS(r_up, gate_d))
#endif
#ifdef MUT_S_FENCE
#define S_FENCED true
#define FENCE_SENDER skip
#else
#define S_FENCED (!IS(s_up, gate_d))
#define FENCE_SENDER s_up = s_up & ~BIT(gate_d)
#endif

/* Operations below are signalled, by a journal of those below `upto`. */
inline find_told(upto)
{
	h_lc = 0;
	for (i : 0 .. OPS - 1) {
		if
		:: i < upto && SIGNAL(i) && val[i] <= cell -> h_lc = i + 1
		:: else -> skip
		fi
	};
	i = 0
}

/* x: operations below are in memory, as a read behind them was answered. */
inline find_read()
{
	x = 0;
#if defined(READS) && !defined(MUT_READ_PROVES)
	for (i : 0 .. OPS - 1) {
		if
		:: i < h_a && ASKS(i) -> reach(read_proves); x = i + 1
		:: else -> skip
		fi
	};
	i = 0
#endif
}
/* Its thread, or another one, was told that it is in memory. */
#ifdef READS
#define WAS_READ(l) (done & reads & ~(BIT((l) + 1) - 1))
#else
#define WAS_READ(l) false
#endif

/* Acknowledged and not in the cell: lost. What cannot be known is an error, too: the journal has turned
 * over, no signal is unacknowledged, and nothing is flushed. */
inline judge()
{
	x = 0; /* the newest acknowledged signal + 1 */
	for (i : 0 .. OPS - 1) {
		if
		:: i < h_a && SIGNAL(i) -> x = i + 1
		:: else -> skip
		fi
	};
#ifndef MUT_LOST_ACK
	if
	:: x && IS(gone, gate_d) && x - 1 + DEPTH < resv ->
		/* Out of the journal: the oldest unacknowledged signal tells its predecessor's. */
		i = h_a;
		do
		:: i < h_r && !SIGNAL(i) -> i++
		:: else -> break
		od;
		if
		:: i < h_r && val[i] - 1 > cell -> reach(finds_loss_by_next); latched = true
		:: i < h_r && val[i] - 1 <= cell -> skip
		:: else ->
#ifndef MUT_BLIND
			reach(cannot_know);
			latched = true
#else
			skip
#endif
		fi
	:: x && (x - 1 + DEPTH >= resv || !IS(gone, gate_d)) && val[x - 1] > cell ->
		reach(finds_loss);
		latched = true
	:: else -> skip
	fi;
#endif
#ifndef MUT_UNPROVED
	/* A dead NIC proves nothing of what is behind the newest signal that it has placed. */
	if
	:: IS(dead, gate_d) ->
		find_read();
		for (i : 0 .. OPS - 1) {
			if
			:: i < h_a && i >= h_lc && i >= x && !ASKS(i) ->
				reach(unproved);
				must(!WAS_READ(i), unbelieved);
#ifdef PLACED_ERROR
				latched = true
#else
				excused = excused | BIT(i)
#endif
			:: else -> skip
			fi
		}
	:: else -> skip
	fi;
#endif
	i = 0;
	x = 0
}

inline verdict()
{
#ifndef MUT_READY_EARLY
	h_r = ready[gate_d];
#endif
	h_of[gate_d] = resv;
	h_a = acked[gate_d];
#ifdef MUT_VERDICT_EARLY
	find_told(h_r);
	if :: !IS(dead, gate_d) -> place_all(gate_d) :: else -> skip fi;
#else
	if :: !IS(dead, gate_d) -> place_all(gate_d) :: else -> skip fi;
	find_told(h_r);
#endif
	judge();
#ifdef MUT_REPLAY_ALL
	h_lc = 0;
#endif
	h_at = READ
}

#ifdef MUT_SLOT_WORDS
#define MAY_USE(d) true
#else
#define MAY_USE(d) (retire[d] == FRESH)
#endif
/* One that is proved silent and left, or a fresh one. */
inline choose()
{
#ifdef MUT_SLOT_WORDS
	h_d = 1 - gate_d;
#else
	h_d = 0;
#endif
	do
	:: MAY_USE(h_d) -> break
	:: else -> h_d++
	od;
	reach_if(base[h_d] + ready[h_d], uses_again);
	base[h_d] = h_a;
	ready[h_d] = h_r;
	prod[h_d] = h_r;
	taken[h_d] = h_r;
	lock[h_d] = 0;
	retire[h_d] = IN_USE;
	rung[h_d] = h_a;
	acked[h_d] = h_a;
	arrived[h_d] = 2 * h_a;
	placed[h_d] = 2 * h_a;
	s_up = s_up | BIT(h_d);
	r_up = r_up | BIT(h_d)
}

#ifdef MUT_READ_AGAIN
#define DROPPED(l) ASKS(l)
#else
#define DROPPED(l) false
#endif
inline build()
{
	choose();
	i = h_a;
	do
	:: i < h_r ->
		reach_if(i < h_lc, settles);
		reach_if(i >= h_lc, replays);
		x = sq[AT(gate_d, i)];
		sq[AT(h_d, i)] = (i < h_lc || DROPPED(i) -> WQE(i, NOP) : x);
		i++
	:: else -> break
	od;
	i = 0;
	x = 0;
	h_at = BUILT
}

/* A failover is to a path that is well: one that finds none is the next failover. A planned one may find that its path
 * was cut since. */
#ifdef PROBES
inline go_over()
{
	on = 1 - on;
	if
	:: alarm ->
		cut = cut & ~BIT(on);
		dark = dark & ~BIT(on)
	:: !alarm && IS(cut, on) -> reach(went_in_vain); broken = broken | BIT(gate_d)
	:: else -> skip
	fi
}

/* What speaks against a path: it has failed in use, or an event says so. */
inline speaks_against(path)
{
	dark = dark | (cut & BIT(path));
#ifndef MUT_PROBE_ENDS
	probe = NO_PROBE;
#endif
	proved = proved & ~BIT(path)
}
#else
#define go_over() skip
#endif

/* What is left of a generation is what late threads may look at. */
inline open()
{
#ifdef MUT_CONS_BACK
	cons = h_a;
#endif
	retire[gate_d] = (retire[gate_d] == SILENT -> SILENT : LEFT);
	x = gate_d;
#ifdef MUT_QUEUE_RESET
	remains[x] = acked[x] - base[x];
#endif
#ifndef MUT_R_FENCE
#ifndef MUT_S_FENCE
#ifndef MUT_FAILBACK_FLUSH
	forget_nic(x);
#endif
#endif
#endif
	gate_d = h_d;
	go_over();
	closed = false;
	alarm = false;
	h_at = RUNS;
	h_r = 0;
	h_a = 0;
	h_lc = 0;
	h_d = 0;
	x = 0
}

inline forget_nic(d)
{
	rung[d] = 0;
	arrived[d] = 0;
	placed[d] = 0;
	acked[d] = 0;
	broken = broken & ~BIT(d);
	dead = dead & ~BIT(d);
	gone = gone & ~BIT(d);
	for (i : 0 .. DEPTH - 1) {
		wire[(d)*DEPTH + i] = 0
	};
	i = 0
}

#ifdef MUT_RETIRE_READY
#define NOBODY_WRITES(d) true
#else
#define NOBODY_WRITES(d) (ready[gate_d] >= h_of[d])
#endif
#ifdef MUT_RETIRE_LOCK
#define FIRST_LOOK(d)  true
#define SECOND_LOOK(d) true
#elif defined(MUT_RETIRE_ORDER)
#define FIRST_LOOK(d)  (prod[d] == NEVER)
#define SECOND_LOOK(d) (lock[d] == 0)
#else
#define FIRST_LOOK(d)  (lock[d] == 0)
#define SECOND_LOOK(d) (prod[d] == NEVER)
#endif
/* Where no generation comes any more, nothing has to be proved. */
#define MAY_SILENCE(d) ((retire[d] >= LEFT && MORE) || (h_at == PLAN && gate_d == (d)))
#define MORE	       (faults || switches || h_at != RUNS || alarm)
/* The proof that a descriptor's queues are nobody's, step by step. */
#define RETIRE(d)                                                                                  \
	:: d_step { MAY_SILENCE(d) && retire[d] <= LEFT -> prod[d] = NEVER; retire[d] = PROD_SET } \
	:: d_step { retire[d] == PROD_SET && MAY_SILENCE(d) && FIRST_LOOK(d) -> retire[d] = UNLOCKED }               \
	:: d_step {                                                                                \
		retire[d] == UNLOCKED && MAY_SILENCE(d) && SECOND_LOOK(d) -> retire[d] = SILENT                      \
	}                                                                                          \
	:: d_step {                                                                                \
		retire[d] == UNLOCKED && MAY_SILENCE(d) && !SECOND_LOOK(d) ->                      \
		reach(looks_again);                                                                \
		retire[d] = IN_USE + (gate_d != (d))                                               \
	}                                                                                          \
	:: d_step {                                                                                \
		retire[d] == SILENT && gate_d != (d) && h_at == RUNS && MORE && !latched && NOBODY_WRITES(d) -> \
		reach(retires);                                                                    \
		retire[d] = FRESH;                                                                 \
		h_of[d] = 0                                                                        \
	}

#ifndef PROBES
#define fails_in_use() skip
#elif defined(MUT_PROBE_ONCE)
#define fails_in_use() dark = dark | (cut & BIT(on)); probe = NO_PROBE
#else
#define fails_in_use() speaks_against(on)
#endif
#ifdef MUT_PROBE_SUSPECTED
#define is_suspected() dark = dark | OTHER; probe = NO_PROBE
#else
#define is_suspected() speaks_against(1 - on)
#endif
#ifndef PROBES
#define MAY_GO true
#elif defined(MUT_PROBE_FIRST)
#define MAY_GO true
#else
#define MAY_GO IS_PROVED
#endif
#ifdef MUT_PROBE_ANSWERED
#define COMES_THROUGH true
#else
#define COMES_THROUGH (!IS(cut, 1 - on))
#endif

#ifdef MUT_FAILBACK_LOCK
#define NOBODY_RINGS true
#else
#define NOBODY_RINGS (retire[gate_d] == SILENT)
#endif

init {
	retire[0] = IN_USE;
	s_up = 1;
	r_up = 1;
	if
	:: signals = BIT(OPS) - 1
#ifndef ALARMS
	:: signals = BIT(OPS) - 2
	:: signals = BIT(OPS) - 1 - BIT(OPS - 1)
#if OPS > 2
	:: signals = BIT(OPS) - 3
#endif
#endif
	fi;
#ifdef READS
	if
	:: reads = BIT(OPS - 1)
	:: reads = 1
#if OPS > 2
	:: reads = 2
#endif
	fi;
	signals = signals & ~reads;
#endif
	/* Nothing is left to happen, and somebody still waits: an invalid end state, `stuck`. */
	do
	THREAD(0)
	THREAD(1)
	NIC(0)
#if GENS > 1
	NIC(1)
#endif
#if GENS > 2
	NIC(2)
#endif
#if GENS > 3
	NIC(3)
#endif
#if GENS > 4
	NIC(4)
#endif
	RETIRE(0)
#if GENS > 1
	RETIRE(1)
#endif
#if GENS > 2
	RETIRE(2)
#endif
#if GENS > 3
	RETIRE(3)
#endif
#if GENS > 4
	RETIRE(4)
#endif
	:: d_step { /* a false alarm, or an operator in haste */
		faults && !FINISHED && !alarm && !IS(broken, gate_d) && h_at == RUNS ->
		faults--;
		reach(false_alarm);
		alarm = true
	}
	:: d_step {
		IS(broken, gate_d) && !alarm && !latched && (h_at == RUNS || h_at >= PLAN) -> alarm = true
	}
	:: d_step { alarm && !latched && (h_at == RUNS || h_at >= PLAN) ->
		reach_if(h_at != RUNS, switch_fails);
		fails_in_use();
		closed = true;
#ifdef MUT_READY_EARLY
		h_r = ready[gate_d];
#endif
		h_at = CLOSED
	}
	:: d_step { h_at == CLOSED && IS(s_up, gate_d) -> FENCE_SENDER }
	:: d_step { alarm && h_at <= CLOSED && IS(r_up, gate_d) -> r_up = r_up & ~BIT(gate_d) }
	:: d_step { !latched && h_at == CLOSED && S_FENCED && R_FENCED -> verdict() }
	:: d_step { !latched && h_at == READ -> build() }
	:: d_step { h_at == BUILT -> rung[h_d] = h_r; h_at = RUNG }
	:: d_step { h_at == RUNG -> open() }
#if SWITCHES > 0
	:: d_step { /* an operator, or the better path is back */
		switches && !FINISHED && !alarm && h_at == RUNS && MAY_GO ->
		switches--;
#ifdef PROBES
		must(!IS(dark, 1 - on), blind);
#endif
		closed = true;
		h_at = PLAN
	}
#ifdef LIMIT
	:: d_step { (h_at == PLAN || h_at == PLAN_R) && !alarm -> reach(drains_too_long); alarm = true }
#endif
#ifdef PROBES
	:: d_step { /* the other path is cut, in silence, */
		BREAKS && !FINISHED && !IS(cut, 1 - on) && (h_at == RUNS || h_at >= PLAN) ->
		faults--;
		cut = cut | OTHER
	}
	:: d_step { /* its NIC's event comes, */
		IS(cut, 1 - on) && !IS(dark, 1 - on) -> reach_if(IS_PROVED, disproved); is_suspected()
	}
	:: d_step { /* it heals */
		IS(cut, 1 - on) ->
		cut = cut & ~OTHER;
		dark = dark & ~OTHER;
		probe = (probe == LOST -> NO_PROBE : probe)
	}
	:: d_step { switches && !FINISHED && !alarm && h_at == RUNS && probe == NO_PROBE && !IS_PROVED -> probe = SENT }
	:: d_step { probe == SENT && COMES_THROUGH -> probe = CAME }
	:: d_step { probe == SENT && IS(cut, 1 - on) -> reach(probe_lost); probe = LOST }
	:: d_step { probe == CAME && h_at == RUNS && !alarm -> probe = NO_PROBE; proved = proved | OTHER }
#endif
	:: d_step { /* what is published and was not rung is rung by the host */
		h_at == PLAN && !alarm && NOBODY_RINGS ->
		h_r = ready[gate_d];
		h_at = PLAN_R;
		ring(gate_d, h_r)
	}
	:: d_step { h_at == PLAN_R && !alarm && acked[gate_d] == h_r ->
#ifndef MUT_FAILBACK_FLUSH
		place_all(gate_d);
#endif
		h_at = PLAN_D
	}
	:: d_step { h_at == PLAN_D && !alarm ->
		reach(switches_back);
		h_a = h_r;
		h_of[gate_d] = resv;
		choose();
		s_up = s_up & ~BIT(gate_d);
#ifndef MUT_FAILBACK_FLUSH
		r_up = r_up & ~BIT(gate_d);
#endif
#ifdef MUT_FAILBACK_BASE
		taken[h_d] = 0;
		ready[h_d] = cons;
#endif
		h_at = RUNG
	}
#endif
	:: timeout ->
		if
		:: !FINISHED -> if :: IGNORED(stuck) -> skip :: else -> printf("VIOLATED stuck\n"); assert(false) fi
		:: FINISHED && !latched ->
			must(ALL_PLACED(OPS), lost);
			d_step {
				for (i : 0 .. OPS - 1) {
					x = (SIGNAL(i) -> x + 1 : x)
				};
				must(cell == x, wrong_sum);
				i = 0;
				x = 0
			}
		:: FINISHED && latched -> reach(latches)
		fi;
		break
	od
}
