/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/rates.h"

#include <stdlib.h>
#include <string.h>

/* A file's name may be another process's by now: its start tells. */
static const struct nh_process *same_process(const struct nh_snapshot *snapshot,
					     const struct nh_process *process)
{
	for (size_t i = 0; i < snapshot->nprocesses; i++)
		if (!strcmp(snapshot->processes[i].path, process->path) &&
		    snapshot->processes[i].job.started_ns == process->job.started_ns)
			return &snapshot->processes[i];
	return NULL;
}

static const struct nh_port *same_port(const struct nh_process *process, const struct nh_port *port)
{
	for (size_t i = 0; process && i < process->nports; i++)
		if (process->ports[i].slot == port->slot)
			return &process->ports[i];
	return NULL;
}

static double per_second(uint64_t before, uint64_t now, double seconds)
{
	return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void count_connections(struct nh_rate *rate)
{
	for (size_t i = 0; i < rate->process->nconns; i++) {
		const struct nccl_ha_conn_stats *conn = &rate->process->conns[i].stats;
		enum nh_standing standing = nh_standing(conn);

		if (nh_port_of(rate->process, conn->device) != rate->port)
			continue;
		rate->counts.connections++;
		rate->counts.by_standing[standing]++;
		if (standing > rate->worst)
			rate->worst = standing;
	}
}

struct nh_rate *nh_rates(const struct nh_snapshot *before, const struct nh_snapshot *now, size_t *n)
{
	double seconds = (double)(now->monotonic_ns - before->monotonic_ns) / 1e9;
	size_t room = 1;
	struct nh_rate *rates;

	for (size_t i = 0; i < now->nprocesses; i++)
		room += now->processes[i].nports;
	rates = calloc(room, sizeof(*rates));
	*n = 0;
	for (size_t i = 0; rates && i < now->nprocesses; i++) {
		const struct nh_process *process = &now->processes[i];
		const struct nh_process *earlier = same_process(before, process);

		for (size_t j = 0; j < process->nports; j++) {
			const struct nh_port *port = &process->ports[j];
			const struct nh_port *was = same_port(earlier, port);
			struct nh_rate *rate = &rates[(*n)++];

			rate->process = process;
			rate->port = port;
			count_connections(rate);
			rate->known = was != NULL;
			if (!was)
				continue;
			rate->bytes_per_s =
			    per_second(was->stats.bytes, port->stats.bytes, seconds);
			rate->messages_per_s =
			    per_second(was->stats.messages, port->stats.messages, seconds);
			rate->departures = port->stats.departures - was->stats.departures;
		}
	}
	return rates;
}
