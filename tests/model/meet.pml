/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a group of all-reduce in the network begins: at all its members, or at none (src/inc/host/meeting.c and, of the
 * controller, src/tools/nccl-ha-ctrld/groups.c).
 *
 * Member 0, two others and the controller, joined by connections that keep the order and end with their process. Each of
 * the four may be stopped between any two of its steps, and go on at any later time or never, or die. A tick is 1/10 of half
 * of HA_NCCL_INC_CONNECT_MS, and comes when nobody who runs has anything left to do: who has no fault is never late.
 * docs/inc-protocol.md explains the rules ("All or none").
 *
 * MUT_<RULE> removes one rule; meet-mutants names the property that must then fail.
 */

#ifndef FAULTS
#define FAULTS 1
#endif

#define N	   3 /* members */
#define CONTROLLER N
#define OTHERS	   (BIT(1) | BIT(2))
#define BIT(p)	   (1 << (p))
#define IN(set, p) ((set)&BIT(p))

#define LONGEST 20			   /* ticks of a member that begins to meet */
#define LAST	((LONGEST + 1) * FAULTS)   /* somebody goes on: when all others are through */
#define END	(LAST + LONGEST + 1)

mtype = { split, two_words, stuck };

/* Of a member. */
#define PLANNED 0 /* its plan is there to be read */
#define WAITS	1
#define ASKS	2
#define BEGINS	3
#define ENDS	4

/* Where it is in its loop, which looks at the clock, the star and the controller. */
#define IDLE	      0
#define AT_STAR	      1
#define AT_CONTROLLER 2
#define IS_LATE	      3
#define TELLS	      4 /* member 0: to one after the other */
#define DONE	      5

/* What is on its way to a member, from member 0 and from the controller; the first word counts. */
#define NOTHING 0
#define GO	1
#define NO	2

byte state[N], at[N + 1];
byte since[N];	   /* it meets, */
byte asked[N];	   /* and has asked */
byte late;	   /* as they have read the clock */
byte here;	   /* who have said to member 0 that they are */
byte admitted;	   /* of them, those whom it has heard */
byte word[N];	   /* of member 0 */
byte told;	   /* by member 0: those before this one */
byte lost;	   /* who have found the end of member 0's connection */
byte question;	   /* of whom, to the controller */
byte answer[N];	   /* of the controller */
byte said;	   /* by it to anybody */
bool has_begun, is_refused, is_forgotten;
byte cut;	   /* whom it has told that it knows no such group */
byte refusing = N; /* the controller tells all: this one is next */
byte ended;	   /* closed its connections, alive */
byte dead, stopped;
byte wakes;	   /* before the next tick */
byte hit;	   /* has had a fault */
byte now;
byte faults = FAULTS;
byte due;	   /* of them, before the next tick */

#include "properties.pml"

#define RUNS(p)	  (!IN(dead | stopped, p))
#define GONE	  (dead | ended)
#define MEETS(m)  (state[m] == WAITS || state[m] == ASKS)
#define IS_THROUGH(m) (IN(dead, m) || at[m] == DONE)
#define LIVES_TO(m, verdict) (state[m] == verdict && !IN(dead, m))
#define ANY(verdict) (LIVES_TO(0, verdict) || LIVES_TO(1, verdict) || LIVES_TO(2, verdict))

/* ---- a member's verdict ----------------------------------------------------------------------- */

inline decide(m, verdict)
{
	state[m] = verdict;
	since[m] = 0;
	asked[m] = 0;
	late = late & ~BIT(m);
	if
	:: m == 0 -> at[m] = TELLS; told = 1
	:: else -> at[m] = DONE; ended = ended | (verdict == ENDS -> BIT(m) : 0)
	fi;
	must(!(ANY(BEGINS) && ANY(ENDS)), split)
}

#ifdef MUT_UNTOLD
#define IS_TOLD(m) (state[0] == BEGINS)
#else
#define IS_TOLD(m) (state[0] == BEGINS || IN(admitted, m))
#endif

inline tell_next()
{
	if
	:: IS_TOLD(told) -> word[told] = (state[0] == BEGINS -> GO : NO)
	:: else -> reach(cannot_tell)
	fi;
	told++;
	if
	:: told == N -> told = 0; at[0] = DONE; ended = ended | (state[0] == ENDS -> BIT(0) : 0)
	:: else -> skip
	fi
}

/* ---- what it hears ---------------------------------------------------------------------------- */

inline ask(m)
{
	if
	:: state[m] == WAITS ->
		state[m] = ASKS;
		asked[m] = now;
		late = late & ~BIT(m); /* for what it waits from now on */
		question = question | BIT(m);
		reach_if(m == 0 && now >= since[m] + 7, leader_asks_late);
		reach_if(m > 0 && now >= since[m] + LONGEST, member_asks_late)
	:: else -> skip
	fi
}

