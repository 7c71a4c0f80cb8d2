/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any datagram as a heartbeat: it is refused, or its fields are in range and it survives being
 * encoded again. And any bytes as what comes to a port of a job with a key: nothing without its
 * code does anything; of what has it, nothing from elsewhere, and no ping is answered twice.
 *
 * Byte 0: 0: as it is; 1: with its checksum put right; 2: to a port. There a packet of STEP bytes
 * after the other: how (bits: its code put right, its checksum and the ids too, another queue pair,
 * another address, cut), then what a heartbeat has.
 */
#include "../made_key.h"
#include "fuzz.h"

#include "base/bytes.h"
#include "liveness/packet.h"
#include "liveness/session.h"
#include "liveness/session_recv.h"

#define SUM_AT (HA_HEARTBEAT_BYTES - 4)

enum { RIGHT_CODE = 1, RIGHT_IDS = 2, OTHER_QPN = 4, OTHER_GID = 8, CUT = 16 };

#define STEP (1 + HA_HEARTBEAT_BYTES)

static uint8_t ping[1 + HA_HEARTBEAT_BYTES], pong[1 + HA_HEARTBEAT_BYTES], to_a_port[1 + 5 * STEP];

const struct fuzz_seed fuzz_seeds[] = {
    {ping, sizeof(ping)},
    {pong, sizeof(pong)},
    {ping, sizeof(ping) - 1},
    {to_a_port, sizeof(to_a_port)},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	ping[0] = 1;
	ha_heartbeat_encode(
	    &(struct ha_heartbeat){.kind = HA_HEARTBEAT_PING, .from = 1, .to = 2, .seq = 3},
	    ping + 1);
	pong[0] = 1;
	ha_heartbeat_encode(
	    &(struct ha_heartbeat){.kind = HA_HEARTBEAT_PONG, .from = 2, .to = 1, .seq = 3},
	    pong + 1);
	to_a_port[0] = 2;
	for (unsigned i = 0; i < 5; i++) {
		static const uint64_t seqs[] = {7, 9, 8, 9, 1};
		uint8_t *at = to_a_port + 1 + i * STEP;

		at[0] = RIGHT_CODE | RIGHT_IDS;
		ha_heartbeat_encode(
		    &(struct ha_heartbeat){.kind = i == 4 ? HA_HEARTBEAT_PONG : HA_HEARTBEAT_PING,
					   .seq = seqs[i]},
		    at + 1);
	}
}

static void as_it_is(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_HEARTBEAT_BYTES];
	struct ha_heartbeat beat, again;

	if (!ha_heartbeat_decode(data, size, &beat))
		return;
	FUZZ_CHECK(size == HA_HEARTBEAT_BYTES);
	FUZZ_CHECK(beat.kind == HA_HEARTBEAT_PING || beat.kind == HA_HEARTBEAT_PONG);
	ha_heartbeat_encode(&beat, bytes);
	FUZZ_CHECK(ha_heartbeat_decode(bytes, sizeof(bytes), &again));
	FUZZ_CHECK(beat.kind == again.kind && beat.from == again.from && beat.to == again.to &&
		   beat.seq == again.seq);
}

/* Without it, one mutant in four billion would get past the sum. */
static void with_its_sum(uint8_t *data, size_t size)
{
	struct ha_writer sum = {data + SUM_AT};

	if (size == HA_HEARTBEAT_BYTES)
		ha_put_uint(&sum, ha_checksum(data, SUM_AT), 4);
	as_it_is(data, size);
}

/* ---- to a port ------------------------------------------------------------------------------- */

static struct ha_job_key *the_key;
static struct ha_progress *progress; /* without a thread */
static unsigned refusals;

static void count_refusal(void *arg)
{
	(void)arg;
	refusals++;
}

/* A port without a link, so that nothing goes out, and a session with a peer. */
struct world {
	struct ha_nic nic;
	struct ha_port port;
	struct ha_liveness live;
	struct ha_live_port own;
	struct ha_session *session;
};

