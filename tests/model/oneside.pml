/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a one-sided connection: puts, and signals that the receiver applies.
 *
 * The sender numbers its operations and writes them in order over one path; an operation may carry a
 * signal, a record in the receiver's ring. The receiver counts what arrives and applies signals in
 * order by atomics that a NIC of its own does on its own memory, through the NIC that the data came by.
 * A failure fences the path at both ends, the receiver says what it has counted, the sender writes the
 * rest again over the next path. docs/gin-protocol.md says why that is sound, and what is not modelled.
 *
 * MUT_<RULE> removes one rule; oneside-mutants names the property that must then fail.
 *
 *   FAULTS       faults and false alarms in one run
 *   OPS, WINDOW  operations in a run, and how many the receiver has room for
 *   ONE_WORD     all signals go to one word
 *   RESETS       how often a kernel consumes a signal word and sets it to zero
 *   NEVER_RESET  it never does, and the receiver may write absolute values
 *   ANY_NIC      any NIC that lives may apply, not the one that the data came by first of all
 *   RETURNS      how often a dead NIC comes back
 *   E2E          requests complete when applied, and what is not proved placed is an error
 *   EXCHANGE     how both ends come to the next epoch, by what they say to each other, each in its own
 *                time; else it begins in one step once both are fenced
 */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef OPS
#define OPS 3
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef RESETS
#ifdef NEVER_RESET
#define RESETS 0
#else
#define RESETS 1
#endif
#endif
#ifndef RETURNS
#define RETURNS 0
#endif
#define EPOCHS (FAULTS + 1) /* a fault ends at most one epoch */

#define BIT(n)	    (1 << (n))
#define BELOW(n)    (BIT(n) - 1)
#define ADDEND(k)   ((k) + 1)
#define SIGNAL(k)   (signals & BIT(k))
#define WORD(k)	    ((words >> (k)) & 1)
#define ON_WORD(w)  (signals & ((w) == 0 -> 15 ^ words : words))
#define SUM(set)    (((set)&1 -> 1 : 0) + ((set)&2 -> 2 : 0) + ((set)&4 -> 3 : 0) + ((set)&8 -> 4 : 0))

/* An end of the path in use. */
#define UP	 0
#define DRAINING 1 /* its fence is ordered: nothing is posted any more */
#define FENCED	 2 /* ... and confirmed */
/* With EXCHANGE also: */
#define OFFERED	 3 /* the receiver's: a queue pair of the next epoch is there, connected to nothing */
#define ANSWERED 3 /* the sender's: likewise, connected; it does not know yet that the receiver's is */

mtype = { late_write, torn, duplicate, disorder, lost_signal, overwritten, early_release, early_complete,
	  false_loss, false_latch, false_alarm, early_post, apart, stuck };

/* ---- what the program asks for: chosen first */
byte signals; /* operations that carry a signal */
byte words;   /* ... to the second word */

/* ---- the sender */
byte epoch;
byte s_st;
byte s_next;	  /* number of the operation that is posted next */
byte s_completed; /* requests that are complete */
byte s_credit;	  /* operations that the receiver has applied, as far as the sender knows */
byte s_qp;	  /* queue pairs that may still read memory, by epoch */

/* ---- the receiver */
byte r_st;
byte r_done;	  /* operations counted */
byte r_posted;	  /* ... whose turn to be applied came */
byte r_applied;	  /* ... which are applied, and known to be */
byte r_told;	  /* count that was written to the sender last */
byte r_qp;	  /* queue pairs that still receive, by epoch */
byte r_via;	  /* operations whose data came through the second NIC */
byte r_dirty[2];  /* operations counted through a NIC, not proved to be placed */
byte r_left;	  /* NICs that a path was fenced to, not flushed since: half an operation may be there */
byte r_shadow[2]; /* value of a word after the last known apply, unless it was set to zero since */
byte l_posted[2]; /* loopback queue pair of a NIC: atomics that wait, */
byte l_mid[2];	  /* the one between its read and its write, + 1, */
byte l_read[2];	  /* what it has read, */
byte l_done[2];	  /* those whose completion is under way */
byte l_value[OPS];  /* value that a completion brings */
bool l_fenced[2];
byte sh_done;	  /* what the receiver said it has, + 1 */
bool latched;

