/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registrations: whole pages, shared while in use and no longer, one per NIC on demand, the
 * caller's dmabuf descriptor not needed after the call, and all of it from several threads.
 */
#include "../../descriptors.h"
#include "../captured_log.h"
#include "../cmocka_all.h"
#include "../fake_verbs.h"
#include "memory/pd.h"

#include "memory/mr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

static struct ha_config config;
static struct ha_device_set *set;

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static int setup(void **state)
{
	(void)state;
	fake_verbs_reset();
	capture_log();
	ha_config_load(&config, no_env);
	fake_device_add("mlx5_0");
	fake_device_add("mlx5_1");
	if (ha_device_set_open(&config, &set) != HA_OK || set->nnics != 2)
		return -1;
	for (int i = 0; i < 2; i++)
		fake_devices[i].regs = fake_devices[i].deregs = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_memory_close(set);
	ha_device_set_close(set);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fake_devices[i].regs, fake_devices[i].deregs);
		assert_int_equal(fake_devices[i].pds, 0);
	}
	fake_verbs_done();
	return 0;
}

/* Some address; nothing is behind it, and the fakes do not look. */
static void *at(uintptr_t offset)
{
	return (void *)(0x7f0000000000u + offset);
}

static struct ha_mr *registered(uintptr_t offset, size_t length)
{
	struct ha_mr *mr;

	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(offset), length, HA_MEM_HOST, 0, -1, &mr), HA_OK);
	assert_non_null(mr);
	return mr;
}

static void whole_pages_are_registered(void **state)
{
	static const struct {
		uintptr_t offset;
		size_t length;
		uintptr_t first;
		size_t pages;
	} cases[] = {
	    {0, 1, 0, 1},
	    {0, PAGE, 0, 1},
	    {0, PAGE + 1, 0, 2},
	    {PAGE - 1, 1, 0, 1},
	    {PAGE - 1, 2, 0, 2},
	    {100, PAGE, 0, 2},
	    {PAGE, 3 * PAGE, PAGE, 3},
	    {PAGE + 1, 0, PAGE, 1},
	    {5, 1ul << 33, 0, (1ul << 21) + 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ha_mr *mr = registered(cases[i].offset, cases[i].length);

		assert_int_equal(fake_devices[0].last_addr, (uintptr_t)at(cases[i].first));
		assert_int_equal(fake_devices[0].last_length, cases[i].pages * PAGE);
		ha_mr_deregister(mr);
	}
}

static void pages_in_use_are_shared_and_pages_no_longer_in_use_are_not(void **state)
{
	struct ha_mr *whole = registered(0, 16 * PAGE), *part = registered(3 * PAGE + 7, PAGE);
	struct ha_mr *beyond = registered(15 * PAGE, 2 * PAGE);
	struct ibv_mr *a, *b, *c;

	(void)state;
	assert_int_equal(fake_devices[0].regs, 2);
	assert_int_equal(ha_mr_on(whole, &set->nics[0], &a), HA_OK);
	assert_int_equal(ha_mr_on(part, &set->nics[0], &b), HA_OK);
	assert_int_equal(ha_mr_on(beyond, &set->nics[0], &c), HA_OK);
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, c);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 2);
	/* The first user goes; the second keeps the registration alive. */
	ha_mr_deregister(whole);
	assert_int_equal(fake_devices[0].deregs, 0);
	ha_mr_deregister(part);
	assert_int_equal(fake_devices[0].deregs, 1);
	/* The memory may have been unmapped since: registered anew, not remembered. */
	part = registered(3 * PAGE + 7, PAGE);
	assert_int_equal(fake_devices[0].regs, 3);
	ha_mr_deregister(part);
	ha_mr_deregister(beyond);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 0);
}

/* What the creator gave back may be other memory by now, though another still uses a part of it. */
static void pages_given_back_are_registered_anew_while_others_of_them_are_in_use(void **state)
{
	struct ha_mr *whole = registered(0, 8 * PAGE), *first = registered(0, PAGE), *rest, *again;

	(void)state;
	assert_int_equal(fake_devices[0].regs, 1);
	ha_mr_deregister(whole);
	rest = registered(PAGE, 7 * PAGE);
	assert_int_equal(fake_devices[0].regs, 2);
	assert_int_equal(fake_devices[0].last_addr, (uintptr_t)at(PAGE));
	assert_int_equal(fake_devices[0].last_length, 7 * PAGE);
	/* The first page nobody has given back; across both, no handle vouches. */
	again = registered(100, 10);
	assert_int_equal(fake_devices[0].regs, 2);
	whole = registered(0, 2 * PAGE);
	assert_int_equal(fake_devices[0].regs, 3);
	ha_mr_deregister(first);
	ha_mr_deregister(again);
	ha_mr_deregister(whole);
	ha_mr_deregister(rest);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 0);
}

