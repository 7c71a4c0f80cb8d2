/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/measured.h"

#include "base/clock.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "tools/common/unless_cut.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define SMALLEST	 16u /* of a rail that works: else nothing is known of it */
#define STEP		 64u
#define DEAD_BAND	 31u /* 3 % */
#define HOLD_LEAST_MS	 1000u
#define HOLD_MOST_MS	 60000u
#define FORGIVEN_NS	 (600 * HA_NS_PER_S) /* without a loss: the next one is the first */
#define PORT_ACTIVE	 4u
#define BUSY_PART	 10 /* less traffic than a tenth of the ports' speed says nothing of them */
#define BYTES_OF_MBPS(m) ((double)(m)*125000.0)

/* ---- figures of ports ------------------------------------------------------------------------ */

static struct na_port *port_of(struct na_measured *m, uint32_t ip)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->port[i].ip == ip)
			return &m->port[i];
	if (m->n == NA_PORTS_MAX)
		return NULL;
	m->port[m->n] = (struct na_port){.ip = ip};
	return &m->port[m->n++];
}

static const struct na_port *find_port(const struct na_measured *m, uint32_t ip)
{
	for (unsigned i = 0; i < m->n; i++)
		if (m->port[i].ip == ip && m->port[i].seen)
			return &m->port[i];
	return NULL;
}

void na_measured_begin(struct na_measured *m)
{
	for (unsigned i = 0; i < m->n; i++) {
		struct na_port *port = &m->port[i];

		port->new_bytes = port->new_rtt_sum_ns = port->new_rtt_count = 0;
		port->new_seen = false;
	}
}

void na_measured_add(struct na_measured *m, const struct na_figures *figures)
{
	struct na_port *port = port_of(m, figures->ip);

	if (!port)
		return;
	/* Whoever says that it is not well is believed. */
	port->new_healthy = figures->healthy && (port->new_healthy || !port->new_seen);
	port->new_seen = true;
	port->speed_mbps = figures->speed_mbps;
	port->new_bytes += figures->bytes;
	port->new_rtt_sum_ns += figures->rtt_sum_ns;
	port->new_rtt_count += figures->rtt_count;
}

static void note_health(struct na_port *port, uint64_t now_ns)
{
	bool healthy = port->new_seen && port->new_healthy;

	if (port->healthy && !healthy) {
		bool first = port->hold_ms == 0 || now_ns - port->lost_ns > FORGIVEN_NS;

		port->hold_ms = first ? HOLD_LEAST_MS : 2 * port->hold_ms;
		if (port->hold_ms > HOLD_MOST_MS)
			port->hold_ms = HOLD_MOST_MS;
		port->lost_ns = now_ns;
	} else if (!port->healthy && healthy && port->hold_ms > 0) {
		port->held_until_ns = now_ns + port->hold_ms * HA_NS_PER_MS;
	}
	port->healthy = healthy;
	port->seen = port->new_seen;
}

/* Sums that went down are those of fewer processes: a look without figures. */
static void note_traffic(struct na_port *port, double seconds)
{
	double weight = 1 - exp(-seconds), rate, rtt;

	if (port->new_bytes >= port->bytes) {
		rate = (double)(port->new_bytes - port->bytes) / seconds;
		port->rate += weight * (rate - port->rate);
	}
	if (port->new_rtt_count > port->rtt_count && port->new_rtt_sum_ns > port->rtt_sum_ns) {
		rtt = (double)(port->new_rtt_sum_ns - port->rtt_sum_ns) /
		      (double)(port->new_rtt_count - port->rtt_count);
		port->rtt_ns =
		    port->rtt_ns > 0 ? port->rtt_ns + weight * (rtt - port->rtt_ns) : rtt;
		if (port->rtt_least_ns == 0 || rtt < port->rtt_least_ns)
			port->rtt_least_ns = rtt;
	}
}

