/* SPDX-License-Identifier: Apache-2.0 */
/* One rank adds up with the others: ./inccl CONTROLLER KEY-FILE RANK RANKS, on each host.
 *     cc -o inccl inccl.c $(pkg-config --cflags --libs inccl) */
#include <inccl/inccl.h>
#include <stdio.h>
#include <stdlib.h>

static void must(int result, const char *call)
{
	if (result == INCCL_OK)
		return;
	fprintf(stderr, "%s: %s\n", call, inccl_strerror(result));
	exit(1);
}

int main(int argc, char **argv)
{
	static float mine[1 << 20], sum[1 << 20];
	const size_t n = sizeof(mine) / sizeof(mine[0]);
	struct inccl_options options = {.size = sizeof(options)};
	struct inccl_group *group;
	struct inccl_comm *comm;

	if (argc < 5)
		return 2;
	options.controller = argv[1];
	options.key_file = argv[2];
	options.rank = (uint32_t)atoi(argv[3]);
	options.ranks = (uint32_t)atoi(argv[4]);
	for (size_t i = 0; i < n; i++)
		mine[i] = (float)options.rank + 1;
	must(inccl_group_open(&options, &group), "inccl_group_open");
	must(inccl_comm_open(group, &comm), "inccl_comm_open");
	must(inccl_allreduce(comm, mine, sum, n, INCCL_FLOAT32, INCCL_SUM, 0, 10000),
	     "inccl_allreduce");
	printf("%g %g\n", (double)sum[0], (double)sum[n - 1]);
	must(inccl_comm_close(comm), "inccl_comm_close");
	return inccl_group_close(group) == INCCL_OK ? 0 : 1;
}
