/* SPDX-License-Identifier: Apache-2.0 */
/* The sender: it posts what the CTS ring asks for, fences when told or when in doubt, and never
 * chooses an epoch, a path or a generation. */

#ifdef SICK
/* The path that was active is not fenced, but left. */
#define S_YIELDED (s_gen && s_yielded_gen[s_path] >= s_gen)
#else
#define S_YIELDED false
#endif

/* What the hardware still sends on the path that was active, the peer's drops: its queue pair is
 * fenced, or it has received everything, and takes the rest for repetition. */
#ifdef SICK
#define PEER_DROPS                                                                                 \
	(S_YIELDED && (r_state == CLOSED ||                                                        \
		       (!(r_qp[s_path] & GEN(s_gen)) && !(GOES_ON(r_sick[s_path]) && FINAL(r_state)))))
/* The hardware of a receiver that has latched still acknowledges. */
#define LOSS_REPORTED (r_state == LATCHED)
#else
#define PEER_DROPS    false
#define LOSS_REPORTED false
#endif

/* Tell NCCL that these messages are sent. */
inline s_complete(set)
{
	must(((set) & ~s_completed & ~r_done & ~unplaced) == 0 || LOSS_REPORTED, lost_message);
	/* The hardware may still read (retransmit) what it holds; NCCL may free it now. */
	must(((set) & ~s_completed & s_outstanding) == 0 || PEER_DROPS, early_release);
	s_completed = s_completed | (set)
}

#ifdef MODE_E2E
/* Both conditions: counted by the receiver's software, and let go by our hardware. */
inline s_complete_counted()
{
#ifdef MUT_E2E_HARDWARE
	s_complete(UPTO(s_count))
#else
	s_complete(UPTO(s_count) & ~s_outstanding)
#endif
}
#endif

#ifdef COUNTS
/* What is read in the ring or comes back from a question. It never goes back. */
inline s_counted(count)
{
	s_count = MAX(s_count, count);
	for (k : 0 .. WINDOW - 1) {
		s_ring_count[k] = (s_ring_count[k] > s_count -> s_ring_count[k] : 0)
	};
	k = 0;
	s_complete_counted()
}

inline ask_clear_upto(p, g)
{
	for (i : 1 .. g) {
		ask_net[PG(p, i)] = 0
	}
}

#define S_RIDES(m)                                                                                 \
	:: d_step {                                                                                \
		!FINAL(s_state) && (m) < WINDOW && s_ring_count[SLOT(m)] ->                        \
		printf("sender: reads count %d in slot %d\n", s_ring_count[SLOT(m)], SLOT(m));     \
		s_counted(s_ring_count[SLOT(m)]);                                                  \
		reset()                                                                            \
	}

/* The hardware has let go of something that is not counted. */
#define S_WAITS (s_posted & ~s_outstanding & ~s_completed)
#ifdef MUT_COUNT_PATH
#define ASKING(p) (ask_net[PG(p, 1)] || ask_net[PG(p, 2)])
#define S_ASKING  ANY_PATH(ASKING)
#else
#define S_ASKING ask_net[PG(s_path, s_gen)]
#endif
/* What its hardware has, and may report as an error. */
#ifdef MUT_COUNT_TIMEOUT
#define S_UNDER_WAY s_outstanding
#else
#define S_UNDER_WAY (s_outstanding || ask_net[PG(s_path, s_gen)])
#endif
#else
#define S_UNDER_WAY (s_posted & ~s_completed)
#endif

/* A new control message is said from now on; under MUT_RESEND it is said once, and may be lost. */
inline s_says()
{
#ifdef MUT_RESEND
	s_lost = lose_message
#else
	skip
#endif
}

