/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to a connection's paths, told to people: a log line, an object in the event log
 * (eventlog.h), counters in the statistics. Nothing of the protocol depends on any of it.
 *
 * One struct for all three, filled by whoever knows, so that they cannot disagree.
 */
#ifndef HA_EVENT_EVENT_H
#define HA_EVENT_EVENT_H

#include "event/reason.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, text): the text is what the event log says. */
#define HA_EVENTS(X)                                                                               \
	X(FAILURE, "failure")	/* a path or port cannot be used: `from`, `reason` */              \
	X(SWITCH, "switch")	/* the connection runs on `to` now: everything below is set */     \
	X(OUTAGE, "outage")	/* no path is left; both ends keep trying */                       \
	X(RECOVERY, "recovery") /* `to`, a path or port, is healthy again */                       \
	X(REBUILD, "rebuild")	/* `to` is a new incarnation, as yet unproved */                   \
	X(LATCH, "latch")	/* the connection has failed for good; `detail` says why */        \
	X(SHED, "shed")		/* `from`, a rail, is lost, and the others go on: `reason` */      \
	X(MENDED, "mended")	/* what was lost with `from` is sent again: as for a switch */     \
	X(AGENT_FOUND, "agent-found") /* of this host, for rails, in the directory `detail` */     \
	X(AGENT_LOST, "agent-lost")   /* it has been gone for too long: its hints count no more */ \
	X(LEAK, "leak") /* the device of `from` refuses to take back `detail`; nothing any more */ \
	X(INC_CONNECT, "inc-connect") /* a group whose all-reduces switches add up has begun */    \
	X(INC_REFUSED,                                                                             \
	  "inc-refused")	  /* such a group was refused, for all of its ranks: `detail` */   \
	X(INC_EPOCH, "inc-epoch") /* it goes on by another way, as `detail` says */                \
	X(INC_ABORT, "inc-abort") /* it has ended with an error, as `detail` says */

enum ha_event_kind {
#define HA_EVENT_ENUM(name, text) HA_EVENT_##name,
	HA_EVENTS(HA_EVENT_ENUM)
#undef HA_EVENT_ENUM
	    HA_EVENT_COUNT
};

/* All of them, a blank before each. */
#define HA_EVENT_BLANK_AND_TEXT(name, text) " " text
#define HA_EVENT_NAMES			    HA_EVENTS(HA_EVENT_BLANK_AND_TEXT)

/* A path, or with index -1 a port that no path is meant by. nic NULL: none. */
struct ha_event_path {
	const char *nic;
	int port_num;
	int index;
	uint32_t generation;
};

/* A time that is not known, or has no meaning here. */
#define HA_EVENT_NO_TIME UINT64_MAX

struct ha_event {
	enum ha_event_kind kind;
	enum ha_reason reason;
	/* It comes again and again while an outage lasts: its line is limited (base/log.h). */
	bool again;
	const char *detail; /* more than the reason says, for people; NULL: nothing */
	struct ha_event_path from, to;
	uint32_t epoch; /* after the event */
	/*
	 * Both count from the last sign of life of the path that failed: to the moment the failure
	 * was noticed, and to the moment data could flow again.
	 */
	uint64_t detection_ns;
	uint64_t blackout_ns;
	/* What this end did with the requests that were in flight. A receiver's "replay" is to ask
	 * for a message again. Of MENDED: with parts of messages, which a receiver does nothing
	 * for. Of INC_EPOCH: with units that others had, and that were computed again. */
	uint64_t completed_without_resend;
	uint64_t replayed_messages;
	uint64_t replayed_bytes;

	/* Whose it is; ha_event_report fills it in. name NULL: a port, no connection. Of INC: the
	 * group. */
	uint64_t conn_id; /* the same at both ends, or all ranks */
	const char *conn_name;
};

/* An event with the times unknown and the rest empty. */
static inline struct ha_event ha_event_init(enum ha_event_kind kind, enum ha_reason reason)
{
	return (struct ha_event){.kind = kind,
				 .reason = reason,
				 .from = {.index = -1},
				 .to = {.index = -1},
				 .detection_ns = HA_EVENT_NO_TIME,
				 .blackout_ns = HA_EVENT_NO_TIME};
}

/* "failure", …; what the event log calls it. */
const char *ha_event_kind_text(enum ha_event_kind kind);

/* The log line without "connection NAME: ". Returns buf. */
const char *ha_event_text(const struct ha_event *event, char *buf, size_t size);

#endif