#ifdef MUT_WORD
#define ALL_ARE_HERE decide(0, BEGINS)
#else
#define ALL_ARE_HERE ask(0)
#endif

/* It takes one at each look. What comes after its question is none of its business. */
inline look_for_others()
{
	if
	:: state[0] == WAITS && (here & ~admitted) -> admitted = admitted | (IN(here & ~admitted, 1) -> BIT(1) : BIT(2))
	:: else -> skip
	fi;
	if
	:: state[0] == WAITS && admitted == OTHERS -> reach_if(admitted & GONE, takes_the_dead); ALL_ARE_HERE
	:: state[0] == WAITS && admitted != OTHERS && (admitted & GONE) -> reach(loses_member); decide(0, ENDS)
	:: else -> skip
	fi
}

inline look_at_leader(m)
{
	if
	:: word[m] == GO -> reach(hears_leader); decide(m, BEGINS)
	:: word[m] == NO -> reach(hears_refusal); decide(m, ENDS)
	:: word[m] == NOTHING && IN(GONE, 0) && !IN(lost, m) -> reach(loses_leader); lost = lost | BIT(m); ask(m)
	:: else -> skip
	fi
}

#define STAR_SAYS(m)                                                                               \
	(m == 0 -> state[0] == WAITS && ((here & ~admitted) || (admitted & GONE))                  \
		: word[m] != NOTHING || (IN(GONE, 0) && !IN(lost, m)))
#define IS_ANSWER_LOST(m) ((IN(dead, CONTROLLER) || IN(cut, m)) && (m == 0 || IN(lost, m)))
#define CONTROLLER_SAYS(m) (answer[m] != NOTHING || IS_ANSWER_LOST(m))

inline look_at_controller(m)
{
	if
	:: answer[m] == GO -> reach_if(m > 0, begins_without_leader); decide(m, BEGINS)
	:: answer[m] == NO -> reach(hears_none); decide(m, ENDS)
	:: answer[m] == NOTHING && IS_ANSWER_LOST(m) -> reach(loses_answer); decide(m, ENDS)
	:: else -> at[m] = (IN(late, m) -> IS_LATE : IDLE)
	fi
}

/* ---- its time --------------------------------------------------------------------------------- */

#ifdef MUT_ANSWER
#define HAS_TIME(m) false
#else
#define HAS_TIME(m) (now == asked[m])
#endif
#define LIMIT(m) (m == 0 -> (state[m] == WAITS -> 7 : 8) : (state[m] == WAITS -> 9 : LONGEST))
#ifdef MUT_LIMIT
#define WAITS_ON(m) (state[m] == ASKS)
#else
#define WAITS_ON(m) (state[m] == ASKS && HAS_TIME(m))
#endif
#define TOO_LATE(m) (now >= since[m] + LIMIT(m) && !WAITS_ON(m))

inline be_late(m)
{
	at[m] = IDLE;
	if
	:: state[m] == ASKS -> reach_if(m == 0, leader_ends_unanswered); reach_if(m > 0, ends_unanswered); decide(m, ENDS)
	:: state[m] == WAITS && m == 0 -> reach(waits_in_vain); decide(m, ENDS)
#ifdef MUT_ALONE
	:: state[m] == WAITS && m > 0 -> decide(m, ENDS)
#else
	:: state[m] == WAITS && m > 0 -> reach(gives_up); ask(m)
#endif
	fi
}

inline read_clock(m)
{
	late = (TOO_LATE(m) -> late | BIT(m) : late & ~BIT(m));
#ifdef MUT_CLOCK
	at[m] = (IN(late, m) -> IS_LATE : AT_STAR)
#else
	at[m] = AT_STAR
#endif
}

#define OWN_STEPS(m)                                                                               \
	:: d_step {                                                                                \
		RUNS(m) && state[m] == PLANNED ->                                                  \
		state[m] = WAITS;                                                                  \
		since[m] = now;                                                                    \
		here = here | (m > 0 && !IN(GONE, 0) -> BIT(m) : 0)                                \
	}                                                                                          \
	:: d_step { RUNS(m) && at[m] == IDLE && MEETS(m) && (STAR_SAYS(m) || CONTROLLER_SAYS(m) || TOO_LATE(m)) -> read_clock(m) } \
	:: d_step { RUNS(m) && at[m] == AT_CONTROLLER -> look_at_controller(m) }                   \
	:: d_step { RUNS(m) && at[m] == IS_LATE -> be_late(m) }
#define OTHER(m)                                                                                   \
	OWN_STEPS(m)                                                                               \
	:: d_step { RUNS(m) && at[m] == AT_STAR -> at[m] = AT_CONTROLLER; look_at_leader(m) }
#define LEADER                                                                                     \
	OWN_STEPS(0)                                                                               \
	:: d_step { RUNS(0) && at[0] == AT_STAR -> at[0] = AT_CONTROLLER; look_for_others() }      \
	:: d_step { RUNS(0) && at[0] == TELLS -> tell_next() }

