/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/net/ask.h"

#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MOST 1024
#define BACKLOG	  256
#define LETTERS	  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/"

/* A name goes into JSON as it is: nothing that would have to be escaped is in one. */
static bool is_name(const char *name, size_t most)
{
	const size_t length = strlen(name);

	return length > 0 && length <= most && strspn(name, LETTERS) == length;
}

static ha_result_t refuse(ha_result_t result, char *why, size_t size, const char *what,
			  const char *reason)
{
	snprintf(why, size, "%s%s", what, reason);
	return result;
}

/* Of member 0: where the others are to come. */
static bool listen_here(struct ha_ask_answer *answer, char *text, size_t size)
{
	union ha_sockaddr here, bound;
	char at[HA_SOCKADDR_TEXT_MAX];

	if (!ha_talk_here(&answer->talk, &here))
		return false;
	if (here.sa.sa_family == AF_INET)
		here.in.sin_port = 0;
	else
		here.in6.sin6_port = 0;
	answer->listener = ha_net_listen(&here, BACKLOG, &bound);
	if (answer->listener < 0)
		return false;
	snprintf(text, size, ",\"listen\":\"%s\"", ha_sockaddr_text(&bound, at, sizeof(at)));
	return true;
}

static ha_result_t say(const struct ha_ask *ask, struct ha_ask_answer *answer, char *why,
		       size_t size)
{
	char text[TEXT_MOST], label[96] = "", more[192] = "", listen[128] = "";
	int n;

	if (ask->label)
		snprintf(label, sizeof(label), ",\"label\":\"%s\"", ask->label);
	if (ask->rank == 0) {
		if (!listen_here(answer, listen, sizeof(listen)))
			return refuse(
			    HA_ERR_SYSTEM, why, size,
			    "cannot listen for the group's other members: ", strerror(errno));
		snprintf(more, sizeof(more), ",\"unit\":%u,\"window\":%u%s%s", ask->unit_bytes,
			 ask->window, ask->is_reproducible ? ",\"reproducible\":true" : "", listen);
	}
	n = snprintf(text, sizeof(text),
		     "{\"group\":\"%s\",\"port\":\"%s\",\"rank\":%u,\"ranks\":%u%s%s}", ask->group,
		     ask->port, ask->rank, ask->ranks, label, more);
	ha_talk_say(&answer->talk, HA_CTRL_ASK, NULL, text, (size_t)n);
	return HA_OK;
}

static ha_result_t take_part(const struct ha_ask *ask, struct ha_ask_answer *answer, char *why,
			     size_t size)
{
	const struct ha_talk_frame *heard = &answer->talk.heard;

	if (!ha_part_decode(heard->text, heard->length, &answer->part))
		return refuse(HA_ERR_INTERNAL, why, size, "the controller's plan cannot be read",
			      "");
	memcpy(answer->key, heard->secret, sizeof(answer->key));
	if (answer->part.members != ask->ranks ||
	    (ask->rank > 0 && answer->part.leader.sa.sa_family == AF_UNSPEC))
		return refuse(HA_ERR_INTERNAL, why, size,
			      "the controller's plan is of another group",
			      ", or its member 0 waits for nobody");
	for (unsigned int i = 0; i < (unsigned)answer->part.lanes + answer->part.spares; i++)
		if (!ha_part_find(&answer->part, i, (uint16_t)ask->rank))
			return refuse(HA_ERR_INTERNAL, why, size,
				      "the controller's plan has no place for this member", "");
	return HA_OK;
}

/* {"group": ..., "why": ...}, in compact form and with the reason last: that is for people. */
void ha_ask_why_none(const struct ha_talk_frame *heard, char *why, size_t size)
{
	static const char key[] = "\"why\":\"";
	const char *text = (const char *)heard->text;
	const char *at = memmem(text, heard->length, key, strlen(key));
	const size_t before = at ? (size_t)(at - text) + strlen(key) : 0;
	const size_t behind = at && heard->length >= before + 2 ? 2 : 0; /* "} */

	snprintf(why, size, "no plan: %.*s", (int)(heard->length - before - behind), text + before);
	ha_make_printable(why);
}

/* Without memory for it there is none. */
static void keep_receipt(struct ha_ask_answer *answer)
{
	const struct ha_talk_frame *heard = &answer->talk.heard;

	free(answer->receipt);
	answer->receipt = malloc(heard->length + 1);
	answer->receipt_bytes = heard->length;
	if (answer->receipt)
		memcpy(answer->receipt, heard->text, heard->length);
}

static ha_result_t converse(const struct ha_ask *ask, uint64_t until_ns,
			    struct ha_ask_answer *answer, char *why, size_t size)
{
	bool is_open = false; /* whose end before a genuine word is that of two different keys */

	for (;;) {
		switch (ha_talk_await(&answer->talk, until_ns)) {
		case HA_TALK_NOTHING:
			return refuse(HA_ERR_REMOTE, why, size,
				      "no verdict in time from the controller", "");
		case HA_TALK_ENDED:
			return refuse(is_open && !answer->talk.is_known ? HA_ERR_USAGE
									: HA_ERR_REMOTE,
				      why, size, "controller: ", answer->talk.why);
		case HA_TALK_OPENED:
			is_open = true;
			HA_TRY(say(ask, answer, why, size));
			continue;
		case HA_TALK_HEARD:
			break;
		}
		if (answer->talk.heard.kind == HA_CTRL_NONE) {
			ha_ask_why_none(&answer->talk.heard, why, size);
			return HA_ERR_USAGE;
		}
		if (answer->talk.heard.kind == HA_CTRL_RECEIPT)
			keep_receipt(answer);
		if (answer->talk.heard.kind == HA_CTRL_PART)
			return take_part(ask, answer, why, size);
	}
}

ha_result_t ha_ask(const struct ha_ask *ask, uint64_t until_ns, struct ha_ask_answer *answer,
		   char *why, size_t size)
{
	ha_result_t result;

	*answer = (struct ha_ask_answer){.listener = -1};
	answer->talk.fd = -1;
	if (!is_name(ask->group, HA_ASK_NAME) || !is_name(ask->port, 2 * HA_ASK_NAME + 1) ||
	    (ask->label && !is_name(ask->label, HA_ASK_NAME)))
		return refuse(
		    HA_ERR_ARGUMENT, why, size,
		    "group, port and label are letters, digits and . _ - :", ", at most 63");
	ha_talk_dial(&answer->talk, ask->controller, ask->site, HA_CTRL_TEXT_MAX);
	result = converse(ask, until_ns, answer, why, size);
	if (result != HA_OK)
		ha_ask_end(answer);
	return result;
}

void ha_ask_end(struct ha_ask_answer *answer)
{
	ha_talk_end(&answer->talk);
	ha_part_free(&answer->part);
	free(answer->receipt);
	answer->receipt = NULL;
	if (answer->listener >= 0)
		close(answer->listener);
	answer->listener = -1;
	explicit_bzero(answer->key, sizeof(answer->key));
}
