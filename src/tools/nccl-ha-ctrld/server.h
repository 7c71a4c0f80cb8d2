/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controller as it runs: one thread, which waits for hosts at its socket, for what they say,
 * and for time limits.
 */
#ifndef NC_SERVER_H
#define NC_SERVER_H

#include "tools/nccl-ha-ctrld/topology.h"

#define NC_SESSIONS_MAX 8192 /* connections; strangers among them HA_SEATS */
#define NC_SILENCE_MS                                                                              \
	5000 /* until a stranger has said who it is, or whose group is over what it wants */

struct nc_settings {
	const char *listen; /* ADDRESS:PORT */
	const char *key_file;
	unsigned verdict_ms, lease_ms;
};

/* Until SIGINT or SIGTERM, which are to be blocked. Returns an exit status, having said on stderr
 * what is wrong. */
int nc_serve(const struct nc_settings *settings, const struct nc_topology *topology);

#endif