static const struct ha_live_endpoint peer = {.id = 77,
					     .qpn = 5,
					     .link_layer = IBV_LINK_LAYER_ETHERNET,
					     .gid = {[10] = 0xff, [11] = 0xff, [15] = 9}};

static void open_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->port.nic = &w->nic;
	pthread_mutex_init(&w->live.lock, NULL);
	w->live.key = the_key;
	w->live.progress = progress;
	w->live.refused = count_refusal;
	w->live.interval_ns = 200 * HA_NS_PER_MS;
	w->live.stall_ns = 50 * HA_NS_PER_MS;
	w->own.live = &w->live;
	w->own.port = &w->port;
	w->own.id = 33;
	for (int b = 0; b < HA_LIVE_BUCKETS; b++)
		ha_list_init(&w->own.buckets[b]);
	w->session = ha_session_new(&w->own, &peer, 0, 0);
	FUZZ_CHECK(w->session);
}

static void put_right(uint8_t how, uint8_t packet[HA_HEARTBEAT_SEALED])
{
	struct ha_writer ids = {packet + 8}, sum = {packet + SUM_AT};

	if (how & RIGHT_IDS) {
		ha_put_uint(&ids, peer.id, 8);
		ha_put_uint(&ids, 33, 8);
		ha_put_uint(&sum, ha_checksum(packet, SUM_AT), 4);
	}
	if (how & RIGHT_CODE)
		FUZZ_CHECK(ha_heartbeat_seal(the_key, packet));
}

/* The numbers of pings that were answered. */
struct answered_pings {
	uint64_t seq[64];
	unsigned count;
};

static void hear(struct world *w, struct answered_pings *pings, uint8_t how,
		 const uint8_t bytes[HA_HEARTBEAT_BYTES])
{
	uint8_t packet[HA_HEARTBEAT_SEALED] = {0};
	struct ha_datagram datagram = {.data = packet,
				       .len = sizeof(packet) - !!(how & CUT),
				       .from_qpn = peer.qpn + !!(how & OTHER_QPN),
				       .has_gid = true};
	uint64_t answered = w->own.count.answered;
	unsigned before = refusals;
	struct ha_heartbeat beat;

	memcpy(packet, bytes, HA_HEARTBEAT_BYTES);
	put_right(how, packet);
	memcpy(datagram.from_gid, peer.gid, sizeof(peer.gid));
	datagram.from_gid[15] ^= !!(how & OTHER_GID);
	ha_session_received(&w->own, &datagram);
	if (!(how & RIGHT_CODE) || how & (OTHER_QPN | OTHER_GID | CUT)) {
		FUZZ_CHECK(refusals == before + 1);
		FUZZ_CHECK(w->own.count.answered == answered);
	}
	if (w->own.count.answered == answered)
		return;
	FUZZ_CHECK(refusals == before);
	FUZZ_CHECK(ha_heartbeat_decode(packet, HA_HEARTBEAT_BYTES, &beat));
	for (unsigned i = 0; i < pings->count; i++)
		FUZZ_CHECK(pings->seq[i] != beat.seq);
	pings->seq[pings->count++] = beat.seq;
}

static void to_port(uint8_t *data, size_t size)
{
	struct answered_pings pings = {.count = 0};
	struct world w;

	if (!the_key) {
		the_key = made_key(7);
		FUZZ_CHECK(ha_progress_start(&(struct ha_progress_options){0}, &progress) == HA_OK);
	}
	open_world(&w);
	for (; size >= STEP && pings.count < 64; data += STEP, size -= STEP)
		hear(&w, &pings, data[0], data + 1);
	FUZZ_CHECK(w.own.count.pongs == 0); /* nothing was asked */
	ha_session_free(w.session);
	pthread_mutex_destroy(&w.live.lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_it_is, with_its_sum, to_port};

	fuzz_one_of(decoders, 3, data, size);
	return 0;
}
