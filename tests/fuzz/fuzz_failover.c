/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Valid and hostile: messages of the failover protocol that the decoder lets through, at either end
 * of a connection, at any moment, in any order, while applications at both ends exchange data and
 * links fail. Whatever is said, no request is done that the other end has not counted:
 *
 *  - a receive is done only with the bytes that the sender's application gave, all of them;
 *  - a send is done only when its bytes are in the receiver's memory (end to end: when the
 *    receiver's software has counted it), or when the peer said so itself, of a message that had
 *    been posted then. A peer that lies about what it has hurts itself alone;
 *  - a buffer that a request has released is left alone, unless the peer lied about what it has;
 *  - and at the end nobody waits for the other: both go on or both have given up.
 *
 * With HA_FUZZ_RAILS (fuzz_rails) both ends have a bundle, and messages are cut over its rails:
 * SHED and MENDED are said, too, of any path, with any statement of what has come.
 *
 * Input: byte 0 the configuration (enum of bits), then operations: a byte each, and what it takes.
 */
#include "../transport/harness.h"
#include "fuzz.h"
#include "input.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/hear.h"
#include "failover/message.h"
#include "failover/notes.h"
#include "failover/rails.h"
#include "transport/path_connect.h"
#include "transport/peer_end.h"
#include "transport/recv.h"
#include "transport/send.h"
#include "transport/stripe.h"

#include <string.h>

#ifdef HA_FUZZ_RAILS
#define ON_RAILS true
#else
#define ON_RAILS false
#endif

enum { END_TO_END = 1, ONE_RAIL = 2, THREE_RAILS = 2 /* of a bundle */ };

enum operation {
	STEP,
	IDLE,
	ASK,
	OFFER,
	HEAR_SENDER,
	HEAR_RECEIVER,
	ALARM,
	LINK,
	GOODBYE,
	OPERATIONS
};

#define MESSAGES 12
#define PART	 ((size_t)(ON_RAILS ? 307200 : 32768)) /* of memory for each buffer */
#define USED	 0x5a /* what the application does with a buffer it has back */
#define MEMORIES 16   /* of what an end had done, for messages that come late */
#define MAX_OPS	 200

/* ---- the input ----------------------------------------------------------------------------- */

/* Near one that makes sense, or any. */
static uint32_t near(uint32_t value)
{
	uint8_t how = byte();

	return how == 0x80 ? (uint32_t)number(4) : value + ((how ^ 0x80u) - 0x80u);
}

/* ---- the applications ----------------------------------------------------------------------- */

struct message {
	struct ha_request *recv, *send;
	bool received, released;
	bool claimed; /* the peer said that it has it, and it had been posted */
};

static struct {
	struct pair pair;
	bool end_to_end, lied, said_goodbye;
	struct message messages[MESSAGES];
	uint64_t first; /* number of the first of them */
	int asked, offered;
	struct ha_window had[2][MEMORIES]; /* done at the sender, at the receiver */
	unsigned remembered;
} run;

static size_t size_of(int m)
{
	static const size_t sizes[2][6] = {{9000, 1, 64, 30000, 8192, 5},
					   {140000, 300000, 64, 131072, 200001, 5}};

	return sizes[ON_RAILS][(unsigned)m % 6];
}

static uint8_t *place(struct memory *memory, int m)
{
	return memory->bytes + (size_t)m * PART;
}

static uint64_t seq_of(int m)
{
	return run.first + (uint64_t)m;
}

static void ask(void)
{
	struct message *m = &run.messages[run.asked];
	void *data = place(&run.pair.to, run.asked);
	size_t size = size_of(run.asked);
	int tag = run.asked;

	if (run.asked == MESSAGES ||
	    ha_irecv(run.pair.recv, 1, &data, &size, &tag, &run.pair.to.mr, &m->recv) != HA_OK)
		return;
	run.asked += m->recv != NULL;
}

static void offer(void)
{
	struct message *m = &run.messages[run.offered];

	if (run.offered == run.asked ||
	    ha_isend(run.pair.send, place(&run.pair.from, run.offered), size_of(run.offered),
		     run.offered, run.pair.from.mr, &m->send) != HA_OK)
		return;
	run.offered += m->send != NULL;
}

