/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two active paths of one connection: split, shed, mend.
 *
 * A message is cut into up to two stripes, each of them carried by a path of its own. Losing one path
 * stops that path only: both ends fence its generation, the receiver states what it has of it (SHED),
 * the sender posts the rest on what is left and says so (MENDED), and the path is built again. Losing
 * the last one is the failover that failover.pml models, and is one step here: all is fenced, all is
 * replayed.
 *
 * Rows go out on one path, the lead. With CONTROL it is named in each of them, takes what is mended, and
 * its loss is that failover, too, whatever is left. With TURN it is so until it is lost: then the other one
 * takes its turn, at the sender when it mends, and at the receiver when that is heard, and each row is
 * written again. That is what the plugin does, and CONTROL with a peer that knows no turns. Without either,
 * rows move at once to what is left. docs/rails-protocol.md says why that is sound, and what is not
 * modelled.
 *
 * With STALL, beside the faults, what was lost of the other path gives no answer for good: the NIC of one
 * end does not confirm its fence, or nobody notices that it passes nothing any more. What has no stripe
 * there does not wait for it.
 *
 * MUT_<RULE> removes one rule; rails-mutants names the property that must then fail.
 */

#ifndef FAULTS
#define FAULTS 1 /* faults and false alarms in one run */
#endif
#define MSGS 2
#ifndef WINDOW
#define WINDOW 2 /* rows of the ring; with 1 the second message uses the row of the first again */
#endif
#define GENS (FAULTS + 1) /* a fault costs at most one generation of a path */

#define BIT(n)	     (1 << (n))
#define PG(p, g)     ((p)*GENS + (g)-1)   /* index of path.generation */
#define ST(m, b)     BIT(2 * (m) + (b))   /* stripe b of message m, in a set of stripes */
#define OF(m)	     (3 << (2 * (m)))     /* both stripes of message m */
#define SLOT(m)	     ((m) % WINDOW)
#define MASK_OF(m)   (s_mask & OF(m))
#define KEY(m, p)    ((m)*2 + (p))
#define ROW(p, g, m) (PG(p, g) * MSGS + (m))
#define PREFIX(set)  (((set)&1) == 0 -> 0 : (((set)&2) == 0 -> 1 : 2))
#define ALL	     (BIT(MSGS) - 1)

/* A path at one end. */
#define UP	 0
#define DRAINING 1 /* its fence is ordered: nothing is posted any more */
#define FENCED	 2 /* ... and confirmed */

mtype = { late_write, torn_message, false_loss, wrong_key, early_release, lost_message, stuck, stall };

/* ---- the sender */
byte s_gen[2] = 1;
byte s_st[2];
byte s_mended[2];	   /* generation that is mended: what MENDED says */
byte s_mask;		   /* stripes that the messages of this epoch were cut into */
byte s_acked;		   /* stripes that are settled */
byte s_on[2];		   /* stripes by the path that carries them now */
byte s_wait;		   /* stripes to be posted again that wait for a key */
byte s_key[MSGS * 2];	   /* generation of each path that the message's row named; 0: none */
byte s_completed;	   /* messages NCCL was told are sent */
byte s_ring[WINDOW];	   /* the ring: message + 1, */
byte s_ring_key[WINDOW * 2]; /* and the generations named */
byte s_out[2 * GENS];	   /* stripes whose memory the hardware may still read */
byte s_qp;		   /* queue pairs that are up, by path.generation */
bool latched;		   /* the sender found a message lost, and said so */
#ifdef TURN
byte s_lead;
byte s_ring_of[WINDOW]; /* the lead that a row came on: its keys lie as that has it */
byte s_key_of[MSGS];
#endif

/* ---- the receiver */
byte r_gen[2] = 1;
byte r_st[2];
byte r_lead;
byte r_mask; /* as learnt from notices */
byte r_seen;
byte r_done;
byte r_issued;		/* messages whose row was written in this epoch */
byte r_row_at[MSGS];	/* path.generation on which the last copy of it went out, + 1 */
byte r_row_key[MSGS * 2]; /* generations that it named */
byte r_qp;
byte sh_gen[2];		/* SHED as it was said last, and may be heard at any time, any number of times: */
byte sh_done;		/* generations that have drained, what is done, */
byte sh_seen;		/* what is seen */

/* ---- the fabric */
byte broken;		/* path.generations that pass nothing new */
byte net[2 * GENS];	/* stripes under way */
byte landed[2 * GENS];	/* ... written to memory, their notices not polled */
byte acks[2 * GENS];	/* ... whose acknowledgement is under way */
byte placed;		/* stripes that are in the receiver's memory */
byte unplaced;		/* stripes acknowledged that never will be, by that acknowledgement */
byte row_net[2 * GENS]; /* rows under way */
byte row_key[2 * GENS * MSGS * 2];
byte faults = FAULTS;
#ifdef STALL
byte silent; /* bits of SILENT, one at most: what never answers */
#endif

