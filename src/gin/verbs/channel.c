/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/channel.h"

#include "base/log.h"
#include "memory/mr.h"
#include "memory/pages.h"
#include "transport/comm.h"
#include "transport/path_error.h"
#include "transport/shared.h"

#include <stdlib.h>
#include <string.h>

#define TAG	   0x47494e
#define QUEUE_ROOM 16 /* at first */

/* ---- out ------------------------------------------------------------------------------------ */

static ha_result_t make_memory(struct ha_comm *comm, size_t messages, void **memory,
			       struct ha_mr **mr)
{
	const size_t bytes = messages * sizeof(struct ha_gin_message);

	*memory = ha_pages_new(bytes);
	if (!*memory)
		return HA_ERR_SYSTEM;
	return ha_mr_register(comm->inst->devices, comm->primary, *memory, bytes, HA_MEM_HOST, 0,
			      -1, mr);
}

ha_result_t ha_gin_out_open(struct ha_gin_out *out, struct ha_comm *comm)
{
	void *memory;
	ha_result_t result;

	*out = (struct ha_gin_out){.comm = comm};
	result = make_memory(comm, 1, &memory, &out->mr);
	out->posted = memory;
	if (result != HA_OK)
		ha_gin_out_close(out);
	return result;
}

static ha_result_t grow(struct ha_gin_out *out)
{
	const size_t room = out->room ? 2 * out->room : QUEUE_ROOM;
	struct ha_gin_message *queue = calloc(room, sizeof(*queue));

	if (!queue)
		return HA_ERR_SYSTEM;
	for (size_t i = 0; i < out->count; i++)
		queue[i] = out->queue[(out->head + i) % out->room];
	free(out->queue);
	out->queue = queue;
	out->head = 0;
	out->room = room;
	return HA_OK;
}

ha_result_t ha_gin_out_say(struct ha_gin_out *out, const struct ha_gin_message *message)
{
	struct ha_gin_message *last;

	if (out->count == out->room)
		HA_TRY(grow(out));
	last = &out->queue[(out->head + out->count++) % out->room];
	*last = *message;
	last->magic = HA_GIN_MAGIC;
	return HA_OK;
}

static ha_result_t end_request(struct ha_gin_out *out)
{
	bool done;

	if (!out->request)
		return HA_OK;
	HA_TRY(ha_test(out->request, &done, NULL));
	if (done)
		out->request = NULL;
	return HA_OK;
}

ha_result_t ha_gin_out_progress(struct ha_gin_out *out)
{
	HA_TRY(end_request(out));
	while (!out->request && out->count) {
		*out->posted = out->queue[out->head];
		HA_TRY(ha_isend(out->comm, out->posted, sizeof(*out->posted), TAG, out->mr,
				&out->request));
		if (!out->request)
			return HA_OK;
		out->head = (out->head + 1) % out->room;
		out->count--;
		HA_TRY(end_request(out));
	}
	return HA_OK;
}

void ha_gin_out_close(struct ha_gin_out *out)
{
	if (out->comm)
		ha_close_send(out->comm);
	ha_mr_deregister(out->mr);
	ha_pages_free(out->posted, sizeof(*out->posted));
	free(out->queue);
	*out = (struct ha_gin_out){0};
}

/* ---- in ------------------------------------------------------------------------------------- */

ha_result_t ha_gin_in_open(struct ha_gin_in *in, struct ha_comm *comm)
{
	void *memory;
	ha_result_t result;

	*in = (struct ha_gin_in){.comm = comm};
	result = make_memory(comm, HA_GIN_HEARD, &memory, &in->mr);
	in->buffers = memory;
	if (result != HA_OK)
		ha_gin_in_close(in);
	return result;
}

/* In order: one that cannot be posted now keeps those behind it waiting. */
static ha_result_t post(struct ha_gin_in *in)
{
	const size_t size = sizeof(*in->buffers);
	const int tag = TAG;

	for (unsigned int i = 0; i < HA_GIN_HEARD; i++) {
		const unsigned int k = (in->next + i) % HA_GIN_HEARD;
		void *data = &in->buffers[k];

		if (in->requests[k])
			continue;
		HA_TRY(ha_irecv(in->comm, 1, &data, &size, &tag, &in->mr, &in->requests[k]));
		if (!in->requests[k])
			return HA_OK;
	}
	return HA_OK;
}

static ha_result_t take(struct ha_gin_in *in, int size, struct ha_gin_message *message)
{
	*message = in->buffers[in->next];
	in->requests[in->next] = NULL;
	in->next = (in->next + 1) % HA_GIN_HEARD;
	if (size == (int)sizeof(*message) && message->magic == HA_GIN_MAGIC)
		return HA_OK;
	HA_WARN("GIN: connection %s brought %d bytes that are no message of this version: all "
		"ranks must have the same nccl-ha",
		in->comm->name, size);
	return HA_ERR_REMOTE;
}

ha_result_t ha_gin_in_hear(struct ha_gin_in *in, struct ha_gin_message *message, bool *is_heard)
{
	int size = 0;

	*is_heard = false;
	HA_TRY(post(in));
	if (!in->requests[in->next])
		return HA_OK;
	HA_TRY(ha_test(in->requests[in->next], is_heard, &size));
	return *is_heard ? take(in, size, message) : HA_OK;
}

void ha_gin_in_close(struct ha_gin_in *in)
{
	if (in->comm)
		ha_close_recv(in->comm);
	ha_mr_deregister(in->mr);
	ha_pages_free(in->buffers, HA_GIN_HEARD * sizeof(*in->buffers));
	*in = (struct ha_gin_in){0};
}

/* ---- the path ------------------------------------------------------------------------------- */

/* Under the token; NULL: it moves. */
static struct ha_path *path_of(struct ha_comm *comm)
{
	return ha_comm_may_post(comm) ? ha_comm_path(comm) : NULL;
}

bool ha_gin_path_now(struct ha_comm *comm, struct ha_port **port, struct ha_gin_path_name *name)
{
	const struct ha_path *path;

	if (!ha_token_try(comm) && !ha_token_ask(comm))
		return false;
	path = path_of(comm);
	if (path) {
		*port = path->port;
		*name = (struct ha_gin_path_name){path->index, path->generation};
	}
	ha_token_release(comm);
	return path != NULL;
}

void ha_gin_path_failed(struct ha_comm *comm, const struct ha_gin_path_name *name, const char *why)
{
	struct ha_path *path;

	if (!ha_token_try(comm) && !ha_token_ask(comm))
		return;
	path = path_of(comm);
	if (path && path->index == name->slot && path->generation == name->generation)
		ha_comm_path_failed(comm, path, HA_REASON_PROBE, HA_ERR_SYSTEM,
				    "puts do not come through: %s", why);
	ha_token_release(comm);
}
