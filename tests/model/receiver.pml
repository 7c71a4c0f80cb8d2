/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver: the source of truth. It allocates epochs and generations and chooses paths. */

inline r_says()
{
#ifdef MUT_RESEND
	r_lost = lose_message
#else
	skip
#endif
}

inline r_leaves_behind(message, p, g)
{
	if
	:: keep_message && !FINAL(s_state) ->
		late_rs.kind = message;
		late_rs.epoch = r_epoch;
		late_rs.path = p;
		late_rs.gen = g;
		late_rs.set = r_done & ~r_issued; /* as it was when this was first said */
		for (j : 0 .. PATHS - 1) {
			late_rs.fenced_gen[j] = R_SAYS_FENCED(j)
		}
	:: else -> skip
	fi
}

#ifdef SICK
/* What is said once and for all needs no word of its own in the state. */
inline r_forget_settled(p)
{
	if
	:: r_peer_yielded[p] <= r_peer_fenced[p] -> r_peer_yielded[p] = 0
	:: else -> skip
	fi;
	if
	:: r_settled_gen[p] <= r_fenced_gen[p] && r_settled_gen[p] <= r_peer_fenced[p] ->
		r_settled_gen[p] = 0
	:: else -> skip
	fi
}
#endif

/* The fence of path p is confirmed. Success completions found by the drain have been applied
 * (data_arrives() applies them as they land); what is still in flight finds no QP. */
inline r_confirm(p)
{
	r_fenced_gen[p] = r_order[p];
#ifdef SICK
	r_forget_settled(p);
#endif
	r_qp[p] = r_qp[p] & ~UPTO(r_order[p]);
#ifdef SICK
	if
	:: !MISTAKEN(r_sick[p]) -> data_clear_upto(p, r_order[p])
	:: else -> skip
	fi
#elif !defined(MUT_RECEIVER_FENCE)
	data_clear_upto(p, r_order[p])
#endif
}

/* Fence path p up to generation g. */
inline r_fence_upto(p, g)
{
	if
	:: g > r_order[p] ->
		r_order[p] = g;
		if
		:: r_healthy[p] <= r_order[p] -> r_healthy[p] = 0
		:: else -> skip
		fi;
#if defined(STEPWISE) || defined(SICK)
		if
		:: !(r_qp[p] & UPTO(r_order[p])) -> r_confirm(p)
#ifndef STEPWISE
		:: (r_qp[p] & UPTO(r_order[p])) && !NO_FENCE(r_sick[p]) -> r_confirm(p)
#endif
		:: else -> skip
		fi
#else
		r_confirm(p)
#endif
	:: else -> skip
	fi
}

#ifdef SICK
#define R_OVER(p) MAX(r_fenced_gen[p], r_settled_gen[p])
#else
#define R_OVER(p) r_fenced_gen[p]
#endif

/* In FENCING, the path that was active is kept until its fence is confirmed: what the drain finds
 * belongs to the receives. */
inline r_drained()
{
	if
	:: r_state == FENCING && r_gen && R_OVER(r_path) >= r_gen -> r_path = 0; r_gen = 0
	:: else -> skip
	fi
}

/* The active path failed: fence it, take the next epoch, say FENCE. */
inline r_new_epoch()
{
	r_leaves_behind(RESUME, r_path, r_gen);
	if
	:: !keep_packets ->
		cts_clear(r_path, r_gen)
	:: else -> skip
	fi;
	r_fence_upto(r_path, r_gen);
	r_epoch++;
#ifdef IN_PLACE
	r_repairs = r_path < 2;
#endif
	printf("receiver: fences %d.%d, says FENCE{epoch %d, done %d}\n", r_path, r_gen, r_epoch,
	       r_done);
	r_state = FENCING;
	r_drained();
	r_issued = 0;
	r_resumed = false;
	r_says()
}

inline r_times_out()
{
	BEFORE(RECEIVER);
	r_new_epoch();
	DOES(RECEIVER, FAILED);
	r_check_loss()
}

