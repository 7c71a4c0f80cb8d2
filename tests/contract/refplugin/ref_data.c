/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path: grants from receiver to sender, headers and payload from sender
 * to receiver, over one non-blocking socket.
 */
#include "ref.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* One call moves at most this many pieces of at most this many bytes, so test stays short. */
#define MAX_MOVES  16
#define MOVE_BYTES ((size_t)256 << 10)

/* ---- sender ------------------------------------------------------------------------------- */

static ncclResult_t read_grants(struct ref_comm *c)
{
	while (c->group_tail - c->group_head < REF_MAX_GROUPS) {
		struct ref_grant *g = &c->groups[c->group_tail % REF_MAX_GROUPS];
		ssize_t n = recv(c->fd, (char *)g + c->grant_got, sizeof(*g) - c->grant_got, 0);
		if (n < 0)
			return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
		if (n == 0) {
			c->eof = true;
			return ncclSuccess;
		}
		c->grant_got += (size_t)n;
		if (c->grant_got < sizeof(*g))
			continue;
		c->grant_got = 0;
		if (g->n < 1 || g->n > REF_MAX_RECVS)
			return ncclInternalError;
		c->group_matched[c->group_tail % REF_MAX_GROUPS] = 0;
		c->group_tail++;
	}
	return ncclSuccess;
}

static ncclResult_t transmit(struct ref_comm *c)
{
	for (int move = 0; move < MAX_MOVES && c->send_head; move++) {
		struct ref_request *r = c->send_head;
		uint64_t header_size = sizeof(r->header);
		char *header = (char *)&r->header;
#ifdef REF_BREAK_PROXIES
		static struct ref_header scratch; /* one for all connections */
		scratch = r->header;
		usleep(50);
		header = (char *)&scratch;
#endif
		struct iovec iov[2];
		struct msghdr msg = {.msg_iov = iov};
		if (c->sent < header_size)
			iov[msg.msg_iovlen++] =
			    (struct iovec){header + c->sent, header_size - c->sent};
		uint64_t at = c->sent > header_size ? c->sent - header_size : 0;
		uint64_t left = r->header.size - at;
		iov[msg.msg_iovlen++] =
		    (struct iovec){r->data[0] + at, left < MOVE_BYTES ? left : MOVE_BYTES};
		ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
		c->sent += (uint64_t)n;
#ifdef REF_BREAK_SEND_DONE
		if (r->header.size > (size_t)8 << 20)
			r->unfinished = 0; /* begun is as good as done */
#endif
		if (c->sent == header_size + r->header.size) {
			c->send_head = r->next_send;
			c->sent = 0;
			r->unfinished = 0;
		}
	}
	return ncclSuccess;
}

/* ---- receiver ----------------------------------------------------------------------------- */

static ncclResult_t write_grants(struct ref_comm *c)
{
	if (c->grant_out_len == 0)
		return ncclSuccess;
	ssize_t n = send(c->fd, c->grant_out, c->grant_out_len, MSG_NOSIGNAL);
	/* A sender that has closed may have sent everything before: reading finds out. */
	if (n < 0)
		return ncclSuccess;
	c->grant_out_len -= (size_t)n;
	memmove(c->grant_out, c->grant_out + n, c->grant_out_len);
	return ncclSuccess;
}

static ncclResult_t check_header(struct ref_comm *c)
{
	const struct ref_header *h = &c->header;
	const struct ref_request *r = &c->requests[h->seq % REF_MAX_GROUPS];

	if (!r->used || r->seq != h->seq || h->index >= (uint32_t)r->n)
		return ncclInternalError;
#ifndef REF_BREAK_CAPACITY
	if (h->size > r->capacity[h->index])
		return ncclInvalidUsage;
#endif
	return ncclSuccess;
}

static void finish_message(struct ref_comm *c)
{
	struct ref_request *r = &c->requests[c->header.seq % REF_MAX_GROUPS];

	r->size[c->header.index] = c->header.size;
#ifdef REF_BREAK_SIZES
	if (r->n == 1 && c->header.size > 0)
		r->size[0] = r->capacity[0];
#endif
#ifdef REF_BREAK_SIZES_GROUP
	for (int i = 1; i < r->n; i++) {
		r->size[0] += r->size[i];
		r->size[i] = 0;
	}
#endif
#ifdef REF_BREAK_DATA
	if (c->header.size > 1 << 20 && c->header.size % 2)
		r->data[c->header.index][c->header.size - 1] = 0; /* loses an odd tail */
#endif
	r->unfinished--;
	c->header_got = 0;
	c->payload_got = 0;
}

