/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-net-perf: drives an NCCL network plugin the way NCCL does, checks every byte and measures.
 *
 * Started plainly it is the launcher of its ranks (launch.c); with --rank, or under mpirun or srun,
 * it is one rank (join.c, then rank.c).
 */
#include "tools/nccl-net-perf/join.h"
#include "tools/nccl-net-perf/launch.h"

int main(int argc, char **argv)
{
	struct np_options o;
	enum np_exit status;

	np_parse_options(&o, argc, argv);
	np_detect_launcher(&o);
	status = o.rank >= 0 ? np_join(&o, argc, argv) : np_launch(&o, argc, argv);
	np_free_options(&o);
	return (int)status;
}
