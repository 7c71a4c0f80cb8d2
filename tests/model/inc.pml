/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce in the network: members, a switch that adds and may die, a ring, and the epochs between them.
 *
 * An operation is one unit here. A unit is settled when its result is at every member: by the tree of the
 * present epoch, or by the ring. When the tree (or the ring) is suspected, member 0 leads: FENCE, FENCED,
 * and RESUME, which says of each unit that it is retired, taken from a member that has it, or contributed
 * again. docs/inc-protocol.md explains the protocol, what is modelled and what is not.
 *
 * MUT_<RULE> removes one rule; inc-mutants names the property that must then fail.
 */

#ifndef N
#define N 2 /* members, 2 or 3 */
#endif
#ifndef U
#define U 2 /* units, 1 to 3 */
#endif
#ifndef LANES
#define LANES 1 /* unit u goes over lane u mod LANES; a lane keeps order */
#endif
#ifndef D
#define D 2 /* a member sends that many units beyond its own results */
#endif
#ifndef W
#define W U /* ... and as many beyond what it knows to be retired: the width of FENCED's bitmap */
#endif
#ifndef KEEP
#define KEEP 1 /* copies of results that a member has room for; 0: every request waits for retirement */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef VOLUNTARY
#define VOLUNTARY 0 /* epochs that the leader begins although nothing is wrong: failback, drain */
#endif
#define ALARM  1  /* a member suspects what is well */
#define CUT    2  /* an edge passes nothing, and its member notices */
#define SWITCH 4  /* ... nor does any other: the switch is dead or cut off */
#define WEDGE  8  /* the switch does nothing, and its heartbeats go on */
#define DEATH  16 /* a member's process dies */
#define STAR   32 /* no frame passes between a member and the leader any more */
#define LINK   64 /* of two lanes: a member's edge of one passes nothing, those of the other do */
#ifndef KINDS
#define KINDS 127 /* faults that may happen */
#endif
/* IN_PLACE: results land over contributions. Host memory sends from a shadow, with DIRECT there is none. */
#ifdef DIRECT
#define IN_PLACE
#endif

#define BIT(n)	      (1 << (n))
#define ALL	      (BIT(U) - 1)
#define MEMBERS	      (BIT(N) - 1)
#define PREFIX(set)   (((set)&1) == 0 -> 0 : (((set)&2) == 0 -> 1 : (((set)&4) == 0 -> 2 : 3)))
#define COUNT(set)    (((set)&1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define SLOT_OF(u)    (D == 1 -> 7 : (D == 2 && (u) != 1 -> 5 : BIT(u))) /* units of the same slot */
#if LANES == 1
#define BEFORE(u) (BIT(u) - 1)
#else
#define BEFORE(u)      ((u) == 2 -> 1 : 0)
#define OF_LANE(lane) (lane == 0 -> ALL & 5 : 2) /* its units */
#endif
#define NEXT(m) (((m) + 1) % N)
#define PREV(m) (((m) + N - 1) % N)
#if N == 2
#define ANY(f) (f(0) || f(1))
#define ALL_OF(f) (f(0) && f(1))
#else
#define ANY(f) (f(0) || f(1) || f(2))
#define ALL_OF(f) (f(0) && f(1) && f(2))
#endif

#define OUTAGE	20
#define DAMAGED 21
#define DIED(m) ((m) + 1)

mtype = { two_results, late_write, wrong_sum, lost_unit, early_release, stale_result, false_damage,
	  needless_abort, split_verdict, stuck };

/* ---- the members */
byte ep[N] = 1;	   /* epoch of the last FENCE it obeyed */
byte fenced;	   /* members whose edges are destroyed and who have heard no RESUME since */
byte issued[N];	   /* operations that NCCL has asked for */
byte have[N];	   /* units whose result is here, by software's count */
byte ret[N];	   /* units that it knows to be retired */
byte done[N];	   /* requests that are complete: their buffers are NCCL's */
byte sent[N];	   /* units posted in this epoch */
byte ack[N];	   /* ... that the hardware has let go of */
byte verdict[N];   /* why it gave up; 0: it did not */
byte suspects;	   /* members that say SUSPECT */
byte left;	   /* members that have said LEAVE */
byte alive = MEMBERS;
#ifdef IN_PLACE
byte touched[N]; /* units whose result has begun to land over their contribution */
#ifndef DIRECT
byte shadow[N]; /* units whose contribution the shadow holds */
#endif
#endif

