/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator may ask for: the request's text, as nccl_ha/control.h says, made into a struct.
 * A pure function of bytes that may come from anyone.
 */
#ifndef HA_ADMIN_REQUEST_H
#define HA_ADMIN_REQUEST_H

#include "nccl_ha/control.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HA_ADMIN_DEVICE_MAX 64

enum ha_admin_request_verb {
	HA_ADMIN_FAILOVER,
	HA_ADMIN_FAILBACK,
	HA_ADMIN_STATUS,
	HA_ADMIN_VERBS
};

enum ha_admin_request_target { HA_ADMIN_PORT, HA_ADMIN_CONNECTION, HA_ADMIN_ALL };

struct ha_admin_request {
	enum ha_admin_request_verb verb;
	enum ha_admin_request_target target;
	bool force;			  /* of a failover: also without a path in reserve */
	char device[HA_ADMIN_DEVICE_MAX]; /* PORT */
	int port_num;
	uint64_t connection; /* CONNECTION */
	uint64_t mask;	     /* which of its bits count */
};

/* "failover port mlx5_0:1 force": the request without its beginning. Returns buf. */
#define HA_ADMIN_TEXT_MAX 128
const char *ha_admin_request_text(const struct ha_admin_request *request,
				  char buf[HA_ADMIN_TEXT_MAX]);

/*
 * `text` has `length` bytes, without the line feed. False: *why says what is wrong with it, in the
 * words of a constant.
 */
bool ha_admin_request_parse(const char *text, size_t length, struct ha_admin_request *out,
			    const char **why);

#endif
