/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that reduces, scatters, broadcasts, gathers and waits at barriers, by inccl/inccl.h alone:
 * inccl-kinds CONTROLLER RANK RANKS BYTES ROUNDS. Which memory is registered differs between ranks
 * and rounds, the root and what is in place between rounds. Every byte of all memory is compared:
 * what has to come out, and that nothing else was touched. In every other pair of rounds all kinds
 * are under way at once, each with memory of its own.
 *
 * "begun N" is said when all operations of such a round have begun, and "round N" behind each
 * round. With PAUSE=N in the environment it waits for a line before round N.
 */
#include "elements.h"

#include "inccl/inccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON	   0xee
#define TIMEOUT_MS 60000u

enum kind { REDUCE, BROADCAST, SCATTER, GATHER, BARRIER, KINDS };

static const char *const names[KINDS] = {"reduce", "broadcast", "reduce-scatter", "all-gather",
					 "barrier"};

/* An operation, of `ranks` parts to send, and as many to receive. */
struct call {
	uint8_t *memory, *wanted;
	struct inccl_request **request; /* where it goes; NULL: the call is to wait */
};

static unsigned rank, ranks, rounds, pause;
static size_t bytes; /* of a part, at most */
static struct inccl_group *group;
static struct inccl_comm *comm;
static struct call calls[KINDS];

static size_t all_bytes(void)
{
	return 2 * ranks * bytes;
}

static uint8_t *recv_of(uint8_t *of)
{
	return of + ranks * bytes;
}

static struct elements elements_of(unsigned number, size_t parts)
{
	struct elements elements = {.op = number,
				    .type = (enum ha_reduce_type)(number % HA_REDUCE_TYPES),
				    .operation = (enum ha_reduce_op)(number % HA_REDUCE_OPS)};

	elements.count = (bytes / elements_size(&elements) - number % 5) * parts;
	return elements;
}

static struct elements bytes_of(unsigned number)
{
	return (struct elements){.op = number,
				 .type = HA_REDUCE_UINT8,
				 .operation = HA_REDUCE_MAX,
				 .count = number % 7 == 3 ? 0 : bytes - number % 5,
				 .is_wild = true};
}

/* ---- each kind: what goes in, what has to come out, and the call --------------------------- */

static int reduce(const struct call *c, unsigned number, unsigned flags)
{
	const struct elements elements = elements_of(number, 1);
	const enum inccl_type type = (enum inccl_type)elements.type;
	const enum inccl_op op = (enum inccl_op)elements.operation;
	const unsigned root = number % ranks;
	const bool is_root = rank == root, is_in_place = number % 2;
	uint8_t *recv = is_in_place ? c->memory : recv_of(c->memory);

	elements_contribute(&elements, rank, c->memory);
	elements_contribute(&elements, rank, c->wanted);
	if (is_root &&
	    !elements_result(&elements, ranks, is_in_place ? c->wanted : recv_of(c->wanted)))
		return INCCL_ERR_SYSTEM;
	if (!is_root)
		recv = NULL;
	return c->request ? inccl_ireduce(comm, c->memory, recv, elements.count, type, op, root,
					  flags, c->request)
			  : inccl_reduce(comm, c->memory, recv, elements.count, type, op, root,
					 flags, TIMEOUT_MS);
}

static int call_reduce_scatter(const struct call *c, const struct elements *elements, uint8_t *recv,
			       unsigned flags)
{
	const enum inccl_type type = (enum inccl_type)elements->type;
	const enum inccl_op op = (enum inccl_op)elements->operation;
	const size_t count = elements->count / ranks;

	return c->request ? inccl_ireduce_scatter(comm, c->memory, recv, count, type, op, flags,
						  c->request)
			  : inccl_reduce_scatter(comm, c->memory, recv, count, type, op, flags,
						 TIMEOUT_MS);
}

static int reduce_scatter(const struct call *c, unsigned number, unsigned flags)
{
	const struct elements elements = elements_of(number, ranks);
	const size_t part = elements.count / ranks * elements_size(&elements);
	const bool is_in_place = number % 2;
	uint8_t *sum = malloc(ranks * part + 1);
	const bool is_known = sum && elements_result(&elements, ranks, sum);

	elements_contribute(&elements, rank, c->memory);
	elements_contribute(&elements, rank, c->wanted);
	if (is_known)
		memcpy(is_in_place ? c->wanted + rank * part : recv_of(c->wanted),
		       sum + rank * part, part);
	free(sum);
	return is_known
		   ? call_reduce_scatter(c, &elements,
					 is_in_place ? c->memory + rank * part : recv_of(c->memory),
					 flags)
		   : INCCL_ERR_SYSTEM;
}

static int broadcast(const struct call *c, unsigned number, unsigned flags)
{
	const struct elements elements = bytes_of(number);
	const unsigned root = number % ranks;

	if (rank == root)
		elements_contribute(&elements, root, c->memory);
	elements_contribute(&elements, root, c->wanted);
	return c->request
		   ? inccl_ibroadcast(comm, c->memory, elements.count, root, flags, c->request)
		   : inccl_broadcast(comm, c->memory, elements.count, root, flags, TIMEOUT_MS);
}

