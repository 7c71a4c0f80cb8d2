/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the collNet's table, its devices, and how a group comes to be. */
#include "coll_group.h"
#include "process.h"
#include "rules.h"

#include <stdio.h>
#include <string.h>

/* ---- the table ---------------------------------------------------------------------------- */

void rule_coll_vtable(struct check *t)
{
	char missing[512];

	check_load(t);
	if (np_coll_missing(&t->coll, NP_BEFORE_INIT, missing, sizeof(missing)) > 0)
		check_fail(t, "members that are NULL: %s", missing);
	if (COLL(t, init, &t->coll_ctx, 0x7461626c65ull) != ncclSuccess)
		check_skip(t, "init fails, and what it may fill in cannot be looked at");
	if (np_coll_missing(&t->coll, NP_AFTER_INIT, missing, sizeof(missing)) > 0)
		check_fail(t, "members that are NULL after init: %s", missing);
	check_note(t, "name \"%s\"", np_coll_name(&t->coll));
}

void rule_coll_init(struct check *t)
{
	check_load(t);
	check_init(t);
	check_note(t, "%d devices", t->coll_ndev);
}

void rule_coll_init_again(struct check *t)
{
	void *second;
	int ndev = 0;

	MUST_COLL(t, init, &second, 0x616761696eull);
	MUST_COLL(t, devices, &ndev);
	if (ndev != t->coll_ndev)
		check_fail(t, "%d devices after the first init, %d after the second", t->coll_ndev,
			   ndev);
	coll_prove_usable(t);
}

void rule_coll_contexts(struct check *t)
{
	void *first = t->coll_ctx;

	MUST_COLL(t, init, &t->coll_ctx, 0x7365636f6eull);
	coll_prove_usable(t);
	MUST_COLL(t, finalize, first);
	coll_prove_usable(t);
	MUST_COLL(t, finalize, t->coll_ctx);
}

void rule_coll_reload(struct check *t)
{
	for (int round = 0; round < 2; round++) {
		check_load(t);
		check_init(t);
		coll_prove_usable(t);
		MUST_COLL(t, finalize, t->coll_ctx);
		MUST(t, finalize, &t->ctx);
		check_enter(t, "dlclose");
		np_close(t->plugin);
		check_leave(t, ncclSuccess);
	}
}

/* ---- devices ------------------------------------------------------------------------------ */

void rule_coll_devices(struct check *t)
{
	if (t->coll_ndev != t->ndev)
		check_fail(t, "the collNet has %d devices, the net %d", t->coll_ndev, t->ndev);
}

