/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/server.h"

#include "base/clock.h"
#include "base/text.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-agent/hint_table.h"
#include "tools/nccl-ha-agent/measured.h"
#include "tools/nccl-ha-agent/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Who has dialled; -1: nobody. */
struct guest {
	int fd;
	struct ucred who;
	uint8_t bytes[HA_AGENT_FRAME_MAX];
	size_t got;
	uint64_t since_ns;
};

struct server {
	const struct na_settings *settings;
	struct na_hint_table table;
	struct na_registry registry;
	struct na_rules manual; /* as people have set them, before every policy */
	struct na_measured measured;
	struct guest guests[NA_SOCKETS_MAX];
	unsigned n_guests;
	int epoll, listener, signals;
	bool listening; /* there is room for another guest */
	uint64_t tick_ns;
};

/* ---- events ---------------------------------------------------------------------------------- */

/* What an event is of: kind and number, since what a pointer leads to may be gone. */
enum kind { OF_LISTENER, OF_SIGNAL, OF_GUEST, OF_CLIENT };

static bool watch(struct server *s, int fd, enum kind kind, uint32_t number)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)kind << 32 | number};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void listen_on(struct server *s, bool on)
{
	if (on == s->listening)
		return;
	if (on)
		s->listening = watch(s, s->listener, OF_LISTENER, 0);
	else if (epoll_ctl(s->epoll, EPOLL_CTL_DEL, s->listener, NULL) == 0)
		s->listening = false;
}

/* ---- shares ---------------------------------------------------------------------------------- */

static uint32_t share_of(struct server *s, const struct na_flow *flow)
{
	const struct ha_agent_flow *a = &flow->addresses;
	uint32_t share = 0;

	if (na_rules_find(&s->manual, a->sout_src_ip, a->sout_dst_ip, &share))
		return share;
	switch (s->settings->policy) {
	case NA_STATIC:
		(void)na_rules_find(&s->settings->file, a->sout_src_ip, a->sout_dst_ip, &share);
		return share;
	case NA_MEASURED:
		return na_measured_share(&s->measured, a, flow->share, ha_real_ns());
	default:
		return 0;
	}
}

static void write_flow(struct server *s, unsigned slot)
{
	const struct na_flow *flow = &s->registry.flows[slot];

	na_hint_table_write(&s->table, slot, flow->share, flow->addresses.sout_src_ip,
			    flow->addresses.sout_dst_ip);
}

/* Of the registry: a flow is new, or no more. */
static void flow_changed(void *arg, unsigned slot)
{
	struct server *s = arg;
	struct na_flow *flow = &s->registry.flows[slot];

	if (flow->users > 0)
		flow->share = share_of(s, flow);
	write_flow(s, slot);
}

