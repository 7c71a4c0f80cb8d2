/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which devices NCCL gets of which ports: what HA_NCCL_RAILS and its aliases ask for, and what
 * comes of it when they ask for what cannot be.
 */
#include "../unit/captured_log.h"
#include "../unit/cmocka_all.h"
#include "../unit/fake_verbs.h"

#include "device/device.h"
#include "device/rank.h"

#include <errno.h>
#include <string.h>

/* The variables of a test: NAME, VALUE. */
static const char *variables[9];

static char *test_env(const char *name)
{
	for (int i = 0; variables[i]; i += 2)
		if (strcmp(variables[i], name) == 0)
			return (char *)(uintptr_t)variables[i + 1];
	return NULL;
}

static struct ha_config config;

/* The set with these variables; pair with ha_device_set_close. */
#define DISCOVER(...)                                                                              \
	({                                                                                         \
		const char *const said[] = {__VA_ARGS__};                                          \
		struct ha_device_set *found;                                                       \
		memset(variables, 0, sizeof(variables));                                           \
		memcpy(variables, said, sizeof(said));                                             \
		capture_log();                                                                     \
		ha_config_load(&config, test_env);                                                 \
		assert_int_equal(ha_device_set_open(&config, &found), HA_OK);                      \
		found;                                                                             \
	})

static int four_nics(void **state)
{
	(void)state;
	fake_verbs_reset();
	for (int i = 0; i < 4; i++) {
		char name[24];

		snprintf(name, sizeof(name), "mlx5_%d", i);
		fake_device_add(name);
	}
	return 0;
}

static int no_nics(void **state)
{
	(void)state;
	fake_verbs_done();
	return 0;
}

/* "mlx5_1+mlx5_0 mlx5_2": NCCL's devices. */
static const char *devices_of(const struct ha_device_set *set)
{
	static char text[1024];

	text[0] = '\0';
	for (int i = 0; i < set->nbundles; i++) {
		strcat(text, i ? " " : "");
		strcat(text, set->bundles[i].name);
	}
	return text;
}

#define EXPECT(devices, ...)                                                                       \
	do {                                                                                       \
		struct ha_device_set *set_ = DISCOVER(__VA_ARGS__);                                \
		assert_string_equal(devices_of(set_), devices);                                    \
		ha_device_set_close(set_);                                                         \
	} while (0)

#define BY_THEMSELVES "mlx5_0 mlx5_1 mlx5_2 mlx5_3"

/* One WARN, which names variable and value, says why and what is so instead. */
#define EXPECT_REFUSED(named, why, ...)                                                            \
	do {                                                                                       \
		EXPECT(BY_THEMSELVES, __VA_ARGS__);                                                \
		assert_int_equal(captured_warnings, 1);                                            \
		assert_true(logged(named " cannot be used"));                                      \
		assert_true(logged(why));                                                          \
		assert_true(logged("each port is a device by itself"));                            \
	} while (0)

