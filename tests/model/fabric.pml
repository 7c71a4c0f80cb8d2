/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets. A bit in data_net or cts_net is a packet that lands if the QP it was sent to is still
 * up when it gets there; a packet to a QP that is fenced or gone is dropped by the hardware. Time
 * in flight is unbounded, and packets of one path may overtake each other (a path may be several
 * QPs). A packet that will never arrive is cleared when the path breaks or its poster fences.
 */

/* Completions of p.g are taken. A sender that has yielded takes none. A receiver goes on until the
 * path is settled, and looks for the last time then: until its peer is fenced, what lands is
 * acknowledged. */
#if defined(SICK) && !defined(MUT_YIELD_COMPLETIONS)
#define S_TAKES(p, g) (s_yielded_gen[p] < (g))
#else
#define S_TAKES(p, g) true
#endif
#ifdef MUT_YIELD_LAST_LOOK
#define R_TAKES(p, g) (r_order[p] < (g) || !r_sick[p])
#else
#define R_TAKES(p, g) true
#endif

/* A data WRITE reaches the receiver's memory, and its immediate the receiver's software. Those
 * two are one step: until software polls, only the hardware's ack can be seen by others, and it
 * is a step of its own. */
inline data_arrives(p, g, m)
{
#ifndef MUT_IMMEDIATE_LAST
	data_net[PG(p, g)] = data_net[PG(p, g)] & ~BIT(m);
#endif
	printf("fabric: WRITE of message %d lands in its buffer, over %d.%d\n", m, p, g);
	must(!(r_done & BIT(m)), late_write);
	if
	:: r_path == p && r_gen == g && R_TAKES(p, g) -> /* the active path, or the one that drains */
		r_done = r_done | BIT(m);
		unplaced = unplaced & ~BIT(m)
#ifdef NIC_LIES
	:: !(r_path == p && r_gen == g) && r_sick[p] == LIES && g <= r_order[p] ->
		unplaced = unplaced | BIT(m) /* acknowledged, and nobody looks */
#endif
	:: else -> skip /* completion of a retired QP: dropped */
	fi;
	if
	:: s_path == p && s_gen == g && S_TAKES(p, g) -> s_acked = s_acked | BIT(m)
	:: else -> skip
	fi
}

/* A CTS WRITE lands in the sender's ring. No software takes part, whatever state the sender is
 * in. An entry older than the sender's epoch will never be used; it is stored as "nothing", which
 * is what it amounts to, except that it has destroyed what the slot held. */
inline cts_arrives(p, g, m)
{
	cts_net[PG(p, g)] = cts_net[PG(p, g)] & ~BIT(m);
	printf("fabric: CTS{seq %d, epoch %d} lands in slot %d, over %d.%d\n", m,
	       cts_net_epoch[PG(p, g)], SLOT(m), p, g);
	s_ring_seq[SLOT(m)] = m + 1;
	s_ring_epoch[SLOT(m)] = cts_net_epoch[PG(p, g)];
#ifndef MUT_CTS_EPOCH
	if
	:: s_ring_epoch[SLOT(m)] < s_epoch ->
		s_ring_seq[SLOT(m)] = 0;
		s_ring_epoch[SLOT(m)] = 0
	:: else -> skip
	fi;
#endif
#ifdef COUNTS
	/* A count is true whatever becomes of the entry. */
	s_ring_count[SLOT(m)] =
		(cts_count[ENTRY_OF(p, g, m)] > s_count -> cts_count[ENTRY_OF(p, g, m)] : 0);
	cts_count[ENTRY_OF(p, g, m)] = 0;
#endif
	if
	:: cts_net[PG(p, g)] == 0 -> cts_net_epoch[PG(p, g)] = 0
	:: else -> skip
	fi
}

/* The ack reaches the sender: a success completion. */
inline ack_arrives(m)
{
	s_acked = s_acked & ~BIT(m);
	s_outstanding = s_outstanding & ~BIT(m);
	printf("sender: success completion of message %d\n", m);
#ifdef MODE_E2E
	s_complete_counted();
#else
	s_complete(BIT(m))
#endif
}

#ifdef COUNTS
/* The sender's read looks at what the receiver's software has noted, whatever that software does
 * meanwhile. One that finds nothing new is asked again, and is here the one that waits. */
inline ask_looks(p, g)
{
	ask_net[PG(p, g)] = 2 + PREFIX(r_done);
	printf("fabric: the sender's question finds count %d, over %d.%d\n", PREFIX(r_done), p, g)
}

inline ask_returns(p, g)
{
	j = ask_net[PG(p, g)] - 2;
	ask_net[PG(p, g)] = 0;
	printf("fabric: the answer, count %d, is back over %d.%d\n", j, p, g);
	s_counted(j)
}
#define ASK_OVER(p, g)                                                                             \
	:: d_step {                                                                                \
		ask_net[PG(p, g)] == 1 && FLOWS(p, g) && PREFIX(r_done) > s_count ->               \
		ask_looks(p, g)                                                                    \
	}                                                                                          \
	:: d_step { ask_net[PG(p, g)] > 1 && !FINAL(s_state) -> ask_returns(p, g); reset() }
#else
#define ASK_OVER(p, g)
#endif

#define DATA_ARRIVES(p, g, m)                                                                      \
	:: d_step { data_net[PG(p, g)] & BIT(m) -> data_arrives(p, g, m) }
#define CTS_ARRIVES(p, g, m)                                                                       \
	:: d_step { cts_net[PG(p, g)] & BIT(m) -> cts_arrives(p, g, m) }
#define PACKET_OVER(p, g, m) DATA_ARRIVES(p, g, m) CTS_ARRIVES(p, g, m)
#if GENS == 2
#define PACKET_ON(p, m) PACKET_OVER(p, 1, m) PACKET_OVER(p, 2, m)
#define ASK_ON(p)	ASK_OVER(p, 1) ASK_OVER(p, 2)
#elif GENS == 3
#define PACKET_ON(p, m) PACKET_OVER(p, 1, m) PACKET_OVER(p, 2, m) PACKET_OVER(p, 3, m)
#define ASK_ON(p)	ASK_OVER(p, 1) ASK_OVER(p, 2) ASK_OVER(p, 3)
#endif
#if PATHS == 2
#define PACKET(m) PACKET_ON(0, m) PACKET_ON(1, m)
#else
#define PACKET(m) PACKET_ON(0, m) PACKET_ON(1, m) PACKET_ON(2, m)
#endif
#define ACK(m) :: d_step { s_acked & BIT(m) -> ack_arrives(m) }

proctype Fabric()
{
end:	do
	EACH_MSG(PACKET)
	EACH_MSG(ACK)
	EACH_PATH(ASK_ON)
#if defined(MODE_E2E) && !defined(COUNTS)
	/* The count travels as a WRITE on the active path. It is a fact that never becomes wrong,
	 * so a late one is no different from one that was read late. */
	:: d_step {
		r_state == ACTIVE && FLOWS(r_path, r_gen) && s_count < PREFIX(r_done) &&
		!FINAL(s_state) ->
		s_count = PREFIX(r_done);
		printf("fabric: count %d lands\n", s_count);
		s_complete_counted()
	}
#endif
	od
}
