/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connect: the connector's half of the handshake, a step per call, never waiting.
 *
 * NCCL calls again and again with the same handle memory. The handle keeps an attempt number;
 * the attempt itself is on the instance's list, so that a connect which is never finished is
 * freed with the instance at the latest.
 */
#include "transport/connect.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "transport/handshake.h"
#include "transport/path_connect.h"
#include "transport/shared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A refused or broken TCP connection is tried again for this long: the listener exists before its
 * handle travels, so a refusal means a full backlog, a dropped half-open slot or a dead peer.
 */
#define DIAL_TIMEOUT_MS	 20000
#define DIAL_INTERVAL_MS 50

/* Who is told that his key is another may be so: it is no use to hurry. */
#define MISTRUSTED_INTERVAL_MS 1000

/* Somebody should know by then that a connect waits. */
#define SAY_NS (10 * HA_NS_PER_S)

/* An attempt nobody has asked about for so long was given up by NCCL. */
#define ABANDONED_S 600

enum stage {
	STAGE_OPEN,
	STAGE_DIAL,
	STAGE_DIALING,
	STAGE_GREET,
	STAGE_HELLO,
	STAGE_ANSWER,
	STAGE_READY,
	STAGES
};

struct ha_attempt {
	struct ha_list in_instance; /* under the instance's lock */
	uint64_t id;
	uint64_t called_ns;
	/* The rest belongs to the thread that calls connect with this handle. */
	struct ha_instance *inst;
	struct ha_port *port;
	struct ha_rail_choice choice; /* of its bundle */
	int traffic_class;
	struct ha_handle handle;
	enum stage stage;
	ha_result_t result; /* of HA_STEP_FAIL */
	uint64_t began_ns;
	uint64_t waits_since_ns; /* in this stage; 0: not yet */
	bool said;		 /* that it waits */
	bool mistrusted;	 /* it was said that the keys of the two ends are not the same */
	uint64_t give_up_ns;	 /* 0: no failure yet */
	char obstacle[120];	 /* what it was */
	uint64_t next_dial_ns;
	struct ha_frame_sock sock;
	struct ha_comm *comm;
	struct ha_hello local;
	uint8_t hello[HA_HELLO_BYTES]; /* as it was said */
	/* Ports of ours that do not reach the peer, and which the first of them was not to reach.
	 */
	struct ha_port *unreached[HA_MAX_PORTS];
	unsigned n_unreached;
	struct ha_reject asked;
};

static const char *peer_text(const struct ha_attempt *attempt, char *buf, size_t size)
{
	return ha_sockaddr_text(&attempt->handle.addr, buf, size);
}

/* ---- attempts ------------------------------------------------------------------------------ */

static void attempt_free(struct ha_attempt *attempt)
{
	ha_frame_sock_close(&attempt->sock);
	ha_comm_free(attempt->comm);
	free(attempt);
}

static void attempt_drop(struct ha_attempt *attempt)
{
	struct ha_instance *inst = attempt->inst;

	pthread_mutex_lock(&inst->lock);
	ha_list_remove(&attempt->in_instance);
	pthread_mutex_unlock(&inst->lock);
	attempt_free(attempt);
}

/* The attempt of this number, if there is one; drops those that were given up. */
static struct ha_attempt *attempt_find(struct ha_instance *inst, uint64_t id)
{
	struct ha_attempt *found = NULL;
	struct ha_list *pos, *after, given_up;
	uint64_t now_ns;

	ha_list_init(&given_up);
	pthread_mutex_lock(&inst->lock);
	/* Read under the lock: no attempt in the list was called later than that, by any thread. */
	now_ns = ha_now_ns();
	ha_list_for_each_safe (pos, after, &inst->attempts) {
		struct ha_attempt *attempt = ha_container_of(pos, struct ha_attempt, in_instance);

		if (id != 0 && attempt->id == id) {
			attempt->called_ns = now_ns;
			found = attempt;
		} else if (now_ns - attempt->called_ns > ABANDONED_S * HA_NS_PER_S) {
			ha_list_remove(pos);
			ha_list_push_back(&given_up, pos);
		}
	}
	pthread_mutex_unlock(&inst->lock);
	while ((pos = ha_list_pop_front(&given_up)) != NULL)
		attempt_free(ha_container_of(pos, struct ha_attempt, in_instance));
	return found;
}

