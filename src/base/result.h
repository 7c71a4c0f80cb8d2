/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one result code that crosses layers. Values equal ncclResult_t's (asserted in plugin/), so
 * that plugin/ passes them through, yet nothing below plugin/ includes NCCL's types.
 */
#ifndef HA_BASE_RESULT_H
#define HA_BASE_RESULT_H

enum ha_result {
	HA_OK = 0,
	HA_ERR_SYSTEM = 2,   /* the host or a device failed: errno, a verb, no path left */
	HA_ERR_INTERNAL = 3, /* a bug of ours, or a peer that broke the protocol */
	HA_ERR_ARGUMENT = 4, /* the caller passed something that cannot be */
	HA_ERR_USAGE = 5,    /* the caller broke the contract: memory given back while in use */
	HA_ERR_REMOTE = 6,   /* the peer died or gave up */
};

typedef enum ha_result ha_result_t;

#define HA_MUST_CHECK __attribute__((warn_unused_result))

/* Returns from the calling function when an expression is not HA_OK. */
#define HA_TRY(expr)                                                                               \
	do {                                                                                       \
		ha_result_t ha_try_result_ = (expr);                                               \
		if (__builtin_expect(ha_try_result_ != HA_OK, 0))                                  \
			return ha_try_result_;                                                     \
	} while (0)

#endif
