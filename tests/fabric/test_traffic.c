/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `simverbs status --json` says that ports and links have carried is what two processes had
 * them carry, at both ends, and nothing on a rail that they did not use.
 */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define USED_RAIL 1
#define MTU	  4096u
#define WRITES	  3u
#define WRITE	  (10 * MTU + 1)
#define IMMS	  4u
#define IMM	  (2 * MTU)
#define SENDS	  2u
#define SEND	  100u
#define READS	  2u
#define READ	  (5 * MTU - 1)
#define REQUESTS  (WRITES + IMMS + SENDS + READS)

static const struct end_options options = {
    .rail = USED_RAIL, .len = 1u << 20, .timeout = 18, .retry_cnt = 7};

static int receives(int peer_fd, int test_fd, void *arg)
{
	struct ibv_wc wc;
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &options);
	for (unsigned i = 0; i < IMMS + SENDS; i++)
		NEED(!end_post_recv(&end, (size_t)i * MTU, MTU));
	meet(peer_fd);
	for (unsigned i = 0; i < IMMS + SENDS; i++)
		NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static int sends(int peer_fd, int test_fd, void *arg)
{
	struct ibv_wc wc;
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &options);
	meet(peer_fd);
	for (unsigned i = 0; i < WRITES; i++)
		NEED(!end_post_write(&end, 0, WRITE, i));
	for (unsigned i = 0; i < IMMS; i++)
		NEED(!end_post_write_imm(&end, 0, IMM, i));
	for (unsigned i = 0; i < SENDS; i++)
		NEED(!end_post_send(&end, 0, SEND));
	for (unsigned i = 0; i < READS; i++)
		NEED(!end_post_read(&end, 0, READ));
	for (unsigned i = 0; i < REQUESTS; i++)
		NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static json_t *device(const json_t *status, int host, int rail)
{
	json_t *dev;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i,
			   dev) if (json_integer_value(json_object_get(dev, "host")) == host &&
				    json_integer_value(json_object_get(dev, "rail")) ==
					rail) return dev;
	fail_msg("no device of host %d, rail %d", host, rail);
	return NULL;
}

static long long in(const json_t *object, const char *name)
{
	json_t *value = json_object_get(object, name);

	if (!json_is_integer(value))
		fail_msg("no number '%s'", name);
	return json_integer_value(value);
}

static long long traffic(const json_t *dev, const char *name)
{
	return in(json_object_get(dev, "traffic"), name);
}

/* Of its only link. */
static long long link_carried(const json_t *dev, const char *way, const char *name)
{
	json_t *links = json_object_get(dev, "links");

	assert_int_equal(json_array_size(links), 1);
	return in(json_object_get(json_array_get(links, 0), way), name);
}

static void the_link_carried_what_the_port_counts(const json_t *dev)
{
	assert_int_equal(link_carried(dev, "out", "bytes"), traffic(dev, "bytes_out"));
	assert_int_equal(link_carried(dev, "out", "packets"), traffic(dev, "packets_out"));
	assert_int_equal(link_carried(dev, "in", "bytes"), traffic(dev, "bytes_in"));
	assert_int_equal(link_carried(dev, "in", "packets"), traffic(dev, "packets_in"));
}

static void nothing_was_carried(const json_t *dev)
{
	const char *name;
	json_t *value;

	the_link_carried_what_the_port_counts(dev);
	json_object_foreach(json_object_get(dev, "traffic"), name,
			    value) if (json_integer_value(value))
	    fail_msg("%s: %lld", name, (long long)json_integer_value(value));
}

static void ports_and_links_count_what_was_sent_at_both_ends(void **state)
{
	const json_t *to, *from;
	json_t *status;
	struct pair pair;

	(void)state;
	fabric_up("--rails 2 --rate 2 --pace");
	pair_start(&pair, receives, sends, NULL);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	status = fabric_status();
	assert_non_null(status);
	to = device(status, 0, USED_RAIL);
	from = device(status, 1, USED_RAIL);

	assert_int_equal(traffic(from, "work_requests"), REQUESTS);
	assert_int_equal(traffic(from, "bytes_out"), WRITES * WRITE + IMMS * IMM + SENDS * SEND);
	/* A read is asked for in one. */
	assert_int_equal(traffic(from, "packets_out"), WRITES * 11 + IMMS * 2 + SENDS + READS);
	assert_int_equal(traffic(from, "bytes_in"), READS * READ);
	assert_int_equal(traffic(from, "receives"), 0);
	assert_int_equal(traffic(from, "immediates"), 0);

	assert_int_equal(traffic(to, "work_requests"), 0);
	assert_int_equal(traffic(to, "receives"), IMMS + SENDS);
	assert_int_equal(traffic(to, "immediates"), IMMS);
	assert_int_equal(traffic(to, "bytes_in"), traffic(from, "bytes_out"));
	assert_int_equal(traffic(to, "packets_in"), traffic(from, "packets_out"));
	assert_int_equal(traffic(to, "bytes_out"), traffic(from, "bytes_in"));
	assert_int_equal(traffic(to, "packets_out"), traffic(from, "packets_in"));
	/* The answers to reads, and acknowledgements. */
	assert_true(traffic(to, "packets_out") > READS * 5);

	the_link_carried_what_the_port_counts(from);
	the_link_carried_what_the_port_counts(to);
	nothing_was_carried(device(status, 0, !USED_RAIL));
	nothing_was_carried(device(status, 1, !USED_RAIL));
	json_decref(status);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ports_and_links_count_what_was_sent_at_both_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