/* ---- the leader, which is member 0 */
byte l_epoch = 1;
bool decided = true; /* RESUME of l_epoch is said: */
bool ring;	     /* by the ring, or through a tree that no RESUME has named before; */
byte again = ALL;    /* units that are contributed (again); */
byte own[N];	     /* units that are taken from this member; */
byte retired;	     /* and units that are retired */
byte gone;	     /* members that had left */
bool hold;	     /* HOLD: no new units */
byte held;	     /* members that said HELD */
bool voluntary;	     /* nothing was wrong when this epoch began */
byte left_to_do = VOLUNTARY;

/* ---- the tree or ring of the present epoch */
byte arr[N];  /* units that have arrived from this member */
byte root;    /* units that the root knows every member to have */
byte cut;     /* members whose edge passes nothing */
#if LANES > 1
byte link[N]; /* units whose edge passes nothing here, as that lane's link is lost */
#endif
bool wedged;
byte tag[U];  /* epoch in which the result was computed that some member has; others differ in their bits */

byte star_cut; /* members that no frame reaches */
byte faults = FAULTS;

/* Only what a missing rule leaves behind. */
#if defined(MUT_TREE_FENCE) || defined(MUT_RING_FENCE) || defined(MUT_ALL_FENCED)
#define GHOSTS
byte ghost[N]; /* results of an older epoch that may still land */
byte ghost_tag[U];
#endif
#ifdef MUT_HAVE_IS_ACK
byte hw[N]; /* results that the hardware has acknowledged */
#endif
#ifdef MUT_NEW_PLAN
byte net_tag[U];
#endif
#ifdef MUT_SENT_EVER
byte ever[N]; /* units sent in any epoch */
#endif
#if defined(MUT_RESUME_FREES) || defined(MUT_KEEP_FULL)
byte freed[N];
#endif
#ifdef MUT_SUSPECT_AGAIN
byte lost; /* members whose SUSPECT was lost */
#endif
#ifdef MUT_MESSAGE_EPOCH
byte old_have[N]; /* FENCED of the epoch before, which comes late */
byte old;	  /* members of whom there is one */
byte older[N];
#endif

#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif
SCRATCH byte i;
SCRATCH byte x;

/* ---- properties */

#include "properties.pml"

/* ---- who can do what */

#define IN(set, m) ((set)&BIT(m))
#define UP(m)	     (IN(alive, m) && !IN(left, m) && verdict[m] == 0)
#define RUNS(m)	     (UP(m) && !IN(fenced, m))
#define LEADS	     UP(0)
#define HEARD(m)     (!IN(star_cut, m)) /* frames between it and the leader */
#define PASSES(m)    (RUNS(m) && !IN(cut, m) && !wedged)
#if LANES == 1
#define LOST(m)	       0
#define LOST_LINKS     false
#define ANY_LANE(m)    true
#define A_LANE_IS_FINE true
#else
#define LOST(m)	   link[m]
#define LOST_LINKS (SOME(link) != 0)
/* Words go over all lanes, and any of them retires what all have. */
#define ANY_LANE(m)    (link[m] != ALL)
#define A_LANE_IS_FINE (SOME(link) != ALL)
#endif
#define CARRIES(m, u) (PASSES(m) && !IN(LOST(m), u))
#define OVER(m)	     (!UP(m))
#define FINISHED     ALL_OF(OVER)

/* ---- a unit */

#define NEEDS(m) (again | own[m])
#if N == 2
#define BY_ALL(set, u)	 (IN(set[0], u) && IN(set[1], u))
#define FROM_OWNER(u)	 ((IN(own[0], u) && IN(arr[0], u)) || (IN(own[1], u) && IN(arr[1], u)))
#define SOME(set)	 (set[0] | set[1])
#define COMMON(set)	 (set[0] & set[1])
#else
#define BY_ALL(set, u)	 (IN(set[0], u) && IN(set[1], u) && IN(set[2], u))
#define FROM_OWNER(u)                                                                              \
	((IN(own[0], u) && IN(arr[0], u)) || (IN(own[1], u) && IN(arr[1], u)) ||                   \
	 (IN(own[2], u) && IN(arr[2], u)))
#define SOME(set)	 (set[0] | set[1] | set[2])
#define COMMON(set)	 (set[0] & set[1] & set[2])
#endif
/* The result exists where it is sent from. */
#define RESULT(u) (IN(again, u) -> BY_ALL(arr, u) : FROM_OWNER(u))
/* On the ring a result comes from the member before, which has it; the sum is made by the last member. */
#define COMES(m, u)                                                                                \
	(RESULT(u) && (!ring || (IN(again, u) && (m) == N - 1) || (RUNS(PREV(m)) && IN(have[PREV(m)], u))))

