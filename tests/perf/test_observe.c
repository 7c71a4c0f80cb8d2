/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl-net-perf reports of a plugin's counters. */
#include "../unit/cmocka_all.h"

#include "base/stats.h"
#include "base/stats_reader.h"
#include "tools/nccl-net-perf/observe.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAILOVERS 7
#define WRITES_US 20000

static const struct ha_config on = {.stats = true};

/* The job's record of a statistics file, as whoever writes it sees it. */
struct job_record {
	void *file;
	size_t size;
	uint64_t *sequence;
};

static void map_job_record(const char *path, struct job_record *record)
{
	struct ha_stats_reader reader;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ha_stats_reader_open_fd(&reader, fd), 0);
	record->size = reader.size;
	record->file = mmap(NULL, reader.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(record->file, MAP_FAILED);
	record->sequence = (uint64_t *)(void *)((char *)record->file + reader.header.job.offset);
	ha_stats_reader_close(&reader);
	close(fd);
}

static void *end_write(void *arg)
{
	struct job_record *record = arg;

	usleep(WRITES_US);
	__atomic_fetch_sub(record->sequence, 1, __ATOMIC_RELEASE);
	return NULL;
}

static json_int_t reported_failovers(const struct np_observed *seen)
{
	json_t *report = json_object();
	json_int_t failovers = -1;

	assert_true(np_observe_add_json(report, seen, 1));
	assert_int_equal(json_unpack(report, "{s:{s:{s:I}}}", "counters", "connections",
				     "failovers", &failovers),
			 0);
	json_decref(report);
	return failovers;
}

/* The thread that writes may be taken off its processor in the middle of it. */
static void counters_are_reported_also_when_their_record_is_being_written(void **state)
{
	struct ha_stats *stats = ha_stats_open(&on);
	struct nccl_ha_conn_stats conn = {.in_use = 1, .failovers = FAILOVERS};
	static struct np_observed seen;
	struct job_record record;
	pthread_t writer;

	(void)state;
	assert_non_null(stats);
	ha_stats_conn_write(stats, ha_stats_conn_add(stats), &conn);
	map_job_record(ha_stats_path(stats), &record);
	__atomic_fetch_add(record.sequence, 1, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(&writer, NULL, end_write, &record), 0);
	np_observe_counters();
	assert_int_equal(pthread_join(writer, NULL), 0);
	np_observe_take(&seen);
	assert_int_equal(seen.counted, 1);
	assert_int_equal(reported_failovers(&seen), FAILOVERS);
	munmap(record.file, record.size);
	ha_stats_close(stats);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(counters_are_reported_also_when_their_record_is_being_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
