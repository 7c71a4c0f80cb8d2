/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How operations of libinccl are cut, without a network: all ranks get the same pieces in the same
 * order, whatever of their memory is registered and whatever they have to say; and each piece comes
 * from where it lies and goes to where it belongs, and nowhere else.
 */
#include "../unit/cmocka_all.h"

#include "inccl/operation.h"

#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define MOST  64 /* bytes of a piece */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, KINDS };

static char sent[RANKS][RANKS * 200], got[RANKS][RANKS * 200];
static struct ha_mr known;

static struct inccl_request request_of(enum kind kind, unsigned int rank, size_t bytes)
{
	struct inccl_request request = {.rank = rank,
					.ranks = RANKS,
					.root = 2,
					.send = sent[rank],
					.recv = got[rank],
					.bytes = bytes,
					.element_bytes = 1};

	request.one_sends = kind == BROADCAST || kind == ALL_GATHER;
	request.one_receives = kind == REDUCE || kind == REDUCE_SCATTER;
	request.is_by_rank = kind == REDUCE_SCATTER || kind == ALL_GATHER;
	request.send_has_parts = kind == REDUCE_SCATTER;
	request.recv_has_parts = kind == ALL_GATHER;
	if (rank % 2)
		request.send_mr = request.recv_mr = &known;
	return request;
}

static bool next(struct inccl_request *request, struct ha_inccl_piece *piece)
{
	if (!ha_inccl_operation_next(request, MOST, piece))
		return false;
	ha_inccl_operation_begun(piece);
	return true;
}

static const size_t sizes[] = {0, 1, MOST - 1, MOST, MOST + 1, 3 * MOST, 200};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void all_ranks_cut_alike(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < KINDS * SIZES; i++) {
		struct inccl_request request[RANKS];
		struct ha_inccl_piece first, other;
		bool is_there;

		for (unsigned int rank = 0; rank < RANKS; rank++)
			request[rank] = request_of(i % KINDS, rank, sizes[i / KINDS]);
		do {
			is_there = next(&request[0], &first);
			for (unsigned int rank = 1; rank < RANKS; rank++) {
				assert_int_equal(next(&request[rank], &other), is_there);
				assert_true(!is_there || other.bytes == first.bytes);
			}
		} while (is_there);
	}
}

/* Adds up, by hand, what pieces of all ranks say. */
static void act(struct inccl_request *request, unsigned int *contributors)
{
	struct ha_inccl_piece piece[RANKS];
	char sum[MOST] = {0};

	while (next(&request[0], &piece[0])) {
		*contributors = 0;
		for (unsigned int rank = 1; rank < RANKS; rank++)
			assert_true(next(&request[rank], &piece[rank]));
		memset(sum, 0, sizeof(sum));
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			*contributors += !piece[rank].is_empty;
			for (size_t b = 0; !piece[rank].is_empty && b < piece[rank].bytes; b++)
				sum[b] = (char)(sum[b] + piece[rank].send[b]);
		}
		for (unsigned int rank = 0; rank < RANKS; rank++) {
			if (piece[rank].recv)
				memcpy(piece[rank].recv, sum, piece[rank].bytes);
			ha_inccl_operation_done(&piece[rank]);
		}
	}
	for (unsigned int rank = 0; rank < RANKS; rank++)
		assert_true(ha_inccl_operation_is_done(&request[rank]));
}

static char all_at(size_t b)
{
	int sum = 0;

	for (unsigned int rank = 0; rank < RANKS; rank++)
		sum += sent[rank][b];
	return (char)sum;
}

/* What has to be there, byte by byte; `before`: where nothing may come. */
static char wanted(enum kind kind, unsigned int rank, size_t bytes, size_t b, char before)
{
	switch (kind) {
	case ALL_REDUCE:
		return b < bytes ? all_at(b) : before;
	case REDUCE:
		return b < bytes && rank == 2 ? all_at(b) : before;
	case BROADCAST:
		return b < bytes ? sent[2][b] : before;
	case REDUCE_SCATTER:
		return b < bytes ? all_at(rank * bytes + b) : before;
	case ALL_GATHER:
		return b < RANKS * bytes ? sent[b / bytes][b % bytes] : before;
	case KINDS:
		break;
	}
	return before;
}

static void each_byte_goes_where_it_belongs(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < KINDS * SIZES; i++) {
		const enum kind kind = i % KINDS;
		const size_t bytes = sizes[i / KINDS];
		struct inccl_request request[RANKS];
		unsigned int contributors;

		for (unsigned int rank = 0; rank < RANKS; rank++) {
			request[rank] = request_of(kind, rank, bytes);
			memset(got[rank], 0x55, sizeof(got[rank]));
			for (size_t b = 0; b < sizeof(sent[rank]); b++)
				sent[rank][b] = (char)(b * 7 + rank * 31);
		}
		act(request, &contributors);
		assert_int_equal(contributors, request[0].one_sends ? 1 : RANKS);
		for (unsigned int rank = 0; rank < RANKS; rank++)
			for (size_t b = 0; b < sizeof(got[rank]); b++)
				assert_int_equal(got[rank][b], wanted(kind, rank, bytes, b, 0x55));
	}
}

static void what_is_there_already_is_not_received(void **state)
{
	struct inccl_request request = request_of(BROADCAST, 2, 10);
	struct ha_inccl_piece piece;

	(void)state;
	request.recv = sent[2];
	assert_true(next(&request, &piece));
	assert_true(!piece.is_empty && !piece.recv);
	request = request_of(ALL_GATHER, 1, 10);
	request.send = got[1] + 10;
	for (unsigned int part = 0; part < RANKS; part++) {
		assert_true(next(&request, &piece));
		assert_int_equal(piece.recv == NULL, part == 1);
	}
}

static void memory_is_that_which_is_touched(void **state)
{
	static const size_t reads[KINDS][2] = {[ALL_REDUCE] = {10, 10},
					       [REDUCE] = {10, 10},
					       [BROADCAST] = {0, 10},
					       [REDUCE_SCATTER] = {40, 40},
					       [ALL_GATHER] = {10, 10}};
	static const size_t writes[KINDS][2] = {[ALL_REDUCE] = {10, 10},
						[REDUCE] = {0, 10},
						[BROADCAST] = {10, 10},
						[REDUCE_SCATTER] = {10, 10},
						[ALL_GATHER] = {40, 40}};

	(void)state;
	for (enum kind kind = 0; kind < KINDS; kind++) {
		for (unsigned int is_root = 0; is_root < 2; is_root++) {
			const struct inccl_request request = request_of(kind, 1 + is_root, 10);

			assert_int_equal(ha_inccl_operation_reads(&request), reads[kind][is_root]);
			assert_int_equal(ha_inccl_operation_writes(&request),
					 writes[kind][is_root]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_ranks_cut_alike),
	    cmocka_unit_test(each_byte_goes_where_it_belongs),
	    cmocka_unit_test(what_is_there_already_is_not_received),
	    cmocka_unit_test(memory_is_that_which_is_touched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
