/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank as a program that has inccl/inccl.h and nothing else: operations of every type, some of
 * them waited for at once and some later, some in place. Which memory is registered, and which is
 * copied, differs between ranks.
 *
 * Every byte is compared. Memory is the program's as soon as an operation is done, so it is written
 * over then, and looked at once more in the end. "done N" is said behind each operation, and with
 * --hold=N it waits for a line before operation N. With --differ=N operation N is another one here.
 * The last line says what has become of it, as JSON.
 */
#include "../seeded_random.h"
#include "elements.h"

#include "inccl/inccl.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POISON	   0xee
#define MARGIN	   64
#define SLOTS	   4
#define TYPES	   10
#define OPERATIONS 4

enum { ENDED_WELL, FAILED, WRONG_CALL, WRONG_BYTES };

/* What the library does with memory. */
enum path { DIRECT, BOUNCED, UNKNOWN, HALF_KNOWN, PATHS };

static struct {
	struct inccl_options options;
	unsigned ops, hold, differ, comms;
	size_t bytes;
	uint32_t timeout_ms;
} a = {.options = {.size = sizeof(a.options), .ranks = 1},
       .ops = 40,
       .comms = 1,
       .bytes = 1 << 18,
       .timeout_ms = 60000};

struct slot {
	uint8_t *memory[2]; /* registered, and not: a send and a receive buffer in each */
	struct inccl_region *region;
	struct inccl_request *request; /* NULL: free */
	unsigned op;
};

static struct inccl_group *group;
static struct inccl_comm *comm;
static struct slot slots[SLOTS];
static unsigned done;
static uint64_t digest;
static double last_s; /* how long the last call took */

/* ---- operations ----------------------------------------------------------------------------- */

static bool is_in_place(unsigned op)
{
	return op % 3 == 2;
}

static enum path path_of(unsigned op)
{
	return (enum path)(mix((uint64_t)op << 8 | a.options.rank) % PATHS);
}

static struct elements elements_of(unsigned op)
{
	struct elements elements = {.op = op,
				    .type = (enum ha_reduce_type)(op % TYPES),
				    .operation = (enum ha_reduce_op)(op / TYPES % OPERATIONS),
				    .is_wild = op % 5 == 1};
	const size_t most = a.bytes / elements_size(&elements);

	elements.count = op % 11 == 4 ? 1 : (op % 13 == 5 ? 0 : most - op % 7 % most);
	return elements;
}

static size_t room(void)
{
	return a.bytes + 2 * MARGIN;
}

static uint8_t *send_of(const struct slot *slot)
{
	const enum path path = path_of(slot->op);

	return slot->memory[path == UNKNOWN] + MARGIN;
}

static uint8_t *recv_of(const struct slot *slot)
{
	const enum path path = path_of(slot->op);

	if (is_in_place(slot->op))
		return send_of(slot);
	return slot->memory[path == UNKNOWN || path == HALF_KNOWN] + room() + MARGIN;
}

static unsigned flags_of(unsigned op)
{
	const enum path path = path_of(op);

	return path == DIRECT ? INCCL_DIRECT : path == BOUNCED ? INCCL_BOUNCE : 0;
}

static bool is_right(struct slot *slot)
{
	const struct elements elements = elements_of(slot->op);

	digest ^= elements_digest(&elements, recv_of(slot));
	if (!elements_are_right(&elements, a.options.ranks, recv_of(slot)))
		return false;
	memset(send_of(slot), POISON, a.bytes);
	memset(recv_of(slot), POISON, a.bytes);
	printf("done %u\n", slot->op);
	(void)fflush(stdout);
	done++;
	return true;
}

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Every other one is waited for at once. */
static int ask(struct slot *slot, unsigned op)
{
	const bool is_other = op && op == a.differ;
	const double begun_s = now_s();
	struct elements elements;
	int result;

	slot->op = op;
	elements = elements_of(op);
	elements_contribute(&elements, a.options.rank, send_of(slot));
	if (op % 2)
		return inccl_iallreduce(comm, send_of(slot), recv_of(slot), elements.count,
					(enum inccl_type)elements.type,
					(enum inccl_op)(elements.operation ^ is_other),
					flags_of(op), &slot->request);
	result = inccl_allreduce(
	    comm, send_of(slot), recv_of(slot), elements.count, (enum inccl_type)elements.type,
	    (enum inccl_op)(elements.operation ^ is_other), flags_of(op), a.timeout_ms);
	last_s = now_s() - begun_s;
	return result;
}