static void without_the_variable_ports_are_devices_by_their_index(void **state)
{
	struct ha_device_set *set = DISCOVER(NULL);

	(void)state;
	assert_string_equal(devices_of(set), BY_THEMSELVES);
	for (int i = 0; i < 4; i++) {
		assert_ptr_equal(ha_bundle_of_device(set, i)->rails[0], &set->ports[i]);
		assert_int_equal(ha_bundle_of_device(set, i)->nrails, 1);
		assert_int_equal(ha_bundle_of_device(set, i)->speed_mbps, 400000);
	}
	assert_null(ha_bundle_of_device(set, 4));
	assert_null(ha_bundle_of_device(set, -1));
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void bundles_come_first_and_their_rails_as_they_are_named(void **state)
{
	struct ha_device_set *set = DISCOVER("HA_NCCL_RAILS", "mlx5_3+mlx5_1");
	const struct ha_bundle *bundle = ha_bundle_of_device(set, 0);

	(void)state;
	assert_string_equal(devices_of(set), "mlx5_3+mlx5_1 mlx5_0 mlx5_2");
	assert_int_equal(bundle->nrails, 2);
	assert_ptr_equal(bundle->rails[0], &set->ports[3]);
	assert_ptr_equal(bundle->rails[1], &set->ports[1]);
	assert_int_equal(bundle->rails[1]->rail, 1);
	assert_int_equal(bundle->speed_mbps, 800000);
	assert_ptr_equal(ha_bundle_of_device(set, 2)->rails[0], &set->ports[2]);
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
	EXPECT("mlx5_0+mlx5_1 mlx5_2+mlx5_3", "HA_NCCL_RAILS",
	       " mlx5_0 + mlx5_1:1 , mlx5_2+mlx5_3 ");
	EXPECT("mlx5_0+mlx5_1+mlx5_2+mlx5_3", "HA_NCCL_RAILS", "mlx5_0+mlx5_1+mlx5_2+mlx5_3");
	assert_int_equal(captured_warnings, 0);
}

static void a_bundle_is_as_good_as_the_least_of_its_rails(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_devices[1].attr.max_qp = 1000;
	fake_devices[0].dmabuf_errno = fake_devices[2].dmabuf_errno = EBADF; /* they know dmabufs */
	fake_devices[1].dmabuf_errno = EOPNOTSUPP;
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_true(set->ports[1].max_comms < set->ports[0].max_comms);
	assert_int_equal(set->bundles[0].max_comms, set->ports[1].max_comms);
	assert_true(set->nics[0].dmabuf);
	assert_int_equal(set->bundles[0].ptr_support, HA_PTR_HOST);
	ha_device_set_close(set);
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0+mlx5_2");
	assert_int_equal(set->bundles[0].ptr_support, HA_PTR_HOST | HA_PTR_DMABUF);
	ha_device_set_close(set);
}

#define SHARED(rails, share) DISCOVER("HA_NCCL_RAILS", rails, "HA_NCCL_RAIL_SHARE", share)

static void shares_are_those_of_all_bundles(void **state)
{
	struct ha_device_set *set = SHARED("mlx5_0+mlx5_1,mlx5_3+mlx5_2", " 3 ,1");

	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_true(set->bundles[i].shares_given);
		assert_int_equal(set->bundles[i].share[0], 3);
		assert_int_equal(set->bundles[i].share[1], 1);
	}
	ha_device_set_close(set);
	set = SHARED("mlx5_0+mlx5_1+mlx5_2", "0,1024,1");
	assert_int_equal(set->bundles[0].share[1], 1024);
	assert_false(ha_bundle_of_device(set, 1)->shares_given); /* a port by itself */
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_false(set->bundles[0].shares_given);
	ha_device_set_close(set);
}

static void shares_that_cannot_be_are_one_warning_and_none_are_given(void **state)
{
	static const struct {
		const char *rails, *share, *why;
	} bad[] = {
	    {"mlx5_0+mlx5_1", "3", "it has 1 shares, and mlx5_0+mlx5_1 has 2 rails"},
	    {"mlx5_0+mlx5_1,mlx5_2+mlx5_3", "3,1,1", "it has 3 shares"},
	    {"mlx5_0+mlx5_1", "3,1,1,1,1", "not 2 to 4 numbers from 0 to 1024"},
	    {"mlx5_0+mlx5_1", "3,", "not 2 to 4 numbers"},
	    {"mlx5_0+mlx5_1", "3,-1", "not 2 to 4 numbers"},
	    {"mlx5_0+mlx5_1", "3,1025", "not 2 to 4 numbers"},
	    {"mlx5_0+mlx5_1", "3,99999999999999999999", "not 2 to 4 numbers"},
	    {"mlx5_0+mlx5_1", "75%,25%", "not 2 to 4 numbers"},
	    {"mlx5_0+mlx5_1", "0,0", "no rail has a share"},
	    {"", "3,1", "there is no bundle"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ha_device_set *set = SHARED(bad[i].rails, bad[i].share);

		assert_false(set->bundles[0].shares_given);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("HA_NCCL_RAIL_SHARE="));
		assert_true(logged(bad[i].share));
		assert_true(logged(bad[i].why));
		assert_true(logged("senders learn what rails carry"));
		ha_device_set_close(set);
	}
}

