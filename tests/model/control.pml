/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control channels: the bootstrap socket and the QPs of paths. Each end says one thing at a
 * time, again and again until it is answered, so the message an end says now is a function of its
 * state and is delivered straight from it, whenever a channel works. Delivering it is offered only if
 * it changes something: a repeated message that does not is a step without effect (every handler
 * merges), and leaving those out is what makes "nothing can happen any more" mean "stuck".
 *
 * What this does not cover is a message that arrives after its sender has moved on: overtaken
 * because a channel is slow, another channel faster, or packets are reordered. When an end moves on, its
 * last message may be left behind in late_rs or late_sr and be delivered at any later time, or
 * never. Losing a message is the same as delivering the next copy.
 */

#ifdef MUT_RESEND
#define S_HEARD (!s_lost)
#define R_HEARD (!r_lost)
#else
#define S_HEARD true
#define R_HEARD true
#endif

/* ---- receiver to sender ------------------------------------------------------------------- */

#define R_FENCED_MORE(p) (S_UNDERSTANDS(p, R_SAYS_FENCED(p)) > s_order[p])

#define FENCE_IS_NEWS (r_state == FENCING && (r_epoch > s_epoch || ANY_PATH(R_FENCED_MORE)))

#define RESUME_IS_NEWS                                                                             \
	(r_state == ACTIVE && r_epoch > 1 && !r_resumed &&                                         \
	 (r_epoch > s_epoch ||                                                                     \
	  (r_epoch == s_epoch && s_state == FENCED && (s_qp[r_path] & GEN(r_gen)) &&               \
	   r_gen > s_order[r_path] && (s_gen == 0 || S_YIELDED)) ||                                 \
	  (r_epoch == s_epoch && s_state == ACTIVE && ANY_PATH(R_FENCED_MORE))))

/* STATE says what was given up of the paths in reserve, to a sender that knows of no new epoch. */
#define R_GAVE_BACK(p) (R_FENCED_MORE(p) && s_path != (p))
#define STATE_IS_NEWS  (!FINAL(r_state) && s_state == ACTIVE && ANY_PATH(R_GAVE_BACK))

inline r_speaks(message)
{
	m_kind = message;
	m_epoch = r_epoch;
	m_path = (message == RESUME -> r_path : 0);
	m_gen = (message == RESUME -> r_gen : 0);
	m_set = r_done & ~r_issued;
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = S_UNDERSTANDS(j, R_SAYS_FENCED(j))
	}
}

/* Answered only once the sender no longer holds the path active. */
#ifdef MUT_REBUILD_ACTIVE
#define HOLDS_ACTIVE(p) false
#else
#define HOLDS_ACTIVE(p) (s_state == ACTIVE && s_path == p)
#endif
/* Of a device that is gone nothing can be made. */
#ifdef NIC_LOST
#define S_GONE(p) (s_sick[p] == GONE)
#else
#define S_GONE(p) false
#endif
#define REBUILD_REACHES(p, g)                                                                      \
	(!FINAL(s_state) && (R_UP(p) & GEN(g)) && !(s_qp[p] & GEN(g)) && (g) > s_order[p] &&       \
	 !HOLDS_ACTIVE(p) && !S_GONE(p) &&                                                         \
	 ((g)-1 > s_order[p] || s_fenced_gen[p] == s_order[p]))
#define REBUILD_ARRIVES(p)                                                                         \
	:: d_step {                                                                                \
		LANE && R_UP(p) && r_healthy[p] != NEWEST(r_qp[p]) &&                              \
		REBUILD_REACHES(p, NEWEST(r_qp[p])) -> s_hears_rebuild(p); reset()                 \
	}

inline s_hears_rebuild(p)
{
	r_speaks(REBUILD);
	m_path = p;
	m_gen = NEWEST(r_qp[p]);
	SAYS(RECEIVER);
	s_rebuild(p, NEWEST(r_qp[p]))
}

