/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA256 against RFC 4231, and what RFC 2104 says of keys; the comparison of codes. */
#include "../cmocka_all.h"
#include "hex.h"

#include "base/hmac.h"

/* RFC 4231, section 4. A key or message is `times` times the text `unit`, a key may be the bytes 1,
 * 2, … The fifth code is published truncated to 16 bytes. */
static const struct {
	const char *key;
	size_t key_times;
	const char *message;
	size_t message_times;
	const char *code;
} rfc4231[] = {
    {"\x0b", 20, "Hi There", 1, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
    {"Jefe", 1, "what do ya want for nothing?", 1,
     "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
    {"\xaa", 20, "\xdd", 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
    {"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17"
     "\x18\x19",
     1, "\xcd", 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
    {"\x0c", 20, "Test With Truncation", 1, "a3b6167473100ee06e0c796c2955552b"},
    {"\xaa", 131, "Test Using Larger Than Block-Size Key - Hash Key First", 1,
     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    {"\xaa", 131,
     "This is a test using a larger than block-size key and a larger than block-size data. The key "
     "needs to be hashed before being used by the HMAC algorithm.",
     1, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
};

static size_t repeat(const char *unit, size_t times, uint8_t *out)
{
	size_t n = strlen(unit);

	for (size_t i = 0; i < times; i++)
		memcpy(out + i * n, unit, n);
	return n * times;
}

static void the_cases_of_the_rfc_have_their_codes_at_once_and_in_pieces(void **state)
{
	size_t n = sizeof(rfc4231) / sizeof(rfc4231[0]);

	(void)state;
	assert_int_equal(n, 7);
	for (size_t i = 0; i < n; i++) {
		uint8_t bytes[256], message[256], expected[HA_HMAC_BYTES], code[HA_HMAC_BYTES];
		size_t key_length = repeat(rfc4231[i].key, rfc4231[i].key_times, bytes);
		size_t length = repeat(rfc4231[i].message, rfc4231[i].message_times, message);
		size_t code_length = from_hex(rfc4231[i].code, expected, sizeof(expected));
		struct ha_hmac_key key;

		ha_hmac_set_key(&key, bytes, key_length);
		ha_hmac(&key, message, length, code, code_length);
		assert_memory_equal(code, expected, code_length);
		for (size_t cut = 0; cut <= length; cut++) {
			struct ha_hmac mac;

			ha_hmac_begin(&mac, &key);
			ha_hmac_add(&mac, message, cut);
			ha_hmac_add(&mac, message + cut, length - cut);
			ha_hmac_end(&mac, code, code_length);
			assert_memory_equal(code, expected, code_length);
		}
	}
}

static void a_shorter_code_is_the_beginning_of_the_whole_one(void **state)
{
	uint8_t whole[HA_HMAC_BYTES], code[HA_HMAC_BYTES + 1];
	struct ha_hmac_key key;

	(void)state;
	ha_hmac_set_key(&key, "key", 3);
	ha_hmac(&key, "message", 7, whole, sizeof(whole));
	for (size_t length = 0; length <= sizeof(whole); length++) {
		memset(code, 0xee, sizeof(code));
		ha_hmac(&key, "message", 7, code, length);
		assert_memory_equal(code, whole, length);
		for (size_t i = length; i < sizeof(code); i++)
			assert_int_equal(code[i], 0xee);
	}
	/* More than there is: what there is. */
	memset(code, 0xee, sizeof(code));
	ha_hmac(&key, "message", 7, code, sizeof(code));
	assert_memory_equal(code, whole, sizeof(whole));
	assert_int_equal(code[HA_HMAC_BYTES], 0xee);
}

static void a_key_of_a_block_is_used_as_it_is_and_a_longer_one_hashed(void **state)
{
	uint8_t bytes[HA_SHA256_BLOCK_BYTES + 1], hashed[HA_SHA256_BYTES];
	uint8_t one[HA_HMAC_BYTES], other[HA_HMAC_BYTES];
	struct ha_hmac_key key;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i + 1);
	for (size_t length = HA_SHA256_BLOCK_BYTES; length <= sizeof(bytes); length++) {
		ha_sha256(bytes, length, hashed);
		ha_hmac_set_key(&key, bytes, length);
		ha_hmac(&key, "m", 1, one, sizeof(one));
		ha_hmac_set_key(&key, hashed, sizeof(hashed));
		ha_hmac(&key, "m", 1, other, sizeof(other));
		assert_int_equal(memcmp(one, other, sizeof(one)) == 0,
				 length > HA_SHA256_BLOCK_BYTES);
	}
}

static void a_key_serves_any_number_of_messages(void **state)
{
	uint8_t first[HA_HMAC_BYTES], code[HA_HMAC_BYTES];
	struct ha_hmac_key key;

	(void)state;
	ha_hmac_set_key(&key, "key", 3);
	ha_hmac(&key, "one", 3, first, sizeof(first));
	ha_hmac(&key, "two", 3, code, sizeof(code));
	assert_memory_not_equal(code, first, sizeof(first));
	ha_hmac(&key, "one", 3, code, sizeof(code));
	assert_memory_equal(code, first, sizeof(first));
}

static void nothing_is_left_of_a_code_or_of_a_key_that_is_forgotten(void **state)
{
	static const struct ha_hmac_key no_key;
	static const struct ha_hmac no_mac;
	uint8_t code[HA_HMAC_BYTES];
	struct ha_hmac_key key;
	struct ha_hmac mac;

	(void)state;
	ha_hmac_set_key(&key, "key", 3);
	ha_hmac_begin(&mac, &key);
	ha_hmac_end(&mac, code, sizeof(code));
	assert_memory_equal(&mac, &no_mac, sizeof(mac));
	assert_memory_not_equal(&key, &no_key, sizeof(key));
	ha_hmac_forget_key(&key);
	assert_memory_equal(&key, &no_key, sizeof(key));
}

static void codes_are_the_same_only_if_every_bit_is(void **state)
{
	uint8_t a[HA_HMAC_BYTES], b[HA_HMAC_BYTES];

	(void)state;
	ha_sha256("a", 1, a);
	memcpy(b, a, sizeof(b));
	assert_true(ha_same_secret(a, b, sizeof(a)));
	for (size_t bit = 0; bit < 8 * sizeof(a); bit++) {
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(ha_same_secret(a, b, sizeof(a)));
		/* What lies behind is not looked at. */
		assert_true(ha_same_secret(a, b, bit / 8));
		b[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	/* Differences that would cancel each other. */
	b[3] ^= 0x40, b[9] ^= 0x40;
	assert_false(ha_same_secret(a, b, sizeof(a)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_cases_of_the_rfc_have_their_codes_at_once_and_in_pieces),
	    cmocka_unit_test(a_shorter_code_is_the_beginning_of_the_whole_one),
	    cmocka_unit_test(a_key_of_a_block_is_used_as_it_is_and_a_longer_one_hashed),
	    cmocka_unit_test(a_key_serves_any_number_of_messages),
	    cmocka_unit_test(nothing_is_left_of_a_code_or_of_a_key_that_is_forgotten),
	    cmocka_unit_test(codes_are_the_same_only_if_every_bit_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
