/* SPDX-License-Identifier: Apache-2.0 */
#include "base/statement.h"

#include "base/bytes.h"

void ha_statement_code(const struct ha_hmac_key *key, const struct ha_statement *said,
		       uint8_t code[HA_CODE_BYTES])
{
	uint8_t who[10];
	struct ha_writer w = {who};
	struct ha_hmac mac;

	ha_put_uint(&w, said->speaker, 1);
	ha_put_uint(&w, said->where, 1);
	ha_put_uint(&w, said->count, 8);
	ha_hmac_begin(&mac, key);
	ha_hmac_add(&mac, who, sizeof(who));
	if (said->head_length != 0)
		ha_hmac_add(&mac, said->head, said->head_length);
	if (said->body_length != 0)
		ha_hmac_add(&mac, said->body, said->body_length);
	ha_hmac_end(&mac, code, HA_CODE_BYTES);
}

bool ha_statement_is_genuine(const struct ha_hmac_key *key, const struct ha_statement *said,
			     const uint8_t code[HA_CODE_BYTES])
{
	uint8_t right[HA_CODE_BYTES];

	ha_statement_code(key, said, right);
	return ha_same_secret(right, code, sizeof(right));
}