static ncclResult_t receive(struct ref_comm *c)
{
	for (int move = 0; move < MAX_MOVES && !c->eof; move++) {
		struct ref_header *h = &c->header;
		struct ref_request *r = &c->requests[h->seq % REF_MAX_GROUPS];
		bool in_header = c->header_got < sizeof(*h);
		char *to =
		    in_header ? (char *)h + c->header_got : r->data[h->index] + c->payload_got;
		size_t want = in_header ? sizeof(*h) - c->header_got : h->size - c->payload_got;
		ssize_t n = recv(c->fd, to, want < MOVE_BYTES ? want : MOVE_BYTES, 0);
		if (n < 0)
			return errno == EAGAIN ? ncclSuccess : ncclRemoteError;
		if (n == 0) {
			c->eof = true;
			return ncclSuccess;
		}
		if (in_header) {
			c->header_got += (size_t)n;
			if (c->header_got < sizeof(*h))
				continue;
			ncclResult_t result = check_header(c);
			if (result != ncclSuccess)
				return result;
		} else {
			c->payload_got += (size_t)n;
		}
		if (c->payload_got == h->size)
			finish_message(c);
	}
	return ncclSuccess;
}

/* ---- requests ----------------------------------------------------------------------------- */

/* Moves the socket and latches what went wrong. Called with the lock held. */
static ncclResult_t progress(struct ref_comm *c)
{
	ncclResult_t in, out;

	if (c->error != ncclSuccess)
		return c->error;
	out = c->is_sender ? transmit(c) : write_grants(c);
	in = c->is_sender ? read_grants(c) : receive(c);
	c->error = out != ncclSuccess ? out : in;
	return c->error;
}

static ncclResult_t latch(struct ref_comm *c, ncclResult_t error)
{
	if (c->error == ncclSuccess)
		c->error = error;
	return c->error;
}

/* What isend, irecv and test return: every error, each time. */
static ncclResult_t report(struct ref_comm *c, ncclResult_t result)
{
#ifdef REF_BREAK_ERROR_LATCHED
	if (result != ncclSuccess && c->gave_error)
		return ncclSuccess; /* has been said already */
#endif
	c->gave_error |= result != ncclSuccess;
	return result;
}

#ifdef REF_ACCEPTS_LATE
/* A connection that is made for good when the sender first has something to send: a byte before all
 * headers says so. */
static ncclResult_t meet(struct ref_comm *c)
{
	char hello = '!';
	ssize_t n = c->met	   ? 1
		    : c->is_sender ? send(c->fd, &hello, 1, MSG_NOSIGNAL)
				   : recv(c->fd, &hello, 1, 0);

	c->met = n == 1;
	return n == 1 || (n < 0 && errno == EAGAIN) ? ncclSuccess : ncclRemoteError;
}
#endif

static struct ref_request *free_request(struct ref_comm *c)
{
	for (int i = 0; i < REF_MAX_REQUESTS; i++)
		if (!c->requests[i].used)
			return &c->requests[i];
	return NULL;
}

/* Where a send goes: buffer `index` of group number `group`. */
struct place {
	uint32_t group;
	int index;
};

static bool find_tag(const struct ref_comm *c, uint32_t group, int tag, struct place *place)
{
	const struct ref_grant *g = &c->groups[group % REF_MAX_GROUPS];
	uint32_t matched = c->group_matched[group % REF_MAX_GROUPS];

	for (uint32_t i = 0; i < g->n; i++) {
		if (!(matched & 1u << i) && g->tags[i] == tag) {
			*place = (struct place){group, (int)i};
#ifdef REF_BREAK_TAGS
			place->index = __builtin_ctz(~matched); /* in order of arrival */
#endif
			return true;
		}
	}
	return false;
}

