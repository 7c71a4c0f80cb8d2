/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The detector of a liveness session: which pings went out, which were answered, and what that says
 * of the way to the other port. Pure: time comes in as an argument, nothing is sent from here. See
 * liveness.h for the rules.
 */
#ifndef HA_LIVENESS_DETECTOR_H
#define HA_LIVENESS_DETECTOR_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

enum ha_session_state {
	HA_SESSION_INIT,      /* was never up */
	HA_SESSION_UP,	      /* answers come */
	HA_SESSION_SUSPECTED, /* one is missing, or the round trip is far off its baseline */
	HA_SESSION_DOWN,      /* answers stopped, or come from the peer's other ports alone */
};

/* Answers to older pings than these say too little about now. */
#define HA_DETECTOR_PINGS 64

/* Answers in a row that make a session UP, and intervals of silence that make it DOWN. */
#define HA_DETECTOR_ROW	    3
#define HA_DETECTOR_SILENCE 3
/* Intervals of silence that do so without a witness, and how long they are together at least. */
#define HA_DETECTOR_LONG_SILENCE 10
#define HA_DETECTOR_LONG_MIN_NS	 (2 * HA_NS_PER_S)

/*
 * An inquiry: traffic between these ports stands still, or a heartbeat has no answer, and that must
 * not wait for three intervals. Pings go out in quick succession. So many that no answer comes to
 * make the session DOWN when the time-out is over, if the same peer took a question over other
 * ports in so many rounds meanwhile and answered it. The time-out has so many parts.
 */
#define HA_DETECTOR_INQUIRY_PINGS  12
#define HA_DETECTOR_INQUIRY_ROUNDS 3
#define HA_DETECTOR_INQUIRY_PARTS  4

/* A ping that was answered. */
struct ha_detector_answer {
	uint64_t sent_ns, heard_ns;
};

/* One that is under way. */
struct ha_inquiry {
	uint64_t first_seq; /* of its pings; 0: there is none */
	uint64_t since_ns;  /* silence counts from here */
	uint64_t begun_ns;
	unsigned rounds; /* that the peer answered over other ports since */
	bool noticed;	 /* it was found doomed, which is said once */
	bool overtaken;	 /* the peer answered over other ports what was asked there later */
};

struct ha_detector {
	uint64_t interval_ns;
	uint64_t stall_ns; /* a part of an inquiry's time-out at least; 0: there are no inquiries */
	enum ha_session_state state;
	uint64_t sent, answered; /* newest ping; newest ping that was answered, or given up */
	uint64_t noticed_ns;	 /* alive_ns of the silence that somebody took notice of */
	bool doomed;		 /* found since that was asked last */
	uint64_t overdue;	 /* no ping up to this one begins an inquiry by itself any more */
	uint64_t suspected;	 /* newest ping when it was last suspected */
	uint64_t in_row;	 /* pings up to `answered` that were answered without a gap */
	uint64_t lost;		 /* pings that were not answered although later ones were */
	uint64_t sent_ns[HA_DETECTOR_PINGS];
	uint64_t next_ping_ns;
	uint64_t heard_ns;		      /* newest answer, or when waiting for one began */
	uint64_t alive_ns;		      /* newest sign of life, answer or traffic */
	uint64_t waiting_ns;		      /* when the oldest ping without an answer was sent */
	struct ha_detector_answer answers[2]; /* the newest first */
	/* Answers whose ping was sent after the one before was heard, and some time after the ping
	 * of that one; the newest first. */
	struct ha_detector_answer rounds[HA_DETECTOR_INQUIRY_ROUNDS];
	struct ha_inquiry inquiry;
	uint64_t failed_before_ns; /* when it went DOWN: it had failed by then */
	bool held;		   /* silent for long enough, but nobody else was heard */
	uint64_t sampled_ns;  /* when traffic was last asked for; 0: not since it is suspected */
	uint64_t baseline_ns; /* smoothed round trip; 0: none yet */
	uint32_t slow_row;    /* answers in a row that came far too late */
	uint64_t slow_ns;     /* when the ping of the newest was sent */
	uint32_t random;
};

/* seed: keeps sessions that begin together from pinging in step. */
void ha_detector_init(struct ha_detector *detector, uint64_t interval_ns, uint64_t stall_ns,
		      uint64_t seed, uint64_t now_ns);

/* When something has to be done again: a ping, or a judgement. */
uint64_t ha_detector_due_ns(const struct ha_detector *detector);

static inline bool ha_detector_ping_due(const struct ha_detector *detector, uint64_t now_ns)
{
	return now_ns >= detector->next_ping_ns;
}

