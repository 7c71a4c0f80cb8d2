/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Valid and hostile: a rank of a group whose other rank has queue pairs that work, and says and
 * writes over them what it likes: offers, answers and their verdicts, notices and records of
 * signals, counts of what it has applied, keys of its memory; while links fail. Whatever it does,
 *
 *  - rank 0's memory is as it was outside of what it has registered, and what it has registered
 *    beside its application's is on pages of its own, as keys are good for whole pages;
 *  - each signal is added once, and none that was not written;
 *  - a put is complete only when its bytes are at the other rank, or when that has said so itself.
 *    Who lies about what he has hurts himself alone.
 *
 * Input: byte 0: whether puts are complete end to end, and whether the other rank begins as it
 * should (its bits); then operations: a byte each, and what it takes.
 */
#include "fuzz.h"
#include "hostile_rank.h"
#include "input.h"

#include "memory/mr.h"
#include "transport/labels.h"

#include <arpa/inet.h>
#include <string.h>

enum { END_TO_END = 1, NOT_BEGUN = 2 };

enum operation {
	TURN,
	SAY_OFFER,
	SAY_ANSWER,
	SAY_READY,
	SAY_REGIONS,
	SAY_SUSPECT,
	NOTICE,
	TELL,
	PUT,
	LINK,
	OPERATIONS
};

#define PAGE	 4096
#define MAX_OPS	 60
#define TURNS	 40 /* a message arrives, and is answered */
#define PUTS	 16
#define PUT_SIZE 64
#define NUMBERS	 256 /* of operations that a record has been written for */

static const struct ha_gin_depth depth = {
    .sends = 64, .recvs = 2 * HA_GIN_WINDOW, .max_inline = sizeof(struct ha_gin_record)};

/* Rank 1's own memory. */
static _Alignas(PAGE) struct {
	uint8_t data[SIZE];
	struct ha_gin_record ring[HA_GIN_WINDOW];
	uint64_t told, source;
} mine;

static struct {
	struct ha_mr *mr;
	struct ha_gin_qp to, from; /* its ends of the streams to rank 0, and from it */
	struct ha_gin_message offer, answer;
	bool has_offer, has_answer;
	uint64_t counted; /* of rank 0's operations */
	uint64_t claimed; /* what it said that it has of those, at most */
	bool lied;	  /* about where its memory is */
	uint32_t epoch;	  /* the last one that it offered */
	bool has_epoch;
	uint64_t next; /* of its own operations */
	bool is_written[NUMBERS];
	uint64_t notices; /* of its own operations, right or not */
	uint64_t written; /* records of signals, by different numbers */
	bool is_odd;	  /* not all signals add 1 */
	struct ha_gin_request *puts[PUTS];
	unsigned n_puts;
} run;

/* Near one that makes sense, or any. */
static uint64_t near(uint64_t value)
{
	uint8_t how = byte();

	return how == 0x80 ? number(8) : value + (uint64_t)(int64_t)(int8_t)how;
}

/* ---- what it has keys of --------------------------------------------------------------------- */

static bool is_within(const void *memory, size_t size, const void *addr)
{
	return (uintptr_t)addr - (uintptr_t)memory < size;
}

ha_result_t __real_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out);
ha_result_t __wrap_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out);
ha_result_t __wrap_ha_mr_register(struct ha_device_set *set, struct ha_nic *nic, void *addr,
				  size_t length, int type, uint64_t offset, int fd,
				  struct ha_mr **out)
{
	FUZZ_CHECK(is_within(hostile_data, sizeof(hostile_data), addr) ||
		   is_within(hostile_words, sizeof(hostile_words), addr) ||
		   (uintptr_t)addr % PAGE == 0);
	return __real_ha_mr_register(set, nic, addr, length, type, offset, fd, out);
}

/* ---- what it says ---------------------------------------------------------------------------- */

static void heard(const struct ha_gin_message *message)
{
	if (message->say == HA_GIN_OFFER) {
		run.offer = *message;
		run.has_offer = true;
	}
	if (message->say == HA_GIN_ANSWER) {
		run.answer = *message;
		run.has_answer = true;
	}
}

