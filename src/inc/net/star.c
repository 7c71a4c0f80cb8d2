/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/net/star.h"

#include "base/bytes.h"
#include "base/net_accept.h"

#include <stdlib.h>
#include <unistd.h>

#define MEMBER_BYTES 16 /* group (8), number (2), zero (6) */
#define TEXT_MOST    1024

struct stranger {
	struct ha_talk talk;
	uint64_t since_ns; /* 0: nobody */
};

/* A way to another member; of the leader one for each, of others the first one alone. */
struct way {
	struct ha_talk talk;
	bool is_used; /* it was there, or is */
	bool is_there;
};

struct ha_star {
	struct ha_star_shape shape;
	uint8_t key[HA_CTRL_SECRET_BYTES];
	bool is_ready;
	unsigned int n, next; /* ways, and which one is looked at next */
	struct way *ways;
	struct stranger strangers[HA_STAR_STRANGERS];
};

static bool is_leader(const struct ha_star *star)
{
	return star->shape.number == 0;
}

static struct way *way_to(const struct ha_star *star, uint16_t member)
{
	return &star->ways[is_leader(star) ? member : 0];
}

/* ---- life ----------------------------------------------------------------------------------- */

struct ha_star *ha_star_open(const struct ha_star_shape *shape)
{
	struct ha_star *star = calloc(1, sizeof(*star));

	if (star)
		star->ways = calloc(shape->members, sizeof(*star->ways));
	if (!star || !star->ways) {
		if (shape->listener >= 0)
			close(shape->listener);
		free(star);
		return NULL;
	}
	star->shape = *shape;
	memcpy(star->key, shape->key, sizeof(star->key));
	star->shape.key = NULL;
	star->n = shape->number == 0 ? shape->members : 1;
	if (is_leader(star)) {
		star->ways[0].is_there = true; /* itself */
		return star;
	}
	star->ways[0].is_used = true;
	ha_talk_dial(&star->ways[0].talk, shape->leader, shape->site, TEXT_MOST);
	return star;
}

void ha_star_close(struct ha_star *star)
{
	if (!star)
		return;
	for (unsigned int i = 0; i < star->n; i++)
		if (star->ways[i].is_used)
			ha_talk_end(&star->ways[i].talk);
	for (unsigned int i = 0; i < HA_STAR_STRANGERS; i++)
		if (star->strangers[i].since_ns)
			ha_talk_end(&star->strangers[i].talk);
	if (star->shape.listener >= 0)
		close(star->shape.listener);
	explicit_bzero(star->key, sizeof(star->key));
	free(star->ways);
	free(star);
}

/* ---- who comes ------------------------------------------------------------------------------ */

static void send_away(struct stranger *who)
{
	ha_talk_end(&who->talk);
	who->since_ns = 0;
}

static struct stranger *seat(struct ha_star *star)
{
	struct stranger *oldest = &star->strangers[0];

	for (unsigned int i = 0; i < HA_STAR_STRANGERS; i++) {
		struct stranger *who = &star->strangers[i];

		if (!who->since_ns)
			return who;
		if (who->since_ns < oldest->since_ns)
			oldest = who;
	}
	send_away(oldest);
	return oldest;
}

static void let_in(struct ha_star *star, uint64_t now_ns)
{
	union ha_sockaddr from;
	const int fd = ha_net_accept(star->shape.listener, NULL, &from);
	struct stranger *who;

	if (fd < 0)
		return;
	who = seat(star);
	who->since_ns = now_ns;
	ha_talk_take(&who->talk, fd, star->shape.site, TEXT_MOST);
}

/* Which member has said so; 0: none. */
static uint16_t member_of(const struct ha_star *star, const struct ha_talk_frame *frame)
{
	struct ha_reader r = {frame->text};
	uint64_t group;
	uint16_t number;

	if (frame->kind != HA_CTRL_MEMBER || frame->length != MEMBER_BYTES ||
	    !ha_same_secret(frame->secret, star->key, sizeof(star->key)))
		return 0;
	group = ha_get64(&r);
	number = ha_get16(&r);
	return group == star->shape.group && number < star->shape.members ? number : 0;
}

/* Nobody comes twice: a member that is gone is dead. */
static void admit(struct ha_star *star, struct stranger *who)
{
	const uint16_t number = member_of(star, &who->talk.heard);
	struct way *way = way_to(star, number);

	if (number == 0 || way->is_used) {
		ha_talk_refuse(&who->talk, number == 0 ? "this is no member of the group"
						       : "this member is there already");
		send_away(who);
		return;
	}
	*way = (struct way){who->talk, true, true};
	who->since_ns = 0;
}

