/* SPDX-License-Identifier: Apache-2.0 */
#include "hostile_rank.h"

#include "fuzz.h"

#include "memory/mr.h"

#include <string.h>

struct hostile_rank hostile;
uint8_t hostile_data[3 * SIZE];
uint64_t hostile_words[3 * 8];

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

static void other_rank(void)
{
	struct ha_gin_message message;
	bool is_heard = true;

	sv_stepped_set_host(1);
	FUZZ_CHECK(ha_gin_out_progress(&hostile.out) != HA_ERR_INTERNAL);
	while (is_heard && ha_gin_in_hear(&hostile.in, &message, &is_heard) == HA_OK && is_heard)
		hostile.heard(&message);
}

void hostile_turn(void)
{
	ha_result_t result;

	other_rank();
	sv_stepped_set_host(0);
	result = ha_gin_group_progress(hostile.group);
	if (hostile.error == HA_OK)
		hostile.error = result;
	FUZZ_CHECK(hostile.error == HA_OK || result != HA_OK); /* it is latched */
	pair_advance(&hostile.pair);
}

void hostile_say(const struct ha_gin_message *message, int turns)
{
	if (ha_gin_out_say(&hostile.out, message) != HA_OK)
		abort();
	while (turns-- > 0)
		hostile_turn();
}

static void listen_on_both(void)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		sv_stepped_set_host(r);
		FUZZ_CHECK(ha_listen(hostile.pair.inst[r], 0, hostile.handle[r],
				     &hostile.listen[r]) == HA_OK);
	}
}

static void open_group(void)
{
	const void *handles[RANKS] = {hostile.handle[0], hostile.handle[1]};
	struct ha_gin_shape shape = {.inst = hostile.pair.inst[0],
				     .ranks = RANKS,
				     .listen = hostile.listen[0],
				     .handles = handles};

	sv_stepped_set_host(0);
	FUZZ_CHECK(ha_gin_group_open(&shape, &hostile.group) == HA_OK);
}

static void connect_rank(void)
{
	struct ha_comm *out = NULL, *in = NULL;
	uint8_t handle[HA_HANDLE_MAX];

	memcpy(handle, hostile.handle[0], sizeof(handle));
	while (!out || !in) {
		sv_stepped_set_host(1);
		if (!out)
			FUZZ_CHECK(ha_connect(hostile.pair.inst[1], 0, HA_TRAFFIC_CLASS_UNDEF,
					      handle, &out) == HA_OK);
		if (!in)
			FUZZ_CHECK(ha_accept(hostile.listen[1], &in) == HA_OK);
		sv_stepped_set_host(0);
		FUZZ_CHECK(ha_gin_group_progress(hostile.group) == HA_OK);
		pair_settle(&hostile.pair);
	}
	sv_stepped_set_host(1);
	FUZZ_CHECK(ha_gin_out_open(&hostile.out, out) == HA_OK);
	FUZZ_CHECK(ha_gin_in_open(&hostile.in, in) == HA_OK);
}

void hostile_begin(void (*heard)(const struct ha_gin_message *message), bool is_e2e)
{
	memset(&hostile, 0, sizeof(hostile));
	memset(hostile_data, CANARY, sizeof(hostile_data));
	memset(hostile_words, 0, sizeof(hostile_words));
	hostile.heard = heard;
	pair_init(&hostile.pair);
	hostile.pair.fabric.rails = 2;
	hostile.pair.config.outage_ms = hostile.pair.config.give_up_ms = 500;
	hostile.pair.config.completion = is_e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	pair_open(&hostile.pair);
	listen_on_both();
	open_group();
	connect_rank();
	sv_stepped_set_host(0);
	FUZZ_CHECK(ha_gin_register(hostile.group, hostile_data + SIZE, SIZE, HA_MEM_HOST, 0, -1,
				   false, &hostile.memory) == HA_OK);
	FUZZ_CHECK(ha_gin_register(hostile.group, hostile_words + 8, 64, HA_MEM_HOST, 0, -1, true,
				   &hostile.signals) == HA_OK);
}

void hostile_end(void)
{
	sv_stepped_set_host(1);
	ha_gin_out_close(&hostile.out);
	ha_gin_in_close(&hostile.in);
	sv_stepped_set_host(0);
	ha_gin_group_close(hostile.group);
	for (uint32_t r = 0; r < RANKS; r++)
		ha_close_listen(hostile.listen[r]);
	pair_close(&hostile.pair);
	for (size_t i = 0; i < SIZE; i++)
		FUZZ_CHECK(hostile_data[i] == CANARY && hostile_data[2 * SIZE + i] == CANARY);
	for (size_t i = 0; i < 8; i++)
		FUZZ_CHECK(hostile_words[i] == 0 && hostile_words[16 + i] == 0);
}
