/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank: its plugins, connections, buffers and threads.
 *
 * The main thread sets everything up and hands jobs to the two workers one at a time, waiting for
 * each; so a field has one writer at any moment and needs no lock. Where a job runs while the other
 * worker is busy too (registration churn) it touches only what its comment says.
 */
#ifndef NP_RANK_H
#define NP_RANK_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/common/collcalls.h"
#include "tools/common/netplugin.h"
#include "tools/nccl-net-perf/options.h"
#include "tools/nccl-net-perf/recorder.h"
#include "tools/nccl-net-perf/worker.h"

struct np_bootstrap;
struct np_canary;

/* ---- memory ------------------------------------------------------------------------------ */

enum np_buffer_kind {
	NP_BUF_IN,    /* what this rank sends */
	NP_BUF_OUT,   /* what it receives, or the result */
	NP_BUF_SLOTS, /* where reduce-scatter receives what it adds */
	NP_BUF_COUNT,
};

/* A mapping with canaries on both sides of the data. */
struct np_buffer {
	uint8_t *data;
	size_t len;
	uint8_t *map;
	size_t map_len;
};

/* ---- connections -------------------------------------------------------------------------- */

/* One direction of a connection to a peer. NCCL's handle memory lives as long as the attempt. */
struct np_link {
	bool send;
	int peer;
	int channel;
	int dev;
	void *listen; /* receiving side, until accepted */
	void *comm;
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *mr[NP_BUF_COUNT];
	bool registered[NP_BUF_COUNT];
};

/* A group of all ranks in the plugin's collNet. */
struct np_group {
	struct np_coll coll;
	bool initialised;
	void *ctx;
	void *listen; /* until connected */
	void *comm;
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	uint8_t *handles; /* of all ranks, while it connects */
	void *mr[NP_BUF_COUNT];
	bool registered[NP_BUF_COUNT];
};

/* A plugin and the connections made with it. */
struct np_side {
	struct np_plugin *net;
	struct np_ctx ctx;
	bool initialised;
	int ndev;
	ncclNetProperties_v12_t *props; /* ndev of them */
	int max_recvs;			/* the smallest of the devices in use, at most --group */
	struct np_link *links;		/* nlinks: to every peer in use, each channel, both ways */
	int nlinks;
	enum np_via via;
	struct np_group group;	/* in place of links, via the collNet */
	struct np_inccl *inccl; /* the same, via libinccl */
};

/* ---- errors ------------------------------------------------------------------------------- */

/* The first thing that went wrong. */
struct np_error {
	enum np_exit status; /* NP_EXIT_OK: nothing yet */
	char text[600];
};

/* ---- the rank ------------------------------------------------------------------------------ */

struct np_rank {
	const struct np_options *o;
	int rank;
	int nranks;
	struct np_bootstrap *bootstrap; /* main thread only */

	struct np_worker service;
	struct np_worker progress;

	struct np_side sides[NP_MAX_SIDES];
	int nsides;
	struct np_buffer buffers[NP_BUF_COUNT];
	struct np_canary *canary; /* as recorder; NULL: not asked for */

	struct np_recorder recorder; /* progress thread while it runs, else main */
	struct np_error error;
};

/* Runs a whole rank; returns the exit status. The bootstrap is the caller's. */
enum np_exit np_rank_run(const struct np_options *o, struct np_bootstrap *bootstrap);

/* np_bootstrap_gather with the error in rk->error. */
bool np_gather(struct np_rank *rk, const void *mine, void *all, size_t len);
bool np_barrier(struct np_rank *rk);

#endif
