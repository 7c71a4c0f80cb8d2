/* SPDX-License-Identifier: Apache-2.0 */
/* What can go wrong, at any time, FAULTS times in a run. */

#define RUNNING (!FINAL(s_state) || !FINAL(r_state))

inline fault()
{
	faults--
}

/* What is in flight on a path that breaks may still arrive, or not. */
inline net_breaks(p)
{
	if
	:: !keep_packets ->
		data_clear_upto(p, GENS);
		cts_clear_upto(p, GENS)
	:: else -> skip
	fi
}

/* The sender hears of the fault through an event at once. (The receiver may fence a path that does
 * not flow at any time anyway: there is no clock that tells an event from a soft timeout.) */
inline tell_sender(p)
{
	if
	:: !FINAL(s_state) && S_UP(p) -> s_trigger(p)
	:: else -> skip
	fi
}
#ifdef NIC_LOST
inline tell_receiver(p)
{
	if
	:: !FINAL(r_state) && R_UP(p) -> r_trigger(p)
	:: else -> skip
	fi
}
#endif

/* The path is gone for good: NIC, cable or switch. */
inline path_dies(p)
{
	fault();
	printf("fault: path %d dies\n", p);
	dead = dead | ON_THE_PORTS_OF(p);
	net_breaks(p)
#ifdef IN_PLACE
	;
	if
	:: p < 2 -> net_breaks(1 - p)
	:: else -> skip
	fi
#endif
}

#define DIES(p)                                                                                    \
	LATE_PACKETS(faults && RUNNING && !(dead & BIT(p)), path_dies(p))                          \
	LATE_EITHER(faults && RUNNING && !(dead & BIT(p)), path_dies(p); tell_sender(p))

/* This generation passes nothing any more, a new one will: a flap, a wedged or fatal QP. */
inline path_breaks(p)
{
	fault();
	printf("fault: path %d breaks\n", p);
	broken[p] = broken[p] | s_qp[p] | r_qp[p];
	net_breaks(p)
}

#define CAN_BREAK(p)                                                                               \
	(faults && RUNNING && !(dead & BIT(p)) && ((s_qp[p] | r_qp[p]) & ~broken[p]))
#define BREAKS(p)                                                                                  \
	LATE_PACKETS(CAN_BREAK(p), path_breaks(p))                                                 \
	LATE_EITHER(CAN_BREAK(p), path_breaks(p); tell_sender(p))

/* An alarm about a path that is well: a soft timeout, a liveness session that expired, an
 * operator, failback. */
inline false_alarm()
{
	fault();
	printf("fault: false alarm\n")
}

#define FALSE_ALARM(p)                                                                             \
	LATE_EITHER(faults && !FINAL(s_state) && S_UP(p), false_alarm(); s_trigger(p))              \
	LATE_EITHER(faults && !FINAL(r_state) && R_UP(p), false_alarm(); r_trigger(p))

/* The receiver's NIC acknowledged a write and dies before it is in memory. */
#define UNPLACED(m)                                                                                \
	:: d_step {                                                                                \
		faults && s_state == ACTIVE && (data_net[PG(s_path, s_gen)] & BIT(m)) ->           \
		fault();                                                                           \
		printf("fault: message %d acknowledged, not placed; path %d breaks\n", m, s_path); \
		unplaced = unplaced | BIT(m);                                                      \
		s_acked = s_acked | BIT(m);                                                        \
		data_net[PG(s_path, s_gen)] = 0;                                                   \
		broken[s_path] = broken[s_path] | GEN(s_gen)                                       \
	}

#define PATH_FAULTS(p)                                                                             \
	DIES(p)                                                                                    \
	BREAKS(p)                                                                                  \
	FALSE_ALARM(p)

#ifdef SICK
/* One end of each path stops when it says so: that is the assumption. */
#ifdef MUT_LIES_BOTH
#define MAY_BE(peer, sick) true
#else
#define MAY_BE(peer, sick) (!(peer) || ((peer) != LIES && (sick) != LIES))
#endif

#define FALLS_SICK(p, sick, what)                                                                  \
	:: d_step {                                                                                \
		sick_left && !FINAL(s_state) && !s_sick[p] && s_qp[p] && MAY_BE(r_sick[p], sick) -> \
		sick_left--;                                                                       \
		printf("fault: the sender's NIC of path %d: %e\n", p, what);                       \
		s_sick[p] = sick                                                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		sick_left && !FINAL(r_state) && !r_sick[p] && r_qp[p] && MAY_BE(s_sick[p], sick) -> \
		sick_left--;                                                                       \
		printf("fault: the receiver's NIC of path %d: %e\n", p, what);                     \
		r_sick[p] = sick                                                                   \
	}

