/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 in the middle of transfers: the survivor gets what a dead peer means on hardware, the
 * fabric stays usable for others, and it can be brought down.
 */
#include "pair.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static const struct end_options quick = {.len = 8 << 20, .timeout = 15, .retry_cnt = 3};

/* Keeps writes in flight until one fails, and returns that status. */
static int write_until_it_fails(struct end *end, int test_fd)
{
	struct ibv_wc wc;
	double limit = now_s() + 20;
	int posted = 0, done = 0;
	bool said = false;

	while (now_s() < limit) {
		while (posted - done < 16) {
			NEED(!end_post_write(end, (size_t)(posted % 8) << 20, 1 << 20, 1));
			posted++;
		}
		while (ibv_poll_cq(end->cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				return (int)wc.status;
			done++;
		}
		if (done >= 100 && !said) {
			said = true;
			NEED(write(test_fd, "r", 1) == 1);
		}
	}
	return -1;
}

static int survivor(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	NEED(write_until_it_fails(&end, test_fd) == IBV_WC_RETRY_EXC_ERR);
	end_close(&end);
	return 0;
}

static int victim(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	write_until_it_fails(&end, test_fd);
	return 1; /* never: it is killed before */
}

static void the_peer_of_a_killed_process_gets_retry_exceeded(void **state)
{
	struct pair pair;
	int round;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	for (round = 0; round < 4; round++) {
		int dies = round % 2;

		pair_start(&pair, dies ? survivor : victim, dies ? victim : survivor, NULL);
		assert_int_equal(pair_wait_byte(&pair, 0), 'r');
		assert_int_equal(pair_wait_byte(&pair, 1), 'r');
		kill(pair.pid[dies], SIGKILL);
		assert_int_equal(pair_join(&pair, dies, 10), 1000 + SIGKILL);
		assert_int_equal(pair_join(&pair, !dies, 20), 0);
	}
	fabric_down();
}

static void a_fabric_whose_processes_were_killed_comes_down(void **state)
{
	const char *dir = getenv("SIMVERBS_DIR") ? getenv("SIMVERBS_DIR") : "/dev/shm";
	struct pair pair;
	char path[512];

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	snprintf(path, sizeof(path), "%s/simverbs-%d-%s", dir, (int)getuid(), fabric_name());
	assert_int_equal(access(path, F_OK), 0);
	pair_start(&pair, victim, victim, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	kill(pair.pid[0], SIGKILL);
	kill(pair.pid[1], SIGKILL);
	assert_int_equal(fabric_tool("down %s", fabric_name()), 0);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s/simverbs-%d-%s.sys", dir, (int)getuid(), fabric_name());
	assert_int_equal(access(path, F_OK), -1);
	pair_join(&pair, 0, 10);
	pair_join(&pair, 1, 10);
	assert_int_not_equal(fabric_tool("status %s 2>/dev/null", fabric_name()), 0);
}

static int fills_the_ring(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	char go;
	int i;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	NEED(write(test_fd, "r", 1) == 1);
	NEED(read(test_fd, &go, 1) == 1); /* the peer is stopped now */
	for (i = 0; i < 32; i++)
		NEED(!end_post_write(&end, 0, 4096, 1));
	NEED(end_wait(&end, &wc, 10) == IBV_WC_RETRY_EXC_ERR);
	end_close(&end);
	return 0;
}

static int is_stopped(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)arg;
	end_open(&end, peer_fd, &quick);
	NEED(write(test_fd, "r", 1) == 1);
	for (;;)
		pause();
}

static int comes_and_goes(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &quick);
	NEED(!end_post_write(&end, 0, 5000, 1));
	NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	meet(peer_fd);
	_exit(0); /* without closing anything */
}

/* What a process leaves unread is in the way of whoever has its endpoint next. */
static void a_ring_that_a_killed_process_left_full_is_emptied(void **state)
{
	struct pair pair;
	json_t *status;
	int stopped;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, fills_the_ring, is_stopped, NULL);
	assert_int_equal(pair_wait_byte(&pair, 0), 'r');
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	assert_int_equal(kill(pair.pid[1], SIGSTOP), 0);
	/* Every thread of it stands still once the stop is reported. */
	assert_int_equal(waitpid(pair.pid[1], &stopped, WUNTRACED), pair.pid[1]);
	assert_true(WIFSTOPPED(stopped));
	pair_send_byte(&pair, 0, 'g');
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	kill(pair.pid[1], SIGKILL);
	assert_int_equal(pair_join(&pair, 1, 10), 1000 + SIGKILL);
	status = fabric_status();
	assert_non_null(status);
	assert_true(status_counter(status, "ring_full") > 0);
	json_decref(status);

	/* Under fault rules a packet waits for room for the largest one, so none gets in at all. */
	assert_int_equal(fabric_tool("fault %s 'dup prob=0.1 seed=1' >/dev/null", fabric_name()),
			 0);
	pair_start(&pair, comes_and_goes, comes_and_goes, NULL);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

static void endpoints_of_processes_that_are_gone_are_used_again(void **state)
{
	struct pair pair;
	json_t *status;
	int round;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	for (round = 0; round < 10; round++) {
		pair_start(&pair, comes_and_goes, comes_and_goes, NULL);
		assert_int_equal(pair_join(&pair, 0, 20), 0);
		assert_int_equal(pair_join(&pair, 1, 20), 0);
	}
	status = fabric_status();
	assert_non_null(status);
	/* Two endpoints alive at a time need few slots, and so few rings. */
	assert_true(json_integer_value(json_object_get(status, "rings")) <= 12);
	json_decref(status);
	fabric_down();
}

/* --- processor time ------------------------------------------------------------------------- */

static double cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 +
	       (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

static int idles(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	double before;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &quick);
	usleep(50000);
	before = cpu_s();
	sleep(1);
	NEED(cpu_s() - before < 0.02);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void an_idle_process_uses_no_processor_time(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, idles, idles, NULL);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

/* --- fork ----------------------------------------------------------------------------------- */

/* A child has devices of its own. */
static int child_of_fork(void)
{
	struct ibv_context *ctx;
	struct ibv_device **list;
	int n;

#ifdef __SANITIZE_THREAD__
	return 0; /* its run-time permits no thread in the child of a process with threads */
#endif
	list = ibv_get_device_list(&n);
	ctx = list && n == 1 ? ibv_open_device(list[0]) : NULL;
	return !ctx || ibv_close_device(ctx);
}

static int forks(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	pid_t child;
	int status;

	(void)arg;
	(void)test_fd;
	NEED(!ibv_fork_init());
	end_open(&end, peer_fd, &quick);
	child = fork();
	if (!child)
		_exit(child_of_fork());
	NEED(waitpid(child, &status, 0) == child && status == 0);
	NEED(!end_post_write(&end, 0, 1 << 20, 1));
	NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void a_child_does_not_disturb_its_parent_and_can_open_devices(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, forks, forks, NULL);
	assert_int_equal(pair_join(&pair, 0, 20), 0);
	assert_int_equal(pair_join(&pair, 1, 20), 0);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_peer_of_a_killed_process_gets_retry_exceeded),
	    cmocka_unit_test(a_fabric_whose_processes_were_killed_comes_down),
	    cmocka_unit_test(a_ring_that_a_killed_process_left_full_is_emptied),
	    cmocka_unit_test(endpoints_of_processes_that_are_gone_are_used_again),
	    cmocka_unit_test(an_idle_process_uses_no_processor_time),
	    cmocka_unit_test(a_child_does_not_disturb_its_parent_and_can_open_devices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
