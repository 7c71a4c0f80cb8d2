/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every verb that is a command to the kernel, by the name that fault rules have for it, on whatever
 * fabric: each call makes what the verb needs, calls it once, and undoes all that.
 */
#ifndef TESTS_SIMVERBS_VERB_CALLS_H
#define TESTS_SIMVERBS_VERB_CALLS_H

#include <infiniband/verbs.h>
#include <stddef.h>

/* What the calls work on; they leave it as it was. */
struct verb_target {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	int gid_index;
};

struct verb_call {
	const char *name;
	/* 0 or the errno of the verb; of another verb when one that is needed before it failed. */
	int (*call)(const struct verb_target *target);
};
extern const struct verb_call verb_calls[];
extern const size_t num_verb_calls;

/* NULL: no command has this name. */
const struct verb_call *verb_call_named(const char *name);

#endif
