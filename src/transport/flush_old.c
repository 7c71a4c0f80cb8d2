/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of a path that is left: its queue pair to itself, in whose completion queue nothing
 * else comes once the path is fenced. All else of the path waits, to be closed with it.
 *
 * Data of a receive that was posted before the path was left may have come over it, wholly or in
 * part. Which, nobody has counted, so the flush of any receive reads through all NICs that are
 * kept, besides the active one's. A NIC is kept for HA_FLUSH_LATE_NS, in which whoever has been
 * told of a receive asks for its flush. Of those that nobody was told of by then the application
 * may ask for a flush at any time, or never: reads of ours push their data to memory ahead of that,
 * and with that the NIC has nothing left that a later flush would wait for. So neither an
 * application that stands still nor a sender that has nothing to send keeps a NIC.
 */
#include "transport/flush_old.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/fence.h"
#include "transport/flush.h"
#include "transport/flush_beside.h"
#include "transport/recv.h"

#include "base/clock.h"
#include "base/log.h"
#include "memory/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* NCCL asks for a flush in the round in which it hears of the receive. */
#define HA_FLUSH_LATE_NS (1 * HA_NS_PER_S)
/* A read inside a device that is well takes microseconds. */
#define HA_FLUSH_OVERDUE_NS (50 * HA_NS_PER_MS)
/* A queue pair that could not be destroyed is tried again so often. */
#define AGAIN_NS HA_NS_PER_MS

/* As many as ha_request.waits has bits for. The last free place is not waited for: the oldest one's
 * time is over then. */
#define MAX_OLD 6

enum old_state {
	OLD_FREE,
	OLD_LEFT,    /* traffic has not gone on yet */
	OLD_KEPT,    /* for those who ask for their flushes */
	OLD_PUSHING, /* for those who may ask later: reads of ours */
	OLD_ENDING,  /* nothing is read through it any more; its queue pair is destroyed */
};

struct old_nic {
	uint8_t state; /* enum old_state */
	uint32_t done; /* reads that were back when it was looked at last */
	struct ha_path *path;
	uint64_t end_seq; /* receives before it may have data of it */
	uint64_t
	    moved_ns; /* KEPT: when a read came back, or none was under way; ENDING: last try */
	uint64_t until_ns;	    /* KEPT: as long, and no request waits for it */
	uint64_t push_seq;	    /* PUSHING: the next receive to look at, */
	const struct ha_mr *pushed; /* and what the last read was of */
};

struct ha_flush_old {
	struct old_nic nics[MAX_OLD];
};

/* ---- which ones ------------------------------------------------------------------------------ */

static int place_of(const struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_flush_old *old = comm->recv->old;

	for (int i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state != OLD_FREE && old->nics[i].path == path)
			return i;
	return -1;
}

static bool is_reading(const struct ha_path *path)
{
	return path->flush.qp && path->flush.posted != path->flush.done;
}

static struct ha_request *request(const struct ha_comm *comm, unsigned i)
{
	return &comm->recv->flush_pool.all[i];
}

/* What the requests that are under way wait for. */
static bool is_waited_for(const struct ha_comm *comm, unsigned place)
{
	for (unsigned i = 0; i < comm->recv->flush_pool.count; i++)
		if (request(comm, i)->posted == HA_FLUSH_SPREAD &&
		    request(comm, i)->waits & 1u << place)
			return true;
	return false;
}

/* GPU memory of a receive that the application was not told of; NULL: none, or it was. One read
 * orders the writes to all buffers of a receive. */
static const struct ha_mr *unreported(const struct ha_comm *comm, uint64_t seq)
{
	const struct ha_recv_slot *slot = &comm->recv->slots[seq & comm->slot_mask];

	if (slot->seq != seq || !slot->req ||
	    atomic_load_explicit(&slot->req->state, memory_order_acquire) == HA_REQ_FREE)
		return NULL;
	for (int i = slot->n - 1; i >= 0; i--)
		if (slot->mrs[i] && !ha_mr_is_host(slot->mrs[i]))
			return slot->mrs[i];
	return NULL;
}

/* ---- the end of one -------------------------------------------------------------------------- */

