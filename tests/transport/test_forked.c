/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with the plugin that forks a worker, on a live fabric with real threads: the worker has
 * none of the plugin's descriptors, its calls end with an error, and when its parent is killed the
 * peer knows as soon as without it.
 */
#include "../unit/cmocka_all.h"
#include "pair.h"

#include "base/clock.h"
#include "base/stats_file.h"
#include "instance/instance.h"
#include "plugin/plugin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEM_SIZE (1u << 16)
/* As long as a peer without a worker is given, on a busy machine, too. */
#define KNOWN_MS 2000

/* What the processes and the test program have in common. */
static struct shared {
	atomic_int worker;	/* its process id */
	atomic_int worker_is;	/* 'o': all was as it should be */
	_Atomic uint64_t known; /* when the receiver got its error */
	char log[4096];		/* the worker's */
} * shared;

static char stats_dir[] = "/dev/shm/nccl-ha-forked-XXXXXX", event_log[sizeof(stats_dir) + 16];

static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
		   const char *fmt, ...)
{
	size_t used = strlen(shared->log);
	va_list args;

	(void)flags, (void)file, (void)line;
	if (level != NCCL_LOG_WARN || getpid() != atomic_load(&shared->worker))
		return;
	va_start(args, fmt);
	vsnprintf(shared->log + used, sizeof(shared->log) - used, fmt, args);
	va_end(args);
}

/* ---- the processes --------------------------------------------------------------------------- */

static void open_plugin(void)
{
	setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
	setenv("HA_NCCL_EVENT_LOG", event_log, 1);
	ha_stats_dir = stats_dir;
	NEED(ha_plugin_init(logger, true) == ncclSuccess);
}

struct host {
	void *comm, *mr;
	uint8_t *memory;
};

static void get_memory(struct host *h)
{
	h->memory =
	    mmap(NULL, MEM_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(h->memory != MAP_FAILED);
	NEED(ha_plugin_reg_mr(h->comm, h->memory, MEM_SIZE, NCCL_PTR_HOST, &h->mr) == ncclSuccess);
}

static ncclResult_t finish(void *request)
{
	ncclResult_t result = ncclSuccess;

	for (int done = 0; result == ncclSuccess && !done;) {
		result = ha_plugin_test(request, &done, NULL);
		usleep(100); /* others are to run, too */
	}
	return result;
}

static void *start_recv(struct host *h)
{
	void *request = NULL, *data = h->memory;
	size_t size = MEM_SIZE;
	int tag = 1;

	while (!request)
		NEED(ha_plugin_irecv(h->comm, 1, &data, &size, &tag, &h->mr, &request) ==
		     ncclSuccess);
	return request;
}

/* Ends when its peer is gone. */
static int receiver(int peer_fd, int test_fd, void *arg)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	struct host h = {0};
	void *listen;

	(void)arg;
	open_plugin();
	NEED(ha_plugin_listen(0, handle, &listen) == ncclSuccess);
	NEED(write(peer_fd, handle, sizeof(handle)) == sizeof(handle));
	while (!h.comm)
		NEED(ha_plugin_accept(listen, &h.comm, NULL) == ncclSuccess);
	ha_plugin_close_listen(listen);
	get_memory(&h);
	NEED(finish(start_recv(&h)) == ncclSuccess);
	NEED(finish(start_recv(&h)) == ncclRemoteError);
	atomic_store(&shared->known, ha_real_ns());
	NEED(write(test_fd, "e", 1) == 1);
	ha_plugin_dereg_mr(h.comm, h.mr);
	ha_plugin_close_recv(h.comm);
	ha_plugin_finalize();
	return 0;
}

/* Of this process: those that lead somewhere but to the fabric's own files. say: each, where it
 * leads. */
static unsigned descriptors_said(bool say)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned n = 0;

	NEED(dir);
	while ((entry = readdir(dir)) != NULL) {
		char target[512];
		ssize_t length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		if (length < 0)
			continue;
		target[length] = '\0';
		n += strstr(target, "simverbs") == NULL;
		if (say)
			fprintf(stderr, "descriptor %s: %s\n", entry->d_name, target);
	}
	closedir(dir);
	return n;
}

static unsigned descriptors(void)
{
	return descriptors_said(false);
}

/* A path is built in the background: what is open for a moment meanwhile, a question to the kernel
 * about a route, stays open in who is forked then. */
static void wait_until_quiet(void)
{
	unsigned before = 0;

	for (int ms = 0, same_ms = 0; same_ms < 200 && ms < 10000; ms++) {
		const unsigned now = descriptors();

		same_ms = now == before ? same_ms + 1 : 0;
		before = now;
		usleep(1000);
	}
}

