/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a hint: what was never written is never read, whoever writes at whatever moment, or cuts
 * the file; and it costs what may be paid for each message.
 */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "hints/hint.h"
#include "hints/hint_file.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define OURS_SRC   0x0100000au
#define OURS_DST   0x0200000au
#define OTHERS_SRC 0x0300000au
#define OTHERS_DST 0x0400000au

#define SLOT 7

static uint64_t ips_of(uint32_t src, uint32_t dst)
{
	const uint32_t both[2] = {src, dst};
	uint64_t ips;

	memcpy(&ips, both, sizeof(ips));
	return ips;
}

/* ---- a file, as its writer has it ------------------------------------------------------------ */

static struct {
	int fd;
	struct mpib_hint_shm *map;
	struct mpib_hint_entry *entry;
} file;

static int begin_file(void **state)
{
	(void)state;
	file.fd = memfd_create("hints", MFD_CLOEXEC);
	if (file.fd < 0 || ftruncate(file.fd, MPIB_HINT_BYTES) != 0)
		return -1;
	file.map = mmap(NULL, MPIB_HINT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
	if (file.map == MAP_FAILED)
		return -1;
	file.entry = &file.map->entries[SLOT];
	return 0;
}

static int end_file(void **state)
{
	(void)state;
	munmap(file.map, MPIB_HINT_BYTES);
	return close(file.fd);
}

static void cut_file_to(off_t bytes)
{
	assert_int_equal(ftruncate(file.fd, bytes), 0);
}

static void write_entry(struct mpib_hint_entry *entry, uint32_t share, uint32_t src, uint32_t dst)
{
	uint32_t seq = __atomic_load_n(&entry->seq, __ATOMIC_RELAXED);

	__atomic_store_n(&entry->seq, seq + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->sup_bw, share, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->src_ip, src, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->dst_ip, dst, __ATOMIC_RELEASE);
	__atomic_store_n(&entry->seq, seq + 2, __ATOMIC_RELEASE);
}

static void write_ours(uint32_t share)
{
	write_entry(file.entry, share, OURS_SRC, OURS_DST);
}

static struct ha_hint hint_of_file(void)
{
	return (struct ha_hint){.at = ha_hint_at(SLOT),
				.fd = file.fd,
				.ips = ips_of(OURS_SRC, OURS_DST),
				.last = HA_HINT_NONE};
}

/* When nothing is fresh any more that was read before. */
static uint32_t read_later(struct ha_hint *hint)
{
	return ha_hint_read(hint, hint->fresh_until_ns);
}

static void what_was_written_is_read_when_the_last_look_is_old(void **state)
{
	struct ha_hint hint = hint_of_file();

	(void)state;
	for (uint32_t share = 0; share <= MPIB_HINT_ALL; share++) {
		write_ours(share);
		assert_int_equal(read_later(&hint), share);
	}
	write_ours(1025);
	assert_int_equal(read_later(&hint), 1024);
	write_ours(7);
	write_ours(UINT32_MAX);
	assert_int_equal(read_later(&hint), 1024);
}

static void a_look_is_good_for_20_us_and_no_longer(void **state)
{
	const uint64_t at_ns = 12345678;
	struct ha_hint hint = hint_of_file();

	(void)state;
	write_ours(300);
	assert_int_equal(ha_hint_read(&hint, at_ns), 300);
	write_ours(301);
	assert_int_equal(ha_hint_read(&hint, at_ns + 19999), 300);
	assert_int_equal(ha_hint_read(&hint, at_ns + 20000), 301);
	write_ours(302);
	assert_int_equal(ha_hint_read(&hint, at_ns + 39999), 301);
	assert_int_equal(ha_hint_read(&hint, at_ns + 10 * HA_NS_PER_S), 302);
}

static void without_an_entry_there_is_no_hint(void **state)
{
	struct ha_hint hint = {.last = 512};

	(void)state;
	assert_true(ha_hint_read(&hint, 1) == HA_HINT_NONE);
}

static void of_a_writer_that_died_half_way_the_last_value_stands(void **state)
{
	struct ha_hint hint = hint_of_file();

	(void)state;
	write_ours(300);
	assert_int_equal(read_later(&hint), 300);
	file.entry->seq++;
	file.entry->sup_bw = 900;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(read_later(&hint), 300);
	file.entry->seq++;
	assert_int_equal(read_later(&hint), 900);
}

static void another_flows_entry_is_not_believed(void **state)
{
	struct ha_hint hint = hint_of_file();

	(void)state;
	write_ours(300);
	assert_int_equal(read_later(&hint), 300);
	write_entry(file.entry, 900, OURS_SRC, OTHERS_DST);
	assert_int_equal(read_later(&hint), 300);
	write_entry(file.entry, 901, OTHERS_SRC, OURS_DST);
	assert_int_equal(read_later(&hint), 300);
	write_entry(file.entry, 0, 0, 0);
	assert_int_equal(read_later(&hint), 300);
	write_ours(500);
	assert_int_equal(read_later(&hint), 500);
}

/* Before the entry, within it, at its end. */
static void a_cut_leaves_the_last_value(uint32_t src, uint32_t dst)
{
	const off_t end = ha_hint_at(SLOT + 1);
	struct ha_hint hint = hint_of_file();

	hint.ips = ips_of(src, dst);
	for (off_t bytes = 0; bytes <= end; bytes++) {
		cut_file_to(MPIB_HINT_BYTES);
		write_entry(file.entry, 300, src, dst);
		assert_int_equal(read_later(&hint), 300);
		write_entry(file.entry, 301, src, dst);
		cut_file_to(bytes);
		assert_int_equal(read_later(&hint), bytes < end ? 300 : 301);
	}
}

static void of_a_file_that_is_cut_anywhere_the_last_value_stands(void **state)
{
	(void)state;
	a_cut_leaves_the_last_value(OURS_SRC, OURS_DST);
	a_cut_leaves_the_last_value(0, 0);
}

/* ---- at full speed --------------------------------------------------------------------------- */

static _Atomic bool write_no_more;

/* Ours and another flow's by turns: with ours, even shares below 1024; with the other's odd ones.
 */
static void *write_on(void *arg)
{
	(void)arg;
	for (uint32_t i = 0; !write_no_more; i++)
		if (i & 1)
			write_entry(file.entry, i & 1023, OTHERS_SRC, OTHERS_DST);
		else
			write_ours(i & 1022);
	return NULL;
}

/* Cut to nothing, and whole again, as one who begins anew does it: no mapping lives through that.
 */
static void *cut_on(void *arg)
{
	struct mpib_hint_entry entry = {.src_ip = OURS_SRC, .dst_ip = OURS_DST};

	(void)arg;
	for (uint32_t i = 0; !write_no_more; i++) {
		cut_file_to(0);
		entry.seq = 2 * i;
		entry.sup_bw = i & 1022;
		assert_int_equal(pwrite(file.fd, &entry, sizeof(entry), ha_hint_at(SLOT)),
				 sizeof(entry));
	}
	return NULL;
}

static long reads(void)
{
	const char *text = getenv("HA_HINT_READS");

	return text ? atol(text) : 300000;
}

static void what_is_read_was_written_beside(void *(*write)(void *), long n)
{
	struct ha_hint hint = hint_of_file();
	const time_t end_s = time(NULL) + 30;
	uint32_t last = 0, changes = 0;
	pthread_t writer;

	write_ours(0);
	assert_int_equal(read_later(&hint), 0); /* until then the last one is none */
	write_no_more = false;
	assert_int_equal(pthread_create(&writer, NULL, write, NULL), 0);
	/* On a busy machine the writer may get its first turn only after all of the reads. */
	for (long i = 0; i < n || (!changes && time(NULL) < end_s); i++) {
		uint32_t share = read_later(&hint);

		if (share >= MPIB_HINT_ALL || share & 1)
			fail_msg("read %ld: %u was never written with these addresses", i, share);
		changes += share != last;
		last = share;
		if (i % 65536 == 0)
			usleep(1000); /* the writer gets a turn where there is one processor */
	}
	write_no_more = true;
	pthread_join(writer, NULL);
	assert_true(changes > 0);
}

static void what_is_read_was_written(void **state)
{
	(void)state;
	what_is_read_was_written_beside(write_on, reads());
}

static void what_is_read_was_written_while_the_file_is_cut_and_grows(void **state)
{
	(void)state;
	what_is_read_was_written_beside(cut_on, 100000);
}

/* ---- what it costs --------------------------------------------------------------------------- */

#ifdef AS_SHIPPED
/* Four times n, so many nanoseconds apart: with less of the loop in each. */
static __attribute__((noinline)) uint32_t read_often(struct ha_hint *hint, int n, uint64_t apart_ns)
{
	uint64_t now_ns = hint->fresh_until_ns;
	uint32_t sum = 0;

	while (n-- > 0) {
		sum += ha_hint_read(hint, now_ns += apart_ns);
		sum += ha_hint_read(hint, now_ns += apart_ns);
		sum += ha_hint_read(hint, now_ns += apart_ns);
		sum += ha_hint_read(hint, now_ns += apart_ns);
	}
	return sum;
}

static double ns_each(uint64_t apart_ns)
{
	struct ha_hint hint = hint_of_file();
	uint64_t best_ns = UINT64_MAX;
	enum { READS = 20000 };

	write_ours(300);
	for (int round = 0; round < 20; round++) {
		uint64_t began_ns = ha_real_ns(), took_ns;

		assert_true(read_often(&hint, READS / 4, apart_ns) == 300u * READS);
		took_ns = ha_real_ns() - began_ns;
		if (took_ns < best_ns)
			best_ns = took_ns;
	}
	return (double)best_ns / READS;
}

/* Of messages that follow each other after a microsecond, with the looks among them. */
static void a_read_takes_less_than_100_ns(void **state)
{
	const double each_ns = ns_each(1000);

	(void)state;
	print_message("%.1f ns; with a look into the file %.1f ns\n", each_ns,
		      ns_each(HA_HINT_FRESH_NS));
	assert_true(each_ns < 100);
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* A child that stops before `run` and after it. */
static pid_t start_child(void (*run)(void *arg), void *arg)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGUSR1);
		run(arg);
		raise(SIGUSR2);
		_exit(0);
	}
	assert_true(waitpid(child, &status, 0) == child);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR1);
	return child;
}