/* A trigger at the receiver about the newest generation of path p. A standby that fails while
 * nothing was resumed on it needs no new epoch. */
inline r_trigger(p)
{
	BEFORE(RECEIVER);
	if
	:: r_state == ACTIVE && r_path == p -> r_new_epoch(); DOES(RECEIVER, FAILED); r_check_loss()
	:: else ->
		printf("receiver: standby %d.%d failed, fences it\n", p, NEWEST(r_qp[p]));
		if
		:: r_healthy[p] != NEWEST(r_qp[p]) -> r_leaves_behind(REBUILD, p, NEWEST(r_qp[p]))
		:: else -> skip
		fi;
		r_fence_upto(p, NEWEST(r_qp[p]));
		DOES(RECEIVER, STANDBY_FAILED)
	fi
}

#ifdef SICK
inline r_ends_path(p)
{
	if
	:: !GOES_ON(r_sick[p]) -> data_clear_upto(p, GENS)
	:: else -> skip /* what is on its way may still land */
	fi;
	r_peer_yielded[p] = 0;
	r_settled_gen[p] = 0;
	late_sr.yielded_gen[p] = 0
}
#define R_ENDS_PATH(p) r_ends_path(p)
#else
#define R_ENDS_PATH(p) data_clear_upto(p, GENS)
#endif

inline r_end(final_state)
{
	BEFORE(RECEIVER);
	GOODBYE(RECEIVER);
	r_state = final_state;
	r_path = 0;
	r_gen = 0;
	r_issued = 0;
	r_resumed = false;
#ifdef IN_PLACE
	r_repairs = false;
#endif
	for (j : 0 .. PATHS - 1) {
		r_qp[j] = 0;
		r_healthy[j] = 0;
		r_peer_fenced[j] = 0;
		r_fenced_gen[j] = 0;
		r_order[j] = 0;
		R_ENDS_PATH(j);
		late_sr.fenced_gen[j] = 0
	};
	r_told_completed = 0;
	late_sr.kind = 0;
	late_sr.epoch = 0;
	late_sr.path = 0;
	late_sr.gen = 0;
	late_sr.set = 0;
	if
	:: r_state == LATCHED -> DOES(RECEIVER, GIVES_UP)
	:: else -> skip
	fi;
	r_says()
}

/* The sender has given up the path in use, and has said so. */
#ifdef SICK
#define R_KNOWS_LEFT (r_state == ACTIVE && MAX(r_peer_fenced[r_path], r_peer_yielded[r_path]) >= r_gen)
#else
#define R_KNOWS_LEFT (r_state == ACTIVE && r_peer_fenced[r_path] >= r_gen)
#endif

/* Completed by the sender, fenced here and still not there: the NIC acknowledged it and died. */
inline r_check_loss()
{
	if
#ifndef MUT_LOSS_CHECK
	:: r_state == FENCING && r_gen == 0 && (r_told_completed & ~r_done) ->
		must((r_told_completed & ~r_done & ~unplaced) == 0, false_loss);
		printf("receiver: acknowledged but not placed, latches\n");
		r_end(LATCHED)
#endif
	:: r_state == FENCING && r_gen -> skip /* done is not final yet */
#ifndef MUT_STATE_COMPLETED
	:: R_KNOWS_LEFT -> skip /* by STATE: what came with it nobody needs to say again */
#endif
	:: else -> r_told_completed = 0
	fi
}

/* What m_* says of the sender's fences. Merged, never dropped as seen. */
inline r_learns()
{
	for (j : 0 .. PATHS - 1) {
		if
		:: m_fenced_gen[j] > r_peer_fenced[j] -> r_peer_fenced[j] = m_fenced_gen[j]
		:: else -> skip
		fi
#ifdef SICK
		;
		if
		:: m_yielded_gen[j] > r_peer_yielded[j] -> r_peer_yielded[j] = m_yielded_gen[j]
		:: else -> skip
		fi;
		r_forget_settled(j)
#endif
	}
}