#ifdef EXCHANGE
/* ---- what they say to each other: in order, and nothing is lost */
#define OFFER	1 /* epoch, and the verdict: what is counted, and was applied when its end was fenced */
#define READY	2
#define ANSWER	3
#define SUSPECT 4
chan to_sender = [4] of { byte, byte, byte, byte };
chan to_receiver = [4] of { byte, byte };
byte r_epoch;	/* of the receiver's end; `epoch` is the sender's */
byte r_ran;	/* the last one that its end was connected in */
byte v_applied; /* of the verdict */
byte o_epoch;	/* the offer that the sender has heard and not taken, 0: none */
byte o_counted;
byte o_applied;
byte silent;	/* epochs whose path broke and nobody says so: only what an end waits for can tell it */
#define R_EPOCH r_epoch
#else
#define R_EPOCH epoch
#endif

/* ---- the fabric */
byte nic[EPOCHS];  /* the receiver's NIC that an epoch's path ends at */
byte broken;	   /* epochs whose path passes nothing new */
byte dead;	   /* NICs that died */
byte gone;	   /* ... with what they held: they do nothing more, for a NIC keeps its order */
byte n_to[EPOCHS]; /* operations below are posted, */
byte n_at[EPOCHS]; /* below: have arrived, */
byte n_cq[EPOCHS]; /* below: the receiver has polled */
byte buffer[2];	   /* operations whose data is in a NIC and not yet in memory */
byte count_net;	   /* the count of what is applied, on its way to the sender, + 1 */
byte faults = FAULTS;

/* ---- what is true */
byte value[2];	  /* the signal words */
byte consumed[2]; /* what a kernel has taken out of them */
byte executed;	  /* signals that a word has had added */
byte confirmed;	  /* ... and the receiver knows */
byte placed;	  /* operations whose data is in memory */
byte unplaced;	  /* operations acknowledged whose notice died with the NIC */
byte unproved;	  /* operations whose placing was given up as not provable, and counted */
byte resets = RESETS;
#if RETURNS > 0
byte returns = RETURNS;
#endif

#ifdef SHORTEST
#define SCRATCH
#else
#define SCRATCH hidden
#endif
SCRATCH byte k;
SCRATCH byte x;
#ifdef EXCHANGE
SCRATCH byte m_kind;
SCRATCH byte m_applied;
#endif

#include "properties.pml"

#define HERE	  nic[R_EPOCH]
#define ALIVE(n)  (!(dead & BIT(n)))
#define NIC_OF(k) ((r_via & BIT(k)) -> 1 : 0)
#ifdef E2E
#define EXCUSED 0
#else
#define EXCUSED unproved
#endif

/* ---- data */

/* Operations that a signal has told a kernel of: what it was told of it may have used and filled again. */
#define TOLD (executed >= 8 -> 15 : (executed >= 4 -> 7 : (executed >= 2 -> 3 : executed)))

/* All that a NIC holds goes to memory, in order. */
inline place(n)
{
	must((buffer[n] & TOLD & ~EXCUSED) == 0, late_write);
	placed = placed | buffer[n];
	buffer[n] = 0
}

inline arrive(e)
{
	x = n_at[e];
	must(x < WINDOW || !SIGNAL(x - WINDOW) || (confirmed & BIT(x - WINDOW)), overwritten);
	buffer[nic[e]] = buffer[nic[e]] | BIT(x);
	n_at[e] = x + 1;
	x = 0
}

inline poll(e)
{
	x = n_cq[e];
	if
	:: x == r_done ->
		r_done = r_done + 1;
		r_via = (nic[e] -> r_via | BIT(x) : r_via & ~BIT(x));
		r_dirty[nic[e]] = r_dirty[nic[e]] | BIT(x)
	:: else -> skip
	fi;
	n_cq[e] = x + 1;
	x = 0
}

/* ---- signals */

#ifdef MUT_WORD_ONCE
#define WORD_IS_FREE(k) true
#else
#define WORD_IS_FREE(k)                                                                            \
	((ON_WORD(WORD(k)) & BELOW(k) & ~confirmed) == 0)
