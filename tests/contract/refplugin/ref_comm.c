/* SPDX-License-Identifier: Apache-2.0 */
/* A comm's beginning and end, and the memory registered with it. */
#include "ref.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef REF_BREAK_MANY_CONNECTIONS
static int open_comms;
#endif
#ifdef REF_FILLS_A_POOL_LATE
/* Full in the second half of the 200 cycles in which rule leaks compares memory. */
#define REF_POOL_SIZE 180
static void *volatile pool[REF_POOL_SIZE];
static int pooled;
#endif

struct ref_comm *ref_comm_new(int fd, bool is_sender)
{
#ifdef REF_BREAK_MANY_CONNECTIONS
	if (__atomic_add_fetch(&open_comms, 1, __ATOMIC_RELAXED) > 12)
		return NULL;
#endif
	struct ref_comm *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
#ifdef REF_BREAK_LEAKS_FD
	(void)!dup(fd);
#endif
	c->owner = pthread_self();
	pthread_mutex_init(&c->lock, NULL);
	c->fd = fd;
	c->is_sender = is_sender;
	return c;
}

ncclResult_t ref_close(void *opaque)
{
	struct ref_comm *c = opaque;

#ifdef REF_BREAK_MANY_CONNECTIONS
	__atomic_sub_fetch(&open_comms, 1, __ATOMIC_RELAXED);
#endif
#ifdef REF_DEMANDS_DEREGISTRATION
	if (c->mrs)
		return ncclInternalError;
#endif
#ifdef REF_BREAK_CLOSE_IN_FLIGHT
	for (int i = 0; !c->is_sender && i < REF_MAX_REQUESTS; i++)
		if (c->requests[i].used && c->error == ncclSuccess && !c->eof)
			return ncclInternalError;
#endif
#ifdef REF_BREAK_CLOSE_AFTER_DEATH
	if (c->error != ncclSuccess)
		return c->error;
#endif
#ifdef REF_BREAK_CLOSE_AFTER_SEND
	/* frees the port at once, and throws away what the kernel still had to send */
	setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
#else
	char rest[4096];
	/* Closing a socket with unread input resets it, and the peer may still be reading. */
	shutdown(c->fd, SHUT_WR);
	for (int i = 0; i < 64 && recv(c->fd, rest, sizeof(rest), MSG_DONTWAIT) > 0; i++)
		;
#endif
	close(c->fd);
	while (c->mrs) {
		struct ref_mr *mr = c->mrs;
		c->mrs = mr->next;
		free(mr);
	}
	pthread_mutex_destroy(&c->lock);
#ifdef REF_FILLS_A_POOL_LATE
	if (pooled < REF_POOL_SIZE)
		pool[pooled++] = malloc(256);
#endif
#ifndef REF_BREAK_LEAKS_MEMORY
	free(c);
#endif
	return ncclSuccess;
}

/* ---- registration ------------------------------------------------------------------------- */

ncclResult_t ref_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct ref_comm *c = comm;

	if (type != NCCL_PTR_HOST)
		return ncclInvalidArgument;
#ifdef REF_BREAK_MR_USE
	for (struct ref_mr *known = c->mrs; known; known = known->next)
		if (known->data == data && known->size == size)
			return ncclInvalidArgument;
#endif
	struct ref_mr *mr = malloc(sizeof(*mr));
	if (!mr)
		return ncclSystemError;
	*mr = (struct ref_mr){.data = data, .size = size};
#ifdef REF_BREAK_MR_RACE
	struct ref_mr *rest = c->mrs;
	c->mrs = mr; /* whoever looks now misses the others */
	sched_yield();
	mr->next = rest;
#else
	pthread_mutex_lock(&c->lock);
	mr->next = c->mrs;
	c->mrs = mr;
	pthread_mutex_unlock(&c->lock);
#endif
	*mhandle = mr;
	return ncclSuccess;
}

ncclResult_t ref_dereg_mr(void *comm, void *mhandle)
{
	struct ref_comm *c = comm;
	struct ref_mr *mr = mhandle;

	pthread_mutex_lock(&c->lock);
	for (struct ref_mr **p = &c->mrs; *p; p = &(*p)->next) {
		if (*p == mr) {
			*p = mr->next;
			free(mr);
			break;
		}
	}
#ifdef REF_BREAK_DEREG_AFTER_ERROR
	ncclResult_t error = c->error;
	pthread_mutex_unlock(&c->lock);
	return error;
#endif
	pthread_mutex_unlock(&c->lock);
	return ncclSuccess;
}

bool ref_covered(const struct ref_comm *c, const void *mhandle, const void *data, size_t size)
{
	if (size == 0)
		return true;
#ifdef REF_BREAK_DMABUF_FD
	struct stat st;
	const struct ref_mr *wanted = mhandle;
	if (wanted->inode && (fstat(wanted->fd, &st) != 0 || st.st_ino != wanted->inode))
		return false;
#endif
	for (const struct ref_mr *mr = c->mrs; mr; mr = mr->next)
		if (mr == mhandle)
			return (const char *)data >= mr->data && size <= mr->size &&
			       (size_t)((const char *)data - mr->data) <= mr->size - size;
	return false;
}