void rule_coll_devices_stable(struct check *t)
{
	int others = 0;

	for (int round = 0; round < 3; round++) {
		int again = 0;
		MUST_COLL(t, devices, &again);
		if (again != t->coll_ndev)
			check_fail(t, "devices reported %d, then %d", t->coll_ndev, again);
	}
	check_tell(t, &t->coll_ndev, sizeof(t->coll_ndev));
	check_hear(t, &others, sizeof(others));
	if (others != t->coll_ndev)
		check_fail(t, "%d devices here, %d at the other rank", t->coll_ndev, others);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

void rule_coll_properties(struct check *t)
{
	for (int d = 0; d < t->coll_ndev && d < t->ndev; d++) {
		ncclNetProperties_v12_t net, coll;

		MUST(t, get_properties, d, &net);
		MUST_COLL(t, get_properties, d, &coll);
#define SAME(member)                                                                               \
	if (net.member != coll.member)                                                             \
	check_fail(t, "device %d: " #member " is %lld for the net and %lld for the collNet", d,    \
		   (long long)net.member, (long long)coll.member)
		SAME(speed);
		SAME(port);
		SAME(guid);
		SAME(maxComms);
		SAME(ptrSupport);
		SAME(latency);
#undef SAME
		if (!same_text(net.name, coll.name) || !same_text(net.pciPath, coll.pciPath))
			check_fail(t, "device %d: the net calls it %s, the collNet %s", d,
				   net.name ? net.name : "(null)",
				   coll.name ? coll.name : "(null)");
	}
}

void rule_coll_max_bytes(struct check *t)
{
	for (int d = 0; d < t->coll_ndev; d++) {
		ncclNetProperties_v12_t p;

		MUST_COLL(t, get_properties, d, &p);
		if (p.maxCollBytes == 0 || p.maxCollBytes > (size_t)NCCL_MAX_NET_SIZE_BYTES)
			check_fail(t, "device %d: maxCollBytes is %zu, not 1 … 2^40", d,
				   p.maxCollBytes);
	}
}

/* ---- listening ---------------------------------------------------------------------------- */

void rule_coll_handle_size(struct check *t)
{
	struct link_handle handle;
	void *listen_comm = NULL;

	memset(&handle, 0x5a, sizeof(handle));
	MUST_COLL(t, listen, t->coll_ctx, t->opt->dev, handle.bytes, &listen_comm);
	for (size_t i = 0; i < sizeof(handle.slack); i++)
		if (handle.slack[i] != 0x5a)
			check_fail(t, "listen wrote byte %zu of a handle of %d",
				   i + sizeof(handle.bytes), NCCL_NET_HANDLE_MAXSIZE);
	MUST_COLL(t, close_listen, listen_comm);
}

void rule_coll_listen_close(struct check *t)
{
	int before = 0;

	for (int i = 0; i < 32; i++) {
		struct link_handle handle;
		void *listen_comm = NULL;

		if (i == 8)
			before = process_fds();
		MUST_COLL(t, listen, t->coll_ctx, t->opt->dev, handle.bytes, &listen_comm);
		MUST_COLL(t, close_listen, listen_comm);
	}
	if (process_fds() > before + 4)
		check_fail(t, "descriptors grew from %d to %d in 24 listens that were closed",
			   before, process_fds());
}

/* ---- connecting --------------------------------------------------------------------------- */

void rule_coll_connect_waits(struct check *t)
{
	struct coll_handles handles;
	void *comm = NULL;

	coll_listen(t, &handles);
	if (t->rank == 1)
		check_sleep_ms(300);
	MUST_COLL(t, connect, handles.pointers, CHECK_RANKS, t->rank, handles.listen_comm, &comm);
	if (!comm)
		check_fail(t, "connect returned without a comm and without an error");
	check_barrier(t);
	coll_close(t, comm);
}

static void spoil(struct coll_handles *handles)
{
	for (int r = 0; r < CHECK_RANKS; r++)
		memset(handles->of_all[r], 0xa5, NCCL_NET_HANDLE_MAXSIZE);
}

void rule_coll_verdict(struct check *t)
{
	struct coll_handles handles;
	void *comm;
	int own, other = 0;

	coll_listen(t, &handles);
	if (t->rank == 1)
		spoil(&handles);
	own = coll_connect(t, &handles, &comm) == ncclSuccess;
	check_tell(t, &own, sizeof(own));
	check_hear(t, &other, sizeof(other));
	if (own != other)
		check_fail(t, "connect failed at rank %d and did not at rank %d",
			   own ? 1 - t->rank : t->rank, own ? t->rank : 1 - t->rank);
	if (own)
		check_note(t, "it needs no handles");
}

void rule_coll_connect_death(struct check *t)
{
	struct coll_handles handles;
	void *comm;

	coll_listen(t, &handles);
	check_barrier(t);
	if (t->rank == 1)
		check_die(t);
	if (coll_connect(t, &handles, &comm) == ncclSuccess)
		check_fail(t, "connect succeeded although the other rank is dead");
}

void rule_coll_connect_leaks(struct check *t)
{
	int before = 0;

	for (int i = 0; i < 16; i++) {
		struct coll_handles handles = {.listen_comm = NULL};
		void *comm = NULL;

		if (i == 4)
			before = process_fds();
		MUST_COLL(t, listen, t->coll_ctx, t->opt->dev, handles.own.bytes,
			  &handles.listen_comm);
		for (int r = 0; r < CHECK_RANKS; r++)
			handles.pointers[r] = handles.of_all[r];
		spoil(&handles);
		if (COLL(t, connect, handles.pointers, CHECK_RANKS, 1, handles.listen_comm,
			 &comm) == ncclSuccess)
			check_skip(t, "it connects with any handle");
	}
	if (process_fds() > before + 2)
		check_fail(
		    t,
		    "descriptors grew from %d to %d in 12 connects that failed: NCCL does not "
		    "close the listen comm then",
		    before, process_fds());
}

/* ---- what it can add ---------------------------------------------------------------------- */

enum { TYPES = ncclFloat8e5m2 + 1, OPS = ncclMin + 1 };

void rule_coll_support(struct check *t)
{
	int own[TYPES][OPS], others[TYPES][OPS];

	for (int i = 0; i < TYPES * OPS; i++) {
		int again = -1, *answer = &own[i / OPS][i % OPS];

		*answer = -1;
		MUST_COLL(t, reduce_support, (ncclDataType_t)(i / OPS), (ncclRedOp_t)(i % OPS),
			  answer);
		MUST_COLL(t, reduce_support, (ncclDataType_t)(i / OPS), (ncclRedOp_t)(i % OPS),
			  &again);
		if ((*answer != 0 && *answer != 1) || again != *answer)
			check_fail(t, "type %d, operation %d: the answer is %d, then %d", i / OPS,
				   i % OPS, *answer, again);
	}
	check_tell(t, own, sizeof(own));
	check_hear(t, others, sizeof(others));
	if (memcmp(own, others, sizeof(own)) != 0)
		check_fail(t, "the two ranks answer differently");
	if (!own[ncclFloat32][ncclSum])
		check_fail(t, "it cannot add floats");
}