#endif
#ifdef ANY_NIC
#define APPLIES(k, n) ALIVE(n)
#else
#define APPLIES(k, n) ((ALIVE(NIC_OF(k)) -> NIC_OF(k) : 1 - NIC_OF(k)) == n)
#endif
#define OUTSTANDING(n) (l_posted[n] | l_done[n] | (l_mid[n] -> BIT(l_mid[n] - 1) : 0))
#ifdef MUT_NIC_CHANGE
#define NIC_MAY_CHANGE(n) true
#else
#define NIC_MAY_CHANGE(n) (OUTSTANDING(1 - (n)) == 0)
#endif
#ifdef MUT_FLUSH_ALIVE
#define DIRTY(m, k) (ALIVE(m) -> 0 : r_dirty[m] & BELOW((k) + 1))
#define LEFT(m) 0
#else
#ifdef MUT_FLUSH_LEFT
#define LEFT(m) 0
#else
#define LEFT(m) (ALIVE(m) && (r_left & BIT(m)))
#endif
#ifdef MUT_FLUSH_DEAD
#define DIRTY(m, k) (ALIVE(m) -> r_dirty[m] & BELOW((k) + 1) : 0)
#else
#define DIRTY(m, k) (r_dirty[m] & BELOW((k) + 1))
#endif
#endif

inline confirm(k, now)
{
	r_shadow[WORD(k)] = now;
	confirmed = confirmed | BIT(k);
#ifndef MUT_APPLIED_POSTED
	r_applied = (k) + 1
#endif
}

inline add(n)
{
	k = l_mid[n] - 1;
	must(!(executed & BIT(k)), duplicate);
	must((signals & BELOW(k) & ~executed) == 0, disorder);
	must((BELOW(k + 1) & ~(placed | EXCUSED)) == 0, torn);
	executed = executed | BIT(k);
	value[WORD(k)] = l_read[n] + ADDEND(k);
	l_value[k] = value[WORD(k)];
	l_done[n] = l_done[n] | BIT(k);
	l_mid[n] = 0;
	l_read[n] = 0;
	k = 0
}

/* What a word holds if the add was executed, and if it was not: a kernel may have set it to zero before or after. */
#define WAS(k)	   r_shadow[WORD(k)]
#define NOW(k)	   value[WORD(k)]
#define IF_DONE(k) (NOW(k) == WAS(k) + ADDEND(k) || NOW(k) == ADDEND(k) || NOW(k) == 0)
#define IF_NOT(k)  (NOW(k) == WAS(k) || NOW(k) == 0)

inline take_back(n, k)
{
	r_posted = k;
	l_posted[n] = 0;
	l_done[n] = 0
}

inline flush_nic(m)
{
	if
	:: ALIVE(m) -> reach(flushes); place(m); r_left = r_left & ~BIT(m)
	:: else ->
		reach(cannot_prove);
#ifdef E2E
#ifndef MUT_UNPROVED_ACCEPTED
		latched = true;
#endif
#endif
		unproved = unproved | r_dirty[m]
	fi;
	r_dirty[m] = 0
}

/* The first apply that a dead NIC leaves open. */
inline resolve(n, k)
{
#ifdef MUT_RESOLVE_AGAIN
	take_back(n, k)
#else
#ifdef MUT_RESOLVE_DONE
	l_posted[n] = l_posted[n] & ~BIT(k);
	l_done[n] = l_done[n] & ~BIT(k);
	confirm(k, WAS(k) + ADDEND(k))
#else
#ifdef NEVER_RESET
	/* Whether it is done need not be known, but then nothing proves that what came before it is placed. */
	reach(writes_absolute);
	flush_nic(n);
	if
	:: !latched ->
		executed = executed | BIT(k);
		value[WORD(k)] = WAS(k) + ADDEND(k);
		l_posted[n] = l_posted[n] & ~BIT(k);
		l_done[n] = l_done[n] & ~BIT(k);
		confirm(k, value[WORD(k)])
	:: else -> skip
	fi
#else
	if
#ifdef MUT_RESET_KNOWN
	:: NOW(k) == WAS(k) -> take_back(n, k)
	:: NOW(k) != WAS(k) && IF_DONE(k) ->
#else
	:: IF_NOT(k) && !IF_DONE(k) -> reach(reads_not_done); take_back(n, k)
	:: IF_DONE(k) && IF_NOT(k) -> reach(cannot_tell); latched = true
	:: IF_DONE(k) && !IF_NOT(k) ->
#endif
		reach(reads_done);
		l_posted[n] = l_posted[n] & ~BIT(k);
		l_done[n] = l_done[n] & ~BIT(k);
		r_dirty[n] = r_dirty[n] & ~BELOW((k) + 1);
		confirm(k, NOW(k))
	:: !IF_DONE(k) && !IF_NOT(k) ->
		must(false, false_latch);
		latched = true
	fi
#endif
#endif
#endif
}

