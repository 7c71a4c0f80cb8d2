/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mailbox that changes while it is looked at, as the peer's device writes into it, with a job key
 * and without: at each look it has the first bytes of one message over those of another, or some of
 * anybody's. What is heard is a message that the peer said, whole, and with a key none a second
 * time.
 *
 * Input: byte 0: whether there is a key. Then looks: which message, over which one; how many bytes
 * of it are there at the first look, and at the next; where a byte is changed, and how (0: not at
 * all).
 */
#include "../made_key.h"
#include "../transport/harness.h"
#include "fuzz.h"
#include "input.h"

#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/signaling.h"
#include "transport/path_msg.h"

#include <string.h>

#define SAID	  4
#define MAX_LOOKS 200

static struct {
	struct pair pair;
	unsigned path;
	struct ha_mailbox said[SAID]; /* by the sender, in this order */
	size_t length;		      /* of each, as far as anybody looks */
} run;

/* What the box has at a look, and what the first look found there. */
static struct {
	bool on;
	const struct ha_mailbox *newer, *older;
	size_t there[2], change_at;
	uint8_t change;
	unsigned looks;
	uint8_t found[HA_MAILBOX_BYTES], decoded[HA_MAILBOX_BYTES];
} changing;

static struct ha_mailbox *box(void)
{
	return &run.pair.recv->recv_ring->msg_in[run.path];
}

void __real_ha_path_mailbox_read(const struct ha_comm *comm, unsigned path, uint8_t *out);
void __wrap_ha_path_mailbox_read(const struct ha_comm *comm, unsigned path, uint8_t *out);

void __wrap_ha_path_mailbox_read(const struct ha_comm *comm, unsigned path, uint8_t *out)
{
	if (!changing.on) {
		__real_ha_path_mailbox_read(comm, path, out);
		return;
	}
	*box() = *changing.older;
	memcpy(box()->bytes, changing.newer->bytes, changing.there[changing.looks % 2]);
	box()->bytes[changing.change_at] ^= changing.change;
	__real_ha_path_mailbox_read(comm, path, out);
	if (changing.looks++ == 0)
		memcpy(changing.found, out, sizeof(changing.found));
	*box() = *changing.newer; /* and goes on, whoever has not taken a copy */
}

enum ha_wire_result __real_ha_message_decode(const uint8_t *in, size_t length,
					     struct ha_message *out);
enum ha_wire_result __wrap_ha_message_decode(const uint8_t *in, size_t length,
					     struct ha_message *out);

enum ha_wire_result __wrap_ha_message_decode(const uint8_t *in, size_t length,
					     struct ha_message *out)
{
	if (changing.on)
		memcpy(changing.decoded, in, length < HA_MAILBOX_BYTES ? length : HA_MAILBOX_BYTES);
	return __real_ha_message_decode(in, length, out);
}

/* Which message was found; -1: none of the peer's. */
static int found_message(void)
{
	for (int i = 0; i < SAID; i++)
		if (memcmp(changing.found, run.said[i].bytes, run.length) == 0)
			return i;
	return -1;
}

static bool hears(void)
{
	struct ha_comm *comm = run.pair.recv;
	uint64_t received = comm->count.control_received;

	changing.looks = 0;
	changing.on = true;
	ha_token_acquire(comm);
	comm->failover->slots[run.path].notes.msg = true;
	ha_signaling_read_path_msg(comm);
	ha_token_release(comm);
	changing.on = false;
	FUZZ_CHECK(changing.looks > 0);
	return comm->count.control_received != received;
}

static void look(int *newest, bool keyed)
{
	int found;

	changing.newer = &run.said[byte() % SAID];
	changing.older = &run.said[byte() % SAID];
	for (int i = 0; i < 2; i++)
		changing.there[i] = number(2) % (HA_MAILBOX_BYTES + 1);
	changing.change_at = number(2) % HA_MAILBOX_BYTES;
	changing.change = byte();
	if (!hears())
		return;
	found = found_message();
	FUZZ_CHECK(found >= 0);
	FUZZ_CHECK(memcmp(changing.decoded, changing.found, run.length) == 0);
	FUZZ_CHECK(!keyed || found > *newest);
	*newest = found;
}

static void listen_to_the_sender(bool keyed)
{
	run.path = run.pair.recv->active;
	for (int i = 0; i < SAID; i++) {
		ha_say(run.pair.send, HA_SAY_PING);
		pair_idle(&run.pair, 5);
		run.said[i] = *box();
	}
	run.length = keyed ? HA_MAILBOX_SEALED : HA_MESSAGE_BYTES;
	memset(run.pair.recv->failover->path_heard, 0, sizeof(run.pair.recv->failover->path_heard));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *key_file = run.pair.config.job_key_file;
	int newest = -1;
	bool keyed;

	input = data;
	input_left = size;
	memset(&run, 0, sizeof(run));
	pair_init(&run.pair);
	run.pair.config.enable_backup = true;
	run.pair.fabric.rails = 2;
	keyed = byte() & 1;
	if (keyed)
		make_key_file(7, key_file);
	pair_up(&run.pair);
	if (keyed)
		unlink(key_file);
	pair_idle(&run.pair, 20);
	listen_to_the_sender(keyed);
	for (int i = 0; i < MAX_LOOKS && input_left > 0; i++)
		look(&newest, keyed);
	*box() = run.said[SAID - 1];
	pair_idle(&run.pair, 5);
	FUZZ_CHECK(ha_comm_error(run.pair.send) == HA_OK);
	FUZZ_CHECK(ha_comm_error(run.pair.recv) == HA_OK);
	pair_close(&run.pair);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

#define LOOK(newer, older, first, next)                                                            \
	newer, older, (first) >> 8, (first)&0xff, (next) >> 8, (next)&0xff, 0, 0, 0
#define WHOLE HA_MAILBOX_BYTES
#define LOOKS                                                                                      \
	LOOK(0, 0, WHOLE, WHOLE), LOOK(1, 0, 100, WHOLE), LOOK(1, 0, 0, 200),                      \
	    LOOK(1, 0, WHOLE, 0), LOOK(2, 1, 40, 41), LOOK(3, 2, 320, WHOLE),                      \
	    LOOK(3, 2, WHOLE, WHOLE), LOOK(3, 3, WHOLE, WHOLE)

static const uint8_t with_key[] = {1, LOOKS}, without[] = {0, LOOKS};

const struct fuzz_seed fuzz_seeds[] = {
    {with_key, sizeof(with_key)},
    {without, sizeof(without)},
    {NULL, 0},
};