/* At most so many instructions of it; how many until it had run, or `most`. */
static long step(pid_t child, long most)
{
	int status;

	for (long steps = 0; steps < most; steps++) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_true(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGUSR2)
			return steps;
	}
	return most;
}

static void end_child(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

struct reading {
	struct ha_hint hint;
	uint32_t share;
	int n;
};

static struct reading *reading_new(void)
{
	struct reading *r =
	    mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(r != MAP_FAILED);
	cut_file_to(MPIB_HINT_BYTES);
	*file.entry = (struct mpib_hint_entry){0};
	r->hint = hint_of_file();
	write_ours(300);
	assert_int_equal(read_later(&r->hint), 300);
	return r;
}

static void read_once(void *arg)
{
	struct reading *r = arg;

	r->share = read_later(&r->hint);
}

static void complete_write(void)
{
	write_entry(file.entry, 901, OTHERS_SRC, OTHERS_DST);
}

/* The writer gets no further while anybody reads. */
static void half_a_write(void)
{
	file.entry->seq++;
	file.entry->sup_bw = 901;
}

static void cut(void)
{
	cut_file_to(0);
}

static void cut_in_the_entry(void)
{
	cut_file_to(ha_hint_at(SLOT) + 4);
}

static void cut_and_made_longer(void)
{
	cut_file_to(0);
	cut_file_to(MPIB_HINT_BYTES);
}

static void a_write_or_a_cut_at_any_instruction_of_a_read_is_noticed(void **state)
{
	static void (*const writes[])(void) = {complete_write, half_a_write, cut, cut_in_the_entry,
					       cut_and_made_longer};

	(void)state;
	for (size_t w = 0; w < sizeof(writes) / sizeof(writes[0]); w++) {
		bool over = false;

		for (long at = 0; !over; at++) {
			struct reading *r = reading_new();
			pid_t child = start_child(read_once, r);

			over = step(child, at) < at;
			writes[w]();
			if (!over)
				step(child, LONG_MAX);
			end_child(child);
			if (r->share != 300)
				fail_msg("write %zu after %ld instructions: %u", w, at, r->share);
			munmap(r, sizeof(*r));
			assert_true(at < 5000);
		}
	}
}

static void read_n(void *arg)
{
	struct reading *r = arg;

	read_often(&r->hint, r->n, 0);
}

static long steps_of(int n)
{
	struct reading *r = reading_new();
	long steps;
	pid_t child;

	r->n = n;
	child = start_child(read_n, r);
	steps = step(child, LONG_MAX);
	end_child(child);
	munmap(r, sizeof(*r));
	return steps;
}

static void a_read_takes_at_most_20_instructions(void **state)
{
	const long each = (steps_of(101) - steps_of(1)) / 400;

	(void)state;
	print_message("%ld instructions\n", each);
	assert_in_range(each, 4, 20);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, begin_file, end_file)
	    T(what_was_written_is_read_when_the_last_look_is_old),
	    T(a_look_is_good_for_20_us_and_no_longer),
	    T(without_an_entry_there_is_no_hint),
	    T(of_a_writer_that_died_half_way_the_last_value_stands),
	    T(another_flows_entry_is_not_believed),
	    T(of_a_file_that_is_cut_anywhere_the_last_value_stands),
	    T(what_is_read_was_written),
	    T(what_is_read_was_written_while_the_file_is_cut_and_grows),
#ifdef AS_SHIPPED
	    T(a_read_takes_less_than_100_ns),
	    T(a_write_or_a_cut_at_any_instruction_of_a_read_is_noticed),
	    T(a_read_takes_at_most_20_instructions),
#endif
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
