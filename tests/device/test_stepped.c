/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Discovery, events and registrations on a stepped simverbs fabric, whose library is a whole
 * libibverbs: what the unit tests show against fakes, shown against something that behaves.
 */
#include "../unit/captured_log.h"
#include "../unit/cmocka_all.h"
#include "../unit/read_events.h"
#include "memory/pd.h"

#include "device/device.h"
#include "memory/mr.h"
#include "simverbs/simverbs.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <unistd.h>

static struct ha_config config;

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static int setup(void **state)
{
	(void)state;
	capture_log();
	ha_config_load(&config, no_env);
	return 0;
}

static int teardown(void **state)
{
	int left = (int)sv_stepped_open_contexts();

	(void)state;
	return sv_stepped_close() == 0 && left == 0 ? 0 : -1;
}

static void fabric(const struct sv_stepped_opts *opts)
{
	assert_int_equal(sv_stepped_open(opts), 0);
}

static struct ha_device_set *devices_of(uint32_t host)
{
	struct ha_device_set *set;

	sv_stepped_set_host(host);
	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	return set;
}

static union ibv_gid gid_of(const char *text)
{
	union ibv_gid gid;

	assert_int_equal(inet_pton(AF_INET6, text, gid.raw), 1);
	return gid;
}

static void each_host_has_its_own_devices_told_apart_by_guid_and_address(void **state)
{
	struct ha_device_set *sets[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){.hosts = 2, .rails = 4});
	for (uint32_t host = 0; host < 2; host++)
		sets[host] = devices_of(host);
	for (uint32_t host = 0; host < 2; host++) {
		assert_int_equal(sets[host]->nports, 4);
		for (int rail = 0; rail < 4; rail++) {
			struct ha_port *port = &sets[host]->ports[rail];
			struct ha_port_addr addr;
			union ibv_gid expected;
			char text[64];

			snprintf(text, sizeof text, "sim%d", rail);
			assert_string_equal(port->nic->name, text);
			assert_int_equal(port->speed_mbps, 400000);
			snprintf(text, sizeof text, "::ffff:10.%d.0.%u", rail, host + 1);
			expected = gid_of(text);
			ha_port_addr(port, &addr);
			assert_memory_equal(&addr.gid, &expected, sizeof expected);
			assert_int_equal(port->roce_version, 2);
			for (int other = 0; other < rail; other++)
				assert_int_not_equal(port->nic->guid,
						     sets[host]->ports[other].nic->guid);
			assert_int_not_equal(port->nic->guid, sets[!host]->ports[rail].nic->guid);
		}
	}
	ha_device_set_close(sets[0]);
	ha_device_set_close(sets[1]);
}

static void gid_preferences_choose_from_a_real_table(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fabric(NULL);
	config.ib_roce_version_num = 1;
	set = devices_of(0);
	assert_int_equal(set->ports[0].roce_version, 1);
	ha_device_set_close(set);
	config.ib_roce_version_num = 2;
	config.ib_addr_family = AF_INET6;
	set = devices_of(0);
	assert_int_equal(set->ports[0].gid.raw[0], 0xfe);
	assert_int_equal(set->ports[0].roce_version, 2);
	ha_device_set_close(set);
}

static void infiniband_ports_have_lids(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fabric(&(struct sv_stepped_opts){.infiniband = true});
	set = devices_of(1);
	assert_int_equal(set->ports[0].link_layer, IBV_LINK_LAYER_INFINIBAND);
	assert_int_not_equal(set->ports[0].lid, 0);
	assert_true(set->ports[0].adaptive_routing);
	ha_device_set_close(set);
}

static void a_link_that_flaps_is_followed(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fabric(&(struct sv_stepped_opts){.rails = 2});
	set = devices_of(0);
	assert_int_equal(read_events(set, &set->nics[0]), 0);
	for (int i = 0; i < 3; i++) {
		sv_stepped_link(0, 0, false);
		assert_true(read_events(set, &set->nics[0]) >= 1);
		assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_DOWN);
		assert_int_equal(atomic_load(&set->ports[1].state), IBV_PORT_ACTIVE);
		sv_stepped_link(0, 0, true);
		assert_true(read_events(set, &set->nics[0]) >= 1);
		assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	}
	ha_device_set_close(set);
}

