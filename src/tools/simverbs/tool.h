/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `simverbs` control tool: what its commands share. Each command parses its own arguments with
 * argp; messages go to stderr and begin with the command's name.
 */
#ifndef NP_SIMVERBS_TOOL_H
#define NP_SIMVERBS_TOOL_H

#include "simverbs/live/fabric.h"
#include "simverbs/live/state.h"

#include <argp.h>

/* Exit statuses. */
enum { NP_EXIT_OK = 0, NP_EXIT_FAILED = 1, NP_EXIT_USAGE = 2 };

/* argv[0] is the command's name, as in "simverbs up". */
int np_cmd_up(int argc, char **argv);
int np_cmd_down(int argc, char **argv);
int np_cmd_run(int argc, char **argv);
int np_cmd_link(int argc, char **argv);
int np_cmd_leg(int argc, char **argv);
int np_cmd_cut(int argc, char **argv);
int np_cmd_device(int argc, char **argv);
int np_cmd_fault(int argc, char **argv);
int np_cmd_status(int argc, char **argv);

/*
 * This process, and the program that replaces it, find the devices of a host's tree below /sys. 0,
 * or -errno after a message.
 */
int np_show_sysfs(const char *tree);

/* Opens a fabric, or says why not. */
bool np_open_fabric(const char *name, struct sv_fabric *fab);
/* A number from 0 to limit - 1; a usage error ends the program. */
unsigned np_number(struct argp_state *state, const char *text, const char *what,
		   unsigned long limit);
/* Is a number given on the command line one of the fabric's? If not, says so. */
bool np_in_fabric(const struct sv_fabric *fab, unsigned host, unsigned rail);
const char *np_strerror(int negative_errno);

#endif