#ifdef MUT_RETAIN
#define COPIES(m) 0
#elif defined(MUT_RESUME_FREES) || defined(MUT_KEEP_FULL)
#define COPIES(m) (done[m] & ~ret[m] & ~freed[m])
#else
#define COPIES(m) (done[m] & ~ret[m])
#endif
#define HAS_BYTES(m, u) (!IN(done[m], u) || IN(COPIES(m), u))

/* The hardware still reads a request's memory: its contribution, or a result that goes on to the next. */
#if defined(IN_PLACE) && !defined(DIRECT)
#define USERS_MEMORY(m) own[m] /* contributions are sent from the shadow */
#else
#define USERS_MEMORY(m) ALL
#endif
#define SENDS(m, u) (RUNS(m) && IN(sent[m] & ~ack[m] & USERS_MEMORY(m), u))
#define FORWARDS(m, u)                                                                             \
	(ring && RUNS(m) && IN(have[m], u) && !IN(ret[m], u) && UP(NEXT(m)) && !IN(have[NEXT(m)], u) && \
	 !(IN(again, u) && NEXT(m) == N - 1))
#define READ(m, u) (SENDS(m, u) || FORWARDS(m, u))

#ifdef MUT_COMPLETE_SENDING
#define MAY_COMPLETE(m, u) (!FORWARDS(m, u))
#elif defined(MUT_COMPLETE_FORWARD)
#define MAY_COMPLETE(m, u) (!SENDS(m, u))
#else
#define MAY_COMPLETE(m, u) (!READ(m, u))
#endif
#if defined(MUT_RETAIN) || defined(MUT_KEEP_FULL)
#define IS_SAFE(m, u) true
#else
#define IS_SAFE(m, u) (IN(ret[m], u) || COUNT(COPIES(m)) < KEEP)
#endif

#ifdef MUT_WINDOW
#define WINDOW(m, u) ((u) < PREFIX(have[m]) + D || (COMMON(arr) & (BIT((u) - D + 1) - 1)) == BIT((u) - D + 1) - 1)
#else
#define WINDOW(m, u) ((u) < PREFIX(have[m]) + D)
#endif
#ifdef MUT_BITMAP
#define BITMAP(m, u) true
#else
#define BITMAP(m, u) ((u) < PREFIX(ret[m]) + W)
#endif
#define SENDABLE(m, u)                                                                             \
	(RUNS(m) && issued[m] > (u) && IN(NEEDS(m) & ~sent[m], u) &&                               \
	 (NEEDS(m) & ~sent[m] & BEFORE(u)) == 0 && !(IN(held, m) && IN(again, u)))

inline send(m, u)
{
	if
	:: IN(again, u) ->
		must(!IN(done[m], u), wrong_sum);
		reach_if(l_epoch > 1 && tag[u] == 0, contributes_again);
#ifdef IN_PLACE
#ifdef DIRECT
		must(!IN(touched[m], u), wrong_sum)
#else
#ifdef MUT_SHADOW
		must(!IN(touched[m], u), wrong_sum)
#else
		must(!IN(touched[m], u) || IN(shadow[m], u), wrong_sum);
		reach_if(IN(touched[m], u), from_shadow);
		shadow[m] = (shadow[m] & ~SLOT_OF(u)) | BIT(u)
#endif
#endif
#endif
	:: else ->
		must(HAS_BYTES(m, u), lost_unit);
		reach(takes);
		reach_if(IN(done[m], u), takes_kept)
	fi;
#ifdef MUT_SENT_EVER
	ever[m] = ever[m] | BIT(u);
#endif
	sent[m] = sent[m] | BIT(u)
}

inline arrive(m, u)
{
	arr[m] = arr[m] | BIT(u);
	reach_if(RESULT(u) && IN(again, u), computes)
#ifdef MUT_NEW_PLAN
	; if :: RESULT(u) && IN(again, u) -> net_tag[u] = ep[m] :: else -> skip fi
#endif
}

#define LANDS(m, u)                                                                                \
	(CARRIES(m, u) && issued[m] > (u) && !IN(have[m], u) && COMES(m, u) && (BEFORE(u) & ~have[m]) == 0)

#ifdef MUT_NEW_PLAN
#define TAG(m, u) (IN(again, u) -> net_tag[u] : tag[u])
#else
#define TAG(m, u) (IN(again, u) -> ep[m] : tag[u])
#endif
inline land(m, u)
{
	must(!IN(done[m], u), late_write);
	x = TAG(m, u);
	must(!IN(again, u) || x == ep[m], stale_result);
	must(tag[u] == 0 || tag[u] == x, two_results);
	if
	:: ring && IN(again, u) && m != N - 1 -> must(HAS_BYTES(PREV(m), u), lost_unit); reach(lands_by_ring)
	:: ring && !IN(again, u) -> must(HAS_BYTES(PREV(m), u), lost_unit); reach(takes_by_ring)
	:: else -> skip
	fi;
	if :: tag[u] == 0 -> tag[u] = x :: else -> skip fi;
	x = 0;
	have[m] = have[m] | BIT(u);
	reach_if(!IS_SAFE(m, u), waits_for_retirement);
	reach_if(IS_SAFE(m, u) && SENDS(m, u), waits_for_send);
	reach_if(IS_SAFE(m, u) && FORWARDS(m, u), waits_for_forward)
#ifdef MUT_HAVE_IS_ACK
	; hw[m] = hw[m] | BIT(u)
#endif
}