inline s_hears(message)
{
	printf("channel: %e{epoch %d, %d.%d} reaches the sender\n", message, r_epoch, r_path, r_gen);
	r_speaks(message);
	SAYS(RECEIVER);
	s_merge()
}

inline s_hears_state()
{
	printf("channel: STATE{epoch %d} reaches the sender\n", r_epoch);
	r_speaks(STATE);
	SAYS(RECEIVER);
	BEFORE(SENDER);
	for (j : 0 .. PATHS - 1) {
		if
		:: j != s_path -> s_fence_upto(j, m_fenced_gen[j])
		:: else -> skip /* that one is left by FENCE alone */
		fi
	};
	HEARS(SENDER);
	THROUGH(SENDER)
}

/* ---- sender to receiver ------------------------------------------------------------------- */

/* An order follows from what the sender has given up, and may not yet have: STATE gives none. */
#ifdef MUT_STATE_NEWS
#define S_FENCED_MORE(p) (S_SAYS_FENCED(p) > r_peer_fenced[p])
#else
#define S_FENCED_MORE(p) (S_SAYS_FENCED(p) > r_peer_fenced[p] || S_SAYS_FENCED(p) > r_order[p])
#endif

#ifdef SICK
#define S_YIELDED_MORE(p) (s_yielded_gen[p] > R_PEER_LEFT(p) || s_yielded_gen[p] > r_order[p])
#define S_LEFT_MORE(p)	  (S_FENCED_MORE(p) || S_YIELDED_MORE(p))
#else
#define S_LEFT_MORE(p) S_FENCED_MORE(p)
#endif

#define SENDER_HAS_NEWS                                                                            \
	(ANY_PATH(S_LEFT_MORE) ||                                                                  \
	 (s_state == SUSPECTED && s_gen && r_state == ACTIVE && r_path == s_path &&                \
	  r_gen == s_gen) ||                                                                       \
	 (s_state == ACTIVE && r_state == ACTIVE && s_epoch == r_epoch && r_epoch > 1 &&           \
	  !r_resumed))

inline s_speaks()
{
	m_epoch = s_epoch;
	if
	:: s_state == SUSPECTED -> m_path = s_path; m_gen = s_gen
	:: else -> m_path = 0; m_gen = 0
	fi;
	m_set = s_completed;
	if
	:: s_state == ACTIVE -> m_kind = RESUMED
	:: s_state == SUSPECTED -> m_kind = SUSPECT
	:: else -> m_kind = FENCED
	fi;
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = S_SAYS_FENCED(j)
#ifdef SICK
		; m_yielded_gen[j] = s_yielded_gen[j]
#endif
	}
}

inline r_hears()
{
	s_speaks();
	SAYS(SENDER);
	printf("channel: %e{epoch %d, completed %d} reaches the receiver\n", m_kind, s_epoch,
	       s_completed);
	r_merge()
}

/* STATE, of a fence that was confirmed late: the receiver takes it for agreed and orders nothing. */
#define S_STATE_MORE(p) (S_SAYS_FENCED(p) > r_peer_fenced[p])
inline r_hears_state()
{
	s_speaks();
	m_kind = STATE;
	m_path = 0;
	m_gen = 0;
	SAYS(SENDER);
	printf("channel: STATE{epoch %d, completed %d} reaches the receiver\n", s_epoch, s_completed);
	BEFORE(RECEIVER);
	r_learns();
	HEARS(RECEIVER);
	THROUGH(RECEIVER);
	r_told_completed = r_told_completed | m_set;
	r_check_loss()
}

