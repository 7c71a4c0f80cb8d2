/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce in the network without a switch: how members that add for each other link their queue pairs.
 *
 * In each epoch every member makes new ends for every other one and says LINK{epoch, ends, how far}, which may
 * be lost, doubled and late; epochs begin as in inc.pml, which takes a member that is not linked for one that has
 * not sent yet. docs/inc-protocol.md explains the rules.
 *
 * MUT_<RULE> removes one rule; link-mutants names the property that must then fail.
 */

#ifndef N
#define N 3 /* members, 2 or 3 */
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#define ALARM  1 /* a member suspects what is well */
#define LINK   2 /* nothing passes between two members any more: the link that these edges go over is lost */
#define LOSS   4 /* a frame is lost */
#define DOUBLE 8 /* a frame comes again later */
#ifndef KINDS
#define KINDS 15 /* faults that may happen */
#endif

#define EPOCHS	(FAULTS + 1)
#define AGAIN	(FAULTS + 1) /* so often is a frame said again: each fault is in the way of one */
#define MEMBERS (BIT(N) - 1)
#define BIT(n)	(1 << (n))
#define IN(set, m) ((set)&BIT(m))
#define PAIR(m, p) ((m)*N + (p))

mtype = { wrong_edge, deaf, stuck };

/* How far a member is with another one: of whose ends it has not heard; to which its own are connected; and of
 * which it knows that the other one has its own. */
#define ALONE 0
#define HAS   1
#define KNOWS 2

byte epoch = 1;	 /* the leader's */
bool decided = true;
bool is_retired; /* by RESUME: everything is everywhere, nobody contributes */
byte ep[N];	 /* in which a member has made its ends; 0: in none yet */
byte joined;	 /* members whose ends are there */
byte fenced = MEMBERS;
byte left;
byte at[N * N];	     /* ALONE, HAS, KNOWS */
byte said[N * N];    /* how often it has been said again in this epoch */
short air[N * N];    /* LINK on its way from one to another: a set of epochs and states */
byte broken[N];	     /* members to whom nothing passes */
byte suspects;
byte faults = FAULTS;

byte i;

#include "properties.pml"

#define LIVES(m)     (IN(joined, m) && !IN(left, m))
#define FRAME(e, s)  BIT(((e)-1) * 3 + (s))
#define OF_EPOCH(e)  (7 << (((e)-1) * 3))
#define FAULT(kind)  (faults > 0 && ((KINDS) & (kind)) && left != MEMBERS)
#define KNOWN(m, p)  ((m) == (p) || at[PAIR(m, p)] == KNOWS)
#define HAD(m, p)    ((m) == (p) || at[PAIR(m, p)] != ALONE)
#if N == 2
#define ALL_KNOWN(m) (KNOWN(m, 0) && KNOWN(m, 1))
#define ALL_HAD(m)   (HAD(m, 0) && HAD(m, 1))
#define ALL_LINKED   (LINKED(0) && LINKED(1))
#else
#define ALL_KNOWN(m) (KNOWN(m, 0) && KNOWN(m, 1) && KNOWN(m, 2))
#define ALL_HAD(m)   (HAD(m, 0) && HAD(m, 1) && HAD(m, 2))
#define ALL_LINKED   (LINKED(0) && LINKED(1) && LINKED(2))
#endif
#ifdef MUT_LINK_KNOWS
#define MAY_SEND(m) ALL_HAD(m)
#else
#define MAY_SEND(m) ALL_KNOWN(m)
#endif
/* It contributes. */
#define LINKED(m) (IN(joined, m) && ep[m] == epoch && MAY_SEND(m))

#ifdef MUT_LINK_EPOCH
#define COUNTS(m, e)    true
#define IS_IN_VAIN(m, p) false
#else
#define COUNTS(m, e) ((e) == ep[m])
/* What is of an earlier epoch than the one that hears it changes nothing: it need not be on its way. */
#define IS_IN_VAIN(m, p) (IN(left, p) || (IN(joined, p) && ep[p] > ep[m]))
#endif