/* ---- retirement: the smallest of all members' words, from the root */

#ifdef MUT_HAVE_IS_ACK
#define WORD hw
#else
#define WORD have
#endif
#ifdef MUT_ROOT_RETIRES
#define EVERYONE_HAS(u) ((N == 2 -> IN(have[0], u) : (IN(have[0], u) && IN(have[1], u))))
#else
#define EVERYONE_HAS(u) BY_ALL(WORD, u)
#endif
#define IS_IN(m) (RUNS(m) || IN(left & ~gone, m))
#ifdef MUT_RING_RETIRES
#define WORDS_TRAVEL (!ring)
#else
#define WORDS_TRAVEL true
#endif
#define RETIRES(u)                                                                                 \
	(!IN(root, u) && EVERYONE_HAS(u) && cut == 0 && A_LANE_IS_FINE && !wedged && decided &&    \
	 ALL_OF(IS_IN) &&                                                                          \
	 WORDS_TRAVEL && (BEFORE(u) & ~root) == 0)

/* ---- the end */

inline give_up(m, why)
{
	for (i : 0 .. N - 1) {
		must(!IN(alive, i) || verdict[i] == 0 || verdict[i] == (why) || !IN(alive, 0) || star_cut, split_verdict)
	};
	i = 0;
	must(alive != MEMBERS || star_cut || (why) == DAMAGED, needless_abort);
	verdict[m] = why;
	suspects = suspects & ~BIT(m);
	cut = cut | BIT(m) /* its edges close */
}

#define HAS_ALL(m) (issued[m] == U && done[m] == ALL && ret[m] == ALL)
#ifdef MUT_LEAVE_RETIRED
#define MAY_LEAVE(m) (done[m] == ALL)
#else
#define MAY_LEAVE(m) HAS_ALL(m)
#endif
#define IS_AWAY(m) ((m) == 0 || IN(left, m) || IN(star_cut, m))
#ifdef MUT_LEADER_LAST
#define ALL_AWAY true
#else
#define ALL_AWAY ALL_OF(IS_AWAY)
#endif

/* ---- who suspects */

#define ASKED(m)	(issued[m] == U || !UP(m) || !HEARD(m))
#define LACKS(m)	((BIT(issued[m]) - 1) & ~have[m])
#define UNRETIRED(m)	(have[m] & ~ret[m])
#ifdef MUT_RTO_RETIRED
#define WAITS(m) (LACKS(m) != 0)
#else
#define WAITS(m) (LACKS(m) != 0 || UNRETIRED(m) != 0)
#endif
/* Every member has asked for what this one waits for: the leader knows. */
#define ISSUED_TOO(m) ((LACKS(m) == 0 || ALL_OF(ASKED)))
#ifdef MUT_CUT_SEND
#define SETTLED(m) ret[m]
#else
#define SETTLED(m) (ret[m] & done[m])
#endif
#ifdef MUT_LINK_CUTS
#define LINK_OF(m) 0
#define SOME_LINK  false
#else
#define LINK_OF(m) LOST(m)
#define SOME_LINK  LOST_LINKS
#endif
#define NOTICES(m)                                                                                 \
	(((IN(cut, m) || LINK_OF(m)) && SETTLED(m) != ALL) || ((cut || SOME_LINK) && WAITS(m)) ||  \
	 (wedged && WAITS(m) && ISSUED_TOO(m)))
#ifdef MUT_SUSPECT_AGAIN
#define MAY_SAY(m) (!IN(lost, m))
#else
#define MAY_SAY(m) true
#endif

/* ---- the leader */

#ifdef MUT_EVERY_VOTE
#define VOTES(m) ((m) != N - 1)
#else
#define VOTES(m) true
#endif
#ifdef MUT_MESSAGE_EPOCH
#define HAS(m) (IN(old, m) -> old_have[m] : have[m])
#else
#define HAS(m) have[m]
#endif
/* Of what a member has, FENCED says what fits its bitmap, which begins at what it knows to be retired. */
#define SAYS(m) (VOTES(m) && !IN(left, m) -> HAS(m) & (BIT(PREFIX(ret[m]) + W) - 1) : 0)
#define ANSWERED(m)                                                                                \
	((IN(left, m) || (UP(m) && IN(fenced, m) && ep[m] == l_epoch)) && HEARD(m))