/* What SUSPECT, FENCED or RESUMED in m_* tells the receiver. */
inline r_merge()
{
	BEFORE(RECEIVER);
	r_learns();
	if
	:: r_state == ACTIVE &&
	   (M_LEFT(r_path) >= r_gen || (m_kind == SUSPECT && m_path == r_path && m_gen >= r_gen)) ->
		r_new_epoch();
		HEARS(RECEIVER)
	:: else -> skip
	fi;
	for (j : 0 .. PATHS - 1) {
		r_fence_upto(j, m_fenced_gen[j])
#ifdef SICK
		; r_fence_upto(j, m_yielded_gen[j])
#endif
	};
	if
	:: m_kind == SUSPECT -> r_fence_upto(m_path, m_gen)
	:: else -> skip
	fi;
	if
#ifdef MUT_RESUMED_EPOCH
	:: m_kind == RESUMED && r_state == ACTIVE -> r_resumed = true
#else
	:: m_kind == RESUMED && r_state == ACTIVE && m_epoch == r_epoch -> r_resumed = true
#endif
	:: else -> skip
	fi;
	HEARS(RECEIVER);
	THROUGH(RECEIVER);
	r_told_completed = r_told_completed | m_set;
	r_check_loss()
}

#ifdef MUT_RESUME_EARLY
#define R_CONFIRMED(p) true
#else
#define R_CONFIRMED(p) (r_fenced_gen[p] == r_order[p])
#endif

/* The vectors agree: nothing can arrive on a fenced generation any more, at either end. */
#ifdef SICK
/* One of them is enough, if the other has given the path up, and what was on its way is gone. */
#define R_PEER_LEFT(p) MAX(r_peer_fenced[p], r_peer_yielded[p])
#define ONE_FENCED(p)  MAX(r_fenced_gen[p], r_peer_fenced[p])
#define BOTH_FENCED(p) (r_fenced_gen[p] >= r_order[p] && r_peer_fenced[p] >= r_order[p])
#define DISAGREES(p)                                                                               \
	(R_PEER_LEFT(p) < r_order[p] || !(BOTH_FENCED(p) || r_settled_gen[p] >= r_order[p]))
#elif defined(MUT_WATERMARKS)
#define DISAGREES(p) (r_qp[p] == 0 && r_peer_fenced[p] < r_fenced_gen[p])
#else
#define DISAGREES(p) (!R_CONFIRMED(p) || r_peer_fenced[p] < r_order[p])
#endif
#ifdef MUT_AGREE
#define AGREED true
#else
#define AGREED (!ANY_PATH(DISAGREES))
#endif

#ifdef NIC_LIES
/* Both ends say that path p is fenced. The hardware of one is, and what that end had sent has arrived
 * at the other or is lost. */
inline old_packets_are_gone(p)
{
	if
	:: s_sick[p] != LIES -> data_clear_upto(p, r_order[p])
	:: else -> skip
	fi;
	if
	:: r_sick[p] != LIES -> cts_clear_upto(p, r_order[p])
	:: else -> skip
	fi
}
#endif

/* RESUME on a path proved healthy; the CTS entries follow at once. */
inline r_resume(p)
{
	BEFORE(RECEIVER);
	r_leaves_behind(FENCE, 0, 0);
#if defined(NIC_LIES) && !defined(MUT_LIES_LIFETIME)
	for (j : 0 .. PATHS - 1) {
		old_packets_are_gone(j)
	};
#endif
	r_state = ACTIVE;
#ifdef IN_PLACE
	r_repairs = false;
#endif
	r_path = p;
	r_gen = r_healthy[p];
	DOES(RECEIVER, RESUMES);
	r_says();
	printf("receiver: says RESUME{epoch %d, %d.%d, done %d}\n", r_epoch, p, r_gen, r_done)
}

/* Write the entries of everything that is wanted and not there, in order. A receive may be posted
 * once the one that had its slot is complete. */
#define R_WANTS(m)                                                                                 \
	(!((r_done | r_issued) & BIT(m)) && ((m) < WINDOW || (r_done & (BIT(m) >> WINDOW))))