/* As NCCL does it: each connection registers the same buffer, in whatever order they end. */
static void handles_of_the_same_pages_share_whoever_came_first_has_gone(void **state)
{
	struct ha_mr *mr[4] = {registered(0, 8 * PAGE), registered(0, 8 * PAGE)};

	(void)state;
	ha_mr_deregister(mr[0]);
	mr[2] = registered(0, 8 * PAGE);
	ha_mr_deregister(mr[1]);
	mr[3] = registered(PAGE, PAGE);
	assert_int_equal(fake_devices[0].regs, 1);
	ha_mr_deregister(mr[2]);
	ha_mr_deregister(mr[3]);
	assert_int_equal(fake_devices[0].deregs, 1);
}

static struct ha_mr *registered_dmabuf(int fd, uintptr_t offset, uint64_t in_dmabuf)
{
	struct ha_mr *mr;

	assert_int_equal(ha_mr_register(set, &set->nics[0], at(offset), 2 * PAGE, HA_MEM_CUDA,
					in_dmabuf, fd, &mr),
			 HA_OK);
	return mr;
}

/* An address says nothing of which dmabuf it is in, nor where. */
static void only_the_same_place_of_the_same_dmabuf_is_shared(void **state)
{
	int one = memfd_create("one", 0), other = memfd_create("other", 0), same = dup(one);
	struct ha_mr *mr[4];

	(void)state;
	mr[0] = registered_dmabuf(one, 0, 0);
	mr[1] = registered_dmabuf(same, 0, 0);
	assert_int_equal(fake_devices[0].regs, 1);
	mr[2] = registered_dmabuf(other, 0, 0);
	assert_int_equal(fake_devices[0].regs, 2);
	mr[3] = registered_dmabuf(one, 0, 4 * PAGE);
	assert_int_equal(fake_devices[0].regs, 3);
	for (int i = 0; i < 4; i++)
		ha_mr_deregister(mr[i]);
	close(one);
	close(other);
	close(same);
}

static void host_and_gpu_and_strict_registrations_do_not_mix(void **state)
{
	static const int types[] = {HA_MEM_HOST, HA_MEM_CUDA, HA_MEM_HOST | HA_MEM_STRICT_ORDER};
	struct ha_mr *mr[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		bool relaxed = !(types[i] & HA_MEM_STRICT_ORDER);

		assert_int_equal(
		    ha_mr_register(set, &set->nics[0], at(0), PAGE, types[i], 0, -1, &mr[i]),
		    HA_OK);
		assert_int_equal(!!(fake_devices[0].last_access & IBV_ACCESS_RELAXED_ORDERING),
				 relaxed);
		assert_true(fake_devices[0].last_access & IBV_ACCESS_REMOTE_WRITE);
	}
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 3);
	for (int i = 0; i < 3; i++)
		ha_mr_deregister(mr[i]);
}

static void another_nic_registers_when_it_is_first_needed_and_only_then(void **state)
{
	struct ha_mr *mr = registered(0, PAGE);
	struct ibv_mr *first, *second, *again;

	(void)state;
	assert_int_equal(fake_devices[1].regs, 0);
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &second), HA_OK);
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &again), HA_OK);
	assert_int_equal(ha_mr_on(mr, &set->nics[0], &first), HA_OK);
	assert_int_equal(fake_devices[1].regs, 1);
	assert_ptr_equal(second, again);
	assert_ptr_not_equal(first, second);
	ha_mr_deregister(mr);
	assert_int_equal(fake_devices[1].deregs, 1);
}

static void a_failing_nic_leaves_the_handle_usable_on_the_others(void **state)
{
	struct ha_mr *mr = registered(0, PAGE);
	struct ibv_mr *verbs_mr;

	(void)state;
	fake_devices[1].reg_errno = ENOMEM;
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &verbs_mr), HA_ERR_SYSTEM);
	assert_null(verbs_mr);
	assert_int_equal(ha_mr_on(mr, &set->nics[0], &verbs_mr), HA_OK);
	fake_devices[1].reg_errno = 0;
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &verbs_mr), HA_OK);
	ha_mr_deregister(mr);
}

