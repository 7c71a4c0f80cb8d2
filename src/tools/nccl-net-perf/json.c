/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON report: everything the table says and what does not fit in it. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/version.h"
#include "tools/nccl-net-perf/json.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/report.h"
#include "tools/nccl-net-perf/resources.h"

#define JSON_LAYOUT 1 /* raised when a member changes its meaning or goes away */

static json_t *integer(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *text(const char *value)
{
	return value ? json_string_nocheck(value) : json_null();
}

/* [NAME=VALUE, …] */
static json_t *settings_array(const struct np_settings *s)
{
	json_t *pairs = json_array();

	for (int i = 0; i < s->count; i++)
		json_array_append_new(pairs, text(s->pairs[i]));
	return pairs;
}

static json_t *plugin_object(const struct np_side *side, const struct np_settings *env)
{
	json_t *devices = json_array();

	for (int d = 0; d < side->ndev; d++) {
		const ncclNetProperties_v12_t *p = &side->props[d];

		json_array_append_new(devices,
				      json_pack("{s:o, s:o, s:I, s:i, s:i, s:i, s:i, s:b}", "name",
						text(p->name), "pci_path", text(p->pciPath), "guid",
						(json_int_t)p->guid, "port", p->port, "speed_mbps",
						p->speed, "max_comms", p->maxComms, "max_recvs",
						p->maxRecvs, "reg_is_global", p->regIsGlobal));
	}
	return json_pack("{s:s, s:s, s:i, s:s, s:o, s:o}", "name", np_name(side->net), "path",
			 np_path(side->net), "api", np_api(side->net), "via",
			 np_via_names[side->via], "env", settings_array(env), "devices", devices);
}

static json_t *options_object(const struct np_options *o)
{
	return json_pack(
	    "{s:i, s:I, s:i, s:i, s:i, s:i, s:f, s:i, s:b, s:b, s:f, s:f, s:b, s:f, s:f, s:i}",
	    "channels", o->channels, "chunk", (json_int_t)o->chunk, "depth", o->depth, "iterations",
	    o->iterations, "warmup", o->warmup, "checks", o->checks, "seconds", o->seconds,
	    "cycles", o->cycles, "flush", (int)o->flush, "reg_churn", (int)o->churn, "timeout_s",
	    o->timeout_s, "stall_ms", o->stall_ms, "canary", (int)o->canary, "linger_ms",
	    o->canary ? o->linger_ms : 0.0, "pause_ms", o->pause_ms, "nap_us", o->nap_us);
}

static json_t *latency_object(const struct np_histogram *h)
{
	static const struct {
		const char *name;
		double q;
	} points[] = {
	    {"p50", 0.5},  {"p90", 0.9},     {"p95", 0.95},
	    {"p99", 0.99}, {"p99_9", 0.999}, {"p99_99", 0.9999},
	};
	json_t *buckets = json_array(), *object;

	for (size_t i = 0; i < NP_HIST_BUCKETS; i++)
		if (h->buckets[i])
			json_array_append_new(
			    buckets, json_pack("[I, I]", (json_int_t)np_histogram_bucket_ns(i),
					       (json_int_t)h->buckets[i]));
	object = json_pack("{s:I, s:I, s:I, s:f, s:o}", "count", (json_int_t)h->count, "min_ns",
			   (json_int_t)(h->count ? h->min_ns : 0), "max_ns", (json_int_t)h->max_ns,
			   "mean_ns", h->count ? (double)h->sum_ns / (double)h->count : 0.0,
			   "buckets", buckets);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
		json_object_set_new(object, points[i].name,
				    integer(np_histogram_quantile(h, points[i].q)));
	return object;
}

static json_t *stalls_array(const struct np_row *row, int nranks)
{
	json_t *stalls = json_array();

	for (int r = 0; r < nranks; r++) {
		const struct np_sample *s = &row->samples[r];

		for (uint64_t i = 0; i < s->stalls_seen && i < NP_STALLS_KEPT; i++)
			json_array_append_new(
			    stalls, json_pack("{s:i, s:f, s:f}", "rank", r, "start_ms",
					      (double)s->stalls[i].start_ns / 1e6, "duration_ms",
					      (double)s->stalls[i].duration_ns / 1e6));
	}
	return stalls;
}

/* Time of one iteration in each block, mean over the ranks. */
static json_t *rounds_array(const struct np_row *row, const struct np_rank *rk)
{
	json_t *rounds = json_array();

	for (int round = 0; round < rk->o->rounds; round++) {
		double ns = 0;

		for (int r = 0; r < rk->nranks; r++)
			ns += (double)row->samples[r].round_ns[round];
		json_array_append_new(rounds, json_real(ns / 1e3 / rk->nranks / rk->o->iterations));
	}
	return rounds;
}

static json_t *row_object(const struct np_row *row, const struct np_rank *rk)
{
	json_t *object = json_pack(
	    "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o}", "op",
	    np_op_names[row->op], "type", np_type_names[row->type], "size", (json_int_t)row->size,
	    "count", (json_int_t)row->count, "time_us", row->time_us, "algbw_gbps", row->algbw,
	    "busbw_gbps", row->busbw, "wrong", (json_int_t)row->wrong, "iterations",
	    (json_int_t)row->iterations, "checked", (json_int_t)row->checked, "stalls_seen",
	    (json_int_t)row->stalls_seen, "stalls", stalls_array(row, rk->nranks), "latency",
	    latency_object(&row->latency));

	if (rk->o->canary)
		json_object_set_new(object, "late", integer(row->late));
	if (rk->nsides > 1) {
		json_object_set_new(object, "plugin", json_integer(row->side));
		json_object_set_new(object, "round_us", rounds_array(row, rk));
		if (row->speedup.median > 0)
			json_object_set_new(object, "speedup",
					    json_pack("{s:f, s:f, s:f}", "median",
						      row->speedup.median, "low", row->speedup.low,
						      "high", row->speedup.high));
	}
	return object;
}

/* The slowest and the largest of the ranks. */
static json_t *setup_object(const struct np_report *rp)
{
	double seconds = 0;
	int connections = 0;
	long fds = 0, kib = 0;

	for (int r = 0; r < rp->rk->nranks; r++) {
		const struct np_setup *s = &rp->setups[r];

		seconds = s->seconds > seconds ? s->seconds : seconds;
		connections = s->connections > connections ? s->connections : connections;
		fds = s->after.fds - s->before.fds > fds ? s->after.fds - s->before.fds : fds;
		kib = s->after.rss_kib - s->before.rss_kib > kib
			  ? s->after.rss_kib - s->before.rss_kib
			  : kib;
	}
	return json_pack("{s:f, s:i, s:I, s:I}", "seconds", seconds, "connections", connections,
			 "descriptors", (json_int_t)fds, "resident_kib", (json_int_t)kib);
}

static json_t *timeline_object(const struct np_report *rp)
{
	json_t *ranks = json_array();

	for (int r = 0; r < rp->rk->nranks; r++) {
		json_t *bytes = json_array();

		for (size_t i = 0; i < rp->timeline_lens[r]; i++)
			json_array_append_new(bytes, integer(rp->timelines[r][i]));
		json_array_append_new(ranks, bytes);
	}
	return json_pack("{s:f, s:o}", "interval_ms", rp->rk->o->timeline_ms, "bytes_received",
			 ranks);
}

/* {bytes, seen, events: [{rank, text, …}]}: memory that changed while it waited for nothing. */
static json_t *late_object(const struct np_report *rp)
{
	json_t *events = json_array();
	uint64_t bytes = 0, seen = 0;
	char line[400];

	for (int r = 0; r < rp->rk->nranks; r++) {
		const struct np_late_list *list = &rp->late[r];

		bytes += list->bytes;
		seen += list->seen;
		for (uint64_t i = 0; i < list->seen && i < NP_LATE_KEPT; i++) {
			const struct np_late *late = &list->late[i];

			np_canary_describe(late, line, sizeof(line));
			json_array_append_new(events,
					      json_pack("{s:i, s:f, s:I, s:I, s:b, s:s}", "rank", r,
							"at_ms", (double)late->seen_ns / 1e6,
							"offset", (json_int_t)late->offset, "bytes",
							(json_int_t)late->bytes, "beyond",
							(int)late->beyond, "text", line));
		}
	}
	return json_pack("{s:I, s:I, s:o}", "bytes", (json_int_t)bytes, "seen", (json_int_t)seen,
			 "events", events);
}

bool np_report_write_json(const struct np_report *rp, struct np_error *error)
{
	const struct np_rank *rk = rp->rk;
	json_t *root, *rows = json_array(), *plugins = json_array();
	bool ok;

	for (size_t i = 0; i < rp->nrows; i++)
		json_array_append_new(rows, row_object(rp->rows[i], rk));
	for (int s = 0; s < rk->nsides; s++)
		json_array_append_new(plugins, plugin_object(&rk->sides[s], &rk->o->env[s]));
	root = json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:I}", "program", "nccl-net-perf",
			 "version", ha_version, "layout", JSON_LAYOUT, "ranks", rk->nranks,
			 "plugins", plugins, "options", options_object(rk->o), "rows", rows,
			 "wrong", (json_int_t)rp->wrong);
	if (root && rp->timelines)
		json_object_set_new(root, "timeline", timeline_object(rp));
	if (root && rp->late)
		json_object_set_new(root, "late", late_object(rp));
	if (root && rp->setups)
		json_object_set_new(root, "setup", setup_object(rp));
	errno = 0;
	ok = root && (!rp->observed || np_observe_add_json(root, rp->observed, rk->nranks)) &&
	     json_dump_file(root, rk->o->json, JSON_INDENT(1)) == 0;
	if (!ok)
		np_error_set(error, NP_EXIT_ERROR, "cannot write %s: %s", rk->o->json,
			     errno ? strerror(errno) : "not enough memory or bad text");
	json_decref(root);
	return ok;
}
