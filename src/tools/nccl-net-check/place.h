/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the ranks of a rule run on a simverbs fabric: rank r as host r modulo the hosts.
 *
 * The program that runs the rules is started by "simverbs run", for the library path; its ranks are
 * forked and only say which host they are before they load the plugin.
 */
#ifndef CHECK_PLACE_H
#define CHECK_PLACE_H

#include "check.h"

#define PLACE_MAX_FAULTS 16

struct place_request {
	int hosts, rails;		      /* --simverbs; hosts 0: not asked for */
	const char *fabric;		      /* --fabric */
	const char *faults[PLACE_MAX_FAULTS]; /* --fault, for a fabric brought up here */
	int nfaults;
};

/* Is this process on the fabric that is asked for, if any? */
bool place_is_right(const struct place_request *request);

/*
 * Runs this program again on the fabric, which is brought up and down if need be; returns its exit
 * status, or -1 with a message on stderr.
 */
int place_run(const struct place_request *request, int argc, char **argv);

/* Finds out what the ranks' environment is. False with a message on stderr. */
bool place_prepare(struct check_options *opt);

/* In a rank, before the plugin is loaded. */
void place_rank(const struct check_options *opt, int rank);

#endif
