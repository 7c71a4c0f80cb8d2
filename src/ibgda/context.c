/* SPDX-License-Identifier: Apache-2.0 */
#include "ibgda/context.h"

#include "base/clock.h"
#include "base/thread.h"
#include "ibgda/end.h"
#include "ibgda/monitor.h"
#include "ibgda/provider.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_NS       100000u /* between two looks at everything */
#define LOG_LEAST      3u
#define LOG_MOST       15u
#define LOG_DEFAULT    10u
#define FIRST_OPTIONS  sizeof(struct ha_ibgda_options) /* of the first release */
#define POLLED_AT_ONCE 64u

/* ---- the thread ------------------------------------------------------------------------------ */

static void look_at_nics(struct ha_ibgda_context *context)
{
	struct pollfd fds[HA_IBGDA_NICS];

	for (unsigned int n = 0; n < context->num_nics; n++)
		fds[n] = (struct pollfd){context->nics[n].context->async_fd, POLLIN, 0};
	if (poll(fds, context->num_nics, 0) <= 0)
		return;
	for (unsigned int n = 0; n < context->num_nics; n++) {
		if (fds[n].revents && ha_ibgda_nic_has_failed(&context->nics[n]))
			ha_ibgda_monitor_suspect(&context->ends, n);
	}
}

/* Of up to POLLED_AT_ONCE ends from one on; returns the one behind them. */
static struct ha_list *look_at_sockets(struct ha_ibgda_context *context, struct ha_list *first)
{
	struct pollfd fds[POLLED_AT_ONCE];
	struct ha_list *at = first;
	nfds_t n = 0;

	for (; at != &context->ends && n < POLLED_AT_ONCE; at = at->next, n++)
		fds[n] = (struct pollfd){
		    ha_container_of(at, struct ha_ibgda_end, in_context)->socket.fd, POLLIN, 0};
	if (poll(fds, n, 0) <= 0)
		return at;
	n = 0;
	for (struct ha_list *end = first; end != at; end = end->next, n++)
		if (fds[n].revents)
			ha_container_of(end, struct ha_ibgda_end, in_context)->socket.is_readable =
			    true;
	return at;
}

static void look_at_everything(struct ha_ibgda_context *context)
{
	struct ha_list *at = context->ends.next;

	look_at_nics(context);
	while (at != &context->ends)
		at = look_at_sockets(context, at);
	ha_ibgda_monitor_round(&context->ends);
}

