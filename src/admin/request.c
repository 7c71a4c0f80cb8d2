/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const verbs[HA_ADMIN_VERBS] = {
    [HA_ADMIN_FAILOVER] = "failover",
    [HA_ADMIN_FAILBACK] = "failback",
    [HA_ADMIN_STATUS] = "status",
};

const char *ha_admin_request_text(const struct ha_admin_request *request,
				  char buf[HA_ADMIN_TEXT_MAX])
{
	char target[HA_ADMIN_DEVICE_MAX + 16] = "all";

	if (request->target == HA_ADMIN_PORT)
		snprintf(target, sizeof(target), "port %s:%d", request->device, request->port_num);
	else if (request->target == HA_ADMIN_CONNECTION)
		snprintf(target, sizeof(target), "connection %0*" PRIx64,
			 request->mask == UINT64_MAX ? 16 : 8, request->connection);
	snprintf(buf, HA_ADMIN_TEXT_MAX, "%s %s%s", verbs[request->verb], target,
		 request->force ? " force" : "");
	return buf;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* What has not been read yet. */
struct text {
	const char *at;
	size_t left;
};

struct word {
	const char *at;
	size_t length; /* 0: there is none */
};

/* Up to the next space, which goes as well. */
static struct word next_word(struct text *text)
{
	const char *space = memchr(text->at, ' ', text->left);
	struct word word = {text->at, space ? (size_t)(space - text->at) : text->left};
	size_t used = word.length + (space != NULL);

	text->at += used;
	text->left -= used;
	return word;
}

static bool is(struct word word, const char *text)
{
	return word.length == strlen(text) && memcmp(word.at, text, word.length) == 0;
}

/* Digits of this base, and nothing else; at most `most` of them. */
static bool read_digits(struct word word, unsigned base, size_t most, uint64_t *out)
{
	static const char digits[] = "0123456789abcdef";

	*out = 0;
	if (word.length == 0 || word.length > most)
		return false;
	for (size_t i = 0; i < word.length; i++) {
		const char *digit = memchr(digits, word.at[i], base);

		if (!digit)
			return false;
		*out = *out * base + (uint64_t)(digit - digits);
	}
	return true;
}

/* ---- targets --------------------------------------------------------------------------------- */

/* No device has such a name, and it goes to logs and answers. */
static bool is_name(struct word word)
{
	for (size_t i = 0; i < word.length; i++)
		if ((unsigned char)word.at[i] <= ' ' || (unsigned char)word.at[i] >= 0x7f)
			return false;
	return word.length > 0 && word.length < HA_ADMIN_DEVICE_MAX;
}

static bool read_port(struct word word, struct ha_admin_request *out)
{
	const char *colon = memrchr(word.at, ':', word.length);
	struct word device, number;
	uint64_t port_num;

	if (!colon)
		return false;
	device = (struct word){word.at, (size_t)(colon - word.at)};
	number = (struct word){colon + 1, word.length - device.length - 1};
	if (!is_name(device) || !read_digits(number, 10, 3, &port_num) || port_num < 1 ||
	    port_num > 255)
		return false;
	memcpy(out->device, device.at, device.length);
	out->port_num = (int)port_num;
	return true;
}

/* Log lines have the lower half of it. */
static bool read_connection(struct word word, struct ha_admin_request *out)
{
	if (!read_digits(word, 16, 16, &out->connection))
		return false;
	out->mask = word.length > 8 ? UINT64_MAX : UINT32_MAX;
	return true;
}

static const char *read_target(struct text *text, struct ha_admin_request *out)
{
	struct word word = next_word(text);

	if (is(word, "port")) {
		out->target = HA_ADMIN_PORT;
		return read_port(next_word(text), out) ? NULL : "a port is named as mlx5_0:1";
	}
	if (is(word, "connection")) {
		out->target = HA_ADMIN_CONNECTION;
		return read_connection(next_word(text), out)
			   ? NULL
			   : "a connection is named by up to 16 hexadecimal digits";
	}
	if (is(word, "all")) {
		out->target = HA_ADMIN_ALL;
		return out->verb == HA_ADMIN_FAILOVER ? "failover of all has nowhere to go: name a "
							"port or a connection"
						      : NULL;
	}
	return "the target is port, connection or all";
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const char *read_verb(struct text *text, struct ha_admin_request *out)
{
	struct word word = next_word(text);

	for (unsigned i = 0; i < HA_ADMIN_VERBS; i++)
		if (is(word, verbs[i])) {
			out->verb = (enum ha_admin_request_verb)i;
			return NULL;
		}
	return "the request is failover, failback or status";
}

static const char *read_force(struct text *text, struct ha_admin_request *out)
{
	if (text->left == 0)
		return NULL;
	out->force = is(next_word(text), "force");
	return out->force && text->left == 0 && out->verb == HA_ADMIN_FAILOVER
		   ? NULL
		   : "nothing but the force of a failover follows the target";
}

static const char *read_all(struct text *text, struct ha_admin_request *out)
{
	uint64_t version;
	const char *why;

	if (text->left > 0 && text->at[text->left - 1] == ' ')
		return "words are separated by one space, and nothing follows the last";
	if (!is(next_word(text), "nccl-ha") || !read_digits(next_word(text), 10, 9, &version))
		return "a request begins with nccl-ha and its version";
	if (version != NCCL_HA_CONTROL_VERSION)
		return "the plugin speaks version 1 of these requests: use its own nccl-ha";
	why = read_verb(text, out);
	if (!why)
		why = read_target(text, out);
	return why ? why : read_force(text, out);
}

bool ha_admin_request_parse(const char *text, size_t length, struct ha_admin_request *out,
			    const char **why)
{
	struct text left = {text, length};

	memset(out, 0, sizeof(*out));
	*why = read_all(&left, out);
	return *why == NULL;
}