static void ports_of_one_nic_are_told_apart_by_number(void **state)
{
	struct ha_device_set *set;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fake_devices[i].attr.phys_port_cnt = 2;
		fake_devices[i].ports[2] = fake_devices[i].ports[1];
	}
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0:1+mlx5_1:1,mlx5_0:2+mlx5_1:2");
	assert_string_equal(devices_of(set), "mlx5_0:1+mlx5_1:1 mlx5_0:2+mlx5_1:2 mlx5_2 mlx5_3");
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void a_rail_that_is_down_when_the_job_starts_is_in_the_bundle(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_devices[0].ports[1].attr.state = IBV_PORT_DOWN;
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_string_equal(devices_of(set), "mlx5_0+mlx5_1 mlx5_2 mlx5_3");
	assert_string_equal(set->bundles[0].rails[0]->nic->name, "mlx5_0");
	assert_int_equal(set->bundles[0].speed_mbps, 400000);
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void the_aliases_make_a_bundle_of_two(void **state)
{
	(void)state;
	EXPECT("mlx5_2+mlx5_0 mlx5_1 mlx5_3", "MPIB_HCA_SOUT", "mlx5_2", "MPIB_HCA_SUP", "mlx5_0");
	assert_int_equal(captured_warnings, 0);
	EXPECT("mlx5_2+mlx5_0 mlx5_1 mlx5_3", "MPIB_HCA_SOUT", "mlx5_2", "MPIB_HCA_SUP", "mlx5_0",
	       "HA_NCCL_RAILS", "mlx5_2+mlx5_0");
	assert_int_equal(captured_warnings, 0);
}

static void of_alias_and_name_that_differ_the_name_wins_with_one_warning(void **state)
{
	(void)state;
	EXPECT("mlx5_0+mlx5_1 mlx5_2 mlx5_3", "MPIB_HCA_SOUT", "mlx5_2", "MPIB_HCA_SUP", "mlx5_3",
	       "HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_int_equal(captured_warnings, 1);
	assert_true(
	    logged("HA_NCCL_RAILS=mlx5_0+mlx5_1 and MPIB_HCA_SOUT+MPIB_HCA_SUP=mlx5_2+mlx5_3 "
		   "differ: HA_NCCL_RAILS is used"));
}

static void what_cannot_be_had_is_one_warning_and_no_bundle(void **state)
{
	(void)state;
	EXPECT_REFUSED("MPIB_HCA_SOUT=mlx5_0", "without MPIB_HCA_SUP", "MPIB_HCA_SOUT", "mlx5_0");
	EXPECT_REFUSED("MPIB_HCA_SUP=mlx5_0", "without MPIB_HCA_SOUT", "MPIB_HCA_SUP", "mlx5_0");
	EXPECT_REFUSED("MPIB_HCA_SOUT+MPIB_HCA_SUP=mlx5_0+mlx5_0", "mlx5_0:1 is named twice",
		       "MPIB_HCA_SOUT", "mlx5_0", "MPIB_HCA_SUP", "mlx5_0");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1,mlx5_1+mlx5_2", "mlx5_1:1 is named twice",
		       "HA_NCCL_RAILS", "mlx5_0+mlx5_1,mlx5_1+mlx5_2");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_9", "no port mlx5_9 here", "HA_NCCL_RAILS",
		       "mlx5_0+mlx5_9");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1:2", "no port mlx5_1:2 here", "HA_NCCL_RAILS",
		       "mlx5_0+mlx5_1:2");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0", "2 to 4 ports", "HA_NCCL_RAILS", "mlx5_0");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+", "\"\" is not NAME", "HA_NCCL_RAILS", "mlx5_0+");
	EXPECT_REFUSED("HA_NCCL_RAILS=,", "\"\" is not NAME", "HA_NCCL_RAILS", ",");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1:", "\"mlx5_1:\" is not NAME", "HA_NCCL_RAILS",
		       "mlx5_0+mlx5_1:");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1:999", "is not NAME", "HA_NCCL_RAILS",
		       "mlx5_0+mlx5_1:999");
	EXPECT_REFUSED("HA_NCCL_RAILS=nccl", "HA_NCCL_ENABLE_BACKUP=1", "HA_NCCL_RAILS", "nccl",
		       "HA_NCCL_ENABLE_BACKUP", "0");
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1", "HA_NCCL_ENABLE_BACKUP=1", "HA_NCCL_RAILS",
		       "mlx5_0+mlx5_1", "HA_NCCL_ENABLE_BACKUP", "0");
}