static struct ha_attempt *attempt_new(struct ha_instance *inst, struct ha_port *port,
				      int traffic_class, const struct ha_handle *handle)
{
	struct ha_attempt *attempt = calloc(1, sizeof(*attempt));

	if (!attempt) {
		HA_WARN("out of memory for a connection attempt");
		return NULL;
	}
	attempt->id = ha_random();
	attempt->called_ns = attempt->began_ns = ha_now_ns();
	attempt->inst = inst;
	attempt->choice = ha_rail_island_choose(inst, port, handle->gid);
	attempt->port = attempt->choice.port;
	attempt->traffic_class = traffic_class;
	attempt->handle = *handle;
	ha_net_reach_over(&attempt->handle.addr, inst->bootstrap_ifindex);
	attempt->sock.fd = -1;
	pthread_mutex_lock(&inst->lock);
	ha_list_push_back(&inst->attempts, &attempt->in_instance);
	pthread_mutex_unlock(&inst->lock);
	return attempt;
}

void ha_connect_abandon_all(struct ha_instance *inst)
{
	struct ha_list *pos;

	pthread_mutex_lock(&inst->lock);
	while ((pos = ha_list_pop_front(&inst->attempts)) != NULL)
		attempt_free(ha_container_of(pos, struct ha_attempt, in_instance));
	pthread_mutex_unlock(&inst->lock);
}

/* ---- stages -------------------------------------------------------------------------------- */

static enum ha_step fail(struct ha_attempt *attempt, ha_result_t result)
{
	attempt->result = result;
	return HA_STEP_FAIL;
}

/* Back to the start, where it waits for so long. False: that has been going on for too long. */
static bool begin_again(struct ha_attempt *attempt, uint64_t interval_ms)
{
	uint64_t now_ns = ha_now_ns();

	ha_frame_sock_close(&attempt->sock);
	if (attempt->stage >= STAGE_GREET) { /* somebody has been told of its queue pairs */
		ha_comm_free(attempt->comm);
		attempt->comm = NULL;
	}
	if (attempt->give_up_ns == 0)
		attempt->give_up_ns = now_ns + DIAL_TIMEOUT_MS * HA_NS_PER_MS;
	attempt->next_dial_ns = now_ns + interval_ms * HA_NS_PER_MS;
	attempt->stage = STAGE_OPEN;
	return now_ns < attempt->give_up_ns;
}

static unsigned age_s(const struct ha_attempt *attempt)
{
	return (unsigned)((ha_now_ns() - attempt->began_ns) / HA_NS_PER_S);
}

static enum ha_step retry(struct ha_attempt *attempt, const char *what, const char *why)
{
	char peer[HA_SOCKADDR_TEXT_MAX];

	if (!begin_again(attempt, DIAL_INTERVAL_MS)) {
		HA_WARN("connect to %s: %s: %s, for %u s now: is the peer process alive, and the "
			"network of NCCL_SOCKET_IFNAME up on both hosts?",
			peer_text(attempt, peer, sizeof(peer)), what, why, age_s(attempt));
		return fail(attempt, HA_ERR_REMOTE);
	}
	HA_TRACE(1, "connect to %s: %s: %s; trying again", peer_text(attempt, peer, sizeof(peer)),
		 what, why);
	snprintf(attempt->obstacle, sizeof(attempt->obstacle), "%s: %s", what, why);
	return HA_STEP_RETRY;
}

static enum ha_step unreachable(struct ha_attempt *attempt)
{
	const struct ha_port *own = attempt->unreached[0];
	char peer[HA_SOCKADDR_TEXT_MAX];

	HA_WARN("connect to %s: the kernel has no route between %s:%d here and %s:%u there, nor "
		"from another port here (%u tried): give the rails routes to each other ('ip route "
		"get ADDRESS oif INTERFACE' must find one at both hosts), or have NCCL connect "
		"ports of one rail (NCCL_IB_HCA in one order on all hosts, NCCL_CROSS_NIC=0)",
		peer_text(attempt, peer, sizeof(peer)), own->nic->name, own->port_num,
		attempt->asked.device, attempt->asked.port_num, attempt->n_unreached);
	return fail(attempt, HA_ERR_REMOTE);
}

/*
 * Queue pairs are made before it dials: at the listener nothing is between the first byte and who
 * else wants in.
 */
static enum ha_step open_end(struct ha_attempt *attempt)
{
	const struct ha_first_path first = {.wanted = attempt->choice,
					    .unreached = attempt->unreached,
					    .n_unreached = attempt->n_unreached};
	ha_result_t result;

	if (attempt->comm)
		return HA_STEP_NEXT; /* of a dial that said nothing */
	result = ha_handshake_open(attempt->inst, true, &first, &attempt->comm);
	if (result == HA_ERR_REMOTE)
		return unreachable(attempt);
	return result == HA_OK ? HA_STEP_NEXT : fail(attempt, result);
}