static struct ha_port *port_of(struct ha_comm *comm)
{
	struct ha_gin_path_name name;
	struct ha_port *port;

	return ha_gin_path_now(comm, &port, &name) ? port : ha_instance_port(comm->inst, 0);
}

static uint32_t rkey_on(const struct ha_port *port)
{
	struct ibv_mr *mr;

	return ha_mr_on(run.mr, port->nic, &mr) == HA_OK ? mr->rkey : 0;
}

/* Its end, on the path that the connection goes over. False: there is none now. */
static bool make_end(struct ha_gin_qp *qp, struct ha_comm *comm, struct ha_gin_path_name *name)
{
	struct ha_port *port;

	(void)ha_gin_qp_close(qp);
	sv_stepped_set_host(1);
	return ha_gin_path_now(comm, &port, name) && ha_gin_qp_open(qp, port, &depth) == HA_OK;
}

/* ---- the stream from rank 0 ----------------------------------------------------------------- */

static void say_offer(uint8_t lies)
{
	struct ha_gin_message offer = {.say = HA_GIN_OFFER};
	const uint32_t epoch = run.has_epoch ? run.epoch + 1 : 0;

	if (!make_end(&run.from, hostile.in.comm, &offer.offer.path))
		return;
	for (unsigned i = 0; i < HA_GIN_WINDOW; i++)
		(void)ha_gin_qp_recv(&run.from);
	ha_gin_qp_address(&run.from, &offer.offer.address);
	offer.epoch = lies & 1 ? (uint32_t)near(epoch) : epoch;
	offer.offer.verdict = (struct ha_gin_verdict){run.counted, run.counted};
	if (lies & 2)
		offer.offer.verdict.counted = near(run.counted);
	if (lies & 4)
		offer.offer.verdict.applied = near(run.counted);
	offer.offer.ring = (uintptr_t)mine.ring;
	offer.offer.ring_rkey = rkey_on(run.from.port);
	if (lies & 8)
		offer.offer.ring = near(offer.offer.ring);
	if (lies & 16)
		offer.offer.path.generation = (uint32_t)near(offer.offer.path.generation);
	if (lies & 32)
		((uint8_t *)&offer.offer.address)[byte() % sizeof(offer.offer.address)] ^= byte();
	run.lied |= lies & 8;
	if (offer.offer.verdict.counted > run.claimed)
		run.claimed = offer.offer.verdict.counted;
	run.epoch = offer.epoch;
	run.has_epoch = true;
	run.has_answer = false;
	hostile_say(&offer, TURNS);
}

/* With the keys of the epoch that it is to offer next, or of the last one. */
static void say_regions(uint8_t lies)
{
	struct ha_gin_message region = {.say = HA_GIN_REGION};

	region.epoch = lies & 1 ? run.epoch : run.has_epoch ? run.epoch + 1 : 0;
	region.region.base = (uintptr_t)mine.data;
	region.region.size = SIZE;
	region.region.is_signals = 1;
	region.region.rkey = rkey_on(port_of(hostile.in.comm));
	if (lies & 2)
		region.region.base = near(region.region.base);
	if (lies & 4)
		region.region.size = near(SIZE);
	if (lies & 8)
		region.region.rkey = (uint32_t)near(region.region.rkey);
	run.lied |= lies & 2;
	for (region.number = 0; region.number < 2; region.number++)
		hostile_say(&region, 2);
	if (lies & 16) {
		region.number = (uint32_t)number(2);
		hostile_say(&region, 2);
	}
}

static void say_ready(uint8_t lies)
{
	struct ha_gin_message ready = {.say = HA_GIN_READY, .epoch = run.answer.epoch};

	sv_stepped_set_host(1);
	if (run.has_answer && run.from.on)
		(void)!ha_gin_qp_connect(&run.from, &run.answer.answer.address);
	run.has_answer = false;
	if (lies & 1)
		ready.epoch = (uint32_t)near(ready.epoch);
	hostile_say(&ready, TURNS);
}