/* ---- the controller --------------------------------------------------------------------------- */

/* The first word to a member counts. */
inline reply(m, what)
{
	answer[m] = (answer[m] == NOTHING -> what : answer[m]);
	said = said | what;
	must(said != (GO | NO), two_words)
}

#ifdef MUT_BEGUN
#define IS_DECIDED is_refused
#else
#define IS_DECIDED (has_begun || is_refused)
#endif
#ifdef MUT_GIVEN_UP
#define MAY_BEGIN true
#else
#define MAY_BEGIN !is_refused
#endif

inline hear(m)
{
	question = question & ~BIT(m);
	if
	:: m == 0 && !is_forgotten ->
		reach_if(is_refused, comes_too_late);
		has_begun = has_begun || MAY_BEGIN
	:: else -> skip
	fi;
	if
	:: is_forgotten -> reach(knows_nothing); cut = cut | BIT(m)
	:: !is_forgotten && (m == 0 || IS_DECIDED) -> reply(m, (has_begun -> GO : NO))
	:: else -> reach(takes_back); is_refused = true; refusing = 0
	fi
}

/* At any time when member 0, which holds the group, is gone or nobody is to begin. Who has its verdict has hung up. */
#ifdef MUT_KEEPS
#define IS_NEEDED false
#else
#define IS_NEEDED (has_begun && !(IS_THROUGH(1) && IS_THROUGH(2)))
#endif
inline may_forget()
{
	if
	:: RUNS(CONTROLLER) && !IS_NEEDED && (is_refused || IN(GONE, 0)) -> is_forgotten = true
	:: true
	fi
}

#define HEARS(m) :: d_step { RUNS(CONTROLLER) && refusing == N && IN(question, m) -> hear(m) }

/* ---- faults ----------------------------------------------------------------------------------- */

#ifdef MUT_BOTH
#define IS_TOO_MANY(p) false
#else
#define BOTH	       (BIT(0) | BIT(CONTROLLER))
#define IS_TOO_MANY(p) (((hit | BIT(p)) & BOTH) == BOTH)
#endif
#define FAULT(p) (due > 0 && !IN(dead, p) && at[p] != DONE && !IS_TOO_MANY(p))

/* Who has nothing to do may be stopped in the midst of looking. */
inline stop_looking(m)
{
	if
	:: at[m] == IDLE && m < N && MEETS(m) ->
		late = late & ~BIT(m);
		if
		:: skip
		:: at[m] = AT_STAR
		:: at[m] = AT_CONTROLLER
		fi
	:: else -> skip
	fi
}

#define FAULTS_OF(p, whatever_it_does)                                                             \
	:: d_step { FAULT(p) -> due--; hit = hit | BIT(p); dead = dead | BIT(p); wakes = wakes & ~BIT(p); reach(dies) } \
	:: atomic {                                                                                \
		FAULT(p) && !IN(stopped, p) ->                                                     \
		due--;                                                                             \
		hit = hit | BIT(p);                                                                \
		stopped = stopped | BIT(p);                                                        \
		whatever_it_does                                                                   \
	}                                                                                          \
	:: d_step { IN(wakes, p) -> wakes = wakes & ~BIT(p); stopped = stopped & ~BIT(p); reach(goes_on) }

/* What is to happen to them at any time before the next tick; else there would be none. */
inline choose_faults()
{
	due = 0;
	do
	:: due < faults -> due++
	:: break
	od;
	faults = faults - due
}

inline may_wake(p)
{
	if
	:: IN(stopped & ~dead, p) && now <= LAST -> wakes = wakes | BIT(p)
	:: true
	fi
}

#define IS_OVER	      (now == END || (IS_THROUGH(0) && IS_THROUGH(1) && IS_THROUGH(2)))
#define IS_STUCK(m)   (RUNS(m) && at[m] != DONE)

init {
	atomic { choose_faults() };
	do
	LEADER
	OTHER(1)
	OTHER(2)
	HEARS(0)
	HEARS(1)
	HEARS(2)
	:: d_step { RUNS(CONTROLLER) && refusing < N -> reply(refusing, NO); refusing++ }
	FAULTS_OF(0, stop_looking(0))
	FAULTS_OF(1, stop_looking(1))
	FAULTS_OF(2, stop_looking(2))
	FAULTS_OF(CONTROLLER, skip)
	:: atomic {
		timeout && !IS_OVER ->
		now++;
		faults = faults + due; /* there was nobody left for them */
		choose_faults();
		may_forget();
		may_wake(0);
		may_wake(1);
		may_wake(2);
		may_wake(CONTROLLER)
	}
	:: atomic { timeout && IS_OVER -> break }
	od;
	must(!(IS_STUCK(0) || IS_STUCK(1) || IS_STUCK(2)), stuck)
}