/* ---- what NCCL asks for ---------------------------------------------------------------------- */

/* makeVDevice of these; -1: it cannot be had, which is one warning. */
static int fuse(struct ha_device_set *set, int n, const int *devs)
{
	const int before = set->nbundles, warned = captured_warnings;
	int dev = -2;

	if (ha_bundle_fuse(set, devs, n, &dev) == HA_OK)
		return dev;
	assert_int_equal(set->nbundles, before);
	assert_int_equal(captured_warnings, warned + 1);
	assert_true(logged("NCCL asks for"));
	return -1;
}

#define FUSE(set, ...)                                                                             \
	fuse((set), (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)),                       \
	     (const int[]){__VA_ARGS__})

#define MODE(rails, mode, share)                                                                   \
	DISCOVER("HA_NCCL_RAILS", rails, "HA_NCCL_RAIL_MODE", mode, "HA_NCCL_RAIL_SHARE", share)

static void static_shares_are_by_speed_unless_they_are_given(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_devices[1].ports[1].attr.active_speed = 32; /* a quarter of mlx5_0's */
	set = MODE("mlx5_0+mlx5_1", "static", "");
	assert_true(set->bundles[0].shares_given);
	assert_int_equal(set->bundles[0].share[0], 1024);
	assert_in_range(set->bundles[0].share[1], 1, 1023);
	assert_int_equal(set->bundles[0].share[1], 1024 * atomic_load(&set->ports[1].speed_mbps) /
						       atomic_load(&set->ports[0].speed_mbps));
	assert_false(ha_bundle_of_device(set, 1)->shares_given); /* a port by itself */
	ha_device_set_close(set);
	set = MODE("mlx5_0+mlx5_1", "static", "3,1");
	assert_int_equal(set->bundles[0].share[0], 3);
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void an_agent_speaks_of_two_rails_and_nobody_else_of_these(void **state)
{
	struct ha_device_set *set = MODE("mlx5_0+mlx5_1", "agent", "");

	(void)state;
	assert_true(set->bundles[0].by_agent);
	assert_false(set->bundles[0].shares_given);
	assert_false(ha_bundle_of_device(set, 1)->by_agent); /* a port by itself */
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
	set = MODE("mlx5_0+mlx5_1+mlx5_2", "agent", "");
	assert_false(set->bundles[0].by_agent);
	assert_true(logged("mlx5_0+mlx5_1+mlx5_2: it has 3 rails, and an agent speaks of 2"));
	assert_int_equal(captured_warnings, 1);
	ha_device_set_close(set);
	set = MODE("mlx5_0+mlx5_1", "agent", "3,1");
	assert_true(set->bundles[0].by_agent);
	assert_false(set->bundles[0].shares_given);
	assert_true(logged("HA_NCCL_RAIL_SHARE=3,1 has no effect with HA_NCCL_RAIL_MODE=agent"));
	ha_device_set_close(set);
	set = MODE("nccl", "agent", "");
	assert_int_equal(FUSE(set, 0, 1), 4);
	assert_true(set->bundles[4].by_agent);
	ha_device_set_close(set);
}

static void what_NCCL_asks_for_is_a_device_behind_those_that_there_are(void **state)
{
	struct ha_device_set *set = DISCOVER("HA_NCCL_RAILS", "nccl", "HA_NCCL_RAIL_SHARE", "3,1");

	(void)state;
	assert_true(ha_bundles_by_nccl(set));
	assert_string_equal(devices_of(set), BY_THEMSELVES);
	assert_int_equal(FUSE(set, 3, 1), 4);
	assert_int_equal(FUSE(set, 0, 2), 5);
	assert_string_equal(devices_of(set), BY_THEMSELVES " mlx5_3+mlx5_1 mlx5_0+mlx5_2");
	assert_int_equal(FUSE(set, 3, 1), 4); /* again */
	assert_int_equal(set->nbundles, 6);
	assert_int_equal(set->bundles[4].speed_mbps, 800000);
	assert_true(set->bundles[4].shares_given);
	assert_int_equal(set->bundles[4].share[0], 3);
	assert_ptr_equal(set->ports[3].bundle, &set->bundles[4]);
	assert_int_equal(set->ports[3].rail, 0);
	assert_int_equal(set->ports[1].rail, 1);
	/* Whatever of it is asked for, a connection is on the bundle, and begins on its rail 0. */
	assert_ptr_equal(ha_bundle_use(set, 4), &set->ports[3]);
	assert_ptr_equal(ha_bundle_use(set, 1), &set->ports[3]);
	assert_ptr_equal(ha_bundle_use(set, 2), &set->ports[0]);
	assert_null(ha_bundle_use(set, 6));
	assert_int_equal(captured_warnings, 0);
	ha_device_set_close(set);
}

static void what_NCCL_cannot_have_as_one_device_stays_as_it_is(void **state)
{
	struct ha_device_set *set;

	(void)state;
	fake_devices[3].ports[1].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	fake_device_add("mlx5_4");
	set = DISCOVER("HA_NCCL_RAILS", "nccl", "HA_NCCL_RAIL_SHARE", "3,1,1");
	assert_int_equal(FUSE(set, 0), -1);
	assert_true(logged("2 to 4 ports"));
	assert_int_equal(FUSE(set, 0, 1, 2, 3, 4), -1);
	assert_int_equal(FUSE(set, 0, 5), -1);
	assert_true(logged("there is no device 5"));
	assert_int_equal(FUSE(set, -1, 0), -1);
	assert_true(logged("there is no device -1"));
	assert_int_equal(FUSE(set, 1, 1), -1);
	assert_true(logged("mlx5_1:1 is named twice"));
	assert_int_equal(FUSE(set, 0, 3), -1);
	assert_true(logged("ports of different link layers"));
	assert_non_null(ha_bundle_use(set, 2));
	assert_int_equal(FUSE(set, 0, 2), -1);
	assert_true(logged("mlx5_2:1 is in use by itself"));
	assert_int_equal(captured_warnings, 7);
	assert_int_equal(FUSE(set, 0, 1), 5);
	assert_true(logged("it has 3 shares, and mlx5_0+mlx5_1 has 2 rails"));
	assert_false(set->bundles[5].shares_given);
	assert_int_equal(FUSE(set, 1, 4), -1);
	assert_true(logged("mlx5_1:1 is in another bundle"));
	assert_int_equal(FUSE(set, 5, 4), -1);
	assert_true(logged("device 5 is a bundle itself"));
	ha_device_set_close(set);
	set = DISCOVER("HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_int_equal(FUSE(set, 1, 2), -1);
	assert_true(logged("HA_NCCL_RAILS is not nccl"));
	ha_device_set_close(set);
}

/* It would make of them what it then cannot place. */
static void NICs_of_different_NUMA_nodes_are_no_device_of_NCCLs(void **state)
{
	struct ha_device_set *set = DISCOVER("HA_NCCL_RAILS", "nccl");

	(void)state;
	set->nics[1].numa_node = 1;
	assert_int_equal(FUSE(set, 0, 1), -1);
	assert_true(logged("mlx5_0 and mlx5_1 are NICs of different NUMA nodes"));
	assert_int_equal(FUSE(set, 0, 2), 4);
	ha_device_set_close(set);
}

static void a_bundle_has_four_rails_at_most(void **state)
{
	(void)state;
	fake_device_add("mlx5_4");
	EXPECT(BY_THEMSELVES " mlx5_4", "HA_NCCL_RAILS", "mlx5_0+mlx5_1+mlx5_2+mlx5_3+mlx5_4");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("2 to 4 ports"));
}

static void ports_of_different_link_layers_are_no_bundle(void **state)
{
	(void)state;
	fake_devices[1].ports[1].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	EXPECT_REFUSED("HA_NCCL_RAILS=mlx5_0+mlx5_1", "ports of different link layers",
		       "HA_NCCL_RAILS", "mlx5_0+mlx5_1");
}

static void ports_that_are_all_down_are_no_bundle(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++)
		fake_devices[i].ports[1].attr.state = IBV_PORT_DOWN;
	EXPECT("mlx5_2 mlx5_3", "HA_NCCL_RAILS", "mlx5_0+mlx5_1");
	assert_int_equal(captured_warnings, 1);
	assert_true(logged("no port of mlx5_0+mlx5_1 is up"));
}

