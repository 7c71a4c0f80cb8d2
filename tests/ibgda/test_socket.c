/* SPDX-License-Identifier: Apache-2.0 */
/* What hosts hear of a socket whose other end has gone, and of one that nobody reads. */
#include "../unit/cmocka_all.h"

#include "ibgda/socket.h"

#include <sys/socket.h>
#include <unistd.h>

#define MESSAGES_MOST 100000u

static const struct ha_ibgda_message close_message = {
    .version = HA_IBGDA_VERSION, .kind = HA_IBGDA_CLOSE, .pair = 1};

static struct {
	int other;
	struct ha_ibgda_socket socket;
	struct ha_ibgda_channel channel;
} w;

static int setup(void **state)
{
	int fds[2];

	(void)state;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
		return -1;
	w.other = fds[1];
	ha_ibgda_socket_open(&w.socket, fds[0]);
	w.channel = ha_ibgda_socket_channel(&w.socket);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_ibgda_socket_close(&w.socket);
	return w.other >= 0 ? close(w.other) : 0;
}

static bool send_one(void)
{
	return w.channel.send(w.channel.context, &close_message);
}

static int receive_one(struct ha_ibgda_message *message)
{
	w.socket.is_readable = true;
	return w.channel.receive(w.channel.context, message);
}

/* One reason, whether it is told something first or listened to. */
static void that_the_other_end_has_gone_is_heard_though_it_is_told_something(void **state)
{
	struct ha_ibgda_message message;

	(void)state;
	assert_int_equal(receive_one(&message), 0);
	close(w.other);
	w.other = -1;
	for (unsigned int n = 0; n < 20; n++)
		assert_true(send_one());
	assert_int_equal(receive_one(&message), -1);
	assert_int_equal(receive_one(&message), -1);
}

/* Until there is no room, and what was taken arrives whole. */
static void who_does_not_read_is_not_told_more(void **state)
{
	struct ha_ibgda_socket reader;
	struct ha_ibgda_channel channel;
	struct ha_ibgda_message message;
	unsigned int sent = 0, heard = 0;

	(void)state;
	while (sent < MESSAGES_MOST && send_one())
		sent++;
	assert_in_range(sent, sizeof(w.socket.out) / HA_IBGDA_FRAME, MESSAGES_MOST - 1);
	assert_int_equal(receive_one(&message), 0);
	ha_ibgda_socket_open(&reader, w.other);
	channel = ha_ibgda_socket_channel(&reader);
	for (unsigned int tries = 0; heard < sent && tries < 10 * MESSAGES_MOST; tries++) {
		reader.is_readable = true;
		if (channel.receive(channel.context, &message) == 1) {
			assert_int_equal(message.kind, HA_IBGDA_CLOSE);
			heard++;
		}
		assert_int_equal(receive_one(&message), 0); /* what waits is sent */
	}
	assert_int_equal(heard, sent);
	assert_true(send_one());
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		that_the_other_end_has_gone_is_heard_though_it_is_told_something, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_does_not_read_is_not_told_more, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
