/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, correct NCCL net plugin over TCP on the loopback interface: what the contract asks for
 * and nothing more. nccl-net-check has to pass it, and the deliberately broken plugins are this
 * one compiled with one REF_BREAK_... macro each. Some that are unusual and right are made of it,
 * too.
 *
 * How it works: a connection is one socket. The receiver announces each irecv (a "grant": tags and
 * capacities of the group); isend matches its tag in the oldest group that still misses sends and
 * queues header and payload. There is no thread: every call on a comm moves its socket a bounded
 * amount. One comm is one direction, locked by its own mutex, because NCCL calls regMr from one
 * thread and test from another.
 */
#ifndef REF_PLUGIN_H
#define REF_PLUGIN_H

#include "nccl_ha/nccl_net.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define REF_MAX_RECVS	 8
#define REF_MAX_GROUPS	 NCCL_NET_MAX_REQUESTS
#define REF_MAX_REQUESTS (REF_MAX_GROUPS * REF_MAX_RECVS)

/* What the receiver says about one irecv; travels receiver → sender. */
struct ref_grant {
	uint32_t seq;
	uint32_t n;
	int32_t tags[REF_MAX_RECVS];
	uint64_t capacity[REF_MAX_RECVS];
};

/* What precedes each payload; travels sender → receiver. */
struct ref_header {
	uint32_t seq;
	uint32_t index; /* in the group */
	uint64_t size;
};

struct ref_mr {
	struct ref_mr *next;
	char *data;
	size_t size;
	int fd; /* of a dmabuf; NCCL closes it: only a broken plugin looks at it again */
	ino_t inode;
};

struct ref_request {
	struct ref_comm *comm;
	bool used;
	uint32_t seq;
	int n;		/* buffers of a receive; 1 for a send */
	int unfinished; /* buffers whose data has not moved yet */
	char *data[REF_MAX_RECVS];
	size_t capacity[REF_MAX_RECVS]; /* receive only */
	size_t size[REF_MAX_RECVS];
	struct ref_header header;      /* send only */
	struct ref_request *next_send; /* send only: transmit queue */
};

/* One direction of a connection. All fields are protected by the lock. */
struct ref_comm {
	pthread_mutex_t lock;
	int fd;
	bool is_sender;
	bool eof;	    /* the peer has closed its end */
	ncclResult_t error; /* the first error; every later call returns it */
	bool gave_error;    /* it has been returned once */
	bool met;	    /* only of the plugin that accepts late: isend has been called */
	pthread_t owner;    /* who made it */
	struct ref_mr *mrs;
	struct ref_request requests[REF_MAX_REQUESTS];

	/* sender */
	struct ref_grant groups[REF_MAX_GROUPS]; /* ring of announced receives */
	uint32_t group_matched[REF_MAX_GROUPS];	 /* bit i: buffer i has its send */
	uint32_t group_head, group_tail;
	size_t grant_got; /* bytes of groups[tail] read so far */
	struct ref_request *send_head, *send_tail;
	uint64_t sent; /* bytes of the head's header and payload written so far */

	/* receiver: the request of sequence number s is requests[s % REF_MAX_GROUPS] */
	uint32_t next_seq;
	char grant_out[REF_MAX_GROUPS * sizeof(struct ref_grant)];
	size_t grant_out_len;
	struct ref_header header;
	size_t header_got;
	size_t payload_got;
};

/* What NCCL carries from listener to connector. `pending` is the connector's own: the state of a
 * half-open connect lives in the handle, because connect is called until it succeeds. */
struct ref_handle {
	uint32_t magic;
	uint16_t port;
	uint16_t version;
	uint64_t cookie;
	struct ref_pending *pending;
};
_Static_assert(sizeof(struct ref_handle) <= NCCL_NET_HANDLE_MAXSIZE, "handle too large");

/* ref_connect.c */
ncclResult_t ref_listen(int dev, void *opaque, void **listen_comm);
ncclResult_t ref_connect(int dev, void *opaque, void **send_comm);
ncclResult_t ref_accept(void *listen_comm, void **recv_comm);
ncclResult_t ref_close_listen(void *listen_comm);

/* ref_comm.c */
struct ref_comm *ref_comm_new(int fd, bool is_sender);
ncclResult_t ref_close(void *opaque);
ncclResult_t ref_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t ref_dereg_mr(void *comm, void *mhandle);
/* Does this registration of the comm cover the range? With the lock held. */
bool ref_covered(const struct ref_comm *c, const void *mhandle, const void *data, size_t size);

/* ref_data.c */
ncclResult_t ref_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
ncclResult_t ref_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags,
		       void **mhandles, void **request);
ncclResult_t ref_iflush(void *comm, int n, void **data, int *sizes, void **mhandles,
			void **request);
ncclResult_t ref_test(void *request, int *done, int *sizes);

/* ref_device.c */
ncclResult_t ref_device_init(void);
int ref_device_count(void);
void ref_device_forget(void); /* only a broken plugin calls this */
/* Fills what every version's properties have in common. */
ncclResult_t ref_device_properties(int dev, ncclNetProperties_v8_t *props);

#endif