static void the_log_is_safe_from_what_a_variable_holds(void **state)
{
	static char longest[HA_CONFIG_STRING_MAX];

	(void)state;
	memset(longest, 'a', sizeof(longest) - 1);
	EXPECT(BY_THEMSELVES, "HA_NCCL_RAILS", longest);
	assert_int_equal(captured_warnings, 1);
	EXPECT(BY_THEMSELVES, "HA_NCCL_RAILS", "a\nb%n+\x1b[2J");
	assert_int_equal(captured_warnings, 1);
	assert_null(strchr(captured_log, '\x1b'));
	EXPECT(BY_THEMSELVES, "MPIB_HCA_SOUT", longest, "MPIB_HCA_SUP", longest);
	assert_int_equal(captured_warnings, 1);
}

/* However near another port is: who names ports for a bundle wants these. */
static void the_other_rails_stand_by_before_all_other_ports(void **state)
{
	struct ha_device_set *set = DISCOVER("HA_NCCL_RAILS", "mlx5_1+mlx5_3+mlx5_2");
	struct ha_port *ranked[HA_MAX_PORTS];

	(void)state;
	set->ports[2].speed_mbps = 10000;
	for (uint64_t spread = 0; spread < 8; spread++) {
		assert_int_equal(ha_standby_rank(set, &set->ports[1], spread, ranked, 4), 4);
		assert_ptr_equal(ranked[0], &set->ports[1]);
		assert_ptr_equal(ranked[1], &set->ports[3]);
		assert_ptr_equal(ranked[2], &set->ports[2]);
		assert_ptr_equal(ranked[3], &set->ports[0]);
	}
	ha_device_set_close(set);
}