#ifdef MUT_MASK_CHANGES
byte imm_mask[MSGS]; /* the mask in the notice of what is mended */
#endif

#ifdef SHORTEST /* which goes by breadth, where spin allows no hidden variables */
#define SCRATCH
#else
#define SCRATCH hidden
#endif
SCRATCH byte i;
SCRATCH byte x;

#include "properties.pml"

#define USES(p, at) ((at) > (p)*GENS && (at) <= ((p) + 1) * GENS) /* at: path.generation + 1 */
/* Whether traffic goes on: the control rail is there. What is mended goes there. */
#ifdef CONTROL
#define S_GOES_ON(p)   (s_st[r_lead] == UP)
#define R_GOES_ON(p)   (r_st[r_lead] == UP)
#define TAKES_MENDED(p) ((p) == r_lead)
#define NAMES_LEAD(set) ((set) & BIT(r_lead))
#elif defined(TURN)
/* Of either of two: the other one is there. */
#define S_GOES_ON(p)   (s_st[1 - (p)] == UP)
#define R_GOES_ON(p)   (r_st[1 - (p)] == UP)
#define TAKES_MENDED(p) ((p) == s_lead)
#define NAMES_LEAD(set) ((set) & BIT(r_lead))
#else
#define S_GOES_ON(p)   true
#define R_GOES_ON(p)   true
#define TAKES_MENDED(p) true
#define NAMES_LEAD(set) true
#endif

/* ---- what never answers */

#ifdef STALL
#if !defined(TURN) && !defined(CONTROL)
#error "STALL is about a path that is not the control rail: with TURN or CONTROL"
#endif
#define AT_SENDER(p)   BIT(p)	    /* its NIC does not confirm the fence of the path, */
#define AT_RECEIVER(p) BIT(2 + (p)) /* or the receiver's does not, */
#define UNNOTICED(p)   BIT(4 + (p)) /* or neither end hears that it passes nothing */
#define SILENT(what)   (silent & (what))
#ifdef TURN
#define LEADS(p) ((p) == r_lead || (p) == s_lead)
#define WORKS(p) (r_lead == (p) && s_lead == (p) && IS_WHOLE(p))
#else
#define LEADS(p) ((p) == r_lead)
#define WORKS(p) (r_lead == (p) && IS_WHOLE(p))
#endif
#define IS_WHOLE(p) (s_st[p] == UP && r_st[p] == UP && !(broken & BIT(PG(p, s_gen[p]))))
#define FALLS_SILENT(p)                                                                            \
	:: d_step {                                                                                \
		!silent && !LEADS(p) && s_st[p] == DRAINING ->                                     \
		reach(sender_is_silent);                                                           \
		silent = AT_SENDER(p)                                                              \
	}                                                                                          \
	:: d_step {                                                                                \
		!silent && !LEADS(p) && r_st[p] == DRAINING ->                                     \
		reach(receiver_is_silent);                                                         \
		silent = AT_RECEIVER(p)                                                            \
	}                                                                                          \
	:: d_step {                                                                                \
		!silent && !LEADS(p) && s_st[p] == UP && r_st[p] == UP &&                          \
		(broken & BIT(PG(p, s_gen[p]))) ->                                                 \
		reach(loss_is_unnoticed);                                                          \
		silent = UNNOTICED(p)                                                              \
	}
#define IS_SILENT(p) SILENT(AT_SENDER(p) | AT_RECEIVER(p) | UNNOTICED(p))
/* Its stripe on that path is not there; and with one row the next message waits for it. */
#define HELD(m, p, there) \
	((MASK_OF(m) & s_on[p] & ~(there)) || (WINDOW == 1 && (m) == 1 && !(r_done & 1)))
#define COMES_THROUGH(m, p)                                                                        \
	(((s_completed & BIT(m)) || HELD(m, p, s_acked)) &&                                        \
	 ((r_done & BIT(m)) || HELD(m, p, r_seen)))
#define NOTHING_STALLS(p)                                                                          \
	(!IS_SILENT(p) || !WORKS(1 - (p)) || (COMES_THROUGH(0, p) && COMES_THROUGH(1, p)))
#define MAY_WAIT (silent != 0)
#else
#define SILENT(what)	false
#define FALLS_SILENT(p)
#define MAY_WAIT false
#endif

