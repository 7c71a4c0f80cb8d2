/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective operations that switches between hosts add up, for programs of any kind
 * (libinccl.so, C and C++; `pkg-config inccl`). docs/inc.md says what nccl-ha-ctrld and
 * nccl-ha-switchd are, which have to be there; no NCCL and no GPU is needed.
 *
 * A *group* is a process's place among others: its rank of so many, its NIC, the controller and the
 * site's key. Ranks find each other through the controller by the group's name, and nothing else
 * has to be carried between them. A *communicator* is one order of operations: all ranks open the
 * same ones in the same order, and ask for the same operations on each in the same order.
 *
 * Results have the same bits at all ranks. A switch that dies costs time and no element; what ends
 * a communicator is the death of a rank, ranks that do not ask for the same, or no way left.
 *
 * Memory of hosts, at any address and without alignment. What was registered goes from where it
 * lies and to where it belongs; all else is copied through memory of the communicator's. Ranks need
 * not do the same in that.
 *
 * Functions return INCCL_OK, 0; INCCL_AGAIN; or an error, which is negative. Each that waits takes
 * how long at most in milliseconds. A communicator is used by one thread at a time, and the calls
 * of a group are, too; different communicators are used at once. None is for signal handlers, and
 * after fork() a child must not use what its parent has opened.
 */
#ifndef INCCL_INCCL_H
#define INCCL_INCCL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct inccl_group;
struct inccl_comm;
struct inccl_region;  /* of registered memory */
struct inccl_request; /* an operation that is under way */

enum inccl_result {
	INCCL_OK = 0,
	INCCL_AGAIN = 1,	   /* not now, or not yet: the same call comes again */
	INCCL_ERR_ARGUMENT = -1,   /* something that cannot be, or the caller's mistake */
	INCCL_ERR_SYSTEM = -2,	   /* this host: a device, memory */
	INCCL_ERR_REFUSED = -3,	   /* the controller has another key, or no plan for this group */
	INCCL_ERR_REMOTE = -4,	   /* the controller or a rank is not there in time, or is lost */
	INCCL_ERR_TIMEOUT = -5,	   /* of a call */
	INCCL_ERR_DISAGREE = -6,   /* ranks do not ask for the same operations in the same order */
	INCCL_ERR_REGISTERED = -7, /* not registered, where INCCL_DIRECT says that it is */
	INCCL_ERR_INTERNAL = -8	   /* an error of ours */
};

/* Of a result: a sentence without an end. Never NULL. */
const char *inccl_strerror(int result);

/* ---- groups --------------------------------------------------------------------------------- */

/* What is 0 or NULL is as the variable says that stands there (docs/configuration.md), but for
 * size, rank and ranks. */
struct inccl_options {
	size_t size;	   /* of this struct, so that later ones may have more */
	uint32_t rank;	   /* 0 to ranks - 1 */
	uint32_t ranks;	   /* 1 to 4096 */
	const char *group; /* its name, the same at all ranks, and no other group's at the time;
			    * letters, digits and . _ - :, 52 at most. NULL: the scheduler's number
			    * of the job, or "inccl" */
	const char *controller; /* HOST:PORT; HA_NCCL_INC_CONTROLLER */
	const char *key_file;	/* the site's key; HA_NCCL_INC_KEY_FILE */
	const char *host;	/* what the topology calls this host; HA_NCCL_INC_HOST */
	const char *nic;	/* as NCCL_IB_HCA: the first port of those that is up */
	const char *label;	/* of a quota; HA_NCCL_INC_LABEL */
	uint32_t
	    connect_ms;	    /* until all ranks have opened a communicator; HA_NCCL_INC_CONNECT_MS */
	uint32_t join_ms;   /* for switches to answer; HA_NCCL_INC_JOIN_MS */
	uint32_t late_ms;   /* without a result: a tree is suspected; HA_NCCL_INC_RTO_MS */
	uint32_t outage_ms; /* and for so long: an error; HA_NCCL_OUTAGE_MS */
	uint32_t unit_bytes;   /* rank 0's holds for all: HA_NCCL_INC_UNIT, */
	uint32_t window;       /* HA_NCCL_INC_WINDOW */
	uint32_t copies;       /* HA_NCCL_INC_COPIES */
	uint32_t reproducible; /* 1: the same bits by every plan; HA_NCCL_INC_REPRODUCIBLE */
};