static void a_misspelt_alias_is_told_with_the_nearest_name(void **state)
{
	char wrong[] = "MPIB_HCA_SOUTH=mlx5_0", other[] = "MPI_HOME=/usr",
	     right[] = "MPIB_HCA_SUP=x";
	char *const list[] = {wrong, other, right, NULL};

	(void)state;
	capture_log();
	assert_int_equal(ha_config_warn_unknown(list), 1);
	assert_true(logged("MPIB_HCA_SOUTH is not a variable of this plugin"));
	assert_true(logged("did you mean MPIB_HCA_SOUT?"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, four_nics, no_nics)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(without_the_variable_ports_are_devices_by_their_index),
	    T(bundles_come_first_and_their_rails_as_they_are_named),
	    T(a_bundle_is_as_good_as_the_least_of_its_rails),
	    T(shares_are_those_of_all_bundles),
	    T(shares_that_cannot_be_are_one_warning_and_none_are_given),
	    T(ports_of_one_nic_are_told_apart_by_number),
	    T(a_rail_that_is_down_when_the_job_starts_is_in_the_bundle),
	    T(the_aliases_make_a_bundle_of_two),
	    T(of_alias_and_name_that_differ_the_name_wins_with_one_warning),
	    T(what_cannot_be_had_is_one_warning_and_no_bundle),
	    T(static_shares_are_by_speed_unless_they_are_given),
	    T(an_agent_speaks_of_two_rails_and_nobody_else_of_these),
	    T(what_NCCL_asks_for_is_a_device_behind_those_that_there_are),
	    T(what_NCCL_cannot_have_as_one_device_stays_as_it_is),
	    T(NICs_of_different_NUMA_nodes_are_no_device_of_NCCLs),
	    T(a_bundle_has_four_rails_at_most),
	    T(ports_of_different_link_layers_are_no_bundle),
	    T(ports_that_are_all_down_are_no_bundle),
	    T(the_log_is_safe_from_what_a_variable_holds),
	    T(the_other_rails_stand_by_before_all_other_ports),
	    T(a_misspelt_alias_is_told_with_the_nearest_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
