/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzzing main for any compiler: bounded, repeatable, without guidance by coverage. Every run
 * mutates a seed, or an earlier mutant, a few times. When the harness fails or hangs, the input is
 * left in a file, and the line to run it again with is printed.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define INPUT_MAX     4096
#define POOL	      64 /* mutants kept to go on from */
#define RUNS_PER_BEAT 16 /* between two settings of the hang alarm */
#define HANG_S	      60 /* of a beat; the machine may have other things to do */

struct input {
	uint8_t data[INPUT_MAX];
	size_t size;
};

static struct input pool[POOL], current;
static struct input *seeds; /* the harness's own and then those of --corpus */
static size_t nseeds;
static uint64_t random_state;
static char crash_path[256];

/* Defined by the sanitizers' runtime, if there is one: calls us before it ends the process. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* splitmix64 */
static uint64_t next_random(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static size_t below(size_t limit)
{
	return limit ? (size_t)(next_random() % limit) : 0;
}

/* ---- failure -------------------------------------------------------------------------------- */

/* Async-signal-safe. */
static void save_input(void)
{
	static const char text[] = "fuzz: input of the failure saved; run again with it: ";
	int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, current.data, current.size) < 0)
		return;
	close(fd);
	if (write(STDERR_FILENO, text, sizeof text - 1) < 0 ||
	    write(STDERR_FILENO, crash_path, strlen(crash_path)) < 0 ||
	    write(STDERR_FILENO, "\n", 1) < 0)
		return;
}

static void on_signal(int signal_number)
{
	static const char hang[] = "fuzz: an input did not end in time\n";

	if (signal_number == SIGALRM && write(STDERR_FILENO, hang, sizeof hang - 1) < 0)
		_exit(1);
	save_input();
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

static void watch_for_failure(const char *program)
{
	static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM};
	const char *slash = strrchr(program, '/');

	snprintf(crash_path, sizeof crash_path, "crash-%s", slash ? slash + 1 : program);
	if (__sanitizer_set_death_callback) {
		__sanitizer_set_death_callback(save_input);
		signal(SIGALRM, on_signal);
		return;
	}
	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		signal(signals[i], on_signal);
}

/* ---- mutations ------------------------------------------------------------------------------ */

static void flip_bit(struct input *in)
{
	if (in->size)
		in->data[below(in->size)] ^= (uint8_t)(1u << below(8));
}

static void set_byte(struct input *in)
{
	static const uint8_t telling[] = {0,   1,   0x7f, 0x80, 0xff, '\n', ' ', ',', ':',
					  '=', '^', '/',  '-',	'0',  '9',  '%', '.', 'x'};

	if (in->size)
		in->data[below(in->size)] =
		    below(2) ? telling[below(sizeof telling)] : (uint8_t)next_random();
}

/* Boundary values of the integer types, as they would lie in a binary message. */
static void set_integer(struct input *in)
{
	static const uint64_t telling[] = {0,
					   1,
					   0x7f,
					   0xff,
					   0x7fff,
					   0xffff,
					   0x7fffffff,
					   0x80000000,
					   0xffffffff,
					   0x7fffffffffffffff,
					   0xffffffffffffffff,
					   64,
					   4096};
	size_t width = (size_t)1 << below(4);
	uint64_t value = telling[below(sizeof telling / sizeof telling[0])];

	if (in->size >= width)
		memcpy(in->data + below(in->size - width + 1), &value, width);
}

static void delete_range(struct input *in)
{
	size_t at = below(in->size), length = below(in->size - at) + 1;

	if (!in->size)
		return;
	memmove(in->data + at, in->data + at + length, in->size - at - length);
	in->size -= length;
}

static void insert_bytes(struct input *in, const uint8_t *bytes, size_t length)
{
	size_t at = below(in->size + 1);

	if (length > INPUT_MAX - in->size)
		length = INPUT_MAX - in->size;
	memmove(in->data + at + length, in->data + at, in->size - at);
	memmove(in->data + at, bytes, length);
	in->size += length;
}

static void repeat_byte(struct input *in)
{
	uint8_t bytes[300];

	memset(bytes, (int)below(256), sizeof bytes);
	insert_bytes(in, bytes, below(sizeof bytes));
}

static void insert_part_of_another(struct input *in)
{
	struct input other = pool[below(POOL)];
	size_t from = below(other.size);

	insert_bytes(in, other.data + from, below(other.size - from + 1));
}

static void truncate_input(struct input *in)
{
	in->size = below(in->size + 1);
}

