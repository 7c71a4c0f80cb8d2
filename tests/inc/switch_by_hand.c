/* SPDX-License-Identifier: Apache-2.0 */
#include "switch_by_hand.h"

#include "../unit/cmocka_all.h"

#include "memory/mr.h"
#include "memory/pd.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS_MOST 100000
#define KEY	    9 /* a group's, in its first byte */

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static struct ha_job_key *make_key(void)
{
	char path[] = "/tmp/nccl-ha-test-key.XXXXXX";
	const int fd = mkstemp(path);
	const uint8_t bytes[HA_JOB_KEY_BYTES] = {1, 2, 3};
	struct ha_job_key *key = NULL;

	assert_true(fd >= 0 && write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
	close(fd);
	assert_int_equal(ha_job_key_load_file("a test", path, &key), HA_OK);
	unlink(path);
	return key;
}

void by_hand_open(struct by_hand *s)
{
	const union ha_sockaddr any = {
	    .in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	const struct ha_edge_depth depth = {2, 2};

	ha_config_load(&s->config, no_env);
	sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(NULL), 0);
	sv_stepped_set_host(0);
	assert_int_equal(ha_device_set_open(&s->config, &s->set), HA_OK);
	assert_int_equal(ha_edge_open(&s->edge, &s->set->ports[0], &depth), HA_OK);
	s->site = make_key();
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->listener = ha_net_listen(&any, 4, &s->at);
	assert_true(s->epoll >= 0 && s->listener >= 0);
	ns_groups_begin(&s->groups, &s->set->ports[0], s->site, s->epoll);
}

void by_hand_close(struct by_hand *s)
{
	assert_true(ns_groups_end(&s->groups));
	assert_int_equal(ha_edge_close(&s->edge), HA_OK);
	ha_memory_close(s->set);
	ha_device_set_close(s->set);
	ha_job_key_free(s->site);
	close(s->epoll);
	close(s->listener);
}

void by_hand_install(struct by_hand *s, const struct ha_part *part)
{
	uint8_t *text = malloc(ha_part_bytes(part));
	const struct ha_talk_frame frame = {
	    .text = text, .length = (uint32_t)ha_part_bytes(part), .secret = {KEY}};

	assert_non_null(text);
	ha_part_encode(part, text);
	assert_true(ns_groups_install(&s->groups, &frame));
	free(text);
}

void by_hand_take(const struct by_hand *s, struct ha_talk *talk)
{
	int fd;

	do
		fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0);
	ha_talk_take(talk, fd, s->site, HA_CTRL_ASK_MAX);
}

static void ignore(struct ns_line *line, uint64_t now_ns)
{
	(void)line, (void)now_ns;
}

static void dial(const struct by_hand *s, struct by_hand_child *child)
{
	struct ha_talk *talk = &child->here.line.talk;

	ha_talk_dial(&child->there, &s->at, s->site, HA_CTRL_ASK_MAX);
	by_hand_take(s, talk);
	ns_line_begin(&child->here.line, ignore);
	for (unsigned n = 0;
	     n < ROUNDS_MOST && (talk->phase != HA_TALK_OPEN || child->there.phase != HA_TALK_OPEN);
	     n++) {
		(void)ha_talk_next(talk);
		(void)ha_talk_next(&child->there);
	}
	assert_int_equal(talk->phase, HA_TALK_OPEN);
}

void by_hand_ask(const struct by_hand *s, struct by_hand_child *child, const struct ha_join *join)
{
	if (!child->here.line.talk.site)
		dial(s, child);
	child->here.join = *join;
	ha_edge_address(&s->edge, &child->here.join.edge);
	child->here.secret[0] = KEY;
}

bool by_hand_hear(struct by_hand_child *child)
{
	enum ha_talk_event event;

	while ((event = ha_talk_next(&child->there)) != HA_TALK_NOTHING) {
		if (event == HA_TALK_ENDED)
			return false;
		child->asked += event == HA_TALK_HEARD && child->there.heard.kind == HA_CTRL_DRAIN;
	}
	return child->there.phase != HA_TALK_OVER;
}
