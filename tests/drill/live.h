/* SPDX-License-Identifier: Apache-2.0 */
/* A drill while it runs: between run.c, which runs it, and steps.c, which breaks its fabric. */
#ifndef DRILL_LIVE_H
#define DRILL_LIVE_H

#include "drill.h"
#include "tools/common/fabric.h"

#include <sys/types.h>

struct live {
	struct drill_run *run;
	struct np_fabric fabric;
	char work[64], json[80], log[80];
	pid_t pid; /* of the launcher; 0: ended */
	int fd;	   /* its output */
	char partial[4096];
	size_t partial_len;
	uint64_t deadline_ns;
	uint64_t sample_ns; /* when rails are sampled next */
};

/* run.c: a line for who watches. */
void drill_note(const struct live *l, const char *text);

/* steps.c: the status of the fabric; NULL after a complaint. */
json_t *drill_status(struct live *l);
/* Over a rail, or all of them for -1; by a status. */
uint64_t drill_received_bytes(const json_t *status, int rail);
/* Notes how many packets the fabric had swallowed when the first `done` steps were over. */
void drill_note_losses(struct live *l, int done, const json_t *status);
/* Does a step and looks whether it took. False: the fabric does not answer. */
bool drill_do_step(struct live *l, int index);

#endif