/* At the interval, not faster. */
bool ha_detector_is_steady(const struct ha_detector *detector, uint64_t now_ns);

/* It is steady, and its next ping is so near that it may as well go out now, with another's. */
bool ha_detector_may_join(const struct ha_detector *detector, uint64_t now_ns);

/* The next ping is to go out together with another's. Only after one that was steady. */
static inline void ha_detector_keep_step(struct ha_detector *detector, uint64_t next_ping_ns)
{
	detector->next_ping_ns = next_ping_ns;
}

/* A ping goes out now: its sequence number. */
uint64_t ha_detector_ping(struct ha_detector *detector, uint64_t now_ns);

/* A ping had to wait, and goes out only now: what it waited for is no round trip. */
void ha_detector_ping_sent(struct ha_detector *detector, uint64_t seq, uint64_t now_ns);

/* An answer came. False: to no ping we wait for. *round_trip_ns is set otherwise. */
bool ha_detector_pong(struct ha_detector *detector, uint64_t seq, uint64_t now_ns,
		      uint64_t *round_trip_ns);

/* Somebody wants to know now: the next ping is due. */
void ha_detector_ask(struct ha_detector *detector, uint64_t now_ns);

/*
 * Traffic stands still: begins an inquiry, unless there is one, something was heard a moment ago,
 * or three intervals are over as soon.
 */
void ha_detector_inquire(struct ha_detector *detector, uint64_t now_ns);

static inline bool ha_detector_inquires(const struct ha_detector *detector)
{
	return detector->inquiry.first_seq != 0;
}

/* An inquiry about the same peer's other ports has had no answer yet: this one is to be asked as
 * well, to show whether the peer gets to answer at all. */
bool ha_detector_wants_help(const struct ha_detector *detector);
void ha_detector_help(struct ha_detector *detector, uint64_t now_ns);

/* It has had no answer for longer than the peer takes to answer once over others, and there is none
 * over those either: they may have failed with it, or the peer does not get to answer. */
bool ha_detector_lacks_witness(const struct ha_detector *detector, uint64_t now_ns);

/*
 * What `other`, a detector of the same peer over other ports, says of the inquiry of `detector`: in
 * how many rounds the peer answered there since it began, and whether an answer has been here for
 * some time to what was asked there well after its first ping. That is a reason for suspicion.
 */
void ha_detector_note_other(struct ha_detector *detector, const struct ha_detector *other,
			    uint64_t now_ns);

/* The peer pings us, or a path over these ports is up again. If we have nearly given up, it is time
 * to look again. */
void ha_detector_ping_sooner(struct ha_detector *detector, uint64_t now_ns);

/* Whether it matters if there was traffic: ha_detector_traffic wants to know. */
bool ha_detector_wants_traffic(const struct ha_detector *detector);

/*
 * Whether anything completed since this was called last. When in between it did is not known, so
 * it counts as if at the beginning: traffic just before a cut must not delay its detection.
 */
void ha_detector_traffic(struct ha_detector *detector, bool any, uint64_t now_ns);

/* Something came back over these ports just now. */
void ha_detector_note_life(struct ha_detector *detector, uint64_t now_ns);

/* We did not look for too long: what was silent meanwhile may have been we ourselves. */
void ha_detector_restart(struct ha_detector *detector, uint64_t now_ns);

/* Whether it has been found that it will be DOWN in half an interval unless something is heard:
 * said once in each silence. */
bool ha_detector_take_doom(struct ha_detector *detector);

/* Whether ha_detector_judge has a use for a witness. */
bool ha_detector_wants_witness(const struct ha_detector *detector, uint64_t now_ns);

/* Whether it was silent for so long that a witness makes it DOWN, or SUSPECTED if it was never UP.
 */
bool ha_detector_expired(const struct ha_detector *detector, uint64_t now_ns);

/*
 * Whether `other`, a detector of the same peer over other ports, proves that the peer was there to
 * answer the pings that `detector` has no answers to.
 */
bool ha_detector_witnesses(const struct ha_detector *other, const struct ha_detector *detector,
			   uint64_t now_ns);

/*
 * Draws the conclusions. The state may change by one step a call. Without a witness it takes much
 * longer to become DOWN: a peer that is silent everywhere gets no processor, or there is no way
 * left that would be better.
 */
enum ha_session_state ha_detector_judge(struct ha_detector *detector, bool witness,
					uint64_t now_ns);

/* The device is dead. */
void ha_detector_stop(struct ha_detector *detector);

#endif