static void a_dead_device_is_fatal_and_closes(void **state)
{
	struct ha_device_set *set;
	struct ha_incarnation *on;
	struct ha_mr *mr;
	char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	fabric(&(struct sv_stepped_opts){.rails = 2});
	set = devices_of(0);
	assert_int_equal(ha_nic_pd_get(&set->nics[0], &on), HA_OK);
	assert_int_equal(ha_mr_register(set, &set->nics[0], memory, 8192, HA_MEM_HOST, 0, -1, &mr),
			 HA_OK);
	sv_stepped_kill(0, 0);
	assert_true(read_events(set, &set->nics[0]) >= 1);
	assert_true(atomic_load(&set->nics[0].fatal));
	assert_false(atomic_load(&set->nics[1].fatal));
	/* Nothing of it may hang or crash; that verbs refuse is only logged. */
	ha_mr_deregister(mr);
	ha_nic_pd_put(on);
	ha_memory_close(set);
	ha_device_set_close(set);
	munmap(memory, 8192);
}

static void an_address_that_changes_is_followed(void **state)
{
	union ibv_gid changed;
	struct ha_port_addr before, after;
	struct ha_device_set *set;

	(void)state;
	fabric(NULL);
	set = devices_of(0);
	ha_port_addr(&set->ports[0], &before);
	changed = gid_of("::ffff:10.77.0.1");
	sv_stepped_set_gid(0, 0, (uint32_t)before.gid_index, &changed);
	assert_int_equal(read_events(set, &set->nics[0]), 1);
	ha_port_addr(&set->ports[0], &after);
	assert_memory_equal(&after.gid, &changed, sizeof changed);
	assert_true(after.addr_gen > before.addr_gen);
	ha_device_set_close(set);
}

static void the_devices_limit_on_registrations_is_reported_and_survived(void **state)
{
	enum { LIMIT = 4 };
	struct ha_mr *mr[LIMIT + 1] = {0};
	struct ha_device_set *set;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *memory =
	    mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	fabric(&(struct sv_stepped_opts){.max_mr = LIMIT});
	set = devices_of(0);
	for (size_t i = 0; i < LIMIT; i++)
		assert_int_equal(ha_mr_register(set, &set->nics[0], memory + 2 * i * page, page,
						HA_MEM_HOST, 0, -1, &mr[i]),
				 HA_OK);
	assert_int_equal(ha_mr_register(set, &set->nics[0], memory + 12 * page, page, HA_MEM_HOST,
					0, -1, &mr[LIMIT]),
			 HA_ERR_SYSTEM);
	assert_true(logged("sim0: cannot register 4096 bytes of host memory"));
	/* What is registered already can be shared. */
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], memory + 10, 20, HA_MEM_HOST, 0, -1, &mr[LIMIT]),
	    HA_OK);
	for (size_t i = 0; i <= LIMIT; i++)
		ha_mr_deregister(mr[i]);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 0);
	assert_null(set->nics[0].now->pd);
	ha_memory_close(set);
	ha_device_set_close(set);
	munmap(memory, 16 * page);
}

static void a_dmabuf_moves_to_another_nic_after_its_descriptor_was_closed(void **state)
{
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	struct ibv_mr *first, *second;
	struct ha_device_set *set;
	struct ha_mr *mr;

	(void)state;
	fabric(&(struct sv_stepped_opts){.rails = 2});
	set = devices_of(0);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_true(ha_nic_ptr_support(&set->nics[0]) & HA_PTR_DMABUF);
	assert_int_equal(ha_mr_register(set, &set->nics[0], (void *)0x10000000, 65536,
					HA_MEM_DMABUF, 4096, fd, &mr),
			 HA_OK);
	close(fd);
	assert_int_equal(ha_mr_on(mr, &set->nics[0], &first), HA_OK);
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &second), HA_OK);
	assert_ptr_not_equal(first, second);
	ha_mr_deregister(mr);
	ha_memory_close(set);
	ha_device_set_close(set);
}

static void a_thousand_openings_leave_nothing_open(void **state)
{
	int lowest_free, again;

	(void)state;
	fabric(&(struct sv_stepped_opts){.rails = 2});
	ha_device_set_close(devices_of(0));
	lowest_free = dup(0);
	close(lowest_free);
	for (int i = 0; i < 1000; i++)
		ha_device_set_close(devices_of((uint32_t)i % 2));
	again = dup(0);
	close(again);
	assert_int_equal(again, lowest_free);
	assert_int_equal(sv_stepped_open_contexts(), 0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(each_host_has_its_own_devices_told_apart_by_guid_and_address),
	    TEST(gid_preferences_choose_from_a_real_table),
	    TEST(infiniband_ports_have_lids),
	    TEST(a_link_that_flaps_is_followed),
	    TEST(a_dead_device_is_fatal_and_closes),
	    TEST(an_address_that_changes_is_followed),
	    TEST(the_devices_limit_on_registrations_is_reported_and_survived),
	    TEST(a_dmabuf_moves_to_another_nic_after_its_descriptor_was_closed),
	    TEST(a_thousand_openings_leave_nothing_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