/* The sender has fenced what the last copy of this row went out on, and the receiver was told. */
#ifdef MUT_LEAD_ROWS
#define COVERED(at) (!(r_qp & BIT((at)-1)))
#else
#define COVERED(at) (!(s_qp & BIT((at)-1)))
#endif
#define ROW_LANDED(m) (!(row_net[r_row_at[m] - 1] & BIT(m)) && !(broken & BIT(r_row_at[m] - 1)))
#define LEAD_AT	      (PG(r_lead, r_gen[r_lead]) + 1)
#if defined(MUT_ROW_ORDER) || defined(TURN) /* in the order of one path, or what that was is fenced */
#define ROW_IS_FREE(m) true
#else
#define ROW_IS_FREE(m)                                                                             \
	((m) < WINDOW || r_row_at[(m)-WINDOW] == 0 || r_row_at[(m)-WINDOW] == LEAD_AT ||           \
	 ROW_LANDED((m)-WINDOW) || COVERED(r_row_at[(m)-WINDOW]))
#endif
#define WANTED(m) ((m) < WINDOW || (r_done & BIT((m)-WINDOW)))
#define LIVE_SET  ((r_st[0] == UP -> 1 : 0) + (r_st[1] == UP -> 2 : 0))
/* A path that was built again since is not the one that the row names. */
#ifdef MUT_ROW_NAMES_SLOTS
#define STILL_NAMES(m, p) (r_st[p] == UP && r_row_key[KEY(m, p)])
#else
#define STILL_NAMES(m, p) (r_st[p] == UP && r_row_key[KEY(m, p)] == r_gen[p])
#endif
/* A row is written again when its last copy went out on what the sender has fenced, or names nothing
 * that is left. */
#if defined(MUT_ROW_AGAIN) || defined(TURN) /* which writes them again when it turns */
#define OUTDATED(m) false
#else
#define OUTDATED(m)                                                                                \
	((r_issued & BIT(m)) && !(r_done & BIT(m)) &&                                              \
	 ((r_row_at[m] != LEAD_AT && COVERED(r_row_at[m]) && !(r_qp & BIT(r_row_at[m] - 1))) ||    \
	  (!STILL_NAMES(m, 0) && !STILL_NAMES(m, 1) &&                                             \
	   (ROW_LANDED(m) || COVERED(r_row_at[m])))))
#endif

inline write_row(m, set)
{
	reach_if((m) >= WINDOW, reuses_row);
	r_issued = r_issued | BIT(m);
	r_row_at[m] = LEAD_AT;
	r_row_key[KEY(m, 0)] = ((set)&1 -> r_gen[0] : 0);
	r_row_key[KEY(m, 1)] = ((set)&2 -> r_gen[1] : 0);
	x = LEAD_AT - 1;
	row_net[x] = row_net[x] | BIT(m);
	row_key[(x * MSGS + (m)) * 2] = ((set)&1 -> r_gen[0] : 0);
	row_key[(x * MSGS + (m)) * 2 + 1] = ((set)&2 -> r_gen[1] : 0);
	x = 0
}

inline row_lands(p, g, m)
{
	row_net[PG(p, g)] = row_net[PG(p, g)] & ~BIT(m);
	s_ring[SLOT(m)] = (m) + 1;
#ifdef TURN
	s_ring_of[SLOT(m)] = p;
#endif
	s_ring_key[SLOT(m) * 2] = row_key[ROW(p, g, m) * 2];
	s_ring_key[SLOT(m) * 2 + 1] = row_key[ROW(p, g, m) * 2 + 1];
	row_key[ROW(p, g, m) * 2] = 0;
	row_key[ROW(p, g, m) * 2 + 1] = 0
}

/* ---- the sender's steps */

#ifdef MUT_KEY_GENERATION
#define NAMES(k, p) ((k) != 0)
#else
#define NAMES(k, p) ((k) == s_gen[p])
#endif
#ifdef MUT_POST_WAITS /* for a shed to end */
#define S_SHEDS (s_st[0] != UP || s_st[1] != UP)
#else
#define S_SHEDS false
#endif
#ifdef TURN
/* The lead's own key is the one that has no generation beside it: what a row is of says which. */
#define S_MAY_POST (s_st[s_lead] == UP && !S_SHEDS)
#define KEYED(k0, k1, p) \
	((p) == s_lead -> ((p) == 0 -> (k0) : (k1)) != 0 : NAMES(((p) == 0 -> (k0) : (k1)), p))
#elif defined(MUT_NOT_NOW)
#define S_MAY_POST true
#define KEYED(k0, k1, p) (NAMES((p) == 0 -> (k0) : (k1), p) || \
	!((s_st[0] == UP && NAMES(k0, 0)) || (s_st[1] == UP && NAMES(k1, 1))))
#else
#define S_MAY_POST (!S_SHEDS)
#define KEYED(k0, k1, p) (NAMES(((p) == 0 -> (k0) : (k1)), p))
#endif
#define MAY(m, p) (S_MAY_POST && s_st[p] == UP && KEYED(s_key[KEY(m, 0)], s_key[KEY(m, 1)], p))
#define RING_MAY(m, p)                                                                             \
	(S_MAY_POST && s_st[p] == UP && KEYED(s_ring_key[SLOT(m) * 2], s_ring_key[SLOT(m) * 2 + 1], p))