/* What an entry says besides: every message before this one is here. */
#ifdef MUT_COUNT_RIDES
#define R_SAYS_COUNT(m) (m)
#else
#define R_SAYS_COUNT(m) PREFIX(r_done)
#endif
inline r_counts(m)
{
#ifdef COUNTS
	cts_count[ENTRY_OF(r_path, r_gen, m)] = R_SAYS_COUNT(m)
#else
	skip
#endif
}

inline r_issue()
{
	for (j : 0 .. MSGS - 1) {
		if
		:: R_WANTS(j) ->
			r_issued = r_issued | BIT(j);
			printf("receiver: writes CTS{seq %d, epoch %d} on %d.%d\n", j, r_epoch, r_path,
			       r_gen);
			if
			:: CTS_GOES(r_path, r_gen) ->
				cts_net[PG(r_path, r_gen)] = cts_net[PG(r_path, r_gen)] | BIT(j);
				cts_net_epoch[PG(r_path, r_gen)] = r_epoch;
				r_counts(j)
			:: else -> skip
			fi
		:: else -> skip
		fi
	}
}

#ifdef IN_PLACE
#define R_MAY_TAKE(p) (!r_repairs || (p) < 2)
#else
#define R_MAY_TAKE(p) true
#endif
#define R_RESUMES(p)                                                                               \
	LATE_MESSAGE(r_state == FENCING && AGREED && r_healthy[p] && R_MAY_TAKE(p), r_resume(p))

/* A standby whose probes fail: the path is gone, or the peer's QP is. */
#define R_STANDBY_FAILS(p)                                                                         \
	LATE_MESSAGE(!FINAL(r_state) && R_UP(p) && !(r_state == ACTIVE && r_path == p) &&            \
			   ((dead & BIT(p)) || (broken[p] & GEN(NEWEST(r_qp[p]))) ||               \
			    (r_healthy[p] && !(s_qp[p] & GEN(r_healthy[p])))),                     \
		   r_trigger(p))

/* The drain is over, or the QPs are destroyed. */
inline r_confirms(p)
{
	printf("receiver: path %d is fenced up to %d\n", p, r_order[p]);
	BEFORE(RECEIVER);
	r_confirm(p);
	r_drained();
	DOES(RECEIVER, CONFIRMED);
	r_check_loss()
}
#define R_CONFIRMS(p)                                                                              \
	:: d_step {                                                                                \
		!FINAL(r_state) && r_fenced_gen[p] < r_order[p] && R_ANSWERS(p) ->                 \
		r_confirms(p);                                                                     \
		reset()                                                                            \
	}

#ifdef SICK
#define R_ANSWERS(p) (!NO_FENCE(r_sick[p]))

/* The hardware of an end, whatever it says. */
#define S_SENDS(p, g)                                                                              \
	((s_qp[p] & UPTO(g)) || (FINAL(s_state) && GOES_ON(s_sick[p])) || s_sick[p] == LIES)
#define R_SENDS(p, g) ((r_qp[p] & UPTO(g)) || r_sick[p] == LIES)

/* A packet's lifetime has passed since one end was known to be fenced, which so sends nothing any
 * more and takes nothing. What it sent before has arrived or is lost, and the last look at the
 * completions has found it. */
inline r_settles(p)
{
	BEFORE(RECEIVER);
	r_settled_gen[p] = r_order[p];
	DOES(RECEIVER, WITHOUT);
	printf("receiver: path %d is settled up to %d\n", p, r_order[p]);
#ifndef MUT_YIELD_LIFETIME
	if
	:: !S_SENDS(p, r_order[p]) -> data_clear_upto(p, r_order[p])
	:: else -> skip
	fi;
	if
	:: !R_SENDS(p, r_order[p]) -> cts_clear_upto(p, r_order[p])
	:: else -> skip
	fi;
#endif
	r_drained();
	r_check_loss()
}

/* Where fences take no time nobody waits for a lifetime. */
#define SLOW(p)                                                                                    \
	(NO_FENCE(s_sick[p]) || NO_FENCE(r_sick[p]) || s_fenced_gen[p] < s_order[p] ||             \
	 r_fenced_gen[p] < r_order[p])