/* ---- failover */

#if defined(MUT_S_FENCE) || defined(MUT_ANSWER_UNFENCED)
#define S_READY (s_st == DRAINING || s_st == FENCED)
#else
#define S_READY (s_st == FENCED)
#endif
#if defined(MUT_VERDICT_EARLY) || defined(MUT_OFFER_UNFENCED)
#define R_STATES (r_st == DRAINING || r_st == FENCED)
#else
#define R_STATES (r_st == FENCED)
#endif

inline complete_to(n)
{
	/* The program may write to the memory again: no queue pair of an older epoch may read it. */
	must((s_qp & BELOW(epoch)) == 0, early_release);
#ifdef E2E
	must((n) <= r_applied, early_complete);
#endif
	s_completed = n
}

/* The sender's side of a new epoch, of which the receiver has counted that many. */
inline look_for_loss(counted)
{
	if
	:: s_completed > counted ->
		must(unplaced, false_loss);
		reach(finds_loss);
#ifndef MUT_LOSS_CHECK
		latched = true
#endif
	:: else -> skip
	fi
}

inline write_again_from(counted)
{
	reach_if(s_next > counted, replays);
	s_qp = s_qp | BIT(epoch);
	count_net = 0;
#if !defined(E2E) || defined(MUT_COUNTED_COMPLETES)
	if
	:: s_completed < counted -> reach(settles); complete_to(counted)
	:: else -> skip
	fi;
#endif
#ifdef MUT_REPLAY_ALL
	counted = (counted -> counted - 1 : 0);
#endif
	s_next = counted;
	n_to[epoch] = counted;
	n_at[epoch] = counted;
	n_cq[epoch] = counted
}

#ifndef EXCHANGE
inline resume()
{
	x = sh_done - 1;
	sh_done = 0;
	look_for_loss(x);
	if
	:: !latched && dead == 3 -> reach(no_path); latched = true
	:: else -> skip
	fi;
	if
	:: !latched ->
		nic[epoch + 1] = (ALIVE(1 - HERE) -> 1 - HERE : HERE);
		reach_if(nic[epoch + 1] == HERE, same_nic);
		epoch = epoch + 1;
		s_st = UP;
		r_st = UP;
		r_qp = r_qp | BIT(epoch);
#ifdef MUT_RESUME_CREDIT
		skip;
#else
#ifdef MUT_CREDIT_COUNTED
		s_credit = r_done;
#else
		s_credit = r_applied;
#endif
		r_told = s_credit;
#endif
		write_again_from(x)
	:: else -> skip
	fi;
	x = 0
}
#endif

/* What arrived of this epoch is polled, as far as there is a NIC that says so; nothing more arrives. */
inline drain()
{
	do
	:: ALIVE(HERE) && n_cq[R_EPOCH] < n_at[R_EPOCH] -> poll(R_EPOCH)
	:: else -> break
	od;
#ifdef EXCHANGE
	/* What was only offered had nothing come over it. */
	if
	:: r_qp & BIT(R_EPOCH) -> v_applied = r_applied; r_left = r_left | BIT(HERE)
	:: else -> reach(offered_in_vain)
	fi;
#else
	r_left = r_left | BIT(HERE);
#endif
#ifndef MUT_R_FENCE
	/* An operation is two writes: of one that is under way the data comes without the notice. */
	if
	:: ALIVE(HERE) && n_at[R_EPOCH] < n_to[R_EPOCH] ->
		reach(half_comes);
		buffer[HERE] = buffer[HERE] | BIT(n_at[R_EPOCH])
	:: else -> skip
	fi;
	n_to[R_EPOCH] = n_at[R_EPOCH];
	r_qp = r_qp & ~BIT(R_EPOCH);
#endif
	r_st = FENCED
}

#ifdef EXCHANGE
/* ---- how both come to the next epoch: the receiver numbers it and chooses its path */

#define HAS_END (r_st == UP || r_st == OFFERED)