static enum ha_step dial(struct ha_attempt *attempt)
{
	const union ha_sockaddr *addr = &attempt->handle.addr;
	int fd;

	if (attempt->next_dial_ns != 0 && ha_now_ns() < attempt->next_dial_ns)
		return HA_STEP_AGAIN;
	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		HA_WARN("connect: socket: %s%s", strerror(errno),
			ha_net_is_shortage(errno) ? "; raise 'ulimit -n'" : "");
		return fail(attempt, HA_ERR_SYSTEM);
	}
	ha_frame_sock_open(&attempt->sock, fd);
	ha_frame_sock_keep(&attempt->sock);
	if (connect(fd, &addr->sa, ha_sockaddr_len(addr)) != 0 && errno != EINPROGRESS)
		return retry(attempt, "connect", strerror(errno));
	return HA_STEP_NEXT;
}

static enum ha_step dialing(struct ha_attempt *attempt)
{
	const union ha_sockaddr *addr = &attempt->handle.addr;
	int fd = attempt->sock.fd;
	socklen_t len = sizeof(int);
	int error = 0;

	/* A second connect tells whether the first is through; SO_ERROR why it is not. */
	if (connect(fd, &addr->sa, ha_sockaddr_len(addr)) == 0 || errno == EISCONN)
		return HA_STEP_NEXT;
	if (errno == EALREADY || errno == EINPROGRESS || errno == EINTR)
		return HA_STEP_AGAIN;
	error = errno;
	if (error == ECONNABORTED)
		(void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
	return retry(attempt, "connect", strerror(error));
}

static enum ha_step greet(struct ha_attempt *attempt)
{
	const struct ha_config *config = &attempt->inst->config;
	ha_handshake_hello(attempt->comm, attempt->handle.secrets.ask,
			   ha_path_sl(config, attempt->traffic_class),
			   ha_path_tc(config, attempt->traffic_class), &attempt->local);
	if (!ha_handshake_say_hello(attempt->comm, &attempt->local, NULL, attempt->hello))
		return fail(attempt, HA_ERR_SYSTEM);
	if (!ha_frame_sock_queue(&attempt->sock, HA_FRAME_HELLO, attempt->hello,
				 sizeof(attempt->hello)))
		return fail(attempt, HA_ERR_INTERNAL);
	return HA_STEP_NEXT;
}

static enum ha_step flush(struct ha_attempt *attempt)
{
	switch (ha_frame_sock_flush(&attempt->sock)) {
	case HA_IO_DONE:
		return HA_STEP_NEXT;
	case HA_IO_AGAIN:
		return HA_STEP_AGAIN;
	default:
		return retry(attempt, "sending", ha_frame_sock_why(&attempt->sock));
	}
}

/* Whoever answers is not the listener. */
static enum ha_step stranger(struct ha_attempt *attempt, const char *during, const char *reason)
{
	ha_instance_refused(attempt->inst, HA_refused_handshakes);
	return retry(attempt, during, reason);
}

/* Our port does not reach the listener's: again, from another one. */
static enum ha_step elsewhere(struct ha_attempt *attempt, const struct ha_reject *asked)
{
	struct ha_port *port = attempt->comm->paths[0]->port;

	HA_INFO(HA_SUBSYS_NET, "the kernel has no route between %s:%d here and the peer's %s:%u",
		port->nic->name, port->port_num, asked->device, asked->port_num);
	if (attempt->n_unreached == 0)
		attempt->asked = *asked;
	attempt->unreached[attempt->n_unreached++] = port;
	ha_frame_sock_close(&attempt->sock);
	ha_comm_free(attempt->comm);
	attempt->comm = NULL;
	attempt->stage = STAGE_OPEN;
	return HA_STEP_RETRY;
}

/*
 * It knows the handle's secrets, which are in clear, and has not our key: another process of the
 * job that was given another one, or who has heard them and cannot be what ends this attempt.
 */
static enum ha_step mistrusted(struct ha_attempt *attempt, const char *why)
{
	char peer[HA_SOCKADDR_TEXT_MAX], key[256];

