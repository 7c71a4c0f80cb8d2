/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path isend → test and irecv → test in steady state: no allocation, no lock, no system call.
 *
 * Allocators and locks are this program's own, so every use in the process is seen; those made
 * inside a verb are the fabric's and not counted. System calls are forbidden by the kernel: a
 * child in strict seccomp mode carries messages, and would be killed by the first one.
 */
#include "harness.h"
#include "instance/instance.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int watching; /* between start and stop of the part that must be pure */
static int in_verb;
static int allocations, locks;

static void count(int *what)
{
	if (watching && !in_verb)
		(*what)++;
}

/* ---- everything that allocates or locks ------------------------------------------------------ */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *ptr);

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	count(&allocations);
	return __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t size)
{
	count(&allocations);
	return __libc_calloc(n, size);
}

__attribute__((visibility("default"))) void *realloc(void *ptr, size_t size)
{
	count(&allocations);
	return __libc_realloc(ptr, size);
}

__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t size)
{
	count(&allocations);
	return __libc_memalign(alignment, size);
}

__attribute__((visibility("default"))) int posix_memalign(void **out, size_t alignment, size_t size)
{
	count(&allocations);
	*out = __libc_memalign(alignment, size);
	return *out ? 0 : ENOMEM;
}

__attribute__((visibility("default"))) void free(void *ptr)
{
	count(&allocations);
	__libc_free(ptr);
}

#define LOCK(name, type)                                                                           \
	__attribute__((visibility("default"))) int name(type *lock)                                \
	{                                                                                          \
		static int (*real)(type *);                                                        \
		if (!real)                                                                         \
			*(void **)&real = dlsym(RTLD_NEXT, #name);                                 \
		count(&locks);                                                                     \
		return real(lock);                                                                 \
	}

LOCK(pthread_mutex_lock, pthread_mutex_t)
LOCK(pthread_mutex_trylock, pthread_mutex_t)
LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

static int (*real_spin_lock)(pthread_spinlock_t *);

__attribute__((visibility("default"))) int pthread_spin_lock(pthread_spinlock_t *lock)
{
	if (!real_spin_lock)
		*(void **)&real_spin_lock = dlsym(RTLD_NEXT, "pthread_spin_lock");
	count(&locks);
	return real_spin_lock(lock);
}

/* ---- verbs, fenced off ----------------------------------------------------------------------- */

static struct ibv_context_ops real_ops;

static int fenced_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc;

	in_verb++;
	rc = real_ops.post_send(qp, wr, bad);
	in_verb--;
	return rc;
}

static int fenced_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int rc;

	in_verb++;
	rc = real_ops.post_recv(qp, wr, bad);
	in_verb--;
	return rc;
}

static int fenced_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int rc;

	in_verb++;
	rc = real_ops.poll_cq(cq, n, wc);
	in_verb--;
	return rc;
}

static void fence_verbs(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_context_ops *ops =
		    &ha_instance_devices(pair->inst[i])->nics[0].now->ctx->ops;

		real_ops = *ops;
		ops->post_send = fenced_post_send;
		ops->post_recv = fenced_post_recv;
		ops->poll_cq = fenced_poll_cq;
	}
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* Steps the fabric only: connections are served by what NCCL calls. False: it did not finish. */
static bool finish(struct ha_request *req)
{
	for (int i = 0; i < 10000; i++) {
		int sizes[HA_GROUP_MAX];
		bool done;

		watching = 1;
		if (ha_test(req, &done, sizes) != HA_OK)
			return false;
		watching = 0;
		if (done)
			return true;
		sv_stepped_step();
	}
	return false;
}

static bool exchange(struct pair *pair, int n, size_t size)
{
	struct ha_request *recv, *send[HA_GROUP_MAX];
	size_t sizes[HA_GROUP_MAX];
	void *data[HA_GROUP_MAX];
	struct ha_mr *mrs[HA_GROUP_MAX];
	int tags[HA_GROUP_MAX];

	for (int i = 0; i < n; i++) {
		data[i] = pair->to.bytes + (size_t)i * 65536;
		sizes[i] = 65536;
		mrs[i] = pair->to.mr;
		tags[i] = i;
	}
	watching = 1;
	if (ha_irecv(pair->recv, n, data, sizes, tags, mrs, &recv) != HA_OK || !recv)
		return false;
	watching = 0;
	for (int i = 0; i < n; i++) {
		send[i] = NULL;
		for (int k = 0; k < 1000 && !send[i]; k++) {
			watching = 1;
			if (ha_isend(pair->send, pair->from.bytes, size, i, pair->from.mr,
				     &send[i]) != HA_OK)
				return false;
			watching = 0;
			if (!send[i])
				sv_stepped_step();
		}
	}
	for (int i = 0; i < n; i++)
		if (!finish(send[i]))
			return false;
	return finish(recv);
}

static bool traffic(struct pair *pair)
{
	static const size_t sizes[] = {0, 8, 72, 73, 4096, 65536};

	for (int round = 0; round < 100; round++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (int n = 1; n <= HA_GROUP_MAX; n += 7)
				if (!exchange(pair, n, sizes[i]))
					return false;
	return true;
}

/* Shapes of traffic: plain; data and notice apart; several queue pairs, spread. */
static void shape(struct ha_config *config, int which)
{
	config->ib_adaptive_routing = which == 1;
	config->ib_ar_threshold = 100;
	if (which == 2) {
		config->ib_qps_per_connection = 4;
		config->ib_split_data_on_qps = true;
	}
}

static void messages_need_no_allocation_and_no_lock(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		struct pair pair;
		void *volatile p; /* or a compiler does without */

		pair_init(&pair);
		shape(&pair.config, which);
		pair_up(&pair);
		fence_verbs(&pair);
		allocations = locks = 0;
		assert_true(traffic(&pair));
		assert_int_equal(allocations, 0);
		assert_int_equal(locks, 0);
		/* The counters do count. */
		watching = 1;
		p = malloc(1);
		free(p);
		ha_progress_round(pair.inst[0]->progress);
		watching = 0;
		assert_int_equal(allocations, 2);
		assert_true(locks > 0);
		pair_close(&pair);
	}
}

/* In a child; ends by the system call that strict mode leaves to end with. */
static void in_strict_mode(struct pair *pair, bool break_the_rule)
{
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
		syscall(SYS_exit, 2);
	if (!traffic(pair))
		syscall(SYS_exit, 1);
	if (break_the_rule)
		(void)syscall(SYS_getpid);
	syscall(SYS_exit, 0);
}

static int status_of_child(struct pair *pair, bool break_the_rule)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		in_strict_mode(pair, break_the_rule);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void messages_need_no_system_call(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		struct pair pair;
		int status;

		pair_init(&pair);
		shape(&pair.config, which);
		pair_up(&pair);
		assert_true(traffic(&pair)); /* steady state; the fabric has its memory */
		status = status_of_child(&pair, false);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		/* The kernel does forbid. */
		status = status_of_child(&pair, true);
		assert_true(WIFSIGNALED(status));
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_need_no_allocation_and_no_lock),
	    cmocka_unit_test(messages_need_no_system_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