inline make_offer()
{
	nic[r_epoch + 1] = (ALIVE(1 - HERE) -> 1 - HERE : HERE);
	reach_if(nic[r_epoch + 1] == HERE, same_nic);
	r_epoch = r_epoch + 1;
	n_to[r_epoch] = r_done;
	n_at[r_epoch] = r_done;
	n_cq[r_epoch] = r_done;
	r_st = OFFERED;
	to_sender!OFFER, r_epoch, r_done, v_applied
}

inline take_offer()
{
	x = o_counted;
	look_for_loss(x);
	if
	:: !latched ->
		epoch = o_epoch;
		s_st = ANSWERED;
#ifndef MUT_RESUME_CREDIT
		s_credit = o_applied;
#endif
		write_again_from(x);
		to_receiver!ANSWER, epoch
	:: else -> skip
	fi;
	forget_offer();
	x = 0
}

inline forget_offer()
{
	o_epoch = 0;
	o_counted = 0;
	o_applied = 0
}

inline hear_offer()
{
#ifdef MUT_OFFER_LAST
	if
	:: o_epoch == 0 -> o_epoch = k; o_counted = x; o_applied = m_applied
	:: else -> skip
	fi;
#else
	reach_if(o_epoch, offer_replaced);
	o_epoch = k;
	o_counted = x;
	o_applied = m_applied;
#endif
#ifndef MUT_OFFER_FENCES
	if
	:: s_st == UP || s_st == ANSWERED ->
		reach_if(s_st == ANSWERED, answered_in_vain);
		s_st = DRAINING
	:: else -> skip
	fi
#endif
}

inline sender_hears()
{
	to_sender?m_kind, k, x, m_applied;
	if
	:: m_kind == OFFER -> hear_offer()
	:: m_kind == READY && s_st == ANSWERED && k == epoch -> s_st = UP
	:: else -> skip
	fi;
	m_kind = 0;
	m_applied = 0;
	k = 0;
	x = 0
}

inline is_answered(answer)
{
	/* Connected to that end: of an older epoch there is none any more. */
	r_qp = (answer == r_epoch -> r_qp | BIT(r_epoch) : r_qp);
	r_ran = r_epoch;
	r_st = UP;
#ifndef MUT_RESUME_CREDIT
	r_told = v_applied;
#endif
	to_sender!READY, r_epoch, 0, 0
}

#ifdef MUT_ANSWER_LATE
#define ANSWER_COUNTS true
#else
#define ANSWER_COUNTS (k == r_epoch)
#endif
#ifdef MUT_SUSPECT_LATE
#define SUSPECT_COUNTS true
#else
#define SUSPECT_COUNTS (k == r_epoch)
#endif

inline receiver_hears()
{
	to_receiver?m_kind, k;
	if
	:: m_kind == ANSWER && r_st == OFFERED && ANSWER_COUNTS -> is_answered(k)
	:: m_kind == SUSPECT && HAS_END && SUSPECT_COUNTS -> r_st = DRAINING
	:: else -> reach(says_too_late)
	fi;
	m_kind = 0;
	k = 0
}

inline sender_fails()
{
	s_st = DRAINING;
#ifndef MUT_SUSPECT
	to_receiver!SUSPECT, epoch
#endif
}

#ifdef MUT_WAIT_READY
#define MAY_POST (s_st == UP || s_st == ANSWERED)
#else
#define MAY_POST (s_st == UP)
#endif
/* A path fails while it is offered, too. */
#define MAY_BREAK (HAS_END && !(broken & BIT(r_epoch)))
/* In silence each end misses what comes back of what it wrote: acknowledgements, and that of a count.
 * A NIC that dies says so at its own end. */
#define IS_SAID(e) (!(silent & BIT(e)))
#define S_MISSES (IS_SAID(epoch) || s_next > n_at[epoch])
#ifdef MUT_TOLD_SILENCE
#define R_MISSES (IS_SAID(r_epoch) || !ALIVE(nic[r_epoch]))
#else
#define R_MISSES (IS_SAID(r_epoch) || !ALIVE(nic[r_epoch]) || r_told > s_credit)
#endif
#else
#define MAY_POST (s_st == UP)
#define MAY_BREAK (s_st == UP && r_st == UP && !(broken & BIT(epoch)))
#endif