/* Whether it is as it should be; it says nothing by itself. */
static const char *wrong_in_worker(struct host *h, unsigned before)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = {0};
	void *out = NULL;
	int n = 0, mine;

	if (descriptors() != before)
		return "it has descriptors of its parent's plugin";
	mine = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (ha_plugin_isend(h->comm, h->memory, 100, 1, h->mr, &out) != ncclInvalidUsage || out)
		return "it may send";
	if (shared->log[0])
		return "it says something before it is asked";
	if (ha_plugin_devices(&n) != ncclInvalidUsage ||
	    ha_plugin_listen(0, handle, &out) != ncclInvalidUsage ||
	    ha_plugin_reg_mr(h->comm, h->memory, 100, NCCL_PTR_HOST, &out) != ncclInvalidUsage)
		return "it may listen or register";
	if (!strstr(shared->log, "forked from one that uses this network"))
		return "it is not told why";
	if (ha_plugin_dereg_mr(h->comm, h->mr) != ncclSuccess ||
	    ha_plugin_close_send(h->comm) != ncclSuccess || ha_plugin_finalize() != ncclSuccess)
		return "it may not let go";
	if (ha_plugin_init(logger, true) != ncclInvalidUsage)
		return "it may begin anew";
	if (mine < 0 || fcntl(mine, F_GETFD) < 0)
		return "a descriptor of its own was closed";
	close(mine);
	return NULL;
}

/* Lives on when its parent does not. */
static void work(struct host *h, unsigned before)
{
	const char *wrong;

	atomic_store(&shared->worker, (int)getpid());
	wrong = wrong_in_worker(h, before);
	if (wrong) {
		fprintf(stderr, "worker: %s; it was told: %s\n", wrong, shared->log);
		(void)descriptors_said(true);
	}
	atomic_store(&shared->worker_is, wrong ? 'w' : 'o');
	sleep(30);
	_exit(0);
}

/* Sends one message, before it the worker is there; then it is killed. */
static int sender(int peer_fd, int test_fd, void *arg)
{
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	const bool forks = *(const bool *)arg;
	unsigned before = descriptors();
	struct host h = {0};
	void *request = NULL;

	open_plugin();
	NEED(recv(peer_fd, handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
	while (!h.comm)
		NEED(ha_plugin_connect(0, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, &h.comm, NULL) ==
		     ncclSuccess);
	get_memory(&h);
	NEED(descriptors() > before + 4);
	wait_until_quiet();
	if (forks && fork() == 0)
		work(&h, before);
	for (int ms = 0; forks && atomic_load(&shared->worker_is) == 0 && ms < 10000; ms++)
		usleep(1000);
	NEED(!forks || atomic_load(&shared->worker_is) == 'o');
	while (!request)
		NEED(ha_plugin_isend(h.comm, h.memory, 100, 1, h.mr, &request) == ncclSuccess);
	NEED(finish(request) == ncclSuccess); /* it works on, whatever the worker did */
	NEED(write(test_fd, "r", 1) == 1);
	sleep(30);
	return 1;
}

/* ---- the test -------------------------------------------------------------------------------- */

/* Of the process's statistics: nobody holds it any more. */
static bool lock_is_free(pid_t pid)
{
	char path[256];
	bool free;
	int fd;

	snprintf(path, sizeof(path), "%s/nccl-ha-%u/nccl-ha.%u.%d", stats_dir, getuid(), getuid(),
		 (int)pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	free = flock(fd, LOCK_EX | LOCK_NB) == 0;
	close(fd);
	return free;
}

static void remove_files(pid_t pid)
{
	char folder[128], path[256];

	snprintf(folder, sizeof(folder), "%s/nccl-ha-%u", stats_dir, getuid());
	snprintf(path, sizeof(path), "%s/nccl-ha.%u.%d", folder, getuid(), (int)pid);
	unlink(path);
	strncat(path, ".control", sizeof(path) - strlen(path) - 1);
	unlink(path);
	rmdir(folder);
	unlink(event_log);
}

static uint64_t ms_until_known(bool forks)
{
	struct pair pair;
	uint64_t killed_ns;

	memset(shared, 0, sizeof(*shared));
	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, receiver, sender, &forks);
	assert_int_equal(pair_wait_byte(&pair, 1), 'r');
	usleep(1500000); /* until all is quiet: who was heard a moment ago is given longer */
	killed_ns = ha_real_ns();
	assert_false(lock_is_free(pair.pid[1]));
	assert_int_equal(kill(pair.pid[1], SIGKILL), 0);
	assert_int_equal(pair_wait_byte(&pair, 0), 'e');
	assert_int_equal(pair_join(&pair, 1, 5), 1000 + SIGKILL);
	assert_true(lock_is_free(pair.pid[1]));
	if (forks) {
		assert_int_equal(kill(atomic_load(&shared->worker), 0), 0);
		assert_int_equal(kill(atomic_load(&shared->worker), SIGKILL), 0);
	}
	assert_int_equal(pair_join(&pair, 0, 30), 0);
	remove_files(pair.pid[1]);
	fabric_down();
	return (atomic_load(&shared->known) - killed_ns) / HA_NS_PER_MS;
}

static void a_peer_that_is_killed_is_known_as_soon_with_a_worker_as_without(void **state)
{
	(void)state;
	for (int forks = 0; forks < 2; forks++) {
		uint64_t ms = ms_until_known(forks);

		if (ms > KNOWN_MS)
			fail_msg("known after %llu ms, %s a worker", (unsigned long long)ms,
				 forks ? "with" : "without");
	}
}

static int set_up(void **state)
{
	(void)state;
	shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !mkdtemp(stats_dir))
		return -1;
	snprintf(event_log, sizeof(event_log), "%s/events", stats_dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	if (atomic_load(&shared->worker) > 0)
		kill(atomic_load(&shared->worker), SIGKILL);
	fabric_down();
	rmdir(stats_dir);
	munmap(shared, sizeof(*shared));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_peer_that_is_killed_is_known_as_soon_with_a_worker_as_without),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
