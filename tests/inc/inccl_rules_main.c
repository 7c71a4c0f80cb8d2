/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inccl/inccl.h says of calls, by two ranks in one process that one thread moves: inccl-rules
 * CONTROLLER KEY-FILE. Prints "fine", or the line that is not.
 */
#include "inccl/inccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS	   2
#define MOST	   64
#define NUMBERS	   1000
#define PATIENCE   60000u /* milliseconds */
#define must(what) must_be((what), #what, __LINE__)

static struct inccl_group *group[RANKS];
static struct inccl_comm *comm[RANKS];
static int32_t sent[RANKS][MOST][NUMBERS], got[RANKS][MOST][NUMBERS];

static void must_be(int is_so, const char *what, int line)
{
	if (is_so)
		return;
	printf("line %d: %s\n", line, what);
	exit(1);
}

static void *open_rank(void *arg)
{
	const long rank = (long)arg;

	must(inccl_comm_open(group[rank], &comm[rank]) == INCCL_OK);
	return NULL;
}

static void open_all(char **argv)
{
	static const char *const hosts[RANKS] = {"a", "b"};
	pthread_t other;

	for (uint32_t rank = 0; rank < RANKS; rank++) {
		const struct inccl_options options = {.size = sizeof(options),
						      .rank = rank,
						      .ranks = RANKS,
						      .controller = argv[1],
						      .key_file = argv[2],
						      .host = hosts[rank]};

		must(inccl_group_open(&options, &group[rank]) == INCCL_OK);
	}
	must(pthread_create(&other, NULL, open_rank, (void *)1) == 0);
	open_rank((void *)0);
	must(pthread_join(other, NULL) == 0);
	must(inccl_comm_group(comm[1]) == group[1]);
}

static int ask(uint32_t rank, unsigned n, struct inccl_request **request)
{
	for (int i = 0; i < NUMBERS; i++)
		sent[rank][n][i] = (int32_t)((rank + 1) * (n + 1) * (unsigned)i);
	return inccl_iallreduce(comm[rank], sent[rank][n], got[rank][n], NUMBERS, INCCL_INT32,
				INCCL_SUM, 0, request);
}

static int is_right(uint32_t rank, unsigned n)
{
	for (int i = 0; i < NUMBERS; i++)
		if (got[rank][n][i] != (int32_t)(3 * (n + 1) * (unsigned)i))
			return 0;
	return 1;
}

/* Of both ranks in turns, as what has yet to begin does so when it is called. Within their
 * patience. */
static void await(struct inccl_request *a, struct inccl_request *b)
{
	int first = INCCL_ERR_TIMEOUT, second = INCCL_ERR_TIMEOUT;

	for (unsigned ms = 0;
	     ms < PATIENCE && (first == INCCL_ERR_TIMEOUT || second == INCCL_ERR_TIMEOUT); ms++) {
		if (first == INCCL_ERR_TIMEOUT)
			first = inccl_wait(a, 1);
		if (second == INCCL_ERR_TIMEOUT)
			second = inccl_wait(b, 1);
	}
	must(first == INCCL_OK);
	must(second == INCCL_OK);
}

/* One that is not done in its time is a request still. */
static void waits(void)
{
	struct inccl_request *request[RANKS];

	must(ask(0, 0, &request[0]) == INCCL_OK);
	must(inccl_wait(request[0], 50) == INCCL_ERR_TIMEOUT);
	must(inccl_test(request[0]) == INCCL_AGAIN);
	must(inccl_group_close(group[0]) == INCCL_ERR_ARGUMENT); /* it has a communicator */
	must(ask(1, 0, &request[1]) == INCCL_OK);
	await(request[0], request[1]);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		must(is_right(rank, 0));
		must(inccl_test(request[rank]) == INCCL_ERR_ARGUMENT); /* none any more */
		must(*inccl_comm_why(comm[rank]) == '\0');
	}
}

static void no_more_than_there_is_room_for(void)
{
	struct inccl_request *request[RANKS][MOST], *none;

	for (uint32_t rank = 0; rank < RANKS; rank++) {
		for (unsigned n = 0; n < MOST; n++)
			must(ask(rank, n, &request[rank][n]) == INCCL_OK);
		must(ask(rank, 0, &none) == INCCL_AGAIN && !none);
	}
	for (unsigned n = 0; n < MOST; n++) {
		await(request[0][n], request[1][n]);
		must(is_right(0, n) && is_right(1, n));
	}
}

