/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against what is published, in one piece and in any. */
#include "../cmocka_all.h"
#include "hex.h"
#include "sha256_vectors.h"

#include "base/sha256.h"

#define MESSAGE_MAX 4096

static void assert_digest(const uint8_t digest[HA_SHA256_BYTES], const char *expected)
{
	uint8_t bytes[HA_SHA256_BYTES];

	assert_int_equal(from_hex(expected, bytes, sizeof(bytes)), HA_SHA256_BYTES);
	assert_memory_equal(digest, bytes, HA_SHA256_BYTES);
}

static void nists_messages_have_the_published_digests(void **state)
{
	uint8_t message[MESSAGE_MAX], digest[HA_SHA256_BYTES];
	size_t n = sizeof(nist_messages) / sizeof(nist_messages[0]);

	(void)state;
	assert_int_equal(n, 66);
	for (size_t i = 0; i < n; i++) {
		size_t length = from_hex(nist_messages[i].message, message, sizeof(message));

		ha_sha256(message, length, digest);
		assert_digest(digest, nist_messages[i].digest);
	}
}

static void the_examples_of_the_standard_have_their_digests(void **state)
{
	static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
	uint8_t digest[HA_SHA256_BYTES];

	(void)state;
	ha_sha256("abc", 3, digest);
	assert_digest(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	ha_sha256(two_blocks, strlen(two_blocks), digest);
	assert_digest(digest, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void a_million_times_a_in_uneven_pieces_has_its_digest(void **state)
{
	uint8_t piece[997], digest[HA_SHA256_BYTES];
	struct ha_sha256 hash;

	(void)state;
	memset(piece, 'a', sizeof(piece));
	ha_sha256_begin(&hash);
	for (size_t left = 1000000, n; left > 0; left -= n) {
		n = left < sizeof(piece) ? left : sizeof(piece);
		ha_sha256_add(&hash, piece, n);
	}
	ha_sha256_end(&hash, digest);
	assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* A hundred checkpoints, each the last of a thousand digests of the three digests before, and the
 * seed of the next. */
static void nists_hundred_thousand_digests_of_digests_end_as_published(void **state)
{
	uint8_t seed[HA_SHA256_BYTES], last[3][HA_SHA256_BYTES];

	(void)state;
	from_hex(monte_seed, seed, sizeof(seed));
	for (int checkpoint = 0; checkpoint < 100; checkpoint++) {
		for (int i = 0; i < 3; i++)
			memcpy(last[i], seed, sizeof(seed));
		for (int i = 0; i < 1000; i++) {
			ha_sha256(last, sizeof(last), seed);
			memmove(last[0], last[1], 2 * sizeof(last[0]));
			memcpy(last[2], seed, sizeof(seed));
		}
		if (checkpoint == 0)
			assert_digest(seed, monte_first);
	}
	assert_digest(seed, monte_last);
}

/* In three pieces, cut at a and b; each in memory of its own, so that a sanitizer sees who reads
 * on. */
static void hash_in_pieces(const uint8_t *message, size_t length, size_t a, size_t b,
			   uint8_t digest[HA_SHA256_BYTES])
{
	const size_t cuts[] = {0, a, b, length};
	struct ha_sha256 hash;

	ha_sha256_begin(&hash);
	for (int i = 0; i < 3; i++) {
		size_t n = cuts[i + 1] - cuts[i];
		uint8_t *piece = n ? malloc(n) : NULL;

		assert_true(n == 0 || piece);
		if (n)
			memcpy(piece, message + cuts[i], n);
		ha_sha256_add(&hash, piece, n);
		free(piece);
	}
	ha_sha256_end(&hash, digest);
}

static void where_a_message_is_cut_makes_no_difference(void **state)
{
	uint8_t message[3 * HA_SHA256_BLOCK_BYTES + 1], whole[HA_SHA256_BYTES],
	    digest[HA_SHA256_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof(message); i++)
		message[i] = (uint8_t)(i * 37 + 11);
	/* In two, at every length that a block, its padding and the next block make a difference
	 * to. */
	for (size_t length = 0; length <= sizeof(message); length++) {
		ha_sha256(message, length, whole);
		for (size_t cut = 0; cut <= length; cut++) {
			hash_in_pieces(message, length, cut, cut, digest);
			assert_memory_equal(digest, whole, sizeof(whole));
		}
	}
	/* In three, everywhere. */
	for (size_t a = 0; a <= sizeof(message); a++)
		for (size_t b = a; b <= sizeof(message); b++) {
			hash_in_pieces(message, sizeof(message), a, b, digest);
			assert_memory_equal(digest, whole, sizeof(whole));
		}
}

static void a_copy_goes_on_from_where_it_was_made(void **state)
{
	uint8_t one[HA_SHA256_BYTES], other[HA_SHA256_BYTES];
	struct ha_sha256 hash, copy;

	(void)state;
	ha_sha256_begin(&hash);
	ha_sha256_add(&hash, "ab", 2);
	copy = hash;
	ha_sha256_add(&hash, "x", 1);
	ha_sha256_end(&hash, other);
	ha_sha256_add(&copy, "c", 1);
	ha_sha256_end(&copy, one);
	assert_digest(one, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_memory_not_equal(one, other, sizeof(one));
}

static void nothing_is_left_of_a_message(void **state)
{
	static const struct ha_sha256 erased;
	uint8_t digest[HA_SHA256_BYTES];
	struct ha_sha256 hash;

	(void)state;
	memset(&hash, 0xee, sizeof(hash));
	ha_sha256_begin(&hash);
	ha_sha256_add(&hash, "a secret", 8);
	ha_sha256_end(&hash, digest);
	assert_memory_equal(&hash, &erased, sizeof(hash));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(nists_messages_have_the_published_digests),
	    cmocka_unit_test(the_examples_of_the_standard_have_their_digests),
	    cmocka_unit_test(a_million_times_a_in_uneven_pieces_has_its_digest),
	    cmocka_unit_test(nists_hundred_thousand_digests_of_digests_end_as_published),
	    cmocka_unit_test(where_a_message_is_cut_makes_no_difference),
	    cmocka_unit_test(a_copy_goes_on_from_where_it_was_made),
	    cmocka_unit_test(nothing_is_left_of_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