inline post(m, set, p)
{
	must(s_key[KEY(m, p)] == s_gen[p], wrong_key);
#ifdef TURN
	must(s_key_of[m] == s_lead, wrong_key);
#endif
	reach_if(s_gen[p] > 1, posts_on_rebuilt);
	s_on[p] = s_on[p] | (set);
	s_on[1 - (p)] = s_on[1 - (p)] & ~(set);
	x = PG(p, s_gen[p]);
	s_out[x] = s_out[x] | (set);
	if :: !(broken & BIT(x)) -> net[x] = net[x] | (set) :: else -> skip fi;
	x = 0
}

inline take_keys(m)
{
#ifdef TURN
	s_key_of[m] = s_ring_of[SLOT(m)];
#endif
	s_key[KEY(m, 0)] = s_ring_key[SLOT(m) * 2];
	s_key[KEY(m, 1)] = s_ring_key[SLOT(m) * 2 + 1]
}

#ifdef MUT_COMPLETE_WAITS /* for a shed to end */
#define S_MAY_COMPLETE (s_st[0] == UP && s_st[1] == UP)
#else
#define S_MAY_COMPLETE true
#endif

inline complete_if_acked(m)
{
	if
	:: !latched && !(s_completed & BIT(m)) && MASK_OF(m) && (MASK_OF(m) & ~s_acked) == 0 &&
	   S_MAY_COMPLETE
	   ->
		for (i : 0 .. 2 * GENS - 1) {
			must((s_out[i] & OF(m)) == 0, early_release)
		};
		must((r_done & BIT(m)) || (MASK_OF(m) & ~(placed | unplaced)) == 0, lost_message);
		s_completed = s_completed | BIT(m);
		reach_if(s_completed == ALL, completes_all);
		i = 0
	:: else -> skip
	fi
}

inline mend_one(m, b, p)
{
	if
	:: (s_on[p] & s_mask & ST(m, b)) && !(s_wait & ST(m, b)) ->
		if
		:: sh_done & BIT(m) ->
			reach(mends_done);
#ifdef MUT_DONE_RELEASES
			s_acked = s_acked | MASK_OF(m)
#else
			s_acked = s_acked | ST(m, b)
#endif
		:: !(sh_done & BIT(m)) && (sh_seen & ST(m, b)) ->
			reach(mends_seen);
			s_acked = s_acked | ST(m, b)
		:: !(sh_done & BIT(m)) && !(sh_seen & ST(m, b)) ->
			if
			:: s_completed & BIT(m) ->
				must(unplaced & ST(m, b), false_loss);
				reach(latches);
				latched = true
			:: else ->
				if
				:: s_acked & ST(m, b) -> reach(mends_unplaced)
				:: else -> reach(mends_lost)
				fi;
				unplaced = unplaced & ~ST(m, b);
				s_acked = s_acked & ~ST(m, b);
				s_wait = s_wait | ST(m, b);
#ifdef MUT_MASK_CHANGES
				imm_mask[m] = ST(m, b)
#endif
			fi
		fi
	:: else -> skip
	fi
}

#ifdef TURN
/* The other path is the lead: no row of before counts, and no key that was taken from one. */
inline s_turns(p)
{
	reach(turns);
	s_lead = 1 - (p);
#ifndef MUT_TURN_ROWS
	for (i : 0 .. WINDOW - 1) {
		s_ring[i] = 0
	};
#endif
#ifndef MUT_TURN_KEYS
	for (i : 0 .. MSGS * 2 - 1) {
		s_key[i] = 0
	};
	for (i : 0 .. MSGS - 1) {
		s_key_of[i] = 0
	};
#endif
	i = 0
}

inline r_turns(p)
{
	reach(turned);
	r_lead = 1 - (p);
#ifndef MUT_TURN_AGAIN
	r_issued = r_issued & r_done
#endif
}
#endif

inline mend(p)
{
#ifdef MUT_LOSS_GLOBAL
	/* Windows are compared, whatever path the rest is on. */
	if
	:: s_completed & ~sh_done -> must((MASK_OF(0) | MASK_OF(1)) & unplaced, false_loss)
	:: else -> skip
	fi;
#endif
	mend_one(0, 0, p);
	mend_one(0, 1, p);
	mend_one(1, 0, p);
	mend_one(1, 1, p);
	s_mended[p] = s_gen[p];
#ifdef TURN
	if
	:: s_lead == p -> s_turns(p)
	:: else -> skip
	fi;
#endif
	complete_if_acked(0);
	complete_if_acked(1)
}