/* In front of a step that moves on: what is said so far stays in flight, if the step chose so. */
inline s_leaves_behind()
{
	if
	:: keep_message && !FINAL(r_state) ->
		if
		:: s_state == ACTIVE -> late_sr.kind = RESUMED
		:: s_state == SUSPECTED -> late_sr.kind = SUSPECT
		:: else -> late_sr.kind = FENCED
		fi;
		if
		:: s_state == SUSPECTED -> late_sr.path = s_path; late_sr.gen = s_gen
		:: else -> skip
		fi;
		late_sr.epoch = s_epoch;
		late_sr.set = s_completed;
		for (j : 0 .. PATHS - 1) {
			late_sr.fenced_gen[j] = S_SAYS_FENCED(j)
#ifdef SICK
			; late_sr.yielded_gen[j] = s_yielded_gen[j]
#endif
		}
	:: else -> skip
	fi
}

/* The receiver has these. They are complete, unless the hardware may still read them: then they
 * are as soon as the fence is confirmed. */
inline s_settle(set)
{
	s_told_done = s_told_done | (set);
	if
#ifdef MUT_COMPLETE_EARLY
	:: true -> s_complete(s_told_done); s_told_done = 0
#else
	:: s_state == ACTIVE || s_gen == 0 -> s_complete(s_told_done); s_told_done = 0
#endif
#ifdef MUT_YIELD_RELEASE
	:: s_state != ACTIVE && s_gen && S_YIELDED -> s_complete(s_told_done); s_told_done = 0
#endif
	:: else -> skip
	fi
}

/* The path that was active has been fenced: the hardware lets go of everything. */
inline s_released()
{
	if
	:: !keep_packets -> data_net[PG(s_path, s_gen)] = 0
	:: else -> skip
	fi;
#ifndef MUT_SENDER_FENCE
	s_outstanding = 0;
#ifndef MUT_STALE_COMPLETIONS
	s_acked = 0;
#endif
#endif
#ifdef MODE_E2E
	s_complete_counted();
#endif
	s_posted = 0;
	s_path = 0;
	s_gen = 0
}

/* Nothing is posted any more; the active path is being fenced, or is. */
inline s_stop(new_state)
{
	s_state = new_state;
	if
	:: s_fenced_gen[s_path] >= s_gen -> s_released()
	:: else -> skip
	fi;
	s_says()
}

/* The fence of path p is confirmed: those QPs went through ERR and a drain, or are destroyed. */
inline s_confirm(p)
{
	s_fenced_gen[p] = s_order[p];
#ifdef SICK
	s_yielded_gen[p] = 0;
#endif
	s_qp[p] = s_qp[p] & ~UPTO(s_order[p]);
#if defined(COUNTS) && !defined(MUT_COUNT_PATH)
	ask_clear_upto(p, s_order[p]);
#endif
#ifdef SICK
	if
	:: !MISTAKEN(s_sick[p]) -> cts_clear_upto(p, s_order[p])
	:: else -> skip
	fi
#elif !defined(MUT_SENDER_FENCE)
	cts_clear_upto(p, s_order[p])
#endif
}

/* Fence path p up to generation g. */
inline s_fence_upto(p, g)
{
	if
	:: g > s_order[p] ->
		s_order[p] = g;
#if defined(STEPWISE) || defined(SICK)
		if
		:: !(s_qp[p] & UPTO(s_order[p])) -> s_confirm(p)
#ifndef STEPWISE
		:: (s_qp[p] & UPTO(s_order[p])) && !NO_FENCE(s_sick[p]) -> s_confirm(p)
#endif
		:: else -> skip
		fi
#else
		s_confirm(p)
#endif
	:: else -> skip
	fi
}

/* A trigger at the sender about path p. On the active path it stops posting; on a standby the
 * watermark alone is the news. Either way it says SUSPECT. */
inline s_trigger(p)
{
	BEFORE(SENDER);
	if
	:: s_state == ACTIVE && s_path == p ->
		printf("sender: fences %d.%d, says SUSPECT\n", p, s_gen);
		s_leaves_behind();
		s_fence_upto(p, s_gen);
		s_stop(SUSPECTED);
		DOES(SENDER, FAILED)
	:: else ->
		printf("sender: fences %d.%d, says SUSPECT\n", p, NEWEST(s_qp[p]));
		s_fence_upto(p, NEWEST(s_qp[p]));
		DOES(SENDER, STANDBY_FAILED)
	fi
}

