/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nccl_window.h"

#include <limits.h>
#include <stdint.h>

#define TICK_NS	      4096ull
#define NS_PER_MS     1000000ull
#define FLOOR	      16 /* a ConnectX-6 takes a shorter timeout for this one */
#define TIMES_AS_LONG 2	 /* in all it takes at most so many times as long */

int ha_nccl_window_ms(int timeout, int retry_cnt)
{
	int slow = timeout < FLOOR ? FLOOR : timeout;
	uint64_t ns, ms;

	if (timeout == 0)
		return INT_MAX;
	ns = (TICK_NS << slow) * ((uint64_t)retry_cnt + 1) * TIMES_AS_LONG;
	ms = (ns + NS_PER_MS - 1) / NS_PER_MS;
	return ms > INT_MAX ? INT_MAX : (int)ms;
}
