/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is broken when: the script of a drill.
 *
 * A line is a time in milliseconds after traffic began to flow, and what happens then, in the words
 * of the simverbs tool without the fabric's name:
 *
 *     1000 link 0 1 down             2000 link 0 1 up
 *     1000 cut 0 --host 1            2000 cut 0 --heal
 *     1000 device 1 0 kill           2000 device 1 0 revive
 *     1000 fault drop host=0 nth=5
 *     1000 process 1 kill|stop|continue      all processes of a host
 *
 *     1000 operator 0 failover --port sim0:1          nccl-ha for all processes of a host, which
 * works 1000 operator 0 refused failover --port sim0:1  or ends with status 1 1000 idle 0 500 for
 * so long, a rail carries heartbeats at most
 *
 * 1000+200x5 is five times, from 1000 on every 200 ms.
 */
#ifndef DRILL_SCRIPT_H
#define DRILL_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum drill_action {
	DRILL_LINK_DOWN,
	DRILL_LINK_UP,
	DRILL_CUT,
	DRILL_HEAL,
	DRILL_KILL_DEVICE,
	DRILL_REVIVE_DEVICE,
	DRILL_RULE,
	DRILL_KILL_PROCESS,
	DRILL_STOP_PROCESS,
	DRILL_CONTINUE_PROCESS,
	DRILL_OPERATOR,
	DRILL_IDLE,
};

#define DRILL_WORDS 8

struct drill_step {
	uint64_t at_us;
	enum drill_action action;
	int host, rail;		      /* -1: all, or none */
	char text[120];		      /* as written, without the time */
	char words[DRILL_WORDS][100]; /* of the tool's command line; the first is the verb */
	int nwords;
	/* Filled in while the drill runs. */
	int pid;	      /* that got a signal; 0: none */
	uint64_t done_ns;     /* 0: not yet */
	uint64_t lost_before; /* packets that the fabric had swallowed by then */
	uint64_t lost_after;  /* and when the next step, or the end, came */
};

struct drill_script {
	struct drill_step *steps; /* by time */
	int nsteps;
};

/* False with a reason that names the line. */
bool drill_script_parse(struct drill_script *s, const char *text, char *err, size_t err_len);
void drill_script_free(struct drill_script *s);

/* Whether the step breaks something, rather than mending it. */
bool drill_step_breaks(const struct drill_step *step);
/* Whether packets must get lost because of it: a step of which this is not so proves itself. */
bool drill_step_loses(const struct drill_step *step);

#endif
