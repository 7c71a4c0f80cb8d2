/* SPDX-License-Identifier: Apache-2.0 */
/* The simverbs fabric that a tool runs on, by way of the simverbs program. */
#ifndef NP_FABRIC_H
#define NP_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

struct np_fabric {
	char tool[4096]; /* the simverbs program */
	char name[64];	 /* empty: no fabric */
	int hosts;
	bool ours; /* brought up here, so taken down here */
};

struct np_fabric_options {
	const char *prefix;   /* of the name of a fabric brought up here */
	const char *existing; /* join this one; NULL: bring one up if hosts > 0 */
	int hosts, rails;
	bool dmabuf;		   /* one brought up here supports ibv_reg_dmabuf_mr */
	const char *const *up;	   /* further words of `simverbs up`, then NULL; NULL: none */
	const char *const *faults; /* rules to add to one brought up here */
	int nfaults;
};

/* Brings one up, or looks at the existing one. False with a reason in err. */
bool np_fabric_open(struct np_fabric *f, const struct np_fabric_options *o, char *err,
		    size_t err_len);

/* `simverbs status NAME --json`, or NULL with a reason in err. */
json_t *np_fabric_status(const struct np_fabric *f, char *err, size_t err_len);

/*
 * Prints how often each fault rule fired. False if one never did, which proves nothing about it, or
 * if fewer than `expected` can be read; the reason is in err. *faults (may be NULL) gets the list.
 */
bool np_fabric_faults_fired(const struct np_fabric *f, int expected, json_t **faults, char *err,
			    size_t err_len);

/* Takes down a fabric of our own. Safe to call twice. */
void np_fabric_close(struct np_fabric *f);

#endif