static void dmabuf_outlives_the_callers_descriptor(void **state)
{
	int fd = memfd_create("dmabuf", 0), before;
	struct ibv_mr *verbs_mr;
	struct ha_mr *mr;

	(void)state;
	assert_true(fd >= 0);
	before = open_descriptors();
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(0), 2 * PAGE, HA_MEM_CUDA, 8 * PAGE, fd, &mr),
	    HA_OK);
	assert_int_equal(fake_devices[0].last_offset, 8 * PAGE);
	close(fd);
	assert_int_equal(ha_mr_on(mr, &set->nics[1], &verbs_mr), HA_OK);
	assert_int_equal(fake_devices[1].last_offset, 8 * PAGE);
	assert_true(fcntl(mr->dmabuf_fd, F_GETFD) & FD_CLOEXEC);
	ha_mr_deregister(mr);
	assert_int_equal(open_descriptors(), before - 1);
}

/* All descriptors that the process may have are in use. Returns what was allowed before. */
static struct rlimit no_descriptors(int fd)
{
	struct rlimit before, none;
	int free_fd = dup(fd);

	assert_true(free_fd >= 0);
	close(free_fd);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = (rlim_t)free_fd; /* the lowest one that is free */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(dup(fd), -1);
	assert_int_equal(errno, EMFILE);
	return before;
}

static void a_dmabuf_is_registered_although_no_descriptor_is_left(void **state)
{
	int fd = memfd_create("dmabuf", 0), before = open_descriptors();
	struct ha_mr *mr[3], *host;
	struct ibv_mr *verbs_mr;
	struct rlimit allowed;

	(void)state;
	assert_true(fd >= 0);
	allowed = no_descriptors(fd);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ha_mr_register(set, &set->nics[0], at((uintptr_t)i * 8 * PAGE),
						2 * PAGE, HA_MEM_CUDA, 0, fd, &mr[i]),
				 HA_OK);
		assert_int_equal(fake_devices[0].last_fd, fd);
	}
	host = registered(64 * PAGE, PAGE); /* and what needs none has no need */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &allowed), 0);
	assert_int_equal(open_descriptors(), before);
	close(fd);
	assert_non_null(strstr(captured_log, "raise ulimit -n"));
	assert_int_equal(captured_warnings, 1);
	/* Never as memory of another kind, and never by a descriptor that is the caller's again. */
	assert_int_equal(ha_mr_on(mr[0], &set->nics[1], &verbs_mr), HA_ERR_SYSTEM);
	assert_int_equal(fake_devices[1].regs, 0);
	assert_int_equal(ha_mr_on(host, &set->nics[1], &verbs_mr), HA_OK);
	for (int i = 0; i < 3; i++)
		ha_mr_deregister(mr[i]);
	ha_mr_deregister(host);
}

static void without_failover_no_descriptor_is_kept(void **state)
{
	int fd = memfd_create("dmabuf", 0), before = open_descriptors();
	struct ha_mr *mr;

	(void)state;
	assert_true(fd >= 0);
	config.enable_backup = false;
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(0), 2 * PAGE, HA_MEM_CUDA, 0, fd, &mr), HA_OK);
	assert_int_equal(open_descriptors(), before);
	close(fd);
	ha_mr_deregister(mr);
	assert_int_equal(captured_warnings, 0);
}

static void dmabuf_offset_follows_the_page_down(void **state)
{
	int fd = memfd_create("dmabuf", 0);
	struct ha_mr *mr;

	(void)state;
	/* The offset of the address itself. */
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(100), 10, HA_MEM_DMABUF, 3 * PAGE + 100, fd, &mr),
	    HA_OK);
	assert_int_equal(fake_devices[0].last_offset, 3 * PAGE);
	assert_int_equal(fake_devices[0].last_addr, (uintptr_t)at(0));
	ha_mr_deregister(mr);
	/* The offset of its page. */
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(100), 10, HA_MEM_DMABUF, 3 * PAGE, fd, &mr),
	    HA_OK);
	assert_int_equal(fake_devices[0].last_offset, 3 * PAGE);
	ha_mr_deregister(mr);
	/* Neither: the pages could not line up. */
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(100), 10, HA_MEM_DMABUF, 50, fd, &mr),
	    HA_ERR_ARGUMENT);
	assert_null(mr);
	close(fd);
}