#ifdef MUT_MEND_UNFENCED
#define S_DRAINED(p) (s_st[p] != UP)
#else
#define S_DRAINED(p) (s_st[p] == FENCED)
#endif
#ifdef MUT_MEND_EARLY
#define NEWS(p) (s_mended[p] < s_gen[p] && S_DRAINED(p))
#elif defined(MUT_STATEMENT_ONCE)
#define NEWS(p) (sh_gen[p] && s_st[p] == FENCED && s_mended[p] < s_gen[p])
#else
#define NEWS(p) (sh_gen[p] == s_gen[p] && s_mended[p] < s_gen[p] && S_DRAINED(p))
#endif

/* ---- the receiver's steps */

inline notice(m, b)
{
	if
	:: !(r_seen & ST(m, b)) && !(r_done & BIT(m)) ->
		r_seen = r_seen | ST(m, b);
#ifdef MUT_MASK_CHANGES
		r_mask = (r_mask & ~OF(m)) | (imm_mask[m] -> imm_mask[m] : MASK_OF(m));
		if
		:: (r_mask & OF(m) & ~r_seen) == 0 ->
#else
		r_mask = r_mask | MASK_OF(m);
		if
		:: (r_seen & OF(m)) == (r_mask & OF(m)) ->
#endif
			must((MASK_OF(m) & ~placed) == 0, torn_message);
			r_done = r_done | BIT(m)
		:: else -> skip
		fi
	:: else -> skip
	fi
}

inline notices_of(at)
{
	if :: landed[at] & ST(0, 0) -> notice(0, 0) :: else -> skip fi;
	if :: landed[at] & ST(0, 1) -> notice(0, 1) :: else -> skip fi;
	if :: landed[at] & ST(1, 0) -> notice(1, 0) :: else -> skip fi;
	if :: landed[at] & ST(1, 1) -> notice(1, 1) :: else -> skip fi;
	landed[at] = 0
}

inline lands(p, g, m, b)
{
	net[PG(p, g)] = net[PG(p, g)] & ~ST(m, b);
	must(!(r_done & BIT(m)), late_write);
	placed = placed | ST(m, b);
	landed[PG(p, g)] = landed[PG(p, g)] | ST(m, b);
	acks[PG(p, g)] = acks[PG(p, g)] | (s_out[PG(p, g)] & ST(m, b))
}

inline ack(p, g, m, b)
{
	acks[PG(p, g)] = acks[PG(p, g)] & ~ST(m, b);
	s_out[PG(p, g)] = s_out[PG(p, g)] & ~ST(m, b);
	if
	:: s_gen[p] == g && (s_on[p] & ST(m, b)) && !(s_wait & ST(m, b)) -> s_acked = s_acked | ST(m, b)
	:: else -> skip
	fi;
	complete_if_acked(m)
}

inline shut(p, g, keep)
{
	if :: !(keep) -> net[PG(p, g)] = 0; :: else -> skip fi;
	s_out[PG(p, g)] = 0;
	acks[PG(p, g)] = 0;
	for (i : 0 .. MSGS * 2 - 1) { row_key[PG(p, g) * MSGS * 2 + i] = 0 };
	i = 0;
	row_net[PG(p, g)] = 0;
	s_qp = s_qp & ~BIT(PG(p, g))
}

inline drain(p, g)
{
	net[PG(p, g)] = 0;
	notices_of(PG(p, g));
	r_qp = r_qp & ~BIT(PG(p, g))
}

inline raise(p)
{
	s_gen[p] = s_gen[p] + 1;
	r_gen[p] = r_gen[p] + 1;
	s_st[p] = UP;
	r_st[p] = UP;
	s_qp = s_qp | BIT(PG(p, s_gen[p]));
	r_qp = r_qp | BIT(PG(p, r_gen[p]))
}

#define UNFINISHED_ON(p) (s_on[p] & s_mask & ~((s_completed & r_done & 1 -> 3 : 0) | \
	(s_completed & r_done & 2 -> 12 : 0)))
#ifdef MUT_FENCE_ONE
#define ALL_FENCED ((s_st[r_lead] == FENCED && r_st[r_lead] == FENCED))
#else
#define ALL_FENCED (s_st[0] == FENCED && s_st[1] == FENCED && r_st[0] == FENCED && r_st[1] == FENCED)
#endif