static int await(struct slot *slot)
{
	const double begun_s = now_s();
	struct inccl_request *request = slot->request;
	int result;

	if (!request)
		return INCCL_OK;
	result = inccl_wait(request, a.timeout_ms);
	last_s = now_s() - begun_s;
	slot->request = NULL;
	return result;
}

static int await_all(bool *is_good)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		const bool is_asked = slots[i].request != NULL;
		const int result = await(&slots[i]);

		if (result != INCCL_OK)
			return result;
		*is_good &= !is_asked || is_right(&slots[i]);
	}
	return INCCL_OK;
}

static void wait_for_a_line(void)
{
	char line[16];

	(void)!fgets(line, sizeof(line), stdin);
}

static int run(bool *is_good)
{
	int result = INCCL_OK;

	for (unsigned op = 0; op < a.ops && result == INCCL_OK && *is_good; op++) {
		struct slot *slot = &slots[op % SLOTS];
		const bool is_asked = slot->request != NULL;

		if (a.hold && op == a.hold) {
			result = await_all(is_good);
			wait_for_a_line();
		} else {
			result = await(slot);
			*is_good &= result != INCCL_OK || !is_asked || is_right(slot);
		}
		if (result == INCCL_OK)
			result = ask(slot, op);
		if (result == INCCL_OK && !slot->request)
			*is_good &= is_right(slot);
	}
	return result == INCCL_OK ? await_all(is_good) : result;
}

/* ---- memory --------------------------------------------------------------------------------- */

static int make_slots(void)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];
		int result;

		for (int is_known = 0; is_known < 2; is_known++) {
			slot->memory[is_known] = malloc(2 * room());
			if (!slot->memory[is_known])
				return INCCL_ERR_SYSTEM;
			memset(slot->memory[is_known], POISON, 2 * room());
		}
		result = inccl_register(group, slot->memory[0], 2 * room(), &slot->region);
		if (result != INCCL_OK)
			return result;
	}
	return INCCL_OK;
}

/* Of memory that was handed back nothing has been written. */
static bool free_slots(bool is_over)
{
	bool good = true;

	for (unsigned i = 0; i < SLOTS; i++) {
		inccl_deregister(slots[i].region);
		for (int which = 0; which < 2; which++) {
			uint8_t *memory = slots[i].memory[which];

			for (size_t at = 0; memory && !is_over && at < 2 * room(); at++)
				good &= memory[at] == POISON;
			free(memory);
		}
	}
	if (!good)
		fprintf(stderr, "memory was touched that had been handed back\n");
	return good;
}

/* ---- the program ---------------------------------------------------------------------------- */

static void tell(int status, int result, const char *why)
{
	printf("{\"rank\": %u, \"status\": %d, \"result\": %d, \"done\": %u, \"digest\": %llu, "
	       "\"took_s\": %.3f, \"why\": \"%s\"}\n",
	       a.options.rank, status, result, done, (unsigned long long)digest, last_s, why);
	(void)fflush(stdout);
}

static int open_comm(void)
{
	const double begun_s = now_s();
	const int result = inccl_comm_open(group, &comm);

	last_s = now_s() - begun_s;
	return result;
}