static void arguments_that_cannot_be(void)
{
	int32_t *at = sent[0][0], *to = got[0][0];
	struct inccl_request *request;
	struct inccl_region *region;

	must(inccl_iallreduce(comm[0], at, to, 1, (enum inccl_type)10, INCCL_SUM, 0, &request) ==
		 INCCL_ERR_ARGUMENT &&
	     !request);
	must(inccl_iallreduce(comm[0], at, to, 1, INCCL_INT32, (enum inccl_op)4, 0, &request) ==
	     INCCL_ERR_ARGUMENT);
	must(inccl_iallreduce(comm[0], at, to, 1, INCCL_INT32, INCCL_SUM, 3, &request) ==
	     INCCL_ERR_ARGUMENT);
	must(inccl_iallreduce(comm[0], NULL, to, 1, INCCL_INT32, INCCL_SUM, 0, &request) ==
	     INCCL_ERR_ARGUMENT);
	must(inccl_iallreduce(comm[0], at, NULL, 1, INCCL_INT32, INCCL_SUM, 0, &request) ==
	     INCCL_ERR_ARGUMENT);
	must(inccl_iallreduce(comm[0], at, to, SIZE_MAX, INCCL_INT32, INCCL_SUM, 0, &request) ==
	     INCCL_ERR_ARGUMENT);
	must(inccl_broadcast(comm[0], at, 1, RANKS, 0, 1) == INCCL_ERR_ARGUMENT);
	must(inccl_reduce(comm[0], at, NULL, 1, INCCL_INT32, INCCL_SUM, 0, 0, 1) ==
	     INCCL_ERR_ARGUMENT); /* the root needs a place */
	must(inccl_test(NULL) == INCCL_ERR_ARGUMENT && inccl_wait(NULL, 0) == INCCL_ERR_ARGUMENT);
	must(inccl_register(group[0], NULL, 1, &region) == INCCL_ERR_ARGUMENT && !region);
	must(inccl_register(group[0], at, 0, &region) == INCCL_ERR_ARGUMENT);
}

/* All of it has to be in one region. */
static void what_is_registered(void)
{
	struct inccl_request *request[RANKS];
	struct inccl_region *sends, *half, *all;

	must(inccl_register(group[0], sent[0][0], sizeof(sent[0][0]), &sends) == INCCL_OK);
	must(inccl_register(group[0], got[0][0], sizeof(got[0][0]) / 2, &half) == INCCL_OK);
	must(inccl_iallreduce(comm[0], sent[0][0], got[0][0], NUMBERS, INCCL_INT32, INCCL_SUM,
			      INCCL_DIRECT, &request[0]) == INCCL_ERR_REGISTERED);
	must(inccl_register(group[0], got[0][0], sizeof(got[0][0]), &all) == INCCL_OK);
	must(inccl_iallreduce(comm[0], sent[0][0], got[0][0], NUMBERS, INCCL_INT32, INCCL_SUM,
			      INCCL_DIRECT, &request[0]) == INCCL_OK);
	must(ask(1, 0, &request[1]) == INCCL_OK);
	await(request[0], request[1]);
	must(is_right(0, 0) && is_right(1, 0));
	inccl_deregister(half);
	inccl_deregister(all);
	inccl_deregister(sends);
}

static void texts(void)
{
	for (int result = INCCL_ERR_INTERNAL; result <= INCCL_AGAIN; result++)
		must(inccl_strerror(result)[0] != '\0');
	must(inccl_strerror(2) == inccl_strerror(INCCL_ERR_INTERNAL - 1));
}

static void *close_rank(void *arg)
{
	const long rank = (long)arg;

	must(inccl_comm_close(comm[rank]) == INCCL_OK);
	must(inccl_group_close(group[rank]) == INCCL_OK);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t other;

	if (argc != 3)
		return 2;
	open_all(argv);
	waits();
	no_more_than_there_is_room_for();
	arguments_that_cannot_be();
	what_is_registered();
	texts();
	must(pthread_create(&other, NULL, close_rank, (void *)1) == 0);
	close_rank((void *)0);
	must(pthread_join(other, NULL) == 0);
	must(inccl_comm_close(NULL) == INCCL_OK && inccl_group_close(NULL) == INCCL_OK);
	printf("fine\n");
	return 0;
}