/* The path breaks: what is under way arrives, or not. */
#define BREAKS(more)                                                                               \
	:: d_step {                                                                                \
		faults && !FINISHED && MAY_BREAK ->                                                \
		faults--;                                                                          \
		broken = broken | BIT(R_EPOCH);                                                    \
		more                                                                               \
	}

#define FINISHED (latched || (s_completed == OPS && r_applied == OPS))

#ifdef MUT_CREDITS
#define HAS_CREDIT true
#else
#define HAS_CREDIT (s_next < s_credit + WINDOW)
#endif
#ifdef MUT_CREDIT_COUNTED
#define TELLS r_done
#else
#define TELLS r_applied
#endif
#ifdef E2E
#define MAY_COMPLETE (s_completed < s_credit)
#else
#define MAY_COMPLETE (s_completed < n_at[epoch] && s_st != FENCED)
#endif

#define EPOCH(e)                                                                                   \
	:: d_step { (r_qp & BIT(e)) && n_at[e] < n_to[e] && ALIVE(nic[e]) -> arrive(e) }           \
	:: d_step { (r_qp & BIT(e)) && n_cq[e] < n_at[e] && ALIVE(nic[e]) -> poll(e) }

#if defined(MUT_LB_FENCE) || defined(MUT_ABSOLUTE_FENCE)
#define MAY_RESOLVE(n) true
#else
#define MAY_RESOLVE(n) l_fenced[n]
#endif
/* It lives, and nothing is open that an older incarnation has left. */
#define WORKS(n) (ALIVE(n) && !l_fenced[n])
/* Loopback of one NIC does operation k. */
#define APPLY(n, k)                                                                                \
	:: d_step {                                                                                \
		!latched && r_posted == k && r_done > k && SIGNAL(k) && WORKS(n) &&                \
		APPLIES(k, n) && WORD_IS_FREE(k) && NIC_MAY_CHANGE(n) && !DIRTY(1 - n, k) &&       \
		!LEFT(1 - n) ->                                                                    \
		reach_if(OUTSTANDING(n), parallel);                                                \
		reach_if(NIC_OF(k) != n, other_nic);                                               \
		l_posted[n] = l_posted[n] | BIT(k);                                                \
		r_posted = k + 1;                                                                  \
		APPLIED_EARLY(k)                                                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && r_posted == k && r_done > k && SIGNAL(k) && APPLIES(k, n) &&           \
		WORKS(n) && NIC_MAY_CHANGE(n) && (DIRTY(1 - n, k) || LEFT(1 - n)) ->               \
		flush_nic(1 - n)                                                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		(l_posted[n] & BIT(k)) && (l_posted[n] & BELOW(k)) == 0 && l_mid[n] == 0 &&        \
		!l_fenced[n] && !(gone & BIT(n)) ->                                                                    \
		place(n);                                                                          \
		l_posted[n] = l_posted[n] & ~BIT(k);                                               \
		l_mid[n] = k + 1;                                                                  \
		l_read[n] = value[WORD(k)]                                                         \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && (l_done[n] & BIT(k)) && (l_done[n] & BELOW(k)) == 0 && WORKS(n) ->     \
		l_done[n] = l_done[n] & ~BIT(k);                                                   \
		r_dirty[n] = r_dirty[n] & ~BELOW(k + 1);                                           \
		confirm(k, l_value[k]);                                                            \
		l_value[k] = 0                                                                     \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && !WORKS(n) && (ALIVE(n) || (ALIVE(1 - n) && MAY_RESOLVE(n))) &&         \
		(OUTSTANDING(n) & BIT(k)) && (OUTSTANDING(n) & BELOW(k)) == 0 ->                   \
		resolve(n, k);                                                                     \
		l_value[k] = 0                                                                     \
	}
#ifdef MUT_APPLIED_POSTED
#define APPLIED_EARLY(k) r_applied = k + 1
#else
#define APPLIED_EARLY(k) skip
#endif

#define OPERATION(k)                                                                               \
	APPLY(0, k)                                                                                \
	APPLY(1, k)                                                                                \
	:: d_step { /* a put alone only takes its turn */                                          \
		!latched && r_posted == k && r_done > k && !SIGNAL(k) -> r_posted = k + 1          \
	}                                                                                          \
	:: d_step { r_applied == k && r_posted > k && !SIGNAL(k) -> r_applied = k + 1 }