	peer_text(attempt, peer, sizeof(peer));
	ha_handshake_key_text(attempt->inst, key, sizeof(key));
	ha_instance_refused(attempt->inst, HA_refused_handshakes);
	if (!begin_again(attempt, MISTRUSTED_INTERVAL_MS)) {
		HA_WARN("connect to %s: given up after %u s: %s: give all processes of the job the "
			"same key (ours: %s)",
			peer, age_s(attempt), why, key);
		return fail(attempt, HA_ERR_REMOTE);
	}
	if (!attempt->mistrusted)
		HA_WARN("connect to %s: %s, or a stranger answers in its place: trying again; give "
			"all processes of the job the same key (ours: %s)",
			peer, why, key);
	attempt->mistrusted = true;
	snprintf(attempt->obstacle, sizeof(attempt->obstacle), "%s", why);
	return HA_STEP_RETRY;
}

static enum ha_step rejected(struct ha_attempt *attempt, const uint8_t *payload, uint32_t length)
{
	const struct ha_job_key *key = attempt->inst->job_key;
	struct ha_reject reject = {0};
	char peer[HA_SOCKADDR_TEXT_MAX];

	if (ha_reject_decode(payload, length, &reject) != HA_WIRE_OK ||
	    reject.secret != attempt->handle.secrets.answer)
		return stranger(attempt, "a refusal is", "not the listener's");
	if (reject.reason == HA_REJECT_KEY)
		return mistrusted(attempt, "it refuses our job key");
	if (key && !ha_auth_reject_is_genuine(key, attempt->hello, payload))
		return stranger(attempt, "a refusal is", "not proved by the job's key");
	if (reject.reason == HA_REJECT_ROUTE)
		return elsewhere(attempt, &reject);
	if (reject.reason == HA_REJECT_VERSION)
		HA_WARN(
		    "connect to %s: the listener speaks protocol versions %u to %u, we %u to %u: "
		    "install the same version of the plugin on both hosts",
		    peer_text(attempt, peer, sizeof(peer)), reject.min_version, reject.version,
		    HA_WIRE_MIN_VERSION, HA_WIRE_VERSION);
	else
		HA_WARN("connect to %s: the listener could not make its end (reason %u); its log "
			"says why",
			peer_text(attempt, peer, sizeof(peer)), reject.reason);
	return fail(attempt, HA_ERR_REMOTE);
}

static enum ha_step accepted(struct ha_attempt *attempt, const uint8_t *payload, uint32_t length)
{
	enum ha_wire_result decoded;
	struct ha_reject asked = {0};
	struct ha_hello remote;
	const char *why;
	ha_result_t result;

	decoded = ha_hello_decode(payload, length, &remote);
	if (decoded != HA_WIRE_OK || remote.secret != attempt->handle.secrets.answer)
		return stranger(attempt, "the listener's hello is",
				decoded != HA_WIRE_OK
				    ? ha_wire_strerror(decoded)
				    : "not the listener's: its secret is another");
	why = ha_handshake_mistrusts(attempt->inst, &remote, attempt->hello, payload);
	if (why)
		return mistrusted(attempt, why);
	if (!ha_handshake_reaches(attempt->comm->paths[0]->port, &remote.endpoint)) {
		asked.port_num = remote.endpoint.port_num;
		ha_copy_text(asked.device, sizeof(asked.device), remote.endpoint.device);
		return elsewhere(attempt, &asked);
	}
	/* One traffic class for both directions: the connector's. */
	remote.endpoint.sl = attempt->local.endpoint.sl;
	remote.endpoint.traffic_class = attempt->local.endpoint.traffic_class;
	result = ha_handshake_finish(attempt->comm, &attempt->local, &remote);
	if (result != HA_OK)
		return fail(attempt, result);
	result = ha_handshake_authenticate(attempt->comm, &attempt->sock, &attempt->local, &remote);
	if (result != HA_OK)
		return fail(attempt, result);
	if (!ha_frame_sock_queue(&attempt->sock, HA_FRAME_READY, NULL, 0))
		return fail(attempt, HA_ERR_INTERNAL);
	return HA_STEP_NEXT;
}

static enum ha_step answer(struct ha_attempt *attempt)
{
	struct ha_frame_header header;
	const uint8_t *payload;

