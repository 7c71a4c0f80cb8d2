/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts and the controller say: believed once, in its order, of who has the site's key. */
#include "../made_key.h"
#include "../unit/cmocka_all.h"

#include "inc/ctrl_wire.h"

#include <string.h>

static struct ha_ctrl_session host, controller;
static const uint8_t secret[HA_CTRL_SECRET_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8};
static const char text[] = "{\"group\":\"g\"}";
#define LENGTH ((uint32_t)sizeof(text) - 1)

static void meet(uint8_t host_key, uint8_t controller_key)
{
	static const uint8_t a[HA_CTRL_NONCE_BYTES] = {1}, b[HA_CTRL_NONCE_BYTES] = {2};
	struct ha_job_key *one = made_key(host_key), *other = made_key(controller_key);

	assert_true(ha_ctrl_session_begin(&host, one, HA_CTRL_HOST, a, b));
	assert_true(ha_ctrl_session_begin(&controller, other, HA_CTRL_CONTROLLER, a, b));
	ha_job_key_free(one);
	ha_job_key_free(other);
}

static void say(struct ha_ctrl_session *who, uint8_t head[HA_CTRL_HEAD_BYTES])
{
	uint8_t digest[HA_SHA256_BYTES];

	ha_sha256(text, LENGTH, digest);
	ha_ctrl_say(who, HA_CTRL_PLAN, secret, LENGTH, digest, head);
}

static bool hear(struct ha_ctrl_session *who, const uint8_t head[HA_CTRL_HEAD_BYTES])
{
	return ha_ctrl_hear(who, head, text, LENGTH, NULL);
}

static void frames_are_heard_by_the_other_end_with_their_secret(void **state)
{
	uint8_t head[HA_CTRL_HEAD_BYTES], got[HA_CTRL_SECRET_BYTES];
	enum ha_ctrl_kind kind;
	uint32_t length;

	(void)state;
	meet(3, 3);
	for (int i = 0; i < 3; i++) {
		say(&controller, head);
		assert_true(ha_ctrl_head_decode(head, LENGTH, &kind, &length));
		assert_int_equal(kind, HA_CTRL_PLAN);
		assert_int_equal(length, LENGTH);
		assert_false(ha_ctrl_head_decode(head, LENGTH - 1, &kind, &length));
		assert_memory_not_equal(head + 8, secret, sizeof(secret));
		assert_true(ha_ctrl_hear(&host, head, text, LENGTH, got));
		assert_memory_equal(got, secret, sizeof(got));
		say(&host, head);
		assert_true(hear(&controller, head));
	}
}

static void secrets_of_two_frames_have_no_mask_in_common(void **state)
{
	uint8_t first[HA_CTRL_HEAD_BYTES], second[HA_CTRL_HEAD_BYTES], back[HA_CTRL_HEAD_BYTES];

	(void)state;
	meet(3, 3);
	say(&controller, first);
	say(&controller, second);
	say(&host, back);
	assert_memory_not_equal(first + 8, second + 8, HA_CTRL_SECRET_BYTES);
	assert_memory_not_equal(first + 8, back + 8, HA_CTRL_SECRET_BYTES);
}

static void no_bit_can_be_changed(void **state)
{
	uint8_t head[HA_CTRL_HEAD_BYTES];
	char other[sizeof(text)];

	(void)state;
	meet(3, 3);
	say(&controller, head);
	for (unsigned bit = 0; bit < 8 * HA_CTRL_HEAD_BYTES; bit++) {
		head[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(hear(&host, head));
		head[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (unsigned bit = 0; bit < 8 * LENGTH; bit++) {
		memcpy(other, text, sizeof(other));
		other[bit / 8] = (char)(other[bit / 8] ^ 1 << bit % 8);
		assert_false(ha_ctrl_hear(&host, head, other, LENGTH, NULL));
	}
	assert_true(hear(&host, head));
}

static void what_was_said_is_not_heard_again_turned_around_or_out_of_order(void **state)
{
	uint8_t first[HA_CTRL_HEAD_BYTES], second[HA_CTRL_HEAD_BYTES];

	(void)state;
	meet(3, 3);
	say(&controller, first);
	say(&controller, second);
	assert_false(hear(&host, second));
	assert_false(hear(&controller, first));
	assert_true(hear(&host, first));
	assert_false(hear(&host, first));
	assert_true(hear(&host, second));
}

static void another_key_or_another_session_says_nothing(void **state)
{
	uint8_t head[HA_CTRL_HEAD_BYTES], a[HA_CTRL_NONCE_BYTES] = {1},
					  b[HA_CTRL_NONCE_BYTES] = {3};
	struct ha_job_key *key = made_key(3);

	(void)state;
	meet(3, 4);
	say(&controller, head);
	assert_false(hear(&host, head));
	meet(3, 3);
	say(&controller, head);
	assert_true(ha_ctrl_session_begin(&host, key, HA_CTRL_HOST, a, b));
	assert_false(hear(&host, head));
	b[0] = 2;
	a[0] = 9;
	assert_true(ha_ctrl_session_begin(&host, key, HA_CTRL_HOST, a, b));
	assert_false(hear(&host, head));
	ha_job_key_free(key);
}

static void a_hello_has_version_and_nonce(void **state)
{
	uint8_t nonce[HA_CTRL_NONCE_BYTES], other[HA_CTRL_NONCE_BYTES], hello[HA_CTRL_HELLO_BYTES];

	(void)state;
	ha_ctrl_nonce(nonce);
	ha_ctrl_nonce(other);
	assert_memory_not_equal(nonce, other, sizeof(nonce));
	ha_ctrl_hello_encode(nonce, hello);
	assert_int_equal(ha_ctrl_hello_decode(hello, other), HA_CTRL_VERSION);
	assert_memory_equal(nonce, other, sizeof(nonce));
	hello[0]++;
	assert_int_equal(ha_ctrl_hello_decode(hello, other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(frames_are_heard_by_the_other_end_with_their_secret),
	    cmocka_unit_test(secrets_of_two_frames_have_no_mask_in_common),
	    cmocka_unit_test(no_bit_can_be_changed),
	    cmocka_unit_test(what_was_said_is_not_heard_again_turned_around_or_out_of_order),
	    cmocka_unit_test(another_key_or_another_session_says_nothing),
	    cmocka_unit_test(a_hello_has_version_and_nonce),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