#define NIC(n)                                                                                     \
	:: d_step { l_mid[n] -> add(n) }                                                           \
	:: d_step { buffer[n] && ALIVE(n) -> place(n) }                                            \
	:: d_step { /* in ERR, and drained */                                                      \
		!ALIVE(n) && !l_fenced[n] && l_mid[n] == 0 -> l_fenced[n] = true                   \
	}                                                                                          \
	/* It dies: what it holds is placed or lost, notices are lost, acknowledgements may be     \
	 * under way; an atomic that it was given may still be executed. */                        \
	DIES(n, place(n))                                                                          \
	DIES(n, buffer[n] = 0; gone = gone | BIT(n))                                               \
	RETURN(n)
#if RETURNS > 0
/* It comes back, and knows nothing of what the old one held; applies may be open that went over the old one. */
#define RETURN(n)                                                                                  \
	:: d_step {                                                                                \
		returns && !latched && !ALIVE(n) && l_fenced[n] && HERE != n ->                    \
		returns--;                                                                         \
		reach_if(OUTSTANDING(n), returns_open);                                            \
		GIVE_UP(n);                                                                        \
		dead = dead & ~BIT(n);                                                             \
		gone = gone & ~BIT(n);                                                             \
		r_left = r_left & ~BIT(n)                                                          \
	}                                                                                          \
	:: d_step { ALIVE(n) && l_fenced[n] && OUTSTANDING(n) == 0 -> l_fenced[n] = false }
#ifdef MUT_RETURN_PROVES
#define GIVE_UP(n) r_dirty[n] = 0
#else
#define GIVE_UP(n) if :: r_dirty[n] -> reach(returns_unproved); flush_nic(n) :: else -> skip fi
#endif
#else
#define RETURN(n)
#endif
#define DIES(n, held)                                                                              \
	:: d_step {                                                                                \
		faults && !latched && ALIVE(n) && !FINISHED ->                                     \
		faults--;                                                                          \
		reach_if(n != HERE, standby_dies);                                                 \
		reach_if(OUTSTANDING(n), dies_in_apply);                                           \
		held;                                                                              \
		dead = dead | BIT(n);                                                              \
		if                                                                                 \
		:: HERE == n ->                                                                    \
			broken = broken | BIT(R_EPOCH);                                            \
			unplaced = unplaced | (BELOW(n_at[R_EPOCH]) & ~BELOW(n_cq[R_EPOCH]))       \
		:: else -> skip                                                                    \
		fi                                                                                 \
	}