inline say(m, p)
{
	if
	:: IS_IN_VAIN(m, p) -> reach(comes_late)
	:: else -> air[PAIR(m, p)] = air[PAIR(m, p)] | FRAME(ep[m], at[PAIR(m, p)])
	fi
}

/* What a member sends to another one of its epoch finds that one's end connected to its own. */
inline look_whether_heard(m)
{
	for (i : 0 .. N - 1) {
		must(!MAY_SEND(m) || i == m || epoch != ep[m] || (IN(joined, i) && ep[i] == ep[m] && HAD(i, m)), deaf)
	};
	i = 0
}

inline join(m)
{
	ep[m] = epoch;
	fenced = fenced & ~BIT(m);
	joined = joined | BIT(m);
	for (i : 0 .. N - 1) {
		if
		:: i != m ->
			at[PAIR(m, i)] = ALONE;
			said[PAIR(m, i)] = 0;
			reach_if(air[PAIR(i, m)] & ~OF_EPOCH(ep[m]), is_late);
			if
			:: COUNTS(m, 0) -> skip
			:: else -> air[PAIR(i, m)] = air[PAIR(i, m)] & OF_EPOCH(ep[m])
			fi;
			say(m, i)
		:: else -> skip
		fi
	};
	i = 0
}

#ifdef MUT_LINK_AGAIN
#define ANSWERS(m, s) (!MAY_SEND(m) && (s) != KNOWS)
#else
#define ANSWERS(m, s) ((s) != KNOWS)
#endif

inline hear(m, p, e, s)
{
	if
	:: LIVES(m) && COUNTS(m, e) ->
		if
		:: at[PAIR(m, p)] == ALONE ->
			must((e) == ep[m], wrong_edge);
			at[PAIR(m, p)] = HAS
		:: else -> skip
		fi;
		reach_if(MAY_SEND(m) && ANSWERS(m, s), answers_again);
		i = ANSWERS(m, s); /* whoever was linked before answers as well */
		if :: (s) != ALONE -> at[PAIR(m, p)] = KNOWS :: else -> skip fi;
		if :: i -> say(m, p) :: else -> skip fi;
		i = 0;
		reach_if(MAY_SEND(m), links);
		look_whether_heard(m)
	:: else -> skip
	fi
}

/* A frame of any epoch and state that is on its way from p to m: heard, lost, or heard and on its way again. */
#define ON_ITS_WAY(m, p, e, s)                                                                     \
	:: d_step {                                                                                \
		(air[PAIR(p, m)] & FRAME(e, s)) ->                                                 \
		air[PAIR(p, m)] = air[PAIR(p, m)] & ~FRAME(e, s);                                  \
		hear(m, p, e, s)                                                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(LOSS) && (air[PAIR(p, m)] & FRAME(e, s)) ->                                  \
		faults--;                                                                          \
		reach(loses_frame);                                                                \
		air[PAIR(p, m)] = air[PAIR(p, m)] & ~FRAME(e, s)                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(DOUBLE) && (air[PAIR(p, m)] & FRAME(e, s)) ->                                \
		faults--;                                                                          \
		reach(doubles_frame);                                                              \
		hear(m, p, e, s)                                                                   \
	}
#define OF_ONE(m, p, e) ON_ITS_WAY(m, p, e, ALONE) ON_ITS_WAY(m, p, e, HAS) ON_ITS_WAY(m, p, e, KNOWS)
#if FAULTS == 0
#define FRAMES(m, p) OF_ONE(m, p, 1)
#elif FAULTS == 1
#define FRAMES(m, p) OF_ONE(m, p, 1) OF_ONE(m, p, 2)
#elif FAULTS == 2
#define FRAMES(m, p) OF_ONE(m, p, 1) OF_ONE(m, p, 2) OF_ONE(m, p, 3)
#else
#define FRAMES(m, p) OF_ONE(m, p, 1) OF_ONE(m, p, 2) OF_ONE(m, p, 3) OF_ONE(m, p, 4)
#endif

