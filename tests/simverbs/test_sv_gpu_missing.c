/* SPDX-License-Identifier: Apache-2.0 */
/* A fabric that would reach GPUs, and a process that has no driver, or an old one. */
#include "world.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH ((size_t)8192)

/* What registering it says on stderr. */
static void register_and_listen(const struct world *w, void *at, char *said, size_t size)
{
	int fd = memfd_create("stderr", 0), kept = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(fd >= 0 && kept >= 0);
	fflush(stderr);
	dup2(fd, STDERR_FILENO);
	errno = 0;
	assert_null(ibv_reg_mr(w->a.pd, at, LENGTH, all_access));
	assert_int_equal(errno, EFAULT);
	fflush(stderr);
	dup2(kept, STDERR_FILENO);
	close(kept);
	n = pread(fd, said, size - 1, 0);
	assert_true(n >= 0);
	said[n] = '\0';
	close(fd);
}

static void what_is_missing_is_said_once_each(void **state)
{
	struct world *w = *state;
	void *at = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char said[1000];
	void *old;

	assert_ptr_not_equal(at, MAP_FAILED);
	register_and_listen(w, at, said, sizeof(said));
	assert_non_null(strstr(said, "the process has not loaded libcuda.so.1"));
	assert_non_null(strstr(said, "nvidia-smi"));
	register_and_listen(w, at, said, sizeof(said));
	assert_string_equal(said, "");
	old = dlopen(OLD_CUDA, RTLD_NOW);
	assert_non_null(old);
	register_and_listen(w, at, said, sizeof(said));
	assert_non_null(strstr(said, "libcuda.so.1 has no cuPointerGetAttribute"));
	register_and_listen(w, at, said, sizeof(said));
	assert_string_equal(said, "");
	dlclose(old);
	munmap(at, LENGTH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(what_is_missing_is_said_once_each, .fabric.gpu = true),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
