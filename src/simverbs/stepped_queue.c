/* SPDX-License-Identifier: Apache-2.0 */
/* What is to come in a stepped fabric: a heap of events in virtual time, and packets on their way.
 */
#include "stepped.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the heap */

static bool earlier(const struct sv_event *a, const struct sv_event *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

void sv_event_push(struct sv_stepped *fab, struct sv_event event)
{
	uint32_t i = fab->heap_len;

	if (i == fab->heap_cap) {
		uint32_t cap = fab->heap_cap ? fab->heap_cap * 2 : 256;
		struct sv_event *heap = realloc(fab->heap, cap * sizeof(*heap));

		if (!heap)
			abort(); /* a test that cannot go on must not seem to */
		fab->heap = heap;
		fab->heap_cap = cap;
	}
	event.order = fab->order++;
	fab->heap_len++;
	while (i && earlier(&event, &fab->heap[(i - 1) / 2])) {
		fab->heap[i] = fab->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	fab->heap[i] = event;
}

struct sv_event sv_event_pop(struct sv_stepped *fab)
{
	struct sv_event top = fab->heap[0], last = fab->heap[--fab->heap_len];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = i * 2 + 1;

		if (child >= fab->heap_len)
			break;
		if (child + 1 < fab->heap_len && earlier(&fab->heap[child + 1], &fab->heap[child]))
			child++;
		if (!earlier(&fab->heap[child], &last))
			break;
		fab->heap[i] = fab->heap[child];
		i = child;
	}
	fab->heap[i] = last;
	return top;
}

void sv_flight_push(struct sv_stepped *fab, struct sv_flight *f, uint64_t time_ns)
{
	f->refs++;
	fab->ports[f->pkt.dst_port].inbound++;
	sv_event_push(fab,
		      (struct sv_event){.time_ns = time_ns, .type = SV_EV_PACKET, .flight = f});
}

void sv_action_push(struct sv_stepped *fab, uint64_t time_ns, const struct sv_action *action)
{
	sv_event_push(
	    fab, (struct sv_event){.time_ns = time_ns, .type = SV_EV_ACTION, .action = *action});
}

void sv_tell_push(struct sv_stepped *fab, uint64_t time_ns, uint32_t port_index)
{
	sv_event_push(fab, (struct sv_event){
			       .time_ns = time_ns, .type = SV_EV_TELL, .port_index = port_index});
}

/* ---------------------------------------------------------------- flights */

struct sv_flight *sv_flight_new(struct sv_stepped *fab)
{
	struct sv_flight *f = fab->free_flights;

	if (f)
		fab->free_flights = f->next;
	else
		f = malloc(sizeof(*f) + fab->max_payload);
	if (!f)
		abort();
	f->next = NULL;
	f->overtake = 0;
	f->refs = 0;
	f->done = f->arrived = f->rx_judged = false;
	return f;
}

/* An event of the heap that named it is over. */
void sv_flight_drop_ref(struct sv_stepped *fab, struct sv_flight *f)
{
	fab->ports[f->pkt.dst_port].inbound--;
	if (--f->refs)
		return;
	f->next = fab->free_flights;
	fab->free_flights = f;
}

void sv_stepped_free_flights(struct sv_stepped *fab)
{
	while (fab->heap_len) {
		struct sv_event event = sv_event_pop(fab);

		if (event.type == SV_EV_PACKET)
			sv_flight_drop_ref(fab, event.flight);
	}
	for (uint32_t i = 0; fab->ports && i < fab->num_ports; i++) {
		while (fab->ports[i].held) {
			struct sv_flight *f = fab->ports[i].held;

			fab->ports[i].held = f->next;
			sv_flight_drop_ref(fab, f);
		}
	}
	while (fab->free_flights) {
		struct sv_flight *f = fab->free_flights;

		fab->free_flights = f->next;
		free(f);
	}
}

struct sv_flight *sv_flight_copy(struct sv_stepped *fab, const struct sv_flight *from)
{
	struct sv_flight *f = sv_flight_new(fab);

	f->pkt = from->pkt;
	f->pkt.payload = f->payload;
	f->arrival_ns = from->arrival_ns;
	f->rx_judged = from->rx_judged;
	memcpy(f->payload, from->payload, f->pkt.payload_len);
	return f;
}