/* A read that a request waited for is the active path's to do. */
static void read_active_instead(struct ha_request *req, unsigned bit)
{
	req->waits &= (uint16_t)~bit;
	if (!(req->waits & HA_FLUSH_WAIT_ACTIVE))
		req->waits |= HA_FLUSH_WANT_ACTIVE;
}

static void hand_over(struct ha_comm *comm, unsigned bit)
{
	for (unsigned i = 0; i < comm->recv->flush_pool.count; i++)
		if (request(comm, i)->posted == HA_FLUSH_SPREAD && request(comm, i)->waits & bit)
			read_active_instead(request(comm, i), bit);
}

static void destroy_qp(struct ha_command *command)
{
	ha_path_destroy_flush(ha_container_of(command, struct ha_path, command));
}

static void let_go(struct ha_comm *comm, unsigned place)
{
	struct old_nic *nic = &comm->recv->old->nics[place];

	if (nic->state == OLD_ENDING)
		return;
	hand_over(comm, 1u << place);
	nic->state = OLD_ENDING;
	nic->moved_ns = 0;
}

static void go_on_ending(struct old_nic *nic, uint64_t now_ns)
{
	struct ha_path *path = nic->path;

	if (ha_path_away(path) || atomic_load(&path->state) != HA_PATH_FENCED)
		return;
	if (!path->flush.qp) {
		path->flush.kept = false;
		*nic = (struct old_nic){0};
	} else if (nic->moved_ns == 0 || now_ns >= nic->moved_ns + AGAIN_NS) {
		nic->moved_ns = now_ns;
		ha_path_command(path, destroy_qp, HA_COMMAND_CLEAN);
	}
}

/* ---- keeping --------------------------------------------------------------------------------- */

static struct old_nic *find_room(struct ha_comm *comm)
{
	struct ha_recv_side *r = comm->recv;

	if (!r->old)
		r->old = calloc(1, sizeof(*r->old));
	if (r->old)
		r->flush_through |= HA_FLUSH_THROUGH_OLD;
	for (unsigned i = 0; r->old && i < MAX_OLD; i++)
		if (r->old->nics[i].state == OLD_FREE)
			return &r->old->nics[i];
	return NULL;
}

/* What requests wait for that is read through this path: bits. */
static unsigned reads_of(const struct ha_comm *comm, const struct ha_path *path)
{
	const unsigned beside = (unsigned)HA_FLUSH_WAIT_BESIDE << path->index;

	return path == ha_comm_path(comm) ? beside | HA_FLUSH_WAIT_ACTIVE : beside;
}

/* Those that wait for one read alone wait for several, if need be. */
static void spread_posted(struct ha_comm *comm)
{
	for (unsigned i = 0; i < comm->recv->flush_pool.count; i++)
		if (request(comm, i)->posted == HA_FLUSH_POSTED) {
			request(comm, i)->posted = HA_FLUSH_SPREAD;
			request(comm, i)->waits = HA_FLUSH_WAIT_ACTIVE;
		}
}

/* The reads that are under way through it are its own from now on. */
static void take_over_reads(struct ha_comm *comm, const struct ha_path *path, unsigned place)
{
	const unsigned reads = reads_of(comm, path);

	if (path == ha_comm_path(comm))
		spread_posted(comm);
	for (unsigned i = 0; i < comm->recv->flush_pool.count; i++) {
		struct ha_request *req = request(comm, i);

		if (req->posted == HA_FLUSH_SPREAD && req->waits & reads)
			req->waits = (uint16_t)((req->waits & ~reads) | 1u << place);
	}
}

/* One queue pair of a device reads for all. */
static void replace_older(struct ha_comm *comm, const struct ha_path *path)
{
	struct ha_flush_old *old = comm->recv->old;

	for (unsigned i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state == OLD_KEPT && old->nics[i].path->on == path->on &&
		    !is_waited_for(comm, i))
			let_go(comm, i);
}

/* Before there is none left: reads of ours are done sooner than the next switch. */
static void leave_room(struct ha_flush_old *old)
{
	struct old_nic *oldest = NULL;

	for (unsigned i = 0; i < MAX_OLD; i++) {
		struct old_nic *nic = &old->nics[i];

		if (nic->state == OLD_FREE)
			return;
		if (nic->state == OLD_KEPT && (!oldest || nic->until_ns < oldest->until_ns))
			oldest = nic;
	}
	if (oldest)
		oldest->until_ns = 0;
}