static void look_at_receive(int number)
{
	struct message *m = &run.messages[number];
	bool done = false;
	int got = -1;

	if (m->received || ha_test(m->recv, &done, &got) != HA_OK || !done)
		return;
	m->received = true;
	FUZZ_CHECK(m->send != NULL); /* nothing that was not sent */
	FUZZ_CHECK(got == (int)size_of(number));
	FUZZ_CHECK(filled(place(&run.pair.to, number), size_of(number), (uint32_t)number));
	memset(place(&run.pair.to, number), USED, PART);
}

static bool is_there(int number)
{
	if (run.messages[number].received)
		return true;
	if (run.end_to_end)
		return ha_window_has(&run.pair.recv->recv->done, seq_of(number));
	return filled(place(&run.pair.to, number), size_of(number), (uint32_t)number);
}

static void look_at_send(int number)
{
	struct message *m = &run.messages[number];
	bool done = false;

	if (!m->send || m->released || ha_test(m->send, &done, NULL) != HA_OK || !done)
		return;
	m->released = true;
	FUZZ_CHECK(is_there(number) || m->claimed);
	/* Who lied may be sent it again. */
	if (!m->claimed)
		memset(place(&run.pair.from, number), USED, PART);
}

/* A round of both applications' tests. */
static void look(void)
{
	for (int m = 0; m < run.asked; m++) {
		look_at_send(m);
		look_at_receive(m);
	}
}

/* ---- what is said ---------------------------------------------------------------------------- */

static struct ha_window truth(const struct ha_comm *of)
{
	return of->is_send ? of->send->completed : of->recv->done;
}

static void remember(void)
{
	unsigned at = run.remembered++ % MEMORIES;

	run.had[0][at] = truth(run.pair.send);
	run.had[1][at] = truth(run.pair.recv);
}

static uint64_t posted_end(const struct ha_comm *comm)
{
	return comm->is_send ? ha_send_posted_end(comm->send) : comm->recv->next_seq;
}

/* What the other end says that it has done: the truth, an older one, or a lie. */
static struct ha_window window(const struct ha_comm *to, const struct ha_comm *from)
{
	struct ha_window w = truth(from);
	uint8_t how = byte();

	switch (how % 8) {
	case 0: /* a message that was long on its way */
		return run.had[from == run.pair.recv][how / 8 % MEMORIES];
	case 1: /* more than there is, or as much as there can be */
		w.base = posted_end(to) + how / 16;
		break;
	case 2:
		w.bits = number(8);
		break;
	case 3:
		w.base = number(8);
		break;
	default:
		break;
	}
	w.base += w.base == 0; /* the decoder lets none through */
	return w;
}

/* What the sender will believe. */
static void note_claims(const struct ha_comm *to, const struct ha_window *w)
{
	if (!to->is_send)
		return;
	for (int m = 0; m < run.offered; m++) {
		if (!ha_window_has(w, seq_of(m)) || seq_of(m) >= posted_end(to) ||
		    ha_window_has(&run.pair.recv->recv->done, seq_of(m)))
			continue;
		run.messages[m].claimed = true;
		run.lied = true;
	}
}

/* What SHED says has come, and has not; and what it says is over, and is not: then a stripe, or a
 * message, that is sent again may come over both paths. */
static void note_stripes(const struct ha_comm *to, const struct ha_message *m)
{
	const struct ha_comm *recv = run.pair.recv;

	if (!to->is_send || m->kind != HA_MSG_SHED)
		return;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const bool drained = m->drained >> p & 1;

		/* Of the control rail it says what of any stripe has come. */
		if (!drained && !(m->drained >> to->active & 1))
			continue;
		run.lied |= drained && recv->failover->slots[p].fenced_gen < m->fenced_gen[p];
		for (int i = 0; i < run.offered; i++) {
			const uint64_t above = seq_of(i) - m->window.base;
			const uint64_t truly = seq_of(i) - recv->recv->done.base;

			if (above >= 64 || !(m->seen[p] >> above & 1) ||
			    ha_window_has(&recv->recv->done, seq_of(i)) ||
			    (truly < 64 && ha_stripe_seen(recv, p) >> truly & 1))
				continue;
			run.messages[i].claimed = true;
			run.lied = true;
		}
	}
}