inline s_end(final_state)
{
	BEFORE(SENDER);
	GOODBYE(SENDER);
	s_state = final_state;
	s_path = 0;
	s_gen = 0;
	s_posted = 0;
	s_outstanding = 0;
	s_acked = 0;
	s_told_done = 0;
	for (j : 0 .. PATHS - 1) {
		s_qp[j] = 0;
		s_order[j] = 0;
		cts_clear_upto(j, GENS)
#ifdef COUNTS
		; ask_clear_upto(j, GENS)
#endif
	};
	late_rs.kind = 0;
	late_rs.epoch = 0;
	late_rs.path = 0;
	late_rs.gen = 0;
	late_rs.set = 0;
	for (j : 0 .. PATHS - 1) {
		late_rs.fenced_gen[j] = 0; s_fenced_gen[j] = 0
#ifdef SICK
		; s_yielded_gen[j] = 0
#endif
	};
	for (j : 0 .. WINDOW - 1) {
		s_ring_seq[j] = 0; s_ring_epoch[j] = 0
#ifdef COUNTS
		; s_ring_count[j] = 0
#endif
	};
	if
	:: s_state == LATCHED -> DOES(SENDER, GIVES_UP)
	:: else -> skip
	fi;
	s_says()
}

/* A new epoch: entries of older ones are never looked at again. */
inline s_enter_epoch(e)
{
	s_epoch = e;
#ifndef MUT_CTS_EPOCH
	for (j : 0 .. WINDOW - 1) {
		if
		:: s_ring_epoch[j] < s_epoch -> s_ring_seq[j] = 0; s_ring_epoch[j] = 0
		:: else -> skip
		fi
	}
#endif
}

#ifdef SICK
/* The receiver would not go on, or would not be through, if what this end's hardware may still send
 * could land: so NCCL may have what the hardware may still read. */
inline s_let_go()
{
	if
	:: S_YIELDED ->
		s_complete(s_told_done);
		s_told_done = 0;
		s_released()
	:: else -> skip
	fi
}
#endif

/* What a FENCE or RESUME in m_* tells the sender. Merged, in any order, any number of times. */
inline s_merge()
{
	BEFORE(SENDER);
	if
	:: m_epoch > s_epoch || (m_kind == RESUME && m_epoch == s_epoch && s_state == FENCED) ->
		s_leaves_behind()
	:: else -> skip
	fi;
#ifdef MUT_SELF_CONTAINED
	if
	:: m_kind == RESUME -> skip
	:: else ->
#endif
	for (j : 0 .. PATHS - 1) {
		s_fence_upto(j, m_fenced_gen[j])
	};
#ifdef MUT_SELF_CONTAINED
	fi;
#endif
	if
	:: m_epoch > s_epoch ->
		if
		:: s_state == ACTIVE -> s_stop(FENCED)
		:: else -> s_state = FENCED; s_says()
		fi;
		s_enter_epoch(m_epoch);
		printf("sender: says FENCED{epoch %d}\n", s_epoch)
	:: else -> skip
	fi;
	HEARS(SENDER);
#if !defined(MUT_RECONCILE) && !defined(MUT_REPLAY)
#ifdef MUT_SELF_CONTAINED
	if
	:: m_kind == RESUME -> skip
	:: else -> s_settle(m_set)
	fi;
#else
	s_settle(m_set);
#endif
#endif
	if
	:: m_kind == RESUME && m_epoch == s_epoch && s_state == FENCED &&
	   (s_gen == 0 || S_YIELDED) && (s_qp[m_path] & GEN(m_gen)) && m_gen > s_order[m_path] ->
#ifdef SICK
		s_let_go();
#endif
		s_state = ACTIVE;
		s_path = m_path;
		s_gen = m_gen;
		s_says();
		printf("sender: active on %d.%d, says RESUMED{epoch %d}\n", m_path, m_gen, s_epoch);
		DOES(SENDER, RESUMES)
	:: else -> skip
	fi;
	THROUGH(SENDER)
}