/* What it says that it has applied, written where rank 0 looks. */
static void tell(uint8_t lies)
{
	struct ibv_sge sge = {(uintptr_t)&mine.source, sizeof(mine.source), 0};
	struct ibv_send_wr wr = {.wr_id = ha_gin_wr_id(HA_GIN_WR_TELL, 0),
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE};

	mine.source = lies & 1 ? near(run.counted) : run.counted;
	if (mine.source > run.claimed)
		run.claimed = mine.source;
	wr.wr.rdma.remote_addr = run.answer.answer.told;
	wr.wr.rdma.rkey = run.answer.answer.told_rkey;
	if (lies & 2)
		wr.wr.rdma.remote_addr = near(wr.wr.rdma.remote_addr);
	if (run.from.on)
		(void)ha_gin_qp_send(&run.from, &wr);
	hostile_turn();
}

/* ---- the stream to rank 0 ------------------------------------------------------------------- */

static void say_answer(uint8_t lies)
{
	struct ha_gin_message answer = {.say = HA_GIN_ANSWER, .epoch = run.offer.epoch};
	struct ha_gin_path_name name;

	if (!run.has_offer || !make_end(&run.to, hostile.out.comm, &name))
		return;
	run.next = run.offer.offer.verdict.counted;
	(void)!ha_gin_qp_connect(&run.to, &run.offer.offer.address);
	ha_gin_qp_address(&run.to, &answer.answer.address);
	answer.answer.told = (uintptr_t)&mine.told;
	answer.answer.told_rkey = rkey_on(run.to.port);
	if (lies & 1)
		answer.epoch = (uint32_t)near(answer.epoch);
	if (lies & 2)
		answer.answer.told = near(answer.answer.told);
	if (lies & 4)
		answer.answer.told_rkey = (uint32_t)near(answer.answer.told_rkey);
	if (lies & 8)
		((uint8_t *)&answer.answer.address)[byte() % sizeof(answer.answer.address)] ^=
		    byte();
	hostile_say(&answer, TURNS);
}

static struct ha_gin_record record_of(uint8_t lies)
{
	struct ha_gin_record record = {
	    .number = run.next, .epoch = run.offer.epoch, .region = 1, .offset = 8, .addend = 1};

	if (lies & 1)
		record.number = near(record.number);
	if (lies & 2)
		record.epoch = (uint32_t)near(record.epoch);
	if (lies & 4)
		record.region = (uint16_t)near(record.region);
	if (lies & 8)
		record.offset = near(record.offset);
	if (lies & 16)
		record.addend = near(record.addend);
	run.is_odd |= record.addend != 1;
	return record;
}

static void note_record(uint64_t number)
{
	if (number < NUMBERS && run.is_written[number])
		return;
	if (number < NUMBERS)
		run.is_written[number] = true;
	run.written++;
}

/* A record in its row, or in another one, and the notice of it; or the notice alone. */
static void notice(uint8_t lies, uint8_t how)
{
	struct ha_gin_record record = record_of(lies);
	const uint64_t noticed = how & 1 ? near(run.next) : run.next;
	const uint64_t row = how & 2 ? byte() : record.number;
	struct ibv_sge sge = {(uintptr_t)&record, sizeof(record), 0};
	struct ibv_send_wr wr = {
	    .wr_id = ha_gin_wr_id(HA_GIN_WR_OPERATION, 0),
	    .sg_list = &sge,
	    .num_sge = how & 4 ? 0 : 1,
	    .opcode = how & 8 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
	    .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
	    .imm_data = htonl(ha_imm_pack(noticed, record.epoch, 1, !(how & 4))),
	};

	wr.wr.rdma.remote_addr =
	    run.offer.offer.ring + row % HA_GIN_WINDOW * sizeof(struct ha_gin_record);
	wr.wr.rdma.rkey = run.offer.offer.ring_rkey;
	if (how & 16)
		wr.imm_data = (uint32_t)number(4);
	if (!(how & 4))
		note_record(record.number);
	run.next++;
	run.notices++;
	if (run.to.on)
		(void)ha_gin_qp_send(&run.to, &wr);
	hostile_turn();
}

/* ---- rank 0's application -------------------------------------------------------------------- */

