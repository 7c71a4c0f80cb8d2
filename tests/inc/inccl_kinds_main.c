/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that reduces, scatters, broadcasts, gathers and waits at barriers, by inccl/inccl.h alone:
 * inccl-kinds CONTROLLER RANK RANKS BYTES ROUNDS. Which memory is registered differs between ranks
 * and rounds, the root and what is in place between rounds. Every byte of all memory is compared:
 * what has to come out, and that nothing else was touched.
 *
 * "round N" is said behind each round. With PAUSE=N in the environment it waits for a line before
 * round N.
 */
#include "elements.h"

#include "inccl/inccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON	   0xee
#define TIMEOUT_MS 60000u

static unsigned rank, ranks, rounds, pause;
static size_t bytes; /* of a part, at most */
static struct inccl_group *group;
static struct inccl_comm *comm;
static uint8_t *memory, *wanted; /* of `ranks` parts to send, and as many to receive */

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

/* What it is called with, and that has to be there afterwards where nothing else comes. */
static void begin(void)
{
	memset(memory, POISON, all_bytes());
	memset(wanted, POISON, all_bytes());
}

static int end(int result, const char *what, unsigned number)
{
	if (result != INCCL_OK)
		fprintf(stderr, "%s %u: %s: %s\n", what, number, inccl_strerror(result),
			inccl_comm_why(comm));
	else if (memcmp(memory, wanted, all_bytes()) != 0)
		fprintf(stderr, "%s %u is wrong\n", what, number);
	else
		return INCCL_OK;
	return result != INCCL_OK ? result : 1;
}

static int reduce(unsigned number, unsigned flags)
{
	const struct elements elements = elements_of(number, 1);
	const bool is_root = rank == number % ranks, is_in_place = number % 2;
	uint8_t *recv = is_in_place ? memory : recv_of(memory);

	begin();
	elements_contribute(&elements, rank, memory);
	elements_contribute(&elements, rank, wanted);
	if (is_root && !elements_result(&elements, ranks, is_in_place ? wanted : recv_of(wanted)))
		return INCCL_ERR_SYSTEM;
	return end(inccl_reduce(comm, memory, is_root ? recv : NULL, elements.count,
				(enum inccl_type)elements.type, (enum inccl_op)elements.operation,
				number % ranks, flags, TIMEOUT_MS),
		   "reduce", number);
}

static int reduce_scatter(unsigned number, unsigned flags)
{
	const struct elements elements = elements_of(number, ranks);
	const size_t part = elements.count / ranks * elements_size(&elements);
	const bool is_in_place = number % 2;
	uint8_t *sum = malloc(ranks * part + 1);
	int result = INCCL_ERR_SYSTEM;

	begin();
	elements_contribute(&elements, rank, memory);
	elements_contribute(&elements, rank, wanted);
	if (sum && elements_result(&elements, ranks, sum)) {
		memcpy(is_in_place ? wanted + rank * part : recv_of(wanted), sum + rank * part,
		       part);
		result = end(inccl_reduce_scatter(
				 comm, memory, is_in_place ? memory + rank * part : recv_of(memory),
				 elements.count / ranks, (enum inccl_type)elements.type,
				 (enum inccl_op)elements.operation, flags, TIMEOUT_MS),
			     "reduce-scatter", number);
	}
	free(sum);
	return result;
}

static int broadcast(unsigned number, unsigned flags)
{
	const struct elements elements = bytes_of(number);
	const unsigned root = number % ranks;

	begin();
	if (rank == root)
		elements_contribute(&elements, root, memory);
	elements_contribute(&elements, root, wanted);
	return end(inccl_broadcast(comm, memory, elements.count, root, flags, TIMEOUT_MS),
		   "broadcast", number);
}

static int allgather(unsigned number, unsigned flags)
{
	const struct elements elements = bytes_of(number);
	const bool is_in_place = number % 2;
	uint8_t *send = is_in_place ? recv_of(memory) + rank * elements.count : memory;

	begin();
	elements_contribute(&elements, rank, send);
	if (!is_in_place)
		elements_contribute(&elements, rank, wanted);
	for (unsigned of = 0; of < ranks; of++)
		elements_contribute(&elements, of, recv_of(wanted) + of * elements.count);
	return end(inccl_allgather(comm, send, recv_of(memory), elements.count, flags, TIMEOUT_MS),
		   "all-gather", number);
}

static int round_of(unsigned number)
{
	const unsigned path = (number + rank) % 3; /* of the whole memory */
	const unsigned flags = path == 0 ? INCCL_DIRECT : path == 1 ? INCCL_BOUNCE : 0;
	struct inccl_region *region = NULL;
	int result = INCCL_OK;

	if (path != 2)
		result = inccl_register(group, memory, all_bytes(), &region);
	if (result == INCCL_OK)
		result = reduce(number, flags);
	if (result == INCCL_OK)
		result = broadcast(number, flags);
	if (result == INCCL_OK)
		result = reduce_scatter(number, flags);
	if (result == INCCL_OK)
		result = allgather(number, flags);
	if (result == INCCL_OK)
		result = inccl_barrier(comm, TIMEOUT_MS);
	inccl_deregister(region);
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
	memory = malloc(all_bytes());
	wanted = malloc(all_bytes());
	result = memory && wanted ? work(argv[1]) : INCCL_ERR_SYSTEM;
	free(memory);
	free(wanted);
	printf("%d\n", result);
	return result != INCCL_OK;
}
