/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/net/resolve.h"

#include <stdio.h>
#include <string.h>

static void addresses_are_what_they_say(void **state)
{
	static const char *const texts[] = {"127.0.0.1:9912", "[::1]:80"};

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		union ha_sockaddr at;
		char why[200] = "", back[HA_SOCKADDR_TEXT_MAX];

		assert_true(ha_resolve(texts[i], &at, why, sizeof(why)));
		assert_string_equal(ha_sockaddr_text(&at, back, sizeof(back)), texts[i]);
	}
}

static void what_is_no_address_is_told_so(void **state)
{
	static const char *const texts[] = {
	    "", ":", "host", ":9912", "127.0.0.1:", "[]:1", "127.0.0.1:port", "127.0.0.1:9912x"};
	char longest[600], why[700];
	union ha_sockaddr at;

	(void)state;
	for (unsigned int i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		*why = '\0';
		assert_false(ha_resolve(texts[i], &at, why, sizeof(why)));
		assert_non_null(strstr(why, texts[i]));
	}
	memset(longest, 'a', sizeof(longest) - 3);
	memcpy(longest + sizeof(longest) - 3, ":1", 3);
	assert_false(ha_resolve(longest, &at, why, sizeof(why)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(addresses_are_what_they_say),
	    cmocka_unit_test(what_is_no_address_is_told_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
