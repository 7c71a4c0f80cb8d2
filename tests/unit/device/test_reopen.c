/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a NIC's device again, on devices that are made up: by GUID and place, not by name. */
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"

#include "device/reopen.h"

#include <errno.h>
#include <string.h>

static struct ha_config config;
static struct ha_device_set *set;

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

/* Two devices, of which the first is about to die. */
static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	capture_log();
	ha_config_load(&config, no_env);
	fake_device_add("mlx5_0")->attr.node_guid = 0xa0;
	fake_device_add("mlx5_1")->attr.node_guid = 0xa1;
	assert_int_equal(ha_device_set_open(&config, &set), HA_OK);
	assert_int_equal(set->nnics, 2);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_device_set_close(set);
	for (int i = 0; i < fake_ndevices; i++) {
		assert_int_equal(fake_devices[i].opens, fake_devices[i].closes);
		assert_int_equal(fake_devices[i].pds, 0);
	}
	fake_verbs_done();
	return 0;
}

/* The first device comes back as another one. */
static struct fake_device *back_as(const char *name)
{
	struct fake_device *device = fake_device_add(name);

	device->attr.node_guid = fake_devices[0].attr.node_guid;
	strcpy(device->device.ibdev_path, fake_devices[0].device.ibdev_path);
	fake_devices[0].attr.node_guid = 0xdead;
	return device;
}

/* What is found for the first NIC: the name, or "". */
static const char *found_as(void)
{
	static char name[64];
	struct ha_reopening found;

	ha_nic_reopen(&set->nics[0], &found);
	name[0] = '\0';
	if (!found.incarnation)
		return name;
	strcpy(name, found.name);
	ha_incarnation_close(found.incarnation);
	return name;
}

static void it_is_found_under_the_name_that_it_had(void **state)
{
	(void)state;
	assert_string_equal(found_as(), "mlx5_0");
}

static void it_is_found_under_another_name(void **state)
{
	(void)state;
	back_as("rocep1s0");
	assert_string_equal(found_as(), "rocep1s0");
	assert_string_equal(set->nics[0].name, "mlx5_0"); /* as NCCL knows it */
}

static void another_device_that_took_its_name_is_not_it(void **state)
{
	(void)state;
	fake_devices[0].attr.node_guid = 0xb0;
	assert_string_equal(found_as(), "");
	back_as("mlx5_9")->attr.node_guid = 0xa0;
	assert_string_equal(found_as(), "mlx5_9");
}

/* Virtual functions whose GUIDs nobody has set. */
static void equal_guids_are_told_apart_by_place(void **state)
{
	(void)state;
	fake_devices[1].attr.node_guid = 0xa0;
	assert_string_equal(found_as(), "mlx5_0");
	fake_devices[0].attr.node_guid = 0xdead;
	assert_string_equal(found_as(), "");
}

static void without_place_and_guid_the_name_tells(void **state)
{
	struct ha_nic *nic = &set->nics[0];

	(void)state;
	nic->pci_path[0] = '\0';
	nic->attr.node_guid = 0;
	for (int i = 0; i < fake_ndevices; i++) {
		fake_devices[i].attr.node_guid = 0;
		strcpy(fake_devices[i].device.ibdev_path, "/nowhere");
	}
	assert_string_equal(found_as(), "mlx5_0");
	strcpy(fake_devices[0].device.name, "mlx5_2");
	assert_string_equal(found_as(), "");
}

static void what_failed_is_said_and_leaves_nothing_open(void **state)
{
	struct ha_reopening found;

	(void)state;
	fake_devices[0].open_errno = EACCES;
	ha_nic_reopen(&set->nics[0], &found);
	assert_null(found.incarnation);
	assert_string_equal(found.why.verb, "ibv_open_device");
	assert_int_equal(found.why.error, EACCES);
	assert_string_equal(found.name, "mlx5_0");
	assert_int_equal(captured_warnings, 0); /* who asked says it */
	fake_devices[0].attr.node_guid = 1;
	ha_nic_reopen(&set->nics[0], &found);
	assert_null(found.why.verb); /* it is not there at all */
}

/* Renews the first NIC and reads its only port. */
static ha_result_t renewed(void)
{
	struct ha_reopening found;

	(void)ha_incarnation_died(set->nics[0].now);
	ha_nic_reopen(&set->nics[0], &found);
	assert_non_null(found.incarnation);
	ha_nic_renew(set, &set->nics[0], found.incarnation);
	assert_int_equal(found.incarnation->number, 2);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_DOWN);
	assert_true(atomic_load(&set->ports[0].refresh_due));
	assert_true(atomic_load(&set->nics[0].fatal)); /* until all is ready */
	return ha_port_refresh(&set->ports[0]);
}

static void its_ports_are_read_anew(void **state)
{
	(void)state;
	assert_int_equal(renewed(), HA_OK);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
	assert_int_equal(captured_warnings, 0);
}

static void a_port_that_is_not_there_any_more_stays_down(void **state)
{
	(void)state;
	fake_devices[0].ports[1].query_error = EINVAL;
	assert_int_equal(renewed(), HA_ERR_SYSTEM);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_DOWN);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_0:1: cannot read the port's state: Invalid argument "
			   "(ibv_query_port; has the device fewer ports than it had?)"));
}

static void a_port_of_another_link_layer_is_not_used(void **state)
{
	(void)state;
	fake_devices[0].ports[1].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(renewed(), HA_ERR_SYSTEM);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_DOWN);
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("mlx5_0:1: the port speaks InfiniBand now, and spoke RoCE"));
	fake_devices[0].ports[1].attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	assert_int_equal(ha_port_refresh(&set->ports[0]), HA_OK);
	assert_int_equal(atomic_load(&set->ports[0].state), IBV_PORT_ACTIVE);
}

static void what_is_held_is_not_closed(void **state)
{
	struct ha_incarnation *held = ha_nic_hold(&set->nics[0]), *idle;
	bool left;

	(void)state;
	assert_int_equal(renewed(), HA_OK);
	assert_null(ha_nic_idle(&set->nics[0], &left));
	assert_true(left);
	assert_ptr_not_equal(set->nics[0].now, held);
	ha_incarnation_let_go(held);
	idle = ha_nic_idle(&set->nics[0], &left);
	assert_ptr_equal(idle, held);
	assert_false(left);
	ha_incarnation_close(idle);
	assert_null(ha_nic_idle(&set->nics[0], &left));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(it_is_found_under_the_name_that_it_had),
	    TEST(it_is_found_under_another_name),
	    TEST(another_device_that_took_its_name_is_not_it),
	    TEST(equal_guids_are_told_apart_by_place),
	    TEST(without_place_and_guid_the_name_tells),
	    TEST(what_failed_is_said_and_leaves_nothing_open),
	    TEST(its_ports_are_read_anew),
	    TEST(a_port_that_is_not_there_any_more_stays_down),
	    TEST(a_port_of_another_link_layer_is_not_used),
	    TEST(what_is_held_is_not_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