void na_measured_end(struct na_measured *m, uint64_t now_ns)
{
	double seconds = (double)(now_ns - m->sampled_ns) / (double)HA_NS_PER_S;

	for (unsigned i = 0; i < m->n; i++) {
		struct na_port *port = &m->port[i];

		if (m->sampled_ns != 0 && seconds > 0)
			note_traffic(port, seconds);
		note_health(port, now_ns);
		port->bytes = port->new_bytes;
		port->rtt_sum_ns = port->new_rtt_sum_ns;
		port->rtt_count = port->new_rtt_count;
	}
	m->sampled_ns = now_ns;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Of a GID that stands for an IPv4 address; 0: it does not. */
static uint32_t ipv4_of(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	uint32_t ip = 0;

	if (memcmp(gid, mapped, sizeof(mapped)) == 0)
		memcpy(&ip, gid + sizeof(mapped), sizeof(ip));
	return ip;
}

static void add_port(struct na_measured *m, const struct nccl_ha_port_stats *port)
{
	const bool answered = port->sessions == 0 || port->sessions_up > 0;
	struct na_figures figures = {
	    .ip = ipv4_of(port->gid),
	    .speed_mbps = port->speed_mbps,
	    .healthy =
		port->state == PORT_ACTIVE && !port->device_fatal && !port->drained && answered,
	    .bytes = port->bytes,
	    .rtt_sum_ns = port->heartbeat_rtt.sum_ns,
	};

	if (figures.ip == 0)
		return;
	for (unsigned i = 0; i < NCCL_HA_HISTOGRAM_BUCKETS; i++)
		figures.rtt_count += port->heartbeat_rtt.count[i];
	na_measured_add(m, &figures);
}

struct reading {
	struct na_measured *m;
	int fd;
	struct ha_stats_reader reader;
};

static void add_ports(void *arg)
{
	struct reading *r = arg;
	struct nccl_ha_port_stats port;

	if (ha_stats_reader_open_fd(&r->reader, r->fd) != 0)
		return;
	for (unsigned i = 0; i < r->reader.header.ports.count; i++)
		if (ha_stats_read_port(&r->reader, i, &port))
			add_port(r->m, &port);
}

static void add_process(void *arg, const struct ha_stats_found *found)
{
	struct reading r = {.m = arg, .fd = found->fd};

	if (!found->live)
		return;
	(void)np_unless_cut(add_ports, &r); /* what was read before counts */
	ha_stats_reader_close(&r.reader);
}

void na_measured_sample(struct na_measured *m, uint64_t now_ns)
{
	na_measured_begin(m);
	(void)ha_stats_files_visit(geteuid() == 0 ? HA_STATS_ALL_USERS : geteuid(), add_process, m);
	na_measured_end(m, now_ns);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static bool is_usable(const struct na_port *port, uint64_t now_ns)
{
	return port && port->healthy && now_ns >= port->held_until_ns;
}

static double weight_of(const struct na_port *port, bool busy)
{
	double queueing = 1;

	if (port->rtt_ns > port->rtt_least_ns)
		queueing = sqrt(port->rtt_least_ns / port->rtt_ns);
	return (busy ? port->rate : BYTES_OF_MBPS(port->speed_mbps)) * queueing;
}

/* Of two rails that both may be used. */
static uint32_t target(const struct na_port *sout, const struct na_port *sup)
{
	double speeds = BYTES_OF_MBPS(sout->speed_mbps) + BYTES_OF_MBPS(sup->speed_mbps);
	bool busy = (sout->rate + sup->rate) * BUSY_PART > speeds;
	double a = weight_of(sout, busy), b = weight_of(sup, busy), share;

	if (!(a + b > 0))
		return SMALLEST;
	share = b / (a + b) * MPIB_HINT_ALL;
	if (share < SMALLEST)
		return SMALLEST;
	return share > MPIB_HINT_ALL - SMALLEST ? MPIB_HINT_ALL - SMALLEST : (uint32_t)share;
}

uint32_t na_measured_share(const struct na_measured *m, const struct ha_agent_flow *flow,
			   uint32_t share, uint64_t now_ns)
{
	const struct na_port *sout = find_port(m, flow->sout_src_ip);
	const struct na_port *sup = find_port(m, flow->sup_src_ip);
	uint32_t wanted;

	/* A loss is no matter of steps. */
	if (!is_usable(sup, now_ns))
		return 0;
	if (!is_usable(sout, now_ns))
		return MPIB_HINT_ALL;
	wanted = target(sout, sup);
	if (wanted > share)
		return wanted - share <= DEAD_BAND ? share
		       : wanted - share > STEP	   ? share + STEP
						   : wanted;
	return share - wanted <= DEAD_BAND ? share : share - wanted > STEP ? share - STEP : wanted;
}