#ifdef MUT_ALL_FENCED
#define AGREED(m) ((m) == N - 1 || ANSWERED(m))
#else
#define AGREED(m) ANSWERED(m)
#endif

inline begin_fence(wanted)
{
	reach_if(l_epoch > 1 && fenced, next_fault);
	l_epoch = l_epoch + 1;
	decided = false;
	hold = false; /* who holds does so until RESUME */
#ifdef MUT_HOLD_LASTS
	held = 0;
#endif
	suspects = 0;
	voluntary = wanted;
#ifdef MUT_SUSPECT_AGAIN
	lost = 0;
#endif
	reach_if(l_epoch == 3, third_epoch)
}

#ifdef GHOSTS
#define LEAVE_GHOSTS(m, u)                                                                         \
	if                                                                                         \
	:: RESULT(u) && !IN(have[m], u) && issued[m] > (u) ->                                      \
		ghost[m] = ghost[m] | BIT(u);                                                      \
		ghost_tag[u] = (IN(again, u) -> ep[m] : tag[u])                                    \
	:: else -> skip                                                                            \
	fi;
#if defined(MUT_TREE_FENCE)
#define STAYS(m) (!ring)
#elif defined(MUT_RING_FENCE)
#define STAYS(m) ring
#else
#define STAYS(m) false
#endif
inline leave_ghosts(m)
{
	LEAVE_GHOSTS(m, 0)
#if U > 1
	LEAVE_GHOSTS(m, 1)
#endif
	skip
}
#endif

inline fence(m)
{
#ifdef GHOSTS
	if :: STAYS(m) -> leave_ghosts(m) :: else -> skip fi;
#endif
#ifdef MUT_MESSAGE_EPOCH
	if :: IN(older[m], 7) -> old_have[m] = older[m] & ALL; old = old | BIT(m) :: else -> skip fi;
	older[m] = have[m] | BIT(7);
#endif
	reach(fences);
	ep[m] = l_epoch;
	fenced = fenced | BIT(m)
}

#if defined(MUT_ANYBODY_HAS)
#define TAKEN(m) 0
#else
#define TAKEN(m) SAYS(m)
#endif
#ifdef MUT_DAMAGE_SENT
#define WAS_OPEN SOME(sent)
#elif defined(MUT_SENT_EVER)
#define WAS_OPEN COMMON(ever)
#else
#define WAS_OPEN COMMON(sent)
#endif

inline decide(by_ring)
{
#ifdef MUT_R_SMALLEST
	retired = ALL;
	for (i : 0 .. N - 1) {
		if :: !IN(left, i) -> retired = retired & ret[i] :: else -> skip fi
	};
#else
	retired = 0;
	for (i : 0 .. N - 1) {
		retired = retired | (IN(left, i) -> ALL : ret[i])
	};
#endif
#ifdef MUT_ALL_FENCED
	if
	:: RUNS(N - 1) && ep[N - 1] < l_epoch ->
		leave_ghosts(N - 1);
		ep[N - 1] = l_epoch;
		fenced = fenced | BIT(N - 1)
	:: else -> skip
	fi;
#endif
	/* The lowest member that has a unit is its owner. */
	again = ALL & ~retired;
	for (i : 0 .. N - 1) {
		own[i] = TAKEN(i) & again;
		again = again & ~own[i]
	};
	/* What nobody lacks is not sent: its owner may hear that it is retired, and lets go of it. */
	x = ALL;
	for (i : 0 .. N - 1) {
		x = x & SAYS(i)
	};
#ifndef MUT_OWNER_LACKED
	for (i : 0 .. N - 1) {
		own[i] = own[i] & ~x
	};
#endif
	x = 0;
	i = 0;
	gone = left;
#ifdef DIRECT
	x = again & WAS_OPEN;
	if
	:: x ->
		must((x & ~COMMON(sent)) == 0, false_damage);
		must(!voluntary, needless_abort);
		reach(is_damaged)
	:: else -> skip
	fi;
#ifdef MUT_DAMAGE
	x = 0;
#endif
#endif
	if
	:: x -> give_up(0, DAMAGED)
	:: else ->
		decided = true;
		reach_if(by_ring, to_ring);
		reach_if(!(by_ring), to_tree);
		reach_if(voluntary && ring && !(by_ring), fails_back);
		reach_if(retired & ~COMMON(ret), resumes_retired);
		ring = by_ring;
		for (i : 0 .. N - 1) {
			sent[i] = 0;
			ack[i] = 0;
#ifdef MUT_NEW_PLAN
			if :: by_ring -> arr[i] = 0 :: else -> skip fi
#else
			arr[i] = 0
#endif
		};
		i = 0;
		root = retired;
		cut = MEMBERS & ~alive;
#if LANES > 1
		for (i : 0 .. N - 1) {
			link[i] = 0
		};
		i = 0;
#endif
		wedged = false;
		voluntary = false
	fi;
	x = 0
#ifdef MUT_MESSAGE_EPOCH
	; old = 0
#endif
}

