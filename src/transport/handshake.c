/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/handshake.h"

#include "base/log.h"
#include "base/text.h"
#include "device/rank.h"
#include "device/route.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/path_connect.h"
#include "transport/path_open.h"
#include "transport/retain.h"
#include "transport/shared.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Up, and nobody wants it left alone. */
static bool is_inviting(const struct ha_port *port)
{
	return ha_port_usable(port) && !ha_port_drained(port);
}

bool ha_handshake_reaches(struct ha_port *port, const struct ha_wire_endpoint *peer)
{
	struct ha_port_addr addr;

	if (!ha_port_usable(port))
		return true;
	ha_port_addr(port, &addr);
	return ha_route_ask(&addr, peer->gid) != HA_ROUTE_NONE;
}

static bool may_begin_on(const struct ha_first_path *first, struct ha_port *port)
{
	for (unsigned i = 0; i < first->n_unreached; i++)
		if (first->unreached[i] == port)
			return false;
	return !first->peer || ha_handshake_reaches(port, first->peer);
}

static const char *why_not(const struct ha_first_path *first, struct ha_port *wanted)
{
	if (!ha_port_usable(wanted))
		return "is down";
	if (ha_port_drained(wanted))
		return "is drained";
	return may_begin_on(first, wanted) ? "fails" : "does not reach the peer's port";
}

static void say_where(const struct ha_first_path *first, const struct ha_port *port)
{
	struct ha_port *wanted = first->wanted.port;

	if (port == wanted)
		return;
	HA_WARN("%s:%d %s: a connection for it begins on %s:%d", wanted->nic->name,
		wanted->port_num, why_not(first, wanted), port->nic->name, port->port_num);
}

/* On the first of the ports that can be, of those that are inviting or of the others. */
static ha_result_t open_on_one_of(struct ha_comm *comm, const struct ha_first_path *first,
				  struct ha_port *const ports[], int n, bool inviting)
{
	struct ha_path_options options = {.generation = 1};
	ha_result_t result = HA_ERR_REMOTE;

	for (int i = 0; i < n; i++) {
		if (is_inviting(ports[i]) != inviting || !may_begin_on(first, ports[i]))
			continue;
		options.port = ports[i];
		options.nqps = first->nqps ? first->nqps : ha_port_nqps(ports[i]);
		result = ha_path_open(comm, &options, &comm->paths[0]);
		if (result == HA_OK) {
			say_where(first, ports[i]);
			return HA_OK;
		}
	}
	return result;
}

/* If no port is of use now, it is one that may be later, and the connection waits for that. */
static ha_result_t open_first_path(struct ha_comm *comm, const struct ha_first_path *first)
{
	struct ha_port *ports[HA_MAX_PORTS] = {first->wanted.port};
	ha_result_t result, later;
	int n = 1;

	if (comm->config->enable_backup)
		n = ha_rail_island_keep(&first->wanted, ports,
					ha_standby_rank(comm->inst->devices, first->wanted.port,
							comm->id, ports, HA_MAX_PORTS));
	result = open_on_one_of(comm, first, ports, n, true);
	if (result == HA_OK)
		return HA_OK;
	later = open_on_one_of(comm, first, ports, n, false);
	return later == HA_ERR_REMOTE ? result : later;
}

ha_result_t ha_handshake_open(struct ha_instance *inst, bool is_send,
			      const struct ha_first_path *first, struct ha_comm **out)
{
	struct ha_comm *comm;
	ha_result_t result;

	*out = NULL;
	HA_TRY(ha_comm_new(inst, is_send, &comm));
	result = open_first_path(comm, first);
	if (result != HA_OK) {
		ha_comm_free(comm);
		return result;
	}
	comm->npaths = 1;
	comm->port = first->wanted.port;
	comm->rail_alone = first->wanted.alone;
	comm->primary = comm->paths[0]->nic;
	*out = comm;
	return HA_OK;
}

/* Completion end to end is for what survives the loss of a path. */
static uint64_t features(const struct ha_comm *comm)
{
	uint64_t kept_alive = comm->inst->failover->features;

	if (!comm->config->enable_backup || kept_alive == 0)
		return 0;
	return kept_alive | (comm->config->completion == HA_COMPLETION_E2E ? HA_FEATURE_E2E : 0) |
	       (ha_comm_rails(comm) > 1 ? HA_FEATURE_RAILS | HA_FEATURE_SHED | HA_FEATURE_TURN : 0);
}

