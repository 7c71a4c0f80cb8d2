/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL sees as a device: a *bundle* of ports, its *rails*, which usually is one port by
 * itself. A connection on a bundle begins on rail 0, and goes on on another rail when that fails. A
 * port has an index of its own, whatever bundle it is in.
 */
#ifndef HA_DEVICE_BUNDLE_H
#define HA_DEVICE_BUNDLE_H

#include "base/config.h"
#include "base/result.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_RAILS_MIN 2 /* of a bundle that somebody asked for */
#define HA_RAILS_MAX HA_CONFIG_RAILS

/* As long as the names of all its rails may be, with ":255" and "+" after each. */
#define HA_BUNDLE_NAME_MAX (HA_RAILS_MAX * (64 + 5))

struct ha_device_set;
struct ha_port;

struct ha_bundle {
	int nrails;
	struct ha_port *rails[HA_RAILS_MAX]; /* nrails of them, rail 0 first */
	char name[HA_BUNDLE_NAME_MAX];	     /* for NCCL: no other bundle of several has it */
	int speed_mbps;			     /* the sum of the rails that were up */
	int max_comms;			     /* the least of the rails' */
	int16_t rail_id, plane_id; /* of the fabric (rail_id.h): what all rails have in common */
	int ptr_support;	   /* what all their NICs can (enum ha_ptr_support) */
	/* Who says what part of large messages each rail gets: what was given, an agent of this
	 * host, of two rails, or each sender. */
	bool shares_given, by_agent;
	bool by_island;		      /* each connection uses one rail (HA_NCCL_RAIL_MODE=island) */
	uint32_t stripe_min;	      /* HA_NCCL_STRIPE_MIN, bytes */
	uint16_t share[HA_RAILS_MAX]; /* of large messages, by rail: only the ratio matters */
	bool in_use; /* something began on it. Under the owner's lock; the rest is constant */
};

/*
 * Makes the set's bundles from its ports, at the end of discovery: those that the configuration
 * asks for (HA_NCCL_RAILS or its aliases), then each other port that was up by itself. What was
 * asked for and cannot be had is one WARN, and then there are no bundles of several at all: a
 * peer's device numbers are more likely to agree with all of them than with some. Shares that fit
 * not all bundles (HA_NCCL_RAIL_SHARE) are one WARN, and none are given. A bundle of more than two
 * rails is one WARN where an agent is to say them.
 */
void ha_bundles_make(struct ha_device_set *set);

/* Whether NCCL may have ports fused (HA_NCCL_RAILS=nccl). Any thread. */
bool ha_bundles_by_nccl(const struct ha_device_set *set);

/*
 * NCCL wants n of its devices, each a port by itself, as one: *dev is its number, which is the same
 * when it wants the same again in this order. The devices stay, and what begins on one of them from
 * now on is on the bundle. What cannot be had is one WARN and HA_ERR_ARGUMENT, and nothing has
 * changed: fewer than HA_RAILS_MIN devices or more than HA_RAILS_MAX, no such device or twice the
 * same, one that is a bundle, in another one or in use; ports that a packet cannot get between, or
 * of different NUMA nodes, of which NCCL makes no device. Under the owner's lock.
 */
ha_result_t ha_bundle_fuse(struct ha_device_set *set, const int *devs, int n,
			   int *dev) HA_MUST_CHECK;

/*
 * Where something begins on NCCL's device; NULL: there is none. It can be fused no longer. Under
 * the owner's lock.
 */
struct ha_port *ha_bundle_use(struct ha_device_set *set, int dev);

/* By NCCL's number; NULL: there is no such device. Any thread. */
const struct ha_bundle *ha_bundle_of_device(const struct ha_device_set *set, int dev);

#endif
