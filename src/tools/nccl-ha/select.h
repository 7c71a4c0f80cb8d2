/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes a command is about: the options --job, --rank, --pid and --dir. */
#ifndef NH_SELECT_H
#define NH_SELECT_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

#define NH_MAX_PIDS 64

struct nh_select {
	const char *job; /* NULL: any */
	int rank;	 /* -1: any; must be set before parsing: see NH_SELECT_ALL */
	uint32_t pids[NH_MAX_PIDS];
	int npids; /* 0: any */
	bool dead; /* also what killed processes left behind */
};

#define NH_SELECT_ALL ((struct nh_select){.rank = -1})

/* For a command's argp.children; its input (state->child_inputs[0]) is a struct nh_select. */
extern const struct argp nh_select_argp;

struct nccl_ha_job_stats;
bool nh_selected(const struct nh_select *select, const struct nccl_ha_job_stats *job);
/* Whether anything was asked for at all. */
bool nh_select_is_narrow(const struct nh_select *select);

/* A whole number of an option's argument, or a usage error that names it. */
long nh_number(struct argp_state *state, const char *what, const char *text, long min, long max);
double nh_seconds(struct argp_state *state, const char *what, const char *text, double min,
		  double max);

#endif