/* Whether some receive in GPU memory has not been reported. */
static bool some_unreported(const struct ha_comm *comm)
{
	uint64_t end_seq = comm->recv->next_seq;
	uint64_t seq = end_seq > HA_WINDOW ? end_seq - HA_WINDOW : 0;

	for (; seq < end_seq; seq++)
		if (unreported(comm, seq))
			return true;
	return false;
}

/* As many NICs as there are places do not let go of their queue pairs, and yet another was left. */
static void no_room(struct ha_comm *comm, const struct ha_path *path)
{
	if (comm->recv->flushes != 0 || some_unreported(comm))
		ha_comm_fail(comm, HA_ERR_SYSTEM,
			     "what came through %s cannot be flushed through it: the queue pairs "
			     "of %d NICs that were left before are not destroyed yet",
			     path->nic->name, MAX_OLD);
}

static bool may_keep(const struct ha_comm *comm, const struct ha_path *path)
{
	return !comm->recv->old_ends && path->flush.qp && !ha_path_device_died(path) &&
	       ha_comm_error(comm) == HA_OK && atomic_load(&path->state) < HA_PATH_FENCING &&
	       !ha_path_away(path) && !atomic_load(&comm->peer_bye);
}

void ha_flush_old_keep(struct ha_comm *comm, struct ha_path *path)
{
	struct old_nic *nic;
	bool beside;

	if (!comm->recv || path->flush.kept)
		return;
	beside = ha_flush_beside_leave(comm, path);
	if ((!beside && path != ha_comm_path(comm)) || !may_keep(comm, path)) {
		hand_over(comm, (unsigned)HA_FLUSH_WAIT_BESIDE << path->index);
		return;
	}
	replace_older(comm, path);
	nic = find_room(comm);
	if (!nic) {
		no_room(comm, path);
		return;
	}
	*nic = (struct old_nic){.state = OLD_LEFT,
				.path = path,
				.done = path->flush.done,
				.end_seq = UINT64_MAX,
				.moved_ns = ha_now_ns()};
	path->flush.kept = true;
	take_over_reads(comm, path, (unsigned)(nic - comm->recv->old->nics));
	leave_room(comm->recv->old);
}

/* The active path reads through the same device: that one does. */
static bool is_covered(const struct ha_comm *comm, const struct ha_path *path)
{
	const struct ha_path *active = ha_comm_path(comm);

	return active && active != path && active->on == path->on;
}

/* Traffic goes on without it. */
static void begin_to_keep(const struct ha_comm *comm, struct old_nic *nic)
{
	nic->state = OLD_KEPT;
	nic->end_seq = comm->recv->next_seq;
	nic->until_ns = ha_now_ns() + HA_FLUSH_LATE_NS;
}

