/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a switch wants its trees to be left, without its process: an operator has drained it, it is
 * about to end, or a switch above wants it. Each reason lasts as long as it does, whatever becomes
 * of the others. Children and the switch above are by hand, over sockets.
 */
#include "../unit/cmocka_all.h"

#include "base/job_key.h"
#include "device/give_back.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "simverbs/simverbs.h"
#include "tools/nccl-ha-switchd/groups.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define GROUP	    77
#define NODE	    2 /* this switch, behind two members */
#define PARENT	    3
#define ROUNDS_MOST 100000

/* Both ends of a child's connection, and of the one to the switch above. */
static struct {
	struct ns_child here;
	struct ha_talk there;
	unsigned asked; /* to leave */
} children[2];
static struct ha_talk above;

static struct ha_config config;
static struct ha_device_set *set;
static struct ha_job_key *site;
static struct ns_groups groups;
static struct ha_edge edge; /* what is at the other end of all */
static union ha_sockaddr at;
static int epoll, listener;

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

static void install(void)
{
	struct ha_part_place place = {
	    .tree = 0, .node = NODE, .children = 2, .parent = PARENT, .at = at};
	const struct ha_part part = {.group = GROUP,
				     .unit_bytes = 1024,
				     .window = 2,
				     .members = 2,
				     .lanes = 1,
				     .leader = at,
				     .n = 1,
				     .places = &place};
	uint8_t text[HA_PART_HEAD_BYTES + HA_PART_PLACE_BYTES];
	const struct ha_talk_frame frame = {.text = text, .length = sizeof(text), .secret = {9}};

	ha_part_encode(&part, text);
	assert_true(ns_groups_install(&groups, &frame));
}

static int setup(void **state)
{
	const union ha_sockaddr any = {
	    .in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	const struct ha_edge_depth depth = {2, 2};

	(void)state;
	memset(children, 0, sizeof(children));
	ha_config_load(&config, no_env);
	sv_stepped_destroy();
	assert_int_equal(sv_stepped_open(NULL), 0);
	sv_stepped_set_host(0);
	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	assert_int_equal(ha_edge_open(&edge, &set->ports[0], &depth), HA_OK);
	site = make_key();
	epoll = epoll_create1(EPOLL_CLOEXEC);
	listener = ha_net_listen(&any, 4, &at);
	assert_true(epoll >= 0 && listener >= 0);
	ns_groups_begin(&groups, &set->ports[0], site, epoll);
	install();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		ns_groups_leave(&groups, &children[i].here);
		ha_talk_end(&children[i].here.line.talk);
		ha_talk_end(&children[i].there);
	}
	ha_talk_end(&above);
	assert_true(ns_groups_end(&groups));
	assert_int_equal(ha_edge_close(&edge), HA_OK);
	ha_memory_close(set);
	ha_device_set_close(set);
	ha_job_key_free(site);
	close(epoll);
	close(listener);
	return 0;
}

static void take(struct ha_talk *talk)
{
	int fd;

	do
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0);
	ha_talk_take(talk, fd, site, HA_CTRL_ASK_MAX);
}

/* Everything that has been said is heard; the switch above answers who joins. */
static void hear_above(void)
{
	uint8_t text[HA_EDGE_ADDRESS_BYTES];
	struct ha_edge_address own;
	enum ha_talk_event event;

	while ((event = ha_talk_next(&above)) != HA_TALK_NOTHING) {
		assert_int_not_equal(event, HA_TALK_ENDED);
		if (event != HA_TALK_HEARD)
			continue;
		assert_int_equal(above.heard.kind, HA_CTRL_JOIN);
		ha_edge_address(&edge, &own);
		ha_edge_address_encode(&own, text);
		assert_true(ha_talk_say(&above, HA_CTRL_JOINED, NULL, text, sizeof(text)));
	}
}

