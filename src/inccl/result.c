/* SPDX-License-Identifier: Apache-2.0 */
#include "inccl/result.h"

#include "inccl/inccl.h"

#include <stddef.h>

static const char *const errors[] = {
    [-INCCL_OK] = "fine",
    [-INCCL_ERR_ARGUMENT] = "an option or an argument cannot be",
    [-INCCL_ERR_SYSTEM] = "a device of this host, or its memory",
    [-INCCL_ERR_REFUSED] = "the controller has another key, or no plan for this group",
    [-INCCL_ERR_REMOTE] = "the controller or a rank is not there in time, or is lost",
    [-INCCL_ERR_TIMEOUT] = "not done in time",
    [-INCCL_ERR_DISAGREE] = "ranks do not ask for the same operations in the same order",
    [-INCCL_ERR_REGISTERED] = "memory is not registered",
    [-INCCL_ERR_INTERNAL] = "an error of the library",
};

const char *inccl_strerror(int result)
{
	if (result == INCCL_AGAIN)
		return "not now, or not yet";
	if (result > INCCL_OK || result < INCCL_ERR_INTERNAL)
		return "no result of this library";
	return errors[-result];
}

int ha_inccl_opened(ha_result_t result)
{
	return result == HA_ERR_USAGE ? INCCL_ERR_REFUSED : ha_inccl_ended(result);
}

int ha_inccl_ended(ha_result_t result)
{
	switch (result) {
	case HA_OK:
		return INCCL_OK;
	case HA_ERR_SYSTEM:
		return INCCL_ERR_SYSTEM;
	case HA_ERR_ARGUMENT:
		return INCCL_ERR_ARGUMENT;
	case HA_ERR_USAGE:
		return INCCL_ERR_DISAGREE;
	case HA_ERR_REMOTE:
		return INCCL_ERR_REMOTE;
	case HA_ERR_INTERNAL:
		break;
	}
	return INCCL_ERR_INTERNAL;
}
