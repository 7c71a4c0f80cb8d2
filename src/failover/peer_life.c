/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/peer_life.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/reconnect.h"
#include "failover/signaling.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/frame_sock.h"
#include "transport/path_msg.h"
#include "transport/peer_end.h"

/*
 * Where its host says that the process does not listen any more, the paths may deny it: for so long
 * they are asked, for the answer of the peer and for that of its NIC, which needs no processor.
 */
#define DENIAL_NS  (25 * HA_NS_PER_MS)
#define ASK_MIN_MS 10
#define ASK_MAX_MS 250
/* Of messages to the peer itself. */
#define PING_MIN_MS 250
#define PING_MAX_MS 16000
/* Longer between two looks than this, and this end did not run itself. */
#define SILENCE_TICK_NS (5 * HA_NS_PER_MS)

/* Where its host closed the socket, a peer that does not answer over the paths for so long is gone.
 */
#define LOST_NS HA_NS_PER_S
/*
 * Where somebody reset it: longer than a sender that lives takes to dial again. Its own end may
 * have timed out in an outage, and then its host knows no such socket when the network is back.
 */
#define LOST_RESET_NS (5 * HA_NS_PER_S)

/* Why the process must be gone; NULL: it may be there. */
static const char *sign_of_death(const struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;
	static const uint64_t lost_ns[] = {
	    [HA_SOCK_CLOSED] = LOST_NS,
	    [HA_SOCK_RESET] = LOST_RESET_NS,
	    [HA_SOCK_SILENT] = UINT64_MAX,
	};
	uint64_t broken_ns = now_ns - fo->broken_ns, silent_ns = fo->silence.lasts_ns;

	/*
	 * Its host says that nobody listens any more. A firewall may say the same, and then the
	 * paths deny it. Where there is none a sender believes it at once: that is where it was to
	 * dial. A receiver has never needed to get through there, so a firewall may always have
	 * said so.
	 */
	if (ha_reconnect_refused(comm) &&
	    (ha_signaling_has_ctrl_sock(comm) ? silent_ns > DENIAL_NS : comm->is_send))
		return "its socket is closed and another one refused";
	/* Silence alone is no sign: how long the network, or its host, may be away is for the
	 * outage's limit to say. */
	if (broken_ns > lost_ns[fo->socket_end] && silent_ns > 2 * LOST_NS)
		return "its socket is closed and it answers on no path";
	return NULL;
}

/* Twice as long as before. */
static uint32_t longer_ms(uint32_t before_ms, uint32_t least_ms, uint32_t most_ms)
{
	if (before_ms == 0)
		return least_ms;
	return 2 * before_ms < most_ms ? 2 * before_ms : most_ms;
}

static uint64_t later_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Time that we slept is none. */
static void measure_silence(struct ha_comm *comm, uint64_t now_ns)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_silence *silence = &comm->failover->silence;
	uint64_t life_ns = later_ns(later_ns(fo->heard_ns, fo->answered_ns), comm->life.alive_ns);
	uint64_t tick_ns = now_ns - silence->tick_ns;

	silence->tick_ns = now_ns;
	if (life_ns < silence->asked_ns) {
		silence->lasts_ns += tick_ns < SILENCE_TICK_NS ? tick_ns : SILENCE_TICK_NS;
		return;
	}
	silence->asked_ns = silence->lasts_ns = 0;
}

/*
 * The peer itself, seldom: one that is frozen takes no message from its queue pairs, which are
 * stuck when they hold too many. And each NIC of its host that has a queue pair of ours, which
 * answers a write of nothing without it: soon again while it does not.
 */
static void ask_for_life(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_silence *silence = &comm->failover->silence;
	bool answered =
	    comm->failover->heard_ns + silence->ping_ms * HA_NS_PER_MS >= silence->ping_ns;

	if (now_ns >= silence->ping_ns) {
		silence->ping_ms =
		    longer_ms(answered ? 0 : silence->ping_ms, PING_MIN_MS, PING_MAX_MS);
		silence->ping_ns = now_ns + silence->ping_ms * HA_NS_PER_MS;
		comm->failover->say |= HA_SAY_PING;
	}
	if (now_ns < silence->ask_ns)
		return;
	silence->ask_ms =
	    longer_ms(silence->asked_ns == 0 ? silence->ask_ms : 0, ASK_MIN_MS, ASK_MAX_MS);
	silence->ask_ns = now_ns + silence->ask_ms * HA_NS_PER_MS;
	if (silence->asked_ns == 0)
		silence->asked_ns = now_ns;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (ha_signaling_carries(comm, p))
			(void)ha_path_probe(comm, comm->paths[p]);
}

/* Somebody said that its socket is no more, and nobody answers on any channel: it is gone. */
void ha_peer_life_check(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_failover *fo = comm->failover;
	const char *gone;

	if (!fo->socket_broken || fo->state == HA_FO_LATCHED || fo->state == HA_FO_CLOSED)
		return;
	measure_silence(comm, now_ns);
	ask_for_life(comm, now_ns);
	gone = sign_of_death(comm, now_ns);
	/* What has come already may be its answer. */
	if (gone && !ha_comm_error(comm) &&
	    ha_comm_poll(comm, comm->poll_batch) + ha_comm_poll_standby(comm) == 0)
		ha_comm_peer_lost(comm, gone);
}