static void look_at_strangers(struct ha_star *star, uint64_t now_ns)
{
	for (unsigned int i = 0; i < HA_STAR_STRANGERS; i++) {
		struct stranger *who = &star->strangers[i];
		enum ha_talk_event event;

		if (!who->since_ns)
			continue;
		while ((event = ha_talk_next(&who->talk)) == HA_TALK_OPENED)
			;
		if (event == HA_TALK_HEARD)
			admit(star, who);
		else if (event == HA_TALK_ENDED || now_ns - who->since_ns > HA_STAR_SILENCE_NS)
			send_away(who);
	}
}

static bool gather(struct ha_star *star, uint64_t now_ns)
{
	let_in(star, now_ns);
	look_at_strangers(star, now_ns);
	if (ha_star_missing(star) < star->shape.members)
		return false;
	close(star->shape.listener); /* nobody else is to come */
	star->shape.listener = -1;
	star->is_ready = true;
	return true;
}

/* ---- frames --------------------------------------------------------------------------------- */

static void introduce(struct ha_star *star, struct way *way)
{
	uint8_t text[MEMBER_BYTES];
	struct ha_writer w = {text};

	ha_put_uint(&w, star->shape.group, 8);
	ha_put_uint(&w, star->shape.number, 2);
	ha_put_zeros(&w, 6);
	ha_talk_say(&way->talk, HA_CTRL_MEMBER, star->key, text, sizeof(text));
}

static enum ha_star_event heard(struct ha_star *star, const struct way *way,
				struct ha_inc_frame *frame)
{
	const struct ha_talk_frame *said = &way->talk.heard;

	if (said->kind == HA_CTRL_GO && !is_leader(star) && !star->is_ready) {
		star->is_ready = true;
		return HA_STAR_READY;
	}
	return said->kind == HA_CTRL_FRAME &&
		       ha_inc_frame_decode(said->text, said->length, star->shape.members, frame)
		   ? HA_STAR_FRAME
		   : HA_STAR_NOTHING;
}

static enum ha_star_event look_at(struct ha_star *star, struct way *way, struct ha_inc_frame *frame)
{
	enum ha_star_event event = HA_STAR_NOTHING;

	while (event == HA_STAR_NOTHING && way->is_used) {
		switch (ha_talk_next(&way->talk)) {
		case HA_TALK_NOTHING:
			return HA_STAR_NOTHING;
		case HA_TALK_OPENED:
			way->is_there = true;
			introduce(star, way);
			break;
		case HA_TALK_HEARD:
			event = heard(star, way, frame);
			break;
		case HA_TALK_ENDED:
			way->is_there = false;
			return HA_STAR_GONE;
		}
	}
	return event;
}

enum ha_star_event ha_star_next(struct ha_star *star, uint64_t now_ns, uint16_t *member,
				struct ha_inc_frame *frame)
{
	if (star->shape.listener >= 0 && gather(star, now_ns))
		return HA_STAR_READY;
	for (unsigned int i = 0; i < star->n; i++) {
		enum ha_star_event event;

		star->next = (star->next + 1) % star->n; /* nobody is heard more than others */
		event = look_at(star, &star->ways[star->next], frame);
		if (event == HA_STAR_NOTHING)
			continue;
		*member = (uint16_t)star->next;
		return event;
	}
	return HA_STAR_NOTHING;
}

void ha_star_say(struct ha_star *star, uint16_t member, const struct ha_inc_frame *frame)
{
	struct way *way = way_to(star, member);
	uint8_t bytes[HA_INC_FRAME_MAX];

	if (way->is_used && way->is_there)
		ha_talk_say(&way->talk, HA_CTRL_FRAME, NULL, bytes,
			    ha_inc_frame_encode(frame, bytes));
}

void ha_star_go(struct ha_star *star)
{
	for (unsigned int i = 1; i < star->n; i++)
		ha_talk_say(&star->ways[i].talk, HA_CTRL_GO, NULL, "", 0);
}

void ha_star_refuse(struct ha_star *star, const char *why)
{
	for (unsigned int i = 1; i < star->n; i++)
		if (star->ways[i].is_there)
			ha_talk_refuse(&star->ways[i].talk, why);
}

uint16_t ha_star_missing(const struct ha_star *star)
{
	uint16_t member = 0;

	while (member < star->n && star->ways[member].is_there)
		member++;
	return member;
}

bool ha_star_is_anybody_there(const struct ha_star *star)
{
	for (unsigned int i = 0; i < star->n; i++)
		if (star->ways[i].is_used && star->ways[i].is_there)
			return true;
	return false;
}

bool ha_star_is_refused(const struct ha_star *star)
{
	return way_to(star, 0)->talk.is_refused;
}

const char *ha_star_why(const struct ha_star *star, uint16_t member)
{
	return way_to(star, member)->talk.why;
}
