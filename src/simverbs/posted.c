/* SPDX-License-Identifier: Apache-2.0 */
#include "posted.h"

#include "gpu.h"

#include <stdlib.h>
#include <string.h>

struct sv_posted {
	struct sv_posted *next; /* by due_ns; of the same place, in the order of their packets */
	uint64_t due_ns;
	const struct sv_mr *mr;
	uint8_t *addr;
	uint32_t length;
	uint8_t bytes[];
};

static bool overlap(const struct sv_posted *posted, const uint8_t *addr, uint32_t length)
{
	return (uintptr_t)posted->addr < (uintptr_t)addr + length &&
	       (uintptr_t)addr < (uintptr_t)posted->addr + posted->length;
}

/* The last one for the same place; NULL: there is none. */
static const struct sv_posted *same_place(const struct sv_port *port, const uint8_t *addr,
					  uint32_t length)
{
	const struct sv_posted *last = NULL;

	for (const struct sv_posted *p = port->posted; p; p = p->next)
		if (overlap(p, addr, length))
			last = p;
	return last;
}

/* Nobody hears of it when it fails: the device has nothing more to do with it. */
static void put_first(struct sv_port *port)
{
	struct sv_posted *first = port->posted;

	port->posted = first->next;
	if (sv_gpu_write(first->mr->gpu, first->addr, first->bytes, first->length))
		port->stats.payload_lost++;
	free(first);
}

static void insert(struct sv_port *port, struct sv_posted *posted)
{
	struct sv_posted **pos = &port->posted;

	while (*pos && (*pos)->due_ns <= posted->due_ns)
		pos = &(*pos)->next;
	posted->next = *pos;
	*pos = posted;
	if (port->posted == posted && port->ops->arm_timer)
		port->ops->arm_timer(port, posted->due_ns);
}

static bool fires(const struct sv_qp *qp, const struct sv_packet *pkt, uint64_t *late_ns)
{
	struct sv_port *port = qp->port;
	struct sv_fault_where where;

	if (!sv_fault_armed(port->faults, SV_POINT_GPU))
		return false;
	where = sv_qp_where(qp);
	return sv_fault_late(port->faults, SV_POINT_GPU, &where, pkt, sv_now(port), late_ns);
}

bool sv_posted_write(struct sv_qp *qp, const struct sv_packet *pkt, const struct sv_mr *mr,
		     uint8_t *addr, const uint8_t *bytes, uint32_t length)
{
	struct sv_port *port = qp->port;
	const struct sv_posted *before = same_place(port, addr, length);
	struct sv_posted *posted = NULL;
	uint64_t late_ns;

	if (fires(qp, pkt, &late_ns))
		posted = malloc(sizeof(*posted) + length);
	if (!posted) {
		if (before)
			sv_posted_push(port);
		return false;
	}
	posted->due_ns = sv_now(port) + late_ns;
	if (before && posted->due_ns < before->due_ns)
		posted->due_ns = before->due_ns;
	posted->mr = mr;
	posted->addr = addr;
	posted->length = length;
	memcpy(posted->bytes, bytes, length);
	insert(port, posted);
	return true;
}

void sv_posted_push(struct sv_port *port)
{
	sv_posted_run(port, SV_NEVER);
}

void sv_posted_push_to(struct sv_port *port, const struct sv_mr *mr)
{
	for (const struct sv_posted *p = port->posted; p; p = p->next)
		if (p->mr == mr) {
			sv_posted_push(port);
			return;
		}
}

uint64_t sv_posted_due_ns(const struct sv_port *port)
{
	return port->posted ? port->posted->due_ns : SV_NEVER;
}

void sv_posted_run(struct sv_port *port, uint64_t now_ns)
{
	while (port->posted && port->posted->due_ns <= now_ns)
		put_first(port);
}

void sv_posted_drop(struct sv_port *port)
{
	while (port->posted) {
		struct sv_posted *first = port->posted;

		port->posted = first->next;
		free(first);
	}
}