/* SUSPECT of a path that is not in use: its fence is ordered, and not confirmed. */
#if defined(STEPWISE) || defined(SICK)
#define S_NAMES(p) (s_order[p] > r_order[p] && !(s_state == SUSPECTED && s_gen && s_path == (p)))
inline r_hears_suspect(p)
{
	s_speaks();
	m_kind = SUSPECT;
	m_path = p;
	m_gen = s_order[p];
	SAYS(SENDER);
	printf("channel: SUSPECT{%d.%d} reaches the receiver\n", p, m_gen);
	r_merge()
}
#define NAMED(p)                                                                                   \
	LATE_PACKETS(LANE && S_HEARD && !FINAL(s_state) && !FINAL(r_state) && S_NAMES(p),           \
		     r_hears_suspect(p))
#else
#define NAMED(p)
#endif

/* The answer to REBUILD{p.g} says that older generations of p are fenced. Like everything the
 * sender says it carries all its watermarks and `completed`: it can be the message that makes the
 * vectors agree. The probes then prove health. */
inline r_rebuilt(p)
{
	printf("channel: REBUILD{%d.%d} answered\n", p, NEWEST(r_qp[p]));
	BEFORE(RECEIVER);
	r_healthy[p] = NEWEST(r_qp[p]);
	DOES(RECEIVER, UP);
	s_speaks();
	m_kind = ANSWER;
	m_path = p;
	m_gen = r_healthy[p];
	SAYS(SENDER);
	if
	:: m_fenced_gen[p] < r_healthy[p] - 1 -> m_fenced_gen[p] = r_healthy[p] - 1
	:: else -> skip
	fi;
#ifdef MUT_REBUILD_COMPLETED
	m_set = 0;
#endif
	r_merge()
}

#define REBUILT(p)                                                                                 \
	LATE_EITHER(LANE && !FINAL(r_state) && R_UP(p) && r_healthy[p] != NEWEST(r_qp[p]) &&        \
			   FLOWS(p, NEWEST(r_qp[p])),                                              \
		   r_rebuilt(p))

/* ---- both --------------------------------------------------------------------------------- */

inline late_rs_arrives()
{
	m_kind = late_rs.kind;
	m_epoch = late_rs.epoch;
	m_path = late_rs.path;
	m_gen = late_rs.gen;
	m_set = late_rs.set;
	late_rs.kind = 0;
	late_rs.epoch = 0;
	late_rs.path = 0;
	late_rs.gen = 0;
	late_rs.set = 0;
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = S_UNDERSTANDS(j, late_rs.fenced_gen[j]);
		late_rs.fenced_gen[j] = 0
	};
	printf("channel: late %e{epoch %d, %d.%d} reaches the sender\n", m_kind, m_epoch, m_path, m_gen);
	if
	:: m_kind == REBUILD ->
		if
		:: !(s_qp[m_path] & GEN(m_gen)) && m_gen > s_order[m_path] &&
		   !HOLDS_ACTIVE(m_path) && !S_GONE(m_path) -> s_rebuild(m_path, m_gen)
		:: else -> skip
		fi
	:: else -> s_merge()
	fi
}

inline late_sr_arrives()
{
	m_kind = late_sr.kind;
	m_epoch = late_sr.epoch;
	m_path = late_sr.path;
	m_gen = late_sr.gen;
	m_set = late_sr.set;
	late_sr.kind = 0;
	late_sr.epoch = 0;
	late_sr.path = 0;
	late_sr.gen = 0;
	late_sr.set = 0;
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = late_sr.fenced_gen[j];
		late_sr.fenced_gen[j] = 0
#ifdef SICK
		; m_yielded_gen[j] = late_sr.yielded_gen[j];
		late_sr.yielded_gen[j] = 0
#endif
	};
	printf("channel: late %e{epoch %d} reaches the receiver\n", m_kind, m_epoch);
	r_merge()
}

/* ---- the end of a connection ---------------------------------------------------------------- */

#define NOT_ALL_FENCED(p) (s_order[p] < GENS)
#ifdef SICK
#define NOT_ALL_PEER_FENCED(p) (R_PEER_LEFT(p) < GENS)
/* It is said again, and does more than the first time. Where a device that is gone has used up
 * the generations, what is done is all that it says. */