/* The command is through: the fence is confirmed, and whoever has decided without it has decided. */
#define RETURNS(p)                                                                                 \
	LATE_PACKETS(!FINAL(s_state) && S_RETURNS(p) && !IS(s_sick[p], LOST) &&                    \
			     s_fenced_gen[p] < s_order[p],                                         \
		     s_sick[p] = 0; s_confirms(p))                                                 \
	:: d_step {                                                                                \
		!FINAL(r_state) && R_RETURNS(p) && !IS(r_sick[p], LOST) &&                         \
		r_fenced_gen[p] < r_order[p] ->                                                    \
		r_sick[p] = 0;                                                                     \
		r_confirms(p);                                                                     \
		reset()                                                                            \
	}

#ifdef NIC_SILENT
#define SILENCE(p)                                                                                 \
	FALLS_SICK(p, SILENT, silent)                                                              \
	FALLS_SICK(p, FOR_NOW(SILENT), silent_for_now)
#else
#define SILENCE(p)
#endif
#ifdef NIC_BUSY
#define REFUSAL(p)                                                                                 \
	FALLS_SICK(p, BUSY, refuses)                                                               \
	FALLS_SICK(p, FOR_NOW(BUSY), refuses_for_now)
#else
#define REFUSAL(p)
#endif
#ifdef NIC_LIES
#define LIE(p) FALLS_SICK(p, LIES, lies)
#else
#define LIE(p)
#endif

#ifdef NIC_LOST
/* The queue pairs are destroyed and the event has come: that is a fence. The path is gone for good. */
inline s_is_gone(p)
{
	printf("fault: the queue pairs of the sender's path %d are gone, and it is told\n", p);
	dead = dead | BIT(p);
	net_breaks(p);
	s_sick[p] = GONE;
	cts_clear_upto(p, GENS);
	if
	:: s_fenced_gen[p] < s_order[p] -> s_confirms(p)
	:: else -> skip
	fi;
	tell_sender(p)
}

inline r_is_gone(p)
{
	printf("fault: the queue pairs of the receiver's path %d are gone, and it is told\n", p);
	dead = dead | BIT(p);
	net_breaks(p);
	r_sick[p] = GONE;
	data_clear_upto(p, GENS);
	if
	:: r_fenced_gen[p] < r_order[p] -> r_confirms(p)
	:: else -> skip
	fi;
	tell_receiver(p)
}

/* A device that is taken away goes in this order. An end may hear of it from a command's EIO. */
#define LOSS(p)                                                                                    \
	FALLS_SICK(p, LOST, is_never_gone)                                                         \
	FALLS_SICK(p, FOR_NOW(LOST), is_taken_away)                                                \
	LATE_EITHER(IS(s_sick[p], LOST) && !FINAL(s_state) && S_UP(p), s_trigger(p))                \
	LATE_EITHER(IS(r_sick[p], LOST) && !FINAL(r_state) && R_UP(p), r_trigger(p))                \
	LATE_EITHER(!FINAL(s_state) && S_RETURNS(p) && IS(s_sick[p], LOST), s_is_gone(p))           \
	LATE_EITHER(!FINAL(r_state) && R_RETURNS(p) && IS(r_sick[p], LOST), r_is_gone(p))
#else
#define LOSS(p)
#endif

#define SICKNESS(p)                                                                                \
	SILENCE(p)                                                                                 \
	REFUSAL(p)                                                                                 \
	LOSS(p)                                                                                    \
	LIE(p)                                                                                     \
	RETURNS(p)
#endif

proctype Faults()
{
end:	do
	EACH_PATH(PATH_FAULTS)
#ifdef SICK
	EACH_PATH(SICKNESS)
#endif
	EACH_MSG(UNPLACED)

	:: d_step {
		faults && RUNNING && socket ->
		fault();
		printf("fault: the bootstrap socket breaks\n");
		socket = false
	}
	/* A bug, or a fence that cannot be confirmed: an end gives up. */
	:: d_step {
		faults && !FINAL(s_state) ->
		fault();
		printf("fault: the sender gives up, latches\n");
		s_end(LATCHED);
		reset()
	}
	:: d_step {
		faults && !FINAL(r_state) ->
		fault();
		printf("fault: the receiver gives up, latches\n");
		r_end(LATCHED);
		reset()
	}
	od
}
