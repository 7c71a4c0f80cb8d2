/* SPDX-License-Identifier: Apache-2.0 */
/* What the peer must know of our end of a path, and connecting it to the peer's. */
#ifndef HA_TRANSPORT_PATH_CONNECT_H
#define HA_TRANSPORT_PATH_CONNECT_H

#include "base/result.h"

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_config;
struct ha_path;
struct ha_wire_endpoint;

/*
 * Where the address that the peer was told lies in the port's table now: entries move while a path
 * is made. -1: it is gone, and what the peer sends would not come here. Any thread.
 */
int ha_path_sgid_index(const struct ha_path *path);
/* How the path reaches this end, of which gid, lid, sl and traffic_class count. Any thread. */
void ha_path_address(const struct ha_path *path, const struct ha_wire_endpoint *remote,
		     struct ibv_ah_attr *out);

/* What the peer has to know about our end. */
void ha_path_endpoint(const struct ha_path *path, struct ha_wire_endpoint *out);

/*
 * To RTS against the peer's end. sl and traffic class must be in `remote`. Waits in the kernel if
 * the peer's address has to be resolved.
 */
ha_result_t ha_path_connect(struct ha_path *path,
			    const struct ha_wire_endpoint *remote) HA_MUST_CHECK;

/*
 * The same without waiting, under the token: ha_path_connecting says when it is over, and the
 * progress thread comes by then.
 */
void ha_path_start_connecting(struct ha_path *path, const struct ha_wire_endpoint *remote);

/* Whether it is an end for this one. */
bool ha_path_fits(const struct ha_path *path, const struct ha_wire_endpoint *remote);

/* The same from the command that has made the path, which goes on with it: against `remote` of the
 * path. */
void ha_path_go_on_connecting(struct ha_path *path);

/* True: not over yet. Otherwise *result is what came of it, and the path READY if HA_OK. [T] */
bool ha_path_connecting(struct ha_path *path, ha_result_t *result);

/* Service level and traffic class: the site's setting, else the communicator's, else 0. */
uint8_t ha_path_sl(const struct ha_config *config, int traffic_class);
uint8_t ha_path_tc(const struct ha_config *config, int traffic_class);

#endif