static void update_shares(struct server *s)
{
	for (unsigned slot = 0; slot < MPIB_HINT_MAX_ENTRIES; slot++) {
		struct na_flow *flow = &s->registry.flows[slot];
		uint32_t share;

		if (flow->users == 0)
			continue;
		share = share_of(s, flow);
		if (share == flow->share)
			continue;
		flow->share = share;
		write_flow(s, slot);
	}
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct na_client *client_of(struct server *s, pid_t pid)
{
	struct na_client *client = na_client_find(&s->registry, pid);

	if (client)
		return client;
	client = na_client_new(&s->registry, pid);
	/* Its number in events is its descriptor, which nobody else has until it is closed. */
	if (client && !watch(s, client->pidfd, OF_CLIENT, (uint32_t)client->pidfd)) {
		na_client_end(&s->registry, client);
		return NULL;
	}
	return client;
}

static uint8_t do_register(struct server *s, const struct guest *guest,
			   const struct ha_agent_frame *frame, uint32_t *slot)
{
	struct na_client *client;

	if (frame->flow.sout_src_ip == 0 || frame->flow.sout_dst_ip == 0)
		return MPIB_AGENT_INVALID;
	client = client_of(s, guest->who.pid);
	if (!client)
		return MPIB_AGENT_INVALID;
	return (uint8_t)na_register(&s->registry, client, frame->conn_id, &frame->flow, slot);
}

static uint8_t do_deregister(struct server *s, const struct guest *guest,
			     const struct ha_agent_frame *frame)
{
	struct na_client *client = na_client_find(&s->registry, guest->who.pid);

	return client ? (uint8_t)na_deregister(&s->registry, client, frame->conn_id)
		      : MPIB_AGENT_INVALID;
}

static uint8_t do_set(struct server *s, const struct guest *guest,
		      const struct ha_agent_frame *frame)
{
	const uint32_t src = frame->flow.sout_src_ip, dst = frame->flow.sout_dst_ip;
	bool ok = true;

	if (guest->who.uid != 0 && guest->who.uid != geteuid())
		return MPIB_AGENT_INVALID;
	if (frame->share == HA_AGENT_SHARE_END)
		na_rules_clear(&s->manual, src, dst);
	else
		ok = frame->share <= MPIB_HINT_ALL &&
		     na_rules_set(&s->manual, src, dst, frame->share);
	update_shares(s);
	return ok ? MPIB_AGENT_OK : MPIB_AGENT_INVALID;
}

static void answer(struct server *s, const struct guest *guest, const struct ha_agent_frame *frame)
{
	struct ha_agent_frame response = {.type = MPIB_AGENT_RESPONSE};
	uint8_t bytes[HA_AGENT_FRAME_MAX];

	switch (frame->type) {
	case MPIB_AGENT_REGISTER:
		response.has_slot = true;
		response.status = do_register(s, guest, frame, &response.hint_slot);
		if (response.status != MPIB_AGENT_OK)
			response.hint_slot = 0;
		break;
	case MPIB_AGENT_DEREGISTER:
		response.status = do_deregister(s, guest, frame);
		break;
	case HA_AGENT_SET:
		response.status = do_set(s, guest, frame);
		break;
	default:
		response.status = MPIB_AGENT_INVALID;
	}
	/* It fits: nothing was said on this socket before. */
	(void)!send(guest->fd, bytes, ha_agent_encode(&response, bytes),
		    MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- guests ---------------------------------------------------------------------------------- */

static void show_out(struct server *s, struct guest *guest)
{
	close(guest->fd);
	guest->fd = -1;
	s->n_guests--;
	listen_on(s, true);
}

static void hear(struct server *s, struct guest *guest)
{
	struct ha_agent_frame frame;
	ssize_t n = recv(guest->fd, guest->bytes + guest->got, sizeof(guest->bytes) - guest->got,
			 MSG_DONTWAIT);
	int length;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		guest->got += (size_t)n;
		length = ha_agent_decode(guest->bytes, guest->got, &frame);
		if (length == 0)
			return;
		if (length > 0)
			answer(s, guest, &frame);
	}
	show_out(s, guest);
}

static void let_in(struct server *s)
{
	socklen_t length = sizeof(struct ucred);
	struct guest *guest = s->guests;
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	while (guest->fd >= 0)
		guest++;
	*guest = (struct guest){.fd = fd, .since_ns = ha_real_ns()};
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &guest->who, &length) != 0 ||
	    !watch(s, fd, OF_GUEST, (uint32_t)(guest - s->guests))) {
		close(fd);
		guest->fd = -1;
		return;
	}
	s->n_guests++;
	listen_on(s, s->n_guests < NA_SOCKETS_MAX);
	hear(s, guest);
}

static void show_out_silent(struct server *s, uint64_t now_ns)
{
	for (unsigned i = 0; i < NA_SOCKETS_MAX; i++)
		if (s->guests[i].fd >= 0 &&
		    now_ns - s->guests[i].since_ns > NA_SILENCE_MS * HA_NS_PER_MS)
			show_out(s, &s->guests[i]);
}