inline resume(m)
{
	must((retired & ~have[m]) == 0, lost_unit);
	fenced = fenced & ~BIT(m);
	held = held & ~BIT(m);
#ifdef MUT_RESUME_FREES
	freed[m] = freed[m] | (done[m] & ~ret[m]);
#endif
	ret[m] = ret[m] | retired
}

/* HOLD is through when nothing that every member has sent is still open. */
#define OBEYS_HOLD(m) (IN(left, m) || (RUNS(m) && IN(held, m)))
#define OPEN	      (again & COMMON(sent) & ~COMMON(have))
#ifdef MUT_HOLD
#define HOLDS true
#else
#define HOLDS (ALL_OF(OBEYS_HOLD) && OPEN == 0)
#endif

/* A member that no frame reaches, and whose answer the leader needs. */
#define MISSING(m)                                                                                 \
	((m) != 0 && IN(star_cut, m) && (!decided || IN(fenced, m) || ep[m] < l_epoch))
#ifdef MUT_FROZEN
#define NO_ANSWER(m) ((m) != 0 && UP(m) && (IN(star_cut, m) || !decided) && !(RUNS(m) && ep[m] == l_epoch))
#else
#define NO_ANSWER(m) MISSING(m)
#endif
#define IS_DEAD(m) (!IN(alive, m) && !IN(left, m) && HEARD(m))

/* ---- steps */

#define FAULT(kind) (faults > 0 && ((KINDS) & (kind)) && !FINISHED)

#ifdef IN_PLACE
#define TOUCH(m, u)                                                                                \
	:: d_step {                                                                                \
		LANDS(m, u) && !IN(touched[m], u) -> touched[m] = touched[m] | BIT(u);             \
		reach(part_lands)                                                                  \
	}
#define WHOLE(m, u) IN(touched[m], u)
#else
#define TOUCH(m, u)
#define WHOLE(m, u) true
#endif

#ifdef GHOSTS
#ifdef MUT_ALL_FENCED
#define IS_TAKEN true /* by a member that has not fenced */
#else
#define IS_TAKEN false
#endif
#define GHOST(m, u)                                                                                \
	:: d_step {                                                                                \
		UP(m) && IN(ghost[m], u) ->                                                        \
		must(!IN(done[m], u), late_write);                                                 \
		must(!IN(have[m], u) || tag[u] == ghost_tag[u], two_results);                      \
		if                                                                                 \
		:: IS_TAKEN && !IN(have[m], u) ->                                                  \
			must(tag[u] == 0 || tag[u] == ghost_tag[u], two_results);                  \
			have[m] = have[m] | BIT(u);                                                \
			tag[u] = ghost_tag[u]                                                      \
		:: else -> skip                                                                    \
		fi;                                                                                \
		ghost[m] = ghost[m] & ~BIT(u)                                                      \
	}
#else
#define GHOST(m, u)
#endif

#ifdef MUT_HAVE_IS_ACK
#define UNPLACED(m, u)                                                                             \
	:: d_step {                                                                                \
		FAULT(CUT) && LANDS(m, u) ->                                                       \
		faults--;                                                                          \
		hw[m] = hw[m] | BIT(u)                                                             \
	}
#else
#define UNPLACED(m, u)
#endif