/* As if the other end said it now, with all that it knows. */
static struct ha_message honest(const struct ha_comm *from, uint8_t kind)
{
	const struct ha_failover *fo = from->failover;
	struct ha_message m = {
	    .kind = kind,
	    .epoch = fo->epoch,
	    .serial = fo->serial,
	    .generation = 1,
	    .rto_ms = 1000,
	    .ports_up = 0xffff,
	    .window = truth(from),
	};

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		m.fenced_gen[p] = fo->slots[p].fenced_gen;
	if (kind == HA_MSG_SHED || kind == HA_MSG_MENDED)
		ha_rails_fill(from, &m);
	return m;
}

static void put_endpoint(struct ha_message *m, const struct ha_comm *to, const struct ha_comm *from)
{
	const struct ha_path *path =
	    from->paths[m->path] ? from->paths[m->path] : to->paths[m->path];
	uint8_t what = byte();

	if (!path)
		return;
	m->has_endpoint = true;
	ha_path_endpoint(path, &m->endpoint);
	if (what & 1)
		m->endpoint.generation = (uint16_t)m->generation;
	if (what & 2)
		m->endpoint.qps[0].qpn = near(m->endpoint.qps[0].qpn);
	if (what & 4)
		m->endpoint.ring_rkey = near(m->endpoint.ring_rkey);
	if (what & 8)
		m->endpoint.ring_addr += number(2);
	if (what & 16)
		m->endpoint.gid[byte() % 16] ^= byte();
	if (what & 32)
		m->endpoint.ring_length = near((uint32_t)m->endpoint.ring_length);
}

/* Of the path that it names, or of those that are lost; most of it as the decoder wants it. */
static void put_rails(struct ha_message *m, const struct ha_comm *from, unsigned lies)
{
	const unsigned p = m->path;

	if (m->kind == HA_MSG_MENDED) {
		if (lies & 1)
			m->mended_gen[p] = near(from->failover->slots[p].newest_gen);
		if (lies & 2)
			m->fenced_gen[p] = m->mended_gen[p];
		return;
	}
	if (lies & 1 || m->lost == 0) {
		m->lost |= (uint8_t)(1u << p);
		m->fenced_gen[p] = m->generation;
	}
	if (lies & 2)
		m->lost = byte() % 16;
	if (lies & 4)
		m->drained = byte() & m->lost;
	if (lies & 8)
		for (unsigned i = 0; i < HA_MAX_PATHS; i++)
			m->seen[i] = number(2);
	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		m->seen[i] &= ~m->window.bits;
}

/* Any message that the decoder lets through. The bits of `lies` say what is not as it is. */
static struct ha_message hostile(const struct ha_comm *to, const struct ha_comm *from)
{
	const unsigned kinds = ON_RAILS ? HA_MSG_END - 1 : HA_MSG_BYE;
	struct ha_message m = honest(from, (uint8_t)(1 + byte() % kinds));
	unsigned lies = (unsigned)number(2);

	m.path = byte() % HA_MAX_PATHS;
	m.generation = from->failover->slots[m.path].newest_gen;
	if (lies & 1)
		m.generation = near(m.generation);
	m.generation += m.generation == 0;
	if (lies & 2)
		m.epoch = near(m.epoch);
	if (lies & 4)
		m.window = window(to, from);
	if (lies & 8)
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			m.fenced_gen[p] = near(m.fenced_gen[p]);
	if (lies & 16)
		m.yielded_gen[byte() % HA_MAX_PATHS] = near(0);
	if (lies & 32)
		m.serial = near(m.serial + 1);
	if (lies & 64)
		m.ports_up = (uint16_t)number(2);
	if (lies & 128)
		m.ports_drained = (uint16_t)number(2);
	if (lies & 256)
		m.rto_ms = near(m.rto_ms);
	if (lies & 512)
		m.reason = byte();
	if (lies & 1024)
		m.code = (uint16_t)number(2);
	if (ON_RAILS && (m.kind == HA_MSG_SHED || m.kind == HA_MSG_MENDED)) {
		put_rails(&m, from, lies >> 12);
		return m;
	}
	m.port = byte() % HA_MAX_OFFERS;
	m.peer_port = byte() % HA_MAX_OFFERS;
	if (m.kind == HA_MSG_REBUILD || m.kind == HA_MSG_REBUILT || (lies & 2048))
		put_endpoint(&m, to, from);
	return m;
}

