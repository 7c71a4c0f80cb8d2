/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of streams, as programs have them: nccl_ha/ibgda.h. */
#include "ibgda/end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096u

/* ---- opening and closing --------------------------------------------------------------------- */

/* Its words are what threads wait at. */
static int open_sender(struct ha_ibgda_end *end)
{
	struct ha_ibgda_context *context = end->context;

	end->sender = ha_ibgda_allocate(&context->memory, PAGE, sizeof(*end->sender));
	if (!end->sender)
		return -ENOMEM;
	ha_ibgda_sender_open(end->sender, context->nics, context->num_nics,
			     ha_ibgda_socket_channel(&end->socket), &context->settings);
	return 0;
}

static int open_receiver(struct ha_ibgda_end *end)
{
	struct ha_ibgda_context *context = end->context;

	end->receiver = calloc(1, sizeof(*end->receiver));
	if (!end->receiver)
		return -ENOMEM;
	if (ha_ibgda_receiver_open(end->receiver, context->nics, context->num_nics,
				   ha_ibgda_socket_channel(&end->socket), &context->memory))
		return 0;
	free(end->receiver);
	end->receiver = NULL;
	return -EIO;
}

static int open_end(struct ha_ibgda_context *context, int socket,
		    int (*as)(struct ha_ibgda_end *end), struct ha_ibgda_end **out)
{
	struct ha_ibgda_end *end = calloc(1, sizeof(*end));
	int result = -ENOMEM;

	*out = NULL;
	if (end) {
		end->context = context;
		ha_list_init(&end->in_context);
		ha_ibgda_socket_open(&end->socket, socket);
		pthread_mutex_lock(&context->lock);
		result = as(end);
		if (!result) {
			ha_list_push_back(&context->ends, &end->in_context);
			context->num_ends++;
		}
		pthread_mutex_unlock(&context->lock);
	}
	if (result) {
		struct ha_ibgda_socket refused = {.fd = socket};

		ha_ibgda_socket_close(&refused);
		free(end);
		return result;
	}
	*out = end;
	return 0;
}

int ha_ibgda_put_open(struct ha_ibgda_context *context, int socket, struct ha_ibgda_end **out)
{
	return open_end(context, socket, open_sender, out);
}

int ha_ibgda_receive_open(struct ha_ibgda_context *context, int socket, struct ha_ibgda_end **out)
{
	return open_end(context, socket, open_receiver, out);
}

void ha_ibgda_end_close(struct ha_ibgda_end *end)
{
	struct ha_ibgda_context *context = end->context;

	pthread_mutex_lock(&context->lock);
	ha_list_remove(&end->in_context);
	context->num_ends--;
	if (end->sender)
		ha_ibgda_sender_close(end->sender);
	else
		ha_ibgda_receiver_close(end->receiver);
	pthread_mutex_unlock(&context->lock);
	if (end->sender)
		ha_ibgda_release(&context->memory, end->sender);
	free(end->receiver);
	ha_ibgda_socket_close(&end->socket);
	free(end);
}

/* ---- an end that is open --------------------------------------------------------------------- */

struct ha_ibgda_stream *ha_ibgda_end_stream(const struct ha_ibgda_end *end)
{
	return end->sender ? &end->sender->stream : NULL;
}

const uint64_t *ha_ibgda_end_signals(const struct ha_ibgda_end *end)
{
	return end->receiver ? end->receiver->cells : NULL;
}

int ha_ibgda_end_move(struct ha_ibgda_end *end, unsigned int nic)
{
	if (!end->sender || nic >= end->context->num_nics)
		return -EINVAL;
	pthread_mutex_lock(&end->context->lock);
	ha_ibgda_sender_move(end->sender, nic);
	pthread_mutex_unlock(&end->context->lock);
	return 0;
}

void ha_ibgda_end_abort(struct ha_ibgda_end *end)
{
	/* Without the lock, which is held while NICs do what they are told to. */
	if (end->sender)
		ha_ibgda_sender_end(end->sender);
	else
		ha_ibgda_receiver_end(end->receiver);
}

static enum ha_ibgda_state state_of(const struct ha_ibgda_sender *sender)
{
	switch (sender->phase) {
	case HA_IBGDA_STARTING:
		return HA_IBGDA_STATE_STARTING;
	case HA_IBGDA_RUNNING:
		return sender->wanted >= sender->num_nics ||
			       sender->wanted == ha_ibgda_sender_nic(sender)
			   ? HA_IBGDA_STATE_HOME
			   : HA_IBGDA_STATE_AWAY;
	case HA_IBGDA_DRAINING:
	case HA_IBGDA_CLOSING:
	case HA_IBGDA_OPENING:
		return HA_IBGDA_STATE_MOVING;
	case HA_IBGDA_ENDED:
		break;
	}
	return HA_IBGDA_STATE_OVER;
}

static void say_status(struct ha_ibgda_end *end, struct ha_ibgda_status *out)
{
	struct ha_ibgda_sender *sender = end->sender;

	if (!sender) {
		ha_ibgda_receiver_notice_end(end->receiver);
		out->reason = end->receiver->fault;
		out->state = out->reason ? HA_IBGDA_STATE_OVER : HA_IBGDA_STATE_HOME;
		return;
	}
	ha_ibgda_sender_notice_end(sender);
	out->state = state_of(sender);
	out->nic = ha_ibgda_sender_nic(sender);
	out->failovers = sender->failovers;
	out->moves = sender->moves;
	out->probes = sender->probes;
	out->unproved = sender->unproved;
	out->reason = sender->fault;
}

int ha_ibgda_end_status(struct ha_ibgda_end *end, struct ha_ibgda_status *status)
{
	const size_t size = status->size;
	struct ha_ibgda_status all = {.size = size};

	if (size < sizeof(size))
		return -EINVAL;
	pthread_mutex_lock(&end->context->lock);
	say_status(end, &all);
	pthread_mutex_unlock(&end->context->lock);
	memcpy(status, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}