/* Opens the NIC; asks nobody. On an error *out is NULL. INCCL_ERR_ARGUMENT: an option, and one line
 * of the log says which. */
int inccl_group_open(const struct inccl_options *options, struct inccl_group **out);
/* INCCL_ERR_ARGUMENT: it has a communicator. What is registered is deregistered. NULL is fine. */
int inccl_group_close(struct inccl_group *group);

/* ---- memory --------------------------------------------------------------------------------- */

/* For all communicators of the group, until it is deregistered, which is after the last operation
 * on it. */
int inccl_register(struct inccl_group *group, void *memory, size_t bytes,
		   struct inccl_region **out);
void inccl_deregister(struct inccl_region *region); /* NULL is fine */

/* ---- communicators -------------------------------------------------------------------------- */

/* Waits for all ranks, at most connect_ms, and fails at all of them or at none. *out is NULL then;
 * inccl_group_why() has the reason until the next one. */
int inccl_comm_open(struct inccl_group *group, struct inccl_comm **out);
const char *inccl_group_why(const struct inccl_group *group);
struct inccl_group *inccl_comm_group(const struct inccl_comm *comm);
/* Waits until all ranks have what this one has asked for, at most outage_ms; with operations that
 * are not done, or after an error, it waits for nobody, and the other ranks hear that this one is
 * gone. Then all memory is the caller's. NULL is fine. */
int inccl_comm_close(struct inccl_comm *comm);

/* Why it has ended, in words; empty: it has not. The communicator's. */
const char *inccl_comm_why(struct inccl_comm *comm);

/* ---- operations ----------------------------------------------------------------------------- */

enum inccl_type {
	INCCL_INT8,
	INCCL_UINT8,
	INCCL_INT32,
	INCCL_UINT32,
	INCCL_INT64,
	INCCL_UINT64,
	INCCL_FLOAT16,
	INCCL_FLOAT32,
	INCCL_FLOAT64,
	INCCL_BFLOAT16
};

enum inccl_op { INCCL_SUM, INCCL_PROD, INCCL_MAX, INCCL_MIN };

enum inccl_flags {
	INCCL_DIRECT = 1, /* registered memory, or INCCL_ERR_REGISTERED */
	INCCL_BOUNCE = 2  /* through copies, whatever is registered */
};

/*
 * Begins an all-reduce of `count` elements: *request is under way until inccl_test() or
 * inccl_wait() say that it is not, and until then both memories are the library's. recv may be
 * send; else they do not overlap. INCCL_AGAIN: 64 are under way. It moves when the communicator
 * is called; what was begun first is done first.
 */
int inccl_iallreduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		     enum inccl_type type, enum inccl_op op, unsigned int flags,
		     struct inccl_request **request);

/* INCCL_AGAIN: not done. Else the request is none any more. */
int inccl_test(struct inccl_request *request);
/* The same within a time; INCCL_ERR_TIMEOUT: not done, and it is still a request. */
int inccl_wait(struct inccl_request *request, uint32_t timeout_ms);

/* Both in one call. INCCL_ERR_TIMEOUT: the communicator has ended with it, here and so for all
 * ranks, and the memory is the caller's. */
int inccl_allreduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		    enum inccl_type type, enum inccl_op op, unsigned int flags,
		    uint32_t timeout_ms);

/* The rest is as inccl_iallreduce() and inccl_allreduce(), with every rank in it; docs/inc.md says
 * what each one costs. That ranks name the same root is not compared. */

/* The result is the root's alone; recv: of others NULL is fine. */
int inccl_ireduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		  enum inccl_type type, enum inccl_op op, uint32_t root, unsigned int flags,
		  struct inccl_request **request);
int inccl_reduce(struct inccl_comm *comm, const void *send, void *recv, size_t count,
		 enum inccl_type type, enum inccl_op op, uint32_t root, unsigned int flags,
		 uint32_t timeout_ms);