static int work(void)
{
	bool is_good = true;
	int status = ENDED_WELL, result = inccl_group_open(&a.options, &group);
	char why[512] = "";

	if (result == INCCL_OK)
		result = make_slots();
	for (unsigned i = 0; i < a.comms && result == INCCL_OK && is_good; i++) {
		result = open_comm();
		if (result == INCCL_OK)
			result = run(&is_good);
		snprintf(why, sizeof(why), "%s",
			 comm ? inccl_comm_why(comm) : inccl_group_why(group));
		if (inccl_comm_close(comm) != INCCL_OK)
			is_good = false;
		comm = NULL;
	}
	if (result != INCCL_OK)
		status = FAILED;
	if (!is_good || !free_slots(result != INCCL_OK))
		status = WRONG_BYTES;
	tell(status, result, why);
	return inccl_group_close(group) == INCCL_OK ? status : FAILED;
}

enum {
	OPT_RANK = 0x100,
	OPT_RANKS,
	OPT_OPS,
	OPT_BYTES,
	OPT_HOLD,
	OPT_DIFFER,
	OPT_COMMS,
	OPT_TIMEOUT,
	OPT_CONNECT,
	OPT_UNIT,
	OPT_LATE,
	OPT_REPRODUCIBLE
};

static const struct argp_option options[] = {
    {"connect", 'a', "HOST:PORT", 0, "", 0},
    {"key-file", 'k', "FILE", 0, "", 0},
    {"group", 'g', "NAME", 0, "", 0},
    {"host", 'h', "NAME", 0, "", 0},
    {"rank", OPT_RANK, "N", 0, "", 0},
    {"ranks", OPT_RANKS, "N", 0, "", 0},
    {"ops", OPT_OPS, "N", 0, "", 0},
    {"bytes", OPT_BYTES, "N", 0, "", 0},
    {"hold", OPT_HOLD, "N", 0, "", 0},
    {"differ", OPT_DIFFER, "N", 0, "", 0},
    {"comms", OPT_COMMS, "N", 0, "", 0},
    {"timeout-ms", OPT_TIMEOUT, "N", 0, "", 0},
    {"connect-ms", OPT_CONNECT, "N", 0, "", 0},
    {"late-ms", OPT_LATE, "N", 0, "", 0},
    {"unit", OPT_UNIT, "N", 0, "", 0},
    {"reproducible", OPT_REPRODUCIBLE, "N", 0, "", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const unsigned number = arg ? (unsigned)strtoul(arg, NULL, 10) : 0;

	switch (key) {
	case 'a':
		a.options.controller = arg;
		return 0;
	case 'k':
		a.options.key_file = arg;
		return 0;
	case 'g':
		a.options.group = arg;
		return 0;
	case 'h':
		a.options.host = arg;
		return 0;
	case OPT_RANK:
		a.options.rank = number;
		return 0;
	case OPT_RANKS:
		a.options.ranks = number;
		return 0;
	case OPT_OPS:
		a.ops = number;
		return 0;
	case OPT_BYTES:
		a.bytes = number;
		return 0;
	case OPT_HOLD:
		a.hold = number;
		return 0;
	case OPT_DIFFER:
		a.differ = number;
		return 0;
	case OPT_COMMS:
		a.comms = number;
		return 0;
	case OPT_TIMEOUT:
		a.timeout_ms = number;
		return 0;
	case OPT_CONNECT:
		a.options.connect_ms = number;
		return 0;
	case OPT_LATE:
		a.options.late_ms = number;
		return 0;
	case OPT_REPRODUCIBLE:
		a.options.reproducible = number;
		return 0;
	case OPT_UNIT:
		a.options.unit_bytes = number;
		return 0;
	case ARGP_KEY_END:
		if (a.options.ranks > ELEMENTS_RANKS)
			argp_error(state, "too many ranks");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, NULL, "", NULL, NULL, NULL};

int main(int argc, char **argv)
{
	argp_err_exit_status = WRONG_CALL;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	return work();
}