#ifdef MUT_KEEP_FULL
#define OVERWRITE(m) freed[m] = (COUNT(COPIES(m)) >= KEEP -> freed[m] | COPIES(m) : freed[m]);
#else
#define OVERWRITE(m)
#endif
#define UNIT(m, u)                                                                                 \
	:: d_step {                                                                                \
		SENDABLE(m, u) && WINDOW(m, u) && BITMAP(m, u) -> send(m, u)                       \
	}                                                                                          \
	:: d_step {                                                                                \
		CARRIES(m, u) && IN(sent[m] & ~arr[m], u) && (NEEDS(m) & ~arr[m] & BEFORE(u)) == 0 ->  \
		arrive(m, u)                                                                       \
	}                                                                                          \
	:: d_step { /* by hardware, whatever the switch's software does */                           \
		RUNS(m) && !IN(cut, m) && IN(sent[m] & arr[m] & ~ack[m] & ~LOST(m), u) ->                     \
		ack[m] = ack[m] | BIT(u)                                                           \
	}                                                                                          \
	TOUCH(m, u)                                                                                \
	:: d_step { LANDS(m, u) && WHOLE(m, u) -> land(m, u) }                                     \
	GHOST(m, u)                                                                                \
	UNPLACED(m, u)                                                                             \
	:: d_step {                                                                                \
		PASSES(m) && ANY_LANE(m) && IN(root & ~ret[m], u) ->                                              \
		ret[m] = ret[m] | BIT(u);                                                          \
		reach(retires);                                                                    \
		reach_if(ring, retires_by_ring)                                                    \
	}                                                                                          \
	:: d_step {                                                                                \
		UP(m) && IN(have[m] & ~done[m], u) && IS_SAFE(m, u) && MAY_COMPLETE(m, u) ->       \
		must(!READ(m, u), early_release);                                                  \
		reach_if(!IN(ret[m], u), keeps_copy);                                              \
		reach_if(IN(ret[m], u), completes_retired);                                            \
		OVERWRITE(m)                                                                       \
		done[m] = done[m] | BIT(u)                                                         \
	}

#ifdef MUT_ABORT
#define TOLD(m) false
#else
#define TOLD(m) (IN(alive, 0) && verdict[0] && HEARD(m))
#endif
#ifdef MUT_DEADLINE
#define OUTLASTED false
#else
#define OUTLASTED true
#endif
#ifdef MUT_FATE
#define FATE(m) :: d_step { RUNS(m) && cut && WAITS(m) -> give_up(m, OUTAGE) }
#else
#define FATE(m)
#endif
#ifdef MUT_SUSPECT_AGAIN
#define LOSE(m)                                                                                    \
	:: d_step {                                                                                \
		faults > 0 && IN(suspects, m) && (m) != 0 ->                                       \
		faults--;                                                                          \
		suspects = suspects & ~BIT(m);                                                     \
		lost = lost | BIT(m)                                                               \
	}
#else
#define LOSE(m)
#endif

#if LANES > 1
#define LOSE_LINK(m, lane)                                                                         \
	:: d_step {                                                                                \
		FAULT(LINK) && RUNS(m) && !IN(cut, m) && !wedged && link[m] == 0 ->                \
		faults--;                                                                          \
		reach(loses_link);                                                                 \
		link[m] = OF_LANE(lane)                                                            \
	}
#else
#define LOSE_LINK(m, lane)
#endif
#ifdef MUT_RESUME_EPOCH
#define IS_SAID true
#else
#define IS_SAID decided
#endif
/* What any member does, and what befalls it. */
#define MEMBER(m)                                                                                  \
	:: d_step {                                                                                \
		RUNS(m) && issued[m] < U ->                                                        \
		issued[m]++;                                                                       \
		reach_if(SENDABLE(m, issued[m] - 1) && !WINDOW(m, issued[m] - 1), window_full);    \
		reach_if(SENDABLE(m, issued[m] - 1) && !BITMAP(m, issued[m] - 1), bitmap_full)     \
	}                                      \
	:: d_step {                                                                                \
		RUNS(m) && decided && !IN(suspects, m) && NOTICES(m) && MAY_SAY(m) ->              \
		suspects = suspects | BIT(m);                                                      \
		reach_if(wedged && LACKS(m), suspects_result);                                     \
		reach_if(wedged && LACKS(m) == 0, suspects_retirement);                            \
		reach_if(cut, suspects_cut)                                                        \
	}                                                                                          \
	LOSE(m)                                                                                    \
	FATE(m)                                                                                    \
	:: d_step {                                                                                \
		LEADS && decided && IN(suspects, m) && RUNS(m) && ep[m] == l_epoch && HEARD(m) ->  \
		begin_fence(false)                                                                 \
	}                                                                                          \
	:: d_step { IN(alive, 0) && !IN(left, 0) && UP(m) && ep[m] < l_epoch && HEARD(m) -> fence(m) } \
	:: d_step {                                                                                \
		LEADS && UP(m) && IN(fenced, m) && ep[m] == l_epoch && IS_SAID && HEARD(m) ->      \
		resume(m)                                                                          \
	}                                                                                          \
	:: d_step { hold && RUNS(m) && !IN(held, m) && ep[m] == l_epoch && HEARD(m) -> held = held | BIT(m) } \
	:: d_step { LEADS && IS_DEAD(m) -> reach(aborts_member); give_up(0, DIED(m)) }             \
	:: d_step {                                                                                \
		LEADS && OUTLASTED && NO_ANSWER(m) -> reach(outage_leader); give_up(0, OUTAGE)     \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(ALARM) && RUNS(m) && decided && cut == 0 && !wedged && !IN(suspects, m) ->   \
		faults--;                                                                          \
		reach(false_alarm);                                                                \
		suspects = suspects | BIT(m)                                                       \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(CUT) && RUNS(m) && !IN(cut, m) && !wedged ->                                 \
		faults--;                                                                          \
		reach(cuts_edge);                                                                  \
		cut = cut | BIT(m)                                                                 \
	}                                                                                          \
	LOSE_LINK(m, 0)                                                                            \
	LOSE_LINK(m, 1)                                                                            \
	:: d_step {                                                                                \
		FAULT(DEATH) && UP(m) ->                                                           \
		faults--;                                                                          \
		reach_if((m) != 0, dies_member);                                                   \
		reach_if((m) == 0, dies_leader);                                                   \
		alive = alive & ~BIT(m);                                                           \
		suspects = suspects & ~BIT(m);                                                     \
		cut = cut | BIT(m)                                                                 \
	}