static int allgather(const struct call *c, unsigned number, unsigned flags)
{
	const struct elements elements = bytes_of(number);
	const bool is_in_place = number % 2;
	uint8_t *recv = recv_of(c->memory);
	uint8_t *send = is_in_place ? recv + rank * elements.count : c->memory;

	elements_contribute(&elements, rank, send);
	if (!is_in_place)
		elements_contribute(&elements, rank, c->wanted);
	for (unsigned of = 0; of < ranks; of++)
		elements_contribute(&elements, of, recv_of(c->wanted) + of * elements.count);
	return c->request ? inccl_iallgather(comm, send, recv, elements.count, flags, c->request)
			  : inccl_allgather(comm, send, recv, elements.count, flags, TIMEOUT_MS);
}

static int barrier(const struct call *c, unsigned number, unsigned flags)
{
	(void)number, (void)flags;
	return c->request ? inccl_ibarrier(comm, c->request) : inccl_barrier(comm, TIMEOUT_MS);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int begin(enum kind kind, unsigned number, unsigned flags)
{
	static int (*const begins[KINDS])(const struct call *c, unsigned number, unsigned flags) = {
	    reduce, broadcast, reduce_scatter, allgather, barrier};

	memset(calls[kind].memory, POISON, all_bytes());
	memset(calls[kind].wanted, POISON, all_bytes());
	return begins[kind](&calls[kind], number, flags);
}

static int end(enum kind kind, int result, unsigned number)
{
	const struct call *c = &calls[kind];

	if (result != INCCL_OK)
		fprintf(stderr, "%s %u: %s: %s\n", names[kind], number, inccl_strerror(result),
			inccl_comm_why(comm));
	else if (memcmp(c->memory, c->wanted, all_bytes()) != 0)
		fprintf(stderr, "%s %u is wrong\n", names[kind], number);
	else
		return INCCL_OK;
	return result != INCCL_OK ? result : 1;
}

static int one_by_one(unsigned number, unsigned flags)
{
	int result = INCCL_OK;

	for (enum kind kind = 0; kind < KINDS && result == INCCL_OK; kind++) {
		calls[kind].request = NULL;
		result = end(kind, begin(kind, number, flags), number);
	}
	return result;
}

/* What was begun first is done first: when the last one is, the others need no more than a look. */
static int all_at_once(unsigned number, unsigned flags)
{
	struct inccl_request *requests[KINDS];
	int result = INCCL_OK;

	for (enum kind kind = 0; kind < KINDS && result == INCCL_OK; kind++) {
		calls[kind].request = &requests[kind];
		result = begin(kind, number, flags);
	}
	printf("begun %u\n", number);
	(void)fflush(stdout);
	if (result == INCCL_OK)
		result = end(BARRIER, inccl_wait(requests[BARRIER], TIMEOUT_MS), number);
	for (enum kind kind = 0; kind < BARRIER && result == INCCL_OK; kind++)
		result = end(kind, inccl_test(requests[kind]), number);
	return result;
}

static int round_of(unsigned number)
{
	const unsigned path = (number + rank) % 3; /* of the whole memory */
	const unsigned flags = path == 0 ? INCCL_DIRECT : path == 1 ? INCCL_BOUNCE : 0;
	struct inccl_region *regions[KINDS] = {NULL};
	int result = INCCL_OK;

	for (enum kind kind = 0; kind < KINDS && path != 2 && result == INCCL_OK; kind++)
		result = inccl_register(group, calls[kind].memory, all_bytes(), &regions[kind]);
	if (result == INCCL_OK)
		result = number % 4 < 2 ? one_by_one(number, flags) : all_at_once(number, flags);
	for (enum kind kind = 0; kind < KINDS; kind++)
		inccl_deregister(regions[kind]);
	printf("round %u\n", number);
	(void)fflush(stdout);
	return result;
}

static int work(const char *controller)
{
	char line[16];
	int result = inccl_group_create((int)ranks, controller, (int)rank, &group);

	if (result == INCCL_OK)
		result = inccl_comm_open(group, &comm);
	for (unsigned number = 0; result == INCCL_OK && number < rounds; number++) {
		if (pause && number == pause)
			(void)!fgets(line, sizeof(line), stdin);
		result = round_of(number);
	}
	if (inccl_comm_close(comm) != INCCL_OK || inccl_group_close(group) != INCCL_OK)
		return INCCL_ERR_INTERNAL;
	return result;
}

static bool make_memory(void)
{
	bool good = true;

	for (enum kind kind = 0; kind < KINDS; kind++) {
		calls[kind] =
		    (struct call){.memory = malloc(all_bytes()), .wanted = malloc(all_bytes())};
		good &= calls[kind].memory && calls[kind].wanted;
	}
	return good;
}

static void free_memory(void)
{
	for (enum kind kind = 0; kind < KINDS; kind++) {
		free(calls[kind].memory);
		free(calls[kind].wanted);
	}
}

int main(int argc, char **argv)
{
	int result;

	if (argc != 6)
		return 2;
	rank = (unsigned)atoi(argv[2]);
	ranks = (unsigned)atoi(argv[3]);
	bytes = (size_t)atol(argv[4]);
	rounds = (unsigned)atoi(argv[5]);
	pause = getenv("PAUSE") ? (unsigned)atoi(getenv("PAUSE")) : 0;
	result = make_memory() ? work(argv[1]) : INCCL_ERR_SYSTEM;
	free_memory();
	printf("%d\n", result);
	return result != INCCL_OK;
}
