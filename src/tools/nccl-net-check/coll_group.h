/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of a collNet that is made of the two ranks of a rule, and all-reduces in it, for rules
 * that are about something else. As link.h it gives the plugin the benefit of the doubt.
 */
#ifndef CHECK_COLL_GROUP_H
#define CHECK_COLL_GROUP_H

#include "link.h"

/* How long an all-reduce may take once both ranks have asked for it. */
#define COLL_STEP_MS 10000

/* Both ranks call it; the comm. */
void *coll_open(struct check *t);
/* One end's part of it: listens, and has the handles of both ranks. */
struct coll_handles {
	struct link_handle own;
	char of_all[CHECK_RANKS][NCCL_NET_HANDLE_MAXSIZE];
	void *pointers[CHECK_RANKS]; /* what connect is given */
	void *listen_comm;
};
void coll_listen(struct check *t, struct coll_handles *handles);
/* The verdict of connect. *comm: NULL counts as a failure, as with NCCL. */
ncclResult_t coll_connect(struct check *t, struct coll_handles *handles, void **comm);
void coll_close(struct check *t, void *comm);

/* As buffer_open, registered with a group. */
void coll_buffer_open(struct check *t, struct buffer *b, void *comm, size_t size);
void coll_buffer_close(struct check *t, struct buffer *b, void *comm);

/*
 * Contributions are floats that are whole numbers, so that a sum of them is the same in any order.
 */
void coll_fill(void *at, size_t count, int rank, uint64_t seed);
/* The sum of both ranks' is there. */
void coll_expect(struct check *t, const void *at, size_t count, uint64_t seed, const char *what);

/* Asked for again and again until it is taken. */
void *coll_post(struct check *t, void *comm, const struct np_coll_reduce *reduce);
bool coll_test(struct check *t, void *request);
void coll_await(struct check *t, void *request, const char *what);

/* The sum of floats; out of place. */
struct np_coll_reduce coll_sum(const struct buffer *send, const struct buffer *recv, size_t count);
/* One, from the contribution to the comparison. */
void coll_round(struct check *t, void *comm, struct buffer *send, struct buffer *recv, size_t count,
		uint64_t seed, const char *what);
/* A group is opened, adds and is closed. */
void coll_prove_usable(struct check *t);

#endif
