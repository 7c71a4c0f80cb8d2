/* SPDX-License-Identifier: Apache-2.0 */
#include "device/give_back.h"

#include "base/log.h"
#include "device/device.h"
#include "device/incarnation.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One object that a device refuses to take back. */
struct refused {
	struct ha_list link;
	enum ha_object_kind kind;
	void *object;
	void (*then)(void *arg);
	void *arg;
	unsigned tries;
	bool leaked;
	uint64_t due_ns;
};

/* ---- the verbs ------------------------------------------------------------------------------- */

static int destroy_qp(void *object)
{
	return ibv_destroy_qp(object);
}

static int destroy_cq(void *object)
{
	return ibv_destroy_cq(object);
}

static int destroy_channel(void *object)
{
	return ibv_destroy_comp_channel(object);
}

static int destroy_ah(void *object)
{
	return ibv_destroy_ah(object);
}

static int dereg_mr(void *object)
{
	return ibv_dereg_mr(object);
}

static int dealloc_pd(void *object)
{
	return ibv_dealloc_pd(object);
}

static const struct {
	const char *name, *names, *verb;
	int (*call)(void *object);
} kinds[HA_OBJECT_KINDS] = {
    [HA_OBJECT_QP] = {"a queue pair", "queue pairs", "ibv_destroy_qp", destroy_qp},
    [HA_OBJECT_CQ] = {"a completion queue", "completion queues", "ibv_destroy_cq", destroy_cq},
    [HA_OBJECT_CHANNEL] = {"a completion channel", "completion channels",
			   "ibv_destroy_comp_channel", destroy_channel},
    [HA_OBJECT_AH] = {"an address handle", "address handles", "ibv_destroy_ah", destroy_ah},
    [HA_OBJECT_MR] = {"a registration", "registrations", "ibv_dereg_mr", dereg_mr},
    [HA_OBJECT_PD] = {"a protection domain", "protection domains", "ibv_dealloc_pd", dealloc_pd},
};

/* ---- one object ------------------------------------------------------------------------------ */

/* errno; 0: there is no such object any more, with the device's word or without the device. */
static int ask(const struct ha_incarnation *on, enum ha_object_kind kind, void *object)
{
	int rc = kinds[kind].call(object);

	return rc != 0 && ha_incarnation_took_along(on, rc, ha_now_ns()) ? 0 : rc;
}

static void end(struct refused *refused)
{
	if (refused->then)
		refused->then(refused->arg);
	free(refused);
}

/* Whoever asks tells of it. */
static void call_asker(const struct ha_incarnation *on)
{
	struct ha_asker *asker = atomic_load(&on->nic->asker);

	if (asker)
		asker->refused(asker);
}

void ha_leaks_add(struct ha_incarnation *on, enum ha_object_kind kind, int more)
{
	atomic_fetch_add(&on->refusals.leaks[kind], (unsigned)more);
	call_asker(on);
}

/* As long as it takes for HA_GIVE_BACK_TRIES. */
#define LEAK_NS (2500 * HA_NS_PER_MS)

void ha_leaks_of_asked(struct ha_incarnation *on, struct ha_asked *asked, enum ha_object_kind kind,
		       unsigned refused)
{
	unsigned leaks = 0;

	if (refused == 0)
		asked->since_ns = 0;
	else if (asked->since_ns == 0)
		asked->since_ns = ha_now_ns();
	else if (ha_now_ns() - asked->since_ns >= LEAK_NS)
		leaks = refused;
	if (!on || leaks == asked->leaks)
		return;
	ha_leaks_add(on, kind, (int)leaks - (int)asked->leaks);
	asked->leaks = leaks;
}

struct ha_leaks ha_nic_leaks(struct ha_nic *nic)
{
	struct ha_leaks leaks = {0};

	pthread_mutex_lock(&nic->lock);
	for (struct ha_incarnation *on = nic->now; on; on = on->older)
		for (unsigned kind = 0; kind < HA_OBJECT_KINDS && !ha_incarnation_is_dead(on);
		     kind++)
			leaks.of[kind] += atomic_load(&on->refusals.leaks[kind]);
	pthread_mutex_unlock(&nic->lock);
	return leaks;
}

const char *ha_leaks_text(const struct ha_leaks *leaks, char *buf, size_t size)
{
	size_t length = 0;

	snprintf(buf, size, "nothing");
	for (unsigned kind = 0; kind < HA_OBJECT_KINDS && length < size; kind++) {
		const unsigned n = leaks->of[kind];

		if (n == 1)
			length += (size_t)snprintf(buf + length, size - length, "%s%s",
						   length ? ", " : "", kinds[kind].name);
		else if (n > 1)
			length += (size_t)snprintf(buf + length, size - length, "%s%u %s",
						   length ? ", " : "", n, kinds[kind].names);
	}
	return buf;
}