_Static_assert(HA_WIRE_RAILS == HA_RAILS_MAX, "each rail of a bundle has its place");

/* Of a port by itself there is nothing to say. */
static void say_bundle(const struct ha_comm *comm, struct ha_hello *out)
{
	const int nrails = comm->port->bundle->nrails;

	if (nrails < HA_RAILS_MIN)
		return;
	out->rail_mode = (uint8_t)(comm->config->rail_mode + 1);
	out->nrails = (uint8_t)nrails;
}

/* What paths on its rails shall have, for the listener. */
static void say_rail_nqps(const struct ha_comm *comm, struct ha_hello *out)
{
	const struct ha_bundle *bundle = comm->port->bundle;

	if (ha_comm_rails(comm) > 1)
		for (int rail = 0; rail < bundle->nrails; rail++)
			out->rail_nqps[rail] = ha_port_nqps(bundle->rails[rail]);
}

void ha_handshake_hello(const struct ha_comm *comm, uint64_t secret, uint8_t sl, uint8_t tc,
			struct ha_hello *out)
{
	memset(out, 0, sizeof(*out));
	out->secret = secret;
	out->version = HA_WIRE_VERSION;
	out->min_version = HA_WIRE_MIN_VERSION;
	out->features = features(comm) | (comm->inst->job_key ? HA_FEATURE_AUTH : 0);
	ha_auth_draw_nonce(out->nonce);
	out->connection_id = comm->id;
	out->pid = (uint32_t)getpid();
	ha_copy_text(out->host, sizeof(out->host), comm->inst->host);
	out->max_recvs = (uint16_t)comm->config->max_recvs;
	out->window = HA_WINDOW;
	if (comm->config->enable_backup)
		comm->inst->failover->reconnect_at(comm->inst, comm->is_send, &out->reconnect_at);
	ha_path_endpoint(comm->paths[0], &out->endpoint);
	out->rail = (uint8_t)comm->port->rail;
	say_bundle(comm, out);
	if (comm->is_send)
		say_rail_nqps(comm, out);
	out->endpoint.sl = sl;
	out->endpoint.traffic_class = tc;
}

bool ha_handshake_say_hello(struct ha_comm *comm, const struct ha_hello *local,
			    const uint8_t *asked, uint8_t payload[HA_HELLO_BYTES])
{
	ha_hello_encode(local, payload);
	return !comm->inst->job_key || ha_auth_seal_hello(comm->inst->job_key, asked, payload);
}

const char *ha_handshake_mistrusts(const struct ha_instance *inst, const struct ha_hello *remote,
				   const uint8_t *asked, const uint8_t *payload)
{
	bool has_key = remote->features & HA_FEATURE_AUTH;

	if (!inst->job_key)
		return has_key ? "it has a job key, and this process has none" : NULL;
	if (!has_key)
		return "it has no job key";
	return ha_auth_hello_is_genuine(inst->job_key, asked, payload) ? NULL
								       : "its job key is another";
}

const char *ha_handshake_key_text(const struct ha_instance *inst, char *buf, size_t size)
{
	const struct ha_config *config = &inst->config;

	if (!inst->job_key)
		snprintf(buf, size, "none");
	else if (config->job_key_file[0])
		snprintf(buf, size, "HA_NCCL_JOB_KEY_FILE=%.200s", config->job_key_file);
	else
		snprintf(buf, size, "HA_NCCL_JOB_KEY_FD=%d", config->job_key_fd);
	return buf;
}

ha_result_t ha_handshake_authenticate(struct ha_comm *comm, struct ha_frame_sock *sock,
				      const struct ha_hello *local, const struct ha_hello *remote)
{
	if (!comm->inst->job_key)
		return HA_OK;
	if (!ha_auth_begin(&comm->auth, comm->inst->job_key, comm->is_send ? local : remote,
			   comm->is_send ? remote : local))
		return HA_ERR_SYSTEM;
	ha_handshake_key_socket(&comm->auth, ha_comm_speaker(comm), sock, NULL, NULL);
	return HA_OK;
}

