/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a process: its devices tell it nothing of their ports any more, as one whose
 * firmware hangs. So queue pairs that a port's failure left stuck are found by what they do not do.
 * Each event that is withheld is a line on stderr.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);

static bool is_of_a_port(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		return true;
	default:
		return false;
	}
}

/* In front of the library's. */
__attribute__((visibility("default"))) int ibv_get_async_event(struct ibv_context *context,
							       struct ibv_async_event *event)
{
	int (*next)(struct ibv_context *, struct ibv_async_event *);

	*(void **)&next = dlsym(RTLD_NEXT, "ibv_get_async_event");
	for (;;) {
		int rc = next ? next(context, event) : -1;

		if (rc != 0 || !is_of_a_port(event))
			return rc;
		fprintf(stderr, "lab-deaf: withheld '%s' of %s\n",
			ibv_event_type_str(event->event_type),
			ibv_get_device_name(context->device));
		ibv_ack_async_event(event);
	}
}