static void hear(struct ha_comm *to, const struct ha_comm *from)
{
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	struct ha_message m = hostile(to, from), decoded;

	if (ha_message_decode(bytes, ha_message_encode(&m, bytes), &decoded) != HA_WIRE_OK)
		return;
	note_claims(to, &decoded.window);
	note_stripes(to, &decoded);
	run.said_goodbye |= decoded.kind == HA_MSG_BYE;
	ha_token_acquire(to);
	ha_failover_hear(to, &decoded);
	ha_token_release(to);
}

/* The frame of the bootstrap socket that closes a connection in good order. */
static void say_goodbye(struct ha_comm *to, const struct ha_comm *from)
{
	struct ha_frame_header header = {.type = HA_FRAME_BYE, .length = HA_BYE_BYTES};
	struct ha_window w = window(to, from);
	uint8_t bytes[HA_BYE_BYTES];

	note_claims(to, &w);
	run.said_goodbye = true;
	ha_bye_encode(&(struct ha_bye){.done = w.base, .done_bits = w.bits}, bytes);
	ha_token_acquire(to);
	(void)ha_peer_end_frame(to, &header, bytes);
	ha_token_release(to);
}

/* ---- what happens ---------------------------------------------------------------------------- */

/* Of the active path; or on rails, any. */
static void alarm_at(struct ha_comm *comm, unsigned p)
{
	struct ha_path *path = comm->paths[ON_RAILS ? p % HA_MAX_PATHS : comm->active];

	if (!path)
		return;
	ha_token_acquire(comm);
	ha_failover_trigger(comm, path, HA_REASON_OPERATOR, "a fuzzer");
	ha_failover_take_failures(comm);
	ha_token_release(comm);
}