/* All is fenced, all that is not done is replayed: one step here, failover.pml there. */
inline epoch(p)
{
	reach(new_epoch);
	if
	:: s_completed & ~r_done ->
		must(unplaced, false_loss);
		latched = true
	:: else -> skip
	fi;
	for (i : 0 .. MSGS - 1) {
		if
		:: r_done & BIT(i) -> s_acked = s_acked | OF(i)
		:: !(r_done & BIT(i)) && !latched ->
			s_mask = s_mask & ~OF(i);
			s_acked = s_acked & ~OF(i);
			placed = placed & ~OF(i);
			unplaced = unplaced & ~OF(i);
			s_on[0] = s_on[0] & ~OF(i);
			s_on[1] = s_on[1] & ~OF(i);
			s_key[KEY(i, 0)] = 0;
			s_key[KEY(i, 1)] = 0;
#ifndef MUT_EPOCH_SEEN
			r_seen = r_seen & ~OF(i);
			r_mask = r_mask & ~OF(i);
#endif
			r_row_at[i] = 0;
			r_row_key[KEY(i, 0)] = 0;
			r_row_key[KEY(i, 1)] = 0;
			r_issued = r_issued & ~BIT(i)
		:: else -> skip
		fi
	};
	i = 0;
	s_wait = 0;
	s_mended[0] = s_gen[0];
	s_mended[1] = s_gen[1];
	if
	:: !latched ->
		raise(p);
		r_lead = p;
#ifdef TURN
		s_lead = p;
		for (i : 0 .. WINDOW - 1) {
			s_ring[i] = 0
		};
		i = 0
#endif
	:: else -> skip
	fi;
	complete_if_acked(0);
	complete_if_acked(1)
}

#define FINISHED (latched || (s_completed == ALL && r_done == ALL))

#ifdef MUT_ROWS_WAIT /* for a shed to end */
#define R_MAY_WRITE (r_st[0] == UP && r_st[1] == UP)
#else
#define R_MAY_WRITE true
#endif
#define WRITE_ROW(m, set)                                                                          \
	:: d_step {                                                                                \
		!latched && R_MAY_WRITE && !(r_issued & BIT(m)) && WANTED(m) && r_st[r_lead] == UP &&             \
		((set) & ~LIVE_SET) == 0 && NAMES_LEAD(set) && ROW_IS_FREE(m) &&                   \
		((m) == 0 || (r_issued & 1)) ->                                                    \
		write_row(m, set)                                                                  \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && r_st[r_lead] == UP && OUTDATED(m) && ((set) & ~LIVE_SET) == 0 &&       \
		NAMES_LEAD(set) ->                                                                 \
		reach(writes_again);                                                               \
		write_row(m, set)                                                                  \
	}
#define IN_RING(m) (s_ring[SLOT(m)] == (m) + 1 && !latched)
#define POST_ONE(m, b)                                                                             \
	:: d_step {                                                                                \
		IN_RING(m) && MASK_OF(m) == 0 && !(s_completed & BIT(m)) && RING_MAY(m, b) &&      \
		((m) == 0 || (s_mask & OF(0)) || (s_completed & 1)) ->                             \
		take_keys(m);                                                                      \
		s_mask = s_mask | ST(m, b);                                                        \
		post(m, ST(m, b), b)                                                               \
	}
#define POST_BOTH(m)                                                                               \
	:: d_step {                                                                                \
		IN_RING(m) && MASK_OF(m) == 0 && !(s_completed & BIT(m)) && RING_MAY(m, 0) &&      \
		RING_MAY(m, 1) && ((m) == 0 || (s_mask & OF(0)) || (s_completed & 1)) ->           \
		reach(splits);                                                                     \
		take_keys(m);                                                                      \
		s_mask = s_mask | OF(m);                                                           \
		post(m, ST(m, 0), 0);                                                              \
		post(m, ST(m, 1), 1)                                                               \
	}
#ifdef MUT_RENEW
#define RENEW(m)
#else
#define RENEW(m)                                                                                   \
	:: d_step {                                                                                \
		IN_RING(m) && (s_wait & OF(m)) && !MAY(m, 0) && !MAY(m, 1) &&                      \
		(RING_MAY(m, 0) || RING_MAY(m, 1)) ->                                              \
		reach(renews);                                                                     \
		take_keys(m)                                                                       \
	}
#endif
#define POST_AGAIN(m, b, p)                                                                        \
	:: d_step {                                                                                \
		!latched && (s_wait & ST(m, b)) && MAY(m, p) && TAKES_MENDED(p) ->                 \
		s_wait = s_wait & ~ST(m, b);                                                       \
		post(m, ST(m, b), p)                                                               \
	}
#define STRIPE_OVER(p, g, m, b)                                                                    \
	:: d_step {                                                                                \
		(net[PG(p, g)] & ST(m, b)) && (r_qp & BIT(PG(p, g))) -> lands(p, g, m, b)          \
	}                                                                                          \
	:: d_step { acks[PG(p, g)] & ST(m, b) -> ack(p, g, m, b) }                                 \
	:: d_step {                                                                                \
		landed[PG(p, g)] & ST(m, b) ->                                                     \
		landed[PG(p, g)] = landed[PG(p, g)] & ~ST(m, b);                                   \
		notice(m, b)                                                                       \
	}                                                                                          \
	:: d_step {                                                                                \
		faults && (net[PG(p, g)] & ST(m, b)) && !(broken & BIT(PG(p, g))) ->               \
		reach(is_unplaced);                                                                \
		faults--;                                                                          \
		net[PG(p, g)] = net[PG(p, g)] & ~ST(m, b);                                         \
		acks[PG(p, g)] = acks[PG(p, g)] | ST(m, b);                                        \
		unplaced = unplaced | ST(m, b);                                                    \
		broken = broken | BIT(PG(p, g))                                                    \
	}