	switch (ha_frame_sock_receive(&attempt->sock, &header, &payload)) {
	case HA_IO_DONE:
		break;
	case HA_IO_AGAIN:
		return HA_STEP_AGAIN;
	case HA_IO_CLOSED:
		return retry(attempt, "waiting for the listener",
			     ha_frame_sock_why(&attempt->sock));
	default:
		return stranger(attempt, "the listener's answer is",
				ha_wire_strerror(attempt->sock.bad));
	}
	if (header.type == HA_FRAME_REJECT)
		return rejected(attempt, payload, header.length);
	if (header.type != HA_FRAME_HELLO)
		return stranger(attempt, "the listener's answer is", "not a hello");
	return accepted(attempt, payload, header.length);
}

static enum ha_step (*const stages[STAGES])(struct ha_attempt *) = {
    [STAGE_OPEN] = open_end, [STAGE_DIAL] = dial,   [STAGE_DIALING] = dialing,
    [STAGE_GREET] = greet,   [STAGE_HELLO] = flush, [STAGE_ANSWER] = answer,
    [STAGE_READY] = flush,
};

/* What a stage waits for, and how long until that counts as lost; 0: it sees to that itself. */
static const struct {
	uint32_t limit_ms;
	const char *on;
} waits[STAGES] = {
    [STAGE_DIALING] = {DIAL_TIMEOUT_MS, "waiting for the listener's host"},
    [STAGE_HELLO] = {HA_HANDSHAKE_PEER_MS, "waiting for the listener to read"},
    [STAGE_ANSWER] = {HA_HANDSHAKE_PEER_MS, "waiting for the listener's answer"},
    [STAGE_READY] = {HA_HANDSHAKE_PEER_MS, "waiting for the listener to read"},
};

/* Once in an attempt: the job seems to hang, and here is why. */
static void say_that_it_waits(struct ha_attempt *attempt, uint64_t now_ns)
{
	const char *on = waits[attempt->stage].on;
	char peer[HA_SOCKADDR_TEXT_MAX];

	if (attempt->said || now_ns - attempt->began_ns < SAY_NS)
		return;
	attempt->said = true;
	HA_WARN("connect to %s: not through after %d s: %s", peer_text(attempt, peer, sizeof(peer)),
		(int)(SAY_NS / HA_NS_PER_S), on ? on : attempt->obstacle);
}

static enum ha_step wait_on(struct ha_attempt *attempt)
{
	const uint64_t limit_ns = waits[attempt->stage].limit_ms * HA_NS_PER_MS;
	const uint64_t now_ns = ha_now_ns();

	if (attempt->waits_since_ns == 0)
		attempt->waits_since_ns = now_ns;
	say_that_it_waits(attempt, now_ns);
	if (limit_ns != 0 && now_ns - attempt->waits_since_ns >= limit_ns)
		return retry(attempt, waits[attempt->stage].on, "it says nothing");
	return HA_STEP_AGAIN;
}

/* HA_STEP_NEXT: all stages are through. */
static enum ha_step run(struct ha_attempt *attempt)
{
	while (attempt->stage < STAGES) {
		enum ha_step step = stages[attempt->stage](attempt);

		if (step == HA_STEP_AGAIN)
			step = wait_on(attempt);
		if (step == HA_STEP_AGAIN || step == HA_STEP_FAIL)
			return step;
		attempt->waits_since_ns = 0;
		if (step == HA_STEP_NEXT)
			attempt->stage++;
	}
	return HA_STEP_NEXT;
}

/* ---- connect ------------------------------------------------------------------------------- */

static ha_result_t read_handle(const uint8_t *bytes, struct ha_handle *handle)
{
	enum ha_wire_result decoded = ha_handle_decode(bytes, handle);

	if (decoded != HA_WIRE_OK) {
		HA_WARN("connect: the handle is %s: does the peer use the same plugin?",
			ha_wire_strerror(decoded));
		return HA_ERR_ARGUMENT;
	}
	return HA_OK;
}

static ha_result_t publish(struct ha_attempt *attempt, struct ha_comm **out)
{
	HA_TRY(ha_handshake_publish(attempt->comm, &attempt->sock));
	*out = attempt->comm;
	attempt->comm = NULL;
	return HA_OK;
}

ha_result_t ha_connect(struct ha_instance *inst, int dev, int traffic_class, void *handle_bytes,
		       struct ha_comm **out)
{
	struct ha_attempt *attempt = attempt_find(inst, ha_handle_attempt(handle_bytes));
	struct ha_port *port = ha_instance_port(inst, dev);
	ha_result_t result = HA_OK;

	*out = NULL;
	if (!attempt) {
		struct ha_handle handle;

		if (!port) {
			HA_WARN("connect: there is no device %d", dev);
			return HA_ERR_ARGUMENT;
		}
		HA_TRY(read_handle(handle_bytes, &handle));
		attempt = attempt_new(inst, port, traffic_class, &handle);
		if (!attempt)
			return HA_ERR_SYSTEM;
		ha_handle_set_attempt(handle_bytes, attempt->id);
	}
	switch (run(attempt)) {
	case HA_STEP_NEXT:
		result = publish(attempt, out);
		break;
	case HA_STEP_FAIL:
		result = attempt->result;
		break;
	default:
		return HA_OK;
	}
	ha_handle_set_attempt(handle_bytes, 0);
	attempt_drop(attempt);
	return result;
}