void ha_flush_old_resume(struct ha_comm *comm)
{
	struct ha_flush_old *old = comm->recv->old;

	for (unsigned i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state == OLD_LEFT)
			begin_to_keep(comm, &old->nics[i]);
	for (unsigned i = 0; i < comm->recv->flush_pool.count; i++)
		if (request(comm, i)->posted == HA_FLUSH_SPREAD &&
		    request(comm, i)->waits & HA_FLUSH_WAIT_ACTIVE)
			request(comm, i)->waits ^= HA_FLUSH_WAIT_ACTIVE | HA_FLUSH_WANT_ACTIVE;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool may_read(const struct ha_path *path)
{
	return !ha_path_away(path) && path->flush.qp &&
	       atomic_load(&path->state) == HA_PATH_FENCED && !ha_path_device_died(path);
}

/* A read of ours may be under way besides all that the application can ask for: in the place of the
 * sentinel, which a queue pair that is kept is not given. */
static bool read_through(struct ha_comm *comm, struct ha_path *path, const struct ha_request *req)
{
	uint64_t keys = ha_mr_keys(req->mr, path->nic_index);

	return keys != 0 && may_read(path) &&
	       path->flush.posted - path->flush.done < HA_FLUSH_DEPTH + 1 &&
	       ha_flush_read(comm, path, req->id, req->addr, keys) == 0;
}

/* Of memory that is not registered there nothing came through it. */
static bool read_own(struct ha_comm *comm, struct old_nic *nic, const struct ha_mr *mr)
{
	uint64_t keys = ha_mr_keys(mr, nic->path->nic_index);

	nic->pushed = mr;
	return keys == 0 ||
	       (may_read(nic->path) &&
		ha_flush_read(comm, nic->path, comm->recv->flush_pool.count, mr->addr, keys) == 0);
}

/* One at a time, and one for receives in a row in the same memory. */
static void push(struct ha_comm *comm, unsigned place)
{
	struct old_nic *nic = &comm->recv->old->nics[place];

	while (!ha_path_away(nic->path) && !is_reading(nic->path)) {
		const struct ha_mr *mr;

		if (nic->push_seq == nic->end_seq) {
			let_go(comm, place);
			return;
		}
		mr = unreported(comm, nic->push_seq++);
		if (mr && mr != nic->pushed && !read_own(comm, nic, mr)) {
			let_go(comm, place);
			return;
		}
	}
}

static void begin_to_push(struct ha_comm *comm, struct old_nic *nic)
{
	nic->state = OLD_PUSHING;
	nic->push_seq = nic->end_seq > HA_WINDOW ? nic->end_seq - HA_WINDOW : 0;
	/* The active path reads through the same device: that one does. */
	if (is_covered(comm, nic->path))
		nic->push_seq = nic->end_seq;
}

bool ha_flush_old_is_left(const struct ha_comm *comm)
{
	const struct ha_flush_old *old = comm->recv->old;

	for (unsigned i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state == OLD_LEFT)
			return true;
	return false;
}

void ha_flush_old_post(struct ha_comm *comm, struct ha_request *req)
{
	struct ha_flush_old *old = comm->recv->old;

	for (unsigned i = 0; old && i < MAX_OLD; i++) {
		struct old_nic *nic = &old->nics[i];

		if ((nic->state != OLD_KEPT && nic->state != OLD_PUSHING) || req->waits & 1u << i ||
		    is_covered(comm, nic->path))
			continue;
		if (!is_reading(nic->path))
			nic->moved_ns = ha_now_ns();
		if (read_through(comm, nic->path, req))
			req->waits |= (uint16_t)(1u << i);
		else
			let_go(comm, i);
	}
}

void ha_flush_old_post_rest(struct ha_comm *comm, struct ha_request *req)
{
	req->waits &= (uint16_t)~HA_FLUSH_WANT_OLD;
	ha_flush_old_post(comm, req);
	if (req->waits == 0) /* some read has to complete it */
		req->waits = HA_FLUSH_WANT_ACTIVE;
}

uint16_t ha_flush_old_read(struct ha_comm *comm, struct ha_path *path, struct ha_request *req)
{
	int place = place_of(comm, path);

	if (place >= 0)
		req->waits &= (uint16_t) ~(1u << place);
	else if (path == ha_comm_path(comm))
		req->waits &= (uint16_t)~HA_FLUSH_WAIT_ACTIVE;
	else if (ha_flush_beside_read(comm, path))
		req->waits &= (uint16_t) ~((unsigned)HA_FLUSH_WAIT_BESIDE << path->index);
	return req->waits;
}

void ha_flush_old_failed(struct ha_comm *comm, struct ha_path *path)
{
	int place = place_of(comm, path);

	path->flush.done++;
	if (place < 0 || comm->recv->old->nics[place].state == OLD_ENDING)
		return;
	HA_INFO(HA_SUBSYS_NET,
		"connection %s: what came through %s cannot be flushed through it any more",
		comm->name, path->nic->name);
	let_go(comm, (unsigned)place);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_overdue(struct old_nic *nic, uint64_t now_ns)
{
	struct ha_path *path = nic->path;

	if (!ha_path_away(path) && (!is_reading(path) || path->flush.done != nic->done)) {
		nic->done = path->flush.done;
		nic->moved_ns = now_ns;
	}
	return now_ns > nic->moved_ns + HA_FLUSH_OVERDUE_NS;
}

static void step(struct ha_comm *comm, unsigned place, uint64_t now_ns)
{
	struct old_nic *nic = &comm->recv->old->nics[place];
	struct ha_path *path = nic->path;

	if (!ha_path_away(path) && path->flush.qp && atomic_load(&path->state) == HA_PATH_FENCED)
		ha_comm_poll_path(comm, path, comm->poll_batch);
	if (nic->state == OLD_ENDING) {
		go_on_ending(nic, now_ns);
		return;
	}
	/* Its fence found it sick, and had to destroy it; or it does not answer. */
	if (ha_path_device_died(path) || path->unheard || ha_comm_error(comm) != HA_OK ||
	    (!ha_path_away(path) && !path->flush.qp) || is_overdue(nic, now_ns)) {
		let_go(comm, place);
		return;
	}
	/* A failover's are kept when it is over; one beside the active path as soon as it can be.
	 */
	if (nic->state == OLD_LEFT && !comm->epoch_changing && may_read(path))
		begin_to_keep(comm, nic);
	if (nic->state == OLD_KEPT && now_ns >= nic->until_ns && !is_waited_for(comm, place))
		begin_to_push(comm, nic);
	if (nic->state == OLD_PUSHING)
		push(comm, place);
}

static void free_when_empty(struct ha_comm *comm)
{
	struct ha_flush_old *old = comm->recv->old;

	for (unsigned i = 0; i < MAX_OLD; i++)
		if (old->nics[i].state != OLD_FREE)
			return;
	ha_flush_old_free(comm);
}

void ha_flush_old_go_on(struct ha_comm *comm)
{
	uint64_t now_ns = ha_now_ns();

	if (!comm->recv || !comm->recv->old)
		return;
	for (unsigned i = 0; i < MAX_OLD; i++)
		if (comm->recv->old->nics[i].state != OLD_FREE)
			step(comm, i, now_ns);
	free_when_empty(comm);
}

void ha_flush_old_visit(struct ha_comm *comm)
{
	uint64_t now_ns, due_ns;

	if (!comm->recv->old)
		return;
	now_ns = ha_now_ns();
	due_ns = now_ns + HA_FLUSH_OVERDUE_NS / 2;
	ha_flush_old_go_on(comm);
	if (comm->recv->old && (comm->poller.due_ns == 0 || comm->poller.due_ns > due_ns))
		comm->poller.due_ns = due_ns;
}

/* ---- the end --------------------------------------------------------------------------------- */

void ha_flush_old_end(struct ha_comm *comm)
{
	if (!comm->recv)
		return;
	comm->recv->old_ends = true;
	for (unsigned i = 0; comm->recv->old && i < MAX_OLD; i++)
		if (comm->recv->old->nics[i].state != OLD_FREE)
			let_go(comm, i);
	ha_flush_old_go_on(comm);
}

void ha_flush_old_wait(struct ha_comm *comm)
{
	struct ha_flush_old *old = comm->recv ? comm->recv->old : NULL;

	for (unsigned i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state == OLD_ENDING)
			(void)ha_path_wait(old->nics[i].path, UINT64_MAX);
	ha_flush_old_go_on(comm);
}

bool ha_flush_old_reads(const struct ha_comm *comm, const char **name)
{
	const struct ha_flush_old *old = comm->recv ? comm->recv->old : NULL;

	for (unsigned i = 0; old && i < MAX_OLD; i++) {
		const struct old_nic *nic = &old->nics[i];

		if (nic->state != OLD_ENDING ||
		    (!ha_path_away(nic->path) && !is_reading(nic->path)))
			continue;
		if (name)
			*name = nic->path->nic->name;
		return true;
	}
	return false;
}

void ha_flush_old_expose(struct ha_comm *comm)
{
	struct ha_flush_old *old = comm->recv ? comm->recv->old : NULL;

	for (unsigned i = 0; old && i < MAX_OLD; i++)
		if (old->nics[i].state != OLD_FREE &&
		    (ha_path_away(old->nics[i].path) || is_reading(old->nics[i].path)))
			old->nics[i].path->exposed = true;
}

void ha_flush_old_free(struct ha_comm *comm)
{
	if (!comm->recv)
		return;
	free(comm->recv->old);
	comm->recv->old = NULL;
	comm->recv->flush_through &= (uint8_t)~HA_FLUSH_THROUGH_OLD;
}