static void hear_as_children(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct ha_talk *talk = &children[i].there;
		enum ha_talk_event event;

		if (!talk->site)
			continue;
		while ((event = ha_talk_next(talk)) != HA_TALK_NOTHING) {
			assert_int_not_equal(event, HA_TALK_ENDED);
			children[i].asked +=
			    event == HA_TALK_HEARD && talk->heard.kind == HA_CTRL_DRAIN;
		}
	}
}

static void hear(void)
{
	struct epoll_event event;

	for (unsigned quiet = 0; quiet < 3;) { /* on a socket of this machine it is there at once */
		quiet++;
		while (epoll_wait(epoll, &event, 1, 1) == 1) {
			((struct ns_line *)event.data.ptr)->look(event.data.ptr, 0);
			quiet = 0;
		}
		if (above.site)
			hear_above();
		hear_as_children();
	}
}

static void ignore(struct ns_line *line, uint64_t now_ns)
{
	(void)line, (void)now_ns;
}

static void dial(unsigned i)
{
	struct ha_talk *talk = &children[i].here.line.talk;

	ha_talk_dial(&children[i].there, &at, site, HA_CTRL_ASK_MAX);
	take(talk);
	ns_line_begin(&children[i].here.line, ignore);
	for (unsigned n = 0; n < ROUNDS_MOST && (talk->phase != HA_TALK_OPEN ||
						 children[i].there.phase != HA_TALK_OPEN);
	     n++) {
		(void)ha_talk_next(talk);
		(void)ha_talk_next(&children[i].there);
	}
	assert_int_equal(talk->phase, HA_TALK_OPEN);
}

static enum ns_admission join(unsigned i, const char **why)
{
	struct ns_child *child = &children[i].here;

	if (!child->line.talk.site)
		dial(i);
	child->join = (struct ha_join){.group = GROUP, .node = NODE, .place = (uint16_t)i};
	ha_edge_address(&edge, &child->join.edge);
	child->secret[0] = 9;
	return ns_groups_admit(&groups, child, 1, why);
}

/* The first child, behind which the switch above is dialled. */
static void begin(void)
{
	const char *why = NULL;

	memset(&above, 0, sizeof(above));
	assert_int_equal(join(0, &why), NS_JOINED);
	take(&above);
	hear();
	assert_int_equal(children[0].asked, 0);
}

static void an_end_that_is_announced_is_not_taken_back_with_a_drain(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	ns_groups_announce_end(&groups);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_false(groups.is_drained); /* which is what a controller would hear */
	ns_groups_drain(&groups);
	ns_groups_undrain(&groups);
	assert_int_equal(join(1, &why), NS_REFUSED);
	assert_string_equal(why, "this switch is about to end");
	hear();
	assert_int_equal(children[0].asked, 1);
}

static void a_drain_is_taken_back_and_said_again(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	ns_groups_drain(&groups);
	assert_int_equal(join(1, &why), NS_REFUSED);
	assert_string_equal(why, "this switch is drained");
	ns_groups_undrain(&groups);
	assert_int_equal(join(1, &why), NS_JOINED);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_int_equal(children[1].asked, 0);
	ns_groups_drain(&groups);
	ns_groups_drain(&groups); /* is no news */
	hear();
	assert_int_equal(children[0].asked, 2);
	assert_int_equal(children[1].asked, 1);
}

/* A controller that has been started again says GO to this one, and that is not about that one. */
static void what_a_switch_above_wants_lasts_whatever_is_said_of_this_one(void **state)
{
	const char *why = NULL;

	(void)state;
	begin();
	assert_true(ha_talk_say(&above, HA_CTRL_DRAIN, NULL, "", 0));
	hear();
	assert_int_equal(children[0].asked, 1);
	ns_groups_undrain(&groups);
	assert_int_equal(join(1, &why), NS_JOINED);
	hear();
	assert_int_equal(children[0].asked, 1);
	assert_int_equal(children[1].asked, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(an_end_that_is_announced_is_not_taken_back_with_a_drain),
	    TEST(a_drain_is_taken_back_and_said_again),
	    TEST(what_a_switch_above_wants_lasts_whatever_is_said_of_this_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