void ha_handshake_key_socket(const struct ha_auth *auth, enum ha_speaker self,
			     struct ha_frame_sock *sock, const uint8_t *sender_nonce,
			     const uint8_t *receiver_nonce)
{
	struct ha_hmac_key key;

	if (!auth->on)
		return;
	ha_auth_socket_key(auth, sender_nonce, receiver_nonce, &key);
	ha_frame_sock_authenticate(sock, &key, self);
	ha_hmac_forget_key(&key);
}

static void name_connection(struct ha_comm *comm, const struct ha_hello *local,
			    const struct ha_hello *remote)
{
	snprintf(comm->name, sizeof(comm->name), "%s %08x (%s:%u %s:%u %s %s:%u %s:%u)",
		 comm->is_send ? "send" : "recv", (uint32_t)ha_comm_number(comm), local->host,
		 local->pid, local->endpoint.device, local->endpoint.port_num,
		 comm->is_send ? "->" : "<-", remote->host, remote->pid, remote->endpoint.device,
		 remote->endpoint.port_num);
	ha_copy_text(comm->peer_host, sizeof(comm->peer_host), remote->host);
	comm->peer_pid = remote->pid;
}

/* Once per connection, and only where something is lost. */
static void warn_downgrade(const struct ha_comm *comm, const struct ha_hello *local,
			   const struct ha_hello *remote, const struct ha_agreement *agreed)
{
	HA_WARN("connection %s: the peer speaks protocol version %u with features 0x%llx, we %u "
		"with 0x%llx: going on with version %u, features 0x%llx",
		comm->name, remote->version, (unsigned long long)remote->features, local->version,
		(unsigned long long)local->features, agreed->version,
		(unsigned long long)agreed->features);
}

static bool by_other_modes(const struct ha_hello *local, const struct ha_hello *remote)
{
	return local->rail_mode != 0 && remote->rail_mode != 0 &&
	       local->rail_mode != remote->rail_mode;
}

static const char *mode_text(const struct ha_hello *hello)
{
	const struct ha_config_var *var = ha_config_find("HA_NCCL_RAIL_MODE");

	for (const struct ha_config_choice *c = var->choices; c->name; c++)
		if (c->value + 1 == hello->rail_mode)
			return c->name;
	return "one that is not known here";
}

static void warn_other_mode(const struct ha_comm *comm, const struct ha_hello *local,
			    const struct ha_hello *remote)
{
	HA_WARN("connection %s: HA_NCCL_RAIL_MODE is %s at the peer and %s here: each end goes by "
		"its own, and those rails carry that both would have; set it alike on all hosts",
		comm->name, mode_text(remote), mode_text(local));
}

static void warn_other_size(const struct ha_comm *comm, const struct ha_hello *local,
			    const struct ha_hello *remote)
{
	HA_WARN("connection %s: a bundle of %u ports at the peer and of %u here: ports carry that "
		"reach one at the other end; set HA_NCCL_RAILS alike on all hosts",
		comm->name, remote->nrails, local->nrails);
}

/* What bundles of other modes have that is not the same: the modes say it. */
static bool differ_by_mode(const struct ha_hello *local, const struct ha_hello *remote)
{
	const uint64_t rails = HA_FEATURE_RAILS | HA_FEATURE_SHED | HA_FEATURE_TURN;

	return by_other_modes(local, remote) && local->version == remote->version &&
	       ((local->features ^ remote->features) & ~rails) == 0;
}

static void warn_differences(const struct ha_comm *comm, const struct ha_hello *local,
			     const struct ha_hello *remote, const struct ha_agreement *agreed)
{
	if (by_other_modes(local, remote))
		warn_other_mode(comm, local, remote);
	if (local->nrails != 0 && remote->nrails != 0 && local->nrails != remote->nrails)
		warn_other_size(comm, local, remote);
	if (agreed->downgraded && !differ_by_mode(local, remote))
		warn_downgrade(comm, local, remote, agreed);
}

static bool same_fabric(const struct ha_comm *comm, const struct ha_hello *local,
			const struct ha_hello *remote)
{
	if (local->endpoint.link_layer == remote->endpoint.link_layer)
		return true;
	HA_WARN("connection %s: one end is InfiniBand and the other Ethernet: check NCCL_IB_HCA",
		comm->name);
	return false;
}

