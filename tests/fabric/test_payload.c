/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payload arrives whole whatever the machine permits: one copy where a peer's memory may be read,
 * shared memory where it may not, and for ranges that cannot be read that way.
 */
#include "pair.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define MESSAGES 8
#define EACH	 1000003u /* bytes; odd, so that packets and pages are not aligned */

static const struct end_options opt = {.len = MESSAGES * 1024 * 1024, .timeout = 16};

enum how { AS_IT_COMES, SWITCHED_OFF, SECCOMP };

/* From here on process_vm_readv answers EPERM, as under a container's filter. */
static void forbid_reading_others(void)
{
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	NEED(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

static void prepare(const enum how *how)
{
	if (*how == SWITCHED_OFF)
		setenv("SIMVERBS_NO_CMA", "1", 1);
	if (*how == SECCOMP)
		forbid_reading_others();
}

static int writes(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	int m;

	(void)test_fd;
	prepare(arg);
	end_open(&end, peer_fd, &opt);
	for (m = 0; m < MESSAGES; m++) {
		size_t at = (size_t)m << 20, i;

		for (i = 0; i < EACH; i++)
			end.buf[at + i] = pattern((uint32_t)m, i);
		NEED(!end_post_write_imm(&end, at, EACH, (uint32_t)m));
	}
	for (m = 0; m < MESSAGES; m++)
		NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
	meet(peer_fd);
	/* And back: overwrite ours with zeros, read theirs. */
	memset(end.buf, 0, end.len);
	NEED(!end_post_read(&end, 0, 3 << 20));
	NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
	for (m = 0; m < 3; m++)
		for (size_t i = 0; i < EACH; i++)
			NEED(end.buf[((size_t)m << 20) + i] == pattern((uint32_t)m, i));
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static int checks(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	int m;

	(void)test_fd;
	prepare(arg);
	end_open(&end, peer_fd, &opt);
	for (m = 0; m < MESSAGES; m++)
		NEED(!end_post_recv(&end, 0, 0));
	for (m = 0; m < MESSAGES; m++) {
		size_t at = (size_t)m << 20, i;

		NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
		NEED(be32toh(wc.imm_data) == (uint32_t)m && wc.byte_len == EACH);
		for (i = 0; i < EACH; i++)
			NEED(end.buf[at + i] == pattern((uint32_t)m, i));
		NEED(end.buf[at + EACH] == 0);
	}
	meet(peer_fd);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static json_t *transfer(enum how how)
{
	struct pair pair;
	json_t *status;

	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, writes, checks, &how);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	status = fabric_status();
	assert_non_null(status);
	fabric_down();
	return status;
}

static void one_copy_where_the_kernel_permits_it(void **state)
{
	json_t *status = transfer(AS_IT_COMES);

	(void)state;
	if (status_counter(status, "cma_refused"))
		print_message("this kernel refuses process_vm_readv: nothing to see here\n");
	else
		assert_true(status_counter(status, "copy_direct_bytes") >= 10 * 1000000);
	json_decref(status);
}

static void shared_memory_when_switched_off(void **state)
{
	json_t *status = transfer(SWITCHED_OFF);

	(void)state;
	assert_true(status_counter(status, "copy_shared_bytes") >= 10 * 1000000);
	assert_int_equal(status_counter(status, "copy_direct_bytes"), 0);
	assert_int_equal(status_counter(status, "cma_refused"), 2);
	json_decref(status);
}

static void shared_memory_when_the_kernel_refuses(void **state)
{
	json_t *status = transfer(SECCOMP);

	(void)state;
	assert_true(status_counter(status, "copy_shared_bytes") >= 10 * 1000000);
	assert_int_equal(status_counter(status, "copy_direct_bytes"), 0);
	assert_int_equal(status_counter(status, "cma_refused"), 2);
	json_decref(status);
}

/* --- memory that cannot be read from outside ------------------------------------------------ */

/*
 * The kernel's [vvar] page is such memory: a process reads it, but it is mapped the way a device's
 * memory is, and process_vm_readv refuses it.
 */
static void *unreadable_page(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	void *found = NULL;

	NEED(maps);
	while (!found && fgets(line, sizeof(line), maps)) {
		unsigned long start;

		if (strstr(line, "[vvar]") && sscanf(line, "%lx", &start) == 1)
			found = (void *)start;
	}
	fclose(maps);
	return found;
}

/*
 * A range whose ends can be read from outside and whose middle cannot: from the page before [vvar],
 * which we make if there is none, to the first of [vdso], which lies behind. Returns its length.
 */
static size_t range_around(const uint8_t *page)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long vdso = 0;
	void *before;

	NEED(maps);
	while (!vdso && fgets(line, sizeof(line), maps))
		if (strstr(line, "[vdso]"))
			NEED(sscanf(line, "%lx", &vdso) == 1);
	fclose(maps);
	NEED(vdso > (uintptr_t)page);
	before = mmap((void *)(uintptr_t)(page - 4096), 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	NEED(before != MAP_FAILED || errno == EEXIST);
	return vdso - (uintptr_t)page + 2 * 4096;
}

/* How it is found out that the page cannot be read: when it is registered, or by the first packet.
 */
enum found_out { BY_REGISTRATION, BY_PACKET };

/* Three times the first page, so that it is too much to travel inside a record. */
static int sends_unreadable(int peer_fd, int test_fd, void *arg)
{
	/* 4 s: what is sent again would be a fault, and counted, again. */
	struct end_options o = {.len = 4096, .timeout = 20, .read_only = true};
	struct ibv_sge sge[3];
	struct ibv_send_wr *bad, wr = {.sg_list = sge,
				       .num_sge = 3,
				       .opcode = IBV_WR_RDMA_WRITE,
				       .send_flags = IBV_SEND_SIGNALED};
	struct end end;
	struct ibv_wc wc;
	uint8_t *page = unreadable_page();
	int i;

	(void)test_fd;
	NEED(page);
	o.buf = page;
	if (*(enum found_out *)arg == BY_PACKET) {
		o.len = range_around(page);
		o.buf = page - 4096;
	}
	end_open(&end, peer_fd, &o);
	for (i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)page, 4096, end.mr->lkey};
	wr.wr.rdma.remote_addr = end.peer_addr;
	wr.wr.rdma.rkey = end.peer_rkey;
	for (i = 0; i < 2; i++) {
		NEED(!ibv_post_send(end.qp, &wr, &bad));
		NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
	}
	meet(peer_fd);
	end.buf = NULL;
	end_close(&end);
	return 0;
}

static int gets_unreadable(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	size_t i, set = 0;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	for (i = 0; i < 3 * 4096; i++)
		set += end.buf[i] != 0;
	NEED(set > 0);
	end_close(&end);
	return 0;
}

/* Two writes of 12 KiB; the first of them again if it is what finds out. */
static void send_unreadable(enum found_out how, int faults)
{
	struct pair pair;
	json_t *status;

	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, sends_unreadable, gets_unreadable, &how);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	status = fabric_status();
	assert_non_null(status);
	assert_true(status_counter(status, "copy_shared_bytes") >= 2 * 3 * 4096);
	if (!status_counter(status, "cma_refused")) {
		assert_int_equal(status_counter(status, "cma_faults"), faults);
		assert_true(faults || !status_counter(status, "retransmits"));
	}
	json_decref(status);
	fabric_down();
}

static void a_region_that_cannot_be_read_goes_through_shared_memory(void **state)
{
	(void)state;
	send_unreadable(BY_REGISTRATION, 0);
}

static void a_range_that_cannot_be_read_is_found_by_the_first_packet(void **state)
{
	(void)state;
	send_unreadable(BY_PACKET, 1);
}

/* --- memory that nobody can read ------------------------------------------------------------ */

static int registers_unreadable(int peer_fd, int test_fd, void *arg)
{
	/* As addresses of GPU memory look to the processor. */
	void *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct end end;

	(void)arg;
	(void)test_fd;
	end_open(&end, peer_fd, &opt);
	NEED(none != MAP_FAILED);
	NEED(!ibv_reg_mr(end.pd, none, 8192, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	/* And what NCCL asks to find out whether GPU memory can be had as a dmabuf. */
	NEED(!ibv_reg_dmabuf_mr(end.pd, 0, 0, 0, -1, 0) && errno == EOPNOTSUPP);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void memory_that_no_processor_can_read_is_refused(void **state)
{
	struct pair pair;

	(void)state;
	fabric_up("--hosts 2 --rails 1");
	pair_start(&pair, registers_unreadable, registers_unreadable, NULL);
	assert_int_equal(pair_join(&pair, 0, 60), 0);
	assert_int_equal(pair_join(&pair, 1, 60), 0);
	fabric_down();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_copy_where_the_kernel_permits_it),
	    cmocka_unit_test(shared_memory_when_switched_off),
	    cmocka_unit_test(shared_memory_when_the_kernel_refuses),
	    cmocka_unit_test(a_region_that_cannot_be_read_goes_through_shared_memory),
	    cmocka_unit_test(a_range_that_cannot_be_read_is_found_by_the_first_packet),
	    cmocka_unit_test(memory_that_no_processor_can_read_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