static void *watches(void *argument)
{
	struct ha_ibgda_context *context = argument;
	bool stops = false;

	while (!stops) {
		pthread_mutex_lock(&context->lock);
		look_at_everything(context);
		stops = context->stops;
		pthread_mutex_unlock(&context->lock);
		ha_real_sleep_ns(ROUND_NS);
	}
	return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool are_sense(const struct ha_ibgda_options *options)
{
	return options && options->size >= FIRST_OPTIONS &&
	       (options->log == 0 || (options->log >= LOG_LEAST && options->log <= LOG_MOST)) &&
	       (!options->nics ||
		strlen(options->nics) < sizeof(((struct ha_config *)0)->ib_hca)) &&
	       !options->memory.allocate == !options->memory.release;
}

static void take_options(struct ha_ibgda_context *context, const struct ha_ibgda_options *options)
{
	const struct ha_config *config = &context->config;
	const uint64_t outage_ms =
	    options->outage_ms ? options->outage_ms : (uint64_t)config->give_up_ms;

	context->memory = options->memory;
	context->settings = (struct ha_ibgda_settings){
	    .log = options->log ? options->log : LOG_DEFAULT,
	    .outage_ns = outage_ms * HA_NS_PER_MS,
	    .silence_ns = (unsigned int)config->rto_ms * HA_NS_PER_MS,
	    .accepts_unproved = options->accepts_unproved != 0,
	    .return_ns = options->return_ms * HA_NS_PER_MS,
	    .memory = &context->memory,
	};
}

static int open_nic(struct ha_ibgda_context *context, struct ha_port *port)
{
	struct ha_ibgda_nic *nic = &context->nics[context->num_nics];
	int result;

	*nic = (struct ha_ibgda_nic){.context = port->nic->now->ctx,
				     .port_num = port->port_num,
				     .timeout = (uint8_t)context->config.rc_timeout,
				     .retry_cnt = (uint8_t)context->config.rc_retry_cnt};
	ha_port_addr(port, &nic->own);
	result = ha_ibgda_nic_open(nic);
	if (!result)
		context->num_nics++;
	return result;
}

static int open_nics(struct ha_ibgda_context *context, const char *names)
{
	struct ha_device_set *devices;
	int result = 0;

	if (names)
		strcpy(context->config.ib_hca, names);
	if (ha_device_set_open(&context->config, &devices) != HA_OK)
		return -ENOMEM;
	context->devices = devices;
	for (int port = 0; port < devices->nports && context->num_nics < HA_IBGDA_NICS && !result;
	     port++)
		result = open_nic(context, &devices->ports[port]);
	return result || context->num_nics > 0 ? result : -ENODEV;
}

static void close_nics(struct ha_ibgda_context *context)
{
	for (unsigned int n = 0; n < context->num_nics; n++) {
		(void)ha_ibgda_nic_has_failed(&context->nics[n]);
		(void)ha_ibgda_nic_close(&context->nics[n]);
	}
	ha_device_set_close(context->devices);
}

int ha_ibgda_context_open(const struct ha_ibgda_options *options, struct ha_ibgda_context **out)
{
	struct ha_ibgda_context *context;
	int result;

	*out = NULL;
	if (!are_sense(options))
		return -EINVAL;
	context = calloc(1, sizeof(*context));
	if (!context)
		return -ENOMEM;
	ha_config_load(&context->config, NULL);
	take_options(context, options);
	ha_list_init(&context->ends);
	pthread_mutex_init(&context->lock, NULL);
	result = open_nics(context, options->nics);
	if (!result && !ha_ibgda_init_obj())
		result = -ENOTSUP;
	if (!result)
		result = -ha_thread_start(&context->thread, "nccl-ha-ibgda", watches, context);
	if (result) {
		close_nics(context);
		pthread_mutex_destroy(&context->lock);
		free(context);
		return result;
	}
	*out = context;
	return 0;
}

int ha_ibgda_context_close(struct ha_ibgda_context *context)
{
	bool is_used;

	pthread_mutex_lock(&context->lock);
	is_used = context->num_ends > 0;
	context->stops = !is_used;
	pthread_mutex_unlock(&context->lock);
	if (is_used)
		return -EBUSY;
	pthread_join(context->thread, NULL);
	for (uint32_t region = 0; region < HA_IBGDA_REGIONS; region++)
		(void)ha_ibgda_deregister(context, region);
	close_nics(context);
	pthread_mutex_destroy(&context->lock);
	free(context);
	return 0;
}

unsigned int ha_ibgda_num_nics(const struct ha_ibgda_context *context)
{
	return context->num_nics;
}

const char *ha_ibgda_nic_name(const struct ha_ibgda_context *context, unsigned int nic)
{
	return nic < context->num_nics ? ibv_get_device_name(context->nics[nic].context->device)
				       : NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int forget(struct ha_ibgda_context *context, uint32_t region)
{
	int result = context->mrs[region][0] ? 0 : -ENOENT;

	for (unsigned int n = 0; n < context->num_nics; n++) {
		struct ibv_mr *mr = context->mrs[region][n];
		const int refused = mr ? ibv_dereg_mr(mr) : 0;

		if (refused && !result)
			result = -refused;
		context->mrs[region][n] = NULL;
		context->nics[n].lkeys[region] = context->nics[n].rkeys[region] = 0;
	}
	return result;
}

static int note(struct ha_ibgda_context *context, uint32_t region, void *memory, size_t bytes)
{
	for (unsigned int n = 0; n < context->num_nics; n++) {
		struct ha_ibgda_nic *nic = &context->nics[n];
		struct ibv_mr *mr = ibv_reg_mr(nic->pd, memory, bytes,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

		if (!mr) {
			const int why = errno;

			(void)forget(context, region);
			return -why;
		}
		context->mrs[region][n] = mr;
		nic->lkeys[region] = mr->lkey;
		nic->rkeys[region] = mr->rkey;
	}
	return 0;
}

int ha_ibgda_register(struct ha_ibgda_context *context, uint32_t region, void *memory, size_t bytes)
{
	int result = -EBUSY;

	if (region >= HA_IBGDA_REGIONS || !memory || bytes == 0)
		return -EINVAL;
	pthread_mutex_lock(&context->lock);
	if (context->num_ends == 0 && !context->mrs[region][0])
		result = note(context, region, memory, bytes);
	pthread_mutex_unlock(&context->lock);
	return result;
}

int ha_ibgda_deregister(struct ha_ibgda_context *context, uint32_t region)
{
	int result;

	if (region >= HA_IBGDA_REGIONS)
		return -EINVAL;
	pthread_mutex_lock(&context->lock);
	result = forget(context, region);
	pthread_mutex_unlock(&context->lock);
	return result;
}