static void put(uint8_t how)
{
	const uint64_t offset = run.n_puts * PUT_SIZE;
	struct ha_gin_put put = {.from = hostile.memory,
				 .to = hostile.memory,
				 .from_offset = offset,
				 .to_offset = offset,
				 .size = PUT_SIZE,
				 .signals = how & 1 ? hostile.signals : NULL,
				 .signal_offset = 8 * (how / 2 % 8),
				 .addend = 1};

	sv_stepped_set_host(0);
	if (run.n_puts == PUTS ||
	    ha_gin_put(hostile.group, 1, &put, &run.puts[run.n_puts]) != HA_OK)
		return;
	run.n_puts++;
	hostile_turn();
}

static void look(void)
{
	for (unsigned n = 0; n < run.n_puts; n++) {
		int done = 0;

		sv_stepped_set_host(0);
		if (!run.puts[n] || ha_gin_test(hostile.group, run.puts[n], &done) != HA_OK ||
		    !done)
			continue;
		run.puts[n] = NULL;
		FUZZ_CHECK(n < run.claimed || run.lied ||
			   !memcmp(mine.data + n * PUT_SIZE, hostile_data + SIZE + n * PUT_SIZE,
				   PUT_SIZE));
	}
}

/* ---- rank 1 ---------------------------------------------------------------------------------- */

static void take_what_came(void)
{
	struct ibv_wc wc;

	while (run.from.on && ha_gin_qp_poll(&run.from, &wc))
		if (ha_gin_wr_what(wc.wr_id) == HA_GIN_WR_RECV) {
			run.counted++;
			(void)ha_gin_qp_recv(&run.from);
		}
	while (run.to.on && ha_gin_qp_poll(&run.to, &wc))
		;
}

static void operate(void)
{
	const struct ha_gin_message suspect = {.say = HA_GIN_SUSPECT, .epoch = run.offer.epoch};
	uint8_t what = byte();

	switch ((enum operation)(what % OPERATIONS)) {
	case TURN:
		for (int i = 0; i <= what; i++)
			hostile_turn();
		break;
	case SAY_OFFER:
		say_offer(byte());
		break;
	case SAY_ANSWER:
		say_answer(byte());
		break;
	case SAY_READY:
		say_ready(byte());
		break;
	case SAY_REGIONS:
		say_regions(byte());
		break;
	case SAY_SUSPECT:
		hostile_say(&suspect, TURNS);
		break;
	case NOTICE:
		what = byte();
		notice(what, byte());
		break;
	case TELL:
		tell(byte());
		break;
	case PUT:
		put(byte());
		break;
	case LINK:
		what = byte();
		sv_stepped_link(what & 1, what >> 1 & 1, what & 4);
		break;
	case OPERATIONS:
		break;
	}
	take_what_came();
	look();
}

static void await(const bool *is_so)
{
	for (int i = 0; i < 10 * TURNS && !*is_so; i++)
		hostile_turn();
	FUZZ_CHECK(*is_so);
}

static void begin(uint8_t how)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};

	memset(&run, 0, sizeof(run));
	memset(&mine, 0, sizeof(mine));
	hostile_begin(heard, how & END_TO_END);
	fill(hostile_data + SIZE, SIZE, 5);
	sv_stepped_set_host(1);
	FUZZ_CHECK(ha_mr_register(hostile.pair.inst[1]->devices,
				  ha_instance_port(hostile.pair.inst[1], 0)->nic, &mine,
				  sizeof(mine), HA_MEM_HOST, 0, -1, &run.mr) == HA_OK);
	hostile_say(&hello, TURNS);
	if (how & NOT_BEGUN)
		return;
	await(&run.has_offer);
	say_answer(0);
	say_regions(0);
	say_offer(0);
	await(&run.has_answer);
	say_ready(0);
}