/* REBUILD{p.g}: fence every older generation of that path, then bring up the new one. */
inline s_rebuild(p, g)
{
	BEFORE(SENDER);
	m_kind = REBUILD;
	m_path = p;
	m_gen = g;
#ifndef MUT_REBUILD_FENCE
	s_fence_upto(p, g - 1);
#endif
	HEARS(SENDER);
	if
	:: s_fenced_gen[p] == s_order[p] ->
		s_qp[p] = s_qp[p] | GEN(g);
		printf("sender: path %d fenced up to %d, %d.%d is up\n", p, s_fenced_gen[p], p, g);
		DOES(SENDER, UP)
	:: else -> skip /* REBUILD is said again */
	fi
}

/* Write message m to where its entry says: message m must go to receive m. */
inline s_post(m)
{
	must(s_ring_seq[SLOT(m)] == m + 1, wrong_buffer);
	must(s_ring_epoch[SLOT(m)] == s_epoch, stale_key);
#ifdef MUT_REPLAY
	s_bound = s_bound | BIT(m);
#endif
	s_posted = s_posted | BIT(m);
	s_outstanding = s_outstanding | BIT(m);
	if
	:: DATA_GOES(s_path, s_gen) ->
		data_net[PG(s_path, s_gen)] = data_net[PG(s_path, s_gen)] | BIT(m)
	:: else -> skip
	fi;
	printf("sender: posts message %d on %d.%d\n", m, s_path, s_gen)
}

/* The entry this message needs is in the ring. */
#if defined(MUT_CTS_SEQ)
#define ENTRY(m) (s_ring_seq[SLOT(m)] != 0 && s_ring_epoch[SLOT(m)] == s_epoch)
#elif defined(MUT_CTS_EPOCH)
#define ENTRY(m) (s_ring_seq[SLOT(m)] == m + 1)
#elif defined(MUT_REPLAY)
#define ENTRY(m)                                                                                   \
	((s_bound & BIT(m)) || (s_ring_seq[SLOT(m)] == m + 1 && s_ring_epoch[SLOT(m)] == s_epoch))
#else
#define ENTRY(m) (s_ring_seq[SLOT(m)] == m + 1 && s_ring_epoch[SLOT(m)] == s_epoch)
#endif

/* In order, whole, once an epoch; never what is complete. */
#define S_POSTS(m)                                                                                 \
	:: d_step {                                                                                \
		s_state == ACTIVE && !((s_completed | s_posted) & BIT(m)) &&                       \
		((s_completed | s_posted) & UPTO(m)) == UPTO(m) && ENTRY(m) ->              \
		s_post(m)                                                                          \
	}

/* A standby whose probes fail. */
#define S_STANDBY_FAILS(p)                                                                         \
	:: d_step {                                                                                \
		!FINAL(s_state) && S_UP(p) && !(s_state == ACTIVE && s_path == p) &&               \
		((dead & BIT(p)) || (broken[p] & GEN(NEWEST(s_qp[p])))) ->                         \
		s_trigger(p);                                                                      \
		reset()                                                                            \
	}

/* The drain is over, or the QPs are destroyed. */
inline s_confirms(p)
{
	BEFORE(SENDER);
	s_confirm(p);
	DOES(SENDER, CONFIRMED);
	printf("sender: path %d is fenced up to %d\n", p, s_order[p]);
	if
	:: s_state != ACTIVE && s_gen && s_path == p && s_fenced_gen[p] >= s_gen ->
		s_released();
		s_settle(0)
	:: else -> skip
	fi
}
#define S_CONFIRMS(p)                                                                              \
	LATE_PACKETS(!FINAL(s_state) && s_fenced_gen[p] < s_order[p] && S_ANSWERS(p), s_confirms(p))