static void operate(void)
{
	struct ha_comm *send = run.pair.send, *recv = run.pair.recv;
	uint8_t op = byte(), with;

	switch ((enum operation)(op % OPERATIONS)) {
	case STEP:
		for (unsigned n = 1 + op / OPERATIONS; n > 0; n--)
			pair_step(&run.pair);
		break;
	case IDLE:
		pair_idle(&run.pair, 1 + byte() % 64);
		break;
	case ASK:
		ask();
		break;
	case OFFER:
		offer();
		break;
	case HEAR_SENDER:
		hear(send, recv);
		break;
	case HEAR_RECEIVER:
		hear(recv, send);
		break;
	case ALARM:
		with = byte();
		alarm_at(with & 1 ? send : recv, with >> 1);
		break;
	case LINK:
		with = byte();
		sv_stepped_link(with & 1, with >> 1 & 1, with & 4);
		break;
	case GOODBYE:
		if (byte() & 1)
			say_goodbye(send, recv);
		else
			say_goodbye(recv, send);
		break;
	case OPERATIONS:
		break;
	}
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Each rail carries as much as another. */
static void bundle(unsigned rails)
{
	run.pair.fabric.rails = rails;
	strcpy(run.pair.config.rails, rails == 3 ? "sim0+sim1+sim2" : "sim0+sim1");
	strcpy(run.pair.config.rail_share, rails == 3 ? "1,1,1" : "1,1");
}

/* Until large messages are cut over all rails. */
static void wait_for_rails(void)
{
	const struct ha_comm *recv = run.pair.recv;

	for (int i = 0;
	     i < 2000 && 1 + __builtin_popcount(recv->recv->members) < (int)run.pair.fabric.rails;
	     i++) {
		pair_idle(&run.pair, 5);
		transfer(&run.pair, 300000, 1);
	}
	FUZZ_CHECK(1 + __builtin_popcount(recv->recv->members) == (int)run.pair.fabric.rails);
}

static void begin(uint8_t how)
{
	memset(&run, 0, sizeof(run));
	pair_init(&run.pair);
	run.end_to_end = how & END_TO_END;
	run.pair.config.enable_backup = true;
	run.pair.config.completion = run.end_to_end ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	if (ON_RAILS)
		bundle(how & THREE_RAILS ? 3 : 2);
	else
		run.pair.fabric.rails = how & ONE_RAIL ? 1 : 2;
	pair_up(&run.pair);
	if (ON_RAILS)
		wait_for_rails();
	run.first = run.pair.recv->recv->next_seq;
	for (int m = 0; m < MESSAGES; m++) {
		memset(place(&run.pair.to, m), CANARY, PART);
		fill(place(&run.pair.from, m), size_of(m), (uint32_t)m);
	}
	pair_idle(&run.pair, 20); /* the standby is built, mostly */
	for (unsigned i = 0; i < MEMORIES; i++)
		remember();
}

static bool has_failed(const struct ha_comm *comm)
{
	return ha_comm_error(comm) != HA_OK;
}

static bool one_waits_for_the_other(void)
{
	return has_failed(run.pair.send) != has_failed(run.pair.recv);
}

static bool all_are(const uint8_t *bytes, size_t size, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static void finish(void)
{
	for (unsigned rail = 0; rail < run.pair.fabric.rails; rail++)
		for (unsigned host = 0; host < 2; host++)
			sv_stepped_link(host, rail, true);
	for (int i = 0; i < 40; i++) {
		pair_idle(&run.pair, 5);
		look();
	}
	for (int i = 0; i < 60 && one_waits_for_the_other() && !run.said_goodbye; i++)
		pair_idle(&run.pair, 1000);
	look();
	FUZZ_CHECK(!one_waits_for_the_other() || run.said_goodbye);
	for (int m = 0; m < MESSAGES && !run.lied; m++)
		FUZZ_CHECK(!run.messages[m].received ||
			   all_are(place(&run.pair.to, m), PART, USED));
	pair_close(&run.pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	input = data;
	input_left = size;
	begin(byte());
	for (int i = 0; i < MAX_OPS && input_left > 0; i++) {
		operate();
		look();
		remember();
	}
	finish();
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

#define STEPS(n) (STEP + OPERATIONS * ((n)-1))
#define HONEST	 0, 0
#define MESSAGE	 ASK, STEPS(8), OFFER, STEPS(4)

static const uint8_t traffic[] = {0,	   MESSAGE, MESSAGE, MESSAGE, MESSAGE,
				  MESSAGE, MESSAGE, IDLE,    10,      MESSAGE};
static const uint8_t alarms[] = {END_TO_END, MESSAGE, ASK,   OFFER,   ALARM, 0, STEPS(20), IDLE,
				 5,	     ASK,     OFFER, MESSAGE, ALARM, 1, STEPS(20), OFFER};
static const uint8_t links[] = {0,    MESSAGE, LINK, 0, ASK,  OFFER, STEPS(20), LINK, 4,
				IDLE, 63,      LINK, 2, IDLE, 63,    LINK,	6,    MESSAGE};
/* FENCE of the next epoch to the sender; SUSPECT to the receiver; BYE beyond all; RESUME. */
static const uint8_t fence[] = {0,	MESSAGE, HEAR_SENDER, HA_MSG_FENCE - 1, 0,     2,    0,
				1,	0,	 0,	      STEPS(20),	OFFER, IDLE, 20,
				MESSAGE};
static const uint8_t suspect[] = {
    END_TO_END, MESSAGE, HEAR_RECEIVER, HA_MSG_SUSPECT - 1, HONEST, 0, 0, 0, STEPS(20), MESSAGE};
static const uint8_t bye[] = {0, MESSAGE, ASK, STEPS(4), GOODBYE, 1, 0x21, OFFER, IDLE, 10};
/* A count of what is not posted yet; it is lost with its path, and another path is taken. */
static const uint8_t ahead[] = {0,     MESSAGE,	 HEAR_SENDER, HA_MSG_FENCE - 1,
				0,     4,	 0,	      0x31,
				0,     0,	 ASK,	      STEPS(8),
				LINK,  0,	 LINK,	      2,
				OFFER, STEPS(4), ALARM,	      0,
				IDLE,  1,	 LINK,	      4,
				LINK,  6,	 IDLE,	      63};
static const uint8_t told[] = {0, ASK, STEPS(4), OFFER, HEAR_SENDER, HA_MSG_PONG - 1, 0, 4, 0, 1,
			       0, 0,   STEPS(4), IDLE,	20};
static const uint8_t rebuild[] = {0, MESSAGE, HEAR_SENDER, HA_MSG_REBUILD - 1, 0,      1, 1, 1,
				  0, 0,	      1,	   STEPS(20),	       MESSAGE};
static const uint8_t one_rail[] = {
    ONE_RAIL, MESSAGE, ALARM, 0, STEPS(20), HEAR_RECEIVER, HA_MSG_FENCED - 1,
    HONEST,   0,       0,     0, MESSAGE,   IDLE,	   40};

#ifdef HA_FUZZ_RAILS
/* A rail fails in mid-transfer; the other end's; twice. */
static const uint8_t rail_lost[] = {0, MESSAGE,	  MESSAGE, ASK,	 STEPS(8), OFFER,   STEPS(3), ALARM,
				    2, STEPS(20), MESSAGE, IDLE, 63,	   MESSAGE, MESSAGE,  ALARM,
				    3, STEPS(20), MESSAGE};
static const uint8_t rail_cut[] = {END_TO_END, MESSAGE, ASK,  STEPS(8), OFFER, STEPS(3), LINK,
				   2,	       IDLE,	20,   MESSAGE,	LINK,  6,	 IDLE,
				   63,	       MESSAGE, LINK, 3,	IDLE,  20,	 MESSAGE};
/* SHED of the second path to the sender, with nothing drained, then drained, then with all seen. */
static const uint8_t shed[] = {
    0,	  ASK, STEPS(8), OFFER,	    STEPS(3),	 HEAR_SENDER,	  HA_MSG_SHED - 1,
    0x10, 0,   1,	 STEPS(20), HEAR_SENDER, HA_MSG_SHED - 1, 0x50,
    0,	  1,   2,	 STEPS(20), MESSAGE};
static const uint8_t all_seen[] = {
    THREE_RAILS, MESSAGE, ASK, STEPS(8), OFFER,	    STEPS(3), HEAR_SENDER, HA_MSG_SHED - 1,
    0xd0,	 0,	  1,   2,	 0,	    0,	      0xff,	   0xff,
    0,		 0,	  0,   0,	 STEPS(20), MESSAGE,  IDLE,	   63};
/* For a reason that is none. */
static const uint8_t no_reason[] = {0, MESSAGE, HEAR_SENDER, HA_MSG_SHED - 1, 0x12, 0,
				    1, 200,	STEPS(20),   MESSAGE,	      IDLE, 63};
/* An order to fence more of what is lost than there was. */
static const uint8_t beyond[] = {
    0, ASK, STEPS(8), OFFER, STEPS(3),	ALARM,	 3,    HEAR_SENDER, HA_MSG_STATE - 1, 0, 8, 1,
    0, 2,   0,	      0,     STEPS(20), MESSAGE, IDLE, 63};
/* MENDED of what is not lost, and of what is and not mended. */
static const uint8_t mended[] = {0,
				 ASK,
				 STEPS(8),
				 OFFER,
				 STEPS(3),
				 ALARM,
				 2,
				 HEAR_RECEIVER,
				 HA_MSG_MENDED - 1,
				 0x30,
				 0,
				 1,
				 0,
				 STEPS(20),
				 HEAR_RECEIVER,
				 HA_MSG_MENDED - 1,
				 0x30,
				 0,
				 1,
				 0,
				 STEPS(20),
				 MESSAGE,
				 IDLE,
				 63};
/* The control rail fails while another one is shed. */
static const uint8_t both[] = {END_TO_END, MESSAGE, ASK,      STEPS(8), OFFER, STEPS(3),
			       ALARM,	   2,	    STEPS(4), ALARM,	0,     STEPS(20),
			       MESSAGE,	   IDLE,    63,	      MESSAGE};
#endif

#define SEED(name)                                                                                 \
	{                                                                                          \
		(name), sizeof(name)                                                               \
	}

const struct fuzz_seed fuzz_seeds[] = {
    SEED(traffic),   SEED(alarms),   SEED(links),   SEED(fence),    SEED(suspect),
    SEED(bye),	     SEED(told),     SEED(rebuild), SEED(one_rail), SEED(ahead),
#ifdef HA_FUZZ_RAILS
    SEED(rail_lost), SEED(rail_cut), SEED(shed),    SEED(all_seen), SEED(no_reason),
    SEED(beyond),    SEED(mended),   SEED(both),
#endif
    {NULL, 0},
};