static void client_died(struct server *s, int pidfd)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &s->registry.clients) {
		struct na_client *client = ha_container_of(pos, struct na_client, link);

		if (client->pidfd == pidfd)
			na_client_end(&s->registry, client);
	}
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void tick(struct server *s, uint64_t now_ns)
{
	s->tick_ns = now_ns + NA_TICK_MS * HA_NS_PER_MS;
	show_out_silent(s, now_ns);
	if (s->settings->policy != NA_MEASURED || ha_list_empty(&s->registry.clients))
		return;
	if (now_ns - s->measured.sampled_ns >= NA_SAMPLE_MS * HA_NS_PER_MS)
		na_measured_sample(&s->measured, now_ns);
	update_shares(s);
}

/* Of one at a time: what it does may end what others are of. False: to end. */
static bool take_event(struct server *s)
{
	const uint64_t now_ns = ha_real_ns();
	const int wait_ms =
	    s->tick_ns <= now_ns ? 0 : (int)((s->tick_ns - now_ns) / HA_NS_PER_MS) + 1;
	/* Nobody to look after: wait for somebody. */
	const bool idle = s->n_guests == 0 && ha_list_empty(&s->registry.clients);
	struct epoll_event event;
	uint32_t number;

	if (epoll_wait(s->epoll, &event, 1, idle ? -1 : wait_ms) != 1)
		return true;
	number = (uint32_t)event.data.u64;
	switch ((enum kind)(event.data.u64 >> 32)) {
	case OF_LISTENER:
		let_in(s);
		return true;
	case OF_GUEST:
		hear(s, &s->guests[number]);
		return true;
	case OF_CLIENT:
		client_died(s, (int)number);
		return true;
	default:
		return false;
	}
}

/* Who may dial: root serves everybody, others themselves. A bound socket takes its mode from its
 * descriptor. */
static int listen_at(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	ha_copy_text(addr.sun_path, sizeof(addr.sun_path), path);
	unlink(path); /* of one that is gone: we hold the lock */
	if (fd >= 0 && fchmod(fd, geteuid() == 0 ? 0666 : 0600) == 0 &&
	    bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 && listen(fd, 1024) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

static bool begin(struct server *s, const char *path)
{

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->signals = ends_open();
	s->listener = listen_at(path);
	if (s->listener >= 0)
		listen_on(s, true);
	return s->listening && watch(s, s->signals, OF_SIGNAL, 0);
}

static void end(struct server *s, const char *path)
{
	unlink(path);
	for (unsigned i = 0; i < NA_SOCKETS_MAX; i++)
		if (s->guests[i].fd >= 0)
			close(s->guests[i].fd);
	if (s->listener >= 0)
		close(s->listener);
	na_registry_end(&s->registry);
	na_hint_table_close(&s->table);
	close(s->signals);
	close(s->epoll);
	free(s);
}

int na_serve(const struct na_settings *settings)
{
	struct server *s = calloc(1, sizeof(*s));
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)], err[256];
	int n = snprintf(path, sizeof(path), "%s/" MPIB_AGENT_SOCKET, settings->dir), status = 1;

	if (!s || n < 0 || (size_t)n >= sizeof(path)) {
		fprintf(stderr, "nccl-ha-agent: %s: the name is too long for a socket's\n",
			settings->dir);
		free(s);
		return status;
	}
	s->settings = settings;
	umask(0); /* others are to read the file, and dial: what may be written is said for each */
	for (unsigned i = 0; i < NA_SOCKETS_MAX; i++)
		s->guests[i].fd = -1;
	if (!na_hint_table_open(&s->table, settings->dir, err, sizeof(err))) {
		fprintf(stderr, "nccl-ha-agent: %s\n", err);
		free(s);
		return status;
	}
	na_registry_begin(&s->registry, flow_changed, s);
	if (begin(s, path)) {
		status = 0;
		do {
			if (ha_real_ns() >= s->tick_ns)
				tick(s, ha_real_ns());
		} while (take_event(s));
	} else {
		fprintf(stderr, "nccl-ha-agent: %s: %s\n", path, strerror(errno));
	}
	end(s, path);
	return status;
}
