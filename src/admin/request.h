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

#define HA_ORDER_DEVICE_MAX 64

enum ha_order_verb { HA_ORDER_FAILOVER, HA_ORDER_FAILBACK, HA_ORDER_STATUS, HA_ORDER_VERBS };

enum ha_order_target { HA_ORDER_PORT, HA_ORDER_CONNECTION, HA_ORDER_ALL };

struct ha_order {
	enum ha_order_verb verb;
	enum ha_order_target target;
	bool force;			  /* of a failover: also without a path in reserve */
	char device[HA_ORDER_DEVICE_MAX]; /* PORT */
	int port_num;
	uint64_t connection; /* CONNECTION */
	uint64_t mask;	     /* which of its bits count */
};

/* "failover port mlx5_0:1 force": the request without its beginning. Returns buf. */
#define HA_ORDER_TEXT_MAX 128
const char *ha_order_text(const struct ha_order *order, char buf[HA_ORDER_TEXT_MAX]);

/*
 * `text` has `length` bytes, without the line feed. False: *why says what is wrong with it, in the
 * words of a constant.
 */
bool ha_order_parse(const char *text, size_t length, struct ha_order *out, const char **why);

#endif