static void impossible_requests_are_refused_without_a_leak(void **state)
{
	int before = open_descriptors();
	struct ha_mr *mr;

	(void)state;
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(1), SIZE_MAX, HA_MEM_HOST, 0, -1, &mr),
	    HA_ERR_ARGUMENT);
	assert_int_equal(ha_mr_register(set, &set->nics[0], (void *)(UINTPTR_MAX - 5), 3,
					HA_MEM_HOST, 0, -1, &mr),
			 HA_ERR_ARGUMENT);
	assert_int_equal(
	    ha_mr_register(set, &set->nics[0], at(0), PAGE, HA_MEM_DMABUF, 0, 987654, &mr),
	    HA_ERR_SYSTEM);
	assert_null(mr);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 0);
	assert_int_equal(fake_devices[0].pds, 0);
}

static void errors_name_address_length_device_and_remedy(void **state)
{
	static const struct {
		int error, type;
		const char *advice;
	} cases[] = {
	    {ENOMEM, HA_MEM_HOST, "ulimit -l"},
	    {EFAULT, HA_MEM_HOST, "mapped and writable"},
	    {EFAULT, HA_MEM_CUDA, "nvidia_peermem"},
	    {EOPNOTSUPP, HA_MEM_CUDA, "NCCL_DMABUF_ENABLE=0"},
	    {EINVAL, HA_MEM_HOST, "NCCL_IB_PCI_RELAXED_ORDERING=0"},
	    {EIO, HA_MEM_HOST, "dmesg"},
	};
	struct ha_mr *mr;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		fake_devices[0].reg_errno = cases[i].error;
		capture_log();
		assert_int_equal(
		    ha_mr_register(set, &set->nics[0], at(0), 5 * PAGE, cases[i].type, 0, -1, &mr),
		    HA_ERR_SYSTEM);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("mlx5_0: cannot register 20480 bytes"));
		assert_true(logged("0x7f0000000000"));
		assert_true(logged(strerror(cases[i].error)));
		assert_true(logged(cases[i].advice));
	}
}

/* By the incarnation, which is asked again: device/give_back.h. */
static void a_registration_that_the_device_does_not_end_is_kept(void **state)
{
	struct ha_incarnation *on = set->nics[0].now;
	struct ha_mr *mr = registered(0, PAGE);

	(void)state;
	fake_devices[0].dereg_error = EBUSY;
	ha_mr_deregister(mr);
	assert_int_equal(captured_warnings, 0);
	assert_true(logged("mlx5_0: ibv_dereg_mr is refused"));
	assert_int_not_equal(ha_give_back_due(on), 0);
	fake_devices[0].dereg_error = 0;
	ha_give_back_last(on);
	assert_int_equal(ha_give_back_due(on), 0);
	assert_int_equal(fake_devices[0].regs, fake_devices[0].deregs);
	(void)ha_incarnation_died(on);
	/* Registering there says what is the matter, not what the limits are. */
	fake_devices[0].reg_errno = EIO;
	assert_int_equal(ha_mr_register(set, &set->nics[0], at(0), PAGE, HA_MEM_HOST, 0, -1, &mr),
			 HA_ERR_SYSTEM);
	assert_true(logged("the device has failed"));
}

static void pd_lives_as_long_as_its_users_and_registrations(void **state)
{
	struct ha_incarnation *on, *same;
	struct ha_mr *mr;

	(void)state;
	assert_int_equal(ha_nic_pd_get(&set->nics[0], &on), HA_OK);
	assert_int_equal(ha_nic_pd_get(&set->nics[0], &same), HA_OK);
	assert_ptr_equal(on, same);
	assert_non_null(on->pd);
	mr = registered(0, PAGE);
	ha_nic_pd_put(on);
	ha_nic_pd_put(on);
	assert_int_equal(fake_devices[0].pds, 1); /* the registration's */
	ha_mr_deregister(mr);
	assert_int_equal(fake_devices[0].pds, 0);
}

static void what_an_aborted_job_left_is_ended_at_close(void **state)
{
	struct ha_mr *mr = registered(0, PAGE);

	(void)state;
	ha_memory_close(set);
	assert_int_equal(fake_devices[0].deregs, 1);
	assert_int_equal(fake_devices[0].pds, 0);
	assert_true(logged("ended 1 registrations that were not given back"));
	free(mr); /* the handle is the leak; its registration is gone */
}