#ifdef SICK
#define S_ANSWERS(p) (!NO_FENCE(s_sick[p]))
/* The fence does not come to an end. What has completed is complete; nothing more will be. */
inline s_yields(p)
{
	BEFORE(SENDER);
	s_yielded_gen[p] = s_order[p];
	DOES(SENDER, WITHOUT);
	printf("sender: yields path %d up to %d\n", p, s_order[p]);
#ifndef MUT_YIELD_COMPLETIONS
	if
	:: s_gen && s_path == p -> s_acked = 0
	:: else -> skip
	fi;
#endif
#ifdef MUT_YIELD_RELEASE
	s_settle(0)
#endif
}
#ifdef MUT_ERROR_YIELDS
#define S_MAY_YIELD(p) (!IS(s_sick[p], BUSY) && !IS(s_sick[p], LOST))
#else
#define S_MAY_YIELD(p) true
#endif
#define S_YIELDS(p)                                                                                \
	:: d_step {                                                                                \
		!FINAL(s_state) && s_fenced_gen[p] < s_order[p] && s_yielded_gen[p] < s_order[p] && \
		S_MAY_YIELD(p) ->                                                                 \
		s_yields(p);                                                                       \
		reset()                                                                            \
	}
#else
#define S_ANSWERS(p) true
#endif

#ifdef NIC_BUSY
/* An end may give up when it cannot fence the path that it is leaving; it may also yield, and try
 * again. A path that never was active, or has been left, is not worth an error. */
#ifdef MUT_STANDBY_LATCHES
#define S_LEAVES(p) true
#else
#define S_LEAVES(p) (s_state != ACTIVE && s_gen && s_path == p)
#endif
inline s_fails(p)
{
	printf("sender: path %d cannot be fenced, latches\n", p);
	must(!WORKS, needless_error);
	s_end(LATCHED)
}
#define S_FAILS(p)                                                                                 \
	:: d_step {                                                                                \
		!FINAL(s_state) && s_fenced_gen[p] < s_order[p] && !S_ANSWERS(p) && S_LEAVES(p) -> \
		s_fails(p);                                                                        \
		reset()                                                                            \
	}
#endif

/* A command takes the time of its NIC, and of nothing else. */
#ifdef MUT_BLOCKING_VERB
#define S_HANGS(p) (!S_ANSWERS(p) && s_fenced_gen[p] < s_order[p])
proctype Sender() provided(!ANY_PATH(S_HANGS))
#else
proctype Sender()
#endif
{
end:	do
	EACH_MSG(S_POSTS)
#ifdef COUNTS
	EACH_MSG(S_RIDES)
#ifndef MUT_COUNT_ASKED
	:: d_step {
		s_state == ACTIVE && S_WAITS && !S_ASKING ->
		ask_net[PG(s_path, s_gen)] = 1;
		printf("sender: asks for the count on %d.%d\n", s_path, s_gen)
	}
#endif
#endif
#ifdef STEPWISE
	EACH_PATH(S_CONFIRMS)
#endif
#ifdef SICK
	EACH_PATH(S_YIELDS)
#endif
#ifdef NIC_BUSY
	EACH_PATH(S_FAILS)
#endif

	/* An error completion, or the soft timeout: something was posted, nothing comes back. */
	LATE_EITHER(s_state == ACTIVE && S_UNDER_WAY && !FLOWS(s_path, s_gen),
		   s_trigger(s_path))
	EACH_PATH(S_STANDBY_FAILS)

	:: d_step {
		!FINAL(s_state) && s_completed == ALL ->
		printf("sender: everything sent, closes, says BYE\n");
		s_end(CLOSED);
		reset()
	}
	/* The outage deadline runs only while no channel reaches the peer or no path is left. */
	:: d_step {
		!FINAL(s_state) && NO_WAY ->
		printf("sender: nothing left within the deadline, latches\n");
		s_end(LATCHED);
		reset()
	}
	od
}
