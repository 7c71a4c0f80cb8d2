/* SPDX-License-Identifier: Apache-2.0 */
#include "coll_group.h"

#include <string.h>

/* ---- the group ---------------------------------------------------------------------------- */

void coll_listen(struct check *t, struct coll_handles *handles)
{
	memset(handles, 0, sizeof(*handles));
	MUST_COLL(t, listen, t->coll_ctx, t->opt->dev, handles->own.bytes, &handles->listen_comm);
	if (!handles->listen_comm)
		check_fail(t, "listen succeeded without a listen comm");
	memcpy(handles->of_all[t->rank], handles->own.bytes, NCCL_NET_HANDLE_MAXSIZE);
	check_tell(t, handles->own.bytes, NCCL_NET_HANDLE_MAXSIZE);
	check_hear(t, handles->of_all[1 - t->rank], NCCL_NET_HANDLE_MAXSIZE);
	for (int r = 0; r < CHECK_RANKS; r++)
		handles->pointers[r] = handles->of_all[r];
}

ncclResult_t coll_connect(struct check *t, struct coll_handles *handles, void **comm)
{
	*comm = NULL;
	ncclResult_t result =
	    COLL(t, connect, handles->pointers, CHECK_RANKS, t->rank, handles->listen_comm, comm);
	return result == ncclSuccess && !*comm ? ncclInternalError : result;
}

void *coll_open(struct check *t)
{
	struct coll_handles handles;
	void *comm;

	coll_listen(t, &handles);
	check_success(t, "connect", coll_connect(t, &handles, &comm));
	MUST_COLL(t, close_listen, handles.listen_comm);
	return comm;
}

void coll_close(struct check *t, void *comm)
{
	MUST_COLL(t, close, comm);
}

/* ---- memory ------------------------------------------------------------------------------- */

void coll_buffer_open(struct check *t, struct buffer *b, void *comm, size_t size)
{
	*b = (struct buffer){.data = memory_alloc(t, size), .size = size};
	MUST_COLL(t, reg_mr, comm, b->data, size, NCCL_PTR_HOST, &b->mhandle);
}

void coll_buffer_close(struct check *t, struct buffer *b, void *comm)
{
	MUST_COLL(t, dereg_mr, comm, b->mhandle);
	memory_free(b->data, b->size);
}

/* Below 2^20, so that sums of some are exact. */
static float contribution(int rank, uint64_t seed, size_t index)
{
	uint64_t x = ((uint64_t)index + 1) * 0x9e3779b97f4a7c15ull ^
		     (seed * 4 + (uint64_t)rank + 1) * 0xbf58476d1ce4e5b9ull;

	x ^= x >> 31;
	return (float)(x * 0x94d049bb133111ebull >> 44);
}

void coll_fill(void *at, size_t count, int rank, uint64_t seed)
{
	for (size_t i = 0; i < count; i++) {
		const float one = contribution(rank, seed, i);

		memcpy((char *)at + sizeof(one) * i, &one, sizeof(one));
	}
}

void coll_expect(struct check *t, const void *at, size_t count, uint64_t seed, const char *what)
{
	for (size_t i = 0; i < count; i++) {
		const float sum = contribution(0, seed, i) + contribution(1, seed, i);
		float found;

		memcpy(&found, (const char *)at + sizeof(found) * i, sizeof(found));
		if (memcmp(&found, &sum, sizeof(sum)) != 0)
			check_fail(t, "%s: element %zu of %zu is %g, not %g", what, i, count,
				   (double)found, (double)sum);
	}
}

/* ---- all-reduces -------------------------------------------------------------------------- */

void *coll_post(struct check *t, void *comm, const struct np_coll_reduce *reduce)
{
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);

	for (;;) {
		void *request = NULL;
		MUST_COLL(t, iallreduce, comm, reduce, &request);
		if (request)
			return request;
		check_poll(t, deadline, "iallreduce was not taken");
	}
}

bool coll_test(struct check *t, void *request)
{
	int done = 0, size = 0;

	MUST_COLL(t, test, request, &done, &size);
	return done != 0;
}

void coll_await(struct check *t, void *request, const char *what)
{
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);

	while (!coll_test(t, request))
		check_poll(t, deadline, what);
}

struct np_coll_reduce coll_sum(const struct buffer *send, const struct buffer *recv, size_t count)
{
	return (struct np_coll_reduce){.send = send->data,
				       .recv = recv->data,
				       .send_mr = send->mhandle,
				       .recv_mr = recv->mhandle,
				       .count = count,
				       .type = ncclFloat32,
				       .op = ncclSum};
}

void coll_round(struct check *t, void *comm, struct buffer *send, struct buffer *recv, size_t count,
		uint64_t seed, const char *what)
{
	const struct np_coll_reduce reduce = coll_sum(send, recv, count);

	coll_fill(send->data, count, t->rank, seed);
	coll_await(t, coll_post(t, comm, &reduce), what);
	coll_expect(t, recv->data, count, seed, what);
}

void coll_prove_usable(struct check *t)
{
	const size_t count = 1001;
	struct buffer send, recv;
	void *comm = coll_open(t);

	coll_buffer_open(t, &send, comm, count * sizeof(float));
	coll_buffer_open(t, &recv, comm, count * sizeof(float));
	coll_round(t, comm, &send, &recv, count, 1, "an all-reduce");
	coll_buffer_close(t, &recv, comm);
	coll_buffer_close(t, &send, comm);
	coll_close(t, comm);
}
