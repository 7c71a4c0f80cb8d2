/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request of the operator: parsing stays within them, refuses with a reason or gives
 * an order within its ranges, and what it accepts is what the same order looks like when it is
 * written out.
 */
#include "fuzz.h"

#include "admin/request.h"

#include <ctype.h>
#include <string.h>

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT("nccl-ha 1 failover port mlx5_0:1"),
    FUZZ_TEXT("nccl-ha 1 failover port mlx5_bond_0:255 force"),
    FUZZ_TEXT("nccl-ha 1 failover connection 7b1c0d2e4f5a6978 force"),
    FUZZ_TEXT("nccl-ha 1 failback connection 7b1c0d2e"),
    FUZZ_TEXT("nccl-ha 1 failback port rxe0:1"),
    FUZZ_TEXT("nccl-ha 1 failback all"),
    FUZZ_TEXT("nccl-ha 1 status all"),
    FUZZ_TEXT("nccl-ha 1 status port a:b:c:1"),
    FUZZ_TEXT("nccl-ha 2 status all"),
    FUZZ_TEXT("nccl-ha 1 failover all"),
    FUZZ_TEXT("nccl-ha  1 status all "),
    FUZZ_TEXT("GET / HTTP/1.1\r"),
    {NULL, 0},
};

static void check_ranges(const struct ha_admin_request *order)
{
	FUZZ_CHECK(order->verb < HA_ADMIN_VERBS);
	if (order->target == HA_ADMIN_PORT) {
		size_t length = strnlen(order->device, sizeof(order->device));

		FUZZ_CHECK(length > 0 && length < sizeof(order->device));
		for (size_t i = 0; i < length; i++)
			FUZZ_CHECK(isgraph((unsigned char)order->device[i]));
		FUZZ_CHECK(order->port_num >= 1 && order->port_num <= 255);
	}
	if (order->target == HA_ADMIN_CONNECTION)
		FUZZ_CHECK((order->connection & ~order->mask) == 0);
	FUZZ_CHECK(!order->force || order->verb == HA_ADMIN_FAILOVER);
	FUZZ_CHECK(order->verb != HA_ADMIN_FAILOVER || order->target != HA_ADMIN_ALL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_admin_request order, again;
	char *text = malloc(size ? size : 1); /* one byte too far is a wild access */
	char written[NCCL_HA_CONTROL_REQUEST_MAX], rest[HA_ADMIN_TEXT_MAX];
	const char *why;
	size_t length;

	FUZZ_CHECK(text);
	memcpy(text, data, size);
	if (ha_admin_request_parse(text, size, &order, &why)) {
		FUZZ_CHECK(!why);
		check_ranges(&order);
		length = (size_t)snprintf(written, sizeof(written), "nccl-ha 1 %s",
					  ha_admin_request_text(&order, rest));
		FUZZ_CHECK(length < sizeof(written));
		FUZZ_CHECK(ha_admin_request_parse(written, length, &again, &why));
		FUZZ_CHECK(memcmp(&order, &again, sizeof(order)) == 0);
	} else {
		FUZZ_CHECK(why && *why);
	}
	free(text);
	return 0;
}