static void mutate(struct input *in)
{
	static void (*const mutations[])(struct input *) = {
	    flip_bit,
	    set_byte,
	    set_byte,
	    set_integer,
	    delete_range,
	    repeat_byte,
	    insert_part_of_another,
	    truncate_input,
	};

	for (size_t n = 1 + below(6); n > 0; n--)
		mutations[below(sizeof mutations / sizeof mutations[0])](in);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static struct input *add_seed(void)
{
	seeds = realloc(seeds, (nseeds + 1) * sizeof(*seeds));
	if (!seeds)
		abort();
	return &seeds[nseeds++];
}

static void take_own_seeds(void)
{
	for (const struct fuzz_seed *own = fuzz_seeds; own->data; own++) {
		struct input *seed = add_seed();

		seed->size = own->size < INPUT_MAX ? own->size : INPUT_MAX;
		memcpy(seed->data, own->data, seed->size);
	}
}

static bool read_input(const char *path, struct input *in)
{
	FILE *file = fopen(path, "rb");

	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return false;
	}
	in->size = fread(in->data, 1, INPUT_MAX, file);
	fclose(file);
	return true;
}

static int is_no_dot(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* The files of a folder, by name, so that a run is the same everywhere. */
static bool take_corpus(const char *directory)
{
	struct dirent **entries;
	int n = scandir(directory, &entries, is_no_dot, alphasort);
	bool all = n >= 0;
	char path[4096];

	if (n < 0)
		fprintf(stderr, "%s: %s\n", directory, strerror(errno));
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
		all = all && read_input(path, add_seed());
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return all;
}

static void fuzz(uint64_t runs)
{
	if (nseeds == 0) {
		fprintf(stderr, "the harness has no seeds\n");
		exit(2);
	}
	for (size_t i = 0; i < POOL; i++)
		pool[i] = seeds[i % nseeds];
	for (uint64_t run = 0; run < runs; run++) {
		if (run % RUNS_PER_BEAT == 0)
			alarm(HANG_S);
		if (run < nseeds) { /* the seeds as they are */
			current = seeds[run];
		} else {
			/* Mostly from a seed: mutants drift towards noise. */
			if (below(4))
				current = seeds[below(nseeds)];
			else
				current = pool[below(POOL)];
			mutate(&current);
			if (below(16) == 0)
				pool[below(POOL)] = current;
		}
		LLVMFuzzerTestOneInput(current.data, current.size);
	}
	alarm(0);
}

static int run_file(const char *path)
{
	if (!read_input(path, &current))
		return 1;
	LLVMFuzzerTestOneInput(current.data, current.size);
	return 0;
}

/* The seeds as files, for libFuzzer to start from. */
static int write_seeds(const char *directory)
{
	char path[4096];

	for (size_t i = 0; fuzz_seeds[i].data; i++) {
		FILE *file;

		snprintf(path, sizeof path, "%s/seed-%zu", directory, i);
		file = fopen(path, "wb");
		if (!file ||
		    fwrite(fuzz_seeds[i].data, 1, fuzz_seeds[i].size, file) != fuzz_seeds[i].size) {
			fprintf(stderr, "%s: %s\n", path, strerror(errno));
			return 1;
		}
		fclose(file);
	}
	return 0;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	if (!text)
		return false;
	*out = strtoull(text, &end, 0);
	return end != text && !*end;
}

int main(int argc, char **argv)
{
	uint64_t runs = 100000, seed = 1;
	bool files = false;

	watch_for_failure(argv[0]);
	if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0)
		return write_seeds(argv[2]);
	take_own_seeds();
	for (int i = 1; i < argc; i++) {
		bool is_runs = strcmp(argv[i], "--runs") == 0;

		if (i + 1 < argc && strcmp(argv[i], "--corpus") == 0) {
			if (!take_corpus(argv[++i]))
				return 1;
		} else if (!is_runs && strcmp(argv[i], "--seed") != 0) {
			files = true;
			if (run_file(argv[i]) != 0)
				return 1;
		} else if (!parse_number(argv[++i], is_runs ? &runs : &seed)) {
			fprintf(stderr,
				"usage: %s [--corpus DIRECTORY] [--runs N] [--seed N]\n"
				"       %s FILE...\n       %s "
				"--write-seeds DIRECTORY\n",
				argv[0], argv[0], argv[0]);
			return 2;
		}
	}
	if (files)
		return 0;
	random_state = seed;
	fuzz(runs);
	printf("%llu inputs from seed %llu: all well\n", (unsigned long long)runs,
	       (unsigned long long)seed);
	return 0;
}