/* Against a model: many handles in random order, each always on a registration that covers it. */
static void random_use_matches_a_model(void **state)
{
	enum { SLOTS = 40, STEPS = 20000 };
	struct ha_mr *mr[SLOTS] = {0};
	unsigned int seed = 20;

	(void)state;
	for (int step = 0; step < STEPS; step++) {
		int slot = rand_r(&seed) % SLOTS;
		int live = 0;

		if (mr[slot]) {
			ha_mr_deregister(mr[slot]);
			mr[slot] = NULL;
		} else {
			struct ibv_mr *got;
			uintptr_t offset = (uintptr_t)(rand_r(&seed) % 64) * 1000;
			size_t length = (size_t)(rand_r(&seed) % 30000);

			mr[slot] = registered(offset, length);
			assert_int_equal(ha_mr_on(mr[slot], &set->nics[0], &got), HA_OK);
			assert_true((uintptr_t)got->addr <= (uintptr_t)at(offset));
			assert_true((uintptr_t)got->addr + got->length >=
				    (uintptr_t)at(offset) + length);
		}
		for (int i = 0; i < SLOTS; i++)
			live += mr[i] != NULL;
		assert_true(ha_nic_mr_count(&set->nics[0]) <= live);
		assert_int_equal(fake_devices[0].regs - fake_devices[0].deregs,
				 ha_nic_mr_count(&set->nics[0]));
	}
	for (int i = 0; i < SLOTS; i++)
		ha_mr_deregister(mr[i]);
	assert_int_equal(ha_nic_mr_count(&set->nics[0]), 0);
}

/* ---- threads -------------------------------------------------------------------------------- */

static struct ha_mr *shared_mr;
static atomic_int failures;

static void *register_and_deregister(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (int i = 0; i < 2000; i++) {
		struct ibv_mr *on_standby;
		struct ha_mr *mr;

		if (ha_mr_register(set, &set->nics[i % 2],
				   at((uintptr_t)(rand_r(&seed) % 8) * PAGE), 3 * PAGE, HA_MEM_HOST,
				   0, -1, &mr) != HA_OK ||
		    ha_mr_on(mr, &set->nics[1 - i % 2], &on_standby) != HA_OK ||
		    ha_mr_on(shared_mr, &set->nics[1], &on_standby) != HA_OK)
			atomic_fetch_add(&failures, 1);
		else
			ha_mr_deregister(mr);
	}
	return NULL;
}

static void threads_may_register_use_and_deregister_at_once(void **state)
{
	pthread_t threads[4];

	(void)state;
	atomic_store(&failures, 0);
	shared_mr = registered(4 * PAGE, PAGE);
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(
		    pthread_create(&threads[i], NULL, register_and_deregister, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&failures), 0);
	ha_mr_deregister(shared_mr);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ha_nic_mr_count(&set->nics[i]), 0);
		assert_int_equal(set->nics[i].now->pd_users, 0);
	}
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(whole_pages_are_registered),
	    TEST(pages_in_use_are_shared_and_pages_no_longer_in_use_are_not),
	    TEST(pages_given_back_are_registered_anew_while_others_of_them_are_in_use),
	    TEST(handles_of_the_same_pages_share_whoever_came_first_has_gone),
	    TEST(only_the_same_place_of_the_same_dmabuf_is_shared),
	    TEST(host_and_gpu_and_strict_registrations_do_not_mix),
	    TEST(another_nic_registers_when_it_is_first_needed_and_only_then),
	    TEST(a_failing_nic_leaves_the_handle_usable_on_the_others),
	    TEST(dmabuf_outlives_the_callers_descriptor),
	    TEST(a_dmabuf_is_registered_although_no_descriptor_is_left),
	    TEST(without_failover_no_descriptor_is_kept),
	    TEST(dmabuf_offset_follows_the_page_down),
	    TEST(impossible_requests_are_refused_without_a_leak),
	    TEST(errors_name_address_length_device_and_remedy),
	    TEST(a_registration_that_the_device_does_not_end_is_kept),
	    TEST(pd_lives_as_long_as_its_users_and_registrations),
	    TEST(what_an_aborted_job_left_is_ended_at_close),
	    TEST(random_use_matches_a_model),
	    TEST(threads_may_register_use_and_deregister_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
