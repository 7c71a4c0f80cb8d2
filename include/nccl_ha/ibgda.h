/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of puts and signals over queue pairs that threads of a program drive themselves, with a
 * main and a backup queue pair: what the program's host does with them (libnccl-ha-ibgda.so, C and
 * C++; `pkg-config nccl-ha-ibgda`). Threads post by nccl_ha/ibgda.cuh, which is code, not a
 * library.
 *
 * A context has the NICs of this process, and the memory that puts go from and to. A stream is one
 * direction between two contexts, mostly of two hosts: one end puts, the other one receives. Both
 * say to each other what they have to over a socket that the program has connected, which is not to
 * go over the NICs that may fail.
 *
 * A thread of each context watches over its ends: it makes the next queue pair before it is needed,
 * notices what fails, and moves the stream. Nothing here is called on the way of data.
 *
 * Functions return 0 or a negative errno. Any thread may call them, also at the same time, unless
 * said otherwise; they wait for that thread, which may wait for verbs. None is for signal handlers,
 * and after fork() a child must not use what its parent has opened.
 */
#ifndef NCCL_HA_IBGDA_H
#define NCCL_HA_IBGDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ha_ibgda_stream; /* nccl_ha/ibgda_stream.h: what threads post on */
struct ha_ibgda_context;
struct ha_ibgda_end; /* of a stream */

/*
 * Where memory comes from that threads touch: words of streams, queues and their completions, and
 * signals. A program whose threads are a GPU's gives out what the GPU reaches at the same address
 * (mapped memory of the host); without functions it is the C library's. They are called by whoever
 * opens and closes ends, and by the context's thread; they must not call anything of this header.
 */
struct ha_ibgda_memory {
	/* `bytes` that begin at a multiple of `alignment`, a power of 2; NULL: there are none. */
	void *(*allocate)(void *argument, size_t alignment, size_t bytes);
	void (*release)(void *argument, void *memory);
	/* A device's doorbell: threads will store there. Called for each queue pair, maybe with the
	 * same place again. NULL: nothing is to be done. Other than 0: it cannot be had. */
	int (*doorbell)(void *argument, void *at, size_t bytes);
	void *argument;
};

struct ha_ibgda_options {
	size_t size; /* of this struct, so that later ones may have more */
	/* Which ports, as NCCL_IB_HCA says it ("=mlx5_0,mlx5_1"); NULL: what that variable says.
	 * The first four that are up count; the first one is where streams begin. Addresses and
	 * timeouts are those of the plugin's variables, NCCL_IB_GID_INDEX and such. */
	const char *nics;
	uint32_t log;	      /* queues of 2^log requests: 3 to 15; 0: 10 */
	uint32_t outage_ms;   /* without a path: then a stream is over; 0: as HA_NCCL_OUTAGE_MS */
	uint32_t return_ms;   /* a stream goes back to its first NIC when that has been well for so
				 long, and a probe has come through; 0: it stays where it is */
	int accepts_unproved; /* what a NIC has acknowledged and died with is counted; else (0) the
				 stream is over */
	struct ha_ibgda_memory memory;
};

/* Opens the NICs and starts the thread. -ENODEV: no port is up; -ENOTSUP: there is no
 * libmlx5.so.1, so nobody says where queues are. */
int ha_ibgda_context_open(const struct ha_ibgda_options *options, struct ha_ibgda_context **out);
/* -EBUSY: it has ends. What is registered is deregistered. */
int ha_ibgda_context_close(struct ha_ibgda_context *context);

/* How many ports it uses, from 1 to 4. */
unsigned int ha_ibgda_num_nics(const struct ha_ibgda_context *context);
/* The device of one; NULL: there is none of that number. The context's. */
const char *ha_ibgda_nic_name(const struct ha_ibgda_context *context, unsigned int nic);

/*
 * Memory of the program becomes a region, of which there are eight: puts name theirs and the peer's
 * by number. Before the first end is opened (-EBUSY: there is one, or the region is taken), since
 * both ends tell their keys when they make a queue pair. A GPU's memory is fine where the driver
 * registers it by its address.
 */
int ha_ibgda_register(struct ha_ibgda_context *context, uint32_t region, void *memory,
		      size_t bytes);
/* Once all puts that name it are quiet, and the peer puts nothing there any more; at any time
 * then. What unfinished puts name is an error of the stream. */
int ha_ibgda_deregister(struct ha_ibgda_context *context, uint32_t region);

/*
 * The end that puts, and the end that receives. One program calls the one, its peer the other. The
 * socket is a stream (TCP or Unix) and belongs to the end from then on, also if this fails; who is
 * at its other end is trusted, so the program has asked who that is. Threads may post at once: they
 * wait until the first queue pair is there.
 */
int ha_ibgda_put_open(struct ha_ibgda_context *context, int socket, struct ha_ibgda_end **out);
int ha_ibgda_receive_open(struct ha_ibgda_context *context, int socket, struct ha_ibgda_end **out);
/* Of an end that puts: no thread posts or waits any more. Its peer learns of it as an end. */
void ha_ibgda_end_close(struct ha_ibgda_end *end);

/* What threads post on, of an end that puts; else NULL. Lives as long as the end. */
struct ha_ibgda_stream *ha_ibgda_end_stream(const struct ha_ibgda_end *end);
/* The 64 signals, of an end that receives; else NULL. Each only grows; to be loaded with acquire:
 * who sees a value has all that was put before it. Lives as long as the end. */
const uint64_t *ha_ibgda_end_signals(const struct ha_ibgda_end *end);

/* An end that puts is to go over that NIC, as soon as a probe has come through there. -EINVAL: it
 * has no such NIC, or receives. */
int ha_ibgda_end_move(struct ha_ibgda_end *end, unsigned int nic);
/* The stream is over: every thread returns with HA_IBGDA_OVER, within 100 ms. */
void ha_ibgda_end_abort(struct ha_ibgda_end *end);

enum ha_ibgda_state {
	HA_IBGDA_STATE_STARTING, /* there is no queue pair yet */
	HA_IBGDA_STATE_HOME,	 /* over the NIC that it began on, or was last told to use */
	HA_IBGDA_STATE_AWAY,	 /* over another one */
	HA_IBGDA_STATE_MOVING,	 /* threads wait */
	HA_IBGDA_STATE_OVER,	 /* for ever */
};

struct ha_ibgda_status {
	size_t size; /* of this struct: the caller's */
	enum ha_ibgda_state state;
	unsigned int nic;   /* in use, of an end that puts */
	uint64_t failovers; /* after a failure, */
	uint64_t moves;	    /* and as planned */
	uint64_t probes;    /* of NICs that it wanted to go to */
	uint64_t unproved;  /* failovers after which nobody can tell whether all is in memory */
	const char *reason; /* why it is over; NULL: it is not. A constant. */
};

/* Fills in what the caller's struct has room for. */
int ha_ibgda_end_status(struct ha_ibgda_end *end, struct ha_ibgda_status *status);

#ifdef __cplusplus
}
#endif

#endif