/* Time passes when nothing of this epoch is on its way between the two. */
#define ARE_SILENT(m, p) (((air[PAIR(m, p)] | air[PAIR(p, m)]) & OF_EPOCH(ep[m])) == 0)
#define LINKS(m, p)                                                                                \
	FRAMES(m, p)                                                                               \
	:: d_step {                                                                                \
		LIVES(m) && LIVES(p) && ep[p] == ep[m] && at[PAIR(m, p)] != KNOWS &&               \
			ARE_SILENT(m, p) && said[PAIR(m, p)] < AGAIN ->                            \
		said[PAIR(m, p)]++;                                                                \
		reach(says_again);                                                                 \
		say(m, p)                                                                          \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(LINK) && (m) < (p) && epoch < EPOCHS && LIVES(m) && LIVES(p) && !IN(broken[m], p) -> \
		faults--;                                                                          \
		reach(loses_link);                                                                 \
		broken[m] = broken[m] | BIT(p);                                                    \
		broken[p] = broken[p] | BIT(m)                                                     \
	}

#ifdef MUT_WAITS_FOR_MESH
#define MAY_LEAVE(m) ((is_retired && LINKED(m)) || IS_DONE)
#else
#define MAY_LEAVE(m) (is_retired || IS_DONE)
#endif
#if N == 2
#define UNBROKEN (broken[0] == 0)
#else
#define UNBROKEN ((broken[0] | broken[1] | broken[2]) == 0)
#endif
/* Everything is computed, or was when the first one left. */
#define IS_DONE (!is_retired && ((ALL_LINKED && UNBROKEN) || left))

#define MEMBER(m)                                                                                  \
	:: d_step { decided && IN(fenced, m) && !IN(left, m) -> join(m) }                          \
	:: d_step { /* a send over a link that is lost ends with an error */                       \
		decided && LINKED(m) && !IN(left, m) && broken[m] && !IN(suspects, m) ->           \
		reach(notices);                                                                    \
		suspects = suspects | BIT(m)                                                       \
	}                                                                                          \
	:: d_step {                                                                                \
		FAULT(ALARM) && decided && epoch < EPOCHS && LIVES(m) && ep[m] == epoch && !IN(suspects, m) -> \
		faults--;                                                                          \
		reach(false_alarm);                                                                \
		suspects = suspects | BIT(m)                                                       \
	}                                                                                          \
	:: d_step { /* FENCE */                                                                    \
		!decided && !IN(left, m) && !IN(fenced, m) ->                                      \
		reach_if(!MAY_SEND(m), fenced_while_linking);                                      \
		fenced = fenced | BIT(m);                                                          \
		joined = joined & ~BIT(m)                                                          \
	}                                                                                          \
	:: d_step {                                                                                \
		decided && LIVES(m) && ep[m] == epoch && !IN(suspects, m) && MAY_LEAVE(m) ->       \
		reach_if(!MAY_SEND(m), leaves_unlinked);                                           \
		reach_if(MAY_SEND(m), leaves_linked);                                              \
		for (i : 0 .. N - 1) {                                                             \
			air[PAIR(i, m)] = 0                                                        \
		};                                                                                 \
		i = 0;                                                                             \
		left = left | BIT(m)                                                               \
	}

init {
	/* Nothing is left to happen, and somebody has not left. */
end_finished:
	do
	MEMBER(0)
	MEMBER(1)
	LINKS(0, 1)
	LINKS(1, 0)
#if N > 2
	MEMBER(2)
	LINKS(0, 2)
	LINKS(2, 0)
	LINKS(1, 2)
	LINKS(2, 1)
#endif
	:: d_step { decided && suspects && epoch < EPOCHS -> decided = false; suspects = 0; epoch++ }
	/* RESUME, when all have fenced. Who has left had everything, and so had all. */
	:: d_step {
		!decided && (fenced | left) == MEMBERS ->
		decided = true;
		is_retired = left != 0;
		reach_if(is_retired, resumes_retired);
		for (i : 0 .. N - 1) {
			broken[i] = 0
		};
		i = 0
	}
	:: timeout && left != MEMBERS && !IGNORED(stuck) -> printf("VIOLATED stuck\n"); assert(false)
	od
}