/* A dead device refuses everything; one line said so when it died. */
static void count_leak(struct ha_incarnation *on, struct refused *refused, int rc)
{
	if (refused->leaked || refused->tries < HA_GIVE_BACK_TRIES || ha_incarnation_is_dead(on))
		return;
	refused->leaked = true;
	ha_leaks_add(on, refused->kind, 1);
	if (!atomic_exchange(&on->refusals.told, true))
		HA_WARN("%s: the device does not take back %s: %s failed again and again: %s; what "
			"it refuses is kept with its memory, and asked for until the device is "
			"closed",
			on->nic->name, kinds[refused->kind].name, kinds[refused->kind].verb,
			strerror(rc));
}

/* Later again. */
static void put_off(struct ha_incarnation *on, struct refused *refused, int rc)
{
	uint64_t pause_ns = HA_GIVE_BACK_NS << (refused->tries < 16 ? refused->tries : 16);

	if (pause_ns > HA_GIVE_BACK_MAX_NS)
		pause_ns = HA_GIVE_BACK_MAX_NS;
	refused->tries++;
	refused->due_ns = ha_now_ns() + pause_ns;
	count_leak(on, refused, rc);
	pthread_mutex_lock(&on->refusals.lock);
	ha_list_push_back(&on->refusals.objects, &refused->link);
	pthread_mutex_unlock(&on->refusals.lock);
}

static void ask_again(struct ha_incarnation *on, struct refused *refused)
{
	int rc = ask(on, refused->kind, refused->object);

	if (rc != 0) {
		put_off(on, refused, rc);
		return;
	}
	if (refused->leaked)
		ha_leaks_add(on, refused->kind, -1);
	end(refused);
}

/* ---- for others ------------------------------------------------------------------------------ */

void ha_refusals_init(struct ha_refusals *refusals)
{
	pthread_mutex_init(&refusals->lock, NULL);
	ha_list_init(&refusals->objects);
	for (unsigned kind = 0; kind < HA_OBJECT_KINDS; kind++)
		atomic_init(&refusals->leaks[kind], 0);
	atomic_init(&refusals->told, false);
}

void ha_give_back(struct ha_incarnation *on, enum ha_object_kind kind, void *object,
		  void (*then)(void *arg), void *arg)
{
	struct refused *refused;
	int rc = object ? ask(on, kind, object) : 0;

	if (rc == 0) {
		if (then)
			then(arg);
		return;
	}
	HA_INFO_LIMITED(HA_SUBSYS_NET, "%s: %s is refused: %s; the device is asked again",
			on->nic->name, kinds[kind].verb, strerror(rc));
	refused = calloc(1, sizeof(*refused));
	if (!refused) /* the object stays, and its memory */
		return;
	*refused = (struct refused){.kind = kind, .object = object, .then = then, .arg = arg};
	put_off(on, refused, rc);
	call_asker(on);
}

/* With the lock. */
static struct refused *first_due(const struct ha_refusals *refusals, uint64_t now_ns)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &refusals->objects) {
		struct refused *object = ha_container_of(pos, struct refused, link);

		if (object->due_ns <= now_ns)
			return object;
	}
	return NULL;
}

static struct refused *take_due(struct ha_refusals *refusals, uint64_t now_ns)
{
	struct refused *object;

	pthread_mutex_lock(&refusals->lock);
	object = first_due(refusals, now_ns);
	if (object)
		ha_list_remove(&object->link);
	pthread_mutex_unlock(&refusals->lock);
	return object;
}

uint64_t ha_give_back_due(struct ha_incarnation *on)
{
	uint64_t soonest_ns = 0;
	struct ha_list *pos;

	pthread_mutex_lock(&on->refusals.lock);
	ha_list_for_each (pos, &on->refusals.objects)
		soonest_ns =
		    ha_earlier_ns(soonest_ns, ha_container_of(pos, struct refused, link)->due_ns);
	pthread_mutex_unlock(&on->refusals.lock);
	return soonest_ns;
}

/* What is put off once more is due after now_ns. */
void ha_give_back_again(struct ha_incarnation *on)
{
	uint64_t now_ns = ha_now_ns();
	struct refused *object;

	while ((object = take_due(&on->refusals, now_ns)) != NULL)
		ask_again(on, object);
}

void ha_give_back_last(struct ha_incarnation *on)
{
	struct ha_list all;

	ha_list_init(&all);
	ha_list_move_all(&all, &on->refusals.objects);
	while (!ha_list_empty(&all)) {
		struct refused *refused =
		    ha_container_of(ha_list_pop_front(&all), struct refused, link);

		refused->tries += HA_GIVE_BACK_TRIES; /* it was the last one */
		ask_again(on, refused);
	}
}

void ha_refusals_end(struct ha_refusals *refusals)
{
	while (!ha_list_empty(&refusals->objects))
		end(ha_container_of(ha_list_pop_front(&refusals->objects), struct refused, link));
	pthread_mutex_destroy(&refusals->lock);
}
