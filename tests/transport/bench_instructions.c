/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic for counting instructions per message: see instructions.sh, which runs
 * this under callgrind. Every poll hits: the fabric is stepped until nothing moves before each
 * call, as in the figures of others that these are compared with.
 */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What callgrind collects: the four calls and nothing around them. */
ha_result_t counted_isend(struct pair *pair, size_t size, int tag, struct ha_request **out);
ha_result_t counted_irecv(struct pair *pair, int n, void **data, size_t *sizes, int *tags,
			  struct ha_mr **mrs, struct ha_request **out);
ha_result_t counted_test_send(struct ha_request *req, bool *done, int *sizes);
ha_result_t counted_test_recv(struct ha_request *req, bool *done, int *sizes);

__attribute__((noinline)) ha_result_t counted_isend(struct pair *pair, size_t size, int tag,
						    struct ha_request **out)
{
	return ha_isend(pair->send, pair->from.bytes, size, tag, pair->from.mr, out);
}

__attribute__((noinline)) ha_result_t counted_irecv(struct pair *pair, int n, void **data,
						    size_t *sizes, int *tags, struct ha_mr **mrs,
						    struct ha_request **out)
{
	return ha_irecv(pair->recv, n, data, sizes, tags, mrs, false, out);
}

__attribute__((noinline)) ha_result_t counted_test_send(struct ha_request *req, bool *done,
							int *sizes)
{
	return ha_test(req, done, sizes);
}

__attribute__((noinline)) ha_result_t counted_test_recv(struct ha_request *req, bool *done,
							int *sizes)
{
	return ha_test(req, done, sizes);
}

#define ROUNDS 1000

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1;
	bool e2e = argc > 2 && strcmp(argv[2], "e2e") == 0;
	size_t sizes[HA_GROUP_MAX];
	void *data[HA_GROUP_MAX];
	struct ha_mr *mrs[HA_GROUP_MAX];
	int tags[HA_GROUP_MAX], got[HA_GROUP_MAX];
	struct ha_request *recv, *send[HA_GROUP_MAX];
	struct pair pair;
	bool done;

	pair_init(&pair);
	pair_up(&pair);
	if (e2e)
		pair.send->silent = pair.recv->silent = HA_SILENT_COUNT;
	for (int i = 0; i < n; i++) {
		data[i] = pair.to.bytes + (size_t)i * 65536;
		sizes[i] = 65536;
		mrs[i] = pair.to.mr;
		tags[i] = i;
	}
	for (int round = 0; round < ROUNDS; round++) {
		if (counted_irecv(&pair, n, data, sizes, tags, mrs, &recv) != HA_OK || !recv)
			return 1;
		sv_stepped_run_idle(100000);
		for (int i = 0; i < n; i++)
			if (counted_isend(&pair, 4096, i, &send[i]) != HA_OK || !send[i])
				return 1;
		sv_stepped_run_idle(100000);
		if (e2e) { /* the receiver's word comes first */
			if (counted_test_recv(recv, &done, got) != HA_OK || !done)
				return 1;
			sv_stepped_run_idle(100000);
		}
		for (int i = 0; i < n; i++)
			if (counted_test_send(send[i], &done, got) != HA_OK || !done)
				return 1;
		if (e2e)
			continue;
		if (counted_test_recv(recv, &done, got) != HA_OK || !done)
			return 1;
	}
	printf("%d rounds of %d messages\n", ROUNDS, n);
	pair_close(&pair);
	return 0;
}
