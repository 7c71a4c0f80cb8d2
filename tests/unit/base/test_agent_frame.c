/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's interface as bytes: written here by hand, from the table in docs/rails-agent.md, and
 * not from the header that is compared with them.
 */
#include "../cmocka_all.h"

#include "base/agent_frame.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t register_bytes[28] = {
    0x52, 0x49, 0x50, 0x4d, 28, 0, 1, 0, /* magic, length, REGISTER, zero */
    0x03, 0x00, 0x39, 0x30,		 /* conn_id: process 0x3039, its third */
    10,	  0,	1,    1,		 /* SOUT, from */
    10,	  0,	2,    7,		 /* SOUT, to */
    172,  16,	0,    1,		 /* SUP, from */
    172,  16,	0,    2,		 /* SUP, to */
};
static const uint8_t deregister_bytes[12] = {0x52, 0x49, 0x50, 0x4d, 12,   0,
					     2,	   0,	 0x03, 0x00, 0x39, 0x30};
static const uint8_t response_bytes[16] = {0x52, 0x49, 0x50, 0x4d, 16, 0, 128, 0,
					   0,	 0,    0,    0,	   9,  1, 0,   0};
static const uint8_t full_bytes[16] = {0x52, 0x49, 0x50, 0x4d, 16, 0, 128, 0,
				       1,    0,	   0,	 0,    0,  0, 0,   0};
static const uint8_t gone_bytes[12] = {0x52, 0x49, 0x50, 0x4d, 12, 0, 128, 0, 2, 0, 0, 0};
static const uint8_t set_bytes[20] = {0x52, 0x49, 0x50, 0x4d, 20, 0, 64,   0,	 10, 0,
				      1,    1,	  10,	0,    2,  7, 0x00, 0x01, 0,  0};

static const struct {
	const uint8_t *bytes;
	size_t length;
} all[] = {
    {register_bytes, sizeof(register_bytes)}, {deregister_bytes, sizeof(deregister_bytes)},
    {response_bytes, sizeof(response_bytes)}, {full_bytes, sizeof(full_bytes)},
    {gone_bytes, sizeof(gone_bytes)},	      {set_bytes, sizeof(set_bytes)},
};

#define ALL (sizeof(all) / sizeof(all[0]))

static uint32_t ip(const char *text)
{
	struct in_addr address;

	assert_int_equal(inet_pton(AF_INET, text, &address), 1);
	return address.s_addr;
}

static struct ha_agent_frame decoded(const uint8_t *bytes, size_t length)
{
	struct ha_agent_frame frame;

	assert_int_equal(ha_agent_decode(bytes, length, &frame), (int)length);
	return frame;
}

static void each_frame_says_what_its_bytes_say(void **state)
{
	struct ha_agent_frame frame = decoded(register_bytes, sizeof(register_bytes));

	(void)state;
	assert_int_equal(frame.type, 1);
	assert_true(frame.conn_id == 0x30390003u);
	assert_true(frame.flow.sout_src_ip == ip("10.0.1.1"));
	assert_true(frame.flow.sout_dst_ip == ip("10.0.2.7"));
	assert_true(frame.flow.sup_src_ip == ip("172.16.0.1"));
	assert_true(frame.flow.sup_dst_ip == ip("172.16.0.2"));
	frame = decoded(deregister_bytes, sizeof(deregister_bytes));
	assert_int_equal(frame.type, 2);
	assert_true(frame.conn_id == 0x30390003u);
	frame = decoded(response_bytes, sizeof(response_bytes));
	assert_int_equal(frame.type, 128);
	assert_int_equal(frame.status, 0);
	assert_true(frame.has_slot);
	assert_int_equal(frame.hint_slot, 265);
	frame = decoded(full_bytes, sizeof(full_bytes));
	assert_int_equal(frame.status, 1);
	frame = decoded(gone_bytes, sizeof(gone_bytes));
	assert_int_equal(frame.status, 2);
	assert_false(frame.has_slot);
	frame = decoded(set_bytes, sizeof(set_bytes));
	assert_int_equal(frame.share, 256);
	assert_true(frame.flow.sout_dst_ip == ip("10.0.2.7"));
}

static void what_is_said_again_has_the_same_bytes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ALL; i++) {
		struct ha_agent_frame frame = decoded(all[i].bytes, all[i].length);
		uint8_t out[HA_AGENT_FRAME_MAX];

		memset(out, 0xee, sizeof(out));
		assert_true(ha_agent_encode(&frame, out) == all[i].length);
		assert_memory_equal(out, all[i].bytes, all[i].length);
	}
}

static void a_frame_that_is_not_all_there_is_waited_for(void **state)
{
	struct ha_agent_frame frame;

	(void)state;
	for (size_t i = 0; i < ALL; i++)
		for (size_t size = 0; size < all[i].length; size++)
			assert_int_equal(ha_agent_decode(all[i].bytes, size, &frame), 0);
}

static void what_begins_like_no_frame_is_refused(void **state)
{
	/* Magic, each of its bytes; both bytes of the length; the type. */
	static const size_t where[] = {0, 1, 2, 3, 4, 5, 6};
	struct ha_agent_frame frame;
	uint8_t bytes[28];

	(void)state;
	for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
		memcpy(bytes, register_bytes, sizeof(bytes));
		bytes[where[i]] ^= 0x20;
		assert_int_equal(ha_agent_decode(bytes, sizeof(bytes), &frame), -1);
		assert_int_equal(ha_agent_decode(bytes, 8, &frame), -1); /* and at once */
	}
	memcpy(bytes, register_bytes, sizeof(bytes));
	bytes[4] = bytes[5] = 0;
	assert_int_equal(ha_agent_decode(bytes, sizeof(bytes), &frame), -1);
}

/* A file of 4112 bytes, by offsets. */
static void the_file_of_hints_is_where_its_table_says(void **state)
{
	static uint8_t file[4112] __attribute__((aligned(16)));
	static const uint8_t header[16] = {0x48, 0x49, 0x50, 0x4d, 0, 1, 0, 0};
	static const uint8_t entry[16] = {0x00, 0x03, 0, 0,  /* share 768 */
					  0x06, 0,    0, 0,  /* seq */
					  10,	0,    1, 1,  /* from */
					  10,	0,    2, 7}; /* to */
	const struct mpib_hint_shm *shm = (const struct mpib_hint_shm *)file;

	(void)state;
	memcpy(file, header, sizeof(header));
	memcpy(file + 16 + 16 * 255, entry, sizeof(entry));
	assert_true(sizeof(*shm) == sizeof(file));
	assert_true(shm->header.magic == MPIB_HINT_MAGIC);
	assert_int_equal(shm->header.max_entries, MPIB_HINT_MAX_ENTRIES);
	assert_int_equal(shm->entries[255].sup_bw, 768);
	assert_int_equal(shm->entries[255].seq, 6);
	assert_true(shm->entries[255].src_ip == ip("10.0.1.1"));
	assert_true(shm->entries[255].dst_ip == ip("10.0.2.7"));
	assert_string_equal(MPIB_AGENT_DIR "/" MPIB_AGENT_HINTS, "/tmp/mpib/hints");
	assert_string_equal(MPIB_AGENT_DIR "/" MPIB_AGENT_SOCKET, "/tmp/mpib/agent.sock");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_frame_says_what_its_bytes_say),
	    cmocka_unit_test(what_is_said_again_has_the_same_bytes),
	    cmocka_unit_test(a_frame_that_is_not_all_there_is_waited_for),
	    cmocka_unit_test(what_begins_like_no_frame_is_refused),
	    cmocka_unit_test(the_file_of_hints_is_where_its_table_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