init {
	s_qp = 1;
	r_qp = 1;
	d_step { nic[0] = 0 };
	if
	:: signals = BIT(OPS) - 1
	:: signals = BIT(OPS) - 2
	:: signals = BIT(OPS) - 3
	fi;
	if
	:: words = 0
#ifndef ONE_WORD
	:: words = BIT(OPS - 1)
#if OPS > 2
	:: words = BIT(OPS - 2)
#endif
#endif
	fi;
	/* Nothing is left to happen, and somebody still waits: an invalid end state, `stuck`. */
end_finished:
	do
	:: d_step {
		!latched && MAY_POST && s_next < OPS && HAS_CREDIT ->
		must(s_next >= s_completed, early_release);
#ifdef EXCHANGE
		must(r_ran >= epoch, early_post);
#endif
		if
		:: !(broken & BIT(epoch)) -> n_to[epoch] = n_to[epoch] + 1
		:: else -> skip
		fi;
		s_next = s_next + 1;
		reach_if(s_next > WINDOW, reuses_slot)
	}
	:: d_step { !latched && MAY_COMPLETE -> complete_to(s_completed + 1) }
	:: d_step {
		!latched && r_st == UP && r_told < TELLS && count_net == 0 ->
		r_told = TELLS;
		if
		:: broken & BIT(R_EPOCH) -> reach(loses_count)
		:: else -> count_net = TELLS + 1
		fi
	}
	:: d_step {
		count_net && s_st == UP ->
		s_credit = (count_net - 1 > s_credit -> count_net - 1 : s_credit);
		count_net = 0
	}
	EPOCH(0)
	EPOCH(1)
#if EPOCHS > 2
	EPOCH(2)
#endif
#if EPOCHS > 3
	EPOCH(3)
#endif
	OPERATION(0)
	OPERATION(1)
#if OPS > 2
	OPERATION(2)
#endif
#if OPS > 3
	OPERATION(3)
#endif
	NIC(0)
	NIC(1)
	:: d_step { /* a kernel consumes a word and sets it to zero */
		resets && value[0] && !(l_mid[0] && WORD(l_mid[0] - 1) == 0) &&
		!(l_mid[1] && WORD(l_mid[1] - 1) == 0) ->
		resets--;
		consumed[0] = consumed[0] + value[0];
		value[0] = 0
	}
	BREAKS(skip)
	BREAKS(n_to[R_EPOCH] = n_at[R_EPOCH]; count_net = 0)
#ifdef EXCHANGE
	BREAKS(silent = silent | BIT(R_EPOCH))
	BREAKS(silent = silent | BIT(R_EPOCH); n_to[R_EPOCH] = n_at[R_EPOCH]; count_net = 0)
#endif
	:: d_step { s_st == DRAINING -> s_st = FENCED; s_qp = s_qp & ~BIT(epoch) }
	:: d_step { r_st == DRAINING -> drain() }
#ifdef EXCHANGE
	:: d_step { /* a false alarm at the sender; its connection goes elsewhere than the offer says */
		faults && !FINISHED && s_st == UP && !(broken & BIT(epoch)) && epoch == r_epoch ->
		reach(false_alarm);
		faults--;
		sender_fails()
	}
	:: d_step { /* ... and at the receiver: its connection is elsewhere */
		faults && !FINISHED && MAY_BREAK ->
		faults--;
		r_st = DRAINING
	}
	:: d_step { s_st == UP && (broken & BIT(epoch)) && S_MISSES -> sender_fails() }
	:: d_step { HAS_END && (broken & BIT(r_epoch)) && R_MISSES -> r_st = DRAINING }
	:: d_step { !latched && R_STATES && dead != 3 && r_epoch + 1 < EPOCHS -> make_offer() }
	:: d_step { /* an epoch has ended that no fault has ended */
		!latched && R_STATES && r_epoch + 1 == EPOCHS ->
		must(false, false_alarm);
		latched = true
	}
	:: d_step { !latched && r_st == FENCED && dead == 3 -> reach(no_path); latched = true }
	:: d_step { !latched && S_READY && o_epoch -> take_offer() }
	:: d_step { /* there is no such path at the sender */
		!latched && s_st == FENCED && o_epoch &&
		((broken & BIT(o_epoch)) || (faults && !FINISHED && o_epoch == r_epoch)) ->
		reach(refuses);
		faults = ((broken & BIT(o_epoch)) -> faults : faults - 1);
#ifndef MUT_REFUSAL
		to_receiver!SUSPECT, o_epoch;
#endif
		forget_offer()
	}
	:: d_step { nempty(to_sender) -> sender_hears() }
	:: d_step { nempty(to_receiver) -> receiver_hears() }
#else
	:: d_step { /* a false alarm, or an operator */
		faults && !FINISHED && s_st == UP && r_st == UP && !(broken & BIT(epoch)) ->
		reach(false_alarm);
		faults--;
		s_st = DRAINING
	}
	:: d_step { s_st == UP && ((broken & BIT(epoch)) || r_st != UP) -> s_st = DRAINING }
	:: d_step { r_st == UP && ((broken & BIT(epoch)) || s_st != UP) -> r_st = DRAINING }
	:: d_step { !latched && R_STATES && sh_done == 0 -> sh_done = r_done + 1 }
	:: d_step { !latched && S_READY && R_STATES && sh_done -> resume() }
#endif
	:: d_step { /* nothing can be done for a signal any more */
		!latched && dead == 3 && r_applied < OPS -> reach(no_nic); latched = true
	}
	:: timeout ->
		if
		:: !FINISHED -> if :: IGNORED(stuck) -> skip :: else -> printf("VIOLATED stuck\n"); assert(false) fi
		:: FINISHED && !latched ->
#ifdef EXCHANGE
			must(s_st == UP && r_st == UP && epoch == r_epoch, apart);
#endif
			must(value[0] + consumed[0] == SUM(ON_WORD(0)) &&
			     value[1] + consumed[1] == SUM(ON_WORD(1)), lost_signal)
		:: FINISHED && latched -> skip
		fi;
		break
	od
}
