/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that has the short forms of inccl/inccl.h and nothing else: inccl-short CONTROLLER RANK
 * RANKS. Every element is compared.
 */
#include "inccl/inccl.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST   300001u
#define ROUNDS 8

static int32_t src[MOST], dst[MOST];
static int rank, ranks;

static int32_t element(unsigned round, unsigned of, unsigned i)
{
	return (int32_t)((i * 2654435761u ^ round * 40503u) * (of + 1));
}

static int32_t sum(unsigned round, unsigned i)
{
	uint32_t all = 0;

	for (unsigned of = 0; of < (unsigned)ranks; of++)
		all += (uint32_t)element(round, of, i);
	return (int32_t)all;
}

/* By copies and by registered memory in turns, some in place, one of nothing. */
static int add(struct inccl_comm *comm, unsigned round)
{
	const uint32_t len = round == 5 ? 0 : MOST - round * 12345;
	int32_t *to = round % 3 == 2 ? src : dst;
	int result;

	for (unsigned i = 0; i < len; i++) {
		src[i] = element(round, (unsigned)rank, i);
		dst[i] = -1;
	}
	result = round % 2 ? inccl_allreduce_sendrecv(comm, src, len, to)
			   : inccl_allreduce_write(comm, src, len, to);
	for (unsigned i = 0; result == INCCL_OK && i < len; i++) {
		if (to[i] == sum(round, i))
			continue;
		fprintf(stderr, "round %u, element %u is wrong\n", round, i);
		return 1;
	}
	return result;
}

int main(int argc, char **argv)
{
	struct inccl_group *group;
	struct inccl_comm *comm = NULL;
	int result;

	if (argc != 4)
		return 2;
	rank = atoi(argv[2]);
	ranks = atoi(argv[3]);
	result = inccl_group_create(ranks, argv[1], rank, &group);
	if (result == INCCL_OK)
		result = inccl_communicator_create(group, &comm);
	for (unsigned round = 0; result == INCCL_OK && round < ROUNDS; round++)
		result = add(comm, round);
	if (inccl_communicator_destroy(comm) != INCCL_OK || inccl_group_destroy(group) != INCCL_OK)
		return 1;
	printf("%d\n", result);
	return result != INCCL_OK;
}