/* What we will write into at the peer's end must be there. */
static bool ring_fits(const struct ha_comm *comm, const struct ha_hello *remote,
		      const struct ha_agreement *agreed)
{
	size_t needed = comm->is_send ? agreed->window * sizeof(struct ha_sizes)
				      : agreed->window * sizeof(struct ha_cts[HA_GROUP_MAX]);

	/* Mailboxes and the count of end-to-end completion lie behind them. */
	if (agreed->features != 0)
		needed = comm->is_send ? sizeof(struct ha_recv_ring) : sizeof(struct ha_send_ring);
	if (remote->endpoint.ring_length >= needed)
		return true;
	HA_WARN("connection %s: the peer's ring has %u bytes where %zu are needed", comm->name,
		remote->endpoint.ring_length, needed);
	return false;
}

ha_result_t ha_handshake_finish(struct ha_comm *comm, const struct ha_hello *local,
				const struct ha_hello *remote)
{
	struct ha_agreement agreed;

	comm->peer_id = remote->connection_id;
	name_connection(comm, local, remote);
	if (ha_hello_agree(local, remote, &agreed) != HA_WIRE_OK) {
		HA_WARN("connection %s: the peer speaks protocol versions %u to %u, we %u to %u: "
			"install the same version of the plugin on both hosts",
			comm->name, remote->min_version, remote->version, local->min_version,
			local->version);
		return HA_ERR_REMOTE;
	}
	if (!same_fabric(comm, local, remote))
		return HA_ERR_SYSTEM;
	if (remote->endpoint.nqps != local->endpoint.nqps) {
		HA_WARN("connection %s: the peer has %u queue pairs for our %u", comm->name,
			remote->endpoint.nqps, local->endpoint.nqps);
		return HA_ERR_INTERNAL;
	}
	if (!ring_fits(comm, remote, &agreed))
		return HA_ERR_INTERNAL;
	warn_differences(comm, local, remote, &agreed);
	comm->slot_mask = agreed.window - 1u;
	comm->features = agreed.features;
	if (ha_comm_has_failover(comm))
		comm->ops = comm->inst->failover;
	else if (comm->rto_ms < (uint32_t)comm->config->lone_rto_min_ms)
		comm->rto_ms = (uint32_t)comm->config->lone_rto_min_ms;
	if (agreed.features & HA_FEATURE_E2E)
		comm->silent = comm->is_send ? HA_SILENT_COUNT : HA_SILENT_TELL;
	/* With failover a first path that cannot be is like one that fails at once. */
	if (ha_path_connect(comm->paths[0], &remote->endpoint) != HA_OK &&
	    !ha_comm_has_failover(comm))
		return HA_ERR_SYSTEM;
	ha_comm_use_path(comm, 0);
	return comm->ops->open(comm, local, remote);
}

void ha_handshake_connected(const struct ha_comm *comm, struct ha_hello *local)
{
	if (comm->paths[0])
		local->endpoint.ece = comm->paths[0]->ece;
}

ha_result_t ha_handshake_publish(struct ha_comm *comm, struct ha_frame_sock *sock)
{
	const struct ha_path *path = comm->paths[0];
	const unsigned nqps = path->nqps, mtu = 128u << path->addr.mtu, inlined = path->max_inline;

	/* From the start on the path may fail and go at any time. */
	comm->ctrl_sock = ha_ctrl_sock_new(sock);
	if (!comm->ctrl_sock) {
		HA_WARN("out of memory for a connection's control channel");
		return HA_ERR_SYSTEM;
	}
	comm->ops->start(comm);
	if (ha_comm_start(comm) != HA_OK) {
		ha_comm_stop(comm);
		return HA_ERR_SYSTEM;
	}
	if (comm->silent & HA_SILENT_COUNT)
		ha_retain_open(comm);
	HA_INFO(HA_SUBSYS_NET,
		"connection %s is up: %u queue pair(s), MTU %u, inline %u, id %016llx", comm->name,
		nqps, mtu, inlined, (unsigned long long)comm->id);
	return HA_OK;
}