#define BYE_LETS_GO	       (S_YIELDED || (r_done & ~(s_completed | s_told_done)))
#else
#define NOT_ALL_PEER_FENCED(p) (r_peer_fenced[p] < GENS)
#define BYE_LETS_GO	       false
#endif

/* BYE{done}: everything is fenced at the receiver, for good, and it has this. */
inline s_hears_bye()
{
	PEER_CLOSED(SENDER);
	printf("channel: BYE{done %d} reaches the sender\n", r_done);
	for (j : 0 .. PATHS - 1) {
		s_fence_upto(j, GENS)
	};
	if
	:: s_state == ACTIVE -> s_stop(SUSPECTED)
	:: else -> skip
	fi;
#ifndef MUT_BYE
	s_settle(r_done)
#endif
#ifdef SICK
	;
	s_let_go()
#endif
}

/* BYE{completed}: everything is fenced at the sender, for good, and NCCL was told this. */
inline r_hears_bye()
{
	PEER_CLOSED(RECEIVER);
	printf("channel: BYE{completed %d} reaches the receiver\n", s_completed);
	m_kind = BYE;
	m_epoch = 0;
#ifdef MUT_BYE
	m_set = 0;
#else
	m_set = s_completed;
#endif
	for (j : 0 .. PATHS - 1) {
		m_fenced_gen[j] = GENS
#ifdef SICK
		;
		if
		:: NO_FENCE(s_sick[j]) -> m_fenced_gen[j] = 0
		:: else -> skip
		fi;
		m_yielded_gen[j] = GENS
#endif
	};
	r_merge()
}

proctype Control()
{
end:	do
	LATE_EITHER(LANE && R_HEARD && !FINAL(s_state) && FENCE_IS_NEWS, s_hears(FENCE))
	LATE_EITHER(LANE && R_HEARD && !FINAL(s_state) && RESUME_IS_NEWS, s_hears(RESUME))
	EACH_PATH(REBUILD_ARRIVES)
	:: d_step {
		LANE && R_HEARD && !FINAL(s_state) && STATE_IS_NEWS -> s_hears_state();
		reset()
	}

	LATE_EITHER(LANE && S_HEARD && !FINAL(s_state) && !FINAL(r_state) && SENDER_HAS_NEWS,
		   r_hears())
	EACH_PATH(REBUILT)
	EACH_PATH(NAMED)
	:: d_step {
		LANE && S_HEARD && !FINAL(s_state) && !FINAL(r_state) && ANY_PATH(S_STATE_MORE) ->
		r_hears_state();
		reset()
	}

	LATE_EITHER(late_rs.kind != 0, late_rs_arrives())
	LATE_EITHER(late_sr.kind != 0, late_sr_arrives())

	:: d_step {
		LANE && R_HEARD && r_state == CLOSED && !FINAL(s_state) &&
		(ANY_PATH(NOT_ALL_FENCED) || s_state == ACTIVE || BYE_LETS_GO) ->
		s_hears_bye();
		reset()
	}
	LATE_PACKETS(LANE && S_HEARD && s_state == CLOSED && !FINAL(r_state) && r_done != ALL &&
			   ANY_PATH(NOT_ALL_PEER_FENCED),
		   r_hears_bye())
#ifndef MUT_ABORT
	:: d_step {
		LANE && R_HEARD && r_state == LATCHED && !FINAL(s_state) ->
		printf("channel: ABORT reaches the sender, latches\n");
		GAVE_UP(RECEIVER);
		s_end(LATCHED);
		reset()
	}
	:: d_step {
		LANE && S_HEARD && s_state == LATCHED && !FINAL(r_state) ->
		printf("channel: ABORT reaches the receiver, latches\n");
		GAVE_UP(SENDER);
		r_end(LATCHED);
		reset()
	}
#endif
	od
}