/* ... and a member that does not lead. */
#define FOLLOWER(m)                                                                                \
	:: d_step {                                                                                \
		UP(m) && MAY_LEAVE(m) ->                                                           \
		reach(leaves);                                                                     \
		reach_if(IN(fenced, m), leaves_in_fence);                                          \
		left = left | BIT(m);                                                              \
		suspects = suspects & ~BIT(m);                                                     \
		cut = (ring -> MEMBERS : cut) /* nothing goes round any more */                    \
	}                                                                                          \
	:: d_step { UP(m) && !IN(alive, 0) && HEARD(m) -> reach(aborts_leader); give_up(m, DIED(0)) } \
	:: d_step {                                                                                \
		UP(m) && TOLD(m) -> reach(hears_abort); give_up(m, verdict[0])                     \
	}                                                                                          \
	:: d_step { /* nobody answers it, and what it waits for does not come */                   \
		UP(m) && OUTLASTED && IN(star_cut, m) &&                                           \
		(IN(fenced, m) || NOTICES(m) || (WAITS(m) && (!decided || !LEADS))) ->             \
		reach(outage_member);                                                              \
		give_up(m, OUTAGE)                                                                 \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(STAR) && UP(m) && !IN(star_cut, m) ->                                        \
		faults--;                                                                          \
		reach(cuts_star);                                                                  \
		star_cut = star_cut | BIT(m)                                                       \
	}

#ifdef MUT_HOLD_ENDS
#define DROPS false
#else
#define DROPS (hold && star_cut)
#endif

init {
	/* Nothing is left to happen, and somebody still waits: an invalid end state, `stuck`. */
end_finished:
	do
	MEMBER(0)
	MEMBER(1)
	FOLLOWER(1)
	UNIT(0, 0)
	UNIT(1, 0)
#if U > 1
	UNIT(0, 1)
	UNIT(1, 1)
#endif
#if U > 2
	UNIT(0, 2)
	UNIT(1, 2)
#endif
#if N > 2
	MEMBER(2)
	FOLLOWER(2)
	UNIT(2, 0)
#if U > 1
	UNIT(2, 1)
#endif
#if U > 2
	UNIT(2, 2)
#endif
#endif
	:: d_step { RETIRES(0) -> root = root | BIT(0) }
#if U > 1
	:: d_step { RETIRES(1) -> root = root | BIT(1) }
#endif
#if U > 2
	:: d_step { RETIRES(2) -> root = root | BIT(2) }
#endif
	:: d_step { LEADS && !decided && ALL_OF(AGREED) -> decide(false) }
	:: d_step { LEADS && !decided && ALL_OF(AGREED) -> decide(true) }
	:: d_step { LEADS && decided && !hold && left_to_do > 0 && suspects == 0 -> left_to_do--; hold = true }
	:: d_step { LEADS && decided && hold && HOLDS -> reach(holds); begin_fence(true) }
	:: d_step { DROPS -> reach(drops_hold); hold = false; held = 0 }
	:: d_step { UP(0) && MAY_LEAVE(0) && ALL_AWAY -> reach(leader_leaves); reach_if(left == MEMBERS - 1, all_leave); left = left | BIT(0) }
	:: d_step {
		FAULT(SWITCH) && decided && cut == 0 && !wedged && !ring ->
		faults--;
		reach(dies_switch);
		cut = MEMBERS
	}
	:: d_step {
		FAULT(WEDGE) && decided && cut == 0 && !wedged ->
		faults--;
		reach(wedges);
		wedged = true
	}
	:: timeout && !FINISHED && !IGNORED(stuck) -> printf("VIOLATED stuck\n"); assert(false)
	od
}
