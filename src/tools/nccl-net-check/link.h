/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections, buffers and transfers as NCCL makes them, for rules that are about something else.
 * Everything here gives the plugin the benefit of the doubt: output arguments are cleared before
 * each call, handles lie in room to spare, sizes are only asked for. A defect shows in the rule
 * that is about it and nowhere else.
 */
#ifndef CHECK_LINK_H
#define CHECK_LINK_H

#include "check.h"

/* A handle with room behind it for a plugin that writes too much. */
struct link_handle {
	_Alignas(16) char bytes[NCCL_NET_HANDLE_MAXSIZE];
	char slack[896];
};

/* Both ends, in one process. */
struct link {
	void *send;
	void *recv;
};

/* RULE_PAIR: the sender gets a send comm, the receiver a receive comm. */
void *link_open_pair(struct check *t, int dev);
/* The same in the other direction: rank 1 sends. */
void *link_open_back(struct check *t, int dev);
/* RULE_LOCAL. */
void link_open_local(struct check *t, int dev, struct link *link);
void link_close_local(struct check *t, struct link *link);
/* Drives connect and accept of one connection until both ends are there. */
void link_join(struct check *t, int dev, void *listen_comm, struct link_handle *handle,
	       struct link *link);
/* The same with something done between connect and accept, each time. */
void link_join_among(struct check *t, int dev, void *listen_comm, struct link_handle *handle,
		     struct link *link, void (*others)(void *arg), void *arg);
void *link_listen(struct check *t, int dev, struct link_handle *handle);

/* Page-aligned memory with an inaccessible page behind it, registered with one comm. */
struct buffer {
	char *data;
	size_t size;
	void *mhandle;
};

char *memory_alloc(struct check *t, size_t size);
void memory_free(char *data, size_t size);
void buffer_open(struct check *t, struct buffer *b, void *comm, size_t size);
void buffer_close(struct check *t, struct buffer *b, void *comm);

/* Content that depends on the position and the seed. */
void pattern_fill(char *data, size_t size, uint64_t seed);
/* Offset of the first wrong byte, or `size`. */
size_t pattern_mismatch(const char *data, size_t size, uint64_t seed);
void pattern_check(struct check *t, const char *data, size_t size, uint64_t seed, const char *what);

/* Call again and again until accepted, where the other end is called by somebody else. */
void *post_send(struct check *t, void *comm, void *data, size_t size, int tag, void *mhandle);
void *post_recv(struct check *t, void *comm, void *data, size_t size, int tag, void *mhandle);
void *post_group(struct check *t, void *comm, int n, void **data, size_t *sizes, int *tags,
		 void **mhandles);

/*
 * A connection both of whose ends are in use, after which a receive alone may be posted: some
 * plugins accept none before the sender first calls isend. In two processes both call it, each with
 * its comm.
 */
void link_begin(struct check *t, void *comm, bool sends);

/* One message of a local link. Memory is the caller's, and registered. */
struct message {
	void *out, *out_mr; /* to be sent */
	void *in, *in_mr;   /* where it goes */
	size_t size;
	int tag;
};

/*
 * Posts both ends of it, as two proxies would that know nothing of each other: which is accepted
 * first is the plugin's matter. *send is NULL if the send was done before the receive was accepted.
 */
void post_message(struct check *t, const struct link *link, const struct message *m, void **send,
		  void **recv);
/* The same until it has arrived; `what` is said if it does not. */
void link_transfer(struct check *t, const struct link *link, const struct message *m,
		   const char *what);

/* Tests until done; sizes[NP_MAX_RECVS] or NULL. */
void await_done(struct check *t, void *request, int *sizes, const char *what);
/* The same for two requests whose ends are both in this process; NULL: that one is done. */
void await_both(struct check *t, void *request_a, void *request_b, const char *what);
/* Tests once, with room for the sizes of any group. */
bool test_once(struct check *t, void *request, int *sizes);

/* One message of `size` bytes with its content checked; local link. */
void link_exchange(struct check *t, struct link *link, size_t size, uint64_t seed);

#endif
