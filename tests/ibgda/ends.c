/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "ends.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <simverbs/simverbs.h>
#include <sys/socket.h>
#include <unistd.h>

#define GID_INDEX 3

struct ibv_context *open_rail(uint32_t host, uint32_t rail)
{
	struct ibv_context *context;
	struct ibv_device **devices;

	sv_stepped_set_host(host);
	devices = ibv_get_device_list(NULL);
	context = ibv_open_device(devices[rail]);
	ibv_free_device_list(devices);
	return context;
}

static void make_nic(struct ha_ibgda_nic *nic, struct ibv_context *context)
{
	struct ibv_port_attr port;

	assert_non_null(context);
	assert_int_equal(ibv_query_port(context, 1, &port), 0);
	nic->context = context;
	nic->port_num = 1;
	nic->own = (struct ha_port_addr){.lid = port.lid,
					 .gid_index = GID_INDEX,
					 .mtu = port.active_mtu,
					 .link_layer = port.link_layer};
	assert_int_equal(ibv_query_gid(context, 1, GID_INDEX, &nic->own.gid), 0);
	assert_int_equal(ha_ibgda_nic_open(nic), 0);
	assert_int_equal(fcntl(context->async_fd, F_SETFL, O_NONBLOCK), 0);
}

void stream_end_make(struct stream_end *end, struct ibv_context *const *contexts, void *memory,
		     size_t size, uint8_t timeout, uint8_t retry_cnt)
{
	/* simverbs' own: who looks for that library finds it loaded. */
	assert_non_null(dlopen(SIMVERBS_MLX5, RTLD_NOW));
	for (unsigned int n = 0; n < END_NICS; n++) {
		struct ha_ibgda_nic *nic = &end->nics[n];

		*nic = (struct ha_ibgda_nic){.timeout = timeout, .retry_cnt = retry_cnt};
		make_nic(nic, contexts[n]);
		end->mrs[n] = ibv_reg_mr(nic->pd, memory, size,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		assert_non_null(end->mrs[n]);
		nic->lkeys[1] = end->mrs[n]->lkey;
		nic->rkeys[1] = end->mrs[n]->rkey;
	}
}

void stream_end_forget(struct stream_end *end, unsigned int nic)
{
	if (end->mrs[nic])
		assert_int_equal(ibv_dereg_mr(end->mrs[nic]), 0);
	end->mrs[nic] = NULL;
}

void stream_end_give(struct stream_end *end)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		(void)ha_ibgda_nic_has_failed(&end->nics[n]);
		stream_end_forget(end, n);
		assert_int_equal(ha_ibgda_nic_close(&end->nics[n]), 0);
		assert_int_equal(ibv_close_device(end->nics[n].context), 0);
	}
}

static bool sends(void *context, const struct ha_ibgda_message *message)
{
	const struct pipe_end *end = context;

	return send(end->fd, message, sizeof(*message), MSG_NOSIGNAL) == sizeof(*message);
}

static int receives(void *context, struct ha_ibgda_message *message)
{
	const struct pipe_end *end = context;
	const ssize_t got = recv(end->fd, message, sizeof(*message), 0);

	if (got == sizeof(*message))
		return 1;
	return got < 0 && errno == EAGAIN ? 0 : -1;
}

void pipe_make(struct pipe_end ends[2])
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	ends[0].fd = fds[0];
	ends[1].fd = fds[1];
}

void pipe_give(struct pipe_end ends[2])
{
	close(ends[0].fd);
	close(ends[1].fd);
}

static void finish(void *context)
{
	const struct pipe_end *end = context;

	(void)shutdown(end->fd, SHUT_RDWR);
}

struct ha_ibgda_channel pipe_channel(struct pipe_end *end)
{
	return (struct ha_ibgda_channel){
	    .context = end, .send = sends, .receive = receives, .end = finish};
}