#define ROW_OVER(p, g, m)                                                                          \
	:: d_step {                                                                                \
		(row_net[PG(p, g)] & BIT(m)) && (s_qp & BIT(PG(p, g))) &&                          \
		!((m) == 1 && WINDOW == 1 && (row_net[PG(p, g)] & 1)) ->                           \
		row_lands(p, g, m)                                                                 \
	}
#define GENERATION(p, g)                                                                           \
	STRIPE_OVER(p, g, 0, 0) STRIPE_OVER(p, g, 0, 1) STRIPE_OVER(p, g, 1, 0)                    \
	STRIPE_OVER(p, g, 1, 1) ROW_OVER(p, g, 0) ROW_OVER(p, g, 1)
/* It dies: what is under way, and the acknowledgements, arrive later or never. */
#define BREAK(p, keep_net, keep_acks)                                                              \
	:: d_step {                                                                                \
		faults && s_st[p] == UP && r_st[p] == UP && !(broken & BIT(PG(p, s_gen[p]))) ->    \
		reach(breaks);                                                                     \
		faults--;                                                                          \
		x = PG(p, s_gen[p]);                                                               \
		broken = broken | BIT(x);                                                          \
		if                                                                                 \
		:: !keep_net -> net[x] = 0; row_net[x] = 0 \
		:: else -> skip                                                                    \
		fi;                                                                                \
		if                                                                                 \
		:: !keep_acks ->                                                                   \
			reach_if(acks[x], loses_ack);                                         \
			acks[x] = 0                                                                \
		:: else -> skip                                                                    \
		fi;                                                                                \
		x = 0                                                                              \
	}
#ifdef MUT_SHED_EARLY
#define STATES(p) (r_st[p] == DRAINING || r_st[p] == FENCED)
#else
#define STATES(p) (r_st[p] == FENCED)
#endif
#ifdef MUT_MENDED_GEN
#define STILL_SAID(p) (s_st[p] != FENCED)
#else
#define STILL_SAID(p) (s_mended[p] < r_gen[p])
#endif
#ifdef MUT_REBUILD_BEFORE_MENDED
#define MAY_REBUILD(p) (s_st[p] == FENCED && r_st[p] == FENCED)
#elif defined(TURN)
#define MAY_REBUILD(p) (r_lead != p && s_mended[p] == r_gen[p] && s_st[p] == FENCED && \
	r_st[p] == FENCED)
#else
#define MAY_REBUILD(p) (s_mended[p] == r_gen[p] && s_st[p] == FENCED && r_st[p] == FENCED)
#endif
#ifdef CONTROL
#define LEAD_IS_LOST(p) /* each end ends the other path with it */                                 \
	:: d_step { r_lead == p && r_st[p] != UP && r_st[1 - p] == UP -> r_st[1 - p] = DRAINING }  \
	:: d_step { r_lead == p && s_st[p] != UP && s_st[1 - p] == UP -> s_st[1 - p] = DRAINING }
#elif defined(TURN)
#ifdef MUT_TURN_ALONE /* rows go out on the other one before the sender has turned */
#define R_HEARS_TURN(p) (r_st[p] != UP)
#else
#define R_HEARS_TURN(p) (s_mended[p] == r_gen[p] && r_st[p] == FENCED)
#endif
#ifdef GIVE_UP /* whenever an end will not wait for that */
#define GIVES_UP(p)                                                                                \
	:: d_step { r_lead == p && r_st[p] != UP && r_st[1 - p] == UP -> r_st[1 - p] = DRAINING }  \
	:: d_step { s_lead == p && s_st[p] != UP && s_st[1 - p] == UP -> s_st[1 - p] = DRAINING }
#else
#define GIVES_UP(p)
#endif
#define LEAD_IS_LOST(p)                                                                            \
	:: d_step {                                                                                \
		!latched && r_lead == p && R_HEARS_TURN(p) && r_st[1 - p] == UP -> r_turns(p)      \
	}                                                                                          \
	GIVES_UP(p)
#else
#define LEAD_IS_LOST(p)                                                                            \
	:: d_step { r_lead == p && r_st[p] != UP && r_st[1 - p] == UP -> r_lead = 1 - p }