/* What rank 0 has applied came, and what it says of it. */
static void check_signals(void)
{
	uint64_t added = 0;

	for (unsigned i = 0; i < 8; i++)
		added += hostile_words[8 + i];
	FUZZ_CHECK(run.is_odd || added <= run.written);
	FUZZ_CHECK(mine.told <= run.notices);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	input = bytes;
	input_left = size;
	begin(byte());
	for (int i = 0; i < MAX_OPS && input_left > 0; i++)
		operate();
	for (int i = 0; i < TURNS; i++)
		hostile_turn();
	look();
	(void)ha_gin_qp_close(&run.to);
	(void)ha_gin_qp_close(&run.from);
	ha_mr_deregister(run.mr);
	hostile_end();
	check_signals();
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

#define TURN_FOR(n) (TURN + OPERATIONS * ((n) / OPERATIONS))

/* Both streams run. */
static const uint8_t honest[] = {0, PUT,  0, PUT,    1, NOTICE, 0,   0, NOTICE,	      0,
				 0, TELL, 0, NOTICE, 0, 4,	PUT, 3, TURN_FOR(100)};
static const uint8_t end_to_end[] = {
    END_TO_END, PUT, 0, TURN_FOR(50), TELL, 0, PUT, 1, TURN_FOR(50), TELL, 1, 9};
/* A number twice, one ahead, one of another epoch, a row of another, no such region, no such word.
 */
static const uint8_t twice[] = {0, NOTICE, 0, 0, NOTICE, 1, 1, 0xff, 0xff};
static const uint8_t ahead[] = {0, NOTICE, 1, 1, 3, 3};
static const uint8_t epoch[] = {0, NOTICE, 2, 0, 1};
static const uint8_t row[] = {0, NOTICE, 0, 2, 9};
static const uint8_t region[] = {0, NOTICE, 4, 0, 0xff};
static const uint8_t word[] = {0, NOTICE, 8, 0, 0x3c};
static const uint8_t sent[] = {0, NOTICE, 0, 12, NOTICE, 0, 8, NOTICE, 0, 16, 1, 2, 3, 4};
/* A verdict of what was never put; of less than was acknowledged; another epoch. */
static const uint8_t more[] = {0, PUT, 0, TURN_FOR(50), SAY_REGIONS, 0, SAY_OFFER, 2, 7};
static const uint8_t less[] = {0, PUT, 0, TURN_FOR(50), SAY_REGIONS, 0, SAY_OFFER, 2, 0xff};
static const uint8_t again[] = {0, PUT,	      0, SAY_REGIONS, 0, SAY_OFFER,
				0, SAY_READY, 0, PUT,	      1, TURN_FOR(100)};
static const uint8_t older[] = {0, PUT, 0, SAY_OFFER, 1, 0xff, SAY_READY, 0};
static const uint8_t suspects[] = {0,	       NOTICE, 0,      0, SAY_SUSPECT, TURN_FOR(50),
				   SAY_ANSWER, 0,      NOTICE, 0, 0,	       TURN_FOR(50)};
static const uint8_t links[] = {
    0, PUT,	      0,	  NOTICE, 0,	       0,      LINK,
    0, TURN_FOR(200), SAY_ANSWER, 0,	  SAY_REGIONS, 0,      SAY_OFFER,
    0, SAY_READY,     0,	  PUT,	  1,	       NOTICE, 0,
    0, TURN_FOR(100)};
static const uint8_t elsewhere[] = {0,	  SAY_REGIONS, 2, 0x70, SAY_OFFER, 8,
				    0x70, SAY_READY,   0, PUT,	1,	   TURN_FOR(100)};
static const uint8_t told[] = {END_TO_END, PUT,	 0, TELL, 1, 0x7f, TELL, 2, 0x40, TELL,
			       1,	   0x80, 1, 2,	  3, 4,	   5,	 6, 7,	  8};
static const uint8_t unready[] = {NOT_BEGUN, SAY_READY, 0, SAY_OFFER, 16,	 1, TURN_FOR(250),
				  SAY_OFFER, 32,	0, 1,	      SAY_READY, 0, SAY_ANSWER,
				  8,	     1,		1};

#define SEED(name)                                                                                 \
	{                                                                                          \
		(name), sizeof(name)                                                               \
	}

const struct fuzz_seed fuzz_seeds[] = {
    SEED(honest),    SEED(end_to_end), SEED(twice),   SEED(ahead),    SEED(epoch),
    SEED(row),	     SEED(region),     SEED(word),    SEED(sent),     SEED(more),
    SEED(less),	     SEED(again),      SEED(older),   SEED(suspects), SEED(links),
    SEED(elsewhere), SEED(told),       SEED(unready), {NULL, 0},
};