#ifdef MUT_YIELD_BOTH
#define MAY_SETTLE(p) true
#else
#define MAY_SETTLE(p) (ONE_FENCED(p) >= r_order[p])
#endif
#define R_SETTLES(p)                                                                               \
	:: d_step {                                                                                \
		!FINAL(r_state) && r_settled_gen[p] < r_order[p] && !BOTH_FENCED(p) &&             \
		SLOW(p) && MAY_SETTLE(p) -> r_settles(p);                                        \
		reset()                                                                            \
	}
#else
#define R_ANSWERS(p) true
#endif

/* In the background: the next generation of a path that has none up. */
#define R_REBUILDS(p)                                                                              \
	:: d_step {                                                                                \
		!FINAL(r_state) && r_qp[p] == 0 && !(dead & BIT(p)) && r_fenced_gen[p] < GENS ->   \
		BEFORE(RECEIVER);                                                                  \
		r_qp[p] = GEN(r_fenced_gen[p] + 1);                                                \
		DOES(RECEIVER, BUILDS);                                                            \
		printf("receiver: says REBUILD{%d.%d}\n", p, r_fenced_gen[p] + 1)                  \
	}

#ifdef NIC_BUSY /* as at the sender */
#ifdef MUT_STANDBY_LATCHES
#define R_LEAVES(p) true
#else
#define R_LEAVES(p) (r_state == FENCING && r_gen && r_path == p)
#endif
inline r_fails(p)
{
	printf("receiver: path %d cannot be fenced, latches\n", p);
	must(!WORKS, needless_error);
	r_end(LATCHED)
}
#define R_FAILS(p)                                                                                 \
	:: d_step {                                                                                \
		!FINAL(r_state) && r_fenced_gen[p] < r_order[p] && !R_ANSWERS(p) && R_LEAVES(p) -> \
		r_fails(p);                                                                        \
		reset()                                                                            \
	}
#endif

#ifdef COUNTS
/* NCCL closes a connection when both ends are through. */
#define R_THROUGH (r_done == ALL && s_state == CLOSED)
#else
#define R_THROUGH (r_done == ALL)
#endif

#ifdef MUT_BLOCKING_VERB
#define R_HANGS(p) (!R_ANSWERS(p) && r_fenced_gen[p] < r_order[p])
proctype Receiver() provided(!ANY_PATH(R_HANGS))
#else
proctype Receiver()
#endif
{
end:	do
	:: d_step { r_state == ACTIVE && ANY_MSG(R_WANTS) -> r_issue(); reset() }

#ifndef MUT_RECEIVER_TIMEOUT
	/* Receives are incomplete, and the signalled write kept outstanding does not complete. */
	LATE_EITHER(r_state == ACTIVE && r_done != ALL && !FLOWS(r_path, r_gen), r_times_out())
#endif
#ifdef STEPWISE
	EACH_PATH(R_CONFIRMS)
#endif
#ifdef SICK
	EACH_PATH(R_SETTLES)
#endif
#ifdef NIC_BUSY
	EACH_PATH(R_FAILS)
#endif
	EACH_PATH(R_STANDBY_FAILS)
	EACH_PATH(R_REBUILDS)
	EACH_PATH(R_RESUMES)
#if defined(IN_PLACE) && !defined(MUT_REPAIR_WAITS)
	/* It has failed, or takes too long, or is not worth it: any path will do. */
	:: d_step {
		r_repairs ->
		printf("receiver: gives up the repair\n");
		r_repairs = false
	}
#endif

	:: d_step {
		!FINAL(r_state) && R_THROUGH ->
		printf("receiver: everything received, closes, says BYE\n");
		r_end(CLOSED);
		reset()
	}
	:: d_step {
		!FINAL(r_state) && NO_WAY ->
		printf("receiver: nothing left within the deadline, latches\n");
		r_end(LATCHED);
		reset()
	}
	od
}