#endif
#define PATH(p)                                                                                    \
	BREAK(p, 0, 0) BREAK(p, 0, 1) BREAK(p, 1, 0) BREAK(p, 1, 1)                                \
	:: d_step { /* a false alarm, at the sender */                                             \
		faults && s_st[p] == UP && r_st[p] == UP && !(broken & BIT(PG(p, s_gen[p]))) ->    \
		reach(false_alarm);                                                                \
		faults--;                                                                          \
		s_st[p] = DRAINING                                                                 \
	}                                                                                          \
	:: d_step { /* and at the receiver */                                                      \
		faults && s_st[p] == UP && r_st[p] == UP && !(broken & BIT(PG(p, s_gen[p]))) ->    \
		faults--;                                                                          \
		r_st[p] = DRAINING                                                                 \
	}                                                                                          \
	:: d_step { /* an error completion, or SHED's order */                                     \
		s_st[p] == UP && ((broken & BIT(PG(p, s_gen[p]))) || r_st[p] != UP) &&             \
		!SILENT(UNNOTICED(p)) ->                                                           \
		s_st[p] = DRAINING                                                                 \
	}                                                                                          \
	:: d_step { /* the same, or SUSPECT */                                                     \
		r_st[p] == UP && ((broken & BIT(PG(p, r_gen[p]))) || s_st[p] != UP) &&             \
		!SILENT(UNNOTICED(p)) ->                                                           \
		r_st[p] = DRAINING                                                                 \
	}                                                                                          \
	FALLS_SILENT(p)                                                                            \
	:: d_step {                                                                                \
		s_st[p] == DRAINING && !SILENT(AT_SENDER(p)) ->                                    \
		s_st[p] = FENCED;                                                                  \
		shut(p, s_gen[p], true)                                                            \
	}                                                                                          \
	:: d_step {                                                                                \
		s_st[p] == DRAINING && !SILENT(AT_SENDER(p)) ->                                    \
		s_st[p] = FENCED;                                                                  \
		shut(p, s_gen[p], false)                                                           \
	}                                                                                          \
	:: d_step {                                                                                \
		r_st[p] == DRAINING && !SILENT(AT_RECEIVER(p)) ->                                  \
		r_st[p] = FENCED;                                                                  \
		drain(p, r_gen[p])                                                                 \
	}                                                                                          \
	:: d_step { /* SHED is said */                                                             \
		STATES(p) && sh_gen[p] < r_gen[p] && STILL_SAID(p) && R_GOES_ON(p) ->                 \
		reach(sheds);                                                                      \
		sh_gen[0] = (STATES(0) -> r_gen[0] : sh_gen[0]);                                   \
		sh_gen[1] = (STATES(1) -> r_gen[1] : sh_gen[1]);                                   \
		sh_done = r_done;                                                                  \
		sh_seen = r_seen                                                                   \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && NEWS(p) && S_GOES_ON(p) ->                                                \
		mend(p);                                                                           \
		if                                                                                 \
		:: s_wait && s_st[0] != UP && s_st[1] != UP -> reach(waits)                        \
		:: else -> skip                                                                    \
		fi                                                                                 \
	}                                                                                          \
	:: d_step {                                                                                \
		!latched && r_gen[p] < GENS && MAY_REBUILD(p) -> reach(rebuilds); raise(p)         \
	}                                                                                          \
	LEAD_IS_LOST(p)                                                                            \
	:: d_step {                                                                                \
		!latched && r_st[0] != UP && r_st[1] != UP && ALL_FENCED && r_gen[p] < GENS ->     \
		epoch(p)                                                                           \
	}

#define MESSAGE(m)                                                                                 \
	WRITE_ROW(m, 1) WRITE_ROW(m, 2) WRITE_ROW(m, 3) POST_ONE(m, 0) POST_ONE(m, 1)              \
	POST_BOTH(m) RENEW(m) POST_AGAIN(m, 0, 0) POST_AGAIN(m, 0, 1) POST_AGAIN(m, 1, 0)          \
	POST_AGAIN(m, 1, 1)

init {
	s_qp = BIT(PG(0, 1)) | BIT(PG(1, 1));
	r_qp = s_qp;
	/* Nothing is left to happen, and somebody still waits: an invalid end state, `stuck`. */
end_finished:
	do
	MESSAGE(0)
	MESSAGE(1)
	PATH(0)
	PATH(1)
	GENERATION(0, 1)
	GENERATION(0, 2)
	GENERATION(1, 1)
	GENERATION(1, 2)
#if GENS > 2
	GENERATION(0, 3)
	GENERATION(1, 3)
#endif
	:: timeout && !FINISHED && !MAY_WAIT && !IGNORED(stuck) -> printf("VIOLATED stuck\n"); assert(false)
#ifdef STALL
	:: timeout && !FINISHED && !(NOTHING_STALLS(0) && NOTHING_STALLS(1)) ->
		must(false, stall)
#endif
	od
}