/* The receive that waits for this tag: only the oldest incomplete group is looked at. */
static bool match_tag(const struct ref_comm *c, int tag, struct place *place)
{
#ifdef REF_BREAK_FIFO
	for (uint32_t group = c->group_tail; group-- != c->group_head;)
		if (find_tag(c, group, tag, place))
			return true;
	return false;
#endif
	return c->group_head != c->group_tail && find_tag(c, c->group_head, tag, place);
}

static void queue_send(struct ref_comm *c, struct ref_request *r, void *data, size_t size,
		       struct place place)
{
	const struct ref_grant *g = &c->groups[place.group % REF_MAX_GROUPS];

	*r = (struct ref_request){.comm = c, .used = true, .n = 1, .unfinished = 1};
	r->header = (struct ref_header){
	    .seq = g->seq, .index = (uint32_t)place.index, .size = (uint64_t)size};
	r->data[0] = data;
	r->size[0] = size;
	c->group_matched[place.group % REF_MAX_GROUPS] |= 1u << place.index;
	while (c->group_head != c->group_tail &&
	       c->group_matched[c->group_head % REF_MAX_GROUPS] ==
		   (1u << c->groups[c->group_head % REF_MAX_GROUPS].n) - 1)
		c->group_head++;
#ifdef REF_BREAK_SIZE_ZERO
	if (size == 0 && g->n == 1) {
		r->unfinished = 0; /* nothing to send, so nothing is sent */
		return;
	}
#endif
	if (c->send_head)
		c->send_tail->next_send = r;
	else
		c->send_head = r;
	c->send_tail = r;
}

static ncclResult_t isend_locked(struct ref_comm *c, void *data, size_t size, int tag,
				 void *mhandle, void **request)
{
	ncclResult_t result = progress(c);
	if (result != ncclSuccess)
		return result;
#ifdef REF_ACCEPTS_LATE
	result = meet(c);
	if (result != ncclSuccess || !c->met)
		return latch(c, result);
#endif
#ifdef REF_BREAK_TWO_THREADS
	if (!pthread_equal(c->owner, pthread_self()))
		return ncclSuccess;
#endif
#ifdef REF_BREAK_SIZE_2G
	size = (size_t)(int)size;
#endif
	struct ref_request *r = free_request(c);
	struct place place;
	bool matched = match_tag(c, tag, &place);
#ifdef REF_BREAK_GROUP_INTERLEAVE
	if (!matched && c->group_head != c->group_tail)
		return latch(c, ncclInvalidUsage); /* this tag is not expected now */
#endif
	if (!matched && c->eof)
		return latch(c, ncclRemoteError);
	if (!matched || !r)
		return ncclSuccess;
	if (!ref_covered(c, mhandle, data, size))
		return latch(c, ncclInvalidArgument);
#ifndef REF_BREAK_CAPACITY
	if (size > c->groups[place.group % REF_MAX_GROUPS].capacity[place.index])
		return latch(c, ncclInvalidUsage);
#endif
	queue_send(c, r, data, size, place);
	*request = r;
	return progress(c);
}

ncclResult_t ref_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct ref_comm *c = comm;

#ifndef REF_BREAK_REQUEST_WRITTEN
	*request = NULL;
#endif
	pthread_mutex_lock(&c->lock);
	ncclResult_t result = report(c, isend_locked(c, data, size, tag, mhandle, request));
	pthread_mutex_unlock(&c->lock);
	return result;
}

