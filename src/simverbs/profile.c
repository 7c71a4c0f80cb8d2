/* SPDX-License-Identifier: Apache-2.0 */
/* Times of a kind of device, in numbers. */
#include "profile.h"

#include <string.h>

#define US 1000ull
#define MS (1000 * US)

static const char *const names[] = {[SV_PROFILE_EXACT] = "exact", [SV_PROFILE_MLX5] = "mlx5"};

int sv_profile_by_name(const char *name)
{
	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
		if (!strcmp(name, names[i]))
			return i;
	return -1;
}

const char *sv_profile_name(enum sv_profile profile)
{
	return names[profile];
}

/* ---------------------------------------------------------------- retries */

static uint64_t nominal_ns(uint8_t timeout)
{
	return 4096ull << timeout;
}

/*
 * mlx5: retransmissions begin a few milliseconds after the packet and come half as often each time,
 * as long as their distance is below the nominal timeout. All of them together cost one retry. Each
 * further one comes after twice the nominal timeout, which is never that of less than 16.
 */
#define MLX5_FIRST_NS	 (3500 * US)
#define MLX5_MIN_TIMEOUT 16

static uint64_t mlx5_nominal_ns(uint8_t timeout)
{
	return nominal_ns(timeout < MLX5_MIN_TIMEOUT ? MLX5_MIN_TIMEOUT : timeout);
}

static uint32_t mlx5_early_retransmissions(uint8_t timeout)
{
	uint32_t n = 0;

	while (MLX5_FIRST_NS << n < mlx5_nominal_ns(timeout))
		n++;
	return n;
}

uint64_t sv_profile_retry_ns(enum sv_profile profile, uint8_t timeout, uint32_t times)
{
	if (profile == SV_PROFILE_EXACT)
		return nominal_ns(timeout);
	if (times < mlx5_early_retransmissions(timeout))
		return MLX5_FIRST_NS << times;
	return 2 * mlx5_nominal_ns(timeout);
}

enum sv_retry sv_profile_retry(enum sv_profile profile, uint8_t timeout, uint32_t times,
			       uint32_t retries_left)
{
	if (profile == SV_PROFILE_EXACT)
		return retries_left ? SV_RETRY_SPEND : SV_RETRY_EXCEEDED;
	if (times + 1 < mlx5_early_retransmissions(timeout))
		return SV_RETRY_FREE;
	return retries_left > 1 ? SV_RETRY_SPEND : SV_RETRY_EXCEEDED;
}

/* ---------------------------------------------------------------- commands, events */

uint64_t sv_profile_command_ns(enum sv_profile profile, enum sv_verb verb)
{
	if (profile == SV_PROFILE_EXACT)
		return 0;
	switch (verb) {
	case SV_VERB_CREATE_CQ:
	case SV_VERB_CREATE_SRQ:
	case SV_VERB_CREATE_QP:
		return 1 * MS;
	case SV_VERB_MODIFY_QP:
		return 200 * US;
	default:
		return 0;
	}
}

/* mlx5 learns of it from the network stack, which tells of lost carriers once a second. */
uint64_t sv_profile_carrier_event_ns(enum sv_profile profile, uint64_t random)
{
	return profile == SV_PROFILE_EXACT ? 0 : random % (1000 * MS);
}
