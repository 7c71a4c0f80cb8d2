/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that may lock little memory (ulimit -l), from none to as much as it wants: whatever is
 * the first region for which there is no more, the plugin works without it, or ends the call with
 * an error; a warning says which limit to raise, and nothing crashes and nothing is left behind.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "memory/mr.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST   (4u << 20) /* bytes: with so many everything works */
#define STEP   (96u << 10)
#define BUFFER (128u << 10)
#define ROUNDS 400

enum { WORKS, WORKS_AND_SAYS, SAYS_WHY_NOT, SILENT, NO_REMEDY, BROKEN };

/* Root may lock what it likes. */
static bool may_lock_no_more_than(size_t bytes)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};

	if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || syscall(SYS_capget, &header, data) != 0)
		return false;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	data[0].permitted &= ~(1u << CAP_IPC_LOCK);
	return syscall(SYS_capset, &header, data) == 0;
}

static ha_result_t open_instances(struct pair *pair)
{
	struct ha_instance_options options = {.config = &pair->config, .no_threads = true};
	ha_result_t result = HA_OK;

	for (uint32_t host = 0; host < 2 && result == HA_OK; host++) {
		sv_stepped_set_host(host);
		result = ha_instance_open(&options, &pair->inst[host]);
	}
	return result;
}

static ha_result_t join(struct pair *pair)
{
	ha_result_t result = ha_listen(pair->inst[1], 0, pair->handle, &pair->listen);

	for (int i = 0; i < ROUNDS && result == HA_OK && !(pair->send && pair->recv); i++) {
		if (!pair->send)
			result = ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair->handle,
					    &pair->send);
		if (result == HA_OK && !pair->recv)
			result = ha_accept(pair->listen, &pair->recv);
		pair_settle(pair);
	}
	return result == HA_OK && !(pair->send && pair->recv) ? HA_ERR_INTERNAL : result;
}

/* A buffer at each end, and the standby path that wants it, too. */
static ha_result_t lock_buffers(struct pair *pair, void *memory)
{
	ha_result_t result;

	result = ha_reg_mr(pair->send, memory, BUFFER, HA_MEM_HOST, 0, -1, &pair->from.mr);
	if (result == HA_OK)
		result = ha_reg_mr(pair->recv, memory, BUFFER, HA_MEM_HOST, 0, -1, &pair->to.mr);
	pair_idle(pair, 100);
	if (result == HA_OK)
		result = ha_comm_error(pair->send);
	return result == HA_OK ? ha_comm_error(pair->recv) : result;
}

static void close_all(struct pair *pair)
{
	if (pair->from.mr)
		ha_dereg_mr(pair->send, pair->from.mr);
	if (pair->to.mr)
		ha_dereg_mr(pair->recv, pair->to.mr);
	if (pair->send)
		ha_close_send(pair->send);
	if (pair->recv)
		ha_close_recv(pair->recv);
	if (pair->listen)
		ha_close_listen(pair->listen);
	for (int i = 0; i < 2; i++)
		if (pair->inst[i])
			ha_instance_close(pair->inst[i]);
}

/* What NCCL does first. */
static int begin(struct pair *pair, size_t bytes)
{
	void *memory =
	    mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ha_result_t result;

	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair->fabric.memlock = true;
	if (memory == MAP_FAILED || !may_lock_no_more_than(bytes) ||
	    sv_stepped_open(&pair->fabric) != 0)
		return BROKEN;
	ha_clock_set_source(sv_stepped_now);
	result = open_instances(pair);
	if (result == HA_OK)
		result = join(pair);
	if (result == HA_OK)
		result = lock_buffers(pair, memory);
	close_all(pair);
	if (sv_stepped_open_contexts() != 0 || sv_stepped_close() != 0)
		return BROKEN;
	if (captured_warnings == 0)
		return result == HA_OK ? WORKS : SILENT;
	if (!logged("ulimit -l"))
		return NO_REMEDY;
	return result == HA_OK ? WORKS_AND_SAYS : SAYS_WHY_NOT;
}

static int in_a_process(size_t bytes)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		struct pair pair;
		int found;

		alarm(30);
		found = begin(&pair, bytes);
		if (found >= SILENT)
			fprintf(stderr, "with %zu bytes; the log:\n%s\n", bytes, captured_log);
		_exit(found);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		fail_msg("with %zu bytes: ended by signal %d", bytes, WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void with_any_limit_on_locked_memory_it_works_or_says_which_to_raise(void **state)
{
	static const char *const wrong[] = {[SILENT] = "nothing says why it does not work",
					    [NO_REMEDY] = "no line names ulimit -l",
					    [BROKEN] = "something is left behind"};
	unsigned found[BROKEN + 1] = {0};

	(void)state;
	for (size_t bytes = 0; bytes <= MOST; bytes += STEP) {
		int status = in_a_process(bytes);

		if (status >= SILENT)
			fail_msg("with %zu bytes: %s", bytes, wrong[status]);
		found[status]++;
	}
	assert_true(found[WORKS] > 0 && found[WORKS_AND_SAYS] > 0 && found[SAYS_WHY_NOT] > 0);
	assert_int_equal(in_a_process(MOST), WORKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_any_limit_on_locked_memory_it_works_or_says_which_to_raise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