/* Of ranks * count elements, of which rank r gets those from r * count on. recv may be that part of
 * send; else they do not overlap. */
int inccl_ireduce_scatter(struct inccl_comm *comm, const void *send, void *recv, size_t count,
			  enum inccl_type type, enum inccl_op op, unsigned int flags,
			  struct inccl_request **request);
int inccl_reduce_scatter(struct inccl_comm *comm, const void *send, void *recv, size_t count,
			 enum inccl_type type, enum inccl_op op, unsigned int flags,
			 uint32_t timeout_ms);
/* The root's bytes to all. */
int inccl_ibroadcast(struct inccl_comm *comm, void *data, size_t bytes, uint32_t root,
		     unsigned int flags, struct inccl_request **request);
int inccl_broadcast(struct inccl_comm *comm, void *data, size_t bytes, uint32_t root,
		    unsigned int flags, uint32_t timeout_ms);
/* `bytes` of each rank, in the order of ranks, to all. send may be this rank's part of recv; else
 * they do not overlap. */
int inccl_iallgather(struct inccl_comm *comm, const void *send, void *recv, size_t bytes,
		     unsigned int flags, struct inccl_request **request);
int inccl_allgather(struct inccl_comm *comm, const void *send, void *recv, size_t bytes,
		    unsigned int flags, uint32_t timeout_ms);
/* Is done when all ranks have called it, whichever of the two. */
int inccl_ibarrier(struct inccl_comm *comm, struct inccl_request **request);
int inccl_barrier(struct inccl_comm *comm, uint32_t timeout_ms);

/* ---- short forms ---------------------------------------------------------------------------- */

/* Sums of 32-bit integers, with options by variables: for small programs. */

#ifndef INCCL_TIMEOUT_MS
#define INCCL_TIMEOUT_MS 60000u /* of each call */
#endif

/* controller: HOST:PORT. */
static inline int inccl_group_create(int world_size, const char *controller, int rank,
				     struct inccl_group **group)
{
	struct inccl_options options;

	memset(&options, 0, sizeof(options));
	options.size = sizeof(options);
	options.rank = (uint32_t)rank;
	options.ranks = (uint32_t)world_size;
	options.controller = controller;
	return inccl_group_open(&options, group);
}

static inline int inccl_group_destroy(struct inccl_group *group)
{
	return inccl_group_close(group);
}

static inline int inccl_communicator_create(struct inccl_group *group, struct inccl_comm **comm)
{
	return inccl_comm_open(group, comm);
}

static inline int inccl_communicator_destroy(struct inccl_comm *comm)
{
	return inccl_comm_close(comm);
}

/* len: elements. Registers both memories for as long as it takes: worth it for large ones, or for
 * none that inccl_register() knows for longer. */
static inline int inccl_allreduce_write(struct inccl_comm *comm, int32_t *src, uint32_t len,
					int32_t *dst)
{
	struct inccl_group *group = inccl_comm_group(comm);
	const size_t bytes = (size_t)len * sizeof(*src);
	struct inccl_region *from = NULL, *to = NULL;
	int result = len ? inccl_register(group, src, bytes, &from) : INCCL_OK;

	if (result == INCCL_OK && len && dst != src)
		result = inccl_register(group, dst, bytes, &to);
	if (result == INCCL_OK)
		result = inccl_allreduce(comm, src, dst, len, INCCL_INT32, INCCL_SUM, INCCL_DIRECT,
					 INCCL_TIMEOUT_MS);
	inccl_deregister(to);
	inccl_deregister(from);
	return result;
}

/* The same through copies, and registers nothing. */
static inline int inccl_allreduce_sendrecv(struct inccl_comm *comm, const int32_t *src,
					   uint32_t len, int32_t *dst)
{
	return inccl_allreduce(comm, src, dst, len, INCCL_INT32, INCCL_SUM, INCCL_BOUNCE,
			       INCCL_TIMEOUT_MS);
}

#ifdef __cplusplus
}
#endif

#endif