static ncclResult_t irecv_locked(struct ref_comm *c, int n, void **data, const size_t *sizes,
				 const int *tags, void **mhandles, void **request)
{
#ifdef REF_ACCEPTS_LATE
	ncclResult_t met = meet(c);
	if (met != ncclSuccess || !c->met)
		return latch(c, met);
#endif
	ncclResult_t result = progress(c);
	if (result != ncclSuccess)
		return result;
	struct ref_request *r = &c->requests[c->next_seq % REF_MAX_GROUPS];
#ifdef REF_BREAK_OUTSTANDING
	if (c->requests[(c->next_seq - 16) % REF_MAX_GROUPS].used)
		return ncclSuccess;
#endif
	if (r->used || c->grant_out_len + sizeof(struct ref_grant) > sizeof(c->grant_out))
		return ncclSuccess;

	struct ref_grant grant = {.seq = c->next_seq, .n = (uint32_t)n};
	*r = (struct ref_request){
	    .comm = c, .used = true, .seq = c->next_seq, .n = n, .unfinished = n};
	for (int i = 0; i < n; i++) {
		if (!ref_covered(c, mhandles[i], data[i], sizes[i])) {
			r->used = false;
			return latch(c, ncclInvalidArgument);
		}
		r->data[i] = data[i];
		r->capacity[i] = grant.capacity[i] = sizes[i];
		grant.tags[i] = tags[i];
	}
#ifdef REF_BREAK_RECYCLE
	if (c->next_seq >= 4 * REF_MAX_GROUPS)
		r->unfinished = 0; /* finds the completion of an earlier incarnation */
#endif
	memcpy(c->grant_out + c->grant_out_len, &grant, sizeof(grant));
	c->grant_out_len += sizeof(grant);
	c->next_seq++;
	*request = r;
	return progress(c);
}

ncclResult_t ref_irecv(void *comm, int n, void **data, const size_t *sizes, const int *tags,
		       void **mhandles, void **request)
{
	struct ref_comm *c = comm;

#ifdef REF_BREAK_OPTIONAL_RECV
	if (*request == (void *)(uintptr_t)NCCL_NET_OPTIONAL_RECV_COMPLETION)
		return ncclSuccess; /* nobody will ask for it, it seems */
#endif
	*request = NULL;
	if (n < 1 || n > REF_MAX_RECVS)
		return ncclInvalidArgument;
	pthread_mutex_lock(&c->lock);
	ncclResult_t result = report(c, irecv_locked(c, n, data, sizes, tags, mhandles, request));
	pthread_mutex_unlock(&c->lock);
	return result;
}

ncclResult_t ref_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	struct ref_comm *c = comm;

	(void)n, (void)data, (void)sizes, (void)mhandles, (void)request;
#ifndef REF_FLUSHES_NOTHING
	*request = NULL; /* host memory: what recv copied is visible already */
#endif
	pthread_mutex_lock(&c->lock);
	ncclResult_t result = c->error;
#ifdef REF_BREAK_IFLUSH
	/* waits for a message that nobody sends */
	*request = free_request(c);
	if (*request)
		*(struct ref_request *)*request =
		    (struct ref_request){.comm = c, .used = true, .n = 1, .unfinished = 1};
#endif
	pthread_mutex_unlock(&c->lock);
	return result;
}

static ncclResult_t test_locked(struct ref_request *r, int *done, int *sizes)
{
	struct ref_comm *c = r->comm;
	ncclResult_t result = progress(c);

#ifdef REF_BREAK_TEST_RETURNS_NEVER
	while (r->unfinished > 0)
		sched_yield();
#endif
#ifdef REF_BREAK_TEST_RETURNS
	if (r->unfinished > 0 && !c->is_sender && result == ncclSuccess) {
		poll(&(struct pollfd){.fd = c->fd, .events = POLLIN}, 1, 700);
		result = progress(c);
	}
#endif
	if (result != ncclSuccess)
		return result;
	if (r->unfinished > 0)
		return c->eof && !c->is_sender ? latch(c, ncclRemoteError) : ncclSuccess;
#if defined(REF_BREAK_SIZES_NULL)
	for (int i = 0; i < r->n; i++)
		sizes[i] = (int)r->size[i];
#elif defined(REF_BREAK_SIZES_EXACT)
	for (int i = 0; sizes && i < REF_MAX_RECVS; i++)
		sizes[i] = (int)r->size[i];
#else
	for (int i = 0; sizes && i < r->n; i++)
		sizes[i] = (int)r->size[i];
#endif
	r->used = false;
	*done = 1;
	return ncclSuccess;
}

ncclResult_t ref_test(void *request, int *done, int *sizes)
{
	struct ref_request *r = request;
	struct ref_comm *c = r->comm;

	*done = 0;
	pthread_mutex_lock(&c->lock);
	ncclResult_t result = report(c, test_locked(r, done, sizes));
	pthread_mutex_unlock(&c->lock);
	return result;
}
